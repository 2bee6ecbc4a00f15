/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The room of statistics: the pages that vma_stats and the kernel module read. Blocks are handed
 * out here; whoever holds one counts straight into it, without a call. Used by sockets, stacks,
 * rings and iomux.
 *
 * Every packet: a store into a block (stats_add() is inline). Everything in blocks.c, area.c, why.c
 * and text.c, with sockopt_names.c, is rare: a socket opens or ends, the process starts, forks or
 * ends, a tool asks. While vma_stats captures, rings give their packets to capture.c; capture_fd.c
 * finds their sockets.
 */
#ifndef STATS_STATS_H
#define STATS_STATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "vma/stats.h"

/*
 * Tools see the counters from now on: in the kernel module's sysfs where kmod_start() has found
 * one, else in a file that is created: <dir>/vmastat.<pid> (dir "" or NULL: none, 0). Without
 * permission or space the counters stay in private memory: one log line, negative errno.
 * max_sockets above VMA_STATS_SOCKETS_MAX is cut to it. Blocks that were handed out before keep
 * their place and become visible. Idempotent.
 */
int stats_start(const char *dir, unsigned max_sockets);
/*
 * Removes the file; a child that was forked without stats_forked() does not remove its parent's.
 * Blocks in use stay valid, in private memory.
 */
void stats_stop(void);
/* The process is becoming uid: the file is its user's, so that it can be removed in the end. */
void stats_give(uid_t uid);
/*
 * In a child of fork(): leaves the parent's pages. Blocks in use stay valid (zeroed, private) until
 * they are put.
 */
void stats_forked(void);

/*
 * Never NULL, zeroed but for fd, enabled. Beyond VMA_STATS_FD_NUM and without a file the block is
 * private. All of these may be called from any thread, before stats_start() and after stats_stop().
 */
struct vma_stats_socket *stats_socket_get(int fd);
/*
 * The same, but NULL when nobody would ever see the block: not in the pages, no VMA_STATS_FILE, and
 * no log of counters.
 */
struct vma_stats_socket *stats_socket_if_shown(int fd);
/* The place of s in the pages, below VMA_STATS_SOCKETS_MAX; -1: it has none. */
int stats_socket_slot(const struct vma_stats_socket *s);
/* Until the second call no block becomes another socket's. Nothing but stores in between. */
void stats_blocks_hold(void);
void stats_blocks_drop(void);
/*
 * why.c: the kernel serves this path of fd's socket, and why, or (VMA_WHY_NONE) it does not: kept
 * in s (NULL: it has no block). The first time that s has it it is counted for the process, and
 * said at DETAILS.
 */
void stats_why(struct vma_stats_socket *s, int fd, enum vma_why_path path,
	       struct vma_stats_why why);
#define STATS_WHY(constant) ((struct vma_stats_why){.reason = VMA_WHY_##constant})
/* Of an option of setsockopt(). */
static inline struct vma_stats_why stats_why_option(int level, int opt)
{
	return (struct vma_stats_why){VMA_WHY_OPTION, level << 16 | (opt & 0xffff)};
}
/* In a child of fork(): its own are counted. */
void stats_whys_forked(void);
/* At the end of the process: a line at INFO for each reason that a socket had. */
void stats_why_summary(void);
/* At the socket's close, still filled in: with VMA_STATS_FILE its text is written there. */
void stats_socket_put(struct vma_stats_socket *s);
struct vma_stats_ring *stats_ring_get(void);
void stats_ring_put(struct vma_stats_ring *r);
struct vma_stats_cq *stats_cq_get(void);
void stats_cq_put(struct vma_stats_cq *c);
struct vma_stats_pool *stats_pool_get(bool is_rx);
void stats_pool_put(struct vma_stats_pool *p);
struct vma_stats_iomux *
stats_iomux_get(int epfd); /* epfd; STATS_SELECT or STATS_POLL: always the same two blocks */
void stats_iomux_put(struct vma_stats_iomux *m);
#define STATS_SELECT (-1)
#define STATS_POLL (-2)

/*
 * Called by the internal thread each 100 ms: follows the control words (log level, log details,
 * dump requests). dump_fd(0, level) asks for all sockets; NULL: stats_socket_log() of the blocks
 * that are in use here.
 */
void stats_control(void (*dump_fd)(int fd, int level));

/* ---- vma_stats capture: capture.c */

/*
 * What vma_stats asks for is followed: true while packets are kept. The internal thread each 100
 * ms, without locks: memory is made and given back here.
 */
bool stats_capture_follow(void);
/* Are packets kept? Who opens a ring. */
bool stats_capture_on(void);
/* The internal thread, after that: all rings give their packets, so the tool may have them. */
void stats_capture_show(void);

