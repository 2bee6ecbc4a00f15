/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * IPsec (ip-xfrm(8)): the policies of this network namespace, by which the kernel encrypts what
 * leaves and refuses what comes in the clear. Those of single sockets (IP_XFRM_POLICY) do not
 * count: such sockets are the kernel's.
 */
#include <errno.h>
#include <linux/xfrm.h>
#include <netlink/attr.h>
#include <netlink/msg.h>
#include <netlink/netlink.h>
#include <netlink/socket.h>
#include <string.h>
#include <sys/syscall.h>

#include "net/net.h"
#include "runtime/runtime.h"

static int counted(struct nl_msg *msg, void *arg)
{
	const struct nlattr *a = nlmsg_find_attr(nlmsg_hdr(msg), sizeof(uint32_t), XFRMA_SPD_INFO);
	struct xfrmu_spdinfo info;

	if (a && nla_len(a) >= (int)sizeof(info)) {
		memcpy(&info, nla_data(a), sizeof(info));
		*(bool *)arg = info.incnt || info.outcnt;
	}
	return NL_OK;
}

/* ip xfrm policy setdefault (Linux 5.15): what no policy is for is refused. */
static bool blocks(const struct nlmsghdr *h)
{
	const struct xfrm_userpolicy_default *policy = nlmsg_data(h);

	return h->nlmsg_type == XFRM_MSG_GETDEFAULT &&
	       h->nlmsg_len >= NLMSG_LENGTH(sizeof(*policy)) &&
	       (policy->in == XFRM_USERPOLICY_BLOCK || policy->out == XFRM_USERPOLICY_BLOCK);
}

static int of_default(struct nl_msg *msg, void *arg)
{
	if (blocks(nlmsg_hdr(msg)))
		*(bool *)arg = true;
	return NL_OK;
}

/* 0 or more, or libnl's error. */
static int ask(struct nl_sock *sock, bool *any)
{
	struct xfrm_userpolicy_default defaults = {0};
	uint32_t flags = 0;
	int err;

	nl_socket_disable_auto_ack(sock);
	nl_socket_modify_cb(sock, NL_CB_VALID, NL_CB_CUSTOM, counted, any);
	err = nl_send_simple(sock, XFRM_MSG_GETSPDINFO, 0, &flags, sizeof(flags));
	if (err >= 0)
		err = nl_recvmsgs_default(sock);
	if (err < 0 || *any)
		return err;
	/* An older kernel refuses the question. */
	nl_socket_modify_cb(sock, NL_CB_VALID, NL_CB_CUSTOM, of_default, any);
	err = nl_send_simple(sock, XFRM_MSG_GETDEFAULT, 0, &defaults, sizeof(defaults));
	if (err >= 0)
		(void)nl_recvmsgs_default(sock);
	return 0;
}

bool net_policies_any(void)
{
	struct nl_sock *sock;
	bool any = false;
	int err;

	/* A kernel without it. */
	if (net_netlink(NETLINK_XFRM, &sock))
		return false;
	err = ask(sock, &any);
	if (err < 0)
		log_debug("net: asking for IPsec policies: %s", nl_geterror(err));
	nl_socket_free(sock);
	return any;
}

int net_policies_follow(void)
{
	struct sockaddr_nl local = {.nl_family = AF_NETLINK, .nl_groups = XFRMGRP_POLICY};
	int fd, err;

	fd = OWN_FD(libc.socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_XFRM));
	if (fd < 0)
		return -errno;
	if (!libc.bind(fd, (struct sockaddr *)&local, sizeof(local)))
		return fd;
	err = -errno;
	own_fd_close(fd);
	return err;
}

/* It is there from now on, for what comes or what leaves; what is forwarded is not ours. */
static bool is_new(const void *message, size_t len)
{
	const struct nlmsghdr *h = message;
	const struct xfrm_userpolicy_info *policy = nlmsg_data(h);

	if (len >= NLMSG_LENGTH(sizeof(struct xfrm_userpolicy_default)) && blocks(h))
		return true;
	return len >= NLMSG_LENGTH(sizeof(*policy)) &&
	       h->nlmsg_len >= NLMSG_LENGTH(sizeof(*policy)) &&
	       (h->nlmsg_type == XFRM_MSG_NEWPOLICY || h->nlmsg_type == XFRM_MSG_UPDPOLICY) &&
	       (policy->dir == XFRM_POLICY_IN || policy->dir == XFRM_POLICY_OUT);
}

bool net_policies_came(int fd)
{
	_Alignas(struct nlmsghdr) char message[4096];
	struct sockaddr_nl from;
	bool came = false;
	socklen_t from_len;
	long n;

	for (;;) {
		from_len = sizeof(from);
		n = libc_raw(SYS_recvfrom, fd, (long)(uintptr_t)message, sizeof(message),
			     MSG_DONTWAIT, (long)(uintptr_t)&from, (long)(uintptr_t)&from_len);
		/* Too many at once: one of those that are lost may have been such. */
		if (n < 0 && errno == ENOBUFS)
			came = true;
		else if (n < 0)
			return came;
		else if (from.nl_pid == 0 && is_new(message, (size_t)n))
			came = true;
	}
}
