/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* UDP sockets in user space, as preload and the stack see them. */
#ifndef SOCKET_UDP_H
#define SOCKET_UDP_H

#include "mem/buf.h"

struct stack;

/* Starts the once-a-second tick. 0 or negative errno. */
int udp_start(void);
/*
 * Makes the object of a new kernel socket (AF_INET or AF_INET6, SOCK_DGRAM) and enters it into the fd table.
 * 0, or negative errno: then fd stays a plain kernel socket.
 */
int udp_socket_created(int fd, int domain, int type, int protocol);
/* A datagram that passed pkt_parse(); takes b. The stack's lock is held. */
void udp_input(struct stack *st, struct buf *b);
/* The interface of st has vanished: its sockets go on through the kernel. No lock held. */
void udp_stack_gone(struct stack *st);
/* Addresses or links changed: rules of wildcard sockets follow. No lock held. */
void udp_addresses_changed(void);
/* The child of a fork(): every inherited UDP socket is its kernel socket from now on. */
void udp_forked(void);

#endif
