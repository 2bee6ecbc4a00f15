/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The fallback ring's reader, without the device. */
#ifndef KMOD_FALLBACK_H
#define KMOD_FALLBACK_H

#include "kmod/kmod.h"

struct kmod_ring {
	struct vma_kmod_ring *head; /* the mapping's beginning */
	uint32_t size; /* of the data: a power of two */
	uint32_t consumed; /* ours; what stands in the head is a copy for the kernel */
};

/*
 * Gives fn each packet up to where the kernel was at the call. False: the ring does not say what a
 * ring of the kernel's can say; all of it is skipped.
 */
bool kmod_ring_drain(struct kmod_ring *r, void (*fn)(const struct kmod_packet *p));

#endif
