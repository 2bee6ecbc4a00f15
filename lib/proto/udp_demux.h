/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which socket gets a datagram: the kernel's own rules (udp(7), __udp4_lib_lookup's scoring), per
 * stack. The table belongs to the stack's lock.
 */
#ifndef PROTO_UDP_DEMUX_H
#define PROTO_UDP_DEMUX_H

#include <stdbool.h>
#include <stdint.h>

#include "mem/mem.h"

#define UDP_DEMUX_BUCKETS 1024u

struct udp_bind {
	struct udp_bind *next; /* hash chain */
	struct in6_addr local; /* :: any */
	struct in6_addr remote; /* :: not connected */
	uint16_t lport, rport; /* host order */
	uint8_t family; /* AF_INET: only IPv4 packets */
	bool v6only; /* AF_INET6: no IPv4 packets */
	bool local_any, connected;
	bool reuseport; /* SO_REUSEPORT: those of one address and device share by hash */
	uint64_t order; /* of those bound to the port: the later, the higher */
	int bound_if; /* SO_BINDTODEVICE: only packets of this interface; 0: any */
};

struct udp_demux {
	/* not connected: by local port; connected: by local and remote port */
	struct udp_bind *bucket[UDP_DEMUX_BUCKETS];
	unsigned num_connected; /* 0: no search for them */
	uint64_t seed; /* a remote sender cannot choose which hash chain its packets search */
};

void udp_demux_init(struct udp_demux *d, uint64_t seed);
/* b's fields must not change while it is in the table. */
void udp_demux_add(struct udp_demux *d, struct udp_bind *b);
void udp_demux_remove(struct udp_demux *d, struct udp_bind *b);
/* The best match for a unicast datagram, or NULL. */
struct udp_bind *udp_demux_find(const struct udp_demux *d, const struct buf_meta *m);
/* True when b is the only one that a datagram to its port can be for. */
static inline bool udp_demux_sole(const struct udp_demux *d, const struct udp_bind *b)
{
	return !d->num_connected && !b->next &&
	       d->bucket[(b->lport ^ d->seed) % UDP_DEMUX_BUCKETS] == b;
}

/* Multicast and broadcast: every match in turn; start with prev = NULL. */
struct udp_bind *udp_demux_next(const struct udp_demux *d, const struct buf_meta *m,
				struct udp_bind *prev);
/*
 * True when b may receive a packet with these addresses and ports (group membership is not looked
 * at).
 */
bool udp_bind_matches(const struct udp_bind *b, const struct buf_meta *m);

#endif
