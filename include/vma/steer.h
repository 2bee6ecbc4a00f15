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
	/* Functions (kernel_calls.h); 0: it has none. The first two since 6.2, the last since 6.9.
	 */
	__u32 cast_ctx_id, cast_rdonly_id, assign_reqsk_id;
};

#endif
