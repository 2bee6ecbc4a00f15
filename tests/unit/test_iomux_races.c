/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Wake-ups of poll, select and epoll under concurrency. A missed one is a wait that times out. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above. */
#include <cmocka.h>

#include "fake_vfd.h"
#include "config/params.h"

/*
 * Can a thread be cancelled in a wait? Not under ThreadSanitizer: its ppoll() forgets
 * synchronisation when it is left so, a race that is none. Nor under AddressSanitizer: what it
 * wrote around the frames that the cancellation skips stays, and its own sigaltstack(), called
 * before the clean-up handler goes on, stumbles over it (1 run in 20).
 */
#ifdef __has_feature
#define CANCELS (!__has_feature(thread_sanitizer) && !__has_feature(address_sanitizer))
#elif defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define CANCELS 0
#else
#define CANCELS 1
#endif

#define LONG_MS 5000
/*
 * A build that perturbs its threads, and one that compares their clocks, need few; the others more
 * only so that a processor meets what no build thinks of.
 */
#if defined(VMA_CHECK) || defined(__SANITIZE_THREAD__)
#define ROUNDS 3000
#else
#define ROUNDS 10000
#endif

/* How often a wait really slept: if it were never, nothing would be tested. */
static _Atomic unsigned long sleeps;
static int (*real_ppoll)(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *);

static int counting_ppoll(struct pollfd *p, nfds_t n, const struct timespec *t,
			  const sigset_t *mask)
{
	atomic_fetch_add_explicit(&sleeps, 1, memory_order_relaxed);
	return real_ppoll(p, n, t, mask);
}

static const struct timespec long_time = {LONG_MS / 1000, 0};
static _Atomic int turn; /* odd: the producer's */
static struct fake target;
static int how, sets[2] = {-1, -1};

enum { BY_POLL, BY_SELECT, BY_EPOLL_LEVEL, BY_EPOLL_EDGE, BY_EPOLL_ONESHOT, BY_NESTED, NUM_HOW };
static const char *const how_name[] = {"poll",	     "select",	      "epoll level",
				       "epoll edge", "epoll oneshot", "nested epoll"};

static int wait_for(const struct timespec *limit)
{
	struct pollfd p = {.fd = target.fd, .events = POLLIN};
	struct epoll_event ev;
	fd_set rd;

	switch (how) {
	case BY_POLL:
		return iomux_poll(&p, 1, limit, NULL);
	case BY_SELECT:
		FD_ZERO(&rd);
		FD_SET(target.fd, &rd);
		return iomux_select(target.fd + 1, &rd, NULL, NULL, limit, NULL);
	case BY_EPOLL_ONESHOT:
		ev = (struct epoll_event){.events = EPOLLIN | EPOLLONESHOT};
		iomux_epoll_ctl(sets[0], EPOLL_CTL_MOD, target.fd, &ev);
		return iomux_epoll_wait(sets[0], &ev, 1, limit, NULL);
	default:
		return iomux_epoll_wait(sets[how == BY_NESTED], &ev, 1, limit, NULL);
	}
}

static int wait_once(void)
{
	return wait_for(&long_time);
}

static void *producer(void *arg)
{
	unsigned seed = 7;

	for (int i = 0; i < *(int *)arg; i++) {
		while (!(atomic_load(&turn) & 1))
			sched_yield();
		/* Meet the waiter at every point between its look and its sleep. */
		for (int n = rand_r(&seed) % (rand_r(&seed) % 4 ? 8000 : 400); n; n--)
			__asm__ volatile("");
		atomic_fetch_add(&turn, 1);
		fake_arrive(&target);
	}
	return NULL;
}

static void sets_open(void)
{
	uint32_t events = EPOLLIN | (how == BY_EPOLL_EDGE ? EPOLLET : 0);
	struct epoll_event ev = {.events = events};

	for (int i = 0; i < 2; i++) {
		sets[i] = epoll_create1(0);
		assert_int_equal(iomux_epoll_created(sets[i]), 0);
	}
	assert_int_equal(iomux_epoll_ctl(sets[0], EPOLL_CTL_ADD, target.fd, &ev), 0);
	ev.events = EPOLLIN;
	assert_int_equal(iomux_epoll_ctl(sets[1], EPOLL_CTL_ADD, sets[0], &ev), 0);
}

