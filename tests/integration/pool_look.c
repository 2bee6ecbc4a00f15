/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * pool_look PID: where the chunks of a member's pool are, as one line of JSON. While no packet is
 * on its way each chunk is in a fill ring, free, or some member's. With "lock" the process takes
 * the pool's lock and is killed with it, "port" the port's.
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ring/xdp/xdp.h"
#include "runtime/libc.h"

static struct pool *pool_of(const char *pid)
{
	char dir[64], path[128];
	struct dirent *e;
	struct pool *p = NULL;
	DIR *d;

	snprintf(dir, sizeof(dir), "/proc/%s/fd", pid);
	d = opendir(dir);
	while (d && !p && (e = readdir(d))) {
		char target[64] = "";
		int fd;

		snprintf(path, sizeof(path), "%s/%.32s", dir, e->d_name);
		if (readlink(path, target, sizeof(target) - 1) < 0 ||
		    !strstr(target, "memfd:vma-port"))
			continue;
		fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd >= 0)
			p = pool_map(fd);
	}
	if (d)
		closedir(d);
	return p;
}

/* Entries of the fill ring of that socket that the kernel has not taken. */
static uint32_t fill_level(int pidfd, int number)
{
	int fd = (int)syscall(SYS_pidfd_getfd, pidfd, number, 0);
	struct xdp_mmap_offsets o;
	socklen_t len = sizeof(o);
	uint8_t *m;

	if (fd < 0 || getsockopt(fd, SOL_XDP, XDP_MMAP_OFFSETS, &o, &len))
		return 0;
	m = mmap(NULL, o.fr.desc, PROT_READ, MAP_SHARED, fd, XDP_UMEM_PGOFF_FILL_RING);
	if (m == MAP_FAILED)
		return 0;
	return *(uint32_t *)(m + o.fr.producer) - *(uint32_t *)(m + o.fr.consumer);
}

static void owners(const struct pool *p)
{
	uint32_t held = 0, sending = 0, dead = 0, sent = 0;

	for (uint32_t i = 0; i < pool_chunks(p->num_queues); i++) {
		uint32_t word = p->owner[i] & ~OWNER_POSTED;

		if (i < pool_rx_chunks(p->num_queues))
			held += word != OWNER_NOBODY;
		else if (word == OWNER_DEAD)
			dead++;
		else
			sending += word != OWNER_NOBODY;
	}
	for (unsigned i = 0; i < POOL_MEMBERS; i++)
		sent += (uint32_t)p->back[i].state;
	printf("\"rx_held\": %u, \"tx_held\": %u, \"tx_dead\": %u, \"tx_free\": %u, \"back\": %u",
	       held, sending, dead, p->tx_num, sent);
}

int main(int argc, char **argv)
{
	struct pool *p;
	uint32_t fill = 0, members = 0;
	int pidfd;

	libc_load();
	p = argc > 1 ? pool_of(argv[1]) : NULL;
	if (!p)
		return 1;
	if (argc > 2) {
		pthread_mutex_lock(strcmp(argv[2], "port") ? &p->lock : &p->port_lock);
		return raise(SIGKILL);
	}
	pidfd = (int)syscall(SYS_pidfd_open, atoi(argv[1]), 0);
	for (unsigned i = 0; i < POOL_MEMBERS; i++) {
		const struct pool_member *m = &p->member[i];

		members += m->state != POOL_FREE;
		for (uint32_t q = 0; m->pid == (uint32_t)atoi(argv[1]) && q < p->num_queues; q++)
			fill += fill_level(pidfd, m->xsk[q]);
	}
	printf("{\"members\": %u, \"queues\": %u, \"zerocopy\": %u, \"fill\": %u, ", members,
	       p->num_queues, p->zerocopy, fill);
	owners(p);
	printf(", \"rx\": %u, \"tx\": %u}\n", pool_rx_chunks(p->num_queues), POOL_TX_CHUNKS);
	return 0;
}
