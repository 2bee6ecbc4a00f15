/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Starts and stops the mirror, receives the kernel's events and tells the listeners. Events may be
 * lost (ENOBUFS): then everything is dumped anew and what the dump did not show is forgotten.
 */
#include "net/mirror.h"

#include <errno.h>
#include <linux/fib_rules.h>
#include <linux/rtnetlink.h>
#include <netlink/netlink.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "net/notify.h"
#include "net/hash.h"
#include "runtime/runtime.h"

/*
 * Receive calls of one net_process(): an event storm does not keep the internal thread from its
 * other work.
 */
#define BATCH_MAX 64
#define EVENT_RCVBUF (4 << 20)
#define MSG_BUF (32 << 10)
#define DUMP_TRIES 4
/*
 * The kernel announces some changes before it makes them (RTM_DELROUTE, the RTM_NEWLINK of a link
 * that goes down), so an answer fetched right after the event may be the old one. This long after
 * the last event the generation is bumped once more.
 */
#define SETTLE_MSEC 100

union net_gens net_gens = {{1, 1}};

/*
 * All but `started` and `epoll_fd` (read by anyone) under lock, whose holder has all signals
 * blocked.
 */
static struct {
	pthread_mutex_t lock;
	_Atomic bool started;
	_Atomic int epoll_fd; /* events and timer: what net_fd() gives out */
	int timer_fd;
	struct nl_sock *events;
	struct nl_cb *cb;
	uint64_t epoch;
	bool incomplete;
	bool settle;
	bool timer_runs;
	bool rules_by_port; /* the dump has shown one */
	struct net_pending pending;
} m = {.lock = PTHREAD_MUTEX_INITIALIZER, .epoll_fd = -1, .timer_fd = -1};

static const int groups[] = {
	RTNLGRP_LINK,	   RTNLGRP_NEIGH,	 RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV4_ROUTE,
	RTNLGRP_IPV4_RULE, RTNLGRP_IPV6_IFADDR,	 RTNLGRP_IPV6_ROUTE,  RTNLGRP_IPV6_RULE,
	RTNLGRP_NEXTHOP,   RTNLGRP_IPV4_NETCONF,
};

static void mirror_lock(sigset_t *old)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, old);
	pthread_mutex_lock(&m.lock);
	libc_internal_begin();
}

static void mirror_unlock(const sigset_t *old)
{
	libc_internal_end();
	pthread_mutex_unlock(&m.lock);
	pthread_sigmask(SIG_SETMASK, old, NULL);
}

struct nl_sock *mirror_sock_open(void)
{
	struct sockaddr_nl local = {.nl_family = AF_NETLINK};
	struct nl_sock *sk;
	int fd, saved;

	/*
	 * Bound by the kernel: libnl's port allocator has a lock that a fork() may leave taken in
	 * the child.
	 */
	fd = OWN_FD(
		libc.socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE));
	if (fd < 0)
		return NULL;
	if (libc.bind(fd, (struct sockaddr *)&local, sizeof(local)))
		goto err_close;
	sk = nl_socket_alloc();
	if (!sk) {
		errno = ENOMEM;
		goto err_close;
	}
	if (nl_socket_set_fd(sk, NETLINK_ROUTE, fd)) {
		nl_socket_free(sk);
		errno = EINVAL;
		goto err_close;
	}
	nl_socket_disable_auto_ack(sk);
	nl_socket_set_msg_buf_size(sk, MSG_BUF);
	return sk;
err_close:
	saved = errno;
	own_fd_close(fd);
	errno = saved;
	return NULL;
}

void mirror_tell(enum net_event ev, int ifindex)
{
	pending_add(&m.pending, ev, ifindex);
}

void mirror_changed(enum net_event ev, int ifindex)
{
	/* After the tables: who sees the new generation sees the new tables. */
	if (ev == NET_EVENT_NEIGH) {
		atomic_fetch_add_explicit(&net_gens.neigh, 1, memory_order_acq_rel);
	} else {
		atomic_fetch_add_explicit(&net_gens.net, 1, memory_order_acq_rel);
		m.settle = true;
	}
	mirror_tell(ev, ifindex);
}

void mirror_incomplete(const char *what)
{
	log_warn("net: out of memory for %s: all interfaces will be read anew", what);
	m.incomplete = true;
}

