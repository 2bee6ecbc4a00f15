/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "socket/udp/cmsg.h"

#include <arpa/inet.h>
#include <linux/errqueue.h>
#include <linux/net_tstamp.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#include "net/net.h"
#include "vma/sockopt_numbers.h"

/* The control buffer as it fills up. */
struct out {
	uint8_t *at;
	size_t room;
	bool truncated;
};

/*
 * put_cmsg() of the kernel: a header that does not fit is left out, data is cut; both set
 * MSG_CTRUNC.
 */
static void put(struct out *o, int level, int type, const void *data, size_t len)
{
	struct cmsghdr h = {.cmsg_level = level, .cmsg_type = type, .cmsg_len = CMSG_LEN(len)};
	size_t space = CMSG_SPACE(len);

	if (o->room < sizeof(h)) {
		o->truncated = true;
		return;
	}
	if (o->room < h.cmsg_len) {
		o->truncated = true;
		h.cmsg_len = o->room;
	}
	memcpy(o->at, &h, sizeof(h));
	memcpy(o->at + CMSG_LEN(0), data, h.cmsg_len - CMSG_LEN(0));
	if (space > o->room)
		space = o->room;
	o->at += space;
	o->room -= space;
}

static struct timespec timespec_of(uint64_t ns)
{
	return (struct timespec){.tv_sec = (time_t)(ns / 1000000000u),
				 .tv_nsec = (long)(ns % 1000000000u)};
}

/* SO_TIMESTAMPING, with software's stamp if there is one and the device's if it told one. */
static void put_timestamping(struct udp_sock *s, struct out *o, struct timespec software,
			     const struct buf *b)
{
	struct timespec three[3] = {0};

	/*
	 * SOF_TIMESTAMPING_RX_SOFTWARE and _HARDWARE have packets stamped; any stamp is told, by
	 * these two.
	 */
	if (s->o.timestamping & SOF_TIMESTAMPING_SOFTWARE)
		three[0] = software;
	if ((s->o.timestamping & SOF_TIMESTAMPING_RAW_HARDWARE) && (b->flags & BUF_HW_TIME))
		three[2] = timespec_of(b->hw_ns);
	if (three[0].tv_sec || three[0].tv_nsec || three[2].tv_sec || three[2].tv_nsec)
		put(o, SOL_SOCKET, s->o.ts_new ? SO_TIMESTAMPING_NEW : SO_TIMESTAMPING_OLD, three,
		    sizeof(three));
}

static void put_timestamps(struct udp_sock *s, struct out *o, const struct buf *b)
{
	struct timespec ts = timespec_of(b->time_ns);
	struct timeval tv;

	/* Arrived before the option was set: the kernel gives the present time. */
	if (!b->time_ns && (s->o.timestamp || s->o.timestamp_ns))
		clock_gettime(CLOCK_REALTIME, &ts);
	tv.tv_sec = ts.tv_sec;
	tv.tv_usec = ts.tv_nsec / 1000;
	/*
	 * On 64-bit machines the old and the new structs are the same bytes; only the type differs.
	 */
	if (s->o.timestamp_ns)
		put(o, SOL_SOCKET, s->o.ts_new ? SO_TIMESTAMPNS_NEW : SO_TIMESTAMPNS_OLD, &ts,
		    sizeof(ts));
	else if (s->o.timestamp)
		put(o, SOL_SOCKET, s->o.ts_new ? SO_TIMESTAMP_NEW : SO_TIMESTAMP_OLD, &tv,
		    sizeof(tv));
	put_timestamping(s, o, ts, b);
}

static void put_v4(struct udp_sock *s, struct out *o, const struct buf_meta *m)
{
	if (s->o.pktinfo) {
		struct in_pktinfo info = {.ipi_ifindex = (int)m->ifindex};

		memcpy(&info.ipi_addr, &m->dst.s6_addr[12], 4);
		/*
		 * ipi_spec_dst: the address to answer from; for a unicast packet its own
		 * destination.
		 */
		memcpy(&info.ipi_spec_dst, &m->dst.s6_addr[12], 4);
		if (m->multicast) {
			struct net_route_query q = {.dst = m->src};
			struct net_route r;

			memset(&info.ipi_spec_dst, 0, 4);
			if (!net_route_get(&q, &r))
				memcpy(&info.ipi_spec_dst, &r.prefsrc.s6_addr[12], 4);
		}
		put(o, IPPROTO_IP, IP_PKTINFO, &info, sizeof(info));
	}
	if (s->o.recvttl) {
		int ttl = m->ttl;

		put(o, IPPROTO_IP, IP_TTL, &ttl, sizeof(ttl));
	}
	if (s->o.recvtos)
		put(o, IPPROTO_IP, IP_TOS, &m->tos, sizeof(m->tos));
	if (s->o.origdst) {
		struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(m->dport)};

		memcpy(&in.sin_addr, &m->dst.s6_addr[12], 4);
		put(o, IPPROTO_IP, IP_ORIGDSTADDR, &in, sizeof(in));
	}
}

/*
 * An IPv6 socket: what RFC 3542 gives, for v4-mapped datagrams only the packet info (as in the
 * kernel).
 */
