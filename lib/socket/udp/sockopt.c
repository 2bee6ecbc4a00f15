/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Options. The kernel socket is asked first and keeps every option; user space copies what the
 * packet path needs by reading it back. A socket with an option that is neither
 * mirrored nor without effect on the packet path is handed to the kernel (rule 3).
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/errqueue.h>
#include <linux/net_tstamp.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>

#include "net/net.h"
#include "runtime/runtime.h"
#include "config/config.h"
#include "socket/socket.h"
#include "socket/udp/internal.h"
#include "vma/sockopt_numbers.h"

/* Kinds of option by what user space does after the kernel has accepted it. */
enum opt_kind {
	OPT_TO_KERNEL, /* unknown, or not done in user space: the kernel gets the socket */
	/* concerns only the kernel's part, or nothing that user space does differently */
	OPT_KERNEL,
	OPT_MIRROR, /* read back: option_copies.c */
	OPT_HEADER, /* the same, and prebuilt headers are void */
	OPT_ATTACH, /* the same, and rules and stacks follow */
	OPT_MEMBERSHIP, /* multicast.c */
};

struct opt_row {
	int level, opt;
	enum opt_kind kind;
};

static const struct opt_row rows[] = {
	{SOL_SOCKET, SO_REUSEADDR, OPT_MIRROR},
	{SOL_SOCKET, SO_ERROR, OPT_KERNEL},
	{SOL_SOCKET, SO_BROADCAST, OPT_KERNEL}, /* broadcasts are sent by the kernel socket */
	{SOL_SOCKET, SO_SNDBUF, OPT_KERNEL},
	{SOL_SOCKET, SO_SNDBUFFORCE, OPT_KERNEL},
	/* a datagram never waits for room in user space */
	{SOL_SOCKET, SO_SNDTIMEO_OLD, OPT_KERNEL},
	{SOL_SOCKET, SO_SNDTIMEO_NEW, OPT_KERNEL},
	{SOL_SOCKET, SO_SNDLOWAT, OPT_KERNEL},
	{SOL_SOCKET, SO_RCVLOWAT, OPT_KERNEL}, /* means nothing to datagrams */
	{SOL_SOCKET, SO_LINGER, OPT_KERNEL},
	{SOL_SOCKET, SO_OOBINLINE, OPT_KERNEL},
	{SOL_SOCKET, SO_KEEPALIVE, OPT_KERNEL},
	{SOL_SOCKET, SO_DEBUG, OPT_KERNEL},
	{SOL_SOCKET, SO_PRIORITY, OPT_KERNEL},
	{SOL_SOCKET, SO_BUSY_POLL, OPT_KERNEL},
	{SOL_SOCKET, SO_PREFER_BUSY_POLL, OPT_KERNEL},
	{SOL_SOCKET, SO_BUSY_POLL_BUDGET, OPT_KERNEL},
	{SOL_SOCKET, SO_INCOMING_CPU, OPT_KERNEL},
	{SOL_SOCKET, SO_RESERVE_MEM, OPT_KERNEL},
	{SOL_SOCKET, SO_LOCK_FILTER, OPT_KERNEL}, /* a filter itself is the kernel's */
	{SOL_SOCKET, SO_BUF_LOCK, OPT_KERNEL}, /* no buffer of UDP is tuned */
	{SOL_SOCKET, SO_NOFCS, OPT_KERNEL}, /* packet sockets' */
	{SOL_SOCKET, SO_BSDCOMPAT, OPT_KERNEL}, /* nobody's any more */
	{SOL_SOCKET, SO_RCVBUF, OPT_MIRROR},
	{SOL_SOCKET, SO_RCVBUFFORCE, OPT_MIRROR},
	{SOL_SOCKET, SO_RCVTIMEO_OLD, OPT_MIRROR},
	{SOL_SOCKET, SO_RCVTIMEO_NEW, OPT_MIRROR},
	{SOL_SOCKET, SO_TIMESTAMP_OLD, OPT_MIRROR},
	{SOL_SOCKET, SO_TIMESTAMP_NEW, OPT_MIRROR},
	{SOL_SOCKET, SO_TIMESTAMPNS_OLD, OPT_MIRROR},
	{SOL_SOCKET, SO_TIMESTAMPNS_NEW, OPT_MIRROR},
	{SOL_SOCKET, SO_RXQ_OVFL, OPT_MIRROR},
	{SOL_SOCKET, SO_REUSEPORT, OPT_ATTACH},
	{SOL_SOCKET, SO_BINDTODEVICE, OPT_ATTACH},
	{SOL_SOCKET, SO_BINDTOIFINDEX, OPT_ATTACH},
	{SOL_SOCKET, SO_MARK, OPT_ATTACH},
	{IPPROTO_IP, IP_TTL, OPT_HEADER},
	{IPPROTO_IP, IP_TOS, OPT_HEADER},
	{IPPROTO_IP, IP_MTU_DISCOVER, OPT_HEADER},
	{IPPROTO_IP, IP_MULTICAST_TTL, OPT_HEADER},
	{IPPROTO_IP, IP_MULTICAST_IF, OPT_HEADER},
	{IPPROTO_IP, IP_MULTICAST_LOOP, OPT_HEADER},
	{IPPROTO_IP, IP_MULTICAST_ALL, OPT_MIRROR},
	{IPPROTO_IP, IP_PKTINFO, OPT_MIRROR},
	{IPPROTO_IP, IP_RECVTTL, OPT_MIRROR},
	{IPPROTO_IP, IP_RECVTOS, OPT_MIRROR},
	{IPPROTO_IP, IP_RECVORIGDSTADDR, OPT_MIRROR},
	{IPPROTO_IP, IP_RECVOPTS, OPT_KERNEL}, /* packets with options are the kernel's */
	{IPPROTO_IP, IP_RETOPTS, OPT_KERNEL},
	{IPPROTO_IP, IP_RECVERR, OPT_KERNEL}, /* errors reach the kernel socket */
	{IPPROTO_IP, IP_RECVERR_RFC4884, OPT_KERNEL},
	{IPPROTO_IP, IP_FREEBIND, OPT_KERNEL},
	{IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, OPT_KERNEL},
	{IPPROTO_IP, IP_ADD_MEMBERSHIP, OPT_MEMBERSHIP},
	{IPPROTO_IP, IP_DROP_MEMBERSHIP, OPT_MEMBERSHIP},
	{IPPROTO_IP, IP_ADD_SOURCE_MEMBERSHIP, OPT_MEMBERSHIP},
	{IPPROTO_IP, IP_DROP_SOURCE_MEMBERSHIP, OPT_MEMBERSHIP},
	{IPPROTO_IP, IP_BLOCK_SOURCE, OPT_MEMBERSHIP},
	{IPPROTO_IP, IP_UNBLOCK_SOURCE, OPT_MEMBERSHIP},
	{IPPROTO_IP, MCAST_JOIN_GROUP, OPT_MEMBERSHIP},
	{IPPROTO_IP, MCAST_LEAVE_GROUP, OPT_MEMBERSHIP},
	{IPPROTO_IP, MCAST_JOIN_SOURCE_GROUP, OPT_MEMBERSHIP},
	{IPPROTO_IP, MCAST_LEAVE_SOURCE_GROUP, OPT_MEMBERSHIP},
	{IPPROTO_IP, MCAST_BLOCK_SOURCE, OPT_MEMBERSHIP},
	{IPPROTO_IP, MCAST_UNBLOCK_SOURCE, OPT_MEMBERSHIP},
	{IPPROTO_IPV6, IPV6_V6ONLY, OPT_ATTACH},
	{IPPROTO_IPV6, IPV6_UNICAST_HOPS, OPT_HEADER},
	{IPPROTO_IPV6, IPV6_MULTICAST_HOPS, OPT_HEADER},
	{IPPROTO_IPV6, IPV6_MULTICAST_IF, OPT_HEADER},
	{IPPROTO_IPV6, IPV6_MULTICAST_LOOP, OPT_HEADER},
	{IPPROTO_IPV6, IPV6_MULTICAST_ALL, OPT_MIRROR},
	{IPPROTO_IPV6, IPV6_TCLASS, OPT_HEADER},
	/* IPv6 never fragments on the way; larger ones are the kernel's */
	{IPPROTO_IPV6, IPV6_MTU_DISCOVER, OPT_KERNEL},
	{IPPROTO_IPV6, IPV6_RECVPKTINFO, OPT_MIRROR},
	{IPPROTO_IPV6, IPV6_RECVHOPLIMIT, OPT_MIRROR},
	{IPPROTO_IPV6, IPV6_RECVTCLASS, OPT_MIRROR},
	{IPPROTO_IPV6, IPV6_RECVORIGDSTADDR, OPT_MIRROR},
	{IPPROTO_IPV6, IPV6_RECVERR, OPT_KERNEL},
	{IPPROTO_IPV6, IPV6_RECVERR_RFC4884, OPT_KERNEL},
	{IPPROTO_IPV6, IPV6_FREEBIND, OPT_KERNEL},
	{IPPROTO_IPV6, IPV6_JOIN_GROUP, OPT_MEMBERSHIP},
	{IPPROTO_IPV6, IPV6_LEAVE_GROUP, OPT_MEMBERSHIP},
	{IPPROTO_IPV6, MCAST_JOIN_GROUP, OPT_MEMBERSHIP},
	{IPPROTO_IPV6, MCAST_LEAVE_GROUP, OPT_MEMBERSHIP},
	{IPPROTO_IPV6, MCAST_JOIN_SOURCE_GROUP, OPT_MEMBERSHIP},
	{IPPROTO_IPV6, MCAST_LEAVE_SOURCE_GROUP, OPT_MEMBERSHIP},
	{IPPROTO_IPV6, MCAST_BLOCK_SOURCE, OPT_MEMBERSHIP},
	{IPPROTO_IPV6, MCAST_UNBLOCK_SOURCE, OPT_MEMBERSHIP},
	{IPPROTO_UDP, UDP_SEGMENT, OPT_MIRROR},
	{IPPROTO_UDP, UDP_GRO, OPT_MIRROR},
};