static void rounds(int count, int spin_us)
{
	pthread_t thread;

	params.select_poll = spin_us;
	for (how = 0; how < NUM_HOW; how++) {
		int n = how < BY_EPOLL_ONESHOT ? count : count / 4;

		fake_open(&target);
		sets_open();
		atomic_store(&turn, 0);
		assert_int_equal(pthread_create(&thread, NULL, producer, &n), 0);
		for (int i = 0; i < n; i++) {
			atomic_fetch_add(&turn, 1);
			int r = wait_once();
			if (r != 1) {
				print_error("%s, round %d: %d (%s): a wake-up was missed\n",
					    how_name[how], i, r, strerror(errno));
				abort(); /* the producer would go on under the next test */
			}
			fake_take(&target);
		}
		pthread_join(thread, NULL);
		print_message("    %s: %d waits, %lu slept, each woken (VMA_SELECT_POLL=%d)\n",
			      how_name[how], n, atomic_exchange(&sleeps, 0), spin_us);
		vfd_close(sets[0]);
		vfd_close(sets[1]);
		fake_shut(&target);
	}
}

static void no_wakeup_is_missed_by_a_sleeper(void **state)
{
	(void)state;
	rounds(ROUNDS, 0);
}

static void no_wakeup_is_missed_around_the_end_of_the_spin(void **state)
{
	(void)state;
	rounds(ROUNDS / 10, 3);
}

#define CROWD 4
static struct fake many[8];
static _Atomic int taken, stop;

/* EPOLLONESHOT | EPOLLET: one thread has a socket at a time. */
static void *consumer(void *arg)
{
	int set = *(int *)arg;
	struct timespec t = {0, 200000000};

	while (!atomic_load(&stop)) {
		struct epoll_event ev[2];
		int n = iomux_epoll_wait(set, ev, 2, &t, NULL);

		for (int i = 0; i < n; i++) {
			struct fake *f = ev[i].data.ptr;

			while (atomic_load(&f->packets) > 0) {
				fake_take(f);
				atomic_fetch_add(&taken, 1);
			}
			ev[i].events = EPOLLIN | EPOLLONESHOT | EPOLLET;
			ev[i].data.ptr = f;
			if (iomux_epoll_ctl(set, EPOLL_CTL_MOD, f->fd, &ev[i]))
				abort();
		}
	}
	return NULL;
}

static void a_crowd_on_one_set_loses_nothing(void **state)
{
	pthread_t threads[CROWD];
	struct epoll_event ev;
	int set = epoll_create1(0), sent = 0;
	unsigned seed = 3;

	(void)state;
	params.select_poll = 0;
	atomic_store(&taken, 0);
	atomic_store(&stop, 0);
	assert_int_equal(iomux_epoll_created(set), 0);
	for (int i = 0; i < 8; i++) {
		fake_open(&many[i]);
		ev = (struct epoll_event){.events = EPOLLIN | EPOLLONESHOT | EPOLLET,
					  .data.ptr = &many[i]};
		assert_int_equal(iomux_epoll_ctl(set, EPOLL_CTL_ADD, many[i].fd, &ev), 0);
	}
	for (int i = 0; i < CROWD; i++)
		pthread_create(&threads[i], NULL, consumer, &set);
	for (; sent < ROUNDS / 5; sent++) {
		fake_arrive(&many[rand_r(&seed) % 8]);
		if (sent % 16 == 0)
			sched_yield();
	}
	for (int ms = 0; atomic_load(&taken) < sent && ms < LONG_MS; ms++)
		usleep(1000);
	assert_int_equal(atomic_load(&taken), sent);
	atomic_store(&stop, 1);
	for (int i = 0; i < CROWD; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < 8; i++)
		fake_shut(&many[i]);
	vfd_close(set);
	print_message("    %d packets over 8 sockets, %d threads in one set: all taken\n", sent,
		      CROWD);
}

static _Atomic int returned;

static void *one_wait(void *arg)
{
	struct epoll_event ev;

	if (iomux_epoll_wait(*(int *)arg, &ev, 1, &long_time, NULL) == 1)
		atomic_fetch_add(&returned, 1);
	return NULL;
}

