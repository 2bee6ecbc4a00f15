/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "ring/xdp/mode.h"

#include <errno.h>
#include <linux/ethtool.h>
#include <linux/genetlink.h>
#include <linux/sockios.h>
#include <netlink/attr.h>
#include <netlink/msg.h>
#include <netlink/netlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "config/config.h"
#include "net/net.h"
#include "ring/xdp/xdp.h"
#include "runtime/runtime.h"
#include "vma/steer.h"

/* The netlink family "netdev" (linux/netdev.h), since 6.3. */
#define NETDEV_DEV_GET 1
#define NETDEV_DEV_IFINDEX 1
#define NETDEV_DEV_XDP_FEATURES 3
#define NETDEV_DEV_RX_METADATA 5
#define XDP_NATIVE (XDP_HAS_BASIC | XDP_HAS_REDIRECT)

/* --- what netlink says */

/* An attribute of a reply of generic netlink. */
struct reply {
	int attr;
	bool come;
	uint64_t value;
};

static int take(struct nl_msg *msg, void *arg)
{
	struct nlmsghdr *h = nlmsg_hdr(msg);
	struct reply *r = arg;
	struct nlattr *a = nlmsg_find_attr(h, GENL_HDRLEN, r->attr);

	if (!a)
		return NL_OK;
	r->come = true;
	memcpy(&r->value, nla_data(a),
	       (size_t)nla_len(a) < sizeof(r->value) ? (size_t)nla_len(a) : sizeof(r->value));
	return NL_OK;
}

/* Sends msg and has the attribute of the reply in r. False: there was none. Frees msg. */
static bool ask(struct nl_sock *nl, struct nl_msg *msg, struct reply *r)
{
	int err = msg ? nl_socket_modify_cb(nl, NL_CB_VALID, NL_CB_CUSTOM, take, r) : -1;

	if (!err)
		err = nl_send_auto(nl, msg);
	if (err >= 0)
		err = nl_recvmsgs_default(nl);
	if (err >= 0 && r->come)
		nl_wait_for_ack(nl);
	nlmsg_free(msg);
	return r->come;
}

/* A request, to be completed by one attribute; NULL: no memory. */
static struct nl_msg *request(int family, uint8_t cmd, int attr, const void *data, int len)
{
	struct genlmsghdr h = {.cmd = cmd, .version = 1};
	struct nl_msg *msg = nlmsg_alloc_simple(family, NLM_F_REQUEST);

	if (msg &&
	    (nlmsg_append(msg, &h, sizeof(h), NLMSG_ALIGNTO) || nla_put(msg, attr, len, data))) {
		nlmsg_free(msg);
		msg = NULL;
	}
	return msg;
}

/*
 * What netdev says of the interface by this attribute. False: the kernel does not know such
 * questions, or not the interface.
 */
static bool netdev_get(int ifindex, int attr, uint64_t *value)
{
	static const char family[] = "netdev";
	struct reply id = {.attr = CTRL_ATTR_FAMILY_ID}, r = {.attr = attr};
	struct nl_sock *nl;
	bool ok;

	if (net_netlink(NETLINK_GENERIC, &nl))
		return false;
	ok = ask(nl,
		 request(GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_NAME, family,
			 sizeof(family)),
		 &id) &&
	     ask(nl,
		 request((int)id.value, NETDEV_DEV_GET, NETDEV_DEV_IFINDEX, &ifindex,
			 sizeof(uint32_t)),
		 &r);
	nl_socket_free(nl);
	*value = r.value;
	return ok;
}

static bool features_get(int ifindex, uint64_t *features)
{
	return netdev_get(ifindex, NETDEV_DEV_XDP_FEATURES, features);
}

uint32_t mode_rx_metadata(const struct ring_port *p)
{
	uint64_t tells = 0;

	if (p->mode != PORT_NATIVE || !params.xdp_metadata ||
	    !netdev_get(p->ifindex, NETDEV_DEV_RX_METADATA, &tells))
		return 0;
	return (uint32_t)tells & (VMA_RX_TELLS_STAMP | VMA_RX_TELLS_VLAN);
}

/* --- what ethtool says */

static bool ethtool(int fd, const struct ring_port *p, void *cmd)
{
	struct ifreq ifr = {.ifr_data = cmd};

	memcpy(ifr.ifr_name, p->ifname, sizeof(ifr.ifr_name));
	return libc.ioctl(fd, SIOCETHTOOL, &ifr) == 0;
}

/* The names of the interface's offloads, the caller's to free; NULL: cannot be told. */
static struct ethtool_gstrings *offload_names(int fd, const struct ring_port *p)
{
	union {
		struct ethtool_sset_info h;
		uint8_t room[sizeof(struct ethtool_sset_info) + sizeof(uint32_t)];
	} set = {.h = {.cmd = ETHTOOL_GSSET_INFO, .sset_mask = 1ull << ETH_SS_FEATURES}};
	struct ethtool_gstrings *names;
	uint32_t len;

	if (!ethtool(fd, p, &set) || !set.h.sset_mask)
		return NULL;
	memcpy(&len, set.room + sizeof(set.h), sizeof(len));
	names = calloc(1, sizeof(*names) + (size_t)len * ETH_GSTRING_LEN);
	if (!names)
		return NULL;
	names->cmd = ETHTOOL_GSTRINGS;
	names->string_set = ETH_SS_FEATURES;
	names->len = len;
	if (ethtool(fd, p, names))
		return names;
	free(names);
	return NULL;
}

