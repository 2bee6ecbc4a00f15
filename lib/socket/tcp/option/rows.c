/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The table of socket options, and its rows of which the engine has a copy: between the kernel
 * socket, where the user sets and reads them, and tcp_opts.
 */
#include <errno.h>
#include <string.h>

#include "runtime/runtime.h"
#include "vma/sockopt_numbers.h"
#include "socket/tcp/internal.h"
#include "socket/tcp/option/rows.h"

/* tcp_opts.notsent_lowat: "the stack's" is the kernel's 0, and this its -1. */
#define LOWAT_MAX (UINT32_MAX - 1)

#define ROW_FIELD(field, mul)                                                                      \
	.kind = OPT_FIELD, .off = offsetof(struct tcp_opts, field),                                \
	.size = sizeof(((struct tcp_opts *)0)->field), .scale = (mul)
#define ROW_ENGINE .kind = OPT_ENGINE
#define ROW_SOCK .kind = OPT_SOCK
#define ROW_ASK .kind = OPT_ASK
#define ROW_ASK_ADDRESS .kind = OPT_ASK_ADDRESS
#define ROW_ASK_KERNEL .kind = OPT_ASK_KERNEL
#define ROW_KEPT .kind = OPT_KEPT
#define ROW_ASLEEP(from, to) .kind = OPT_ASLEEP, .lo = (from), .hi = (to)
#define ROW_EARLY(from, to) .kind = OPT_EARLY, .lo = (from), .hi = (to)
#define ROW_NO_CONN(no, from, to) .kind = OPT_NO_CONN, .err = (no), .lo = (from), .hi = (to)
#define ROW_MOVES .kind = OPT_MOVES, .lo = 1, .hi = 0
#define OPTION(at, name, done) {.level = (at), .opt = (name), ROW_##done},

static const struct tcp_opt_row rows[] = {
#include "socket/tcp/option/rows.def"
};

#define NUM_ROWS (sizeof(rows) / sizeof(rows[0]))
#define OWN_BITS 56u
#define SHARED_BITS 8u

const struct tcp_opt_row *opt_row_at(size_t n)
{
	return n < NUM_ROWS ? &rows[n] : NULL;
}

const struct tcp_opt_row *opt_row_of(int level, int opt)
{
	for (size_t i = 0; i < NUM_ROWS; i++) {
		if (rows[i].level == level && rows[i].opt == opt)
			return &rows[i];
	}
	return NULL;
}

uint64_t opt_row_bit(const struct tcp_opt_row *r)
{
	size_t n = (size_t)(r - rows);

	return 1ull << (n < OWN_BITS ? n : OWN_BITS + n % SHARED_BITS);
}

bool opt_row_is(const struct tcp_opt_row *r, int level, int opt)
{
	return r->level == level && r->opt == opt;
}

bool opt_row_is_size(const struct tcp_opt_row *r)
{
	return r->kind == OPT_FIELD && (r->off == offsetof(struct tcp_opts, sndbuf) ||
					r->off == offsetof(struct tcp_opts, rcvbuf));
}

int opt_row_read(const struct tcp_opt_row *r)
{
	if (!opt_row_is_size(r))
		return r->opt;
	return r->off == offsetof(struct tcp_opts, sndbuf) ? SO_SNDBUF : SO_RCVBUF;
}

void opt_field_put(struct tcp_opts *o, const struct tcp_opt_row *r, uint64_t v)
{
	uint8_t *at = (uint8_t *)o + r->off;

	switch (r->size) {
	case 1:
		*at = (uint8_t)v;
		break;
	case 2: {
		uint16_t x = (uint16_t)v;

		memcpy(at, &x, sizeof(x));
		break;
	}
	case 4: {
		uint32_t x = v > UINT32_MAX ? UINT32_MAX : (uint32_t)v;

		memcpy(at, &x, sizeof(x));
		break;
	}
	default:
		memcpy(at, &v, sizeof(v));
	}
}

uint64_t opt_field_get(const struct tcp_opts *o, const struct tcp_opt_row *r)
{
	const uint8_t *at = (const uint8_t *)o + r->off;
	uint64_t v = 0;

	memcpy(&v, at, r->size); /* little-endian, as all that have XDP rings here */
	if (opt_row_is(r, IPPROTO_TCP, TCP_NOTSENT_LOWAT))
		return v == UINT32_MAX ? 0 : v == LOWAT_MAX ? UINT32_MAX : v;
	if (opt_row_is(r, IPPROTO_TCP, TCP_LINGER2) && !v)
		return UINT64_MAX;
	return r->scale ? v / r->scale : v;
}

const char *const tcp_sock_cc_names[TCP_CC_COUNT] = {
	[TCP_CC_NEWRENO] = "reno",
	[TCP_CC_CUBIC] = "cubic",
	[TCP_CC_NONE] = "none",
	[TCP_CC_BBR] = "bbr",
};

enum tcp_cc tcp_sock_cc_of(const char *name)
{
	for (unsigned i = 0; i < TCP_CC_COUNT; i++)
		if (!strcmp(name, tcp_sock_cc_names[i]))
			return (enum tcp_cc)i;
	return TCP_CC_NEWRENO;
}

/* TCP_CONGESTION, and which buffers are not tuned. */
static void mirror_engine(const struct tcp_opt_row *r, int fd, struct tcp_opts *o)
{
	char name[16] = "";
	socklen_t len = sizeof(name) - 1;
	int lock;

	if (opt_row_is(r, IPPROTO_TCP, TCP_CONGESTION)) {
		if (!libc.getsockopt(fd, r->level, r->opt, name, &len))
			o->cc = (uint8_t)tcp_sock_cc_of(name);
		return;
	}
	lock = opt_get_int(fd, SOL_SOCKET, SO_BUF_LOCK, 0);
	o->sndbuf_max = lock & SOCK_SNDBUF_LOCK ? o->sndbuf : tcp_sock_defaults.sndbuf_max;
	o->rcvbuf_max = lock & SOCK_RCVBUF_LOCK ? o->rcvbuf : tcp_sock_defaults.rcvbuf_max;
}

void opt_mirror(const struct tcp_opt_row *r, int fd, struct tcp_opts *o)
{
	uint64_t v = 0;
	socklen_t len = opt_row_is(r, SOL_SOCKET, SO_MAX_PACING_RATE) ? 8 : 4;

	if (r->kind == OPT_ENGINE) {
		mirror_engine(r, fd, o);
		return;
	}
	if (libc.getsockopt(fd, r->level, opt_row_read(r), &v, &len))
		return;
	if (opt_row_is(r, IPPROTO_TCP, TCP_NOTSENT_LOWAT))
		v = !v ? UINT32_MAX : v == UINT32_MAX ? LOWAT_MAX : v;
	else if (len == 4 && (int32_t)v < 0) /* TCP_LINGER2 off */
		v = 0;
	if (r->scale)
		v *= r->scale;
	opt_field_put(o, r, v);
	/* A size that the user has chosen is not tuned any more. */
	if (r->off == offsetof(struct tcp_opts, sndbuf))
		o->sndbuf_max = o->sndbuf;
	if (r->off == offsetof(struct tcp_opts, rcvbuf))
		o->rcvbuf_max = o->rcvbuf;
}

int opt_get_int(int fd, int level, int opt, int fallback)
{
	int v = fallback;
	socklen_t len = sizeof(v);

	return libc.getsockopt(fd, level, opt, &v, &len) ? fallback : v;
}

int opt_set_int(int fd, int level, int opt, int value)
{
	return libc.setsockopt(fd, level, opt, &value, sizeof(value)) ? -errno : 0;
}
