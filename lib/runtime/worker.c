/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "runtime/worker.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "runtime/clock.h"
#include "runtime/libc.h"
#include "runtime/lock.h"
#include "runtime/log.h"
#include "runtime/own_fd.h"

#define EVENTS_AT_ONCE 32
/* a callback that waits for what the forking thread itself holds would wait for ever */
#define PAUSE_NS 200000000L

/*
 * One watched fd. A slot's index travels in epoll_event.data with its generation, so that an event
 * of the slot's previous user is recognised.
 */
struct slot {
	int fd; /* -1: free */
	uint32_t gen;
	worker_fd_fn fn;
	worker_timer_fn timer_fn; /* the fd is a timerfd of ours */
	void *arg;
};

static struct {
	pthread_mutex_t lock; /* everything below */
	/* a callback has ended, the thread has begun, or no fork() holds it any more */
	pthread_cond_t idle;
	pthread_t thread;
	bool running, begun, stop;
	bool left; /* worker_stop() has waited in vain: nobody joins it */
	pid_t pid; /* whose thread it is */
	void (*begin)(void);
	unsigned step_ms;
	unsigned forks; /* under way: no callback begins */
	int epfd, wakefd;
	struct slot *slots;
	unsigned num_slots;
	int busy_fd; /* the fd whose callback runs now, or -1 */
} w = {.lock = PTHREAD_MUTEX_INITIALIZER,
       .idle = PTHREAD_COND_INITIALIZER,
       .epfd = -1,
       .wakefd = -1,
       .step_ms = 1,
       .busy_fd = -1};

/*
 * The lock, for other threads: who waits for an end of the internal thread's work with it may not
 * be cancelled there, as pthread_cond_wait() could.
 */
static int quiet_lock(void)
{
	int cancel;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	pthread_mutex_lock(&w.lock);
	return cancel;
}

static void quiet_unlock(int cancel)
{
	pthread_mutex_unlock(&w.lock);
	pthread_setcancelstate(cancel, NULL);
}

static bool on_worker(void)
{
	return w.running && pthread_equal(pthread_self(), w.thread);
}

static void drain(int fd)
{
	uint64_t ticks;

	/* Nothing to read means that another event has taken it: not an error. */
	(void)!raw.read(fd, &ticks, sizeof(ticks));
}

/*
 * Runs the callback that ev names, if its slot is still the same. Returns false when the thread is
 * to end.
 */
static bool dispatch(const struct epoll_event *ev)
{
	unsigned index = (uint32_t)ev->data.u64;
	struct slot s = {.fd = -1};
	bool stop;

	pthread_mutex_lock(&w.lock);
	while (w.forks && !w.stop)
		pthread_cond_wait(&w.idle, &w.lock);
	stop = w.stop;
	if (!stop && index < w.num_slots && w.slots[index].gen == (uint32_t)(ev->data.u64 >> 32))
		s = w.slots[index];
	w.busy_fd = s.fd;
	pthread_mutex_unlock(&w.lock);
	if (stop)
		return false;
	if (s.fd < 0)
		return true;

	if (s.timer_fn) {
		drain(s.fd);
		s.timer_fn(s.arg);
	} else {
		s.fn(s.fd, ev->events, s.arg);
	}
	lock_check_none("a callback of the worker");
	pthread_mutex_lock(&w.lock);
	w.busy_fd = -1;
	pthread_cond_broadcast(&w.idle);
	pthread_mutex_unlock(&w.lock);
	return true;
}

static void *worker_main(void *arg)
{
	struct epoll_event evs[EVENTS_AT_ONCE];

	(void)arg;
	libc_internal_begin(); /* whatever this thread opens is the library's own */
	pthread_setname_np(pthread_self(), "vma-worker");
	if (w.begin)
		w.begin();
	pthread_mutex_lock(&w.lock);
	w.begun = true;
	pthread_cond_broadcast(&w.idle);
	pthread_mutex_unlock(&w.lock);
	for (;;) {
		int n = raw.epoll_wait(w.epfd, evs, EVENTS_AT_ONCE, -1);

		if (n < 0 && errno != EINTR) {
			log_error("epoll_wait of the internal thread: %s", strerror(errno));
			return NULL;
		}
		for (int i = 0; i < n; i++) {
			if (!dispatch(&evs[i]))
				return NULL;
		}
	}
}

