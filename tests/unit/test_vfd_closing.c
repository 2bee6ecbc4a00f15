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
		vfd_fork_child_done();
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

/* --- who has read os_fd under the object's lock */

static struct thing used;
static pthread_mutex_t use_lock = PTHREAD_MUTEX_INITIALIZER; /* the object's */
static _Atomic bool is_read, is_awaited, is_closed;

static void awaited(struct vfd *v)
{
	assert_ptr_equal(v, &used.vfd);
	is_awaited = true;
	pthread_mutex_lock(&use_lock);
	pthread_mutex_unlock(&use_lock);
}

static const struct vfd_ops used_ops = {.close = thing_close, .renumbered = awaited};

/* The inode of the number that it has read, when the closer waits for it or is done. */
static void *use_os_fd(void *arg)
{
	unsigned long inode;
	int fd;

	(void)arg;
	pthread_mutex_lock(&use_lock);
	fd = used.vfd.os_fd;
	is_read = true;
	while (!is_awaited && !is_closed)
		sched_yield();
	inode = inode_of(fd);
	pthread_mutex_unlock(&use_lock);
	return (void *)inode;
}

static int number, copy, other;

static void by_close(void)
{
	assert_int_equal(vfd_close(number), 0);
}

/* As close_range() and fclose(): the kernel closes it behind that. */
static void by_forget(void)
{
	vfd_forget(number);
	assert_int_equal(libc.close(number), 0);
}

/* As dup2(), which closes it in the middle. */
static void by_copy_onto_it(void)
{
	struct vfd_dup d;

	vfd_park(number);
	assert_true(vfd_dup_begin(&d, other));
	vfd_dup_end(&d, libc.dup2(other, number));
}

/* The number that a call had it by, of which copies were made after its last one was closed. */
static void by_the_end_of_a_call(void)
{
	vfd_let_go();
}

static void by_disowning(void)
{
	assert_true(vfd_disown(&used.vfd));
}

static const struct {
	const char *what;
	void (*close)(void);
	bool parked; /* os_fd is a number of our own */
} ways[] = {
	{"close()", by_close, false},	    {"close_range()", by_forget, false},
	{"dup2()", by_copy_onto_it, false}, {"the end of a call", by_the_end_of_a_call, true},
	{"disowning", by_disowning, true},
};

static void open_used(bool parked)
{
	number = new_fd();
	thing_init(&used);
	used.vfd.ops = &used_ops;
	thing_install(&used, number);
	if (parked) {
		assert_true(vfd_hold(&used.vfd, number));
		vfd_park(number);
		assert_true(used.vfd.parked);
	}
	copy = libc.dup(number);
	assert_true(vfd_dup(number, copy));
	assert_int_equal(used.vfd.os_fd == number, !parked);
}

static void close_used(bool held)
{
	if (held)
		vfd_let_go();
	vfd_close(number);
	vfd_close(copy);
	vfd_close(other);
	assert_int_equal(vfd_count, 0);
	wrong_close = 0;
}

/* Else a connection is handed over to whoever has got the number meanwhile. */
static void a_number_is_closed_when_nobody_uses_it(void **state)
{
	struct thing stranger;
	unsigned wrong = 0;

	(void)state;
	for (unsigned i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		unsigned long inode;
		pthread_t user;
		void *found;

		other = new_fd();
		thing_init(&stranger);
		thing_install(&stranger, other);
		open_used(ways[i].parked);
		inode = used.inode;
		is_read = is_awaited = is_closed = false;
		assert_int_equal(pthread_create(&user, NULL, use_os_fd, NULL), 0);
		while (!is_read)
			sched_yield();
		ways[i].close();
		is_closed = true;
		pthread_join(user, &found);
		printf("by %s: %s\n", ways[i].what,
		       !found			       ? "closed under its user"
		       : (unsigned long)found == inode ? "its user is waited for"
						       : "a stranger's");
		wrong += (unsigned long)found != inode;
		close_used(ways[i].close == by_disowning);
	}
	assert_int_equal(wrong, 0);
}

/* --- dup2() onto a number that another thread is closing */

static _Atomic bool copies, is_copied;

static void *copy_onto_it(void *arg)
{
	struct vfd_dup d;

	(void)arg;
	copies = true;
	assert_true(vfd_dup_onto(&d, other, number));
	vfd_dup_end(&d, libc.dup2(other, number));
	is_copied = true;
	return NULL;
}

/* Gives it all the time to come between. */
static int slow_close(struct vfd *v, int fd)
{
	pthread_t copier;

	(void)v;
	assert_int_equal(pthread_create(&copier, NULL, copy_onto_it, NULL), 0);
	pthread_detach(copier);
	while (!copies)
		sched_yield();
	for (int i = 0; i < 1000 && !is_copied; i++)
		clock_sleep_ns(100000);
	return vfd_release(fd);
}

static const struct vfd_ops slow_ops = {.close = slow_close};

/* As the kernel does it: the one is closed, and then the number is the copy's. */
static void a_copy_onto_a_number_that_is_being_closed_stays(void **state)
{
	struct thing stranger;

	(void)state;
	other = new_fd();
	thing_init(&stranger);
	thing_install(&stranger, other);
	number = new_fd();
	thing_init(&used);
	used.vfd.ops = &slow_ops;
	thing_install(&used, number);
	assert_int_equal(vfd_close(number), 0);
	while (!is_copied)
		sched_yield();
	assert_ptr_equal(vfd_get(number), &stranger.vfd);
	assert_int_equal(inode_of(number), stranger.inode);
	assert_int_equal(stranger.vfd.nfds, 2);
	vfd_close(number);
	vfd_close(other);
	assert_int_equal(vfd_count, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_number_that_is_being_closed_is_refused),
		cmocka_unit_test(vacating_closes_the_socket_and_keeps_the_number),
		cmocka_unit_test(no_call_sleeps_on_a_socket_that_is_being_closed),
		cmocka_unit_test(a_copy_onto_another_object_takes_its_place_at_once),
		cmocka_unit_test(every_way_of_closing_ends_the_watches),
		cmocka_unit_test(a_number_is_closed_when_nobody_uses_it),
		cmocka_unit_test(a_copy_onto_a_number_that_is_being_closed_stays),
	};

	libc_load();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
