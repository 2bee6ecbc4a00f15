/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The pins of a port's maps:
 * <bpffs>/vma/[netns-<inode>/]<ifname>/{owner,flows,ports,xsks,counters}.
 */
#ifndef RING_XDP_PIN_H
#define RING_XDP_PIN_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct xdp_pin {
	const char *name;
	int fd;
};

/*
 * Where they are: dir ("": nowhere), and its directory <bpffs>/vma, held open: who has given up its
 * privileges may not come there by a path any more (below `ip netns exec` it leads through
 * /proc/1/root), but still owns what it pinned. {"", -1} at first.
 */
struct xdp_pins {
	char dir[PATH_MAX];
	int top_fd;
};

/*
 * Pins n maps for ifname, in place of whatever a dead process left there, and removes what dead
 * processes left for other interfaces. 0, -ENOENT: no bpffs here; or another negative errno.
 */
int pins_make(struct xdp_pins *p, const char *ifname, const struct xdp_pin *pins, unsigned n);
/*
 * p = where another process has pinned for ifname, if the map that it calls owner is owner_fd's;
 * else nowhere.
 */
void pins_find(struct xdp_pins *p, const char *ifname, int owner_fd);
/* Removes the pins and their directories, as far as nobody else has pins in them. */
void pins_remove(const struct xdp_pins *p);
/* Forgets where they are. */
void pins_close(struct xdp_pins *p);
/* The start time of a process (field 22 of /proc/<pid>/stat), 0 when there is no such process. */
uint64_t process_start_time(unsigned pid);

#endif