/* A slot for fd. Holds w.lock. Returns its index or negative errno. */
static int slot_take(int fd)
{
	unsigned i;

	for (i = 0; i < w.num_slots; i++) {
		if (w.slots[i].fd < 0)
			break;
	}
	if (i == w.num_slots) {
		unsigned num = w.num_slots ? 2 * w.num_slots : 16;
		struct slot *slots = realloc(w.slots, num * sizeof(*slots));

		if (!slots)
			return -ENOMEM;
		for (unsigned k = w.num_slots; k < num; k++)
			slots[k] = (struct slot){.fd = -1};
		w.slots = slots;
		w.num_slots = num;
	}
	w.slots[i].fd = fd;
	w.slots[i].gen++;
	return (int)i;
}

static int add(int fd, uint32_t events, worker_fd_fn fn, worker_timer_fn timer_fn, void *arg)
{
	struct epoll_event ev = {.events = events};
	int i, err = 0;

	pthread_mutex_lock(&w.lock);
	i = w.epfd < 0 ? -ESRCH : slot_take(fd);
	if (i < 0) {
		pthread_mutex_unlock(&w.lock);
		return i;
	}
	w.slots[i].fn = fn;
	w.slots[i].timer_fn = timer_fn;
	w.slots[i].arg = arg;
	ev.data.u64 = (uint64_t)w.slots[i].gen << 32 | (unsigned)i;
	if (libc.epoll_ctl(w.epfd, EPOLL_CTL_ADD, fd, &ev)) {
		err = -errno;
		w.slots[i].fd = -1;
	}
	pthread_mutex_unlock(&w.lock);
	return err;
}

int worker_fd_add(int fd, uint32_t events, worker_fd_fn fn, void *arg)
{
	return add(fd, events, fn, NULL, arg);
}

void worker_fd_del(int fd, void *arg)
{
	int cancel = quiet_lock();

	for (unsigned i = 0; i < w.num_slots; i++) {
		if (w.slots[i].fd != fd || w.slots[i].arg != arg)
			continue;
		w.slots[i].fd = -1;
		w.slots[i].gen++;
		break;
	}
	while (w.busy_fd == fd && w.running && !on_worker())
		pthread_cond_wait(&w.idle, &w.lock);
	quiet_unlock(cancel);
}

struct errand {
	void (*fn)(void *arg);
	void *arg;
	bool done; /* w.lock */
};

static void run_errand(int fd, uint32_t events, void *arg)
{
	struct errand *e = arg;

	(void)events;
	drain(fd);
	e->fn(e->arg);
	pthread_mutex_lock(&w.lock);
	e->done = true;
	pthread_mutex_unlock(&w.lock); /* who waits is told when the callback is over */
}

int worker_run(void (*fn)(void *arg), void *arg)
{
	struct errand e = {.fn = fn, .arg = arg};
	int fd, err, cancel;

	/* Of a process that was made behind our back there is no thread, or another's. */
	if (!w.running || w.pid != getpid())
		return -ESRCH;
	fd = own_eventfd(1);
	if (fd < 0)
		return -errno;
	err = worker_fd_add(fd, EPOLLIN, run_errand, &e);
	if (!err) {
		cancel = quiet_lock();
		while (!e.done && w.running && !w.stop)
			pthread_cond_wait(&w.idle, &w.lock);
		err = e.done ? 0 : -ESRCH;
		quiet_unlock(cancel);
		worker_fd_del(fd, &e);
	}
	own_fd_close(fd);
	return err;
}

/* Timers go off together, at multiples of a step. */
static unsigned whole_steps(unsigned msec)
{
	return (msec + w.step_ms - 1) / w.step_ms * w.step_ms;
}

/*
 * The first multiple of the period after now_ms, so that timers of different ones go off together
 * and wake the thread once; shifted by the process, so that not all on the machine wake at the same
 * moment.
 */
static uint64_t next_multiple(uint64_t now_ms, unsigned every_ms)
{
	uint64_t phase_ms = (uint64_t)getpid() * 617 % 1000;

	return now_ms + every_ms - (now_ms + every_ms - phase_ms % every_ms) % every_ms;
}

