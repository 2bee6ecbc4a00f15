/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Sets in which descriptors of the kernel stand beside offloaded ones: what the program is told, by
 * poll, select and epoll alike, is what the kernel would say of each.
 */
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/select.h>
/* cmocka needs the four above. */
#include <cmocka.h>

#include "fake_vfd.h"
#include "config/params.h"
#include "runtime/clock.h"

#define MS 1000000ull
#define USER_DATA 0x1234u

static struct libc_table real, real_raw;
static struct fake fake;
static int set;

static int setup(void **state)
{
	(void)state;
	memset(&fake, 0, sizeof(fake));
	fake_open(&fake);
	set = epoll_create1(EPOLL_CLOEXEC);
	assert_int_equal(iomux_epoll_created(set), 0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	vfd_close(set);
	fake_shut(&fake);
	libc = real;
	raw = real_raw;
	params.select_skip_os = 1;
	return 0;
}

static int add(int epfd, int fd, uint32_t events, uint64_t data)
{
	struct epoll_event ev = {.events = events, .data.u64 = data};

	return iomux_epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &ev);
}

/* --- tags: what the kernel's epoll has in place of the program's data */

static _Atomic int plain_calls, plain_returns;

static int watched_epoll_wait(int epfd, struct epoll_event *ev, int max, int ms)
{
	int r;

	atomic_fetch_add(&plain_calls, 1);
	r = real.epoll_wait(epfd, ev, max, ms);
	atomic_fetch_add(&plain_returns, 1);
	return r;
}

/* The kernel knows the socket, the set does not yet: here the one who waits comes back. */
static int slow_epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
	int r = real.epoll_ctl(epfd, op, fd, ev);

	for (int i = 0; op == EPOLL_CTL_ADD && i < 1000 && !atomic_load(&plain_returns); i++)
		usleep(1000);
	return r;
}

static void *wait_for_one(void *arg)
{
	static const struct timespec long_time = {10, 0};

	if (iomux_epoll_wait(set, arg, 1, &long_time, NULL) != 1)
		((struct epoll_event *)arg)->data.u64 = 0;
	return NULL;
}

static void a_socket_that_comes_under_a_waiter_has_its_own_data(void **state)
{
	struct epoll_event ev = {.events = 0};
	pthread_t thread;

	(void)state;
	assert_int_equal(send(fake.peer, "x", 1, 0), 1);
	libc.epoll_wait = raw.epoll_wait = watched_epoll_wait;
	libc.epoll_ctl = raw.epoll_ctl = slow_epoll_ctl;
	atomic_store(&plain_calls, 0);
	atomic_store(&plain_returns, 0);
	pthread_create(&thread, NULL, wait_for_one, &ev);
	while (!atomic_load(&plain_calls))
		sched_yield();
	assert_int_equal(add(set, fake.fd, EPOLLIN, USER_DATA), 0);
	pthread_join(thread, NULL);
	assert_true(atomic_load(&plain_returns) > 0);
	assert_int_equal(ev.data.u64, USER_DATA);
	assert_int_equal(ev.events, EPOLLIN);
	print_message("    an event between the kernel's epoll_ctl() and ours\n");
}

