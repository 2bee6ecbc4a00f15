/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * From the engine to the ring: a segment gets its link and network headers; super-segments go the
 * way of large frames.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <net/ethernet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>

#include "net/net.h"
#include "config/config.h"
#include "socket/tcp/internal.h"

#define AWAITING_MAX 64u
/* As long as the kernel asks for a neighbour before it gives up (3 probes, a second each). */
#define AWAITING_US 3000000u
#define CACHE_WAYS 64u
/* Payload of a super-segment: the IP packet's 16 bits without its headers. */
#define GSO_PAYLOAD_MAX (65535u - 40u - TCP_HDR_MAX)
#define GSO_IOV_MAX 60

/* What the route of a segment depends on besides its addresses. */
struct route_key {
	int bound_if;
	uint32_t mark;
};

struct tcp_sock_awaiting {
	struct tcp_sock_awaiting *next;
	uint64_t since;
	struct route_key key;
	struct tcp_tuple tuple;
	struct tcp_tx tx; /* hdr and iov point into this */
	struct iovec iov;
	uint8_t hdr[TCP_HDR_MAX];
	uint8_t data[];
};

struct tcp_sock_cached {
	struct in6_addr local, remote;
	uint16_t lport, rport; /* of the latest; they count where rules look at them */
	uint32_t mark;
	struct tcp_sock_path path;
};

/* The socket that a segment belongs to; NULL: none has one, or not yet. */
static struct tcp_sock *sock_of(const struct tcp_tx *tx)
{
	struct tcp_sock_user *u = tx->user;

	return u && u->kind == TCP_SOCK_USER_CONN ? tcp_sock_of_user(u) : NULL;
}

/* Whose options its route follows: its own socket's, or of what is not accepted its listener's. */
static const struct tcp_sock *routed_by(const struct tcp_tx *tx)
{
	const struct tcp_sock_user *u = tx->user;

	if (!u)
		return NULL;
	if (u->kind == TCP_SOCK_USER_CONN)
		return sock_of(tx);
	return u->kind == TCP_SOCK_USER_LISTENER ? ((const struct tcp_sock_att *)u)->s
						 : ((const struct tcp_sock_queued *)u)->att->s;
}

static struct route_key route_key_of(const struct tcp_tx *tx)
{
	const struct tcp_sock *s = routed_by(tx);

	return s ? (struct route_key){.bound_if = s->bound_if, .mark = s->mark}
		 : (struct route_key){0};
}

/* The place for the path of a segment without a socket: the latest of its name wins. */
static struct tcp_sock_path *cached_path(struct tcp_sock_stack *t, const struct tcp_tuple *tuple,
					 uint32_t mark)
{
	struct tcp_sock_cached *c;
	uint32_t h = mark;

	if (!t->cache)
		t->cache = calloc(CACHE_WAYS, sizeof(*t->cache));
	if (!t->cache)
		return NULL;
	for (int i = 0; i < 16; i++)
		h = h * 31u + tuple->remote.s6_addr[i];
	c = &t->cache[(h ^ h >> 7) % CACHE_WAYS];
	if (c->mark != mark || memcmp(&c->local, &tuple->local, 16) ||
	    memcmp(&c->remote, &tuple->remote, 16) ||
	    (net_routes_by_port() && (c->lport != tuple->lport || c->rport != tuple->rport))) {
		c->local = tuple->local;
		c->remote = tuple->remote;
		c->lport = tuple->lport;
		c->rport = tuple->rport;
		c->mark = mark;
		c->path.valid = false;
	}
	return &c->path;
}

/* The way of a segment whose socket is not there, or not there any more. NULL and *err: none. */
static struct tcp_sock_path *path_without(struct stack *st, const struct tcp_tx *tx,
					  struct route_key key, int *err)
{
	struct tcp_sock_path *p = cached_path(st->tcp, tx->tuple, key.mark);

	*err = p ? 0 : -ENOMEM;
	/* A path that is kept by the addresses does not know who is bound to the interface. */
	if (p &&
	    (!tcp_sock_path_good(p, net_generation(), net_neigh_generation()) || p->by_another))
		*err = tcp_sock_path_make(st, tx->tuple, key.bound_if, key.mark, tx->ttl, p);
	return *err ? NULL : p;
}

