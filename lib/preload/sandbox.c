/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A seccomp filter, which this process was started with (systemd's SystemCallFilter=, whose usual
 * answer is SIGSYS) or which the program makes for itself (libseccomp): it lets the program make
 * its calls, and may end whoever makes ours, or refuse them. Nothing tells what is in a filter. So
 * a child of our own makes each call first, with arguments by which it does nothing.
 */
#include "preload/preload.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/bpf.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "preload/start.h"

struct tried {
	const char *name;
	long nr, a, b, c;
};

#define CALL(name, ...)                                                                            \
	{                                                                                          \
#name, SYS_##name, __VA_ARGS__                                                     \
	}

/*
 * The library's calls. Those that a program has made by the time of its first socket matter of a
 * filter that comes later.
 */
static const struct tried tried[] = {
	CALL(bpf, BPF_MAP_CREATE, 0, 0),
	CALL(socket, AF_NETLINK, -1, 0),
	CALL(socket, AF_PACKET, -1, 0),
	CALL(socket, AF_XDP, -1, 0),
	CALL(socketpair, AF_UNIX, -1, 0),
	CALL(bind, -1, 0, 0),
	CALL(connect, -1, 0, 0),
	CALL(listen, -1, 0, 0),
	CALL(shutdown, -1, 0, 0),
	CALL(accept4, -1, 0, 0),
	CALL(getsockname, -1, 0, 0),
	CALL(getpeername, -1, 0, 0),
	CALL(getsockopt, -1, 0, 0),
	CALL(setsockopt, -1, 0, 0),
	CALL(sendto, -1, 0, 0),
	CALL(sendmsg, -1, 0, 0),
	CALL(sendmmsg, -1, 0, 0),
	CALL(recvfrom, -1, 0, 0),
	CALL(recvmsg, -1, 0, 0),
	CALL(recvmmsg, -1, 0, 0),
	CALL(ioctl, -1, 0, 0),
	CALL(epoll_create1, -1, 0, 0),
	CALL(epoll_ctl, -1, 0, -1),
	CALL(epoll_pwait, -1, 0, 0),
	CALL(epoll_pwait2, -1, 0, 0),
	CALL(ppoll, 0, UINT_MAX, 0),
	CALL(pselect6, -1, 0, 0),
	CALL(eventfd2, 0, -1, 0),
	CALL(timer_create, -1, 0, 0),
	CALL(timer_settime, -1, 0, 0),
	CALL(timer_delete, -1, 0, 0),
	CALL(timerfd_create, -1, 0, 0),
	CALL(timerfd_settime, -1, 0, 0),
	CALL(memfd_create, 0, -1, 0),
	CALL(ftruncate, -1, 0, 0),
	CALL(fallocate, -1, 0, 0),
	CALL(fchmod, -1, 0, 0),
	CALL(fcntl, -1, 0, 0),
	CALL(dup3, -1, -1, 0),
	CALL(pipe2, 0, -1, 0),
	CALL(close, -1, 0, 0),
	CALL(read, -1, 0, 0),
	CALL(write, -1, 0, 0),
	CALL(openat, -1, 0, 0),
	CALL(newfstatat, -1, 0, 0),
	CALL(faccessat2, -1, 0, 0),
	CALL(getdents64, -1, 0, 0),
	CALL(statfs, 0, 0, 0),
	CALL(mkdirat, -1, 0, 0),
	CALL(renameat2, -1, 0, -1),
	CALL(unlinkat, -1, 0, -1),
#ifdef SYS_poll
	CALL(poll, 0, 0, 0),
	CALL(epoll_wait, -1, 0, 0),
	CALL(mkdir, 0, 0, 0),
	CALL(rename, 0, 0, 0),
	CALL(unlink, 0, 0, 0),
	CALL(rmdir, 0, 0, 0),
#endif
	CALL(mount, 0, 0, 0),
	CALL(uname, 0, 0, 0),
	CALL(getrandom, 0, 0, -1),
	CALL(lseek, -1, 0, 0),
	CALL(mmap, 0, 0, 0),
	CALL(brk, 0, 0, 0),
	CALL(mprotect, -1, 0, 0),
	CALL(mremap, 0, 0, 0),
	CALL(madvise, 0, 0, -1),
	CALL(munmap, 0, 0, 0),
	CALL(prlimit64, 0, RLIM_NLIMITS, 0),
	CALL(capget, 0, 0, 0),
	CALL(prctl, -1, 0, 0),
	CALL(membarrier, -1, 0, 0),
	CALL(futex, 0, -1, 0),
	CALL(clone3, 0, 0, 0),
	CALL(clone, CLONE_SIGHAND, 0, 0),
	CALL(wait4, -1, 0, -1),
	CALL(waitid, -1, 0, 0),
	CALL(pidfd_open, -1, 0, 0),
	CALL(pidfd_getfd, -1, -1, 0),
	CALL(kill, INT_MAX, 0, 0),
	CALL(tgkill, -1, -1, 0),
	CALL(rt_tgsigqueueinfo, -1, -1, 0),
	CALL(rt_sigaction, -1, 0, 0),
	CALL(rt_sigprocmask, -1, 0, 0),
	CALL(getpid, 0, 0, 0),
	CALL(getppid, 0, 0, 0),
	CALL(gettid, 0, 0, 0),
	CALL(geteuid, 0, 0, 0),
	CALL(sched_yield, 0, 0, 0),
	CALL(sched_getaffinity, 0, 0, 0),
	CALL(nanosleep, 0, 0, 0),
	CALL(clock_nanosleep, -1, 0, 0),
	CALL(clock_gettime, -1, 0, 0),
};

