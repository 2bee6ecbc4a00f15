/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What lib/ring/xdp writes into bpf/steer.bpf.c before that is loaded. */
#ifndef VMA_STEER_H
#define VMA_STEER_H

#include <linux/types.h>

/* The running kernel's structures: offsets and sizes in bytes; numbers of its BTF. */
struct vma_steer_kernel {
	__u32 data_hard_start, frame_sz; /* in struct xdp_buff */
	__u32 shared_info_size, gso_size, gso_type; /* of and in struct skb_shared_info */
	__u32 shared_info_id;
	__u32 cast_ctx_id, cast_rdonly_id; /* the functions; 0: it has none (before 6.2) */
};

/*
 * In place of the numbers of bpf_cast_to_kern_ctx() and bpf_rdonly_cast() the program has these.
 * Calls by name would make libbpf parse the whole kernel's BTF.
 */
#define VMA_STEER_CALL_CAST_CTX 0x766d6101
#define VMA_STEER_CALL_CAST_RDONLY 0x766d6102

#endif
