/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which process may have a card give it the segments of a TCP port. Rings of one card can be several processes', and of rules that
 * are alike each gets a copy of every segment: a server with workers would answer each client several times. So one of them has the
 * right to the port, the others' listeners are the kernel's meanwhile.
 */
#ifndef SOCKET_STACK_RIGHT_H
#define SOCKET_STACK_RIGHT_H

#include <stdbool.h>
#include <stdint.h>

/* Once more for this process. False: another one has it. Makes system calls; any lock may be held. */
bool stack_right_take(uint16_t port);
/* After the last one others can have it. */
void stack_right_drop(uint16_t port);
/* The child of a fork() has none. */
void stack_rights_forked(void);

#endif
