/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The room of select, poll and epoll over any mix of offloaded and kernel fds. Only preload calls
 * these, for every call of that name; a call that involves no fd of ours goes straight to libc.
 * Results and errno as the libc functions.
 *
 * Every wait: wait_loop.c, which looks, spins and sleeps, with epoll_wait.c, or pollset.c and
 * poll.c or select.c. Every event of a watched socket: epoll_item.c. Rare: epoll.c (sets made, fds
 * added).
 */
#ifndef IOMUX_IOMUX_H
#define IOMUX_IOMUX_H

#include <poll.h>
#include <stdbool.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>

/* The program has set RLIMIT_NOFILE, which bounds poll()'s entries. The limit's lock is held. */
void iomux_limit_changed(void);
/* timeout NULL: for ever. sigmask NULL: leave the mask. Like ppoll(2), timeout is not changed. */
int iomux_poll(struct pollfd *fds, nfds_t n, const struct timespec *timeout,
	       const sigset_t *sigmask);
/*
 * Like pselect(2); select()'s update of the timeout is the caller's (preload computes what is
 * left).
 */
int iomux_select(int nfds, fd_set *rd, fd_set *wr, fd_set *ex, const struct timespec *timeout,
		 const sigset_t *sigmask);
/*
 * Makes the epoll object for a new kernel epoll fd and enters it in the fd table. 0 or -errno (then
 * the fd stays plain).
 */
int iomux_epoll_created(int epfd);
/*
 * The library leaves: a set in which nothing is left that only we can tell of is the kernel's.
 * True: it was there, and is not any more.
 */
bool iomux_epoll_leave(int epfd);
int iomux_epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev);
int iomux_epoll_wait(int epfd, struct epoll_event *evs, int max, const struct timespec *timeout,
		     const sigset_t *sigmask);

#endif
