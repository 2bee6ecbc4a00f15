/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the kernel's lists of sockets name a socket by. Part of socket/socket.h. */
#ifndef SOCKET_INODE_H
#define SOCKET_INODE_H

#include <fcntl.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "runtime/runtime.h"

/*
 * The inode under the number fd, 0: it is not open. The number is the program's: another thread may
 * be closing it, and ThreadSanitizer would say so of libc's fstat().
 */
static inline uint64_t sock_inode(int fd)
{
	struct stat st;

	if (libc_raw(SYS_newfstatat, fd, (long)(uintptr_t) "", (long)(uintptr_t)&st, AT_EMPTY_PATH,
		     0, 0) < 0)
		return 0;
	return st.st_ino;
}

#endif
