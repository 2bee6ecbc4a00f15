/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The addresses of this host, and the broadcast addresses that follow from them. */
#include "net/mirror.h"

#include <errno.h>
#include <limits.h>
#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <stddef.h>

#include "net/hash.h"
#include "runtime/runtime.h"

enum addr_role {
	ADDR_LOCAL,
	ADDR_BROADCAST, /* IFA_BROADCAST */
	ADDR_PREFIX_BROADCAST, /* the prefix' last address; the kernel makes a route for both */
};

/* One for each address and role; the same address may be there with several prefixes or peers. */
struct addr_rec {
	struct in6_addr addr;
	uint32_t ifindex;
	uint16_t role;
	uint16_t prefix_len;
	struct in6_addr
		/* ADDR_LOCAL: the peer or the address itself; else the local address it follows
		   from */
		owner;
	uint32_t flags; /* IFA_F_ */
	uint32_t usable; /* 0 while duplicate address detection runs or after it failed */
	uint64_t epoch;
};
TABLE_CHECK(struct addr_rec, flags);

static struct net_table addrs = TABLE_INIT(struct addr_rec, flags, sizeof(struct in6_addr));

void addr_forked(void)
{
	net_table_forked(&addrs);
}

/* Puts or deletes one record. True when that changed something. */
static bool addr_apply(const struct addr_rec *r, bool add)
{
	sigset_t old;
	int change;

	net_table_lock(&addrs, &old);
	change = add ? net_table_put(&addrs, r) : net_table_del(&addrs, r);
	net_table_unlock(&addrs, &old);
	if (change < 0)
		mirror_incomplete("an address");
	return change > 0;
}

/* The same for a broadcast address that follows from `local`. */
static bool broadcast_apply(const struct addr_rec *local, enum addr_role role, struct in6_addr addr,
			    bool add)
{
	struct addr_rec r = *local;

	r.addr = addr;
	r.role = (uint16_t)role;
	r.owner = local->addr;
	return addr_apply(&r, add);
}

/* A prefix of /31 or /32 has no broadcast address (RFC 3021), nor has a loopback interface. */
static bool prefix_broadcast(const struct addr_rec *local, struct in6_addr *out)
{
	uint32_t host;

	if (!IN6_IS_ADDR_V4MAPPED(&local->addr) || local->prefix_len >= 31 ||
	    (int)local->ifindex == link_loopback())
		return false;
	/* The prefix is that of IFA_ADDRESS: the peer's on a point-to-point link. */
	host = ~0u >> local->prefix_len;
	*out = v4_mapped(htonl(ntohl(v4_of(&local->owner)) | host));
	return true;
}

/* The address and what follows from it. explicit_broadcast: IFA_BROADCAST, or :: */
static void addr_change(const struct addr_rec *local, const struct in6_addr *explicit_broadcast,
			bool add)
{
	bool changed = addr_apply(local, add);
	struct in6_addr prefix;

	if (!IN6_IS_ADDR_UNSPECIFIED(explicit_broadcast))
		changed |= broadcast_apply(local, ADDR_BROADCAST, *explicit_broadcast, add);
	if (prefix_broadcast(local, &prefix))
		changed |= broadcast_apply(local, ADDR_PREFIX_BROADCAST, prefix, add);
	if (changed)
		mirror_changed(NET_EVENT_ADDR, (int)local->ifindex);
}

/* False when the message names no address of a known family. */
static bool addr_fill(const struct ifaddrmsg *ifa, struct nlattr **tb, struct addr_rec *r)
{
	r->ifindex = ifa->ifa_index;
	r->role = ADDR_LOCAL;
	r->prefix_len = ifa->ifa_prefixlen;
	/*
	 * IFA_LOCAL is this side of a point-to-point link and IFA_ADDRESS the other; IPv6 mostly
	 * has IFA_ADDRESS only.
	 */
	if (!attr_addr(ifa->ifa_family, tb[IFA_ADDRESS], &r->owner) &&
	    !attr_addr(ifa->ifa_family, tb[IFA_LOCAL], &r->owner))
		return false;
	if (!attr_addr(ifa->ifa_family, tb[IFA_LOCAL], &r->addr))
		r->addr = r->owner;
	r->flags = tb[IFA_FLAGS] ? nla_get_u32(tb[IFA_FLAGS]) : ifa->ifa_flags;
	r->usable = !(r->flags & IFA_F_DADFAILED) &&
		    (!(r->flags & IFA_F_TENTATIVE) || (r->flags & IFA_F_OPTIMISTIC));
	return true;
}

void addr_input(struct nlmsghdr *h, uint64_t epoch)
{
	static const struct nla_policy policy[IFA_MAX + 1] = {[IFA_FLAGS] = {.type = NLA_U32}};
	struct nlattr *tb[IFA_MAX + 1];
	struct in6_addr broadcast = IN6ADDR_ANY_INIT;
	const struct ifaddrmsg *ifa;
	struct addr_rec r;

	if (nlmsg_parse(h, sizeof(*ifa), tb, IFA_MAX, policy)) {
		log_debug("net: malformed address message of %u bytes", h->nlmsg_len);
		return;
	}
	ifa = nlmsg_data(h);
	/* 0 and what is no int is no interface; callers take 0 for "not local". */
	if (!ifa->ifa_index || ifa->ifa_index > INT_MAX)
		return;
	memset(&r, 0, sizeof(r));
	r.epoch = epoch;
	if (!addr_fill(ifa, tb, &r))
		return;
	if (ifa->ifa_family == AF_INET)
		attr_addr(AF_INET, tb[IFA_BROADCAST], &broadcast);
	addr_change(&r, &broadcast, h->nlmsg_type == RTM_NEWADDR);
}

