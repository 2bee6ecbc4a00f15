/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What one poll() or select() waits for: a list of fds, each with what the caller asked. Lives on
 * the caller's stack.
 */
#ifndef IOMUX_POLLSET_H
#define IOMUX_POLLSET_H

#include "iomux/wait_loop.h"
#include "wait/wait.h"

struct pollset_entry {
	struct vfd *v; /* NULL: the kernel's */
	uint32_t accept; /* POLL* bits that count as ready */
	uint32_t got; /* the answer */
	bool muted; /* kernel[] has ~fd: it says what is not asked for (POLLHUP), for ever */
};

struct pollset {
	struct mux mux;
	unsigned n, ours;
	unsigned room; /* for how many of ours */
	bool plain; /* it has kernel fds */
	uint32_t plain_hash; /* of their numbers */
	bool bad_fd_fails; /* select: a closed fd is EBADF; poll: POLLNVAL */
	struct pollset_entry *entries; /* n */
	struct pollfd *kernel; /* n, same order; fd -1 where there is nothing to ask */
	unsigned *index; /* ours: which entries */
	struct wait_watch *watches; /* ours */
	unsigned watched;
};

/* Big enough for a pollset of this many entries, all ours, without malloc. */
#define POLLSET_SMALL 32
struct pollset_room {
	char bytes[POLLSET_SMALL * (sizeof(struct pollset_entry) + sizeof(struct pollfd) +
				    sizeof(unsigned) + sizeof(struct wait_watch))]
		__attribute__((aligned(16)));
};

/*
 * Prepares s for n entries of which `ours` are offloaded. 0 or -ENOMEM; pollset_free() in either
 * case.
 */
int pollset_init(struct pollset *s, struct pollset_room *room, unsigned n, unsigned ours);
/*
 * The next entry: events is what poll() was or would be asked, accept what counts. False: more are
 * ours than were counted.
 */
bool pollset_add(struct pollset *s, int fd, uint32_t events, uint32_t accept);
/* As mux_run(). -EBADF only with bad_fd_fails; -EAGAIN: what is ours is to be counted anew. */
int pollset_run(struct pollset *s, const struct timespec *timeout, const sigset_t *sigmask);
void pollset_free(struct pollset *s);

#endif