/* The same of a segment of s. */
static struct tcp_sock_path *path_of_sock(struct stack *st, const struct tcp_tx *tx,
					  struct tcp_sock *s, int *err)
{
	struct tcp_sock_path *p = tcp_sock_path_get(st->tcp, s);

	*err = p ? 0 : -ENOMEM;
	if (p &&
	    __builtin_expect(!tcp_sock_path_good(p, net_generation(), net_neigh_generation()), 0))
		*err = tcp_sock_path_make(st, tx->tuple, s->bound_if, s->mark, tx->ttl, p);
	return *err ? NULL : p;
}

static void confirm(struct stack *st, struct tcp_sock_path *p)
{
	if (__builtin_expect(p->stale, 0))
		p->stale = !net_neigh_confirm(st->ifindex, &p->next_hop);
}

/* The way of any segment. NULL and *err: none. */
static struct tcp_sock_path *path_of(struct stack *st, const struct tcp_tx *tx, int *err)
{
	struct tcp_sock *s = sock_of(tx);
	struct tcp_sock_path *p = __builtin_expect(s != NULL, 1)
					  ? path_of_sock(st, tx, s, err)
					  : path_without(st, tx, route_key_of(tx), err);

	if (p)
		confirm(st, p);
	return p;
}

void tcp_sock_env_path(void *ctx, const struct tcp_tuple *tuple, uint32_t *mtu, uint32_t *max_gso)
{
	struct stack *st = ctx;
	struct tcp_sock_path *p = cached_path(st->tcp, tuple, 0);

	*mtu = st->ring->caps.max_frame - 14;
	*max_gso = st->ring->caps.max_gso ? GSO_PAYLOAD_MAX : 0;
	if (!p)
		return;
	/* Also without a neighbour yet the route has told the MTU. */
	if (!tcp_sock_path_good(p, net_generation(), net_neigh_generation()))
		p->mtu = 0;
	if (!p->mtu)
		(void)tcp_sock_path_make(st, tuple, 0, 0, 0, p);
	if (p->mtu && p->mtu < *mtu)
		*mtu = p->mtu;
	if (p->by_another)
		*max_gso = 0;
}

void tcp_sock_env_route(void *ctx, const struct tcp_tuple *tuple, struct tcp_route *r)
{
	struct stack *st = ctx;
	struct net_route_query q = {
		.dst = tuple->remote,
		.src = tuple->local,
		.oif = st->ifindex,
		.proto = IPPROTO_TCP,
		.sport = tuple->lport,
		.dport = tuple->rport,
	};
	const struct net_metrics *m;
	struct net_route route;
	int err;

	libc_internal_begin();
	err = net_route_get(&q, &route);
	libc_internal_end();
	if (err)
		return;
	m = &route.metrics;
	*r = (struct tcp_route){
		.window = m->window,
		.rto_min_us = m->rto_min_ms < UINT32_MAX / 1000 ? m->rto_min_ms * 1000 : UINT32_MAX,
		.advmss = m->advmss,
		.initcwnd = m->initcwnd,
		.initrwnd = m->initrwnd,
		.quickack = m->quickack,
		.mtu_locked = m->mtu_locked,
	};
	if (m->congctl[0])
		r->cc = (uint8_t)(tcp_sock_cc_of(m->congctl) + 1);
}

/*
 * Keeps the segment until the neighbour is known. What is above the bound is lost, as behind any
 * full queue.
 */
