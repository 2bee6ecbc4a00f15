/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "stack/port_claim.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "runtime/runtime.h"

static struct lock claims_lock;
static struct port_claim {
	struct port_claim *next;
	uint16_t port;
	unsigned users;
	/* has the name, which is one for each network namespace, and goes with the process */
	int fd;
} * claims;

static struct port_claim **find(uint16_t port)
{
	struct port_claim **r = &claims;

	while (*r && (*r)->port != port)
		r = &(*r)->next;
	return r;
}

/* A socket with the port's name. -1: somebody has one. */
static int name_take(uint16_t port)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int len = snprintf(a.sun_path + 1, sizeof(a.sun_path) - 1, "libvma/tcp/%u", port);
	int fd = OWN_FD(libc.socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));

	if (fd >= 0 &&
	    !libc.bind(fd, (struct sockaddr *)&a,
		       (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len)))
		return fd;
	if (errno != EADDRINUSE)
		log_warn("TCP port %u: the right to its segments cannot be had (socket or bind of "
			 "@%s: %s): its connections go through the kernel",
			 port, a.sun_path + 1, strerror(errno));
	if (fd >= 0)
		own_fd_close(fd);
	return -1;
}

static struct port_claim *claim_new(uint16_t port)
{
	struct port_claim *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->port = port;
	r->fd = name_take(port);
	if (r->fd >= 0)
		return r;
	free(r);
	return NULL;
}

bool port_claim_take(uint16_t port)
{
	struct port_claim **at;
	bool ours;

	lock_take(&claims_lock);
	at = find(port);
	if (!*at)
		*at = claim_new(port);
	ours = *at;
	if (ours)
		(*at)->users++;
	lock_drop(&claims_lock);
	return ours;
}

void port_claim_drop(uint16_t port)
{
	struct port_claim **at, *r;

	lock_take(&claims_lock);
	at = find(port);
	r = *at;
	if (r && !--r->users) {
		*at = r->next;
		own_fd_close(r->fd);
		free(r);
	}
	lock_drop(&claims_lock);
}

void port_claims_forked(void)
{
	struct port_claim *r;

	memset(&claims_lock, 0, sizeof(claims_lock));
	while ((r = claims)) {
		claims = r->next;
		own_fd_close(r->fd);
		free(r);
	}
}