/* What another process keeps of a socket is in the set still, as the kernel has it. */
static void a_socket_that_lives_on_elsewhere_has_its_own_data(void **state)
{
	static const struct timespec zero;
	static const uint32_t asked[] = {EPOLLIN, EPOLLIN | EPOLLOUT, EPOLLIN | EPOLLET, EPOLLOUT};
	int pair[2], kernel_set = epoll_create1(EPOLL_CLOEXEC);

	(void)state;
	for (unsigned i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
		struct epoll_event ev = {.events = asked[i], .data.u64 = USER_DATA};
		struct epoll_event ours = {.events = 0}, kernels = {.events = 0};
		struct fake gone = {.fd = -1};
		int copies[2];

		fake_open(&gone);
		assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, pair), 0);
		assert_int_equal(epoll_ctl(kernel_set, EPOLL_CTL_ADD, pair[0], &ev), 0);
		assert_int_equal(add(set, gone.fd, asked[i], USER_DATA), 0);
		copies[0] = fcntl(pair[0], F_DUPFD_CLOEXEC, 200);
		copies[1] = fcntl(gone.fd, F_DUPFD_CLOEXEC, 200); /* the table does not know */
		close(pair[0]);
		vfd_close(gone.fd);
		assert_int_equal(send(pair[1], "x", 1, 0), 1);
		assert_int_equal(send(gone.peer, "x", 1, 0), 1);
		assert_int_equal(epoll_wait(kernel_set, &kernels, 1, 0), 1);
		assert_int_equal(iomux_epoll_wait(set, &ours, 1, &zero, NULL), 1);
		assert_int_equal(ours.data.u64, kernels.data.u64);
		assert_int_equal(ours.events, kernels.events);
		close(copies[0]);
		close(copies[1]);
		close(pair[1]);
		close(gone.peer);
		assert_int_equal(iomux_epoll_wait(set, &ours, 1, &zero, NULL), 0);
	}
	close(kernel_set);
	print_message("    closed here, open elsewhere: 4 kinds of item\n");
}

/* --- a set that is ready, looked at by several threads: nobody finds it empty meanwhile */

#define LOOKS 3000

static _Atomic bool looks_end;
static _Atomic int other_looks;

/* The thread loses its CPU while the set's item is looked at. */
static uint32_t slow_events(struct vfd *v)
{
	sched_yield();
	return fake_events(v);
}

static const struct vfd_ops slow_ops = {.events = slow_events, .close = fake_close};

static void *looks_by_poll(void *arg)
{
	static const struct timespec zero;
	struct pollfd p = {.fd = set, .events = POLLIN};

	(void)arg;
	for (; !atomic_load(&looks_end); atomic_fetch_add(&other_looks, 1))
		iomux_poll(&p, 1, &zero, NULL);
	return NULL;
}

static void *looks_by_epoll(void *arg)
{
	static const struct timespec zero;
	struct epoll_event ev;

	(void)arg;
	for (; !atomic_load(&looks_end); atomic_fetch_add(&other_looks, 1))
		iomux_epoll_wait(set, &ev, 1, &zero, NULL);
	return NULL;
}

static void a_ready_set_is_never_empty_for_another_thread(void **state)
{
	static void *(*const others[])(void *) = {looks_by_poll, looks_by_epoll};
	static const struct timespec zero;
	unsigned missed = 0;

	(void)state;
	fake.vfd.ops = &slow_ops;
	assert_int_equal(add(set, fake.fd, EPOLLIN, USER_DATA), 0);
	fake_arrive(&fake);
	for (int k = 0; k < 2; k++) {
		pthread_t thread;

		atomic_store(&looks_end, false);
		atomic_store(&other_looks, 0);
		pthread_create(&thread, NULL, others[k], NULL);
		for (int i = 0; i < LOOKS || atomic_load(&other_looks) < LOOKS; i++) {
			struct pollfd p = {.fd = set, .events = POLLIN};
			struct epoll_event ev;

			missed += iomux_poll(&p, 1, &zero, NULL) != 1;
			missed += iomux_epoll_wait(set, &ev, 1, &zero, NULL) != 1;
		}
		atomic_store(&looks_end, true);
		pthread_join(thread, NULL);
	}
	fake_take(&fake);
	if (missed)
		fail_msg("%u looks found nothing", missed);
	print_message("    %d looks and more beside poll() and epoll_wait()\n", 4 * LOOKS);
}

/* --- what select() is not asked for */

static unsigned sleeps;

static int counting_ppoll(struct pollfd *p, nfds_t n, const struct timespec *t,
			  const sigset_t *mask)
{
	if (++sleeps > 1000)
		fail_msg("1000 sleeps and no end: the time is over, or nothing was to wake it");
	return real.ppoll(p, n, t, mask);
}

static void *arrives(void *arg)
{
	(void)arg;
	while (!atomic_load(&fake.vfd.watches)) /* it sleeps */
		usleep(1000);
	fake_arrive(&fake);
	return NULL;
}

