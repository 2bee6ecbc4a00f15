/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Packets under way: what the plan does to them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define BURST_US 300000u /* the longest burst: no handshake dies of one */

uint32_t wire_mtu(const struct world *w, unsigned from)
{
	const struct wire_plan *p = &w->p.wire[from];
	uint32_t mtu = p->mtu[0];

	for (unsigned i = 1; i < 3; i++)
		if (p->mtu[i] && w->now - w->p.start >= p->mtu_at[i])
			mtu = p->mtu[i];
	return mtu;
}

static void say_packet(const struct world *w, const struct packet *p, const char *what)
{
	struct ip_info ip = {0};
	struct seg s;
	char text[300];
	unsigned hdr = p->data[0] >> 4 == 6 ? 40 : 20;

	if (!w->verbose)
		return;
	ip_parse(&ip, p->data, p->len);
	if (!seg_parse(&s, p->data + hdr, p->len - hdr))
		return;
	s.tos = ip.tos;
	world_say(w, "%c %-9s %s", p->from ? '<' : '>', what,
		  seg_text(text, sizeof(text), &s, 0, 0));
}

/* One bit, or up to 15 neighbours: what a 16-bit one's complement sum must see. */
static void corrupt(struct wire *wire, struct packet *p)
{
	uint32_t at = rng_below(&wire->rng, p->len);

	if (rng_chance(&wire->rng, 500000))
		p->data[at] ^= (uint8_t)(1u << rng_below(&wire->rng, 8));
	else
		p->data[at] ^= (uint8_t)rng_range(&wire->rng, 1, 255);
}

static void set_ce(struct packet *p)
{
	if (p->data[0] >> 4 == 6) {
		if (p->data[1] & 0x30)
			p->data[1] |= 0x30;
	} else if (p->data[1] & 3) {
		uint32_t sum = (uint32_t) ~(p->data[10] << 8 | p->data[11]) & 0xffff;

		/* RFC 1624: the header sum without the old byte, with the new one. */
		sum += 3u - (p->data[1] & 3u);
		sum = ~((sum & 0xffff) + (sum >> 16));
		p->data[1] |= 3;
		p->data[10] = (uint8_t)(sum >> 8);
		p->data[11] = (uint8_t)sum;
	}
}

/* Some part of the window goes, or all of it. The sum follows as in RFC 1624. */
static void shrink(struct wire *wire, struct packet *p)
{
	uint8_t *tcp = p->data + (p->data[0] >> 4 == 6 ? 40 : 20);
	uint32_t was = (uint32_t)tcp[14] << 8 | tcp[15], is,
		 sum = (uint32_t) ~(tcp[16] << 8 | tcp[17]) & 0xffff;

	if (tcp[13] & (F_SYN | F_RST))
		return;
	is = rng_chance(&wire->rng, 300000) ? 0 : rng_below(&wire->rng, was + 1);
	sum += (~was & 0xffff) + is;
	sum = (sum & 0xffff) + (sum >> 16);
	sum = ~((sum & 0xffff) + (sum >> 16));
	tcp[14] = (uint8_t)(is >> 8);
	tcp[15] = (uint8_t)is;
	tcp[16] = (uint8_t)(sum >> 8);
	tcp[17] = (uint8_t)sum;
}

static const char *lost(struct world *w, unsigned from, const struct packet *p)
{
	const struct wire_plan *plan = &w->p.wire[from];
	struct wire *wire = &w->wire[from];
	uint64_t t = w->now - w->p.start;

	if (t >= plan->dark_at && t - plan->dark_at < plan->dark_us)
		return "dark";
	if (wire->burst_left && w->now < wire->burst_until) {
		wire->burst_left--;
		return "burst";
	}
	if (plan->burst_ppm && rng_chance(&wire->rng, plan->burst_ppm)) {
		wire->burst_left = rng_below(&wire->rng, plan->burst_len);
		wire->burst_until = w->now + BURST_US;
		return "burst";
	}
	if (plan->loss_ppm && rng_chance(&wire->rng, plan->loss_ppm))
		return "lost";
	if (plan->rate && wire->busy_until > w->now &&
	    (wire->busy_until - w->now) * plan->rate / US_PER_S + p->len > plan->queue + p->len / 2)
		return "queue";
	return NULL;
}

