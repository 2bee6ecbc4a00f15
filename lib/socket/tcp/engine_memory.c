/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The engine's memory. Each segment takes a note of some bytes and often a block of the send
 * buffer, and gives them back when it is acknowledged: small pieces stay with the stack, and who
 * came last goes first, while the cache still has it.
 */
#include "socket/tcp/internal.h"

#include <stdlib.h>
#include <string.h>

#define PIECE 64u /* sizes are rounded up to this */
#define PIECES_MAX 64u /* of one size that stay */

/*
 * The stack's, by sizes; NULL: too large, or the stack is not open yet or any more, or who asks
 * does not hold its lock.
 */
static struct tcp_sock_pieces *pieces(struct stack *st, size_t size)
{
#if defined(__SANITIZE_ADDRESS__)
	(void)st;
	(void)size;
	return NULL; /* what is used after it was given back shall be seen */
#else
	if (size > PIECE * TCP_SOCK_SIZES || !st->tcp || !lock_mine(&st->lock))
		return NULL;
	return &st->tcp->pieces[(size - 1) / PIECE];
#endif
}

void *tcp_sock_mem_raw(void *ctx, size_t size)
{
	struct tcp_sock_pieces *p = pieces(ctx, size);
	void *first;

	if (!p)
		return malloc(size);
	first = p->first;
	if (!first)
		return malloc((size + PIECE - 1) / PIECE * PIECE);
	memcpy(&p->first, first, sizeof(p->first));
	p->num--;
	return first;
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
	struct tcp_sock_pieces *p = pieces(ctx, size);

	if (!p || p->num == PIECES_MAX) {
		free(piece);
		return;
	}
	memcpy(piece, &p->first, sizeof(p->first));
	p->first = piece;
	p->num++;
}

void tcp_sock_pieces_free(struct tcp_sock_stack *t)
{
	for (unsigned i = 0; i < TCP_SOCK_SIZES; i++) {
		while (t->pieces[i].first) {
			void *first = t->pieces[i].first;

			memcpy(&t->pieces[i].first, first, sizeof(t->pieces[i].first));
			free(first);
		}
	}
}
