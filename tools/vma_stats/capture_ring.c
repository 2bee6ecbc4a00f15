/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "capture_ring.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* In the place of what is mapped there. False and errno: not. */
static bool map_at(void *at, size_t bytes, int fd, size_t offset)
{
	void *p =
		mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t)offset);

	/* cppcheck-suppress memleak */
	return p != MAP_FAILED;
}

static void unmap(struct capture_ring *r)
{
	munmap(r->shared, VMA_CAPTURE_PAGE + 2 * (size_t)r->bytes);
	r->shared = NULL;
}

/* The page, and the ring twice behind it. */
static bool map(struct capture_ring *r, int fd)
{
	size_t ring = r->bytes;
	char *at = mmap(NULL, VMA_CAPTURE_PAGE + 2 * ring, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
			-1, 0);

	if (at == MAP_FAILED)
		return false;
	r->shared = (struct vma_capture_header *)at;
	r->ring = (uint8_t *)at + VMA_CAPTURE_PAGE;
	if (map_at(at, VMA_CAPTURE_PAGE + ring, fd, 0) &&
	    map_at(r->ring + ring, ring, fd, VMA_CAPTURE_PAGE))
		return true;
	unmap(r);
	return false;
}

/* The length of the ring in a file that nobody can cut while we read it; 0: it is none. */
static uint32_t sealed_bytes(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat st;
	off_t bytes;

	if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &st))
		return 0;
	bytes = st.st_size - (off_t)VMA_CAPTURE_PAGE;
	if (bytes < VMA_CAPTURE_BYTES_MIN || bytes > VMA_CAPTURE_BYTES_MAX || bytes & (bytes - 1))
		return 0;
	return (uint32_t)bytes;
}

int capture_ring_open(struct capture_ring *r, int fd, uint32_t number, char why[WHY_LEN])
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

	*r = (struct capture_ring){.fd = fd, .bytes = sealed_bytes(fd), .end = UINT64_MAX};
	if (!r->bytes) {
		snprintf(why, WHY_LEN, "what it gives is no capture");
		return -1;
	}
	if (fcntl(fd, F_OFD_SETLK, &lock)) {
		snprintf(why, WHY_LEN, "another vma_stats captures it");
		return 1;
	}
	if (!map(r, fd)) {
		snprintf(why, WHY_LEN, "its packets cannot be mapped: %s", strerror(errno));
		return -1;
	}
	if (r->shared->magic != VMA_CAPTURE_MAGIC || r->shared->number != number) {
		snprintf(why, WHY_LEN, "what it gives is no capture, or another one");
		unmap(r);
		return -1;
	}
	__atomic_store_n(&r->shared->locked, 1, __ATOMIC_RELEASE);
	return 0;
}

bool capture_ring_taken(int fd)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

	return !fcntl(fd, F_OFD_GETLK, &lock) && lock.l_type != F_UNLCK;
}

int capture_ring_peek(const struct capture_ring *r, struct capture_packet *p)
{
	const struct vma_capture_record *at =
		(struct vma_capture_record *)(r->ring + (r->tail & (r->bytes - 1)));
	/* acquire: what the mark says is whole, is */
	uint64_t mark = __atomic_load_n(&at->mark, __ATOMIC_ACQUIRE);
	struct vma_capture_record copy;

	if (!mark || r->tail >= r->end)
		return 0;
	if (mark != r->tail + 1)
		return -1;
	/* Once: it is checked and used as it was then. */
	memcpy(&copy, at, sizeof(copy));
	__asm__ volatile("" : "+m"(copy));
	if (copy.size % VMA_CAPTURE_ALIGN || copy.size < sizeof(copy) || copy.size > r->bytes ||
	    copy.caplen > copy.size - sizeof(copy) || copy.caplen > copy.len ||
	    copy.caplen > VMA_CAPTURE_SNAP_MAX || copy.interface >= VMA_CAPTURE_INTERFACES ||
	    copy.direction > VMA_CAPTURE_OUT)
		return -1;
	*p = (struct capture_packet){.time_ns = copy.time_ns,
				     .size = copy.size,
				     .len = copy.len,
				     .caplen = copy.caplen,
				     .fd = copy.fd,
				     .direction = copy.direction,
				     .interface = copy.interface,
				     .data = at->data};
	return 1;
}

void capture_ring_last(struct capture_ring *r)
{
	if (r->end == UINT64_MAX)
		r->end = r->tail + r->bytes;
}

void capture_ring_drop(struct capture_ring *r, const struct capture_packet *p)
{
	/* A mark that the network could have sent as data must never be met. */
	memset(r->ring + (r->tail & (r->bytes - 1)), 0, p->size);
	r->tail += p->size;
	__atomic_store_n(&r->shared->tail, r->tail, __ATOMIC_RELEASE);
}

void capture_ring_name(const struct capture_ring *r, unsigned interface, char name[16])
{
	const struct vma_capture_interface *i = &r->shared->interface[interface];
	bool good;

	__atomic_load_n(&i->ifindex, __ATOMIC_ACQUIRE);
	memcpy(name, i->name, 16);
	name[15] = 0;
	good = *name;
	for (const char *c = name; *c; c++)
		good &= isgraph((unsigned char)*c) != 0;
	if (!good)
		strcpy(name, "?");
}

uint64_t capture_ring_lost(const struct capture_ring *r, unsigned interface)
{
	return __atomic_load_n(&r->shared->interface[interface].lost, __ATOMIC_RELAXED);
}

void capture_ring_close(struct capture_ring *r)
{
	unmap(r);
	close(r->fd);
	r->fd = -1;
}
