/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The engine's memory. Each segment takes a note of some bytes and often a block of the send
 * buffer, and gives them back when it is acknowledged: such pieces stay with the stack, and who
 * came last goes first, while the cache still has it. The blocks of a server's answers come and go
 * by the megabyte: malloc() would give them to the kernel and get zeroed pages instead.
 */
#include "socket/tcp/internal.h"

#include <stdlib.h>
#include <string.h>

#define PIECE 64u /* sizes are rounded up to this */
#define PIECES_MAX 64u /* of one size that stay */
/* The sizes of a send buffer's larger blocks are powers of 2. */
#define BLOCK_LEAST 1024u
#define BLOCK_MOST (BLOCK_LEAST << (TCP_SOCK_BLOCK_SIZES - 1))
#define BLOCKS_BYTES_MAX (4u << 20) /* of all sizes that stay */
#define EXPIRE_MOST 128u /* of one size, in a second: the stack's lock is held */

/*
 * The stack is open, and who asks holds its lock. With AddressSanitizer nothing stays: what is used
 * after it was given back shall be seen.
 */
static bool may_stay(struct stack *st)
{
#if defined(__SANITIZE_ADDRESS__)
	(void)st;
	return false;
#else
	return st->tcp && lock_mine(&st->lock);
#endif
}

static bool is_block(size_t size)
{
	return size >= BLOCK_LEAST && size <= BLOCK_MOST && !(size & (size - 1));
}

static struct tcp_sock_pieces *blocks_of(struct tcp_sock_stack *t, size_t size)
{
	return &t->blocks[__builtin_ctzl(size / BLOCK_LEAST)];
}

/* The stack's, by sizes; NULL: too large. */
static struct tcp_sock_pieces *pieces(struct stack *st, size_t size)
{
	if (size > PIECE * TCP_SOCK_SIZES || !may_stay(st))
		return NULL;
	return &st->tcp->pieces[(size - 1) / PIECE];
}

static void *pop(struct tcp_sock_pieces *p)
{
	void *first = p->first;

	memcpy(&p->first, first, sizeof(p->first));
	p->num--;
	return first;
}

static void push(struct tcp_sock_pieces *p, void *piece)
{
	memcpy(piece, &p->first, sizeof(p->first));
	p->first = piece;
	p->num++;
}

static void *block_alloc(struct stack *st, size_t size)
{
	struct tcp_sock_pieces *p = may_stay(st) ? blocks_of(st->tcp, size) : NULL;
	void *first;

	if (!p || !p->first)
		return malloc(size);
	first = pop(p);
	st->tcp->blocks_bytes -= size;
	if (p->num < p->unused)
		p->unused = p->num;
	return first;
}

static void block_free(struct stack *st, void *block, size_t size)
{
	if (!may_stay(st) || st->tcp->blocks_bytes + size > BLOCKS_BYTES_MAX) {
		free(block);
		return;
	}
	push(blocks_of(st->tcp, size), block);
	st->tcp->blocks_bytes += size;
}

void *tcp_sock_mem_raw(void *ctx, size_t size)
{
	struct tcp_sock_pieces *p;

	if (is_block(size))
		return block_alloc(ctx, size);
	p = pieces(ctx, size);
	if (!p)
		return malloc(size);
	return p->first ? pop(p) : malloc((size + PIECE - 1) / PIECE * PIECE);
}

void *tcp_sock_mem_alloc(void *ctx, size_t size)
{
	void *p = size > PIECE * TCP_SOCK_SIZES ? NULL : tcp_sock_mem_raw(ctx, size);

	if (!p)
		return calloc(1, size);
	return memset(p, 0, size);
}

void tcp_sock_mem_free(void *ctx, void *piece, size_t size)
{
	struct tcp_sock_pieces *p;

	if (is_block(size)) {
		block_free(ctx, piece, size);
		return;
	}
	p = pieces(ctx, size);
	if (!p || p->num == PIECES_MAX)
		free(piece);
	else
		push(p, piece);
}

/* All behind the first `keep`: those that came last are the ones that the cache still has. */
static void *cut_behind(struct tcp_sock_pieces *p, unsigned keep)
{
	void **at = &p->first, *rest;

	for (unsigned i = 0; i < keep; i++)
		at = *at;
	rest = *at;
	*at = NULL;
	p->num = keep;
	return rest;
}

void tcp_sock_pieces_expire(struct tcp_sock_stack *t)
{
	for (unsigned i = 0; i < TCP_SOCK_BLOCK_SIZES; i++) {
		struct tcp_sock_pieces *p = &t->blocks[i];
		unsigned n = p->unused < EXPIRE_MOST ? p->unused : EXPIRE_MOST;
		void *block = n ? cut_behind(p, p->num - n) : NULL;

		t->blocks_bytes -= n * (size_t)(BLOCK_LEAST << i);
		while (block) {
			void *next = *(void **)block;

			free(block);
			block = next;
		}
		p->unused = p->num;
	}
}

void tcp_sock_pieces_free(struct tcp_sock_stack *t)
{
	for (unsigned i = 0; i < TCP_SOCK_SIZES; i++) {
		while (t->pieces[i].first)
			free(pop(&t->pieces[i]));
	}
	for (unsigned i = 0; i < TCP_SOCK_BLOCK_SIZES; i++) {
		while (t->blocks[i].first)
			free(pop(&t->blocks[i]));
	}
}
