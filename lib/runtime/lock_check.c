/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Only in the build with CHECK_LOCKS=1: see lock_check.h. */
#include "runtime/lock_check.h"

#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "runtime/atfork.h"
#include "runtime/libc.h"

#undef lock_take
#undef lock_drop
#undef pthread_mutex_lock
#undef pthread_mutex_trylock
#undef pthread_mutex_unlock
#undef pthread_mutex_init

#define CLASSES_MAX 96
#define NAME_MAX_BYTES 80
#define HELD_MAX 48 /* a socket of many stacks holds the locks of all */
#define CALLS_MAX 64
#define STACK_FRAMES 16
#define ADDRESSES (1u << 17) /* of locks whose class goes by their address */
/* One of so many perturbations sleeps, one of so many yields. */
#define SLEEP_ONE_IN 192
#define YIELD_ONE_IN 12
#define WAKE_SLEEP_ONE_IN 16
#define WAKE_YIELD_ONE_IN 4
#define SLEEP_NS_MAX 50000

/* docs/design.md, "Locks": who holds a later one does not take an earlier one. */
static const struct {
	const char *name;
	unsigned rank;
} documented[] = {
	{"udp_sock.lock", 1}, {"tcp_sock.lock", 1}, {"stack_flows_lock", 2}, {"libxdp_lock", 2},
	{"stack.lock", 3},    {"watch_lock", 4},    {"epoll_set.lock", 5},
};

enum several {
	SEVERAL_NEVER,
	SEVERAL_BY_ADDRESS, /* ascending */
	SEVERAL_NESTED, /* the objects themselves stand in an order that has no circle */
};

/* Classes of which a thread may hold several at once. */
static const struct {
	const char *name;
	enum several several;
} several[] = {
	{"stack.lock", SEVERAL_BY_ADDRESS},
	/* From a set to the set that it is in, or back: epoll_ctl() refuses circles. */
	{"epoll_set.watch_lock", SEVERAL_NESTED},
	{"mtx", SEVERAL_NESTED},
};

struct class
{
	char name[NAME_MAX_BYTES];
	unsigned rank; /* 0: the documentation does not speak of it */
	enum several several;
};

/* The first time that one class was taken while another was held. */
struct edge {
	const struct lock_site *held_at, *taken_at;
	int num_frames;
	void *frames[STACK_FRAMES];
};

struct held {
	const void *lock;
	const struct lock_site *site;
	unsigned class;
};

/* An intercepted call that has not returned. */
struct call {
	const void *fn;
	unsigned num_held;
	uint32_t depth;
};

static struct class classes[CLASSES_MAX]; /* from 1 */
static unsigned num_classes = 1;
static struct edge *_Atomic edges[CLASSES_MAX][CLASSES_MAX]; /* [held][taken] */
static struct {
	const void *_Atomic lock;
	unsigned class;
} addresses[ADDRESSES];
static _Atomic bool busy; /* all above; what is published stays as it is */

static uint64_t seed;
static _Atomic unsigned num_threads;
static __thread struct {
	struct held held[HELD_MAX];
	unsigned num_held;
	struct call calls[CALLS_MAX];
	unsigned num_calls;
	uint64_t random;
	bool reporting;
} self __attribute__((tls_model("initial-exec")));

static void tables_lock(void)
{
	while (atomic_exchange_explicit(&busy, true, memory_order_acquire))
		libc_raw(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
}

static void tables_unlock(void)
{
	atomic_store_explicit(&busy, false, memory_order_release);
}

/* --- reports */

static int report_fd = 2;

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
	char line[512];
	va_list ap;
	int n;

	va_start(ap, format);
	n = vsnprintf(line, sizeof(line), format, ap);
	va_end(ap);
	if (n > (int)sizeof(line) - 1)
		n = (int)sizeof(line) - 1;
	libc_raw(SYS_write, 2, (long)(uintptr_t)line, n, 0, 0, 0);
	if (report_fd != 2)
		libc_raw(SYS_write, report_fd, (long)(uintptr_t)line, n, 0, 0, 0);
}

