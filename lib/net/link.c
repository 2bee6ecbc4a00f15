/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The interfaces: copied from RTM_NEWLINK, the driver's name and the queues in use asked by
 * ethtool.
 */
#include "net/mirror.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <linux/ethtool.h>
#include <linux/if_arp.h>
#include <linux/if_ether.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#include "net/hash.h"
#include "runtime/runtime.h"

struct link_rec {
	uint64_t ifindex;
	struct net_link link;
	uint32_t flags;
	uint32_t reserved; /* 0 */
	uint64_t epoch;
};
TABLE_CHECK(struct link_rec, link);

static struct net_table links = TABLE_INIT(struct link_rec, link, sizeof(uint64_t));
static int ethtool_fd = -1; /* under the mirror's lock */
static _Atomic int loopback;

int link_start(void)
{
	int err;

	ethtool_fd = OWN_FD(libc.socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
	if (ethtool_fd >= 0)
		return 0;
	err = -errno;
	log_error("net: socket(AF_INET, SOCK_DGRAM) failed: %s", strerror(errno));
	return err;
}

void link_stop(void)
{
	if (ethtool_fd >= 0)
		own_fd_close(ethtool_fd);
	ethtool_fd = -1;
}

void link_forked(void)
{
	link_stop();
	net_table_forked(&links);
	atomic_store(&loopback, 0);
}

unsigned net_rx_queues_shown(const char *ifname)
{
	char path[sizeof("/sys/class/net//queues") + IF_NAMESIZE];
	struct dirent *e;
	unsigned n = 0;
	DIR *d;

	libc_internal_begin(); /* readdir() may be a cancellation point */
	snprintf(path, sizeof(path), "/sys/class/net/%s/queues", ifname);
	d = own_opendir(path);
	while (d && (e = readdir(d)))
		n += !strncmp(e->d_name, "rx-", 3);
	if (d)
		own_closedir(d);
	libc_internal_end();
	return n;
}

/* False when the driver does not answer: not every device has these calls. */
static bool ethtool(const char *name, void *cmd)
{
	struct ifreq ifr = {.ifr_data = cmd};

	memcpy(ifr.ifr_name, name, sizeof(ifr.ifr_name));
	return libc.ioctl(ethtool_fd, SIOCETHTOOL, &ifr) == 0;
}

static void driver_name(struct net_link *l)
{
	struct ethtool_drvinfo info = {.cmd = ETHTOOL_GDRVINFO};

	if (!ethtool(l->name, &info))
		return;
	_Static_assert(sizeof(info.driver) == sizeof(l->driver), "the names have one length");
	memcpy(l->driver, info.driver, sizeof(l->driver));
	l->driver[sizeof(l->driver) - 1] = 0;
}

/*
 * IFLA_NUM_RX_QUEUES counts the queues that were allocated; veth uses one of as many as there are
 * CPUs.
 */
static void queues_in_use(struct net_link *l)
{
	struct ethtool_channels ch = {.cmd = ETHTOOL_GCHANNELS};
	unsigned used = ethtool(l->name, &ch) ? ch.rx_count + ch.combined_count : 0;

	if (!used && l->num_rx_queues > 1)
		used = net_rx_queues_shown(l->name);
	if (used && (used < l->num_rx_queues || !l->num_rx_queues))
		l->num_rx_queues = used;
}

static enum net_link_kind kind_of(unsigned arphrd, bool has_info_kind, const char *driver)
{
	static const char *const virtual_drivers[] = {"virtio_net", "veth",  "tun",
						      "vif",	    "dummy", "bridge"};

	if (arphrd == ARPHRD_LOOPBACK)
		return NET_LINK_LOOPBACK;
	if (arphrd != ARPHRD_ETHER)
		return NET_LINK_OTHER;
	/*
	 * Whatever has a kind was made by software; stacked on a NIC or not, it may pass on partial
	 * checksums.
	 */
	if (has_info_kind)
		return NET_LINK_VIRTUAL;
	for (unsigned i = 0; i < sizeof(virtual_drivers) / sizeof(virtual_drivers[0]); i++)
		if (!strcmp(driver, virtual_drivers[i]))
			return NET_LINK_VIRTUAL;
	return NET_LINK_ETHER;
}

static bool info_kind(struct nlattr *linkinfo, struct net_link *l)
{
	static const struct nla_policy policy[IFLA_INFO_MAX + 1] = {
		[IFLA_INFO_KIND] = {.type = NLA_STRING}};
	struct nlattr *tb[IFLA_INFO_MAX + 1];

	if (!linkinfo || nla_parse_nested(tb, IFLA_INFO_MAX, linkinfo, policy) ||
	    !tb[IFLA_INFO_KIND])
		return false;
	nla_strlcpy(l->driver, tb[IFLA_INFO_KIND], sizeof(l->driver));
	return true;
}

/* l is of the kind "vlan". */
static void vlan_fill(struct nlattr **tb, struct net_link *l)
{
	static const struct nla_policy info[IFLA_INFO_MAX + 1] = {
		[IFLA_INFO_DATA] = {.type = NLA_NESTED}};
	static const struct nla_policy policy[IFLA_VLAN_MAX + 1] = {
		[IFLA_VLAN_ID] = {.type = NLA_U16}, [IFLA_VLAN_PROTOCOL] = {.type = NLA_U16}};
	struct nlattr *in[IFLA_INFO_MAX + 1], *v[IFLA_VLAN_MAX + 1];

	if (nla_parse_nested(in, IFLA_INFO_MAX, tb[IFLA_LINKINFO], info) || !in[IFLA_INFO_DATA] ||
	    nla_parse_nested(v, IFLA_VLAN_MAX, in[IFLA_INFO_DATA], policy) || !v[IFLA_VLAN_ID] ||
	    !tb[IFLA_LINK])
		return;
	if (v[IFLA_VLAN_PROTOCOL] && nla_get_u16(v[IFLA_VLAN_PROTOCOL]) != htons(ETH_P_8021Q))
		return;
	l->vlan = nla_get_u16(v[IFLA_VLAN_ID]) & 0xfff;
	/* With IFLA_LINK_NETNSID the number is another namespace's. */
	l->lower = tb[IFLA_LINK_NETNSID] ? 0 : (int)nla_get_u32(tb[IFLA_LINK]);
}

static uint32_t xdp_prog(struct nlattr *xdp)
{
	static const struct nla_policy policy[IFLA_XDP_MAX + 1] = {
		[IFLA_XDP_DRV_PROG_ID] = {.type = NLA_U32},
		[IFLA_XDP_SKB_PROG_ID] = {.type = NLA_U32}};
	struct nlattr *tb[IFLA_XDP_MAX + 1];

	if (!xdp || nla_parse_nested(tb, IFLA_XDP_MAX, xdp, policy))
		return 0;
	/* The kernel lets nobody have both. */
	if (tb[IFLA_XDP_SKB_PROG_ID])
		return nla_get_u32(tb[IFLA_XDP_SKB_PROG_ID]);
	return tb[IFLA_XDP_DRV_PROG_ID] ? nla_get_u32(tb[IFLA_XDP_DRV_PROG_ID]) : 0;
}

static void link_fill(const struct ifinfomsg *ifi, struct nlattr **tb, struct link_rec *r)
{
	struct net_link *l = &r->link;
	bool has_kind;

	l->ifindex = ifi->ifi_index;
	l->up = (ifi->ifi_flags & IFF_UP) && (ifi->ifi_flags & IFF_RUNNING);
	r->flags = ifi->ifi_flags;
	if (tb[IFLA_IFNAME])
		nla_strlcpy(l->name, tb[IFLA_IFNAME], sizeof(l->name));
	if (tb[IFLA_MTU])
		l->mtu = nla_get_u32(tb[IFLA_MTU]);
	if (tb[IFLA_MASTER])
		l->master = (int)nla_get_u32(tb[IFLA_MASTER]);
	if (tb[IFLA_NUM_RX_QUEUES])
		l->num_rx_queues = nla_get_u32(tb[IFLA_NUM_RX_QUEUES]);
	if (tb[IFLA_ADDRESS] && nla_len(tb[IFLA_ADDRESS]) == NET_MAC_LEN)
		memcpy(l->mac, nla_data(tb[IFLA_ADDRESS]), NET_MAC_LEN);
	l->xdp_prog = xdp_prog(tb[IFLA_XDP]);
	has_kind = info_kind(tb[IFLA_LINKINFO], l);
	if (has_kind && !strcmp(l->driver, "vlan"))
		vlan_fill(tb, l);
	if (ethtool_fd >= 0 && ifi->ifi_type == ARPHRD_ETHER) {
		if (!has_kind)
			driver_name(l);
		queues_in_use(l);
	}
	l->kind = kind_of(ifi->ifi_type, has_kind, l->driver);
}

static void link_put(const struct link_rec *r)
{
	sigset_t old;
	int change;

	net_table_lock(&links, &old);
	change = net_table_put(&links, r);
	net_table_unlock(&links, &old);
	if (change < 0) {
		mirror_incomplete(r->link.name);
		return;
	}
	if (r->link.kind == NET_LINK_LOOPBACK)
		atomic_store(&loopback, r->link.ifindex);
	if (change != TABLE_SAME)
		mirror_changed(NET_EVENT_LINK, r->link.ifindex);
}

static void link_remove(int ifindex)
{
	struct link_rec key = {.ifindex = (uint64_t)ifindex};
	sigset_t old;
	bool was;

	net_table_lock(&links, &old);
	was = net_table_del(&links, &key);
	net_table_unlock(&links, &old);
	addr_link_gone(ifindex);
	neigh_link_gone(ifindex);
	if (was)
		mirror_changed(NET_EVENT_LINK, ifindex);
}

void link_input(struct nlmsghdr *h, uint64_t epoch)
{
	static const struct nla_policy policy[IFLA_MAX + 1] = {
		[IFLA_IFNAME] = {.type = NLA_STRING},	[IFLA_MTU] = {.type = NLA_U32},
		[IFLA_MASTER] = {.type = NLA_U32},	[IFLA_NUM_RX_QUEUES] = {.type = NLA_U32},
		[IFLA_LINKINFO] = {.type = NLA_NESTED}, [IFLA_LINK] = {.type = NLA_U32},
		[IFLA_XDP] = {.type = NLA_NESTED},
	};
	struct nlattr *tb[IFLA_MAX + 1];
	const struct ifinfomsg *ifi;
	struct link_rec r;

	if (nlmsg_parse(h, sizeof(*ifi), tb, IFLA_MAX, policy)) {
		log_debug("net: malformed link message of %u bytes", h->nlmsg_len);
		return;
	}
	ifi = nlmsg_data(h);
	/* AF_BRIDGE speaks of ports: its RTM_DELLINK does not mean that the link is gone. */
	if (ifi->ifi_family != AF_UNSPEC || ifi->ifi_index <= 0)
		return;
	if (h->nlmsg_type == RTM_DELLINK) {
		link_remove(ifi->ifi_index);
		return;
	}
	/* A wireless interface's events (IFLA_WIRELESS: a scan, say) have the name, and no more. */
	if (tb[IFLA_WIRELESS] || !tb[IFLA_MTU])
		return;
	memset(&r, 0, sizeof(r));
	r.ifindex = (uint64_t)ifi->ifi_index;
	r.epoch = epoch;
	link_fill(ifi, tb, &r);
	link_put(&r);
}

static bool link_is_old(const void *rec, void *arg)
{
	const struct link_rec *r = rec;

	return r->epoch != *(const uint64_t *)arg;
}

void link_sweep(uint64_t epoch)
{
	sigset_t old;

	net_table_lock(&links, &old);
	net_table_sweep(&links, link_is_old, &epoch);
	net_table_unlock(&links, &old);
}

int net_link_get(int ifindex, struct net_link *out)
{
	struct link_rec r = {.ifindex = (uint64_t)ifindex};

	if (ifindex <= 0 || !net_table_find(&links, &r, NULL, NULL, &r))
		return -ENODEV;
	*out = r.link;
	return 0;
}

struct link_batch {
	struct net_link_walk *w;
	int after;
};

/* Keeps the lowest numbers behind b->after, in their order. */
static bool link_collect(const void *rec, void *arg)
{
	const struct link_batch *b = arg;
	struct net_link_walk *w = b->w;
	int ifindex = ((const struct link_rec *)rec)->link.ifindex;
	unsigned at = w->num;

	if (ifindex <= b->after)
		return true;
	while (at && w->ifindex[at - 1] > ifindex)
		at--;
	if (at == NET_LINK_BATCH)
		return true;
	if (w->num < NET_LINK_BATCH)
		w->num++;
	memmove(&w->ifindex[at + 1], &w->ifindex[at], (w->num - 1 - at) * sizeof(w->ifindex[0]));
	w->ifindex[at] = ifindex;
	return true;
}

int net_link_next(struct net_link_walk *w)
{
	struct link_batch b = {w, w->num ? w->ifindex[w->num - 1] : 0};
	sigset_t old;

	if (w->at < w->num)
		return w->ifindex[w->at++];
	if (w->num && w->num < NET_LINK_BATCH)
		return 0;
	w->at = w->num = 0;
	net_table_lock(&links, &old);
	net_table_each(&links, link_collect, &b);
	net_table_unlock(&links, &old);
	return w->num ? w->ifindex[w->at++] : 0;
}

int link_loopback(void)
{
	return atomic_load_explicit(&loopback, memory_order_relaxed);
}
