/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A socket's statistics as text: view 3 of vma_stats, VMA_STATS_FILE, and the log (vma_stats -S).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/runtime.h"
#include "stats/stats.h"

#define RULE "======================================================\n"
#define KB(bytes) ((unsigned long long)(bytes) / 1024)
#define N(counter) ((unsigned long long)(counter))

const char *stats_addr_text(char text[STATS_ADDR_TEXT], const struct vma_addr *addr, int family,
			    int port)
{
	char host[INET6_ADDRSTRLEN];
	bool v6 = family == AF_INET6;

	if (!inet_ntop(v6 ? AF_INET6 : AF_INET, v6 ? addr->byte : addr->byte + 12, host,
		       sizeof(host)))
		host[0] = 0;
	if (port < 0)
		snprintf(text, STATS_ADDR_TEXT, "%s", host);
	else
		snprintf(text, STATS_ADDR_TEXT, v6 ? "[%s]:%d" : "%s:%d", host, port);
	return text;
}

static bool addr_any(const struct vma_addr *a, int family)
{
	static const struct vma_addr zero;

	return family == AF_INET6 ? !memcmp(a, &zero, sizeof(zero))
				  : !memcmp(a->byte + 12, zero.byte, 4);
}

static double percent(__u64 part, __u64 rest)
{
	double all = (double)part + (double)rest;

	return all > 0 ? 100.0 * (double)part / all : 0;
}

static bool counted(__u64 packets, __u64 bytes, __u64 eagain, __u64 errors)
{
	return packets || bytes || eagain || errors;
}

static const char *proto_name(__u8 proto)
{
	return proto == IPPROTO_TCP   ? "TCP"
	       : proto == IPPROTO_UDP ? "UDP"
	       : proto == IPPROTO_RAW ? "RAW"
				      : "???";
}

const char *stats_state_name(unsigned state)
{
	static const char *const names[] = {
		[VMA_STATE_CLOSED] = "CLOSED",		 [VMA_STATE_LISTEN] = "LISTEN",
		[VMA_STATE_SYN_SENT] = "SYN_SENT",	 [VMA_STATE_SYN_RCVD] = "SYN_RCVD",
		[VMA_STATE_ESTABLISHED] = "ESTABLISHED", [VMA_STATE_FIN_WAIT_1] = "FIN_WAIT_1",
		[VMA_STATE_FIN_WAIT_2] = "FIN_WAIT_2",	 [VMA_STATE_CLOSE_WAIT] = "CLOSE_WAIT",
		[VMA_STATE_CLOSING] = "CLOSING",	 [VMA_STATE_LAST_ACK] = "LAST_ACK",
		[VMA_STATE_TIME_WAIT] = "TIME_WAIT",
	};

	return state < sizeof(names) / sizeof(names[0]) ? names[state] : "";
}

#define WHY_NAME(constant, name, text) [VMA_WHY_##constant] = name,
#define WHY_TEXT(constant, name, text) [VMA_WHY_##constant] = text,
static const char *const why_names[VMA_WHYS] = {VMA_WHY_LIST(WHY_NAME)};
static const char *const why_texts[VMA_WHYS] = {VMA_WHY_LIST(WHY_TEXT)};
#undef WHY_NAME
#undef WHY_TEXT

const char *stats_why_name(unsigned reason)
{
	return reason && reason < VMA_WHYS ? why_names[reason] : "";
}

/* Of those that a ring needs. */
static const char *capability_name(int capability)
{
	switch (capability) {
	case CAP_NET_RAW:
		return "CAP_NET_RAW";
	case CAP_NET_ADMIN:
		return "CAP_NET_ADMIN";
	case CAP_BPF:
		return "CAP_BPF";
	case CAP_PERFMON:
		return "CAP_PERFMON";
	case CAP_IPC_LOCK:
		return "CAP_IPC_LOCK, or too little 'ulimit -l'";
	default:
		return "?";
	}
}

