/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "kmod/conns.h"

#include <netinet/in.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "kmod/kmod.h"
#include "runtime/runtime.h"

#define MAX VMA_KMOD_CONNS_MAX
#define MAGIC 0x636e6f63u

struct conn {
	struct vma_flow_key key;
	struct vma_kmod_slot slot; /* live: it is one */
};

struct list {
	uint32_t magic, size;
	uint32_t used; /* so many have been one; what is behind them has never been touched */
	uint32_t reserved;
	struct conn conn[MAX];
};

static struct lock lock; /* all below; that there is a list can be seen without it */
static int list_fd = -1;
static struct list *_Atomic list; /* NULL: nobody has asked for it */
/* Those that are over: the last one and one more; 0: none. And from each to the next. */
static uint32_t free_first, free_next[MAX];

/* What is not touched takes no memory. */
static struct list *make(int *fd)
{
	struct list *l;

	*fd = own_fd_memory("vma-conns", sizeof(*l), 0);
	if (*fd < 0)
		return NULL;
	l = mmap(NULL, sizeof(*l), PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	if (l == MAP_FAILED || madvise(l, sizeof(*l), MADV_DONTFORK)) {
		log_debug("kmod: the list of connections cannot be mapped: %s", strerror(errno));
		if (l != MAP_FAILED)
			munmap(l, sizeof(*l));
		own_fd_close(*fd);
		*fd = -1;
		return NULL;
	}
	l->magic = MAGIC;
	l->size = sizeof(*l);
	return l;
}

int kmod_conns_fd(void)
{
	lock_take(&lock);
	if (!list)
		list = make(&list_fd);
	lock_drop(&lock);
	return list_fd;
}

bool conns_wanted(void)
{
	return atomic_load_explicit(&list, memory_order_acquire);
}

/* The lock is held. MAX: there is none. */
static uint32_t take(struct list *l)
{
	uint32_t i;

	if (free_first) {
		i = free_first - 1;
		free_first = free_next[i];
		return i;
	}
	return l->used < MAX ? l->used++ : MAX;
}

struct vma_kmod_slot *conns_add(const struct vma_flow_key *key)
{
	struct list *l = atomic_load_explicit(&list, memory_order_acquire);
	uint32_t i;

	if (!l)
		return NULL;
	lock_take(&lock);
	i = take(l);
	lock_drop(&lock);
	if (i == MAX)
		return NULL;
	l->conn[i].key = *key;
	return &l->conn[i].slot;
}

bool conns_has(const struct vma_kmod_slot *slot)
{
	const struct list *l = atomic_load_explicit(&list, memory_order_relaxed);

	return l && (uintptr_t)slot - (uintptr_t)l < sizeof(*l);
}

uint32_t conns_number(const struct vma_kmod_slot *slot)
{
	const struct list *l = atomic_load_explicit(&list, memory_order_relaxed);

	return (uint32_t)(((uintptr_t)slot - (uintptr_t)l->conn) / sizeof(l->conn[0]));
}

void conns_del(struct vma_kmod_slot *slot)
{
	uint32_t i = conns_number(slot);

	__atomic_store_n(&slot->live, 0, __ATOMIC_RELAXED);
	lock_take(&lock);
	free_next[i] = free_first;
	free_first = i + 1;
	lock_drop(&lock);
}

void conns_forked(void)
{
	int fd = list_fd;

	atomic_store(&lock.owner, 0);
	list = NULL;
	free_first = 0;
	list_fd = -1;
	if (fd >= 0)
		own_fd_close(fd);
}

/* What another process has written: its numbers are looked at once, and bounded. */
static unsigned read_list(const struct list *l, struct vma_flow_key *keys)
{
	uint32_t used = __atomic_load_n(&l->used, __ATOMIC_RELAXED);
	unsigned n = 0;

	if (l->magic != MAGIC || l->size != sizeof(*l))
		return 0;
	for (uint32_t i = 0; i < used && i < MAX; i++) {
		keys[n] = l->conn[i].key;
		n += l->conn[i].slot.live && keys[n].proto == IPPROTO_TCP && keys[n].remote_port;
	}
	return n;
}

unsigned kmod_conns_read(int fd, struct vma_flow_key **keys)
{
	struct stat st;
	struct list *l;
	unsigned n;

	*keys = NULL;
	if (fstat(fd, &st) || st.st_size != sizeof(*l) || !own_fd_memory_is(fd))
		return 0;
	l = mmap(NULL, sizeof(*l), PROT_READ, MAP_SHARED, fd, 0);
	if (l == MAP_FAILED)
		return 0;
	*keys = malloc(MAX * sizeof(**keys));
	n = *keys ? read_list(l, *keys) : 0;
	munmap(l, sizeof(*l));
	return n;
}
