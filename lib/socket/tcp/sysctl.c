/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a connection begins with: the kernel's own TCP settings of this network namespace, then ours (VMA_TCP_*). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/params.h"
#include "runtime/text_file.h"
#include "socket/tcp_int.h"

struct tcp_opts tsock_defaults;

/* The numbers in a file under /proc/sys/net/ipv4. Returns how many there are, 0 when it cannot be read. */
static int sysctl(const char *name, unsigned long *v, int max)
{
	char path[96], text[128], *at = text, *end;
	int n = 0;

	snprintf(path, sizeof(path), "/proc/sys/net/ipv4/%s", name);
	text_file_read(path, text, sizeof(text));
	while (n < max) {
		unsigned long x = strtoul(at, &end, 10);

		if (end == at)
			break;
		v[n++] = x;
		at = end;
	}
	return n;
}

static unsigned long sysctl1(const char *name, unsigned long fallback)
{
	unsigned long v;

	return sysctl(name, &v, 1) == 1 ? v : fallback;
}

static void buffers(struct tcp_opts *o)
{
	unsigned long v[3];

	if (sysctl("tcp_wmem", v, 3) == 3) {
		o->sndbuf = (uint32_t)v[1];
		o->sndbuf_max = (uint32_t)v[2];
	}
	if (sysctl("tcp_rmem", v, 3) == 3) {
		o->rcvbuf = (uint32_t)v[1];
		o->rcvbuf_max = sysctl1("tcp_moderate_rcvbuf", 1) ? (uint32_t)v[2] : (uint32_t)v[1];
	}
}

void tsock_sysctl_read(void)
{
	struct tcp_opts *o = &tsock_defaults;

	tcp_opts_default(o);
	buffers(o);
	o->keepidle_s = (uint32_t)sysctl1("tcp_keepalive_time", o->keepidle_s);
	o->keepintvl_s = (uint32_t)sysctl1("tcp_keepalive_intvl", o->keepintvl_s);
	o->keepcnt = (uint8_t)sysctl1("tcp_keepalive_probes", o->keepcnt);
	o->syn_retries = (uint8_t)sysctl1("tcp_syn_retries", o->syn_retries);
	o->retries1 = (uint8_t)sysctl1("tcp_retries1", o->retries1);
	o->retries2 = (uint8_t)sysctl1("tcp_retries2", o->retries2);
	o->linger2_ms = (uint32_t)sysctl1("tcp_fin_timeout", o->linger2_ms / 1000) * 1000;
	o->ttl = (uint8_t)sysctl1("ip_default_ttl", 64);
	o->sack = sysctl1("tcp_sack", 1) != 0;
	o->wscale = sysctl1("tcp_window_scaling", 1) != 0;
	o->ecn = sysctl1("tcp_ecn", 2) == 1;
	o->timestamps = params.tcp_timestamp_option == 2 ? sysctl1("tcp_timestamps", 1) != 0 : params.tcp_timestamp_option == 1;
	o->nodelay = params.tcp_nodelay;
	o->quickack = params.tcp_quickack;
	o->cc = params.tcp_cc_algo == 1 ? TCP_CC_CUBIC : params.tcp_cc_algo == 2 ? TCP_CC_NONE : TCP_CC_NEWRENO;
	if (params.mss)
		o->maxseg = (uint16_t)params.mss;
}
