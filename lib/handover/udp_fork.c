/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * fork(): parent and child share the kernel socket, but the steering brings packets to the parent
 * alone. The child's first wish to receive raises a claim in shared memory; the parent's worker
 * then hands the socket to the kernel, and both read it there as ever. A child that only sends, or
 * that only execs, costs the parent nothing.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>

#include "handover/internal.h"
#include "runtime/runtime.h"

/* Sockets with a higher id are the kernel's in the child: their claim has no place. */
#define CLAIMS 65536u

static _Atomic uint8_t *claims; /* [id], written 1 by a child, 0 by the parent's worker */
static int claim_fd = -1; /* eventfd: a claim has been raised */

/*
 * In a child: who answers claims on what it has inherited, by generation; the last one is the
 * parent.
 */
static struct {
	_Atomic uint8_t *claims;
	int fd; /* of the parent's claim_fd; -1: none */
} owners[HANDOVER_FORK_DEPTH];

static void to_kernel_if_claimed(struct udp_sock *s, void *arg)
{
	(void)arg;
	if (s->id >= CLAIMS || !atomic_exchange_explicit(&claims[s->id], 0, memory_order_acquire))
		return;
	udp_to_kernel(s, atomic_load_explicit(&s->v.os_fd, memory_order_relaxed), STATS_WHY(FORK));
	udp_replay_queued(s);
}

static void claimed(int fd, uint32_t events, void *arg)
{
	uint64_t n;

	(void)events;
	(void)arg;
	(void)!raw.read(fd, &n, sizeof(n));
	udp_each(to_kernel_if_claimed, NULL);
	udp_sharing_look(0);
}

int udp_claims_start(void)
{
	void *mem = mmap(NULL, CLAIMS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (mem == MAP_FAILED)
		return -errno;
	claims = mem;
	claim_fd = own_eventfd(0);
	if (claim_fd < 0)
		return -errno;
	return worker_fd_add(claim_fd, EPOLLIN, claimed, NULL);
}

/* The eventfd of whose table a claim is in. -1: nobody answers any more. */
static int owner_fd(const _Atomic uint8_t *claim)
{
	for (unsigned i = 0; i < HANDOVER_FORK_DEPTH; i++) {
		if (owners[i].claims && claim >= owners[i].claims &&
		    claim < owners[i].claims + CLAIMS)
			return owners[i].fd;
	}
	return -1;
}

void udp_raise_claim(struct udp_sock *s)
{
	_Atomic uint8_t *claim = atomic_exchange(&s->inherited_claim, NULL);
	uint64_t one = 1;
	int fd;

	if (!claim) /* another thread was faster */
		return;
	fd = owner_fd(claim);
	atomic_store_explicit(claim, 1, memory_order_release);
	if (raw.write(fd, &one, sizeof(one)) != sizeof(one))
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
	claims = NULL;
	claim_fd = -1;
}

void udp_inherit(const struct udp_sock *parents, int fd)
{
	_Atomic uint8_t *parent = owners[HANDOVER_FORK_DEPTH - 1].claims;
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
	s->in_kernel = true;
	/* Nothing comes but by the kernel: it is asked, also by calls that do not wait. */
	atomic_store_explicit(&s->v.shadow, VFD_SHADOW_ALL, memory_order_relaxed);
	atomic_store(&s->inherited_claim, claim ? claim : &parent[parents->id]);
	if (vfd_install(fd, &s->v)) {
		atomic_store(&s->inherited_claim, NULL);
		return;
	}
	atomic_store_explicit(&s->in_use, true, memory_order_release);
}