static void put_v6(struct udp_sock *s, struct out *o, const struct buf_meta *m)
{
	int value;

	if (s->o.pktinfo6) {
		struct in6_pktinfo info = {.ipi6_addr = m->dst, .ipi6_ifindex = m->ifindex};

		put(o, IPPROTO_IPV6, IPV6_PKTINFO, &info, sizeof(info));
	}
	if (m->family != AF_INET6)
		return;
	if (s->o.recvhoplimit) {
		value = m->ttl;
		put(o, IPPROTO_IPV6, IPV6_HOPLIMIT, &value, sizeof(value));
	}
	if (s->o.recvtclass) {
		value = m->tos;
		put(o, IPPROTO_IPV6, IPV6_TCLASS, &value, sizeof(value));
	}
	if (s->o.origdst6) {
		struct sockaddr_in6 in6 = {
			.sin6_family = AF_INET6, .sin6_port = htons(m->dport), .sin6_addr = m->dst};

		if (IN6_IS_ADDR_LINKLOCAL(&m->dst))
			in6.sin6_scope_id = m->ifindex;
		put(o, IPPROTO_IPV6, IPV6_ORIGDSTADDR, &in6, sizeof(in6));
	}
}

void udp_cmsg_write(struct udp_sock *s, const struct buf *b, struct msghdr *msg)
{
	struct out o = {.at = msg->msg_control, .room = msg->msg_control ? msg->msg_controllen : 0};

	put_timestamps(s, &o, b);
	if (s->o.rxq_ovfl && (b->flags & BUF_DROPS) && b->seq)
		put(&o, SOL_SOCKET, SO_RXQ_OVFL, &b->seq, sizeof(b->seq));
	if (s->o.gro && b->gso_size) {
		int size = b->gso_size;

		put(&o, SOL_UDP, UDP_GRO, &size, sizeof(size));
	}
	if (s->domain == AF_INET6)
		put_v6(s, &o, &b->meta);
	if (b->meta.family == AF_INET)
		put_v4(s, &o, &b->meta);
	msg->msg_controllen = (size_t)(o.at - (uint8_t *)msg->msg_control);
	if (!msg->msg_control)
		msg->msg_controllen = 0;
	if (o.truncated)
		msg->msg_flags |= MSG_CTRUNC;
}

/* More than that the kernel may refuse for want of room (net.core.optmem_max). */
#define CONTROL_MAX 1024u

/* An int from lowest to 255. */
static bool take_int(const struct cmsghdr *c, int lowest, int *out)
{
	if (c->cmsg_len != CMSG_LEN(sizeof(*out)))
		return false;
	memcpy(out, CMSG_DATA(c), sizeof(*out));
	return *out >= lowest && *out <= 255;
}

/* IP_TOS may be a byte, too. */
static bool take_tos(const struct cmsghdr *c, int *out)
{
	if (c->cmsg_len != CMSG_LEN(sizeof(uint8_t)))
		return take_int(c, 0, out);
	*out = *CMSG_DATA(c);
	return true;
}

/* One that names no interface leaves what an earlier one has named. */
static bool take_info4(const struct cmsghdr *c, struct udp_pktinfo *out)
{
	struct in_pktinfo info;

	if (c->cmsg_len != CMSG_LEN(sizeof(info)))
		return false;
	memcpy(&info, CMSG_DATA(c), sizeof(info));
	out->given = true;
	if (info.ipi_ifindex)
		out->ifindex = info.ipi_ifindex;
	memset(&out->src, 0, sizeof(out->src));
	memset(&out->src.s6_addr[10], 0xff, 2);
	memcpy(&out->src.s6_addr[12], &info.ipi_spec_dst, 4);
	return info.ipi_ifindex >= 0;
}

static bool take_info6(const struct cmsghdr *c, struct udp_pktinfo *out)
{
	struct in6_pktinfo info;

	if (c->cmsg_len != CMSG_LEN(sizeof(info)) || out->given)
		return false;
	memcpy(&info, CMSG_DATA(c), sizeof(info));
	out->given = true;
	out->ifindex = (int)info.ipi6_ifindex;
	out->src = info.ipi6_addr;
	return out->ifindex >= 0;
}

/* False: it is none of ours, or the kernel would refuse it. */
static bool take(const struct cmsghdr *c, struct udp_ctl *ctl, uint32_t *gso_size)
{
	uint16_t size;

	if (c->cmsg_level == SOL_UDP && c->cmsg_type == UDP_SEGMENT) {
		if (c->cmsg_len != CMSG_LEN(sizeof(size)))
			return false;
		memcpy(&size, CMSG_DATA(c), sizeof(size));
		*gso_size = size;
		return true;
	}
	ctl->given = true;
	if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO)
		return take_info4(c, &ctl->info4);
	if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TTL)
		return take_int(c, 1, &ctl->ttl);
	if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS)
		return take_tos(c, &ctl->tos);
	if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO)
		return take_info6(c, &ctl->info6);
	if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_HOPLIMIT)
		return take_int(c, 0, &ctl->hops6);
	if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_TCLASS)
		return take_int(c, 0, &ctl->tclass6);
	return false;
}

bool udp_cmsg_tx(const struct msghdr *msg, struct udp_ctl *ctl, uint32_t *gso_size)
{
	const uint8_t *at = msg->msg_control;
	size_t left = msg->msg_controllen, step;

	*ctl = (struct udp_ctl)UDP_CTL_NONE;
	if (left > CONTROL_MAX)
		return false;
	/* Not by CMSG_NXTHDR(): it ends where the kernel says EINVAL. */
	while (left >= sizeof(struct cmsghdr)) {
		const struct cmsghdr *c = (const struct cmsghdr *)at;

		if (c->cmsg_len < sizeof(*c) || c->cmsg_len > left || !take(c, ctl, gso_size))
			return false;
		step = CMSG_ALIGN(c->cmsg_len);
		if (step > left)
			break;
		at += step;
		left -= step;
	}
	return !ctl->info4.given || !ctl->info6.given;
}
