/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Packets for `vma_stats capture`: the memory that the tool reads them from (vma/capture.h), when
 * it is there, and what is written to it. Several threads write at once: each takes a place by an
 * atomic operation, and marks its record when it is whole.
 */
#include "stats/stats.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/runtime.h"
#include "stats/area.h"
#include "stats/capture_fd.h"
#include "vma/capture.h"

/* So long a tool has to come for what it has asked for. */
#define COME_NS 5000000000ull

_Static_assert(sizeof(struct vma_capture_header) <= VMA_CAPTURE_PAGE, "one page");

/* What is decided by: none of it can be written by another process. */
struct stats_capture {
	struct vma_capture_header *shared;
	uint8_t *ring; /* mapped twice in a row */
	uint32_t bytes, snap, number;
	int fd;
	bool shown; /* the tool knows of it */
	uint64_t since_ns;
	_Atomic int ifindex[VMA_CAPTURE_INTERFACES]; /* negative: its name is being written */
	_Atomic uint64_t head __attribute__((aligned(64)));
};

/* Written with stats_mutex held. */
static struct stats_capture *_Atomic current;
static struct stats_capture *ended; /* its memory goes when nobody writes to it any more */
/* Whose memory the internal thread makes, without the mutex: a child of fork() gives it back. */
static struct stats_capture *_Atomic making;
static _Atomic unsigned writers;

/* ---- the memory */

static void leave(const struct stats_capture *c)
{
	if (c->shared)
		munmap(c->shared, VMA_CAPTURE_PAGE + 2 * (size_t)c->bytes);
	if (c->fd >= 0)
		own_fd_close(c->fd);
}

/* Without the mutex: it may be 256 MiB, and stacks wait for it. */
static void release(struct stats_capture *c)
{
	leave(c);
	free(c);
}

/* In the place of what is mapped there. False and errno: not. */
static bool map_at(void *at, size_t bytes, int fd, size_t offset)
{
	void *p =
		mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t)offset);

	/* cppcheck-suppress memleak */
	return p != MAP_FAILED;
}

/* The page, and the ring twice behind it. 0 or negative errno. */
static int map(struct stats_capture *c)
{
	size_t ring = c->bytes;
	char *at = mmap(NULL, VMA_CAPTURE_PAGE + 2 * ring, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
			-1, 0);

	if (at == MAP_FAILED)
		return -errno;
	c->shared = (struct vma_capture_header *)at;
	c->ring = (uint8_t *)at + VMA_CAPTURE_PAGE;
	if (!map_at(at, VMA_CAPTURE_PAGE + ring, c->fd, 0) ||
	    !map_at(c->ring + ring, ring, c->fd, VMA_CAPTURE_PAGE))
		return -errno;
	return 0;
}

