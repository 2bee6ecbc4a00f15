/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The kernel's ARP and neighbour discovery tables: only entries that can be sent to are kept. */
#include "net/mirror.h"

#include <errno.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <netlink/netlink.h>
#include <stddef.h>
#include <time.h>

#include "net/hash.h"
#include "runtime/runtime.h"
#include "config/config.h"

#define NUD_USABLE (NUD_PERMANENT | NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE | NUD_NOARP)
/* Two neighbours in one slot of the rate limit cost a request too many, no more. */
#define CONFIRM_SLOTS 512
#define RESOLVE_MSEC 200
#define DISCARD_PORT 9

struct neigh_rec {
	struct in6_addr addr;
	uint32_t ifindex;
	uint32_t reserved; /* 0 */
	uint8_t mac[NET_MAC_LEN];
	uint8_t stale;
	uint8_t unused; /* 0 */
	uint64_t epoch;
};
TABLE_CHECK(struct neigh_rec, mac);

static struct net_table neighs = TABLE_INIT(struct neigh_rec, mac, sizeof(struct in6_addr));
static _Atomic int confirm_fd = -1;
static struct lock confirm_lock; /* each reads the answer to its own request */
/* High half: whose (hash), low half: when (ms). Written by any thread, by compare and exchange. */
static _Atomic uint64_t confirmed[2][CONFIRM_SLOTS];

int neigh_start(void)
{
	struct sockaddr_nl local = {.nl_family = AF_NETLINK};
	int fd = OWN_FD(libc.socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK,
				    NETLINK_ROUTE)),
	    err;

	if (fd < 0 || libc.bind(fd, (struct sockaddr *)&local, sizeof(local))) {
		err = -errno;
		log_error("net: socket(AF_NETLINK) for neighbours failed: %s", strerror(errno));
		if (fd >= 0)
			own_fd_close(fd);
		return err;
	}
	atomic_store(&confirm_fd, fd);
	return 0;
}

void neigh_stop(void)
{
	int fd = atomic_exchange(&confirm_fd, -1);

	if (fd >= 0)
		own_fd_close(fd);
}

void neigh_forked(void)
{
	neigh_stop();
	atomic_store(&confirm_lock.owner, 0);
	net_table_forked(&neighs);
}

static void neigh_put(const struct neigh_rec *r)
{
	struct neigh_rec before;
	sigset_t old;
	bool aged;
	int change;

	net_table_lock(&neighs, &old);
	before = *r;
	/*
	 * Whoever sends there must learn that it is stale: what is sent past the kernel does not
	 * make it confirm the entry, and a neighbour that has another MAC by now would never be
	 * found. Back from stale is nobody's concern.
	 */
	aged = net_table_find(&neighs, r, NULL, NULL, &before) && r->stale && !before.stale;
	change = net_table_put(&neighs, r);
	net_table_unlock(&neighs, &old);
	if (change < 0)
		mirror_incomplete("a neighbour");
	else if (change == TABLE_ADDED || aged || memcmp(before.mac, r->mac, NET_MAC_LEN))
		mirror_changed(NET_EVENT_NEIGH, (int)r->ifindex);
}

static void neigh_remove(const struct neigh_rec *key)
{
	sigset_t old;
	bool was;

	net_table_lock(&neighs, &old);
	was = net_table_del(&neighs, key);
	net_table_unlock(&neighs, &old);
	if (was)
		mirror_changed(NET_EVENT_NEIGH, (int)key->ifindex);
	else
		/* It could not be resolved: packets that wait for it wait in vain. */
		mirror_tell(NET_EVENT_NEIGH, (int)key->ifindex);
}

