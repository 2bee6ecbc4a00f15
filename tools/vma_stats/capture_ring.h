/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The packets of one process (vma/capture.h), which may be a program that means harm: nothing that
 * stands in its memory is believed unchecked, or read twice.
 */
#ifndef VMA_STATS_CAPTURE_RING_H
#define VMA_STATS_CAPTURE_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "snapshot.h"
#include "vma/capture.h"

struct capture_ring {
	struct vma_capture_header *shared; /* NULL: it is not open */
	uint8_t *ring; /* mapped twice in a row */
	uint32_t bytes;
	uint64_t tail, end; /* nothing from end on is read */
	int fd;
};

struct capture_packet {
	uint64_t time_ns;
	uint32_t size; /* of the record */
	uint32_t len, caplen;
	int fd; /* -1: not known */
	uint8_t direction; /* VMA_CAPTURE_VOID: none */
	uint8_t interface;
	const uint8_t *data; /* its owner may change it at any time */
};

/*
 * Maps the memory behind fd, which becomes the ring's, and locks it; number is what was asked for.
 * 0; -1 with why: it is nothing of the kind; 1 with why: another tool reads it. fd is the caller's
 * after both of these.
 */
int capture_ring_open(struct capture_ring *r, int fd, uint32_t number, char why[WHY_LEN]);
/* Does a tool read the memory behind fd? It is not touched. */
bool capture_ring_taken(int fd);
/* 1: *p is the oldest packet; 0: there is none; -1: what stands there is none. */
int capture_ring_peek(const struct capture_ring *r, struct capture_packet *p);
/*
 * What is in the ring now can still be read, and as much as fits in it at most: who writes goes on
 * for a moment, or for ever.
 */
void capture_ring_last(struct capture_ring *r);
/* That one was read; its data is gone. */
void capture_ring_drop(struct capture_ring *r, const struct capture_packet *p);
/* Its name, "?" if it has none that can be printed. */
void capture_ring_name(const struct capture_ring *r, unsigned interface, char name[16]);
/* Frames of an interface that found no room. */
uint64_t capture_ring_lost(const struct capture_ring *r, unsigned interface);
void capture_ring_close(struct capture_ring *r);

#endif
