/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * View 6: who has rings on which interface. What processes of one user have on an interface of one
 * network namespace is common to them: its queues, the pool of buffers and the flow table.
 */
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "processes.h"
#include "view.h"

/* A process on an interface. */
struct member {
	const struct process *p;
	char ifname[sizeof(((struct vma_stats_ring *)0)->ifname)];
	char netns[24]; /* the number of its namespace, "-": not to be seen from here */
	char user[33];
	unsigned rings;
	__u64 rx_packets, tx_packets;
};

static void netns_text(char text[24], int pid)
{
	struct stat st;
	char path[40];

	snprintf(path, sizeof(path), "/proc/%d/ns/net", pid);
	if (stat(path, &st))
		strcpy(text, "-");
	else
		snprintf(text, 24, "%lu", st.st_ino);
}

static void user_text(char text[33], int pid)
{
	struct passwd pw, *found = NULL;
	char path[32], strings[1024];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d", pid);
	if (stat(path, &st)) {
		strcpy(text, "-");
		return;
	}
	if (!getpwuid_r(st.st_uid, &pw, strings, sizeof(strings), &found) && found)
		snprintf(text, 33, "%s", pw.pw_name);
	else
		snprintf(text, 33, "%u", st.st_uid);
}

/* The process's entry for the interface among the n that it has; a new one behind them. */
static struct member *entry(struct member *m, unsigned *n, const char *ifname)
{
	for (unsigned i = 0; i < *n; i++)
		if (!strcmp(m[i].ifname, ifname))
			return &m[i];
	m[*n] = (struct member){.rings = 0};
	strcpy(m[*n].ifname, ifname);
	return &m[(*n)++];
}

/* Fills m, VMA_STATS_RINGS long. How many interfaces it has rings on. */
static unsigned interfaces_of(const struct process *p, struct member *m)
{
	unsigned n = 0;

	for (unsigned i = 0; p->readable && i < VMA_STATS_RINGS; i++) {
		const struct vma_stats_ring *r = &p->snap.h.rings[i];
		struct member *e;

		if (!r->enabled)
			continue;
		e = entry(m, &n, r->ifname);
		e->rings++;
		e->rx_packets += r->rx_packets;
		e->tx_packets += r->tx_packets;
	}
	for (unsigned i = 0; i < n; i++) {
		m[i].p = p;
		netns_text(m[i].netns, p->pid);
		user_text(m[i].user, p->pid);
	}
	return n;
}

/* Those who share something stand together. */
static int by_interface(const void *left, const void *right)
{
	const struct member *a = left, *b = right;
	int by = strcmp(a->netns, b->netns);

	by = by ? by : strcmp(a->ifname, b->ifname);
	by = by ? by : strcmp(a->user, b->user);
	return by ? by : a->p->pid - b->p->pid;
}

int view_members(FILE *f, const struct processes *all)
{
	struct member *m = calloc((size_t)all->n * VMA_STATS_RINGS + 1, sizeof(*m));
	unsigned n = 0;

	if (!m)
		return -1;
	for (unsigned i = 0; i < all->n; i++)
		n += interfaces_of(&all->process[i], &m[n]);
	qsort(m, n, sizeof(*m), by_interface);
	fprintf(f, "%-15s %-11s %-12s %-5s %15s %15s  %s\n", "Interface", "Netns", "User", "Rings",
		"Rx packets", "Tx packets", "PID/Program name");
	for (unsigned i = 0; i < n; i++)
		fprintf(f, "%-15s %-11s %-12s %-5u %15llu %15llu  %d/%s\n", m[i].ifname, m[i].netns,
			m[i].user, m[i].rings, N(m[i].rx_packets), N(m[i].tx_packets), m[i].p->pid,
			m[i].p->snap.h.program);
	free(m);
	return 0;
}
