/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What preload asks of the library as a whole. */
#ifndef PRELOAD_START_H
#define PRELOAD_START_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * Starts the library once: parameters, banner, rules, log, statistics. preload calls it from every
 * socket(AF_INET*) of the application (libc_internal is 0 then), from any thread: later calls
 * return at once. 0, or a negative errno when nothing is offloaded in this process.
 */
int library_start(void);

/*
 * Reads the parameters once, and starts nothing: what a process needs that has objects of ours, but
 * no socket yet. Python asks for an epoll set whenever it loads its module of sockets. From any
 * thread; libc_internal is 0.
 */
void library_configure(void);

/*
 * Threads, rings or pages of the library may be there, which a child of a fork must not take for
 * its own.
 */
bool library_has_begun(void);

/*
 * In the child of a fork(), before the application's own code runs there. The fd table is empty
 * already; forgets rings, threads and locks of the parent without touching what both share. A later
 * library_start() starts anew.
 */
void library_forked_child(void);

/*
 * Why a seccomp filter would end this process by a call of the library's; NULL: it would not. Makes
 * a child to find out, where there is a filter. One thread at a time.
 */
const char *sandbox_forbids(void);

/*
 * The process is about to give its privileges away and to become uid (-1: not known): what its
 * sockets will need is opened. Opens nothing, and starts nothing, for a process without such
 * sockets.
 */
void library_preopen(uid_t uid);

#endif
