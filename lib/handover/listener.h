/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What listener_to_kernel.c and listener_parts.c share: a process's listeners that others have,
 * too. */
#ifndef HANDOVER_LISTENER_H
#define HANDOVER_LISTENER_H

#include "handover/claim.h"
#include "handover/internal.h"
#include "runtime/runtime.h"

#define GIVEN_MAX 250u /* in one message: SCM_MAX_FD is 253 */

struct inherited_listener {
	struct inherited_listener *next;
	struct tcp_sock *s;
	struct claim_ref ref; /* claims NULL: claimed */
	struct claim_ref shared; /* the one that nobody had waited for; claims NULL: none */
	bool waits; /* for that */
	const void *first; /* who waits to be accepted here, from first_us on */
	uint64_t first_us, called_us; /* called_us: a call waited for it then */
	uint32_t calls; /* how many had begun to wait by then */
	unsigned turns, turns_left; /* 0: it has its part always */
	unsigned num; /* connections that are to be accepted */
	int *fds;
};
extern struct inherited_listener *listeners;
extern struct lock listeners_lock;
extern _Atomic unsigned listeners_shared; /* of which waits is set */

/* Where s is in the list, or would be. listeners_lock is held. */
struct inherited_listener **listener_find(const struct tcp_sock *s);
/*
 * The entry of s, made when there is none; NULL: no memory. listeners_lock is held, and s->lock by
 * whoever must not make one for a socket that has been closed.
 */
struct inherited_listener *listener_entry(struct tcp_sock *s);
/* s is a listener still; s->lock is held. */
bool listener_listens(const struct tcp_sock *s);
/* As sk_acceptq_is_full(): of a listener these two are its queue's length and its limit. */
bool listener_kernel_has_room(const struct tcp_sock *s);
/*
 * The connection of s that waits first enters the kernel's queue, if im is there and can; else it
 * is made the kernel's and put behind the *n in fds, or is over. implant()'s answer; -EAGAIN: none
 * waits.
 */
int listener_take_first(struct tcp_sock *s, struct implant *im, int *fds, unsigned *n);
/* s stays this process's, and accepts what could not leave. */
void listener_keep(struct tcp_sock *s, const int *fds, unsigned n);
/* What waits at s enters the kernel's queue; what cannot stays with s. How many those are. */
unsigned listener_give_queued(struct tcp_sock *s, struct implant *im);
/* The same of a handshake that has ended since, as far as it can enter the kernel's queue. */
void listener_give_late(struct tcp_sock *s);
/* Another process may wait for it from now on, or does: listener_parts.c. */
void listener_enlist(const struct claim_ref *r);

/* listener_looks.c: the first member of what the list's owner has allocated. */
struct listener_look {
	struct listener_look *next;
	struct tcp_sock *s;
};
/* The owner sets the two calls, which the internal thread makes; no lock is held then. */
struct listener_looks {
	/* False: it is over. */
	bool (*goes_on)(const struct listener_look *l);
	/* It is, and in no list: the owner frees it. */
	void (*end)(struct listener_look *l);
	struct listener_look *first;
	struct lock lock;
	_Atomic unsigned num; /* those that end() has now are among them */
};
bool listener_looks_any(const struct listener_looks *list);
/* No lock held. */
void listener_looks_add(struct listener_looks *list, struct listener_look *l);
/* On the internal thread. True: some are there still. */
bool listener_looks_look(struct listener_looks *list);
/* In the child: empties the list, which was its parent's. What was in it, not to be freed. */
struct listener_look *listener_looks_forked(struct listener_looks *list);

#endif
