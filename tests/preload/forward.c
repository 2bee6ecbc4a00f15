/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Stands in for everything behind preload: each UDP socket and each epoll set is an object of the
 * fd table whose operations call libc. So preload's own work (building messages, copying,
 * duplicating) can be compared with the kernel's. test_preload.py builds a library of lib/preload,
 * the two tables and this. FORWARD_SHORT=1: with the short forms. At its end a process says on
 * standard error how many operations came through.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "extra/extra.h"
#include "handover/handover.h"
#include "iomux/iomux.h"
#include "mem/allocator.h"
#include "preload/fatal.h"
#include "preload/start.h"
#include "runtime/libc.h"
#include "runtime/log.h"
#include "runtime/process_mark.h"
#include "config/params.h"
#include "runtime/worker.h"
#include "socket/tcp/sock.h"
#include "socket/udp/sock.h"
#include "fd/fd.h"

int log_level_now = LOG_INFO;
struct params params; /* all off */
static _Atomic unsigned long operations;

void log_write(enum log_level level, const char *fmt, ...)
{
	va_list ap;

	(void)level;
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
}

void log_panic(const char *fmt, ...)
{
	(void)fmt;
	abort();
}

static ssize_t forward_recvmsg(struct vfd *v, int fd, struct msghdr *msg, int flags)
{
	(void)v;
	operations++;
	return libc.recvmsg(fd, msg, flags);
}

static ssize_t forward_sendmsg(struct vfd *v, int fd, const struct msghdr *msg, int flags)
{
	(void)v;
	operations++;
	return libc.sendmsg(fd, msg, flags);
}

static ssize_t forward_recvfrom(struct vfd *v, void *buf, size_t len, uint64_t call,
				struct sockaddr *addr, socklen_t *alen)
{
	(void)v;
	operations++;
	return libc.recvfrom(vfd_call_fd(call), buf, len, vfd_call_flags(call), addr, alen);
}

static ssize_t forward_sendto(struct vfd *v, const void *buf, size_t len, uint64_t call,
			      const struct sockaddr *addr, socklen_t alen)
{
	(void)v;
	operations++;
	return libc.sendto(vfd_call_fd(call), buf, len, vfd_call_flags(call), addr, alen);
}

static int forward_recvmmsg(struct vfd *v, int fd, struct mmsghdr *msgs, unsigned n, int flags,
			    struct timespec *ts)
{
	(void)v;
	operations++;
	return libc.recvmmsg(fd, msgs, n, flags, ts);
}

static int forward_close(struct vfd *v, int fd)
{
	operations++;
	free(v);
	return fd < 0 ? 0 : vfd_release(fd);
}

static const struct vfd_ops long_ops = {
	.recvmsg = forward_recvmsg,
	.sendmsg = forward_sendmsg,
	.close = forward_close,
};

static const struct vfd_ops short_ops = {
	.recvmsg = forward_recvmsg,
	.sendmsg = forward_sendmsg,
	.recvfrom = forward_recvfrom,
	.sendto = forward_sendto,
	.recvmmsg = forward_recvmmsg,
	.close = forward_close,
};

static const struct vfd_ops set_ops = {.close = forward_close};

static int make(int fd, enum vfd_kind kind, const struct vfd_ops *ops)
{
	struct vfd *v = calloc(1, sizeof(*v));

	if (!v)
		return -ENOMEM;
	v->kind = kind;
	v->ops = ops;
	return vfd_install(fd, v);
}

int udp_socket_created(int fd, int domain, int type, int protocol)
{
	(void)domain;
	(void)type;
	(void)protocol;
	return make(fd, VFD_UDP, getenv("FORWARD_SHORT") ? &short_ops : &long_ops);
}

int tcp_sock_socket_created(int fd, int domain, int type, int protocol)
{
	(void)domain;
	(void)type;
	(void)protocol;
	return make(fd, VFD_TCP, getenv("FORWARD_SHORT") ? &short_ops : &long_ops);
}

