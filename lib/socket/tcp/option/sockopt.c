/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * setsockopt() and getsockopt(). The kernel socket is asked first and keeps every option but those
 * that programs change for each message (`plain`), so errno and what reads back are its own; what
 * the engine knows is copied into the connection by reading it back. What cannot be done here gives
 * the socket to the kernel, with its connection (rows.def).
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "net/net.h"
#include "runtime/runtime.h"
#include "config/config.h"
#include "socket/socket.h"
#include "socket/tcp/internal.h"
#include "socket/tcp/option/rows.h"

struct tcp_sock_kept_opts {
	struct tcp_opts o;
	union {
		struct tcp_info info;
		uint8_t info_all[TCP_INFO_BYTES];
	};
	uint32_t mss, mtu, window_clamp;
	bool quickack;
};

/* ns; 0: for ever. val is what the user has set: the kernel does not tell a negative one again. */
static uint64_t get_timeout(int fd, int opt, const void *val)
{
	struct timeval tv = {0};
	socklen_t len = sizeof(tv);

	if (sock_timeout_at_once(val))
		return 1;
	if (libc.getsockopt(fd, SOL_SOCKET, opt, &tv, &len))
		return 0;
	return (uint64_t)tv.tv_sec * 1000000000u + (uint64_t)tv.tv_usec * 1000u;
}

/* The kernel keeps one of the four, and answers for that one only. */
static void mirror_stamps(struct tcp_sock *s, int fd)
{
	static _Atomic bool
		stamping; /* once and for the process: connections would have to count */
	bool us_new = opt_get_int(fd, SOL_SOCKET, SO_TIMESTAMP_NEW, 0),
	     ns_new = opt_get_int(fd, SOL_SOCKET, SO_TIMESTAMPNS_NEW, 0),
	     us = us_new || opt_get_int(fd, SOL_SOCKET, SO_TIMESTAMP_OLD, 0),
	     ns = ns_new || opt_get_int(fd, SOL_SOCKET, SO_TIMESTAMPNS_OLD, 0);

	s->tells = (uint8_t)((s->tells & (TCP_SOCK_TELL_INQ | TCP_SOCK_TELLS_EXTRA)) |
			     (us ? TCP_SOCK_TELL_US : 0) | (ns ? TCP_SOCK_TELL_NS : 0) |
			     (us_new || ns_new ? TCP_SOCK_TELL_NEW : 0));
	if ((us || ns) && !atomic_exchange_explicit(&stamping, true, memory_order_relaxed))
		stack_timestamps(STACK_STAMP_SOFTWARE);
}

static void mirror_inq(struct tcp_sock *s, int fd)
{
	bool on = opt_get_int(fd, IPPROTO_TCP, TCP_INQ, 0);

	s->tells = (uint8_t)((s->tells & ~TCP_SOCK_TELL_INQ) | (on ? TCP_SOCK_TELL_INQ : 0));
}

/* Copies what the calls themselves need. */
static void mirror_sock(struct tcp_sock *s, int fd, int opt, const void *val)
{
	struct linger l = {0};
	socklen_t len = sizeof(l);

	switch (opt) {
	case SO_LINGER:
		if (!libc.getsockopt(fd, SOL_SOCKET, SO_LINGER, &l, &len))
			s->linger_s = l.l_onoff ? l.l_linger : -1;
		break;
	case SO_RCVLOWAT:
		s->rcvlowat = (uint32_t)opt_get_int(fd, SOL_SOCKET, SO_RCVLOWAT, 1);
		break;
	case SO_RCVTIMEO_OLD:
	case SO_RCVTIMEO_NEW:
		s->rcvtimeo_ns = get_timeout(fd, SO_RCVTIMEO_OLD, val);
		break;
	case SO_SNDTIMEO_OLD:
	case SO_SNDTIMEO_NEW:
		s->sndtimeo_ns = get_timeout(fd, SO_SNDTIMEO_OLD, val);
		break;
	case SO_ZEROCOPY:
		s->zerocopy = opt_get_int(fd, SOL_SOCKET, SO_ZEROCOPY, 0) != 0;
		break;
	case SO_TIMESTAMP_OLD:
	case SO_TIMESTAMP_NEW:
	case SO_TIMESTAMPNS_OLD:
	case SO_TIMESTAMPNS_NEW:
		mirror_stamps(s, fd);
		break;
	case SO_MARK:
		s->mark = (uint32_t)opt_get_int(fd, SOL_SOCKET, SO_MARK, 0);
		tcp_sock_path_renew(s);
		break;
	default:
		s->bound_if = opt_get_int(fd, SOL_SOCKET, SO_BINDTOIFINDEX, 0);
	}
}

