/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "runtime/own_fd.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/clock.h"
#include "runtime/libc.h"
#include "runtime/lock.h"

/*
 * With a higher soft limit the numbers begin here: the kernel's table of descriptors is as long as
 * the highest number needs (8 bytes each), and fork() copies it.
 */
#define NUMBERS_FROM_MAX 65536u
/* numbers above the hard limit */
#define ROOM_ABOVE 4096u
/* of numbers that the program may have */
#define TRIES_BELOW 256
/* stdin, stdout and stderr: daemons close and reopen them */
#define STANDARD_FDS 3

/* Of an OWN_FD() of another thread, which takes microseconds where nobody else runs: 500 ms. */
#define LOOKS_MOST 5000
#define LOOK_NS 100000
/* That a socket is moved to a lower number. */
#define LOWER_MOST 100
/* Of OWN_FD(), while a number is closed, and of who closes. 50 ms: its data may be written first.
 */
#define LOOKS_BARRED 500

_Atomic uint64_t own_fd_bits[OWN_FD_MAX / 64];
_Atomic uint32_t own_fd_begun, own_fd_over;
/* Threads between own_fd_bar() and own_fd_unbar(). */
static _Atomic uint32_t barred;
/* OWN_FD()s that wait for those. They come first: who closes all numbers has no pauses. */
static _Atomic uint32_t held_up;
/* Of this thread. */
static __thread struct {
	/* of own_fd_begun: a handler does not wait for what it has interrupted */
	uint16_t begun;
	/* it is one of barred, also after a handler has left close() by siglongjmp() */
	bool barring;
} here;

/*
 * Guards every change of the entries, the closing of what is entered, and RLIMIT_NOFILE while it is
 * raised. Taken last; no handler runs under it (lock_enter()), and nothing under it is a
 * cancellation point.
 */
static pthread_mutex_t own_lock = PTHREAD_MUTEX_INITIALIZER;
/* Threads between own_fd_limit_keep() and own_fd_limit_unkeep(). */
static unsigned limit_kept;
/* The hard limit could not be raised: not asked again until the process's rights change. */
static bool refused;
/* Of the thread between own_fd_room_begin() and own_fd_room_end(). */
static struct rlimit room_before;
static int room_cancel;

void own_fd_limit_lock(void)
{
	lock_enter();
	pthread_mutex_lock(&own_lock);
}

void own_fd_limit_unlock(void)
{
	pthread_mutex_unlock(&own_lock);
	lock_leave();
}

/* What threads had begun that the child does not have. */
static void forget_threads(void)
{
	limit_kept = 0;
	atomic_store(&own_fd_over, atomic_load(&own_fd_begun));
	atomic_store(&barred, 0);
	atomic_store(&held_up, 0);
	here.begun = 0;
	here.barring = false;
}

void own_fd_forked(void)
{
	forget_threads();
	own_fd_limit_unlock();
}

void own_fd_forked_unprepared(void)
{
	forget_threads();
	pthread_mutex_init(&own_lock, NULL);
}

static void wait_for_the_bar(void)
{
	atomic_fetch_add(&held_up, 1);
	for (int looks = 0; atomic_load(&barred) && looks < LOOKS_BARRED; looks++) {
		atomic_fetch_add(&own_fd_over, 1);
		clock_sleep_ns(LOOK_NS);
		atomic_fetch_add(&own_fd_begun, 1);
	}
	atomic_fetch_sub(&held_up, 1);
}

/* The stores of both sides come before their loads: one of the two sees the other one. */
void own_fd_begin(void)
{
	here.begun++;
	atomic_fetch_add(&own_fd_begun, 1);
	if (__builtin_expect(atomic_load(&barred) && !here.barring, 0))
		wait_for_the_bar();
}

void own_fd_end(void)
{
	atomic_fetch_add(&own_fd_over, 1);
	here.begun--;
}

/* Other threads are in none. over is read first: what ends between the two counts as being there.
 */