static int hold(struct tcp_sock_stack *t, const struct tcp_tx *tx)
{
	struct tcp_sock_awaiting *h;
	size_t off = 0;

	if (t->num_awaiting == AWAITING_MAX || tx->len > tx->mss)
		return -EHOSTUNREACH;
	h = malloc(sizeof(*h) + tx->len);
	if (!h)
		return -ENOMEM;
	h->next = NULL;
	h->since = tcp_sock_now_us();
	h->tuple = *tx->tuple;
	h->key = route_key_of(tx);
	h->tx = *tx;
	h->tx.user = NULL; /* the socket may be gone by then */
	h->tx.tuple = &h->tuple;
	h->tx.hdr = h->hdr;
	h->tx.iov = &h->iov;
	h->tx.iovcnt = tx->len ? 1 : 0;
	h->iov = (struct iovec){.iov_base = h->data, .iov_len = tx->len};
	memcpy(h->hdr, tx->hdr, tx->hdr_len);
	for (int i = 0; i < tx->iovcnt; i++) {
		memcpy(h->data + off, tx->iov[i].iov_base, tx->iov[i].iov_len);
		off += tx->iov[i].iov_len;
	}
	*t->awaiting_tail = h;
	t->awaiting_tail = &h->next;
	t->num_awaiting++;
	return 0;
}

static int send_large(struct tcp_sock_stack *t, struct tcp_sock_path *p, const struct tcp_tx *tx)
{
	struct ring *ring = t->st->ring;
	struct iovec iov[GSO_IOV_MAX + 1];
	uint8_t hdr[TCP_FRAME_HDR_MAX];
	struct ring_gso g = {.csum_off = 16,
			     .gso_size = tx->mss,
			     .proto = IPPROTO_TCP,
			     .family = tx->tuple->family};
	int err;

	if (tx->iovcnt > GSO_IOV_MAX)
		return -EMSGSIZE;
	g.hdr_len = (uint16_t)tcp_frame_gso(&p->hdr, hdr, tx);
	g.l4_off = (uint16_t)(g.hdr_len - tx->hdr_len);
	iov[0] = (struct iovec){.iov_base = hdr, .iov_len = g.hdr_len};
	memcpy(iov + 1, tx->iov, (size_t)tx->iovcnt * sizeof(*iov));
	/* Order: what was posted before leaves before. */
	if (t->posted) {
		t->posted = false;
		ring_kick(ring);
	}
	err = ring_send_gso(ring, iov, tx->iovcnt + 1, &g);
	return err == -EAGAIN ? -ENOBUFS : err;
}

/*
 * A buffer for the whole frame. What it must hold is the frame itself: at a jumbo MTU a full
 * segment fills a chunk of the ring to the last byte, and the longest possible headers would not
 * fit. NULL and *err: none.
 */
static struct buf *frame_buf(struct ring *ring, const struct tcp_sock_path *p,
			     const struct tcp_tx *tx, int *err)
{
	uint32_t len = (uint32_t)p->hdr.len + tx->hdr_len + tx->len;
	struct buf *b = ring_tx_alloc(ring, TCP_FRAME_HDR_MAX + tx->len);

	*err = b ? -EMSGSIZE : -ENOBUFS;
	if (b && b->room < len) {
		buf_free(b);
		return NULL;
	}
	return b;
}

static int send_small(struct tcp_sock_stack *t, struct tcp_sock_path *p, const struct tcp_tx *tx)
{
	struct ring *ring = t->st->ring;
	int err;
	struct buf *b = frame_buf(ring, p, tx, &err);

	if (!b)
		return err;
	b->len = b->total = tcp_frame(&p->hdr, b->data, tx);
	err = ring_post(ring, b);
	if (err) {
		buf_free(b);
		return err;
	}
	t->posted = true;
	return 0;
}

/* The route that was found had the source, too, by which the kernel would not ask. */
static int raw_socket_on(int oif, int family, uint32_t mark)
{
	static _Atomic bool said;
	struct caps_sets before;
	int fd = net_raw_socket(family);

	if (fd < 0) {
		if (!atomic_exchange(&said, true))
			log_warn("TCP replies whose route leaves by another interface than the "
				 "peer came by cannot be sent: socket(SOCK_RAW): %s",
				 strerror(-fd));
		return fd;
	}
	(void)libc.setsockopt(fd, SOL_SOCKET, SO_BINDTOIFINDEX, &oif, sizeof(oif));
	if (mark) {
		before = caps_raise(CAPS_BIT(CAP_NET_ADMIN) | CAPS_BIT(CAP_NET_RAW));
		(void)libc.setsockopt(fd, SOL_SOCKET, SO_MARK, &mark, sizeof(mark));
		caps_lower(&before);
	}
	return fd;
}

static uint32_t word(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return ntohl(v);
}

