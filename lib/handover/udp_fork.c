/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * fork(): parent and child share the kernel socket, but the steering brings packets to the parent
 * alone. The child's first wish to receive raises a claim in shared memory; the parent's worker
 * then hands the socket to the kernel, and both read it there as ever. The child waits for that:
 * what has come is there to a call that does not wait, too. A child that only sends, or that only
 * execs, costs the parent nothing.
 */
#include <errno.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "handover/claim.h"
#include "handover/internal.h"
#include "runtime/runtime.h"

/* Sockets with a higher id are the kernel's in the child: their claim has no place. */
#define CLAIMS 65536u
/* A child looks so often whether its claim's owner lives, and no longer than this for its answer:
 * it may be stopped, or another program by now. */
#define ANSWER_LOOK_NS 5000000L
#define ANSWER_MOST_NS 200000000u

enum { NOT_CLAIMED, CLAIMED, MOVING };

/* Of one process, mapped by its children, too. */
struct udp_claims {
	int32_t owner;
	_Atomic uint32_t looks; /* of the owner; its children sleep on it */
	/* [id of the owner's socket]: written CLAIMED by a child, the rest by the owner's worker */
	_Atomic uint8_t states[CLAIMS];
};

static struct udp_claims *claims;
static int claim_fd = -1; /* eventfd: a claim has been raised */

/*
 * In a child: who answers claims on what it has inherited, by generation; the last one is the
 * parent.
 */
static struct owner {
	struct udp_claims *claims;
	int fd; /* of the parent's claim_fd; -1: none */
	_Atomic bool is_silent; /* it has not answered in time: nobody waits for it any more */
} owners[HANDOVER_FORK_DEPTH];

static void to_kernel_if_claimed(struct udp_sock *s, void *arg)
{
	(void)arg;
	if (s->id >= CLAIMS || atomic_load(&claims->states[s->id]) != MOVING)
		return;
	udp_move_to_kernel(s, STATS_WHY(FORK));
}

/* All that are in one state come into another. */
static void change_all(uint8_t from, uint8_t to)
{
	unsigned n = udp_num_ids();

	for (unsigned i = 0; i < n && i < CLAIMS; i++) {
		uint8_t state = from;

		if (atomic_load_explicit(&claims->states[i], memory_order_relaxed) == from)
			atomic_compare_exchange_strong(&claims->states[i], &state, to);
	}
}

static void claimed(int fd, uint32_t events, void *arg)
{
	uint64_t n;

	(void)events;
	(void)arg;
	(void)!raw.read(fd, &n, sizeof(n));
	/* Also of what is closed by now; what is claimed meanwhile stays so for the next look. */
	change_all(CLAIMED, MOVING);
	udp_each(to_kernel_if_claimed, NULL);
	change_all(MOVING, NOT_CLAIMED);
	atomic_fetch_add(&claims->looks, 1);
	libc_raw(SYS_futex, (long)(uintptr_t)&claims->looks, FUTEX_WAKE, INT32_MAX, 0, 0, 0);
	udp_sharing_look(0);
}

int udp_claims_start(void)
{
	void *mem = mmap(NULL, sizeof(*claims), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			 -1, 0);

	if (mem == MAP_FAILED)
		return -errno;
	claims = mem;
	claims->owner = getpid();
	claim_fd = own_eventfd(0);
	if (claim_fd < 0)
		return -errno;
	return worker_fd_add(claim_fd, EPOLLIN, claimed, NULL);
}

/* In whose table a claim is. NULL: nobody answers any more. */
static struct owner *owner_of(const _Atomic uint8_t *claim)
{
	for (unsigned i = 0; i < HANDOVER_FORK_DEPTH; i++) {
		struct udp_claims *c = owners[i].claims;

		if (c && claim >= c->states && claim < c->states + CLAIMS)
			return &owners[i];
	}
	return NULL;
}

/* Until the owner has looked at the claim, or will not. */
static void wait_for_answer(struct owner *o, const _Atomic uint8_t *claim)
{
	struct timespec look = {0, ANSWER_LOOK_NS};
	uint64_t end = clock_monotonic_ns() + ANSWER_MOST_NS;

	for (;;) {
		uint32_t looks = atomic_load(&o->claims->looks);

		if (atomic_load(claim) == NOT_CLAIMED || atomic_load(&o->is_silent) ||
		    claim_has_ended(o->claims->owner))
			return;
		if (clock_monotonic_ns() >= end) {
			atomic_store(&o->is_silent, true);
			return;
		}
		libc_raw(SYS_futex, (long)(uintptr_t)&o->claims->looks, FUTEX_WAIT, looks,
			 (long)(uintptr_t)&look, 0, 0);
	}
}

void udp_raise_claim(struct udp_sock *s)
{
	_Atomic uint8_t *claim = atomic_exchange(&s->inherited_claim, NULL);
	struct owner *o;
	uint64_t one = 1;

	if (!claim) /* another thread was faster */
		return;
	o = owner_of(claim);
	if (!o)
		return;
	atomic_store(claim, CLAIMED);
	if (raw.write(o->fd, &one, sizeof(one)) == sizeof(one))
		wait_for_answer(o, claim);
	else
		log_debug("claim of an inherited socket: write(eventfd): %s", strerror(errno));
}

void udp_claims_forked(void)
{
	unsigned last = HANDOVER_FORK_DEPTH - 1;

	/* This process has none of its own before library_start(). */
	if (claim_fd < 0)
		return;
	/* The oldest is dropped: what it has is read by nobody here any more. */
	if (owners[0].claims)
		own_fd_close(owners[0].fd);
	memmove(owners, owners + 1, last * sizeof(owners[0]));
	owners[last].claims = claims;
	owners[last].fd = claim_fd;
	atomic_store(&owners[last].is_silent, false);
	claims = NULL;
	claim_fd = -1;
}

void udp_inherit(const struct udp_sock *parents, int fd)
{
	struct udp_claims *parent = owners[HANDOVER_FORK_DEPTH - 1].claims;
	_Atomic uint8_t *claim = atomic_load(&parents->inherited_claim);
	struct udp_sock *s;

	/* The child has no number of it; the one that it had may be another's already. */
	if (!parents->v.nfds || parents->v.parked)
		return;
	/* The parent has not claimed it itself: the claim is on the same owner. */
	if (!claim && (!parent || parents->id >= CLAIMS))
		return;
	s = udp_sock_new(fd, parents->domain);
	if (!s)
		return;
	udp_opts_mirror_all(s, fd);
	s->in_kernel = true;
	/* Nothing comes but by the kernel: it is asked, also by calls that do not wait. */
	atomic_store_explicit(&s->v.shadow, VFD_SHADOW_ALL, memory_order_relaxed);
	atomic_store(&s->inherited_claim, claim ? claim : &parent->states[parents->id]);
	if (vfd_install(fd, &s->v)) {
		atomic_store(&s->inherited_claim, NULL);
		return;
	}
	atomic_store_explicit(&s->in_use, true, memory_order_release);
}