static bool others_are_out(void)
{
	uint32_t over = atomic_load(&own_fd_over);

	return atomic_load(&own_fd_begun) - over == here.begun;
}

/*
 * Until no other thread is in an OWN_FD(). Who was waited for in vain is not waited for again: a
 * child that clone(2) made without our knowing has not got the thread that would end it.
 */
static void wait_for_others(void)
{
	static _Atomic uint64_t
		in_vain; /* own_fd_over then, and a bit that says that there was one */
	uint64_t now = 0;

	for (int looks = 0; !others_are_out() && looks < LOOKS_MOST; looks++) {
		now = 1ull << 32 | atomic_load(&own_fd_over);
		if (now == atomic_load(&in_vain))
			return;
		clock_sleep_ns(LOOK_NS);
	}
	if (now && !others_are_out())
		atomic_store(&in_vain, now);
}

void own_fd_bar(void)
{
	int err = errno;

	if (!here.barring) {
		for (int looks = 0; atomic_load(&held_up) && looks < LOOKS_BARRED; looks++)
			clock_sleep_ns(LOOK_NS);
		here.barring = true;
		atomic_fetch_add(&barred, 1);
	}
	wait_for_others();
	errno = err;
}

void own_fd_unbar(void)
{
	if (!here.barring)
		return;
	here.barring = false;
	atomic_fetch_sub(&barred, 1);
}

void own_fd_limit_keep(void)
{
	own_fd_limit_lock();
	limit_kept++;
	own_fd_limit_unlock();
}

void own_fd_limit_unkeep(void)
{
	own_fd_limit_lock();
	limit_kept--;
	own_fd_limit_unlock();
}

static void enter(unsigned fd)
{
	if (fd < OWN_FD_MAX)
		atomic_fetch_or_explicit(&own_fd_bits[fd / 64], 1ull << fd % 64,
					 memory_order_relaxed);
}

static void leave(unsigned fd)
{
	if (fd < OWN_FD_MAX)
		atomic_fetch_and_explicit(&own_fd_bits[fd / 64], ~(1ull << fd % 64),
					  memory_order_relaxed);
}

unsigned own_fd_next(unsigned from)
{
	for (unsigned i = from / 64; i < OWN_FD_MAX / 64; i++) {
		uint64_t bits = atomic_load_explicit(&own_fd_bits[i], memory_order_relaxed);

		if (i == from / 64)
			bits &= ~0ull << from % 64;
		if (bits)
			return i * 64 + (unsigned)__builtin_ctzll(bits);
	}
	return OWN_FD_MAX;
}

static long raw_close(int fd)
{
	return libc_raw(SYS_close, fd, 0, 0, 0, 0, 0);
}

/* A copy of fd at the first free number from there on, or -1. */
static int copy_from(int fd, unsigned from)
{
	return (int)libc_raw(SYS_fcntl, fd, F_DUPFD_CLOEXEC, from, 0, 0, 0);
}

static bool limit_get(struct rlimit *l)
{
	return !libc_raw(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, (long)(uintptr_t)l, 0, 0);
}

static bool limit_set(const struct rlimit *l)
{
	return !libc_raw(SYS_prlimit64, 0, RLIMIT_NOFILE, (long)(uintptr_t)l, 0, 0, 0);
}

static unsigned first_number(const struct rlimit *l)
{
	return l->rlim_cur < NUMBERS_FROM_MAX ? (unsigned)l->rlim_cur : NUMBERS_FROM_MAX;
}

void own_fd_rights_changed(void)
{
	own_fd_limit_lock();
	refused = false;
	own_fd_limit_unlock();
}

/*
 * Lock held. Raises the soft limit; false: there is no need, or no room. Where it is the hard one,
 * both are raised, which takes CAP_SYS_RESOURCE.
 */
static bool limit_raise(const struct rlimit *l)
{
	bool hard = l->rlim_cur == l->rlim_max;
	rlim_t to = hard ? l->rlim_max + ROOM_ABOVE : l->rlim_max;
	const struct rlimit raised = {to, to};

	if (limit_kept || l->rlim_cur > NUMBERS_FROM_MAX || (hard && refused))
		return false;
	if (limit_set(&raised))
		return true;
	refused |= hard;
	return false;
}

