/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * lib/runtime/own_fd.c: a socket of the program has the lowest free number, also when the library
 * makes a descriptor at the same time; and what the program closes is not the library's then.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/clock.h"
#include "runtime/own_fd.h"
#include "runtime/runtime.h"

static sem_t made, may_move;

static int in_the_middle(void)
{
	int fd = raw.open("/dev/null", O_RDONLY | O_CLOEXEC);

	sem_post(&made);
	sem_wait(&may_move);
	return fd;
}

static void *library(void *arg)
{
	int fd = OWN_FD(in_the_middle());

	assert_true(own_fd_is(fd));
	*(int *)arg = fd;
	return NULL;
}

static int lowest_free(void)
{
	int fd = raw.open("/dev/null", O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	raw.close(fd);
	return fd;
}

/* The library's number is free again when the call comes back. */
static int socket_meanwhile(int type)
{
	int fd = libc.socket(AF_INET, type, 0);

	sem_post(&may_move);
	while (atomic_load(&own_fd_begun) != atomic_load(&own_fd_over))
		sched_yield();
	return fd;
}

static void a_number_above_the_limit_is_replaced(void **state)
{
	struct rlimit limit, low;
	int own, with;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	low = (struct rlimit){256, limit.rlim_max};
	assert_true(limit.rlim_max > 256);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	own = own_eventfd(7);
	with = own_eventfd(0);
	assert_true(own >= 256);
	assert_int_equal(libc.fcntl(own, F_SETFD, 0), 0);
	assert_int_equal(own_fd_dup3(with, own, O_CLOEXEC), own);
	assert_int_equal(libc.fcntl(own, F_GETFD), FD_CLOEXEC);
	assert_true(own_fd_is(own));
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &low), 0);
	assert_int_equal(low.rlim_cur, 256);
	own_fd_close(own);
	own_fd_close(with);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void beside_the_library(int type, int fd_flags)
{
	int lowest = lowest_free(), own = -1, fd;
	pthread_t t;

	sem_init(&made, 0, 0);
	sem_init(&may_move, 0, 0);
	assert_int_equal(pthread_create(&t, NULL, library, &own), 0);
	sem_wait(&made);
	assert_int_equal(lowest_free(), lowest + 1);
	errno = 4711;
	fd = PROGRAM_FD(socket_meanwhile(type));
	assert_int_equal(errno, 4711);
	assert_int_equal(pthread_join(t, NULL), 0);
	print_message("    a socket gets %d\n", fd);
	assert_int_equal(fd, lowest);
	assert_int_equal(lowest_free(), lowest + 1);
	assert_int_equal(libc.fcntl(fd, F_GETFD), fd_flags);
	raw.close(fd);
	own_fd_close(own);
}

static void a_socket_has_the_lowest_number(void **state)
{
	(void)state;
	beside_the_library(SOCK_STREAM, 0);
	beside_the_library(SOCK_DGRAM | SOCK_CLOEXEC, FD_CLOEXEC);
}

static void a_copy_has_the_lowest_number_from_the_one_asked_for(void **state)
{
	int fd = libc.socket(AF_INET, SOCK_DGRAM, 0), copy = libc.fcntl(fd, F_DUPFD, 205);

	(void)state;
	assert_int_equal(own_fd_lowest(copy, 200), 200);
	assert_int_equal(own_fd_lowest(200, 200), 200);
	assert_int_equal(libc.fcntl(205, F_GETFD), -1);
	raw.close(200);
	raw.close(fd);
	print_message("    200 where the library had it for a moment, not the lowest of all\n");
}

static void what_fails_stays(void **state)
{
	(void)state;
	errno = 0;
	assert_int_equal(PROGRAM_FD(libc.socket(AF_INET, 77, 0)), -1);
	assert_int_equal(errno, EINVAL);
}

static _Atomic bool asks;

