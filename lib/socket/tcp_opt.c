/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Options. The kernel socket is asked first and keeps every option, so errno and what reads back are its own; what the engine
 * knows is copied into the connection by reading it back. An option that is in no row is not done here: a socket that has it
 * is not offloaded, a connection refuses it.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/tcp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "net/net.h"
#include "runtime/libc.h"
#include "runtime/params.h"
#include "socket/tcp_int.h"

#ifndef SO_PREFER_BUSY_POLL
#define SO_PREFER_BUSY_POLL 69
#define SO_BUSY_POLL_BUDGET 70
#endif
#ifndef SO_RESERVE_MEM
#define SO_RESERVE_MEM 73
#endif

struct tsock_last {
	struct tcp_opts o;
	struct tcp_info info;
	uint32_t mss, mtu;
};

enum opt_kind {
	OPT_FIELD, /* a number in tcp_opts */
	OPT_KERNEL, /* nothing that user space does differently */
	OPT_SOCK, /* mirrored into the tsock */
	OPT_CC, /* TCP_CONGESTION */
	OPT_ASK, /* answered by the engine, never stored */
};

struct opt_row {
	int level, opt;
	enum opt_kind kind;
	uint16_t off; /* in tcp_opts */
	uint8_t size; /* of the field there */
	uint16_t scale; /* field = option * scale; 0: 1 */
};

#define F(field) OPT_FIELD, offsetof(struct tcp_opts, field), sizeof(((struct tcp_opts *)0)->field)

