/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What vma_stats shows of a TCP socket. Calls count into its block as they go; what its connection
 * has at a time, queues, windows and the like, the internal thread looks up now and then, so that
 * no packet pays for it.
 */
#include <netinet/in.h>
#include <string.h>

#include "socket/socket.h"
#include "socket/tcp/internal.h"
#include "stats/stats.h"

/*
 * Counted into by sockets that have no block of their own (any more): nobody reads them. Several,
 * for several threads.
 */
struct vma_stats_socket tcp_sock_no_stats[TCP_SOCK_NO_STATS];

/*
 * By the slot of its block, the socket that had it last: objects are type-stable, and whether it
 * still has it tcp_sock_shown() says.
 */
static struct tcp_sock *_Atomic shown[VMA_STATS_SOCKETS_MAX];
static _Atomic unsigned num_shown; /* slots above were never used */

static void slot_note(struct tcp_sock *s, int slot)
{
	unsigned n = atomic_load_explicit(&num_shown, memory_order_relaxed);

	atomic_store_explicit(&shown[slot], s, memory_order_release);
	while (n <= (unsigned)slot &&
	       !atomic_compare_exchange_weak(&num_shown, &n, (unsigned)slot + 1))
		;
}

void tcp_sock_stats_begin(struct tcp_sock *s, int fd)
{
	struct vma_stats_socket *b;
	int slot;

	tcp_sock_kernel_conn_forget(fd);
	b = stats_socket_if_shown(fd);
	slot = b ? stats_socket_slot(b) : -1;
	s->stats = b ? b : &tcp_sock_no_stats[s->id % TCP_SOCK_NO_STATS];
	if (!b)
		return;
	b->family = s->domain;
	b->proto = IPPROTO_TCP;
	if (slot >= 0)
		slot_note(s, slot);
}

void tcp_sock_stats_end(struct tcp_sock *s)
{
	struct vma_stats_socket *b = tcp_sock_shown(s);

	s->stats = &tcp_sock_no_stats[s->id % TCP_SOCK_NO_STATS];
	stats_socket_put(b);
}

void tcp_sock_stats_leave(struct tcp_sock *s)
{
	struct vma_stats_socket *b = tcp_sock_shown(s);

	s->stats = &tcp_sock_no_stats[s->id % TCP_SOCK_NO_STATS];
	if (b)
		tcp_sock_kernel_conn_add(b);
}

static void peak(__u64 *most, __u64 now)
{
	if (now > __atomic_load_n(most, __ATOMIC_RELAXED))
		stats_set(most, now);
}

void tcp_sock_figures_peak(struct tcp_sock *s)
{
	struct vma_stats_socket *b = atomic_load_explicit(&s->stats, memory_order_relaxed);

	peak(&b->rx_ready_bytes_max, tcp_inq(s->c));
	peak(&b->rx_ready_packets_max, tcp_inq_pieces(s->c));
}

/* What was sent again since the last look, of this connection or, when it is a new one, of it. */
static void count_retransmits(struct vma_stats_socket *b, uint32_t now)
{
	uint32_t before = b->tcp.retransmits;

	stats_add(&b->tx_retransmits, now >= before ? now - before : now);
}

/* The connection of s as b shows it; its stack is locked. */
static void figures(struct tcp_sock *s, struct vma_stats_socket *b)
{
	struct vma_stats_tcp f;

	tcp_figures(s->c, &f);
	count_retransmits(b, f.retransmits);
	stats_copy_words(&b->tcp, &f, sizeof(f));
	stats_set(&b->rx_ready_bytes, tcp_inq(s->c));
	stats_set(&b->rx_ready_packets, tcp_inq_pieces(s->c));
	stats_set(&b->rx_ready_limit, f.rcvbuf);
	stats_set(&b->tx_ready_bytes, tcp_outq(s->c));
	tcp_sock_figures_peak(s);
	tcp_sock_show_state(s, tcp_conn_state(s->c));
}

void tcp_sock_figures_begin(struct vma_stats_socket *b)
{
	static const struct vma_stats_tcp none;

	stats_copy_words(&b->tcp, &none, sizeof(none));
}

