/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a connection begins with: the kernel's own TCP settings of this network namespace, then ours
 * (VMA_TCP_*).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "runtime/runtime.h"
#include "socket/tcp/internal.h"

#define DEFAULT_TTL 64

struct tcp_opts tcp_sock_defaults;

/*
 * The numbers in a file under /proc/sys/net/ipv4. Returns how many there are, 0 when it cannot be
 * read.
 */
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

/* VMA_TCP_CC_ALGO's numbers are the manual's; ours follow them. */
static enum tcp_cc default_cc(void)
{
	static const enum tcp_cc by_number[] = {TCP_CC_NEWRENO, TCP_CC_CUBIC, TCP_CC_NONE,
						TCP_CC_BBR};
	char name[32] = "";

	if (params.tcp_cc_algo >= 0 &&
	    (size_t)params.tcp_cc_algo < sizeof(by_number) / sizeof(by_number[0]))
		return by_number[params.tcp_cc_algo];
	text_file_read("/proc/sys/net/ipv4/tcp_congestion_control", name, sizeof(name));
	name[strcspn(name, "\n")] = '\0';
	return tcp_sock_cc_of(name);
}

static uint32_t tw_reuse, tw_reuse_delay_ms;
static struct tcp_cfg net_cfg; /* all that the namespace says */

void tcp_sock_cfg(struct tcp_cfg *cfg)
{
	*cfg = net_cfg;
}

static void read_cfg(void)
{
	tcp_cfg_default(&net_cfg);
	net_cfg.max_tw = (uint32_t)sysctl1("tcp_max_tw_buckets", net_cfg.max_tw);
	net_cfg.max_orphans = (uint32_t)sysctl1("tcp_max_orphans", net_cfg.max_orphans);
	net_cfg.mtu_probing = (uint32_t)sysctl1("tcp_mtu_probing", 0);
	net_cfg.base_mss = (uint32_t)sysctl1("tcp_base_mss", net_cfg.base_mss);
	net_cfg.mtu_probe_floor = (uint32_t)sysctl1("tcp_mtu_probe_floor", net_cfg.mtu_probe_floor);
	net_cfg.probe_interval_s =
		(uint32_t)sysctl1("tcp_probe_interval", net_cfg.probe_interval_s);
	net_cfg.probe_threshold = (uint32_t)sysctl1("tcp_probe_threshold", net_cfg.probe_threshold);
	net_cfg.syn_retries = tcp_sock_defaults.syn_retries;
	net_cfg.synack_retries = (uint32_t)sysctl1("tcp_synack_retries", net_cfg.synack_retries);
	net_cfg.notsent_lowat = (uint32_t)sysctl1("tcp_notsent_lowat", net_cfg.notsent_lowat);
	net_cfg.syncookies = (uint8_t)sysctl1("tcp_syncookies", net_cfg.syncookies);
	net_cfg.abort_on_overflow = sysctl1("tcp_abort_on_overflow", 0) != 0;
	net_cfg.keep_cwnd = sysctl1("tcp_slow_start_after_idle", 1) == 0;
}

/* What interfaces begin with. */
static uint8_t hop_limit(void)
{
	char text[16] = "";
	unsigned long v;

	text_file_read("/proc/sys/net/ipv6/conf/default/hop_limit", text, sizeof(text));
	v = strtoul(text, NULL, 10);
	return v && v <= UINT8_MAX ? (uint8_t)v : DEFAULT_TTL;
}

uint32_t tcp_sock_tw_reuse_us(bool loopback)
{
	return tw_reuse == 1 || (tw_reuse == 2 && loopback) ? tw_reuse_delay_ms * 1000 : 0;
}

unsigned tcp_sock_fast_open_keys(uint64_t key[2][2])
{
	char text[80], *at = text, *end;
	uint32_t word[8];
	unsigned n = 0;

	text_file_read("/proc/sys/net/ipv4/tcp_fastopen_key", text, sizeof(text));
	while (n < 8) {
		word[n] = (uint32_t)strtoul(at, &end, 16);
		if (end == at)
			break;
		at = end + (*end == '-' || *end == ',');
		n++;
	}
	for (unsigned i = 0; i < n / 4; i++) { /* little-endian, as the kernel's */
		key[i][0] = word[4 * i] | (uint64_t)word[4 * i + 1] << 32;
		key[i][1] = word[4 * i + 2] | (uint64_t)word[4 * i + 3] << 32;
	}
	return n / 4;
}

unsigned tcp_sock_fast_open_mode(void)
{
	return (unsigned)sysctl1("tcp_fastopen", 0);
}

unsigned tcp_sock_fast_open_pause_s(void)
{
	return (unsigned)sysctl1("tcp_fastopen_blackhole_timeout_sec", 0);
}

void tcp_sock_sysctl_read(void)
{
	struct tcp_opts *o = &tcp_sock_defaults;
	unsigned long ecn;

	tcp_opts_default(o);
	buffers(o);
	o->keepidle_s = (uint32_t)sysctl1("tcp_keepalive_time", o->keepidle_s);
	o->keepintvl_s = (uint32_t)sysctl1("tcp_keepalive_intvl", o->keepintvl_s);
	o->keepcnt = (uint8_t)sysctl1("tcp_keepalive_probes", o->keepcnt);
	o->syn_retries = (uint8_t)sysctl1("tcp_syn_retries", o->syn_retries);
	o->retries1 = (uint8_t)sysctl1("tcp_retries1", o->retries1);
	o->retries2 = (uint8_t)sysctl1("tcp_retries2", o->retries2);
	o->linger2_ms = (uint32_t)sysctl1("tcp_fin_timeout", o->linger2_ms / 1000) * 1000;
	o->ttl = (uint8_t)sysctl1("ip_default_ttl", DEFAULT_TTL);
	o->ttl6 = hop_limit();
	o->sack = sysctl1("tcp_sack", 1) != 0;
	o->wscale = sysctl1("tcp_window_scaling", 1) != 0;
	ecn = sysctl1("tcp_ecn", 2);
	/* 3 to 5 are AccECN, which falls back to this: 5 is accepted, and not offered. */
	o->ecn = ecn == 1 || ecn == 3 || ecn == 4;
	o->ecn_passive = ecn != 0;
	o->timestamps = params.tcp_timestamp_option == 2 ? sysctl1("tcp_timestamps", 1) != 0
							 : params.tcp_timestamp_option == 1;
	tw_reuse = (uint32_t)sysctl1("tcp_tw_reuse", 2);
	tw_reuse_delay_ms = (uint32_t)sysctl1("tcp_tw_reuse_delay", 1000); /* since Linux 6.13 */
	read_cfg();
	o->nodelay = params.tcp_nodelay;
	o->quickack = params.tcp_quickack;
	o->cc = (uint8_t)default_cc();
	if (params.mss)
		o->maxseg = (uint16_t)params.mss;
}
