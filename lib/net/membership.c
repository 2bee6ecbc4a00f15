/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Who on this host hears a multicast group that it sends to. The kernel announces memberships
 * (Linux 6.15 and newer, of all sockets of the namespace), and an announcement is in our socket
 * before the setsockopt() that joins returns. So what was found out holds while nothing has come
 * there: whoever asks looks into the socket each time, and misses no member.
 */
#include "net/mirror.h"

#include <errno.h>
#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>

#include "runtime/runtime.h"

/* linux/rtnetlink.h of 6.14 */
#define GROUP_IPV4_MCADDR 37
#define GROUP_IPV6_MCADDR 38

#define ANSWERS_MAX 512 /* power of two */
#define ANSWER_WAYS 8 /* places that one group's may be in */
/*
 * Where members come and go all the time, the kernel sends: it is asked for a group no more often
 * than that.
 */
#define ASK_INTERVAL_NS 10000000u

/* Taken under a socket's lock like the one in martian.c, so signal handlers wait already. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct nl_sock *news;
static bool unable; /* the kernel does not announce, or cannot be asked */
static uint32_t seq;
/* What was found out of a group on an interface; good while `changes` is as_of. */
static struct answer {
	struct in6_addr group;
	int ifindex; /* 0: free */
	bool quiet; /* nobody hears it */
	uint32_t as_of; /* 0: nothing was found out */
	uint64_t asked_ns;
} answers[ANSWERS_MAX];
static uint32_t changes = 1; /* never 0: announcements that were met, and more */

static void forget(void)
{
	changes++;
	if (!changes)
		changes = 1;
}

void group_stop(void)
{
	pthread_mutex_lock(&lock);
	if (news)
		nl_socket_free(news);
	news = NULL;
	unable = false;
	forget();
	pthread_mutex_unlock(&lock);
}

void group_forked(void)
{
	if (news)
		own_fd_close(nl_socket_get_fd(news));
	news = NULL;
	unable = false;
	forget();
	pthread_mutex_init(&lock, NULL);
}

static bool news_open(void)
{
	/* Multicast routing is announced with the other settings of interfaces. */
	static const int groups[] = {GROUP_IPV4_MCADDR, GROUP_IPV6_MCADDR, RTNLGRP_IPV4_NETCONF,
				     RTNLGRP_IPV6_NETCONF};

	if (news || unable)
		return news != NULL;
	news = mirror_sock_open();
	for (unsigned i = 0; news && i < sizeof(groups) / sizeof(groups[0]); i++) {
		if (!libc.setsockopt(nl_socket_get_fd(news), SOL_NETLINK, NETLINK_ADD_MEMBERSHIP,
				     &groups[i], sizeof(groups[i])))
			continue;
		log_debug("net: the kernel does not announce multicast members: %s",
			  strerror(errno));
		nl_socket_free(news);
		news = NULL;
	}
	unable = !news;
	return news != NULL;
}

static long take(struct nl_sock *sk, void *buf, size_t len)
{
	return libc_raw(SYS_recvfrom, nl_socket_get_fd(sk), (long)(uintptr_t)buf, (long)len,
			MSG_DONTWAIT, 0, 0);
}

/* Forgets what is not certain any more. True: something has come. */
static bool news_came(void)
{
	_Alignas(struct nlmsghdr) char message[64]; /* what it says does not matter */
	bool came = false;
	long n = 0;

	while (n >= 0 || errno == ENOBUFS) {
		n = take(news, message, sizeof(message));
		came = came || n >= 0 || errno != EAGAIN;
	}
	if (came)
		forget();
	return came;
}

/* The host routes multicast: what it sends may go on by other interfaces. */
static bool is_router(bool v4)
{
	char text[16];

	text_file_read(v4 ? "/proc/sys/net/ipv4/conf/all/mc_forwarding"
			  : "/proc/sys/net/ipv6/conf/all/mc_forwarding",
		       text, sizeof(text));
	return atoi(text) != 0 || !text[0];
}

/* Whether h is of the group on the interface. */
static bool names(struct nlmsghdr *h, int ifindex, const struct in6_addr *group)
{
	const struct ifaddrmsg *ifa = nlmsg_data(h);
	struct nlattr *tb[IFA_MAX + 1];
	struct in6_addr addr;

	return !nlmsg_parse(h, sizeof(*ifa), tb, IFA_MAX, NULL) &&
	       ifa->ifa_index == (uint32_t)ifindex &&
	       attr_addr(ifa->ifa_family, tb[IFA_MULTICAST], &addr) &&
	       !memcmp(&addr, group, sizeof(addr));
}

