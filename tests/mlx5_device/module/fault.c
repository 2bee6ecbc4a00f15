// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Files in debugfs: mlx5_device/<interface's first name>/. What may be written breaks something,
 * what may not is a counter.
 */
#include "card.h"

static int link_get(void *data, u64 *value)
{
	struct card *card = data;

	*value = card->link;
	return 0;
}

static int link_set(void *data, u64 value)
{
	struct card *card = data;

	port_link(card, value);
	return 0;
}

DEFINE_DEBUGFS_ATTRIBUTE(link_ops, link_get, link_set, "%llu\n");

static int plugged_get(void *data, u64 *value)
{
	struct card *card = data;

	*value = !!card->ib;
	return 0;
}

/* 0: the RDMA device goes away under its users, 1: there is a new one. */
static int plugged_set(void *data, u64 value)
{
	struct card *card = data;
	int err = 0;

	mutex_lock(&card->removal);
	if (!value)
		card_unplug(card);
	else if (!card->ib)
		err = card_plug(card);
	mutex_unlock(&card->removal);
	return err;
}

DEFINE_DEBUGFS_ATTRIBUTE(plugged_ops, plugged_get, plugged_set, "%llu\n");

void fault_files(struct card *card, struct dentry *root)
{
	struct card_counts *counts = &card->counts;
	struct card_faults *faults = &card->faults;
	struct dentry *dir = debugfs_create_dir(netdev_name(card->ndev), root);

	card->debug = dir;
	debugfs_create_file_unsafe("link", 0600, dir, card, &link_ops);
	debugfs_create_file_unsafe("plugged", 0600, dir, card, &plugged_ops);
	debugfs_create_u32("drop_doorbells", 0600, dir, &faults->drop_doorbells);
	debugfs_create_u32("drop_frames", 0600, dir, &faults->drop_frames);
	debugfs_create_u32("tx_error", 0600, dir, &faults->tx_error);
	debugfs_create_u32("rx_error", 0600, dir, &faults->rx_error);
	debugfs_create_u32("cq_error", 0600, dir, &faults->cq_error);
	debugfs_create_u32("qp_error", 0600, dir, &faults->qp_error);
	debugfs_create_u32("stall", 0600, dir, &faults->stall);
	debugfs_create_u32("delay", 0600, dir, &faults->delay);
	debugfs_create_u32("flows_max", 0600, dir, &faults->flows_max);
	debugfs_create_u32("whole_ports", 0600, dir, &faults->whole_ports);
	debugfs_create_u32("no_wq", 0600, dir, &faults->no_wq);
	debugfs_create_u32("compress", 0600, dir, &faults->compress);
	debugfs_create_u32("real_time", 0600, dir, &faults->real_time);

	debugfs_create_u32("complaints", 0400, dir, &card->dev.complaints);
	debugfs_create_u32("doorbells", 0400, dir, &counts->doorbells);
	debugfs_create_u32("arms", 0400, dir, &counts->arms);
	debugfs_create_u32("events", 0400, dir, &counts->events);
	debugfs_create_u32("tx_wqes", 0400, dir, &counts->tx_wqes);
	debugfs_create_u32("dm_reads", 0400, dir, &counts->dm_reads);
	debugfs_create_u32("tx_frames", 0400, dir, &counts->tx_frames);
	debugfs_create_u32("rx_frames", 0400, dir, &counts->rx_frames);
	debugfs_create_u32("rx_dropped", 0400, dir, &counts->rx_dropped);
	debugfs_create_u32("tx_errors", 0400, dir, &counts->tx_errors);
	debugfs_create_u32("rx_errors", 0400, dir, &counts->rx_errors);
	debugfs_create_u32("sessions", 0400, dir, &counts->sessions);
	debugfs_create_u32("qps", 0400, dir, &counts->qps);
	debugfs_create_u32("wqs", 0400, dir, &counts->wqs);
	debugfs_create_u32("rules", 0400, dir, &counts->rules);
	debugfs_create_u32("rules_made", 0400, dir, &counts->rules_made);
	debugfs_create_u32("contexts", 0400, dir, &card->contexts);
	debugfs_create_u32("vectors", 0400, dir, &counts->vectors);
}
