/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The table of the real libc functions: resolver stubs at first, dlsym(RTLD_NEXT)'s answers after
 * libc_load().
 */
#undef _FORTIFY_SOURCE
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "runtime/libc.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define INITIAL_EXEC __attribute__((tls_model("initial-exec")))

__thread int libc_internal INITIAL_EXEC;
bool libc_loaded;
long libc_errno_distance;
/*
 * Above 0 while this thread is in dlsym(), which may allocate, and an allocator may open, read and
 * close.
 */
static __thread int loading INITIAL_EXEC;

/* What the thread's cancelability was before the outermost begin. */
static __thread int cancel_before INITIAL_EXEC;

void libc_internal_begin(void)
{
	if (libc_internal++ == 0)
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_before);
}

void libc_internal_end(void)
{
	if (--libc_internal == 0)
		pthread_setcancelstate(cancel_before, NULL);
}

NO_SANITIZERS static long raw_fail(int err)
{
	errno = err;
	return -1;
}

#if defined(__x86_64__)
NO_SANITIZERS static long raw_call(long nr, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long ret;

	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "0"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return ret;
}
#elif defined(__aarch64__)
NO_SANITIZERS static long raw_call(long nr, long a, long b, long c, long d, long e, long f)
{
	register long x8 __asm__("x8") = nr;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;

	__asm__ volatile("svc 0"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
			 : "memory");
	return x0;
}
#else
#error "libc_raw() is written for x86-64 and arm64"
#endif

NO_SANITIZERS long libc_raw(long nr, long a, long b, long c, long d, long e, long f)
{
	long ret = raw_call(nr, a, b, c, d, e, f);

	return (unsigned long)ret > -4096UL ? raw_fail((int)-ret) : ret;
}

