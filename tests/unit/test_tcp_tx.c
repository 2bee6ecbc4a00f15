/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Writing to a connection: when the ring is polled. The engine and the stack are played by this
 * file.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "config/params.h"
#include "socket/tcp/internal.h"

static bool shows; /* the ring shows a packet */
static unsigned polls, sent;

static bool ring_pending(const struct ring *r)
{
	(void)r;
	return shows;
}

static const struct ring_ops ops = {.name = "test", .pending = ring_pending};
static struct ring ring = {.ops = &ops};
static struct stack stack = {.ring = &ring, .open = true};
static struct vma_stats_socket stats;
static struct tcp_sock sock = {
	.c = (struct tcp_conn *)&stack, .mode = TCP_SOCK_CONN, .stats = &stats};

struct stack *tcp_sock_conn_lock(struct tcp_sock *s)
{
	assert_ptr_equal(s, &sock);
	return &stack;
}

void tcp_sock_unlock_stack(struct stack *st, uint64_t now)
{
	(void)now;
	assert_ptr_equal(st, &stack);
}

void tcp_sock_unlock_stack_in_round(struct stack *st, uint64_t now)
{
	tcp_sock_unlock_stack(st, now);
}

void tcp_sock_unlock_stack_answered(struct stack *st, uint64_t now)
{
	tcp_sock_unlock_stack(st, now);
}

uint64_t tcp_sock_now_us(void)
{
	return 1;
}

unsigned stack_poll(struct stack *st, unsigned max)
{
	assert_ptr_equal(st, &stack);
	assert_true(max > 0);
	/* before the engine is asked: an acknowledgement may open the window */
	assert_int_equal(sent, 0);
	polls++;
	return shows;
}

enum tcp_state tcp_conn_state(const struct tcp_conn *c)
{
	(void)c;
	return TCPS_ESTABLISHED;
}

bool tcp_waits_for_flush(const struct tcp_conn *c)
{
	(void)c;
	return false;
}

uint32_t tcp_send_room(const struct tcp_conn *c)
{
	(void)c;
	return 0;
}

ssize_t tcp_send(struct tcp_conn *c, const struct iovec *iov, int iovcnt, int flags, uint64_t now)
{
	(void)c, (void)iovcnt, (void)flags, (void)now;
	sent++;
	return (ssize_t)iov->iov_len;
}

/* How often a send() polls. */
static unsigned polls_of_send(bool always, bool packet)
{
	params.rx_poll_on_tx_tcp = always;
	shows = packet;
	polls = sent = 0;
	assert_int_equal(tcp_sock_sendto(&sock.v, "x", 1, vfd_call(3, 0), NULL, 0), 1);
	assert_int_equal(sent, 1);
	return polls;
}

static void test_a_send_takes_in_what_the_ring_shows(void **state)
{
	(void)state;
	assert_int_equal(polls_of_send(false, true), 1);
	assert_int_equal(polls_of_send(false, false), 0);
}

static void test_a_send_polls_always_when_told_to(void **state)
{
	(void)state;
	assert_int_equal(polls_of_send(true, true), 1);
	assert_int_equal(polls_of_send(true, false), 1);
}

static void test_a_ring_that_is_gone_is_not_polled(void **state)
{
	(void)state;
	stack.open = false;
	assert_int_equal(polls_of_send(true, true), 0);
	stack.open = true;
}

static ssize_t dummy_says;

ssize_t tcp_send_dummy(const struct tcp_conn *c, const struct iovec *iov, int iovcnt, int flags)
{
	(void)c, (void)iov, (void)iovcnt;
	assert_true(flags & VMA_SND_FLAGS_DUMMY);
	return dummy_says;
}

/* Neither the engine nor the kernel is asked to send. */
static void test_a_dummy_send_is_counted_and_nothing_is_sent(void **state)
{
	struct iovec iov = {.iov_base = "x", .iov_len = 1};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};

	(void)state;
	sent = 0;
	stats.tx_dummy = stats.tx.packets = 0;
	dummy_says = 1;
	assert_int_equal(
		tcp_sock_sendto(&sock.v, "x", 1, vfd_call(3, VMA_SND_FLAGS_DUMMY), NULL, 0), 1);
	assert_int_equal(tcp_sock_sendmsg(&sock.v, 3, &m, VMA_SND_FLAGS_DUMMY), 1);
	assert_int_equal(stats.tx_dummy, 2);
	dummy_says = -EAGAIN;
	assert_int_equal(
		tcp_sock_sendto(&sock.v, "x", 1, vfd_call(3, VMA_SND_FLAGS_DUMMY), NULL, 0), -1);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(stats.tx_dummy, 2);
	assert_int_equal(stats.tx.packets, 0);
	assert_int_equal(sent, 0);
}

/* Never reached here, and not to be linked: they would bring the real ones of the above along. */
uint32_t tcp_ready(const struct tcp_conn *c)
{
	(void)c;
	return 0;
}

void tcp_fast_open_go(struct tcp_conn *c)
{
	(void)c;
}

unsigned tcp_sock_fast_open_allowed(void)
{
	return 0;
}

int tcp_sock_connect_with(struct tcp_sock *s, int fd, const struct sockaddr *addr, socklen_t len,
			  struct tcp_sock_opening *o)
{
	(void)s, (void)fd, (void)addr, (void)len, (void)o;
	return 1;
}

int tcp_sock_connect_again(struct tcp_sock *s, int fd, bool nonblock)
{
	(void)s, (void)fd, (void)nonblock;
	return -EISCONN;
}

int tcp_sock_connect_rest(struct tcp_sock *s, int fd)
{
	(void)s, (void)fd;
	return 0;
}

void tcp_sock_zerocopy_done(struct tcp_sock *s, uint32_t gen)
{
	(void)s, (void)gen;
}

int tcp_sock_iov_part(const struct iovec *iov, int cnt, size_t skip,
		      struct iovec part[TCP_SOCK_IOVS])
{
	(void)iov, (void)cnt, (void)skip, (void)part;
	return 0;
}

void tcp_sock_wait_init(struct tcp_sock *s, struct tcp_sock_wait *w, uint32_t want,
			uint64_t timeout_ns)
{
	(void)s, (void)w, (void)want, (void)timeout_ns;
}

int tcp_sock_wait_more(struct tcp_sock *s, struct tcp_sock_wait *w)
{
	(void)s, (void)w;
	return -EBADF;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_send_takes_in_what_the_ring_shows),
		cmocka_unit_test(test_a_send_polls_always_when_told_to),
		cmocka_unit_test(test_a_ring_that_is_gone_is_not_polled),
		cmocka_unit_test(test_a_dummy_send_is_counted_and_nothing_is_sent),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
