/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Who else has a port, and what is left of a connection: asked of the kernel through sock_diag(7),
 * nothing is kept.
 */
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netlink/msg.h>
#include <netlink/netlink.h>
#include <netlink/socket.h>
#include <string.h>
#include <sys/time.h>

#include "net/net.h"
#include "runtime/runtime.h"

/*
 * An answer that the kernel could not queue never comes, and locks are held: this long is waited
 * for a part of it.
 */
#define ANSWER_SEC 2
/* of the kernel's TCP states */
#define FIN_WAIT2 5
#define TIME_WAIT 6
#define CLOSE 7
#define LISTEN 10

struct result {
	uint64_t *inodes;
	unsigned max, num;
	uint16_t port;
};

static int one_socket(struct nl_msg *msg, void *arg)
{
	struct result *res = arg;
	struct nlmsghdr *h = nlmsg_hdr(msg);
	const struct inet_diag_msg *d = nlmsg_data(h);

	if (nlmsg_datalen(h) < (int)sizeof(*d) || ntohs(d->id.idiag_sport) != res->port)
		return NL_SKIP;
	if (res->num < res->max)
		res->inodes[res->num] = d->idiag_inode;
	res->num++;
	return NL_OK;
}

/* One dump for one family. 0 or negative errno. */
static int dump(struct nl_sock *sock, uint8_t family, uint8_t proto, uint32_t states, uint16_t port)
{
	struct inet_diag_req_v2 req = {
		.sdiag_family = family,
		.sdiag_protocol = proto,
		.idiag_states = states,
		.id.idiag_sport = htons(port),
	};
	int err = nl_send_simple(sock, SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &req, sizeof(req));

	if (err >= 0)
		err = nl_recvmsgs_default(sock);
	if (err < 0)
		log_warn("net: asking who has port %u (protocol %u): %s", port, proto,
			 nl_geterror(err));
	return err < 0 ? -EIO : 0;
}

/* 0 or negative errno. */
static int connect_limited(struct nl_sock *sock, int protocol)
{
	const struct timeval limit = {.tv_sec = ANSWER_SEC};

	if (nl_connect(sock, protocol))
		return -EIO;
	return libc.setsockopt(nl_socket_get_fd(sock), SOL_SOCKET, SO_RCVTIMEO, &limit,
			       sizeof(limit))
		       ? -errno
		       : 0;
}

int net_netlink(int protocol, struct nl_sock **out)
{
	struct nl_sock *sock = nl_socket_alloc();
	int err = sock ? connect_limited(sock, protocol) : -ENOMEM;

	if (err && sock)
		nl_socket_free(sock);
	*out = err ? NULL : sock;
	return err;
}

/* diag_end() takes *sock, whatever came of it. 0 or negative errno. */
static int diag_begin(struct nl_sock **sock)
{
	libc_internal_begin();
	return net_netlink(NETLINK_SOCK_DIAG, sock);
}

static void diag_end(struct nl_sock *sock)
{
	if (sock)
		nl_socket_free(sock);
	libc_internal_end();
}

/*
 * The sockets of one protocol with that local port, both families, into res. 0 or negative errno.
 */
static int ask(uint8_t proto, uint32_t states, struct result *res)
{
	struct nl_sock *sock;
	int err = diag_begin(&sock);

	if (!err) {
		nl_socket_modify_cb(sock, NL_CB_VALID, NL_CB_CUSTOM, one_socket, res);
		err = dump(sock, AF_INET, proto, states, res->port);
		if (!err)
			err = dump(sock, AF_INET6, proto, states, res->port);
	}
	diag_end(sock);
	return err;
}

int net_udp_inodes(uint16_t port, uint64_t *inodes, unsigned max)
{
	struct result res = {.inodes = inodes, .max = max, .port = port};
	int err = ask(IPPROTO_UDP, UINT32_MAX, &res);

	return err ? err : (int)res.num;
}

int net_tcp_conns(uint16_t port)
{
	struct result res = {.port = port};
	int err = ask(IPPROTO_TCP, UINT32_MAX & ~(1u << TIME_WAIT | 1u << CLOSE | 1u << LISTEN),
		      &res);

	return err ? err : (int)res.num;
}

static void id_address(const struct in6_addr *a, __be32 at[4])
{
	if (IN6_IS_ADDR_V4MAPPED(a))
		memcpy(at, &a->s6_addr[12], 4);
	else
		memcpy(at, a, sizeof(*a));
}

struct left {
	bool is_old;
	uint32_t cookie[2];
};

static int one_left(struct nl_msg *msg, void *arg)
{
	struct nlmsghdr *h = nlmsg_hdr(msg);
	const struct inet_diag_msg *d = nlmsg_data(h);
	struct left *left = arg;

	if (nlmsg_datalen(h) < (int)sizeof(*d))
		return NL_SKIP;
	/* Of a TIME_WAIT the kernel tells what it stands for; neither has an inode. */
	left->is_old =
		(d->idiag_state == TIME_WAIT || d->idiag_state == FIN_WAIT2) && !d->idiag_inode;
	memcpy(left->cookie, d->id.idiag_cookie, sizeof(left->cookie));
	return NL_OK;
}

/*
 * Takes away the TIME_WAIT of that name: by its cookie, as by its name alone the kernel would take
 * the listener when the TIME_WAIT has just ended. 0 or more, or libnl's error.
 */
static int destroy(struct nl_sock *sock, struct inet_diag_req_v2 *req)
{
	struct left left = {.is_old = false};
	int err;

	nl_socket_disable_auto_ack(sock);
	nl_socket_modify_cb(sock, NL_CB_VALID, NL_CB_CUSTOM, one_left, &left);
	err = nl_send_simple(sock, SOCK_DIAG_BY_FAMILY, 0, req, sizeof(*req));
	if (err >= 0)
		err = nl_recvmsgs_default(sock);
	if (err >= 0 && !left.is_old)
		return -NLE_OBJ_NOTFOUND;
	if (err < 0)
		return err;
	memcpy(req->id.idiag_cookie, left.cookie, sizeof(left.cookie));
	err = nl_send_simple(sock, SOCK_DESTROY, NLM_F_ACK, req, sizeof(*req));
	return err < 0 ? err : nl_wait_for_ack(sock);
}

int net_tcp_time_wait_end(const struct in6_addr *local, uint16_t lport,
			  const struct in6_addr *remote, uint16_t rport)
{
	struct inet_diag_req_v2 req = {
		.sdiag_family = IN6_IS_ADDR_V4MAPPED(local) ? AF_INET : AF_INET6,
		.sdiag_protocol = IPPROTO_TCP,
		.id = {.idiag_sport = htons(lport),
		       .idiag_dport = htons(rport),
		       .idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}},
	};
	struct nl_sock *sock;
	int err;

	id_address(local, req.id.idiag_src);
	id_address(remote, req.id.idiag_dst);
	err = diag_begin(&sock);
	if (!err) {
		err = destroy(sock, &req);
		err = err == -NLE_OBJ_NOTFOUND ? -ENOENT : err < 0 ? -EIO : 0;
	}
	diag_end(sock);
	return err;
}