/* A segment on its way by a raw socket. */
struct raw_send {
	int fd;
	uint8_t *data; /* the whole payload, and behind it room for a frame */
	uint8_t *frame;
};

/* 0 or negative errno. */
static int raw_begin(struct raw_send *r, int oif, const struct tcp_tx *tx, uint32_t mark)
{
	uint8_t *to;

	r->fd = raw_socket_on(oif, tx->tuple->family, mark);
	if (r->fd < 0)
		return r->fd;
	r->data = to = malloc((size_t)tx->len + TCP_FRAME_HDR_MAX + tx->len);
	if (!to) {
		own_fd_close(r->fd);
		return -ENOMEM;
	}
	r->frame = to + tx->len;
	for (int i = 0; i < tx->iovcnt; to += tx->iov[i++].iov_len)
		memcpy(to, tx->iov[i].iov_base, tx->iov[i].iov_len);
	return 0;
}

static void raw_end(const struct raw_send *r)
{
	own_fd_close(r->fd);
	free(r->data);
}

static int raw_send_one(const struct raw_send *r, struct tcp_sock_path *p, const struct tcp_tx *tx)
{
	bool v4 = tx->tuple->family == AF_INET;
	struct sockaddr_in to4 = {.sin_family = AF_INET};
	struct sockaddr_in6 to6 = {.sin6_family = AF_INET6, .sin6_addr = tx->tuple->remote};
	uint32_t len = tcp_frame(&p->hdr, r->frame, tx);

	memcpy(&to4.sin_addr, &tx->tuple->remote.s6_addr[12], sizeof(to4.sin_addr));
	if (raw.sendto(r->fd, r->frame + ETHER_HDR_LEN, len - ETHER_HDR_LEN,
		       MSG_DONTWAIT | MSG_NOSIGNAL, v4 ? (const void *)&to4 : (const void *)&to6,
		       v4 ? sizeof(to4) : sizeof(to6)) < 0)
		return -EHOSTUNREACH; /* lost on the way; the ring has room */
	return 0;
}

/* The segment of tx, a super-segment perhaps, that begins with its byte `at`; hdr and iov: its. */
static struct tcp_tx segment_at(const struct tcp_tx *tx, const struct raw_send *r, uint32_t at,
				uint8_t hdr[TCP_HDR_MAX], struct iovec *iov)
{
	uint32_t seq = htonl(word(tx->hdr + 4) + at);
	struct tcp_tx one = *tx;

	if (tx->len - at > tx->mss)
		one.len = tx->mss;
	else
		one.len = tx->len - at;
	memcpy(hdr, tx->hdr, tx->hdr_len);
	memcpy(hdr + 4, &seq, sizeof(seq));
	/* As a device cuts it: the end's flags on the last, what is said once on the first. */
	if (at + one.len < tx->len)
		hdr[13] &= (uint8_t) ~(TCPHDR_FIN | TCPHDR_PSH);
	if (at)
		hdr[13] &= (uint8_t)~TCPHDR_CWR;
	*iov = (struct iovec){.iov_base = r->data + at, .iov_len = one.len};
	one.hdr = hdr;
	one.iov = iov;
	one.iovcnt = one.len ? 1 : 0;
	return one;
}

/*
 * The route leaves by another interface, which the kernel has. It sends this segment, and is to
 * have the connection.
 */
static int send_by_kernel(struct tcp_sock_path *p, const struct tcp_tx *tx, uint32_t mark)
{
	struct tcp_sock *s = sock_of(tx);
	struct raw_send r;
	uint32_t at = 0;
	int err;

	if (s) {
		s->by_another = true;
		atomic_store_explicit(&tcp_sock_some_by_another, true, memory_order_relaxed);
	}
	err = raw_begin(&r, p->oif, tx, mark);
	if (err)
		return err;
	do {
		uint8_t hdr[TCP_HDR_MAX];
		struct iovec iov;
		struct tcp_tx one = segment_at(tx, &r, at, hdr, &iov);

		err = raw_send_one(&r, p, &one);
		at += one.len;
	} while (!err && at < tx->len);
	raw_end(&r);
	return err;
}

