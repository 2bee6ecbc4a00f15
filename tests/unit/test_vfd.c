/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The fd table: names, copies, closing; and all of it at once from several threads. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/libc.h"
#include "socket/vfd.h"

/* A vfd that knows which kernel object it is the front of. */
struct thing {
	struct vfd vfd;
	_Atomic unsigned magic;
	_Atomic unsigned long inode;
	_Atomic unsigned closed; /* how often ops->close ran */
	_Atomic int closed_fd;
};

#define MAGIC 0x7417f00du

static _Atomic unsigned wrong_close;

static unsigned long inode_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) ? 0 : st.st_ino;
}

static int thing_close(struct vfd *v, int fd)
{
	struct thing *t = (struct thing *)v;

	t->closed++;
	t->closed_fd = fd;
	if (fd < 0)
		return 0;
	if (vfd_get(fd) == v || inode_of(fd) != t->inode)
		wrong_close++;
	return vfd_release(fd);
}

static const struct vfd_ops thing_ops = {.close = thing_close};

static int new_fd(void)
{
	int fd = libc.socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	return fd;
}

static void thing_init(struct thing *t)
{
	memset(t, 0, sizeof(*t));
	t->vfd.ops = &thing_ops;
	t->vfd.kind = VFD_UDP;
	t->magic = MAGIC;
}

static void thing_install(struct thing *t, int fd)
{
	t->inode = inode_of(fd);
	assert_int_equal(vfd_install(fd, &t->vfd), 0);
}

static void a_number_is_found_from_install_to_close(void **state)
{
	struct thing t;
	int fd = new_fd();

	(void)state;
	thing_init(&t);
	assert_null(vfd_get(fd));
	thing_install(&t, fd);
	assert_ptr_equal(vfd_get(fd), &t.vfd);
	assert_int_equal(t.vfd.nfds, 1);
	assert_int_equal(t.vfd.os_fd, fd);
	assert_int_equal(vfd_count, 1);
	assert_int_equal(vfd_limit(), fd + 1);
	assert_int_equal(vfd_close(fd), 0);
	assert_null(vfd_get(fd));
	assert_int_equal(t.closed, 1);
	assert_int_equal(t.closed_fd, fd);
	assert_int_equal(wrong_close, 0);
	assert_int_equal(vfd_count, 0);
	assert_int_equal(vfd_limit(), 0);
	assert_int_equal(inode_of(fd), 0);
}

static void numbers_outside_the_table_are_nobodys(void **state)
{
	struct thing t;

	(void)state;
	thing_init(&t);
	assert_int_equal(vfd_install(VFD_MAX, &t.vfd), -EMFILE);
	assert_int_equal(vfd_install(-1, &t.vfd), -EMFILE);
	assert_null(vfd_get(-1));
	assert_null(vfd_get(VFD_MAX));
	assert_false(vfd_dup(-1, 3));
	assert_false(vfd_dup(3, -1));
	vfd_forget(-1);
	vfd_forget(VFD_MAX);
	errno = 0;
	assert_int_equal(vfd_close(-1), -1);
	assert_int_equal(errno, EBADF);
	assert_int_equal(vfd_count, 0);
}

static void closing_what_is_not_ours_is_libcs_close(void **state)
{
	int fd = new_fd();

	(void)state;
	assert_int_equal(vfd_close(fd), 0);
	assert_int_equal(inode_of(fd), 0);
	assert_int_equal(vfd_close(fd), -1);
	assert_int_equal(errno, EBADF);
}

