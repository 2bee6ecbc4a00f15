/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * recvfrom_zcopy() of the Extra API for connections: the program gets frames of the stream
 * themselves, and gives them back. Until then they occupy the receive buffer, so that the peer of
 * who keeps all stops sending.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/uio.h>

#include "socket/socket.h"
#include "socket/tcp/internal.h"

/* At most so much of what lies copied together is given by one call that must not copy to buf. */
#define AGAIN_MAX 16384u

/* struct stack_held.back */
static void held_back(const struct stack_held *h)
{
	struct tcp_sock *s = h->account;
	uint64_t now;

	/* It may have a connection with another stack by now, whose lock is not held. */
	if (atomic_load_explicit(&s->st, memory_order_relaxed) != h->st ||
	    tcp_sock_conn_gen(s) != h->account_gen || !s->c)
		return;
	now = tcp_sock_now_us();
	tcp_give_back(s->c, h->charge, now);
	tcp_flush(h->st->tcp->ts, now);
	tcp_sock_kick(h->st->tcp);
}

static inline struct stack_held held_of(struct tcp_sock *s, struct stack *st, struct buf *b,
					bool shown)
{
	return (struct stack_held){
		.b = b,
		.st = st,
		.owner = s,
		.back = held_back,
		.account = s,
		.account_gen = tcp_sock_conn_gen(s),
		.count = &s->stats->rx_zcopy_buffers,
		.charge = tcp_buf_charge(b),
		.shown = shown,
	};
}

void *tcp_sock_hold(struct tcp_sock *s, struct stack *st, struct buf *b, bool shown)
{
	struct stack_held h = held_of(s, st, b, shown);
	void *id = stack_hold(&h);

	if (id)
		atomic_store_explicit(&s->has_held, true, memory_order_relaxed);
	return id;
}

static uint32_t charge_of(const struct buf *piece, bool first)
{
	const struct buf alone = {.room = piece->room};

	(void)first;
	return tcp_buf_charge(&alone);
}

bool tcp_sock_lend(struct tcp_sock *s, struct stack *st, struct buf *b, struct vma_packet_desc_t *p)
{
	const struct stack_held h = held_of(s, st, b, false);

	if (!stack_lend(&h, charge_of, p))
		return false;
	atomic_store_explicit(&s->has_held, true, memory_order_relaxed);
	return true;
}

/* --- giving; st->lock is held */

/* The bytes given, 0: it can only be copied. */
static ssize_t give(struct tcp_sock *s, struct stack *st, const struct zcopy *z, uint64_t now)
{
	struct buf *b = tcp_take(s->c, (unsigned)zcopy_room(z));
	void *id;

	if (!b)
		return 0;
	id = tcp_sock_hold(s, st, b, false);
	if (!id) {
		tcp_put_back(s->c, b);
		return 0;
	}
	tcp_taken(s->c, now);
	zcopy_put(z, b, id);
	return b->total;
}

/*
 * What a reader finds next, or more. Who stands at the urgent mark finds what lies behind it, which
 * tcp_inq() does not count.
 */
static uint32_t next_bytes(const struct tcp_conn *c)
{
	return tcp_at_mark(c) ? tcp_unread(c) : tcp_inq(c);
}

/*
 * As give(), of what the engine had to copy together: it is copied to a frame of its own. -ENOBUFS:
 * it cannot be. As tcp_recv() else.
 */
static ssize_t give_copy(struct tcp_sock *s, struct stack *st, const struct zcopy *z, uint64_t now)
{
	uint32_t there = next_bytes(s->c), n = there < AGAIN_MAX ? there : AGAIN_MAX;
	struct buf *b = zcopy_room(z) ? buf_heap_alloc(n) : NULL;
	struct iovec iov;
	uint32_t charge;
	ssize_t got;
	void *id;

	if (!b)
		return -ENOBUFS;
	b->len = b->total = n;
	id = tcp_sock_hold(s, st, b, false);
	if (!id) {
		buf_free(b);
		return -ENOBUFS;
	}
	iov = (struct iovec){.iov_base = b->data, .iov_len = n};
	charge = tcp_buf_charge(b);
	got = tcp_recv(s->c, &iov, 1, 0, now);
	if (got <= 0) {
		stack_held_drop(id);
		buf_free(b);
		return got;
	}
	b->len = b->total = (uint32_t)got;
	tcp_occupy(s->c, charge);
	zcopy_put(z, b, id);
	return got;
}

/* --- receiving */

/* A call that gives no frames: as recvfrom(). */
static ssize_t plain(struct tcp_sock *s, int fd, const struct zcopy *z, int flags)
{
	return tcp_sock_recvfrom(&s->v, z->buf, z->len, vfd_call(fd, flags), z->from, z->fromlen);
}

