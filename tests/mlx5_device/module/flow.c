// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Steering rules. Of those that match the one with the lowest priority number takes the frame,
 * and all that are its like.
 */
#include <linux/etherdevice.h>
#include <linux/in.h>
#include <linux/ip.h>

#include "card.h"

#define PRIORITIES 15
#define PRIORITY_GROUPS PRIORITIES /* behind all others */

/* What of a frame rules look at, and a rule's values and masks of it. Compared as 64-bit words. */
struct flow_key {
	u8 dst_mac[6], src_mac[6];
	u8 type[2], vlan[2];
	u8 dst_ip[16], src_ip[16];
	u8 dst_port[2], src_port[2];
	u8 proto, family;
	u8 zero[2];
} __aligned(8);

struct rule {
	struct ib_flow ib; /* first */
	struct list_head of_card;
	struct card_qp *qp;
	struct flow_key val, mask;
	u32 tag;
	u16 priority;
	bool copy; /* the search goes on */
};

static void set(u8 *val, u8 *mask, const void *spec_val, const void *spec_mask, size_t size)
{
	memcpy(val, spec_val, size);
	memcpy(mask, spec_mask, size);
}

static void set_eth(struct rule *r, const struct ib_flow_spec_eth *s)
{
	set(r->val.dst_mac, r->mask.dst_mac, s->val.dst_mac, s->mask.dst_mac, 6);
	set(r->val.src_mac, r->mask.src_mac, s->val.src_mac, s->mask.src_mac, 6);
	set(r->val.type, r->mask.type, &s->val.ether_type, &s->mask.ether_type, 2);
	set(r->val.vlan, r->mask.vlan, &s->val.vlan_tag, &s->mask.vlan_tag, 2);
}

static void set_family(struct rule *r, u8 family)
{
	r->val.family = family;
	r->mask.family = 0xff;
}

/* 0 or negative errno: what we do not know must not match everything. */
static int spec_add(struct rule *r, const union ib_flow_spec *spec)
{
	const struct ib_flow_spec_ipv4 *ip4 = &spec->ipv4;
	const struct ib_flow_spec_ipv6 *ip6 = &spec->ipv6;
	const struct ib_flow_spec_tcp_udp *l4 = &spec->tcp_udp;

	switch ((int)spec->type) {
	case IB_FLOW_SPEC_ETH:
		set_eth(r, &spec->eth);
		return 0;
	case IB_FLOW_SPEC_IPV4:
		set(r->val.dst_ip, r->mask.dst_ip, &ip4->val.dst_ip, &ip4->mask.dst_ip, 4);
		set(r->val.src_ip, r->mask.src_ip, &ip4->val.src_ip, &ip4->mask.src_ip, 4);
		set_family(r, 4);
		return ip4->mask.proto || ip4->mask.tos || ip4->mask.ttl ? -EOPNOTSUPP : 0;
	case IB_FLOW_SPEC_IPV6:
		set(r->val.dst_ip, r->mask.dst_ip, ip6->val.dst_ip, ip6->mask.dst_ip, 16);
		set(r->val.src_ip, r->mask.src_ip, ip6->val.src_ip, ip6->mask.src_ip, 16);
		set_family(r, 6);
		return ip6->mask.next_hdr || ip6->mask.flow_label ? -EOPNOTSUPP : 0;
	case IB_FLOW_SPEC_TCP:
	case IB_FLOW_SPEC_UDP:
		if (!r->mask.family)
			return -EINVAL;
		set(r->val.dst_port, r->mask.dst_port, &l4->val.dst_port, &l4->mask.dst_port, 2);
		set(r->val.src_port, r->mask.src_port, &l4->val.src_port, &l4->mask.src_port, 2);
		r->val.proto = spec->type == IB_FLOW_SPEC_TCP ? IPPROTO_TCP : IPPROTO_UDP;
		r->mask.proto = 0xff;
		return 0;
	case IB_FLOW_SPEC_ACTION_TAG:
		r->tag = spec->flow_tag.tag_id;
		return r->tag > 0xffffff ? -EINVAL : 0;
	default:
		return -EOPNOTSUPP;
	}
}

static int specs_add(struct rule *r, const struct ib_flow_attr *attr)
{
	const void *at = attr->flows;
	unsigned int i;
	int err = 0;

	for (i = 0; i < attr->num_of_specs && !err; i++) {
		err = spec_add(r, at);
		at += ((const union ib_flow_spec *)at)->size;
	}
	return err;
}

/*
 * As the kernel's driver has it: a rule of a group's address has the priority of all those rules,
 * whatever it asks for.
 */
static bool of_group_only(const struct ib_flow_attr *attr)
{
	const union ib_flow_spec *first = (const void *)attr->flows;

	if (!attr->num_of_specs || attr->flags & IB_FLOW_ATTR_FLAGS_DONT_TRAP)
		return false;
	if (first->type == IB_FLOW_SPEC_IPV4)
		return ipv4_is_multicast(first->ipv4.val.dst_ip);
	return first->type == IB_FLOW_SPEC_ETH &&
	       is_multicast_ether_addr(first->eth.mask.dst_mac) &&
	       is_multicast_ether_addr(first->eth.val.dst_mac);
}

static bool part_of_port(const u8 mask[2])
{
	return mask[0] != mask[1] || (mask[0] && mask[0] != 0xff);
}

