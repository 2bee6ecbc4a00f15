/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A stack: one ring, what listens on it, and one lock (rule 5 of DESIGN.md). One stack for each offloaded interface, or several
 * (stack_key.h).
 */
#ifndef SOCKET_STACK_H
#define SOCKET_STACK_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Polls every open stack once (those whose lock is free: whoever holds it is polling) and hands the packets to their
 * sockets. Returns the number of packets taken in. No lock held; makes no system call when nothing is there.
 */
unsigned stacks_poll(void);
/* The fds to sleep on so that no packet of any stack is missed. Returns how many were written (at most max). */
unsigned stacks_wait_fds(int *fds, unsigned max);
#define STACKS_WAIT_FDS_MAX 256
/*
 * To be called after the caller's watches are registered and before it sleeps: polls every stack once more, waiting
 * for locks. True: something came in, look again instead of sleeping.
 */
bool stacks_arm(void);
/* Bumped when a stack is opened or closed: wait fds must be fetched again. */
uint32_t stacks_generation(void);

#endif
