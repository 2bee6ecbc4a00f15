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

/* The system call by which a program gives itself a seccomp filter: prctl(2), seccomp(2). */
struct filter_call {
	long nr, a, b, c;
};

/*
 * Before that call: where the filter forbids what the library does, it leaves the process, which
 * goes on. Its sockets are the kernel's, its rings and its threads are gone. From any thread of the
 * program. Keeps errno.
 */
void library_filter_comes(const struct filter_call *filter);

/*
 * In the child of a fork(), before the application's own code runs there. The fd table is empty
 * already; forgets rings, threads and locks of the parent without touching what both share. A later
 * library_start() starts anew.
 */
void library_forked_child(void);

/*
 * It has left: no more of it is there than these functions, which make the calls that libc's own
 * make. So it is in children of fork(), too, which have the filter.
 */
bool library_has_left(void);

/*
 * Why the library cannot be in this process with the seccomp filters that there are, or with
 * another one; NULL: it can. A filter that is there may refuse its calls, but not end the process;
 * one that comes (filter, else NULL) may do neither, as the library is in the middle of its work.
 * Makes a child to find out, where there is a filter. One thread at a time.
 */
const char *sandbox_forbids(const struct filter_call *filter);

/* The program makes such a call next (it may be for something else). Keeps errno. */
void sandbox_filter_comes(long nr, long a, long b, long c);

/*
 * The process is about to give its privileges away and to become uid (-1: not known): what its
 * sockets will need is opened. Opens nothing, and starts nothing, for a process without such
 * sockets.
 */
void library_preopen(uid_t uid);

#endif
