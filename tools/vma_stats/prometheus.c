/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * All samples of a metric stand together, so the loops go over the metrics first, then over the
 * processes. No two samples have the same labels, whatever the pages say: each block's place is a
 * label.
 */
#include "prometheus.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "stats/stats.h"
#include "view.h"

#define PROM_NAME 96

/* ---- the format */

static void prom_family(FILE *f, const char *name, const char *type, const char *help)
{
	fprintf(f, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void prom_label(FILE *f, const char *name, const char *value)
{
	fprintf(f, ",%s=\"", name);
	for (; *value; value++) {
		if (*value == '"' || *value == '\\')
			fputc('\\', f);
		if (*value == '\n')
			fputs("\\n", f);
		else
			fputc(*value, f);
	}
	fputc('"', f);
}

/* The sample's begin, with the labels that all have. */
static void prom_sample(FILE *f, const char *name, const struct process *p)
{
	fprintf(f, "%s{pid=\"%d\"", name, p->pid);
	prom_label(f, "program", p->snap.h.program);
}

static void prom_value(FILE *f, __u64 value)
{
	fprintf(f, "} %llu\n", N(value));
}

static bool prom_ends(const char *name, const char *end)
{
	size_t n = strlen(name), e = strlen(end);

	return n > e && !strcmp(name + n - e, end);
}

static bool prom_is_usec(const struct field *field)
{
	return prom_ends(field->name, "_us") || prom_ends(field->name, "_usec");
}

/* Time is in seconds, counters end in _total. */
static void prom_name(char name[PROM_NAME], const char *prefix, const struct field *field)
{
	size_t len = strlen(field->name);

	if (prom_is_usec(field))
		len = (size_t)(strrchr(field->name, '_') - field->name);
	snprintf(name, PROM_NAME, "vma_%s_%.*s%s%s", prefix, (int)len, field->name,
		 prom_is_usec(field) ? "_seconds" : "", field->counts ? "_total" : "");
}

/* ---- blocks with fields */

/* A kind of block of which each process has some. */
struct prom_block {
	const char *prefix;
	const struct field *fields; /* end: name NULL */
	bool narrow; /* 32 bits each */
	unsigned places;
	/* NULL where none is in use. */
	const void *(*at)(const struct process *p, unsigned place, const struct options *o);
	void (*labels)(FILE *f, const void *block, unsigned place);
};

static void prom_field_value(FILE *f, const struct prom_block *b, const struct field *field,
			     const void *block)
{
	__u64 v = b->narrow ? *(const __u32 *)((const char *)block + field->offset)
			    : *field_of((void *)block, field);

	if (prom_is_usec(field))
		fprintf(f, "} %llu.%06llu\n", N(v) / 1000000, N(v) % 1000000);
	else
		prom_value(f, v);
}

static void prom_field(FILE *f, const struct prom_block *b, const struct field *field,
		       const struct processes *all, const struct options *o)
{
	char name[PROM_NAME];

	prom_name(name, b->prefix, field);
	prom_family(f, name, field->counts ? "counter" : "gauge", field->help);
	for (unsigned i = 0; i < all->n; i++) {
		const struct process *p = &all->process[i];

		for (unsigned place = 0; p->readable && place < b->places; place++) {
			const void *block = b->at(p, place, o);

			if (!block)
				continue;
			prom_sample(f, name, p);
			b->labels(f, block, place);
			prom_field_value(f, b, field, block);
		}
	}
}

static const void *sum_at(const struct process *p, unsigned place, const struct options *o)
{
	(void)place;
	(void)o;
	return &p->sum;
}

static void prom_no_labels(FILE *f, const void *block, unsigned place)
{
	(void)f;
	(void)block;
	(void)place;
}

static const void *socket_at(const struct process *p, unsigned place, const struct options *o)
{
	if (place >= p->snap.h.max_sockets)
		return NULL;
	if (!p->snap.sockets[place].enabled || !options_fd(o, p->snap.sockets[place].fd))
		return NULL;
	return &p->snap.sockets[place];
}

static const char *prom_protocol(const struct vma_stats_socket *s)
{
	return s->proto == IPPROTO_TCP ? "tcp" : s->proto == IPPROTO_UDP ? "udp" : "raw";
}

static void socket_labels(FILE *f, const void *block, unsigned place)
{
	const struct vma_stats_socket *s = block;

	fprintf(f, ",slot=\"%u\",fd=\"%d\",protocol=\"%s\"", place, s->fd, prom_protocol(s));
}

/* A connection that the engine has; its block stands inside the socket's. */
static const void *tcp_at(const struct process *p, unsigned place, const struct options *o)
{
	const struct vma_stats_socket *s = socket_at(p, place, o);

	return s && s->proto == IPPROTO_TCP && s->tcp.mss ? &s->tcp : NULL;
}

static void tcp_labels(FILE *f, const void *block, unsigned place)
{
	const char *tcp = block;

	socket_labels(f, tcp - offsetof(struct vma_stats_socket, tcp), place);
}

static const void *ring_at(const struct process *p, unsigned place, const struct options *o)
{
	(void)o;
	return p->snap.h.rings[place].enabled ? &p->snap.h.rings[place] : NULL;
}

static void ring_labels(FILE *f, const void *block, unsigned place)
{
	const struct vma_stats_ring *r = block;

	fprintf(f, ",ring=\"%u\"", place);
	prom_label(f, "interface", r->ifname);
	prom_label(f, "type", r->type);
}

static const void *closed_rings_at(const struct process *p, unsigned place, const struct options *o)
{
	(void)place;
	(void)o;
	return &p->snap.h.closed_rings;
}

static const void *cq_at(const struct process *p, unsigned place, const struct options *o)
{
	(void)o;
	return p->snap.h.cqs[place].enabled ? &p->snap.h.cqs[place] : NULL;
}

static void cq_labels(FILE *f, const void *block, unsigned place)
{
	(void)block;
	fprintf(f, ",cq=\"%u\"", place);
}

static const void *pool_at(const struct process *p, unsigned place, const struct options *o)
{
	(void)o;
	return p->snap.h.pools[place].enabled ? &p->snap.h.pools[place] : NULL;
}

static void pool_labels(FILE *f, const void *block, unsigned place)
{
	const struct vma_stats_pool *pool = block;

	fprintf(f, ",pool=\"%u\",direction=\"%s\"", place, pool->is_rx ? "rx" : "tx");
}

/* select, poll, then the epoll instances. */
static const void *iomux_at(const struct process *p, unsigned place, const struct options *o)
{
	const struct vma_stats_header *h = &p->snap.h;
	const struct vma_stats_iomux *m = place == 0   ? &h->select
					  : place == 1 ? &h->poll
						       : &h->epoll[place - 2];

	(void)o;
	return m->enabled ? m : NULL;
}

static void iomux_labels(FILE *f, const void *block, unsigned place)
{
	const struct vma_stats_iomux *m = block;

	if (place < 2)
		fprintf(f, ",call=\"%s\",slot=\"\",epfd=\"\"", place ? "poll" : "select");
	else
		fprintf(f, ",call=\"epoll\",slot=\"%u\",epfd=\"%d\"", place - 2, m->epfd);
}

/* socket_counters behind those of rx and tx. */
#define ALONE (VMA_STATS_SOCKET_COUNTERS - 16)

static const struct prom_block prom_sum = {"process", NULL, false, 1, sum_at, prom_no_labels},
			       prom_socket = {
				       "socket",  NULL,		 false, VMA_STATS_SOCKETS_MAX,
				       socket_at, socket_labels,
};

static const struct prom_block prom_blocks[] = {
	{"socket", socket_gauges, false, VMA_STATS_SOCKETS_MAX, socket_at, socket_labels},
	{"tcp", tcp_fields, true, VMA_STATS_SOCKETS_MAX, tcp_at, tcp_labels},
	{"ring", ring_fields, false, VMA_STATS_RINGS, ring_at, ring_labels},
	{"cq", cq_fields, false, VMA_STATS_CQS, cq_at, cq_labels},
	{"pool", pool_fields, false, VMA_STATS_POOLS, pool_at, pool_labels},
	{"iomux", iomux_fields, false, 2 + VMA_STATS_EPOLLS, iomux_at, iomux_labels},
};

/* ---- what is not a plain field */

/* One counter of the four that each direction and each path has: packets, bytes, ... */
static void prom_traffic(FILE *f, const struct prom_block *b, unsigned which,
			 const struct processes *all, const struct options *o)
{
	char name[PROM_NAME];

	prom_name(name, b->prefix, &socket_counters[which]);
	prom_family(f, name, "counter", socket_counters[which].help);
	for (unsigned i = 0; i < all->n; i++) {
		const struct process *p = &all->process[i];

		for (unsigned k = 0; p->readable && k < b->places * 4; k++) {
			const void *block = b->at(p, k / 4, o);
			bool tx = k & 2, os = k & 1;

			if (!block)
				continue;
			prom_sample(f, name, p);
			b->labels(f, block, k / 4);
			fprintf(f, ",direction=\"%s\",path=\"%s\"", tx ? "tx" : "rx",
				os ? "kernel" : "offloaded");
			prom_value(
				f,
				*field_of((void *)block,
					  &socket_counters[which + (tx ? 8 : 0) + (os ? 4 : 0)]));
		}
	}
}

static void prom_counters(FILE *f, const struct prom_block *b, const struct processes *all,
			  const struct options *o)
{
	for (unsigned which = 0; which < 4; which++)
		prom_traffic(f, b, which, all, o);
	for (unsigned i = 0; i < ALONE; i++)
		prom_field(f, b, &socket_counters[16 + i], all, o);
}

static void prom_closed_rings(FILE *f, const struct processes *all, const struct options *o)
{
	static const struct prom_block closed = {"closed_rings",  NULL,		 false, 1,
						 closed_rings_at, prom_no_labels};

	for (const struct field *field = ring_fields; field->name; field++)
		if (field->counts)
			prom_field(f, &closed, field, all, o);
}

static void prom_address(FILE *f, const char *name, const struct vma_addr *a, int family, int port)
{
	char text[STATS_ADDR_TEXT];

	prom_label(f, name, stats_addr_text(text, a, family, port));
}

/* What a socket is: changes seldom, and would make new series of the counters if it stood there. */
static void prom_socket_info(FILE *f, const struct processes *all, const struct options *o)
{
	static const char name[] = "vma_socket_info";

	prom_family(f, name, "gauge", "What a socket is; always 1.");
	for (unsigned i = 0; i < all->n; i++) {
		const struct process *p = &all->process[i];

		for (unsigned k = 0; p->readable && k < VMA_STATS_SOCKETS_MAX; k++) {
			const struct vma_stats_socket *s = socket_at(p, k, o);

			if (!s)
				continue;
			prom_sample(f, name, p);
			socket_labels(f, s, k);
			prom_address(f, "local", &s->local, s->family, s->local_port);
			prom_address(f, "remote", &s->remote, s->family, s->remote_port);
			prom_label(f, "state", view_state(s));
			prom_label(f, "offloaded", s->offloaded ? "true" : "false");
			prom_value(f, 1);
		}
	}
}

static void prom_polling(FILE *f, const struct processes *all, const struct options *o)
{
	static const char name[] = "vma_iomux_polling_ratio";

	prom_family(f, name, "gauge", "Share of the time that waits spent spinning, 0 to 1.");
	for (unsigned i = 0; i < all->n; i++) {
		const struct process *p = &all->process[i];

		for (unsigned k = 0; p->readable && k < 2 + VMA_STATS_EPOLLS; k++) {
			const struct vma_stats_iomux *m = iomux_at(p, k, o);

			if (!m)
				continue;
			prom_sample(f, name, p);
			iomux_labels(f, m, k);
			fprintf(f, "} %u.%02u\n", m->polling_cpu / 100, m->polling_cpu % 100);
		}
	}
}

static unsigned prom_open_sockets(const struct process *p)
{
	unsigned n = 0;

	for (unsigned i = 0; i < p->snap.h.max_sockets; i++)
		n += p->snap.sockets[i].enabled != 0;
	return n;
}

static void prom_processes(FILE *f, const struct processes *all)
{
	unsigned readable = 0;

	for (unsigned i = 0; i < all->n; i++)
		readable += all->process[i].readable;
	prom_family(f, "vma_processes", "gauge",
		    "Processes with statistics, by whether vma_stats may and can read them.");
	fprintf(f, "vma_processes{readable=\"true\"} %u\n", readable);
	fprintf(f, "vma_processes{readable=\"false\"} %u\n", all->n - readable);
	prom_family(f, "vma_process_info", "gauge", "What a process is; always 1.");
	for (unsigned i = 0; i < all->n; i++) {
		if (!all->process[i].readable)
			continue;
		prom_sample(f, "vma_process_info", &all->process[i]);
		prom_label(f, "library_version", all->process[i].snap.h.library_version);
		prom_value(f, 1);
	}
	prom_family(f, "vma_process_start_time_seconds", "gauge",
		    "When the process started, in seconds since 1970.");
	for (unsigned i = 0; i < all->n; i++) {
		if (!all->process[i].readable)
			continue;
		prom_sample(f, "vma_process_start_time_seconds", &all->process[i]);
		prom_value(f, all->process[i].snap.h.start_time);
	}
	prom_family(f, "vma_process_open_sockets", "gauge", "Sockets that the statistics show.");
	for (unsigned i = 0; i < all->n; i++) {
		if (!all->process[i].readable)
			continue;
		prom_sample(f, "vma_process_open_sockets", &all->process[i]);
		prom_value(f, prom_open_sockets(&all->process[i]));
	}
}

void prometheus_print(FILE *f, const struct processes *all, const struct options *o)
{
	prom_processes(f, all);
	prom_counters(f, &prom_sum, all, o);
	prom_socket_info(f, all, o);
	prom_counters(f, &prom_socket, all, o);
	for (unsigned i = 0; i < sizeof(prom_blocks) / sizeof(prom_blocks[0]); i++)
		for (const struct field *field = prom_blocks[i].fields; field->name; field++)
			if (field->help)
				prom_field(f, &prom_blocks[i], field, all, o);
	prom_closed_rings(f, all, o);
	prom_polling(f, all, o);
}
