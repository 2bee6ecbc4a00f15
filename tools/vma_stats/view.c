/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Views 1, 2, 4 and 5. */
#include "view.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "stats/stats.h"

#define SCREEN_LINES 24
#define DASHES_79                                                                                  \
	"-------------------------------------------------------------------------------\n"

double view_percent(__u64 hit, __u64 miss)
{
	double all = (double)hit + (double)miss;

	return all > 0 ? 100.0 * (double)hit / all : 0;
}

bool view_iomux_used(const struct vma_stats_iomux *m)
{
	return m->enabled && (m->ready_os || m->ready_offloaded || m->poll_hit || m->poll_miss ||
			      m->timeouts || m->errors || m->polling_cpu);
}

/* ---- views 1 and 2 */

static unsigned basic_heading(FILE *f, bool deltas)
{
	static const char two[] = " %-7s %42s %31s\n";
	static const char columns[] = " %-7s %10s %7s %8s %7s %6s %7s %7s %7s %7s\n";

	if (deltas) {
		fprintf(f, two, "fd", "--------------- offloaded ----------------",
			"---------- os ---------");
		fprintf(f, columns, "", "pkt/s", "Kbyte/s", "eagain/s", "error/s", "poll%", "pkt/s",
			"Kbyte/s", "eagain/s", "error/s");
	} else {
		fprintf(f, two, "fd", "------------ total offloaded -------------",
			"--------- total os ----------");
		fprintf(f, columns, "", "pkt", "Kbyte", "eagain", "error", "poll%", "pkt", "Kbyte",
			"eagain", "error");
	}
	return 2;
}

static unsigned medium_heading(FILE *f, bool deltas)
{
	static const char two[] = " %-7s %65s %31s\n";
	static const char columns[] = " %-7s %10s %7s %8s %7s %6s%23s %7s %7s %7s %7s\n";
	static const char queue[] = " %50s %6s  %6s  %6s \n";

	if (deltas) {
		fprintf(f, two, "fd",
			"---------------------------- offloaded --------------------------",
			"---------- os ---------");
		fprintf(f, columns, "", "pkt/s", "Kbyte/s", "eagain/s", "error/s", "poll%",
			"----- queue pkt ------", "pkt/s", "Kbyte/s", "eagain/s", "error/s");
		fprintf(f, queue, "", "cur", "max", "drop/s");
	} else {
		fprintf(f, two, "fd",
			"----------------------- total offloaded -------------------------",
			"--------- total os ----------");
		fprintf(f, columns, "", "pkt", "Kbyte", "eagain", "error", "poll%",
			"---- queue pkt -----", "pkt", "Kbyte", "eagain", "error");
		fprintf(f, queue, "", "cur", "max", "drop");
	}
	return 3;
}

static void basic_rows(FILE *f, const struct vma_stats_socket *s)
{
	const struct vma_stats_counters *rx = &s->rx, *tx = &s->tx;

	fprintf(f, " %-3d %-3s %10llu %7llu %8llu %7llu %6.1f %7llu %7llu %7llu %7llu\n", s->fd,
		"Rx:", N(rx->packets), KB(rx->bytes), N(rx->eagain), N(rx->errors),
		view_percent(s->rx_poll_hit, s->rx_poll_miss), N(rx->os_packets), KB(rx->os_bytes),
		N(rx->os_eagain), N(rx->os_errors));
	fprintf(f, " %-3s %-3s %10llu %7llu %8llu %7llu %-6s %7llu %7llu %7llu %7llu\n", " ",
		"Tx:", N(tx->packets), KB(tx->bytes), N(tx->eagain), N(tx->errors), " ",
		N(tx->os_packets), KB(tx->os_bytes), N(tx->os_eagain), N(tx->os_errors));
}

