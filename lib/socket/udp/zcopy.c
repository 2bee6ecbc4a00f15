/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * recvfrom_zcopy() of the Extra API: the program gets the frame itself, and gives it back. Until
 * then it is charged to the socket's receive buffer, so that who keeps all gets no more.
 */
#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "socket/udp/internal.h"

/* struct stack_held.back */
static void held_back(const struct stack_held *h)
{
	struct udp_att *att = h->account;

	if (att->uses != h->account_gen)
		return;
	att->charge -= h->charge;
	att->held -= h->charge;
}

static inline struct stack_held held_of(const struct udp_sock *s, struct udp_att *att,
					struct stack *st, struct buf *b, bool shown)
{
	return (struct stack_held){
		.b = b,
		.st = st,
		.owner = s,
		.back = held_back,
		.account = att,
		.account_gen = att->uses,
		.count = &s->stats->rx_zcopy_buffers,
		.charge = b->total + UDP_CHARGE,
		.shown = shown,
	};
}

void *udp_hold(struct udp_sock *s, struct udp_att *att, struct stack *st, struct buf *b, bool shown)
{
	struct stack_held h = held_of(s, att, st, b, shown);
	void *id = stack_hold(&h);

	if (id) {
		s->has_held = true;
		att->held += h.charge;
	}
	return id;
}

static uint32_t charge_of(const struct buf *piece, bool first)
{
	return piece->len + (first ? UDP_CHARGE : 0);
}

bool udp_lend(struct udp_sock *s, struct udp_att *att, struct stack *st, struct buf *b,
	      struct vma_packet_desc_t *p)
{
	const struct stack_held h = held_of(s, att, st, b, false);

	if (!stack_lend(&h, charge_of, p))
		return false;
	s->has_held = true;
	att->held += h.charge;
	return true;
}

void udp_unhold(struct udp_att *att, uint32_t uses, const struct buf *b)
{
	if (att->uses == uses)
		att->held -= b->total + UDP_CHARGE;
}

void udp_held_too_long(const struct udp_sock *s)
{
	static _Atomic bool told;

	if (!atomic_exchange(&told, true))
		log_warn("fd %d: datagrams are dropped, because the program keeps so many "
			 "(recvfrom_zcopy, VMA_PACKET_HOLD, socketxtreme_poll) that its receive "
			 "buffer is full; "
			 "%s() gives them back",
			 atomic_load_explicit(&s->v.os_fd, memory_order_relaxed),
			 params.socketxtreme ? "socketxtreme_free_vma_packets" : "free_packets");
}

/* --- giving */

/* The datagram is the program's. Its stack is locked. */
static ssize_t give(struct udp_sock *s, struct udp_att *att, struct buf *b, void *id,
		    struct zcopy *z)
{
	struct stack *st = atomic_load_explicit(&att->st, memory_order_relaxed);
	ssize_t n = b->total;

	zcopy_put(z, b, id);
	if (z->from && z->fromlen)
		udp_put_name(s, &b->meta, z->from, z->fromlen);
	udp_note_time(s, b);
	stats_add(&s->stats->rx.packets, 1);
	stats_add(&s->stats->rx.bytes, (uint64_t)n);
	lock_drop(&st->lock);
	return n;
}

/* One datagram off the queue, its charge still there; NULL: no memory. */
static struct buf *take_one(struct udp_sock *s, struct udp_att *att)
{
	struct buf *b;

	if (!att->head->gso_size) {
		b = udp_dequeue(s, att);
	} else {
		uint32_t size = att->head->gso_size;

		b = udp_burst_take(&att->head, &att->tail);
		if (b)
			udp_uncharge(s, att, 1, size);
	}
	if (b)
		att->charge += b->total + UDP_CHARGE;
	return b;
}

/* The stack of att is locked. *taken: the call is over, and the lock dropped. */
static ssize_t try_give(struct udp_sock *s, struct udp_att *att, struct zcopy *z, bool *taken)
{
	struct buf *b;
	void *id;

	*taken = false;
	if (!zcopy_fits(z, att->head))
		return 0;
	b = take_one(s, att);
	if (!b)
		return 0;
	id = udp_hold(s, att, atomic_load_explicit(&att->st, memory_order_relaxed), b, false);
	if (!id) {
		/* Back to where it was: the next call has it. */
		att->charge -= b->total + UDP_CHARGE;
		udp_queue_first(att, b);
		return 0;
	}
	*taken = true;
	return give(s, att, b, id, z);
}

static ssize_t no_room(struct udp_att *att)
{
	lock_drop(&atomic_load_explicit(&att->st, memory_order_relaxed)->lock);
	errno = ENOBUFS;
	return -1;
}

/* What has not come as the usual datagram does. flags: recvfrom()'s own. */
static ssize_t receive(struct vfd *v, int fd, uint32_t gen, struct zcopy *z, int flags)
{
	struct udp_sock *s = udp_of(v);
	struct iovec iov = {.iov_base = z->buf, .iov_len = z->len};
	struct msghdr msg = {.msg_name = z->fromlen ? z->from : NULL,
			     .msg_namelen = z->from && z->fromlen ? *z->fromlen : 0,
			     .msg_iov = &iov,
			     .msg_iovlen = 1};
	struct udp_att *att = NULL;
	bool taken;
	ssize_t n;

	if (flags & ~UDP_RX_FLAGS) {
		n = udp_recvmsg(v, fd, &msg, flags);
	} else {
		att = udp_ready(s, fd, gen, &msg, flags, &n);
		if (att) {
			n = try_give(s, att, z, &taken);
			if (taken)
				return n;
			if (*z->flags & MSG_VMA_ZCOPY_FORCE)
				return no_room(att);
			n = udp_deliver(s, att, &msg, flags);
		}
	}
	if (n >= 0 && z->from && z->fromlen)
		*z->fromlen = msg.msg_namelen;
	return n;
}

/* As receive(); close() of another thread waits for the end of a call that waits. */
static __attribute__((noinline)) ssize_t receive_slow(struct vfd *v, int fd, struct zcopy *z,
						      int flags)
{
	uint32_t gen = atomic_load_explicit(&udp_of(v)->gen, memory_order_acquire);
	bool holds = !udp_is_nonblock(udp_of(v), flags);
	ssize_t n;

	if (holds && !vfd_hold(v, fd)) {
		errno = EBADF;
		return -1;
	}
	n = receive(v, fd, gen, z, flags);
	if (holds)
		vfd_let_go();
	return n;
}

ssize_t udp_recv_zcopy(struct vfd *v, int fd, struct zcopy *z)
{
	int flags = *z->flags & ~(MSG_VMA_ZCOPY_FORCE | MSG_VMA_ZCOPY);
	ssize_t n;

	*z->flags &= ~MSG_VMA_ZCOPY;
	if (!(flags & ~UDP_RX_FLAGS) && udp_give_frame(udp_of(v), flags, z, &n))
		return n;
	return receive_slow(v, fd, z, flags);
}
