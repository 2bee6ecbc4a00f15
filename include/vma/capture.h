/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The packets that a process gives to `vma_stats capture`: a memfd of its own, sealed against
 * shrinking, which the tool opens as /proc/<pid>/fd/<capture_fd> (vma/stats.h). It is one header
 * page and a ring of records behind it. The tool holds a lock of it (F_OFD_SETLK, F_WRLCK) as long
 * as it reads; without one the library ends the capture.
 *
 * Both sides count bytes that were ever written and read; a record's place is its count modulo the
 * ring's length, and it may run over the end to the beginning: who maps the ring twice in a row
 * sees it in one piece. The tool zeroes what it has read before it says so. Neither side takes a
 * length or a place from what the other one can write without a check. Fixed-width types, no libc.
 */
#ifndef VMA_CAPTURE_H
#define VMA_CAPTURE_H

#include <linux/types.h>

#define VMA_CAPTURE_MAGIC 0x706143414d560001ull
#define VMA_CAPTURE_PAGE 4096u /* where the ring begins */
#define VMA_CAPTURE_ALIGN 64u /* records begin at multiples of it */
#define VMA_CAPTURE_INTERFACES 16
#define VMA_CAPTURE_BYTES_MIN (1u << 20) /* of the ring, a power of two */
#define VMA_CAPTURE_BYTES_MAX (256u << 20)
#define VMA_CAPTURE_SNAP_MIN 64u
#define VMA_CAPTURE_SNAP_MAX 262144u

struct vma_capture_interface {
	__s32 ifindex; /* 0: free */
	char name[16];
	__u32 reserved;
	__u64 lost; /* frames that found the ring full */
};

struct vma_capture_header {
	__u64 magic;
	__u32 pid, number; /* the process's, as it sees it; what was asked for */
	__u32 bytes, snap; /* of the ring; of a frame at most */
	/* The last one also counts what no other had room for. */
	struct vma_capture_interface interface[VMA_CAPTURE_INTERFACES];
	/* Alone on their line: written by the tool. locked: it has come, and has the lock. */
	__u64 tail __attribute__((aligned(64)));
	__u32 locked;
};

enum { VMA_CAPTURE_VOID, VMA_CAPTURE_IN, VMA_CAPTURE_OUT };

struct vma_capture_record {
	__u64 mark; /* 1 + its count of bytes, written last; 0: not written yet */
	__u64 time_ns; /* CLOCK_REALTIME */
	__u32 size; /* of the record with its data, a multiple of VMA_CAPTURE_ALIGN */
	__u32 len, caplen; /* of the frame, and of what follows */
	__s32 fd; /* -1: not known */
	__u8 direction; /* VMA_CAPTURE_VOID: to be passed over */
	__u8 interface; /* which of the header's */
	__u8 reserved[6];
	__u8 data[];
};

#endif