static void medium_rows(FILE *f, const struct vma_stats_socket *s)
{
	const struct vma_stats_counters *rx = &s->rx, *tx = &s->tx;

	fprintf(f,
		" %-3d %-3s %10llu %7llu %8llu %7llu %6.1f %6llu  %6llu  %6llu %7llu %7llu %7llu "
		"%7llu\n",
		s->fd, "Rx:", N(rx->packets), KB(rx->bytes), N(rx->eagain), N(rx->errors),
		view_percent(s->rx_poll_hit, s->rx_poll_miss), N(s->rx_ready_packets),
		N(s->rx_ready_packets_max), N(s->rx_drop_packets), N(rx->os_packets),
		KB(rx->os_bytes), N(rx->os_eagain), N(rx->os_errors));
	fprintf(f, " %-3s %-3s %10llu %7llu %8llu %7llu %29s %7llu %7llu %7llu %7llu\n", " ",
		"Tx:", N(tx->packets), KB(tx->bytes), N(tx->eagain), N(tx->errors), " ",
		N(tx->os_packets), KB(tx->os_bytes), N(tx->os_eagain), N(tx->os_errors));
}

/* Number of lines printed. */
static unsigned iomux_line(FILE *f, const struct vma_stats_iomux *m, const char *name, bool deltas)
{
	if (!view_iomux_used(m))
		return 0;
	fprintf(f,
		"%-8s%-2s %-9s%llu%-1s%llu %-12s %-9s%-5llu %-7s%-4llu %-5s%-2.2f%-3s %-5s%u%-1s\n",
		name, deltas ? "/s" : "", "Rx Ready:", N(m->ready_os), "/", N(m->ready_offloaded),
		"[os/offload]", "Timeouts:", N(m->timeouts), "Errors:", N(m->errors),
		"Poll:", view_percent(m->poll_hit, m->poll_miss), "%",
		"Polling CPU:", m->polling_cpu, "%");
	return 1;
}

static unsigned iomux_lines(FILE *f, const struct vma_stats_header *h, bool deltas)
{
	unsigned lines = iomux_line(f, &h->poll, "poll", deltas) +
			 iomux_line(f, &h->select, "select", deltas);

	for (unsigned i = 0; i < VMA_STATS_EPOLLS; i++) {
		char name[32];

		snprintf(name, sizeof(name), "epoll[%d]", h->epoll[i].epfd);
		lines += iomux_line(f, &h->epoll[i], name, deltas);
	}
	return lines;
}

void view_table(FILE *f, const struct snapshot *s, const struct options *o, unsigned *lines)
{
	bool medium = o->view == VIEW_MEDIUM;

	if (!*lines || *lines >= SCREEN_LINES)
		*lines = medium ? medium_heading(f, o->deltas) : basic_heading(f, o->deltas);
	for (unsigned i = 0; i < s->h.max_sockets; i++) {
		const struct vma_stats_socket *k = &s->sockets[i];

		if (!k->enabled || !options_fd(o, k->fd))
			continue;
		if (medium)
			medium_rows(f, k);
		else
			basic_rows(f, k);
		*lines += 2;
	}
	*lines += iomux_lines(f, &s->h, o->deltas);
	fputs(DASHES_79, f);
	*lines += 1;
}

/* ---- view 4 */

/* Has an earlier socket, or an earlier place of this one, shown the group? */
static bool group_seen(const struct snapshot *s, const struct options *o, unsigned socket,
		       unsigned group)
{
	const struct vma_addr *g = &s->sockets[socket].groups[group];

	for (unsigned i = 0; i <= socket; i++) {
		const struct vma_stats_socket *k = &s->sockets[i];
		unsigned n = i == socket ? group : k->num_groups;

		if (!k->enabled || !options_fd(o, k->fd))
			continue;
		for (unsigned j = 0; j < n; j++)
			if (!memcmp(&k->groups[j], g, sizeof(*g)))
				return true;
	}
	return false;
}

