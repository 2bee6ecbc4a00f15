/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The other side of the wire in fuzz_tcp.c: segments that would be good ones but for what the input
 * moves.
 */
#ifndef TESTS_FUZZ_TCP_PEER_H
#define TESTS_FUZZ_TCP_PEER_H

#include <sys/socket.h>

#include "tcp_world.h"

#define PORT 80
#define PASSIVE 4u /* peers that open; the tuples above them are for connect() */
#define TUPLES 8u
#define BIG STREAM_MAX

static struct world w;
static uint8_t family;

/* What is left of the input; zeros behind its end. */
struct in {
	const uint8_t *p, *end;
};

static inline uint8_t take8(struct in *in)
{
	return in->p < in->end ? *in->p++ : 0;
}

static inline uint16_t take16(struct in *in)
{
	uint16_t high = take8(in);

	return (uint16_t)(high << 8 | take8(in));
}

static inline uint32_t take32(struct in *in)
{
	uint32_t high = take16(in);

	return high << 16 | take16(in);
}

static inline struct tcp_tuple tuple_of(unsigned i)
{
	struct tcp_tuple t = {.family = family};

	i %= TUPLES;
	if (family == AF_INET) {
		memset(&t.local.s6_addr[10], 0xff, 2);
		memset(&t.remote.s6_addr[10], 0xff, 2);
	}
	t.local.s6_addr[12] = t.remote.s6_addr[12] = 10;
	t.local.s6_addr[15] = 1;
	t.remote.s6_addr[15] = 2;
	t.lport = (uint16_t)(i < PASSIVE ? PORT : 2000 + i);
	t.rport = (uint16_t)(1000 + i);
	return t;
}

/* --- segments */

/* What a segment of the peer would hold, were it a good one. */
struct place {
	uint32_t seq, wnd, una, nxt, ts_recent, ofo;
	bool ts;
};

static inline struct place place_of(const struct tcp_tuple *t)
{
	const struct tcp_node *n = tcp_table_find(&w.ts->table, t);
	struct place p = {.seq = 1000000, .wnd = 65535};

	if (n && n->kind == TCP_KIND_CONN) {
		const struct tcp_conn *c = (const struct tcp_conn *)n;

		p = (struct place){c->rcv_nxt,	 tcp_rcv_window(c),
				   c->snd_una,	 c->snd_nxt,
				   c->ts_recent, c->ofo ? c->ofo->start : c->rcv_nxt,
				   c->ts_ok};
	} else if (n && n->kind == TCP_KIND_REQ) {
		const struct tcp_req *r = (const struct tcp_req *)n;

		p = (struct place){r->irs + 1,	 65535,	     r->iss + 1, r->iss + 1,
				   r->ts_recent, r->irs + 1, r->ts_ok};
	} else if (n) {
		const struct tcp_tw *tw = (const struct tcp_tw *)n;

		p = (struct place){tw->rcv_nxt,	  tw->rcv_wnd, tw->snd_nxt, tw->snd_nxt,
				   tw->ts_recent, tw->rcv_nxt, tw->ts_ok};
	}
	return p;
}

static inline void deliver(const struct tcp_tuple *t, const uint8_t *hdr, uint32_t hdr_len,
			   uint32_t seq, uint32_t len, uint32_t cut, uint8_t tos)
{
	static uint8_t mem[TCP_HDR_MAX + BIG];
	const struct tcp_node *n = tcp_table_find(&w.ts->table, t);

	memcpy(mem, hdr, hdr_len);
	memcpy(mem + hdr_len, world_stream(seq), len);
	if ((hdr[13] & TCPHDR_URG) && n && n->kind == TCP_KIND_CONN &&
	    ((const struct tcp_conn *)n)->user)
		((struct user *)((const struct tcp_conn *)n)->user)->urgent = true;
	tcp_input(w.ts, world_buf(&w, t, mem, hdr_len + len, hdr_len + cut % 7, cut, tos), w.now);
}

static inline void send_spec(const struct tcp_tuple *t, struct tcp_hdr_spec *h, uint32_t len,
			     uint32_t cut, uint8_t tos)
{
	uint8_t hdr[TCP_HDR_MAX];

	h->sport = t->rport;
	h->dport = t->lport;
	deliver(t, hdr, tcp_hdr_write(hdr, h), h->seq + !!(h->flags & TCPHDR_SYN), len, cut, tos);
}

static inline uint32_t take_len(struct in *in)
{
	uint8_t kind = take8(in);

	switch (kind & 7) {
	case 0:
	case 1:
		return 0;
	case 2:
		return 1 + (kind >> 3);
	case 3:
		return 1460;
	case 4:
		return take8(in);
	case 5:
		return take16(in) % 20000;
	case 6:
		return take16(in) % 3000;
	default:
		return 1448 * (kind >> 3);
	}
}

