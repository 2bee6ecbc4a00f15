/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What poll, select and epoll promise, one promise a test. tests/unit/test_iomux_kernel.c compares
 * with the kernel.
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/wait.h>
/* cmocka needs the four above. */
#include <cmocka.h>

#include "fake_vfd.h"
#include "config/params.h"
#include "runtime/clock.h"
#include "runtime/own_fd.h"
#include "runtime/signals.h"
#include "stats/stats.h"

#define MS 1000000ull

static const struct timespec zero;
static struct fake fake;
static int set;

/* Every kernel call that iomux makes, counted. */
static unsigned long calls;
static struct libc_table real, real_raw;

static int counting_poll(struct pollfd *p, nfds_t n, int ms)
{
	calls++;
	return real.poll(p, n, ms);
}

static int counting_ppoll(struct pollfd *p, nfds_t n, const struct timespec *t,
			  const sigset_t *mask)
{
	calls++;
	return real.ppoll(p, n, t, mask);
}

static int counting_epoll_wait(int epfd, struct epoll_event *ev, int max, int ms)
{
	calls++;
	return real.epoll_wait(epfd, ev, max, ms);
}

static struct timespec ms(unsigned n)
{
	return (struct timespec){n / 1000, (long)(n % 1000) * 1000000};
}

static int setup(void **state)
{
	(void)state;
	params.select_poll = 0;
	params.select_poll_os_ratio = 10;
	params.select_skip_os = 4;
	memset(&fake, 0, sizeof(fake));
	fake_open(&fake);
	set = epoll_create1(EPOLL_CLOEXEC);
	assert_int_equal(iomux_epoll_created(set), 0);
	calls = 0;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	vfd_close(set);
	fake_shut(&fake);
	return 0;
}

static int ctl(int epfd, int op, int fd, uint32_t events, uint64_t data)
{
	struct epoll_event ev = {.events = events, .data.u64 = data};

	return iomux_epoll_ctl(epfd, op, fd, &ev) ? -errno : 0;
}

static int wait_ms(int epfd, struct epoll_event *ev, int max, unsigned n)
{
	struct timespec t = ms(n);
	int r = iomux_epoll_wait(epfd, ev, max, &t, NULL);

	return r < 0 ? -errno : r;
}

