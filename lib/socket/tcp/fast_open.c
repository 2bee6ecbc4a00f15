/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * TCP Fast Open (RFC 7413) as a program sees it: what net.ipv4.tcp_fastopen and the options of a
 * socket allow, and the cookies that servers have given this process.
 */
#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "proto/proto.h"
#include "runtime/runtime.h"
#include "socket/tcp/internal.h"
#include "socket/tcp/option/rows.h"

/* Bits of net.ipv4.tcp_fastopen (ip-sysctl). Its 0x400 is in what a listener's TCP_FASTOPEN says.
 */
#define CLIENT 0x1u
#define SERVER 0x2u
#define CLIENT_NO_COOKIE 0x4u
#define SERVER_NO_COOKIE 0x200u

#define KEY_BYTES 16u

/* Who may not read the namespace's key: one that all processes of the user have. */
static void own_key(struct tcp_fast_open_server *fo)
{
	uint64_t secret[4];

	tcp_sock_secret(secret);
	fo->key[0][0] = siphash(secret, "fast open 0", 11);
	fo->key[0][1] = siphash(secret, "fast open 1", 11);
	fo->num_keys = 1;
}

/* What TCP_FASTOPEN_KEY has set, or the namespace's; a second one is a former key. */
static void read_keys(int fd, struct tcp_fast_open_server *fo)
{
	socklen_t len = sizeof(fo->key);

	if (!libc.getsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_KEY, fo->key, &len))
		fo->num_keys = (uint8_t)(len / KEY_BYTES);
	if (!fo->num_keys)
		fo->num_keys = (uint8_t)tcp_sock_fast_open_keys(fo->key);
	if (!fo->num_keys)
		own_key(fo);
}

static void read_server(int fd, struct tcp_fast_open_server *fo)
{
	unsigned mode = tcp_sock_fast_open_mode();
	int qlen = mode & SERVER ? opt_get_int(fd, IPPROTO_TCP, TCP_FASTOPEN, 0) : 0;

	memset(fo, 0, sizeof(*fo));
	if (qlen <= 0)
		return;
	fo->qlen = (uint32_t)qlen;
	fo->no_cookie =
		mode & SERVER_NO_COOKIE || opt_get_int(fd, IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE, 0);
	read_keys(fd, fo);
}

void tcp_sock_fast_open_listen(struct tcp_sock *s)
{
	struct tcp_fast_open_server fo;

	if (!s->unconn.atts)
		return;
	read_server(atomic_load_explicit(&s->v.os_fd, memory_order_relaxed), &fo);
	for (struct tcp_sock_att *att = s->unconn.atts; att; att = att->next) {
		lock_take(&att->st->lock);
		if (att->l)
			tcp_listen_fast_open(att->l, &fo);
		lock_drop(&att->st->lock);
	}
}

/* --- cookies of servers, for the process */

#define COOKIES 256u /* what a program connects to again and again */
#define WAYS 4u

struct known {
	struct in6_addr local, remote; /* remote ::: nothing is known here */
	struct tcp_fast_open_cookie cookie; /* len 0: none yet */
	uint16_t mss; /* of the server's SYN|ACK */
	bool tried; /* the other form of the option: one of them was not answered */
	uint32_t used; /* by age, the oldest goes first */
};

static struct lock known_lock; /* taken last; nothing is called with it */
static struct known known[COOKIES];
static uint32_t known_clock;

/* Pauses for what swallows SYNs that are not plain (RFC 7413, 7.1), one longer than the other. */
static uint64_t hole_us;
static unsigned holes;

/* The place of a pair of hosts: theirs, else the one that has rested longest. known_lock is held.
 */
static struct known *place_of(const struct tcp_tuple *t)
{
	struct in6_addr pair[2] = {t->local, t->remote};
	uint64_t secret[4];
	struct known *set, *at;