unsigned own_fd_too_few(void)
{
	unsigned few = 0;
	struct rlimit l;

	own_fd_limit_lock();
	/* Another thread that forks keeps the limit: nobody can tell now. */
	if (limit_get(&l) && !limit_kept && l.rlim_cur < OWN_FD_LEAST &&
	    l.rlim_max - l.rlim_cur < OWN_FDS_USUAL) {
		if (l.rlim_cur == l.rlim_max && limit_raise(&l))
			limit_set(&l);
		else
			few = (unsigned)l.rlim_cur;
	}
	own_fd_limit_unlock();
	return few;
}

/* Lock held. A copy of fd above the soft limit, or -1. */
static int copy_above(int fd, const struct rlimit *l)
{
	bool raised = limit_raise(l);
	unsigned from = first_number(l);
	int copy = raised || from < l->rlim_cur ? copy_from(fd, from) : -1;

	if (raised)
		limit_set(l);
	return copy;
}

/* Lock held. A copy of fd at the highest free number that the soft limit allows, or -1. */
static int copy_below(int fd, const struct rlimit *l)
{
	int n = (int)first_number(l), tries = TRIES_BELOW, copy = -1;

	while (copy < 0 && --n >= STANDARD_FDS && tries) {
		if (own_fd_is(n))
			continue;
		copy = copy_from(fd, (unsigned)n);
		tries--;
	}
	return copy < 0 ? copy_from(fd, STANDARD_FDS) : copy;
}

/* Lock held. */
static int copy_high(int fd)
{
	struct rlimit l;
	int copy;

	if (!limit_get(&l))
		return -1;
	copy = copy_above(fd, &l);
	return copy < 0 ? copy_below(fd, &l) : copy;
}

/* Lock held. fd's number, or the one that it has been moved to; -1 when it could not be kept. */
static int move(int fd)
{
	int copy = copy_high(fd);

	if (copy < fd && fd >= STANDARD_FDS) {
		if (copy >= 0)
			raw_close(copy);
		return fd;
	}
	raw_close(fd);
	return copy;
}

int own_fd_adopt(int fd)
{
	int err = errno, number;

	if (fd < 0)
		return fd;
	own_fd_limit_lock();
	/* Under the lock: own_fd_close() frees a number before its entry goes. */
	number = own_fd_is(fd) ? fd : move(fd);
	if (number >= 0)
		enter((unsigned)number);
	own_fd_limit_unlock();
	errno = number < 0 ? EMFILE : err;
	return number;
}

int own_fd_copy(int fd)
{
	int copy;

	own_fd_limit_lock();
	copy = copy_high(fd);
	if (copy >= 0)
		enter((unsigned)copy);
	own_fd_limit_unlock();
	return copy;
}

/* A copy of fd at the lowest free number from least on, or -1. */
static int copy_lowest(int fd, int least)
{
	int flags = (int)libc_raw(SYS_fcntl, fd, F_GETFD, 0, 0, 0, 0);

	return (int)libc_raw(SYS_fcntl, fd, flags & FD_CLOEXEC ? F_DUPFD_CLOEXEC : F_DUPFD, least,
			     0, 0, 0);
}

int own_fd_lowest(int fd, int least)
{
	int err = errno, copy, looks = 0;
	uint32_t begun;

	if (fd < 0)
		return fd;
	/* Again, where an OWN_FD() began after the look: it may have had the number. */
	do {
		wait_for_others();
		begun = atomic_load(&own_fd_begun);
		copy = copy_lowest(fd, least);
		if (copy >= 0)
			raw_close(copy < fd ? fd : copy);
		if (copy >= 0 && copy < fd)
			fd = copy;
		if (begun == atomic_load(&own_fd_begun))
			break;
	} while (++looks < LOWER_MOST);
	errno = err;
	return fd;
}

