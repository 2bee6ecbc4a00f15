/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The flow table of a port: what the steering program looks up. */
#include <bpf/bpf.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

#include "ring/port.h"
#include "ring/ring.h"
#include "runtime/runtime.h"

/* In the map that port_tell() writes, entries begin at multiples of 8 bytes. */
_Static_assert(sizeof(struct vma_port) % 8 == 0, "struct vma_port");

#define WINDOW_BYTES (PORT_WINDOW * sizeof(struct vma_port))

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

/*
 * Enters key, which these rings have, into the totals of its port (by = 1) or takes it out (by =
 * -1).
 */
static void count(struct port_flows *f, const struct vma_flow_key *key,
		  const struct vma_flow_info *rings, int by)
{
	uint32_t local, remote = 0;

	if (rings->num_rings > 1)
		f->num_spread += (uint32_t)by;
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
	f->ring ^= rings->ring[0];
}

/* What the program has to know about the flows of the port with this index. */
static struct vma_port port_value(const struct port_flows *f, uint32_t index)
{
	struct vma_port v = {.flags = (f->num_3tuple ? VMA_PORT_3TUPLE : 0) |
				      (f->num_exact ? VMA_PORT_EXACT : 0)};

	if (index >= VMA_PORT_INDEX_TCP && f->num_3tuple && !f->quiet)
		v.flags |= VMA_PORT_KERNEL;

	/* The program takes a flow without a remote port for a 3-tuple flow. */
	if (f->num_v4 == 1 && !f->num_spread && (f->remote_port || !f->remote)) {
		v.flags |= VMA_PORT_SOLE4;
		v.local = f->local;
		v.remote = f->remote;
		v.remote_port = f->remote_port;
		v.ring = f->ring;
	}
	return v;
}

/* The port's entry in the map; NULL: it cannot be mapped. */
static struct vma_port *port_entry(struct ring_port *p, uint32_t index)
{
	struct vma_port **window = &p->ports[index / PORT_WINDOW];
	void *m;

	if (!*window) {
		m = mmap(NULL, WINDOW_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, p->fd[PORT_PORTS],
			 (off_t)(index / PORT_WINDOW * WINDOW_BYTES));
		*window = m == MAP_FAILED ? NULL : m;
	}
	return *window ? *window + index % PORT_WINDOW : NULL;
}

void port_flows_unmap(struct ring_port *p)
{
	for (unsigned i = 0; i < VMA_PORT_INDEX_MAX / PORT_WINDOW; i++) {
		if (p->ports[i])
			munmap(p->ports[i], WINDOW_BYTES);
		p->ports[i] = NULL;
	}
}

static void port_tell_by_call(struct ring_port *p, uint32_t index, const struct vma_port *new)
{
	int err = bpf_map_update_elem(p->fd[PORT_PORTS], &index, new, BPF_ANY);

	if (err)
		log_error("ring/xdp: %s: bpf_map_update_elem(ports, %u): %s", p->ifname, index,
			  strerror(-err));
}

/*
 * Writes what the program is to know of the port. It reads at any time, first the flags: what they
 * say of the sole flow is not changed while they say that there is one.
 */
static void port_tell(struct ring_port *p, uint32_t index)
{
	struct vma_port new = port_value(&p->flows[index], index), *to = port_entry(p, index);
	bool sole = new.flags &VMA_PORT_SOLE4;

	if (!to) {
		port_tell_by_call(p, index, &new);
		return;
	}
	/* Without a sole flow only the flags say something. */
	if (sole ? !memcmp(to, &new, sizeof(new)) : to->flags == new.flags)
		return;
	__atomic_store_n(&to->flags, new.flags & ~VMA_PORT_SOLE4, __ATOMIC_RELEASE);
	if (!sole)
		return;
	__atomic_store_n(&to->local, new.local, __ATOMIC_RELEASE);
	__atomic_store_n(&to->remote, new.remote, __ATOMIC_RELEASE);
	__atomic_store_n(&to->remote_port, new.remote_port, __ATOMIC_RELEASE);
	__atomic_store_n(&to->ring, new.ring, __ATOMIC_RELEASE);
	__atomic_store_n(&to->flags, new.flags, __ATOMIC_RELEASE);
}

