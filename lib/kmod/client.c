/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "kmod/kmod.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "kmod/conns.h"
#include "kmod/fallback.h"
#include "runtime/runtime.h"

#define DEVICE "/dev/vma"
/* What a process may have open, as the library counts it; 16 bytes each. */
#define SLOTS VMA_KMOD_CONNS_MAX
#define RING_BYTES (1u << 20)

/* Written by kmod_start(), before any other thread asks; device also by kmod_stop(). */
static _Atomic int device = -1;
static size_t stats_bytes, slots_bytes, ring_bytes;
static struct vma_kmod_slot *slots; /* [SLOTS] */
static struct kmod_ring ring; /* head NULL: none */

static int call(unsigned long number, void *arg)
{
	return libc.ioctl(device, number, arg) ? -errno : 0;
}

static void *map(size_t bytes, uint64_t offset)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, device, (off_t)offset);

	if (p == MAP_FAILED)
		return NULL;
	return p;
}

static int set_up(unsigned sockets)
{
	struct vma_kmod_setup s = {
		.version = VMA_KMOD_VERSION,
		.sockets = sockets,
		.conns = SLOTS,
		.ring = RING_BYTES,
	};
	int err = call(VMA_KMOD_SETUP, &s);

	if (err)
		return err;
	stats_bytes = sockets ? s.stats_bytes : 0;
	slots_bytes = s.conns_bytes;
	ring_bytes = s.ring_bytes;
	slots = map(slots_bytes, VMA_KMOD_MAP_CONNS);
	if (!slots)
		return -errno;
	ring = (struct kmod_ring){.head = map(ring_bytes, VMA_KMOD_MAP_RING), .size = RING_BYTES};
	return ring.head ? 0 : -errno;
}

static void unmap(void)
{
	if (slots)
		munmap(slots, slots_bytes);
	if (ring.head)
		munmap(ring.head, ring_bytes);
	slots = NULL;
	ring.head = NULL;
	stats_bytes = 0;
}

void kmod_start(unsigned sockets)
{
	int err;

	device = OWN_FD(raw.open(DEVICE, O_RDWR | O_CLOEXEC));
	if (device < 0) {
		/* Most machines have no module: that is nothing to talk about. */
		log_at(errno == ENOENT ? LOG_DEBUG : LOG_INFO,
		       DEVICE ": %s: the library goes on without the kernel module",
		       strerror(errno));
		return;
	}
	err = set_up(sockets);
	if (!err) {
		log_debug(DEVICE ": the kernel module serves this process");
		return;
	}
	unmap();
	kmod_stop();
	log_warn(DEVICE ": the kernel module is not used: %s",
		 err == -EPROTO ? "it is of another version" : strerror(-err));
}

void kmod_stop(void)
{
	int fd = atomic_exchange(&device, -1);

	if (fd >= 0)
		own_fd_close(fd);
}

void kmod_forked(void)
{
	kmod_stop();
	conns_forked();
	slots = NULL;
	ring.head = NULL;
	stats_bytes = 0;
}

bool kmod_takes_conns(void)
{
	return device >= 0 || conns_wanted();
}

bool kmod_wants_seqs(void)
{
	return slots;
}

void *kmod_stats_map(size_t *bytes)
{
	*bytes = stats_bytes;
	return device >= 0 && stats_bytes ? map(stats_bytes, VMA_KMOD_MAP_STATS) : NULL;
}

void *kmod_region_map(enum vma_kmod_mem kind, size_t *bytes)
{
	struct vma_kmod_region r = {.bytes = *bytes, .kind = kind, .node = -1};
	int err = device < 0 ? -ENODEV : call(VMA_KMOD_REGION, &r);

	if (err) {
		errno = -err;
		return NULL;
	}
	*bytes = r.bytes;
	/* One that cannot be mapped goes with the device. */
	return map(r.bytes, r.offset);
}

struct vma_kmod_slot *kmod_conn_add(int fd, const struct vma_flow_key *key)
{
	struct vma_kmod_conn c = {
		.fd = fd, .flags = VMA_KMOD_CONN_RST | VMA_KMOD_CONN_FALLBACK, .key = *key};
	struct vma_kmod_slot *slot;
	int err;

	if (device < 0) {
		slot = conns_add(key);
		if (!slot)
			errno = ENODEV;
		return slot;
	}
	err = call(VMA_KMOD_CONN, &c);
	if (!err && c.slot >= SLOTS)
		err = -EPROTO;
	if (err) {
		errno = -err;
		return NULL;
	}
	return &slots[c.slot];
}

uint32_t kmod_slot_number(const struct vma_kmod_slot *slot)
{
	return conns_has(slot) ? conns_number(slot) : (uint32_t)(slot - slots);
}

void kmod_conn_del(struct vma_kmod_slot *slot)
{
	struct vma_kmod_unconn u;
	int err;

	if (!slot)
		return;
	if (conns_has(slot)) {
		conns_del(slot);
		return;
	}
	u = (struct vma_kmod_unconn){.slot = kmod_slot_number(slot)};
	/* Whatever comes of the call, no reset of it is wanted. */
	__atomic_store_n(&slot->live, 0, __ATOMIC_RELAXED);
	err = device < 0 ? 0 : call(VMA_KMOD_UNCONN, &u);
	if (err)
		log_debug(DEVICE ": slot %u: %s", u.slot, strerror(-err));
}

bool kmod_secret(uint64_t to[4])
{
	struct vma_kmod_secret s;

	if (device < 0 || call(VMA_KMOD_SECRET, &s))
		return false;
	memcpy(to, s.words, sizeof(s.words));
	return true;
}

int kmod_fallback_fd(void)
{
	return ring.head ? device : -1;
}

void kmod_fallback_drain(void (*fn)(const struct kmod_packet *p))
{
	if (ring.head && !kmod_ring_drain(&ring, fn))
		log_error(DEVICE ": the fallback ring is out of order, packets are lost");
}
