/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The user's end of the receive queue: tcp_recv(), the urgent mark, the window's room and its
 * auto-tuning.
 */
#include "tcp/internal.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

/* Where the user's memory goes on. */
struct sink {
	const struct iovec *iov;
	int left; /* vectors */
	size_t off;
};

static void sink_put(struct sink *s, const uint8_t *from, uint32_t len)
{
	while (len && s->left) {
		size_t room = s->iov->iov_len - s->off;
		size_t n = room < len ? room : len;

		if (n)
			memcpy((uint8_t *)s->iov->iov_base + s->off, from, n);
		from += n;
		len -= (uint32_t)n;
		s->off += n;
		if (s->off == s->iov->iov_len) {
			s->iov++;
			s->left--;
			s->off = 0;
		}
	}
}

static uint32_t iov_total(const struct iovec *iov, int iovcnt)
{
	size_t sum = 0;

	for (int i = 0; i < iovcnt && sum < INT32_MAX; i++)
		sum += iov[i].iov_len;
	return sum > INT32_MAX ? INT32_MAX : (uint32_t)sum;
}

/* --- the urgent mark (RFC 6093; the mark is the byte before the pointer, as everybody has it) */

/* Out of line: the stream is read around the byte. */
static bool mark_skipped(const struct tcp_conn *c)
{
	return c->urg_valid && !c->o.oobinline;
}

bool tcp_at_mark(const struct tcp_conn *c)
{
	return c->urg_valid && c->copied_seq == c->rcv_up - 1;
}

static ssize_t recv_urgent(struct tcp_conn *c, struct sink *to, uint32_t len, int flags)
{
	if (c->o.oobinline || !c->urg_valid || c->urg_read)
		return -EINVAL;
	if (c->state == TCPS_CLOSED && !c->fin_rcvd)
		return -ENOTCONN;
	if (!c->urg_here)
		return c->state == TCPS_CLOSED || c->shut_rd || c->fin_rcvd ? 0 : -EAGAIN;
	if (!(flags & MSG_PEEK))
		c->urg_read = true;
	if (!len)
		return 0;
	if (!(flags & MSG_TRUNC))
		sink_put(to, &c->urg_byte, 1);
	return 1;
}

/* --- reading */

/* In the receive queue from seq on and not to be shown first, without a FIN. */
static uint32_t held_from(const struct tcp_conn *c, uint32_t seq)
{
	if (__builtin_expect(c->shows, 0))
		return seq_after(c->ext->shown_seq, seq) ? c->ext->shown_seq - seq : 0;
	return c->rcv_nxt - c->fin_rcvd - seq;
}

uint32_t tcp_inq(const struct tcp_conn *c)
{
	uint32_t held, to_mark = c->rcv_up - 1 - c->copied_seq;

	if (c->state == TCPS_SYN_SENT || (c->state == TCPS_SYN_RECV && !c->fo_child))
		return 0;
	held = held_from(c, c->copied_seq);
	return mark_skipped(c) && to_mark < held ? to_mark : held;
}

bool tcp_is_held_back(const struct tcp_conn *c)
{
	return __builtin_expect(c->shows, 0) && c->rcv_nxt - c->fin_rcvd != c->ext->shown_seq;
}

/* Linux: tcp_stream_is_readable(). */
bool tcp_readable(const struct tcp_conn *c)
{
	uint32_t mark = mark_skipped(c) && tcp_at_mark(c),
		 target = (c->o.rcvlowat ? c->o.rcvlowat : 1) + mark;
	uint32_t held = held_from(c, c->copied_seq), used = c->rcvq.charge + c->ofo_charge;

	/* What is to be shown may lie behind the mark, which only a read skips. */
	if (held >= target || held <= mark)
		return held >= target || (mark && held && tcp_is_held_back(c));
	if (tcp_is_held_back(c))
		return true;
	/* More may not come before some is read. */
	return used > c->o.rcvbuf - c->o.rcvbuf / 8 || tcp_rcv_window(c) <= c->rcv_mss;
}

