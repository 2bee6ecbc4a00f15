/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A flow as a steering rule of the device. */
#ifndef RING_MLX5_RULE_H
#define RING_MLX5_RULE_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "vma/flow.h"

/* The rule as the kernel wants it: the specifications directly behind the attributes. */
struct mlx5_rule {
	struct ibv_flow_attr attr;
	uint8_t specs[sizeof(struct ibv_flow_spec_eth) + sizeof(struct ibv_flow_spec_ipv6) +
		      sizeof(struct ibv_flow_spec_tcp_udp)];
};

/* The rule of a flow for an interface with that MAC, behind that port of the device. */
void rule_make(struct mlx5_rule *r, const struct vma_flow_key *key, const uint8_t mac[6],
	       uint8_t port, uint16_t vlan);

/*
 * The key, without protocol and ports, of the rule that takes all frames to the Ethernet address of
 * flow's group.
 */
void rule_group_key(struct vma_flow_key *key, const struct vma_flow_key *flow);

#endif