/*
 * The rings that have key were those of `was` and are those of `is` (either may be NULL: none).
 * Tells the program if that matters to it.
 */
static void port_count(struct ring_port *p, const struct vma_flow_key *key,
		       const struct vma_flow_info *was, const struct vma_flow_info *is)
{
	uint32_t index = port_index(key);
	struct port_flows *f = &p->flows[index];

	if (was)
		count(f, key, was, -1);
	if (is)
		count(f, key, is, 1);
	if (!f->num_3tuple)
		f->quiet = false; /* the next listener begins with not knowing */
	port_tell(p, index);
}

static void unquiet(struct ring_port *p, uint32_t index)
{
	if (!p->flows[index].quiet)
		return;
	p->flows[index].quiet = false;
	port_tell(p, index);
}

void port_unquiet(struct ring_port *p)
{
	for (uint32_t index = VMA_PORT_INDEX_TCP; index < VMA_PORT_INDEX_MAX; index++)
		unquiet(p, index);
}

void port_quiet(struct ring_port *p, uint16_t local_port, bool quiet)
{
	uint32_t index = VMA_PORT_INDEX_TCP + local_port;

	p->flows[index].quiet = quiet && p->flows[index].num_3tuple;
	port_tell(p, index);
}

/* Until the end the totals of the flow's port may not be what the table holds. */
static void change_begin(struct ring_port *p, const struct vma_flow_key *key)
{
	if (p->flow_busy)
		__atomic_store_n(p->flow_busy, port_index(key) + 1, __ATOMIC_RELEASE);
}

static int change_end(struct ring_port *p, int err)
{
	if (p->flow_busy)
		__atomic_store_n(p->flow_busy, 0, __ATOMIC_RELEASE);
	return err;
}

static int flow_write(struct ring_port *p, const struct vma_flow_key *key,
		      const struct vma_flow_info *info, uint64_t flags)
{
	int err = bpf_map_update_elem(p->fd[PORT_FLOWS], key, info, flags);

	if (err ==
	    -E2BIG) /* the table is full: the socket's to say, once for the thousands that follow */
		return -ENOSPC;
	if (err && err != -EEXIST)
		log_error("ring/xdp: %s: bpf_map_update_elem(flows, port %u): %s", p->ifname,
			  key->local_port, strerror(-err));
	return err;
}

static int ring_index(const struct vma_flow_info *f, unsigned ring)
{
	for (int i = 0; i < f->num_rings; i++)
		if (f->ring[i] == ring)
			return i;
	return -1;
}

/* Another ring has the flow already. flags: of who wants it, too. */
static int flow_share(struct ring_port *p, unsigned ring, const struct vma_flow_key *key,
		      uint8_t flags)
{
	struct vma_flow_info was, is;
	int err;

	if (bpf_map_lookup_elem(p->fd[PORT_FLOWS], key, &was) || was.num_rings > VMA_FLOW_RINGS_MAX)
		return -EEXIST;
	if (ring_index(&was, ring) >= 0)
		return -EALREADY;
	if ((key->proto == IPPROTO_TCP && key_is_exact(key)) || ring_flow_of_group(key))
		return -EEXIST;
	/* The other ring is another process's. */
	if (p->flow_busy && !(was.flags & flags & VMA_FLOW_JOINT))
		return -EEXIST;
	if (was.num_rings == VMA_FLOW_RINGS_MAX)
		return -EUSERS;
	is = was;
	is.ring[is.num_rings++] = (uint8_t)ring;
	/*
	 * Before the program sees several: as the only flow of its port it would go to the first
	 * ring only.
	 */
	port_count(p, key, &was, &is);
	err = flow_write(p, key, &is, BPF_EXIST);
	if (err)
		port_count(p, key, &is, &was);
	return err;
}

/* A flow that one ring has, and whose owner takes it away: with one call. */
static int exact_del(struct ring_port *p, unsigned ring, const struct vma_flow_key *key)
{
	struct vma_flow_info was;
	int err = bpf_map_lookup_and_delete_elem(p->fd[PORT_FLOWS], key, &was);

	if (err)
		return err;
	if (was.num_rings == 1 && was.ring[0] == ring) {
		port_count(p, key, &was, NULL);
		return 0;
	}
	(void)flow_write(p, key, &was, BPF_NOEXIST);
	return -ENOENT;
}