static const struct opt_row rows[] = {
	{ SOL_SOCKET, SO_SNDBUF, F(sndbuf), 0 },
	{ SOL_SOCKET, SO_SNDBUFFORCE, F(sndbuf), 0 },
	{ SOL_SOCKET, SO_RCVBUF, F(rcvbuf), 0 },
	{ SOL_SOCKET, SO_RCVBUFFORCE, F(rcvbuf), 0 },
	{ SOL_SOCKET, SO_KEEPALIVE, F(keepalive), 0 },
	{ SOL_SOCKET, SO_OOBINLINE, F(oobinline), 0 },
	{ SOL_SOCKET, SO_MAX_PACING_RATE, F(pacing_rate), 0 },
	{ IPPROTO_TCP, TCP_NODELAY, F(nodelay), 0 },
	{ IPPROTO_TCP, TCP_CORK, F(cork), 0 },
	{ IPPROTO_TCP, TCP_QUICKACK, F(quickack), 0 },
	{ IPPROTO_TCP, TCP_MAXSEG, F(maxseg), 0 },
	{ IPPROTO_TCP, TCP_KEEPIDLE, F(keepidle_s), 0 },
	{ IPPROTO_TCP, TCP_KEEPINTVL, F(keepintvl_s), 0 },
	{ IPPROTO_TCP, TCP_KEEPCNT, F(keepcnt), 0 },
	{ IPPROTO_TCP, TCP_SYNCNT, F(syn_retries), 0 },
	{ IPPROTO_TCP, TCP_USER_TIMEOUT, F(user_timeout_ms), 0 },
	{ IPPROTO_TCP, TCP_LINGER2, F(linger2_ms), 1000 },
	{ IPPROTO_TCP, TCP_DEFER_ACCEPT, F(defer_accept_s), 0 },
	{ IPPROTO_TCP, TCP_WINDOW_CLAMP, F(window_clamp), 0 },
	{ IPPROTO_TCP, TCP_NOTSENT_LOWAT, F(notsent_lowat), 0 },
	{ IPPROTO_IP, IP_TOS, F(tos), 0 },
	{ IPPROTO_IP, IP_TTL, F(ttl), 0 },
	{ IPPROTO_IPV6, IPV6_TCLASS, F(tos), 0 },
	{ IPPROTO_IPV6, IPV6_UNICAST_HOPS, F(ttl), 0 },
	{ IPPROTO_TCP, TCP_CONGESTION, OPT_CC, 0, 0, 0 },
	{ IPPROTO_TCP, TCP_INFO, OPT_ASK, 0, 0, 0 },
	{ SOL_SOCKET, SO_ERROR, OPT_ASK, 0, 0, 0 },
	{ IPPROTO_IP, IP_MTU, OPT_ASK, 0, 0, 0 },
	{ IPPROTO_IPV6, IPV6_MTU, OPT_ASK, 0, 0, 0 },
	{ SOL_SOCKET, SO_LINGER, OPT_SOCK, 0, 0, 0 },
	{ SOL_SOCKET, SO_RCVLOWAT, F(rcvlowat), 0 },
	{ SOL_SOCKET, SO_RCVTIMEO_OLD, OPT_SOCK, 0, 0, 0 },
	{ SOL_SOCKET, SO_RCVTIMEO_NEW, OPT_SOCK, 0, 0, 0 },
	{ SOL_SOCKET, SO_SNDTIMEO_OLD, OPT_SOCK, 0, 0, 0 },
	{ SOL_SOCKET, SO_SNDTIMEO_NEW, OPT_SOCK, 0, 0, 0 },
	{ SOL_SOCKET, SO_ZEROCOPY, OPT_SOCK, 0, 0, 0 },
	{ SOL_SOCKET, SO_MARK, OPT_SOCK, 0, 0, 0 },
	{ SOL_SOCKET, SO_BINDTODEVICE, OPT_SOCK, 0, 0, 0 },
	{ SOL_SOCKET, SO_BINDTOIFINDEX, OPT_SOCK, 0, 0, 0 },
	{ SOL_SOCKET, SO_REUSEADDR, OPT_KERNEL, 0, 0, 0 },
	{ SOL_SOCKET, SO_REUSEPORT, OPT_KERNEL, 0, 0, 0 },
	{ SOL_SOCKET, SO_BROADCAST, OPT_KERNEL, 0, 0, 0 },
	{ SOL_SOCKET, SO_DEBUG, OPT_KERNEL, 0, 0, 0 },
	{ SOL_SOCKET, SO_PRIORITY, OPT_KERNEL, 0, 0, 0 },
	{ SOL_SOCKET, SO_BUSY_POLL, OPT_KERNEL, 0, 0, 0 },
	{ SOL_SOCKET, SO_PREFER_BUSY_POLL, OPT_KERNEL, 0, 0, 0 },
	{ SOL_SOCKET, SO_BUSY_POLL_BUDGET, OPT_KERNEL, 0, 0, 0 },
	{ SOL_SOCKET, SO_INCOMING_CPU, OPT_KERNEL, 0, 0, 0 },
	{ SOL_SOCKET, SO_RESERVE_MEM, OPT_KERNEL, 0, 0, 0 },
	{ SOL_SOCKET, SO_TYPE, OPT_KERNEL, 0, 0, 0 },
	{ SOL_SOCKET, SO_DOMAIN, OPT_KERNEL, 0, 0, 0 },
	{ SOL_SOCKET, SO_PROTOCOL, OPT_KERNEL, 0, 0, 0 },
	{ SOL_SOCKET, SO_ACCEPTCONN, OPT_KERNEL, 0, 0, 0 },
	{ SOL_SOCKET, SO_SNDLOWAT, OPT_KERNEL, 0, 0, 0 },
	{ IPPROTO_IP, IP_RECVERR, OPT_KERNEL, 0, 0, 0 },
	{ IPPROTO_IP, IP_FREEBIND, OPT_KERNEL, 0, 0, 0 },
	{ IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, OPT_KERNEL, 0, 0, 0 },
	{ IPPROTO_IP, IP_MTU_DISCOVER, OPT_KERNEL, 0, 0, 0 }, /* DF is always set, as Linux's default has it */
	{ IPPROTO_IPV6, IPV6_V6ONLY, OPT_KERNEL, 0, 0, 0 },
	{ IPPROTO_IPV6, IPV6_RECVERR, OPT_KERNEL, 0, 0, 0 },
	{ IPPROTO_IPV6, IPV6_FREEBIND, OPT_KERNEL, 0, 0, 0 },
	{ IPPROTO_IPV6, IPV6_MTU_DISCOVER, OPT_KERNEL, 0, 0, 0 },
};

#define NUM_ROWS (sizeof(rows) / sizeof(rows[0]))
_Static_assert(NUM_ROWS <= 64, "a bit for each row");

static const struct opt_row *row_of(int level, int opt)
{
	for (size_t i = 0; i < NUM_ROWS; i++) {
		if (rows[i].level == level && rows[i].opt == opt)
			return &rows[i];
	}
	return NULL;
}

static void field_put(struct tcp_opts *o, const struct opt_row *r, uint64_t v)
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

static uint64_t field_get(const struct tcp_opts *o, const struct opt_row *r)
{
	const uint8_t *at = (const uint8_t *)o + r->off;
	uint64_t v = 0;

	memcpy(&v, at, r->size); /* little-endian, as all that have XDP rings here */
	return r->scale ? v / r->scale : v;
}

