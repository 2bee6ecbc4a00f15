/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A signal that nobody catches and that ends the process: connections are ended first, as the
 * kernel ends its own.
 */
#ifndef PRELOAD_FATAL_H
#define PRELOAD_FATAL_H

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

/* From here on it is so, for what stands at SIG_DFL now or later. */
void fatal_start(void);
/*
 * Touches (memory.h) may be made. Before, a process has no object of ours but epoll sets in which
 * nothing is ours, and no handler: its pointers are for libc's calls to look at.
 */
extern _Atomic bool fatal_begun __attribute__((visibility("hidden")));
/* From here on what a touch raises is caught. The parameters are read. Keeps errno. */
void fatal_touches_begin(void);
/* From here on SIG_DFL is the kernel's own. */
void fatal_stop(void);
/* It is what the kernel has where the application has said SIG_DFL. */
bool fatal_is(sighandler_t h);
/* What the kernel gets for *act, whose handler is SIG_DFL. */
void fatal_instead(int sig, struct sigaction *act);
/* The program has another use for sig: one that was put off is not to come again by itself. */
void fatal_no_more(int sig);
/* In the child of a fork(). */
void fatal_forked(void);
/*
 * VMA_HANDLE_SIGSEGV: a segmentation fault has come, which nothing of the library's own has caused
 * on purpose. info and context may be NULL. Keeps errno.
 */
void fatal_backtrace(int sig, const siginfo_t *info, const void *context);
/*
 * signal.c: true when the thread holds a lock of the library: the signal comes again when it holds
 * none.
 */
bool signal_defer(int sig, const siginfo_t *info, void *context);
/* In the child of a fork(): the other threads have none that wait. */
void signal_forked(void);

/* signal.c: an entry point has touched a bad pointer of the program's; the signal is over. */
bool signal_touched(int sig, void *context);

#endif
