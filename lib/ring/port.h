/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The port: what this process owns of an interface, perhaps with others of its user. Under AF_XDP
 * these are the interface's own queues and the steering program in front of them. Who binds the
 * queues owns the port: the kernel gives a queue to the sockets of one UMEM only, and takes it back
 * when their last process dies, however it dies. So the ring binds first, and a steering program
 * that port_attach() then still finds belongs to nobody alive.
 */
#ifndef RING_PORT_H
#define RING_PORT_H

#include <limits.h>
#include <linux/ethtool.h>
#include <net/if.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "ring/xdp/guard.h"
#include "vma/flow.h"

#define PORT_MAX_QUEUES 64

enum port_mode {
	/* XDP on the skb: virtual devices, where native mode costs the kernel's own flows a factor
	   of six */
	PORT_GENERIC,
	PORT_NATIVE, /* XDP in the driver */
};

/* How the XSKs may be bound. */
enum port_bind { BIND_ANY, BIND_COPY, BIND_ZEROCOPY };

/*
 * The flows with one local port. The xors are over the IPv4 ones: with one left, they are that
 * flow.
 */
struct port_flows {
	uint32_t num_3tuple, num_exact, num_v4;
	uint32_t local, remote; /* network order */
	uint16_t remote_port;
	uint16_t ring;
	uint32_t num_spread; /* flows of several rings */
	bool quiet; /* TCP: the kernel has no connection on the port (port_quiet()) */
};

/*
 * What another process needs to have the port, too: descriptors of the steering program and of its
 * maps.
 */
enum port_descriptor {
	PORT_FLOWS,
	PORT_PORTS,
	PORT_XSKS,
	PORT_COUNTERS,
	PORT_OWNER,
	PORT_POOL,
	PORT_MEMORY,
	PORT_PROGRAM,
	PORT_DESCRIPTORS,
};

/* What is mapped counts as the process's memory: 64 KiB at a time. */
#define PORT_WINDOW 4096u

struct ring_port {
	/* Filled by port_open(). */
	int ifindex;
	char ifname[IF_NAMESIZE];
	char driver[ETHTOOL_BUSINFO_LEN];
	bool loopback;
	bool is_virtual; /* its driver has no bus */
	uint32_t mtu;
	uint8_t mac[6];
	unsigned num_queues; /* receive queues in use, at least 1, at most PORT_MAX_QUEUES */
	bool has_more_queues; /* it has more receive queues than that */
	unsigned num_tx_queues; /* 0: the driver does not tell */
	pid_t pid; /* who opened it */
	uint64_t opener; /* its process_mark(): a forked child detaches nothing */

	/* Set by the caller before port_attach(). */
	enum port_mode mode;
	enum port_bind bind;
	const char *why; /* that mode */
	bool frags; /* the XSKs take frames of several chunks */
	bool pool_follows; /* others may join soon: port_publish() */
	bool take_gso_bursts; /* GSO bursts of datagrams are wanted (generic mode) */
	/*
	 * [VMA_PORT_INDEX_MAX]: what is in the table for each local port. NULL: memory of the
	 * port's own.
	 */
	struct port_flows *flows;
	/*
	 * One more than the place in flows that is being changed, 0: none. In memory that outlives
	 * this process where flows are; else NULL.
	 */
	uint32_t *flow_busy;

	/* Filled by port_attach(). */
	struct steer_bpf *skel;
	/* How it is attached: by libxdp, or (NULL) alone by link_fd, which takes it off at its end
	 */
	struct xdp_program *prog;
	int link_fd;
	uint32_t prog_id; /* what was on the interface when we last looked: ours, or its dispatcher
			   */
	/* Of VMA_RX_TELLS_*: what the program asks the driver for. It is bound to the device then,
	   and no other program is beside it. */
	uint32_t tells;
	volatile uint64_t *local_mac; /* in the program's memory */
	volatile uint32_t *stamps; /* there, too; NULL: the driver tells none */
	/* The map of that name, PORT_WINDOW entries each; NULL: not needed yet. */
	struct vma_port *ports[VMA_PORT_INDEX_MAX / PORT_WINDOW];
	int fd[PORT_DESCRIPTORS]; /* of a port that was joined our own, else the skeleton's */
	bool own_flows;
	/* Other processes have the port, too: nothing is taken off the interface. */
	bool others;
	char pin_dir[PATH_MAX]; /* "": not pinned */

