/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "ring/xdp/guard.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <netlink/netlink.h>
#include <string.h>

#include "guard.skel.h"
#include "net/net.h"
#include "runtime/runtime.h"
#include "vma/steer.h"

#define TCX_INGRESS ((enum bpf_attach_type)46) /* BPF_TCX_INGRESS, since 6.6 */
#define TCX_IN_FRONT (1u << 3) /* BPF_F_BEFORE */
/* Of the filter: one that nobody else is likely to have, in front of those without one. */
#define FILTER_PRIORITY 761u
#define FILTER_HANDLE 1u /* and one more for each row behind the first */

/* The guard looks at the steering program's own maps. 0 or negative errno. */
static int load(struct guard_bpf *skel, const struct xdp_guard_maps *theirs)
{
	const struct {
		struct bpf_map *ours;
		int fd;
	} maps[] = {
		{skel->maps.flows, theirs->flows},
		{skel->maps.ports, theirs->ports},
		{skel->maps.xsks, theirs->xsks},
		{skel->maps.counters, theirs->counters},
	};
	int err = 0;

	skel->rodata->own_row = theirs->row;
	for (unsigned i = 0; !err && i < sizeof(maps) / sizeof(maps[0]); i++)
		err = bpf_map__reuse_fd(maps[i].ours, maps[i].fd);
	return err ? err : guard_bpf__load(skel);
}

static int filter_attach(struct xdp_guard *g, int ifindex, int prog_fd)
{
	LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = ifindex, .attach_point = BPF_TC_INGRESS);
	LIBBPF_OPTS(bpf_tc_opts, opts, .prog_fd = prog_fd, .handle = g->handle,
		    .priority = FILTER_PRIORITY, .flags = BPF_TC_F_REPLACE);
	int err = bpf_tc_hook_create(&hook);

	if (err && err != -EEXIST)
		return err;
	g->own_qdisc = !err;
	err = bpf_tc_attach(&hook, &opts);
	if (!err)
		g->filter_on = ifindex;
	return err;
}

static int one_filter(struct nl_msg *msg, void *any)
{
	(void)msg;
	*(bool *)any = true;
	return NL_SKIP;
}

/* By libnl-3 alone: libnl-route-3 would read a file at each program's start. */
static bool has_filters(struct nl_sock *nl, int ifindex, uint32_t minor)
{
	struct tcmsg t = {
		.tcm_family = AF_UNSPEC,
		.tcm_ifindex = ifindex,
		.tcm_parent = TC_H_MAKE(TC_H_CLSACT, minor),
	};
	bool has = false;

	nl_socket_modify_cb(nl, NL_CB_VALID, NL_CB_CUSTOM, one_filter, &has);
	/* Who cannot tell takes nothing away. */
	return nl_send_simple(nl, RTM_GETTFILTER, NLM_F_DUMP, &t, sizeof(t)) < 0 ||
	       nl_recvmsgs_default(nl) < 0 || has;
}

/* Somebody else has put filters to the queueing discipline that we had made. */
static bool others_there(int ifindex)
{
	struct nl_sock *nl;
	bool others;

	if (net_netlink(NETLINK_ROUTE, &nl))
		return true;
	others = has_filters(nl, ifindex, TC_H_MIN_INGRESS) ||
		 has_filters(nl, ifindex, TC_H_MIN_EGRESS);
	nl_socket_free(nl);
	return others;
}

static void filter_detach(const struct xdp_guard *g)
{
	LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = g->filter_on, .attach_point = BPF_TC_INGRESS);
	LIBBPF_OPTS(bpf_tc_opts, opts, .handle = g->handle, .priority = FILTER_PRIORITY);
	int err = bpf_tc_detach(&hook, &opts);

	if (!err && g->own_qdisc && !others_there(g->filter_on)) {
		hook.attach_point = BPF_TC_INGRESS | BPF_TC_EGRESS;
		err = bpf_tc_hook_destroy(&hook);
	}
	if (err)
		log_debug("ring/xdp: tc filter of interface %d: %s", g->filter_on, strerror(-err));
}

static int attach(struct xdp_guard *g, int ifindex, int prog_fd)
{
	/* In front: a program there may end the row (TCX_PASS). */
	LIBBPF_OPTS(bpf_link_create_opts, opts, .flags = TCX_IN_FRONT);

	g->link_fd = bpf_link_create(prog_fd, ifindex, TCX_INGRESS, &opts);
	if (g->link_fd >= 0)
		return 0;
	g->link_fd = -1;
	return filter_attach(g, ifindex, prog_fd);
}

static int stray(void *arg, void *data, size_t len)
{
	const struct xdp_guard *g = arg;

	if (len >= sizeof(struct vma_stray))
		g->fn(data);
	return 0;
}

void guard_open(struct xdp_guard *g, int ifindex, const char *ifname,
		const struct xdp_guard_maps *maps)
{
	struct guard_bpf *skel = guard_bpf__open();
	int err = skel ? load(skel, maps) : -errno;

	g->tried = true;
	g->handle = FILTER_HANDLE + (maps->row == VMA_ROWS_ALL ? 0 : maps->row);
	if (!err) {
		/* Without it the flows that it would name stand still. */
		g->strays = ring_buffer__new(bpf_map__fd(skel->maps.strays), stray, g, NULL);
		err = attach(g, ifindex, bpf_program__fd(skel->progs.guard));
	}
	/* What it is attached to holds the program. */
	guard_bpf__destroy(skel);
	if (err)
		log_details("ring/xdp: %s: what comes past the steering program of TCP connections "
			    "reaches the kernel, which resets them: %s",
			    ifname, strerror(-err));
}

void guard_strays(struct xdp_guard *g, guard_stray_fn fn)
{
	if (!g->strays)
		return;
	g->fn = fn;
	ring_buffer__consume(g->strays);
}

void guard_close(struct xdp_guard *g)
{
	if (g->filter_on)
		filter_detach(g);
	guard_forked(g);
}

void guard_forked(struct xdp_guard *g)
{
	if (g->link_fd >= 0)
		own_fd_close(g->link_fd);
	ring_buffer__free(g->strays);
	*g = GUARD_NONE;
}
