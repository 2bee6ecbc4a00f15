/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "ring/xdp/share.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/utsname.h>

#include "ring/xdp/xdp.h"
#include "config/config.h"

/* Not the stacks' lock that opens rings: the internal thread closes them, and a forked child. */
static pthread_mutex_t shares_lock = PTHREAD_MUTEX_INITIALIZER;
static struct xdp_share *shares;
static uint64_t shares_owner; /* process_mark(): a child begins without any */

static _Atomic bool several;

void share_several_begin(void)
{
	atomic_store(&several, true);
}

bool share_completions_good(const char *release)
{
	unsigned major, minor;

	/* cf24f5a5feea came with 6.6, 30f241fcf52a with 6.17 */
	return sscanf(release, "%u.%u", &major, &minor) != 2 || major != 6 || minor < 6 ||
	       minor > 16;
}

bool share_allowed(void)
{
	static _Atomic bool said;
	struct utsname u;

	if (uname(&u) || share_completions_good(u.release))
		return true;
	if (!atomic_exchange(&said, true))
		log_info("ring/xdp: Linux %s cannot have an interface's queues shared (6.17 can): "
			 "other processes' sockets on it stay with the kernel, and this one has "
			 "one ring",
			 u.release);
	return false;
}

unsigned share_rings_wanted(void)
{
	if (!params.ring_allocation_logic_rx && !params.ring_allocation_logic_tx &&
	    !atomic_load(&several))
		return 1;
	if (!share_allowed())
		return 1;
	if (params.ring_limit_per_interface <= 0)
		return SHARE_RINGS_DEFAULT;
	return params.ring_limit_per_interface < (int)SHARE_RINGS_MAX
		       ? (unsigned)params.ring_limit_per_interface
		       : SHARE_RINGS_MAX;
}

int share_begin(struct xdp_ring *x, unsigned max)
{
	struct xdp_share *sh = calloc(1, sizeof(*sh));

	if (!sh)
		return -ENOMEM;
	sh->ifindex = x->ring.ifindex;
	sh->max = max;
	for (unsigned i = 0; i < max; i++) {
		if (chunk_stack_init(&sh->back[i], 0, 0, i ? UMEM_TX_MORE : UMEM_TX_CHUNKS)) {
			share_free(sh);
			return -ENOMEM;
		}
	}
	sh->ring[0] = x;
	x->share = sh;
	return 0;
}

void share_enter(struct xdp_ring *x)
{
	struct xdp_share *sh = x->share;

	pthread_mutex_lock(&shares_lock);
	if (shares_owner != process_mark()) {
		shares = NULL;
		shares_owner = process_mark();
	}
	if (!sh->num) {
		sh->next = shares;
		shares = sh;
	}
	sh->ring[x->index] = x;
	sh->num++;
	sh->alive++;
	sh->staying++;
	pthread_mutex_unlock(&shares_lock);
}

struct xdp_share *share_find(int ifindex, int *err)
{
	struct xdp_share *sh;

	*err = 0;
	pthread_mutex_lock(&shares_lock);
	for (sh = shares_owner == process_mark() ? shares : NULL; sh; sh = sh->next) {
		/* One whose rings are being closed is that of an interface that has gone. */
		if (sh->ifindex == ifindex && sh->staying == sh->num)
			break;
	}
	if (sh && sh->num == sh->max)
		*err = -ENOSPC;
	pthread_mutex_unlock(&shares_lock);
	return sh;
}

void share_forked(void)
{
	pthread_mutex_init(&shares_lock, NULL);
	shares = NULL;
}

bool share_close(struct xdp_ring *x)
{
	struct xdp_share *sh = x->share, **p;
	bool forked = shares_owner != process_mark(), last;

	/*
	 * A forked child closes what it has of its parent's. It has one thread only, so the lock,
	 * which another thread may have held at the fork(), is not asked.
	 */
	if (!forked)
		pthread_mutex_lock(&shares_lock);
	sh->staying -= sh->staying > 0;
	last = --sh->alive == 0;
	for (p = &shares; last && !forked && *p; p = &(*p)->next) {
		if (*p == sh) {
			*p = sh->next;
			break;
		}
	}
	if (!forked)
		pthread_mutex_unlock(&shares_lock);
	return last;
}

bool share_leave(struct xdp_ring *x)
{
	bool last;

	pthread_mutex_lock(&shares_lock);
	last = --x->share->staying == 0;
	pthread_mutex_unlock(&shares_lock);
	return last;
}

void share_free(struct xdp_share *sh)
{
	for (unsigned i = 0; i < SHARE_RINGS_MAX; i++)
		free(sh->back[i].index);
	free(sh);
}

void share_refill(struct xdp_ring *x, struct xsk *s)
{
	struct xsk_ring *f = &x->share->ring[0]->xsk[s - x->xsk].fill;

	if (!s->missing || !x->umem.rx_free.num)
		return;
	lock_take(&x->share->supply);
	s->missing -= rx_supply(x, f, s->missing);
	lock_drop(&x->share->supply);
	if (x->zerocopy)
		rx_tell(s, f);
}

/* Hands out what the completion ring has; the lock is held. */
static void hand_out(struct xdp_ring *x, struct xdp_share *sh)
{
	struct xsk_ring *c = &sh->ring[0]->xsk[0].comp;
	/* acquire: the entries up to the producer index must be read after it */
	uint32_t end = __atomic_load_n(c->producer, __ATOMIC_ACQUIRE);

	for (; c->head != end; c->head++) {
		uint64_t addr = c->addr[c->head & c->mask];
		uint32_t index = (uint32_t)(addr >> UMEM_CHUNK_SHIFT);
		unsigned owner;

		/* Nothing but what the rings have posted, which are transmit chunks. */
		if (addr >> UMEM_CHUNK_SHIFT >= x->umem.num_chunks || index < x->umem.num_rx)
			continue;
		owner = umem_tx_owner(&x->umem, index);
		if (owner == x->index)
			tx_done(x, addr);
		else if (owner < sh->max)
			chunk_push(&sh->back[owner], index);
	}
	/*
	 * release: the kernel may overwrite the entries once it sees them consumed; they must have
	 * been read by then
	 */
	__atomic_store_n(c->consumer, c->head, __ATOMIC_RELEASE);
}

void share_reclaim(struct xdp_ring *x)
{
	struct xdp_share *sh = x->share;
	uint32_t index;

	lock_take(&sh->done);
	hand_out(x, sh);
	while (chunk_pop(&sh->back[x->index], &index))
		tx_done(x, (uint64_t)index << UMEM_CHUNK_SHIFT);
	lock_drop(&sh->done);
}
