/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Who wants to hear of changes, and what they are to be told once no lock is held. */
#include "net/notify.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#define LISTENERS_MAX 8

struct net_listener {
	net_listener fn;
	void *arg;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct net_listener listeners[LISTENERS_MAX];
static unsigned count;

void pending_add(struct net_pending *p, enum net_event ev, int ifindex)
{
	if (p->all[ev])
		return;
	for (unsigned i = 0; i < p->count; i++)
		if (p->changes[i].ev == ev && p->changes[i].ifindex == ifindex)
			return;
	if (p->count == PENDING_MAX || !ifindex) {
		p->all[ev] = true;
		return;
	}
	p->changes[p->count++] = (struct pending_change){ev, ifindex};
}

int net_listen(net_listener fn, void *arg)
{
	int err = 0;

	pthread_mutex_lock(&lock);
	if (count == LISTENERS_MAX)
		err = -ENOSPC;
	else
		listeners[count++] = (struct net_listener){fn, arg};
	pthread_mutex_unlock(&lock);
	return err;
}

void listeners_tell(const struct net_pending *p)
{
	struct net_listener copy[LISTENERS_MAX];
	unsigned n;

	pthread_mutex_lock(&lock);
	n = count;
	memcpy(copy, listeners, sizeof(copy));
	pthread_mutex_unlock(&lock);
	for (unsigned k = 0; k < n; k++) {
		for (enum net_event ev = NET_EVENT_LINK; ev <= NET_EVENT_NEIGH; ev++)
			if (p->all[ev])
				copy[k].fn(ev, 0, copy[k].arg);
		for (unsigned i = 0; i < p->count; i++)
			if (!p->all[p->changes[i].ev])
				copy[k].fn(p->changes[i].ev, p->changes[i].ifindex, copy[k].arg);
	}
}

void listeners_clear(void)
{
	pthread_mutex_lock(&lock);
	count = 0;
	pthread_mutex_unlock(&lock);
}

void listeners_forked(void)
{
	pthread_mutex_init(&lock, NULL);
	count = 0;
}