static void copies_name_one_object_until_the_last_is_closed(void **state)
{
	struct thing t;
	int a = new_fd(), b = dup(a), c = dup(a);

	(void)state;
	thing_init(&t);
	thing_install(&t, a);
	assert_true(vfd_dup(a, b));
	assert_true(vfd_dup(b, c));
	assert_int_equal(t.vfd.nfds, 3);
	assert_ptr_equal(vfd_get(c), &t.vfd);
	assert_int_equal(t.vfd.os_fd, a);
	/* The number by which the kernel socket is reached moves on before it is closed. */
	assert_int_equal(vfd_close(a), 0);
	assert_int_equal(inode_of(a), 0);
	assert_int_equal(t.closed, 0);
	assert_int_not_equal(t.vfd.os_fd, a);
	assert_int_equal(inode_of(t.vfd.os_fd), t.inode);
	assert_int_equal(vfd_close(t.vfd.os_fd == b ? c : b), 0);
	assert_int_equal(t.closed, 0);
	assert_int_equal(vfd_close(t.vfd.os_fd), 0);
	assert_int_equal(t.closed, 1);
	assert_int_equal(wrong_close, 0);
	assert_int_equal(vfd_count, 0);
}

static void a_copy_of_what_is_not_ours_is_not_ours(void **state)
{
	int a = new_fd(), b = dup(a);

	(void)state;
	assert_false(vfd_dup(a, b));
	assert_null(vfd_get(b));
	close(a);
	close(b);
}

static void forget_leaves_the_number_open(void **state)
{
	struct thing t;
	int fd = new_fd();

	(void)state;
	thing_init(&t);
	thing_install(&t, fd);
	vfd_forget(fd);
	assert_null(vfd_get(fd));
	assert_int_equal(t.closed, 1);
	assert_int_equal(t.closed_fd, -1);
	assert_int_equal(inode_of(fd), t.inode);
	vfd_forget(fd);
	assert_int_equal(t.closed, 1);
	close(fd);
}

/* fclose(fdopen(fd)) closes inside libc: the entry stays, and the number comes back. */
static void a_stale_entry_gives_way(void **state)
{
	struct thing old, new;
	int a = new_fd(), b;

	(void)state;
	thing_init(&old);
	thing_init(&new);
	thing_install(&old, a);
	thing_install(&new, a);
	assert_ptr_equal(vfd_get(a), &new.vfd);
	assert_int_equal(old.closed, 1);
	assert_int_equal(old.closed_fd, -1);
	assert_int_equal(vfd_count, 1);
	/* And as the target of a copy. */
	b = dup(a);
	thing_init(&old);
	thing_install(&old, b);
	assert_true(vfd_dup(a, b));
	assert_int_equal(old.closed, 1);
	assert_ptr_equal(vfd_get(b), &new.vfd);
	assert_int_equal(new.vfd.nfds, 2);
	vfd_close(a);
	vfd_close(b);
	assert_int_equal(new.closed, 1);
	assert_int_equal(wrong_close, 0);
}

static void the_limit_follows_the_highest_number(void **state)
{
	struct thing t, u;
	int low = new_fd(), high = fcntl(low, F_DUPFD_CLOEXEC, 900);

	(void)state;
	assert_true(high >= 900);
	thing_init(&t);
	thing_init(&u);
	thing_install(&t, low);
	thing_install(&u, high);
	assert_int_equal(vfd_limit(), high + 1);
	vfd_close(high);
	assert_int_equal(vfd_limit(), low + 1);
	vfd_close(low);
	assert_int_equal(vfd_limit(), 0);
}

static void a_child_starts_with_an_empty_table(void **state)
{
	struct thing t;
	int fd = new_fd(), status;
	pid_t pid;

	(void)state;
	thing_init(&t);
	thing_install(&t, fd);
	vfd_fork_prepare();
	pid = fork();
	if (pid == 0) {
		vfd_fork_child();
		if (vfd_get(fd) || vfd_count || vfd_limit() || t.closed || !inode_of(fd))
			_exit(1);
		/* The lock is usable, and the signal mask is the old one. */
		sigset_t mask;
		struct thing u;

		thing_init(&u);
		u.inode = inode_of(fd);
		if (vfd_install(fd, &u.vfd) || vfd_close(fd) || u.closed != 1)
			_exit(2);
		sigprocmask(SIG_BLOCK, NULL, &mask);
		_exit(sigismember(&mask, SIGUSR1) ? 3 : 0);
	}
	vfd_fork_parent();
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_ptr_equal(vfd_get(fd), &t.vfd);
	assert_int_equal(t.closed, 0);
	assert_int_equal(vfd_close(fd), 0);
}