#define RAW6(name, a, b, c, d, e, f)                                                               \
	libc_raw(SYS_##name, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
#define RAW5(name, a, b, c, d, e) RAW6(name, a, b, c, d, e, 0)
#define RAW4(name, a, b, c, d) RAW6(name, a, b, c, d, 0, 0)
#define RAW3(name, a, b, c) RAW6(name, a, b, c, 0, 0, 0)
#define RAW2(name, a, b) RAW6(name, a, b, 0, 0, 0, 0)
#define RAW1(name, a) RAW6(name, a, 0, 0, 0, 0, 0)
#define RAW_NONE raw_fail(ENOSYS)

/* RAW_NONE of a function that returns a pointer. */
static void *raw_null(void)
{
	errno = ENOSYS;
	return NULL;
}

/* dup2(fd, fd): only says whether fd is open. */
static int raw_same(int fd)
{
	return RAW2(fcntl, fd, F_GETFD) < 0 ? -1 : fd;
}

/* poll_sets: of descriptors above this nothing is known; the kernel's usual limit is a 16th. */
#define SETS_MAX (1 << 24)
#define SET_BITS (8 * (int)sizeof(unsigned long))
/* Not the bands: select() would end for what nobody has asked for. */
#define SETS_RD (POLLIN | POLLRDNORM)
#define SETS_WR (POLLOUT | POLLWRNORM)

bool poll_sets_know(const struct pollfd *p)
{
	return p->fd < 0 || p->events & SETS_RD;
}

static void set_add(fd_set *set, int fd)
{
	((unsigned long *)set)[fd / SET_BITS] |= 1ul << fd % SET_BITS;
}

static bool set_has(const fd_set *set, int fd)
{
	return ((const unsigned long *)set)[fd / SET_BITS] >> fd % SET_BITS & 1;
}

bool poll_sets_map(struct poll_sets *s, const struct pollfd *p, nfds_t n)
{
	char *at;

	s->nfds = 0;
	for (nfds_t i = 0; i < n; i++) {
		if (p[i].fd >= s->nfds && p[i].fd < SETS_MAX)
			s->nfds = p[i].fd + 1;
	}
	s->bytes = ((size_t)s->nfds / SET_BITS + 1) * sizeof(unsigned long);
	at = (char *)(uintptr_t)libc_raw(SYS_mmap, 0, (long)(3 * s->bytes), PROT_READ | PROT_WRITE,
					 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if ((void *)at == MAP_FAILED)
		return false;
	s->rd = (fd_set *)(void *)at;
	s->wr = (fd_set *)(void *)(at + s->bytes);
	s->ex = (fd_set *)(void *)(at + 2 * s->bytes);
	for (nfds_t i = 0; i < n; i++) {
		if (p[i].fd < 0 || p[i].fd >= s->nfds)
			continue;
		if (p[i].events & SETS_RD)
			set_add(s->rd, p[i].fd);
		if (p[i].events & SETS_WR)
			set_add(s->wr, p[i].fd);
		if (p[i].events & POLLPRI)
			set_add(s->ex, p[i].fd);
	}
	return true;
}

static short events_of(const struct poll_sets *s, const struct pollfd *p)
{
	int ev = 0;

	if (p->fd < 0 || p->fd >= s->nfds)
		return 0;
	if (set_has(s->rd, p->fd))
		ev |= p->events & SETS_RD;
	if (set_has(s->wr, p->fd))
		ev |= p->events & SETS_WR;
	if (set_has(s->ex, p->fd))
		ev |= p->events & POLLPRI;
	return (short)ev;
}

static short closed_events(const struct pollfd *p)
{
	return p->fd >= 0 && RAW2(fcntl, p->fd, F_GETFD) < 0 ? POLLNVAL : 0;
}

int poll_sets_answer(const struct poll_sets *s, struct pollfd *p, nfds_t n, int r)
{
	int ready = 0;

	if (r < 0 && errno != EBADF)
		return -1;
	for (nfds_t i = 0; i < n; i++) {
		p[i].revents = r < 0 ? closed_events(&p[i]) : events_of(s, &p[i]);
		ready += p[i].revents != 0;
	}
	return ready;
}

void poll_sets_unmap(void *sets)
{
	const struct poll_sets *s = sets;
	int err = errno;

	RAW2(munmap, (uintptr_t)s->rd, 3 * s->bytes);
	errno = err;
}

static int raw_pselect(int n, fd_set *rd, fd_set *wr, fd_set *ex, const struct timespec *ts,
		       const sigset_t *mask)
{
	struct timespec left; /* the kernel writes what is left; the caller's stays as it is */
	struct {
		const sigset_t *mask;
		size_t size;
	} arg = {mask, _NSIG / 8};

	if (ts)
		left = *ts;
	return (int)RAW6(pselect6, n, rd, wr, ex, ts ? &left : NULL, &arg);
}

static int ppoll_by_sets(struct pollfd *fds, nfds_t n, const struct timespec *ts,
			 const sigset_t *mask)
{
	struct poll_sets s;
	int ret;

	if (!poll_sets_map(&s, fds, n))
		return -1;
	ret = raw_pselect(s.nfds, s.rd, s.wr, s.ex, ts, mask);
	ret = poll_sets_answer(&s, fds, n, ret);
	poll_sets_unmap(&s);
	return ret;
}

static int raw_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *ts, const sigset_t *mask)
{
	struct timespec left;
	int ret;

	if (ts)
		left = *ts;
	ret = (int)RAW5(ppoll, fds, n, ts ? &left : NULL, mask, _NSIG / 8);
	return ret < 0 && errno == EINVAL ? ppoll_by_sets(fds, n, ts, mask) : ret;
}

static int raw_poll(struct pollfd *fds, nfds_t n, int msec)
{
	struct timespec ts = {msec / 1000, (msec % 1000) * 1000000L};

	return raw_ppoll(fds, n, msec < 0 ? NULL : &ts, NULL);
}

static int raw_select(int n, fd_set *rd, fd_set *wr, fd_set *ex, struct timeval *tv)
{
	struct timespec ts;
	int ret;

	if (!tv)
		return (int)RAW6(pselect6, n, rd, wr, ex, NULL, NULL);
	if (tv->tv_sec < 0 || tv->tv_usec < 0)
		return (int)raw_fail(EINVAL);
	ts = (struct timespec){tv->tv_sec + tv->tv_usec / 1000000, (tv->tv_usec % 1000000) * 1000};
	ret = (int)RAW6(pselect6, n, rd, wr, ex, &ts, NULL);
	*tv = (struct timeval){ts.tv_sec, ts.tv_nsec / 1000};
	return ret;
}

/* A function without a system call of its own ignores its parameters. */
#pragma GCC diagnostic ignored "-Wunused-parameter"
/* raw_<name>_call: without libc. stub_<name>: what the table holds until it is filled. */
#define LIBC_FN(ret, name, params, args, raw)                                                      \
	static ret raw_##name##_call params                                                        \
	{                                                                                          \
		return (ret)(raw);                                                                 \
	}                                                                                          \
	static ret stub_##name params                                                              \
	{                                                                                          \
		if (loading)                                                                       \
			return raw_##name##_call args;                                             \
		libc_load();                                                                       \
		return libc.name args;                                                             \
	}
#define LIBC_VARIADIC(ret, name, params, last, args, raw)                                          \
	static ret raw_##name##_call params                                                        \
	{                                                                                          \
		va_list ap;                                                                        \
		long rest;                                                                         \
                                                                                                   \
		va_start(ap, last);                                                                \
		rest = va_arg(ap, long);                                                           \
		va_end(ap);                                                                        \
		return (ret)(raw);                                                                 \
	}                                                                                          \
	static ret stub_##name params                                                              \
	{                                                                                          \
		va_list ap;                                                                        \
		long rest;                                                                         \
                                                                                                   \
		va_start(ap, last);                                                                \
		rest = va_arg(ap, long);                                                           \
		va_end(ap);                                                                        \
		if (loading)                                                                       \
			return raw_##name##_call args;                                             \
		libc_load();                                                                       \
		return libc.name args;                                                             \
	}
#include "runtime/libc.def"
#undef LIBC_FN
#undef LIBC_VARIADIC

/* Needs no dlsym: the system call is all that libc's does. */
static long raw_syscall(long nr, ...)
{
	long arg[6];
	va_list ap;

	va_start(ap, nr);
	for (int i = 0; i < 6; i++)
		arg[i] = va_arg(ap, long);
	va_end(ap);
	return libc_raw(nr, arg[0], arg[1], arg[2], arg[3], arg[4], arg[5]);
}

struct libc_table libc = {
#define LIBC_FN(ret, name, params, args, raw) .name = stub_##name,
#define LIBC_VARIADIC(ret, name, params, last, args, raw) .name = stub_##name,
#include "runtime/libc.def"
#undef LIBC_FN
#undef LIBC_VARIADIC
	.syscall = raw_syscall,
};

#ifdef VMA_CHECK
/* The build that checks its locks: the table holds these, which look and then call libc's. */
static struct libc_table unchecked;
#define LIBC_FN(ret, name, params, args, raw)                                                      \
	static ret checked_##name params                                                           \
	{                                                                                          \
		lock_check_cancel(#name);                                                          \
		return unchecked.name args;                                                        \
	}
#define LIBC_VARIADIC(ret, name, params, last, args, raw)                                          \
	static ret checked_##name params                                                           \
	{                                                                                          \
		va_list ap;                                                                        \
		long rest;                                                                         \
                                                                                                   \
		va_start(ap, last);                                                                \
		rest = va_arg(ap, long);                                                           \
		va_end(ap);                                                                        \
		lock_check_cancel(#name);                                                          \
		return unchecked.name args;                                                        \
	}
#include "runtime/libc.def"
#undef LIBC_FN
#undef LIBC_VARIADIC
#define STORE(name, fn)                                                                            \
	(__atomic_store_n((void **)&unchecked.name, fn, __ATOMIC_RELAXED),                         \
	 __atomic_store_n((void **)&libc.name, (void *)checked_##name, __ATOMIC_RELEASE))
#else
#define STORE(name, fn) __atomic_store_n((void **)&libc.name, fn, __ATOMIC_RELAXED)
#endif

struct libc_table raw = {
#define LIBC_FN(ret, name, params, args, raw) .name = raw_##name##_call,
#define LIBC_VARIADIC(ret, name, params, last, args, raw) .name = raw_##name##_call,
#include "runtime/libc.def"
#undef LIBC_FN
#undef LIBC_VARIADIC
	.syscall = raw_syscall,
};

/* One entry: the next object's function of that name, else the system call. */
static void *resolve(const char *name, void *fallback)
{
	void *fn = dlsym(RTLD_NEXT, name);

	if (fn)
		return fn;
	dlerror(); /* not the application's error */
	return fallback;
}

/*
 * Threads that come here at once all store the same values: no lock, so that a thread which holds
 * the loader's lock and one that waits for it cannot block each other.
 */
void libc_load(void)
{
	int err = errno;

	if (__atomic_load_n(&libc_loaded, __ATOMIC_ACQUIRE) || loading)
		return;
	loading++;
#define LIBC_FN(ret, name, params, args, raw)                                                      \
	STORE(name, resolve(#name, (void *)raw_##name##_call));
#define LIBC_VARIADIC(ret, name, params, last, args, raw)                                          \
	STORE(name, resolve(#name, (void *)raw_##name##_call));
#include "runtime/libc.def"
#undef LIBC_FN
#undef LIBC_VARIADIC
#ifdef __SANITIZE_THREAD__
	/* It follows descriptors by libc's functions: what it did not see closed seems to be
	 * shared. */
	raw.close = libc.close;
#endif
	loading--;
	__atomic_store_n(&libc_errno_distance, (char *)&errno - libc_thread_pointer(),
			 __ATOMIC_RELAXED);
	__atomic_store_n(&libc_loaded, true, __ATOMIC_RELEASE);
	errno = err;
}

__attribute__((constructor(101))) static void libc_load_first(void)
{
	libc_load();
}
