/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the Extra API asks of a socket's stacks and destinations. */
#include <errno.h>
#include <string.h>

#include "socket/udp/send.h"

unsigned udp_stacks(struct vfd *v, struct stack *sts[], unsigned max)
{
	const struct udp_sock *s = udp_of(v);
	unsigned n = atomic_load_explicit(&s->natt, memory_order_acquire);

	for (unsigned i = 0; i < n && i < max; i++)
		sts[i] = udp_att_stack(udp_att(s, i));
	return n < max ? n : max;
}

/* The destination, its stack locked; NULL: the kernel sends to it, or nobody. */
static struct udp_dst *find(struct udp_sock *s, int fd, const struct sockaddr *to, socklen_t tolen)
{
	struct udp_tx t = {.addr = to, .alen = to ? tolen : 0};

	return to || s->connected ? udp_tx_lock(s, fd, &t, MSG_DONTWAIT) : NULL;
}

struct stack *udp_tx_stack(struct vfd *v, int fd, const struct sockaddr *to, socklen_t tolen)
{
	struct udp_dst *d = find(udp_of(v), fd, to, tolen);
	struct stack *st;

	if (!d)
		return NULL;
	st = atomic_load_explicit(&d->st, memory_order_relaxed);
	lock_drop(&st->lock);
	return st;
}

int udp_header(struct vfd *v, int fd, uint8_t *hdr)
{
	struct udp_dst *d = find(udp_of(v), fd, NULL, 0);
	int n;

	if (!d)
		return -ENOTCONN;
	n = d->hdr.len;
	memcpy(hdr, d->hdr.bytes, (size_t)n);
	lock_drop(&atomic_load_explicit(&d->st, memory_order_relaxed)->lock);
	return n;
}