/* --- while a number is being closed */

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
	for (int fd = 3; fd < 256; fd++)
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

/* A thread that goes on using the number, as recv() of preload does: the object's while it has one, else the kernel's. */
static void *use_until_it_fails(void *arg)
{
	int fd = *(int *)arg;
	struct msghdr msg = {0};
	char c;

	for (;;) {
		struct vfd *v = vfd_get(fd);

		if (!v)
			/* Bare: ThreadSanitizer, which follows descriptors, would have it a race. It is one. */
			return libc_raw(SYS_recvfrom, fd, (long)(uintptr_t)&c, 1, 0, 0, 0) < 0
				       ? (void *)(intptr_t)errno
				       : NULL;
		if (v->ops->recvmsg && v->ops->recvmsg(v, fd, &msg, 0) < 0)
			return (void *)(intptr_t)errno;
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
	int refused = 0, rounds = 3000;

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
	/* Onto an object's only number: that is its end. And of what is not ours: the number is not ours either. */
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

struct counting_watch {
	struct vfd_watch watch;
	_Atomic uint32_t events;
	_Atomic unsigned calls;
};

static void counting_notify(struct vfd_watch *w, uint32_t events)
{
	struct counting_watch *c = (struct counting_watch *)w;

	c->events |= events;
	c->calls++;
}

static void every_watch_hears_until_it_is_removed(void **state)
{
	struct counting_watch w[4] = {0};
	struct thing t;

	(void)state;
	thing_init(&t);
	vfd_notify(&t.vfd, EPOLLIN); /* to nobody */
	for (int i = 0; i < 4; i++) {
		w[i].watch.notify = counting_notify;
		vfd_watch_add(&t.vfd, &w[i].watch);
	}
	vfd_notify(&t.vfd, EPOLLIN);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(w[i].calls, 1);
		assert_int_equal(w[i].events, EPOLLIN);
	}
	/* The middle, the newest (first in the list), the oldest (last), the only one. */
	static const int order[] = {1, 3, 0, 2};

	for (int i = 0; i < 4; i++) {
		unsigned before = w[order[i]].calls;

		vfd_watch_del(&t.vfd, &w[order[i]].watch);
		vfd_notify(&t.vfd, EPOLLOUT);
		assert_int_equal(w[order[i]].calls, before);
		for (int j = i + 1; j < 4; j++)
			assert_int_equal(w[order[j]].calls, i + 2);
	}
	assert_null(t.vfd.watches);
}

/* --- many threads */

#define THINGS 64
#define MAKERS 3
#define ROUNDS 3000

static struct thing things[MAKERS][THINGS];
static _Atomic bool stop;
static _Atomic unsigned foreign;

/* Whatever number a lookup hits, what it gives is a thing, alive or dead. */
static void *look_up(void *arg)
{
	unsigned long hits = 0;

	(void)arg;
	while (!atomic_load(&stop)) {
		for (int fd = 0; fd < 256; fd++) {
			struct vfd *v = vfd_get(fd);

			if (!v || v == &vfd_closing)
				continue;
			hits++;
			if (((struct thing *)v)->magic != MAGIC || v->ops != &thing_ops)
				foreign++;
		}
	}
	return (void *)hits;
}

/* Makes, copies and closes; the kernel hands the same few numbers round between the threads. */
static void *make_and_close(void *arg)
{
	struct thing *mine = arg;
	unsigned seed = (unsigned)(mine - &things[0][0]) + 1;

	for (int i = 0; i < ROUNDS; i++) {
		struct thing *t = &mine[i % THINGS];
		int fds[3] = {libc.socket(AF_UNIX, SOCK_DGRAM, 0), -1, -1};
		int n = 1;

		if (fds[0] < 0)
			continue;
		t->inode = inode_of(fds[0]);
		if (vfd_install(fds[0], &t->vfd)) {
			foreign++;
			continue;
		}
		for (int want = rand_r(&seed) % 3; n <= want; n++) {
			fds[n] = libc.dup(fds[n - 1]);
			if (!vfd_dup(fds[n - 1], fds[n]))
				foreign++;
		}
		unsigned closed = t->closed;

		for (int j = 0; j < n; j++) {
			if (t->closed != closed)
				foreign++;
			if (vfd_close(fds[j]))
				wrong_close++;
		}
		if (t->closed != closed + 1)
			foreign++;
	}
	return NULL;
}

static void threads_that_make_copy_close_and_look_up_never_mix_numbers(void **state)
{
	pthread_t makers[MAKERS], looker;
	void *hits;

	(void)state;
	for (int m = 0; m < MAKERS; m++)
		for (int i = 0; i < THINGS; i++)
			thing_init(&things[m][i]);
	assert_int_equal(pthread_create(&looker, NULL, look_up, NULL), 0);
	for (int m = 0; m < MAKERS; m++)
		assert_int_equal(pthread_create(&makers[m], NULL, make_and_close, things[m]), 0);
	for (int m = 0; m < MAKERS; m++)
		pthread_join(makers[m], NULL);
	atomic_store(&stop, true);
	pthread_join(looker, &hits);
	printf("%d objects of %d threads, %lu lookups hit one\n", MAKERS * ROUNDS, MAKERS,
	       (unsigned long)hits);
	assert_int_equal(wrong_close, 0);
	assert_int_equal(foreign, 0);
	assert_int_equal(vfd_count, 0);
	assert_int_equal(vfd_limit(), 0);
}

static void *notify_all_the_time(void *arg)
{
	struct thing *t = arg;

	while (!atomic_load(&stop))
		vfd_notify(&t->vfd, EPOLLIN);
	return NULL;
}

/* The watch is on the stack of its owner: one call after vfd_watch_del() would write into a dead frame. */
static void a_removed_watch_is_never_called(void **state)
{
	struct thing t;
	pthread_t notifier;
	unsigned late = 0;

	(void)state;
	lock_mode = 0; /* one application thread is promised; the worker notifies all the same */
	thing_init(&t);
	atomic_store(&stop, false);
	assert_int_equal(pthread_create(&notifier, NULL, notify_all_the_time, &t), 0);
	for (int i = 0; i < 5000; i++) {
		struct counting_watch w = {.watch.notify = counting_notify};
		unsigned calls;

		vfd_watch_add(&t.vfd, &w.watch);
		if (i % 16 == 0)
			while (!w.calls)
				sched_yield();
		vfd_watch_del(&t.vfd, &w.watch);
		calls = w.calls;
		if (i % 16 == 0)
			sched_yield();
		late += w.calls != calls;
	}
	atomic_store(&stop, true);
	pthread_join(notifier, NULL);
	assert_int_equal(late, 0);
	assert_null(t.vfd.watches);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_number_is_found_from_install_to_close),
		cmocka_unit_test(numbers_outside_the_table_are_nobodys),
		cmocka_unit_test(closing_what_is_not_ours_is_libcs_close),
		cmocka_unit_test(copies_name_one_object_until_the_last_is_closed),
		cmocka_unit_test(a_copy_of_what_is_not_ours_is_not_ours),
		cmocka_unit_test(forget_leaves_the_number_open),
		cmocka_unit_test(a_stale_entry_gives_way),
		cmocka_unit_test(the_limit_follows_the_highest_number),
		cmocka_unit_test(a_child_starts_with_an_empty_table),
		cmocka_unit_test(a_number_that_is_being_closed_is_refused),
		cmocka_unit_test(vacating_closes_the_socket_and_keeps_the_number),
		cmocka_unit_test(no_call_sleeps_on_a_socket_that_is_being_closed),
		cmocka_unit_test(a_copy_onto_another_object_takes_its_place_at_once),
		cmocka_unit_test(every_way_of_closing_ends_the_watches),
		cmocka_unit_test(every_watch_hears_until_it_is_removed),
		cmocka_unit_test(threads_that_make_copy_close_and_look_up_never_mix_numbers),
		cmocka_unit_test(a_removed_watch_is_never_called),
	};

	libc_load();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
