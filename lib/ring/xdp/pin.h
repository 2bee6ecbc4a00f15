/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The pins of a port's maps:
 * <bpffs>/vma/[netns-<inode>/]<ifname>/{owner,flows,ports,xsks,counters}.
 */
#ifndef RING_XDP_PIN_H
#define RING_XDP_PIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct xdp_pin {
	const char *name;
	int fd;
};

/*
 * Pins n maps for ifname, in place of whatever a dead process left there, and removes what dead
 * processes left for other interfaces. dir (size bytes) gets the directory. 0, -ENOENT: no bpffs
 * here; or another negative errno.
 */
int pins_make(const char *ifname, const struct xdp_pin *pins, unsigned n, char *dir, size_t size);
/*
 * dir = where another process has pinned for ifname, if the map that it calls owner is owner_fd's.
 * 0; -ENOENT: nowhere that is seen from here.
 */
int pins_dir(const char *ifname, int owner_fd, char *dir, size_t size);
/* Removes dir with its pins. */
void pins_remove(const char *dir);
/* The start time of a process (field 22 of /proc/<pid>/stat), 0 when there is no such process. */
uint64_t process_start_time(unsigned pid);

#endif