#define TRIED (sizeof(tried) / sizeof(tried[0]))

/* What the child says, in memory that both have. */
struct trial {
	volatile unsigned at; /* the call that it makes */
	/* answered another way with the filter; TRIED: none is, or the kernel does not take it */
	volatile unsigned other;
};

/* As errno; 0 is success. */
NO_SANITIZERS static void answers_of(struct trial *t, int answers[TRIED])
{
	for (unsigned i = 0; i < TRIED; i++) {
		t->at = i;
		answers[i] = libc_raw(tried[i].nr, tried[i].a, tried[i].b, tried[i].c, 0, 0, 0) < 0
				     ? errno
				     : 0;
	}
}

/* libc takes the older call where the kernel does not have this one: sandboxes answer so. */
static bool has_an_older_one(long nr)
{
	return nr == SYS_clone3 || nr == SYS_faccessat2 || nr == SYS_epoll_pwait2;
}

/* Each call, with f as well as before it. */
NO_SANITIZERS static void try_with(struct trial *t, const struct filter_call *f)
{
	int before[TRIED], now[TRIED];

	answers_of(t, before);
	if (libc_raw(f->nr, f->a, f->b, f->c, 0, 0, 0) < 0)
		return;
	answers_of(t, now);
	for (unsigned i = 0; i < TRIED && t->other == TRIED; i++) {
		if (now[i] != before[i] && !(now[i] == ENOSYS && has_an_older_one(tried[i].nr)))
			t->other = i;
	}
}

/*
 * In the child: it has the parent's memory as it was, and makes system calls only. f: NULL, the
 * filters are there.
 */
NO_SANITIZERS _Noreturn static void try_all(struct trial *t, const struct filter_call *f)
{
	int answers[TRIED];
	/*
	 * SIGSYS, by the filter, is its end, without a core of the program's and without a handler.
	 * (The kernel's struct sigaction begins with the handler, and is 32 bytes long.)
	 */
	const uint64_t by_default[4] = {0};

	libc_raw(SYS_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0, 0);
	libc_raw(SYS_rt_sigaction, SIGSYS, (long)(uintptr_t)by_default, 0, sizeof(uint64_t), 0, 0);
	if (f)
		try_with(t, f);
	else
		answers_of(t, answers);
	t->at = TRIED;
	/* A thread's end, as ours has one; an answer instead is none. */
	libc_raw(SYS_exit, 0, 0, 0, 0, 0, 0);
	libc_raw(SYS_exit_group, 0, 0, 0, 0, 0, 0);
	__builtin_trap();
}

/* A child would be the first process of a namespace, which ends with it. */
static bool would_begin_a_namespace(void)
{
	struct stat own, childrens;

	return !stat("/proc/thread-self/ns/pid", &own) &&
	       !stat("/proc/thread-self/ns/pid_for_children", &childrens) &&
	       own.st_ino != childrens.st_ino;
}