/* A segment goes all the way but for the wire. 0, or it did not get to the ring. */
int tcp_sock_output_dummy(void *ctx, const struct tcp_tx *tx)
{
	struct stack *st = ctx;
	struct ring *ring = st->ring;
	struct tcp_sock_path *p;
	struct buf *b;
	int err;

	if (!atomic_load_explicit(&st->open, memory_order_relaxed))
		return -ENETDOWN;
	p = path_of(st, tx, &err);
	if (err || p->by_another)
		return err;
	b = frame_buf(ring, p, tx, &err);
	if (!b)
		return err;
	b->len = b->total = tcp_frame(&p->hdr, b->data, tx);
	/* A ring that has no such descriptor is as far as it goes. */
	if (ring->ops->dummy(ring, b))
		buf_free(b);
	st->tcp->posted = true;
	return 0;
}

/* Whatever happens next, the kernel module knows where the connection stands. */
static void note(struct vma_kmod_slot *slot, const struct tcp_tx *tx)
{
	uint8_t flags = tx->hdr[13];
	uint32_t end =
		word(tx->hdr + 4) + tx->len + !!(flags & TCPHDR_SYN) + !!(flags & TCPHDR_FIN);

	/* Not back, by what is sent again. */
	if ((int32_t)(end - slot->seq) > 0)
		__atomic_store_n(&slot->seq, end, __ATOMIC_RELAXED);
	if (flags & TCPHDR_ACK)
		__atomic_store_n(&slot->ack, word(tx->hdr + 8), __ATOMIC_RELAXED);
}

int tcp_sock_output(void *ctx, const struct tcp_tx *tx)
{
	struct stack *st = ctx;
	struct tcp_sock_stack *t = st->tcp;
	struct tcp_sock *s = sock_of(tx);
	struct tcp_sock_path *p;
	int err;

	if (!atomic_load_explicit(&st->open, memory_order_relaxed))
		return -ENETDOWN;
	if (s && s->slot && kmod_wants_seqs())
		note(s->slot, tx);
	p = path_of(st, tx, &err);
	if (err == -EAGAIN)
		return hold(t, tx);
	if (err)
		return err;
	if (__builtin_expect(p->by_another, 0))
		return send_by_kernel(p, tx, route_key_of(tx).mark);
	err = tx->len > tx->mss ? send_large(t, p, tx) : send_small(t, p, tx);
	if (err == -ENOBUFS)
		t->blocked = true;
	return err;
}

/* Tells the engine that nobody answers for the segment's destination. */
static void give_up(struct tcp_sock_stack *t, const struct tcp_sock_awaiting *h, uint64_t now)
{
	uint32_t seq;

	memcpy(&seq, h->hdr + 4, sizeof(seq));
	tcp_icmp(t->ts, &h->tuple, ntohl(seq), TCP_ICMP_UNREACH_HOST, 0, now);
}

void tcp_sock_awaiting_check(struct tcp_sock_stack *t, uint64_t now)
{
	struct tcp_sock_awaiting *h, *next, *list = t->awaiting;

	t->awaiting = NULL;
	t->awaiting_tail = &t->awaiting;
	t->num_awaiting = 0;
	for (h = list; h; h = next) {
		struct tcp_sock_path *p;
		int err;

		next = h->next;
		p = path_without(t->st, &h->tx, h->key, &err);
		if (err == -EAGAIN && now < h->since + AWAITING_US) {
			h->next = NULL;
			*t->awaiting_tail = h;
			t->awaiting_tail = &h->next;
			t->num_awaiting++;
			continue;
		}
		if (p) {
			confirm(t->st, p);
			/* A loss, if it fails. */
			(void)(p->by_another ? send_by_kernel(p, &h->tx, h->key.mark)
					     : send_small(t, p, &h->tx));
		} else {
			give_up(t, h, now);
		}
		free(h);
	}
}

void tcp_sock_awaiting_free(struct tcp_sock_stack *t)
{
	struct tcp_sock_awaiting *h;

	while ((h = t->awaiting)) {
		t->awaiting = h->next;
		free(h);
	}
	t->awaiting_tail = &t->awaiting;
	t->num_awaiting = 0;
}