/* A file that nobody can cut under us, for its owner and root. 0 or negative errno. */
static int reserve(struct stats_capture *c)
{
	int err;

	c->fd = OWN_FD((int)libc_raw(SYS_memfd_create, (long)(uintptr_t) "vma-capture",
				     MFD_CLOEXEC | MFD_ALLOW_SEALING, 0, 0, 0, 0));
	if (c->fd < 0 || fchmod(c->fd, 0600))
		return -errno;
	err = stats_reserve(c->fd, VMA_CAPTURE_PAGE + (size_t)c->bytes);
	if (err)
		return err;
	if (raw.fcntl(c->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return -errno;
	return map(c);
}

/* Without the mutex, as release(). 0 or negative errno. */
static int make(struct stats_capture *c)
{
	int err = reserve(c);

	if (err)
		return err;
	c->shared->pid = (uint32_t)getpid();
	c->shared->number = c->number;
	c->shared->bytes = c->bytes;
	c->shared->snap = c->snap;
	c->shared->magic = VMA_CAPTURE_MAGIC;
	return 0;
}

static uint32_t between(uint32_t value, uint32_t low, uint32_t high)
{
	return value < low ? low : value > high ? high : value;
}

/* ---- when it is there. The mutex is held */

static void refuse(struct vma_stats_header *h, uint32_t number, int err)
{
	__atomic_store_n(&h->capture_is, number, __ATOMIC_RELAXED);
	__atomic_store_n(&h->capture_error, -err, __ATOMIC_RELAXED);
	__atomic_store_n(&h->capture, 0, __ATOMIC_RELEASE);
}

/* What is asked for, without its memory; NULL: refused. */
static struct stats_capture *capture_new(struct vma_stats_header *h, uint32_t number)
{
	uint32_t bytes = __atomic_load_n(&h->capture_bytes, __ATOMIC_RELAXED),
		 snap = __atomic_load_n(&h->capture_snap, __ATOMIC_RELAXED);
	struct stats_capture *c = aligned_alloc(64, sizeof(*c));

	if (!c) {
		refuse(h, number, -ENOMEM);
		return NULL;
	}
	memset(c, 0, sizeof(*c));
	bytes = between(bytes, VMA_CAPTURE_BYTES_MIN, VMA_CAPTURE_BYTES_MAX);
	c->bytes = 1u << (31 - __builtin_clz(bytes));
	c->snap = between(snap, VMA_CAPTURE_SNAP_MIN, VMA_CAPTURE_SNAP_MAX);
	c->number = number;
	c->fd = -1;
	c->since_ns = clock_monotonic_ns();
	return c;
}

static void end(struct vma_stats_header *h, struct stats_capture *c)
{
	__atomic_store_n(&h->capture_fd, -1, __ATOMIC_RELAXED);
	atomic_store(&current, NULL);
	own_fd_close(c->fd);
	c->fd = -1;
	ended = c;
	log_debug("vma_stats captures no more");
}

/* The tool has gone, or never came. */
static bool abandoned(struct stats_capture *c)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

	/* First: who has locked it since then is there. */
	bool came = __atomic_load_n(&c->shared->locked, __ATOMIC_ACQUIRE);

	if (!raw.fcntl(c->fd, F_OFD_GETLK, &lock) && lock.l_type != F_UNLCK)
		return false;
	return came || clock_monotonic_ns() - c->since_ns > COME_NS;
}

/* What is to be begun; NULL: nothing. */
static struct stats_capture *follow(struct vma_stats_header *h)
{
	uint32_t asked = __atomic_load_n(&h->capture, __ATOMIC_ACQUIRE);
	struct stats_capture *c = atomic_load(&current);

	if (c && asked == c->number && !abandoned(c))
		return NULL;
	if (c) {
		if (asked == c->number)
			__atomic_store_n(&h->capture, 0, __ATOMIC_RELAXED);
		end(h, c);
		return NULL;
	}
	return asked && !ended ? capture_new(h, asked) : NULL;
}

/* False: it is not wanted any more, or there is no memory for it. */
static bool publish(struct vma_stats_header *h, struct stats_capture *c, int err)
{
	if (__atomic_load_n(&h->capture, __ATOMIC_ACQUIRE) != c->number)
		return false;
	if (err) {
		refuse(h, c->number, err);
		return false;
	}
	atomic_store(&current, c);
	log_debug("vma_stats captures this process's packets: %u KiB of memory", c->bytes >> 10);
	return true;
}

/* The mutex is not held. */
static void begin(struct stats_capture *c)
{
	bool begun;
	int err;

	atomic_store(&making, c);
	err = make(c);
	pthread_mutex_lock(&stats_mutex);
	atomic_store(&making, NULL);
	begun = stats_has_file() && publish(stats_header_get(), c, err);
	pthread_mutex_unlock(&stats_mutex);
	if (!begun)
		release(c);
}

bool stats_capture_follow(void)
{
	struct stats_capture *fresh = NULL, *left = NULL;

	pthread_mutex_lock(&stats_mutex);
	if (ended && !atomic_load(&writers)) {
		left = ended;
		ended = NULL;
	}
	if (stats_has_file())
		fresh = follow(stats_header_get());
	pthread_mutex_unlock(&stats_mutex);
	if (left)
		release(left);
	if (fresh)
		begin(fresh);
	return stats_capture_on();
}

bool stats_capture_on(void)
{
	return atomic_load(&current) != NULL;
}

void stats_capture_show(void)
{
	struct vma_stats_header *h;
	struct stats_capture *c;

	pthread_mutex_lock(&stats_mutex);
	c = atomic_load(&current);
	if (c && !c->shown && stats_has_file()) {
		h = stats_header_get();
		c->shown = true;
		__atomic_store_n(&h->capture_error, 0, __ATOMIC_RELAXED);
		__atomic_store_n(&h->capture_is, c->number, __ATOMIC_RELAXED);
		__atomic_store_n(&h->capture_fd, c->fd, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&stats_mutex);
}

void stats_capture_forked(void)
{
	struct stats_capture *c = atomic_load(&current), *half = atomic_load(&making);

	/*
	 * Another thread of the parent may have been in the middle of any: they are left behind.
	 */
	atomic_store(&current, NULL);
	atomic_store(&making, NULL);
	atomic_store(&writers, 0);
	ended = NULL;
	if (c)
		leave(c);
	if (half)
		leave(half);
}

/* ---- what is written to it */

static void show_interface(struct stats_capture *c, unsigned i, int ifindex, const char *name)
{
	struct vma_capture_interface *shown = &c->shared->interface[i];

	/* Several threads may write the same. */
	for (unsigned n = 0; n < sizeof(shown->name) - 1 && name[n]; n++)
		__atomic_store_n(&shown->name[n], name[n], __ATOMIC_RELAXED);
	__atomic_store_n(&shown->ifindex, ifindex, __ATOMIC_RELEASE);
	atomic_store_explicit(&c->ifindex[i], ifindex, memory_order_release);
}

/*
 * Its place in the header; the last one is for those that have none. The name is there before a
 * record of it is: a place is taken as -ifindex, and who finds it so writes the name, too.
 */
static unsigned interface_of(struct stats_capture *c, int ifindex, const char *name)
{
	for (unsigned i = 0; i < VMA_CAPTURE_INTERFACES - 1; i++) {
		int is = atomic_load_explicit(&c->ifindex[i], memory_order_acquire);

		if (!is && atomic_compare_exchange_strong(&c->ifindex[i], &is, -ifindex))
			is = -ifindex;
		if (is == -ifindex)
			show_interface(c, i, ifindex, name);
		if (is == ifindex || is == -ifindex)
			return i;
	}
	return VMA_CAPTURE_INTERFACES - 1;
}

/* A place of so many bytes. False: the tool has not read enough. */
static bool take(struct stats_capture *c, uint32_t size, uint64_t *at)
{
	uint64_t head = atomic_load_explicit(&c->head, memory_order_relaxed);

	do {
		/* acquire: the tool has zeroed what is before it */
		uint64_t tail = __atomic_load_n(&c->shared->tail, __ATOMIC_ACQUIRE);

		/* A wrong one, beyond head, is a full ring, too. */
		if (head - tail > c->bytes || size > c->bytes - (head - tail))
			return false;
	} while (!atomic_compare_exchange_weak_explicit(
		&c->head, &head, head + size, memory_order_relaxed, memory_order_relaxed));
	TSAN_ACQUIRE(c);
	*at = head;
	return true;
}

static uint32_t frame_len(const struct stats_frame *f)
{
	size_t len = 0;

	for (int i = 0; i < f->iovcnt; i++)
		len += f->iov[i].iov_len;
	return (uint32_t)len;
}

static void copy(uint8_t *to, const struct stats_frame *f, uint32_t room)
{
	for (int i = 0; i < f->iovcnt && room; i++) {
		uint32_t n = f->iov[i].iov_len < room ? (uint32_t)f->iov[i].iov_len : room;

		memcpy(to, f->iov[i].iov_base, n);
		to += n;
		room -= n;
	}
}

bool stats_capture_keep(struct stats_kept *k, const struct stats_frame *f)
{
	struct stats_capture *c;
	struct vma_capture_record *r;
	uint32_t len, caplen, size;
	unsigned interface;

	lock_enter(); /* a handler may leave by siglongjmp(), or fork() */
	/* Before the look: who ends the capture counts writers after it. */
	atomic_fetch_add(&writers, 1);
	c = atomic_load(&current);
	if (!c)
		goto not_kept;
	len = frame_len(f);
	caplen = len < c->snap ? len : c->snap;
	size = (uint32_t)(sizeof(*r) + caplen + VMA_CAPTURE_ALIGN - 1) & ~(VMA_CAPTURE_ALIGN - 1);
	interface = interface_of(c, f->ifindex, f->ifname);
	if (!take(c, size, &k->at)) {
		__atomic_fetch_add(&c->shared->interface[interface].lost, 1, __ATOMIC_RELAXED);
		goto not_kept;
	}
	r = (struct vma_capture_record *)(c->ring + (k->at & (c->bytes - 1)));
	r->time_ns = f->time_ns;
	r->size = size;
	r->len = len;
	r->caplen = caplen;
	r->fd = stats_capture_fd(f);
	r->direction = f->direction;
	r->interface = (uint8_t)interface;
	copy(r->data, f, caplen);
	k->capture = c;
	k->record = r;
	return true;
not_kept:
	atomic_fetch_sub(&writers, 1);
	lock_leave();
	return false;
}

/* The tool may have the record from now on. Who gets the place next has the order from the tool. */
static TSAN_UNSEEN void give(struct stats_kept *k)
{
	__atomic_store_n(&k->record->mark, k->at + 1, __ATOMIC_RELEASE);
}

void stats_capture_done(struct stats_kept *k)
{
	TSAN_RELEASE(k->capture);
	give(k);
	atomic_fetch_sub(&writers, 1);
	lock_leave();
}

void stats_capture_void(struct stats_kept *k)
{
	k->record->direction = VMA_CAPTURE_VOID;
	stats_capture_done(k);
}