void tcp_sock_figures_end(struct tcp_sock *s)
{
	struct vma_stats_socket *b = tcp_sock_shown(s);

	if (!b)
		return;
	if (s->c)
		figures(s, b);
	tcp_sock_figures_begin(b);
	stats_set(&b->rx_ready_bytes, 0);
	stats_set(&b->rx_ready_packets, 0);
	stats_set(&b->tx_ready_bytes, 0);
	tcp_sock_show_offloaded(s, false);
}

void tcp_sock_figures_last(struct tcp_sock *s)
{
	struct stack *st = tcp_sock_shown(s) ? tcp_sock_conn_lock(s) : NULL;

	if (!st)
		return;
	figures(s, tcp_sock_shown(s));
	lock_drop(&st->lock);
}

/* --- the internal thread; s may be closed, and another socket, at any time */

/* Does s have the block still? Then nobody else gets it until stats_blocks_drop(). */
static bool block_hold(const struct tcp_sock *s, const struct vma_stats_socket *b)
{
	stats_blocks_hold();
	if (tcp_sock_shown(s) == b)
		return true;
	stats_blocks_drop();
	return false;
}

static void look_conn(struct tcp_sock *s, struct vma_stats_socket *b)
{
	struct stack *st = atomic_load_explicit(&s->st, memory_order_acquire);

	if (!st)
		return;
	lock_take(&st->lock);
	if (atomic_load_explicit(&s->st, memory_order_relaxed) == st && s->c && !s->closed &&
	    block_hold(s, b)) {
		figures(s, b);
		stats_blocks_drop();
	}
	lock_drop(&st->lock);
}

/* Clients that wait for accept(). Not when the socket is busy: who is may wait for this thread. */
static void look_listener(struct tcp_sock *s, struct vma_stats_socket *b)
{
	struct tcp_sock_att *att;
	unsigned n = 0;

	if (!lock_try(&s->lock))
		return;
	att = tcp_sock_given_up(s) ? NULL : s->unconn.atts;
	for (; att; att = att->next) {
		lock_take(&att->st->lock);
		if (att->l && atomic_load_explicit(&att->st->open, memory_order_relaxed))
			n += tcp_accept_queued(att->l);
		lock_drop(&att->st->lock);
	}
	if (block_hold(s, b)) {
		stats_set(&b->rx_ready_packets, n);
		stats_set(&b->rx_ready_limit, (uint64_t)s->unconn.backlog);
		peak(&b->rx_ready_packets_max, n);
		stats_blocks_drop();
	}
	lock_drop(&s->lock);
}

/* Not at socket(): most sockets are gone before anybody could look. */
static void look_inode(struct tcp_sock *s, struct vma_stats_socket *b)
{
	int fd = atomic_load_explicit(&s->v.os_fd, memory_order_relaxed);
	uint32_t gen = atomic_load_explicit(&s->gen, memory_order_acquire);
	uint64_t inode = vfd_get(fd) == &s->v ? sock_inode(fd) : 0;

	/* The number is its own before and after. */
	if (inode && vfd_get(fd) == &s->v &&
	    atomic_load_explicit(&s->gen, memory_order_acquire) == gen && block_hold(s, b)) {
		stats_set(&b->inode, inode);
		stats_blocks_drop();
	}
}

static void look(struct tcp_sock *s, struct vma_stats_socket *b)
{
	if (!__atomic_load_n(&b->inode, __ATOMIC_RELAXED))
		look_inode(s, b);
	if (tcp_sock_mode(s) == TCP_SOCK_CONN)
		look_conn(s, b);
	else if (tcp_sock_mode(s) == TCP_SOCK_LISTEN)
		look_listener(s, b);
}

void tcp_sock_figures_look(void)
{
	unsigned n = atomic_load_explicit(&num_shown, memory_order_acquire);

	for (unsigned i = 0; i < n; i++) {
		struct tcp_sock *s = atomic_load_explicit(&shown[i], memory_order_acquire);
		struct vma_stats_socket *b = s ? tcp_sock_shown(s) : NULL;

		if (b && stats_socket_slot(b) == (int)i)
			look(s, b);
	}
	tcp_sock_kernel_conn_look();
}

uint64_t tcp_sock_retransmits(const struct stack *st)
{
	return st->tcp ? tcp_stack_counters(st->tcp->ts)->retrans_segs : 0;
}

void tcp_sock_figures_forked(void)
{
	memset(shown, 0, sizeof(shown));
	num_shown = 0;
	tcp_sock_kernel_conn_forked();
}