static void *closes(void *arg)
{
	asks = true;
	own_fd_bar();
	*(bool *)arg = atomic_load(&own_fd_begun) == atomic_load(&own_fd_over);
	own_fd_unbar();
	return NULL;
}

static void who_closes_waits_for_the_library(void **state)
{
	pthread_t t, other;
	bool alone = false;
	int own = -1;

	(void)state;
	sem_init(&made, 0, 0);
	sem_init(&may_move, 0, 0);
	assert_int_equal(pthread_create(&t, NULL, library, &own), 0);
	sem_wait(&made);
	assert_int_equal(pthread_create(&other, NULL, closes, &alone), 0);
	while (!asks)
		sched_yield();
	clock_sleep_ns(1000000); /* rather inside than not; right both ways */
	sem_post(&may_move);
	assert_int_equal(pthread_join(t, NULL), 0);
	assert_int_equal(pthread_join(other, NULL), 0);
	assert_true(alone);
	own_fd_close(own);
}

static uint32_t over_before;
static bool has_waited;

static int looks_back(void)
{
	has_waited = atomic_load(&own_fd_over) != over_before;
	return raw.open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void *library_looks_back(void *arg)
{
	*(int *)arg = OWN_FD(looks_back());
	return NULL;
}

static void the_library_waits_for_who_closes(void **state)
{
	pthread_t t;
	int own = -1;

	(void)state;
	own_fd_bar();
	over_before = atomic_load(&own_fd_over);
	assert_int_equal(pthread_create(&t, NULL, library_looks_back, &own), 0);
	while (atomic_load(&own_fd_over) == over_before)
		sched_yield();
	own_fd_unbar();
	assert_int_equal(pthread_join(t, NULL), 0);
	assert_true(has_waited);
	own_fd_close(own);
	over_before = atomic_load(&own_fd_over);
	own_fd_close(OWN_FD(looks_back()));
	assert_false(has_waited);
}

/* A handler of the same thread: it would wait for itself. */
static void nobody_waits_for_himself(void **state)
{
	(void)state;
	own_fd_begin();
	own_fd_bar();
	own_fd_bar();
	over_before = atomic_load(&own_fd_over);
	own_fd_close(OWN_FD(looks_back()));
	own_fd_unbar();
	own_fd_unbar();
	own_fd_end();
	assert_false(has_waited);
}

/* As in a child of a clone(2) that we did not see. Each wait is half a second: 10,000 do not end.
 */
static void who_never_ends_is_waited_for_once(void **state)
{
	uint64_t begin = clock_monotonic_ns();

	(void)state;
	atomic_fetch_add(&own_fd_begun, 1);
	for (int i = 0; i < 10000; i++) {
		own_fd_bar();
		own_fd_unbar();
	}
	print_message("    10,000 numbers closed in %llu ms\n",
		      (unsigned long long)(clock_monotonic_ns() - begin) / 1000000);
	atomic_fetch_add(&own_fd_over, 1);
}

/* The child has no thread that would end it. */
static void a_child_waits_for_nobody(void **state)
{
	(void)state;
	atomic_fetch_add(&own_fd_begun, 1);
	own_fd_limit_lock();
	own_fd_forked();
	assert_int_equal(atomic_load(&own_fd_begun), atomic_load(&own_fd_over));
}

static int real(void **state)
{
	(void)state;
	libc_load();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_socket_has_the_lowest_number),
		cmocka_unit_test(a_copy_has_the_lowest_number_from_the_one_asked_for),
		cmocka_unit_test(what_fails_stays),
		cmocka_unit_test(who_closes_waits_for_the_library),
		cmocka_unit_test(the_library_waits_for_who_closes),
		cmocka_unit_test(nobody_waits_for_himself),
		cmocka_unit_test(who_never_ends_is_waited_for_once),
		cmocka_unit_test(a_child_waits_for_nobody),
		cmocka_unit_test(a_number_above_the_limit_is_replaced),
	};

	return cmocka_run_group_tests(tests, real, NULL);
}
