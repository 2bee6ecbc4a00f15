/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef PRELOAD_PRIVILEGES_H
#define PRELOAD_PRIVILEGES_H

#include <sys/types.h>

/*
 * The process may lose its capabilities with the next call, to become uid (-1: not known). errno is
 * kept.
 */
void privileges_ending(uid_t uid);
/* libc exports it and declares it nowhere; libcap calls it. */
int capset(void *header, const void *data);

#endif