void neigh_input(struct nlmsghdr *h, uint64_t epoch)
{
	struct nlattr *tb[NDA_MAX + 1];
	const struct ndmsg *nd;
	struct neigh_rec r;
	bool usable;

	if (nlmsg_parse(h, sizeof(*nd), tb, NDA_MAX, NULL)) {
		log_debug("net: malformed neighbour message of %u bytes", h->nlmsg_len);
		return;
	}
	nd = nlmsg_data(h);
	if (nd->ndm_ifindex <= 0)
		return;
	memset(&r, 0, sizeof(r));
	r.ifindex = (uint32_t)nd->ndm_ifindex;
	r.epoch = epoch;
	/*
	 * Not the bridge's forwarding entries (AF_BRIDGE), not what this host answers for others.
	 */
	if ((nd->ndm_flags & NTF_PROXY) || !attr_addr(nd->ndm_family, tb[NDA_DST], &r.addr))
		return;
	usable = h->nlmsg_type == RTM_NEWNEIGH && (nd->ndm_state & NUD_USABLE) && tb[NDA_LLADDR] &&
		 nla_len(tb[NDA_LLADDR]) == NET_MAC_LEN;
	if (!usable) {
		/*
		 * INCOMPLETE of an unknown one is the beginning of a resolution: nothing to tell
		 * yet.
		 */
		if (h->nlmsg_type == RTM_DELNEIGH || nd->ndm_state != NUD_INCOMPLETE ||
		    net_table_find(&neighs, &r, NULL, NULL, &(struct neigh_rec){0}))
			neigh_remove(&r);
		return;
	}
	memcpy(r.mac, nla_data(tb[NDA_LLADDR]), NET_MAC_LEN);
	r.stale = !!(nd->ndm_state & NUD_STALE);
	neigh_put(&r);
}

static bool neigh_is_old(const void *rec, void *arg)
{
	const struct neigh_rec *r = rec;

	return r->epoch != *(const uint64_t *)arg;
}

void neigh_sweep(uint64_t epoch)
{
	sigset_t old;

	net_table_lock(&neighs, &old);
	net_table_sweep(&neighs, neigh_is_old, &epoch);
	net_table_unlock(&neighs, &old);
}

static bool neigh_is_on(const void *rec, void *arg)
{
	const struct neigh_rec *r = rec;

	return r->ifindex == *(const uint32_t *)arg;
}

void neigh_link_gone(int ifindex)
{
	uint32_t on = (uint32_t)ifindex;
	unsigned dropped;
	sigset_t old;

	net_table_lock(&neighs, &old);
	dropped = net_table_sweep(&neighs, neigh_is_on, &on);
	net_table_unlock(&neighs, &old);
	if (dropped)
		mirror_changed(NET_EVENT_NEIGH, ifindex);
}

int net_neigh_get(int ifindex, const struct in6_addr *addr, struct net_neigh *out)
{
	struct neigh_rec r = {.addr = *addr, .ifindex = (uint32_t)ifindex};

	if (!net_table_find(&neighs, &r, NULL, NULL, &r))
		return -ENOENT;
	memcpy(out->mac, r.mac, NET_MAC_LEN);
	out->stale = r.stale;
	return 0;
}