/* Copies n bytes at seq, which are held, out of the queue. */
static void copy_out(const struct tcp_conn *c, uint32_t seq, uint32_t n, struct sink *to)
{
	for (const struct buf *b = c->rcvq.head; b && n; b = b->next) {
		uint32_t skip = seq - b->seq;

		if (skip >= b->total)
			continue;
		for (const struct buf *f = b; f && n; f = f->frag) {
			uint32_t take;

			if (skip >= f->len) {
				skip -= f->len;
				continue;
			}
			take = f->len - skip < n ? f->len - skip : n;
			sink_put(to, f->data + skip, take);
			skip = 0;
			seq += take;
			n -= take;
		}
	}
}

/* What lies before copied_seq has been read: gives it back. */
static void drop_read(struct tcp_conn *c)
{
	struct buf *b;

	while ((b = c->rcvq.head) && seq_before(b->seq, c->copied_seq)) {
		struct buf *next = b->next;

		c->rcvq.charge -= tcp_buf_charge(b);
		b = tcp_buf_trim_front(b, c->copied_seq - b->seq);
		if (b) {
			c->rcvq.head = b;
			c->rcvq.charge += tcp_buf_charge(b);
			if (!next)
				c->rcvq.tail = &b->next;
			return;
		}
		c->rcvq.count--;
		c->rcvq.head = next;
		if (!next)
			c->rcvq.tail = &c->rcvq.head;
	}
}

void tcp_skip_mark(struct tcp_conn *c)
{
	/* It is out of line: the callback is not asked for it. */
	if (c->shows && c->ext->shown_seq == c->copied_seq)
		c->ext->shown_seq++;
	c->copied_seq++;
	drop_read(c);
}

/*
 * Copies from *seq on, up to len bytes, stopping before the mark and skipping a byte out of line,
 * as Linux does. Moves *seq; returns the bytes copied.
 */
static uint32_t read_from(struct tcp_conn *c, uint32_t *seq, uint32_t len, struct sink *to,
			  bool discard)
{
	uint32_t copied = 0;

	while (len && held_from(c, *seq)) {
		uint32_t n = held_from(c, *seq);

		if (n > len)
			n = len;
		if (c->urg_valid) {
			uint32_t off = c->rcv_up - 1 - *seq;

			if (!off && copied)
				break;
			if (!off && !c->o.oobinline) {
				++*seq;
				continue;
			}
			if (off && off < n)
				n = off;
		}
		if (!discard)
			copy_out(c, *seq, n, to);
		*seq += n;
		copied += n;
		len -= n;
	}
	return copied;
}

/*
 * Receive-buffer auto-tuning (Linux: tcp_rcv_space_adjust()): a reader that takes more in an RTT
 * than in the one before gets a window of twice that, and room for the sender's slow start.
 */
static void space_adjust(struct tcp_conn *c)
{
	uint64_t now = c->ts->now;
	uint32_t copied = c->copied_seq - c->rcvq_space_seq;
	uint64_t wnd;

	if (!c->rcv_rtt_us || now - c->rcvq_space_time < c->rcv_rtt_us)
		return;
	if (copied > c->rcvq_space) {
		wnd = 2ull * copied + 16ull * c->advmss;
		wnd += 2 * (wnd * (copied - c->rcvq_space) / (c->rcvq_space ? c->rcvq_space : 1));
		if (2 * wnd > c->o.rcvbuf_max)
			wnd = c->o.rcvbuf_max / 2;
		if (2 * wnd > c->o.rcvbuf) {
			c->o.rcvbuf = (uint32_t)(2 * wnd);
			tcp_clamp_by_rcvbuf(c);
		}
		c->rcvq_space = copied;
	}
	c->rcvq_space_seq = c->copied_seq;
	c->rcvq_space_time = now;
}

uint32_t tcp_rcv_free(const struct tcp_conn *c)
{
	uint32_t used = c->rcvq.charge + c->ofo_charge;

	return used < c->o.rcvbuf ? (c->o.rcvbuf - used) / 2 : 0;
}

