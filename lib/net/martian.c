/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Packets that the kernel would not take in because of their addresses: a source that cannot come
 * from outside (RFC 1812, 5.3.7), or not from there (rp_filter, RFC 3704). The kernel's own
 * ip_route_input() decides, asked by RTM_GETROUTE with an input interface.
 */
#include "net/mirror.h"

#include <errno.h>
#include <linux/rtnetlink.h>
#include <sys/syscall.h>

#include "runtime/runtime.h"

/*
 * The socket under lock, which is taken under a stack's lock and calls nothing: signal handlers
 * wait already. Of libc's calls none is made here: they are cancellation points.
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct nl_sock *sock;
static uint32_t seq;

int martian_start(void)
{
	struct nl_sock *sk = mirror_sock_open();
	int err;

	if (!sk) {
		err = -errno;
		log_error("net: socket(AF_NETLINK) for martian sources failed: %s",
			  strerror(errno));
		return err;
	}
	pthread_mutex_lock(&lock);
	sock = sk;
	pthread_mutex_unlock(&lock);
	return 0;
}

void martian_stop(void)
{
	pthread_mutex_lock(&lock);
	if (sock)
		nl_socket_free(sock);
	sock = NULL;
	pthread_mutex_unlock(&lock);
}

void martian_forked(void)
{
	if (sock)
		own_fd_close(nl_socket_get_fd(sock));
	sock = NULL;
	pthread_mutex_init(&lock, NULL);
}

/* Where the kernel sends a packet that it takes in; -EAGAIN: this is no answer to our question. */
static int verdict(const void *answer, long len)
{
	const struct nlmsghdr *h = answer;
	const struct nlmsgerr *e = nlmsg_data(h);
	const struct rtmsg *rtm = nlmsg_data(h);

	if (len < (long)sizeof(*h) || h->nlmsg_len > len || h->nlmsg_seq != seq)
		return -EAGAIN;
	if (h->nlmsg_type == NLMSG_ERROR && h->nlmsg_len >= NLMSG_LENGTH(sizeof(*e))) {
		switch (-e->error) {
		case EINVAL: /* martian, or a blackhole */
		case EXDEV: /* rp_filter */
		case EHOSTUNREACH:
		case ENETUNREACH:
		case EACCES:
			return 1;
		}
		return e->error < 0 ? e->error : -EIO;
	}
	if (h->nlmsg_type != RTM_NEWROUTE || h->nlmsg_len < NLMSG_LENGTH(sizeof(*rtm)))
		return -EIO;
	return rtm->rtm_type != RTN_LOCAL && rtm->rtm_type != RTN_BROADCAST &&
	       rtm->rtm_type != RTN_MULTICAST;
}

/* The kernel has answered when the call that asks returns. lock is held. */
static int ask(int ifindex, uint32_t src, uint32_t dst)
{
	struct {
		struct nlmsghdr h;
		struct rtmsg rtm;
		struct {
			struct nlattr attr;
			uint32_t value;
		} dst, src, iif;
	} req = {
		.h = {.nlmsg_len = sizeof(req),
		      .nlmsg_type = RTM_GETROUTE,
		      .nlmsg_flags = NLM_F_REQUEST,
		      .nlmsg_seq = ++seq},
		.rtm = {.rtm_family = AF_INET, .rtm_dst_len = 32, .rtm_src_len = 32},
		.dst = {{sizeof(req.dst), RTA_DST}, dst},
		.src = {{sizeof(req.src), RTA_SRC}, src},
		.iif = {{sizeof(req.iif), RTA_IIF}, (uint32_t)ifindex},
	};
	struct sockaddr_nl kernel = {.nl_family = AF_NETLINK}, from;
	_Alignas(struct nlmsghdr) char answer[1024];
	int fd = nl_socket_get_fd(sock), res = -EAGAIN;
	socklen_t from_len;
	long n;

	if (libc_raw(SYS_sendto, fd, (long)(uintptr_t)&req, sizeof(req), MSG_DONTWAIT,
		     (long)(uintptr_t)&kernel, sizeof(kernel)) < 0)
		return -errno;
	/* Late answers of questions that were given up come first. */
	while (res == -EAGAIN) {
		from_len = sizeof(from);
		n = libc_raw(SYS_recvfrom, fd, (long)(uintptr_t)answer, sizeof(answer),
			     MSG_DONTWAIT, (long)(uintptr_t)&from, (long)(uintptr_t)&from_len);
		if (n < 0)
			return errno == EAGAIN ? -EIO : -errno;
		if (from.nl_pid == 0)
			res = verdict(answer, n);
	}
	return res;
}

int net_is_martian(int ifindex, uint32_t src, uint32_t dst)
{
	int saved = errno, res;

	pthread_mutex_lock(&lock);
	res = sock ? ask(ifindex, src, dst) : -ENETDOWN;
	pthread_mutex_unlock(&lock);
	if (res < 0)
		log_debug("net: RTM_GETROUTE for a source: %s", strerror(-res));
	errno = saved;
	return res;
}
