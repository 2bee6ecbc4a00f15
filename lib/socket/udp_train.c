/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Trains: datagrams of one size that travel as one frame, so that kernel and device are paid once for all of them (UDP GSO,
 * udp(7)). What arrives so is taken apart in the socket's queue.
 */
#include "socket/udp_int.h"

void udp_train_step(struct udp_sock *s, struct udp_att *att)
{
	struct buf *b = att->head, *after = b->next;
	uint32_t size = b->gso_size;

	udp_uncharge(s, att, 1, size);
	b = buf_skip(b, size);
	if (b->total <= size)
		b->gso_size = 0;
	att->head = b;
	if (!after)
		att->tail = &b->next;
}