uint32_t tcp_rcv_space(const struct tcp_conn *c)
{
	uint32_t space = tcp_rcv_free(c);

	if (space > c->rcv_ssthresh)
		space = c->rcv_ssthresh;
	return space < c->window_clamp ? space : c->window_clamp;
}

/*
 * The user has taken data: an ACK that small segments wait for goes now (Linux:
 * tcp_cleanup_rbuf()), and the window is told when it has opened enough.
 */
static void after_read(struct tcp_conn *c)
{
	if (c->closing || c->state == TCPS_SYN_SENT || c->state == TCPS_SYN_RECV)
		return;
	if (c->ack_needed && (c->rcv_nxt - c->rcv_wup > c->rcv_mss ||
			      (!c->rcvq.head && (c->pushed > 1 || (c->pushed && !c->pingpong))))) {
		c->ack_needed = 2;
		tcp_mark_dirty(c);
		return;
	}
	if (!c->shut_rd)
		tcp_window_update(c);
}

/* Nothing is there to read: why (Linux: tcp_recvmsg_locked()). */
static ssize_t nothing(struct tcp_conn *c)
{
	if (tcp_unshown(c))
		return -EAGAIN;
	if (c->fin_rcvd)
		return 0;
	if (c->so_error)
		return -tcp_error(c);
	if (c->shut_rd || c->state == TCPS_CLOSED)
		return 0;
	return -EAGAIN;
}

/* [from, to) was given. */
static void note_time(struct tcp_conn *c, uint32_t from, uint32_t to)
{
	const struct buf *b = from == to ? NULL : c->rcvq.head;

	while (b && to - 1 - b->seq >= b->total)
		b = b->next;
	c->ts->read_time_ns = b ? b->time_ns : 0;
}

uint64_t tcp_read_time(const struct tcp_conn *c)
{
	return c->ts->read_time_ns;
}

uint32_t tcp_unread(const struct tcp_conn *c)
{
	if (c->state == TCPS_SYN_SENT || (c->state == TCPS_SYN_RECV && !c->fo_child))
		return 0;
	return c->rcv_nxt - c->copied_seq;
}

/* --- taking without a copy */

/*
 * The bufs of the next bytes of the stream, `most` at most, as one frame; whole ones only. NULL: it
 * cannot be.
 */
static struct buf *unlink_front(struct tcp_conn *c, uint32_t most, unsigned pieces)
{
	struct buf *first = NULL, **tail = &first, *b;

	if (c->urg_valid)
		return NULL;
	while ((b = c->rcvq.head) && b->pool != &c->ts->pool &&
	       b->total <= most - (first ? first->total : 0)) {
		struct buf **end = tail;
		unsigned n = 0;

		for (struct buf *f = b; f; f = f->frag) {
			n++;
			end = &f->frag;
		}
		if (n > pieces)
			break;
		pieces -= n;
		c->rcvq.count--;
		c->rcvq.head = b->next;
		*tail = b;
		tail = end;
		if (b != first)
			first->total += b->total;
		else
			b->next = NULL;
	}
	if (!c->rcvq.head)
		c->rcvq.tail = &c->rcvq.head;
	return first;
}

/* b, just taken off, is the user's, but occupies what it did. */
static struct buf *occupy(struct tcp_conn *c, struct buf *b)
{
	uint32_t charge = tcp_buf_charge(b);

	c->rcvq.charge -= charge;
	c->ofo_charge += charge;
	c->copied_seq += b->total;
	return b;
}

struct buf *tcp_take(struct tcp_conn *c, unsigned pieces)
{
	struct buf *b = unlink_front(c, tcp_inq(c), pieces);

	return b ? occupy(c, b) : NULL;
}

/* What was with the callback is decided; so is a tcp_set_shows() that came meanwhile. */
static void show_over(struct tcp_conn *c)
{
	c->showing = false;
	if (c->shows_end)
		c->shows = c->shows_end = false;
}

