/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * getsockopt() of what the idle kernel socket does not know: a connection's addresses, and how it
 * began.
 */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "runtime/runtime.h"
#include "socket/tcp/internal.h"
#include "socket/tcp/option/rows.h"

int tcp_sock_opt_give(int level, void *val, socklen_t *len, const void *from, size_t n)
{
	/* do_ipv6_getsockopt() takes a negative length for a large one. */
	if (*len > INT32_MAX && level != IPPROTO_IPV6) {
		errno = EINVAL;
		return -1;
	}
	if (*len < n)
		n = *len;
	memcpy(val, from, n);
	*len = (socklen_t)n;
	return 0;
}

static int fail(int err)
{
	errno = err;
	return -1;
}

static int give_int(const struct tcp_opt_row *r, void *val, socklen_t *len, int x)
{
	return tcp_sock_opt_give(r->level, val, len, &x, sizeof(x));
}

/* Linux takes less room than the name needs, but not more. */
static int give_peer(struct tcp_sock *s, int fd, void *val, const socklen_t *len)
{
	struct sockaddr_storage ss;
	socklen_t full = sizeof(ss);
	int err;

	if (*len > INT32_MAX)
		return fail(EINVAL);
	err = tcp_sock_peer(s, fd, (struct sockaddr *)&ss, &full);
	if (err)
		return fail(-err);
	if (full < *len)
		return fail(EINVAL);
	memcpy(val, &ss, *len);
	return 0;
}

/* What the connection says; false: it is none any more. */
static bool look(struct tcp_sock *s, enum tcp_state *state, uint32_t *mtu, uint8_t *ttl,
		 uint8_t *tos)
{
	struct stack *st = tcp_sock_conn_lock(s);
	uint32_t gso;

	if (!st)
		return false;
	*state = tcp_conn_state(s->c);
	tcp_conn_first(s->c, ttl, tos);
	tcp_sock_env_path(st, &s->tuple, mtu, &gso);
	lock_drop(&st->lock);
	return true;
}

/* IP_PKTOPTIONS: what IP_PKTINFO, IP_RECVTTL and IP_RECVTOS ask for, of the beginning. */
static int give_pktoptions(const struct tcp_sock *s, int fd, void *val, socklen_t *len, int ttl,
			   int tos)
{
	struct tcp_sock_cmsgs m = {.at = val, .left = *len};
	struct in_pktinfo info = {0};
	struct stack *st = atomic_load_explicit(&s->st, memory_order_relaxed);

	if (*len > INT32_MAX)
		return fail(EINVAL);
	memcpy(&info.ipi_addr, &s->tuple.local.s6_addr[12], sizeof(info.ipi_addr));
	info.ipi_spec_dst = info.ipi_addr;
	if (s->accepted && st)
		info.ipi_ifindex = st->ifindex;
	if (!s->accepted) /* what a socket has that sends no multicast */
		ttl = 1;
	if (opt_get_int(fd, IPPROTO_IP, IP_PKTINFO, 0))
		tcp_sock_cmsg_put(&m, IPPROTO_IP, IP_PKTINFO, &info, sizeof(info));
	if (opt_get_int(fd, IPPROTO_IP, IP_RECVTTL, 0))
		tcp_sock_cmsg_put(&m, IPPROTO_IP, IP_TTL, &ttl, sizeof(ttl));
	if (opt_get_int(fd, IPPROTO_IP, IP_RECVTOS, 0))
		tcp_sock_cmsg_put(&m, IPPROTO_IP, IP_TOS, &tos, sizeof(tos));
	*len = (socklen_t)(m.at - (uint8_t *)val);
	return 0;
}

static int give_pathmtu(void *val, socklen_t *len, uint32_t mtu)
{
	struct ip6_mtuinfo info = {.ip6m_mtu = mtu};

	if (*len < sizeof(info))
		return fail(EINVAL);
	memcpy(val, &info, sizeof(info));
	*len = sizeof(info);
	return 0;
}

bool tcp_sock_opt_ask(struct tcp_sock *s, int fd, const struct tcp_opt_row *r, void *val,
		      socklen_t *len, int *ret)
{
	enum tcp_state state = TCPS_CLOSED;
	uint8_t ttl = 0, tos = 0;
	uint32_t mtu = 0;

	if (r->kind != OPT_ASK_ADDRESS && r->kind != OPT_NO_CONN && r->kind != OPT_MOVES)
		return false;
	if (opt_row_is(r, SOL_SOCKET, SO_PEERNAME)) {
		*ret = give_peer(s, fd, val, len);
		return true;
	}
	if (opt_row_is(r, IPPROTO_IPV6, IPV6_V6ONLY)) {
		*ret = give_int(r, val, len, s->v6only);
		return true;
	}
	if (!look(s, &state, &mtu, &ttl, &tos))
		return false;
	if (opt_row_is(r, IPPROTO_IPV6, IPV6_ADDRFORM))
		*ret = state == TCPS_ESTABLISHED ? give_int(r, val, len, s->domain)
						 : fail(ENOTCONN);
	else if (opt_row_is(r, IPPROTO_IPV6, IPV6_PATHMTU))
		*ret = give_pathmtu(val, len, mtu);
	else if (opt_row_is(r, IPPROTO_IP, IP_PKTOPTIONS))
		*ret = give_pktoptions(s, fd, val, len, ttl, tos);
	else if (r->kind == OPT_ASK_ADDRESS) /* IP_PROTOCOL, which gives the port */
		*ret = give_int(r, val, len, s->tuple.lport);
	else
		return false;
	return true;
}