/* From first_ms (CLOCK_MONOTONIC) on. 0 or negative errno. */
static int timer_set(int fd, uint64_t first_ms, unsigned every_ms)
{
	struct itimerspec its = {
		.it_interval = {every_ms / 1000, every_ms % 1000 * 1000000L},
		.it_value = {(time_t)(first_ms / 1000), (long)(first_ms % 1000) * 1000000L}};

	return timerfd_settime(fd, TFD_TIMER_ABSTIME, &its, NULL) ? -errno : 0;
}

static uint64_t now_ms(void)
{
	return clock_monotonic_ns() / 1000000;
}

int worker_timer_add(unsigned msec, worker_timer_fn fn, void *arg)
{
	unsigned every = whole_steps(msec);
	int fd = OWN_FD(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
	int err;

	if (fd < 0)
		return -errno;
	/* Not before a whole period. */
	err = timer_set(fd, next_multiple(now_ms() + every, every), every);
	if (!err)
		err = add(fd, EPOLLIN, NULL, fn, arg);
	if (err) {
		own_fd_close(fd);
		return err;
	}
	return fd;
}

void worker_timer_stop(int id)
{
	int err = timer_set(id, 0, 0);

	if (err)
		log_error("a timer of the internal thread does not stop: %s", strerror(-err));
}

void worker_timer_go(int id, unsigned msec)
{
	unsigned every = whole_steps(msec);
	int err = timer_set(id, next_multiple(now_ms(), every), every);

	if (err)
		log_error("a timer of the internal thread does not go on: %s", strerror(-err));
}

void worker_timer_del(int id)
{
	void *arg = NULL;

	if (id < 0)
		return;
	pthread_mutex_lock(&w.lock);
	for (unsigned i = 0; i < w.num_slots; i++) {
		if (w.slots[i].fd == id)
			arg = w.slots[i].arg;
	}
	pthread_mutex_unlock(&w.lock);
	worker_fd_del(id, arg);
	own_fd_close(id);
}

static void woken(int fd, uint32_t events, void *arg)
{
	(void)events;
	(void)arg;
	drain(fd);
}

static int start_thread(void)
{
	sigset_t all, old;
	int err;

	/* The application's signals are the application's threads' business. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&w.thread, NULL, worker_main, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -err;
}

int worker_start(void (*begin)(void), unsigned step_ms)
{
	int err = 0;

	pthread_mutex_lock(&w.lock);
	if (w.running) {
		pthread_mutex_unlock(&w.lock);
		return 0;
	}
	w.stop = w.begun = false;
	w.begin = begin;
	w.step_ms = step_ms;
	w.epfd = OWN_FD(libc.epoll_create1(EPOLL_CLOEXEC));
	w.wakefd = own_eventfd(0);
	if (w.epfd < 0 || w.wakefd < 0)
		err = -errno;
	pthread_mutex_unlock(&w.lock);
	if (!err)
		err = worker_fd_add(w.wakefd, EPOLLIN, woken, NULL);
	pthread_mutex_lock(&w.lock);
	if (!err)
		err = start_thread();
	w.running = !err;
	w.pid = getpid();
	/*
	 * A thread that is being born holds locks of libc's (and AddressSanitizer's), which a
	 * fork() would leave taken.
	 */
	while (!err && !w.begun)
		pthread_cond_wait(&w.idle, &w.lock);
	pthread_mutex_unlock(&w.lock);
	if (err) {
		log_error("the internal thread cannot be started: %s", strerror(-err));
		worker_forked();
	}
	return err;
}

/* The thread is gone. */
static void forget(void)
{
	for (unsigned i = 0; i < w.num_slots; i++) {
		if (w.slots[i].fd >= 0 && w.slots[i].timer_fn)
			own_fd_close(w.slots[i].fd);
	}
	free(w.slots);
	w.slots = NULL;
	w.num_slots = 0;
	if (w.epfd >= 0)
		own_fd_close(w.epfd);
	if (w.wakefd >= 0)
		own_fd_close(w.wakefd);
	w.epfd = w.wakefd = w.busy_fd = -1;
	w.running = w.stop = w.left = false;
}

void worker_stop(void)
{
	struct timespec until;
	uint64_t one = 1;
	int cancel;

	pthread_mutex_lock(&w.lock);
	if (!w.running || w.left) {
		pthread_mutex_unlock(&w.lock);
		return;
	}
	w.stop = true;
	pthread_cond_broadcast(&w.idle);
	(void)!raw.write(w.wakefd, &one, sizeof(one));
	pthread_mutex_unlock(&w.lock);
	/*
	 * It may wait for a lock whose holder called exit() from a signal handler: then it is left
	 * to the end of the process.
	 */
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec++;
	if (pthread_timedjoin_np(w.thread, NULL, &until)) {
		w.left = true;
		pthread_detach(w.thread);
		return;
	}
	/*
	 * Other threads may be adding what they do not know to be in vain. A handler that does so
	 * would wait for its own thread.
	 */
	cancel = lock_quiet_begin();
	pthread_mutex_lock(&w.lock);
	forget();
	pthread_cond_broadcast(&w.idle);
	pthread_mutex_unlock(&w.lock);
	lock_quiet_end(cancel);
}

void worker_pause(void)
{
	struct timespec until;
	int cancel;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += PAUSE_NS;
	until.tv_sec += until.tv_nsec / 1000000000L;
	until.tv_nsec %= 1000000000L;
	cancel = quiet_lock();
	w.forks++;
	while (w.busy_fd >= 0 && w.running && !on_worker()) {
		if (pthread_cond_timedwait(&w.idle, &w.lock, &until))
			break;
	}
	quiet_unlock(cancel);
}

void worker_fork_prepare(void)
{
	pthread_mutex_lock(&w.lock);
}

void worker_fork_parent(void)
{
	w.forks--;
	pthread_cond_broadcast(&w.idle);
	pthread_mutex_unlock(&w.lock);
}

void worker_fork_child(void)
{
	/* Threads of the parent that were forking, too, waited here: they do not exist. */
	pthread_mutex_init(&w.lock, NULL);
	pthread_cond_init(&w.idle, NULL);
	w.forks = 0;
}

void worker_forked(void)
{
	/* After a fork the lock is the parent's, and its waiters do not exist here. */
	pthread_mutex_init(&w.lock, NULL);
	pthread_cond_init(&w.idle, NULL);
	forget();
	w.forks = 0;
}

/* --- looks */

/* 0: it stops. */
static void look_timer_set(const struct look_timer *t, unsigned ms)
{
	int err = timer_set(atomic_load_explicit(&t->fd, memory_order_relaxed),
			    ms ? next_multiple(now_ms(), ms) : 0, ms);

	if (err)
		log_error("timerfd_settime of the timer of %s: %s", t->name, strerror(-err));
}

void look_timer_arm(struct look_timer *t)
{
	look_timer_set(t, t->ms);
}

static void look_due(int fd, uint32_t events, void *arg)
{
	struct look_timer *t = arg;
	uint64_t times;

	(void)events;
	(void)!raw.read(fd, &times, sizeof(times));
	t->vain = t->look() ? 0 : t->vain + 1;
	if (t->vain < t->looks_in_vain)
		return;
	t->vain = 0;
	look_timer_set(t, 0);
	atomic_store(&t->armed, false);
	/* What came before that has found the timer armed: one look more is for it. */
	if (t->look())
		look_timer_go(t);
}

int look_timer_start(struct look_timer *t)
{
	int fd, none = -1, err;

	if (look_timer_runs(t))
		return 0;
	fd = OWN_FD(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
	if (fd < 0)
		return -errno;
	err = worker_fd_add(fd, EPOLLIN, look_due, t);
	if (!err && atomic_compare_exchange_strong(&t->fd, &none, fd))
		return 0;
	if (!err)
		worker_fd_del(fd, t);
	own_fd_close(fd);
	return err;
}

void look_timer_forked(struct look_timer *t)
{
	int fd = atomic_exchange(&t->fd, -1);

	if (fd >= 0)
		own_fd_close(fd);
	atomic_store(&t->armed, false);
	t->vain = 0;
}
