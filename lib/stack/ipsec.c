/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A ring would send in the clear what the kernel encrypts by an IPsec policy, and take what it
 * refuses. So a network namespace with policies has no rings. Of all its interfaces: by which one a
 * policy's packets go is a matter of routes, and those change.
 */
#include "stack/internal.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "net/net.h"
#include "runtime/runtime.h"

static int events = -1; /* stacks_opening; the child of a fork(), and the end */

static void changed(int fd, uint32_t epoll_events, void *arg)
{
	(void)epoll_events;
	(void)arg;
	if (!net_policies_came(fd))
		return;
	/* Who has asked before has its ring then. */
	pthread_mutex_lock(&stacks_opening);
	pthread_mutex_unlock(&stacks_opening);
	if (stacks_cut_off(STACK_IPSEC))
		log_warn("IPsec policies have come (ip-xfrm(8)), which only the kernel follows: "
			 "sockets have gone to the kernel");
}

/*
 * The kernel has no IPsec. It is asked once: to find out, the kernel may start modprobe(8).
 */
static bool is_unknown;

/* Those that come later. Without the right to hear of them they cannot be asked for either. */
static void follow(void)
{
	int fd = net_policies_follow(), err = fd < 0 ? fd : 0;

	if (!err)
		err = worker_fd_add(fd, EPOLLIN, changed, NULL);
	if (!err)
		events = fd;
	else if (fd >= 0)
		own_fd_close(fd);
	is_unknown = err == -EPROTONOSUPPORT;
	if (err)
		log_debug("IPsec policies are not followed: %s", strerror(-err));
}

bool stack_ipsec_is_used(void)
{
	/* First: none is missed between the two. */
	if (events < 0 && !is_unknown)
		follow();
	if (is_unknown || !net_policies_any())
		return false;
	log_warn("the network namespace has IPsec policies (ip-xfrm(8)), which only the kernel "
		 "follows: sockets stay with the kernel");
	return true;
}

void stack_ipsec_end(void)
{
	if (events >= 0)
		own_fd_close(events);
	events = -1;
}
