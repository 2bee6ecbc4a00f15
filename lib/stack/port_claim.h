/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which process may have a card give it the segments of a TCP port. Rings of one card can be
 * several processes', and of rules that are alike each gets a copy of every segment: a server with
 * workers would answer each client several times. So one of them has claimed the port, the
 * others' listeners are the kernel's meanwhile.
 */
#ifndef STACK_PORT_CLAIM_H
#define STACK_PORT_CLAIM_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Once more for this process. False: another one has it. Makes system calls; any lock may be held.
 */
bool port_claim_take(uint16_t port);
/* After the last one others can have it. */
void port_claim_drop(uint16_t port);
/* The child of a fork() has none. */
void port_claims_forked(void);

#endif
