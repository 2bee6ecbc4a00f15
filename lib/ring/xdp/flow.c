/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The flow table of a port: what the steering program looks up. */
#include <bpf/bpf.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>

#include "ring/port.h"
#include "runtime/log.h"

static bool key_is_exact(const struct vma_flow_key *key)
{
	static const struct vma_addr any;

	return key->remote_port || memcmp(&key->remote, &any, sizeof(any));
}

static uint32_t port_index(const struct vma_flow_key *key)
{
	return key->local_port +
	       (key->proto == IPPROTO_TCP ? VMA_PORT_INDEX_TCP : VMA_PORT_INDEX_UDP);
}

/* The IPv4 address in a, network order; false for an IPv6 one. */
static bool addr_v4(const struct vma_addr *a, uint32_t *v4)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	memcpy(v4, &a->byte[12], sizeof(*v4));
	return !memcmp(a->byte, mapped, sizeof(mapped));
}

/* Enters key into the totals of its port (by = 1) or takes it out (by = -1). */
static void count(struct port_flows *f, const struct vma_flow_key *key, int by)
{
	uint32_t local, remote = 0;

	if (key_is_exact(key))
		f->num_exact += (uint32_t)by;
	else
		f->num_3tuple += (uint32_t)by;
	if (!addr_v4(&key->local, &local))
		return;
	addr_v4(&key->remote, &remote);
	f->num_v4 += (uint32_t)by;
	f->local ^= local;
	f->remote ^= remote;
	f->remote_port ^= key->remote_port;
}

/* What the program has to know about the flows of the port with this index. */
static struct vma_port port_value(const struct port_flows *f, uint32_t index)
{
	struct vma_port v = {.flags = (f->num_3tuple ? VMA_PORT_3TUPLE : 0) |
				      (f->num_exact ? VMA_PORT_EXACT : 0)};

	if (index >= VMA_PORT_INDEX_TCP && f->num_3tuple && !f->quiet)
		v.flags |= VMA_PORT_KERNEL;

	/* The program takes a flow without a remote port for a 3-tuple flow. */
	if (f->num_v4 == 1 && (f->remote_port || !f->remote)) {
		v.flags |= VMA_PORT_SOLE4;
		v.local = f->local;
		v.remote = f->remote;
		v.remote_port = f->remote_port;
	}
	return v;
}

/* Writes what the program is to know of the port, if that differs from old. */
static int port_tell(struct port *p, uint32_t index, const struct vma_port *old)
{
	struct vma_port new = port_value(&p->flows[index], index);
	int err;

	if (!memcmp(old, &new, sizeof(new)))
		return 0;
	err = bpf_map_update_elem(p->ports_fd, &index, &new, BPF_ANY);
	if (err)
		log_error("ring/xdp: %s: bpf_map_update_elem(ports, %u): %s", p->ifname, index,
			  strerror(-err));
	return err;
}

/* Enters key (by = 1) or takes it out (by = -1), and tells the program if that matters to it. */
static int port_count(struct port *p, const struct vma_flow_key *key, int by)
{
	uint32_t index = port_index(key);
	struct port_flows *f = &p->flows[index];
	struct vma_port old = port_value(f, index);

	count(f, key, by);
	if (!f->num_3tuple)
		f->quiet = false; /* the next listener begins with not knowing */
	return port_tell(p, index, &old);
}

void port_quiet(struct port *p, uint16_t local_port, bool quiet)
{
	uint32_t index = VMA_PORT_INDEX_TCP + local_port;
	struct vma_port old = port_value(&p->flows[index], index);

	p->flows[index].quiet = quiet && p->flows[index].num_3tuple;
	(void)port_tell(p, index, &old); /* it has said why; the program then looks more often than it need */
}

int port_flow_add(struct port *p, const struct vma_flow_key *key, const struct vma_flow_info *info)
{
	int err;

	err = bpf_map_update_elem(p->flows_fd, key, info, BPF_NOEXIST);
	if (err == -EEXIST)
		return err;
	if (err == -E2BIG) /* the table is full: the socket's to say, once for the thousands that follow */
		return -ENOSPC;
	if (err) {
		log_error("ring/xdp: %s: bpf_map_update_elem(flows, port %u): %s", p->ifname,
			  key->local_port, strerror(-err));
		return err;
	}
	err = port_count(p, key, 1);
	if (err)
		port_flow_del(p, key);
	return err;
}

int port_flow_del(struct port *p, const struct vma_flow_key *key)
{
	int err;

	err = bpf_map_delete_elem(p->flows_fd, key);
	if (err)
		return err;
	port_count(p, key, -1);
	return 0;
}
