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
#include "stack/stack.h"

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
static int internal_thread_does(void (*fn)(void *arg), void *arg)
{
	int err;

	if (from_library() || handlers_inside)
		return 0;
	libc_internal_begin();
	err = worker_run(fn, arg);
	libc_internal_end();
	return err == -ESRCH ? 0 : err; /* without the thread there is nothing to do */
}

/*
 * A process may read the memory of another one of its user, and fetch its descriptors (ptrace(2)):
 * that user's are not to get at what others of the old user have in common with us.
 */
static void user_leaves(void *arg)
{
	stacks_user_changes(*(uid_t *)arg);
}

static void leave_others(uid_t uid)
{
	int err = stacks_user_matters() ? internal_thread_does(user_leaves, &uid) : 0;

	if (err)
		log_error("user %u: other processes' packets may stay in reach of it (%s): restart "
			  "this program",
			  (unsigned)uid, strerror(-err));
}

static void user_to_be(uid_t uid)
{
	if (!from_library() && !handlers_inside)
		stacks_user_to_be(uid);
}

/* What all three users are when these are set (-1: it stays). -1: they are not one and the same. */
static uid_t all_of(uid_t ruid, uid_t euid, uid_t suid)
{
	uid_t real, effective, saved;

	if (getresuid(&real, &effective, &saved) ||
	    (!caps_have(CAPS_BIT(CAP_SETUID)) && euid != (uid_t)-1 && euid != real &&
	     euid != effective && euid != saved))
		return (uid_t)-1; /* the kernel will not have it */
	real = ruid == (uid_t)-1 ? real : ruid;
	effective = euid == (uid_t)-1 ? effective : euid;
	saved = suid == (uid_t)-1 ? saved : suid;
	return real == effective && effective == saved ? effective : (uid_t)-1;
}

/*
 * A thread whose effective user is root and is to be euid loses its capabilities. all: what its
 * real and its saved user become as well; -1: who may come back keeps the statistics' file, as its
 * new user could cut it off under us.
 */
static void user_changes(uid_t euid, uid_t all)
{
	/* First: what is opened now, others who become this user may share. */
	if (all != (uid_t)-1)
		KEEPING_ERRNO(user_to_be(all));
	if (euid != 0 && euid != (uid_t)-1)
		privileges_ending(all);
	if (all != (uid_t)-1)
		KEEPING_ERRNO(leave_others(all));
}

static void user_stays(void)
{
	leave_others(geteuid());
}

/* After user_changes(); ret: of libc's call. Returns it. */
static int user_changed(uid_t all, int ret)
{
	own_fd_rights_changed();
	if (all == (uid_t)-1)
		return ret;
	KEEPING_ERRNO(user_to_be((uid_t)-1));
	if (ret)
		KEEPING_ERRNO(user_stays());
	return ret;
}

PRELOAD int setuid(uid_t uid)
{
	uid_t all = all_of(uid, uid, uid);

	user_changes(uid, all);
	return user_changed(all, libc.setuid(uid));
}

PRELOAD int seteuid(uid_t euid)
{
	uid_t all = all_of((uid_t)-1, euid, (uid_t)-1);

	user_changes(euid, all);
	return user_changed(all, libc.seteuid(euid));
}

/* What setreuid() makes the saved user (-1: it stays). */
static uid_t saved_by_setreuid(uid_t ruid, uid_t euid)
{
	uid_t real, effective, saved;

	if (getresuid(&real, &effective, &saved) ||
	    (ruid == (uid_t)-1 && (euid == (uid_t)-1 || euid == real)))
		return (uid_t)-1;
	return euid == (uid_t)-1 ? effective : euid;
}

PRELOAD int setreuid(uid_t ruid, uid_t euid)
{
	uid_t all = all_of(ruid, euid, saved_by_setreuid(ruid, euid));

	user_changes(euid, all);
	return user_changed(all, libc.setreuid(ruid, euid));
}

PRELOAD int setresuid(uid_t ruid, uid_t euid, uid_t suid)
{
	uid_t all = all_of(ruid, euid, suid);

	user_changes(euid, all);
	return user_changed(all, libc.setresuid(ruid, euid, suid));
}

static void follow(void *arg)
{
	int err = caps_follow(arg, ~OWN_WORK);

	if (err)
		log_debug("capset() of the internal thread: %s", strerror(-err));
}

static void capabilities_changed(void)
{
	struct caps_sets own = caps_own();

	own_fd_rights_changed();
	internal_thread_does(follow, &own);
}

PRELOAD int capset(void *header, const void *data)
{
	const struct __user_cap_data_struct *d = data;
	int ret;

	/* Else the kernel says EFAULT. */
	if (d && memory_touchable() && memory_ends(d, sizeof(*d)) &&
	    (d->effective & NEEDED) != NEEDED)
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
	if (option == PR_SET_SECCOMP)
		sandbox_filter_comes(SYS_prctl, option, (long)x.a, (long)x.b);
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
