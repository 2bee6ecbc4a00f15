/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The kernel socket of a connection that was taken off. It is bound to the port that connect() has
 * chosen (port/local.c), which a socket cannot give back; the kernel's own sockets do, so a new one
 * takes its place before it is used again.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <string.h>
#include <unistd.h>

#include "runtime/runtime.h"
#include "config/config.h"
#include "socket/tcp/internal.h"
#include "socket/socket.h"

static uint16_t port_of(const struct sockaddr_storage *ss)
{
	return ntohs(ss->ss_family == AF_INET ? ((const struct sockaddr_in *)ss)->sin_port
					      : ((const struct sockaddr_in6 *)ss)->sin6_port);
}

static void port_set(struct sockaddr_storage *ss, uint16_t port)
{
	if (ss->ss_family == AF_INET)
		((struct sockaddr_in *)ss)->sin_port = htons(port);
	else
		((struct sockaddr_in6 *)ss)->sin6_port = htons(port);
}

static void addr_clear(struct sockaddr_storage *ss)
{
	if (ss->ss_family == AF_INET)
		((struct sockaddr_in *)ss)->sin_addr.s_addr = 0;
	else
		memset(&((struct sockaddr_in6 *)ss)->sin6_addr, 0, 16);
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
	port_set(&ss, 0);
	if (libc.bind(new, (struct sockaddr *)&ss, len) ||
	    libc.setsockopt(new, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &was, sizeof(was)))
		return -errno;
	return 0;
}

/* Whom SIGIO goes to, and which signal it is; before O_ASYNC, which asks for both. */
static void signals_again(int fd, int new)
{
	struct f_owner_ex owner;
	int sig = raw.fcntl(fd, F_GETSIG);

	if (!raw.fcntl(fd, F_GETOWN_EX, &owner) && owner.pid)
		(void)raw.fcntl(new, F_SETOWN_EX, &owner);
	if (sig > 0)
		(void)raw.fcntl(new, F_SETSIG, sig);
}

/*
 * A kernel socket as s's was before it was connected, whose F_GETFL has said flags. Its number, or
 * negative errno.
 */
static int shadow_new(struct tcp_sock *s, int fd, int flags)
{
	int new = OWN_FD(libc.socket(s->domain, SOCK_STREAM | SOCK_CLOEXEC, 0)), on = 1, err;

	if (new < 0)
		return -errno;
	if (params.tcp_nodelay)
		(void)libc.setsockopt(new, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	tcp_sock_opts_copy(s, fd, new);
	signals_again(fd, new);
	err = s->bound ? bind_again(fd, new) : 0;
	if (!err && flags >= 0 && raw.fcntl(new, F_SETFL, flags & ~O_ASYNC))
		err = -errno;
	if (!err)
		return new;
	own_fd_close(new);
	return err;
}

bool tcp_sock_shadow_renew(struct tcp_sock *s, int fd)
{
	int new, err = errno, flags;

	if (!s->stale)
		return false;
	libc_internal_begin();
	flags = raw.fcntl(fd, F_GETFL);
	new = shadow_new(s, fd, flags);
	if (new >= 0) {
		vfd_replace_os(&s->v, new);
		own_fd_close(new);
		/* By its own number, which the signal tells. */
		if (flags >= 0 && flags & O_ASYNC)
			(void)raw.fcntl(fd, F_SETFL, flags);
	} else {
		/* It goes on with the port that it has. */
		tcp_sock_block_lost(&s->tuple);
		log_debug("fd %d: no new kernel socket in place of the used one: %s", fd,
			  strerror(-new));
	}
	s->stale = false;
	libc_internal_end();
	errno = err;
	return new >= 0;
}

int tcp_sock_shadow_name(const struct tcp_sock *s, int fd, struct sockaddr *addr, socklen_t *len)
{
	struct sockaddr_storage ss;
	socklen_t full = sizeof(ss);

	if (!addr || !len || *len > INT32_MAX ||
	    libc.getsockname(fd, (struct sockaddr *)&ss, &full))
		return libc.getsockname(fd, addr, len);
	if (port_of(&ss) ? !s->stale || s->bound : !s->tuple.lport)
		return libc.getsockname(fd, addr, len);
	/* The address was the connection's; its port the kernel's sockets go on telling. */
	if (!s->bound)
		addr_clear(&ss);
	port_set(&ss, s->tuple.lport);
	memcpy(addr, &ss, *len < full ? *len : full);
	*len = full;
	return 0;
}
