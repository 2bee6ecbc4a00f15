/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The send buffer: blocks in the order of the stream, each knowing the sequence number of its first
 * byte. A new block is as large as what is to be stored or what is stored already, so few small
 * messages take little and a stream takes the largest blocks.
 */
#include <string.h>

#include "tcp/internal.h"

#define BLOCK_MIN 256u /* with the header */
#define BLOCK_MAX 32768u
#define BLOCK_MAX_LEAST 2048u

struct tcp_block {
	struct tcp_block *next;
	uint32_t seq; /* of data[0] */
	uint32_t len, room; /* bytes held (acknowledged ones too), bytes of data[] */
	uint32_t ends_record; /* nothing is added to it: its last byte had MSG_EOR */
	uint8_t data[];
};

void tcp_sndq_init(struct tcp_sndq *q, uint32_t seq)
{
	*q = (struct tcp_sndq){.seq = seq};
}

/*
 * A block's bytes are written before they are read: zeroing them would be a second pass over all
 * that is sent.
 */
static struct tcp_block *block_alloc(const struct tcp_env *env, uint32_t size)
{
	return env->alloc_raw ? env->alloc_raw(env->ctx, size) : env->alloc(env->ctx, size);
}

/*
 * The largest block of a buffer of so many bytes. One is charged whole until its last byte is
 * acknowledged: were two of them the buffer, it would be writable when nothing is left to send.
 */
static uint32_t block_max(uint32_t buffer)
{
	uint32_t most = buffer / 8;

	if (most < BLOCK_MAX_LEAST)
		return BLOCK_MAX_LEAST;
	return most < BLOCK_MAX ? most : BLOCK_MAX;
}

/*
 * An empty block for about `want` bytes; smaller ones are tried when memory is short. NULL: none.
 */
static struct tcp_block *block_new(const struct tcp_env *env, uint32_t want, uint32_t buffer)
{
	uint32_t size = BLOCK_MIN;
	struct tcp_block *b;

	while (size - sizeof(*b) < want && 2 * size <= block_max(buffer))
		size *= 2;
	b = block_alloc(env, size);
	while (!b && size > BLOCK_MIN) {
		size /= 2;
		b = block_alloc(env, size);
	}
	if (!b)
		return NULL;
	b->next = NULL;
	b->len = b->ends_record = 0;
	b->room = size - (uint32_t)sizeof(*b);
	return b;
}

/* How large the next block is to be: a record gets no more than it needs, as nothing is added to
 * the last block of it. */
static uint32_t wanted(const struct tcp_sndq *q, uint32_t len)
{
	return len < q->len && !(q->tail && q->tail->ends_record) ? q->len : len;
}

static uint32_t block_size(const struct tcp_block *b)
{
	return b->room + (uint32_t)sizeof(*b);
}

/* At the end of the stream. */
static void append(struct tcp_sndq *q, struct tcp_block *b)
{
	b->seq = q->seq + q->len;
	if (q->tail)
		q->tail->next = b;
	else
		q->head = b;
	q->tail = b;
	q->charge += block_size(b);
	q->len += b->len;
}

/* A place in the user's vectors. */
struct source {
	const struct iovec *iov, *end;
	size_t at; /* bytes of *iov that are done */
};

static void source_skip(struct source *s, size_t skip)
{
	while (s->iov < s->end && skip >= s->iov->iov_len) {
		skip -= s->iov->iov_len;
		s->iov++;
	}
	s->at = skip;
}

/* Copies up to len bytes; returns how many there were. */
static uint32_t source_copy(struct source *s, uint8_t *to, uint32_t len)
{
	uint32_t done = 0;

	while (done < len && s->iov < s->end) {
		size_t n = s->iov->iov_len - s->at;

		if (n > len - done)
			n = len - done;
		if (n)
			memcpy(to + done, (const uint8_t *)s->iov->iov_base + s->at, n);
		done += (uint32_t)n;
		s->at += n;
		if (s->at == s->iov->iov_len) {
			s->iov++;
			s->at = 0;
		}
	}
	return done;
}