bool own_fd_adopt_pair(int fds[2])
{
	fds[0] = own_fd_adopt(fds[0]);
	fds[1] = own_fd_adopt(fds[1]);
	if (fds[0] >= 0 && fds[1] >= 0)
		return true;
	for (int i = 0; i < 2; i++)
		if (fds[i] >= 0)
			own_fd_close(fds[i]);
	errno = EMFILE;
	return false;
}

/*
 * By the bare call as its close() is: ThreadSanitizer would take the number, which is free again as
 * soon as the descriptor has been moved, for one that two threads have at once.
 */
int own_eventfd(unsigned count)
{
	return OWN_FD(
		(int)libc_raw(SYS_eventfd2, (long)count, EFD_CLOEXEC | EFD_NONBLOCK, 0, 0, 0, 0));
}

int own_fd_memory(const char *name, size_t bytes, unsigned flags)
{
	int err, fd = OWN_FD((int)libc_raw(SYS_memfd_create, (long)(uintptr_t)name,
					   MFD_CLOEXEC | MFD_ALLOW_SEALING | flags, 0, 0, 0, 0));

	if (fd < 0)
		return -1;
	if (!ftruncate(fd, (off_t)bytes) &&
	    !libc_raw(SYS_fcntl, fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, 0, 0,
		      0))
		return fd;
	err = errno;
	own_fd_close(fd);
	errno = err;
	return -1;
}

bool own_fd_memory_is(int fd)
{
	long seals = libc_raw(SYS_fcntl, fd, F_GET_SEALS, 0, 0, 0, 0);

	return seals >= 0 && seals & F_SEAL_SHRINK;
}

int own_fd_close(int fd)
{
	int ret;

	if (!own_fd_is(fd))
		return (int)raw_close(fd);
	/* In one step: another thread may be given the number as soon as it is free. */
	own_fd_limit_lock();
	ret = (int)raw_close(fd);
	leave((unsigned)fd);
	own_fd_limit_unlock();
	return ret;
}

void own_fd_lost(int fd)
{
	if (own_fd_is(fd))
		leave((unsigned)fd);
}

FILE *own_fopen(const char *path, const char *mode)
{
	int flags = *mode == 'r' ? O_RDONLY : O_WRONLY | O_CREAT | O_TRUNC, err;
	int fd = OWN_FD(raw.open(path, flags | O_CLOEXEC, 0666));
	FILE *f = fd < 0 ? NULL : libc.fdopen(fd, mode);

	if (!f && fd >= 0) {
		err = errno;
		own_fd_close(fd);
		errno = err;
	}
	return f;
}

/* What stdio closes is the program's to close for the moment that takes. */
int own_fclose(FILE *f)
{
	own_fd_lost(fileno(f));
	return libc.fclose(f);
}

DIR *own_opendir(const char *path)
{
	int fd = OWN_FD(raw.open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)), err;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (!d && fd >= 0) {
		err = errno;
		own_fd_close(fd);
		errno = err;
	}
	return d;
}

void own_closedir(DIR *d)
{
	own_fd_lost(dirfd(d));
	closedir(d);
}

bool own_fd_room_begin(void)
{
	int cancel;

	/* The call that follows may be a cancellation point. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	own_fd_limit_lock();
	if (limit_get(&room_before) && limit_raise(&room_before)) {
		room_cancel = cancel;
		return true;
	}
	own_fd_limit_unlock();
	pthread_setcancelstate(cancel, NULL);
	errno = EMFILE;
	return false;
}

void own_fd_room_end(void)
{
	int cancel = room_cancel, err = errno;

	limit_set(&room_before);
	own_fd_limit_unlock();
	pthread_setcancelstate(cancel, NULL);
	errno = err;
}

int own_fd_dup3(int oldfd, int newfd, int flags)
{
	int ret = libc.dup3(oldfd, newfd, flags);

	if (ret < 0 && errno == EBADF && own_fd_room_begin()) {
		ret = libc.dup3(oldfd, newfd, flags);
		own_fd_room_end();
	}
	return ret;
}
