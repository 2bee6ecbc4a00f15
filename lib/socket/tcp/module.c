/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Connections and the kernel module: it resets those of a process that is killed (where there is
 * none the other processes of the interface do), and brings what of them has reached the kernel:
 * reassembled fragments, packets with IP options, packets by another interface.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "proto/proto.h"
#include "kmod/kmod.h"
#include "runtime/runtime.h"
#include "socket/tcp/internal.h"

/*
 * Who has the connection of each slot, for the fallback; NULL: nobody (any more). Written under
 * that stack's lock.
 */
/* pages that nobody touches cost nothing */
static struct stack *_Atomic owners[VMA_KMOD_CONNS_MAX];

/*
 * Vouches for accepted connections where CAP_NET_RAW lets an unbound socket do so: the listener,
 * which is bound, may be closed before them. -1: none. Set before any connection is there.
 */
static int voucher = -1;

/* st->lock is held. NULL and errno: not registered. */
static struct vma_kmod_slot *enter(struct stack *st, const struct tcp_conn *c, int fd)
{
	struct vma_kmod_slot *slot;
	struct vma_flow_key key;
	uint32_t seq, ack;

	tcp_sock_key(tcp_conn_tuple(c), true, &key);
	slot = kmod_conn_add(fd, &key);
	if (!slot)
		return NULL;
	tcp_conn_seqs(c, &seq, &ack);
	__atomic_store_n(&slot->seq, seq, __ATOMIC_RELAXED);
	__atomic_store_n(&slot->ack, ack, __ATOMIC_RELAXED);
	__atomic_store_n(&slot->live, 1, __ATOMIC_RELAXED);
	atomic_store(&owners[kmod_slot_number(slot)], st);
	return slot;
}

/*
 * s has the listener's options: its mark and its device hold for the reset, too, and the module
 * knows those of the socket that vouches. So the listener does then, if it has any, for as long as
 * it is open.
 */
static struct vma_kmod_slot *enter_accepted(struct stack *st, const struct tcp_conn *c,
					    const struct tcp_sock *s, int listener)
{
	bool listener_first = s->mark || s->bound_if;
	struct vma_kmod_slot *slot = enter(st, c, listener_first ? listener : voucher);

	if (!slot && errno != ENODEV)
		slot = enter(st, c, listener_first ? voucher : listener);
	return slot;
}

static void not_taken(int fd)
{
	if (errno != ENODEV)
		log_debug("fd %d: the kernel module does not take the connection: %s", fd,
			  strerror(errno));
}

static void leave(struct vma_kmod_slot *slot)
{
	atomic_store(&owners[kmod_slot_number(slot)], NULL);
	kmod_conn_del(slot);
}

void tcp_sock_kmod_add(struct tcp_sock *s, int fd)
{
	s->slot = enter(atomic_load_explicit(&s->st, memory_order_relaxed), s->c, fd);
	if (!s->slot)
		not_taken(fd);
}

void tcp_sock_kmod_del(struct tcp_sock *s)
{
	if (s->slot)
		leave(s->slot);
	s->slot = NULL;
}

/*
 * --- between the handshake and accept(): nothing but acknowledgements is sent, so seq stays as it
 * is; no peer looks at ack
 */

void tcp_sock_kmod_queued(struct stack *st, struct tcp_sock_att *att, struct tcp_conn *c)
{
	struct tcp_sock_queued *q = kmod_takes_conns() ? malloc(sizeof(*q)) : NULL;
	int fd = atomic_load_explicit(&att->s->v.os_fd, memory_order_relaxed);

	if (!q)
		return;
	q->user.kind = TCP_SOCK_USER_QUEUED;
	q->att = att;
	q->slot = enter_accepted(st, c, att->s, fd);
	if (!q->slot) {
		not_taken(fd);
		free(q);
		return;
	}
	q->next = st->tcp->queued;
	q->pprev = &st->tcp->queued;
	if (q->next)
		q->next->pprev = &q->next;
	st->tcp->queued = q;
	tcp_conn_set_user(c, q);
}

static struct vma_kmod_slot *dequeue(struct tcp_sock_queued *q)
{
	struct vma_kmod_slot *slot = q->slot;

	if (q->next)
		q->next->pprev = q->pprev;
	*q->pprev = q->next;
	free(q);
	return slot;
}

void tcp_sock_kmod_unqueue(struct tcp_sock_queued *q)
{
	leave(dequeue(q));
}

void tcp_sock_kmod_accepted(struct tcp_sock *s, struct tcp_sock_queued *q, int listener)
{
	s->slot = q ? dequeue(q)
		    : enter_accepted(atomic_load_explicit(&s->st, memory_order_relaxed), s->c, s,
				     listener);
	if (!s->slot)
		not_taken(listener);
}

/* --- what reached the kernel; the internal thread */

/* The frame of p, ready for the gate. NULL: no memory, or nothing that is understood. */
static struct buf *frame_of(const struct kmod_packet *p)
{
	struct buf *b = buf_heap_alloc((size_t)p->len + PKT_PLAIN_ROOM);

	if (!b)
		return NULL;
	b->len = b->total = pkt_plain(b->data, p->data, p->len);
	if (!b->len) {
		buf_free(b);
		return NULL;
	}
	b->flags = p->csum_ok ? BUF_CSUM_OK : 0;
	b->meta.ifindex = p->ifindex;
	return b;
}

/* st->lock is held. */
static void take_in(struct stack *st, const struct kmod_packet *p)
{
	struct buf *b = frame_of(p);
	uint64_t now = 0;

	if (!b || pkt_parse(b) != PKT_TCP) {
		stats_add(&st->stats->drop_malformed, 1);
		buf_free(b);
		return;
	}
	tcp_sock_input(st, b, &now);
	stack_polled(st, now);
}

static void fallen_back(const struct kmod_packet *p)
{
	struct stack *st = p->slot < VMA_KMOD_CONNS_MAX ? atomic_load(&owners[p->slot]) : NULL;

	/* A connection that is over by now: the peer sends again, and the kernel answers. */
	if (!st)
		return;
	lock_take(&st->lock);
	if (atomic_load(&owners[p->slot]) == st &&
	    atomic_load_explicit(&st->open, memory_order_relaxed))
		take_in(st, p);
	lock_drop(&st->lock);
}

static void ring_waits(int fd, uint32_t events, void *arg)
{
	(void)fd;
	(void)events;
	(void)arg;
	kmod_fallback_drain(fallen_back);
}

int tcp_sock_kmod_start(void)
{
	int fd = kmod_fallback_fd();

	if (fd < 0)
		return 0;
	voucher = OWN_FD(libc.socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	return worker_fd_add(fd, EPOLLIN, ring_waits, NULL);
}

void tcp_sock_kmod_forked(void)
{
	if (voucher >= 0)
		own_fd_close(voucher);
	voucher = -1;
	/* All of them were the parent's. */
	for (unsigned i = 0; i < VMA_KMOD_CONNS_MAX; i++) {
		if (atomic_load_explicit(&owners[i], memory_order_relaxed))
			atomic_store_explicit(&owners[i], NULL, memory_order_relaxed);
	}
}
