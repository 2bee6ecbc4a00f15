/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Sleeping without missing a wake-up: one eventfd for each thread that ever slept. */
#include "wait/own.h"
#include "wait/spin.h"
#include "wait/wait.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "runtime/runtime.h"
#include "stack/stack.h"

/* Up to here the pollfds of a sleep stand on the stack. */
#define WAIT_SMALL 160
/* How long a thread that could get no eventfd sleeps before it looks again. */
#define WAIT_BLIND_NS 1000000ull
/* And one that sleeps by select(), which is not asked for all (sets_until()). */
#define WAIT_UNKNOWN_NS 10000000ull
/* How often a thread that ends looks whether all that are about to wake it have done so. */
#define ENDS_LOOK_NS 50000u

enum wait_end {
	END_UNSEEN, /* pthread_setspecific() has failed */
	END_WAITS, /* thread_ends() will wait for who is about to wake it */
	END_BEHIND, /* it may go on for a while, in destructors of the program's */
};

struct wait_thread {
	_Atomic int evfd; /* 0: none yet (own_fd.h gives no standard descriptor) */
	uint32_t forks; /* fork_count when evfd was made */
	/*
	 * Set by whoever wakes the thread, so that a burst costs one write(); cleared after the
	 * eventfd was drained.
	 */
	_Atomic uint16_t pending;
	/* Threads that have yet to write to evfd, or are at it. It ends when there are none. */
	_Atomic uint16_t wakers;
	uint8_t end; /* enum wait_end */
	/*
	 * Where it stands among the sleepers, and whether it is one of wait_sleep_alone().
	 * sleepers.lock; `chosen` stands where no bits of the two kinds share a byte.
	 */
	bool follows : 1, alone : 1;
	bool chosen; /* it was woken to lead, and has not slept since */
	bool leads : 1, crowded : 1; /* it leads; wait_crowded(). Only its thread */
	struct wait_thread *next, **at; /* follows: in their list */
};

/*
 * One thread sleeps on the rings for all: a packet wakes that one, and it wakes those whose sockets
 * have got something. Otherwise each packet would wake all threads that wait for any socket. When
 * its own wait is over, it chooses another; one that is chosen and has no time for that either
 * chooses the next.
 */
static struct {
	struct lock lock; /* held for a few instructions, as a rule nothing is called under it */
	struct wait_thread *leader;
	uint32_t generation; /* of the fds that it sleeps on */
	/* The longest sleeper first: it may be one that has nothing else to do. */
	struct wait_thread *first, **last;
	unsigned alone; /* of that list, those that wait for one connection */
} sleepers = {.last = &sleepers.first};

static __thread struct wait_thread self;
static pthread_key_t key;
static bool key_valid;
static _Atomic uint32_t fork_count;
static _Atomic bool blind_told;

/* The child of a fork() shares its parent's eventfds: it makes its own. */
static void forked_child(void)
{
	atomic_fetch_add_explicit(&fork_count, 1, memory_order_relaxed);
	sleepers.lock = (struct lock){0};
	sleepers.leader = sleepers.first = NULL;
	sleepers.last = &sleepers.first;
	sleepers.alone = 0;
	self.leads = self.follows = self.chosen = self.crowded = false;
	/* Of threads that the child does not have. */
	atomic_store_explicit(&self.wakers, 0, memory_order_relaxed);
	if (wait_own_now)
		wait_own_now->num_wakes = wait_own_now->num_woken = 0;
	lock_thread.busy = lock_thread.put_off = false;
	signals_bell = 0;
}

static void follower_add(struct wait_thread *t)
{
	t->follows = true;
	t->next = NULL;
	t->at = sleepers.last;
	*sleepers.last = t;
	sleepers.last = &t->next;
	sleepers.alone += t->alone;
}

static void follower_del(struct wait_thread *t)
{
	*t->at = t->next;
	if (t->next)
		t->next->at = t->at;
	else
		sleepers.last = t->at;
	sleepers.alone -= t->alone;
	t->follows = false;
}

/*
 * This thread is about to sleep, everything armed and looked at. True: on the rings, too: for all,
 * or because the leader does not know of the latest ones. Each on its own where nobody could wake
 * it, and where threads have rings of their own.
 */
static bool sleepers_enter(int evfd, uint32_t generation, bool alone)
{
	bool on_rings, many;

	self.crowded = false;
	if (evfd < 0 || !key_valid || stacks_several())
		return true;
	lock_take(&sleepers.lock);
	self.chosen = false;
	/* A handler has left its last sleep for good (siglongjmp()). */
	if (self.follows)
		follower_del(&self);
	self.alone = alone;
	if (!sleepers.leader) {
		sleepers.leader = &self;
		self.leads = true;
	}
	if (self.leads)
		sleepers.generation = generation;
	else
		follower_add(&self);
	many = sleepers.alone > wait_processors();
	on_rings = self.leads || sleepers.generation != generation;
	lock_drop(&sleepers.lock);
	if (alone && !self.leads)
		self.crowded = many || wait_crowd_lasts(clock_monotonic_ns());
	return on_rings;
}

