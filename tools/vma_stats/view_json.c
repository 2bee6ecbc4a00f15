/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* --json: every field under the name that it has in vma/stats.h. One object, one line. */
#include <netinet/in.h>
#include <sys/socket.h>

#include "stats/stats.h"
#include "view.h"

/* The snapshot's texts are printable ASCII already. */
static void text(FILE *f, const char *name, const char *value)
{
	fprintf(f, "\"%s\":\"", name);
	for (; *value; value++) {
		if (*value == '"' || *value == '\\')
			fputc('\\', f);
		fputc(*value, f);
	}
	fputc('"', f);
}

/* comma: in front of the first. */
static void numbers(FILE *f, const char *comma, const void *block, const struct field *fields)
{
	for (const struct field *i = fields; i->name; i++) {
		fprintf(f, "%s\"%s\":%llu", comma, i->name, N(*field_of((void *)block, i)));
		comma = ",";
	}
}

/* An object of n counters. */
static void object(FILE *f, const char *name, const void *block, const struct field *first,
		   unsigned n)
{
	fprintf(f, "\"%s\":{", name);
	for (unsigned i = 0; i < n; i++)
		fprintf(f, "%s\"%s\":%llu", i ? "," : "", first[i].name,
			N(*field_of((void *)block, &first[i])));
	fputc('}', f);
}

/* All that only grows. */
static void counters(FILE *f, const struct vma_stats_socket *s)
{
	const unsigned waits = VMA_STATS_SOCKET_COUNTERS - WAIT_FIELDS;

	object(f, "rx", s, &socket_counters[0], 8);
	fputc(',', f);
	object(f, "tx", s, &socket_counters[8], 8);
	for (unsigned i = 16; i < waits; i++)
		fprintf(f, ",\"%s\":%llu", socket_counters[i].name,
			N(*field_of((void *)s, &socket_counters[i])));
	fputc(',', f);
	object(f, "waits", s, &socket_counters[waits], WAIT_FIELDS);
}

static void address(FILE *f, const char *name, const struct vma_addr *a, int family)
{
	char host[STATS_ADDR_TEXT];

	fprintf(f, ",\"%s\":\"%s\"", name, stats_addr_text(host, a, family, -1));
}

/* What the kernel serves, and why, by part; and all the reasons that there ever were. */
static void why(FILE *f, const struct vma_stats_socket *s)
{
	static const char *const parts[VMA_WHY_PATHS] = {
		[VMA_WHY_SOCKET] = "socket", [VMA_WHY_RX] = "rx", [VMA_WHY_TX] = "tx"};
	const char *comma = "";

	fputs(",\"why\":{", f);
	for (unsigned i = 0; i < VMA_WHY_PATHS; i++)
		fprintf(f, "%s\"%s\":{\"reason\":\"%s\",\"detail\":%d}", i ? "," : "", parts[i],
			stats_why_name(s->why[i].reason), s->why[i].detail);
	fputs("},\"why_ever\":[", f);
	for (unsigned i = 1; i < VMA_WHYS; i++) {
		if (!(s->why_ever & 1ull << i))
			continue;
		fprintf(f, "%s\"%s\"", comma, stats_why_name(i));
		comma = ",";
	}
	fputc(']', f);
}

static void tcp(FILE *f, const struct vma_stats_socket *s)
{
	const char *comma = "";

	if (s->proto != IPPROTO_TCP) {
		fputs(",\"tcp\":null", f);
		return;
	}
	fputs(",\"tcp\":{", f);
	for (const struct field *i = tcp_fields; i->name; i++) {
		fprintf(f, "%s\"%s\":%u", comma, i->name,
			*(const __u32 *)((const char *)&s->tcp + i->offset));
		comma = ",";
	}
	fputc('}', f);
}

static void ring_user(FILE *f, const char *name, bool by_user, __u32 user)
{
	if (by_user)
		fprintf(f, "\"%s\":%u,", name, user);
	else
		fprintf(f, "\"%s\":null,", name);
}

static void one_socket(FILE *f, const struct vma_stats_socket *s)
{
	char host[STATS_ADDR_TEXT];

	fprintf(f, "{\"fd\":%d,\"inode\":%llu,\"family\":\"%s\",\"proto\":\"%s\",\"state\":\"%s\"",
		s->fd, N(s->inode), s->family == AF_INET6 ? "inet6" : "inet",
		s->proto == IPPROTO_TCP	  ? "tcp"
		: s->proto == IPPROTO_UDP ? "udp"
					  : "raw",
		view_state(s));
	fprintf(f, ",\"offloaded\":%s,\"blocking\":%s,\"mc_loop\":%s",
		s->offloaded ? "true" : "false", s->blocking ? "true" : "false",
		s->mc_loop ? "true" : "false");
	address(f, "local", &s->local, s->family);
	fprintf(f, ",\"local_port\":%u", s->local_port);
	address(f, "remote", &s->remote, s->family);
	fprintf(f, ",\"remote_port\":%u,\"mc_if\":%d", s->remote_port, s->mc_if);
	address(f, "mc_if_addr", &s->mc_if_addr, s->family);
	fprintf(f, ",\"rx_tid\":%u,\"tx_tid\":%u,\"generation\":%u,", s->rx_tid, s->tx_tid,
		s->generation);
	ring_user(f, "rx_ring_user", s->rx_by_user, s->rx_ring_user);
	ring_user(f, "tx_ring_user", s->tx_by_user, s->tx_ring_user);
	counters(f, s);
	numbers(f, ",", s, socket_gauges);
	tcp(f, s);
	why(f, s);
	fputs(",\"groups\":[", f);
	for (unsigned i = 0; i < s->num_groups; i++)
		fprintf(f, "%s\"%s\"", i ? "," : "",
			stats_addr_text(host, &s->groups[i], s->family, -1));
	fputs("]}", f);
}

