/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Inside of lib/net: changes are gathered while the mirror's lock is held and told afterwards. */
#ifndef NET_NOTIFY_H
#define NET_NOTIFY_H

#include <stdbool.h>

#include "net/net.h"

/*
 * Changes of one batch that are told one by one; beyond, each kind is told once for all interfaces.
 */
#define PENDING_MAX 64

struct net_pending {
	unsigned count;
	bool all[NET_EVENT_NEIGH + 1]; /* of any interface */
	struct pending_change {
		enum net_event ev;
		int ifindex;
	} changes[PENDING_MAX];
};

/* The same change twice is told once. ifindex 0: of any interface. */
void pending_add(struct net_pending *p, enum net_event ev, int ifindex);
/* Calls the listeners. No lock is held. */
void listeners_tell(const struct net_pending *p);
void listeners_clear(void);
void listeners_forked(void);

#endif
