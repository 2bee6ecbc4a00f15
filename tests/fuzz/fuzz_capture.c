/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What vma_stats capture reads out of another process's memory: the bytes stand where packets
 * would, and where the next record would begin a good mark is put in their place. What is taken for
 * a packet becomes a line and a block of a file.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../tools/vma_stats/capture_ring.h"
#include "../../tools/vma_stats/capture_text.h"
#include "../../tools/vma_stats/pcapng.h"

#define NUMBER 1

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct capture_ring ring;
static FILE *out;

/* Once: the memory as a process gives it. */
static void make(void)
{
	struct vma_capture_header h = {.magic = VMA_CAPTURE_MAGIC, .number = NUMBER};
	int fd = memfd_create("fuzz", MFD_ALLOW_SEALING);
	char why[WHY_LEN];

	if (fd < 0 || ftruncate(fd, VMA_CAPTURE_PAGE + VMA_CAPTURE_BYTES_MIN) ||
	    write(fd, &h, sizeof(h)) != sizeof(h) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) ||
	    capture_ring_open(&ring, fd, NUMBER, why))
		abort();
	out = fopen("/dev/null", "w");
}

static void mark(void)
{
	uint64_t good = ring.tail + 1;

	memcpy(ring.ring + (ring.tail & (ring.bytes - 1)), &good, sizeof(good));
}

/* Exactly as long as it says: one byte more is the sanitizer's to see. */
static void use(const struct capture_packet *p)
{
	uint8_t *frame = malloc(p->caplen ? p->caplen : 1);
	char text[CAPTURE_TEXT], name[16];

	if (!frame)
		abort();
	memcpy(frame, p->data, p->caplen);
	capture_ring_name(&ring, p->interface, name);
	capture_text(text, frame, p->caplen);
	pcapng_packet(out, &(struct pcapng_packet){.direction = PCAPNG_IN,
						   .time_ns = p->time_ns,
						   .len = p->len,
						   .caplen = p->caplen,
						   .data = frame,
						   .comment = text});
	free(frame);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct capture_packet p;
	uint64_t start;

	if (!ring.shared)
		make();
	if (size < 4 || size > ring.bytes / 2)
		return 0;
	/* Where it begins: near the end, too. */
	memset(ring.ring, 0, ring.bytes);
	ring.tail = (uint64_t)(data[0] | data[1] << 8) * VMA_CAPTURE_ALIGN;
	start = ring.tail;
	memcpy(ring.ring + (ring.tail & (ring.bytes - 1)), data + 4, size - 4);
	memcpy(ring.shared->interface, data + 4,
	       size - 4 < sizeof(ring.shared->interface) ? size - 4
							 : sizeof(ring.shared->interface));
	if (data[2] & 1)
		mark();
	while (ring.tail - start < size && capture_ring_peek(&ring, &p) == 1) {
		use(&p);
		capture_ring_drop(&ring, &p);
		if (data[2] & 2)
			mark();
	}
	return 0;
}
