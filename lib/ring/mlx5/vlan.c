/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A VLAN's interface: queues on the device below it, whose frames have a tag (IEEE 802.1Q) that the
 * stack does not see. It is written and taken off here, with the priority 0.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <net/ethernet.h>
#include <string.h>

#include "net/net.h"
#include "ring/mlx5/internal.h"

#define MACS 12u /* bytes in front of a tag */
#define TAG 4u
#define VID_MASK 0xfffu

uint16_t mlx5_vlan_of(int ifindex, struct ring_port *device)
{
	struct net_link link, lower;

	if (net_link_get(ifindex, &link) || !link.vlan || !link.lower ||
	    net_link_get(link.lower, &lower))
		return 0;
	device->ifindex = lower.ifindex;
	memcpy(device->ifname, lower.name, sizeof(device->ifname));
	return link.vlan;
}

static struct buf *vlan_tx_alloc(struct ring *r, uint32_t room)
{
	struct buf *b = mlx5_tx_alloc(r, room + TAG);

	if (!b)
		return NULL;
	b->data += TAG;
	b->room -= TAG;
	return b;
}

static int vlan_post(struct ring *r, struct buf *b)
{
	uint16_t tag[2] = {htons(ETHERTYPE_VLAN), htons(mlx5_ring(r)->want.vlan)};
	uint8_t *frame = b->data;
	int err;

	/*
	 * Longer ones are refused by their length; without addresses there is no place for a tag.
	 */
	if (b->len < MACS)
		return -EINVAL;
	memmove(frame - TAG, frame, MACS);
	memcpy(frame - TAG + MACS, tag, TAG);
	b->data -= TAG;
	b->len += TAG;
	err = mlx5_post(r, b);
	if (!err)
		return 0;
	/* The caller's, as it was. */
	memmove(frame, frame - TAG, MACS);
	b->data = frame;
	b->len -= TAG;
	return err;
}

bool mlx5_vlan_untag(const struct mlx5_ring *m, struct buf *b)
{
	uint16_t tag[2];

	if (b->len < MACS + TAG + 2)
		return false;
	memcpy(tag, b->data + MACS, TAG);
	if (tag[0] != htons(ETHERTYPE_VLAN) || (ntohs(tag[1]) & VID_MASK) != m->want.vlan)
		return false;
	memmove(b->data + TAG, b->data, MACS);
	b->data += TAG;
	b->len -= TAG;
	b->total -= TAG;
	return true;
}

void mlx5_vlan_start(struct mlx5_ring *m, uint16_t vlan)
{
	m->want.vlan = vlan;
	m->tagged = m->slow = true;
	m->ops = *m->ring.ops;
	m->ops.tx_alloc = vlan_tx_alloc;
	m->ops.post = vlan_post;
	m->ops.send_short = NULL;
	/* its caller writes the frame in one piece: no room for the tag; post() has the bursts */
	m->ops.burst_add = NULL;
	m->ops.send_gso = NULL; /* caps.max_gso is 0 */
	m->ring.ops = &m->ops;
}