/* A frame as the program's interface sees it. */
struct stats_frame {
	uint8_t direction; /* VMA_CAPTURE_IN or VMA_CAPTURE_OUT */
	int ifindex;
	const char *ifname;
	uint64_t time_ns; /* CLOCK_REALTIME */
	const struct iovec *iov; /* the first one has all headers */
	int iovcnt;
};
/* A frame that is kept, and not shown yet. */
struct stats_kept {
	struct stats_capture *capture;
	struct vma_capture_record *record;
	uint64_t at;
};

/*
 * Copies a frame, as much of it as the tool wants. Any thread, no lock. False: nobody captures, or
 * it is one of those that are lost and counted. stats_capture_done() follows true, soon: until then
 * the thread's signal handlers wait.
 */
bool stats_capture_keep(struct stats_kept *k, const struct stats_frame *f);
/* The tool sees it. */
void stats_capture_done(struct stats_kept *k);
/* It has not left: the tool passes over it. */
void stats_capture_void(struct stats_kept *k);

/* Text: lib/stats/text.c, shared with vma_stats. The block may be live: it is copied first. */
#define STATS_ADDR_TEXT 64
/* "1.2.3.4:80" or "[::1]:80"; without a port (-1) "1.2.3.4" or "::1". Returns text. */
const char *stats_addr_text(char text[STATS_ADDR_TEXT], const struct vma_addr *addr, int family,
			    int port);
/* Of an enum vma_stats_state, as netstat(8) names it; "" for anything else. */
const char *stats_state_name(unsigned state);
#define SOCKOPT_NAME 48
/*
 * What the C headers call a socket option: "SO_REUSEADDR"; of one that is not known "IPPROTO_TCP,
 * option 99" or "level 7, option 1". Returns text.
 */
const char *sockopt_name(char text[SOCKOPT_NAME], int level, int opt);
/* "rule", "local"; "" for VMA_WHY_NONE and what is none. */
const char *stats_why_name(unsigned reason);
#define STATS_WHY_TEXT 160
/* In words, with its detail. Returns text. */
const char *stats_why_text(char text[STATS_WHY_TEXT], const struct vma_stats_why *why);
/* The first path that has a reason; NULL: none has. */
const struct vma_stats_why *stats_why_first(const struct vma_stats_socket *s);
/* A line, when it counts anything. suffix as below. */
void stats_waits_print(FILE *f, const struct vma_stats_waits *w, const char *suffix);
/* The view-3 block of one socket. suffix is "/s" behind rates, else "". */
void stats_socket_print(FILE *f, const struct vma_stats_socket *s, const char *suffix);
void stats_socket_dump(FILE *f, const struct vma_stats_socket *s);
/*
 * VMA_STATS_FILE at close: appends the same text to path, in which one %d is the pid. Never follows
 * a link. 0 or negative errno (logged).
 */
int stats_file_dump(const char *path, const struct vma_stats_socket *s);
/* vma_stats -S: the socket's statistics through the log at level. */
void stats_socket_log(int level, const struct vma_stats_socket *s);
/*
 * What a socket and a ring have counted, in the form of the manual, at LOG_DEBUG: when they close
 * (stats.c), and of all that are left at the end of the process. Nothing of what was not used.
 */
void stats_socket_log_end(const struct vma_stats_socket *s);
void stats_ring_log_end(const struct vma_stats_ring *r);
void stats_log_end(void);
/* The same of all blocks that are in use here under the number fd; 0: of all. */
void stats_sockets_log(int fd, int level);
/* One writer per word, a reader elsewhere: plain adds that the compiler may not tear. */
static inline void stats_add(__u64 *counter, __u64 n)
{
	__u64 __attribute__((may_alias)) *c = counter; /* it may be a ring's uint64_t */

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
	/*
	 * What compilers make three instructions of; one store of eight aligned bytes is never seen
	 * half, either.
	 */
	__asm__("addq %1, %0" : "+m"(*c) : "re"(n));
#else
	__atomic_store_n(c, __atomic_load_n(c, __ATOMIC_RELAXED) + n, __ATOMIC_RELAXED);
#endif
}

static inline void stats_set(__u64 *c, __u64 v)
{
	__atomic_store_n(c, v, __ATOMIC_RELAXED);
}

/*
 * Copies a block, or several, that others count in: whole 64-bit words on both sides, so that no
 * counter is seen half. Both 8-aligned, bytes a multiple of 8.
 */
static inline void stats_copy_words(void *to, const void *from, size_t bytes)
{
	__u64 *t = (__u64 *)to;
	const __u64 *f = (const __u64 *)from;

	for (size_t i = 0; i < bytes / sizeof(*t); i++)
		__atomic_store_n(&t[i], __atomic_load_n(&f[i], __ATOMIC_ACQUIRE), __ATOMIC_RELAXED);
}

#endif
