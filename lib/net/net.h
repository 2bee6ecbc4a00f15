/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The room of the kernel's control plane (docs/design.md, rule 2), as a mirror: links, addresses
 * and neighbours are copied and kept current by netlink events; a route is asked of the kernel
 * (RTM_GETROUTE: policy rules, marks and metrics included) and the answer stays good until
 * net_generation() changes. Addresses are in6_addr, IPv4 v4-mapped. All functions are thread-safe;
 * none blocks on the network. Used by rings, stacks and sockets.
 *
 * Every sent packet compares generations (net_generations(), inline). Look-ups (hash.c and the file
 * of each table: link.c, addr.c, neigh.c, route.c; martian.c) follow only when one has changed or a
 * destination or a source is new, and membership.c when one goes to a group that this host would
 * hear, too; events (mirror.c, notify.c) come on the internal thread. diag.c asks for other
 * processes' sockets, and opens what asks other questions; policy.c asks for IPsec; cgroup.c for
 * BPF programs, when the library starts; orphans.c tells peers of a process that was killed.
 */
#ifndef NET_NET_H
#define NET_NET_H

#include <net/if.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "vma/flow.h"

#define NET_MAC_LEN 6

enum net_link_kind {
	NET_LINK_ETHER, /* a real NIC */
	/* veth, tun, virtio, macvlan, bridge, ...: may hand over partial checksums */
	NET_LINK_VIRTUAL,
	NET_LINK_LOOPBACK,
	NET_LINK_OTHER, /* no Ethernet header (tun, wireguard, gre): never offloaded */
};

struct net_link {
	int ifindex;
	char name[IF_NAMESIZE];
	char driver[32]; /* IFLA_INFO_KIND or the ethtool driver name */
	enum net_link_kind kind;
	bool up; /* IFF_UP and IFF_RUNNING */
	uint32_t mtu;
	uint8_t mac[NET_MAC_LEN];
	int master; /* ifindex of the bond or bridge above, or 0 */
	unsigned num_rx_queues;
	int lower; /* ifindex of the interface that a VLAN's stands on, or 0 */
	uint16_t vlan; /* its number of 802.1Q, 0: it is none */
	uint32_t xdp_prog; /* id of the XDP program in front of the kernel, 0: there is none */
};

enum net_route_type {
	NET_ROUTE_UNICAST,
	NET_ROUTE_LOCAL,
	NET_ROUTE_BROADCAST,
	NET_ROUTE_MULTICAST,
	NET_ROUTE_UNREACHABLE
};

struct net_route_query {
	struct in6_addr dst;
	struct in6_addr src; /* :: for "the kernel chooses" */
	int oif; /* 0: any */
	uint32_t mark;
	uint8_t tos;
	/* IPPROTO_TCP or IPPROTO_UDP and the ports, host order, for rules that look at them; 0: not
	   known */
	uint8_t proto;
	uint16_t sport, dport;
};

/* What a route asks of TCP (ip-route(8)); 0, empty: nothing. */
struct net_metrics {
	uint32_t window, rto_min_ms;
	uint16_t advmss, initcwnd, initrwnd;
	bool quickack, mtu_locked;
	char congctl[16];
};

struct net_route {
	enum net_route_type type;
	int oif;
	struct in6_addr gateway; /* :: when dst is on link */
	struct in6_addr prefsrc;
	uint32_t mtu; /* route metric or the link's MTU */
	bool multipath; /* more than one next hop: the kernel chose one */
	/* no route by the interface that was asked for: IPv4 takes dst for a neighbour there */
	bool is_assumed;
	struct net_metrics metrics;
};

struct net_neigh {
	uint8_t mac[NET_MAC_LEN];
	bool stale; /* usable, but the kernel should confirm it */
};

/*
 * Called from the mirror's event processing (the internal thread), no lock held. ifindex 0: any
 * interface may be meant.
 */
enum net_event { NET_EVENT_LINK, NET_EVENT_ADDR, NET_EVENT_ROUTE, NET_EVENT_NEIGH };
typedef void (*net_listener)(enum net_event ev, int ifindex, void *arg);

