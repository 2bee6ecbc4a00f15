/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The options that user space copies from the kernel socket. */
#include <fcntl.h>
#include <linux/net_tstamp.h>
#include <linux/udp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "config/config.h"
#include "net/net.h"
#include "runtime/runtime.h"
#include "socket/socket.h"
#include "socket/udp/internal.h"
#include "vma/sockopt_numbers.h"

static int get_int(int fd, int level, int opt, int fallback)
{
	int value = 0;
	socklen_t len = sizeof(value);

	return libc.getsockopt(fd, level, opt, &value, &len) ? fallback : value;
}

/*
 * IP_MULTICAST_IF as an interface; the address form of the option is looked up. An IPv6 socket has
 * it for IPv4's groups.
 */
static void read_mc_if(struct udp_sock *s, int fd)
{
	struct in_addr addr = {0};
	socklen_t len = sizeof(addr);

	s->o.mc_if = 0;
	memset(&s->o.mc_if_addr, 0, sizeof(s->o.mc_if_addr));
	if (libc.getsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &addr, &len) || !addr.s_addr)
		return;
	s->o.mc_if_addr.s6_addr[10] = s->o.mc_if_addr.s6_addr[11] = 0xff;
	memcpy(&s->o.mc_if_addr.s6_addr[12], &addr, 4);
	s->o.mc_if = net_addr_ifindex(&s->o.mc_if_addr);
}

void udp_stamping(struct udp_sock *s)
{
	uint64_t wanted =
		s->o.stamp_ever || s->cb.fn || (s->o.timestamping & SOF_TIMESTAMPING_RX_SOFTWARE)
			? STACK_STAMP_SOFTWARE
			: 0;

	/*
	 * What is asked of a card by ioctl(SIOCSHWTSTAMP) under the kernel, by any process, is
	 * asked of ours by who wants to be told.
	 */
	if (s->o.timestamping & SOF_TIMESTAMPING_RAW_HARDWARE)
		wanted += STACK_STAMP_DEVICE;
	stack_timestamps(wanted - s->o.stamping);
	s->o.stamping = wanted;
}

static void read_timestamps(struct udp_sock *s, int fd)
{
	/*
	 * The kernel answers for the form that was set: SO_TIMESTAMPNS hides SO_TIMESTAMP, as it
	 * does when sending.
	 */
	s->o.timestamp_ns = get_int(fd, SOL_SOCKET, SO_TIMESTAMPNS_OLD, 0) ||
			    get_int(fd, SOL_SOCKET, SO_TIMESTAMPNS_NEW, 0);
	s->o.timestamp = get_int(fd, SOL_SOCKET, SO_TIMESTAMP_OLD, 0) ||
			 get_int(fd, SOL_SOCKET, SO_TIMESTAMP_NEW, 0);
	s->o.ts_new = get_int(fd, SOL_SOCKET, SO_TIMESTAMPNS_NEW, 0) ||
		      get_int(fd, SOL_SOCKET, SO_TIMESTAMP_NEW, 0) ||
		      get_int(fd, SOL_SOCKET, SO_TIMESTAMPING_NEW, 0);
	s->o.timestamping = (uint32_t)get_int(fd, SOL_SOCKET, SO_TIMESTAMPING_OLD, 0);
	if (s->o.timestamp || s->o.timestamp_ns)
		s->o.stamp_ever = true;
	udp_stamping(s);
}

static void read_rcvbuf(struct udp_sock *s, int fd)
{
	int rcvbuf = get_int(fd, SOL_SOCKET, SO_RCVBUF, 212992);

	s->o.rcvbuf = (uint64_t)(rcvbuf > params.rx_bytes_min ? rcvbuf : params.rx_bytes_min);
	stats_set(&s->stats->rx_ready_limit, s->o.rcvbuf);
}

static void read_rcvtimeo(struct udp_sock *s, int fd)
{
	struct timeval tv = {0};
	socklen_t len = sizeof(tv);

	if (s->o.rcv_at_once) {
		s->o.rcvtimeo_ns = 1;
		return;
	}
	if (libc.getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO_OLD, &tv, &len))
		tv = (struct timeval){0};
	s->o.rcvtimeo_ns = (uint64_t)tv.tv_sec * 1000000000u + (uint64_t)tv.tv_usec * 1000u;
}

static void read_df(struct udp_sock *s, int fd)
{
	int pmtu = get_int(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_WANT);

	s->o.df_always = pmtu == IP_PMTUDISC_DO || pmtu == IP_PMTUDISC_PROBE;
	s->o.df = s->o.df_always || pmtu == IP_PMTUDISC_WANT;
}

