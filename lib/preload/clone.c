/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Processes that clone() makes and namespaces that a thread enters (sandboxes, vsftpd, runtimes of
 * containers).
 *
 * A clone() that copies the memory is a fork() of which libc tells nobody: what the library does
 * around fork() it does here itself, and all sockets go to the kernel, because the child may be in
 * namespaces where nothing of the parent can be asked. With CLONE_VM and CLONE_VFORK it is a
 * vfork(), and is treated as one (process.c): the child gets memory of its own. A thread
 * (CLONE_THREAD) is libc's affair.
 */
#include "preload/clone.h"

#include <linux/sched.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "net/net.h"
#include "preload/memory.h"
#include "preload/poll_calls.h"
#include "preload/preload.h"
#include "preload/privileges.h"
#include "preload/start.h"
#include "runtime/runtime.h"

#define VFORK (CLONE_VM | CLONE_VFORK)
/* The size of clone3()'s structure from which on it holds what we read. */
#define CLONE_ARGS_MIN CLONE_ARGS_SIZE_VER0

static bool is_idle(void)
{
	return table_empty() && !library_has_begun();
}

/* flags without what makes the child use its parent's memory, where it is a vfork()'s. */
static unsigned long as_copy(unsigned long flags)
{
	bool vforks = (flags & VFORK) == VFORK && !(flags & (CLONE_THREAD | CLONE_FILES));

	return vforks && !is_idle() ? flags & ~(unsigned long)VFORK : flags;
}

/* The library has to do with a process that is made with these flags. */
static bool concerns(unsigned long flags)
{
	return !(flags & CLONE_VM) && !is_idle();
}

/* call makes a copy of this process; its value is the child's pid in the parent, 0 in the child. */
#define COPIED(call)                                                                               \
	({                                                                                         \
		long pid_;                                                                         \
                                                                                                   \
		KEEPING_ERRNO(atfork_prepare());                                                   \
		pid_ = (call);                                                                     \
		if (pid_)                                                                          \
			KEEPING_ERRNO(atfork_parent());                                            \
		else                                                                               \
			KEEPING_ERRNO(atfork_child());                                             \
		pid_;                                                                              \
	})

long clone_raw(unsigned long flags, long stack, const long rest[3])
{
	/* A child with a stack of its own would return to nowhere from here: not even the flags. */
	unsigned long f = stack ? flags : as_copy(flags);

	if (!concerns(f))
		return libc.syscall(SYS_clone, f, stack, rest[0], rest[1], rest[2]);
	return COPIED(libc.syscall(SYS_clone, f, stack, rest[0], rest[1], rest[2]));
}

long clone3_raw(const void *args, unsigned long size)
{
	struct clone_args copy;

	if (is_idle() || size < CLONE_ARGS_MIN || size > sizeof(copy))
		return libc.syscall(SYS_clone3, args, size);
	memory_touch_begin();
	if (!memory_ends(args, size))
		return libc.syscall(SYS_clone3, args, size);
	memset(&copy, 0, sizeof(copy));
	memcpy(&copy, args, size);
	if (!copy.stack)
		copy.flags = as_copy(copy.flags);
	if (!concerns(copy.flags))
		return libc.syscall(SYS_clone3, &copy, size);
	return COPIED(libc.syscall(SYS_clone3, &copy, size));
}

/* Read by the child in its copy of its parent's stack. */
struct entry {
	int (*fn)(void *);
	void *arg;
};

static int cloned_child(void *p)
{
	struct entry e = *(const struct entry *)p;

	KEEPING_ERRNO(atfork_child());
	return e.fn(e.arg);
}

PRELOAD int clone(int (*fn)(void *), void *stack, int flags, void *arg, ...)
{
	unsigned long f = as_copy((unsigned)flags);
	struct entry e = {fn, arg};
	pid_t *ptid, *ctid;
	va_list ap;
	void *tls;
	int pid;

	va_start(ap, arg);
	ptid = va_arg(ap, pid_t *);
	tls = va_arg(ap, void *);
	ctid = va_arg(ap, pid_t *);
	va_end(ap);
	if (!fn || !stack || !concerns(f))
		return libc.clone(fn, stack, (int)f, arg, ptid, tls, ctid);
	KEEPING_ERRNO(atfork_prepare());
	pid = libc.clone(cloned_child, stack, (int)f, &e, ptid, tls, ctid);
	KEEPING_ERRNO(atfork_parent());
	return pid;
}

/* --- namespaces */

/* A thread of this process, or of one before it, may be in another network namespace than others.
 */
static _Atomic bool moved;

static bool cookie_of(int fd, uint64_t *cookie)
{
	socklen_t len = sizeof(*cookie);

	return !libc.getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, cookie, &len);
}

bool netns_is_ours(int fd)
{
	uint64_t a, b;

	if (likely(!atomic_load_explicit(&moved, memory_order_relaxed)))
		return true;
	return cookie_of(fd, &a) && cookie_of(net_fd(), &b) && a == b;
}

/* The calling thread leaves namespaces, and with them, perhaps, the rights in those. */
static void leaving(int which)
{
	/* 0: setns() of whatever its descriptor is. */
	if (!which || which & CLONE_NEWNET)
		atomic_store_explicit(&moved, true, memory_order_relaxed);
	if (!which || which & (CLONE_NEWNET | CLONE_NEWUSER | CLONE_NEWNS))
		privileges_ending((uid_t)-1);
}

PRELOAD int unshare(int flags)
{
	if (flags & (CLONE_NEWNET | CLONE_NEWUSER | CLONE_NEWNS))
		leaving(flags);
	return libc.unshare(flags);
}

PRELOAD int setns(int fd, int which)
{
	leaving(which);
	return libc.setns(fd, which);
}