static enum opt_kind kind_of(int level, int opt)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (rows[i].level == level && rows[i].opt == opt)
			return rows[i].kind;
	}
	return OPT_TO_KERNEL;
}

bool udp_stamps_here(const struct udp_sock *s)
{
	const uint32_t device = SOF_TIMESTAMPING_RX_HARDWARE | SOF_TIMESTAMPING_RAW_HARDWARE;
	const uint32_t here = device | SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE;
	unsigned n = atomic_load_explicit(&s->natt, memory_order_relaxed);
	bool stamps = params.hw_ts_conversion != 0;

	if (s->o.timestamping & ~here)
		return false;
	if (!(s->o.timestamping & device))
		return true;
	for (unsigned i = 0; i < n && stamps; i++)
		stamps = stack_stamps(atomic_load_explicit(&s->att[i]->st, memory_order_relaxed));
	return stamps;
}

/*
 * SO_TIMESTAMPING: what user space cannot stamp (transmission; reception, where the device has no
 * clock) is left to the kernel.
 */
static bool timestamping_done_here(struct udp_sock *s, int fd)
{
	udp_opts_mirror(s, fd, SOL_SOCKET, SO_TIMESTAMPING_OLD);
	return udp_stamps_here(s);
}

/* SO_MAX_PACING_RATE */
static uint64_t get_rate(int fd)
{
	uint64_t rate = 0;
	socklen_t len = sizeof(rate);

	(void)libc.getsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, &len);
	return rate;
}