static void errors_are_the_kernels(void **state)
{
	struct pollfd *many = calloc(2000, sizeof(*many));
	struct timespec bad = {0, 2000000000};
	struct epoll_event ev;
	struct rlimit limit;
	int other = epoll_create1(0);

	(void)state;
	assert_int_equal(iomux_epoll_created(other), 0);
	assert_int_equal(ctl(set, EPOLL_CTL_ADD, fake.fd, EPOLLIN, 1), 0);
	assert_int_equal(ctl(set, EPOLL_CTL_ADD, fake.fd, EPOLLIN, 1), -EEXIST);
	assert_int_equal(ctl(other, EPOLL_CTL_MOD, fake.fd, EPOLLIN, 1), -ENOENT);
	assert_int_equal(ctl(other, EPOLL_CTL_DEL, fake.fd, EPOLLIN, 1), -ENOENT);
	assert_int_equal(ctl(set, EPOLL_CTL_ADD, 999, EPOLLIN, 1), -EBADF);
	assert_int_equal(ctl(999, EPOLL_CTL_ADD, fake.fd, EPOLLIN, 1), -EBADF);
	assert_int_equal(ctl(set, EPOLL_CTL_ADD, set, EPOLLIN, 1), -EINVAL);
	assert_int_equal(ctl(fake.fd, EPOLL_CTL_ADD, set, EPOLLIN, 1), -EINVAL);
	assert_int_equal(ctl(set, 77, fake.fd, EPOLLIN, 1), -EINVAL);
	assert_int_equal(ctl(set, EPOLL_CTL_MOD, fake.fd, EPOLLIN | EPOLLEXCLUSIVE, 1), -EINVAL);
	assert_int_equal(ctl(set, EPOLL_CTL_ADD, open("/etc/passwd", O_RDONLY), EPOLLIN, 1),
			 -EPERM);
	assert_int_equal(ctl(other, EPOLL_CTL_ADD, set, EPOLLIN, 1), 0);
	assert_int_equal(ctl(set, EPOLL_CTL_ADD, other, EPOLLIN, 1), -ELOOP);
	assert_int_equal(wait_ms(set, &ev, 0, 0), -EINVAL);
	assert_int_equal(wait_ms(set, &ev, -1, 0), -EINVAL);
	assert_int_equal(wait_ms(fake.fd, &ev, 1, 0), -EINVAL);
	many[0] = (struct pollfd){.fd = fake.fd, .events = POLLIN};
	assert_int_equal(iomux_poll(many, 1, &bad, NULL), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = 1024;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_int_equal(iomux_poll(many, 1025, &zero, NULL), -1);
	assert_int_equal(errno, EINVAL);
	assert_true(iomux_poll(many, 1024, &zero, NULL) >= 0);
	assert_int_equal(iomux_select(-1, NULL, NULL, NULL, &zero, NULL), -1);
	assert_int_equal(errno, EINVAL);
	vfd_close(other);
	free(many);
	print_message("    EEXIST ENOENT EBADF EINVAL EPERM ELOOP, bad timeouts and counts\n");
}

/* As preload tells of setrlimit(). */
static void limit_set(const struct rlimit *limit)
{
	own_fd_limit_lock();
	setrlimit(RLIMIT_NOFILE, limit);
	iomux_limit_changed();
	own_fd_limit_unlock();
}

static void *arrives_soon(void *arg)
{
	usleep(5000);
	fake_arrive(arg);
	return NULL;
}

/* The errno of a call that is to fail. */
static int errno_of(int ret)
{
	return ret < 0 ? errno : 0;
}

enum { BY_POLL, BY_SELECT, BY_EPOLL, NUM_WAYS };

/* One wait for a packet that comes a little later; its result. */
static int wait_by(int way)
{
	struct pollfd one = {.fd = fake.fd, .events = POLLIN};
	const struct timespec long_time = ms(10000);
	struct epoll_event ev;
	pthread_t t;
	fd_set rd;
	int r;

	assert(!pthread_create(&t, NULL, arrives_soon, &fake));
	FD_ZERO(&rd);
	FD_SET(fake.fd, &rd);
	if (way == BY_POLL)
		r = iomux_poll(&one, 1, &long_time, NULL);
	else if (way == BY_SELECT)
		r = iomux_select(fake.fd + 1, &rd, NULL, NULL, &long_time, NULL);
	else
		r = wait_ms(set, &ev, 1, 10000);
	pthread_join(t, NULL);
	fake_take(&fake);
	return r;
}

/* The limit bounds what a program may ask of poll(), and nothing else. */
static void a_low_limit_of_descriptors(void **state)
{
	struct pollfd two[2] = {{.fd = fake.fd, .events = POLLIN}, {.fd = -1}};
	const struct timespec soon = ms(2);
	int two_of_one, one_of_one, one_of_none, quiet, waits[2][NUM_WAYS];
	struct rlimit before, limit;
	struct epoll_event ev;

	(void)state;
	/* libc's has the limit, the library's own has not. */
	raw.poll = real_raw.poll;
	assert_true(wait_evfd() > 0);
	assert_int_equal(ctl(set, EPOLL_CTL_ADD, fake.fd, EPOLLIN, 1), 0);
	assert_int_equal(iomux_poll(two, 2, &zero, NULL), 0);
	getrlimit(RLIMIT_NOFILE, &before);
	limit = before;
	limit.rlim_cur = 1;
	limit_set(&limit);
	two_of_one = errno_of(iomux_poll(two, 2, &zero, NULL));
	one_of_one = iomux_poll(two, 1, &soon, NULL);
	for (int way = 0; way < NUM_WAYS; way++)
		waits[0][way] = wait_by(way);
	limit.rlim_cur = 0;
	limit_set(&limit);
	one_of_none = errno_of(iomux_poll(two, 1, &zero, NULL));
	quiet = wait_ms(set, &ev, 1, 2);
	for (int way = BY_SELECT; way < NUM_WAYS; way++)
		waits[1][way] = wait_by(way);
	limit_set(&before);
	raw.poll = counting_poll;
	assert_int_equal(two_of_one, EINVAL);
	assert_int_equal(one_of_one, 0);
	assert_int_equal(one_of_none, EINVAL);
	assert_int_equal(quiet, 0);
	for (int way = 0; way < NUM_WAYS; way++) {
		assert_int_equal(waits[0][way], 1);
		if (way != BY_POLL)
			assert_int_equal(waits[1][way], 1);
	}
	assert_int_equal(iomux_poll(two, 2, &zero, NULL), 0);
	print_message("    EINVAL for 2 of 1 and for 1 of 0; waits end by a packet\n");
}

static void timeouts_are_never_early_and_mostly_punctual(void **state)
{
	struct pollfd p = {.fd = fake.fd, .events = POLLIN};
	struct epoll_event ev;
	uint64_t best = UINT64_MAX;

	(void)state;
	ctl(set, EPOLL_CTL_ADD, fake.fd, EPOLLIN, 1);
	for (int spin = 0; spin < 3; spin++) {
		params.select_poll = (int[]){0, 2000, -1}[spin];
		for (unsigned n = 1; n <= 21; n += 5) {
			for (int how = 0; how < 3; how++) {
				struct timespec t = ms(n);
				uint64_t start = clock_monotonic_ns(), took;
				fd_set rd;

				FD_ZERO(&rd);
				FD_SET(fake.fd, &rd);
				if (how == 0)
					assert_int_equal(iomux_poll(&p, 1, &t, NULL), 0);
				else if (how == 1)
					assert_int_equal(iomux_select(fake.fd + 1, &rd, NULL, NULL,
								      &t, NULL),
							 0);
				else
					assert_int_equal(iomux_epoll_wait(set, &ev, 1, &t, NULL),
							 0);
				took = clock_monotonic_ns() - start;
				assert_true(took >= n * MS);
				best = took - n * MS < best ? took - n * MS : best;
			}
		}
	}
	/* Each may be late on a busy machine; all of them only by a defect. */
	assert_true(best < 50 * MS);
	print_message(
		"    45 timeouts of 1 to 21 ms, none early, the most punctual late by %lu us\n",
		(unsigned long)best / 1000);
}

static void one_ready_socket_costs_no_system_call(void **state)
{
	enum { N = 200000 };
	struct epoll_event ev[8];
	uint64_t start;

	(void)state;
	params.select_skip_os = 0;
	ctl(set, EPOLL_CTL_ADD, fake.fd, EPOLLIN, 1);
	fake_arrive(&fake);
	assert_int_equal(wait_ms(set, ev, 8, 0), 1);
	calls = 0;
	start = clock_monotonic_ns();
	for (int i = 0; i < N; i++)
		if (iomux_epoll_wait(set, ev, 8, NULL, NULL) != 1)
			fail();
	start = clock_monotonic_ns() - start;
	assert_true(calls <= N / 1000);
	print_message("    epoll_wait with a ready offloaded fd: %lu ns, %lu kernel calls in %d\n",
		      (unsigned long)(start / N), calls, N);
}

static void kernel_only_sets_are_passed_through(void **state)
{
	struct epoll_event ev[2];
	int pipefd[2];

	(void)state;
	assert_int_equal(pipe(pipefd), 0);
	assert_int_equal(ctl(set, EPOLL_CTL_ADD, pipefd[0], EPOLLIN, 0xe5a7000000000000ull), 0);
	assert_int_equal(write(pipefd[1], "x", 1), 1);
	calls = 0;
	assert_int_equal(wait_ms(set, ev, 2, 100), 1);
	assert_true(ev[0].data.u64 ==
		    0xe5a7000000000000ull); /* even a value that looks like a tag */
	assert_int_equal(calls, 1);
	close(pipefd[0]);
	close(pipefd[1]);
	print_message("    one call of libc, the user's data untouched\n");
}

static void edge_reports_each_arrival_once(void **state)
{
	struct epoll_event ev;

	(void)state;
	ctl(set, EPOLL_CTL_ADD, fake.fd, EPOLLIN | EPOLLET, 1);
	fake_arrive(&fake);
	assert_int_equal(wait_ms(set, &ev, 1, 0), 1);
	assert_int_equal(wait_ms(set, &ev, 1, 0), 0);
	fake_arrive(&fake);
	fake_arrive(&fake);
	assert_int_equal(wait_ms(set, &ev, 1, 0), 1);
	assert_int_equal(wait_ms(set, &ev, 1, 0), 0);
	ctl(set, EPOLL_CTL_MOD, fake.fd, EPOLLIN | EPOLLET, 2);
	assert_int_equal(wait_ms(set, &ev, 1, 0), 1);
	assert_int_equal(ev.data.u64, 2);
	print_message("    once per arrival, once more after MOD\n");
}

static void oneshot_waits_for_mod(void **state)
{
	struct epoll_event ev;

	(void)state;
	ctl(set, EPOLL_CTL_ADD, fake.fd, EPOLLIN | EPOLLONESHOT, 1);
	fake_arrive(&fake);
	assert_int_equal(wait_ms(set, &ev, 1, 0), 1);
	fake_arrive(&fake);
	atomic_store(&fake.extra, EPOLLERR | EPOLLHUP);
	vfd_notify(&fake.vfd, EPOLLERR);
	assert_int_equal(wait_ms(set, &ev, 1, 0), 0);
	ctl(set, EPOLL_CTL_MOD, fake.fd, EPOLLIN | EPOLLONESHOT, 1);
	assert_int_equal(wait_ms(set, &ev, 1, 0), 1);
	assert_int_equal(ev.events, EPOLLIN | EPOLLERR | EPOLLHUP);
	print_message("    silent until MOD, errors included\n");
}

/*
 * The kernel gets the socket: to its epoll an item is armed as soon as it is there, and tells a
 * hang-up unasked. Beside it one that was the kernel's all the time.
 */
static void oneshot_waits_for_mod_when_the_kernel_has_got_it(void **state)
{
	int pair[2], theirs = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event ev, want = {.events = EPOLLIN | EPOLLONESHOT, .data.u64 = 2};
	unsigned told = 0;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), 0);
	assert_int_equal(real.epoll_ctl(theirs, EPOLL_CTL_ADD, pair[0], &want), 0);
	ctl(set, EPOLL_CTL_ADD, fake.fd, want.events, 1);
	fake_arrive(&fake);
	assert_int_equal(send(pair[1], "x", 1, 0), 1);
	assert_int_equal(wait_ms(set, &ev, 1, 0), 1);
	assert_int_equal(real.epoll_wait(theirs, &ev, 1, 0), 1);
	fake_take(&fake);
	shutdown(pair[0], SHUT_RDWR);
	shutdown(fake.fd, SHUT_RDWR);
	assert_true(vfd_disown(&fake.vfd));
	for (int i = 0; i < 3; i++) {
		assert_int_equal(real.epoll_wait(theirs, &ev, 1, 0), 0);
		told += wait_ms(set, &ev, 1, 0) != 0;
	}
	print_message("    told %u times while it was disarmed\n", told);
	assert_int_equal(told, 0);
	assert_int_equal(ctl(set, EPOLL_CTL_ADD, fake.fd, want.events, 3), -EEXIST);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(real.epoll_ctl(theirs, EPOLL_CTL_MOD, pair[0], &want), 0);
		assert_int_equal(real.epoll_wait(theirs, &want, 1, 0), 1);
		assert_int_equal(ctl(set, EPOLL_CTL_MOD, fake.fd, EPOLLIN | EPOLLONESHOT, 4), 0);
		assert_int_equal(wait_ms(set, &ev, 1, 0), 1);
		assert_int_equal(ev.events, want.events);
		assert_int_equal(ev.data.u64, 4);
		assert_int_equal(wait_ms(set, &ev, 1, 0), 0);
		want.events = EPOLLIN | EPOLLONESHOT;
	}
	assert_int_equal(ctl(set, EPOLL_CTL_DEL, fake.fd, 0, 0), 0);
	assert_int_equal(ctl(set, EPOLL_CTL_DEL, fake.fd, 0, 0), -ENOENT);
	close(pair[0]);
	close(pair[1]);
	close(theirs);
}