static bool addr_is_old(const void *rec, void *arg)
{
	const struct addr_rec *r = rec;

	return r->epoch != *(const uint64_t *)arg;
}

void addr_sweep(uint64_t epoch)
{
	sigset_t old;

	net_table_lock(&addrs, &old);
	net_table_sweep(&addrs, addr_is_old, &epoch);
	net_table_unlock(&addrs, &old);
}

static bool addr_is_on(const void *rec, void *arg)
{
	const struct addr_rec *r = rec;

	return r->ifindex == *(const uint32_t *)arg;
}

void addr_link_gone(int ifindex)
{
	uint32_t on = (uint32_t)ifindex;
	unsigned dropped;
	sigset_t old;

	net_table_lock(&addrs, &old);
	dropped = net_table_sweep(&addrs, addr_is_on, &on);
	net_table_unlock(&addrs, &old);
	if (dropped)
		mirror_changed(NET_EVENT_ADDR, ifindex);
}

struct addr_query {
	const struct in6_addr *addr;
	uint32_t ifindex; /* 0: any */
	bool broadcast;
};

static bool addr_match(const void *rec, const void *arg)
{
	const struct addr_rec *r = rec;
	const struct addr_query *q = arg;

	return !memcmp(&r->addr, q->addr, sizeof(r->addr)) && r->usable &&
	       (r->role != ADDR_LOCAL) == q->broadcast && (!q->ifindex || r->ifindex == q->ifindex);
}

static bool addr_lookup(const struct addr_query *q, struct addr_rec *r)
{
	return net_table_find(&addrs, q->addr, addr_match, q, r);
}

/* 127.0.0.0/8 belongs to the loopback interface as a whole. */
static bool is_loopback_v4(const struct in6_addr *addr)
{
	return IN6_IS_ADDR_V4MAPPED(addr) && addr->s6_addr[12] == 127;
}

bool net_addr_is_local(const struct in6_addr *addr, int ifindex)
{
	/*
	 * Any interface: Linux accepts an address of one interface on another. Link-local ones mean
	 * nothing elsewhere.
	 */
	struct addr_query q = {addr, IN6_IS_ADDR_LINKLOCAL(addr) ? (uint32_t)ifindex : 0, false};
	struct addr_rec r;

	return is_loopback_v4(addr) || addr_lookup(&q, &r);
}

int net_addr_ifindex(const struct in6_addr *addr)
{
	struct addr_query q = {addr, 0, false};
	struct addr_rec r;

	if (addr_lookup(&q, &r))
		return (int)r.ifindex;
	return is_loopback_v4(addr) ? link_loopback() : 0;
}

bool net_addr_is_broadcast(const struct in6_addr *addr)
{
	struct addr_query q = {addr, 0, true};
	struct addr_rec r;

	if (!IN6_IS_ADDR_V4MAPPED(addr))
		return false;
	return v4_of(addr) == INADDR_BROADCAST || addr_lookup(&q, &r);
}

struct addr_list {
	struct in6_addr *out;
	uint32_t ifindex;
	bool (*left_out)(const struct in6_addr *addr); /* NULL: none are */
	unsigned max;
	unsigned count;
};

static bool addr_collect(const void *rec, void *arg)
{
	const struct addr_rec *r = rec;
	struct addr_list *list = arg;

	if (r->role != ADDR_LOCAL || !r->usable || (list->ifindex && r->ifindex != list->ifindex))
		return true;
	if (list->left_out && list->left_out(&r->addr))
		return true;
	if (list->count < list->max)
		list->out[list->count] = r->addr;
	list->count++;
	return true;
}

static unsigned addr_collect_all(struct addr_list *list)
{
	sigset_t old;

	net_table_lock(&addrs, &old);
	net_table_each(&addrs, addr_collect, list);
	net_table_unlock(&addrs, &old);
	return list->count;
}

unsigned net_addr_list(int ifindex, struct in6_addr *out, unsigned max)
{
	struct addr_list list = {.out = out, .ifindex = (uint32_t)ifindex, .max = max};

	return addr_collect_all(&list);
}

struct addr_search {
	uint32_t ifindex;
	bool found;
};

/* As the kernel's ipv6_get_lladdr() chooses one to ask from. */
static bool addr_asks(const void *rec, void *arg)
{
	const struct addr_rec *r = rec;
	struct addr_search *s = arg;

	s->found = r->ifindex == s->ifindex && r->role == ADDR_LOCAL &&
		   IN6_IS_ADDR_LINKLOCAL(&r->addr) &&
		   !(r->flags & (IFA_F_TENTATIVE | IFA_F_OPTIMISTIC));
	return !s->found;
}

bool addr_link_local_is_there(int ifindex)
{
	struct addr_search s = {.ifindex = (uint32_t)ifindex};
	sigset_t old;

	net_table_lock(&addrs, &old);
	net_table_each(&addrs, addr_asks, &s);
	net_table_unlock(&addrs, &old);
	return s.found;
}

static bool only_here(const struct in6_addr *addr)
{
	return is_loopback_v4(addr) || IN6_IS_ADDR_LOOPBACK(addr) || IN6_IS_ADDR_LINKLOCAL(addr);
}

unsigned net_addr_service_list(struct in6_addr *out, unsigned max)
{
	struct addr_list list = {.out = out,
				 .ifindex = (uint32_t)link_loopback(),
				 .left_out = only_here,
				 .max = max};

	return list.ifindex ? addr_collect_all(&list) : 0;
}