/* SO_PEEK_OFF counts in what waits here, too. s->lock is held. */
static void option_to_kernel(struct udp_sock *s, int fd, int level, int opt)
{
	if (level == SOL_SOCKET && opt == SO_PEEK_OFF)
		udp_move_to_kernel(s, stats_why_option(level, opt));
	else
		udp_to_kernel(s, fd, stats_why_option(level, opt));
}

/* As udp_unlock(). If s is not the kernel's as it was, others of its port leave it its share. */
static void unlock_dividing(struct udp_sock *s, int cancel, bool was_kernels)
{
	uint16_t left = !was_kernels && s->in_kernel && udp_can_share(s) ? s->lport : 0;

	udp_unlock(s, cancel);
	udp_port_divide(left);
}

int udp_setsockopt(struct vfd *v, int fd, int level, int opt, const void *val, socklen_t len)
{
	struct udp_sock *s = udp_of(v);
	enum opt_kind kind = kind_of(level, opt);
	bool was_kernels;
	int64_t was;
	int ret, cancel;

	was = kind == OPT_TO_KERNEL ? exception_value(fd, level, opt) : 0;
	ret = libc.setsockopt(fd, level, opt, val, len);
	if (ret || kind == OPT_KERNEL)
		return ret;
	/* Turned off what was not on, or on what is: nothing is new. */
	if (kind == OPT_TO_KERNEL && was != OPTION_UNKNOWN &&
	    exception_value(fd, level, opt) == was)
		return 0;
	if (!udp_lock_live(s, fd, &cancel))
		return ret;
	was_kernels = s->in_kernel;
	libc_internal_begin();
	if (level == SOL_SOCKET && (opt == SO_RCVTIMEO_OLD || opt == SO_RCVTIMEO_NEW))
		s->o.rcv_at_once = sock_timeout_at_once(val);
	switch (kind) {
	case OPT_MEMBERSHIP:
		if (!udp_membership(s, level, opt, val, len))
			udp_to_kernel(s, fd, STATS_WHY(MEMBERSHIP));
		else
			udp_attach(s, fd);
		break;
	case OPT_ATTACH:
		udp_opts_mirror(s, fd, level, opt);
		atomic_fetch_add_explicit(&s->opt_gen, 1, memory_order_release);
		udp_attach(s, fd);
		break;
	case OPT_HEADER:
		udp_opts_mirror(s, fd, level, opt);
		if (level == IPPROTO_IP && opt == IP_MULTICAST_IF)
			udp_opts_mc_if(s, val, len);
		atomic_fetch_add_explicit(&s->opt_gen, 1, memory_order_release);
		break;
	case OPT_MIRROR:
		udp_opts_mirror(s, fd, level, opt);
		/* UDP_SEGMENT is one: its socket's destinations are not for the fast path. */
		atomic_fetch_add_explicit(&s->opt_gen, 1, memory_order_release);
		break;
	default:
		if (level == SOL_SOCKET &&
		    (opt == SO_TIMESTAMPING_OLD || opt == SO_TIMESTAMPING_NEW) &&
		    timestamping_done_here(s, fd))
			break;
		/*
		 * fq(8) paces datagrams where an interface has it, and what goes past the kernel
		 * meets none.
		 */
		if (level == SOL_SOCKET && opt == SO_MAX_PACING_RATE && get_rate(fd) == PACING_NONE)
			break;
		if (!atomic_load_explicit(&s->in_kernel, memory_order_relaxed) &&
		    exception_refuses(fd, level, opt, was))
			ret = -1;
		else
			option_to_kernel(s, fd, level, opt);
	}
	libc_internal_end();
	unlock_dividing(s, cancel, was_kernels);
	return ret;
}