/* Takes p. */
static void schedule(struct world *w, unsigned from, struct packet *p)
{
	const struct wire_plan *plan = &w->p.wire[from];
	struct wire *wire = &w->wire[from];
	uint64_t when = w->now;

	if (plan->rate) {
		uint64_t begin = wire->busy_until > w->now ? wire->busy_until : w->now;

		if (plan->mark && (begin - w->now) * plan->rate / US_PER_S > plan->mark)
			set_ce(p);
		wire->busy_until = begin + p->len * US_PER_S / plan->rate + 1;
		when = wire->busy_until;
	}
	when += plan->delay_us + (plan->jitter_us ? rng_below(&wire->rng, plan->jitter_us) : 0);
	if (plan->fifo && when < wire->last_arrival)
		when = wire->last_arrival;
	if (plan->reorder_ppm && rng_chance(&wire->rng, plan->reorder_ppm))
		when += rng_range(&wire->rng, 1, plan->reorder_us);
	else
		wire->last_arrival = when;
	world_at(w, when, EVENT_PACKET, !from, p);
}

static struct packet *copy_of(const struct packet *p)
{
	struct packet *q = malloc(sizeof(*q) + p->len);

	memcpy(q, p, sizeof(*q) + p->len);
	return q;
}

/* Takes p. */
static void carry(struct world *w, unsigned from, struct packet *p)
{
	const struct wire_plan *plan = &w->p.wire[from];
	struct wire *wire = &w->wire[from];
	const char *fate = lost(w, from, p);

	wire->packets++;
	wire->bytes += p->len;
	if (fate) {
		wire->drops++;
		say_packet(w, p, fate);
		free(p);
		return;
	}
	say_packet(w, p, "sent");
	if (plan->dup_ppm && rng_chance(&wire->rng, plan->dup_ppm))
		schedule(w, from, copy_of(p));
	if (plan->corrupt_ppm && rng_chance(&wire->rng, plan->corrupt_ppm))
		corrupt(wire, p);
	if (plan->shrink_ppm && rng_chance(&wire->rng, plan->shrink_ppm))
		shrink(wire, p);
	schedule(w, from, p);
}

/* The payload's bytes [off, off + len) behind a copy of the header. */
static struct packet *build(const struct host *from, const struct tcp_tx *tx, uint32_t off,
			    uint32_t len)
{
	unsigned ip = ip_header_len(tx->family);
	struct packet *p = malloc(sizeof(*p) + ip + tx->hdr_len + len);
	uint8_t *tcp = p->data + ip, *to = tcp + tx->hdr_len;
	uint32_t left = len;
	uint16_t sum;

	p->from = (int)from->index;
	p->len = ip + tx->hdr_len + len;
	p->mss = len > tx->mss ? tx->mss : 0;
	ip_header(p->data, tx->family, &tx->tuple->local, &tx->tuple->remote, tx->tos,
		  tx->hdr_len + len);
	memcpy(tcp, tx->hdr, tx->hdr_len);
	for (int i = 0; i < tx->iovcnt && left; i++) {
		const uint8_t *src = tx->iov[i].iov_base;
		size_t n = tx->iov[i].iov_len;

		if (off >= n) {
			off -= (uint32_t)n;
			continue;
		}
		n -= off;
		if (n > left)
			n = left;
		memcpy(to, src + off, n);
		to += n;
		left -= (uint32_t)n;
		off = 0;
	}
	if (left)
		world_fail(from->w, "tcp_tx.len is larger than its vectors");
	sum = tcp_sum(tx->family, &tx->tuple->local, &tx->tuple->remote, tcp, tx->hdr_len + len);
	tcp[16] = (uint8_t)(sum >> 8);
	tcp[17] = (uint8_t)sum;
	return p;
}

