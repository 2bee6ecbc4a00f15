/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* VMA_EXCEPTION_HANDLING: what is done about an option that only the kernel can do. */
#ifndef CONFIG_EXCEPTION_H
#define CONFIG_EXCEPTION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/* Its values. Below EXCEPTION_SAID the socket goes to the kernel without a word. */
enum {
	EXCEPTION_EXITS = -2, /* ... and a process ends in which the library cannot start */
	EXCEPTION_SAID = 1, /* the log says it, the socket goes to the kernel */
	EXCEPTION_FAILS = 2, /* the call fails with EINVAL, the socket stays */
	EXCEPTION_ABORTS = 3,
};

#define OPTION_UNKNOWN INT64_MAX

/*
 * The kernel's socket behind fd has taken an option, and now it would have to take the socket as
 * well. True: the call is to fail, errno is set; the option has its value `was` again, as
 * exception_value() had it. Does not return where the user wants the process ended.
 */
bool exception_refuses(int fd, int level, int opt, int64_t was);
/* The option as a number, OPTION_UNKNOWN if it is none. errno stays. */
int64_t exception_value(int fd, int level, int opt);

#endif
