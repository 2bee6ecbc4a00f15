/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* SO_RCVTIMEO and SO_SNDTIMEO as the kernel takes them. */
#ifndef SOCKET_TIMEOUT_H
#define SOCKET_TIMEOUT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/*
 * A negative time, of a value that the kernel has taken: calls do not wait at all. getsockopt()
 * says 0 for it, as for no limit. Both forms of the options begin with 64 bits of seconds.
 */
static inline bool sock_timeout_at_once(const void *val)
{
	int64_t seconds;

	memcpy(&seconds, val, sizeof(seconds));
	return seconds < 0;
}

#endif
