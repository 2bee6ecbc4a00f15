/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * syscall(): calls on fds that programs make by number (libuv, Go's cgo parts, sockperf) do what
 * the function of that name does; everything else passes with all six arguments. The raw forms of
 * the kernel differ from libc's in the size of signal sets and in writing back what is left of a
 * timeout.
 */
#include "preload/preload.h"

#include <fcntl.h>
#include <linux/bpf.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "handover/handover.h"
#include "preload/clone.h"
#include "preload/privileges.h"
#include "preload/memory.h"
#include "preload/start.h"
#include "preload/uring.h"
#include "preload/poll_calls.h"
#include "socket/tcp/sock.h"

#define KERNEL_SIGSET (_NSIG / 8)

struct args {
	long nr, a, b, c, d, e, f;
};

static long pass(const struct args *x)
{
	return libc.syscall(x->nr, x->a, x->b, x->c, x->d, x->e, x->f);
}

/* The kernel's signal set is shorter than libc's: a copy with the rest empty. NULL stays NULL. */
static const sigset_t *mask_of(long arg, sigset_t *copy)
{
	if (!arg)
		return NULL;
	memset(copy, 0, sizeof(*copy));
	memcpy(copy, (const void *)arg, KERNEL_SIGSET);
	return copy;
}

static bool mask_readable(long mask)
{
	return memory_ends((const void *)mask, KERNEL_SIGSET);
}

static long sys_ppoll(const struct args *x)
{
	struct timespec start, *ts = (struct timespec *)x->c;
	sigset_t mask;
	int ret;

	if (table_empty() || !memory_touchable() ||
	    (x->d && (x->e != KERNEL_SIGSET || !mask_readable(x->d))) ||
	    !memory_optional(ts, sizeof(*ts)))
		return pass(x);
	clock_gettime(CLOCK_MONOTONIC, &start);
	ret = ppoll((struct pollfd *)x->a, (nfds_t)x->b, ts, mask_of(x->d, &mask));
	if (ts && (ret >= 0 || errno == EINTR))
		*ts = time_not_slept(&start, ts);
	return ret;
}

static long sys_pselect6(const struct args *x)
{
	struct {
		long mask, size;
	} sig = {0, KERNEL_SIGSET};
	struct timespec start, *ts = (struct timespec *)x->e;
	sigset_t mask;
	int ret;

	if (table_empty() || !memory_touchable() ||
	    (x->f && !memory_ends((const void *)x->f, sizeof(sig))))
		return pass(x);
	if (x->f)
		memcpy(&sig, (const void *)x->f, sizeof(sig));
	if (!memory_optional(ts, sizeof(*ts)) ||
	    (sig.mask && (sig.size != KERNEL_SIGSET || !mask_readable(sig.mask))))
		return pass(x);
	clock_gettime(CLOCK_MONOTONIC, &start);
	ret = pselect((int)x->a, (fd_set *)x->b, (fd_set *)x->c, (fd_set *)x->d, ts,
		      mask_of(sig.mask, &mask));
	if (ts && (ret >= 0 || errno == EINTR))
		*ts = time_not_slept(&start, ts);
	return ret;
}

static long sys_epoll_pwait(const struct args *x)
{
	sigset_t mask;

	if (!vfd_get((int)x->a))
		return pass(x);
	if (x->e)
		memory_touch_begin();
	if (x->e && (x->f != KERNEL_SIGSET || !mask_readable(x->e)))
		return pass(x);
	return epoll_pwait((int)x->a, (struct epoll_event *)x->b, (int)x->c, (int)x->d,
			   mask_of(x->e, &mask));
}

static long sys_epoll_pwait2(const struct args *x)
{
	sigset_t mask;

	if (!vfd_get((int)x->a))
		return pass(x);
	if (x->e)
		memory_touch_begin();
	if (x->e && (x->f != KERNEL_SIGSET || !mask_readable(x->e)))
		return pass(x);
	return epoll_pwait2((int)x->a, (struct epoll_event *)x->b, (int)x->c,
			    (const struct timespec *)x->d, mask_of(x->e, &mask));
}

/* Calls that make, copy and close fds. *known is false for a number that is none of them. */
static long fd_call(const struct args *x, bool *known)
{
	switch (x->nr) {
	case SYS_socket:
		return socket((int)x->a, (int)x->b, (int)x->c);
	case SYS_socketpair:
		return socketpair((int)x->a, (int)x->b, (int)x->c, (int *)x->d);
	case SYS_accept:
		return accept((int)x->a, (struct sockaddr *)x->b, (socklen_t *)x->c);
	case SYS_accept4:
		return accept4((int)x->a, (struct sockaddr *)x->b, (socklen_t *)x->c, (int)x->d);
	case SYS_close:
		return close((int)x->a);
	case SYS_close_range:
		return close_range((unsigned)x->a, (unsigned)x->b, (int)x->c);
	case SYS_dup:
		return dup((int)x->a);
	case SYS_dup3:
		return dup3((int)x->a, (int)x->b, (int)x->c);
	case SYS_fcntl:
		return fcntl((int)x->a, (int)x->b, x->c);
	case SYS_ioctl:
		return ioctl((int)x->a, (unsigned long)x->b, x->c);
	case SYS_openat:
	case SYS_eventfd2:
	case SYS_timerfd_create:
		return FD_NEW((int)pass(x));
	case SYS_pipe2:
		return pipe2((int *)x->a, (int)x->b);
	case SYS_epoll_create1:
		return epoll_create1((int)x->a);
#ifdef SYS_open
	case SYS_dup2:
		return dup2((int)x->a, (int)x->b);
	case SYS_open:
	case SYS_creat:
		return FD_NEW((int)pass(x));
	case SYS_pipe:
		return pipe((int *)x->a);
	case SYS_epoll_create:
		return epoll_create((int)x->a);
	case SYS_fork:
	case SYS_vfork:
		return fork();
#endif
	case SYS_clone:
		/* as a fork() asks for it */
		if (x->a == SIGCHLD && !x->b)
			return fork();
		return clone_raw((unsigned long)x->a, x->b, (const long[]){x->c, x->d, x->e});
	case SYS_io_uring_setup:
		return uring_made_raw(FD_NEW((int)pass(x)));
	case SYS_io_submit:
		uring_submitting(x->b, (struct iocb *const *)x->c);
		return pass(x);
	case SYS_clone3:
		return clone3_raw((const void *)x->a, (unsigned long)x->b);
	}
	*known = false;
	return -1;
}

static long socket_call(const struct args *x, bool *known)
{
	switch (x->nr) {
	case SYS_bind:
		return bind((int)x->a, (const struct sockaddr *)x->b, (socklen_t)x->c);
	case SYS_connect:
		return connect((int)x->a, (const struct sockaddr *)x->b, (socklen_t)x->c);
	case SYS_listen:
		return listen((int)x->a, (int)x->b);
	case SYS_shutdown:
		return shutdown((int)x->a, (int)x->b);
	case SYS_getsockname:
		return getsockname((int)x->a, (struct sockaddr *)x->b, (socklen_t *)x->c);
	case SYS_getpeername:
		return getpeername((int)x->a, (struct sockaddr *)x->b, (socklen_t *)x->c);
	case SYS_getsockopt:
		return getsockopt((int)x->a, (int)x->b, (int)x->c, (void *)x->d, (socklen_t *)x->e);
	case SYS_setsockopt:
		return setsockopt((int)x->a, (int)x->b, (int)x->c, (const void *)x->d,
				  (socklen_t)x->e);
	}
	*known = false;
	return -1;
}

static long data_call(const struct args *x, bool *known)
{
	switch (x->nr) {
	case SYS_read:
		return read((int)x->a, (void *)x->b, (size_t)x->c);
	case SYS_write:
		return write((int)x->a, (const void *)x->b, (size_t)x->c);
	case SYS_readv:
		return readv((int)x->a, (const struct iovec *)x->b, (int)x->c);
	case SYS_writev:
		return writev((int)x->a, (const struct iovec *)x->b, (int)x->c);
	case SYS_preadv2: /* the offset's upper half, x->e, says nothing on a 64-bit machine */
		return preadv2((int)x->a, (const struct iovec *)x->b, (int)x->c, x->d, (int)x->f);
	case SYS_pwritev2:
		return pwritev2((int)x->a, (const struct iovec *)x->b, (int)x->c, x->d, (int)x->f);
	case SYS_recvfrom:
		return recvfrom((int)x->a, (void *)x->b, (size_t)x->c, (int)x->d,
				(struct sockaddr *)x->e, (socklen_t *)x->f);
	case SYS_recvmsg:
		return recvmsg((int)x->a, (struct msghdr *)x->b, (int)x->c);
	case SYS_recvmmsg:
		return recvmmsg((int)x->a, (struct mmsghdr *)x->b, (unsigned)x->c, (int)x->d,
				(struct timespec *)x->e);
	case SYS_sendto:
		return sendto((int)x->a, (const void *)x->b, (size_t)x->c, (int)x->d,
			      (const struct sockaddr *)x->e, (socklen_t)x->f);
	case SYS_sendmsg:
		return sendmsg((int)x->a, (const struct msghdr *)x->b, (int)x->c);
	case SYS_sendmmsg:
		return sendmmsg((int)x->a, (struct mmsghdr *)x->b, (unsigned)x->c, (int)x->d);
	case SYS_sendfile:
		return sendfile((int)x->a, (int)x->b, (off_t *)x->c, (size_t)x->d);
	case SYS_splice:
		return splice((int)x->a, (off64_t *)x->b, (int)x->c, (off64_t *)x->d, (size_t)x->e,
			      (unsigned)x->f);
	}
	*known = false;
	return -1;
}

static long wait_call(const struct args *x, bool *known)
{
	switch (x->nr) {
	case SYS_ppoll:
		return sys_ppoll(x);
	case SYS_pselect6:
		return sys_pselect6(x);
	case SYS_epoll_ctl:
		return epoll_ctl((int)x->a, (int)x->b, (int)x->c, (struct epoll_event *)x->d);
	case SYS_epoll_pwait:
		return sys_epoll_pwait(x);
	case SYS_epoll_pwait2:
		return sys_epoll_pwait2(x);
#ifdef SYS_poll
	case SYS_poll:
		return poll((struct pollfd *)x->a, (nfds_t)x->b, (int)x->c);
	case SYS_select:
		return select((int)x->a, (fd_set *)x->b, (fd_set *)x->c, (fd_set *)x->d,
			      (struct timeval *)x->e);
	case SYS_epoll_wait:
		return epoll_wait((int)x->a, (struct epoll_event *)x->b, (int)x->c, (int)x->d);
#endif
	}
	*known = false;
	return -1;
}

static long limit_call(const struct args *x, bool *known)
{
	switch (x->nr) {
	case SYS_prlimit64:
		return prlimit((pid_t)x->a, (int)x->b, (const struct rlimit *)x->c,
			       (struct rlimit *)x->d);
	case SYS_getrlimit:
		return getrlimit((int)x->a, (struct rlimit *)x->b);
	case SYS_setrlimit:
		return setrlimit((int)x->a, (const struct rlimit *)x->b);
	}
	*known = false;
	return -1;
}

/* bpf() of libbpf and libxdp: what is a descriptor is our own. The program's passes. */
static long bpf_call(const struct args *x, bool *known)
{
	if (x->nr != SYS_bpf || !from_library()) {
		*known = false;
		return -1;
	}
	switch (x->a) {
	case BPF_MAP_CREATE:
	case BPF_PROG_LOAD:
	case BPF_OBJ_GET:
	case BPF_PROG_GET_FD_BY_ID:
	case BPF_MAP_GET_FD_BY_ID:
	case BPF_RAW_TRACEPOINT_OPEN:
	case BPF_BTF_LOAD:
	case BPF_BTF_GET_FD_BY_ID:
	case BPF_LINK_CREATE:
	case BPF_LINK_GET_FD_BY_ID:
	case BPF_ENABLE_STATS:
	case BPF_ITER_CREATE:
		return OWN_FD((int)pass(x));
	}
	return pass(x);
}

/* Unlike libc's functions these change the calling thread only, and so do they here. */
static long user_call(const struct args *x, bool *known)
{
	switch (x->nr) {
	case SYS_setuid:
	case SYS_setreuid:
	case SYS_setresuid:
	case SYS_chroot:
		privileges_ending((uid_t)-1);
		return pass(x);
	case SYS_capset:
		return capset((void *)x->a, (const void *)x->b);
	case SYS_seccomp:
		sandbox_filter_comes(x->nr, x->a, x->b, x->c);
		return pass(x);
	case SYS_prctl:
		return prctl((int)x->a, x->b, x->c, x->d, x->e);
	case SYS_unshare:
		return unshare((int)x->a);
	case SYS_execve:
		return execve((const char *)x->a, (char *const *)x->b, (char *const *)x->c);
	case SYS_execveat:
		return execveat((int)x->a, (const char *)x->b, (char *const *)x->c,
				(char *const *)x->d, (int)x->e);
	case SYS_setns:
		return setns((int)x->a, (int)x->b);
	}
	*known = false;
	return -1;
}

PRELOAD long syscall(long nr, ...)
{
	static long (*const families[])(const struct args *, bool *) = {
		data_call, wait_call, socket_call, fd_call, limit_call, user_call, bpf_call};
	struct args x = {.nr = nr};
	va_list ap;

	va_start(ap, nr);
	x.a = va_arg(ap, long);
	x.b = va_arg(ap, long);
	x.c = va_arg(ap, long);
	x.d = va_arg(ap, long);
	x.e = va_arg(ap, long);
	x.f = va_arg(ap, long);
	va_end(ap);
	if (nr == SYS_exit_group)
		handover_at_end();
	/* by far the most frequent number of those that are none of ours */
	if (nr == SYS_futex || (library_has_left() && table_empty()))
		return pass(&x);
	for (unsigned i = 0; i < sizeof(families) / sizeof(*families); i++) {
		bool known = true;
		long ret = families[i](&x, &known);

		if (known)
			return ret;
	}
	return pass(&x);
}