/* Opens the netlink sockets and fills the mirror. 0 or negative errno. Idempotent. */
int net_start(void);
void net_stop(void);
/*
 * The child of a fork() starts with no mirror; its sockets are closed, no netlink message is sent.
 */
void net_forked(void);
/* The netlink fd to wait on, and what to do when it is readable. */
int net_fd(void);
void net_process(void);
/* At most 8 listeners; -ENOSPC beyond. */
int net_listen(net_listener fn, void *arg);

/* A cached decision of an older generation is void. */
union net_gens {
	struct {
		/* bumped by every change of a link, address, route, rule or rp_filter */
		_Atomic uint32_t net;
		/* bumped when a neighbour's MAC or validity changes, and when one goes stale */
		_Atomic uint32_t neigh;
	};
	_Atomic uint64_t both; /* only read: who depends on both compares them together */
};
extern union net_gens net_gens __attribute__((visibility("hidden")));

static inline uint32_t net_generation(void)
{
	return atomic_load_explicit(&net_gens.net, memory_order_acquire);
}

static inline uint32_t net_neigh_generation(void)
{
	return atomic_load_explicit(&net_gens.neigh, memory_order_acquire);
}

static inline uint64_t net_generations(void)
{
	return atomic_load_explicit(&net_gens.both, memory_order_acquire);
}

/* 0, or -ENODEV. */
int net_link_get(int ifindex, struct net_link *out);
/*
 * The receive queues that sysfs shows, of a device whose driver does not tell (a bond's); 0: it
 * shows none.
 */
unsigned net_rx_queues_shown(const char *ifname);
/*
 * A walk over all known links by ascending ifindex: all zero at first, then the next one at each
 * call; 0: there are no more. No lock is held between the calls.
 */
#define NET_LINK_BATCH 64u
struct net_link_walk {
	unsigned at, num;
	int ifindex[NET_LINK_BATCH];
};
int net_link_next(struct net_link_walk *w);
/*
 * True when addr is one of this host's (any interface; link-local IPv6: ifindex must match unless
 * 0).
 */
bool net_addr_is_local(const struct in6_addr *addr, int ifindex);
/* The interface that carries addr, or 0. */
int net_addr_ifindex(const struct in6_addr *addr);
/*
 * Fills up to max addresses of this host (all interfaces when ifindex is 0, tentative ones left
 * out), returns how many there are.
 */
unsigned net_addr_list(int ifindex, struct in6_addr *addrs, unsigned max);
/*
 * The same of the loopback interface's addresses that packets may come in for from elsewhere:
 * service addresses, which routers have routes to. Not 127.0.0.0/8, ::1 and link-local ones.
 */
unsigned net_addr_service_list(struct in6_addr *addrs, unsigned max);
/* True when addr is an IPv4 broadcast address of an interface, or 255.255.255.255. */
bool net_addr_is_broadcast(const struct in6_addr *addr);
/*
 * 0, -EHOSTUNREACH/-ENETUNREACH/-EACCES/-EINVAL as the kernel said, or another negative errno.
 * Answers are cached per generation.
 */
int net_route_get(const struct net_route_query *q, struct net_route *out);
/*
 * Whether the kernel would refuse an IPv4 packet with these addresses (network order) that comes in
 * on the interface. 1: it would, 0: it would deliver it here, negative errno: it could not be
 * asked. A system call; what is kept of the answer is the caller's. Good until net_generation()
 * changes, but of some settings (accept_local, route_localnet) and of group memberships no event
 * tells.
 */
int net_is_martian(int ifindex, uint32_t src, uint32_t dst);
/*
 * Some rule of this host looks at protocols or ports (ip-rule(8): ipproto, sport, dport): the same
 * addresses may have several routes.
 */
bool net_routes_by_port(void);
/*
 * Has routes asked for anew: a path MTU that the kernel learns from ICMP changes the answer and
 * bumps no generation.
 */
