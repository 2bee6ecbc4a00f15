/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The columns of the live view's lists: one row of a table each. */
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "live_state.h"
#include "stats/stats.h"
#include "view.h"

void live_human(char text[16], double value)
{
	static const char units[] = " kMGTPE";
	unsigned unit = 0;

	if (value > 0 && value < 9.95 && value != (double)(int)value) {
		snprintf(text, 16, "%.1f", value);
		return;
	}
	if (value < 99999.5) {
		snprintf(text, 16, "%.0f", value);
		return;
	}
	while (value >= 999.5 && unit < sizeof(units) - 2) {
		value /= 1000;
		unit++;
	}
	snprintf(text, 16, value < 99.95 ? "%.1f%c" : "%.0f%c", value, units[unit]);
}

void live_cell(const struct live_column *c, const struct live_row *r, bool total, char *text,
	       size_t size)
{
	char human[16];

	if (c->text) {
		c->text(r, text, size);
		return;
	}
	live_human(human, c->number(r, total));
	snprintf(text, size, "%s", human);
}

/* ---- processes */

static const struct process *live_process(const struct live_row *r)
{
	return &r->w->now.process[r->process];
}

static void cell_pid(const struct live_row *r, char *text, size_t size)
{
	snprintf(text, size, "%d", live_process(r)->pid);
}

static double number_pid(const struct live_row *r, bool total)
{
	(void)total;
	return live_process(r)->pid;
}

static void cell_program(const struct live_row *r, char *text, size_t size)
{
	const struct process *p = live_process(r);

	snprintf(text, size, "%s", p->readable ? p->snap.h.program : "?");
}

static double cell_sockets(const struct live_row *r, bool total)
{
	const struct process *p = live_process(r);
	unsigned n = 0;

	(void)total;
	for (unsigned i = 0; p->readable && i < p->snap.h.max_sockets; i++)
		n += p->snap.sockets[i].enabled != 0;
	return n;
}

/* The library writes 100 at most. */
static double spinning(const struct vma_stats_iomux *m, double most)
{
	double cpu = m->polling_cpu < 100 ? m->polling_cpu : 100;

	return m->enabled && cpu > most ? cpu : most;
}

/* The share of the time that select, poll or epoll spins: of the one that does most. */
static double cell_spinning(const struct live_row *r, bool total)
{
	const struct vma_stats_header *h = &live_process(r)->snap.h;
	double most = spinning(&h->poll, spinning(&h->select, 0));

	(void)total;
	for (unsigned i = 0; i < VMA_STATS_EPOLLS; i++)
		most = spinning(&h->epoll[i], most);
	return most;
}

#define FIGURE(name, figure)                                                                       \
	static double process_##name(const struct live_row *r, bool total)                         \
	{                                                                                          \
		return watch_process(r->w, r->process, figure, total);                             \
	}                                                                                          \
	static double socket_##name(const struct live_row *r, bool total)                          \
	{                                                                                          \
		return watch_socket(r->w, r->process, r->slot, figure, total);                     \
	}
FIGURE(rx, FIGURE_RX)
FIGURE(tx, FIGURE_TX)
FIGURE(rx_bytes, FIGURE_RX_BYTES)
FIGURE(tx_bytes, FIGURE_TX_BYTES)
FIGURE(kernel, FIGURE_KERNEL)
FIGURE(drops, FIGURE_DROPS)
FIGURE(retransmits, FIGURE_RETRANSMITS)

/* As many from the left as the terminal is wide for; at 80 columns all of them fit. */
const struct live_column live_process_columns[] = {
	{"PID", "PID", 7, number_pid, cell_pid},
	{"PROGRAM", "PROGRAM", -11, NULL, cell_program},
	{"SOCK", "SOCK", 4, cell_sockets, NULL},
	{"RX/s", "RX", 5, process_rx, NULL},
	{"TX/s", "TX", 5, process_tx, NULL},
	{"RXB/s", "RXB", 5, process_rx_bytes, NULL},
	{"TXB/s", "TXB", 5, process_tx_bytes, NULL},
	{"OS/s", "OS", 5, process_kernel, NULL},
	{"DRP/s", "DROP", 5, process_drops, NULL},
	{"RTR/s", "RETR", 5, process_retransmits, NULL},
	{"SPIN", "SPIN", 4, cell_spinning, NULL},
	{NULL, NULL, 0, NULL, NULL},
};

/* ---- sockets */