static void say_frames(void *const *frames, int n)
{
	backtrace_symbols_fd(frames, n, 2);
	if (report_fd != 2)
		backtrace_symbols_fd(frames, n, report_fd);
}

/* The report goes to stderr, and to a file of the directory LOCK_CHECK_REPORTS. */
static void report_begin(void)
{
	const char *dir = getenv("LOCK_CHECK_REPORTS");
	char path[512];

	if (self.reporting)
		libc_raw(SYS_exit_group, 134, 0, 0, 0, 0, 0);
	self.reporting = true;
	if (!dir || snprintf(path, sizeof(path), "%s/locks.%d", dir, getpid()) >= (int)sizeof(path))
		return;
	report_fd = (int)libc_raw(SYS_openat, AT_FDCWD, (long)(uintptr_t)path,
				  O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644, 0, 0);
	if (report_fd < 0)
		report_fd = 2;
}

/* Says what this thread does and holds, and ends the process. */
__attribute__((noreturn)) static void report_end(void)
{
	struct sigaction dfl = {.sa_handler = SIG_DFL};
	void *frames[32] = {0};
	int n = backtrace(frames, 32);

	say("lock check: this thread, %ld, now:\n", libc_raw(SYS_gettid, 0, 0, 0, 0, 0, 0));
	say_frames(frames, n);
	for (unsigned i = 0; i < self.num_held; i++)
		say("lock check: it holds %s (%s:%d, %s)\n", classes[self.held[i].class].name,
		    self.held[i].site->file, self.held[i].site->line, self.held[i].site->text);
	say("lock check: LOCK_CHECK_SEED=%llu; addr2line -fie LIBRARY ADDRESS names the lines\n",
	    (unsigned long long)seed);
	libc.sigaction(SIGABRT, &dfl, NULL);
	libc_raw(SYS_tgkill, getpid(), libc_raw(SYS_gettid, 0, 0, 0, 0, 0, 0), SIGABRT, 0, 0, 0);
	for (;;)
		libc_raw(SYS_exit_group, 134, 0, 0, 0, 0, 0);
}

/* --- classes */

/* The class of that name, or a lock that stands alone of that name: with its file behind it. */
static bool is_named(const char *class, const char *name)
{
	size_t len = strlen(name);

	return !strncmp(class, name, len) && (!class[len] || class[len] == ' ');
}

/* Tables are locked. */
static unsigned class_named(const char *name)
{
	struct class *c;

	for (unsigned i = 1; i < num_classes; i++)
		if (!strcmp(classes[i].name, name))
			return i;
	if (num_classes == CLASSES_MAX) {
		report_begin();
		say("lock check: more than %d classes of locks\n", CLASSES_MAX);
		report_end();
	}
	c = &classes[num_classes];
	snprintf(c->name, sizeof(c->name), "%s", name);
	for (unsigned i = 0; i < sizeof(documented) / sizeof(documented[0]); i++)
		if (is_named(name, documented[i].name))
			c->rank = documented[i].rank;
	for (unsigned i = 0; i < sizeof(several) / sizeof(several[0]); i++)
		if (is_named(name, several[i].name))
			c->several = several[i].several;
	return num_classes++;
}

/* Where the class of the lock at that address stands, or would. */
static unsigned address_slot(const void *l)
{
	unsigned i = (unsigned)((uintptr_t)l >> 2) * 2654435761u % ADDRESSES;
	const void *there;

	while ((there = atomic_load_explicit(&addresses[i].lock, memory_order_acquire)) &&
	       there != l)
		i = (i + 1) % ADDRESSES;
	return i;
}

/* Tables are locked. */
static unsigned address_class(const void *l, unsigned class)
{
	unsigned i = address_slot(l);

	addresses[i].class = class;
	atomic_store_explicit(&addresses[i].lock, l, memory_order_release);
	return class;
}

void lock_class(const void *l, const char *name)
{
	tables_lock();
	address_class(l, class_named(name));
	tables_unlock();
}

/*
 * The class of a lock that nobody has named: one inside an object goes by the member's name, one
 * that stands alone by its own and its address.
 */