/*
 * Pairs with the exchange in drain(): who finds 1 here knows that the sleeper will look again after
 * it. True: it is the caller's to wake t, which stays until then.
 */
static bool wake_claim(struct wait_thread *t)
{
	perturb_wake();
	if (atomic_exchange(&t->pending, 1))
		return false;
	atomic_fetch_add_explicit(&t->wakers, 1, memory_order_relaxed);
	return true;
}

/* Not libc's write(): that is a cancellation point, and locks may be held here. */
static void wake_now(struct wait_thread *t)
{
	uint64_t one = 1;
	int fd = t->evfd;

	/* None: the program has closed it, and the thread knows. */
	if (fd && libc_raw(SYS_write, fd, (long)(uintptr_t)&one, sizeof(one), 0, 0, 0) < 0 &&
	    errno != EAGAIN)
		log_error("write(eventfd %d) to wake a waiting thread: %s", fd, strerror(errno));
	atomic_fetch_sub_explicit(&t->wakers, 1, memory_order_release);
}

/* lock_after_fn */
static void wake_all(void)
{
	struct wait_own *own = wait_own_now;
	int err = errno;

	/* One by one: a handler that could not be put off may come here in between. */
	while (own->num_woken < own->num_wakes)
		wake_now(own->wakes[own->num_woken++]);
	own->num_wakes = own->num_woken = 0;
	errno = err;
}

/* When this thread gives its lock back, if there is room to remember that. */
static void wake_later(struct wait_thread *t)
{
	struct wait_own *own = wait_own_now;

	/* None: it has never waited. To make one here might be to call malloc() under locks. */
	if (!own || own->num_wakes == WAIT_PUT_OFF_MAX) {
		wake_now(t);
		return;
	}
	own->wakes[own->num_wakes] = t;
	own->num_wakes++;
	lock_thread.put_off = true;
}

/* Awake: nobody has to choose it. A leader stays one, as it may sleep again. */
static void sleepers_woken(void)
{
	if (self.leads)
		return;
	lock_take(&sleepers.lock);
	if (self.follows)
		follower_del(&self);
	lock_drop(&sleepers.lock);
}

static void choose_next(void)
{
	struct wait_thread *next = NULL;

	lock_take(&sleepers.lock);
	if (self.leads)
		sleepers.leader = NULL;
	if (!sleepers.leader)
		next = sleepers.first;
	if (next) {
		follower_del(next);
		next->chosen = true;
		/* Also where another thread is about to: nobody sleeps on the rings until then. */
		if (!wake_claim(next))
			atomic_fetch_add_explicit(&next->wakers, 1, memory_order_relaxed);
		if (next->end != END_WAITS) {
			wake_now(next); /* who ends waits for this lock */
			next = NULL;
		}
	}
	self.leads = self.chosen = false;
	lock_drop(&sleepers.lock);
	if (next)
		wake_now(next);
}

void wait_over(void)
{
	self.crowded = false;
	/* Nobody chooses a thread that has woken. */
	if (self.leads || self.chosen)
		choose_next();
}

bool wait_crowded(void)
{
	return self.crowded;
}

static void thread_ends(void *arg)
{
	struct wait_thread *t = arg;

	sleepers_woken();
	wait_over();
	t->end = END_BEHIND;
	while (atomic_load_explicit(&t->wakers, memory_order_acquire))
		clock_sleep_ns(ENDS_LOOK_NS);
	/* 0: a child that has inherited the thread got none of its own. */
	if (t->evfd)
		own_fd_close(t->evfd);
	t->evfd = 0;
}

/* At the start, as own.c's key. */
__attribute__((constructor)) static void key_make(void)
{
	key_valid = pthread_key_create(&key, thread_ends) == 0;
	lock_after_fn = wake_all;
	atfork_add(NULL, NULL, forked_child);
}

/* A new eventfd for this thread, or -errno. */
static int evfd_make(void)
{
	int fd = own_eventfd(0), err = errno;

	if (fd < 0) {
		if (!atomic_exchange(&blind_told, true))
			log_error("eventfd() for a waiting thread: %s; waits look again every ms "
				  "instead",
				  strerror(err));
		return -err;
	}
	return fd;
}

int wait_evfd(void)
{
	uint32_t forks = atomic_load_explicit(&fork_count, memory_order_relaxed);
	int fd;

	if (__builtin_expect(self.evfd && self.forks == forks, 1))
		return self.evfd;
	if (self.evfd)
		own_fd_close(self.evfd); /* the parent's: only our reference goes */
	self.evfd = 0;
	fd = evfd_make();
	if (fd < 0)
		return fd;
	self.evfd = fd;
	self.forks = forks;
	atomic_store(&self.pending, 0);
	if (key_valid && !pthread_setspecific(key, &self) && self.end != END_BEHIND)
		self.end = END_WAITS;
	return fd;
}