uint32_t tcp_sndq_put(struct tcp_sndq *q, const struct tcp_env *env, const struct iovec *iov,
		      int iovcnt, size_t skip, uint32_t len, uint32_t buffer)
{
	struct source from = {.iov = iov, .end = iov + iovcnt};
	uint32_t done = 0;

	source_skip(&from, skip);
	while (done < len && from.iov < from.end) {
		struct tcp_block *b = q->tail;
		uint32_t n;

		if (!b || b->len == b->room || b->ends_record) {
			b = block_new(env, wanted(q, len - done), buffer);
			if (!b)
				break;
			append(q, b);
		}
		n = b->room - b->len < len - done ? b->room - b->len : len - done;
		n = source_copy(&from, b->data + b->len, n);
		b->len += n;
		q->len += n;
		done += n;
	}
	return done;
}

void tcp_sndq_pieces(const struct tcp_env *env, uint32_t len, uint32_t buffer, struct tcp_pieces *p)
{
	for (p->n = 0; len && p->n < TCP_PIECES; p->n++) {
		/* Nothing is added to it: as large as needed. */
		struct tcp_block *b = block_new(env, len, buffer);
		uint32_t here;

		if (!b)
			return;
		here = b->room < len ? b->room : len;
		p->block[p->n] = b;
		p->iov[p->n] = (struct iovec){.iov_base = b->data, .iov_len = here};
		len -= here;
	}
}

uint32_t tcp_sndq_take(struct tcp_sndq *q, struct tcp_pieces *p, uint32_t len)
{
	uint32_t done = 0;
	int taken = 0;

	while (taken < p->n && done < len) {
		struct tcp_block *b = p->block[taken];
		uint32_t here = (uint32_t)p->iov[taken].iov_len;

		b->len = here < len - done ? here : len - done;
		append(q, b);
		done += b->len;
		taken++;
	}
	p->n -= taken;
	memmove(p->block, p->block + taken, (size_t)p->n * sizeof(p->block[0]));
	return done;
}

void tcp_pieces_free(const struct tcp_env *env, struct tcp_pieces *p)
{
	while (p->n) {
		struct tcp_block *b = p->block[--p->n];

		env->free(env->ctx, b, block_size(b));
	}
}

void tcp_sndq_end_record(struct tcp_sndq *q)
{
	if (!q->tail || q->tail->ends_record)
		return;
	q->tail->ends_record = true;
	q->records++;
}

/* Where to begin to look for seq. */
static struct tcp_block *block_before(const struct tcp_sndq *q, uint32_t seq)
{
	return q->cursor && seq_leq(q->cursor->seq, seq) ? q->cursor : q->head;
}

uint32_t tcp_sndq_record(const struct tcp_sndq *q, uint32_t seq, uint32_t len)
{
	const struct tcp_block *b = q->records ? block_before(q, seq) : NULL;

	for (; b && seq_before(b->seq, seq + len); b = b->next) {
		uint32_t end = b->seq + b->len;

		if (b->ends_record && seq_after(end, seq))
			return end - seq < len ? end - seq : len;
	}
	return len;
}

int tcp_sndq_iov(struct tcp_sndq *q, uint32_t seq, uint32_t *len, struct iovec *iov, int max)
{
	struct tcp_block *b = block_before(q, seq);
	uint32_t left = *len, done = 0;
	int n = 0;

	for (; b && left && n < max; b = b->next) {
		uint32_t off = seq - b->seq, here;

		if (off >= b->len)
			continue;
		here = b->len - off < left ? b->len - off : left;
		iov[n++] = (struct iovec){.iov_base = b->data + off, .iov_len = here};
		q->cursor = b;
		seq += here;
		left -= here;
		done += here;
	}
	*len = done;
	return n;
}

static void free_head(struct tcp_sndq *q, const struct tcp_env *env)
{
	struct tcp_block *b = q->head;
	uint32_t size = block_size(b);

	q->head = b->next;
	if (!q->head)
		q->tail = NULL;
	if (q->cursor == b)
		q->cursor = q->head;
	q->charge -= size;
	q->records -= b->ends_record;
	env->free(env->ctx, b, size);
}

void tcp_sndq_ack(struct tcp_sndq *q, const struct tcp_env *env, uint32_t seq)
{
	uint32_t n = seq - q->seq;

	if (seq_leq(seq, q->seq))
		return;
	if (n > q->len)
		n = q->len; /* a SYN or FIN has a number, but no byte here */
	q->seq += n;
	q->len -= n;
	while (q->head && seq_leq(q->head->seq + q->head->len, q->seq))
		free_head(q, env);
}

void tcp_sndq_clear(struct tcp_sndq *q, const struct tcp_env *env)
{
	while (q->head)
		free_head(q, env);
	q->len = 0;
}
