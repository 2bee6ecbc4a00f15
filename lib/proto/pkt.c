/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "proto/pkt.h"

#include <arpa/inet.h>
#include <endian.h>
#include <netinet/if_ether.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "proto/csum.h"
#include "proto/pkt_udp4.h"

#define TAG 4 /* bytes of IEEE 802.1Q's, behind the addresses */
#define VID_MASK 0xfffu
#define ETHERTYPE_8021AD 0x88a8u

/*
 * What the network layer found: where the transport header is and how long it and its payload are.
 */
struct l3 {
	uint32_t l4_off;
	uint32_t l4_len;
	uint64_t pseudo; /* sum of the pseudo header but for the length */
	uint8_t proto;
};

/* Two stores of eight bytes. */
static inline void map_v4(struct in6_addr *to, const void *v4)
{
	uint8_t low[8] = {0, 0, 0xff, 0xff};

	memset(to, 0, 8);
	memcpy(low + 4, v4, 4);
	memcpy(&to->s6_addr[8], low, 8);
}

/*
 * Linux's BIG TCP (gso_ipv4_max_size, gro_ipv4_max_size above 65,536; Linux 6.3): merged segments
 * that the 16 bits of the length have no room for say 0 there. Such a frame comes whole in generic
 * mode, of a virtual device or after GRO, and ends where the packet does. 0: it is none.
 */
static uint32_t big_tcp_len(const struct buf *b, const struct iphdr *ip)
{
	uint32_t len = b->total - ETH_HLEN;

	return !ip->tot_len && ip->protocol == IPPROTO_TCP && len > UINT16_MAX ? len : 0;
}

static enum pkt_result parse_v4(struct buf *b, struct l3 *l3)
{
	const uint8_t *p = b->data + ETH_HLEN;
	struct iphdr ip;
	uint32_t total;

	if (b->len < ETH_HLEN + sizeof(ip))
		return PKT_MALFORMED;
	memcpy(&ip, p, sizeof(ip));
	total = ntohs(ip.tot_len);
	if (ip.version != 4 || ip.ihl < 5 || total > b->total - ETH_HLEN)
		return PKT_MALFORMED;
	if (__builtin_expect(total < ip.ihl * 4u, 0)) {
		total = big_tcp_len(b, &ip);
		if (!total)
			return PKT_MALFORMED;
	}
	if (ip.ihl != 5 || (ip.frag_off & htons(IP_MF | IP_OFFMASK)))
		return PKT_OTHER; /* the steering program leaves these to the kernel */
	if (!(b->flags & BUF_CSUM_OK) && csum_fold(csum_ipv4_header(p)) != 0xffff)
		return PKT_BAD_CHECKSUM;

	map_v4(&b->meta.src, &ip.saddr);
	map_v4(&b->meta.dst, &ip.daddr);
	b->meta.family = AF_INET;
	b->meta.ttl = ip.ttl;
	b->meta.tos = ip.tos;
	b->meta.multicast = IN_MULTICAST(ntohl(ip.daddr)) || ip.daddr == INADDR_BROADCAST;
	l3->proto = ip.protocol;
	l3->l4_off = ETH_HLEN + sizeof(ip);
	l3->l4_len = total - sizeof(ip);
	l3->pseudo = (uint64_t)htons(ip.protocol) + ip.saddr + ip.daddr;
	return PKT_UDP;
}

static enum pkt_result parse_v6(struct buf *b, struct l3 *l3)
{
	struct ip6_hdr ip;
	uint32_t flow;

	if (b->len < ETH_HLEN + sizeof(ip))
		return PKT_MALFORMED;
	memcpy(&ip, b->data + ETH_HLEN, sizeof(ip));
	flow = ntohl(ip.ip6_flow);
	l3->l4_len = ntohs(ip.ip6_plen);
	if (flow >> 28 != 6 || l3->l4_len > b->total - ETH_HLEN - sizeof(ip))
		return PKT_MALFORMED;

	b->meta.src = ip.ip6_src;
	b->meta.dst = ip.ip6_dst;
	b->meta.family = AF_INET6;
	b->meta.ttl = ip.ip6_hlim;
	b->meta.tos = (uint8_t)(flow >> 20);
	b->meta.multicast = IN6_IS_ADDR_MULTICAST(&ip.ip6_dst);
	l3->proto = ip.ip6_nxt;
	l3->l4_off = ETH_HLEN + sizeof(ip);
	l3->pseudo = csum_add(htons(ip.ip6_nxt), &ip.ip6_src, 32);
	return PKT_UDP;
}

/* Sums the first `left` bytes of the chain that starts at p inside b. */
static uint64_t chain_sum(const struct buf *b, const uint8_t *p, uint32_t left)
{
	uint32_t here = b->len - (uint32_t)(p - b->data);
	uint64_t sum = 0;
	uint32_t done = 0;

	for (;;) {
		uint32_t n = here < left ? here : left;
		uint64_t part = csum_add(0, p, n);

		sum += done & 1 ? csum_swap(part) : part;
		done += n;
		left -= n;
		b = b->frag;
		if (!left || !b)
			return sum;
		p = b->data;
		here = b->len;
	}
}