static void read_mc_hops6(struct udp_sock *s, int fd)
{
	int hops = get_int(fd, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, 1);

	s->o.mc_hops6 = (uint8_t)(hops < 0 ? 1 : hops);
}

enum when {
	/* read of each new socket: sysctls choose it, or a program of its cgroup */
	CHOSEN = 1,
	OF_IPV6 = 2,
	FLAG = 4, /* any value but 0 is true */
};

/* One without a function is an int of the kernel's in a member of struct udp_opts. */
struct mirrored {
	int level, opt;
	int fresh; /* what a new socket has, of which it is not read */
	unsigned kind;
	uint16_t at, bytes;
	void (*read)(struct udp_sock *s, int fd);
};

#define IN(m) .at = offsetof(struct udp_opts, m), .bytes = sizeof(((struct udp_opts *)0)->m)
#define FLAG6 (FLAG | OF_IPV6)

static const struct mirrored mirrored[] = {
	{SOL_SOCKET, SO_RCVBUF, 0, CHOSEN, .read = read_rcvbuf},
	{SOL_SOCKET, SO_MARK, 0, CHOSEN, IN(mark)},
	{SOL_SOCKET, SO_BINDTOIFINDEX, 0, CHOSEN, IN(bound_if)},
	{SOL_SOCKET, SO_RCVTIMEO_OLD, 0, 0, .read = read_rcvtimeo},
	{SOL_SOCKET, SO_TIMESTAMPING_OLD, 0, 0, .read = read_timestamps},
	{SOL_SOCKET, SO_BROADCAST, 0, FLAG, IN(broadcast)},
	{SOL_SOCKET, SO_REUSEPORT, 0, FLAG, IN(reuseport)},
	{SOL_SOCKET, SO_REUSEADDR, 0, FLAG, IN(reuseaddr)},
	{SOL_SOCKET, SO_RXQ_OVFL, 0, FLAG, IN(rxq_ovfl)},
	{IPPROTO_UDP, UDP_SEGMENT, 0, 0, IN(gso_size)},
	{IPPROTO_UDP, UDP_GRO, 0, FLAG, IN(gro)},
	{IPPROTO_IP, IP_MTU_DISCOVER, 0, CHOSEN, .read = read_df},
	{IPPROTO_IP, IP_TTL, 64, CHOSEN, IN(ttl)},
	{IPPROTO_IP, IP_TOS, 0, 0, IN(tos)},
	{IPPROTO_IP, IP_MULTICAST_IF, 0, 0, .read = read_mc_if},
	{IPPROTO_IP, IP_MULTICAST_TTL, 1, 0, IN(mc_ttl)},
	{IPPROTO_IP, IP_MULTICAST_LOOP, 1, FLAG, IN(mc_loop)},
	{IPPROTO_IP, IP_MULTICAST_ALL, 1, FLAG, IN(mc_all)},
	{IPPROTO_IP, IP_PKTINFO, 0, FLAG, IN(pktinfo)},
	{IPPROTO_IP, IP_RECVTTL, 0, FLAG, IN(recvttl)},
	{IPPROTO_IP, IP_RECVTOS, 0, FLAG, IN(recvtos)},
	{IPPROTO_IP, IP_RECVORIGDSTADDR, 0, FLAG, IN(origdst)},
	{IPPROTO_IPV6, IPV6_V6ONLY, 0, CHOSEN | FLAG6, IN(v6only)},
	{IPPROTO_IPV6, IPV6_UNICAST_HOPS, 64, CHOSEN | OF_IPV6, IN(hops6)},
	{IPPROTO_IPV6, IPV6_MULTICAST_HOPS, 0, OF_IPV6, .read = read_mc_hops6},
	{IPPROTO_IPV6, IPV6_MULTICAST_IF, 0, OF_IPV6, IN(mc_if6)},
	{IPPROTO_IPV6, IPV6_MULTICAST_LOOP, 1, FLAG6, IN(mc_loop6)},
	{IPPROTO_IPV6, IPV6_MULTICAST_ALL, 1, FLAG6, IN(mc_all6)},
	{IPPROTO_IPV6, IPV6_TCLASS, 0, OF_IPV6, IN(tclass6)},
	{IPPROTO_IPV6, IPV6_RECVPKTINFO, 0, FLAG6, IN(pktinfo6)},
	{IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 0, FLAG6, IN(recvhoplimit)},
	{IPPROTO_IPV6, IPV6_RECVTCLASS, 0, FLAG6, IN(recvtclass)},
	{IPPROTO_IPV6, IPV6_RECVORIGDSTADDR, 0, FLAG6, IN(origdst6)},
};

