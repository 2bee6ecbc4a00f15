/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The fd table while a number is being closed, or replaced, by whatever call. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "vfd_thing.h"

static struct {
	bool closing, held, counted, fresh_child;
	ssize_t received;
	int error, closed_again, error_again;
	bool copied;
} seen;

/* What others find meanwhile. */
static int watched_close(struct vfd *v, int fd)
{
	struct msghdr msg = {0};
	int status, r;
	pid_t pid;

	seen.closing = vfd_get(fd) == &vfd_closing;
	seen.received = vfd_closing.ops->recvmsg(&vfd_closing, fd, &msg, 0);
	seen.error = errno;
	seen.closed_again = vfd_close(fd);
	seen.error_again = errno;
	seen.copied = vfd_dup(fd, 300);
	seen.counted = vfd_count == 1 && vfd_limit() == fd + 1;
	vfd_fork_prepare();
	pid = fork();
	if (pid == 0) {
		vfd_fork_child();
		_exit(vfd_get(fd) || vfd_count || vfd_limit());
	}
	vfd_fork_parent();
	waitpid(pid, &status, 0);
	seen.fresh_child = status == 0;
	vfd_vacate(fd);
	seen.held = libc.fcntl(fd, F_GETFD) >= 0 && libc.recv(fd, &status, 1, MSG_DONTWAIT) < 0 &&
		    errno == EBADF;
	r = thing_close(v, fd);
	seen.closing &= !vfd_get(fd);
	return r;
}

static const struct vfd_ops watched_ops = {.close = watched_close};

static void a_number_that_is_being_closed_is_refused(void **state)
{
	struct thing t;
	int fd = new_fd();

	(void)state;
	thing_init(&t);
	t.vfd.ops = &watched_ops;
	thing_install(&t, fd);
	t.inode = 0; /* vacated, it is another inode's */
	assert_int_equal(vfd_close(fd), 0);
	assert_int_equal(t.closed, 1);
	assert_true(seen.closing);
	assert_int_equal(seen.received, -1);
	assert_int_equal(seen.error, EBADF);
	assert_int_equal(seen.closed_again, -1);
	assert_int_equal(seen.error_again, EBADF);
	assert_false(seen.copied);
	assert_true(seen.counted);
	assert_true(seen.fresh_child);
	assert_true(seen.held);
	assert_int_equal(libc.fcntl(fd, F_GETFD), -1);
	assert_int_equal(vfd_count, 0);
	assert_int_equal(vfd_limit(), 0);
	wrong_close = 0;
}

static void vacating_closes_the_socket_and_keeps_the_number(void **state)
{
	int pair[2], dead;
	char c;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	vfd_vacate(pair[0]);
	assert_int_equal(libc.recv(pair[1], &c, 1, 0), 0); /* the other end is closed */
	assert_int_equal(libc.read(pair[0], &c, 1), -1);
	assert_int_equal(errno, EBADF);
	assert_true(libc.fcntl(pair[0], F_GETFL) & O_PATH);
	assert_int_equal(libc.close(pair[0]), 0);
	/* A program that closes every number it does not know, and opens something there. */
	dead = -1;
	for (int fd = (int)own_fd_next(3); fd < (int)OWN_FD_MAX; fd = (int)own_fd_next(fd + 1))
		if (libc.fcntl(fd, F_GETFL) >= 0 && libc.fcntl(fd, F_GETFL) & O_PATH)
			dead = fd;
	assert_true(dead >= 0);
	assert_int_equal(libc.dup2(pair[1], dead), dead);
	libc.close(pair[1]);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	vfd_vacate(pair[0]);
	assert_true(libc.fcntl(pair[0], F_GETFL) & O_PATH);
	assert_false(libc.fcntl(dead, F_GETFL) & O_PATH);
	libc.close(dead);
	libc.close(pair[0]);
	libc.close(pair[1]);
}

/*
 * A thread that goes on using the number, as recv() of preload does: the object's while it has one,
 * else the kernel's.
 */
static void *use_until_it_fails(void *arg)
{
	int fd = *(int *)arg;
	struct msghdr msg = {0};
	char c;

	for (;;) {
		struct vfd *v = vfd_get(fd);

		if (!v)
			/*
			 * Bare: ThreadSanitizer, which follows descriptors, would have it a race.
			 * It is one.
			 */
			return libc_raw(SYS_recvfrom, fd, (long)(uintptr_t)&c, 1, 0, 0, 0) < 0
				       ? (void *)(intptr_t)errno
				       : NULL;
		if (v->ops->recvmsg && v->ops->recvmsg(v, fd, &msg, 0) < 0)
			return (void *)(intptr_t)errno;
		sched_yield(); /* let them close it */
	}
}

static void *close_it(void *arg)
{
	return vfd_close(*(int *)arg) ? (void *)(intptr_t)errno : NULL;
}

