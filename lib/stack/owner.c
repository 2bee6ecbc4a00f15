/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "stack/owner.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "ring/ring.h"
#include "runtime/runtime.h"
#include "stack/stack.h"

#define OWNERS_MAX 16u
#define GOING_NS 200000000

static pthread_mutex_t owners_lock = PTHREAD_MUTEX_INITIALIZER;
static struct owner {
	int ifindex; /* 0: free */
	int fd; /* what end_of() gave */
} owners[OWNERS_MAX];

/* Owners that were not to be found and waited for by time. owners_lock */
static struct missing {
	int ifindex; /* 0: free */
	pid_t pid;
} missing[OWNERS_MAX];
static unsigned next_missing; /* the oldest: it makes room */

/* The owner's end, which comes after that of its descriptors. */
static void ended(int fd, uint32_t events, void *arg)
{
	struct owner *o = arg;
	int ifindex;

	(void)events;
	worker_fd_del(fd, arg);
	pthread_mutex_lock(&owners_lock);
	ifindex = o->ifindex;
	o->ifindex = 0;
	own_fd_close(fd);
	pthread_mutex_unlock(&owners_lock);
	log_debug("the process that had the queues of interface %d has ended: sockets follow",
		  ifindex);
	stack_freed(ifindex);
}

/* owners_lock is held. False: it was noted before. */
static bool missing_note(int ifindex, pid_t pid)
{
	for (unsigned i = 0; i < OWNERS_MAX; i++) {
		if (missing[i].ifindex == ifindex && missing[i].pid == pid)
			return false;
	}
	missing[next_missing] = (struct missing){ifindex, pid};
	next_missing = (next_missing + 1) % OWNERS_MAX;
	return true;
}

/*
 * Becomes readable when the process has ended. Who is not to be found may have done so just now,
 * and its queues go a moment after; who is not to be found again lives in another PID namespace,
 * and nothing tells its end. -1 and errno. owners_lock is held.
 */
static int end_of(int ifindex, pid_t pid)
{
	const struct itimerspec soon = {.it_value = {.tv_nsec = GOING_NS}};
	int fd = OWN_FD((int)libc_raw(SYS_pidfd_open, pid, 0, 0, 0, 0, 0));

	if (fd >= 0 || errno != ESRCH)
		return fd;
	if (!missing_note(ifindex, pid)) {
		errno = ESRCH;
		return -1;
	}
	fd = OWN_FD(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
	if (fd >= 0)
		(void)timerfd_settime(fd, 0, &soon, NULL);
	return fd;
}

static struct owner *place_for(int ifindex)
{
	struct owner *free = NULL;

	for (unsigned i = 0; i < OWNERS_MAX; i++) {
		if (owners[i].ifindex == ifindex)
			return NULL;
		if (!owners[i].ifindex)
			free = &owners[i];
	}
	return free;
}

void stack_owner_wait(int ifindex)
{
	pid_t pid = port_owner_pid(ifindex);
	struct owner *o;
	int err = 0;

	pthread_mutex_lock(&owners_lock);
	o = pid ? place_for(ifindex) : NULL;
	if (o) {
		o->fd = end_of(ifindex, pid);
		err = o->fd < 0 ? -errno : worker_fd_add(o->fd, EPOLLIN, ended, o);
		if (!err)
			o->ifindex = ifindex;
		else if (o->fd >= 0)
			own_fd_close(o->fd);
	}
	pthread_mutex_unlock(&owners_lock);
	if (err)
		log_debug("interface %d: the end of process %d cannot be waited for: %s", ifindex,
			  (int)pid, strerror(-err));
}

void stack_owners_forked(void)
{
	pthread_mutex_init(&owners_lock, NULL);
	for (unsigned i = 0; i < OWNERS_MAX; i++) {
		if (owners[i].ifindex)
			own_fd_close(owners[i].fd);
		owners[i].ifindex = 0;
	}
	memset(missing, 0, sizeof(missing));
	next_missing = 0;
}