const char *stats_why_text(char text[STATS_WHY_TEXT], const struct vma_stats_why *w)
{
	const char *what = w->reason && w->reason < VMA_WHYS ? why_texts[w->reason] : "";
	char option[SOCKOPT_NAME];

	if (!w->detail)
		snprintf(text, STATS_WHY_TEXT, "%s", what);
	else if (w->reason == VMA_WHY_OPTION)
		snprintf(text, STATS_WHY_TEXT, "%s (%s)", what,
			 sockopt_name(option, w->detail >> 16, w->detail & 0xffff));
	else if (w->reason == VMA_WHY_CAPABILITY)
		snprintf(text, STATS_WHY_TEXT, "%s (%s)", what, capability_name(w->detail));
	else if (w->reason == VMA_WHY_FLAGS)
		snprintf(text, STATS_WHY_TEXT, "%s (0x%x)", what, (unsigned)w->detail);
	else if (w->reason == VMA_WHY_NO_RING || w->reason == VMA_WHY_STEERING)
		snprintf(text, STATS_WHY_TEXT, "%s (%s)", what, strerrordesc_np(w->detail) ?: "?");
	else
		snprintf(text, STATS_WHY_TEXT, "%s", what);
	return text;
}

const struct vma_stats_why *stats_why_first(const struct vma_stats_socket *s)
{
	for (unsigned i = 0; i < VMA_WHY_PATHS; i++) {
		if (*stats_why_name(s->why[i].reason))
			return &s->why[i];
	}
	return NULL;
}

/* A line for each part that the kernel serves. */
static void print_why(FILE *f, const struct vma_stats_socket *s)
{
	static const char *const parts[VMA_WHY_PATHS] = {
		[VMA_WHY_SOCKET] = "all", [VMA_WHY_RX] = "receives", [VMA_WHY_TX] = "sends"};
	char text[STATS_WHY_TEXT];

	for (unsigned i = 0; i < VMA_WHY_PATHS; i++) {
		if (*stats_why_name(s->why[i].reason))
			fprintf(f, "- By the kernel = [%s: %s]\n", parts[i],
				stats_why_text(text, &s->why[i]));
	}
}

#define SLEPT_NAME(constant, name, text) [VMA_SLEPT_##constant] = name,
static const char *const slept_names[VMA_SLEPTS] = {VMA_SLEPT_LIST(SLEPT_NAME)};
#undef SLEPT_NAME

void stats_waits_print(FILE *f, const struct vma_stats_waits *w, const char *suffix)
{
	const char *before = " (";

	if (!w->spun && !w->spun_in_vain && !w->slept)
		return;
	fprintf(f, "Waits%s: %llu / %llu / %llu [spun/in vain/slept]", suffix, N(w->spun),
		N(w->spun_in_vain), N(w->slept));
	for (unsigned i = 0; i < VMA_SLEPTS; i++) {
		if (!w->why[i])
			continue;
		fprintf(f, "%s%s %llu", before, slept_names[i], N(w->why[i]));
		before = ", ";
	}
	fputs(*before == ',' ? ")\n" : "\n", f);
}

static void print_identity(FILE *f, const struct vma_stats_socket *s)
{
	unsigned groups = s->num_groups < VMA_STATS_GROUPS ? s->num_groups : VMA_STATS_GROUPS;
	char text[STATS_ADDR_TEXT];

	fprintf(f, "\tFd=[%d]\n", s->fd);
	fprintf(f, "- %s", proto_name(s->proto));
	fprintf(f, ", %s", s->blocking ? "Blocked" : "Non-blocked");
	if (s->proto == IPPROTO_UDP) {
		fprintf(f, ", MC Loop %s", s->mc_loop ? "Enabled " : "Disabled");
		if (!addr_any(&s->mc_if_addr, s->family))
			fprintf(f, ", MC IF = [%s]",
				stats_addr_text(text, &s->mc_if_addr, s->family, -1));
		else if (s->mc_if)
			fprintf(f, ", MC IF = [%d]", s->mc_if);
	}
	fputc('\n', f);
	if (!addr_any(&s->local, s->family) || s->local_port)
		fprintf(f, "- Local Address   = [%s]\n",
			stats_addr_text(text, &s->local, s->family, s->local_port));
	if (!addr_any(&s->remote, s->family) || s->remote_port)
		fprintf(f, "- Foreign Address = [%s]\n",
			stats_addr_text(text, &s->remote, s->family, s->remote_port));
	for (unsigned i = 0; i < groups; i++)
		fprintf(f, "- Member of = [%s]\n",
			stats_addr_text(text, &s->groups[i], s->family, -1));
	print_why(f, s);
	if (s->rx_tid || s->tx_tid)
		fprintf(f, "- Thread Id Rx: %5u, Tx: %5u\n", s->rx_tid, s->tx_tid);
	if (s->rx_by_user)
		fprintf(f, "- RX: Ring User ID = %u\n", s->rx_ring_user);
	if (s->tx_by_user)
		fprintf(f, "- TX: Ring User ID = %u\n", s->tx_ring_user);
}

