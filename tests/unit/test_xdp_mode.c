/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How a port stands to its driver, by what is known of that. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ring/xdp/mode.h"
#include "ring/xdp/share.h"

#define NATIVE (XDP_HAS_BASIC | XDP_HAS_REDIRECT)

static const struct {
	const char *what;
	struct mode_facts facts;
	bool is_virtual;
	enum port_mode mode;
	const char *why; /* a part of it */
} cases[] = {
	{"zero-copy", {true, NATIVE | XDP_HAS_ZEROCOPY, false}, false, PORT_NATIVE, "zero-copy"},
	{"zero-copy of a device that merges",
	 {true, NATIVE | XDP_HAS_ZEROCOPY, true},
	 false,
	 PORT_NATIVE,
	 "zero-copy"},
	{"a virtual device", {true, NATIVE, false}, true, PORT_GENERIC, "virtual device"},
	{"native", {true, NATIVE, false}, false, PORT_NATIVE, "the driver has it"},
	{"native, but it merges", {true, NATIVE, true}, false, PORT_GENERIC, "merges"},
	{"nothing", {true, 0, false}, false, PORT_GENERIC, "no native mode"},
	{"no redirection", {true, XDP_HAS_BASIC, false}, false, PORT_GENERIC, "no native mode"},
	{"an older kernel", {false, 0, false}, false, PORT_NATIVE, "to be tried"},
	{"an older kernel, and it merges", {false, 0, true}, false, PORT_GENERIC, "merges"},
	{"an older kernel's virtual device", {false, 0, false}, true, PORT_GENERIC, "virtual"},
};

static void the_mode_follows_what_the_driver_has(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct ring_port p = {.is_virtual = cases[i].is_virtual};

		print_message("%s\n", cases[i].what);
		mode_pick(&p, &cases[i].facts);
		assert_int_equal(p.mode, cases[i].mode);
		assert_non_null(strstr(p.why, cases[i].why));
	}
}

/* Once it has refused it, a driver that also merges keeps merging. */
static void zero_copy_that_is_refused_counts_as_none(void **state)
{
	struct mode_facts f = {true, NATIVE | XDP_HAS_ZEROCOPY, true};
	struct ring_port p = {.mode = PORT_NATIVE};

	(void)state;
	mode_pick_without_zerocopy(&p, &f);
	assert_int_equal(p.mode, PORT_GENERIC);
	assert_non_null(strstr(p.why, "merges"));
	f.merges = false;
	mode_pick_without_zerocopy(&p, &f);
	assert_int_equal(p.mode, PORT_NATIVE);
	assert_string_equal(p.why, "the driver has it");
}

static void zero_copy_is_shared_where_nobody_waits_for_another(void **state)
{
	static const struct {
		const char *driver;
		bool waits;
	} all[] = {{"i40e", true},	  {"ice", true},  {"ixgbe", true}, {"idpf", true},
		   {"virtio_net", false}, {"igc", false}, {"", false},	   {"i40evf", false}};

	(void)state;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		struct ring_port p = {.mode = PORT_NATIVE, .mtu = 1500};

		strcpy(p.driver, all[i].driver);
		print_message("%s\n", p.driver);
		assert_int_equal(mode_shares_zerocopy(&p), !all[i].waits);
		p.mtu = 3822;
		assert_int_equal(mode_shares_zerocopy(&p), !all[i].waits);
		p.mtu = 3823;
		assert_false(mode_shares_zerocopy(&p));
	}
}

/* A frame whose sum is the pseudo-header's by chance, or by intent, is damaged. */
static void a_bond_has_no_native_mode(void **state)
{
	struct ring_port p = {.driver = "bonding", .ifname = "bond0", .why = "so it is"};

	(void)state;
	p.mode = PORT_NATIVE;
	assert_false(mode_receives(&p));
	p.mode = PORT_GENERIC;
	assert_true(mode_receives(&p));
	strcpy(p.driver, "ixgbe");
	p.mode = PORT_NATIVE;
	assert_true(mode_receives(&p));
}

static void a_sum_over_the_pseudo_header_does_not_come_off_a_wire(void **state)
{
	static const struct {
		struct ring_port p;
		bool may;
	} sums[] = {
		{{.mode = PORT_NATIVE, .driver = "ixgbe"}, false},
		{{.mode = PORT_GENERIC, .driver = "ixgbe"}, true},
		{{.mode = PORT_NATIVE, .driver = "veth", .is_virtual = true}, true},
		{{.mode = PORT_NATIVE, .driver = "virtio_net"}, true},
		{{.mode = PORT_NATIVE, .driver = "vmxnet3"}, true},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(sums) / sizeof(sums[0]); i++)
		assert_int_equal(mode_partial_sums(&sums[i].p), sums[i].may);
}

static void a_queue_is_not_shared_where_sent_chunks_are_told_too_early(void **state)
{
	static const struct {
		const char *release;
		bool good;
	} kernels[] = {
		{"5.10.0-30-amd64", true},
		{"6.1.0-40-amd64", true},
		{"6.5.13", true},
		{"6.6.0", false},
		{"6.6.87-rt", false},
		{"6.12.48+deb13-amd64", false},
		{"6.16.12-200.fc42", false},
		{"6.17.0-rc3", true},
		{"6.18.44-fc-v669", true},
		{"7.0.0", true},
		{"7.10.1", true},
		{"odd", true},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++) {
		print_message("%s\n", kernels[i].release);
		assert_int_equal(share_completions_good(kernels[i].release), kernels[i].good);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_mode_follows_what_the_driver_has),
		cmocka_unit_test(zero_copy_that_is_refused_counts_as_none),
		cmocka_unit_test(a_bond_has_no_native_mode),
		cmocka_unit_test(zero_copy_is_shared_where_nobody_waits_for_another),
		cmocka_unit_test(a_sum_over_the_pseudo_header_does_not_come_off_a_wire),
		cmocka_unit_test(a_queue_is_not_shared_where_sent_chunks_are_told_too_early),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
