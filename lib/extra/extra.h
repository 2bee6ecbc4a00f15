/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The room of the Extra API: the table of functions behind mellanox/vma_extra.h. They are thin:
 * what a socket does with them is in its own room (show.c and zcopy.c), and what the program holds
 * in the stacks' (held.c). preload gives the table out.
 *
 * Every packet of a program that uses it: api.c, xtreme.c. Rare: rings.c, card.c,
 * private_options.c, user_memory.c, offload.c.
 */
#ifndef EXTRA_EXTRA_H
#define EXTRA_EXTRA_H

#include <stdbool.h>
#include <sys/socket.h>

#include "config/config.h"
#include "mellanox/vma_extra.h"

/*
 * getsockopt(SOL_SOCKET, SO_VMA_GET_API): 0, or -1 and errno (EINVAL: *len is less than a pointer).
 */
int extra_get_api(void *val, socklen_t *len);
/* An option that the next two answer: SO_VMA_USER_DATA only where SocketXtreme is on. */
static inline bool extra_is_option(int level, int opt)
{
	return level == SOL_SOCKET &&
	       (opt == SO_VMA_RING_ALLOC_LOGIC || (opt == SO_VMA_USER_DATA && params.socketxtreme));
}

/* Of a socket that is in the table. As setsockopt() and getsockopt(); val and len can be used. */
int extra_setsockopt(int fd, int opt, const void *val, socklen_t len);
int extra_getsockopt(int fd, int opt, void *val, socklen_t *len);
/* Sockets that this thread makes are to be offloaded, as far as the rules allow. */
bool extra_offloads_here(void);

#endif
