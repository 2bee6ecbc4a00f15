/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Who else has a UDP port: asked of the kernel through sock_diag(7), nothing is kept. */
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netlink/msg.h>
#include <netlink/netlink.h>
#include <netlink/socket.h>

#include "net/net.h"
#include "runtime/libc.h"

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
static int dump(struct nl_sock *sock, uint8_t family, uint16_t port)
{
	struct inet_diag_req_v2 req = {
		.sdiag_family = family,
		.sdiag_protocol = IPPROTO_UDP,
		.idiag_states = UINT32_MAX,
		.id.idiag_sport = htons(port),
	};
	int err = nl_send_simple(sock, SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &req, sizeof(req));

	if (err >= 0)
		err = nl_recvmsgs_default(sock);
	return err < 0 ? -EIO : 0;
}

int net_udp_inodes(uint16_t port, uint64_t *inodes, unsigned max)
{
	struct result res = {.inodes = inodes, .max = max, .port = port};
	struct nl_sock *sock;
	int err;

	libc_internal++;
	sock = nl_socket_alloc();
	err = !sock ? -ENOMEM : nl_connect(sock, NETLINK_SOCK_DIAG) ? -EIO : 0;
	if (!err) {
		nl_socket_modify_cb(sock, NL_CB_VALID, NL_CB_CUSTOM, one_socket, &res);
		err = dump(sock, AF_INET, port);
		if (!err)
			err = dump(sock, AF_INET6, port);
	}
	if (sock)
		nl_socket_free(sock);
	libc_internal--;
	return err ? err : (int)res.num;
}
