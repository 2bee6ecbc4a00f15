/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What bpf/implant.bpf.c is told of a connection, by the map `implants`, and what it answers. */
#ifndef VMA_IMPLANT_H
#define VMA_IMPLANT_H

#include <linux/types.h>

struct vma_implant {
	__be16 rport, lport; /* the peer's, the listener's */
	__be32 seq; /* of the one segment that may make the connection */
	__be32 ack; /* of the segments that are sent once more */
	__u32 tsval, tsecr; /* the peer's last time stamp, ours */
	__u16 mss; /* the peer's */
	__u8 rcv_wscale, snd_wscale; /* ours, the peer's */
	__u8 wscale_ok, sack_ok, ts_ok;
	__u8 is_there; /* answer: a later segment has found the connection */
	__u32 rcv_nxt; /* answer: what the connection waited for then */
	__s32 result; /* answer: 0, or why the kernel did not make it, as negative errno */
};

#endif
