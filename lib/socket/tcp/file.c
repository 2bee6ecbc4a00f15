/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * sendfile(): the file is read into the send buffer itself. Reading may take long, so it is done
 * without a lock, into pieces that are put into the stream afterwards. Only where the call does not
 * wait for room: who waits sends by a buffer of its own (preload/transfer.c).
 */
#include <sys/epoll.h>
#include <sys/uio.h>

#include "runtime/runtime.h"
#include "config/config.h"
#include "socket/tcp/internal.h"

/* Of one read; and what is not worth one, unless it is all that is asked for. */
#define PART_MOST 65536u
#define PART_LEAST 4096u

/* An error that is to be told is left for the usual way. st->lock is held. */
static bool may_send(const struct tcp_sock *s)
{
	return s->c && !(tcp_ready(s->c) & TCP_EV_ERR);
}

/* What a part is of. */
struct whole {
	unsigned conn; /* tells this connection from the next one of the socket */
	bool goes_on; /* an answer that waits for the end of the round, which has counted it */
};

/* Memory for up to n bytes that there is room for. NULL: none, or no connection any more. */
static struct stack *pieces_get(struct tcp_sock *s, size_t n, struct tcp_pieces *p,
				struct whole *of)
{
	struct stack *st = tcp_sock_conn_lock(s);
	uint32_t room = 0, most = n < PART_MOST ? (uint32_t)n : PART_MOST;

	p->n = 0;
	if (!st)
		return NULL;
	of->goes_on = tcp_waits_for_flush(s->c);
	/* Acknowledgements that wait make room. */
	if (params.rx_poll_on_tx_tcp || stack_pending(st))
		stack_poll_called(st);
	of->conn = atomic_load_explicit(&s->conns, memory_order_relaxed);
	if (may_send(s))
		room = tcp_send_room(s->c);
	if (room >= most || room >= PART_LEAST)
		tcp_pieces_get(s->c, room < most ? room : most, p);
	lock_drop(&st->lock);
	return p->n ? st : NULL;
}

/* got bytes are in p, which is st's. How many were sent; what is left of p is given back. */
static size_t pieces_send(struct tcp_sock *s, struct stack *st, struct tcp_pieces *p, uint32_t got,
			  struct whole of)
{
	const struct tcp_env env = {.ctx = st, .free = tcp_sock_mem_free};
	struct stack *now_st = got ? tcp_sock_conn_lock(s) : NULL;
	uint64_t now = tcp_sock_now_us();
	ssize_t n = 0;

	if (now_st && now_st != st)
		lock_drop(&now_st->lock);
	if (now_st != st) {
		lock_take(&st->lock);
		tcp_pieces_free(&env, p);
		lock_drop(&st->lock);
		return 0;
	}
	if (may_send(s) && atomic_load_explicit(&s->conns, memory_order_relaxed) == of.conn)
		n = tcp_send_pieces(s->c, p, got, now);
	if (n > 0) {
		atomic_fetch_or_explicit(&s->hint, EPOLLOUT, memory_order_relaxed);
		of.goes_on |= stack_round_says(s, now);
	}
	tcp_pieces_free(&env, p);
	if (of.goes_on)
		tcp_sock_unlock_stack_in_round(st, now);
	else
		tcp_sock_unlock_stack_answered(st, now);
	return n > 0 ? (size_t)n : 0;
}

/* One read, and what becomes of it. The bytes sent; 0: the usual way is to say why there are none.
 */
static size_t send_part(struct tcp_sock *s, int in, off_t pos, size_t n)
{
	struct tcp_pieces p;
	struct whole of;
	struct stack *st = pieces_get(s, n, &p, &of);
	ssize_t got;

	if (!st)
		return 0;
	/* sendfile() is no cancellation point. */
	got = raw.preadv(in, p.iov, p.n, pos);
	return pieces_send(s, st, &p, got > 0 ? (uint32_t)got : 0, of);
}

size_t tcp_sock_send_file(struct vfd *v, int in, off_t pos, size_t n)
{
	struct tcp_sock *s = tcp_sock_of(v);
	size_t done = 0, part = n;

	if (!s->nonblock || tcp_sock_mode(s) != TCP_SOCK_CONN)
		return 0;
	stack_round_turns_to(s);
	while (part && done < n) {
		part = send_part(s, in, pos + (off_t)done, n - done);
		done += part;
		if (part)
			stats_add(&s->stats->tx.packets, 1);
	}
	stats_add(&s->stats->tx.bytes, done);
	return done;
}