/* True once in msec for each neighbour (by hash) and kind of request (kind: 0 or 1). */
static bool request_due(const struct neigh_rec *key, unsigned kind, uint32_t msec)
{
	uint64_t hash = net_table_hash(key, 3), before, after;
	_Atomic uint64_t *slot = &confirmed[kind][(hash >> 8) % CONFIRM_SLOTS];
	struct timespec ts;
	uint32_t now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
	now = (uint32_t)((uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000);
	before = atomic_load_explicit(slot, memory_order_relaxed);
	/* The low bit of the hash tells a slot that was used from an empty one. */
	after = (hash | 1) << 32 | now;
	if (before >> 32 == after >> 32 && now - (uint32_t)before < msec)
		return false;
	/* Who loses leaves it to the winner. */
	return atomic_compare_exchange_strong_explicit(slot, &before, after, memory_order_relaxed,
						       memory_order_relaxed);
}

/*
 * What is left to a process without CAP_NET_ADMIN, and where the kernel cannot ask by itself: an
 * empty datagram to the neighbour's discard port. The kernel sends it, and so asks for the
 * neighbour or confirms it.
 */
static void nudge(int ifindex, const struct in6_addr *addr)
{
	bool v4 = IN6_IS_ADDR_V4MAPPED(addr);
	struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(DISCARD_PORT)};
	struct sockaddr_in6 six = {
		.sin6_family = AF_INET6, .sin6_port = htons(DISCARD_PORT), .sin6_addr = *addr};
	int fd = OWN_FD(
		libc.socket(v4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));

	if (fd < 0) {
		log_debug("net: socket() to wake a neighbour: %s", strerror(errno));
		return;
	}
	memcpy(&four.sin_addr, &addr->s6_addr[12], 4);
	if (IN6_IS_ADDR_LINKLOCAL(addr))
		six.sin6_scope_id = (uint32_t)ifindex;
	if (libc.setsockopt(fd, SOL_SOCKET, SO_BINDTOIFINDEX, &ifindex, sizeof(ifindex)) ||
	    raw.sendto(fd, "", 0, MSG_DONTWAIT,
		       v4 ? (struct sockaddr *)&four : (struct sockaddr *)&six,
		       v4 ? sizeof(four) : sizeof(six)) < 0)
		log_debug("net: sendto() to wake a neighbour: %s", strerror(errno));
	own_fd_close(fd);
}

/* A request for one neighbour, without an address for it, so that none is overwritten. */
struct neigh_req {
	struct nlmsghdr h;
	struct ndmsg nd;
	struct nlattr attr;
	uint8_t addr[16];
};

/* What the kernel answers: errno (0: it has not said), an entry's state (0: the same). */
struct neigh_answer {
	int err;
	uint16_t state;
};

static void answer_read(const char *msg, ssize_t len, struct neigh_answer *a)
{
	const struct nlmsghdr *h = (const struct nlmsghdr *)msg;
	const struct nlmsgerr *e = nlmsg_data(h);
	const struct ndmsg *nd = nlmsg_data(h);

	if (len >= (ssize_t)NLMSG_LENGTH(sizeof(*e)) && h->nlmsg_type == NLMSG_ERROR && e->error)
		a->err = -e->error;
	else if (len >= (ssize_t)NLMSG_LENGTH(sizeof(*nd)) && h->nlmsg_type == RTM_NEWNEIGH)
		a->state = nd->ndm_state;
}

static struct neigh_answer request(int ifindex, const struct in6_addr *addr, uint16_t type,
				   uint16_t flags, uint16_t state, uint8_t ndm_flags)
{
	bool v4 = IN6_IS_ADDR_V4MAPPED(addr);
	struct neigh_req req = {
		.h = {.nlmsg_type = type, .nlmsg_flags = NLM_F_REQUEST | flags},
		.nd = {.ndm_family = v4 ? AF_INET : AF_INET6,
		       .ndm_ifindex = ifindex,
		       .ndm_state = state,
		       .ndm_flags = ndm_flags},
		.attr = {.nla_len = v4 ? NLA_HDRLEN + 4 : NLA_HDRLEN + 16, .nla_type = NDA_DST},
	};
	struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
	int fd = atomic_load(&confirm_fd), saved = errno;
	_Alignas(struct nlmsghdr) char answer[512];
	struct neigh_answer a = {0};
	ssize_t n;

	memcpy(req.addr, v4 ? &addr->s6_addr[12] : addr->s6_addr, v4 ? 4 : 16);
	req.h.nlmsg_len = (uint32_t)(offsetof(typeof(req), addr) + (v4 ? 4 : 16));
	lock_take(&confirm_lock);
	if (raw.sendto(fd, &req, req.h.nlmsg_len, MSG_DONTWAIT, (struct sockaddr *)&kernel,
		       sizeof(kernel)) < 0)
		log_debug("net: sendto(netlink, neighbour) failed: %s", strerror(errno));
	/* No acknowledgement was asked for; an error, or an entry, is there at once. */
	while ((n = raw.recv(fd, answer, sizeof(answer), MSG_DONTWAIT)) > 0)
		answer_read(answer, n, &a);
	lock_drop(&confirm_lock);
	errno = saved;
	return a;
}

