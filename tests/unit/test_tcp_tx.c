/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Writing to a connection: when the ring is polled. The engine and the stack are played by this file. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/params.h"
#include "socket/tcp_int.h"

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
static struct tsock sock = {.c = (struct tcp_conn *)&stack, .mode = TSOCK_CONN, .stats = &stats};

struct stack *tsock_conn_lock(struct tsock *s)
{
	assert_ptr_equal(s, &sock);
	return &stack;
}

void tsock_unlock_stack(struct stack *st, uint64_t now)
{
	(void)now;
	assert_ptr_equal(st, &stack);
}

uint64_t tsock_now(void)
{
	return 1;
}

unsigned stack_poll(struct stack *st, unsigned max)
{
	assert_ptr_equal(st, &stack);
	assert_true(max > 0);
	assert_int_equal(sent, 0); /* before the engine is asked: an acknowledgement may open the window */
	polls++;
	return shows;
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
	assert_int_equal(tsock_sendto(&sock.v, "x", 1, vfd_call(3, 0), NULL, 0), 1);
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
	assert_int_equal(tsock_sendto(&sock.v, "x", 1, vfd_call(3, VMA_SND_FLAGS_DUMMY), NULL, 0), 1);
	assert_int_equal(tsock_sendmsg(&sock.v, 3, &m, VMA_SND_FLAGS_DUMMY), 1);
	assert_int_equal(stats.tx_dummy, 2);
	dummy_says = -EAGAIN;
	assert_int_equal(tsock_sendto(&sock.v, "x", 1, vfd_call(3, VMA_SND_FLAGS_DUMMY), NULL, 0), -1);
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

void tsock_zerocopy_done(struct tsock *s, uint32_t gen)
{
	(void)s, (void)gen;
}

int tsock_iov_part(const struct iovec *iov, int cnt, size_t skip, struct iovec part[TSOCK_IOVS])
{
	(void)iov, (void)cnt, (void)skip, (void)part;
	return 0;
}

void tsock_wait_init(const struct tsock *s, struct tsock_wait *w, uint32_t want, uint64_t timeout_ns)
{
	(void)s, (void)w, (void)want, (void)timeout_ns;
}

int tsock_wait_more(struct tsock *s, int fd, struct tsock_wait *w)
{
	(void)s, (void)fd, (void)w;
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
