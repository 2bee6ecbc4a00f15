/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A seccomp filter that this process was started with (systemd's SystemCallFilter=, whose usual
 * answer is SIGSYS): it lets the program make its calls, and may end whoever makes ours. Nothing
 * tells what is in a filter. So a child of our own makes each call first, with arguments by which
 * it does nothing.
 */
#include "preload/preload.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/bpf.h>
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

/* The library's calls that the program need not have made by the time of its first socket. */
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
	CALL(mkdir, 0, 0, 0),
	CALL(rename, 0, 0, 0),
	CALL(unlink, 0, 0, 0),
	CALL(rmdir, 0, 0, 0),
#endif
	CALL(mount, 0, 0, 0),
	CALL(uname, 0, 0, 0),
	CALL(getrandom, 0, 0, -1),
	CALL(lseek, -1, 0, 0),
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
};

#define TRIED (sizeof(tried) / sizeof(tried[0]))

/* In the child: it has the parent's memory as it was, and makes system calls only. */
NO_SANITIZERS _Noreturn static void try_all(volatile unsigned *at)
{
	/*
	 * SIGSYS, by the filter, is its end, without a core of the program's and without a handler.
	 * (The kernel's struct sigaction begins with the handler, and is 32 bytes long.)
	 */
	const uint64_t by_default[4] = {0};

	libc_raw(SYS_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0, 0);
	libc_raw(SYS_rt_sigaction, SIGSYS, (long)(uintptr_t)by_default, 0, sizeof(uint64_t), 0, 0);
	for (unsigned i = 0; i < TRIED; i++) {
		*at = i;
		libc_raw(tried[i].nr, tried[i].a, tried[i].b, tried[i].c, 0, 0, 0);
	}
	*at = TRIED;
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

/* What the child has found: the reason to stay away in text, or "". */
NO_SANITIZERS static void look(volatile unsigned *at, char *text, size_t size)
{
	int status = 0;
	/* No signal tells of its end, and no wait() of the program's finds it. */
	long pid = libc_raw(SYS_clone, 0, 0, 0, 0, 0, 0), ended = -1;

	if (!pid)
		try_all(at);
	while (pid > 0 && ended < 0) {
		ended = libc_raw(SYS_wait4, pid, (long)(uintptr_t)&status, __WALL, 0, 0, 0);
		if (ended < 0 && errno != EINTR)
			break;
	}
	if (ended < 0)
		snprintf(text, size,
			 "it has a seccomp filter, and no child can look what that allows: %s",
			 strerror(errno));
	else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS)
		snprintf(text, size,
			 "its seccomp filter ends who calls %s(2) (systemd: SystemCallFilter=)",
			 *at < TRIED ? tried[*at].name : "exit");
	else if (*at < TRIED)
		snprintf(text, size,
			 "it has a seccomp filter, and the child that was to look what "
			 "that allows was killed");
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

const char *sandbox_forbids(void)
{
	/* A child of fork() has the parent's filters, and perhaps more. */
	static char text[160];
	static unsigned allowed;
	unsigned *at, n;

	if (text[0] || libc_raw(SYS_prctl, PR_GET_SECCOMP, 0, 0, 0, 0, 0) <= 0)
		return text[0] ? text : NULL;
	n = num_filters();
	if (n && n == allowed)
		return NULL;
	at = mmap(NULL, sizeof(*at), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED || would_begin_a_namespace())
		snprintf(text, sizeof(text),
			 "it has a seccomp filter, and no child can look what "
			 "that allows");
	else
		look(at, text, sizeof(text));
	if (at != MAP_FAILED)
		munmap(at, sizeof(*at));
	allowed = n;
	return text[0] ? text : NULL;
}
