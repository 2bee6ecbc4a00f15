/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The fd table when the kernel takes an object over, or the object gets another kernel socket. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "vfd_thing.h"

#define COPIES 3
#define ROUNDS 3000

/* --- vfd_disown() */

/* What the sets' hook does, and found each time. */
static struct {
	int fd;
	/* another thread takes the object into a set behind the first call's back */
	bool comes_back;
	bool closes; /* another thread closes the last number */
	unsigned calls;
	unsigned named; /* in how many of the calls fd was the object's */
	struct vfd_watch watch;
} sets;

static void no_notify(struct vfd_watch *w, uint32_t events)
{
	(void)w;
	(void)events;
}

static void leave(struct vfd *v)
{
	sets.calls++;
	sets.named += vfd_get(sets.fd) == v;
	vfd_watch_del(v, &sets.watch);
	if (sets.calls == 1 && sets.comes_back)
		vfd_watch_add(v, &sets.watch);
	if (sets.closes)
		vfd_close(sets.fd);
	errno = ENOTTY;
}

static void watched(struct thing *t)
{
	memset(&sets, 0, sizeof(sets));
	thing_init(t);
	sets.fd = new_fd();
	sets.watch.notify = no_notify;
	thing_install(t, sets.fd);
	vfd_watch_add(&t->vfd, &sets.watch);
	atomic_store(&vfd_watch_os, leave);
	errno = 0;
}

/* Else who closes the number does not wait for the sets, and they take in whoever gets it next. */
static void the_sets_leave_while_the_number_is_the_objects(void **state)
{
	struct thing t;

	(void)state;
	watched(&t);
	assert_true(vfd_disown(&t.vfd));
	assert_int_equal(errno, 0);
	assert_int_equal(sets.calls, 1);
	assert_int_equal(sets.named, 1);
	assert_null(vfd_get(sets.fd));
	assert_false(vfd_disown(&t.vfd));
	assert_int_equal(t.closed, 0);
	assert_int_equal(inode_of(sets.fd), t.inode);
	assert_int_equal(close(sets.fd), 0);
	atomic_store(&vfd_watch_os, NULL);
}

/* A set that looked the number up before it was taken out would ask a dead object for ever. */
static void a_set_that_came_meanwhile_leaves_too(void **state)
{
	struct thing t;

	(void)state;
	watched(&t);
	sets.comes_back = true;
	assert_true(vfd_disown(&t.vfd));
	assert_int_equal(sets.calls, 2);
	/* the second finds a number that nobody can look up any more */
	assert_int_equal(sets.named, 1);
	assert_null(t.vfd.watches);
	assert_int_equal(errno, 0);
	close(sets.fd);
	atomic_store(&vfd_watch_os, NULL);
}

static void who_closed_it_meanwhile_has_it(void **state)
{
	struct thing t;

	(void)state;
	watched(&t);
	sets.closes = true;
	assert_false(vfd_disown(&t.vfd));
	assert_int_equal(t.closed, 1);
	assert_int_equal(t.closed_fd, sets.fd);
	assert_int_equal(sets.calls, 1);
	assert_int_equal(inode_of(sets.fd), 0);
	assert_int_equal(wrong_close, 0);
	atomic_store(&vfd_watch_os, NULL);
}

static void every_number_is_the_kernels(void **state)
{
	struct thing t, stranger;
	int fds[COPIES], other;

	(void)state;
	thing_init(&t);
	thing_init(&stranger);
	fds[0] = new_fd();
	thing_install(&t, fds[0]);
	other = new_fd();
	thing_install(&stranger, other);
	for (int i = 1; i < COPIES; i++) {
		fds[i] = libc.fcntl(fds[0], F_DUPFD, 0);
		assert_true(vfd_dup(fds[0], fds[i]));
	}
	assert_true(vfd_disown(&t.vfd));
	assert_int_equal(t.vfd.nfds, 0);
	assert_int_equal(vfd_count, 1);
	assert_int_equal(vfd_limit(), other + 1);
	assert_ptr_equal(vfd_get(other), &stranger.vfd);
	for (int i = 0; i < COPIES; i++) {
		assert_null(vfd_get(fds[i]));
		assert_int_equal(inode_of(fds[i]), t.inode);
		assert_int_equal(vfd_close(fds[i]), 0);
	}
	assert_int_equal(t.closed, 0);
	assert_int_equal(vfd_close(other), 0);
	assert_int_equal(stranger.closed, 1);
}

static pthread_barrier_t start;
static int numbers[COPIES];

static void *close_numbers(void *arg)
{
	for (int r = 0; r < ROUNDS; r++) {
		pthread_barrier_wait(&start);
		for (int i = 0; i < COPIES; i++)
			*(unsigned *)arg += vfd_close(numbers[i]) != 0;
		pthread_barrier_wait(&start);
	}
	return NULL;
}