static void iomux(FILE *f, const struct vma_stats_iomux *m)
{
	fprintf(f, "{\"enabled\":%s,\"epfd\":%d,\"tid\":%u,\"polling_cpu\":%u",
		m->enabled ? "true" : "false", m->epfd, m->tid, m->polling_cpu);
	for (unsigned i = 0; i < IOMUX_FIELDS - WAIT_FIELDS; i++)
		fprintf(f, ",\"%s\":%llu", iomux_fields[i].name,
			N(*field_of((void *)m, &iomux_fields[i])));
	fputc(',', f);
	object(f, "waits", m, &iomux_fields[IOMUX_FIELDS - WAIT_FIELDS], WAIT_FIELDS);
	fputc('}', f);
}

static void header(FILE *f, const struct vma_stats_header *h)
{
	fprintf(f, "\"version\":%u,\"pid\":%u,\"start_time\":%llu,", h->version, h->pid,
		N(h->start_time));
	text(f, "library_version", h->library_version);
	fputc(',', f);
	text(f, "program", h->program);
	fprintf(f,
		",\"max_sockets\":%u,\"log_level\":%d,\"log_details\":%d,\"dump_fd\":%d,\"dump_fd_"
		"level\":%d",
		h->max_sockets, h->log_level, h->log_details, h->dump_fd, h->dump_fd_level);
	fprintf(f,
		",\"capture\":%u,\"capture_snap\":%u,\"capture_bytes\":%u,\"capture_is\":%u,"
		"\"capture_fd\":%d,\"capture_error\":%d",
		h->capture, h->capture_snap, h->capture_bytes, h->capture_is, h->capture_fd,
		h->capture_error);
}

static void rings(FILE *f, const struct vma_stats_header *h)
{
	const char *comma = "";

	fputs(",\"rings\":[", f);
	for (unsigned i = 0; i < VMA_STATS_RINGS; i++) {
		const struct vma_stats_ring *r = &h->rings[i];

		if (!r->enabled)
			continue;
		fprintf(f, "%s{\"index\":%u,\"ifindex\":%d,", comma, i, r->ifindex);
		text(f, "type", r->type);
		fputc(',', f);
		text(f, "ifname", r->ifname);
		fputc(',', f);
		text(f, "mode", r->mode);
		numbers(f, ",", r, ring_fields);
		fputc('}', f);
		comma = ",";
	}
	fputc(']', f);
}

static void queues_and_pools(FILE *f, const struct vma_stats_header *h)
{
	const char *comma = "";

	fputs(",\"cqs\":[", f);
	for (unsigned i = 0; i < VMA_STATS_CQS; i++) {
		if (!h->cqs[i].enabled)
			continue;
		fprintf(f, "%s{\"index\":%u", comma, i);
		numbers(f, ",", &h->cqs[i], cq_fields);
		fputc('}', f);
		comma = ",";
	}
	fputs("],\"pools\":[", f);
	comma = "";
	for (unsigned i = 0; i < VMA_STATS_POOLS; i++) {
		if (!h->pools[i].enabled)
			continue;
		fprintf(f, "%s{\"index\":%u,\"is_rx\":%s", comma, i,
			h->pools[i].is_rx ? "true" : "false");
		numbers(f, ",", &h->pools[i], pool_fields);
		fputc('}', f);
		comma = ",";
	}
	fputc(']', f);
}

void view_json(FILE *f, const struct snapshot *s, const struct options *o)
{
	const char *comma = "";

	fprintf(f, "{\"deltas\":%s,", o->deltas ? "true" : "false");
	header(f, &s->h);
	rings(f, &s->h);
	queues_and_pools(f, &s->h);
	fputs(",\"select\":", f);
	iomux(f, &s->h.select);
	fputs(",\"poll\":", f);
	iomux(f, &s->h.poll);
	fputs(",\"epoll\":[", f);
	for (unsigned i = 0; i < VMA_STATS_EPOLLS; i++) {
		if (!s->h.epoll[i].enabled)
			continue;
		fputs(comma, f);
		iomux(f, &s->h.epoll[i]);
		comma = ",";
	}
	fputs("],\"sockets\":[", f);
	comma = "";
	for (unsigned i = 0; i < s->h.max_sockets; i++) {
		if (!s->sockets[i].enabled || !options_fd(o, s->sockets[i].fd))
			continue;
		fputs(comma, f);
		one_socket(f, &s->sockets[i]);
		comma = ",";
	}
	fputs("],\"closed_sockets\":{", f);
	counters(f, &s->h.closed_sockets);
	fputs("},\"closed_rings\":{", f);
	numbers(f, "", &s->h.closed_rings, ring_fields);
	fputs("}}\n", f);
}