static bool is_on(int fd, const struct ring_port *p, const struct ethtool_gstrings *names,
		  const char *name)
{
	uint32_t blocks = (names->len + 31) / 32, i = 0;
	struct ethtool_gfeatures *f = calloc(1, sizeof(*f) + blocks * sizeof(f->features[0]));
	bool on;

	while (i < names->len && strncmp((const char *)names->data + (size_t)i * ETH_GSTRING_LEN,
					 name, ETH_GSTRING_LEN))
		i++;
	if (f) {
		f->cmd = ETHTOOL_GFEATURES;
		f->size = blocks;
	}
	on = f && i < names->len && ethtool(fd, p, f) && f->features[i / 32].active >> i % 32 & 1;
	free(f);
	return on;
}

/*
 * The device merges segments itself, or has its host leave them in one piece. Native mode would
 * switch that off, for the kernel's own flows, too.
 */
static bool merges(const struct ring_port *p)
{
	int fd = OWN_FD(libc.socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
	struct ethtool_gstrings *names = fd < 0 ? NULL : offload_names(fd, p);
	bool on = names && (is_on(fd, p, names, "rx-gro-hw") || is_on(fd, p, names, "rx-lro"));

	free(names);
	if (fd >= 0)
		own_fd_close(fd);
	return on;
}

/* --- the choice */

static void set(struct ring_port *p, enum port_mode mode, const char *why)
{
	p->mode = mode;
	p->why = why;
}

void mode_pick(struct ring_port *p, const struct mode_facts *f)
{
	if (f->is_known && f->features & XDP_HAS_ZEROCOPY)
		set(p, PORT_NATIVE, "the driver has zero-copy");
	else if (p->is_virtual)
		set(p, PORT_GENERIC,
		    "native mode of a virtual device costs the kernel's own flows more");
	else if (f->is_known && (f->features & XDP_NATIVE) != XDP_NATIVE)
		set(p, PORT_GENERIC, "the driver has no native mode");
	else if (f->merges)
		set(p, PORT_GENERIC, "native mode would end what the device merges");
	else
		set(p, PORT_NATIVE, f->is_known ? "the driver has it" : "to be tried");
}

bool mode_receives(const struct ring_port *p)
{
	if (p->mode == PORT_GENERIC || strcmp(p->driver, "bonding"))
		return true;
	log_warn("ring/xdp: %s: in native mode (%s) a bond's frames come by the devices below it: "
		 "sockets stay with the kernel",
		 p->ifname, p->why);
	return false;
}

static bool is_one_of(const struct ring_port *p, const char *const *drivers, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (!strcmp(p->driver, drivers[i]))
			return true;
	return false;
}

bool mode_partial_sums(const struct ring_port *p)
{
	/* Virtual ones that have a bus. */
	static const char *const hosts[] = {"virtio_net", "vmxnet3"};

	return p->mode == PORT_GENERIC || p->is_virtual ||
	       is_one_of(p, hosts, sizeof(hosts) / sizeof(hosts[0]));
}

bool mode_shares_zerocopy(const struct ring_port *p)
{
	/*
	 * By their sources (Linux 5.19 to 6.18): they wait where programs wake them
	 * (XDP_USE_NEED_WAKEUP), and poll for ever where they do not and chunks are few.
	 */
	static const char *const waiting[] = {"i40e", "ice", "idpf", "ixgbe"};

	return p->mtu + ETH_HLEN + VLAN_HEADER <= UMEM_CHUNK - XDP_HEADROOM &&
	       !is_one_of(p, waiting, sizeof(waiting) / sizeof(waiting[0]));
}

static struct mode_facts facts_get(const struct ring_port *p)
{
	struct mode_facts f = {.merges = !p->is_virtual && merges(p)};

	f.is_known = features_get(p->ifindex, &f.features);
	return f;
}

void mode_pick_without_zerocopy(struct ring_port *p, const struct mode_facts *f)
{
	struct mode_facts none = *f;

	none.features &= ~(uint64_t)XDP_HAS_ZEROCOPY;
	mode_pick(p, &none);
}

bool mode_takes_zerocopy(const struct ring_port *p)
{
	uint64_t features;

	return mode_may_zerocopy(p) && features_get(p->ifindex, &features) &&
	       features & XDP_HAS_ZEROCOPY;
}

void mode_zerocopy_refused(struct ring_port *p)
{
	struct mode_facts f = facts_get(p);

	if (f.is_known && f.features & XDP_HAS_ZEROCOPY)
		mode_pick_without_zerocopy(p, &f);
}

void mode_choose(struct ring_port *p)
{
	static const enum port_bind binds[] = {[PARAM_XDP_AUTO] = BIND_ANY,
					       [PARAM_XDP_GENERIC] = BIND_COPY,
					       [PARAM_XDP_NATIVE] = BIND_COPY,
					       [PARAM_XDP_ZEROCOPY] = BIND_ZEROCOPY};

	struct mode_facts f;

	p->bind = binds[params.xdp_mode];
	if (params.xdp_mode == PARAM_XDP_AUTO) {
		f = facts_get(p);
		mode_pick(p, &f);
	} else {
		set(p, params.xdp_mode == PARAM_XDP_GENERIC ? PORT_GENERIC : PORT_NATIVE,
		    "VMA_XDP_MODE says so");
	}
}