/* What a device does to a super-segment (TSO): sequence number, flags and checksum of one piece. */
static void as_piece(struct packet *p, const struct tcp_tx *tx, uint32_t off, bool last)
{
	unsigned ip = ip_header_len(tx->family);
	uint8_t *tcp = p->data + ip;
	uint32_t seq = ((uint32_t)tcp[4] << 24 | tcp[5] << 16 | tcp[6] << 8 | tcp[7]) + off;
	uint16_t sum;

	for (unsigned i = 0; i < 4; i++)
		tcp[4 + i] = (uint8_t)(seq >> (24 - 8 * i));
	if (!last)
		tcp[13] &= (uint8_t) ~(F_FIN | F_PSH);
	if (off)
		tcp[13] &= (uint8_t)~F_CWR;
	p->mss = 0;
	tcp[16] = tcp[17] = 0;
	sum = tcp_sum(tx->family, &tx->tuple->local, &tx->tuple->remote, tcp, p->len - ip);
	tcp[16] = (uint8_t)(sum >> 8);
	tcp[17] = (uint8_t)sum;
}

static uint32_t header_seq(const struct tcp_tx *tx)
{
	return (uint32_t)tx->hdr[4] << 24 | tx->hdr[5] << 16 | tx->hdr[6] << 8 | tx->hdr[7];
}

/* A router's answer to a packet that does not fit. */
static void too_big(struct host *from, const struct tcp_tx *tx, uint32_t mtu)
{
	struct packet *p;

	if (!from->w->p.wire[from->index].icmp)
		return;
	p = malloc(sizeof(*p) + sizeof(struct tcp_tuple));
	p->from = -1;
	p->len = header_seq(tx);
	p->mss = (uint16_t)mtu;
	memcpy(p->data, tx->tuple, sizeof(struct tcp_tuple));
	world_at(from->w, from->w->now + from->w->p.wire[from->index].delay_us + 1, EVENT_PACKET,
		 from->index, p);
}

static void unreachable(struct host *from, const struct tcp_tx *tx)
{
	struct packet *p = malloc(sizeof(*p) + sizeof(struct tcp_tuple));

	p->from = -2;
	p->len = header_seq(tx);
	p->mss = 0;
	memcpy(p->data, tx->tuple, sizeof(struct tcp_tuple));
	world_at(from->w, from->w->now + 1000, EVENT_PACKET, from->index, p);
}

int wire_output(struct host *from, const struct tcp_tx *tx)
{
	struct world *w = from->w;
	unsigned ip = ip_header_len(tx->family);
	uint32_t part = tx->len > tx->mss ? tx->mss : tx->len, mtu = wire_mtu(w, from->index);
	bool cut = w->p.wire[from->index].cut && tx->len > tx->mss;

	check_sent(from, tx);
	if (ip + tx->hdr_len + part > from->p->mtu)
		return -EMSGSIZE;
	if (from->full || (from->p->enobufs_ppm && rng_chance(&from->rng, from->p->enobufs_ppm))) {
		if (!from->full)
			world_at(w, w->now + rng_range(&from->rng, 1, 5000), EVENT_READY,
				 from->index, NULL);
		from->full = true;
		return -ENOBUFS;
	}
	if (from->p->senderr_ppm && rng_chance(&from->rng, from->p->senderr_ppm))
		return -ENETDOWN;
	if (ip + tx->hdr_len + part > mtu) {
		world_say(w, "%c too big: %u for %u", from->index ? '<' : '>',
			  ip + tx->hdr_len + part, mtu);
		too_big(from, tx, mtu);
		return 0;
	}
	/* A SYN would end with it, as in Linux; later it is a hint only. */
	if (from->p->unreach && !(tx->hdr[13] & F_SYN) && rng_chance(&from->rng, 20000))
		unreachable(from, tx);
	if (!cut) {
		carry(w, from->index, build(from, tx, 0, tx->len));
		return 0;
	}
	for (uint32_t off = 0; off < tx->len; off += tx->mss) {
		uint32_t n = tx->len - off < tx->mss ? tx->len - off : tx->mss;
		struct packet *p = build(from, tx, off, n);

		as_piece(p, tx, off, off + n == tx->len);
		carry(w, from->index, p);
	}
	return 0;
}

