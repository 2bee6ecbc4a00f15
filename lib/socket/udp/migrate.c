/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From ring to ring, after the threads that use the socket: VMA_RING_MIGRATION_RATIO_RX and _TX. */
#include "runtime/runtime.h"
#include "config/config.h"
#include "socket/udp/internal.h"

bool udp_moves_rx, udp_moves_tx;

/* Does the key that this logic gives depend on who calls? */
static bool by_caller(int logic)
{
	return logic == STACK_BY_THREAD || logic == STACK_BY_CORE || logic == STACK_BY_CORE_PINNED;
}

void udp_moves_start(void)
{
	udp_moves_rx =
		by_caller(params.ring_allocation_logic_rx) && params.ring_migration_ratio_rx >= 0;
	udp_moves_tx =
		by_caller(params.ring_allocation_logic_tx) && params.ring_migration_ratio_tx >= 0;
}

struct stack *udp_sender(struct udp_sock *s, int ifindex)
{
	struct udp_att *att;

	if (!stacks_several())
		return stack_get_sender(ifindex, 0);
	if (!s->tx_keyed) {
		s->tx_key =
			stack_key_by(params.ring_allocation_logic_tx,
				     &(struct stack_client){.local = s->local, .socket = s->id});
		s->tx_keyed = true;
	}
	/* Where a ring is shared, for both. */
	att = s->tx_key == s->key ? udp_att_chosen(s, ifindex) : NULL;
	return att ? att->st : stack_get_sender(ifindex, s->tx_key);
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
		log_debug("fd %d, port %u moves to another ring for receiving", fd, s->lport);
		s->key = key;
		udp_follow_key(s, fd);
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
	uint64_t now = stack_key_by(params.ring_allocation_logic_rx, NULL);

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
		/* Each destination is looked up anew. */
		atomic_fetch_add_explicit(&s->opt_gen, 1, memory_order_release);
		stats_add(&s->stats->tx_ring_migrations, 1);
	}
	udp_unlock(s, cancel);
}

void udp_sending_slow(struct udp_sock *s)
{
	uint64_t now = stack_key_by(params.ring_allocation_logic_tx, NULL);

	if (!s->tx_keyed || now == s->tx_key)
		udp_note_tid(&s->stats->tx_tid);
	if (stack_mover_due(&s->tx_mover, params.ring_migration_ratio_tx) && s->tx_keyed &&
	    stack_mover_compare(&s->tx_mover, s->tx_key, now))
		move_tx(s, now);
}