int udp_getsockopt(struct vfd *v, int fd, int level, int opt, void *val, socklen_t *len)
{
	struct udp_sock *s = udp_of(v);

	/*
	 * The kernel socket holds every option, and the pending error; only its memory figures know
	 * nothing of our queue.
	 */
	if (level == SOL_SOCKET && opt == SO_ERROR)
		atomic_fetch_and_explicit(&s->v.os_events, ~(uint32_t)EPOLLERR,
					  memory_order_acq_rel);
	return libc.getsockopt(fd, level, opt, val, len);
}

/* The time of the last datagram handed over, as a struct timeval or timespec. */
static int give_stamp(struct udp_sock *s, int fd, unsigned long req, void *arg)
{
	uint64_t ns = atomic_load_explicit(&s->last_time_ns, memory_order_relaxed);
	int cancel;

	if (!udp_lock_live(s, fd, &cancel))
		return libc.ioctl(fd, req, arg);
	s->o.stamp_ever = true;
	udp_stamping(s);
	udp_unlock(s, cancel);
	if (!ns)
		return libc.ioctl(fd, req, arg);
	if (ns == UDP_UNSTAMPED) {
		struct timespec now;

		/*
		 * As the kernel: the first question comes too late for its packet, and is answered
		 * with the time of asking.
		 */
		clock_gettime(CLOCK_REALTIME, &now);
		ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
		atomic_store_explicit(&s->last_time_ns, ns, memory_order_relaxed);
	}
	if (req == SIOCGSTAMP_OLD || req == SIOCGSTAMP_NEW) {
		struct timeval tv = {.tv_sec = (time_t)(ns / 1000000000u),
				     .tv_usec = (suseconds_t)(ns % 1000000000u / 1000)};

		memcpy(arg, &tv, sizeof(tv));
	} else {
		struct timespec ts = {.tv_sec = (time_t)(ns / 1000000000u),
				      .tv_nsec = (long)(ns % 1000000000u)};

		memcpy(arg, &ts, sizeof(ts));
	}
	return 0;
}