/* The same of a connection that went with its interface. s->lock is held. */
static void mirror_kept(struct tcp_sock *s, int fd, const struct tcp_opt_row *r)
{
	struct stack *st = atomic_load_explicit(&s->st, memory_order_acquire);

	if (tcp_sock_mode(s) != TCP_SOCK_CONN || !st || lock_mine(&st->lock))
		return;
	lock_take(&st->lock);
	if (s->kept_opts)
		opt_mirror(r, fd, &s->kept_opts->o);
	lock_drop(&st->lock);
}

/* The connection gets its options, of which r's was set. */
static void set_opts(struct tcp_conn *c, const struct tcp_opt_row *r, const struct tcp_opts *o,
		     uint64_t now)
{
	tcp_set_opts(c, o, now);
	if (r->off == offsetof(struct tcp_opts, nodelay) && o->nodelay)
		tcp_push_held(c, now);
}

/* What an offloaded connection or listener has of it changes now. s->lock is held. */
static void apply(struct tcp_sock *s, int fd, const struct tcp_opt_row *r)
{
	struct stack *st;
	struct tcp_opts o;
	uint64_t now;

	if (tcp_sock_mode(s) == TCP_SOCK_LISTEN) {
		tcp_sock_opts_read(s, fd, &o);
		for (struct tcp_sock_att *att = s->unconn.atts; att; att = att->next) {
			lock_take(&att->st->lock);
			if (att->l)
				tcp_listen_opts(att->l, &o);
			lock_drop(&att->st->lock);
		}
		return;
	}
	st = tcp_sock_mode(s) == TCP_SOCK_CONN ? tcp_sock_conn_lock(s) : NULL;
	if (!st) {
		mirror_kept(s, fd, r);
		return;
	}
	now = tcp_sock_now_us();
	o = *tcp_get_opts(s->c);
	if (!opt_row_is(r, IPPROTO_TCP, TCP_MAXSEG)) /* it is for the next handshake */
		opt_mirror(r, fd, &o);
	set_opts(s->c, r, &o, now);
	if (r->off == offsetof(struct tcp_opts, rcvlowat) &&
	    tcp_inq(s->c)) /* whoever polls may have enough now */
		vfd_notify(&s->v, EPOLLIN);
	tcp_sock_unlock_stack(st, now);
}

/*
 * What the kernel would take without a word, and would only keep. First those that programs change
 * for each message; the others are for VMA_AVOID_SYS_CALLS_ON_TCP_FD.
 */
#define PLAIN_ALWAYS 2
static const struct {
	int level, opt, min, max;
} plain[] = {
	{IPPROTO_TCP, TCP_CORK, 0, 1},
	{IPPROTO_TCP, TCP_NODELAY, 0, 1},
	{SOL_SOCKET, SO_KEEPALIVE, 0, 1},
	{SOL_SOCKET, SO_OOBINLINE, 0, 1},
	{IPPROTO_TCP, TCP_KEEPIDLE, 1, INT16_MAX},
	{IPPROTO_TCP, TCP_KEEPINTVL, 1, INT16_MAX},
	{IPPROTO_TCP, TCP_KEEPCNT, 1, INT8_MAX},
	{IPPROTO_TCP, TCP_USER_TIMEOUT, 0, INT32_MAX},
	{IPPROTO_TCP, TCP_NOTSENT_LOWAT, 1, INT32_MAX},
};

static size_t num_plain(void)
{
	return params.avoid_sys_calls_on_tcp_fd ? sizeof(plain) / sizeof(plain[0]) : PLAIN_ALWAYS;
}

static bool is_plain(const struct tcp_opt_row *r, int x)
{
	for (size_t i = 0; i < num_plain(); i++) {
		if (plain[i].level == r->level && plain[i].opt == r->opt)
			return x >= plain[i].min && x <= plain[i].max;
	}
	return false;
}

/*
 * Sets the option in the engine alone. False: it is not such a one, or there is no connection;
 * s->lock is held.
 */