/* Whoever came between the table and the kernel slept on the kernel's socket for ever. */
static void no_call_sleeps_on_a_socket_that_is_being_closed(void **state)
{
	struct timeval long_enough = {.tv_sec = 20};
	int refused = 0, rounds = 600;

	(void)state;
	for (int i = 0; i < rounds; i++) {
		pthread_t users[2], closer;
		void *end[3], *error;
		struct thing t;
		int fd = new_fd(), other = -1, r;

		assert_int_equal(
			setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &long_enough, sizeof(long_enough)),
			0);
		thing_init(&t);
		thing_install(&t, fd);
		if (i % 2) { /* not its last number: the socket lives on */
			other = libc.dup(fd);
			assert_true(vfd_dup(fd, other));
		}
		for (int u = 0; u < 2; u++)
			assert_int_equal(pthread_create(&users[u], NULL, use_until_it_fails, &fd),
					 0);
		assert_int_equal(pthread_create(&closer, NULL, close_it, &fd), 0);
		r = vfd_close(fd);
		error = (void *)(intptr_t)errno;
		pthread_join(closer, &end[2]);
		for (int u = 0; u < 2; u++) {
			pthread_join(users[u], &end[u]);
			assert_int_equal((intptr_t)end[u], EBADF);
		}
		/* Of two that close, one has closed it. */
		assert_int_equal(!r + !end[2], 1);
		assert_int_equal((intptr_t)(r ? error : end[2]), EBADF);
		refused += r != 0;
		assert_int_equal(t.closed, other < 0);
		if (other >= 0)
			assert_int_equal(vfd_close(other), 0);
		assert_int_equal(vfd_count, 0);
	}
	printf("%d numbers, closed by two threads each, by the second in %d\n", rounds, refused);
	assert_int_equal(wrong_close, 0);
}

static struct thing left, right;
static _Atomic bool swapped;

static void *find_something(void *arg)
{
	int fd = *(int *)arg;
	unsigned long nothing = 0;

	while (!atomic_load(&swapped))
		nothing += !vfd_get(fd);
	return (void *)nothing;
}

/* As dup2(2): the number is never free. */
static void a_copy_onto_another_object_takes_its_place_at_once(void **state)
{
	int a = new_fd(), b = new_fd(), target = libc.dup(a);
	pthread_t finder;
	void *nothing;

	(void)state;
	thing_init(&left);
	thing_init(&right);
	thing_install(&left, a);
	thing_install(&right, b);
	assert_true(vfd_dup(a, target));
	atomic_store(&swapped, false);
	assert_int_equal(pthread_create(&finder, NULL, find_something, &target), 0);
	for (int i = 0; i < 20000; i++)
		assert_true(vfd_dup(i % 2 ? a : b, target));
	atomic_store(&swapped, true);
	pthread_join(finder, &nothing);
	assert_null(nothing);
	assert_int_equal(left.vfd.nfds, 2);
	assert_int_equal(right.vfd.nfds, 1);
	assert_int_equal(left.closed + right.closed, 0);
	assert_int_equal(vfd_count, 3);
	/*
	 * Onto an object's only number: that is its end. And of what is not ours: the number is not
	 * ours either.
	 */
	assert_true(vfd_dup(a, b));
	assert_int_equal(right.closed, 1);
	assert_int_equal(right.closed_fd, -1);
	assert_int_equal(left.vfd.nfds, 3);
	assert_true(vfd_dup(a, b)); /* again: the same object */
	assert_int_equal(left.vfd.nfds, 3);
	assert_false(vfd_dup(1000, b));
	assert_null(vfd_get(b));
	assert_int_equal(left.vfd.nfds, 2);
	libc.close(b);
	vfd_close(a);
	vfd_close(target);
	assert_int_equal(left.closed, 1);
	assert_int_equal(vfd_count, 0);
	wrong_close = 0; /* the numbers name other inodes here than their objects say */
}

static struct vfd *unwatched;

static void note_unwatch(struct vfd *v)
{
	unwatched = v;
}

static void nothing_notify(struct vfd_watch *w, uint32_t events)
{
	(void)w;
	(void)events;
}

static void every_way_of_closing_ends_the_watches(void **state)
{
	struct vfd_watch watch = {.notify = nothing_notify};
	struct thing t, other;
	int onto = new_fd();

	(void)state;
	vfd_unwatch = note_unwatch;
	thing_init(&other);
	thing_install(&other, onto);
	for (int way = 0; way < 4; way++) {
		int fd = new_fd();

		thing_init(&t);
		thing_install(&t, fd);
		vfd_watch_add(&t.vfd, &watch);
		unwatched = NULL;
		if (way == 0)
			assert_int_equal(vfd_close(fd), 0);
		else if (way == 1)
			vfd_forget(fd);
		else if (way == 2)
			assert_true(vfd_dup(onto, fd));
		else
			thing_install(&other, fd);
		assert_ptr_equal(unwatched, &t.vfd);
		assert_int_equal(t.closed, 1);
		vfd_watch_del(&t.vfd, &watch);
		vfd_forget(fd);
		libc.close(fd);
	}
	unwatched = NULL;
	vfd_close(onto);
	assert_null(unwatched); /* nobody watches it */
	vfd_unwatch = NULL;
	wrong_close = 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_number_that_is_being_closed_is_refused),
		cmocka_unit_test(vacating_closes_the_socket_and_keeps_the_number),
		cmocka_unit_test(no_call_sleeps_on_a_socket_that_is_being_closed),
		cmocka_unit_test(a_copy_onto_another_object_takes_its_place_at_once),
		cmocka_unit_test(every_way_of_closing_ends_the_watches),
	};

	libc_load();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