bool handover_fork_begin(struct handover_fork *f)
{
	(void)f;
	return true;
}

void handover_fork_end(const struct handover_fork *f, pid_t pid)
{
	(void)f;
	(void)pid;
}

void handover_fork_child(const struct handover_fork *f)
{
	(void)f;
}

void handover_at_exec(void)
{
}

void handover_before_rights_go(void)
{
}

void handover_at_end(void)
{
}

int iomux_epoll_created(int epfd)
{
	return make(epfd, VFD_EPOLL, &set_ops);
}

bool library_has_begun(void)
{
	return true;
}

int library_start(void)
{
	atomic_store(&fatal_begun, true); /* the programs' pointers are good */
	return 0;
}

void library_configure(void)
{
}

void worker_pause(void)
{
}

void stacks_open_pending(void)
{
}

void stacks_user_changes(uid_t uid)
{
	(void)uid;
}

bool stacks_user_matters(void)
{
	return false;
}

void stacks_user_to_be(uid_t uid)
{
	(void)uid;
}

void stacks_fork_prepare(void)
{
}

void stacks_fork_parent(void)
{
}

void worker_fork_prepare(void)
{
}

void worker_fork_parent(void)
{
}

void worker_fork_child(void)
{
}

bool caps_have(uint64_t caps)
{
	(void)caps;
	return true;
}

struct caps_sets caps_own(void)
{
	return (struct caps_sets){0};
}

int caps_follow(const struct caps_sets *other, uint64_t mask)
{
	(void)other;
	(void)mask;
	return 0;
}

int worker_run(void (*fn)(void *arg), void *arg)
{
	(void)fn;
	(void)arg;
	return -ESRCH;
}

int net_fd(void)
{
	return -1;
}

bool library_has_left(void)
{
	return false;
}

void library_filter_comes(const struct filter_call *filter)
{
	(void)filter;
}

void library_preopen(uid_t uid)
{
	(void)uid;
	operations++;
}

void library_forked_child(void)
{
	operations = 0;
}

int iomux_poll(struct pollfd *fds, nfds_t n, const struct timespec *timeout,
	       const sigset_t *sigmask)
{
	operations++;
	return libc.ppoll(fds, n, timeout, sigmask);
}

int iomux_select(int nfds, fd_set *rd, fd_set *wr, fd_set *ex, const struct timespec *timeout,
		 const sigset_t *sigmask)
{
	operations++;
	return libc.pselect(nfds, rd, wr, ex, timeout, sigmask);
}

void iomux_limit_changed(void)
{
}

int iomux_epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
	operations++;
	return libc.epoll_ctl(epfd, op, fd, ev);
}

int iomux_epoll_wait(int epfd, struct epoll_event *evs, int max, const struct timespec *timeout,
		     const sigset_t *sigmask)
{
	operations++;
	return libc.epoll_pwait2(epfd, evs, max, timeout, sigmask);
}

__attribute__((destructor)) static void say(void)
{
	if (operations)
		fprintf(stderr, "forward: %lu operations\n", operations);
}

int extra_get_api(void *val, socklen_t *len)
{
	(void)val;
	(void)len;
	return -ENOPROTOOPT;
}

int extra_getsockopt(int fd, int opt, void *val, socklen_t *len)
{
	(void)fd;
	(void)opt;
	(void)val;
	(void)len;
	return -ENOPROTOOPT;
}

int extra_setsockopt(int fd, int opt, const void *val, socklen_t len)
{
	(void)fd;
	(void)opt;
	(void)val;
	(void)len;
	return -ENOPROTOOPT;
}

void process_mark_forked(void)
{
}

void allocator_settle(void)
{
}

void clock_sleep_ns(uint64_t ns)
{
	(void)ns;
}

uint64_t clock_monotonic_ns(void)
{
	return 0;
}

bool extra_offloads_here(void)
{
	return true;
}