static bool set_here(struct tcp_sock *s, const struct tcp_opt_row *r, const void *val,
		     socklen_t len)
{
	struct stack *st;
	struct tcp_opts o;
	uint64_t now;
	int x;

	if (tcp_sock_mode(s) != TCP_SOCK_CONN || !val || len < sizeof(x))
		return false;
	memcpy(&x, val, sizeof(x));
	if (!is_plain(r, x) || !(st = tcp_sock_conn_lock(s)))
		return false;
	now = tcp_sock_now_us();
	o = *tcp_get_opts(s->c);
	opt_field_put(&o, r, (uint64_t)x);
	set_opts(s->c, r, &o, now);
	/* What TCP_CORK held leaves with the answers to the other events of the last wait. */
	tcp_sock_unlock_stack_in_round(st, now);
	s->unconn.touched |= opt_row_bit(r); /* it goes along with the connection */
	s->opts_deferred = true;
	return true;
}

/* The kernel socket has it now: with this value user space does nothing differently. */
static bool asleep(int fd, const struct tcp_opt_row *r)
{
	int v = 0;
	socklen_t len = sizeof(v);

	return r->lo <= r->hi && !libc.getsockopt(fd, r->level, r->opt, &v, &len) && v >= r->lo &&
	       v <= r->hi;
}

enum ruling {
	REFUSED, /* errno says why */
	STAYS,
	GOES, /* only the kernel can do it */
};

/* What becomes of a connection by this option; r: its row, or NULL. A socket of the kernel tells.
 */
static enum ruling rule_on(const struct tcp_sock *s, const struct tcp_opt_row *r, int level,
			   int opt, const void *val, socklen_t len)
{
	int probe = OWN_FD(libc.socket(s->domain, SOCK_STREAM | SOCK_CLOEXEC, 0)), fd = probe, err;
	enum ruling ruling = GOES;

	if (fd < 0) /* none can be had: its own then, which is idle, too */
		fd = atomic_load_explicit(&s->v.os_fd, memory_order_relaxed);
	err = libc.setsockopt(fd, level, opt, val, len) ? errno : 0;
	if (!err && r && r->kind == OPT_FIELD) /* TCP_WINDOW_CLAMP: a connection has one */
		err = opt_get_int(fd, level, opt, 0) ? 0 : EINVAL;
	if (err && err != ENOTCONN) /* ENOTCONN: it is for connections */
		ruling = REFUSED;
	else if (!err && (!len || (r && (r->kind == OPT_FIELD || asleep(fd, r)))))
		ruling = STAYS;
	if (probe >= 0)
		own_fd_close(probe);
	errno = err;
	return ruling;
}

/* Options of IPv6 are none of an IPv4 socket's. */
static const struct tcp_opt_row *row_for(const struct tcp_sock *s, int level, int opt)
{
	return level == IPPROTO_IPV6 && s->domain == AF_INET ? NULL : opt_row_of(level, opt);
}

/* A connection does not take every value that an idle socket takes. */
static bool conn_rules(const struct tcp_opt_row *r)
{
	return !r || r->kind == OPT_MOVES || r->kind == OPT_ASLEEP || r->kind == OPT_NO_CONN ||
	       opt_row_is(r, IPPROTO_TCP, TCP_WINDOW_CLAMP);
}

/*
 * setsockopt() on a connection, of what the engine does not do with every value; no lock is held.
 * 1: the kernel socket may have it, or has the connection now.
 */
static int set_on_conn(struct vfd *v, const struct tcp_opt_row *r, int level, int opt,
		       const void *val, socklen_t len)
{
	struct tcp_sock *s = tcp_sock_of(v);
	enum ruling ruling;

	if (r && r->kind == OPT_NO_CONN) {
		errno = (int)len < (int)sizeof(int) ? EINVAL : r->err;
		return -1;
	}
	libc_internal_begin();
	ruling = rule_on(s, r, level, opt, val, len);
	libc_internal_end();
	if (ruling == REFUSED)
		return -1;
	if (ruling == STAYS)
		return 1;
	/* Only a probe has it so far. */
	if (exception_refuses(atomic_load_explicit(&s->v.os_fd, memory_order_relaxed), level, opt,
			      OPTION_UNKNOWN))
		return -1;
	v->ops->share(v, stats_why_option(level, opt));
	if (tcp_sock_mode(s) != TCP_SOCK_CONN)
		return 1;
	errno = ENOPROTOOPT; /* no privilege for it, or not yet established */
	return -1;
}

