/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which ring an interface gets. */
#include "ring/ring.h"

#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

#include "ring/bond.h"
#include "ring/mlx5/mlx5.h"
#include "ring/port.h"
#include "ring/xdp/member.h"
#include "ring/xdp/share.h"
#include "ring/xdp/xdp.h"
#include "runtime/runtime.h"
#include "config/config.h"

/*
 * In order of preference. When one does not fit the interface (-EOPNOTSUPP), or fails (which it has
 * logged), the next one is asked: what a card can do is never needed for a socket to work.
 */
static const struct ring_kind {
	enum ring_type type;
	const char *name; /* ring_ops.name */
	int (*open)(int ifindex, struct ring **out);
	int (*more)(const struct ring *first, struct ring **out);
} kinds[] = {
	{RING_TYPE_MLX5, "mlx5", mlx5_ring_open, mlx5_ring_more},
	{RING_TYPE_XDP, "xdp", xdp_ring_open, xdp_ring_more},
};

/* The value of a sysctl that is a small number, -1 when it cannot be read. */
static int sysctl_read(const char *path)
{
	char text[16];
	int value = -1;

	text_file_read(path, text, sizeof(text));
	sscanf(text, "%d", &value);
	return value;
}

/*
 * Loopback packets come back in on a device: the kernel must accept its own addresses there. Only
 * named, never set.
 */
static int loopback_check(const char *ifname)
{
	static const char *const names[] = {"route_localnet", "accept_local"};
	char path[96];
	int missing = 0;

	if (!params.offload_loopback) {
		log_debug("ring: %s is loopback: left to the kernel (VMA_OFFLOAD_LOOPBACK=0)",
			  ifname);
		return -EOPNOTSUPP;
	}
	for (unsigned i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "/proc/sys/net/ipv4/conf/%s/%s", ifname, names[i]);
		if (sysctl_read(path) == 1)
			continue;
		log_warn("ring: VMA_OFFLOAD_LOOPBACK=1 needs net.ipv4.conf.%s.%s = 1: sockets on "
			 "%s stay with the kernel",
			 ifname, names[i], ifname);
		missing++;
	}
	return missing ? -EOPNOTSUPP : 0;
}

static int open_kind(int ifindex, struct ring **out)
{
	char ifname[IF_NAMESIZE];
	struct ring_port *port;
	bool loopback;
	int err;

	if (params.ring_type == RING_TYPE_NONE)
		return -EOPNOTSUPP;
	err = port_open(ifindex, &port);
	if (err)
		return err;
	loopback = port->loopback;
	memcpy(ifname, port->ifname, sizeof(ifname));
	port_close(port);
	if (loopback && (err = loopback_check(ifname)))
		return err;
	err = bond_check(ifname);
	if (err)
		return err;
	err = -EOPNOTSUPP;
	for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]) && err; i++)
		if (params.ring_type == RING_TYPE_AUTO || params.ring_type == (int)kinds[i].type)
			err = kinds[i].open(ifindex, out);
	if (err == -EOPNOTSUPP)
		log_info(
			"ring: %s: no ring type fits (VMA_RING_TYPE): sockets stay with the kernel",
			ifname);
	return err;
}

int ring_open(int ifindex, struct ring **out)
{
	int err;

	libc_internal_begin();
	err = open_kind(ifindex, out);
	libc_internal_end();
	return err;
}

void ring_several_begin(void)
{
	share_several_begin();
}

void ring_user_to_be(uid_t uid)
{
	member_user_to_be(uid);
}

bool ring_blocks_likely(int ifindex)
{
	return (params.ring_type == RING_TYPE_AUTO || params.ring_type == RING_TYPE_MLX5) &&
	       mlx5_ring_likely(ifindex);
}

void ring_forked(void)
{
	share_forked();
}

int ring_open_more(const struct ring *first, struct ring **out)
{
	int err = -EOPNOTSUPP;

	libc_internal_begin();
	for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(kinds[i].name, first->ops->name))
			err = kinds[i].more(first, out);
	libc_internal_end();
	return err;
}