static enum tcp_cc cc_of(const char *name)
{
	if (!strcmp(name, "cubic"))
		return TCP_CC_CUBIC;
	return strcmp(name, "none") ? TCP_CC_NEWRENO : TCP_CC_NONE;
}

/* Copies the option from the kernel socket into o. */
static void mirror(const struct opt_row *r, int fd, struct tcp_opts *o)
{
	uint64_t v = 0;
	socklen_t len = r->opt == SO_MAX_PACING_RATE && r->level == SOL_SOCKET ? 8 : 4;
	char name[16] = "";
	int force = r->opt == SO_SNDBUFFORCE ? SO_SNDBUF : r->opt == SO_RCVBUFFORCE ? SO_RCVBUF : r->opt;

	if (r->kind == OPT_CC) {
		len = sizeof(name) - 1;
		if (!libc.getsockopt(fd, r->level, r->opt, name, &len))
			o->cc = (uint8_t)cc_of(name);
		return;
	}
	if (libc.getsockopt(fd, r->level, r->level == SOL_SOCKET ? force : r->opt, &v, &len))
		return;
	if (len == 4 && (int32_t)v < 0) /* TCP_LINGER2 off */
		v = 0;
	if (r->scale)
		v *= r->scale;
	if (r->level == IPPROTO_TCP && r->opt == TCP_NOTSENT_LOWAT && !v)
		v = UINT32_MAX;
	field_put(o, r, v);
	/* A size that the user has chosen is not tuned any more. */
	if (r->off == offsetof(struct tcp_opts, sndbuf))
		o->sndbuf_max = o->sndbuf;
	if (r->off == offsetof(struct tcp_opts, rcvbuf))
		o->rcvbuf_max = o->rcvbuf;
}

void tsock_opts_read(struct tsock *s, int fd, struct tcp_opts *o)
{
	*o = tsock_defaults;
	for (size_t i = 0; i < NUM_ROWS; i++) {
		if (!(s->spare.touched >> i & 1) || (rows[i].kind != OPT_FIELD && rows[i].kind != OPT_CC))
			continue;
		mirror(&rows[i], fd, o);
	}
}

static uint64_t get_timeout(int fd, int opt)
{
	struct timeval tv = { 0 };
	socklen_t len = sizeof(tv);

	if (libc.getsockopt(fd, SOL_SOCKET, opt, &tv, &len))
		return 0;
	return (uint64_t)tv.tv_sec * 1000000000u + (uint64_t)tv.tv_usec * 1000u;
}

static int get_int(int fd, int level, int opt, int fallback)
{
	int v = fallback;
	socklen_t len = sizeof(v);

	return libc.getsockopt(fd, level, opt, &v, &len) ? fallback : v;
}

/* Copies what the calls themselves need. */
static void mirror_sock(struct tsock *s, int fd, int opt)
{
	struct linger l = { 0 };
	socklen_t len = sizeof(l);

	switch (opt) {
	case SO_LINGER:
		if (!libc.getsockopt(fd, SOL_SOCKET, SO_LINGER, &l, &len))
			s->linger_s = l.l_onoff ? l.l_linger : -1;
		break;
	case SO_RCVLOWAT:
		s->rcvlowat = (uint32_t)get_int(fd, SOL_SOCKET, SO_RCVLOWAT, 1);
		break;
	case SO_RCVTIMEO_OLD:
	case SO_RCVTIMEO_NEW:
		s->rcvtimeo_ns = get_timeout(fd, SO_RCVTIMEO_OLD);
		break;
	case SO_SNDTIMEO_OLD:
	case SO_SNDTIMEO_NEW:
		s->sndtimeo_ns = get_timeout(fd, SO_SNDTIMEO_OLD);
		break;
	case SO_ZEROCOPY:
		s->zerocopy = get_int(fd, SOL_SOCKET, SO_ZEROCOPY, 0) != 0;
		break;
	case SO_MARK:
		s->mark = (uint32_t)get_int(fd, SOL_SOCKET, SO_MARK, 0);
		tsock_way_renew(s);
		break;
	default:
		s->bound_if = get_int(fd, SOL_SOCKET, SO_BINDTOIFINDEX, 0);
	}
}