/*
 * Asked to by netlink, the kernel solicits an IPv6 neighbour from the interface's link-local
 * address, and without one, or while that is tentative, it sends nothing. With a packet to send it
 * takes that one's source address.
 */
static bool kernel_asks(int ifindex, const struct in6_addr *addr)
{
	return IN6_IS_ADDR_V4MAPPED(addr) || addr_link_local_is_there(ifindex);
}

/*
 * NUD_PROBE makes the kernel ask the neighbour, unicast; the entry stays valid meanwhile. Only an
 * entry that is stale is touched: a permanent one would become one that expires. That it is gone is
 * left. 0 or errno.
 */
static int probe(int ifindex, const struct in6_addr *addr)
{
	struct neigh_answer a = request(ifindex, addr, RTM_GETNEIGH, 0, 0, 0);

	if (a.err || !(a.state & NUD_STALE))
		return a.err;
	return request(ifindex, addr, RTM_NEWNEIGH, 0, NUD_PROBE, 0).err;
}

bool net_neigh_confirm(int ifindex, const struct in6_addr *addr)
{
	struct neigh_rec r = {.addr = *addr, .ifindex = (uint32_t)ifindex};

	if (atomic_load(&confirm_fd) < 0 || !net_table_find(&neighs, &r, NULL, NULL, &r) ||
	    !r.stale)
		return true;
	if (!request_due(&r, 0, (uint32_t)params.neigh_uc_arp_delay_msec))
		return false;
	if (!kernel_asks(ifindex, addr) || probe(ifindex, addr) == EPERM)
		nudge(ifindex, addr);
	return true;
}

/*
 * NTF_USE makes the kernel ask. It also takes NUD_PERMANENT from an entry, which is lost then: one
 * that somebody has set a moment ago, of which the mirror has not heard, is to be left as it is. 0
 * or errno.
 */
static int use(int ifindex, const struct in6_addr *addr)
{
	struct neigh_answer a =
		request(ifindex, addr, RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_EXCL, NUD_NONE, NTF_USE);

	if (a.err != EEXIST)
		return a.err;
	a = request(ifindex, addr, RTM_GETNEIGH, 0, 0, 0);
	if (a.err || (a.state & NUD_USABLE))
		return 0;
	return request(ifindex, addr, RTM_NEWNEIGH, NLM_F_CREATE, NUD_NONE, NTF_USE).err;
}

void net_neigh_resolve(int ifindex, const struct in6_addr *addr)
{
	struct neigh_rec r = {.addr = *addr, .ifindex = (uint32_t)ifindex};

	if (atomic_load(&confirm_fd) < 0 || !request_due(&r, 1, RESOLVE_MSEC))
		return;
	if (!kernel_asks(ifindex, addr) || use(ifindex, addr) == EPERM)
		nudge(ifindex, addr);
}

void net_multicast_mac(const struct in6_addr *group, uint8_t mac[NET_MAC_LEN])
{
	const uint8_t *a = group->s6_addr;

	if (IN6_IS_ADDR_V4MAPPED(group)) {
		/* RFC 1112, 6.4: the low 23 bits behind 01:00:5e. */
		memcpy(mac, (const uint8_t[]){0x01, 0x00, 0x5e, a[13] & 0x7f, a[14], a[15]},
		       NET_MAC_LEN);
		return;
	}
	/* RFC 2464, 7: the low 32 bits behind 33:33. */
	memcpy(mac, (const uint8_t[]){0x33, 0x33, a[12], a[13], a[14], a[15]}, NET_MAC_LEN);
}