/* A pipe at its end (POLLHUP) or without a reader (POLLERR), and nobody asks for that. */
static void select_sleeps_beside_an_end_that_is_not_asked_for(void **state)
{
	static const char *const what[] = {"reading end in exceptfds", "writing end in exceptfds",
					   "reading end in writefds"};

	(void)state;
	libc.ppoll = raw.ppoll = counting_ppoll;
	for (int k = 0; k < 6; k++) {
		const struct timespec t = {k < 3 ? 0 : 20, k < 3 ? 50000000 : 0};
		int end[2], fd, got, as_kernel;
		uint64_t begun = clock_monotonic_ns();
		pthread_t thread;
		fd_set rd, wr, ex, other;

		assert_int_equal(pipe(end), 0);
		fd = end[k % 3 == 1];
		close(end[k % 3 != 1]);
		FD_ZERO(&rd);
		FD_ZERO(&wr);
		FD_ZERO(&ex);
		FD_SET(fake.fd, &rd);
		FD_SET(fd, k % 3 == 2 ? &wr : &ex);
		other = k % 3 == 2 ? wr : ex;
		if (k >= 3)
			pthread_create(&thread, NULL, arrives, NULL);
		sleeps = 0;
		got = iomux_select(64, &rd, &wr, &ex, &t, NULL);
		assert_int_equal(got, k >= 3);
		assert_int_equal(!!FD_ISSET(fake.fd, &rd), k >= 3);
		assert_false(FD_ISSET(fd, &wr) || FD_ISSET(fd, &ex));
		if (k < 3)
			assert_true(clock_monotonic_ns() - begun >= 50 * MS);
		as_kernel = pselect(fd + 1, NULL, k % 3 == 2 ? &other : NULL,
				    k % 3 == 2 ? NULL : &other, &(struct timespec){0}, NULL);
		assert_int_equal(as_kernel, 0);
		print_message("    %s: %s after %u sleeps\n", what[k % 3],
			      k < 3 ? "the time" : "a packet", sleeps);
		if (k >= 3) {
			pthread_join(thread, NULL);
			fake_take(&fake);
		}
		close(fd);
	}
}

static void select_sees_urgent_data_of_the_kernels(void **state)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	const struct timespec t = {20, 0}, at_once = {0};
	socklen_t len = sizeof(a);
	int l = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0), s;
	fd_set rd, wr, ex;

	(void)state;
	assert_int_equal(bind(l, (struct sockaddr *)&a, len), 0);
	assert_int_equal(getsockname(l, (struct sockaddr *)&a, &len), 0);
	assert_int_equal(listen(l, 1), 0);
	assert_int_equal(connect(c, (struct sockaddr *)&a, len), 0);
	s = accept(l, NULL, NULL);
	assert_true(s >= 0);
	FD_ZERO(&wr);
	for (int late = 0; late < 2; late++) {
		FD_ZERO(&rd);
		FD_ZERO(&ex);
		FD_SET(fake.fd, &rd);
		FD_SET(s, &ex);
		assert_int_equal(iomux_select(s + 1, &rd, &wr, &ex, late ? &t : &at_once, NULL),
				 late);
		if (!late)
			assert_int_equal(send(c, "u", 1, MSG_OOB), 1);
	}
	assert_true(FD_ISSET(s, &ex));
	close(c);
	close(s);
	close(l);
	print_message("    urgent data\n");
}

/* --- a pipe that is always readable beside an offloaded socket that is always ready */

enum { BY_POLL, BY_SELECT, BY_EPOLL, NUM_HOW };
static const char *const how_name[] = {"poll", "select", "epoll_wait"};

