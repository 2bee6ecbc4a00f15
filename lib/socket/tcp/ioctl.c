/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* ioctl() and fcntl(). */
#include <fcntl.h>
#include <linux/sockios.h>
#include <string.h>
#include <sys/ioctl.h>

#include "runtime/libc.h"
#include "runtime/params.h"
#include "socket/tcp_int.h"

static void set_nonblock(struct tsock *s, bool on)
{
	s->nonblock = on;
	tsock_show_blocking(s);
}

/* VMA_AVOID_SYS_CALLS_ON_TCP_FD: a connection's O_NONBLOCK is known here only, until the kernel wants it. */
static bool flags_here(const struct tsock *s)
{
	return params.avoid_sys_calls_on_tcp_fd && tsock_mode(s) == TSOCK_CONN && !s->flagged;
}

/* Sets O_NONBLOCK without the kernel. False: it is the kernel's to do. */
static bool nonblock_here(struct tsock *s, int fd, bool on)
{
	bool here;
	int cancel;

	if (!flags_here(s) || !tsock_lock_live(s, fd, &cancel))
		return false;
	here = flags_here(s); /* it may have gone to the kernel meanwhile */
	if (here) {
		set_nonblock(s, on);
		s->untold = true;
	}
	tsock_unlock(s, cancel);
	return here;
}

static int ioctl_nonblock(struct tsock *s, int fd, void *arg)
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

int tsock_ioctl(struct vfd *v, int fd, unsigned long req, void *arg)
{
	struct tsock *s = tsock_of(v);
	struct stack *st;
	int x = 0;

	if (req == FIONBIO)
		return ioctl_nonblock(s, fd, arg);
	if (tsock_mode(s) != TSOCK_CONN || (req != FIONREAD && req != SIOCOUTQ && req != SIOCOUTQNSD && req != SIOCATMARK))
		return libc.ioctl(fd, req, arg);
	st = tsock_conn_lock(s);
	if (st) {
		x = (int)(req == FIONREAD   ? tcp_inq(s->c) :
			  req == SIOCOUTQ   ? tcp_outq(s->c) :
			  req == SIOCATMARK ? tcp_at_mark(s->c) :
					      tcp_outq_unsent(s->c));
		lock_drop(&st->lock);
	}
	memcpy(arg, &x, sizeof(x)); /* the kernel takes any alignment */
	return 0;
}

int tsock_fcntl(struct vfd *v, int fd, int cmd, long arg)
{
	struct tsock *s = tsock_of(v);
	int ret;

	if (cmd == F_GETFL && flags_here(s))
		return O_RDWR | (s->nonblock ? O_NONBLOCK : 0);
	if (cmd == F_SETFL && !(arg & ~(long)(O_NONBLOCK | O_ACCMODE)) && nonblock_here(s, fd, arg & O_NONBLOCK))
		return 0;
	ret = libc.fcntl(fd, cmd, arg);
	if (!ret && cmd == F_SETFL) {
		set_nonblock(s, arg & O_NONBLOCK);
		if (arg & ~(long)(O_NONBLOCK | O_ACCMODE))
			s->flagged = true;
		/* SIGIO comes from the kernel's socket. */
		if ((arg & O_ASYNC) && tsock_mode(s) != TSOCK_CONN)
			s->spare.no_offload = true;
	}
	return ret;
}