/* What an offloaded connection or listener has of it changes now. s->lock is held. */
static void apply(struct tsock *s, int fd, const struct opt_row *r)
{
	struct stack *st;
	struct tcp_opts o;
	uint64_t now;

	if (tsock_mode(s) == TSOCK_LISTEN) {
		tsock_opts_read(s, fd, &o);
		for (struct tsock_att *att = s->spare.atts; att; att = att->next) {
			lock_take(&att->st->lock);
			if (att->l)
				tcp_listen_opts(att->l, &o);
			lock_drop(&att->st->lock);
		}
		return;
	}
	st = tsock_mode(s) == TSOCK_CONN ? tsock_conn_lock(s) : NULL;
	if (!st) {
		if (tsock_mode(s) == TSOCK_CONN && s->last)
			mirror(r, fd, &s->last->o);
		return;
	}
	now = tsock_now();
	o = *tcp_get_opts(s->c);
	mirror(r, fd, &o);
	tcp_set_opts(s->c, &o, now);
	if (r->off == offsetof(struct tcp_opts, rcvlowat) && tcp_inq(s->c)) /* whoever polls may have enough now */
		vfd_notify(&s->v, EPOLLIN);
	tsock_unlock_stack(st, now);
}

/* VMA_AVOID_SYS_CALLS_ON_TCP_FD: what the kernel would take without a word, and would only keep. */
static const struct {
	int level, opt, min, max;
} plain[] = {
	{ SOL_SOCKET, SO_KEEPALIVE, 0, 1 },
	{ SOL_SOCKET, SO_OOBINLINE, 0, 1 },
	{ IPPROTO_TCP, TCP_NODELAY, 0, 1 },
	{ IPPROTO_TCP, TCP_CORK, 0, 1 },
	{ IPPROTO_TCP, TCP_QUICKACK, 0, 1 },
	{ IPPROTO_TCP, TCP_KEEPIDLE, 1, INT16_MAX },
	{ IPPROTO_TCP, TCP_KEEPINTVL, 1, INT16_MAX },
	{ IPPROTO_TCP, TCP_KEEPCNT, 1, INT8_MAX },
	{ IPPROTO_TCP, TCP_USER_TIMEOUT, 0, INT32_MAX },
	{ IPPROTO_TCP, TCP_NOTSENT_LOWAT, 1, INT32_MAX },
};

static bool is_plain(const struct opt_row *r, int x)
{
	for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++) {
		if (plain[i].level == r->level && plain[i].opt == r->opt)
			return x >= plain[i].min && x <= plain[i].max;
	}
	return false;
}

/* Sets the option in the engine alone. False: it is not such a one, or there is no connection; s->lock is held. */
static bool set_here(struct tsock *s, const struct opt_row *r, const void *val, socklen_t len)
{
	struct stack *st;
	struct tcp_opts o;
	uint64_t now;
	int x;

	if (tsock_mode(s) != TSOCK_CONN || !val || len < sizeof(x))
		return false;
	memcpy(&x, val, sizeof(x));
	if (!is_plain(r, x) || !(st = tsock_conn_lock(s)))
		return false;
	now = tsock_now();
	o = *tcp_get_opts(s->c);
	field_put(&o, r, (uint64_t)x);
	tcp_set_opts(s->c, &o, now);
	tsock_unlock_stack(st, now);
	s->spare.touched |= 1ull << (r - rows); /* it goes along when the connection goes home */
	s->untold = true;
	return true;
}

int tsock_setsockopt(struct vfd *v, int fd, int level, int opt, const void *val, socklen_t len)
{
	struct tsock *s = tsock_of(v);
	const struct opt_row *r = row_of(level, opt);
	int ret, cancel;

	if (!r && tsock_mode(s) == TSOCK_CONN) {
		errno = ENOPROTOOPT;
		return -1;
	}
	if (!tsock_lock_live(s, fd, &cancel))
		return libc.setsockopt(fd, level, opt, val, len);
	if (params.avoid_sys_calls_on_tcp_fd && r && set_here(s, r, val, len)) {
		tsock_unlock(s, cancel);
		return 0;
	}
	ret = libc.setsockopt(fd, level, opt, val, len);
	if (ret) {
		tsock_unlock(s, cancel);
		return ret;
	}
	libc_internal++;
	if (!r) {
		s->spare.no_offload = true;
		/* Its connections would lack the option: the kernel takes them from now on. */
		if (tsock_mode(s) == TSOCK_LISTEN)
			tsock_unlisten(s);
	} else {
		s->spare.touched |= 1ull << (r - rows);
		if (r->kind == OPT_SOCK)
			mirror_sock(s, fd, opt);
		else if (r->kind == OPT_FIELD || r->kind == OPT_CC)
			apply(s, fd, r);
		if (level == SOL_SOCKET && opt == SO_RCVLOWAT) /* reading calls look at it without the engine */
			mirror_sock(s, fd, opt);
		if (level == SOL_SOCKET && (opt == SO_BINDTODEVICE || opt == SO_BINDTOIFINDEX))
			tsock_relisten(s);
	}
	libc_internal--;
	tsock_unlock(s, cancel);
	return 0;
}

