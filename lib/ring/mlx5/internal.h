/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The inside of the ring, shared by ring.c, rx.c, tx.c and recover.c: for whoever holds the lock of
 * the stack that owns it, unless something else is said.
 */
#ifndef RING_MLX5_INTERNAL_H
#define RING_MLX5_INTERNAL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "ring/mlx5/hw_clock.h"
#include "ring/mlx5/moderation.h"
#include "ring/mlx5/objects.h"
#include "ring/mlx5/pool.h"
#include "ring/mlx5/queue/wqe.h"
#include "ring/mlx5/queue/strides.h"
#include "ring/port.h"
#include "ring/ring.h"
#include "stats/stats.h"

#define VIEWS 4u

/*
 * Where pending() looks, which has no lock: what is here does not change, nor the memory go, while
 * somebody may be looking.
 */
struct mlx5_view {
	struct cq cq; /* what cq_at() and cq_ours() want */
	void *old; /* to be released */
	uint32_t upkeeps; /* until then; 0: it is in use, or free */
};

struct mlx5_ring {
	struct ring ring;
	struct ring_counters counters;
	struct sq sq;
	struct rq rq;
	struct mlx5_memory memory;
	struct mlx5_view views[VIEWS];
	struct mlx5_view
		*view; /* of rq.cq; the one of which nothing ever comes while there is none */
	struct mlx5_view mute;
	struct ring_ops ops; /* its own: a VLAN's, or of a striding receive queue */
	struct slabs slabs; /* of a striding receive queue */
	struct mlx5_objects *objects;
	struct mlx5_want want;
	uint32_t max_wire; /* longest frame to send, a tag included */
	uint32_t refill_at; /* places in the receive queue that are worth a refill */
	uint32_t refill_ci; /* rq.ci from which on it is time for one */
	/*
	 * chunks that no user holds, below which frames move to the heap; and, if it is full, are
	 * dropped
	 */
	uint32_t rx_low, rx_reserve;
	bool slow; /* a poll has more to do: armed, or rx_short */
	union {
		struct {
			bool rx_short; /* users hold so many that fewer are left */
			bool stamping; /* poll_stamped() is at work */
			bool tagged; /* they have a VLAN's tag */
			bool unused;
		};
		uint32_t care; /* not 0: received frames need some; only read */
	};
	uint32_t heap_bufs_max; /* VMA_RX_BUFS; see buf_copy_begin() */
	struct buf_pool heap_pool; /* counts them */
	struct buf_pool *heap_origin; /* where their memory goes */
	uint32_t arm_sn; /* events taken: the device ignores a request to tell that is older */
	uint64_t opener; /* process_mark() */
	uint8_t mac[6]; /* of the interface; the rules match it */
	struct mlx5_clock clock;
	struct mlx5_moderation moderation;
	bool moderated; /* the device can */
	struct mlx5_group_rule *groups; /* group.c */
	bool refused; /* it has refused a rule, which was logged */
	uint32_t retry; /* polls until recover() tries again; 0: it has not failed */
	bool armed;
};

static inline struct mlx5_ring *mlx5_ring(struct ring *r)
{
	return (struct mlx5_ring *)r; /* its first member */
}

/*
 * What m->objects does makes system calls, which a thread of the application can be cancelled in:
 * the stack's lock would never come back. Returns what mlx5_end() wants.
 */
static inline int mlx5_begin(void)
{
	int cancel;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	return cancel;
}

static inline void mlx5_end(int cancel)
{
	pthread_setcancelstate(cancel, NULL);
}

static inline void mlx5_stat_add(uint64_t *c, uint64_t n)
{
	stats_add((__u64 *)c, n);
}

/* Chunks that no user holds. */
static inline uint32_t mlx5_rx_ours(const struct mlx5_ring *m)
{
	return m->memory.rx.num_free + (m->rq.pi - m->rq.ci) * m->rq.segs;
}

