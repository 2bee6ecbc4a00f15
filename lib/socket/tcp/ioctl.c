/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* ioctl() and fcntl(). */
#include <fcntl.h>
#include <linux/sockios.h>
#include <string.h>
#include <sys/ioctl.h>

#include "runtime/runtime.h"
#include "config/config.h"
#include "socket/tcp/internal.h"

static void set_nonblock(struct tcp_sock *s, bool on)
{
	s->nonblock = on;
	tcp_sock_show_blocking(s);
}

/*
 * VMA_AVOID_SYS_CALLS_ON_TCP_FD: a connection's O_NONBLOCK is known here only, until the kernel
 * wants it.
 */
static bool flags_here(const struct tcp_sock *s)
{
	return params.avoid_sys_calls_on_tcp_fd && tcp_sock_mode(s) == TCP_SOCK_CONN &&
	       !s->has_status_flags;
}

/* Sets O_NONBLOCK without the kernel. False: it is the kernel's to do. */
static bool nonblock_here(struct tcp_sock *s, int fd, bool on)
{
	bool here;
	int cancel;

	if (!flags_here(s) || !tcp_sock_lock_live(s, fd, &cancel))
		return false;
	here = flags_here(s); /* it may have gone to the kernel meanwhile */
	if (here) {
		set_nonblock(s, on);
		s->opts_deferred = true;
	}
	tcp_sock_unlock(s, cancel);
	return here;
}

static int ioctl_nonblock(struct tcp_sock *s, int fd, void *arg)
{
	int x = 0, ret;

	if (!arg)
		return libc.ioctl(fd, FIONBIO, arg);
	if (flags_here(s)) {
		memcpy(&x, arg, sizeof(x));
		if (nonblock_here(s, fd, x != 0))
			return 0;
	}
	ret = libc.ioctl(fd, FIONBIO, arg);
	if (!ret) {
		memcpy(&x, arg, sizeof(x));
		set_nonblock(s, x != 0);
	}
	return ret;
}

/* SIGIO, and SIGURG of who has an owner, come from the kernel's socket: it must see the packets. */
static void leave_to_kernel(struct tcp_sock *s, int fd)
{
	enum tcp_sock_mode mode;
	int cancel;

	if (!tcp_sock_lock_live(s, fd, &cancel))
		return;
	mode = tcp_sock_mode(s);
	if (mode != TCP_SOCK_CONN) {
		s->unconn.no_offload = true;
		stats_why(tcp_sock_shown(s), fd, VMA_WHY_SOCKET, STATS_WHY(ASYNC));
	}
	tcp_sock_unlock(s, cancel);
	/* With who waits for accept(). */
	if (mode != TCP_SOCK_KERNEL)
		s->v.ops->share(&s->v, STATS_WHY(ASYNC));
	/* What has ended stays what it was: the socket's next connection is the kernel's. */
	if (mode == TCP_SOCK_CONN && tcp_sock_lock_live(s, fd, &cancel)) {
		s->unconn.no_offload = true;
		tcp_sock_unlock(s, cancel);
	}
	/* Whose handshake is under way ends it in the engine. */
	if (mode != TCP_SOCK_LISTEN || tcp_sock_clients(s) || !tcp_sock_lock_live(s, fd, &cancel))
		return;
	/* A ring that is still to come brings it nobody. */
	if (tcp_sock_mode(s) == TCP_SOCK_LISTEN)
		tcp_sock_unlisten(s);
	tcp_sock_unlock(s, cancel);
}

static int ioctl_signals(struct tcp_sock *s, int fd, unsigned long req, void *arg)
{
	int x, ret = libc.ioctl(fd, req, arg);

	if (ret)
		return ret;
	memcpy(&x, arg, sizeof(x)); /* the kernel has read it */
	if (req == FIOASYNC && x)
		s->has_status_flags = true;
	if (x)
		leave_to_kernel(s, fd);
	return 0;
}

int tcp_sock_ioctl(struct vfd *v, int fd, unsigned long req, void *arg)
{
	struct tcp_sock *s = tcp_sock_of(v);
	struct stack *st;
	int x = 0;

	if (req == FIONBIO)
		return ioctl_nonblock(s, fd, arg);
	if (req == FIOASYNC || req == FIOSETOWN || req == SIOCSPGRP)
		return ioctl_signals(s, fd, req, arg);
	if (tcp_sock_mode(s) != TCP_SOCK_CONN ||
	    (req != FIONREAD && req != SIOCOUTQ && req != SIOCOUTQNSD && req != SIOCATMARK))
		return libc.ioctl(fd, req, arg);
	st = tcp_sock_conn_look(s);
	if (st) {
		x = (int)(req == FIONREAD     ? tcp_inq(s->c)
			  : req == SIOCOUTQ   ? tcp_outq(s->c) + tcp_fin_unacked(s->c)
			  : req == SIOCATMARK ? tcp_at_mark(s->c)
					      : tcp_outq_unsent(s->c) + tcp_fin_unsent(s->c));
		lock_drop(&st->lock);
	} else if (tcp_sock_mode(s) != TCP_SOCK_CONN) {
		return libc.ioctl(fd, req, arg); /* it has gone to the kernel meanwhile */
	}
	memcpy(arg, &x, sizeof(x)); /* the kernel takes any alignment */
	return 0;
}

int tcp_sock_fcntl(struct vfd *v, int fd, int cmd, long arg)
{
	struct tcp_sock *s = tcp_sock_of(v);
	int ret;

	if (cmd == F_GETFL && flags_here(s))
		return O_RDWR | (s->nonblock ? O_NONBLOCK : 0);
	if (cmd == F_SETFL && !(arg & ~(long)(O_NONBLOCK | O_ACCMODE)) &&
	    nonblock_here(s, fd, arg & O_NONBLOCK))
		return 0;
	ret = raw.fcntl(fd, cmd, arg);
	if (!ret && cmd == F_SETFL) {
		set_nonblock(s, arg & O_NONBLOCK);
		if (arg & ~(long)(O_NONBLOCK | O_ACCMODE))
			s->has_status_flags = true;
		if (arg & O_ASYNC)
			leave_to_kernel(s, fd);
	}
	if (!ret && ((cmd == F_SETOWN && arg) || cmd == F_SETOWN_EX))
		leave_to_kernel(s, fd);
	return ret;
}