/* One look. The bytes given; 0: the end; negative errno. *copy: it is to be copied. */
static ssize_t look(struct tcp_sock *s, const struct zcopy *z, bool force, bool *copy)
{
	struct stack *st = tcp_sock_conn_lock(s);
	uint64_t now = tcp_sock_now_us();
	ssize_t n;

	*copy = !st;
	if (!st)
		return 0;
	if (!tcp_inq(s->c) && stack_pending(st))
		stack_poll_called(st);
	if (!s->c) {
		*copy = true;
		n = 0;
	} else if (!next_bytes(s->c)) {
		n = tcp_recv(s->c, NULL, 0, 0, now);
	} else {
		n = give(s, st, z, now);
		if (!n && force)
			n = give_copy(s, st, z, now);
		*copy = !n;
	}
	if (s->c && (s->tells & TCP_SOCK_TELLS_EXTRA))
		tcp_sock_unshown(s);
	if (n == -EAGAIN)
		tcp_sock_hint_clear(s, EPOLLIN | EPOLLRDNORM | EPOLLRDHUP | EPOLLPRI);
	else if (s->c && (!n || tcp_inq(s->c))) /* the rest is for another reader */
		atomic_fetch_or_explicit(&s->hint, EPOLLIN, memory_order_relaxed);
	tcp_sock_unlock_stack(st, now);
	return n;
}

/*
 * Waits until look() has something. As it; close() of another thread waits for its end. What is to
 * be copied after all the caller asks for by the number.
 */
static ssize_t receive_held(struct tcp_sock *s, int fd, const struct zcopy *z, bool force,
			    bool *copy)
{
	struct tcp_sock_wait w;
	ssize_t n;

	tcp_sock_wait_init(s, &w, EPOLLIN | EPOLLRDHUP | EPOLLERR | EPOLLHUP, s->rcvtimeo_ns);
	if (!vfd_hold(&s->v, fd))
		return -EBADF;
	do {
		n = tcp_sock_wait_more(s, &w);
		if (!n)
			n = look(s, z, force, copy);
		else
			break;
	} while (n == -EAGAIN);
	vfd_let_go();
	return n;
}

/* As look(), and waits if the call does. */
static ssize_t receive(struct tcp_sock *s, int fd, const struct zcopy *z, int flags, bool force,
		       bool *copy)
{
	bool wait = !s->nonblock && !(flags & MSG_DONTWAIT);
	ssize_t n = look(s, z, force, copy);

	if (n == -EAGAIN && stacks_show_due())
		n = stacks_show() ? look(s, z, force, copy) : -EINTR;
	return n == -EAGAIN && wait ? receive_held(s, fd, z, force, copy) : n;
}

ssize_t tcp_sock_recv_zcopy(struct vfd *v, int fd, struct zcopy *z)
{
	struct tcp_sock *s = tcp_sock_of(v);
	bool force = *z->flags & MSG_VMA_ZCOPY_FORCE, copy;
	int flags = *z->flags & ~(MSG_VMA_ZCOPY_FORCE | MSG_VMA_ZCOPY);
	ssize_t n;

	*z->flags &= ~MSG_VMA_ZCOPY;
	if (tcp_sock_mode(s) != TCP_SOCK_CONN || (flags & ~(MSG_DONTWAIT | MSG_NOSIGNAL)))
		return plain(s, fd, z, flags);
	n = receive(s, fd, z, flags, force, &copy);
	if (copy)
		return plain(s, fd, z, flags);
	if (n < 0) {
		stats_add(n == -EAGAIN ? &s->stats->rx.eagain : &s->stats->rx.errors, 1);
		errno = (int)-n;
		return -1;
	}
	stats_add(&s->stats->rx.packets, n > 0);
	stats_add(&s->stats->rx.bytes, (uint64_t)n);
	if (z->from)
		(void)tcp_sock_addr_put(s, true, z->from, z->fromlen);
	return n;
}

/* --- what the Extra API asks besides */

unsigned tcp_sock_stacks(struct vfd *v, struct stack *sts[], unsigned max)
{
	struct tcp_sock *s = tcp_sock_of(v);
	unsigned n = 0;

	if (tcp_sock_mode(s) == TCP_SOCK_LISTEN) {
		int cancel = tcp_sock_lock(s);

		for (struct tcp_sock_att *a = s->unconn.atts; a && n < max; a = a->next) {
			if (a->l)
				sts[n++] = a->st;
		}
		tcp_sock_unlock(s, cancel);
	} else {
		struct stack *st = tcp_sock_tx_stack(v);

		if (st && max)
			sts[n++] = st;
	}
	return n;
}

struct stack *tcp_sock_tx_stack(struct vfd *v)
{
	struct tcp_sock *s = tcp_sock_of(v);

	return tcp_sock_mode(s) == TCP_SOCK_CONN
		       ? atomic_load_explicit(&s->st, memory_order_acquire)
		       : NULL;
}

int tcp_sock_header(struct vfd *v, uint8_t *hdr)
{
	struct tcp_sock *s = tcp_sock_of(v);
	struct stack *st = tcp_sock_conn_lock(s);
	struct tcp_sock_path p;
	int n = -ENOTCONN;

	if (!st)
		return n;
	if (!tcp_sock_path_make(st, &s->tuple, s->bound_if, s->mark,
				tcp_ttl(tcp_get_opts(s->c), s->tuple.family), &p) &&
	    !p.by_another) {
		memcpy(hdr, p.hdr.bytes, p.hdr.len);
		n = p.hdr.len;
	}
	lock_drop(&st->lock);
	return n;
}