static int flow_del(struct ring_port *p, unsigned ring, const struct vma_flow_key *key)
{
	struct vma_flow_info was, is;
	int err, i;

	if (key->proto == IPPROTO_TCP && key_is_exact(key))
		return exact_del(p, ring, key);
	err = bpf_map_lookup_elem(p->fd[PORT_FLOWS], key, &was);
	if (err)
		return err;
	i = was.num_rings <= VMA_FLOW_RINGS_MAX ? ring_index(&was, ring) : -1;
	if (i < 0)
		return -ENOENT;
	if (was.num_rings == 1) {
		err = bpf_map_delete_elem(p->fd[PORT_FLOWS], key);
		if (!err)
			port_count(p, key, &was, NULL);
		return err;
	}
	is = was;
	is.ring[i] = is.ring[--is.num_rings];
	is.ring[is.num_rings] = 0;
	err = flow_write(p, key, &is, BPF_EXIST);
	if (!err)
		port_count(p, key, &was, &is);
	return err;
}

static int flow_add(struct ring_port *p, unsigned ring, const struct vma_flow_key *key,
		    const struct vma_flow_info *info)
{
	struct vma_flow_info is = {.pid = info->pid,
				   .fd = info->fd,
				   .flags = info->flags,
				   .num_rings = 1,
				   .ring = {(uint8_t)ring}};
	int err;

	/*
	 * A further listener on the port: the kernel may have connections of its address. Before
	 * the flow is there.
	 */
	if (!key_is_exact(key))
		unquiet(p, port_index(key));
	err = flow_write(p, key, &is, BPF_NOEXIST);
	if (err == -EEXIST)
		return flow_share(p, ring, key, info->flags);
	if (err)
		return err;
	if (key->proto == IPPROTO_TCP)
		atomic_store_explicit(&p->has_tcp, true, memory_order_relaxed);
	port_count(p, key, NULL, &is);
	return 0;
}

int port_flow_add(struct ring_port *p, unsigned ring, const struct vma_flow_key *key,
		  const struct vma_flow_info *info)
{
	change_begin(p, key);
	return change_end(p, flow_add(p, ring, key, info));
}

int port_flow_del(struct ring_port *p, unsigned ring, const struct vma_flow_key *key)
{
	change_begin(p, key);
	return change_end(p, flow_del(p, ring, key));
}

/* Calls fn for each flow in the table, which may delete it. The caller alone changes the table. */
static void flows_each(struct ring_port *p,
		       void (*fn)(struct ring_port *p, const struct vma_flow_key *key,
				  const struct vma_flow_info *info, uint32_t arg),
		       uint32_t arg)
{
	struct vma_flow_key key, next;
	struct vma_flow_info info;
	int err = bpf_map_get_next_key(p->fd[PORT_FLOWS], NULL, &next);

	while (!err) {
		key = next;
		err = bpf_map_get_next_key(p->fd[PORT_FLOWS], &key, &next);
		if (!bpf_map_lookup_elem(p->fd[PORT_FLOWS], &key, &info) &&
		    info.num_rings <= VMA_FLOW_RINGS_MAX)
			fn(p, &key, &info, arg);
	}
}

static void drop_if(struct ring_port *p, const struct vma_flow_key *key,
		    const struct vma_flow_info *info, uint32_t ring)
{
	if (ring_index(info, ring) >= 0)
		(void)port_flow_del(p, ring, key);
}

void port_flows_drop(struct ring_port *p, unsigned ring)
{
	flows_each(p, drop_if, ring);
}

static void count_if(struct ring_port *p, const struct vma_flow_key *key,
		     const struct vma_flow_info *info, uint32_t index)
{
	if (port_index(key) == index)
		count(&p->flows[index], key, info, 1);
}

void port_flows_recount(struct ring_port *p)
{
	uint32_t index;

	if (!p->flow_busy || !*p->flow_busy || *p->flow_busy > VMA_PORT_INDEX_MAX)
		return;
	index = *p->flow_busy - 1;
	p->flows[index] = (struct port_flows){0};
	flows_each(p, count_if, index);
	port_tell(p, index);
	*p->flow_busy = 0;
}