/* The one or the other has the object, never both and never none; the numbers are closed once. */
static void one_thread_closes_what_another_disowns(void **state)
{
	unsigned failed = 0, disowned = 0, closed = 0;
	static struct thing t;
	pthread_t closer;

	(void)state;
	assert_int_equal(pthread_barrier_init(&start, NULL, 2), 0);
	assert_int_equal(pthread_create(&closer, NULL, close_numbers, &failed), 0);
	for (int r = 0; r < ROUNDS; r++) {
		bool mine;

		thing_init(&t);
		numbers[0] = new_fd();
		thing_install(&t, numbers[0]);
		for (int i = 1; i < COPIES; i++) {
			numbers[i] = libc.fcntl(numbers[0], F_DUPFD, 0);
			assert_true(vfd_dup(numbers[0], numbers[i]));
		}
		t.inode = 0; /* vacated, it is another inode's */
		pthread_barrier_wait(&start);
		mine = vfd_disown(&t.vfd);
		pthread_barrier_wait(&start);
		assert_int_equal(mine + t.closed, 1);
		disowned += mine;
		closed += t.closed;
		for (int i = 0; i < COPIES; i++)
			assert_int_equal(inode_of(numbers[i]), 0);
		assert_int_equal(vfd_count, 0);
	}
	pthread_join(closer, NULL);
	pthread_barrier_destroy(&start);
	printf("%u disowned, %u closed\n", disowned, closed);
	assert_int_equal(failed, 0);
	wrong_close = 0;
}

/* --- vfd_replace_os() */

static void every_copy_gets_the_new_kernel_socket(void **state)
{
	int fd = new_fd(), copy, other = new_fd(), new = new_fd(), plain;
	struct thing t, stranger;

	(void)state;
	thing_init(&t);
	thing_init(&stranger);
	thing_install(&t, fd);
	thing_install(&stranger, other);
	copy = libc.fcntl(fd, F_DUPFD, 0);
	assert_true(vfd_dup(fd, copy));
	plain = libc.dup(fd);
	errno = ENOTTY;
	vfd_replace_os(&t.vfd, new);
	assert_int_equal(errno, ENOTTY);
	assert_int_equal(inode_of(fd), inode_of(new));
	assert_int_equal(inode_of(copy), inode_of(new));
	assert_int_not_equal(inode_of(plain), inode_of(new));
	assert_int_not_equal(inode_of(other), inode_of(new));
	assert_true(libc.fcntl(fd, F_GETFD) & FD_CLOEXEC);
	assert_false(libc.fcntl(copy, F_GETFD) & FD_CLOEXEC);
	t.inode = inode_of(new);
	close(new);
	close(plain);
	/* A number that was closed behind our back stays closed. */
	libc.close(copy);
	new = new_fd();
	if (new == copy) {
		new = libc.fcntl(new, F_DUPFD, copy + 1);
		libc.close(copy);
	}
	errno = ENOTTY;
	vfd_replace_os(&t.vfd, new);
	assert_int_equal(errno, ENOTTY);
	assert_int_equal(inode_of(copy), 0);
	t.inode = inode_of(new);
	close(new);
	vfd_forget(copy);
	assert_int_equal(vfd_close(fd), 0);
	assert_int_equal(vfd_close(other), 0);
	assert_int_equal(wrong_close, 0);
}

/* A number whose close() is under way is not filled again: it would stay open for ever. */
static void no_number_is_filled_behind_its_close(void **state)
{
	unsigned failed = 0;
	static struct thing t;
	pthread_t closer;
	int fd = new_fd();

	(void)state;
	thing_init(&t);
	thing_install(&t, fd);
	assert_int_equal(pthread_barrier_init(&start, NULL, 2), 0);
	assert_int_equal(pthread_create(&closer, NULL, close_numbers, &failed), 0);
	for (int r = 0; r < ROUNDS; r++) {
		unsigned long inode;
		int new = new_fd();

		for (int i = 0; i < COPIES; i++) {
			numbers[i] = libc.fcntl(fd, F_DUPFD, 0);
			assert_true(vfd_dup(fd, numbers[i]));
		}
		inode = inode_of(new);
		pthread_barrier_wait(&start);
		vfd_replace_os(&t.vfd, new);
		pthread_barrier_wait(&start);
		assert_int_equal(inode_of(fd), inode);
		for (int i = 0; i < COPIES; i++)
			assert_int_equal(inode_of(numbers[i]), 0);
		assert_int_equal(t.vfd.nfds, 1);
		t.inode = inode;
		close(new);
	}
	pthread_join(closer, NULL);
	pthread_barrier_destroy(&start);
	assert_int_equal(failed, 0);
	assert_int_equal(t.closed, 0);
	assert_int_equal(vfd_close(fd), 0);
	assert_int_equal(wrong_close, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_sets_leave_while_the_number_is_the_objects),
		cmocka_unit_test(a_set_that_came_meanwhile_leaves_too),
		cmocka_unit_test(who_closed_it_meanwhile_has_it),
		cmocka_unit_test(every_number_is_the_kernels),
		cmocka_unit_test(one_thread_closes_what_another_disowns),
		cmocka_unit_test(every_copy_gets_the_new_kernel_socket),
		cmocka_unit_test(no_number_is_filled_behind_its_close),
	};

	libc_load();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