/*
 * One part of the kernel's list. -EAGAIN: go on; 1: a member, 0: none, other negative errno: it
 * cannot be told.
 */
static int part(struct nlmsghdr *h, int left, int ifindex, const struct in6_addr *group)
{
	for (; nlmsg_ok(h, left); h = nlmsg_next(h, &left)) {
		if (h->nlmsg_seq != seq)
			continue;
		if (h->nlmsg_type == NLMSG_ERROR)
			return -EOPNOTSUPP;
		if (h->nlmsg_flags & NLM_F_DUMP_INTR)
			return -EINTR;
		if (h->nlmsg_type == NLMSG_DONE)
			return 0;
		if (names(h, ifindex, group))
			return 1;
	}
	return -EAGAIN;
}

/* 1: the kernel knows members, 0: none, negative errno: it cannot be asked. */
static int ask(int ifindex, const struct in6_addr *group)
{
	struct {
		struct nlmsghdr h;
		struct ifaddrmsg body;
	} req = {.h = {.nlmsg_len = sizeof(req),
		       .nlmsg_type = RTM_GETMULTICAST,
		       .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP,
		       .nlmsg_seq = ++seq},
		 .body.ifa_family = IN6_IS_ADDR_V4MAPPED(group) ? AF_INET : AF_INET6};
	struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
	/* The lock's: a program's thread may have a small stack. */
	static _Alignas(struct nlmsghdr) char answer[16384];
	struct nl_sock *sk = mirror_sock_open();
	int res = -EAGAIN;
	long n;

	if (!sk)
		return -errno;
	n = libc_raw(SYS_sendto, nl_socket_get_fd(sk), (long)(uintptr_t)&req, sizeof(req),
		     MSG_DONTWAIT, (long)(uintptr_t)&kernel, sizeof(kernel));
	while (n >= 0 && res == -EAGAIN) {
		n = take(sk, answer, sizeof(answer));
		if (n >= 0)
			res = part((struct nlmsghdr *)answer, (int)n, ifindex, group);
	}
	nl_socket_free(sk);
	return res;
}

/*
 * The place of the answer for a group, which is a new one's where there was none: then the one that
 * was asked for longest ago has gone.
 */
static struct answer *place_of(int ifindex, const struct in6_addr *group)
{
	uint32_t hash = (uint32_t)ifindex;
	struct answer *oldest = NULL;

	for (unsigned i = 0; i < sizeof(*group); i++)
		hash = hash * 31 + group->s6_addr[i];
	for (unsigned i = 0; i < ANSWER_WAYS; i++) {
		struct answer *a = &answers[(hash + i) % ANSWERS_MAX];

		if (a->ifindex == ifindex && !memcmp(&a->group, group, sizeof(*group)))
			return a;
		if (!oldest || a->asked_ns < oldest->asked_ns)
			oldest = a;
	}
	/* Its time stays: of groups that crowd each other out the kernel is not asked all the time.
	 */
	oldest->group = *group;
	oldest->ifindex = ifindex;
	oldest->as_of = 0;
	return oldest;
}

/* Asks the kernel, and keeps what it says if nothing has changed meanwhile. */
static void find_out(struct answer *a)
{
	uint64_t now = clock_monotonic_ns();
	uint32_t before = changes;
	int res;

	if (now - a->asked_ns < ASK_INTERVAL_NS)
		return;
	a->asked_ns = now;
	res = is_router(IN6_IS_ADDR_V4MAPPED(&a->group)) ? 1 : ask(a->ifindex, &a->group);
	if (res < 0)
		log_debug("net: multicast members: %s", strerror(-res));
	if (res < 0 || news_came())
		return;
	a->quiet = !res;
	a->as_of = before;
}

bool net_group_is_quiet(int ifindex, const struct in6_addr *group)
{
	int saved = errno;
	bool is;

	pthread_mutex_lock(&lock);
	is = news_open();
	if (is) {
		struct answer *a = place_of(ifindex, group);

		(void)news_came();
		if (a->as_of != changes)
			find_out(a);
		is = a->as_of == changes && a->quiet;
	}
	pthread_mutex_unlock(&lock);
	errno = saved;
	return is;
}
