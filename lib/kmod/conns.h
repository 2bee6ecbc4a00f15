/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The TCP connections of this process, in memory that outlives it where other processes hold it
 * (lib/ring/xdp/member.c): they have the peers reset when it is killed, where no module does so.
 */
#ifndef KMOD_CONNS_H
#define KMOD_CONNS_H

#include <stdbool.h>
#include <stdint.h>

#include "vma/kmod.h"

/* Somebody has asked for the list. */
bool conns_wanted(void);
/* NULL: the list is full, or nobody has asked for it (kmod_conns_fd()). Any thread. */
struct vma_kmod_slot *conns_add(const struct vma_flow_key *key);
/* Whether slot is of the list, and which one. */
bool conns_has(const struct vma_kmod_slot *slot);
uint32_t conns_number(const struct vma_kmod_slot *slot);
void conns_del(struct vma_kmod_slot *slot);
/* In the child of a fork(): the list is the parent's. */
void conns_forked(void);

#endif