static void errors_and_hang_ups_come_unasked(void **state)
{
	struct pollfd p = {.fd = fake.fd};
	struct epoll_event ev;

	(void)state;
	ctl(set, EPOLL_CTL_ADD, fake.fd, 0, 1);
	atomic_store(&fake.extra, EPOLLERR | EPOLLHUP | EPOLLRDHUP);
	vfd_notify(&fake.vfd, EPOLLERR);
	assert_int_equal(wait_ms(set, &ev, 1, 0), 1);
	assert_int_equal(ev.events, EPOLLERR | EPOLLHUP);
	ctl(set, EPOLL_CTL_MOD, fake.fd, EPOLLRDHUP, 1);
	assert_int_equal(wait_ms(set, &ev, 1, 0), 1);
	assert_int_equal(ev.events, EPOLLERR | EPOLLHUP | EPOLLRDHUP);
	assert_int_equal(iomux_poll(&p, 1, &zero, NULL), 1);
	assert_int_equal(p.revents, POLLERR | POLLHUP);
	print_message("    ERR and HUP always, RDHUP when asked\n");
}

/*
 * A datagram that came through the kernel (a fragment chain, an exception) must be seen like one of
 * the ring.
 */
static void the_shadow_socket_counts(void **state)
{
	static const uint32_t flags[] = {0, EPOLLET, EPOLLONESHOT};
	struct pollfd p = {.fd = fake.fd, .events = POLLIN | POLLOUT};
	struct epoll_event ev;
	char byte;

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(ctl(set, EPOLL_CTL_ADD, fake.fd, EPOLLIN | flags[i], 7), 0);
		assert_int_equal(send(fake.peer, "x", 1, 0), 1);
		assert_int_equal(wait_ms(set, &ev, 1, 1000), 1);
		assert_int_equal(ev.events, EPOLLIN);
		assert_int_equal(ev.data.u64, 7);
		assert_int_equal(wait_ms(set, &ev, 1, 1), flags[i] ? 0 : 1);
		assert_int_equal(iomux_poll(&p, 1, &zero, NULL), 1);
		assert_int_equal(recv(fake.fd, &byte, 1, 0), 1);
		assert_int_equal(wait_ms(set, &ev, 1, 1), 0);
		assert_int_equal(ctl(set, EPOLL_CTL_DEL, fake.fd, 0, 0), 0);
	}
	/* Both ways at once are one event. */
	assert_int_equal(ctl(set, EPOLL_CTL_ADD, fake.fd, EPOLLIN | EPOLLOUT, 7), 0);
	assert_int_equal(send(fake.peer, "x", 1, 0), 1);
	fake_arrive(&fake);
	for (int i = 0; i < 12; i++) {
		struct epoll_event two[2];

		assert_int_equal(wait_ms(set, two, 2, 0), 1);
		assert_int_equal(two[0].events, EPOLLIN | EPOLLOUT);
	}
	print_message("    level, edge, oneshot and poll; never reported twice at once\n");
}

