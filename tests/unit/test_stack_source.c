/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is heard of a group: not what this host has sent, where a card loops it back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <string.h>

#include "net/mirror.h"
#include "runtime/libc.h"
#include "stack/internal.h"

#define IFINDEX 78

static struct ring ring;
static struct stack st;

static struct in6_addr addr_of(const char *text)
{
	struct in6_addr a = {.s6_addr = {[10] = 0xff, 0xff}};

	if (inet_pton(AF_INET, text, &a.s6_addr[12]) != 1)
		assert_int_equal(inet_pton(AF_INET6, text, &a), 1);
	return a;
}

/* The host has the address, by what the kernel would tell. */
static void address_add(const char *text)
{
	struct in6_addr a = addr_of(text);
	bool v4 = IN6_IS_ADDR_V4MAPPED(&a);
	uint8_t len = v4 ? 4 : 16;
	struct {
		_Alignas(8) struct nlmsghdr h;
		struct ifaddrmsg ifa;
		struct nlattr attr;
		uint8_t addr[16];
	} m = {
		.h = {.nlmsg_type = RTM_NEWADDR},
		.ifa = {.ifa_family = v4 ? AF_INET : AF_INET6,
			.ifa_prefixlen = v4 ? 24 : 64,
			.ifa_index = IFINDEX},
		.attr = {.nla_type = IFA_LOCAL, .nla_len = (uint16_t)(NLA_HDRLEN + len)},
	};

	memcpy(m.addr, v4 ? &a.s6_addr[12] : a.s6_addr, len);
	m.h.nlmsg_len = (uint32_t)(offsetof(__typeof__(m), addr) + len);
	addr_input(&m.h, 1);
	assert_true(net_addr_is_local(&a, IFINDEX));
}

static bool heard(const char *from, const char *group)
{
	struct buf_meta m = {.src = addr_of(from), .dst = addr_of(group)};

	m.family = IN6_IS_ADDR_V4MAPPED(&m.src) ? AF_INET : AF_INET6;
	m.multicast = IN6_IS_ADDR_MULTICAST(&m.dst) || m.dst.s6_addr[12] >> 4 == 14;
	return stack_source_ok_slow(&st, &m);
}

static int setup(void **state)
{
	(void)state;
	libc_load();
	ring = (struct ring){.ifindex = IFINDEX};
	st = (struct stack){.ring = &ring, .ifindex = IFINDEX};
	assert_int_equal(stack_sources_init(&st, IFINDEX, 1), 0);
	address_add("10.0.0.1");
	address_add("fd00::1");
	address_add("fe80::1");
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	free(st.sources);
	return 0;
}

static void what_this_host_sends_is_not_heard_from_a_card_that_loops(void **state)
{
	(void)state;
	ring.caps.hears_itself = true;
	assert_false(heard("10.0.0.1", "239.1.2.3"));
	assert_false(heard("fd00::1", "ff15::1"));
	assert_false(heard("fe80::1", "ff02::1"));
	assert_true(heard("10.0.0.2", "239.1.2.3"));
	assert_true(heard("fd00::2", "ff15::1"));
	assert_true(heard("fe80::2", "ff02::1"));
}

/* Where no device loops it is somebody else's with our address: as the kernel has it. */
static void elsewhere_the_kernel_says(void **state)
{
	(void)state;
	assert_true(heard("fd00::1", "ff15::1"));
	assert_true(heard("fd00::1", "fd00::1"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			what_this_host_sends_is_not_heard_from_a_card_that_loops, setup, teardown),
		cmocka_unit_test_setup_teardown(elsewhere_the_kernel_says, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
