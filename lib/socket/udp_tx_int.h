/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What udp_tx.c and udp_resolve.c share. */
#ifndef SOCKET_UDP_TX_INT_H
#define SOCKET_UDP_TX_INT_H

#include <string.h>

#include "socket/udp_int.h"

/* What one datagram is; gathered once, read by every step. */
struct udp_tx {
	const struct iovec *iov;
	int iovcnt;
	size_t len;
	const struct sockaddr *addr; /* NULL: the connected peer */
	socklen_t alen;
	uint32_t gso_size;
};

/* Where a destination is remembered. */
static inline struct udp_dst *udp_dst_slot(struct udp_dst *dsts, const struct sockaddr *addr,
					   socklen_t alen)
{
	const uint8_t *b = (const uint8_t *)addr;
	uint32_t h = 0, word;
	uint16_t port;

	/* Port and the last word of either family's address. */
	if (alen >= 8) {
		memcpy(&port, b + 2, sizeof(port));
		memcpy(&word, b + 4, sizeof(word));
		h = port ^ word;
	}
	if (alen >= 24) {
		memcpy(&word, b + 20, sizeof(word));
		h ^= word;
	}
	h ^= h >> 16;
	h ^= h >> 8;
	return &dsts[(h ^ h >> 3) & (UDP_DST_WAYS - 1)];
}

#define UDP_TRAIN_IOV 128 /* parts that one large frame is made of */

/* Leading messages that can leave as one frame, which is cut into their datagrams again behind the ring. */
struct udp_train {
	unsigned count;
	size_t len;
	int iovcnt;
	struct iovec iov[UDP_TRAIN_IOV];
};

/* udp_train.c: gathers of n messages those like the first, which is t, from the first on; a shorter one is the last. */
void udp_train_gather(struct udp_train *tr, const struct mmsghdr *msgs, unsigned n,
		      const struct udp_tx *t);

/* Finds out where t goes and remembers it. False: the kernel socket must send. No lock held. */
bool udp_resolve(struct udp_sock *s, int fd, const struct udp_tx *t);

#endif
