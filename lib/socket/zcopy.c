/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "socket/zcopy.h"

bool zcopy_fits(const struct zcopy *z, const struct buf *b)
{
	size_t n = 0;

	for (; b; b = b->frag)
		n++;
	return n <= zcopy_room(z);
}

void zcopy_put(const struct zcopy *z, const struct buf *b, void *id)
{
	/* The program's memory may be aligned anyhow: the structs are packed. */
	struct vma_packets_t *pkts = z->buf;
	struct vma_packet_t *p = pkts->pkts;
	size_t n = 0;

	pkts->n_packet_num = 1;
	p->packet_id = id;
	for (; b; b = b->frag)
		p->iov[n++] = (struct iovec){.iov_base = b->data, .iov_len = b->len};
	p->sz_iov = n;
	*z->flags |= MSG_VMA_ZCOPY;
}
