/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * select() and pselect() when at least one fd is ours: a pollset with an entry for each fd that has
 * a bit.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "iomux/iomux.h"
#include "iomux/pollset.h"
#include "runtime/runtime.h"
#include "stack/stack.h"

/*
 * Which poll events set a bit of each set: as the kernel's POLLIN_SET, POLLOUT_SET and POLLEX_SET.
 */
#define RD_ASK (POLLIN | POLLRDNORM | POLLRDBAND)
#define RD_SET (RD_ASK | POLLHUP | POLLERR)
#define WR_ASK (POLLOUT | POLLWRNORM | POLLWRBAND)
#define WR_SET (WR_ASK | POLLERR)
#define EX_SET POLLPRI

#define WORD_BITS (8 * (int)sizeof(unsigned long))

/*
 * The caller's sets as words: an fd may lie beyond FD_SETSIZE, the sets are as large as nfds says.
 */
struct sets {
	unsigned long *rd, *wr, *ex; /* NULL where the caller gave none */
	int nfds;
};

static bool bit(const unsigned long *set, int fd)
{
	return set && set[fd / WORD_BITS] >> (fd % WORD_BITS) & 1;
}

static unsigned long word(const struct sets *s, int w)
{
	unsigned long any =
		(s->rd ? s->rd[w] : 0) | (s->wr ? s->wr[w] : 0) | (s->ex ? s->ex[w] : 0);
	int left = s->nfds - w * WORD_BITS;

	return left < WORD_BITS ? any & ((1ul << left) - 1) : any;
}

static int num_words(const struct sets *s)
{
	return (s->nfds + WORD_BITS - 1) / WORD_BITS;
}

/* Counts the fds that have a bit, and those of them that are ours. */
static unsigned count(const struct sets *s, unsigned *ours)
{
	unsigned n = 0;

	*ours = 0;
	for (int w = 0; w < num_words(s); w++) {
		for (unsigned long any = word(s, w); any; any &= any - 1) {
			n++;
			*ours += vfd_get_ours(w * WORD_BITS + __builtin_ctzl(any)) != NULL;
		}
	}
	return n;
}

static void ask(const struct sets *s, int fd, uint32_t *events, uint32_t *accept)
{
	*events = *accept = 0;
	if (bit(s->rd, fd)) {
		*events |= RD_ASK;
		*accept |= RD_SET;
	}
	if (bit(s->wr, fd)) {
		*events |= WR_ASK;
		*accept |= WR_SET;
	}
	if (bit(s->ex, fd)) {
		*events |= EX_SET;
		*accept |= EX_SET;
	}
}

/*
 * The kernel's own word on a closed fd: EBADF, or it lies beyond the process's table and is
 * ignored.
 */
static bool kernel_says_bad(const struct sets *s)
{
	size_t bytes = (size_t)num_words(s) * sizeof(unsigned long);
	unsigned long *copy = calloc(3, bytes);
	struct timespec zero = {0};
	unsigned long *in[3] = {s->rd, s->wr, s->ex};
	fd_set *out[3] = {NULL};
	bool bad = true;

	if (!copy)
		return true;
	for (int i = 0; i < 3; i++) {
		if (!in[i])
			continue;
		out[i] = (fd_set *)((char *)copy + (size_t)i * bytes);
		memcpy(out[i], in[i], bytes);
	}
	bad = raw.pselect(s->nfds, out[0], out[1], out[2], &zero, NULL) < 0 && errno == EBADF;
	free(copy);
	return bad;
}

/* Writes the answer into the caller's sets. Returns the number of bits. */
static int answer(const struct sets *s, const struct pollset *p)
{
	int bits = 0;
	unsigned i = 0;

	for (int w = 0; w < num_words(s); w++) {
		unsigned long any = word(s, w), rd = 0, wr = 0, ex = 0;

		for (; any; any &= any - 1, i++) {
			int fd = w * WORD_BITS + __builtin_ctzl(any);
			unsigned long one = any & -any;
			uint32_t got = p->entries[i].got;

			rd |= bit(s->rd, fd) && got & RD_SET ? one : 0;
			wr |= bit(s->wr, fd) && got & WR_SET ? one : 0;
			ex |= bit(s->ex, fd) && got & EX_SET ? one : 0;
		}
		bits += __builtin_popcountl(rd) + __builtin_popcountl(wr) + __builtin_popcountl(ex);
		if (s->rd)
			s->rd[w] = rd;
		if (s->wr)
			s->wr[w] = wr;
		if (s->ex)
			s->ex[w] = ex;
	}
	return bits;
}

/*
 * Fills the pollset; with open_only, closed fds are left out. 0 or -EAGAIN (more are ours than were
 * counted).
 */
static int fill(struct pollset *p, const struct sets *s, bool open_only)
{
	for (int w = 0; w < num_words(s); w++) {
		for (unsigned long any = word(s, w); any; any &= any - 1) {
			int fd = w * WORD_BITS + __builtin_ctzl(any);
			uint32_t events, accept;

			ask(s, fd, &events, &accept);
			if (open_only && raw.fcntl(fd, F_GETFD) < 0)
				fd = -1;
			if (!pollset_add(p, fd, events, accept))
				return -EAGAIN;
		}
	}
	return 0;
}

/* handled: signals_handled when the call began. */
static int select_ours(const struct sets *s, unsigned n, unsigned ours,
		       const struct timespec *timeout, const sigset_t *sigmask, uint32_t handled,
		       bool open_only)
{
	struct pollset_room room;
	struct pollset p;
	int r = pollset_init(&p, &room, n, ours);

	mux_stats(&p.mux, STATS_SELECT);
	p.mux.handled = handled;
	if (!r)
		r = fill(&p, s, open_only);
	if (!r) {
		p.bad_fd_fails = true;
		r = pollset_run(&p, timeout, sigmask);
	}
	if (r >= 0)
		r = answer(s, &p);
	pollset_free(&p);
	return r;
}

int iomux_select(int nfds, fd_set *rd, fd_set *wr, fd_set *ex, const struct timespec *timeout,
		 const sigset_t *sigmask)
{
	struct sets s = {(unsigned long *)rd, (unsigned long *)wr, (unsigned long *)ex, nfds};
	uint32_t handled = signals_handled;
	bool open_only = false;
	int r;

	stack_round_end();
	if (nfds < 0 || !mux_timeout_valid(timeout))
		return libc.pselect(nfds, rd, wr, ex, timeout, sigmask);
	do {
		unsigned ours, n = count(&s, &ours);

		if (!ours)
			return libc.pselect(nfds, rd, wr, ex, timeout, sigmask);
		r = select_ours(&s, n, ours, timeout, sigmask, handled, open_only);
		/* EBADF comes from the first look, before any time has passed. */
		if (r == -EBADF && !open_only && !kernel_says_bad(&s)) {
			open_only = true;
			r = -EAGAIN;
		}
	} while (r == -EAGAIN);
	if (r < 0) {
		errno = -r;
		return -1;
	}
	return r;
}
