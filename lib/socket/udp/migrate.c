/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The ring of a socket: VMA_RING_ALLOCATION_LOGIC_RX and _TX, or as it has said itself
 * (SO_VMA_RING_ALLOC_LOGIC). And from ring to ring, after the threads that use it:
 * VMA_RING_MIGRATION_RATIO_RX and _TX.
 */
#include <errno.h>

#include "runtime/runtime.h"
#include "config/config.h"
#include "socket/udp/internal.h"

_Atomic bool udp_moves_rx, udp_moves_tx;

/* A socket whose ring is chosen by this logic follows who calls: from now on it is looked at. */
static void moves_rx(int logic)
{
	if (stack_logic_by_caller(logic) && params.ring_migration_ratio_rx >= 0)
		atomic_store_explicit(&udp_moves_rx, true, memory_order_relaxed);
}

static void moves_tx(int logic)
{
	if (stack_logic_by_caller(logic) && params.ring_migration_ratio_tx >= 0)
		atomic_store_explicit(&udp_moves_tx, true, memory_order_relaxed);
}

void udp_moves_start(void)
{
	moves_rx(params.ring_allocation_logic_rx);
	moves_tx(params.ring_allocation_logic_tx);
}

static uint64_t key_rx(const struct udp_sock *s)
{
	return stack_key_by_attr(atomic_load_explicit(&s->ring_attr_rx, memory_order_relaxed),
				 params.ring_allocation_logic_rx,
				 &(struct stack_client){.local = s->local, .socket = s->id});
}

static uint64_t key_tx(const struct udp_sock *s)
{
	return stack_key_by_attr(atomic_load_explicit(&s->ring_attr_tx, memory_order_relaxed),
				 params.ring_allocation_logic_tx,
				 &(struct stack_client){.local = s->local, .socket = s->id});
}

void udp_key_rx(struct udp_sock *s)
{
	if (s->keyed || !stacks_several())
		return;
	s->key = key_rx(s);
	s->keyed = true;
}

struct stack *udp_sender(struct udp_sock *s, int ifindex)
{
	struct udp_att *att;

	if (!stacks_several())
		return stack_get_sender(ifindex, 0);
	if (!s->tx_keyed) {
		s->tx_key = key_tx(s);
		s->tx_keyed = true;
	}
	/* Where a ring is shared, for both. */
	att = s->tx_key == s->key ? udp_att_chosen(s, ifindex) : NULL;
	return att ? att->st : stack_get_sender(ifindex, s->tx_key);
}

/* Its attachments go where its key, which has changed, says. s->lock is held. */
static void follow_rx(struct udp_sock *s, int fd)
{
	log_debug("fd %d, port %u moves to another ring for receiving", fd, s->lport);
	udp_follow_key(s, fd);
}

/* Each destination is looked up anew. */
static void follow_tx(struct udp_sock *s)
{
	atomic_fetch_add_explicit(&s->opt_gen, 1, memory_order_release);
}

static void ring_attr_rx(struct udp_sock *s, int fd, stack_ring_attr w)
{
	atomic_store_explicit(&s->ring_attr_rx, w, memory_order_relaxed);
	s->stats->rx_by_user = stack_ring_attr_by_user(w);
	s->stats->rx_ring_user = (uint32_t)w;
	moves_rx(udp_logic_rx(s));
	/* Who says so before bind() has the ring of who binds. */
	if (!s->lport)
		return;
	s->keyed = false;
	udp_key_rx(s);
	follow_rx(s, fd);
}

static void ring_attr_tx(struct udp_sock *s, stack_ring_attr w)
{
	atomic_store_explicit(&s->ring_attr_tx, w, memory_order_relaxed);
	s->stats->tx_by_user = stack_ring_attr_by_user(w);
	s->stats->tx_ring_user = (uint32_t)w;
	moves_tx(udp_logic_tx(s));
	s->tx_keyed = false;
	follow_tx(s);
}

int udp_set_ring_attr(struct vfd *v, int fd, bool rx, bool tx, stack_ring_attr w)
{
	struct udp_sock *s = udp_of(v);
	int cancel;

	if (!udp_lock_live(s, fd, &cancel))
		return -EBADF;
	libc_internal_begin();
	stacks_set_ring_attr();
	if (rx)
		ring_attr_rx(s, fd, w);
	if (tx)
		ring_attr_tx(s, w);
	libc_internal_end();
	udp_unlock(s, cancel);
	return 0;
}

static __attribute__((noinline)) void move_rx(struct udp_sock *s, uint64_t key)
{
	int cancel, fd;

	if (lock_mine(&s->lock))
		return;
	cancel = udp_lock(s);
	libc_internal_begin();
	fd = atomic_load_explicit(&s->v.os_fd, memory_order_relaxed);
	if (atomic_load_explicit(&s->in_use, memory_order_relaxed) && s->keyed && s->key != key &&
	    !s->in_kernel) {
		s->key = key;
		follow_rx(s, fd);
		stats_add(&s->stats->rx_ring_migrations, 1);
	}
	libc_internal_end();
	udp_unlock(s, cancel);
}

/* What was queued when s moved may have been read by now. */
static void prune(struct udp_sock *s)
{
	int cancel;

	if (lock_mine(&s->lock))
		return;
	cancel = udp_lock(s);
	udp_prune(s);
	udp_unlock(s, cancel);
}

void udp_receiving_slow(struct udp_sock *s)
{
	uint64_t now;

	if (!stack_logic_by_caller(udp_logic_rx(s))) {
		udp_note_tid(&s->stats->rx_tid);
		return;
	}
	now = key_rx(s);
	if (!s->keyed || now == s->key)
		udp_note_tid(&s->stats->rx_tid);
	if (!stack_mover_due(&s->mover, params.ring_migration_ratio_rx) || !s->keyed)
		return;
	if (stack_mover_compare(&s->mover, s->key, now))
		move_rx(s, now);
	else if (atomic_load_explicit(&s->natt, memory_order_relaxed) > 1)
		prune(s);
}

static __attribute__((noinline)) void move_tx(struct udp_sock *s, uint64_t key)
{
	int cancel;

	if (lock_mine(&s->lock))
		return;
	cancel = udp_lock(s);
	if (atomic_load_explicit(&s->in_use, memory_order_relaxed) && s->tx_keyed &&
	    s->tx_key != key) {
		s->tx_key = key;
		follow_tx(s);
		stats_add(&s->stats->tx_ring_migrations, 1);
	}
	udp_unlock(s, cancel);
}

void udp_sending_slow(struct udp_sock *s)
{
	uint64_t now;

	if (!stack_logic_by_caller(udp_logic_tx(s))) {
		udp_note_tid(&s->stats->tx_tid);
		return;
	}
	now = key_tx(s);
	if (!s->tx_keyed || now == s->tx_key)
		udp_note_tid(&s->stats->tx_tid);
	if (stack_mover_due(&s->tx_mover, params.ring_migration_ratio_tx) && s->tx_keyed &&
	    stack_mover_compare(&s->tx_mover, s->tx_key, now))
		move_tx(s, now);
}
