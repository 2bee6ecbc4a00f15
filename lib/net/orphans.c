/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The peers of TCP connections that nobody has any more. They are asked for the ACK that RFC 9293,
 * 3.10.7.4, owes to a segment outside of the window: it reaches the kernel, which knows of no such
 * connection and answers with the RST that the peer believes (RFC 5961, 3.2).
 */
#include <errno.h>
#include <limits.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>

#include "net/net.h"
#include "runtime/runtime.h"

#define TTL 64
#define SEND_ROOM (2 << 20)
/* While the device's queue, or a neighbour that is asked for, holds what was sent. */
#define FULL_MSEC 10
#define FULL_MOST 10

int net_raw_socket(int family)
{
	struct caps_sets before = caps_raise(CAPS_BIT(CAP_NET_RAW));
	int fd = OWN_FD(libc.socket(family, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW)), err = -errno;

	caps_lower(&before);
	return fd < 0 ? err : fd;
}

/* For two thousand segments; without CAP_NET_ADMIN there is room for some two hundred. */
static int roomy_socket(int family)
{
	struct caps_sets before = caps_raise(CAPS_BIT(CAP_NET_ADMIN));
	const int room = SEND_ROOM;
	int fd = net_raw_socket(family);

	if (fd >= 0)
		(void)libc.setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room));
	caps_lower(&before);
	return fd;
}

static uint32_t sum16(uint32_t sum, const void *p, size_t len)
{
	uint16_t w;

	for (size_t i = 0; i < len; i += sizeof(w)) {
		memcpy(&w, (const uint8_t *)p + i, sizeof(w));
		sum += w;
	}
	return sum;
}

/* RFC 9293, 3.1; addresses of len bytes. */
static uint16_t checksum(const void *src, const void *dst, size_t len, const struct tcphdr *h)
{
	uint16_t rest[] = {htons(IPPROTO_TCP), htons(sizeof(*h))};
	uint32_t sum = sum16(0, src, len);

	sum = sum16(sum, dst, len);
	sum = sum16(sum, rest, sizeof(rest));
	sum = sum16(sum, h, sizeof(*h));
	sum = (sum >> 16) + (sum & 0xffff);
	return (uint16_t) ~(sum + (sum >> 16));
}

static bool is_v4(const struct vma_flow_key *key)
{
	return IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)key->remote.byte);
}

static int ask4(int fd, const struct vma_flow_key *key, struct tcphdr *h)
{
	/* The kernel fills in length and checksum. */
	struct iphdr ip = {.version = 4, .ihl = 5, .ttl = TTL, .protocol = IPPROTO_TCP};
	struct sockaddr_in to = {.sin_family = AF_INET};
	struct iovec v[] = {{&ip, sizeof(ip)}, {h, sizeof(*h)}};
	struct msghdr msg = {
		.msg_name = &to, .msg_namelen = sizeof(to), .msg_iov = v, .msg_iovlen = 2};

	memcpy(&ip.saddr, &key->local.byte[12], 4);
	memcpy(&ip.daddr, &key->remote.byte[12], 4);
	to.sin_addr.s_addr = ip.daddr;
	h->check = checksum(&ip.saddr, &ip.daddr, 4, h);
	return raw.sendmsg(fd, &msg, MSG_DONTWAIT) < 0 ? -errno : 0;
}

static int ask6(int fd, const struct vma_flow_key *key, int ifindex, struct tcphdr *h)
{
	struct ip6_hdr ip = {.ip6_nxt = IPPROTO_TCP, .ip6_hlim = TTL};
	struct sockaddr_in6 to = {.sin6_family = AF_INET6};
	struct iovec v[] = {{&ip, sizeof(ip)}, {h, sizeof(*h)}};
	struct msghdr msg = {
		.msg_name = &to, .msg_namelen = sizeof(to), .msg_iov = v, .msg_iovlen = 2};

	ip.ip6_flow = htonl(6u << 28);
	ip.ip6_plen = htons(sizeof(*h));
	memcpy(&ip.ip6_src, &key->local, 16);
	memcpy(&ip.ip6_dst, &key->remote, 16);
	to.sin6_addr = ip.ip6_dst;
	if (IN6_IS_ADDR_LINKLOCAL(&ip.ip6_dst))
		to.sin6_scope_id = (uint32_t)ifindex;
	h->check = checksum(&ip.ip6_src, &ip.ip6_dst, 16, h);
	return raw.sendmsg(fd, &msg, MSG_DONTWAIT) < 0 ? -errno : 0;
}

/* No errno. */
#define UNOPENED INT_MIN

static int ask(int fd[2], const struct vma_flow_key *key, int ifindex)
{
	bool v4 = is_v4(key);
	struct tcphdr h = {.source = htons(key->local_port),
			   .dest = htons(key->remote_port),
			   .doff = sizeof(h) / 4,
			   .ack = 1};

	/* Whatever the peer expects is not this, but for one in thousands. */
	if (libc_raw(SYS_getrandom, (long)(uintptr_t)&h.seq, sizeof(h.seq), GRND_NONBLOCK, 0, 0,
		     0) != sizeof(h.seq))
		h.seq = 0;
	if (fd[v4] == UNOPENED)
		fd[v4] = roomy_socket(v4 ? AF_INET : AF_INET6);
	if (fd[v4] < 0)
		return fd[v4];
	return v4 ? ask4(fd[v4], key, &h) : ask6(fd[v4], key, ifindex, &h);
}

/* Where there is no room it waits: at most for 100 ms, all of them together. */
static int ask_in_time(int fd[2], const struct vma_flow_key *key, int ifindex, unsigned *waits)
{
	struct pollfd p = {.events = POLLOUT};
	int err = ask(fd, key, ifindex);

	while (err == -EAGAIN && (*waits)++ < FULL_MOST) {
		p.fd = fd[is_v4(key)];
		(void)raw.poll(&p, 1, FULL_MSEC);
		err = ask(fd, key, ifindex);
	}
	return err;
}

int net_tcp_orphans(const struct vma_flow_key *keys, unsigned num, int ifindex)
{
	int fd[2] = {UNOPENED, UNOPENED}, err = 0;
	unsigned waits = 0;

	for (unsigned i = 0; i < num; i++) {
		int said = ask_in_time(fd, &keys[i], ifindex, &waits);

		err = err ? err : said;
	}
	for (unsigned i = 0; i < 2; i++)
		if (fd[i] >= 0)
			own_fd_close(fd[i]);
	return err;
}