/*
 * A virtual device hands over frames of its own host whose field holds only the pseudo-header sum,
 * not complemented (CHECKSUM_PARTIAL): those never were on a wire.
 */
static bool l4_checksum_ok(const struct buf *b, uint16_t check, const struct l3 *l3)
{
	if (b->flags & BUF_CSUM_OK)
		return true;
	if ((b->flags & BUF_CSUM_PARTIAL_OK) && check == csum_fold(l3->pseudo))
		return true;
	return csum_fold(l3->pseudo + chain_sum(b, b->data + l3->l4_off, l3->l4_len)) == 0xffff;
}

/* RFC 768/8200. */
static bool udp_checksum_ok(const struct buf *b, const struct udphdr *uh, const struct l3 *l3)
{
	if (uh->check == 0 && !(b->flags & BUF_CSUM_OK))
		return b->meta.family == AF_INET;
	return l4_checksum_ok(b, uh->check, l3);
}

/* Makes b's chain end after its first `total` bytes: what follows is padding of the link. */
static void chain_trim(struct buf *b, uint32_t total)
{
	b->total = total;
	for (; b; b = b->frag) {
		if (b->len > total)
			b->len = total;
		total -= b->len;
	}
}

static enum pkt_result parse_udp(struct buf *b, struct l3 *l3)
{
	struct udphdr uh;
	uint32_t ulen;

	if (l3->l4_len < sizeof(uh) || b->len < l3->l4_off + sizeof(uh))
		return PKT_MALFORMED;
	memcpy(&uh, b->data + l3->l4_off, sizeof(uh));
	ulen = ntohs(uh.len);
	if (ulen < sizeof(uh) || ulen > l3->l4_len)
		return PKT_MALFORMED;
	/*
	 * Bytes of the IP packet behind the datagram belong to nobody; the kernel cuts them off,
	 * too.
	 */
	l3->l4_len = ulen;
	l3->pseudo += uh.len;
	if (!udp_checksum_ok(b, &uh, l3))
		return PKT_BAD_CHECKSUM;
	b->meta.sport = ntohs(uh.source);
	b->meta.dport = ntohs(uh.dest);
	chain_trim(b, l3->l4_off + ulen);
	b->data += l3->l4_off + sizeof(uh);
	b->len -= l3->l4_off + (uint32_t)sizeof(uh);
	b->total = ulen - (uint32_t)sizeof(uh);
	return PKT_UDP;
}

/*
 * An address that one host can have: neither multicast nor broadcast nor none (RFC 9293, 3.9.2.3;
 * RFC 1122, 3.2.1.3).
 */
static bool is_host(const struct in6_addr *a, uint8_t family)
{
	uint32_t v4;

	/* In an IPv6 packet it would be taken for the IPv4 address that it contains. */
	if (family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(a))
		return false;
	if (!IN6_IS_ADDR_V4MAPPED(a))
		return !IN6_IS_ADDR_MULTICAST(a) && !IN6_IS_ADDR_UNSPECIFIED(a);
	memcpy(&v4, &a->s6_addr[12], sizeof(v4));
	return !IN_MULTICAST(ntohl(v4)) && v4 != INADDR_BROADCAST && v4 != INADDR_ANY;
}

static enum pkt_result parse_tcp(struct buf *b, struct l3 *l3)
{
	struct tcphdr th;

	if (l3->l4_len < sizeof(th) || b->len < l3->l4_off + sizeof(th))
		return PKT_MALFORMED;
	memcpy(&th, b->data + l3->l4_off, sizeof(th));
	if (th.doff < 5 || th.doff * 4u > l3->l4_len || b->len < l3->l4_off + th.doff * 4u)
		return PKT_MALFORMED;
	if (b->meta.multicast || !is_host(&b->meta.src, b->meta.family))
		return PKT_OTHER;
	/* Of 32 bits: it may be more than an IPv4 header can say. */
	l3->pseudo += htonl(l3->l4_len);
	if (!l4_checksum_ok(b, th.check, l3))
		return PKT_BAD_CHECKSUM;
	b->meta.sport = ntohs(th.source);
	b->meta.dport = ntohs(th.dest);
	chain_trim(b, l3->l4_off + l3->l4_len);
	b->data += l3->l4_off;
	b->len -= l3->l4_off;
	b->total = l3->l4_len;
	return PKT_TCP;
}

/*
 * A frame that went to several hosts, says its Ethernet address, is no TCP segment, whatever the
 * packet says.
 */
static enum pkt_result parse_l3(struct buf *b, bool several)
{
	enum pkt_result res;
	struct l3 l3;
	uint16_t type;