static void route_input(struct nlmsghdr *h)
{
	static const struct nla_policy policy[RTA_MAX + 1] = {[RTA_OIF] = {.type = NLA_U32}};
	struct nlattr *tb[RTA_MAX + 1];
	int oif = 0;

	/* Whatever it says, cached answers are void; the routes themselves are not mirrored. */
	if (nlmsg_parse(h, sizeof(struct rtmsg), tb, RTA_MAX, policy) == 0 && tb[RTA_OIF])
		oif = (int)nla_get_u32(tb[RTA_OIF]);
	mirror_changed(NET_EVENT_ROUTE, oif);
}

/*
 * Rules are not mirrored either, but for whether one looks at more than addresses. One that goes
 * may not have been the only one: what is not so any more only costs questions, until everything is
 * read anew.
 */
static void rule_input(struct nlmsghdr *h)
{
	struct nlattr *tb[FRA_MAX + 1];

	if (h->nlmsg_type == RTM_NEWRULE &&
	    nlmsg_parse(h, sizeof(struct fib_rule_hdr), tb, FRA_MAX, NULL) == 0 &&
	    (tb[FRA_IP_PROTO] || tb[FRA_SPORT_RANGE] || tb[FRA_DPORT_RANGE])) {
		m.rules_by_port = true;
		routes_by_port(true);
	}
	mirror_changed(NET_EVENT_ROUTE, 0);
}

static int message(struct nl_msg *msg, void *arg)
{
	struct nlmsghdr *h = nlmsg_hdr(msg);

	(void)arg;
	/* Only the kernel is believed. */
	if (nlmsg_get_src(msg)->nl_pid != 0)
		return NL_SKIP;
	switch (h->nlmsg_type) {
	case RTM_NEWLINK:
	case RTM_DELLINK:
		link_input(h, m.epoch);
		break;
	case RTM_NEWADDR:
	case RTM_DELADDR:
		addr_input(h, m.epoch);
		break;
	case RTM_NEWNEIGH:
	case RTM_DELNEIGH:
		neigh_input(h, m.epoch);
		break;
	case RTM_NEWROUTE:
	case RTM_DELROUTE:
		route_input(h);
		break;
	case RTM_NEWRULE:
	case RTM_DELRULE:
		rule_input(h);
		break;
	case RTM_NEWNEXTHOP:
	case RTM_DELNEXTHOP:
	case RTM_NEWNETCONF: /* rp_filter among others */
		mirror_changed(NET_EVENT_ROUTE, 0);
		break;
	}
	return NL_OK;
}

struct request {
	uint16_t type;
	uint16_t body; /* bytes: of what is longer the kernel's log complains */
};

/* One dump into the tables. 0 or a libnl error (negative). */
static int dump(struct nl_sock *sk, const struct request *r)
{
	struct {
		struct nlmsghdr h;
		struct ifinfomsg body; /* the longest of them; all zeroes: of every family */
	} req = {.h = {.nlmsg_len = (uint32_t)NLMSG_LENGTH(r->body),
		       .nlmsg_type = r->type,
		       .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP}};
	int err;

	err = nl_sendto(sk, &req, req.h.nlmsg_len);
	return err < 0 ? err : nl_recvmsgs(sk, m.cb);
}

/* mirror_sock_open() has failed: says why; negative errno. */
static int no_socket(void)
{
	int err = -errno;

	if (err == -EAFNOSUPPORT)
		log_warn("net: this process may have no netlink socket "
			 "(systemd: RestrictAddressFamilies= wants AF_NETLINK, AF_PACKET and "
			 "AF_XDP)");
	else
		log_error("net: socket(AF_NETLINK) failed: %s", strerror(-err));
	return err;
}

/*
 * Reads everything anew. 0, or negative errno: the tables hold what was read so far and the old
 * rest.
 */
static int resync_once(void)
{
	static const struct request requests[] = {
		{RTM_GETLINK, sizeof(struct ifinfomsg)},
		{RTM_GETADDR, sizeof(struct ifaddrmsg)},
		{RTM_GETNEIGH, sizeof(struct ndmsg)},
		{RTM_GETRULE, sizeof(struct fib_rule_hdr)},
	};
	struct nl_sock *sk = mirror_sock_open();
	int err = 0;

	if (!sk)
		return no_socket();
	m.epoch++;
	m.incomplete = m.rules_by_port = false;
	for (unsigned i = 0; i < sizeof(requests) / sizeof(requests[0]) && !err; i++) {
		err = dump(sk, &requests[i]);
		/* A kernel without rules. */
		if (requests[i].type == RTM_GETRULE && err == -NLE_OPNOTSUPP)
			err = 0;
	}
	nl_socket_free(sk);
	if (err) {
		log_debug("net: dump: %s", nl_geterror(err));
		return err == -NLE_DUMP_INTR ? -EINTR : -EIO;
	}
	if (m.incomplete)
		return -ENOMEM;
	link_sweep(m.epoch);
	addr_sweep(m.epoch);
	neigh_sweep(m.epoch);
	routes_by_port(m.rules_by_port);
	return 0;
}