static void an_arrival_wakes_one_of_a_crowd(void **state)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLET};
	int set = epoll_create1(0);
	pthread_t threads[CROWD];
	unsigned long before = atomic_load(&sleeps) + CROWD;

	(void)state;
	params.select_poll = 0;
	memset(&target, 0, sizeof(target));
	fake_open(&target);
	assert_int_equal(iomux_epoll_created(set), 0);
	assert_int_equal(iomux_epoll_ctl(set, EPOLL_CTL_ADD, target.fd, &ev), 0);
	for (int i = 0; i < CROWD; i++)
		pthread_create(&threads[i], NULL, one_wait, &set);
	for (int ms = 0; atomic_load(&sleeps) < before && ms < LONG_MS; ms++)
		usleep(1000);
	for (int i = 1; i <= CROWD; i++) {
		fake_arrive(&target);
		for (int ms = 0; atomic_load(&returned) < i && ms < LONG_MS; ms++)
			usleep(1000);
		usleep(20000); /* for one more that should not */
		assert_int_equal(atomic_load(&returned), i);
		/* Who slept on the rings for all passes that on: one wakes for it and sleeps again.
		 */
		assert_in_range(atomic_load(&sleeps), before, before + (unsigned)i);
	}
	for (int i = 0; i < CROWD; i++)
		pthread_join(threads[i], NULL);
	vfd_close(set);
	fake_shut(&target);
	print_message("    %d sleepers, %d arrivals: one woken by each\n", CROWD, CROWD);
}

static void *churner(void *arg)
{
	int set = *(int *)arg;

	for (int i = 0; i < ROUNDS / 20; i++) {
		struct epoll_event ev = {.events = EPOLLIN};
		struct fake f;

		memset(&f, 0, sizeof(f));
		fake_open(&f);
		if (iomux_epoll_ctl(set, EPOLL_CTL_ADD, f.fd, &ev))
			abort();
		fake_arrive(&f);
		fake_shut(&f);
	}
	return NULL;
}

/* Sockets come and go in a set that another thread waits in; none may be seen after its close. */
static void sockets_come_and_go_under_a_waiter(void **state)
{
	int set = epoll_create1(0);
	struct timespec t = {0, 1000000};
	struct epoll_event ev[4];
	pthread_t threads[2];

	(void)state;
	params.select_poll = 20;
	assert_int_equal(iomux_epoll_created(set), 0);
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, churner, &set);
	for (int i = 0; i < ROUNDS / 50; i++)
		assert_true(iomux_epoll_wait(set, ev, 4, &t, NULL) >= 0);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(iomux_epoll_wait(set, ev, 4, &t, NULL), 0);
	vfd_close(set);
	print_message("    %d sockets added, made ready and closed\n", 2 * (ROUNDS / 20));
}

static void *late_adder(void *arg)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u32 = 42};

	usleep(20000);
	fake_arrive(&target);
	if (iomux_epoll_ctl(*(int *)arg, EPOLL_CTL_ADD, target.fd, &ev))
		abort();
	return NULL;
}

static void epoll_ctl_wakes_a_waiter(void **state)
{
	(void)state;
	for (int first = 0; first < 2; first++) {
		int set = epoll_create1(0);
		struct epoll_event ev = {.events = EPOLLIN};
		struct fake idle;
		pthread_t thread;

		params.select_poll = 0;
		memset(&idle, 0, sizeof(idle));
		fake_open(&idle);
		fake_open(&target);
		assert_int_equal(iomux_epoll_created(set), 0);
		if (!first) /* else the waiter sleeps in libc.epoll_wait */
			assert_int_equal(iomux_epoll_ctl(set, EPOLL_CTL_ADD, idle.fd, &ev), 0);
		pthread_create(&thread, NULL, late_adder, &set);
		assert_int_equal(iomux_epoll_wait(set, &ev, 1, &long_time, NULL), 1);
		assert_int_equal(ev.data.u32, 42);
		pthread_join(thread, NULL);
		vfd_close(set);
		fake_shut(&target);
		fake_shut(&idle);
	}
	print_message("    a first and a second offloaded fd, added ready by another thread, wake "
		      "epoll_wait\n");
}

static void *late_packet(void *arg)
{
	uint64_t one = 1;

	(void)arg;
	usleep(20000);
	if (write(ring_fd, &one, sizeof(one)) != sizeof(one))
		abort();
	return NULL;
}

/*
 * Nobody but the sleeper polls the ring: its fd must be part of the sleep, also after a change of
 * generation.
 */
static void a_packet_on_a_ring_wakes_the_sleeper(void **state)
{
	(void)state;
	params.select_poll = 0;
	for (how = 0; how < NUM_HOW; how++) {
		pthread_t thread;

		fake_open(&target);
		sets_open();
		ring_owner = &target;
		ring_fd = eventfd(0, EFD_NONBLOCK);
		atomic_fetch_add(&ring_generation, 1);
		pthread_create(&thread, NULL, late_packet, NULL);
		assert_int_equal(wait_once(), 1);
		pthread_join(thread, NULL);
		close(ring_fd);
		ring_fd = -1;
		atomic_fetch_add(&ring_generation, 1);
		vfd_close(sets[0]);
		vfd_close(sets[1]);
		fake_shut(&target);
		print_message("    %s\n", how_name[how]);
	}
}

