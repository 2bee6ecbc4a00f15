/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The fd table: names, copies, closing; and all of it at once from several threads. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
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
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "vfd_thing.h"

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
		vfd_fork_child_done();
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

static unsigned told;
static struct thing *next;

static void forking(struct vfd *v)
{
	(void)v;
	told++;
}

static struct vfd *inherited(struct vfd *v)
{
	(void)v;
	return &next->vfd;
}

static void an_inherited_object_has_every_number_in_the_child(void **state)
{
	struct vfd_ops ops;
	struct thing t, u, left;
	int fd = new_fd(), other = new_fd(), copy, status;
	pid_t pid;

	(void)state;
	thing_init(&t);
	thing_init(&u);
	thing_init(&left);
	ops = *t.vfd.ops;
	ops.forking = forking;
	ops.inherited = inherited;
	t.vfd.ops = &ops;
	next = &u;
	thing_install(&t, fd);
	copy = fcntl(fd, F_DUPFD, 50);
	assert_true(vfd_dup(fd, copy));
	thing_install(&left, other);
	told = 0;
	vfd_fork_prepare();
	assert_int_equal(told, 1); /* once for an object, not for a number */
	pid = fork();
	if (pid == 0) {
		vfd_fork_child();
		vfd_fork_child_done();
		if (vfd_get(fd) != &u.vfd || vfd_get(copy) != &u.vfd || vfd_get(other) ||
		    vfd_count != 2 || vfd_limit() != copy + 1)
			_exit(1);
		if (u.vfd.nfds != 2 || t.closed || left.closed)
			_exit(2);
		u.inode = inode_of(fd);
		if (vfd_close(fd) || u.closed || vfd_close(copy) || u.closed != 1)
			_exit(3);
		_exit(0);
	}
	vfd_fork_parent();
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_ptr_equal(vfd_get(fd), &t.vfd);
	assert_int_equal(vfd_close(fd), 0);
	assert_int_equal(vfd_close(copy), 0);
	assert_int_equal(vfd_close(other), 0);
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

/*
 * The watch is on the stack of its owner: one call after vfd_watch_del() would write into a dead
 * frame.
 */
static void a_removed_watch_is_never_called(void **state)
{
	struct thing t;
	pthread_t notifier;
	unsigned late = 0;

	(void)state;
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

static void *turn_kept(void *arg)
{
	struct thing *t = arg;

	assert_true(vfd_hold(&t->vfd, t->vfd.os_fd) && vfd_turn_take(&t->vfd));
	return NULL;
}

static void a_turn_ends_with_the_call_with_its_thread_and_when_a_handler_runs(void **state)
{
	struct vfd_held paused;
	pthread_t thread;
	struct thing t;
	int fd = new_fd();

	(void)state;
	thing_init(&t);
	thing_install(&t, fd);
	assert_true(vfd_hold(&t.vfd, fd));
	assert_true(vfd_turn_take(&t.vfd));
	assert_false(vfd_turn_begin(&t.vfd)); /* any other thread */
	paused = vfd_hold_pause();
	assert_true(vfd_turn_begin(&t.vfd));
	vfd_hold_resume(paused);
	vfd_turn_end(); /* it is another one's by now */
	assert_false(vfd_turn_take(&t.vfd));
	vfd_turn_over(&t.vfd);
	assert_true(vfd_turn_take(&t.vfd));
	vfd_let_go();
	pthread_create(&thread, NULL, turn_kept, &t);
	pthread_join(thread, NULL);
	assert_true(vfd_turn_begin(&t.vfd));
	vfd_turn_over(&t.vfd);
	assert_int_equal(vfd_close(fd), 0);
	assert_int_equal(t.closed, 1);
}

static void a_turn_is_one_processs_until_that_ends(void **state)
{
	int fd = new_fd(), said[2], status;
	struct thing t;
	pid_t child;
	char c;

	(void)state;
	thing_init(&t);
	thing_install(&t, fd);
	assert_int_equal(pipe(said), 0);
	child = fork();
	if (!child) {
		if (vfd_turn_begin(&t.vfd) && write(said[1], "!", 1) == 1)
			pause();
		_exit(1);
	}
	assert_int_equal(read(said[0], &c, 1), 1);
	assert_false(vfd_turn_begin(&t.vfd));
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	assert_true(vfd_turn_begin(&t.vfd));
	vfd_turn_over(&t.vfd);
	assert_int_equal(vfd_close(fd), 0);
	close(said[0]);
	close(said[1]);
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
		cmocka_unit_test(an_inherited_object_has_every_number_in_the_child),
		cmocka_unit_test(every_watch_hears_until_it_is_removed),
		cmocka_unit_test(threads_that_make_copy_close_and_look_up_never_mix_numbers),
		cmocka_unit_test(a_removed_watch_is_never_called),
		cmocka_unit_test(a_turn_ends_with_the_call_with_its_thread_and_when_a_handler_runs),
		cmocka_unit_test(a_turn_is_one_processs_until_that_ends),
	};

	libc_load();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
