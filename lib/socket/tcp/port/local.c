/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The local port of a connect(): reserved by binding the kernel socket. bind() with port 0 would
 * choose blindly, and what it has chosen cannot be given back; so the candidates are ours, those of
 * connect() in the kernel, and each is asked for by number.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/proto.h"
#include "runtime/runtime.h"
#include "socket/socket.h"
#include "socket/tcp/internal.h"

static uint16_t low = 32768, high = 60999;
static uint64_t reserved[65536 / 64]; /* net.ipv4.ip_local_reserved_ports */

/* Where the search of a destination begins, and how far it has come (RFC 6056, 3.3.4). */
#define SEARCHES 256
#define BLOCKS_MIN 64u /* in the range, for one to be taken */
static uint64_t secret[2];
static _Atomic uint32_t searched[SEARCHES];

static void read_reserved(char *text)
{
	char *at = text, *end;

	for (;;) {
		unsigned long from = strtoul(at, &end, 10), to = from;

		if (end == at)
			return;
		if (*end == '-')
			to = strtoul(end + 1, &end, 10);
		for (unsigned long p = from; p <= to && p < 65536; p++)
			reserved[p / 64] |= 1ull << p % 64;
		if (*end != ',')
			return;
		at = end + 1;
	}
}

void tcp_sock_ports_read(void)
{
	char text[4096], *end;
	unsigned long from, to;

	text_file_read("/proc/sys/net/ipv4/ip_local_port_range", text, sizeof(text));
	from = strtoul(text, &end, 10);
	to = strtoul(end, NULL, 10);
	if (from && from <= to && to < 65536) {
		low = (uint16_t)from;
		high = (uint16_t)to;
	}
	memset(reserved, 0, sizeof(reserved));
	text_file_read("/proc/sys/net/ipv4/ip_local_reserved_ports", text, sizeof(text));
	read_reserved(text);
	libc_raw(SYS_getrandom, (long)(uintptr_t)secret, sizeof(secret), GRND_NONBLOCK, 0, 0, 0);
}

void tcp_sock_ports_forked(void)
{
	/* or parent and child would ask for the same ports */
	secret[1] ^= (uint64_t)getpid() << 32;
}

uint64_t tcp_sock_ports_random(void)
{
	static _Atomic uint64_t asked;
	uint64_t n = atomic_fetch_add_explicit(&asked, 1, memory_order_relaxed);

	return siphash(secret, &n, sizeof(n));
}

/* What the administrator has reserved is somebody's. */
static bool none_reserved(uint32_t from, uint32_t num)
{
	for (uint32_t p = from; p < from + num; p++) {
		if (reserved[p / 64] >> p % 64 & 1)
			return false;
	}
	return true;
}

uint16_t tcp_sock_ports_block(unsigned bits)
{
	uint32_t first = (low + (1u << bits) - 1) >> bits, end = (high + 1u) >> bits, block;

	/* Few ports are for asking one by one. */
	if (end < first + BLOCKS_MIN)
		return 0;
	block = first + (uint32_t)(tcp_sock_ports_random() % (end - first));
	return none_reserved(block << bits, 1u << bits) ? (uint16_t)(block << bits) : 0;
}

/* fn of stacks_any_on(). */
static bool taken(struct stack *st, void *t)
{
	return st->tcp && tcp_tuple_taken(st->tcp->ts, t, tcp_sock_now_us());
}

/* The kernel socket gets the address; a TIME_WAIT of ours that has its port lets go of it. */
static int bind_to(int fd, const struct sockaddr_storage *ss, socklen_t len, uint16_t port)
{
	int err = libc.bind(fd, (const struct sockaddr *)ss, len);

	if (err && errno == EADDRINUSE && tcp_sock_port_steal(port))
		err = libc.bind(fd, (const struct sockaddr *)ss, len);
	return err ? -errno : 0;
}

/* The search of a destination, and what a stranger does not know of where it begins. */
static _Atomic uint32_t *search_of(const struct tcp_tuple *t, uint32_t *offset)
{
	struct tcp_tuple to = *t;
	uint64_t hash;

	to.lport = 0;
	hash = siphash(secret, &to, sizeof(to));
	*offset = (uint32_t)(hash >> 32);
	return &searched[hash % SEARCHES];
}

void tcp_sock_ports_skip(const struct tcp_tuple *t, uint32_t num)
{
	uint32_t offset;

	atomic_fetch_add_explicit(search_of(t, &offset), num, memory_order_relaxed);
}

int tcp_sock_port_take(int domain, int fd, struct stack *st, struct tcp_tuple *t)
{
	uint32_t span = (uint32_t)(high - low) + 1, half = (span + 1) / 2, at, offset;
	_Atomic uint32_t *search = search_of(t, &offset);
	struct sockaddr_storage ss;
	socklen_t len;
	int err;

	/*
	 * One after the other, so that a port comes again only after all the others: a search from
	 * a random place, or always from the same, would meet more and more TIME_WAITs. Every
	 * second one first, as connect() in the kernel leaves the rest to bind().
	 */
	at = offset % half + atomic_load_explicit(search, memory_order_relaxed) % span;
	for (uint32_t n = 0; n < span; n++) {
		uint32_t i = (at + n) % span;

		t->lport = (uint16_t)(low + (i < half ? 2 * i : 2 * (i - half) + 1));
		if (reserved[t->lport / 64] >> t->lport % 64 & 1 ||
		    /* A connection, or a TIME_WAIT of ours, has the tuple. */
		    stacks_any_on(st->ifindex, taken, t))
			continue;
		len = sock_addr_put(domain, &t->local, t->lport, (uint32_t)st->ifindex, &ss);
		err = bind_to(fd, &ss, len, t->lport);
		if (!err)
			atomic_fetch_add_explicit(search, n + 1, memory_order_relaxed);
		if (err != -EADDRINUSE)
			return err;
	}
	return -EADDRNOTAVAIL;
}
