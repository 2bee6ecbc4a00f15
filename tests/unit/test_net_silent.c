/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A kernel that does not answer: each question to it has an end, since sockets and stacks may be
 * locked meanwhile. Here sendto() and sendmsg() say that all was sent, and send nothing.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>
/* cmocka needs the four above. */
#include <cmocka.h>

#include "net/net.h"
#include "runtime/runtime.h"

/* What a question that hangs takes, s. */
#define HANGS 60

static bool silent;
static unsigned questions;

/* libnl sends by these two. */
ssize_t sendto(int fd, const void *buf, size_t len, int flags, __CONST_SOCKADDR_ARG addr,
	       socklen_t alen)
{
	if (!silent)
		return libc.sendto(fd, buf, len, flags, addr.__sockaddr__, alen);
	questions++;
	return (ssize_t)len;
}

ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	ssize_t len = 0;

	if (!silent)
		return libc.sendmsg(fd, msg, flags);
	questions++;
	for (size_t i = 0; i < msg->msg_iovlen; i++)
		len += (ssize_t)msg->msg_iov[i].iov_len;
	return len;
}

static void who_has_a_port_ends(void **state)
{
	const struct in6_addr here = IN6ADDR_LOOPBACK_INIT;
	uint64_t inodes[4];

	(void)state;
	assert_true(net_tcp_conns(9) >= 0);
	assert_true(net_udp_inodes(9, inodes, 4) >= 0);
	assert_int_equal(net_tcp_time_wait_end(&here, 9, &here, 9), -ENOENT);
	silent = true;
	alarm(HANGS);
	assert_true(net_tcp_conns(9) < 0);
	assert_true(net_udp_inodes(9, inodes, 4) < 0);
	assert_int_equal(net_tcp_time_wait_end(&here, 9, &here, 9), -EIO);
	alarm(0);
	silent = false;
	assert_true(questions >= 2);
	print_message("    %u questions without an answer\n", questions);
}

static void a_route_ends(void **state)
{
	struct net_route_query q = {.dst.s6_addr = {[10] = 0xff, 0xff, 127, 0, 0, 1}};
	struct net_route route;
	unsigned before = questions;

	(void)state;
	assert_int_equal(net_start(), 0);
	assert_int_equal(net_route_get(&q, &route), 0);
	silent = true;
	q.dst.s6_addr[15] = 2;
	alarm(HANGS);
	assert_true(net_route_get(&q, &route) < 0);
	alarm(0);
	silent = false;
	assert_true(questions > before);
	net_stop();
	print_message("    a route\n");
}

static void the_start_ends(void **state)
{
	unsigned before = questions;

	(void)state;
	silent = true;
	alarm(HANGS);
	assert_true(net_start() < 0);
	alarm(0);
	silent = false;
	assert_true(questions > before);
	print_message("    the mirror's dumps\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_has_a_port_ends),
		cmocka_unit_test(a_route_ends),
		cmocka_unit_test(the_start_ends),
	};

	libc_load();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
