/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * fork(): parent and child share the kernel socket, but the steering brings packets to the parent alone. The child's
 * first wish to receive raises a claim in shared memory; the parent's worker then hands the socket to the kernel, and
 * both read it there as ever. A child that only sends, or that only execs, costs the parent nothing.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include "runtime/libc.h"
#include "runtime/log.h"
#include "runtime/worker.h"
#include "socket/udp_int.h"

/* Sockets with a higher id go home in the parent when it forks: nobody could claim them. */
#define CLAIMS 65536u

static _Atomic uint8_t *claims; /* [id], written 1 by a child, 0 by the parent's worker */
static int claim_fd = -1; /* eventfd: a claim has been raised */
/* In a child: what it has inherited. */
static int inherited_fd = -1;

static void go_home_if_claimed(struct udp_sock *s, void *arg)
{
	(void)arg;
	if (s->id < CLAIMS && atomic_exchange_explicit(&claims[s->id], 0, memory_order_acquire))
		udp_go_home(s, atomic_load_explicit(&s->v.os_fd, memory_order_relaxed), "a child process receives on it");
}

static void claimed(int fd, uint32_t events, void *arg)
{
	uint64_t n;

	(void)events;
	(void)arg;
	(void)!libc.read(fd, &n, sizeof(n));
	udp_each(go_home_if_claimed, NULL);
}

int udp_claims_start(void)
{
	void *mem = mmap(NULL, CLAIMS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (mem == MAP_FAILED)
		return -errno;
	claims = mem;
	claim_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (claim_fd < 0)
		return -errno;
	return worker_fd_add(claim_fd, EPOLLIN, claimed, NULL);
}

void udp_claim(struct udp_sock *s)
{
	uint64_t one = 1;

	if (__builtin_expect(!s->heir_of, 1))
		return;
	atomic_store_explicit(s->heir_of, 1, memory_order_release);
	s->heir_of = NULL;
	if (libc.write(inherited_fd, &one, sizeof(one)) != sizeof(one))
		log_debug("claim of an inherited socket: write(eventfd): %s", strerror(errno));
}

void udp_claims_forked(void)
{
	/* The claims to raise are the parent's; this process's own start with library_start(). */
	if (inherited_fd >= 0)
		libc.close(inherited_fd);
	inherited_fd = claim_fd;
	claim_fd = -1;
}

void udp_inherit(const struct udp_sock *parents, int fd)
{
	struct udp_sock *s;

	if (!claims || parents->id >= CLAIMS)
		return;
	s = udp_sock_new(fd, parents->domain);
	if (!s)
		return;
	s->home = true;
	s->heir_of = &claims[parents->id];
	if (vfd_install(fd, &s->v)) {
		s->heir_of = NULL;
		return;
	}
	atomic_store_explicit(&s->in_use, true, memory_order_release);
}
