/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * lib/runtime/own_fd.c: a socket of the program has the lowest free number, also when the library
 * makes a descriptor at the same time.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/runtime.h"
#include "runtime/own_fd.h"

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

static void what_fails_stays(void **state)
{
	(void)state;
	errno = 0;
	assert_int_equal(PROGRAM_FD(libc.socket(AF_INET, 77, 0)), -1);
	assert_int_equal(errno, EINVAL);
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
		cmocka_unit_test(what_fails_stays),
		cmocka_unit_test(a_child_waits_for_nobody),
	};

	return cmocka_run_group_tests(tests, real, NULL);
}