/*
 * Again while the tables change under the dump. Failed: m.incomplete stays set and the timer tries
 * again.
 */
static int resync(void)
{
	int err = -EINTR;

	for (int i = 0; i < DUMP_TRIES && err == -EINTR; i++)
		err = resync_once();
	m.incomplete = err != 0;
	m.settle = true;
	for (enum net_event ev = NET_EVENT_LINK; ev <= NET_EVENT_NEIGH; ev++)
		mirror_changed(ev, 0);
	return err;
}

static void settle_later(void)
{
	struct itimerspec when = {.it_value = {.tv_nsec = SETTLE_MSEC * 1000000L}};

	m.settle = false;
	m.timer_runs = !timerfd_settime(m.timer_fd, 0, &when, NULL);
	if (!m.timer_runs)
		log_error("net: timerfd_settime(%d) failed: %s", m.timer_fd, strerror(errno));
}

static int events_open(void)
{
	int size = EVENT_RCVBUF, fd;

	m.events = mirror_sock_open();
	if (!m.events)
		return no_socket();
	fd = nl_socket_get_fd(m.events);
	/*
	 * FORCE needs CAP_NET_ADMIN; without it rmem_max is the limit, and an overrun only costs a
	 * dump.
	 */
	if (libc.setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)) &&
	    libc.setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)))
		log_debug("net: setsockopt(%d, SO_RCVBUF) failed: %s", fd, strerror(errno));
	for (unsigned i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
		/*
		 * An old kernel has no RTNLGRP_NEXTHOP, a kernel without IPv6 none of its groups.
		 */
		if (libc.setsockopt(fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &groups[i],
				    sizeof(groups[i])))
			log_debug("net: joining the netlink group %d failed: %s", groups[i],
				  strerror(errno));
	return 0;
}