static unsigned class_by_text(const void *l, const struct lock_site *site, bool is_mutex)
{
	const char *arrow = strrchr(site->text, '>'), *own = site->text + (site->text[0] == '&');
	char name[NAME_MAX_BYTES];
	unsigned class;

	if (!arrow && site->text[0] != '&')
		return 0;
	if (arrow) {
		const char *dot = strrchr(arrow, '.'), *member = dot ? dot + 1 : arrow + 1;

		if (strcmp(member, "lock") != 0)
			return class_named(member);
		if (!is_mutex)
			return 0;
	}
	/* Two files may have a list_lock of their own. */
	snprintf(name, sizeof(name), "%s (%s)", own, site->file);
	class = class_named(name);
	return arrow ? class : address_class(l, class);
}

static unsigned class_of(const void *l, const struct lock_site *site, bool is_mutex)
{
	unsigned i = address_slot(l), class;

	if (atomic_load_explicit(&addresses[i].lock, memory_order_acquire))
		return addresses[i].class;
	tables_lock();
	class = class_by_text(l, site, is_mutex);
	tables_unlock();
	if (class)
		return class;
	report_begin();
	say("lock check: the lock %s of %s:%d has no class: say lock_class() where it is made\n",
	    site->text, site->file, site->line);
	report_end();
}

/* --- order */

static void say_edge(unsigned held, unsigned taken)
{
	const struct edge *e = atomic_load(&edges[held][taken]);

	if (!e)
		return;
	say("lock check: noted before: %s (%s:%d) was held, %s was taken (%s:%d):\n",
	    classes[held].name, e->held_at->file, e->held_at->line, classes[taken].name,
	    e->taken_at->file, e->taken_at->line);
	say_frames(e->frames, e->num_frames);
}

/* Is there a way from class `from` to class `to`? via: the next class of the way, for each. */
static bool reaches(unsigned from, unsigned to, unsigned *via)
{
	unsigned queue[CLASSES_MAX], head = 0, tail = 0;

	memset(via, 0, CLASSES_MAX * sizeof(*via));
	/* Backwards, so that via[] reads forwards. */
	queue[tail++] = to;
	while (head < tail) {
		unsigned at = queue[head++];

		for (unsigned i = 1; i < num_classes; i++) {
			if (i == to || via[i] || !atomic_load(&edges[i][at]))
				continue;
			via[i] = at;
			if (i == from)
				return true;
			queue[tail++] = i;
		}
	}
	return false;
}

__attribute__((noreturn)) static void wrong(const char *what, const struct held *h, unsigned class,
					    const struct lock_site *site)
{
	report_begin();
	say("lock check: %s: %s (%s:%d) is held, %s is being taken (%s:%d)\n", what,
	    classes[h->class].name, h->site->file, h->site->line, classes[class].name, site->file,
	    site->line);
	say_edge(class, h->class);
	report_end();
}

/* A first time: it must not close a circle. Tables are locked. */
static void edge_new(const struct held *h, unsigned class, const struct lock_site *site)
{
	unsigned via[CLASSES_MAX];
	struct edge *e;

	if (atomic_load(&edges[h->class][class]))
		return;
	if (reaches(class, h->class, via)) {
		report_begin();
		say("lock check: a circle: %s (%s:%d) is held, %s is being taken (%s:%d)\n",
		    classes[h->class].name, h->site->file, h->site->line, classes[class].name,
		    site->file, site->line);
		for (unsigned at = class; at != h->class; at = via[at])
			say_edge(at, via[at]);
		report_end();
	}
	e = calloc(1, sizeof(*e));
	if (!e)
		return;
	e->held_at = h->site;
	e->taken_at = site;
	e->num_frames = backtrace(e->frames, STACK_FRAMES);
	atomic_store(&edges[h->class][class], e);
}