/* SYNs of strangers that never answer: they fill the queue of half-open connections. */
void wire_flood(struct world *w, uint32_t n)
{
	struct in6_addr src = w->host[0].addr;
	unsigned ip = ip_header_len(w->p.family);

	for (uint32_t i = 0; i < n; i++) {
		struct seg s = {
			.seq = i * 7919, .wnd = 1000, .flags = F_SYN, .mss = 1000, .wscale = -1};
		struct packet *p = malloc(sizeof(*p) + ip + SEG_HDR_MAX);
		unsigned hdr = seg_build(p->data + ip, &s);
		uint16_t sum;

		src.s6_addr[15] = (uint8_t)(100 + i % 100);
		p->from = 0;
		p->mss = 0;
		p->len = ip + hdr;
		p->data[ip] = (FLOOD_PORT + i) >> 8;
		p->data[ip + 1] = (uint8_t)(FLOOD_PORT + i);
		p->data[ip + 2] = SERVER_PORT >> 8;
		p->data[ip + 3] = (uint8_t)SERVER_PORT;
		ip_header(p->data, w->p.family, &src, &w->host[1].addr, 0, hdr);
		sum = tcp_sum(w->p.family, &src, &w->host[1].addr, p->data + ip, hdr);
		p->data[ip + 16] = (uint8_t)(sum >> 8);
		p->data[ip + 17] = (uint8_t)sum;
		world_at(w, w->now + i, EVENT_PACKET, 1, p);
	}
}

static void pool_free(struct buf_pool *pool, struct buf *b);

struct sim_pool {
	struct buf_pool pool;
	struct host *host;
};

static struct sim_pool pools[2] = {{.pool.free = pool_free}, {.pool.free = pool_free}};

static void pool_free(struct buf_pool *pool, struct buf *b)
{
	((struct sim_pool *)pool)->host->bufs--;
	free(b);
}

static struct buf *chunk(struct host *h, const uint8_t *p, uint32_t n)
{
	uint32_t size = h->p->chunk > n ? h->p->chunk : n;
	struct buf *b = calloc(1, sizeof(*b) + size);

	b->data = (uint8_t *)(b + 1);
	memcpy(b->data, p, n);
	b->len = n;
	b->room = size;
	b->refs = 1;
	pools[h->index].host = h;
	b->pool = &pools[h->index].pool;
	h->bufs++;
	return b;
}

struct buf *wire_receive(struct host *to, const struct packet *p)
{
	struct ip_info ip;
	struct buf *b, **tail;
	const uint8_t *tcp;
	uint32_t n, at;

	if (!ip_parse(&ip, p->data, p->len) || p->len - ip.hdr_len < 20) {
		say_packet(to->w, p, "refused");
		return NULL;
	}
	tcp = p->data + ip.hdr_len;
	n = p->len - ip.hdr_len;
	/* The first fragment holds all headers, as the gate promises. */
	at = n < to->p->chunk ? n : to->p->chunk;
	b = chunk(to, tcp, at);
	b->total = n;
	tail = &b->frag;
	for (; at < n; at += (*tail)->len, tail = &(*tail)->frag)
		*tail = chunk(to, tcp + at, n - at < to->p->chunk ? n - at : to->p->chunk);
	b->meta = (struct buf_meta){.src = ip.src,
				    .dst = ip.dst,
				    .ifindex = 1,
				    .family = (uint8_t)ip.family,
				    .ttl = ip.ttl,
				    .tos = ip.tos};
	b->meta.sport = (uint16_t)(tcp[0] << 8 | tcp[1]);
	b->meta.dport = (uint16_t)(tcp[2] << 8 | tcp[3]);
	say_packet(to->w, p, "arrives");
	return b;
}