static bool zero(const void *val)
{
	return !memcmp(val, "\0\0\0", sizeof(int));
}

static void set_quickack(struct tcp_sock *s, const void *val)
{
	struct stack *st = tcp_sock_mode(s) == TCP_SOCK_CONN ? tcp_sock_conn_lock(s) : NULL;
	uint64_t now = tcp_sock_now_us();
	int x;

	if (!st)
		return;
	memcpy(&x, val, sizeof(x)); /* the kernel has read it */
	tcp_quickack(s->c, x, now);
	tcp_sock_unlock_stack(st, now);
}

/* A listener's connections begin otherwise. */
static bool is_fast_open(const struct tcp_opt_row *r)
{
	return opt_row_is(r, IPPROTO_TCP, TCP_FASTOPEN) ||
	       opt_row_is(r, IPPROTO_TCP, TCP_FASTOPEN_KEY) ||
	       opt_row_is(r, IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE);
}

/* With this option, which the kernel socket has taken, the kernel gets the socket. */
static bool leaves(const struct tcp_sock *s, int fd, const struct tcp_opt_row *r, socklen_t len)
{
	return (!r || r->kind >= OPT_ASLEEP) && tcp_sock_mode(s) != TCP_SOCK_CONN && len &&
	       !(r && asleep(fd, r));
}

/* The kernel socket has taken the option: what is done here follows. s->lock is held. */
static void follow(struct tcp_sock *s, int fd, const struct tcp_opt_row *r, const void *val,
		   socklen_t len)
{
	if (r && opt_row_is(r, IPPROTO_TCP, TCP_MAXSEG) && zero(val))
		s->unconn.touched &= ~opt_row_bit(r); /* it reads as 536, which is none */
	else if (r)
		s->unconn.touched |= opt_row_bit(r);
	if (r && is_fast_open(r) && tcp_sock_mode(s) == TCP_SOCK_LISTEN)
		tcp_sock_fast_open_listen(s);
	if (!r || r->kind >= OPT_ASLEEP) {
		if (!leaves(s, fd, r, len))
			return;
		s->unconn.no_offload = true;
		/* Its connections would lack the option: the kernel takes them from now on. */
		if (tcp_sock_mode(s) == TCP_SOCK_LISTEN)
			tcp_sock_unlisten(s);
		return;
	}
	if (opt_row_is(r, IPPROTO_TCP, TCP_QUICKACK))
		set_quickack(s, val);
	else if (opt_row_is(r, IPPROTO_TCP, TCP_INQ))
		mirror_inq(s, fd);
	else if (r->kind == OPT_SOCK)
		mirror_sock(s, fd, r->opt, val);
	else if (r->kind == OPT_FIELD || r->kind == OPT_ENGINE)
		apply(s, fd, r);
	/* reading calls look at it without the engine */
	if (opt_row_is(r, SOL_SOCKET, SO_RCVLOWAT))
		mirror_sock(s, fd, r->opt, val);
	if (opt_row_is(r, SOL_SOCKET, SO_BINDTODEVICE) ||
	    opt_row_is(r, SOL_SOCKET, SO_BINDTOIFINDEX))
		tcp_sock_relisten(s);
}

int tcp_sock_setsockopt(struct vfd *v, int fd, int level, int opt, const void *val, socklen_t len)
{
	struct tcp_sock *s = tcp_sock_of(v);
	const struct tcp_opt_row *r = row_for(s, level, opt);
	int ret, cancel, was = errno;
	int64_t value = OPTION_UNKNOWN;

	if (tcp_sock_mode(s) == TCP_SOCK_CONN && conn_rules(r) &&
	    set_on_conn(v, r, level, opt, val, len) < 0)
		return -1;
	errno = was;
	if (!tcp_sock_lock_live(s, fd, &cancel))
		return libc.setsockopt(fd, level, opt, val, len);
	if (r && set_here(s, r, val, len)) {
		tcp_sock_unlock(s, cancel);
		return 0;
	}
	if (params.exception_handling == EXCEPTION_FAILS)
		value = exception_value(fd, level, opt);
	ret = libc.setsockopt(fd, level, opt, val, len);
	libc_internal_begin();
	if (!ret && !s->unconn.no_offload && leaves(s, fd, r, len) &&
	    exception_refuses(fd, level, opt, value)) {
		ret = -1;
	} else if (!ret) {
		bool was_ours = !s->unconn.no_offload;

		follow(s, fd, r, val, len);
		if (was_ours && s->unconn.no_offload)
			stats_why(tcp_sock_shown(s), fd, VMA_WHY_SOCKET,
				  stats_why_option(level, opt));
		errno = was;
	}
	libc_internal_end();
	tcp_sock_unlock(s, cancel);
	return ret;
}