static void order_check(const struct held *h, const void *l, unsigned class,
			const struct lock_site *site)
{
	if (h->lock == l)
		wrong("it would wait for itself", h, class, site);
	if (h->class == class) {
		if (classes[class].several == SEVERAL_NEVER ||
		    (classes[class].several == SEVERAL_BY_ADDRESS &&
		     (uintptr_t)h->lock > (uintptr_t)l))
			wrong("two of one class", h, class, site);
		return;
	}
	if (classes[class].rank && classes[class].rank < classes[h->class].rank)
		wrong("against the documented order", h, class, site);
	if (!atomic_load_explicit(&edges[h->class][class], memory_order_acquire)) {
		int err = errno;

		tables_lock();
		edge_new(h, class, site);
		tables_unlock();
		errno = err;
	}
}

void lock_check_wants(const void *l, const struct lock_site *site, bool is_mutex)
{
	perturb();
	for (unsigned i = 0; i < self.num_held; i++)
		order_check(&self.held[i], l, class_of(l, site, is_mutex), site);
}

void lock_check_has(const void *l, const struct lock_site *site, bool is_mutex)
{
	if (self.num_held == HELD_MAX) {
		report_begin();
		say("lock check: a thread holds more than %d locks\n", HELD_MAX);
		report_end();
	}
	self.held[self.num_held] = (struct held){l, site, class_of(l, site, is_mutex)};
	/* A handler that comes here leaves what is below as it was. */
	atomic_signal_fence(memory_order_seq_cst);
	self.num_held++;
	perturb();
}

/* Takes l from those held; false: it is none of them. */
static bool forget(const void *l)
{
	for (unsigned i = self.num_held; i-- > 0;) {
		if (self.held[i].lock != l)
			continue;
		memmove(&self.held[i], &self.held[i + 1],
			(self.num_held - i - 1) * sizeof(self.held[0]));
		self.num_held--;
		return true;
	}
	return false;
}

void lock_check_drops(const void *l, const struct lock_site *site)
{
	perturb();
	if (forget(l))
		return;
	report_begin();
	say("lock check: %s of %s:%d is given back by a thread that does not have it\n", site->text,
	    site->file, site->line);
	report_end();
}

int lock_check_mutex_lock(pthread_mutex_t *m, const struct lock_site *site)
{
	int err;

	lock_check_wants(m, site, true);
	err = pthread_mutex_lock(m);
	lock_check_has(m, site, true);
	return err;
}

int lock_check_mutex_trylock(pthread_mutex_t *m, const struct lock_site *site)
{
	int err;

	perturb();
	err = pthread_mutex_trylock(m);
	if (!err)
		lock_check_has(m, site, true);
	return err;
}

int lock_check_mutex_unlock(pthread_mutex_t *m, const struct lock_site *site)
{
	int err;

	lock_check_drops(m, site);
	err = pthread_mutex_unlock(m);
	perturb();
	return err;
}

int lock_check_mutex_init(pthread_mutex_t *m, const pthread_mutexattr_t *attr)
{
	forget(m);
	return pthread_mutex_init(m, attr);
}

/* --- cancellation */

/* Of libc's table (pthreads(7)); fcntl() is one with F_SETLKW only. */
static const char *const cancellation_points[] = {
	"accept",	  "accept4",	  "close",
	"closefrom",	  "connect",	  "creat",
	"creat64",	  "fclose",	  "fdopen",
	"open",		  "open64",	  "openat",
	"openat64",	  "__open_2",	  "__open64_2",
	"__openat_2",	  "__openat64_2", "poll",
	"__poll_chk",	  "ppoll",	  "__ppoll_chk",
	"pselect",	  "select",	  "epoll_wait",
	"epoll_pwait",	  "epoll_pwait2", "read",
	"__read_chk",	  "readv",	  "preadv",
	"preadv2",	  "pwritev",	  "pwritev2",
	"write",	  "writev",	  "recv",
	"__recv_chk",	  "recvfrom",	  "__recvfrom_chk",
	"recvmsg",	  "recvmmsg",	  "send",
	"sendto",	  "sendmsg",	  "sendmmsg",
	"splice",	  "tee",	  "vmsplice",
	"system",	  "popen",	  "vdprintf",
	"__vdprintf_chk",
};

static bool is_cancellation_point(const char *name)
{
	for (unsigned i = 0; i < sizeof(cancellation_points) / sizeof(cancellation_points[0]); i++)
		if (!strcmp(name, cancellation_points[i]))
			return true;
	return false;
}