static void mixed_sets_starve_nobody(void **state)
{
	struct epoll_event ev;
	int seen_kernel = 0, seen[4] = {0}, pipefd[2];
	struct fake others[3];

	(void)state;
	memset(others, 0, sizeof(others));
	assert_int_equal(pipe(pipefd), 0);
	assert_int_equal(write(pipefd[1], "x", 1), 1);
	ctl(set, EPOLL_CTL_ADD, pipefd[0], EPOLLIN, 99);
	ctl(set, EPOLL_CTL_ADD, fake.fd, EPOLLIN, 0);
	fake_arrive(&fake);
	for (uint64_t i = 0; i < 3; i++) {
		fake_open(&others[i]);
		ctl(set, EPOLL_CTL_ADD, others[i].fd, EPOLLIN, i + 1);
		fake_arrive(&others[i]);
	}
	for (int i = 0; i < 100; i++) {
		assert_int_equal(wait_ms(set, &ev, 1, 0), 1);
		if (ev.data.u64 == 99)
			seen_kernel++;
		else
			seen[ev.data.u64]++;
	}
	assert_true(seen_kernel >= 15 && seen_kernel <= 50);
	for (int i = 0; i < 4; i++)
		assert_true(seen[i] >= 10);
	for (int i = 0; i < 3; i++)
		fake_shut(&others[i]);
	close(pipefd[0]);
	close(pipefd[1]);
	print_message(
		"    100 waits for one event: %d from the kernel, %d %d %d %d from the sockets\n",
		seen_kernel, seen[0], seen[1], seen[2], seen[3]);
}

