/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * An interface whose queues another process of this library has: when it ends, our sockets come to
 * the queues.
 */
#ifndef STACK_OWNER_H
#define STACK_OWNER_H

/*
 * Has stack_freed() called when the process that owns the interface's queues has ended; an owner
 * that is not ours is not waited for.
 */
void stack_owner_wait(int ifindex);
/* The child of a fork() waits for nobody yet. */
void stack_owners_forked(void);

#endif