#define MIRRORED (sizeof(mirrored) / sizeof(mirrored[0]))

static void put(struct udp_sock *s, const struct mirrored *m, int value)
{
	uint8_t *at = (uint8_t *)&s->o + m->at;

	if (m->bytes == sizeof(uint8_t))
		__atomic_store_n(at, (uint8_t)(m->kind & FLAG ? value != 0 : value),
				 __ATOMIC_RELAXED);
	else
		__atomic_store_n((uint32_t *)(void *)at, (uint32_t)value, __ATOMIC_RELAXED);
}

static void mirror_one(struct udp_sock *s, int fd, const struct mirrored *m)
{
	if ((m->kind & OF_IPV6) && s->domain != AF_INET6)
		return;
	if (m->read)
		m->read(s, fd);
	else
		put(s, m, get_int(fd, m->level, m->opt, m->fresh));
}

/* What follows from the options. */
static void conclude(struct udp_sock *s)
{
	s->o.any_cmsg = s->o.gro || s->o.timestamp || s->o.timestamp_ns || s->o.timestamping ||
			s->o.rxq_ovfl || s->o.pktinfo || s->o.recvttl || s->o.recvtos ||
			s->o.origdst || s->o.pktinfo6 || s->o.recvhoplimit || s->o.recvtclass ||
			s->o.origdst6;
	s->stats->mc_loop = s->o.mc_loop;
	s->stats->mc_if = s->o.mc_if;
}

void udp_opts_mirror(struct udp_sock *s, int fd, int level, int opt)
{
	bool found = false;

	for (size_t i = 0; i < MIRRORED && !found; i++) {
		found = mirrored[i].level == level && mirrored[i].opt == opt;
		if (found)
			mirror_one(s, fd, &mirrored[i]);
	}
	/* It is an option's other name. */
	for (size_t i = 0; i < MIRRORED && !found; i++)
		if (mirrored[i].level == level)
			mirror_one(s, fd, &mirrored[i]);
	conclude(s);
}

void udp_opts_mirror_all(struct udp_sock *s, int fd)
{
	for (size_t i = 0; i < MIRRORED; i++)
		mirror_one(s, fd, &mirrored[i]);
	conclude(s);
}

void udp_opts_mc_if(struct udp_sock *s, const void *val, socklen_t len)
{
	struct ip_mreqn m;

	if (len < sizeof(m))
		return;
	memcpy(&m, val, sizeof(m));
	if (!m.imr_ifindex)
		return;
	s->o.mc_if = m.imr_ifindex;
	s->stats->mc_if = m.imr_ifindex;
}

static void no_loopback(struct udp_sock *s, int fd)
{
	int off = 0;

	libc.setsockopt(fd, IPPROTO_IP, IP_MULTICAST_LOOP, &off, sizeof(off));
	if (s->domain == AF_INET6)
		libc.setsockopt(fd, IPPROTO_IPV6, IPV6_MULTICAST_LOOP, &off, sizeof(off));
	udp_opts_mirror(s, fd, IPPROTO_IP, IP_MULTICAST_LOOP);
	udp_opts_mirror(s, fd, IPPROTO_IPV6, IPV6_MULTICAST_LOOP);
}

/*
 * A system call for each option is as dear as the rest of a resolver's socket, which asks one
 * question: what is the same for each new socket of the kernel's is not read. Member by member: a
 * thread may be in the object's former life.
 */
void udp_opts_init(struct udp_sock *s, int fd)
{
	int flags = raw.fcntl(fd, F_GETFL);

	s->o.nonblock = flags >= 0 && (flags & O_NONBLOCK);
	s->o.timestamp = s->o.timestamp_ns = s->o.ts_new = s->o.stamp_ever = false;
	s->o.timestamping = 0;
	s->o.stamping = 0;
	s->o.rcv_at_once = false;
	s->o.rcvtimeo_ns = 0;
	s->o.mc_hops6 = 1;
	s->o.mc_if = 0;
	s->o.mc_if_addr = in6addr_any;
	for (size_t i = 0; i < MIRRORED; i++) {
		if (!mirrored[i].read)
			put(s, &mirrored[i], mirrored[i].fresh);
		if (mirrored[i].kind & CHOSEN)
			mirror_one(s, fd, &mirrored[i]);
	}
	conclude(s);
	if (!params.tx_mc_loopback)
		no_loopback(s, fd);
}