static inline int64_t mlx5_now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* rx.c. The first six are operations of the ring; pending() has no lock. */
unsigned mlx5_poll(struct ring *r, struct buf **pkts, unsigned max);
/* The same of a striding receive queue. */
unsigned mlx5_poll_strides(struct ring *r, struct buf **pkts, unsigned max);
unsigned mlx5_poll_stamped(struct ring *r, struct buf **pkts, unsigned max);
bool mlx5_pending(const struct ring *r);
unsigned mlx5_wait_fds(struct ring *r, int *fds, unsigned max);
bool mlx5_arm(struct ring *r);
/* Gives the receive queue what chunks there are. */
void mlx5_refill(struct mlx5_ring *m);
/* Asks the device to tell of the next completion, or at once of one that we have not taken. */
void mlx5_request_event(struct mlx5_ring *m);
/* The heap_pool's free: one less of the copies that VMA_RX_BUFS limits. */
void mlx5_heap_buf_free(struct buf_pool *pool, struct buf *b);

/* tx.c: operations of the ring. kick() has no lock. */
struct buf *mlx5_tx_alloc(struct ring *r, uint32_t room);
bool mlx5_tx_full(struct ring *r);
int mlx5_post(struct ring *r, struct buf *b);
int mlx5_dummy(struct ring *r, struct buf *b);
int mlx5_kick(struct ring *r);
void mlx5_burst_begin(struct ring *r);
uint8_t *mlx5_burst_add(struct ring *r, uint32_t len);
void mlx5_burst_end(struct ring *r);
bool mlx5_send_short(struct ring *r, const void *hdr, const void *data, uint32_t len);
int mlx5_send_gso(struct ring *r, const struct iovec *iov, int iovcnt, const struct ring_gso *g);

/*
 * group.c: as the ring's flow_add() and flow_del(), of a group, by its Ethernet address. free(): no
 * rule is left.
 */
int mlx5_group_add(struct mlx5_ring *m, const struct vma_flow_key *flow);
int mlx5_group_del(struct mlx5_ring *m, const struct vma_flow_key *flow);
void mlx5_groups_free(struct mlx5_ring *m);

/* extra_api.c: operations of the ring. */
int mlx5_moderate_by(struct ring *r, uint32_t packets, uint32_t usec);
int mlx5_memory_add(struct ring *r, void *addr, size_t len, uint32_t *key);
int mlx5_memory_del(struct ring *r, void *addr, size_t len);
void mlx5_describe(struct ring *r, struct vma_mlx_hw_device_data *to);

/* vlan.c */
/*
 * The VLAN that the interface is of, and *device becomes what is below it, by name and ifindex; 0:
 * it is none.
 */
uint16_t mlx5_vlan_of(int ifindex, struct ring_port *device);
/* The ring, whose queues are not there yet, is a VLAN's. Its caps follow when its MTU is set. */
void mlx5_vlan_start(struct mlx5_ring *m, uint16_t vlan);
/* Takes the tag off a received frame. False: it is not this VLAN's. */
bool mlx5_vlan_untag(const struct mlx5_ring *m, struct buf *b);

/* recover.c */
/*
 * Our queues around those of m->objects; there is a free view. 0, or negative errno and there is
 * none of them.
 */
int mlx5_queues_init(struct mlx5_ring *m);
/* Has the device do what m->moderation says. */
void mlx5_moderate(struct mlx5_ring *m);
/*
 * The device has stopped the queues, or has reported what cannot be: they are made anew. What was
 * in flight is lost, as on any wire. Should that fail the ring is silent until the next try, some
 * polls later.
 */
void mlx5_recover(struct mlx5_ring *m);
/*
 * Queues as m->want has it now, in place of those that are not broken; what was in flight is lost.
 * False: they cannot be had.
 */
bool mlx5_remake(struct mlx5_ring *m);
/* Mini completions have no time stamp, and somebody wants one: new queues without them. */
void mlx5_uncompress(struct mlx5_ring *m);
/*
 * An upkeep was done: releases the views whose time has come; at close(), when nobody looks any
 * more, all.
 */
void mlx5_views_upkeep(struct mlx5_ring *m);
/* There is one whose time has not come. */
bool mlx5_views_wait(const struct mlx5_ring *m);
void mlx5_views_close(struct mlx5_ring *m);
/*
 * The interface's device went, and is not to be opened again at once. Also for who opens a ring,
 * which no lock protects yet.
 */
void mlx5_lost_note(int ifindex);
bool mlx5_lost_lately(int ifindex);

#endif