	memcpy(&type, b->data + 2 * ETH_ALEN, sizeof(type));
	if (type == htons(ETHERTYPE_IP))
		res = parse_v4(b, &l3);
	else if (type == htons(ETHERTYPE_IPV6))
		res = parse_v6(b, &l3);
	else
		return PKT_OTHER;
	if (res != PKT_UDP)
		return res;
	if (l3.proto == IPPROTO_TCP)
		return several ? PKT_OTHER : parse_tcp(b, &l3);
	return l3.proto == IPPROTO_UDP ? parse_udp(b, &l3) : PKT_OTHER;
}

/*
 * A tag of VLAN 0 says a priority and nothing else (IEEE 802.1Q, 9.6): the frame is the
 * interface's, not a VLAN's.
 */
static bool has_priority_tag(const struct buf *b)
{
	uint16_t tag[2];

	if (b->len < ETH_HLEN + TAG)
		return false;
	memcpy(tag, b->data + 2 * ETH_ALEN, sizeof(tag));
	return (tag[0] == htons(ETHERTYPE_VLAN) || tag[0] == htons(ETHERTYPE_8021AD)) &&
	       !(tag[1] & htons(VID_MASK));
}

/* The frame starts so many bytes later. */
static void step(struct buf *b, int bytes)
{
	b->data += bytes;
	b->len -= (uint32_t)bytes;
	b->total -= (uint32_t)bytes;
}

/* Every frame that parse_plain() does not take, and the reason why one is refused. */
static __attribute__((noinline)) enum pkt_result parse_any(struct buf *b)
{
	enum pkt_result res;
	bool several;

	if (b->len < ETH_HLEN)
		return PKT_MALFORMED;
	several = b->data[0] & 1;
	if (!has_priority_tag(b))
		return parse_l3(b, several);
	step(b, TAG);
	res = parse_l3(b, several);
	if (res != PKT_UDP && res != PKT_TCP)
		step(b, -TAG);
	return res;
}

static inline uint16_t load16(const uint8_t *p)
{
	uint16_t w;

	memcpy(&w, p, sizeof(w));
	return w;
}

static inline uint32_t load32(const uint8_t *p)
{
	uint32_t w;

	memcpy(&w, p, sizeof(w));
	return w;
}

static inline uint64_t load64(const uint8_t *p)
{
	uint64_t w;

	memcpy(&w, p, sizeof(w));
	return w;
}

/*
 * As udp_checksum_ok() of what the device has not checked, the headers at ip and the datagram of
 * ulen bytes in one piece.
 */
static inline bool plain_checksum_ok(const struct buf *b, const uint8_t *ip, uint32_t ulen)
{
	uint64_t pseudo =
		(uint64_t)htons(IPPROTO_UDP) + load32(ip + 12) + load32(ip + 16) + load16(ip + 24);
	uint16_t check = load16(ip + 26);

	if (!check || ((b->flags & BUF_CSUM_PARTIAL_OK) && check == csum_fold(pseudo)))
		return true;
	return csum_fold(csum_add(pseudo, ip + 20, ulen)) == 0xffff;
}

/*
 * The usual frame in one pass: one piece, IPv4 without options, not a fragment, UDP, all lengths
 * and sums right. False: not that, b is as it was.
 */
static inline bool parse_plain(struct buf *b)
{
	const uint8_t *ip = b->data + ETH_HLEN;
	uint32_t total, ulen;

	if (b->len < PKT_UDP4_HEADERS || b->frag)
		return false;
	if (load16(ip - 2) != htons(ETHERTYPE_IP) ||
	    (load64(ip) & htobe64(PKT_PLAIN_MASK)) != htobe64(PKT_PLAIN_WORD) ||
	    ip[9] != IPPROTO_UDP)
		return false;
	total = ntohs(load16(ip + 2));
	ulen = ntohs(load16(ip + 24));
	if (total > b->len - ETH_HLEN || ulen + 20 > total || ulen < sizeof(struct udphdr))
		return false;
	if (!(b->flags & BUF_CSUM_OK) &&
	    (csum_fold(csum_ipv4_header(ip)) != 0xffff || !plain_checksum_ok(b, ip, ulen)))
		return false;

	map_v4(&b->meta.src, ip + 12);
	map_v4(&b->meta.dst, ip + 16);
	b->meta.sport = ntohs(load16(ip + 20));
	b->meta.dport = ntohs(load16(ip + 22));
	b->meta.family = AF_INET;
	b->meta.ttl = ip[8];
	b->meta.tos = ip[1];
	b->meta.multicast = ip[16] >> 4 == 14 || load32(ip + 16) == INADDR_BROADCAST;
	b->data += PKT_UDP4_HEADERS;
	b->len = b->total = ulen - (uint32_t)sizeof(struct udphdr);
	return true;
}

enum pkt_result pkt_parse(struct buf *b)
{
	return __builtin_expect(parse_plain(b), 1) ? PKT_UDP : parse_any(b);
}