/* What s's connection says; the stack's lock is held. */
static void look(struct tcp_sock *s, struct tcp_sock_kept_opts *is)
{
	uint32_t gso;

	is->o = *tcp_get_opts(s->c);
	(void)tcp_fill_info(s->c, is->info_all, sizeof(is->info_all), tcp_sock_now_us());
	is->mss = tcp_mss(s->c);
	is->quickack = tcp_is_quickack(s->c);
	is->window_clamp = tcp_window_clamp(s->c);
	is->mtu = is->info.tcpi_pmtu;
	if (!is->mtu) /* nothing was sent yet */
		tcp_sock_env_path(atomic_load_explicit(&s->st, memory_order_relaxed), &s->tuple,
				  &is->mtu, &gso);
}

void tcp_sock_opts_keep(struct tcp_sock *s)
{
	if (!s->kept_opts)
		s->kept_opts = malloc(sizeof(*s->kept_opts));
	if (!s->kept_opts)
		return;
	look(s, s->kept_opts);
	s->kept_opts->info.tcpi_state = TCPS_CLOSED;
}

/*
 * What s's connection says, or said when it went with its interface. False: it has none, and the
 * kernel is to be asked.
 */
static bool look_now(struct tcp_sock *s, struct tcp_sock_kept_opts *is)
{
	struct stack *st = atomic_load_explicit(&s->st, memory_order_acquire);
	bool known;

	if (!st || lock_mine(&st->lock))
		return false;
	lock_take(&st->lock);
	/* What has come so far is in the answer. */
	if (s->c && stack_pending(st))
		stack_poll_called(st);
	/* Under the lock: it may have gone to the kernel meanwhile, or to another stack. */
	known = tcp_sock_mode(s) == TCP_SOCK_CONN && (s->c || s->kept_opts) &&
		atomic_load_explicit(&s->st, memory_order_relaxed) == st;
	if (known && s->c)
		look(s, is);
	else if (known)
		*is = *s->kept_opts;
	lock_drop(&st->lock);
	return known;
}

/* What is no field of tcp_opts. */
static bool number(const struct tcp_sock_kept_opts *is, const struct tcp_opt_row *r, int *x)
{
	if (r->kind == OPT_ASK)
		*x = (int)is->mtu;
	else if (opt_row_is(r, IPPROTO_TCP, TCP_MAXSEG))
		*x = (int)is->mss;
	else if (opt_row_is(r, IPPROTO_TCP, TCP_WINDOW_CLAMP))
		*x = (int)is->window_clamp;
	else if (opt_row_is(r, IPPROTO_TCP, TCP_QUICKACK))
		*x = is->quickack;
	else
		return false;
	return true;
}

/* An option that the engine knows better than the idle kernel socket. */
static int get_from(const struct tcp_sock_kept_opts *is, const struct tcp_opt_row *r, void *val,
		    socklen_t *len)
{
	char name[16] = "";
	uint64_t v;
	int x;

	if (r->kind == OPT_ENGINE) {
		strcpy(name, tcp_sock_cc_names[is->o.cc < TCP_CC_COUNT ? is->o.cc : 0]);
		return tcp_sock_opt_give(r->level, val, len, name, sizeof(name));
	}
	if (r->level == IPPROTO_TCP && r->opt == TCP_INFO)
		return tcp_sock_opt_give(r->level, val, len, is->info_all, sizeof(is->info_all));
	if (number(is, r, &x))
		return tcp_sock_opt_give(r->level, val, len, &x, sizeof(x));
	v = opt_field_get(&is->o, r);
	if (r->size == 8 && *len >= 8)
		return tcp_sock_opt_give(r->level, val, len, &v, sizeof(v));
	x = r->size == 8 && v > UINT32_MAX ? -1 : (int)v;
	return tcp_sock_opt_give(r->level, val, len, &x, sizeof(x));
}

