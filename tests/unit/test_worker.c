/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The internal thread: its callbacks, and a fork() beside them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/libc.h"
#include "runtime/worker.h"

static atomic_bool inside;
static atomic_uint runs;

static void busy(int fd, uint32_t events, void *arg)
{
	(void)fd;
	(void)events;
	(void)arg;
	atomic_store(&inside, true);
	usleep(1000);
	atomic_fetch_add(&runs, 1);
	atomic_store(&inside, false);
}

static pid_t fork_as_preload(void)
{
	pid_t pid;

	worker_pause();
	worker_fork_prepare();
	pid = fork();
	worker_fork_parent();
	if (!pid)
		worker_forked();
	return pid;
}

/* A level-triggered event that is never read: the callback runs nearly all the time. */
static void no_fork_meets_a_callback(void **state)
{
	int fd = eventfd(1, EFD_CLOEXEC), status;
	unsigned before;

	(void)state;
	assert_int_equal(worker_start(NULL, 10), 0);
	assert_int_equal(worker_fd_add(fd, EPOLLIN, busy, NULL), 0);
	for (int i = 0; i < 50; i++) {
		pid_t pid = fork_as_preload();

		assert_true(pid >= 0);
		if (!pid)
			_exit(atomic_load(&inside));
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
	}
	/* The parent's thread goes on. */
	before = atomic_load(&runs);
	while (atomic_load(&runs) == before)
		usleep(100);
	worker_fd_del(fd, NULL);
	worker_stop();
	close(fd);
}

#ifndef __SANITIZE_THREAD__ /* it forbids threads after a fork() */
/* The child has none until it starts one. */
static void the_child_starts_its_own(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	assert_int_equal(worker_start(NULL, 10), 0);
	pid = fork_as_preload();
	if (!pid) {
		int fd = eventfd(1, EFD_CLOEXEC);
		unsigned before = atomic_load(&runs);

		if (worker_start(NULL, 10) || worker_fd_add(fd, EPOLLIN, busy, NULL))
			_exit(2);
		while (atomic_load(&runs) == before)
			usleep(100);
		worker_stop();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	worker_stop();
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_fork_meets_a_callback),
#ifndef __SANITIZE_THREAD__
		cmocka_unit_test(the_child_starts_its_own),
#endif
	};

	libc_load();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
