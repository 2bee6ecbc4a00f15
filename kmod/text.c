// SPDX-License-Identifier: GPL-2.0-only
/*
 * The statistics pages as text. A process may write anything into its pages while they are read
 * here: numbers are numbers, sizes and places are the module's own, text is cleaned.
 */
#include <linux/ctype.h>
#include <linux/kernel.h>
#include <linux/string.h>

#include "vma.h"

#define SOCKET(field)                                                                              \
	{                                                                                          \
		"socket_" #field, offsetof(struct vma_stats_socket, field)                         \
	}
#define SIDE(side, field)                                                                          \
	{                                                                                          \
		"socket_" #side "_" #field, offsetof(struct vma_stats_socket, side.field)          \
	}
#define WAITS(field)                                                                               \
	{                                                                                          \
		"socket_" #field, offsetof(struct vma_stats_socket, waits.field)                   \
	}
#define SLEPT(constant, name, text)                                                                \
	{"socket_slept_" name, offsetof(struct vma_stats_socket, waits.why[VMA_SLEPT_##constant])},
#define RING(field)                                                                                \
	{                                                                                          \
		"ring_" #field, offsetof(struct vma_stats_ring, field)                             \
	}

struct field {
	const char *name;
	size_t offset; /* of a u64 */
};

static const struct field socket_fields[] = {SIDE(rx, packets),		 SIDE(rx, bytes),
					     SIDE(rx, eagain),		 SIDE(rx, errors),
					     SIDE(rx, os_packets),	 SIDE(rx, os_bytes),
					     SIDE(rx, os_eagain),	 SIDE(rx, os_errors),
					     SIDE(tx, packets),		 SIDE(tx, bytes),
					     SIDE(tx, eagain),		 SIDE(tx, errors),
					     SIDE(tx, os_packets),	 SIDE(tx, os_bytes),
					     SIDE(tx, os_eagain),	 SIDE(tx, os_errors),
					     SOCKET(rx_poll_hit),	 SOCKET(rx_poll_miss),
					     SOCKET(rx_poll_os_hit),	 SOCKET(rx_drop_packets),
					     SOCKET(rx_drop_bytes),	 SOCKET(rx_ring_migrations),
					     SOCKET(tx_ring_migrations), SOCKET(tx_retransmits),
					     SOCKET(tx_dummy),		 WAITS(spun),
					     WAITS(spun_in_vain),	 WAITS(slept),
					     VMA_SLEPT_LIST(SLEPT)};

static const struct field ring_fields[] = {
	RING(rx_packets),
	RING(rx_bytes),
	RING(tx_packets),
	RING(tx_bytes),
	RING(tx_gso_frames),
	RING(rx_drop_no_buf),
	RING(rx_drop_invalid),
	RING(tx_drop_oversize),
	RING(tx_full),
	RING(kicks),
	RING(interrupts_requested),
	RING(interrupts_received),
	RING(retransmits),
	RING(drop_malformed),
	RING(drop_checksum),
	RING(drop_no_socket),
	RING(drop_other),
};

static_assert(ARRAY_SIZE(socket_fields) == VMA_STATS_SOCKET_COUNTERS);
static_assert(ARRAY_SIZE(socket_fields) + ARRAY_SIZE(ring_fields) == VMA_SUMS);

static u64 value(const void *block, const struct field *f)
{
	return READ_ONCE(*(const u64 *)(block + f->offset));
}

static const struct vma_stats_ring *ring_at(const struct vma_area *stats, u32 n)
{
	return &((const struct vma_stats_header *)stats->at)->rings[n];
}

static const struct vma_stats_socket *socket_at(const struct vma_area *stats, u32 n)
{
	return (const void *)(stats->at + sizeof(struct vma_stats_header) +
			      n * sizeof(struct vma_stats_socket));
}

static void add(u64 *sum, const void *block, const struct field *f, u32 n)
{
	u32 i;

	for (i = 0; i < n; i++)
		sum[i] += value(block, &f[i]);
}

/**
 * vma_sum_pages - adds the counters of one process, with those of its closed sockets and rings
 * @stats: its pages; an empty area adds nothing
 * @sockets: blocks in them
 * @sum: added to
 */
void vma_sum_pages(const struct vma_area *stats, u32 sockets, u64 sum[VMA_SUMS])
{
	const struct vma_stats_header *h = stats->at;
	u64 *ring_sum = sum + ARRAY_SIZE(socket_fields);
	u32 n;

	if (!h)
		return;
	add(sum, &h->closed_sockets, socket_fields, ARRAY_SIZE(socket_fields));
	add(ring_sum, &h->closed_rings, ring_fields, ARRAY_SIZE(ring_fields));
	for (n = 0; n < sockets; n++)
		if (READ_ONCE(socket_at(stats, n)->enabled))
			add(sum, socket_at(stats, n), socket_fields, ARRAY_SIZE(socket_fields));
	for (n = 0; n < VMA_STATS_RINGS; n++)
		if (READ_ONCE(h->rings[n].enabled))
			add(ring_sum, &h->rings[n], ring_fields, ARRAY_SIZE(ring_fields));
}

/* One "name value" a line behind the first `at` bytes of text; the bytes of all. */
int vma_text_sums(char *text, size_t size, int at, const u64 sum[VMA_SUMS])
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(socket_fields); i++)
		at += scnprintf(text + at, size - at, "%s %llu\n", socket_fields[i].name, sum[i]);
	for (i = 0; i < ARRAY_SIZE(ring_fields); i++)
		at += scnprintf(text + at, size - at, "%s %llu\n", ring_fields[i].name,
				sum[ARRAY_SIZE(socket_fields) + i]);
	return at;
}

/* The module's own counters in the same form. */
int vma_text_totals(char *text, size_t size)
{
	int i, at = 0;

	for (i = 0; i < VMA_TOTALS; i++)
		at += scnprintf(text + at, size - at, "%s %lld\n", vma_total_names[i],
				(long long)atomic64_read(&vma_totals[i]));
	return at;
}

/* Fills the line up with spaces, so that a reader who comes back finds each where it was. */
static void finish(char *line, int len, int width)
{
	memset(line + len, ' ', width - 1 - len);
	line[width - 1] = '\n';
}

static const char *clean(char to[16], const char from[16])
{
	int i;

	for (i = 0; i < 15 && READ_ONCE(from[i]); i++) {
		to[i] = READ_ONCE(from[i]);
		if (!isascii(to[i]) || !isgraph(to[i]))
			to[i] = '?';
	}
	to[i] = 0;
	return i ? to : "-";
}

/* Columns: what is longest of its kind fits, so that the lines of all blocks line up. */
#define NUMBER "%-20llu"
#define ADDRESS 48 /* with its end */

static const char *address(char to[ADDRESS], const struct vma_addr *from, u16 port)
{
	struct in6_addr a;

	memcpy(&a, from, sizeof(a));
	if (ipv6_addr_v4mapped(&a))
		scnprintf(to, ADDRESS, "%pI4:%u", &a.s6_addr32[3], port);
	else
		scnprintf(to, ADDRESS, "[%pI6c]:%u", &a, port);
	return to;
}

/* As netstat(8) names it; "-" for what has none. */
static const char *state_name(u8 proto, u8 state)
{
	static const char *const names[] = {
		[VMA_STATE_CLOSED] = "CLOSED",		 [VMA_STATE_LISTEN] = "LISTEN",
		[VMA_STATE_SYN_SENT] = "SYN_SENT",	 [VMA_STATE_SYN_RCVD] = "SYN_RCVD",
		[VMA_STATE_ESTABLISHED] = "ESTABLISHED", [VMA_STATE_FIN_WAIT_1] = "FIN_WAIT_1",
		[VMA_STATE_FIN_WAIT_2] = "FIN_WAIT_2",	 [VMA_STATE_CLOSE_WAIT] = "CLOSE_WAIT",
		[VMA_STATE_CLOSING] = "CLOSING",	 [VMA_STATE_LAST_ACK] = "LAST_ACK",
		[VMA_STATE_TIME_WAIT] = "TIME_WAIT",
	};

	return proto == IPPROTO_TCP && state < ARRAY_SIZE(names) ? names[state] : "-";
}

#define WHY_NAME(constant, name, text) name,

/* Why the kernel serves it, or a part of it; "-": it does not. The names are in their order. */
static const char *why_name(const struct vma_stats_socket *s)
{
	static const char *const names[VMA_WHYS] = {"-", VMA_WHY_LIST(WHY_NAME)};
	u32 i, reason = 0;

	for (i = 0; i < VMA_WHY_PATHS && !reason; i++)
		reason = READ_ONCE(s->why[i].reason);
	return reason < VMA_WHYS ? names[reason] : "-";
}

/**
 * vma_text_socket - a socket's line, VMA_SOCKET_LINE bytes with the newline
 * @line: to be filled; NULL: only the answer is wanted
 * @stats: the pages
 * @n: which block
 *
 * Return: false if the block is free.
 */
bool vma_text_socket(char *line, const struct vma_area *stats, u32 n)
{
	const struct vma_stats_socket *s = socket_at(stats, n);
	int max = VMA_SOCKET_LINE, len;
	bool used = READ_ONCE(s->enabled);
	u8 proto = READ_ONCE(s->proto);
	char local[ADDRESS], remote[ADDRESS];

	if (!used || !line)
		return used;
	len = scnprintf(line, max, "fd %-11d proto %-3s state %-11s local %-47s remote %-47s",
			READ_ONCE(s->fd),
			proto == IPPROTO_TCP   ? "tcp"
			: proto == IPPROTO_UDP ? "udp"
					       : "?",
			state_name(proto, READ_ONCE(s->state)),
			address(local, &s->local, READ_ONCE(s->local_port)),
			address(remote, &s->remote, READ_ONCE(s->remote_port)));
	len += scnprintf(line + len, max - len,
			 " rx_packets " NUMBER " rx_bytes " NUMBER " tx_packets " NUMBER
			 " tx_bytes " NUMBER,
			 READ_ONCE(s->rx.packets), READ_ONCE(s->rx.bytes), READ_ONCE(s->tx.packets),
			 READ_ONCE(s->tx.bytes));
	len += scnprintf(line + len, max - len,
			 " rx_drop_packets " NUMBER " rx_ready_bytes " NUMBER
			 " tx_ready_bytes " NUMBER,
			 READ_ONCE(s->rx_drop_packets), READ_ONCE(s->rx_ready_bytes),
			 READ_ONCE(s->tx_ready_bytes));
	len += scnprintf(line + len, max - len, " tx_retransmits " NUMBER " why %s",
			 READ_ONCE(s->tx_retransmits), why_name(s));
	finish(line, len, max);
	return true;
}

/* As vma_text_socket(): VMA_RING_LINE bytes. */
bool vma_text_ring(char *line, const struct vma_area *stats, u32 n)
{
	const struct vma_stats_ring *r = ring_at(stats, n);
	int max = VMA_RING_LINE, len;
	bool used = READ_ONCE(r->enabled);
	char name[16], type[16];
	u32 i;

	if (!used || !line)
		return used;
	len = scnprintf(line, max, "ifname %-15s ifindex %-11d type %-15s", clean(name, r->ifname),
			READ_ONCE(r->ifindex), clean(type, r->type));
	for (i = 0; i < ARRAY_SIZE(ring_fields); i++)
		len += scnprintf(line + len, max - len, " %s " NUMBER,
				 ring_fields[i].name + strlen("ring_"), value(r, &ring_fields[i]));
	finish(line, len, max);
	return true;
}

/**
 * vma_text_lines - a piece of the lines of all blocks in use, all of one width
 * @one: writes block n's line; false if it is free
 * @max: blocks
 * @width: of a line, at most VMA_RING_LINE
 * @stats: the pages
 * @to: to be filled
 * @at: where in the text the piece begins
 * @count: bytes
 *
 * A block that comes into use between two reads moves whole lines, never tears one.
 *
 * Return: bytes, less than count at the text's end.
 */
ssize_t vma_text_lines(bool (*one)(char *line, const struct vma_area *stats, u32 n), u32 max,
		       u32 width, const struct vma_area *stats, char *to, loff_t at, size_t count)
{
	char line[VMA_RING_LINE];
	size_t done = 0, piece;
	loff_t start = 0; /* of the next line */
	u32 n;

	for (n = 0; n < max && done < count && stats->at; n++) {
		bool wanted = start + width > at + (loff_t)done;

		if (!one(wanted ? line : NULL, stats, n))
			continue;
		if (wanted) {
			size_t from = at + done - start;

			piece = min(width - from, count - done);
			memcpy(to + done, line + from, piece);
			done += piece;
		}
		start += width;
	}
	return done;
}