/* In order of priority, the older ones first. -ENOMEM: the table is full. */
static int rule_insert(struct card *card, struct rule *r)
{
	bool part = part_of_port(r->mask.dst_port) || part_of_port(r->mask.src_port);
	struct list_head *at;
	int err = -ENOMEM;

	spin_lock_bh(&card->lock);
	if (part && card->faults.whole_ports) {
		err = -EOPNOTSUPP;
	} else if (card->counts.rules < card->faults.flows_max) {
		list_for_each(at, &card->rules) {
			if (list_entry(at, struct rule, of_card)->priority > r->priority)
				break;
		}
		list_add_tail(&r->of_card, at);
		card->counts.rules++;
		card->counts.rules_made++;
		err = 0;
	}
	spin_unlock_bh(&card->lock);
	return err;
}

struct ib_flow *flow_create(struct ib_qp *qp, struct ib_flow_attr *attr, struct ib_udata *udata)
{
	struct rule *r;
	int err;

	if (attr->type != IB_FLOW_ATTR_NORMAL || attr->flags & ~IB_FLOW_ATTR_FLAGS_DONT_TRAP)
		return ERR_PTR(-EOPNOTSUPP);
	if (attr->port != 1)
		return ERR_PTR(-EINVAL);
	if (attr->priority >= PRIORITIES)
		return ERR_PTR(-ENOSPC);
	r = kzalloc(sizeof(*r), GFP_KERNEL);
	if (!r)
		return ERR_PTR(-ENOMEM);
	r->qp = container_of(qp, struct card_qp, ib);
	if (!r->qp->wq && !r->qp->rq.cnt) {
		kfree(r);
		return ERR_PTR(-EINVAL);
	}
	r->priority = of_group_only(attr) ? PRIORITY_GROUPS : attr->priority;
	r->copy = attr->flags & IB_FLOW_ATTR_FLAGS_DONT_TRAP;
	err = specs_add(r, attr);
	if (!err)
		err = rule_insert(card_of(qp->device), r);
	if (!err)
		return &r->ib;
	kfree(r);
	return ERR_PTR(err);
}

int flow_destroy(struct ib_flow *flow)
{
	struct rule *r = container_of(flow, struct rule, ib);
	struct card *card = card_of(flow->device);

	spin_lock_bh(&card->lock);
	list_del(&r->of_card);
	card->counts.rules--;
	spin_unlock_bh(&card->lock);
	kfree(r);
	return 0;
}

static void key_make(struct flow_key *key, const u8 *frame, u32 len)
{
	struct mdev_where w;

	memset(key, 0, sizeof(*key));
	memcpy(key->dst_mac, frame, 6);
	memcpy(key->src_mac, frame + 6, 6);
	mdev_find(frame, len, &w);
	memcpy(key->type, frame + w.type, 2);
	if (w.vlan)
		memcpy(key->vlan, frame + 14, 2);
	if (!w.l3)
		return;
	key->family = w.family;
	if (w.family == 4) {
		memcpy(key->src_ip, frame + w.l3 + 12, 4);
		memcpy(key->dst_ip, frame + w.l3 + 16, 4);
	} else {
		memcpy(key->src_ip, frame + w.l3 + 8, 16);
		memcpy(key->dst_ip, frame + w.l3 + 24, 16);
	}
	if (!w.l4)
		return;
	key->proto = w.proto;
	memcpy(key->src_port, frame + w.l4, 2);
	memcpy(key->dst_port, frame + w.l4 + 2, 2);
}

static bool matches(const struct rule *r, const struct flow_key *key)
{
	const u64 *k = (const u64 *)key, *v = (const u64 *)&r->val, *m = (const u64 *)&r->mask;
	unsigned int i;

	for (i = 0; i < sizeof(*key) / 8; i++) {
		if ((k[i] ^ v[i]) & m[i])
			return false;
	}
	return true;
}

static bool alike(const struct rule *a, const struct rule *b)
{
	return a->priority == b->priority && !memcmp(&a->val, &b->val, sizeof(a->val)) &&
	       !memcmp(&a->mask, &b->mask, sizeof(a->mask));
}

static void hand_over(struct card *card, struct card_qp *qp, const u8 *frame, u32 len,
		      const struct mdev_seen *seen)
{
	bool ready = qp->wq ? qp->wq->ib.state == IB_WQS_RDY
			    : qp->state == IB_QPS_RTR || qp->state == IB_QPS_RTS;
	struct mdev_rq *rq = qp->wq ? &qp->wq->rq : &qp->rq;

	if (!ready) {
		card->counts.rx_dropped++;
		return;
	}
	card->pd = qp->ib.pd;
	if (card->faults.rx_error) {
		rq->fail = card->faults.rx_error;
		card->faults.rx_error = 0;
		card->counts.rx_errors++;
	}
	if (mdev_rq_receive(rq, frame, len, seen))
		card->counts.rx_frames++;
	else
		card->counts.rx_dropped++;
}

/* The card's lock is held. False: the frame is (also) for the kernel. */
bool flow_receive(struct card *card, const u8 *frame, u32 len)
{
	struct rule *r, *taken = NULL;
	struct mdev_seen seen = {};
	struct flow_key key;

	if (list_empty(&card->rules) || len < 14)
		return false;
	key_make(&key, frame, len);
	list_for_each_entry(r, &card->rules, of_card) {
		if (taken ? !alike(r, taken) : !matches(r, &key))
			continue;
		if (!seen.ok)
			mdev_look(frame, len, &seen);
		seen.tag = r->tag;
		seen.time = clock_stamp(card);
		hand_over(card, r->qp, frame, len, &seen);
		if (!r->copy)
			taken = r;
	}
	return taken;
}

/*
 * A frame leaves this card. As the kernel's driver sets cards up: with two contexts open what is
 * sent to a group comes to the card's own rules, too, whoever has sent it. The lock is held.
 */
void flow_loop(struct card *card, const u8 *frame, u32 len)
{
	if (card->contexts >= 2 && len >= ETH_HLEN && is_multicast_ether_addr(frame))
		flow_receive(card, frame, len);
}
