/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Functions of the kernel that our programs call. In place of their numbers the programs have
 * these; ring_kernel_calls() enters what the running kernel has. Calls by name would make libbpf
 * read and parse the whole kernel's BTF.
 */
#ifndef VMA_KERNEL_CALLS_H
#define VMA_KERNEL_CALLS_H

#define VMA_CALL_CAST_CTX 0x766d6101 /* bpf_cast_to_kern_ctx() */
#define VMA_CALL_CAST_RDONLY 0x766d6102 /* bpf_rdonly_cast() */
#define VMA_CALL_ASSIGN_REQSK 0x766d6103 /* bpf_sk_assign_tcp_reqsk() */
/* Of a program that is bound to a device only; elsewhere the stand-ins stay, and are not reached.
 */
#define VMA_CALL_RX_TIMESTAMP 0x766d6104 /* bpf_xdp_metadata_rx_timestamp() */
#define VMA_CALL_RX_VLAN_TAG 0x766d6105 /* bpf_xdp_metadata_rx_vlan_tag() */

#endif