static void group_row(FILE *f, const struct snapshot *s, const struct options *o,
		      const struct vma_addr *g, int family)
{
	char text[STATS_ADDR_TEXT], bracketed[STATS_ADDR_TEXT + 2];

	snprintf(bracketed, sizeof(bracketed), "[%s]", stats_addr_text(text, g, family, -1));
	fprintf(f, "%-22s", bracketed);
	for (unsigned i = 0; i < s->h.max_sockets; i++) {
		const struct vma_stats_socket *k = &s->sockets[i];
		bool member = false;

		for (unsigned j = 0; k->enabled && j < k->num_groups; j++)
			member |= !memcmp(&k->groups[j], g, sizeof(*g));
		if (member && options_fd(o, k->fd))
			fprintf(f, "%d ", k->fd);
	}
	fputc('\n', f);
}

void view_groups(FILE *f, const struct snapshot *s, const struct options *o)
{
	fputs("\nVMA Group Memberships Information\n", f);
	fputs("Group                fd number\n", f);
	fputs("------------------------------\n", f);
	for (unsigned i = 0; i < s->h.max_sockets; i++) {
		const struct vma_stats_socket *k = &s->sockets[i];

		if (!k->enabled || !options_fd(o, k->fd))
			continue;
		for (unsigned j = 0; j < k->num_groups; j++)
			if (!group_seen(s, o, i, j))
				group_row(f, s, o, &k->groups[j], k->family);
	}
}

/* ---- view 5 */

const char *view_state(const struct vma_stats_socket *s)
{
	return s->proto == IPPROTO_TCP ? stats_state_name(s->state) : "";
}

static void netstat_address(FILE *f, const struct vma_addr *a, int family, int port)
{
	char host[STATS_ADDR_TEXT], text[STATS_ADDR_TEXT + 16];

	stats_addr_text(host, a, family, -1);
	if (port)
		snprintf(text, sizeof(text), family == AF_INET6 ? "[%s]:%-5d" : "%s:%-5d", host,
			 port);
	else
		snprintf(text, sizeof(text), family == AF_INET6 ? "[%s]:*" : "%s:*", host);
	fprintf(f, "%-21s", text);
}

void view_netstat_heading(FILE *f)
{
	fprintf(f, "%-5s %-9s %-20s %-20s %-22s %-21s %-11s %-10s %-20s %s\n", "Proto", "Offloaded",
		"Recv-Q", "Send-Q", "Local Address", "Foreign Address", "State", "Inode",
		"PID/Program name", "By the kernel");
}

/* The end of a row: a socket that is offloaded has nothing in the last column. */
static void program_and_reason(FILE *f, const struct snapshot *s, const struct vma_stats_socket *k)
{
	const struct vma_stats_why *why = stats_why_first(k);
	char program[96];

	snprintf(program, sizeof(program), "%u/%s", s->h.pid, s->h.program);
	if (why)
		fprintf(f, "%-20s %s\n", program, stats_why_name(why->reason));
	else
		fprintf(f, "%s\n", program);
}

/* Bytes; of a listener the clients that wait for accept(), as netstat(8) has it. */
static __u64 recv_queue(const struct vma_stats_socket *s)
{
	bool listens = s->proto == IPPROTO_TCP && s->state == VMA_STATE_LISTEN;

	return listens ? s->rx_ready_packets : s->rx_ready_bytes;
}

void view_netstat(FILE *f, const struct snapshot *s, const struct options *o)
{
	for (unsigned i = 0; i < s->h.max_sockets; i++) {
		const struct vma_stats_socket *k = &s->sockets[i];

		/* Without an inode it is not filled in yet. */
		if (!k->enabled || !k->inode || !options_fd(o, k->fd))
			continue;
		fprintf(f, "%-5s %-9s ",
			k->proto == IPPROTO_TCP	  ? "tcp"
			: k->proto == IPPROTO_UDP ? "udp"
						  : "raw",
			k->offloaded ? "Yes" : "No");
		fprintf(f, "%-20llu %-20llu ", N(recv_queue(k)), N(k->tx_ready_bytes));
		netstat_address(f, &k->local, k->family, k->local_port);
		fputs("  ", f);
		netstat_address(f, &k->remote, k->family, k->remote_port);
		fprintf(f, " %-11s %-10llu ", view_state(k), N(k->inode));
		program_and_reason(f, s, k);
	}
}