struct wait_thread *wait_thread_self(void)
{
	return wait_evfd() < 0 ? NULL : &self;
}

void wait_wake(struct wait_thread *t)
{
	/*
	 * Its own doing (stacks_arm() brought a packet): it is awake, and looks again before it
	 * sleeps.
	 */
	if (t == &self || !wake_claim(t))
		return;
	if (lock_thread.busy && t->end == END_WAITS)
		wake_later(t);
	else
		wake_now(t);
}

static void wait_notify(struct vfd_watch *w, uint32_t events)
{
	(void)events;
	wait_wake(((struct wait_watch *)w)->thread);
}

int wait_watch_add(struct vfd *v, struct wait_watch *w)
{
	int fd = wait_evfd();

	w->thread = fd < 0 ? NULL : &self;
	w->watch.notify = wait_notify;
	w->watch.set = NULL;
	if (w->thread)
		vfd_watch_add(v, &w->watch);
	return fd < 0 ? fd : 0;
}

void wait_watch_del(struct vfd *v, struct wait_watch *w)
{
	if (w->thread)
		vfd_watch_del(v, &w->watch);
	w->thread = NULL;
}

static void drain(void)
{
	uint64_t count;

	if (raw.read(self.evfd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		log_error("read(eventfd %d) of a waiting thread: %s", self.evfd, strerror(errno));
	perturb_wake();
	/*
	 * After the read: a notify from here on writes again. One between the two is seen by our
	 * caller's next look.
	 */
	atomic_exchange(&self.pending, 0);
}

/* Fetches the stacks' fds again when a stack was opened or closed since. */
static void stack_fds(struct wait_own *own)
{
	uint32_t generation = stacks_generation();

	if (own->fds_valid && own->fds_generation == generation)
		return;
	own->nfds = wait_own_is(own) ? stacks_wait_fds(own->fds, STACKS_WAIT_FDS_MAX) : 0;
	own->fds_generation = generation;
	own->fds_valid = wait_own_is(own);
}

int wait_signals_hold(void)
{
	bool earlier = lock_thread.deferred; /* inside a handler that could not be put off */
	int before, evfd;

	/*
	 * First: a handler may leave for good (siglongjmp()), and watches would stay behind. It
	 * runs when they are gone.
	 */
	lock_enter();
	evfd = wait_evfd();
	before = signals_bell;
	/* Without an eventfd the thread looks again each millisecond. */
	signals_bell = evfd < 0 ? 0 : evfd;
	/* Put off before there was a bell. */
	if (lock_thread.deferred && !earlier)
		signals_came();
	return before;
}

void wait_signals_let(int before)
{
	signals_bell = before < 0 ? -before : before;
	/*
	 * Inside a handler that could not be put off, and interrupted another sleep of this thread:
	 * the bell that it was to find may have been taken by this one.
	 */
	signals_came();
	/* Handlers are about to run, and may leave for good. */
	if (lock_thread.deferred)
		wait_over();
	lock_leave();
}

static void cancelled_asleep(void *heap)
{
	sleepers_woken();
	wait_over();
	free(heap);
}

/*
 * ppoll() as libc has it, because this is where the program's call waits: a thread may be cancelled
 * here, and leaves no heap behind. Returns ppoll()'s result or -errno.
 */
static int ppoll_or_free(struct pollfd *p, unsigned n, const struct timespec *timeout,
			 const sigset_t *sigmask, void *heap)
{
	int r;

	pthread_cleanup_push(cancelled_asleep, heap);
	r = libc.ppoll(p, n, timeout, sigmask);
	if (r < 0)
		r = -errno;
	pthread_cleanup_pop(0);
	return r;
}

/* Until the deadline; NULL: there is none. */
static const struct timespec *time_left(uint64_t deadline_ns, struct timespec *ts)
{
	uint64_t now, left;

	if (!deadline_ns)
		return NULL;
	now = clock_monotonic_ns();
	left = deadline_ns > now ? deadline_ns - now : 0;
	ts->tv_sec = (time_t)(left / 1000000000ull);
	ts->tv_nsec = (long)(left % 1000000000ull);
	return ts;
}

/* As ppoll_or_free(), and by libc for the same reason. */
static int pselect_or_free(struct pollfd *p, unsigned n, const struct timespec *timeout,
			   const sigset_t *sigmask, void *heap)
{
	struct poll_sets s;
	bool bad;
	int r;

	if (!poll_sets_map(&s, p, n))
		return -errno;
	pthread_cleanup_push(cancelled_asleep, heap);
	pthread_cleanup_push(poll_sets_unmap, &s);
	r = libc.pselect(s.nfds, s.rd, s.wr, s.ex, timeout, sigmask);
	bad = r < 0 && errno == EBADF;
	r = poll_sets_answer(&s, p, n, r);
	if (r < 0)
		r = -errno;
	else if (bad && !r)
		r = 1; /* the number is another thread's by now: no time has passed */
	pthread_cleanup_pop(1);
	pthread_cleanup_pop(0);
	return r;
}

/*
 * ppoll() refuses what has more entries than RLIMIT_NOFILE. The program has asked for no more, or
 * by a call that has no such limit; the last ones are ours. The first n are looked at by poll()
 * when the sleep is over, as far as that takes them: it says more than select(). Returns how many
 * are ready; also 1 where another thread was there before.
 */
static int sleep_by_sets(struct pollfd *p, unsigned n, unsigned total,
			 const struct timespec *timeout, const sigset_t *sigmask, void *heap)
{
	int woken = pselect_or_free(p, total, timeout, sigmask, heap), ready = 0;

	if (woken < 0)
		return woken;
	(void)raw.poll(p, n, 0);
	for (unsigned i = 0; i < total; i++)
		ready += p[i].revents != 0;
	return woken && !ready ? 1 : ready;
}

/* When such a sleep ends at the latest: what select() does not know has to be looked at. */
static uint64_t sets_until(const struct pollfd *p, unsigned n, uint64_t deadline_ns)
{
	uint64_t soon = clock_monotonic_ns() + WAIT_UNKNOWN_NS;

	for (unsigned i = 0; i < n; i++) {
		if (!poll_sets_know(&p[i]))
			return !deadline_ns || soon < deadline_ns ? soon : deadline_ns;
	}
	return deadline_ns;
}

/* What the extra entries say. Returns how many of them are ready. */
static int extras_look(const struct pollfd *p, unsigned n)
{
	int ready = 0;

	for (unsigned i = 0; i < n; i++) {
		if (!p[i].revents)
			continue;
		ready++;
		if (p[i].fd == self.evfd && p[i].revents & POLLNVAL)
			self.evfd = 0; /* the program closed it under us: the next watch makes
					  another */
		else if (p[i].fd == self.evfd)
			drain();
		else if (p[i].revents & POLLNVAL)
			wait_own()->fds_valid = false;
	}
	return ready;
}

static int sleep_for(struct pollfd *user, unsigned n, uint64_t deadline_ns, const sigset_t *sigmask,
		     bool alone)
{
	struct pollfd small[WAIT_SMALL], *p = small, *heap = NULL;
	int evfd = wait_evfd(), r, extra;
	struct wait_own *own = wait_own();
	uint64_t until = deadline_ns;
	unsigned total = n, rings;
	struct timespec ts;

	perturb_wake();
	stack_fds(own);
	if (n + 1 + own->nfds > WAIT_SMALL) {
		p = heap = malloc((n + 1 + (size_t)own->nfds) * sizeof(*p));
		if (!heap)
			return -ENOMEM;
	}
	if (n)
		memcpy(p, user, n * sizeof(*p));
	if (evfd >= 0)
		p[total++] = (struct pollfd){.fd = evfd, .events = POLLIN};
	rings = sleepers_enter(evfd, own->fds_generation, alone) ? own->nfds : 0;
	for (unsigned i = 0; i < rings; i++)
		p[total++] = (struct pollfd){.fd = own->fds[i], .events = POLLIN};
	if (evfd < 0 || !own->fds_valid) {
		uint64_t soon = clock_monotonic_ns() + WAIT_BLIND_NS;

		until = !deadline_ns || soon < deadline_ns ? soon : deadline_ns;
	}
	r = ppoll_or_free(p, total, time_left(until, &ts), sigmask, heap);
	if (__builtin_expect(r == -EINVAL, 0)) {
		until = sets_until(p, n, until);
		r = sleep_by_sets(p, n, total, time_left(until, &ts), sigmask, heap);
	}
	sleepers_woken();
	if (r == -EINTR && signals_bell < 0)
		drain();
	if (r > 0) {
		extra = extras_look(p + n, total - n);
		for (unsigned i = 0; i < n; i++)
			user[i].revents = p[i].revents;
		r -= extra;
	} else if (r == 0 && until == deadline_ns) {
		r = -ETIMEDOUT;
	}
	free(heap);
	return r;
}

int wait_sleep(struct pollfd *user, unsigned n, uint64_t deadline_ns, const sigset_t *sigmask)
{
	return sleep_for(user, n, deadline_ns, sigmask, false);
}

int wait_sleep_alone(struct pollfd *user, unsigned n, uint64_t deadline_ns, const sigset_t *sigmask)
{
	return sleep_for(user, n, deadline_ns, sigmask, true);
}
