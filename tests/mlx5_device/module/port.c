// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The network interface of a card. What its kernel sends comes out at the peer; what comes and
 * no rule matches is its kernel's.
 */
#include <linux/etherdevice.h>
#include <linux/rtnetlink.h>

#include "card.h"

/* As net.core.netdev_max_backlog. */
#define RECEIVED_MAX 1000

struct port {
	struct card *card;
	struct napi_struct napi;
	struct sk_buff_head received; /* for its kernel */
};

/*
 * In the order of the wire, as a card: netif_rx() has a queue for each CPU, and the card's thread
 * goes from one to another between two frames.
 */
static void receive(struct net_device *ndev, struct sk_buff *skb)
{
	struct port *port = netdev_priv(ndev);

	if (skb_queue_len(&port->received) >= RECEIVED_MAX) {
		ndev->stats.rx_dropped++;
		kfree_skb(skb);
		return;
	}
	if (__dev_forward_skb(ndev, skb))
		return; /* it is freed */
	skb_queue_tail(&port->received, skb);
	local_bh_disable();
	napi_schedule(&port->napi);
	local_bh_enable();
}

static int port_poll(struct napi_struct *napi, int budget)
{
	struct port *port = container_of(napi, struct port, napi);
	struct sk_buff *skb;
	int n = 0;

	while (n < budget && (skb = skb_dequeue(&port->received))) {
		netif_receive_skb(skb);
		n++;
	}
	if (n < budget)
		napi_complete_done(napi, n); /* of one that comes meanwhile it knows */
	return n;
}

/* A frame comes in over the wire. Consumes it. The caller holds no card's lock. */
void port_deliver(struct card *card, struct sk_buff *skb)
{
	bool taken = false;

	if (!netif_running(card->ndev) || !netif_carrier_ok(card->ndev)) {
		kfree_skb(skb);
		return;
	}
	spin_lock_bh(&card->lock);
	if (card->faults.drop_frames) {
		card->faults.drop_frames--;
		taken = true;
	} else {
		taken = flow_receive(card, skb->data, skb->len);
	}
	spin_unlock_bh(&card->lock);
	if (taken)
		consume_skb(skb);
	else
		receive(card->ndev, skb);
}

static netdev_tx_t port_xmit(struct sk_buff *skb, struct net_device *ndev)
{
	struct port *port = netdev_priv(ndev);

	if (skb_linearize(skb) || (skb->ip_summed == CHECKSUM_PARTIAL && skb_checksum_help(skb))) {
		kfree_skb(skb);
		return NETDEV_TX_OK;
	}
	ndev->stats.tx_packets++;
	ndev->stats.tx_bytes += skb->len;
	skb_tx_timestamp(skb);
	spin_lock_bh(&port->card->lock);
	flow_loop(port->card, skb->data, skb->len);
	spin_unlock_bh(&port->card->lock);
	port_deliver(port->card->peer, skb);
	return NETDEV_TX_OK;
}

/* Tells the users of the RDMA device, if it is there. */
static void announce(struct card *card, bool up)
{
	struct ib_event event = {
		.event = up ? IB_EVENT_PORT_ACTIVE : IB_EVENT_PORT_ERR,
		.element.port_num = 1,
	};

	spin_lock_bh(&card->lock);
	if (card->ib) {
		event.device = &card->ib->ib;
		ib_dispatch_event(&event);
	}
	spin_unlock_bh(&card->lock);
}

static void set_carrier(struct card *card, bool up)
{
	if (netif_carrier_ok(card->ndev) == up)
		return;
	if (up)
		netif_carrier_on(card->ndev);
	else
		netif_carrier_off(card->ndev);
	announce(card, up);
}

/* The wire carries when both ends are up. RTNL is held. */
static void wire_update(struct card *card, bool up, bool peer_up)
{
	struct card *peer = card->peer;
	bool carries = peer && up && peer_up && card->link && peer->link;

	set_carrier(card, carries);
	if (peer)
		set_carrier(peer, carries);
}

static int port_open(struct net_device *ndev)
{
	struct port *port = netdev_priv(ndev);
	struct card *card = port->card;

	skb_queue_purge(&port->received);
	napi_enable(&port->napi);
	netif_start_queue(ndev);
	wire_update(card, true, card->peer && netif_running(card->peer->ndev));
	return 0;
}

static int port_stop(struct net_device *ndev)
{
	struct port *port = netdev_priv(ndev);
	struct card *card = port->card;

	netif_stop_queue(ndev);
	napi_disable(&port->napi);
	wire_update(card, false, false);
	return 0;
}

static const struct net_device_ops port_ops = {
	.ndo_open = port_open,
	.ndo_stop = port_stop,
	.ndo_start_xmit = port_xmit,
	.ndo_set_mac_address = eth_mac_addr,
};

static void port_free(struct net_device *ndev)
{
	struct port *port = netdev_priv(ndev);

	skb_queue_purge(&port->received);
}

static void port_setup(struct net_device *ndev)
{
	ether_setup(ndev);
	ndev->netdev_ops = &port_ops;
	ndev->priv_destructor = port_free;
	ndev->max_mtu = 9216;
	/* As a card has them. On the wire all frames are whole and have their checksums. */
	ndev->hw_features = NETIF_F_HW_CSUM | NETIF_F_SG;
	ndev->features = ndev->hw_features;
}

/* Registered, in the initial namespace. */
struct net_device *port_make(struct card *card, unsigned int index)
{
	struct net_device *ndev =
		alloc_netdev(sizeof(struct port), "mlx%d", NET_NAME_ENUM, port_setup);
	u8 mac[ETH_ALEN] = {0x02, 0xc9, 0, 0, 0, index + 1};
	struct port *port;
	int err;

	if (!ndev)
		return ERR_PTR(-ENOMEM);
	port = netdev_priv(ndev);
	port->card = card;
	skb_queue_head_init(&port->received);
	netif_napi_add(ndev, &port->napi, port_poll);
	eth_hw_addr_set(ndev, mac);
	SET_NETDEV_DEV(ndev, &card->pdev->dev);
	netif_carrier_off(ndev);
	err = register_netdev(ndev);
	if (err) {
		free_netdev(ndev);
		return ERR_PTR(err);
	}
	return ndev;
}

/* The plug of the wire: in or out. */
void port_link(struct card *card, bool up)
{
	rtnl_lock();
	card->link = up;
	wire_update(card, netif_running(card->ndev), netif_running(card->peer->ndev));
	rtnl_unlock();
}
