/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The local ports of accepted connections whose listener has closed: as with the kernel's own
 * nobody else binds to them while one lives, is in FIN_WAIT2 or TIME_WAIT. A kernel socket bound
 * like the listener, which does not listen, stands for them; by the options that it has from the
 * listener the kernel decides who may bind all the same.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/runtime.h"
#include "socket/socket.h"
#include "socket/tcp/internal.h"
#include "socket/tcp/option/rows.h"

struct kept {
	struct kept *next;
	struct tcp_sock_port p;
	int fd;
};

/* Accepted connections in the engines, by local port; whether there ever were any. */
static _Atomic uint32_t conns[65536];
static _Atomic bool any_conns;
static struct lock kept_lock;
static struct kept *kept;
static _Atomic unsigned num_kept;

void tcp_sock_accepted(struct tcp_sock *s)
{
	s->counted = true;
	if (!atomic_load_explicit(&any_conns, memory_order_relaxed))
		atomic_store_explicit(&any_conns, true, memory_order_relaxed);
	atomic_fetch_add(&conns[s->tuple.lport], 1);
}

/* One that stands for the port, out of the list; NULL: none. */
static struct kept *take(uint16_t port)
{
	struct kept **at = &kept, *k;

	lock_take(&kept_lock);
	while (*at && (*at)->p.port != port)
		at = &(*at)->next;
	k = *at;
	if (k)
		*at = k->next;
	lock_drop(&kept_lock);
	return k;
}

static void give_back(uint16_t port)
{
	struct kept *k;

	while (!atomic_load(&conns[port]) && (k = take(port))) {
		atomic_fetch_sub(&num_kept, 1);
		own_fd_close(k->fd);
		free(k);
	}
}

void tcp_sock_accepted_over(struct tcp_sock *s)
{
	uint16_t port = s->tuple.lport;

	if (!s->counted)
		return;
	s->counted = false;
	if (atomic_fetch_sub(&conns[port], 1) == 1 && atomic_load(&num_kept))
		give_back(port);
}

void tcp_sock_port_learn(const struct tcp_sock *s, int fd, struct tcp_sock_port *p)
{
	uint32_t scope;
	struct in6_addr local;

	p->len = sizeof(p->addr);
	p->port = 0;
	if (libc.getsockname(fd, (struct sockaddr *)&p->addr, &p->len) ||
	    !sock_addr_get((struct sockaddr *)&p->addr, p->len, &local, &p->port, &scope) ||
	    !atomic_load(&conns[p->port])) {
		p->port = 0;
		return;
	}
	p->bound_if = s->bound_if;
	p->reuseaddr = opt_get_int(fd, SOL_SOCKET, SO_REUSEADDR, 0);
	p->reuseport = opt_get_int(fd, SOL_SOCKET, SO_REUSEPORT, 0);
	p->v6only = s->domain == AF_INET6 ? opt_get_int(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0) : 0;
}

/* A socket bound as p says, or -1. */
static int bind_like(const struct tcp_sock_port *p)
{
	int fd = OWN_FD(libc.socket(p->addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));

	if (fd < 0)
		return -1;
	(void)opt_set_int(fd, SOL_SOCKET, SO_REUSEADDR, p->reuseaddr);
	(void)opt_set_int(fd, SOL_SOCKET, SO_REUSEPORT, p->reuseport);
	(void)opt_set_int(fd, SOL_SOCKET, SO_BINDTOIFINDEX, p->bound_if);
	(void)opt_set_int(fd, IPPROTO_IPV6, IPV6_V6ONLY, p->v6only);
	if (!libc.bind(fd, (const struct sockaddr *)&p->addr, p->len))
		return fd;
	own_fd_close(fd);
	return -1;
}

/* One that stands for the same: a listener that comes and goes needs no second. */
static bool is_kept(const struct tcp_sock_port *p)
{
	struct kept *k;

	lock_take(&kept_lock);
	for (k = kept; k; k = k->next) {
		const struct tcp_sock_port *o = &k->p;

		if (o->port == p->port && o->len == p->len && !memcmp(&o->addr, &p->addr, p->len) &&
		    o->reuseaddr == p->reuseaddr && o->reuseport == p->reuseport &&
		    o->v6only == p->v6only && o->bound_if == p->bound_if)
			break;
	}
	lock_drop(&kept_lock);
	return k != NULL;
}

void tcp_sock_port_keep(const struct tcp_sock_port *p)
{
	struct kept *k = NULL;

	if (p->port && atomic_load(&num_kept) < tcp_sock_ports_max() && !is_kept(p))
		k = calloc(1, sizeof(*k));
	if (!k)
		return;
	k->p = *p;
	/* Refused: another process has the listener, too, or the kernel has connections of it. */
	k->fd = bind_like(p);
	if (k->fd < 0) {
		free(k);
		return;
	}
	lock_take(&kept_lock);
	k->next = kept;
	kept = k;
	lock_drop(&kept_lock);
	atomic_fetch_add(&num_kept, 1);
	/* The last connection may have ended meanwhile. */
	give_back(p->port);
}

void tcp_sock_port_keeps_forked(void)
{
	struct kept *k = kept;

	atomic_store(&kept_lock.owner, 0);
	for (; k; k = k->next)
		own_fd_close(k->fd);
	kept = NULL;
	atomic_store(&num_kept, 0);
	/* A page of them is nobody's until something is written there. */
	if (!atomic_exchange(&any_conns, false))
		return;
	for (unsigned i = 0; i < 65536; i++) {
		if (atomic_load_explicit(&conns[i], memory_order_relaxed))
			atomic_store_explicit(&conns[i], 0, memory_order_relaxed);
	}
}