void tcp_taken(struct tcp_conn *c, uint64_t now)
{
	c->ts->now = now;
	show_over(c);
	space_adjust(c);
	after_read(c);
}

void tcp_put_back(struct tcp_conn *c, struct buf *b)
{
	uint32_t charge = tcp_buf_charge(b);

	show_over(c);
	c->ofo_charge -= charge;
	c->rcvq.charge += charge;
	c->rcvq.count++;
	c->copied_seq -= b->total;
	b->next = c->rcvq.head;
	if (!c->rcvq.head)
		c->rcvq.tail = &b->next;
	c->rcvq.head = b;
}

void tcp_give_back(struct tcp_conn *c, uint32_t charge, uint64_t now)
{
	c->ts->now = now;
	c->ofo_charge -= charge;
	after_read(c);
}

void tcp_occupy(struct tcp_conn *c, uint32_t charge)
{
	c->ofo_charge += charge;
}

int tcp_set_shows(struct tcp_conn *c, bool shows)
{
	if (shows && !tcp_conn_ext(c))
		return -ENOMEM;
	/* What has come so far may be read. */
	if (shows && !c->shows)
		c->ext->shown_seq = c->rcv_nxt - c->fin_rcvd;
	/* What lies behind a frame that the callback has now is not read before it. */
	c->shows_end = !shows && c->showing;
	c->shows = shows || c->showing;
	return 0;
}

void tcp_show_unread(struct tcp_conn *c)
{
	if (c->shows)
		c->ext->shown_seq = c->copied_seq;
}

bool tcp_unshown(const struct tcp_conn *c)
{
	return __builtin_expect(c->shows, 0) &&
	       (c->showing ||
		(c->copied_seq == c->ext->shown_seq && c->rcv_nxt - c->fin_rcvd != c->copied_seq));
}

bool tcp_is_showing(const struct tcp_conn *c)
{
	return c->showing;
}

/* What waits first, as one frame. NULL: it cannot be. */
static struct buf *unlink_first(struct tcp_conn *c, unsigned pieces)
{
	return unlink_front(c, c->rcvq.head ? c->rcvq.head->total : 0, pieces);
}

struct buf *tcp_take_unshown(struct tcp_conn *c, unsigned pieces)
{
	struct buf *b;

	if (!tcp_unshown(c) || c->showing)
		return NULL;
	b = unlink_first(c, pieces);
	if (!b && c->rcvq.head && !c->urg_valid) {
		/* What was copied together is the engine's: nobody could keep it. */
		if (!tcp_rcvq_front_to_heap(c))
			return NULL;
		b = unlink_first(c, pieces);
	}
	if (!b) {
		/* It cannot be shown as it is, so it can be read as it is. */
		c->ext->shown_seq = c->rcv_nxt - c->fin_rcvd;
		return NULL;
	}
	occupy(c, b);
	c->ext->shown_seq = c->copied_seq;
	c->showing = true;
	return b;
}

ssize_t tcp_recv(struct tcp_conn *c, const struct iovec *iov, int iovcnt, int flags, uint64_t now)
{
	struct sink to = {.iov = iov, .left = iovcnt};
	uint32_t len = iov_total(iov, iovcnt), seq = c->copied_seq, copied;

	c->ts->now = now;
	if (flags & MSG_OOB)
		return recv_urgent(c, &to, len, flags);
	copied = read_from(c, &seq, len, &to, flags & MSG_TRUNC);
	if (flags & TCP_RECV_TIME)
		note_time(c, seq - copied, seq);
	if (!(flags & MSG_PEEK) && seq != c->copied_seq) {
		c->copied_seq = seq;
		drop_read(c);
		if (c->urg_valid && seq_geq(seq, c->rcv_up))
			c->urg_valid = c->urg_here = c->urg_read = false;
		space_adjust(c);
		after_read(c);
	}
	/* A call for nothing ends when there would be something to take. */
	if (copied || (!len && tcp_inq(c)))
		return copied;
	return nothing(c);
}