/* "Tx Offload" and "Tx OS info", or Rx. True if one was printed. */
static bool print_direction(FILE *f, const char *name, const struct vma_stats_counters *c,
			    const char *suffix)
{
	bool offload = counted(c->packets, c->bytes, c->eagain, c->errors);
	bool os = counted(c->os_packets, c->os_bytes, c->os_eagain, c->os_errors);

	if (offload)
		fprintf(f,
			"%s Offload: %llu / %llu / %llu / %llu "
			"[kilobytes/packets/eagains/errors]%s\n",
			name, KB(c->bytes), N(c->packets), N(c->eagain), N(c->errors), suffix);
	if (os)
		fprintf(f,
			"%s OS info: %llu / %llu / %llu / %llu "
			"[kilobytes/packets/eagains/errors]%s\n",
			name, KB(c->os_bytes), N(c->os_packets), N(c->os_eagain), N(c->os_errors),
			suffix);
	return offload || os;
}

void stats_socket_print(FILE *f, const struct vma_stats_socket *s, const char *suffix)
{
	bool active;

	fputs(RULE, f);
	print_identity(f, s);
	active = print_direction(f, "Tx", &s->tx, suffix);
	if (s->tx_dummy)
		fprintf(f, "Tx Dummy messages : %llu\n", N(s->tx_dummy));
	active |= print_direction(f, "Rx", &s->rx, suffix);
	if (s->rx.packets || s->rx_ready_packets || s->rx_drop_packets) {
		fprintf(f, "Rx byte: cur %llu / max %llu / dropped%s %llu / limit %llu\n",
			N(s->rx_ready_bytes), N(s->rx_ready_bytes_max), suffix, N(s->rx_drop_bytes),
			N(s->rx_ready_limit));
		fprintf(f, "Rx pkt : cur %llu / max %llu / dropped%s %llu\n",
			N(s->rx_ready_packets), N(s->rx_ready_packets_max), suffix,
			N(s->rx_drop_packets));
	}
	if (s->rx_zcopy_buffers)
		fprintf(f, "Rx zero copy buffers: cur %llu\n", N(s->rx_zcopy_buffers));
	if (s->rx_poll_hit || s->rx_poll_miss)
		fprintf(f, "Rx poll: %llu / %llu (%2.2f%%) [miss/hit]\n", N(s->rx_poll_miss),
			N(s->rx_poll_hit), percent(s->rx_poll_hit, s->rx_poll_miss));
	stats_waits_print(f, &s->waits, suffix);
	if (s->rx_ring_migrations || s->tx_ring_migrations)
		fprintf(f, "Ring migrations Rx: %llu, Tx: %llu\n", N(s->rx_ring_migrations),
			N(s->tx_ring_migrations));
	if (s->tx_retransmits)
		fprintf(f, "Retransmissions: %llu\n", N(s->tx_retransmits));
	if (!active && !s->rx_drop_packets)
		fputs("Rx and Tx where not active\n", f);
	fputs(RULE, f);
}

void stats_socket_dump(FILE *f, const struct vma_stats_socket *s)
{
	struct vma_stats_socket copy;

	stats_copy_words(&copy, s, sizeof(struct vma_stats_socket));
	stats_socket_print(f, &copy, "");
}

/*
 * pattern with its first "%d" replaced; other % are plain characters: the text is a user's, not
 * ours.
 */
static void expand_pid(char *path, size_t size, const char *pattern)
{
	const char *mark = strstr(pattern, "%d");

	if (mark)
		snprintf(path, size, "%.*s%d%s", (int)(mark - pattern), pattern, getpid(),
			 mark + 2);
	else
		snprintf(path, size, "%s", pattern);
}

