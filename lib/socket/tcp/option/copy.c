/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Options from one socket to another: what a connection begins with, what an accepted one has from
 * its listener, what a kernel socket gets that takes a connection over.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include "runtime/runtime.h"
#include "socket/tcp/internal.h"
#include "socket/tcp/option/rows.h"

static bool touched(const struct tcp_sock *s, const struct tcp_opt_row *r)
{
	return s->unconn.touched & opt_row_bit(r);
}

void tcp_sock_opts_read(struct tcp_sock *s, int fd, struct tcp_opts *o)
{
	const struct tcp_opt_row *r;

	*o = tcp_sock_defaults;
	for (size_t i = 0; (r = opt_row_at(i)); i++) {
		if (touched(s, r) && (r->kind == OPT_FIELD || r->kind == OPT_ENGINE))
			opt_mirror(r, fd, o);
	}
}

void tcp_sock_fields_inherit(const struct tcp_sock *from, struct tcp_sock *to)
{
	to->linger_s = from->linger_s;
	to->rcvlowat = from->rcvlowat;
	to->rcvtimeo_ns = from->rcvtimeo_ns;
	to->sndtimeo_ns = from->sndtimeo_ns;
	to->zerocopy = from->zerocopy;
	to->tells = from->tells & (uint8_t)~TCP_SOCK_SHOWS;
	to->mark = from->mark;
	to->bound_if = from->bound_if;
	to->v6only = from->v6only;
	to->unconn.touched = from->unconn.touched;
}

/* The kernel takes the time of SO_LINGER only together with on. */
static void set_linger_time(int fd, const void *val)
{
	struct linger l;

	memcpy(&l, val, sizeof(l));
	l.l_onoff = 1;
	(void)libc.setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
}

/* What one kernel socket has is set in the other, if that has it not. */
static void copy(const struct tcp_opt_row *r, int from_fd, int to_fd)
{
	uint8_t val[64] = {0}, has[64] = {0};
	socklen_t len = sizeof(val), has_len = sizeof(has);
	int x, read = opt_row_read(r);

	if (libc.getsockopt(from_fd, r->level, read, val, &len) || len > sizeof(val) ||
	    (!libc.getsockopt(to_fd, r->level, read, has, &has_len) && has_len == len &&
	     !memcmp(val, has, len)))
		return;
	if (opt_row_is_size(r)) { /* the kernel doubles what it is told */
		memcpy(&x, val, sizeof(x));
		x /= 2;
		memcpy(val, &x, sizeof(x));
	}
	if (opt_row_is(r, SOL_SOCKET, SO_LINGER))
		set_linger_time(to_fd, val);
	(void)libc.setsockopt(to_fd, r->level, r->opt, val, len);
}

void tcp_sock_opts_begin(struct tcp_sock *s, int fd, uint64_t now)
{
	if (s->tells & TCP_SOCK_SHOWS)
		tcp_sock_shows_begin(s);
	if (s->tells & TCP_SOCK_COMPLETIONS)
		tcp_sock_completion_begin(s);
	if (touched(s, opt_row_of(IPPROTO_TCP, TCP_QUICKACK)))
		tcp_quickack(s->c, opt_get_int(fd, IPPROTO_TCP, TCP_QUICKACK, 1), now);
}

/* Who has another one is the kernel's for good: and SO_ATTACH_FILTER counts its length otherwise.
 */
static bool copied(const struct tcp_opt_row *r)
{
	return r->kind != OPT_ASK && r->kind != OPT_ASK_ADDRESS && r->kind != OPT_ASK_KERNEL &&
	       r->kind != OPT_MOVES;
}

/* The kernel begins anew with it in an accepted socket. */
static bool is_anew(const struct tcp_opt_row *r)
{
	return opt_row_is(r, SOL_SOCKET, SO_PRIORITY) || opt_row_is(r, IPPROTO_TCP, TCP_FASTOPEN) ||
	       opt_row_is(r, IPPROTO_TCP, TCP_FASTOPEN_KEY);
}

void tcp_sock_opts_inherit(const struct tcp_sock *from, int from_fd, int fd)
{
	const struct tcp_opt_row *r;

	/* What is read back from the kernel socket must be there; the engine answers for fields. */
	for (size_t i = 0; (r = opt_row_at(i)); i++) {
		if (touched(from, r) && r->kind != OPT_FIELD && copied(r) && !is_anew(r))
			copy(r, from_fd, fd);
	}
}

void tcp_sock_opts_copy(const struct tcp_sock *s, int from_fd, int to_fd)
{
	const struct tcp_opt_row *r;

	for (size_t i = 0; (r = opt_row_at(i)); i++) {
		if (touched(s, r) && copied(r))
			copy(r, from_fd, to_fd);
	}
}

void tcp_sock_opts_to_kernel(const struct tcp_sock *s, int fd, const struct tcp_opts *o)
{
	const struct tcp_opt_row *r;

	for (size_t i = 0; (r = opt_row_at(i)); i++) {
		/* VMA_TCP_NODELAY sets it, too */
		bool nodelay = opt_row_is(r, IPPROTO_TCP, TCP_NODELAY);
		uint64_t v;

		if (r->kind != OPT_FIELD || (!touched(s, r) && !nodelay) ||
		    (s->domain == AF_INET && r->level == IPPROTO_IPV6))
			continue;
		v = opt_field_get(o, r);
		if (opt_row_is_size(r)) /* the kernel doubles what it is told */
			v /= 2;
		(void)libc.setsockopt(fd, r->level, r->opt, &v, r->size == 8 ? 8 : 4);
	}
}
