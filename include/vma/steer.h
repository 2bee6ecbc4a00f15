/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What lib/ring/xdp writes into bpf/steer.bpf.c before that is loaded. */
#ifndef VMA_STEER_H
#define VMA_STEER_H

#include <linux/types.h>

/*
 * What a driver tells of a received frame: netdev's bits of NETDEV_XDP_RX_METADATA_*. The kernel
 * says so since 6.7; the second since 6.8.
 */
#define VMA_RX_TELLS_STAMP 1u
#define VMA_RX_TELLS_VLAN 4u

/* The running kernel's structures: offsets and sizes in bytes; numbers of its BTF. */
struct vma_steer_kernel {
	__u32 data_hard_start, frame_sz; /* in struct xdp_buff */
	__u32 shared_info_size, gso_size, gso_type; /* of and in struct skb_shared_info */
	__u32 shared_info_id;
	/*
	 * Functions (kernel_calls.h); 0: it has none. Since 6.2 the first two, 6.9, 6.3 and 6.8.
	 */
	__u32 cast_ctx_id, cast_rdonly_id, assign_reqsk_id, rx_timestamp_id, rx_vlan_tag_id;
};

#endif
