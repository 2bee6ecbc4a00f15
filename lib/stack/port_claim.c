/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "socket/stack_right.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "runtime/libc.h"
#include "runtime/lock.h"
#include "runtime/log.h"

static struct lock rights_lock;
static struct right {
	struct right *next;
	uint16_t port;
	unsigned users;
	int fd; /* has the name, which is one for each network namespace, and goes with the process */
} *rights;

static struct right **find(uint16_t port)
{
	struct right **r = &rights;

	while (*r && (*r)->port != port)
		r = &(*r)->next;
	return r;
}

/* A socket with the port's name. -1: somebody has one. */
static int name_take(uint16_t port)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int len = snprintf(a.sun_path + 1, sizeof(a.sun_path) - 1, "libvma/tcp/%u", port);
	int fd = libc.socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 && !libc.bind(fd, (struct sockaddr *)&a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len)))
		return fd;
	if (errno != EADDRINUSE)
		log_warn("TCP port %u: the right to its segments cannot be had (socket or bind of @%s: %s): its connections go through the kernel",
			 port, a.sun_path + 1, strerror(errno));
	if (fd >= 0)
		libc.close(fd);
	return -1;
}

static struct right *right_new(uint16_t port)
{
	struct right *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->port = port;
	r->fd = name_take(port);
	if (r->fd >= 0)
		return r;
	free(r);
	return NULL;
}

bool stack_right_take(uint16_t port)
{
	struct right **at;
	bool ours;

	lock_take(&rights_lock);
	at = find(port);
	if (!*at)
		*at = right_new(port);
	ours = *at;
	if (ours)
		(*at)->users++;
	lock_drop(&rights_lock);
	return ours;
}

void stack_right_drop(uint16_t port)
{
	struct right **at, *r;

	lock_take(&rights_lock);
	at = find(port);
	r = *at;
	if (r && !--r->users) {
		*at = r->next;
		libc.close(r->fd);
		free(r);
	}
	lock_drop(&rights_lock);
}

void stack_rights_forked(void)
{
	struct right *r;

	memset(&rights_lock, 0, sizeof(rights_lock));
	while ((r = rights)) {
		rights = r->next;
		libc.close(r->fd);
		free(r);
	}
}
