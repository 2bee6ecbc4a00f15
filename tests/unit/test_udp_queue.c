/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What is queued goes to the kernel socket, where another process reads it: poll() says what is
 * there or here, never both. A stack without a ring, and a socket pair for the kernel socket.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/libc.h"
#include "runtime/runtime.h"
#include "stack/stack.h"
#include "socket/udp/internal.h"

#define LEN 5u

static struct stack st;
static struct udp_sock sock;
static struct udp_att att;
static struct vma_stats_socket stats;
static struct buf frames[2];
static uint8_t place[2][LEN];
static int kernel[2]; /* the socket, and who sends to it */

static void buf_back(struct buf_pool *pool, struct buf *b)
{
	(void)pool;
	(void)b;
}

static struct buf_pool pool = {.free = buf_back};

/* The thread that polls. */
static pthread_t poller;
static _Atomic int poller_tid;
static _Atomic bool has_answered;
static uint32_t answer;

static void *ask(void *arg)
{
	(void)arg;
	poller_tid = (int)syscall(SYS_gettid);
	answer = udp_events(&sock.v);
	has_answered = true;
	return NULL;
}

static bool sleeps(int tid)
{
	char path[64], state = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	f = fopen(path, "r");
	if (!f)
		return false;
	if (fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
		state = 0;
	fclose(f);
	return state == 'S';
}

/* A thread begins to ask, and has its answer, or waits for it. */
static void begin_to_ask(void)
{
	poller_tid = 0;
	has_answered = false;
	assert_int_equal(pthread_create(&poller, NULL, ask, NULL), 0);
	while (!has_answered && !(poller_tid && sleeps(poller_tid)))
		;
}

static int setup(void **state)
{
	(void)state;
	libc_load();
	lock_mode = 1;
	lock_class(&st.lock, "stack.lock");
	memset(&st, 0, sizeof(st));
	memset(&sock, 0, sizeof(sock));
	memset(&att, 0, sizeof(att));
	memset(&stats, 0, sizeof(stats));
	assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, kernel), 0);
	sock.stats = &stats;
	sock.v.os_fd = kernel[0];
	sock.o.rcvbuf = 1 << 20;
	att.s = &sock;
	att.st = &st;
	att.tail = &att.head;
	sock.att[0] = &att;
	sock.natt = 1;
	for (unsigned i = 0; i < 2; i++) {
		frames[i] = (struct buf){.data = place[i],
					 .len = LEN,
					 .total = LEN,
					 .room = LEN,
					 .refs = 1,
					 .pool = &pool};
		att.charge += LEN + UDP_CHARGE;
		udp_queue_add(&att, &frames[i]);
	}
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	close(kernel[0]);
	close(kernel[1]);
	return 0;
}

/* To the kernel socket, and another process has it before the queue knows. */
static bool give_and_lose(const struct buf_meta *m, const void *data, size_t len, void *arg)
{
	char b[LEN];

	(void)m;
	(void)arg;
	if (att.queued > 1) /* the first goes without a question */
		return true;
	assert_int_equal(send(kernel[1], data, len, 0), LEN);
	assert_int_equal(recv(kernel[0], b, sizeof(b), 0), LEN);
	begin_to_ask();
	return true;
}

static void what_another_process_has_read_is_not_there(void **state)
{
	(void)state;
	udp_take_queued(&sock, give_and_lose, NULL);
	pthread_join(poller, NULL);
	assert_int_equal(att.queued, 0);
	assert_int_equal(answer & EPOLLIN, 0);
}

/* To the kernel socket, where it waits. */
static bool give(const struct buf_meta *m, const void *data, size_t len, void *arg)
{
	(void)m;
	(void)arg;
	assert_int_equal(send(kernel[1], data, len, 0), LEN);
	if (att.queued == 1)
		begin_to_ask();
	return true;
}

static void what_waits_in_the_kernel_is_there(void **state)
{
	(void)state;
	udp_take_queued(&sock, give, NULL);
	pthread_join(poller, NULL);
	assert_int_equal(att.queued, 0);
	assert_true(answer & EPOLLIN);
	assert_true(udp_events(&sock.v) & EPOLLIN);
}

/* The kernel has no room for the second. */
static bool give_one(const struct buf_meta *m, const void *data, size_t len, void *arg)
{
	char b[LEN];

	(void)m;
	(void)arg;
	if (att.queued == 1) {
		begin_to_ask();
		return false;
	}
	assert_int_equal(send(kernel[1], data, len, 0), LEN);
	assert_int_equal(recv(kernel[0], b, sizeof(b), 0), LEN);
	return true;
}

static void what_stays_here_is_there(void **state)
{
	(void)state;
	udp_take_queued(&sock, give_one, NULL);
	pthread_join(poller, NULL);
	assert_int_equal(att.queued, 1);
	assert_true(answer & EPOLLIN);
}

/* What was in the queue when it was asked for, and whether the kernel had the socket already. */
static unsigned left[2], num_left;
static bool kernel_had[2];

static bool take(const struct buf_meta *m, const void *data, size_t len, void *arg)
{
	(void)m;
	(void)data;
	(void)len;
	(void)arg;
	return true;
}

static void leave(struct udp_sock *s)
{
	assert_in_range(num_left, 0, 1);
	left[num_left] = att.queued;
	kernel_had[num_left++] = s->in_kernel;
	udp_take_queued(s, take, NULL);
}

/* What comes while they go there is not to be before them. */
static void what_waits_goes_before_the_kernel_has_the_socket(void **state)
{
	(void)state;
	num_left = 0;
	udp_queue_leave = leave;
	udp_move_to_kernel(&sock, (struct vma_stats_why){0});
	assert_int_equal(num_left, 2);
	assert_int_equal(left[0], 2);
	assert_false(kernel_had[0]);
	assert_int_equal(left[1], 0);
	assert_true(kernel_had[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(what_another_process_has_read_is_not_there, setup,
						teardown),
		cmocka_unit_test_setup_teardown(what_waits_in_the_kernel_is_there, setup, teardown),
		cmocka_unit_test_setup_teardown(what_stays_here_is_there, setup, teardown),
		cmocka_unit_test_setup_teardown(what_waits_goes_before_the_kernel_has_the_socket,
						setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