/* The child's end, in *status. False and errno: there is none to be had. */
NO_SANITIZERS static bool tried_by_child(struct trial *t, const struct filter_call *f, int *status)
{
	/* No signal tells of its end, and no wait() of the program's finds it. */
	long pid = libc_raw(SYS_clone, 0, 0, 0, 0, 0, 0), ended = -1;

	if (!pid)
		try_all(t, f);
	while (pid > 0 && ended < 0) {
		ended = libc_raw(SYS_wait4, pid, (long)(uintptr_t)status, __WALL, 0, 0, 0);
		if (ended < 0 && errno != EINTR)
			break;
	}
	return ended > 0;
}

/* The reason to stay away, in text, or "". */
static void look(struct trial *t, const struct filter_call *f, char *text, size_t size)
{
	int status = 0;

	t->other = TRIED;
	if (!tried_by_child(t, f, &status))
		snprintf(text, size,
			 "it has a seccomp filter, and no child can look what that allows: %s",
			 strerror(errno));
	else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS)
		snprintf(text, size,
			 "its seccomp filter ends who calls %s(2) (systemd: SystemCallFilter=)",
			 t->at < TRIED ? tried[t->at].name : "exit");
	else if (t->at < TRIED)
		snprintf(text, size,
			 "it has a seccomp filter, and the child that was to look what "
			 "that allows was killed");
	else if (t->other < TRIED)
		snprintf(text, size, "its seccomp filter refuses %s(2)", tried[t->other].name);
}

/* The same, with the memory that it takes. */
static void find_out(const struct filter_call *f, char *text, size_t size)
{
	struct trial *t =
		mmap(NULL, sizeof(*t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (t == MAP_FAILED || would_begin_a_namespace())
		snprintf(text, size,
			 "it has a seccomp filter, and no child can look what that allows");
	else
		look(t, f, text, size);
	if (t != MAP_FAILED)
		munmap(t, sizeof(*t));
}

/* How many filters there are; 0: it cannot be told (before Linux 5.9). */
static unsigned num_filters(void)
{
	const char *line;
	char text[4096];
	long fd, len;
	unsigned n;

	/* Not own_fopen(): it makes calls of the table. */
	fd = libc_raw(SYS_openat, AT_FDCWD, (long)(uintptr_t) "/proc/thread-self/status",
		      O_RDONLY | O_CLOEXEC, 0, 0, 0);
	if (fd < 0)
		return 0;
	len = libc_raw(SYS_read, fd, (long)(uintptr_t)text, sizeof(text) - 1, 0, 0, 0);
	libc_raw(SYS_close, fd, 0, 0, 0, 0, 0);
	text[len > 0 ? len : 0] = '\0';
	line = strstr(text, "Seccomp_filters:");
	return line && sscanf(line, "Seccomp_filters: %u", &n) == 1 ? n : 0;
}

/* The filters that there are have been looked at. */
static bool are_looked_at(void)
{
	static unsigned allowed;
	unsigned n;

	if (libc_raw(SYS_prctl, PR_GET_SECCOMP, 0, 0, 0, 0, 0) <= 0)
		return true;
	n = num_filters();
	if (n && n == allowed)
		return true;
	allowed = n;
	return false;
}

const char *sandbox_forbids(const struct filter_call *filter)
{
	/* A child of fork() has the parent's filters, and perhaps more. */
	static char text[160];

	if (!text[0] && (filter || !are_looked_at()))
		find_out(filter, text, sizeof(text));
	return text[0] ? text : NULL;
}

/*
 * Nobody answers for a listener of the child's (SECCOMP_RET_USER_NOTIF), and its one thread is all
 * of its threads.
 */
static struct filter_call alone_with(long nr, long a, long b, long c)
{
	const unsigned long others = SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_TSYNC |
				     SECCOMP_FILTER_FLAG_TSYNC_ESRCH |
				     SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
	bool by_flags = nr == SYS_seccomp && a == SECCOMP_SET_MODE_FILTER;

	return (struct filter_call){nr, a, by_flags ? b & ~(long)others : b, c};
}

void sandbox_filter_comes(long nr, long a, long b, long c)
{
	const struct filter_call filter = alone_with(nr, a, b, c);

	/* libseccomp asks so what there is. */
	bool asks = nr == SYS_seccomp && a != SECCOMP_SET_MODE_STRICT &&
		    (a != SECCOMP_SET_MODE_FILTER || !c);

	if (!from_library() && !asks)
		KEEPING_ERRNO(library_filter_comes(&filter));
}