static int waiter_open(void)
{
	struct epoll_event ev = {.events = EPOLLIN};
	int ep = OWN_FD(libc.epoll_create1(EPOLL_CLOEXEC)), err;

	m.timer_fd = OWN_FD(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
	atomic_store(&m.epoll_fd, ep);
	if (ep < 0 || m.timer_fd < 0 || libc.epoll_ctl(ep, EPOLL_CTL_ADD, m.timer_fd, &ev) ||
	    libc.epoll_ctl(ep, EPOLL_CTL_ADD, nl_socket_get_fd(m.events), &ev)) {
		err = -errno;
		log_error("net: epoll or timer for the netlink events failed: %s", strerror(errno));
		return err;
	}
	return 0;
}

static void sock_close(struct nl_sock **sk)
{
	if (*sk)
		nl_socket_free(*sk);
	*sk = NULL;
}

/* Closes and forgets everything, in whatever state. */
static void teardown(void)
{
	int ep = atomic_exchange(&m.epoll_fd, -1);

	atomic_store(&m.started, false);
	group_stop();
	martian_stop();
	neigh_stop();
	route_stop();
	link_stop();
	if (ep >= 0)
		own_fd_close(ep);
	if (m.timer_fd >= 0)
		own_fd_close(m.timer_fd);
	m.timer_fd = -1;
	m.timer_runs = false;
	sock_close(&m.events);
	if (m.cb)
		nl_cb_put(m.cb);
	m.cb = NULL;
	link_sweep(0);
	addr_sweep(0);
	neigh_sweep(0);
	memset(&m.pending, 0, sizeof(m.pending));
	atomic_fetch_add(&net_gens.net, 1);
	atomic_fetch_add(&net_gens.neigh, 1);
}

/*
 * Built in the order: sockets, subscription, dump; an event that comes during the dump waits in its
 * socket.
 */
static int bring_up(void)
{
	int err;

	net_table_seed();
	m.cb = nl_cb_alloc(NL_CB_DEFAULT);
	if (!m.cb)
		return -ENOMEM;
	nl_cb_set(m.cb, NL_CB_VALID, NL_CB_CUSTOM, message, NULL);
	err = events_open();
	if (!err)
		err = waiter_open();
	if (!err)
		err = link_start();
	if (!err)
		err = route_start();
	if (!err)
		err = neigh_start();
	if (!err)
		err = martian_start();
	if (!err)
		err = resync();
	return err;
}

int net_start(void)
{
	sigset_t old;
	int err = 0;

	if (atomic_load_explicit(&m.started, memory_order_acquire))
		return 0;
	libc_load();
	mirror_lock(&old);
	if (!atomic_load(&m.started)) {
		err = bring_up();
		if (err) {
			teardown();
		} else {
			/* Who starts the mirror knows that everything is new. */
			memset(&m.pending, 0, sizeof(m.pending));
			settle_later();
			atomic_store_explicit(&m.started, true, memory_order_release);
		}
	}
	mirror_unlock(&old);
	return err;
}

void net_stop(void)
{
	sigset_t old;

	if (!atomic_load(&m.started))
		return;
	mirror_lock(&old);
	if (atomic_load(&m.started))
		teardown();
	mirror_unlock(&old);
	listeners_clear();
}

void net_forked(void)
{
	int ep = atomic_exchange(&m.epoll_fd, -1);

	/*
	 * Another thread may have been anywhere inside, libnl included: the fds are closed, the
	 * locks made anew, and the memory of libnl's objects and of the tables is abandoned.
	 */
	if (ep >= 0)
		own_fd_close(ep);
	if (m.timer_fd >= 0)
		own_fd_close(m.timer_fd);
	if (m.events)
		own_fd_close(nl_socket_get_fd(m.events));
	link_forked();
	addr_forked();
	route_forked();
	neigh_forked();
	martian_forked();
	group_forked();
	pthread_mutex_init(&m.lock, NULL);
	listeners_forked();
	atomic_store(&m.started, false);
	m.timer_fd = -1;
	m.timer_runs = false;
	m.events = NULL;
	m.cb = NULL;
	memset(&m.pending, 0, sizeof(m.pending));
	atomic_fetch_add(&net_gens.net, 1);
	atomic_fetch_add(&net_gens.neigh, 1);
}

int net_fd(void)
{
	return atomic_load(&m.epoll_fd);
}

/*
 * The timer has run out: the kernel is done with what it announced, or a failed dump is tried
 * again.
 */
static void timer_input(void)
{
	uint64_t expirations;

	if (raw.read(m.timer_fd, &expirations, sizeof(expirations)) != sizeof(expirations))
		return;
	m.timer_runs = false;
	if (m.incomplete) {
		if (resync())
			log_warn("net: reading the interfaces failed, trying again in %d ms",
				 SETTLE_MSEC);
		return;
	}
	mirror_changed(NET_EVENT_ROUTE, 0);
	m.settle = false;
}

/*
 * Empties the event socket. Ends: a socket that has overflowed takes nothing more before it is
 * empty.
 */
static void events_discard(int fd)
{
	ssize_t n;
	char byte;

	do {
		n = raw.recv(fd, &byte, sizeof(byte), MSG_DONTWAIT);
	} while (n >= 0 || errno == ENOBUFS);
}

/* Takes in what the event socket has, up to BATCH_MAX datagrams. */
static void events_input(void)
{
	int err = 0;

	for (int i = 0; i < BATCH_MAX && !err; i++)
		err = nl_recvmsgs(m.events, m.cb);
	if (!err || err == -NLE_AGAIN)
		return;
	/*
	 * ENOBUFS (libnl calls it NLE_NOMEM): events were dropped. Anything else is no more to be
	 * trusted.
	 */
	log_debug("net: netlink events lost (%s): reading all interfaces anew", nl_geterror(err));
	/*
	 * What still waits is older than what was lost: after the dump it would bring back the
	 * past.
	 */
	events_discard(nl_socket_get_fd(m.events));
	resync();
}

void net_path_mtu_changes(void)
{
	sigset_t old;

	mirror_lock(&old);
	/* One that is due is not put off: however often it is said, it comes. */
	if (atomic_load(&m.started) && !m.timer_runs)
		settle_later();
	mirror_unlock(&old);
}

void net_process(void)
{
	struct net_pending told = {0};
	sigset_t old;

	mirror_lock(&old);
	if (atomic_load(&m.started)) {
		timer_input();
		events_input();
		if (m.settle || m.incomplete)
			settle_later();
		told = m.pending;
		memset(&m.pending, 0, sizeof(m.pending));
	}
	mirror_unlock(&old);
	listeners_tell(&told);
}
