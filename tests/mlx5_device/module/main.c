// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Pairs of cards. */
#include <linux/module.h>

#include "card.h"

#define PAIRS_MAX 8

static uint pairs = 1;
module_param(pairs, uint, 0444);
MODULE_PARM_DESC(pairs, "pairs of interfaces (1 to 8)");
uint min_inline = 18;
module_param(min_inline, uint, 0444);
MODULE_PARM_DESC(min_inline, "header bytes that a send descriptor must hold (0 or 18)");

static struct card *cards[2 * PAIRS_MAX];
static struct dentry *root;

static void cards_free(void)
{
	unsigned int i;

	/* The RDMA device has its interface, which has its wire's other end. */
	for (i = 0; i < ARRAY_SIZE(cards) && cards[i]; i++)
		card_unplug(cards[i]);
	for (i = 0; i < ARRAY_SIZE(cards) && cards[i]; i++)
		unregister_netdev(cards[i]->ndev);
	for (i = 0; i < ARRAY_SIZE(cards) && cards[i]; i++)
		card_free(cards[i]);
	debugfs_remove(root);
}

static int __init mlx5_device_init(void)
{
	unsigned int i;
	int err;

	if (!pairs || pairs > PAIRS_MAX || (min_inline && min_inline != 18))
		return -EINVAL;
	root = debugfs_create_dir("mlx5_device", NULL);
	for (i = 0; i < 2 * pairs; i++) {
		struct card *card = card_make(i / 2, i % 2);

		if (IS_ERR(card)) {
			err = PTR_ERR(card);
			goto err_cards;
		}
		cards[i] = card;
	}
	for (i = 0; i < 2 * pairs; i++) {
		cards[i]->peer = cards[i ^ 1];
		fault_files(cards[i], root);
		err = card_plug(cards[i]);
		if (err)
			goto err_cards;
	}
	return 0;

err_cards:
	cards_free();
	return err;
}

static void __exit mlx5_device_exit(void)
{
	cards_free();
}

module_init(mlx5_device_init);
module_exit(mlx5_device_exit);
MODULE_DESCRIPTION("mlx5 device in software, for tests");
MODULE_LICENSE("Dual BSD/GPL");
