/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What has come from the wire once more, for the kernel's sockets: it gets the packet from us, by
 * way of its own loopback, with the addresses that it had.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/sock_diag.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/udp.h>
#include <stddef.h>
#include <string.h>
#include <sys/uio.h>

#include "handover/internal.h"
#include "net/net.h"
#include "proto/proto.h"
#include "runtime/runtime.h"

#define TTL 64

static bool is_v4(const struct in6_addr *a)
{
	return IN6_IS_ADDR_V4MAPPED(a);
}

uint16_t replay_csum(const struct replay_to *to, const struct iovec *iov, size_t num)
{
	size_t skip = is_v4(&to->dst) ? 12 : 0, len = 0;
	uint64_t sum;
	uint16_t be[2];

	for (size_t i = 0; i < num; i++)
		len += iov[i].iov_len;
	be[0] = htons(to->proto);
	be[1] = htons((uint16_t)len);
	sum = csum_add(0, be, sizeof(be));
	sum = csum_add(sum, &to->src.s6_addr[skip], 16 - skip);
	sum = csum_add(sum, &to->dst.s6_addr[skip], 16 - skip);
	/* All but the last are of even length. */
	for (size_t i = 0; i < num; i++)
		sum = csum_add(sum, iov[i].iov_base, iov[i].iov_len);
	return (uint16_t)~csum_fold(sum);
}

int replay_open(struct replay *r, const struct in6_addr *dst)
{
	int *fd = is_v4(dst) ? &r->fd4 : &r->fd6;
	int open = *fd >= 0 ? *fd : net_raw_socket(is_v4(dst) ? AF_INET : AF_INET6);

	if (open < 0)
		return open;
	*fd = open;
	return 0;
}

void replay_close(struct replay *r)
{
	if (r->fd4 >= 0)
		own_fd_close(r->fd4);
	if (r->fd6 >= 0)
		own_fd_close(r->fd6);
	*r = REPLAY_NONE;
}

static size_t put_header(const struct replay_to *to, size_t len, void *at)
{
	if (is_v4(&to->dst)) {
		/* The kernel fills in length and checksum. */
		struct iphdr ip = {.version = 4,
				   .ihl = 5,
				   .tos = to->tos,
				   .ttl = to->ttl ? to->ttl : TTL,
				   .protocol = to->proto};

		memcpy(&ip.saddr, &to->src.s6_addr[12], 4);
		memcpy(&ip.daddr, &to->dst.s6_addr[12], 4);
		memcpy(at, &ip, sizeof(ip));
		return sizeof(ip);
	}
	struct ip6_hdr ip = {.ip6_src = to->src, .ip6_dst = to->dst};

	ip.ip6_flow = htonl(6u << 28 | (uint32_t)to->tos << 20);
	ip.ip6_plen = htons((uint16_t)len);
	ip.ip6_nxt = to->proto;
	ip.ip6_hlim = to->ttl ? to->ttl : TTL;
	memcpy(at, &ip, sizeof(ip));
	return sizeof(ip);
}

int replay_send(const struct replay *r, const struct replay_to *to, const struct iovec *iov,
		size_t num)
{
	struct sockaddr_in to4 = {.sin_family = AF_INET};
	struct sockaddr_in6 to6 = {.sin6_family = AF_INET6, .sin6_addr = to->dst};
	uint8_t header[sizeof(struct ip6_hdr)];
	struct iovec all[1 + REPLAY_PIECES];
	struct msghdr msg = {.msg_iov = all, .msg_iovlen = 1 + num};
	size_t len = 0;

	for (size_t i = 0; i < num; i++) {
		all[1 + i] = iov[i];
		len += iov[i].iov_len;
	}
	all[0] = (struct iovec){header, put_header(to, len, header)};
	memcpy(&to4.sin_addr, &to->dst.s6_addr[12], 4);
	msg.msg_name = is_v4(&to->dst) ? (void *)&to4 : (void *)&to6;
	msg.msg_namelen = is_v4(&to->dst) ? sizeof(to4) : sizeof(to6);
	return raw.sendmsg(is_v4(&to->dst) ? r->fd4 : r->fd6, &msg, MSG_DONTWAIT) < 0 ? -errno : 0;
}

/* --- datagrams */

struct replaying {
	struct replay by; /* a dual-stack socket has both families' */
	int fd; /* the kernel socket that is to have them */
	unsigned num;
	bool is_full;
};

/*
 * The kernel would drop a datagram of len bytes, and say nothing. What it occupies there depends on
 * how it is cut into pages: twice its length and this are more.
 */
static bool would_be_dropped(int fd, size_t len)
{
	uint32_t mem[SK_MEMINFO_VARS] = {0};
	socklen_t n = sizeof(mem);

	return !libc.getsockopt(fd, SOL_SOCKET, SO_MEMINFO, mem, &n) &&
	       mem[SK_MEMINFO_RMEM_ALLOC] + 2 * len + 1024 > mem[SK_MEMINFO_RCVBUF];
}

/* udp_take_queued() */
static bool replay_datagram(const struct buf_meta *m, const void *data, size_t len, void *arg)
{
	struct replaying *r = arg;
	struct replay_to to = {
		.src = m->src, .dst = m->dst, .proto = IPPROTO_UDP, .ttl = m->ttl, .tos = m->tos};
	struct udphdr h = {.source = htons(m->sport), .dest = htons(m->dport)};
	struct iovec iov[] = {{&h, sizeof(h)}, {(void *)(uintptr_t)data, len}};

	/* By the loopback a group's copies would go to others, too; a link's address is not its. */
	if (m->multicast || IN6_IS_ADDR_LINKLOCAL(&m->src) || IN6_IS_ADDR_LINKLOCAL(&m->dst))
		return false;
	/* Those behind one that finds no room wait with it, in their order. */
	r->is_full = r->is_full || would_be_dropped(r->fd, len);
	if (r->is_full || replay_open(&r->by, &m->dst))
		return false;
	h.len = htons((uint16_t)(sizeof(h) + len));
	h.check = replay_csum(&to, iov, 2);
	if (!h.check)
		h.check = 0xffff; /* 0 says that there is none */
	if (replay_send(&r->by, &to, iov, 2))
		return false;
	r->num++;
	return true;
}

void udp_replay_queued(struct udp_sock *s)
{
	struct replaying r = {
		.by = REPLAY_NONE,
		.fd = atomic_load_explicit(&s->v.os_fd, memory_order_relaxed),
	};

	/* What comes by another interface is not for it. */
	if (s->o.bound_if)
		return;
	udp_take_queued(s, replay_datagram, &r);
	replay_close(&r.by);
	if (r.num)
		log_debug("fd %d: %u datagrams that waited here wait in the kernel now", r.fd,
			  r.num);
}