static const struct vma_stats_socket *live_socket(const struct live_row *r)
{
	return &live_process(r)->snap.sockets[r->slot];
}

static void cell_fd(const struct live_row *r, char *text, size_t size)
{
	snprintf(text, size, "%d", live_socket(r)->fd);
}

static double number_fd(const struct live_row *r, bool total)
{
	(void)total;
	return live_socket(r)->fd;
}

static void cell_protocol(const struct live_row *r, char *text, size_t size)
{
	const struct vma_stats_socket *s = live_socket(r);

	snprintf(text, size, "%s",
		 s->proto == IPPROTO_TCP   ? "tcp"
		 : s->proto == IPPROTO_UDP ? "udp"
					   : "raw");
}

static void cell_state(const struct live_row *r, char *text, size_t size)
{
	snprintf(text, size, "%s", view_state(live_socket(r)));
}

static void cell_local(const struct live_row *r, char *text, size_t size)
{
	const struct vma_stats_socket *s = live_socket(r);
	char address[STATS_ADDR_TEXT];

	snprintf(text, size, "%s", stats_addr_text(address, &s->local, s->family, s->local_port));
}

static void cell_remote(const struct live_row *r, char *text, size_t size)
{
	const struct vma_stats_socket *s = live_socket(r);
	char address[STATS_ADDR_TEXT];

	text[0] = 0;
	if (s->remote_port)
		snprintf(text, size, "%s",
			 stats_addr_text(address, &s->remote, s->family, s->remote_port));
}

/* The peer; without one the own address. */
static void cell_address(const struct live_row *r, char *text, size_t size)
{
	if (live_socket(r)->remote_port)
		cell_remote(r, text, size);
	else
		cell_local(r, text, size);
}

/* What of it the kernel serves, and why: the first reason, as view 5 has it. */
static void cell_why(const struct live_row *r, char *text, size_t size)
{
	const struct vma_stats_why *why = stats_why_first(live_socket(r));

	snprintf(text, size, "%s", why ? stats_why_name(why->reason) : "");
}

static double cell_queue(const struct live_row *r, bool total)
{
	(void)total;
	return (double)live_socket(r)->rx_ready_packets;
}

static double cell_round_trip(const struct live_row *r, bool total)
{
	(void)total;
	return (double)live_socket(r)->tcp.srtt_us;
}

static double cell_window(const struct live_row *r, bool total)
{
	(void)total;
	return (double)live_socket(r)->tcp.cwnd;
}

/*
 * At 80 columns up to QUEUE, and why the kernel serves it in the line below. A new column stands
 * where its worth is: what stands behind it, a narrow terminal does not show.
 */
const struct live_column live_socket_columns[] = {
	{"FD", "FD", 5, number_fd, cell_fd},
	{"PRO", "PRO", -3, NULL, cell_protocol},
	{"STATE", "STATE", -11, NULL, cell_state},
	{"ADDRESS", "ADDRESS", -21, NULL, cell_address},
	{"RX/s", "RX", 5, socket_rx, NULL},
	{"TX/s", "TX", 5, socket_tx, NULL},
	{"OS/s", "OS", 5, socket_kernel, NULL},
	{"QUEUE", "QUEUE", 5, cell_queue, NULL},
	{"BY KERNEL", "BY KERNEL", -15, NULL, cell_why},
	{"DRP/s", "DROP", 5, socket_drops, NULL},
	{"RTR/s", "RETR", 5, socket_retransmits, NULL},
	{"RXB/s", "RXB", 5, socket_rx_bytes, NULL},
	{"TXB/s", "TXB", 5, socket_tx_bytes, NULL},
	{"RTTus", "RTTus", 5, cell_round_trip, NULL},
	{"CWND", "CWND", 5, cell_window, NULL},
	{"LOCAL", "LOCAL", -21, NULL, cell_local},
	{NULL, NULL, 0, NULL, NULL},
};

const struct live_column *live_columns(enum live_level level)
{
	return level == LIVE_PROCESSES ? live_process_columns : live_socket_columns;
}

unsigned live_columns_count(const struct live_column *columns)
{
	unsigned n = 0;

	while (columns[n].title)
		n++;
	return n;
}

const struct spark *live_row_spark(enum live_level level, const struct live_row *r)
{
	static const struct spark none;
	const struct past *past = &r->w->past[r->process];

	if (level == LIVE_PROCESSES)
		return &past->spark;
	return r->slot < past->sockets ? &past->socket[r->slot].spark : &none;
}
