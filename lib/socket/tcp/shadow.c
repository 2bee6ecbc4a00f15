/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The kernel socket of a connection that was taken off. It is bound to the port that connect() has chosen (tcp_port.c), which a
 * socket cannot give back; the kernel's own sockets do, so a new one takes its place before it is used again.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "runtime/libc.h"
#include "runtime/log.h"
#include "runtime/params.h"
#include "socket/tcp_int.h"
#include "socket/udp_int.h"

int tsock_fd_hold(int fd)
{
	static _Atomic int low; /* learnt once: a program that changes its limit gets numbers that are valid all the same, or none */
	struct rlimit limit;
	int from = atomic_load_explicit(&low, memory_order_relaxed);

	if (!from) {
		from = 512;
		if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
			from = (int)(limit.rlim_cur / 4 * 3);
		atomic_store_explicit(&low, from, memory_order_relaxed);
	}
	return libc.fcntl(fd, F_DUPFD_CLOEXEC, from);
}

static void port_clear(struct sockaddr_storage *ss)
{
	if (ss->ss_family == AF_INET)
		((struct sockaddr_in *)ss)->sin_port = 0;
	else
		((struct sockaddr_in6 *)ss)->sin6_port = 0;
}

/* The address that the user has bound the old one to, without a port. 0 or negative errno. */
static int bind_again(int fd, int new)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss), size = sizeof(int);
	int on = 1, was = 0;

	if (libc.getsockname(fd, (struct sockaddr *)&ss, &len) ||
	    libc.getsockopt(new, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &was, &size) ||
	    libc.setsockopt(new, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on)))
		return -errno;
	port_clear(&ss);
	if (libc.bind(new, (struct sockaddr *)&ss, len) ||
	    libc.setsockopt(new, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &was, sizeof(was)))
		return -errno;
	return 0;
}

/* A kernel socket as s's was before it was connected. Its number, or negative errno. */
static int shadow_new(struct tsock *s, int fd)
{
	int flags = libc.fcntl(fd, F_GETFL), new = libc.socket(s->domain, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1, err;

	if (new < 0)
		return -errno;
	if (params.tcp_nodelay)
		(void)libc.setsockopt(new, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	tsock_opts_copy(s, fd, new);
	err = s->bound ? bind_again(fd, new) : 0;
	if (!err && flags >= 0 && libc.fcntl(new, F_SETFL, flags))
		err = -errno;
	if (!err)
		return new;
	libc.close(new);
	return err;
}

void tsock_shadow_renew(struct tsock *s, int fd)
{
	int new, err = errno;

	if (!s->stale)
		return;
	libc_internal++;
	new = shadow_new(s, fd);
	if (new >= 0) {
		vfd_replace_os(&s->v, new);
		libc.close(new);
		s->tuple.lport = 0;
	} else {
		/* It goes on with the port that it has. */
		tsock_block_lost(&s->tuple);
		log_debug("fd %d: no new kernel socket in place of the used one: %s", fd, strerror(-new));
	}
	s->stale = false;
	libc_internal--;
	errno = err;
}

int tsock_shadow_name(const struct tsock *s, int fd, struct sockaddr *addr, socklen_t *len)
{
	struct sockaddr_storage ss;
	socklen_t full = sizeof(ss);

	if (!s->stale || s->bound || !addr || !len || *len > INT32_MAX || libc.getsockname(fd, (struct sockaddr *)&ss, &full))
		return libc.getsockname(fd, addr, len);
	/* The address was the connection's; its port the kernel goes on telling. */
	if (ss.ss_family == AF_INET)
		((struct sockaddr_in *)&ss)->sin_addr.s_addr = 0;
	else
		memset(&((struct sockaddr_in6 *)&ss)->sin6_addr, 0, 16);
	memcpy(addr, &ss, *len < full ? *len : full);
	*len = full;
	return 0;
}