	tcp_sock_secret(secret);
	set = &known[siphash(secret, pair, sizeof(pair)) % (COOKIES / WAYS) * WAYS];
	at = set;
	for (unsigned i = 0; i < WAYS; i++) {
		if (!memcmp(&set[i].local, pair, sizeof(pair)))
			return &set[i];
		if ((int32_t)(set[i].used - at->used) < 0)
			at = &set[i];
	}
	*at = (struct known){.local = t->local, .remote = t->remote};
	return at;
}

/* Linux: tcp_fastopen_cache_get(). */
static void look_up(const struct tcp_tuple *t, struct tcp_fast_open_client *how)
{
	struct known *k;

	lock_take(&known_lock);
	k = place_of(t);
	k->used = ++known_clock;
	how->cookie = k->cookie;
	if (!k->cookie.len)
		how->cookie.exp = k->tried;
	how->mss = k->mss;
	lock_drop(&known_lock);
}

void tcp_sock_fast_open_news(void *ctx, const struct tcp_tuple *t,
			     const struct tcp_fast_open_news *news)
{
	struct known *k;

	(void)ctx;
	lock_take(&known_lock);
	if (news->black_hole) {
		holes++;
		hole_us = tcp_sock_now_us();
		lock_drop(&known_lock);
		return;
	}
	if (news->worked)
		holes = 0;
	k = place_of(t);
	k->used = ++known_clock;
	k->mss = news->mss;
	if (news->cookie.len > 0)
		k->cookie = news->cookie;
	else if (news->refused && !k->cookie.len)
		k->tried = !k->tried; /* the other form next time, as Linux */
	lock_drop(&known_lock);
}

void tcp_sock_fast_open_forked(void)
{
	/* Somebody was changing them. */
	if (atomic_load(&known_lock.owner))
		memset(known, 0, sizeof(known));
	atomic_store(&known_lock.owner, 0);
}

/* Linux: tcp_fastopen_active_should_disable(). */
static bool in_pause(void)
{
	unsigned n;
	uint64_t since;

	lock_take(&known_lock);
	n = holes;
	since = hole_us;
	lock_drop(&known_lock);
	return n &&
	       tcp_sock_now_us() - since <
		       ((uint64_t)tcp_sock_fast_open_pause_s() << (n < 7 ? n - 1 : 6)) * 1000000u;
}

/* --- the client */

static bool option_set(const struct tcp_sock *s, int fd, int opt)
{
	return s->unconn.touched & opt_row_bit(opt_row_of(IPPROTO_TCP, opt)) &&
	       opt_get_int(fd, IPPROTO_TCP, opt, 0);
}

bool tcp_sock_fast_open_wanted(const struct tcp_sock *s, int fd)
{
	return option_set(s, fd, TCP_FASTOPEN_CONNECT);
}

unsigned tcp_sock_fast_open_allowed(void)
{
	unsigned mode = tcp_sock_fast_open_mode();

	return mode & CLIENT ? mode : 0;
}

void tcp_sock_fast_open_prepare(const struct tcp_sock *s, int fd, struct tcp_sock_opening *o)
{
	o->plain = in_pause();
	o->no_cookie = o->mode & CLIENT_NO_COOKIE || option_set(s, fd, TCP_FASTOPEN_NO_COOKIE);
}

void tcp_sock_fast_open_begin(struct tcp_sock *s, struct tcp_sock_opening *o, uint64_t now)
{
	struct tcp_fast_open_client how;

	if (o->plain)
		return;
	look_up(&s->tuple, &how);
	how.with_data = how.cookie.len > 0 || o->no_cookie;
	if (o->no_cookie)
		how.cookie.len = -1;
	tcp_fast_open(s->c, &how);
	o->waits = tcp_fast_open_waits(s->c) && !o->iov;
	if (!tcp_fast_open_waits(s->c) || o->waits)
		return;
	o->taken = tcp_send(s->c, o->iov, o->iovcnt, o->flags, now);
	tcp_fast_open_go(s->c);
}