static void sets_nest(void **state)
{
	int outer = epoll_create1(0), pipefd[2];
	struct epoll_event ev[2];
	struct pollfd p;
	fd_set rd;

	(void)state;
	assert_int_equal(iomux_epoll_created(outer), 0);
	assert_int_equal(pipe(pipefd), 0);
	ctl(outer, EPOLL_CTL_ADD, set, EPOLLIN, 5);
	ctl(set, EPOLL_CTL_ADD, fake.fd, EPOLLIN, 1);
	ctl(set, EPOLL_CTL_ADD, pipefd[0], EPOLLIN, 2);
	assert_int_equal(wait_ms(outer, ev, 2, 0), 0);
	fake_arrive(&fake);
	for (int i = 0; i < 2; i++) { /* the offloaded one, then the kernel's */
		p = (struct pollfd){.fd = outer, .events = POLLIN};
		assert_int_equal(iomux_poll(&p, 1, &zero, NULL), 1);
		assert_int_equal(p.revents, POLLIN);
		FD_ZERO(&rd);
		FD_SET(set, &rd);
		assert_int_equal(iomux_select(set + 1, &rd, NULL, NULL, &zero, NULL), 1);
		assert_int_equal(wait_ms(outer, ev, 2, 1000), 1);
		assert_int_equal(ev[0].data.u64, 5);
		assert_int_equal(wait_ms(set, ev, 2, 0), 1);
		assert_int_equal(ev[0].data.u64, i + 1);
		fake_take(&fake);
		if (i == 0)
			assert_int_equal(write(pipefd[1], "x", 1), 1);
	}
	vfd_close(set); /* leaves the outer one */
	assert_int_equal(wait_ms(outer, ev, 2, 0), 0);
	set = outer;
	close(pipefd[0]);
	close(pipefd[1]);
	print_message("    an inner set's offloaded and kernel fds make the outer one ready, and "
		      "poll and select\n");
}

#define GIVEN 20 /* more than a set looks at in one go */

static void to_the_kernel(struct vfd *v, struct vma_stats_why why)
{
	(void)why;
	assert_true(vfd_disown(v));
}

/* Another process has the kernel's set, or io_uring waits for it. */
static void a_set_that_is_given_gives_what_it_has_and_gets(void **state)
{
	static const struct vfd_ops ops = {
		.events = fake_events, .close = fake_close, .give = to_the_kernel};
	static struct fake many[GIVEN];
	struct epoll_event ev[GIVEN + 1];
	int outer = epoll_create1(0);

	(void)state;
	assert_int_equal(iomux_epoll_created(outer), 0);
	ctl(outer, EPOLL_CTL_ADD, set, EPOLLIN, 99);
	for (unsigned i = 0; i < GIVEN; i++) {
		fake_open(&many[i]);
		many[i].vfd.ops = &ops;
		if (i < GIVEN - 1)
			ctl(set, EPOLL_CTL_ADD, many[i].fd, EPOLLIN, i);
	}
	vfd_give(vfd_get(outer), STATS_WHY(PASSED));
	for (unsigned i = 0; i < GIVEN - 1; i++)
		assert_null(vfd_get(many[i].fd));
	assert_ptr_equal(vfd_get(many[GIVEN - 1].fd), &many[GIVEN - 1].vfd);
	assert_int_equal(ctl(set, EPOLL_CTL_ADD, many[GIVEN - 1].fd, EPOLLIN, GIVEN - 1), 0);
	assert_null(vfd_get(many[GIVEN - 1].fd));
	assert_int_equal(real.epoll_wait(outer, ev, 1, 0), 0);
	for (unsigned i = 0; i < GIVEN; i++)
		assert_int_equal(send(many[i].peer, "x", 1, 0), 1);
	assert_int_equal(real.epoll_wait(outer, ev, 1, 0), 1);
	assert_int_equal(real.epoll_wait(set, ev, GIVEN + 1, 0), GIVEN);
	for (unsigned i = 0; i < GIVEN; i++)
		assert_true(ev[i].data.u64 < GIVEN);
	for (unsigned i = 0; i < GIVEN; i++)
		fake_shut(&many[i]);
	vfd_close(outer);
	print_message("    the kernel's set has all %d of the inner one, with their data\n", GIVEN);
}

static void close_removes_when_the_last_dup_is_gone(void **state)
{
	int copy = dup(fake.fd), other = epoll_create1(0);
	struct epoll_event ev[2];

	(void)state;
	assert_int_equal(iomux_epoll_created(other), 0);
	assert_true(vfd_dup(fake.fd, copy));
	ctl(set, EPOLL_CTL_ADD, fake.fd, EPOLLIN, 1);
	ctl(set, EPOLL_CTL_ADD, copy, EPOLLIN, 2);
	ctl(other, EPOLL_CTL_ADD, copy, EPOLLIN, 3);
	fake_arrive(&fake);
	assert_int_equal(wait_ms(set, ev, 2, 0), 2);
	assert_int_equal(wait_ms(other, ev, 2, 0), 1);
	vfd_close(fake.fd);
	assert_int_equal(wait_ms(set, ev, 2, 0), 2);
	vfd_close(copy);
	assert_int_equal(wait_ms(set, ev, 2, 1), 0);
	assert_int_equal(wait_ms(other, ev, 2, 1), 0);
	assert_null(atomic_load(&fake.vfd.watches));
	close(fake.peer);
	vfd_close(other);
	fake_open(&fake);
	print_message("    two numbers in one set, one of them in another too\n");
}

/*
 * The two last numbers of an object, closed by two threads at the same moment: one of them is the
 * last.
 */
static void *close_copy(void *arg)
{
	vfd_close(*(int *)arg);
	return NULL;
}

static void two_threads_that_close_the_last_two_numbers_empty_the_set(void **state)
{
	struct epoll_event ev;
	pthread_t other;

	(void)state;
	for (int i = 0; i < 2000; i++) {
		int copy = dup(fake.fd);

		assert_true(vfd_dup(fake.fd, copy));
		ctl(set, EPOLL_CTL_ADD, fake.fd, EPOLLIN, 1);
		assert_int_equal(pthread_create(&other, NULL, close_copy, &copy), 0);
		vfd_close(fake.fd);
		pthread_join(other, NULL);
		assert_null(atomic_load(&fake.vfd.watches));
		close(fake.peer);
		fake_open(&fake);
	}
	assert_int_equal(wait_ms(set, &ev, 1, 0), 0);
	print_message("    2000 times\n");
}