void tsock_fields_inherit(const struct tsock *from, struct tsock *to)
{
	to->linger_s = from->linger_s;
	to->rcvlowat = from->rcvlowat;
	to->rcvtimeo_ns = from->rcvtimeo_ns;
	to->sndtimeo_ns = from->sndtimeo_ns;
	to->zerocopy = from->zerocopy;
	to->mark = from->mark;
	to->bound_if = from->bound_if;
	to->spare.touched = from->spare.touched;
}

void tsock_opts_inherit(const struct tsock *from, int from_fd, int fd)
{
	uint64_t touched = from->spare.touched;

	/* What is read back from the kernel socket must be there. Sizes read back doubled; the engine answers for those. */
	for (size_t i = 0; i < NUM_ROWS; i++) {
		uint8_t val[64];
		socklen_t len = sizeof(val);

		if (!(touched >> i & 1) || rows[i].kind == OPT_FIELD || rows[i].kind == OPT_ASK ||
		    (rows[i].level == SOL_SOCKET && rows[i].opt == SO_PRIORITY)) /* the kernel begins anew with it */
			continue;
		if (!libc.getsockopt(from_fd, rows[i].level, rows[i].opt, val, &len))
			(void)libc.setsockopt(fd, rows[i].level, rows[i].opt, val, len);
	}
}

/* Gives `from` (n bytes) to the caller as getsockopt() does. */
static int give(void *val, socklen_t *len, const void *from, size_t n)
{
	if (*len > INT32_MAX) {
		errno = EINVAL;
		return -1;
	}
	if (*len < n)
		n = *len;
	memcpy(val, from, n);
	*len = (socklen_t)n;
	return 0;
}

/* What s's connection says; the stack's lock is held. */
static void look(struct tsock *s, struct tsock_last *is)
{
	uint32_t gso;

	is->o = *tcp_get_opts(s->c);
	(void)tcp_fill_info(s->c, &is->info, sizeof(is->info), tsock_now());
	is->mss = tcp_mss(s->c);
	is->mtu = is->info.tcpi_pmtu;
	if (!is->mtu) /* nothing was sent yet */
		tsock_env_path(atomic_load_explicit(&s->st, memory_order_relaxed), &s->tuple, &is->mtu, &gso);
}

void tsock_opts_keep(struct tsock *s)
{
	if (!s->last)
		s->last = malloc(sizeof(*s->last));
	if (!s->last)
		return;
	look(s, s->last);
	s->last->info.tcpi_state = TCPS_CLOSED;
}

/* An option that the engine knows better than the idle kernel socket. */
static int get_from(const struct tsock_last *is, const struct opt_row *r, void *val, socklen_t *len)
{
	static const char *const cc[] = { [TCP_CC_NEWRENO] = "reno", [TCP_CC_CUBIC] = "cubic", [TCP_CC_NONE] = "none" };
	char name[16] = "";
	uint64_t v;
	int x;

	if (r->kind == OPT_CC) {
		strcpy(name, cc[is->o.cc < TCP_CC_COUNT ? is->o.cc : 0]);
		return give(val, len, name, sizeof(name));
	}
	if (r->level == IPPROTO_TCP && r->opt == TCP_INFO)
		return give(val, len, &is->info, sizeof(is->info));
	if (r->kind == OPT_ASK || (r->level == IPPROTO_TCP && r->opt == TCP_MAXSEG)) {
		x = (int)(r->kind == OPT_ASK ? is->mtu : is->mss);
		return give(val, len, &x, sizeof(x));
	}
	v = field_get(&is->o, r);
	if (r->opt == TCP_NOTSENT_LOWAT && r->level == IPPROTO_TCP && v == UINT32_MAX)
		v = 0; /* never set: the kernel's own default applies, and reads so */
	if (r->size == 8 && *len >= 8)
		return give(val, len, &v, sizeof(v));
	x = (int)v;
	return give(val, len, &x, sizeof(x));
}