/* One call with a time of zero. Bit 0: the socket was reported, bit 1: the pipe. */
static int look_once(int how, int pipe_fd)
{
	static const struct timespec zero;
	struct pollfd p[] = {{.fd = fake.fd, .events = POLLIN}, {.fd = pipe_fd, .events = POLLIN}};
	struct epoll_event ev[2];
	fd_set rd;
	int n, got = 0;

	switch (how) {
	case BY_POLL:
		iomux_poll(p, 2, &zero, NULL);
		return (p[0].revents ? 1 : 0) + (p[1].revents ? 2 : 0);
	case BY_SELECT:
		FD_ZERO(&rd);
		FD_SET(fake.fd, &rd);
		FD_SET(pipe_fd, &rd);
		iomux_select(64, &rd, NULL, NULL, &zero, NULL);
		return (FD_ISSET(fake.fd, &rd) ? 1 : 0) + (FD_ISSET(pipe_fd, &rd) ? 2 : 0);
	default:
		n = iomux_epoll_wait(set, ev, 2, &zero, NULL);
		while (n-- > 0)
			got |= 1 << ev[n].data.u64;
		return got;
	}
}

static void readable_pipe(int end[2])
{
	assert_int_equal(pipe(end), 0);
	assert_int_equal(write(end[1], "x", 1), 1);
}

/* VMA_SELECT_SKIP_OS is in how many calls the pipe is reported once, whatever the call. */
static void the_kernels_have_their_turn_by_every_call(void **state)
{
	static const int params_tried[] = {1, 2, 4, 0};
	int end[2];

	(void)state;
	readable_pipe(end);
	assert_int_equal(add(set, fake.fd, EPOLLIN, 0), 0);
	assert_int_equal(add(set, end[0], EPOLLIN, 1), 0);
	fake_arrive(&fake);
	for (unsigned i = 0; i < 4; i++) {
		params.select_skip_os = params_tried[i];
		for (int how = 0; how < NUM_HOW; how++) {
			int n = params_tried[i] ? params_tried[i] : 1024, pipes = 0;

			for (int k = 0; k < 3 * n; k++) {
				int got = look_once(how, end[0]);

				assert_true(got & 1);
				pipes += got >> 1;
			}
			if (pipes != 3)
				fail_msg("VMA_SELECT_SKIP_OS=%d: %s() saw the pipe in %d of %d",
					 params_tried[i], how_name[how], pipes, 3 * n);
		}
	}
	close(end[0]);
	close(end[1]);
	print_message("    VMA_SELECT_SKIP_OS of 1, 2, 4 and 0 by poll, select and epoll_wait\n");
}

/* A thread that looks at two lists in turn: the kernel's of both have their turn. */
static void two_lists_of_one_thread_both_have_their_turn(void **state)
{
	int a[2], b[2], seen[2] = {0};

	(void)state;
	readable_pipe(a);
	readable_pipe(b);
	fake_arrive(&fake);
	params.select_skip_os = 4;
	for (int i = 0; i < 40; i++) {
		seen[0] += look_once(BY_POLL, a[0]) >> 1;
		seen[1] += look_once(BY_POLL, b[0]) >> 1;
	}
	assert_int_equal(seen[0], 10);
	assert_int_equal(seen[1], 10);
	close(a[0]);
	close(a[1]);
	close(b[0]);
	close(b[1]);
	print_message("    10 of 40 calls each\n");
}

#define OF_A_KIND 3

/* Who asks for one event sees each of six in turn. */
static void one_event_at_a_time_starves_nobody(void **state)
{
	static const struct timespec zero;
	struct fake fakes[OF_A_KIND];
	int ends[OF_A_KIND][2], last[2 * OF_A_KIND] = {0}, longest = 0;

	(void)state;
	for (int i = 0; i < OF_A_KIND; i++) {
		memset(&fakes[i], 0, sizeof(fakes[i]));
		fake_open(&fakes[i]);
		fake_arrive(&fakes[i]);
		readable_pipe(ends[i]);
		assert_int_equal(add(set, fakes[i].fd, EPOLLIN, (uint64_t)i), 0);
		assert_int_equal(add(set, ends[i][0], EPOLLIN, (uint64_t)(OF_A_KIND + i)), 0);
	}
	for (int i = 1; i <= 120; i++) {
		struct epoll_event ev;

		assert_int_equal(iomux_epoll_wait(set, &ev, 1, &zero, NULL), 1);
		if (i - last[ev.data.u64] > longest)
			longest = i - last[ev.data.u64];
		last[ev.data.u64] = i;
	}
	for (int i = 0; i < 2 * OF_A_KIND; i++)
		assert_true(120 - last[i] <= 2 * OF_A_KIND);
	assert_true(longest <= 2 * OF_A_KIND);
	for (int i = 0; i < OF_A_KIND; i++) {
		fake_shut(&fakes[i]);
		close(ends[i][0]);
		close(ends[i][1]);
	}
	print_message("    120 calls: each of %d is reported again after %d at most\n",
		      2 * OF_A_KIND, longest);
}