/* What dup2() onto the number, close_range() and a number that stdio closed come to. */
static void a_number_that_goes_without_close_leaves_its_sets(void **state)
{
	struct epoll_event ev;
	struct fake other = {0};

	(void)state;
	fake_open(&other);
	for (int way = 0; way < 2; way++) {
		ctl(set, EPOLL_CTL_ADD, fake.fd, EPOLLIN, 1);
		fake_arrive(&fake);
		assert_int_equal(wait_ms(set, &ev, 1, 0), 1);
		if (way == 0) {
			assert_int_equal(dup2(other.fd, fake.fd), fake.fd);
			assert_true(vfd_dup(other.fd, fake.fd));
		} else {
			vfd_forget(fake.fd);
		}
		assert_null(atomic_load(&fake.vfd.watches));
		assert_int_equal(wait_ms(set, &ev, 1, 0), 0);
		vfd_close(fake.fd);
		close(fake.fd);
		close(fake.peer);
		fake_open(&fake);
	}
	fake_shut(&other);
	print_message("    after dup2, after close_range\n");
}

static void a_number_that_is_being_closed_is_bad(void **state)
{
	struct pollfd p = {.fd = fake.fd, .events = POLLIN};
	struct epoll_event ev = {.events = EPOLLIN};
	struct timespec second = {.tv_sec = 1};
	fd_set rd;

	(void)state;
	atomic_store(&vfd_table[fake.fd], &vfd_closing);
	assert_int_equal(iomux_poll(&p, 1, &second, NULL), 1);
	assert_true(p.revents & POLLNVAL);
	FD_ZERO(&rd);
	FD_SET(fake.fd, &rd);
	errno = 0;
	assert_int_equal(iomux_select(fake.fd + 1, &rd, NULL, NULL, &second, NULL), -1);
	assert_int_equal(errno, EBADF);
	errno = 0;
	assert_int_equal(iomux_epoll_ctl(set, EPOLL_CTL_ADD, fake.fd, &ev), -1);
	assert_int_equal(errno, EBADF);
	errno = 0;
	assert_int_equal(iomux_epoll_wait(fake.fd, &ev, 1, &second, NULL), -1);
	assert_int_equal(errno, EBADF);
	atomic_store(&vfd_table[fake.fd], &fake.vfd);
	print_message("    POLLNVAL, or EBADF\n");
}

/*
 * What vma_stats shows of them: the thread that called last, and with VMA_CPU_USAGE_STATS the share
 * of time spent polling.
 */
static void the_last_thread_and_its_polling_are_counted(void **state)
{
	struct vma_stats_iomux *p = stats_iomux_get(STATS_POLL);
	struct pollfd pfd = {.fd = fake.fd, .events = POLLIN};
	struct timespec ms20 = {.tv_nsec = 20 * MS}, *t = &ms20;

	(void)state;
	params.select_poll = -1;
	for (int on = 0; on < 2; on++) {
		uint64_t start = clock_monotonic_ns();

		params.cpu_usage_stats = on;
		p->tid = p->polling_cpu = 0;
		/* The first figure covers the time since there was a clock. */
		while (!p->polling_cpu && clock_monotonic_ns() - start < (on ? 60000 : 1500) * MS)
			assert_int_equal(iomux_poll(&pfd, 1, t, NULL), 0);
		assert_int_equal(p->tid, gettid());
		assert_int_equal(p->polling_cpu > 0, on);
		assert_true(p->polling_cpu <= 100);
	}
	params.cpu_usage_stats = 0;
	params.select_poll = 0;
	print_message("    %u%% of the time\n", p->polling_cpu);
}

static void on_signal(int sig)
{
	(void)sig;
	/* what preload's wrapper does */
	signals_handled++;
	signals_came();
}

static pthread_t sleeper;

static void *signal_later(void *arg)
{
	usleep(20000);
	pthread_kill(sleeper, *(int *)arg);
	return NULL;
}

static int interrupted_wait(int how, const sigset_t *mask)
{
	struct timespec t = ms(60000);
	struct pollfd p = {.fd = fake.fd, .events = POLLIN};
	struct epoll_event ev;
	pthread_t thread;
	int sig = SIGUSR1, r;
	fd_set rd;

	FD_ZERO(&rd);
	FD_SET(fake.fd, &rd);
	sleeper = pthread_self();
	pthread_create(&thread, NULL, signal_later, &sig);
	if (how == 0)
		r = iomux_poll(&p, 1, &t, mask);
	else if (how == 1)
		r = iomux_select(fake.fd + 1, &rd, NULL, NULL, &t, mask);
	else
		r = iomux_epoll_wait(set, &ev, 1, &t, mask);
	r = r < 0 ? -errno : r;
	pthread_join(thread, NULL);
	return r;
}