void lock_check_cancel(const char *name)
{
	int state;

	if (!self.num_held || !is_cancellation_point(name))
		return;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	pthread_setcancelstate(state, NULL);
	if (state == PTHREAD_CANCEL_DISABLE)
		return;
	report_begin();
	say("lock check: %s() is called, where a thread can be cancelled, with %u locks held\n",
	    name, self.num_held);
	report_end();
}

/* --- leaks */

void lock_check_none(const char *what)
{
	if (!self.num_held && !lock_thread.depth)
		return;
	report_begin();
	say("lock check: %s ends with %u locks held, lock_enter() %u deep\n", what, self.num_held,
	    lock_thread.depth);
	report_end();
}

/*
 * The compiler has these called at the beginning and the end of each function of lib/preload
 * (-finstrument-functions; the Makefile names the few that a pair of functions stands for).
 */
void __cyg_profile_func_enter(void *fn, void *site);
void __cyg_profile_func_exit(void *fn, void *site);

__attribute__((visibility("hidden"))) void __cyg_profile_func_enter(void *fn, void *site)
{
	(void)site;
	/* Who left by longjmp() is still in the list: at some time it is full of those. */
	if (self.num_calls == CALLS_MAX)
		self.num_calls = 0;
	self.calls[self.num_calls] = (struct call){fn, self.num_held, lock_thread.depth};
	atomic_signal_fence(memory_order_seq_cst);
	self.num_calls++;
}

__attribute__((visibility("hidden"))) void __cyg_profile_func_exit(void *fn, void *site)
{
	unsigned i = self.num_calls;

	(void)site;
	while (i > 0 && self.calls[i - 1].fn != fn)
		i--;
	if (!i)
		return;
	self.num_calls = i - 1;
	if (self.calls[i - 1].num_held == self.num_held &&
	    self.calls[i - 1].depth == lock_thread.depth)
		return;
	report_begin();
	say("lock check: a call returns with %u locks held, it began with %u (lock_enter() deep: "
	    "%u, then %u)\n",
	    self.num_held, self.calls[i - 1].num_held, self.calls[i - 1].depth, lock_thread.depth);
	report_end();
}

/* --- perturbation */

static void thread_begin(void)
{
	self.random = (seed + 1 + atomic_fetch_add(&num_threads, 1)) * 0x9e3779b97f4a7c15ull;
	self.random |= 1;
}

static void perturb_one_in(unsigned sleep, unsigned yield)
{
	struct timespec ts = {0};
	uint32_t r;
	int err;

	if (!seed)
		return;
	if (!self.random)
		thread_begin();
	self.random ^= self.random << 13;
	self.random ^= self.random >> 7;
	self.random ^= self.random << 17;
	r = (uint32_t)(self.random >> 32);
	if (r % yield && r % sleep != 1)
		return;
	err = errno;
	if (r % sleep == 1) {
		ts.tv_nsec = 1 + (long)(self.random % SLEEP_NS_MAX);
		libc_raw(SYS_nanosleep, (long)(uintptr_t)&ts, 0, 0, 0, 0, 0);
	} else {
		libc_raw(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
	}
	errno = err;
}

void perturb(void)
{
	perturb_one_in(SLEEP_ONE_IN, YIELD_ONE_IN);
}

void perturb_wake(void)
{
	perturb_one_in(WAKE_SLEEP_ONE_IN, WAKE_YIELD_ONE_IN);
}

static void forked(void)
{
	/* The thread that had it is not there any more. */
	atomic_store(&busy, false);
}

__attribute__((constructor(101))) static void check_begin(void)
{
	const char *text = getenv("LOCK_CHECK_SEED");
	void *frames[2];
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	seed = text ? strtoull(text, NULL, 0)
		    : ((uint64_t)ts.tv_nsec ^ (uint64_t)ts.tv_sec << 30 ^ (uint64_t)getpid()) | 1;
	/* The first time it loads a library. */
	(void)backtrace(frames, 2);
	atfork_add(NULL, NULL, forked);
}