void net_routes_expire(void);
/*
 * The kernel is about to learn such a path MTU: bumps the generation when it has, 100 ms later. The
 * worker only.
 */
void net_path_mtu_changes(void);
/*
 * The inode numbers of the host's UDP sockets (this network namespace) that are bound to the port,
 * both families: up to max of them. Returns how many there are, or negative errno.
 */
int net_udp_inodes(uint16_t port, uint64_t *inodes, unsigned max);
/*
 * How many connections (half open ones too, no TIME_WAITs) the kernel has with this local TCP port,
 * or negative errno.
 */
int net_tcp_conns(uint16_t port);
/*
 * The name of a BPF program's kind, of one that the process's control group has and that would not
 * see what user space serves; NULL: it has none, or who has one cannot be asked (CAP_NET_ADMIN, and
 * /sys/fs/cgroup). Needs no mirror. Call inside libc_internal.
 */
const char *net_cgroup_program(void);
/*
 * IPsec: this network namespace has policies for what comes in or leaves. False also when the
 * kernel cannot be asked, which wants CAP_NET_ADMIN. Call inside libc_internal.
 */
bool net_policies_any(void);
/*
 * A descriptor of the library's own that becomes readable when policies change, or negative errno;
 * and, when it is: true: one has come. The worker's.
 */
int net_policies_follow(void);
bool net_policies_came(int fd);
/*
 * A netlink socket for questions, whose answers are waited for two seconds at most: one that was
 * lost comes never, and callers have locks. (The kernel works on some while the question is sent.)
 * *out is nl_socket_free()'s; NULL on error. 0 or negative errno.
 */
struct nl_sock;
int net_netlink(int protocol, struct nl_sock **out);
/*
 * A descriptor of the library's own that sends what has its IP header already, and receives
 * nothing. Wants CAP_NET_RAW, permitted: it is not effective after seteuid(). Or negative errno.
 */
int net_raw_socket(int family);
/*
 * These TCP flows, each with a remote side, were connections of a process that was killed: has
 * their peers reset. ifindex: of link-local addresses. Wants CAP_NET_RAW. 0, or the first negative
 * errno (-EPERM: none is told); the others are told all the same. 100 ms at most, besides the work.
 */
int net_tcp_orphans(const struct vma_flow_key *keys, unsigned num, int ifindex);
/*
 * Takes away what the kernel has left of a connection of that name that has ended (TIME_WAIT): as a
 * new SYN from there would. The caller knows that there is nothing else of that name. 0; -ENOENT:
 * there is none; other negative errno.
 */
int net_tcp_time_wait_end(const struct in6_addr *local, uint16_t lport,
			  const struct in6_addr *remote, uint16_t rport);
/*
 * 0, -ENOENT: no usable entry (let the kernel resolve it). Multicast addresses must not be asked.
 */
int net_neigh_get(int ifindex, const struct in6_addr *addr, struct net_neigh *out);
/*
 * Has the kernel confirm a stale entry (NUD_PROBE); rate-limited by VMA_NEIGH_UC_ARP_DELAY_MSEC.
 * False: it is too early, and has to be asked again. Never blocks.
 */
bool net_neigh_confirm(int ifindex, const struct in6_addr *addr);
/*
 * Has the kernel look for the neighbour (as "ip neigh ... use"), at most once in 200 ms for each;
 * the answer comes as NET_EVENT_NEIGH. Never blocks.
 */
void net_neigh_resolve(int ifindex, const struct in6_addr *addr);
/*
 * No socket of this host would get a copy of what is sent to the group by the interface now. False
 * also when the kernel cannot tell: before Linux 6.15, or because members have just come and gone.
 * A system call; the answer is for one datagram. Call inside libc_internal.
 */
bool net_group_is_quiet(int ifindex, const struct in6_addr *group);
/* Derives the multicast MAC (RFC 1112, RFC 2464). */
void net_multicast_mac(const struct in6_addr *group, uint8_t mac[NET_MAC_LEN]);

#endif
