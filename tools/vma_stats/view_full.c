/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* View 3: every block that is in use. */
#include "stats/stats.h"
#include "view.h"

#define RULE "======================================================\n"

static void number(FILE *f, const char *name, __u64 value)
{
	fprintf(f, "%-20s %llu\n", name, N(value));
}

static void counter(FILE *f, const char *name, __u64 value, const char *suffix)
{
	fprintf(f, "%-20s %llu %-3s\n", name, N(value), suffix);
}

static void counter_used(FILE *f, const char *name, __u64 value, const char *suffix)
{
	if (value)
		counter(f, name, value, suffix);
}

static void full_iomux(FILE *f, const struct vma_stats_iomux *m, const char *name,
		       const char *suffix)
{
	if (!view_iomux_used(m))
		return;
	fputs(RULE, f);
	fprintf(f, "\t%s\n", name);
	fprintf(f, "Polling CPU%s:%u%%\n", suffix, m->polling_cpu);
	if (m->tid)
		fprintf(f, "- Thread Id: %5u\n", m->tid);
	fprintf(f, "Rx fds ready: %llu / %llu [os/offload]%s\n", N(m->ready_os),
		N(m->ready_offloaded), suffix);
	if (m->poll_hit || m->poll_miss)
		fprintf(f, "Polls [miss/hit]%s: %llu / %llu (%2.2f%%)\n", suffix, N(m->poll_miss),
			N(m->poll_hit), view_percent(m->poll_hit, m->poll_miss));
	stats_waits_print(f, &m->waits, suffix);
	if (m->timeouts)
		fprintf(f, "Timeouts%s: %llu\n", suffix, N(m->timeouts));
	if (m->errors)
		fprintf(f, "Errors%s: %llu\n", suffix, N(m->errors));
	fputs(RULE, f);
}

static void full_cq(FILE *f, unsigned i, const struct vma_stats_cq *c, const char *suffix)
{
	if (!c->enabled)
		return;
	fputs(RULE, f);
	fprintf(f, "\tCQ=[%u]\n", i);
	counter(f, "Packets dropped:", c->drops, suffix);
	number(f, "Packets queue len:", c->queue_len);
	number(f, "Drained max:", c->drained_max);
	number(f, "Buffer pool size:", c->pool_len);
	fputs(RULE, f);
}

/*
 * The lines of the original first; then, where they count anything, those of this library's own
 * rings.
 */
static void full_ring(FILE *f, unsigned i, const struct vma_stats_ring *r, const char *suffix)
{
	if (!r->enabled)
		return;
	fputs(RULE, f);
	fprintf(f, "\t%s=[%u]\n", r->type[0] ? r->type : "RING", i);
	if (r->ifname[0])
		fprintf(f, "%-20s %s\n", "Interface:", r->ifname);
	if (r->mode[0])
		fprintf(f, "%-20s %s\n", "Mode:", r->mode);
	if (r->tx_packets || r->tx_bytes)
		fprintf(f, "%-20s %llu / %llu [kilobytes/packets] %-3s\n",
			"Tx Offload:", KB(r->tx_bytes), N(r->tx_packets), suffix);
	if (r->rx_packets || r->rx_bytes)
		fprintf(f, "%-20s %llu / %llu [kilobytes/packets] %-3s\n",
			"Rx Offload:", KB(r->rx_bytes), N(r->rx_packets), suffix);
	counter_used(f, "Retransmissions:", r->retransmits, suffix);
	if (r->interrupts_requested || r->interrupts_received)
		fprintf(f, "%-20s %llu / %llu [requests/received] %-3s\n",
			"Interrupts:", N(r->interrupts_requested), N(r->interrupts_received),
			suffix);
	if (r->moderation_frames || r->moderation_usec)
		fprintf(f, "%-20s %llu / %llu [frames/usec period] %-3s\n",
			"Moderation:", N(r->moderation_frames), N(r->moderation_usec), "");
	if (r->dev_mem_alloc) {
		number(f, "Dev Mem Alloc:", r->dev_mem_alloc);
		fprintf(f, "%-20s %llu / %llu / %llu [kilobytes/packets/oob] %-3s\n",
			"Dev Mem Stats:", KB(r->dev_mem_bytes), N(r->dev_mem_packets),
			N(r->dev_mem_oob), suffix);
	}
	counter_used(f, "Kernel kicks:", r->kicks, suffix);
	counter_used(f, "Tx GSO frames:", r->tx_gso_frames, suffix);
	counter_used(f, "Tx queue full:", r->tx_full, suffix);
	counter_used(f, "Tx over the MTU:", r->tx_drop_oversize, suffix);
	counter_used(f, "Rx no buffers:", r->rx_drop_no_buf, suffix);
	counter_used(f, "Rx invalid:", r->rx_drop_invalid, suffix);
	counter_used(f, "Rx malformed:", r->drop_malformed, suffix);
	counter_used(f, "Rx checksum error:", r->drop_checksum, suffix);
	counter_used(f, "Rx no socket:", r->drop_no_socket, suffix);
	counter_used(f, "Rx other drops:", r->drop_other, suffix);
	fputs(RULE, f);
}

static void full_pool(FILE *f, unsigned i, const struct vma_stats_pool *p, const char *suffix)
{
	if (!p->enabled)
		return;
	fputs(RULE, f);
	fprintf(f, "\tBUFFER_POOL(%s)=[%u]\n", p->is_rx ? "RX" : "TX", i);
	number(f, "Size:", p->size);
	counter(f, "No buffers error:", p->no_buffers, suffix);
	fputs(RULE, f);
}

void view_full(FILE *f, const struct snapshot *s, const struct options *o)
{
	const char *suffix = o->deltas ? "/s" : "";
	const struct vma_stats_header *h = &s->h;

	for (unsigned i = 0; i < h->max_sockets; i++)
		if (s->sockets[i].enabled && options_fd(o, s->sockets[i].fd))
			stats_socket_print(f, &s->sockets[i], suffix);
	full_iomux(f, &h->poll, "poll", suffix);
	full_iomux(f, &h->select, "select", suffix);
	for (unsigned i = 0; i < VMA_STATS_EPOLLS; i++) {
		char name[32];

		snprintf(name, sizeof(name), "epoll[%d]", h->epoll[i].epfd);
		full_iomux(f, &h->epoll[i], name, suffix);
	}
	for (unsigned i = 0; i < VMA_STATS_CQS; i++)
		full_cq(f, i, &h->cqs[i], suffix);
	for (unsigned i = 0; i < VMA_STATS_RINGS; i++)
		full_ring(f, i, &h->rings[i], suffix);
	for (unsigned i = 0; i < VMA_STATS_POOLS; i++)
		full_pool(f, i, &h->pools[i], suffix);
}
