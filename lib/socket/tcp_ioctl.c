/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* ioctl() and fcntl(). */
#include <fcntl.h>
#include <linux/sockios.h>
#include <string.h>
#include <sys/ioctl.h>

#include "runtime/libc.h"
#include "socket/tcp_int.h"

int tsock_ioctl(struct vfd *v, int fd, unsigned long req, void *arg)
{
	struct tsock *s = tsock_of(v);
	struct stack *st;
	int ret, x = 0;

	if (req == FIONBIO) {
		ret = libc.ioctl(fd, req, arg);
		if (!ret) {
			memcpy(&x, arg, sizeof(x));
			s->nonblock = x != 0;
			s->stats->blocking = !x;
		}
		return ret;
	}
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
	int ret = libc.fcntl(fd, cmd, arg);

	if (!ret && cmd == F_SETFL) {
		s->nonblock = (arg & O_NONBLOCK) != 0;
		s->stats->blocking = !s->nonblock;
		/* SIGIO comes from the kernel's socket. */
		if ((arg & O_ASYNC) && tsock_mode(s) != TSOCK_CONN)
			s->spare.no_offload = true;
	}
	return ret;
}
