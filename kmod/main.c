// SPDX-License-Identifier: GPL-2.0-only
/* The module's beginning and end. */
#include <linux/module.h>

#include "vma.h"
#include "vma/version.h"

static int __init begin(void)
{
	int err = vma_conn_init();

	if (err)
		return err;
	err = vma_net_init();
	if (err)
		goto err_conn;
	err = vma_sysfs_init();
	if (err)
		goto err_net;
	err = vma_dev_init();
	if (err)
		goto err_sysfs;
	return 0;

err_sysfs:
	vma_sysfs_exit();
err_net:
	vma_net_exit();
err_conn:
	vma_conn_exit();
	return err;
}

static void __exit end(void)
{
	vma_dev_exit();
	vma_sysfs_exit();
	vma_net_exit();
	vma_conn_exit();
}

module_init(begin);
module_exit(end);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("libvma's pinned memory, connections of dead processes, counters and fallback");
MODULE_VERSION(VMA_LIBRARY_VERSION);
