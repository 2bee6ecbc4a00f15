/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Why a socket gets no stack: for vma_stats, after stack_get() has said no. Rare. */
#include "stack/internal.h"

#include <errno.h>
#include <string.h>

#include "net/net.h"
#include "runtime/runtime.h"

/* A ring could not be opened for want of a right: which. */
static struct vma_stats_why missing_right(int err)
{
	static const int needed[] = {CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF, CAP_PERFMON};
	bool all = caps_have(CAPS_BIT(CAP_SYS_ADMIN)); /* in place of the last two */

	for (unsigned i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
		if (!caps_have(CAPS_BIT(needed[i])) && !(i >= 2 && all))
			return (struct vma_stats_why){VMA_WHY_CAPABILITY, needed[i]};
	}
	return (struct vma_stats_why){VMA_WHY_NO_RING, -err};
}

/* What opening its ring has come to. */
static struct vma_stats_why refusal(int ifindex)
{
	int err = stack_last_refusal(ifindex);

	if (err == -EBUSY)
		return STATS_WHY(OWNER);
	if (err == STACK_IPSEC)
		return STATS_WHY(IPSEC);
	if (err == -EPERM || err == -EACCES)
		return missing_right(err);
	/* What registering a ring's memory says beyond RLIMIT_MEMLOCK. */
	if (err == -ENOBUFS && !caps_have(CAPS_BIT(CAP_IPC_LOCK)))
		return (struct vma_stats_why){VMA_WHY_CAPABILITY, CAP_IPC_LOCK};
	return (struct vma_stats_why){VMA_WHY_NO_RING, -err};
}

struct vma_stats_why stack_why_not(int ifindex)
{
	struct net_link link;

	if (net_link_get(ifindex, &link))
		return STATS_WHY(DOWN);
	if (link.kind == NET_LINK_LOOPBACK && !params.offload_loopback)
		return STATS_WHY(LOCAL);
	if (link.kind == NET_LINK_OTHER)
		return STATS_WHY(NOT_ETHERNET);
	if (link.master)
		return STATS_WHY(SLAVE);
	if (!link.up)
		return STATS_WHY(DOWN);
	return refusal(ifindex);
}

struct vma_stats_why stack_why_unserved(const struct in6_addr *local, int bound_if)
{
	struct vma_stats_why why = STATS_WHY(ADDRESS);
	bool any = IN6_IS_ADDR_UNSPECIFIED(local);
	struct net_link_walk links = {.num = 0};
	int ifindex;

	while ((ifindex = net_link_next(&links))) {
		if (bound_if ? ifindex != bound_if : !any && !stack_has_address(ifindex, local))
			continue;
		/* Its rules, not its ring, leave this socket out. */
		if (stack_any(ifindex))
			continue;
		why = stack_why_not(ifindex);
		/* An interface to others tells more. */
		if (why.reason != VMA_WHY_LOCAL)
			break;
	}
	return why;
}