int udp_ioctl(struct vfd *v, int fd, unsigned long req, void *arg)
{
	struct udp_sock *s = udp_of(v);
	int ret, len, cancel;
	bool was_kernels;

	switch (req) {
	case FIONREAD: /* = SIOCINQ: the size of the next datagram */
		len = udp_first_len(s, fd);
		if (len < 0)
			break;
		memcpy(arg, &len, sizeof(len)); /* the kernel takes any alignment */
		return 0;
	case FIONBIO:
		if (!udp_lock_live(s, fd, &cancel))
			break;
		ret = libc.ioctl(fd, req, arg);
		if (!ret) {
			memcpy(&len, arg, sizeof(len));
			s->o.nonblock = len != 0;
		}
		s->stats->blocking = !s->o.nonblock;
		udp_unlock(s, cancel);
		return ret;
	case FIOASYNC:
		if (!udp_lock_live(s, fd, &cancel))
			break;
		ret = libc.ioctl(fd, req, arg);
		if (!ret)
			memcpy(&len, arg, sizeof(len));
		was_kernels = s->in_kernel;
		if (!ret && len)
			udp_to_kernel(s, fd, STATS_WHY(ASYNC));
		unlock_dividing(s, cancel, was_kernels);
		return ret;
	case SIOCGSTAMP_OLD:
	case SIOCGSTAMPNS_OLD:
	case SIOCGSTAMP_NEW:
	case SIOCGSTAMPNS_NEW:
		return give_stamp(s, fd, req, arg);
	default:
		break;
	}
	return libc.ioctl(fd, req, arg);
}

int udp_fcntl(struct vfd *v, int fd, int cmd, long arg)
{
	struct udp_sock *s = udp_of(v);
	bool was_kernels;
	int ret, cancel;

	if (cmd != F_SETFL || !udp_lock_live(s, fd, &cancel))
		return libc.fcntl(fd, cmd, arg);
	was_kernels = s->in_kernel;
	ret = libc.fcntl(fd, cmd, arg);
	if (!ret) {
		s->o.nonblock = (arg & O_NONBLOCK) != 0;
		s->stats->blocking = !s->o.nonblock;
		/* SIGIO comes from the kernel socket: it must see the packets. */
		if (arg & O_ASYNC)
			udp_to_kernel(s, fd, STATS_WHY(ASYNC));
	}
	unlock_dividing(s, cancel, was_kernels);
	return ret;
}
