/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The room of the Extra API: the table of functions behind mellanox/vma_extra.h. They are thin:
 * what a socket does with them is in its own room (show.c and zcopy.c), and what the program holds
 * in the stacks' (held.c). preload gives the table out.
 *
 * Every packet of a program that uses it: api.c, xtreme.c. Rare: rings.c, offload.c.
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
/*
 * SO_VMA_USER_DATA of a socket that is in the table, where SocketXtreme is on. As getsockopt() and
 * setsockopt(); val and len can be read and written.
 */
static inline bool extra_is_user_data(int level, int opt)
{
	return opt == SO_VMA_USER_DATA && level == SOL_SOCKET && params.socketxtreme;
}

int extra_get_user_data(int fd, void *val, socklen_t *len);
int extra_set_user_data(int fd, const void *val, socklen_t len);
/* Sockets that this thread makes are to be offloaded, as far as the rules allow. */
bool extra_offloads_here(void);

#endif