static unsigned asked;

static int counting_epoll_wait(int epfd, struct epoll_event *ev, int max, int ms)
{
	asked++;
	return real.epoll_wait(epfd, ev, max, ms);
}

/* A TCP socket is the kernel's until it is connected; from then on a set of such asks no kernel. */
static void a_set_without_the_kernels_costs_no_system_call(void **state)
{
	static const struct timespec zero;
	struct epoll_event ev;
	unsigned served;

	(void)state;
	libc.epoll_wait = raw.epoll_wait = counting_epoll_wait;
	atomic_store(&fake.vfd.shadow, VFD_SHADOW_ALL);
	assert_int_equal(add(set, fake.fd, EPOLLIN, 0), 0);
	fake_arrive(&fake);
	asked = 0;
	for (int i = 0; i < 10; i++)
		assert_int_equal(iomux_epoll_wait(set, &ev, 1, &zero, NULL), 1);
	served = asked;
	atomic_store(&fake.vfd.shadow, VFD_SHADOW_NONE);
	vfd_shadow_changed(&fake.vfd);
	asked = 0;
	for (int i = 0; i < 10; i++)
		assert_int_equal(iomux_epoll_wait(set, &ev, 1, &zero, NULL), 1);
	assert_true(served >= 5);
	assert_int_equal(asked, 0);
	print_message("    10 calls: the kernel is asked %u times, then never\n", served);
}

static int counting_poll(struct pollfd *p, nfds_t n, int msec)
{
	asked++;
	return real.poll(p, n, msec);
}

/* The packet comes when the caller has gone to sleep. */
static int arriving_ppoll(struct pollfd *p, nfds_t n, const struct timespec *t,
			  const sigset_t *mask)
{
	static const uint64_t one = 1;

	asked++;
	assert_int_equal(write(ring_fd, &one, sizeof(one)), sizeof(one));
	return real.ppoll(p, n, t, mask);
}

/* The sleep asks for the shadow socket, and nothing does so before. */
static void a_wait_that_sleeps_asks_the_kernel_once(void **state)
{
	struct pollfd p = {.fd = fake.fd, .events = POLLIN};
	struct epoll_event ev;
	fd_set rd;

	(void)state;
	ring_fd = eventfd(0, EFD_NONBLOCK | EFD_SEMAPHORE);
	ring_owner = &fake;
	atomic_fetch_add(&ring_generation, 1);
	assert_int_equal(add(set, fake.fd, EPOLLIN, 0), 0);
	libc.epoll_wait = raw.epoll_wait = counting_epoll_wait;
	raw.poll = counting_poll;
	libc.ppoll = arriving_ppoll;
	for (int how = 0; how < 3; how++) {
		FD_ZERO(&rd);
		FD_SET(fake.fd, &rd);
		asked = 0;
		if (how == 0)
			assert_int_equal(iomux_poll(&p, 1, NULL, NULL), 1);
		else if (how == 1)
			assert_int_equal(iomux_select(fake.fd + 1, &rd, NULL, NULL, NULL, NULL), 1);
		else
			assert_int_equal(iomux_epoll_wait(set, &ev, 1, NULL, NULL), 1);
		assert_int_equal(asked, 1);
		fake_take(&fake);
	}
	close(ring_fd);
	ring_fd = -1;
	atomic_fetch_add(&ring_generation, 1);
	print_message("    poll, select, epoll_wait\n");
}

/* --- how often the kernel is asked while a call spins */

#define TURNS 12
static unsigned long polls_at[TURNS + 1]; /* of the rings, when the kernel was asked */
static int pipe_ends[2];