/* SO_ERROR: of the connection, or left by the one before. */
static int get_error(struct tcp_sock *s, int fd, void *val, socklen_t *len)
{
	struct stack *st = tcp_sock_mode(s) == TCP_SOCK_CONN ? tcp_sock_conn_look(s) : NULL;
	int x;

	if (!st) {
		x = tcp_sock_pending_error_take(s);
		return x || tcp_sock_mode(s) == TCP_SOCK_CONN
			       ? tcp_sock_opt_give(SOL_SOCKET, val, len, &x, sizeof(x))
			       : libc.getsockopt(fd, SOL_SOCKET, SO_ERROR, val, len);
	}
	x = tcp_error(s->c);
	lock_drop(&st->lock);
	return tcp_sock_opt_give(SOL_SOCKET, val, len, &x, sizeof(x));
}

/*
 * TCP_INFO of a listener: tcpi_unacked is how many wait for accept(). To those in the kernel's
 * queue come those in ours. (tcpi_sacked, the backlog, is the same in both.)
 */
static int get_listen_info(struct tcp_sock *s, int fd, void *val, socklen_t *len)
{
	union {
		struct tcp_info info;
		uint8_t room[1024]; /* newer kernels know more */
	} is;
	socklen_t full = sizeof(is);
	int ret = libc.getsockopt(fd, IPPROTO_TCP, TCP_INFO, &is, &full);

	if (ret)
		return ret;
	is.info.tcpi_unacked += tcp_sock_accept_waits(s);
	return tcp_sock_opt_give(IPPROTO_TCP, val, len, &is, full);
}

/* The engine knows it; SO_SNDBUFFORCE and its like are only set. */
static bool asked_here(const struct tcp_opt_row *r)
{
	return (r->kind == OPT_FIELD && r->opt == opt_row_read(r)) || r->kind == OPT_ASK ||
	       opt_row_is(r, IPPROTO_TCP, TCP_CONGESTION) ||
	       opt_row_is(r, IPPROTO_TCP, TCP_QUICKACK);
}

int tcp_sock_getsockopt(struct vfd *v, int fd, int level, int opt, void *val, socklen_t *len)
{
	struct tcp_sock *s = tcp_sock_of(v);
	const struct tcp_opt_row *r = row_for(s, level, opt);
	struct tcp_sock_kept_opts is;
	int ret;

	if (!r || !val || !len)
		return libc.getsockopt(fd, level, opt, val, len);
	if (r->kind == OPT_ASK_KERNEL && tcp_sock_mode(s) == TCP_SOCK_CONN)
		v->ops->share(v, stats_why_option(level, opt));
	if (tcp_sock_mode(s) == TCP_SOCK_CONN && tcp_sock_opt_ask(s, fd, r, val, len, &ret))
		return ret;
	if (!asked_here(r))
		return libc.getsockopt(fd, level, opt, val, len);
	if (opt_row_is(r, SOL_SOCKET, SO_ERROR))
		return get_error(s, fd, val, len);
	if (opt_row_is(r, IPPROTO_TCP, TCP_INFO) && tcp_sock_mode(s) == TCP_SOCK_LISTEN)
		return get_listen_info(s, fd, val, len);
	if (!look_now(s, &is))
		return libc.getsockopt(fd, level, opt, val, len);
	return get_from(&is, r, val, len);
}

void tcp_sock_flags_sync(struct tcp_sock *s, int fd)
{
	int flags =
		s->opts_deferred && params.avoid_sys_calls_on_tcp_fd ? raw.fcntl(fd, F_GETFL) : -1;

	s->opts_deferred = false;
	if (flags >= 0)
		(void)raw.fcntl(fd, F_SETFL,
				s->nonblock ? flags | O_NONBLOCK : flags & ~O_NONBLOCK);
}

void tcp_sock_opts_sync(struct tcp_sock *s, int fd)
{
	const struct tcp_opts *o = s->c		  ? tcp_get_opts(s->c)
				   : s->kept_opts ? &s->kept_opts->o
						  : NULL;

	for (size_t i = 0; o && s->opts_deferred && i < num_plain(); i++) {
		const struct tcp_opt_row *r = opt_row_of(plain[i].level, plain[i].opt);

		if (s->unconn.touched & opt_row_bit(r))
			(void)opt_set_int(fd, r->level, r->opt, (int)opt_field_get(o, r));
	}
	tcp_sock_flags_sync(s, fd);
}
