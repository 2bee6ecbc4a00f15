/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* struct tcp_info with what kernels have that are newer than the headers. */
#ifndef TCP_INFO_H
#define TCP_INFO_H

#include <linux/tcp.h>
#include <stdint.h>

union tcp_info_all {
	struct tcp_info is;
	struct {
		uint8_t before[232];
		uint32_t rcv_wnd, rehash; /* Linux 6.2 */
		uint16_t total_rto, total_rto_recoveries; /* Linux 6.7 */
		uint32_t total_rto_time;
	} later;
};

#endif