/* All of it, though write() may take a part. 0 or negative errno. */
static int write_all(int fd, const char *text, size_t len)
{
	while (len) {
		ssize_t n = raw.write(fd, text, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		text += n;
		len -= (size_t)n;
	}
	return 0;
}

int stats_file_dump(const char *path, const struct vma_stats_socket *s)
{
	char name[4096], *text = NULL;
	size_t len = 0;
	FILE *f;
	int fd, err;

	expand_pid(name, sizeof(name), path);
	f = open_memstream(&text, &len);
	if (!f)
		return -ENOMEM;
	stats_socket_dump(f, s);
	if (libc.fclose(f)) {
		free(text);
		return -ENOMEM;
	}
	/* One write for one socket: those of several processes do not mix. */
	fd = OWN_FD(raw.open(
		name, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0644));
	err = fd < 0 ? -errno : write_all(fd, text, len);
	if (fd >= 0)
		own_fd_close(fd);
	free(text);
	if (err)
		log_warn("VMA_STATS_FILE: writing %s: %s", name, strerror(-err));
	return err;
}

#define YES_NO(condition) ((condition) ? "true" : "false")

/* Windows are said as bytes, and as the number that a segment has in its field. */
static void log_windows(int level, const struct vma_stats_tcp *t)
{
	unsigned rcv = t->rcv_wscale & 15, snd = t->snd_wscale & 15;
	unsigned left = t->rcv_wup + t->rcv_wnd - t->rcv_nxt; /* of what was told */

	log_at(level, "Window scaling : %s, rcv_scale %u, snd_scale %u",
	       t->wscale ? "ENABLED" : "DISABLED", t->rcv_wscale, t->snd_wscale);
	log_at(level,
	       "Receive window : rcv_wnd %u (%u), rcv_ann_wnd %u (%u), rcv_wnd_max %u (%u), "
	       "rcv_wnd_max_desired %u (%u)",
	       t->rcv_wnd, t->rcv_wnd >> rcv, left, left >> rcv, t->rcv_wnd_max,
	       t->rcv_wnd_max >> rcv, t->rcvbuf / 2, t->rcvbuf / 2 >> rcv);
	log_at(level, "Send window : snd_wnd %u (%u), snd_wnd_max %u (%u)", t->snd_wnd,
	       t->snd_wnd >> snd, t->snd_wnd_max, t->snd_wnd_max >> snd);
	log_at(level, "Congestion : cwnd %u, cwnd_segments %u, ssthresh_segments %u",
	       t->cwnd * t->mss, t->cwnd, t->ssthresh);
}

/* "NULL", or where a piece of the stream begins and ends. */
static void log_piece(int level, const char *what, __u32 seq, __u32 len)
{
	if (len)
		log_at(level, "%s : seqno %u, len %u, seqno + len %u", what, seq, len, seq + len);
	else
		log_at(level, "%s : NULL", what);
}

/*
 * Each acknowledgement that is new tells the window, too: snd_wl2 of RFC 9293 is snd_una. Each
 * transmission is timed: rtseq is the one that is answered next.
 */
static void log_numbers(int level, const struct vma_stats_tcp *t)
{
	__s32 unsent = (__s32)(t->write_seq - t->snd_nxt);

	log_at(level, "Receiver data : rcv_nxt %u, rcv_ann_right_edge %u", t->rcv_nxt,
	       t->rcv_wup + t->rcv_wnd);
	log_at(level, "Sender data : snd_nxt %u, snd_wl1 %u, snd_wl2 %u, snd_una %u, write_seq %u",
	       t->snd_nxt, t->snd_wl1, t->snd_una, t->snd_una, t->write_seq);
	log_at(level, "Send buffer : snd_buf %u, max_snd_buff %u, used %u",
	       t->sndbuf > t->sndbuf_used ? t->sndbuf - t->sndbuf_used : 0, t->sndbuf,
	       t->sndbuf_used);
	log_at(level, "Retransmission : rtime %u us, rto %u us, nrtx %u, total %u", t->rtime_us,
	       t->rto_us, t->retries, t->retransmits);
	log_at(level, "RTT variables : rttest %u us, rtseq %u, rttvar %u us", t->srtt_us,
	       t->snd_una, t->rttvar_us);
	/* A FIN that was sent has a number behind what was written. */
	log_piece(level, "First unsent", t->snd_nxt, unsent > 0 ? (__u32)unsent : 0);
	log_piece(level, "First unacked", t->snd_una, t->unacked_first_len);
	log_piece(level, "Last unacked", t->unacked_last_seq,
		  t->unacked_first_len ? t->snd_nxt - t->unacked_last_seq : 0);
	log_at(level, "Acknowledge : lastack %u, segments %u, sacked %u, lost %u", t->snd_una,
	       t->unacked, t->sacked, t->lost);
}

/* As the original names them. */
static const char *socket_state(unsigned state)
{
	switch (state) {
	case VMA_STATE_CLOSED:
		return "TCP_SOCK_INITED";
	case VMA_STATE_LISTEN:
		return "TCP_SOCK_ACCEPT_READY";
	case VMA_STATE_SYN_SENT:
		return "TCP_SOCK_ASYNC_CONNECT";
	case VMA_STATE_FIN_WAIT_1:
	case VMA_STATE_FIN_WAIT_2:
		return "TCP_SOCK_CONNECTED_RD";
	case VMA_STATE_CLOSE_WAIT:
		return "TCP_SOCK_CONNECTED_WR";
	default:
		return "TCP_SOCK_CONNECTED_RDWR";
	}
}

static const char *connection_state(unsigned state)
{
	if (state == VMA_STATE_CLOSED || state == VMA_STATE_LISTEN)
		return "TCP_CONN_INIT";
	return state == VMA_STATE_SYN_SENT ? "TCP_CONN_CONNECTING" : "TCP_CONN_CONNECTED";
}

/* What a TCP socket has besides. */
static void log_tcp(int level, const struct vma_stats_socket *s)
{
	const struct vma_stats_tcp *t = &s->tcp;

	log_at(level, "Socket state : %s", socket_state(s->state));
	log_at(level, "Connection state : %s", connection_state(s->state));
	if (!t->mss)
		return; /* a listener, none yet, or the kernel's */
	log_at(level, "Receive buffer : m_rcvbuff_current %u, m_rcvbuff_max %u, out of order %u",
	       t->rcvbuf_used, t->rcvbuf, t->reordered_bytes);
	log_at(level, "Rx lists size : m_rx_pkt_ready_list %llu, bytes %llu",
	       N(s->rx_ready_packets), N(s->rx_ready_bytes));
	log_at(level, "PCB state : %s", stats_state_name(s->state));
	log_at(level, "PCB flags : 0x%x", t->flags);
	log_at(level, "Segment size : mss %u, advtsd_mss %u", t->mss, t->advmss);
	log_windows(level, t);
	log_numbers(level, t);
}

void stats_socket_log(int level, const struct vma_stats_socket *live)
{
	struct vma_stats_socket copy, *s = &copy;
	char text[STATS_ADDR_TEXT];

	stats_copy_words(s, live, sizeof(struct vma_stats_socket));
	log_at(level, "============ DUMPING FD %d STATISTICS ============", s->fd);
	log_at(level, "==================== SOCKET FD ===================");
	log_at(level, "Fd number : %d", s->fd);
	log_at(level, "Bind info : %s", stats_addr_text(text, &s->local, s->family, s->local_port));
	log_at(level, "Connection info : %s",
	       stats_addr_text(text, &s->remote, s->family, s->remote_port));
	log_at(level, "Protocol : PROTO_%s", proto_name(s->proto));
	log_at(level, "Is closed : %s", s->enabled ? "false" : "true");
	log_at(level, "Is blocking : %s", YES_NO(s->blocking));
	/* A buffer goes back to its ring at once, unless the program holds it. */
	log_at(level, "Rx reuse buffer pending : %s", YES_NO(s->rx_zcopy_buffers));
	log_at(level, "Rx reuse buffer postponed : false");
	log_at(level, "Is offloaded : %s", YES_NO(s->offloaded));
	if (counted(s->tx.packets, s->tx.bytes, s->tx.eagain, s->tx.errors))
		log_at(level,
		       "Tx Offload : %llu KB / %llu / %llu / %llu [bytes/packets/eagains/errors]",
		       KB(s->tx.bytes), N(s->tx.packets), N(s->tx.eagain), N(s->tx.errors));
	if (counted(s->tx.os_packets, s->tx.os_bytes, 0, s->tx.os_errors))
		log_at(level, "Tx OS info : %llu KB / %llu / %llu [bytes/packets/errors]",
		       KB(s->tx.os_bytes), N(s->tx.os_packets), N(s->tx.os_errors));
	if (counted(s->rx.packets, s->rx.bytes, s->rx.eagain, s->rx.errors))
		log_at(level,
		       "Rx Offload : %llu KB / %llu / %llu / %llu [bytes/packets/eagains/errors]",
		       KB(s->rx.bytes), N(s->rx.packets), N(s->rx.eagain), N(s->rx.errors));
	if (counted(s->rx.os_packets, s->rx.os_bytes, 0, s->rx.os_errors))
		log_at(level, "Rx OS info : %llu KB / %llu / %llu [bytes/packets/errors]",
		       KB(s->rx.os_bytes), N(s->rx.os_packets), N(s->rx.os_errors));
	log_at(level, "Rx byte : max %llu / dropped %llu (%2.2f%%) / limit %llu",
	       N(s->rx_ready_bytes_max), N(s->rx_drop_bytes),
	       percent(s->rx_drop_bytes, s->rx.bytes), N(s->rx_ready_limit));
	log_at(level, "Rx pkt : max %llu / dropped %llu (%2.2f%%)", N(s->rx_ready_packets_max),
	       N(s->rx_drop_packets), percent(s->rx_drop_packets, s->rx.packets));
	log_at(level, "Rx poll : %llu / %llu (%2.2f%%) [miss/hit]", N(s->rx_poll_miss),
	       N(s->rx_poll_hit), percent(s->rx_poll_hit, s->rx_poll_miss));
	if (s->proto == IPPROTO_TCP)
		log_tcp(level, s);
	log_at(level, "==================================================");
	log_at(level, "==================================================");
}

/* "Tx Offload" and "Tx OS info", or Rx. */
static void log_direction_end(int fd, const char *name, const struct vma_stats_counters *c)
{
	log_debug("[fd=%d] %s Offload: %llu KB / %llu / %llu [bytes/packets/errors]", fd, name,
		  KB(c->bytes), N(c->packets), N(c->errors));
	log_debug("[fd=%d] %s OS info: %llu KB / %llu / %llu [bytes/packets/errors]", fd, name,
		  KB(c->os_bytes), N(c->os_packets), N(c->os_errors));
}

static bool direction_used(const struct vma_stats_counters *c)
{
	return counted(c->packets, c->bytes, c->eagain, c->errors) ||
	       counted(c->os_packets, c->os_bytes, c->os_eagain, c->os_errors);
}

void stats_socket_log_end(const struct vma_stats_socket *live)
{
	struct vma_stats_socket copy, *s = &copy;

	stats_copy_words(s, live, sizeof(struct vma_stats_socket));
	if (direction_used(&s->tx))
		log_direction_end(s->fd, "Tx", &s->tx);
	if (!direction_used(&s->rx) && !s->rx_drop_packets)
		return;
	log_direction_end(s->fd, "Rx", &s->rx);
	log_debug("[fd=%d] Rx byte: max %llu / dropped %llu (%2.2f%%) / limit %llu", s->fd,
		  N(s->rx_ready_bytes_max), N(s->rx_drop_bytes),
		  percent(s->rx_drop_bytes, s->rx.bytes), N(s->rx_ready_limit));
	log_debug("[fd=%d] Rx pkt : max %llu / dropped %llu (%2.2f%%)", s->fd,
		  N(s->rx_ready_packets_max), N(s->rx_drop_packets),
		  percent(s->rx_drop_packets, s->rx.packets));
	log_debug("[fd=%d] Rx poll: %llu / %llu (%2.2f%%) [miss/hit]", s->fd, N(s->rx_poll_miss),
		  N(s->rx_poll_hit), percent(s->rx_poll_hit, s->rx_poll_miss));
}

void stats_ring_log_end(const struct vma_stats_ring *live)
{
	struct vma_stats_ring copy, *r = &copy;

	stats_copy_words(r, live, sizeof(struct vma_stats_ring));
	log_debug("[ring=%s %s] Rx: %llu KB / %llu / %llu [bytes/packets/dropped]", r->type,
		  r->ifname, KB(r->rx_bytes), N(r->rx_packets),
		  N(r->rx_drop_no_buf + r->rx_drop_invalid + r->drop_malformed + r->drop_checksum +
		    r->drop_no_socket + r->drop_other));
	log_debug("[ring=%s %s] Tx: %llu KB / %llu / %llu / %llu "
		  "[bytes/packets/full/retransmissions]",
		  r->type, r->ifname, KB(r->tx_bytes), N(r->tx_packets), N(r->tx_full),
		  N(r->retransmits));
	log_debug("[ring=%s %s] Interrupts: %llu / %llu [requested/received]", r->type, r->ifname,
		  N(r->interrupts_requested), N(r->interrupts_received));
}