static void a_signal_ends_the_wait(void **state)
{
	struct sigaction act = {.sa_handler = on_signal}, old;
	sigset_t block, none;

	(void)state;
	sigaction(SIGUSR1, &act, &old);
	sigemptyset(&none);
	sigemptyset(&block);
	sigaddset(&block, SIGUSR1);
	ctl(set, EPOLL_CTL_ADD, fake.fd, EPOLLIN, 1);
	for (int spin = 0; spin < 3; spin++) {
		params.select_poll = (int[]){0, 1000, -1}[spin];
		params.select_poll_os_ratio = spin == 2 ? 0 : 10;
		for (int how = 0; how < 3; how++) {
			uint32_t before = signals_handled;

			assert_int_equal(interrupted_wait(how, NULL), -EINTR);
			/* Blocked, but for the wait. */
			pthread_sigmask(SIG_BLOCK, &block, NULL);
			assert_int_equal(interrupted_wait(how, &none), -EINTR);
			assert_int_equal(signals_handled, before + 2);
			/* Blocked by the wait's mask: it comes out of the timeout. */
			pthread_sigmask(SIG_UNBLOCK, &block, NULL);
		}
	}
	sigaction(SIGUSR1, &old, NULL);
	print_message("    poll, select, epoll_wait with and without a mask; asleep, at first "
		      "spinning, spinning for ever\n");
}

static void a_mask_holds_signals_off(void **state)
{
	struct sigaction act = {.sa_handler = on_signal}, old;
	struct pollfd p = {.fd = fake.fd, .events = POLLIN};
	struct timespec t = ms(60);
	uint32_t before = signals_handled;
	pthread_t thread;
	sigset_t block;
	int sig = SIGUSR1;

	(void)state;
	sigaction(SIGUSR1, &act, &old);
	sigemptyset(&block);
	sigaddset(&block, SIGUSR1);
	sleeper = pthread_self();
	pthread_create(&thread, NULL, signal_later, &sig);
	assert_int_equal(iomux_poll(&p, 1, &t, &block), 0);
	pthread_join(thread, NULL);
	assert_int_equal(signals_handled, before + 1); /* after the wait */
	sigaction(SIGUSR1, &old, NULL);
	print_message("    a signal that the mask blocks waits for the end of the wait\n");
}

static void many_fds_and_large_select_sets(void **state)
{
	enum { N = 300 };
	struct pollfd p[N];
	unsigned long bits[2048 / 64] = {0};
	int high = fcntl(fake.fd, F_DUPFD, 1020), r;

	(void)state;
	assert_true(vfd_dup(fake.fd, high));
	for (int i = 0; i < N; i++)
		p[i] = (struct pollfd){.fd = i % 3 ? -1 : fake.fd,
				       .events = i % 2 ? POLLIN : POLLOUT};
	fake_arrive(&fake);
	assert_int_equal(iomux_poll(p, N, &zero, NULL), N / 3);
	bits[high / 64] |= 1ul << high % 64;
	bits[0] |= 1ul << fake.fd;
	r = iomux_select(high + 1, (fd_set *)bits, NULL, NULL, &zero, NULL);
	assert_int_equal(r, 2);
	bits[0] &= ~(1ul << fake.fd);
	assert_true(bits[high / 64] >> high % 64 & 1);
	vfd_close(high);
	print_message("    %d entries with repeats, an fd of %d in a select set\n", N, high);
}

