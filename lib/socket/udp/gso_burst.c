/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * GSO bursts: datagrams of one size that travel as one frame, so that kernel and device cost once
 * for all of them (UDP GSO, udp(7)). Messages of a sendmmsg() are put together, and what arrives so
 * is taken apart in the socket's queue.
 */
#include <string.h>

#include "socket/udp/send.h"

/*
 * Adds the message if it still fits; size: the datagrams' length. False: the burst ends before it.
 */
static bool burst_add(struct udp_burst *tr, const struct msghdr *m, size_t size)
{
	size_t len = 0;

	if (m->msg_iovlen > (size_t)(UDP_BURST_IOV - tr->iovcnt))
		return false;
	for (size_t i = 0; i < m->msg_iovlen; i++) {
		/* Each addend is bounded: the sum cannot wrap. */
		if (m->msg_iov[i].iov_len > size)
			return false;
		len += m->msg_iov[i].iov_len;
		tr->iov[tr->iovcnt + (int)i] = m->msg_iov[i];
	}
	if (!len || len > size || tr->len + len > UDP_PAYLOAD_MAX)
		return false;
	tr->iovcnt += (int)m->msg_iovlen;
	tr->len += len;
	tr->count++;
	return true;
}

void udp_burst_gather(struct udp_burst *tr, const struct mmsghdr *msgs, unsigned n,
		      const struct udp_tx *t)
{
	const struct msghdr *first = &msgs[0].msg_hdr;
	bool more = true;

	tr->count = 0;
	tr->len = 0;
	tr->iovcnt = 0;
	for (unsigned i = 0; i < n && more; i++) {
		const struct msghdr *m = &msgs[i].msg_hdr;

		if (m->msg_name != first->msg_name || m->msg_namelen != first->msg_namelen) {
			if (!m->msg_name || !first->msg_name ||
			    m->msg_namelen != first->msg_namelen ||
			    memcmp(m->msg_name, first->msg_name, m->msg_namelen) != 0)
				return;
		}
		if ((m->msg_control && m->msg_controllen) || !burst_add(tr, m, t->len))
			return;
		more = tr->len == t->len * tr->count;
	}
}

struct buf *udp_burst_take(struct buf **head, struct buf ***tail)
{
	struct buf *b = *head, *after = b->next, *one = udp_copy_of(b, b->gso_size);
	uint32_t size = b->gso_size;

	if (!one)
		return NULL;
	one->gso_size = 0;
	b = buf_skip(b, size);
	if (b->total <= size)
		b->gso_size = 0;
	b->next = after;
	*head = b;
	if (!after)
		*tail = &b->next;
	return one;
}

void udp_burst_step(struct udp_sock *s, struct udp_att *att)
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
