/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The room of the kernel module's client: /dev/vma, where the module is loaded, and this process's
 * one open file of it. What the calls and pages mean stands in vma/kmod.h. Without the device every
 * call here fails, and the caller does without it; but connections are registered all the same
 * where other processes share this one's queues (kmod_conns_fd()). Used by memory, statistics,
 * rings and TCP sockets.
 *
 * No packet goes through it. client.c has the device. A connection's registration is one call when
 * it begins and one when it ends; in between its owner stores into its slot. Packets that reached
 * the kernel instead of us come back through fallback.c, which is rare. conns.c is the list for
 * other processes.
 */
#ifndef KMOD_KMOD_H
#define KMOD_KMOD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vma/kmod.h"

/*
 * Opens the device, with statistics pages for so many sockets (0: none). One line in the log if
 * there is no use of it. Once.
 */
void kmod_start(unsigned sockets);
/*
 * Ends it: the module adds up what was counted, and resets the connections that are registered and
 * live. What is mapped stays. Not while another thread is inside one of the calls below, but at
 * exit(), when it would find the device closed.
 */
void kmod_stop(void);
/* In the child of a fork(): the device is the parent's, and nothing that was mapped is there. */
void kmod_forked(void);

/*
 * The statistics pages of the module's memory, all of them (*bytes); the caller's to unmap. NULL:
 * none.
 */
void *kmod_stats_map(size_t *bytes);
/*
 * At least *bytes of pinned memory of a kind (enum vma_kmod_mem), the caller's to unmap; *bytes
 * becomes what it is. NULL and errno: none.
 */
void *kmod_region_map(enum vma_kmod_mem kind, size_t *bytes);

/*
 * Registers the TCP flow of fd: when the process is killed its peer gets a reset, and what of it
 * reaches the kernel comes back by the fallback ring. Returns its slot, in which seq and ack are
 * the caller's to keep current; NULL and errno.
 */
struct vma_kmod_slot *kmod_conn_add(int fd, const struct vma_flow_key *key);
/* Whether kmod_conn_add() may succeed. */
bool kmod_takes_conns(void);
/* Whether anybody reads seq and ack: the module does. */
bool kmod_wants_seqs(void);
/* Which of the VMA_KMOD_CONNS_MAX it is, as kmod_packet.slot says it. */
uint32_t kmod_slot_number(const struct vma_kmod_slot *slot);
/* The flow is over, or somebody else's. slot may be NULL. */
void kmod_conn_del(struct vma_kmod_slot *slot);

/*
 * The descriptor of the list in which the connections stand that the module does not have, from now
 * on. Others may get it. -1: there cannot be one.
 */
int kmod_conns_fd(void);
/*
 * The connections that another process's list has: an array, the caller's to free (NULL: none).
 * Returns how many.
 */
unsigned kmod_conns_read(int fd, struct vma_flow_key **keys);

/*
 * What the module has for the sequence numbers of all processes. False: there is none, or this
 * process may not know it.
 */
bool kmod_secret(uint64_t to[4]);

/*
 * A packet of a registered flow that had reached the kernel, from its IP header on. Valid during
 * the call.
 */
struct kmod_packet {
	const uint8_t *data;
	uint32_t len, ifindex;
	uint32_t slot; /* of the registration; may be another's by now */
	bool csum_ok;
};

/* Readable while packets wait; -1: never. */
int kmod_fallback_fd(void);
/* Gives fn each packet that waits. One thread at a time. */
void kmod_fallback_drain(void (*fn)(const struct kmod_packet *p));

#endif
