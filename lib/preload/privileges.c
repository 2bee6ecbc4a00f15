/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Before a process gives its privileges away: what the listening and bound sockets that it has will
 * need is opened now, because it cannot be opened afterwards. nginx's workers, haproxy and most
 * daemons become another user between listen() and their first wait.
 */
#include "preload/preload.h"

#include <stdarg.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "handover/handover.h"
#include "preload/memory.h"
#include "preload/privileges.h"
#include "preload/start.h"
#include "preload/poll_calls.h"
#include "socket/tcp/sock.h"

/*
 * What attaching to an interface asks for (a program without CAP_BPF may have CAP_SYS_ADMIN;
 * opening says so itself).
 */
#define NEEDED (CAPS_BIT(CAP_NET_ADMIN) | CAPS_BIT(CAP_NET_RAW))

static void prepare(uid_t uid)
{
	if (!caps_have(NEEDED))
		return;
	library_preopen(uid);
	/* What children may claim could not be handed over any more. */
	handover_before_rights_go();
}

void privileges_ending(uid_t uid)
{
	if (table_empty())
		return;
	KEEPING_ERRNO(prepare(uid));
}

/*
 * A thread whose effective user is root and is to be euid loses its capabilities. all: what its
 * real and its saved user become as well; -1: who may come back keeps the statistics' file, as its
 * new user could cut it off under us.
 */
static void user_changes(uid_t euid, uid_t all)
{
	if (euid != 0 && euid != (uid_t)-1)
		privileges_ending(all);
}

PRELOAD int setuid(uid_t uid)
{
	user_changes(uid, uid);
	return libc.setuid(uid);
}

PRELOAD int seteuid(uid_t euid)
{
	user_changes(euid, (uid_t)-1);
	return libc.seteuid(euid);
}

PRELOAD int setreuid(uid_t ruid, uid_t euid)
{
	user_changes(euid, ruid == euid ? euid : (uid_t)-1);
	return libc.setreuid(ruid, euid);
}

PRELOAD int setresuid(uid_t ruid, uid_t euid, uid_t suid)
{
	user_changes(euid, ruid == euid && suid == euid ? euid : (uid_t)-1);
	return libc.setresuid(ruid, euid, suid);
}

/* What the internal thread works with. */
#define OWN_WORK                                                                                   \
	(CAPS_BIT(CAP_NET_ADMIN) | CAPS_BIT(CAP_NET_RAW) | CAPS_BIT(CAP_IPC_LOCK) |                \
	 CAPS_BIT(CAP_SYS_ADMIN) | CAPS_BIT(CAP_BPF) | CAPS_BIT(CAP_PERFMON))

/*
 * Capabilities are a thread's, but setuid(), setgroups() and the like are done in every thread by
 * libc, which aborts when one of them is refused what another one may, or the other way round: the
 * internal thread may what the program may who calls capset() or prctl(). What it needs itself it
 * keeps.
 */
static void internal_thread_does(void (*fn)(void *arg), void *arg)
{
	if (from_library() || handlers_inside)
		return;
	libc_internal_begin();
	(void)worker_run(fn, arg);
	libc_internal_end();
}

static void follow(void *arg)
{
	int err = caps_follow(arg, ~OWN_WORK);

	if (err)
		log_debug("capset() of the internal thread: %s", strerror(-err));
}

static void capabilities_changed(void)
{
	struct caps own = caps_own();

	internal_thread_does(follow, &own);
}

PRELOAD int capset(void *header, const void *data)
{
	const struct __user_cap_data_struct *d = data;
	int ret;

	/* Else the kernel says EFAULT. */
	if (d && memory_ends(d, sizeof(*d)) && (d->effective & NEEDED) != NEEDED)
		privileges_ending((uid_t)-1);
	ret = libc.capset(header, data);
	if (!ret)
		KEEPING_ERRNO(capabilities_changed());
	return ret;
}

struct prctl_args {
	int option;
	unsigned long a, b, c, d;
};

static int do_prctl(const struct prctl_args *x)
{
	return (int)libc_raw(SYS_prctl, x->option, (long)x->a, (long)x->b, (long)x->c, (long)x->d,
			     0);
}

static void prctl_too(void *arg)
{
	if (do_prctl(arg))
		log_debug("prctl() of the internal thread: %s", strerror(errno));
}

/* What a change of the user leaves of a thread's capabilities is each thread's own affair, too. */
PRELOAD int prctl(int option, ...)
{
	struct prctl_args x = {.option = option};
	va_list ap;
	int ret;

	va_start(ap, option);
	x.a = va_arg(ap, unsigned long);
	x.b = va_arg(ap, unsigned long);
	x.c = va_arg(ap, unsigned long);
	x.d = va_arg(ap, unsigned long);
	va_end(ap);
	ret = do_prctl(&x);
	if (!ret && (option == PR_SET_KEEPCAPS || option == PR_SET_SECUREBITS))
		KEEPING_ERRNO(internal_thread_does(prctl_too, &x));
	return ret;
}

/*
 * Behind another root neither /proc nor bpffs is there: daemons do this just before they change
 * their user.
 */
PRELOAD int chroot(const char *path)
{
	privileges_ending((uid_t)-1);
	return libc.chroot(path);
}