/* A valid header, its fields moved as the input says. */
static inline void step_segment(struct in *in, unsigned which)
{
	struct tcp_tuple t = tuple_of(which);
	struct place p = place_of(&t);
	uint8_t what = take8(in), more = take8(in);
	struct tcp_hdr_spec h = {.flags = TCPHDR_ACK,
				 .wnd = 60000,
				 .ts = p.ts,
				 .tsval = p.ts_recent + (more & 3),
				 .tsecr = (uint32_t)(w.now / 1000)};
	uint32_t len;

	h.seq = p.seq;
	h.ack = p.nxt;
	if (what & 1)
		h.flags = take8(in);
	if (what & 2)
		h.seq += (uint32_t)(int16_t)take16(in);
	if (what & 4)
		h.ack = p.una + take16(in);
	if (what & 8)
		h.wnd = take16(in);
	if (what & 16)
		h.seq += p.wnd;
	if (what & 32)
		h.seq = p.ofo + take8(in);
	if (what & 64) {
		h.tsval = p.ts_recent + (uint32_t)(int16_t)take16(in);
		h.tsecr = h.tsecr - take8(in);
		h.ts = !(more & 64) == p.ts;
	}
	if (what & 128) {
		h.num_sacks = take8(in) % 5;
		for (unsigned i = 0; i < h.num_sacks; i++) {
			h.sack[i].start = p.una + take16(in);
			h.sack[i].end = h.sack[i].start + take16(in) % 5000;
		}
	}
	if (h.flags & TCPHDR_SYN) {
		h.mss = take16(in);
		h.wscale_present = more & 4;
		h.wscale = more >> 4;
		h.sack_permitted = more & 8;
		h.ts = more & 1;
	}
	if (h.flags & TCPHDR_URG)
		h.urg = take16(in);
	if (more & 32)
		h.ack -= take32(in);
	len = take_len(in);
	send_spec(&t, &h, len, more & 128 ? 1 + take8(in) * 16u : 0, more & 16 ? 3 : 0);
}

/* Header bytes as they are, but that they find their connection. */
static inline void step_raw(struct in *in, unsigned which)
{
	struct tcp_tuple t = tuple_of(which);
	struct place p = place_of(&t);
	uint8_t hdr[TCP_HDR_MAX] = {0};
	struct tcp_hdr_spec h = {
		.sport = t.rport, .dport = t.lport, .seq = p.seq, .ack = p.nxt, .wnd = 5000};
	uint32_t opt = take8(in) % 41;

	h.flags = take8(in);
	tcp_hdr_write(hdr, &h);
	hdr[12] = (uint8_t)((20 + opt) / 4 << 4 | (take8(in) & 15));
	for (uint32_t i = 0; i < opt; i++)
		hdr[20 + i] = take8(in);
	deliver(&t, hdr, (20 + opt) & ~3u, h.seq + !!(h.flags & TCPHDR_SYN), take_len(in), 0, 0);
}

/*
 * The peer answers something that was sent not long ago: a handshake goes on, data is acknowledged.
 */
static inline void step_answer(struct in *in, unsigned which)
{
	const struct sent *s;
	struct tcp_hdr_spec h = {.flags = TCPHDR_ACK, .wnd = 65000};
	struct tcp_tuple t;
	uint8_t what = take8(in);

	if (!w.num_sent)
		return;
	s = &w.sent[(w.num_sent - 1 - which % (w.num_sent < SENT_KEPT ? w.num_sent : SENT_KEPT)) %
		    SENT_KEPT];
	t = s->tuple;
	h.seq = s->ack;
	h.ack = s->end_seq;
	h.ts = s->ts;
	h.tsecr = s->tsval;
	h.tsval = place_of(&t).ts_recent + 1;
	if ((s->flags & (TCPHDR_SYN | TCPHDR_ACK)) == TCPHDR_SYN) {
		h.seq = take32(in);
		h.flags |= TCPHDR_SYN;
		h.mss = 1460;
		h.sack_permitted = what & 1;
		h.wscale_present = what & 2;
		h.wscale = 7;
		h.ts = s->ts && (what & 4);
		if (what & 8)
			h.flags &= (uint8_t)~TCPHDR_ACK;
	} else {
		if (what & 16)
			h.flags |= TCPHDR_FIN;
		if (what & 32)
			h.flags |= TCPHDR_ECE;
	}
	send_spec(&t, &h, what & 64 ? take_len(in) : 0, 0, 0);
}

#endif