/* SO_ERROR: of the connection, or left by the one before. */
static int get_error(struct tsock *s, int fd, void *val, socklen_t *len)
{
	struct stack *st = tsock_mode(s) == TSOCK_CONN ? tsock_conn_lock(s) : NULL;
	int x;

	if (!st) {
		x = tsock_left_error(s);
		return x || tsock_mode(s) == TSOCK_CONN ? give(val, len, &x, sizeof(x)) :
							 libc.getsockopt(fd, SOL_SOCKET, SO_ERROR, val, len);
	}
	x = tcp_error(s->c);
	lock_drop(&st->lock);
	return give(val, len, &x, sizeof(x));
}

int tsock_getsockopt(struct vfd *v, int fd, int level, int opt, void *val, socklen_t *len)
{
	struct tsock *s = tsock_of(v);
	const struct opt_row *r = row_of(level, opt);
	const struct tsock_last *from = s->last;
	struct tsock_last is;
	struct stack *st;

	if (!r || !val || !len || r->kind == OPT_KERNEL || r->kind == OPT_SOCK)
		return libc.getsockopt(fd, level, opt, val, len);
	if (level == SOL_SOCKET && opt == SO_ERROR)
		return get_error(s, fd, val, len);
	st = tsock_mode(s) == TSOCK_CONN ? tsock_conn_lock(s) : NULL;
	if (st) {
		look(s, &is);
		lock_drop(&st->lock);
		from = &is;
	}
	/* The mode is looked at last: the connection may have gone to the kernel meanwhile. */
	if (!from || tsock_mode(s) != TSOCK_CONN)
		return libc.getsockopt(fd, level, opt, val, len);
	return get_from(from, r, val, len);
}

void tsock_opts_copy(const struct tsock *s, int from_fd, int to_fd)
{
	for (size_t i = 0; i < NUM_ROWS; i++) {
		const struct opt_row *r = &rows[i];
		bool size = r->off == offsetof(struct tcp_opts, sndbuf) || r->off == offsetof(struct tcp_opts, rcvbuf);
		uint8_t val[64] = { 0 };
		socklen_t len = sizeof(val);
		int x, read = r->opt;

		if (!(s->spare.touched >> i & 1) || r->kind == OPT_ASK)
			continue;
		if (r->kind == OPT_FIELD && size)
			read = r->off == offsetof(struct tcp_opts, sndbuf) ? SO_SNDBUF : SO_RCVBUF;
		if (libc.getsockopt(from_fd, r->level, read, val, &len))
			continue;
		if (r->kind == OPT_FIELD && size) { /* the kernel doubles what it is told */
			memcpy(&x, val, sizeof(x));
			x /= 2;
			memcpy(val, &x, sizeof(x));
		}
		(void)libc.setsockopt(to_fd, r->level, r->opt, val, len);
	}
}

void tsock_opts_tell(struct tsock *s, int fd)
{
	const struct tcp_opts *o = s->c ? tcp_get_opts(s->c) : s->last ? &s->last->o : NULL;
	int flags;

	if (!s->untold)
		return;
	s->untold = false;
	if (o)
		tsock_opts_home(s, fd, o);
	flags = libc.fcntl(fd, F_GETFL);
	if (flags >= 0)
		(void)libc.fcntl(fd, F_SETFL, s->nonblock ? flags | O_NONBLOCK : flags & ~O_NONBLOCK);
}

void tsock_opts_home(const struct tsock *s, int fd, const struct tcp_opts *o)
{
	for (size_t i = 0; i < NUM_ROWS; i++) {
		const struct opt_row *r = &rows[i];
		bool size = r->off == offsetof(struct tcp_opts, sndbuf) || r->off == offsetof(struct tcp_opts, rcvbuf);
		bool nodelay = r->off == offsetof(struct tcp_opts, nodelay); /* VMA_TCP_NODELAY sets it, too */
		uint64_t v;

		if (r->kind != OPT_FIELD || (!(s->spare.touched >> i & 1) && !nodelay) || (s->domain == AF_INET && r->level == IPPROTO_IPV6))
			continue;
		v = field_get(o, r);
		if (r->opt == TCP_NOTSENT_LOWAT && r->level == IPPROTO_TCP && v == UINT32_MAX)
			continue;
		if (size) /* the kernel doubles what it is told */
			v /= 2;
		(void)libc.setsockopt(fd, r->level, r->opt, &v, r->size == 8 ? 8 : 4);
	}
}
