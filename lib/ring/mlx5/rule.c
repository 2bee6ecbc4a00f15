/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "ring/mlx5/rule.h"

#include <arpa/inet.h>
#include <netinet/if_ether.h>
#include <netinet/in.h>
#include <string.h>

#include "ring/ring.h"

/* A flow with a remote side goes before one without, as in the kernel's lookup. */
#define PRIORITY_EXACT 0
#define PRIORITY_3TUPLE 1
/* what nobody else has a rule for: a block of ports, an Ethernet address */
#define PRIORITY_BLOCK 2
#define GROUP_BIT 0x01u /* of an Ethernet address's first byte */

/* The MAC that frames to the address have (RFC 1112, 6.4; RFC 2464, 7), or ours. */
static void dest_mac(uint8_t to[6], const struct in6_addr *dst, const uint8_t mac[6])
{
	if (IN6_IS_ADDR_V4MAPPED(dst) && dst->s6_addr[12] >> 4 == 14) {
		memcpy(to, (uint8_t[]){0x01, 0x00, 0x5e, dst->s6_addr[13] & 0x7f}, 4);
		memcpy(to + 4, &dst->s6_addr[14], 2);
	} else if (IN6_IS_ADDR_MULTICAST(dst)) {
		memset(to, 0x33, 2);
		memcpy(to + 2, &dst->s6_addr[12], 4);
	} else {
		memcpy(to, mac, 6);
	}
}

/*
 * The kernel's driver gives all rules of groups one priority, whatever they ask for, in which an
 * exact one may stand behind another. It knows them by the group bit in the address and in its
 * mask. Without that bit a rule takes the same frames, and has its own priority: the address with
 * the bit cleared is nobody's.
 */
static void keep_priority(struct ibv_flow_spec_eth *eth)
{
	eth->val.dst_mac[0] &= (uint8_t)~GROUP_BIT;
	eth->mask.dst_mac[0] &= (uint8_t)~GROUP_BIT;
}

static void *add(struct mlx5_rule *r, size_t *at, size_t size)
{
	void *spec = r->specs + *at;

	*at += size;
	r->attr.num_of_specs++;
	return spec;
}

static void add_ip(struct mlx5_rule *r, size_t *at, const struct in6_addr *local,
		   const struct in6_addr *remote, bool exact)
{
	if (IN6_IS_ADDR_V4MAPPED(local)) {
		struct ibv_flow_spec_ipv4 ip = {.type = IBV_FLOW_SPEC_IPV4, .size = sizeof(ip)};

		memcpy(&ip.val.dst_ip, &local->s6_addr[12], 4);
		ip.mask.dst_ip = UINT32_MAX;
		if (exact) {
			memcpy(&ip.val.src_ip, &remote->s6_addr[12], 4);
			ip.mask.src_ip = UINT32_MAX;
		}
		memcpy(add(r, at, sizeof(ip)), &ip, sizeof(ip));
	} else {
		struct ibv_flow_spec_ipv6 ip = {.type = IBV_FLOW_SPEC_IPV6, .size = sizeof(ip)};

		memcpy(ip.val.dst_ip, local, 16);
		memset(ip.mask.dst_ip, 0xff, 16);
		if (exact) {
			memcpy(ip.val.src_ip, remote, 16);
			memset(ip.mask.src_ip, 0xff, 16);
		}
		memcpy(add(r, at, sizeof(ip)), &ip, sizeof(ip));
	}
}

static void add_l4(struct mlx5_rule *r, size_t *at, const struct vma_flow_key *key, bool exact)
{
	struct ibv_flow_spec_tcp_udp l4 = {.size = sizeof(l4)};

	l4.type = key->proto == IPPROTO_TCP ? IBV_FLOW_SPEC_TCP : IBV_FLOW_SPEC_UDP;
	l4.val.dst_port = htons(key->local_port);
	l4.mask.dst_port = htons((uint16_t)(UINT16_MAX << key->port_bits));
	if (exact) {
		l4.val.src_port = htons(key->remote_port);
		l4.mask.src_port = UINT16_MAX;
	}
	memcpy(add(r, at, sizeof(l4)), &l4, sizeof(l4));
}

void rule_group_key(struct vma_flow_key *key, const struct vma_flow_key *flow)
{
	struct in6_addr group;

	memcpy(&group, &flow->local, sizeof(group));
	if (IN6_IS_ADDR_V4MAPPED(&group)) {
		group.s6_addr[12] = 224;
		group.s6_addr[13] &= 0x7f;
	} else {
		memset(&group.s6_addr[1], 0, 11);
	}
	memset(key, 0, sizeof(*key));
	memcpy(&key->local, &group, sizeof(group));
}

void rule_make(struct mlx5_rule *r, const struct vma_flow_key *key, const uint8_t mac[6],
	       uint8_t port, uint16_t vlan)
{
	struct ibv_flow_spec_eth eth = {.type = IBV_FLOW_SPEC_ETH, .size = sizeof(eth)};
	struct in6_addr local, remote;
	bool exact = key->remote_port != 0;
	size_t at = 0;

	memset(r, 0, sizeof(*r));
	memcpy(&local, &key->local, sizeof(local));
	memcpy(&remote, &key->remote, sizeof(remote));
	r->attr.type = IBV_FLOW_ATTR_NORMAL;
	r->attr.priority = exact			   ? PRIORITY_EXACT
			   : key->port_bits || !key->proto ? PRIORITY_BLOCK
							   : PRIORITY_3TUPLE;
	r->attr.port = port;

	dest_mac(eth.val.dst_mac, &local, mac);
	memset(eth.mask.dst_mac, 0xff, 6);
	if (ring_flow_of_group(key))
		keep_priority(&eth);
	if (key->proto) {
		eth.val.ether_type =
			htons(IN6_IS_ADDR_V4MAPPED(&local) ? ETHERTYPE_IP : ETHERTYPE_IPV6);
		eth.mask.ether_type = UINT16_MAX;
	}
	if (vlan) {
		eth.val.vlan_tag = htons(vlan);
		eth.mask.vlan_tag = htons(0xfff); /* whatever its priority */
	}
	memcpy(add(r, &at, sizeof(eth)), &eth, sizeof(eth));
	if (key->proto) {
		add_ip(r, &at, &local, &remote, exact);
		add_l4(r, &at, key, exact);
	}
	r->attr.size = (uint16_t)(sizeof(r->attr) + at);
}