	uint32_t row; /* the only one of the XSKs' table that is ours, or VMA_ROWS_ALL */
	_Atomic bool has_tcp; /* a TCP flow was added once; never cleared */
	struct xdp_guard guard; /* the worker's, and port_close()'s after it */
};

/*
 * Looks the interface up. 0, -EOPNOTSUPP (no Ethernet header), -ENODEV or another negative errno.
 */
int port_open(int ifindex, struct ring_port **out);
/*
 * Puts the steering program in front of the n bound XSKs (fds in queue order), which are ring 0.
 * The caller holds every queue. 0, -EEXIST (a foreign program), -EACCES (a capability is missing)
 * or another negative errno, logged; the port can then be closed or attached again.
 */
int port_attach(struct ring_port *p, const int *xsk_fds, unsigned n);
/* The reverse; the port can then be closed or attached again. */
void port_detach(struct ring_port *p);
/* Has the interface a carrier? True, too, where that cannot be told. */
bool port_has_carrier(const struct ring_port *p);
/*
 * Receive queues of the interface beyond num_queues: some drivers (virtio_net, where the host has
 * more than are in use) make one for each processor when a program comes in native mode, and the
 * device spreads packets over them. 0: none, or they cannot be told.
 */
unsigned port_new_queues(const struct ring_port *p);
/*
 * The interface is said to have another XDP program (its id, 0: none): looks whether the packets
 * still come by ours, and puts it back if they do not. 0; -EEXIST: a foreign one sits there;
 * another negative errno, logged. One thread.
 */
int port_program_changed(struct ring_port *p, uint32_t id);
/*
 * Now and then: once there is a TCP flow, what comes past the steering program is kept from the
 * kernel; fn gets the flows of which that goes on. The worker; no lock of a stack's is held.
 */
void port_guard(struct ring_port *p, void (*fn)(const struct vma_stray *stray));
/*
 * In place of port_attach(), where another process has the program attached: takes over fd[],
 * descriptors by enum port_descriptor. 0 or negative errno, then they are the caller's.
 */
int port_enter(struct ring_port *p, const int fd[PORT_DESCRIPTORS]);
/*
 * Where those of the user find a pool to join, in the process with this pid and start time; -1:
 * nowhere.
 */
int port_publish(struct ring_port *p, pid_t pid, uint64_t start_time,
		 const struct vma_port_pool *pool);
/* The process that has published one. -ENOENT: there is none; -EAGAIN: it will do so soon. */
struct port_public {
	struct vma_port_owner owner;
	struct vma_port_pool pool;
};
int port_public_find(int ifindex, struct port_public *out);
/* The ring's XSKs get no more packets. */
void port_remove_ring(struct ring_port *p, unsigned ring);
/* Tells the program of a further ring's n XSKs (fds in queue order). 0 or negative errno. */
int port_add_ring(struct ring_port *p, unsigned ring, const int *xsk_fds, unsigned n);
/* Detaches and unpins (not in a forked child), frees. p may be NULL. */
void port_close(struct ring_port *p);

/*
 * The flow's packets go to the ring; where other rings have it already, to each of them those of
 * some of the remote sides. What has only one (TCP) and a group's flow cannot be shared so. 0,
 * -EALREADY: the ring has it; -EEXIST: for those, another one; -EUSERS: too many rings
 * have it; -ENOSPC: the table is full.
 */
int port_flow_add(struct ring_port *p, unsigned ring, const struct vma_flow_key *key,
		  const struct vma_flow_info *info);
/* All flows of a ring that has gone. */
void port_flows_drop(struct ring_port *p, unsigned ring);
/* Makes right what a process that was killed has left half changed (flow_busy). */
void port_flows_recount(struct ring_port *p);
/* Gives back what the table needs of this process. */
void port_flows_unmap(struct ring_port *p);
/* 0 or -ENOENT. */
int port_flow_del(struct ring_port *p, unsigned ring, const struct vma_flow_key *key);
/*
 * Says whether the kernel has TCP connections on the local port besides those that the 3-tuple
 * flows bring; until then: yes.
 */
void port_quiet(struct ring_port *p, uint16_t local_port, bool quiet);
/* The kernel may have got connections on any port: none is quiet until it is said again. */
void port_unquiet(struct ring_port *p);
/* Frames to another unicast MAC pass to the kernel. Any time, any thread. */
void port_set_mac(struct ring_port *p, const uint8_t mac[6]);

#endif