static void the_child_keeps_its_kernel_fds(void **state)
{
	struct epoll_event ev[2];
	int pipefd[2], status;
	pid_t pid;

	(void)state;
	assert_int_equal(pipe(pipefd), 0);
	ctl(set, EPOLL_CTL_ADD, fake.fd, EPOLLIN, 1);
	ctl(set, EPOLL_CTL_ADD, pipefd[0], EPOLLIN, 2);
	fake_arrive(&fake);
	assert_int_equal(write(pipefd[1], "x", 1), 1);
	pid = fork();
	if (!pid) {
		if (wait_ms(set, ev, 2, 100) != 1 || ev[0].data.u64 != 2)
			_exit(1);
		/* What the kernel says of the shadow socket comes with the user's data. */
		if (send(fake.peer, "x", 1, 0) != 1 || wait_ms(set, ev, 2, 100) != 2)
			_exit(2);
		if (ev[0].data.u64 + ev[1].data.u64 != 3)
			_exit(3);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_int_equal(wait_ms(set, ev, 2, 0), 1);
	close(pipefd[0]);
	close(pipefd[1]);
	print_message("    pipe and shadow socket in the child, everything in the parent\n");
}

/*
 * A set that another thread makes while fork() is on its way: the handlers of this room have run,
 * those that stop the table not yet.
 */
static bool makes_late_set;
static int late_set = -1;

static void make_late_set(void)
{
	if (!makes_late_set)
		return;
	makes_late_set = false;
	late_set = epoll_create1(0);
	assert_int_equal(iomux_epoll_created(late_set), 0);
}

/* The other process's item says nothing here: no event, and above all not its tag. */
static void no_tag_comes(bool child_adds)
{
	struct epoll_event ev[2];
	int go[2], done[2], status;
	char c;

	assert_int_equal(pipe(go), 0);
	assert_int_equal(pipe(done), 0);
	makes_late_set = true;
	pid_t pid = fork();
	if (child_adds == !pid) {
		struct fake own = {.fd = -1};

		fake_open(&own);
		if (send(own.peer, "x", 1, 0) != 1 ||
		    ctl(late_set, EPOLL_CTL_ADD, own.fd, EPOLLIN, 1) || write(go[1], "x", 1) != 1 ||
		    read(done[0], &c, 1) != 1)
			_exit(1);
		if (!pid)
			_exit(0);
		fake_shut(&own);
	} else {
		int n = read(go[0], &c, 1) == 1 ? wait_ms(late_set, ev, 2, 50) : -1;

		if (write(done[1], "x", 1) != 1 || n) {
			print_error("%d events, the first with data %#lx\n", n, ev[0].data.u64);
			_exit(2);
		}
		if (!pid)
			_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	for (int i = 0; i < 2; i++) {
		close(go[i]);
		close(done[i]);
	}
}

static void a_set_made_during_a_fork_is_known_to_be_shared(void **state)
{
	int sets[8], late;

	(void)state;
	/* More than there ever were: the memory of a former set was seen by the handler. */
	for (int i = 0; i < 8; i++) {
		sets[i] = epoll_create1(0);
		assert_int_equal(iomux_epoll_created(sets[i]), 0);
	}
	no_tag_comes(false);
	late = late_set;
	no_tag_comes(true);
	vfd_close(late);
	vfd_close(late_set);
	for (int i = 0; i < 8; i++)
		vfd_close(sets[i]);
	print_message("    the parent's item in the child, the child's in the parent: no event\n");
}

static void the_childs_sets_are_in_each_other_still(void **state)
{
	int outer = epoll_create1(0), status;
	struct fake own = {.fd = -1};
	struct epoll_event ev[2];
	pid_t pid;

	(void)state;
	assert_int_equal(iomux_epoll_created(outer), 0);
	ctl(outer, EPOLL_CTL_ADD, set, EPOLLIN, 5);
	ctl(set, EPOLL_CTL_ADD, fake.fd, EPOLLIN, 1);
	pid = fork();
	if (!pid) {
		fake_open(&own);
		if (ctl(set, EPOLL_CTL_ADD, own.fd, EPOLLIN, 2) || wait_ms(outer, ev, 2, 0))
			_exit(1);
		fake_arrive(&own);
		if (wait_ms(outer, ev, 2, 1000) != 1 || ev[0].data.u64 != 5)
			_exit(2);
		if (wait_ms(set, ev, 2, 0) != 1 || ev[0].data.u64 != 2)
			_exit(3);
		fake_take(&own);
		if (wait_ms(outer, ev, 2, 0))
			_exit(4);
		/* It is known to be there: changed and taken out, not a second time put in. */
		if (ctl(outer, EPOLL_CTL_ADD, set, EPOLLIN, 6) != -EEXIST ||
		    ctl(outer, EPOLL_CTL_DEL, set, 0, 0))
			_exit(5);
		fake_arrive(&own);
		_exit(wait_ms(outer, ev, 2, 0));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(WEXITSTATUS(status), 0);
	vfd_close(outer);
	print_message("    a socket of the child's in an inner set makes the outer one ready\n");
}

static void waits_are_counted(void **state)
{
	struct vma_stats_iomux *m = stats_iomux_get(STATS_POLL);
	struct pollfd p = {.fd = fake.fd, .events = POLLIN};
	uint64_t hit = m->poll_hit, offloaded = m->ready_offloaded, timeouts = m->timeouts,
		 os = m->ready_os;

	(void)state;
	assert_int_equal(iomux_poll(&p, 1, &zero, NULL), 0);
	assert_int_equal(m->timeouts, timeouts + 1);
	fake_arrive(&fake);
	assert_int_equal(iomux_poll(&p, 1, &zero, NULL), 1);
	assert_int_equal(m->poll_hit, hit + 1);
	assert_int_equal(m->ready_offloaded, offloaded + 1);
	fake_take(&fake);
	assert_int_equal(send(fake.peer, "x", 1, 0), 1);
	assert_int_equal(iomux_poll(&p, 1, NULL, NULL), 1);
	assert_int_equal(m->ready_os, os + 1);
	print_message("    timeouts, poll_hit, ready_offloaded, ready_os\n");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(errors_are_the_kernels),
		TEST(a_low_limit_of_descriptors),
		TEST(timeouts_are_never_early_and_mostly_punctual),
		TEST(one_ready_socket_costs_no_system_call),
		TEST(kernel_only_sets_are_passed_through),
		TEST(edge_reports_each_arrival_once),
		TEST(oneshot_waits_for_mod),
		TEST(oneshot_waits_for_mod_when_the_kernel_has_got_it),
		TEST(errors_and_hang_ups_come_unasked),
		TEST(the_shadow_socket_counts),
		TEST(mixed_sets_starve_nobody),
		TEST(sets_nest),
		TEST(a_set_that_is_given_gives_what_it_has_and_gets),
		TEST(close_removes_when_the_last_dup_is_gone),
		TEST(two_threads_that_close_the_last_two_numbers_empty_the_set),
		TEST(a_number_that_goes_without_close_leaves_its_sets),
		TEST(a_number_that_is_being_closed_is_bad),
		TEST(the_last_thread_and_its_polling_are_counted),
		TEST(a_signal_ends_the_wait),
		TEST(a_mask_holds_signals_off),
		TEST(many_fds_and_large_select_sets),
		TEST(the_child_keeps_its_kernel_fds),
		TEST(the_childs_sets_are_in_each_other_still),
		TEST(a_set_made_during_a_fork_is_known_to_be_shared),
		TEST(waits_are_counted),
	};

	pthread_atfork(vfd_fork_prepare, vfd_fork_parent,
		       vfd_fork_child); /* as preload does, before all others */
	pthread_atfork(make_late_set, NULL, NULL);
	libc_load();
	real = libc;
	real_raw = raw;
	libc.poll = raw.poll = counting_poll;
	libc.ppoll = raw.ppoll = counting_ppoll;
	libc.epoll_wait = raw.epoll_wait = counting_epoll_wait;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