#if CANCELS
static void *waiter_for_ever(void *arg)
{
	(void)arg;
	wait_for(NULL);
	return NULL;
}

static void a_cancelled_waiter_leaves_nothing_locked(void **state)
{
	(void)state;
	for (int i = 0; i < 2 * NUM_HOW; i++) {
		pthread_t thread;
		void *result;

		how = i % NUM_HOW;
		params.select_poll = i < NUM_HOW ? 0 : -1;
		fake_open(&target);
		sets_open();
		pthread_create(&thread, NULL, waiter_for_ever, NULL);
		for (int n = 0; n < 20;
		     n++) { /* wakes it, but for nothing: look after look is interrupted */
			usleep(1000);
			vfd_notify(&target.vfd, EPOLLIN);
			if (n == 10)
				pthread_cancel(thread);
		}
		pthread_join(thread, &result);
		assert_ptr_equal(result, PTHREAD_CANCELED);
		vfd_close(sets[1]);
		vfd_close(sets[0]);
		assert_null(atomic_load(&target.vfd.watches));
		fake_arrive(&target);
		fake_shut(&target);
	}
	print_message("    cancelled in each of the %d waits, asleep and spinning: no watch, no "
		      "lock is left\n",
		      NUM_HOW);
}
#endif

/*
 * --- sets that are closed under a call. Not under ThreadSanitizer, for which a close() of a number
 * that is in use is a race as such.
 */
#ifndef __SANITIZE_THREAD__

#define CLOSED_SETS (ROUNDS / 5)

static _Atomic int closing_set;

static void *looker(void *arg)
{
	static const struct timespec at_once;
	struct epoll_event ev;
	int epfd;

	(void)arg;
	while ((epfd = atomic_load(&closing_set)) != -2) {
		if (epfd < 0)
			sched_yield();
		else if (iomux_epoll_wait(epfd, &ev, 1, &at_once, NULL) < 0 && errno != EBADF)
			abort();
	}
	return NULL;
}

/* Its memory is the next set's: a lock that the call leaves behind is in the way there. */
static void a_set_that_is_closed_under_a_call_leaves_nothing_locked(void **state)
{
	struct epoll_event ev = {.events = EPOLLIN};
	pthread_t threads[2];

	(void)state;
	fake_open(&target);
	fake_arrive(&target);
	atomic_store(&closing_set, -1);
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, looker, NULL), 0);
	for (int i = 0; i < CLOSED_SETS; i++) {
		int epfd = epoll_create1(0);

		assert_int_equal(iomux_epoll_created(epfd), 0);
		assert_int_equal(iomux_epoll_ctl(epfd, EPOLL_CTL_ADD, target.fd, &ev), 0);
		atomic_store(&closing_set, epfd);
		for (int n = i % 8; n; n--)
			sched_yield();
		vfd_close(epfd);
		atomic_store(&closing_set, -1);
	}
	atomic_store(&closing_set, -2);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	fake_take(&target);
	fake_shut(&target);
	print_message("    %d sets closed under two threads that look\n", CLOSED_SETS);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(epoll_ctl_wakes_a_waiter),
		cmocka_unit_test(a_packet_on_a_ring_wakes_the_sleeper),
#if CANCELS
		cmocka_unit_test(a_cancelled_waiter_leaves_nothing_locked),
#endif
		cmocka_unit_test(no_wakeup_is_missed_by_a_sleeper),
		cmocka_unit_test(no_wakeup_is_missed_around_the_end_of_the_spin),
		cmocka_unit_test(an_arrival_wakes_one_of_a_crowd),
		cmocka_unit_test(a_crowd_on_one_set_loses_nothing),
		cmocka_unit_test(sockets_come_and_go_under_a_waiter),
#ifndef __SANITIZE_THREAD__
		cmocka_unit_test(a_set_that_is_closed_under_a_call_leaves_nothing_locked),
#endif
	};

	libc_load();
	real_ppoll = libc.ppoll;
	libc.ppoll = raw.ppoll = counting_ppoll;
	params.select_poll_os_ratio = 10;
	params.select_skip_os = 4;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