/* The last of the turns finds something. */
static void ask_noted(void)
{
	polls_at[asked] = atomic_load(&ring_polls);
	if (++asked == TURNS + 1)
		assert_int_equal(write(pipe_ends[1], "x", 1), 1);
}

static int noted_poll(struct pollfd *p, nfds_t n, int msec)
{
	ask_noted();
	return real.poll(p, n, msec);
}

static int noted_epoll_wait(int epfd, struct epoll_event *ev, int max, int ms)
{
	ask_noted();
	return real.epoll_wait(epfd, ev, max, ms);
}

static void the_kernel_is_asked_once_in_so_many_polls(void **state)
{
	static const int ratios[] = {1, 2, 10, 1000};

	(void)state;
	params.select_poll = -1;
	for (unsigned k = 0; k < 3 * sizeof(ratios) / sizeof(ratios[0]); k++) {
		struct pollfd p[2];
		struct epoll_event ev;
		fd_set rd;

		assert_int_equal(pipe(pipe_ends), 0);
		p[0] = (struct pollfd){.fd = fake.fd, .events = POLLIN};
		p[1] = (struct pollfd){.fd = pipe_ends[0], .events = POLLIN};
		FD_ZERO(&rd);
		FD_SET(fake.fd, &rd);
		FD_SET(pipe_ends[0], &rd);
		params.select_poll_os_ratio = ratios[k / 3];
		raw.poll = noted_poll;
		raw.epoll_wait = noted_epoll_wait;
		asked = 0;
		if (k % 3 == 0) {
			assert_int_equal(iomux_poll(p, 2, NULL, NULL), 1);
		} else if (k % 3 == 1) {
			assert_int_equal(iomux_select(64, &rd, NULL, NULL, NULL, NULL), 1);
		} else {
			if (k == 2)
				assert_int_equal(add(set, fake.fd, EPOLLIN, 0), 0);
			assert_int_equal(add(set, pipe_ends[0], EPOLLIN, USER_DATA), 0);
			assert_int_equal(iomux_epoll_wait(set, &ev, 1, NULL, NULL), 1);
			assert_int_equal(ev.data.u64, USER_DATA);
		}
		assert_int_equal(asked, TURNS + 1);
		/* The first is the call's first look. */
		for (unsigned i = 2; i <= TURNS; i++)
			assert_int_equal(polls_at[i] - polls_at[i - 1], ratios[k / 3]);
		close(pipe_ends[0]);
		close(pipe_ends[1]);
	}
	params.select_poll = 0;
	params.select_poll_os_ratio = 10;
	print_message("    once in 1, 2, 10 and 1000 polls, %d times each\n", TURNS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_wait_that_sleeps_asks_the_kernel_once, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_socket_that_comes_under_a_waiter_has_its_own_data,
						setup, teardown),
		cmocka_unit_test_setup_teardown(a_socket_that_lives_on_elsewhere_has_its_own_data,
						setup, teardown),
		cmocka_unit_test_setup_teardown(a_ready_set_is_never_empty_for_another_thread,
						setup, teardown),
		cmocka_unit_test_setup_teardown(select_sleeps_beside_an_end_that_is_not_asked_for,
						setup, teardown),
		cmocka_unit_test_setup_teardown(select_sees_urgent_data_of_the_kernels, setup,
						teardown),
		cmocka_unit_test_setup_teardown(the_kernels_have_their_turn_by_every_call, setup,
						teardown),
		cmocka_unit_test_setup_teardown(two_lists_of_one_thread_both_have_their_turn, setup,
						teardown),
		cmocka_unit_test_setup_teardown(one_event_at_a_time_starves_nobody, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_set_without_the_kernels_costs_no_system_call,
						setup, teardown),
		cmocka_unit_test_setup_teardown(the_kernel_is_asked_once_in_so_many_polls, setup,
						teardown),
	};

	libc_load();
	real = libc;
	real_raw = raw;
	params.select_poll = 0;
	params.select_poll_os_ratio = 10;
	params.select_skip_os = 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
