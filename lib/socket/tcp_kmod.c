/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Connections and the kernel module, where there is one: it resets those of a process that is killed, and brings what of them
 * has reached the kernel: reassembled fragments, packets with IP options, packets by another interface.
 */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "proto/pkt.h"
#include "proto/pkt_plain.h"
#include "runtime/kmod.h"
#include "runtime/log.h"
#include "runtime/worker.h"
#include "socket/tcp_int.h"

/* Who has the connection of each slot, for the fallback; NULL: nobody (any more). Written under that stack's lock. */
static struct stack *_Atomic owners[VMA_KMOD_CONNS_MAX]; /* pages that nobody touches cost nothing */

void tsock_kmod_add(struct tsock *s, int fd, int listener)
{
	struct vma_flow_key key;
	uint32_t seq, ack;

	tsock_key(&s->tuple, true, &key);
	s->slot = kmod_conn_add(fd, &key);
	/* An accepted one's kernel socket is bound to nothing, which takes CAP_NET_RAW; the listener's is. */
	if (!s->slot && errno == EPERM && listener >= 0)
		s->slot = kmod_conn_add(listener, &key);
	if (!s->slot) {
		if (errno != ENODEV)
			log_debug("fd %d: the kernel module does not take the connection: %s", fd, strerror(errno));
		return;
	}
	tcp_conn_seqs(s->c, &seq, &ack);
	__atomic_store_n(&s->slot->seq, seq, __ATOMIC_RELAXED);
	__atomic_store_n(&s->slot->ack, ack, __ATOMIC_RELAXED);
	__atomic_store_n(&s->slot->live, 1, __ATOMIC_RELAXED);
	atomic_store(&owners[kmod_slot_number(s->slot)], atomic_load_explicit(&s->st, memory_order_relaxed));
}

void tsock_kmod_del(struct tsock *s)
{
	if (!s->slot)
		return;
	atomic_store(&owners[kmod_slot_number(s->slot)], NULL);
	kmod_conn_del(s->slot);
	s->slot = NULL;
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
	tsock_input(st, b, &now);
	tsock_polled(st, 1, now);
}

static void fallen_back(const struct kmod_packet *p)
{
	struct stack *st = p->slot < VMA_KMOD_CONNS_MAX ? atomic_load(&owners[p->slot]) : NULL;

	/* A connection that is over by now: the peer sends again, and the kernel answers. */
	if (!st)
		return;
	lock_take(&st->lock);
	if (atomic_load(&owners[p->slot]) == st && atomic_load_explicit(&st->open, memory_order_relaxed))
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

int tsock_kmod_start(void)
{
	int fd = kmod_fallback_fd();

	return fd < 0 ? 0 : worker_fd_add(fd, EPOLLIN, ring_waits, NULL);
}

void tsock_kmod_forked(void)
{
	/* All of them were the parent's. */
	for (unsigned i = 0; i < VMA_KMOD_CONNS_MAX; i++) {
		if (atomic_load_explicit(&owners[i], memory_order_relaxed))
			atomic_store_explicit(&owners[i], NULL, memory_order_relaxed);
	}
}
