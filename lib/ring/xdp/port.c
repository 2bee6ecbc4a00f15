/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "ring/port.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/if_link.h>
#include <linux/sockios.h>
#include <net/if_arp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xdp/libxdp.h>

#include "ring/ring.h"
#include "kmod/kmod.h"
#include "net/net.h"
#include "ring/xdp/kernel_types.h"
#include "ring/xdp/mode.h"
#include "ring/xdp/pin.h"
#include "runtime/runtime.h"
#include "steer.skel.h"
#include "vma/steer.h"

/* Newer than linux-libc-dev 6.1. */
#ifndef BPF_F_XDP_DEV_BOUND_ONLY
#define BPF_F_XDP_DEV_BOUND_ONLY (1U << 6)
#endif
#define FLOWS_BYTES (VMA_PORT_INDEX_MAX * sizeof(struct port_flows))

/* One attach or detach at a time, and what other rooms have libbpf do. */
static pthread_mutex_t libxdp_lock = PTHREAD_MUTEX_INITIALIZER;

static void log_foreign(const char *who, const char *fmt, va_list ap)
{
	char line[512];
	int n;

	if (!log_enabled(LOG_DEBUG))
		return;
	n = vsnprintf(line, sizeof(line), fmt, ap);
	if (n >= (int)sizeof(line))
		n = sizeof(line) - 1;
	while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == ' '))
		line[--n] = '\0';
	if (n > 0)
		log_debug("%s: %s", who, line);
}

static int libbpf_log(enum libbpf_print_level level, const char *fmt, va_list ap)
{
	if (level != LIBBPF_DEBUG)
		log_foreign("libbpf", fmt, ap);
	return 0;
}

static int libxdp_log(enum libxdp_print_level level, const char *fmt, va_list ap)
{
	if (level != LIBXDP_DEBUG)
		log_foreign("libxdp", fmt, ap);
	return 0;
}

void ring_fork_prepare(void)
{
	pthread_mutex_lock(&libxdp_lock);
}

void ring_fork_end(void)
{
	pthread_mutex_unlock(&libxdp_lock);
}

static libbpf_print_fn_t app_libbpf_print;
static libxdp_print_fn_t app_libxdp_print;

void ring_bpf_begin(void)
{
	lock_enter(); /* a handler may fork() */
	pthread_mutex_lock(&libxdp_lock);
	app_libbpf_print = libbpf_set_print(libbpf_log);
	app_libxdp_print = libxdp_set_print(libxdp_log);
}

void ring_bpf_end(void)
{
	libbpf_set_print(app_libbpf_print);
	libxdp_set_print(app_libxdp_print);
	pthread_mutex_unlock(&libxdp_lock);
	lock_leave();
}

/* ------------------------------------------------------------------ the interface */

static int ethtool(int fd, struct ifreq *ifr, void *cmd)
{
	ifr->ifr_data = cmd;
	return libc.ioctl(fd, SIOCETHTOOL, ifr);
}

static void probe_driver(struct ring_port *p, int fd, struct ifreq *ifr)
{
	struct ethtool_drvinfo drv = {.cmd = ETHTOOL_GDRVINFO};
	struct ethtool_channels ch = {.cmd = ETHTOOL_GCHANNELS};

	p->is_virtual = true;
	if (ethtool(fd, ifr, &drv) == 0) {
		snprintf(p->driver, sizeof(p->driver), "%s", drv.driver);
		p->is_virtual = !strchr(drv.bus_info, ':');
	}
	if (ethtool(fd, ifr, &ch) == 0) {
		p->num_queues = ch.rx_count + ch.combined_count;
		p->num_tx_queues = ch.tx_count + ch.combined_count;
	}
	/* Frames keep the queue that they had below a bond. */
	if (!p->num_queues)
		p->num_queues = net_rx_queues_shown(p->ifname);
	if (!p->num_queues)
		p->num_queues = 1;
	if (p->num_queues > PORT_MAX_QUEUES) {
		log_warn("ring/xdp: %s has %u receive queues, %u are used: packets of the others "
			 "take the kernel's way, and so do connections that the program begins. "
			 "With no more than these (ethtool -L) all are served",
			 p->ifname, p->num_queues, PORT_MAX_QUEUES);
		p->num_queues = PORT_MAX_QUEUES;
		p->has_more_queues = true;
	}
}

static int probe(struct ring_port *p)
{
	struct ifreq ifr = {.ifr_ifindex = p->ifindex};
	int fd, err = 0;

	fd = OWN_FD(libc.socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
	if (fd < 0)
		return -errno;
	if (libc.ioctl(fd, SIOCGIFNAME, &ifr) || libc.ioctl(fd, SIOCGIFMTU, &ifr)) {
		err = -errno;
		goto out;
	}
	snprintf(p->ifname, sizeof(p->ifname), "%s", ifr.ifr_name);
	p->mtu = (uint32_t)ifr.ifr_mtu;
	if (libc.ioctl(fd, SIOCGIFHWADDR, &ifr)) {
		err = -errno;
		goto out;
	}
	p->loopback = ifr.ifr_hwaddr.sa_family == ARPHRD_LOOPBACK;
	if (!p->loopback && ifr.ifr_hwaddr.sa_family != ARPHRD_ETHER) {
		err = -EOPNOTSUPP;
		goto out;
	}
	memcpy(p->mac, ifr.ifr_hwaddr.sa_data, sizeof(p->mac));
	probe_driver(p, fd, &ifr);
out:
	own_fd_close(fd);
	return err;
}

int port_open(int ifindex, struct ring_port **out)
{
	struct ring_port *p = calloc(1, sizeof(*p));
	int err;

	if (!p)
		return -ENOMEM;
	p->ifindex = ifindex;
	p->link_fd = -1;
	p->row = VMA_ROWS_ALL;
	p->guard = GUARD_NONE;
	for (unsigned i = 0; i < PORT_DESCRIPTORS; i++)
		p->fd[i] = -1;
	p->pid = getpid();
	p->opener = process_mark();
	err = probe(p);
	if (err) {
		free(p);
		return err;
	}
	*out = p;
	return 0;
}

/* ------------------------------------------------------------------ who sits there */

/* Reads what the program's map of that name holds. -ENOENT: it has no such map. */
static int map_read(int prog_fd, const char *name, void *value, uint32_t size)
{
	uint32_t ids[16] = {0}, zero = 0;
	struct bpf_prog_info info = {.nr_map_ids = 16, .map_ids = (uintptr_t)ids};
	uint32_t len = sizeof(info);
	int err;

	err = bpf_obj_get_info_by_fd(prog_fd, &info, &len);
	if (err)
		return err;
	for (uint32_t i = 0; i < info.nr_map_ids && i < 16; i++) {
		struct bpf_map_info map = {0};
		int fd = bpf_map_get_fd_by_id(ids[i]);

		if (fd < 0)
			continue;
		len = sizeof(map);
		err = bpf_obj_get_info_by_fd(fd, &map, &len);
		if (!err && !strcmp(map.name, name) && map.value_size == size) {
			err = bpf_map_lookup_elem(fd, &zero, value);
			own_fd_close(fd);
			return err;
		}
		own_fd_close(fd);
	}
	return -ENOENT;
}

/* Reads the owner that our steering program names. -ENOENT: prog is not one of ours. */
static int steer_owner(int prog_fd, struct vma_port_owner *o)
{
	return map_read(prog_fd, "vma_owner", o, sizeof(*o));
}

/*
 * Our steering program on the interface, by itself or in a dispatcher; NULL: none. *mode: how it is
 * attached.
 */
static struct xdp_program *steer_find(struct xdp_multiprog *mp, struct vma_port_owner *o)
{
	struct xdp_program *prog = NULL;

	if (xdp_multiprog__is_legacy(mp)) {
		prog = xdp_multiprog__main_prog(mp);
		return prog && !steer_owner(xdp_program__fd(prog), o) ? prog : NULL;
	}
	while ((prog = xdp_multiprog__next_prog(prog, mp)))
		if (!steer_owner(xdp_program__fd(prog), o))
			return prog;
	return NULL;
}

static struct xdp_multiprog *multiprog_get(int ifindex)
{
	struct xdp_multiprog *mp = xdp_multiprog__get_from_ifindex(ifindex);

	return !mp || libxdp_get_error(mp) ? NULL : mp;
}

pid_t port_owner_pid(int ifindex)
{
	struct vma_port_owner o = {0};
	struct xdp_multiprog *mp;

	ring_bpf_begin();
	mp = multiprog_get(ifindex);
	if (mp && !steer_find(mp, &o))
		o.pid = 0;
	xdp_multiprog__close(mp);
	ring_bpf_end();
	return (pid_t)o.pid;
}

int port_public_find(int ifindex, struct port_public *out)
{
	struct xdp_multiprog *mp;
	struct xdp_program *prog;
	int err = -ENOENT;

	ring_bpf_begin();
	mp = multiprog_get(ifindex);
	prog = mp ? steer_find(mp, &out->owner) : NULL;
	if (prog)
		err = map_read(xdp_program__fd(prog), "vma_pool", &out->pool, sizeof(out->pool));
	xdp_multiprog__close(mp);
	ring_bpf_end();
	if (err || out->pool.fd == VMA_PORT_POOL_NONE)
		return -ENOENT;
	return out->pool.fd == VMA_PORT_POOL_COMING ? -EAGAIN : 0;
}

static int foreign_program(const struct ring_port *p, struct xdp_multiprog *mp)
{
	struct xdp_program *foreign = xdp_multiprog__main_prog(mp);

	log_warn("ring/xdp: %s: XDP program '%s' (id %u) is attached: sockets stay with "
		 "the kernel",
		 p->ifname, foreign ? xdp_program__name(foreign) : "?",
		 foreign ? xdp_program__id(foreign) : 0);
	return -EEXIST;
}

/*
 * Removes the steering program of a dead process. -EEXIST: a program that leaves no room for ours
 * sits there.
 */
static int make_room(struct ring_port *p)
{
	struct vma_port_owner o = {0};
	struct xdp_multiprog *mp = multiprog_get(p->ifindex);
	struct xdp_program *old;
	int err = 0;

	if (!mp)
		return 0;
	old = steer_find(mp, &o);
	if (old) {
		log_debug(
			"ring/xdp: %s: removing the steering program of process %u, which has gone",
			p->ifname, o.pid);
		err = xdp_program__detach(old, p->ifindex, xdp_multiprog__attach_mode(mp), 0);
		if (err)
			log_error("ring/xdp: %s: cannot detach the steering program of dead "
				  "process %u: %s",
				  p->ifname, o.pid, strerror(-err));
	} else if (xdp_multiprog__is_legacy(mp)) {
		err = foreign_program(p, mp);
	}
	xdp_multiprog__close(mp);
	return err;
}

/* ------------------------------------------------------------------ attach and detach */

static enum xdp_attach_mode attach_mode(const struct ring_port *p)
{
	return p->mode == PORT_GENERIC ? XDP_MODE_SKB : XDP_MODE_NATIVE;
}

static int program_fd(const struct ring_port *p)
{
	return p->prog ? xdp_program__fd(p->prog) : bpf_program__fd(p->skel->progs.steer);
}

static int mode_flags(const struct ring_port *p)
{
	return p->mode == PORT_GENERIC ? XDP_FLAGS_SKB_MODE : XDP_FLAGS_DRV_MODE;
}

/* Ours, or libxdp's dispatcher in front of it. */
static void note_program(struct ring_port *p)
{
	if (bpf_xdp_query_id(p->ifindex, mode_flags(p), &p->prog_id))
		p->prog_id = 0; /* the next message makes us look */
}

static int link_attach(struct ring_port *p)
{
	LIBBPF_OPTS(bpf_link_create_opts, opts, .flags = (uint32_t)mode_flags(p));

	p->link_fd = bpf_link_create(program_fd(p), p->ifindex, BPF_XDP, &opts);
	return p->link_fd < 0 ? p->link_fd : 0;
}

/* Without libxdp. */
static int load_alone(struct ring_port *p)
{
	struct bpf_program *prog = p->skel->progs.steer;
	uint32_t flags = p->mode == PORT_NATIVE && p->frags ? BPF_F_XDP_HAS_FRAGS : 0;

	if (p->tells) {
		bpf_program__set_ifindex(prog, (uint32_t)p->ifindex);
		flags |= BPF_F_XDP_DEV_BOUND_ONLY;
	}
	bpf_program__set_flags(prog, flags);
	return steer_bpf__load(p->skel);
}

/* See program_attach(). */
static int attach_alone(struct ring_port *p)
{
	int err = load_alone(p);

	return err ? err : link_attach(p);
}

static int attach_by_netlink(const struct ring_port *p)
{
	return bpf_xdp_attach(p->ifindex, program_fd(p),
			      (uint32_t)mode_flags(p) | XDP_FLAGS_UPDATE_IF_NOEXIST, NULL);
}

/*
 * What asks the driver is bound to the device, and that no program can be which libxdp's dispatcher
 * calls: it has the interface for itself.
 */
static int attach_bound(struct ring_port *p)
{
	int err = load_alone(p);

	if (err)
		return err;
	p->prog = xdp_program__from_fd(bpf_program__fd(p->skel->progs.steer));
	err = (int)libxdp_get_error(p->prog);
	if (!err)
		return attach_by_netlink(p);
	p->prog = NULL;
	return err;
}

static int attach_by_libxdp(struct ring_port *p)
{
	int err;

	p->prog = xdp_program__from_bpf_obj(p->skel->obj, "xdp");
	err = (int)libxdp_get_error(p->prog);
	if (err) {
		p->prog = NULL;
		return err;
	}
	/*
	 * Why not in generic mode: see bpf/steer.bpf.c. Where the XSKs take no fragments the driver
	 * shall refuse us when its packets have some; a kernel without fragments in XDP refuses the
	 * flag.
	 */
	if (p->mode == PORT_NATIVE && p->frags)
		xdp_program__set_xdp_frags_support(p->prog, true);
	return xdp_program__attach(p->prog, p->ifindex, attach_mode(p), 0);
}

/* How the program reads the kernel's memory. */
enum kernel_reads {
	READS_NONE, /* native mode */
	READS_BY_CAST,
	READS_BY_PROBE, /* the kernel has no casts, or refused the program with them */
};

static int program_prepare(struct ring_port *p, const struct vma_steer_kernel *k,
			   enum kernel_reads reads)
{
	p->skel = steer_bpf__open();
	if (!p->skel)
		return -errno;
	p->skel->rodata->generic_mode = p->mode == PORT_GENERIC;
	p->skel->rodata->take_gso_bursts = p->take_gso_bursts;
	p->skel->rodata->have_cast = reads == READS_BY_CAST;
	p->skel->rodata->kernel = *k;
	p->skel->rodata->tells = p->skel->bss->told = p->tells;
	return p->tells || reads == READS_BY_CAST ? kernel_calls_set(p->skel->progs.steer, k) : 0;
}

/*
 * libxdp, which lets several programs share an interface, asks for programs by their numbers: that
 * takes CAP_SYS_ADMIN, to detach, too, and to find what a dead process has left. Without it the
 * program hangs on a descriptor: it goes with the process, however that ends.
 */
static int program_attach(struct ring_port *p, const struct vma_steer_kernel *k,
			  enum kernel_reads reads)
{
	int err = program_prepare(p, k, reads);

	if (err)
		return err;
	if (!caps_have(CAPS_BIT(CAP_SYS_ADMIN)))
		return attach_alone(p);
	return p->tells ? attach_bound(p) : attach_by_libxdp(p);
}

/* Frees what is loaded. */
static void program_drop(struct ring_port *p)
{
	if (p->link_fd >= 0)
		own_fd_close(p->link_fd);
	p->link_fd = -1;
	xdp_program__close(p->prog);
	steer_bpf__destroy(p->skel);
	p->prog = NULL;
	p->skel = NULL;
}

/* What of p->tells the kernel has no function for is not asked. */
static void tells_known(struct ring_port *p, const struct vma_steer_kernel *k)
{
	if (!k->rx_timestamp_id)
		p->tells &= ~VMA_RX_TELLS_STAMP;
	if (!k->rx_vlan_tag_id)
		p->tells &= ~VMA_RX_TELLS_VLAN;
}

/*
 * What the program will read of the kernel: only generic mode does, and who asks the driver. 0 or
 * negative errno.
 */
static int kernel_ask(struct ring_port *p, struct vma_steer_kernel *k, enum kernel_reads *reads)
{
	int err;

	memset(k, 0, sizeof(*k));
	*reads = READS_NONE;
	if (p->mode != PORT_GENERIC && !p->tells)
		return 0;
	err = kernel_types_get(k);
	if (err)
		log_debug("ring/xdp: %s: the kernel's BTF (CONFIG_DEBUG_INFO_BTF): %s", p->ifname,
			  strerror(-err));
	tells_known(p, k);
	if (p->mode != PORT_GENERIC)
		return 0;
	if (err)
		return err;
	/* The kernel refuses them in a program that is bound to no device. */
	k->rx_timestamp_id = k->rx_vlan_tag_id = 0;
	*reads = k->cast_ctx_id && k->cast_rdonly_id ? READS_BY_CAST : READS_BY_PROBE;
	return 0;
}

static int program_load(struct ring_port *p)
{
	struct vma_steer_kernel k;
	enum kernel_reads reads;
	int err;

	p->tells = mode_rx_metadata(p);
	err = kernel_ask(p, &k, &reads);
	if (err)
		return err;
	err = program_attach(p, &k, reads);
	if (err && p->tells) {
		log_debug("ring/xdp: %s: steering program: %s: tried again without the driver's "
			  "metadata",
			  p->ifname, strerror(-err));
		program_drop(p);
		p->tells = 0;
		err = program_attach(p, &k, reads);
	}
	if (err && reads == READS_BY_CAST) {
		log_debug("ring/xdp: %s: steering program: %s: tried again without casts",
			  p->ifname, strerror(-err));
		program_drop(p);
		err = program_attach(p, &k, READS_BY_PROBE);
	}
	if (err)
		program_drop(p); /* not attached: nothing to detach */
	return err;
}

int port_publish(struct ring_port *p, pid_t pid, uint64_t start_time,
		 const struct vma_port_pool *pool)
{
	struct vma_port_owner o = {
		.pid = (uint32_t)pid,
		.ifindex = (uint32_t)p->ifindex,
		.start_time = start_time,
	};
	uint32_t zero = 0;
	int err = bpf_map_update_elem(p->fd[PORT_POOL], &zero, pool, BPF_ANY);

	return err ? err : bpf_map_update_elem(p->fd[PORT_OWNER], &zero, &o, BPF_ANY);
}

static int memory_map(struct ring_port *p)
{
	struct steer_bpf__bss *bss;
	void *m;

	m = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE, MAP_SHARED,
		 p->fd[PORT_MEMORY], 0);
	if (m == MAP_FAILED)
		return -errno;
	bss = m;
	p->local_mac = (volatile uint64_t *)&bss->local_mac;
	p->tells = bss->told;
	p->stamps = p->tells & VMA_RX_TELLS_STAMP ? (volatile uint32_t *)&bss->stamps : NULL;
	if (p->flows)
		return 0;
	m = mmap(NULL, FLOWS_BYTES, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (m == MAP_FAILED)
		return -errno;
	p->flows = m;
	p->own_flows = true;
	return 0;
}

static void maps_pin(struct ring_port *p)
{
	const struct xdp_pin pins[] = {
		{"owner", p->fd[PORT_OWNER]},	    {"flows", p->fd[PORT_FLOWS]},
		{"ports", p->fd[PORT_PORTS]},	    {"xsks", p->fd[PORT_XSKS]},
		{"counters", p->fd[PORT_COUNTERS]},
	};
	int err = pins_make(p->ifname, pins, sizeof(pins) / sizeof(pins[0]), p->pin_dir,
			    sizeof(p->pin_dir));

	if (err == -ENOENT)
		log_info(
			"ring/xdp: %s: no bpffs could be found or mounted: the maps are not pinned",
			p->ifname);
	else if (err)
		log_info("ring/xdp: %s: the maps are not pinned: %s", p->ifname, strerror(-err));
	else
		log_debug("ring/xdp: %s: maps pinned in %s", p->ifname, p->pin_dir);
}

/*
 * For a process that has given CAP_SYS_ADMIN away, but not CAP_NET_ADMIN. Only our own program
 * goes, not a dispatcher.
 */
static int detach_by_netlink(const struct ring_port *p)
{
	LIBBPF_OPTS(bpf_xdp_attach_opts, opts, .old_prog_fd = program_fd(p));

	return bpf_xdp_detach(p->ifindex, (uint32_t)mode_flags(p), &opts);
}

/* What port_enter() took over. */
static void descriptors_close(struct ring_port *p)
{
	for (unsigned i = 0; i < PORT_DESCRIPTORS; i++)
		if (!p->skel && p->fd[i] >= 0)
			own_fd_close(p->fd[i]);
	for (unsigned i = 0; i < PORT_DESCRIPTORS; i++)
		p->fd[i] = -1;
}

/* Undoes what program_load(), memory_map() and maps_pin() have done so far. */
static void detach(struct ring_port *p)
{
	bool ours = p->opener == process_mark() && !p->others;
	int err;

	if (p->opener == process_mark())
		guard_close(&p->guard);
	else
		guard_forked(&p->guard);
	if (p->prog && ours) {
		err = xdp_program__detach(p->prog, p->ifindex, attach_mode(p), 0);
		if (err && !detach_by_netlink(p))
			err = 0;
		if (err)
			log_debug("ring/xdp: %s: detach: %s", p->ifname, strerror(-err));
		/*
		 * A process that gave its privileges away may not detach: the program stays until
		 * the next owner comes, as after SIGKILL. No address is like this one, so it passes
		 * what it sees at its first comparison.
		 */
		if (err && p->local_mac)
			__atomic_store_n(p->local_mac, 1ull << 48, __ATOMIC_RELAXED);
	}
	if (p->pin_dir[0] && ours)
		pins_remove(p->pin_dir);
	p->pin_dir[0] = '\0';
	if (p->local_mac)
		munmap((void *)((uintptr_t)p->local_mac & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1)),
		       (size_t)sysconf(_SC_PAGESIZE));
	port_flows_unmap(p);
	if (p->own_flows) {
		munmap(p->flows, FLOWS_BYTES);
		p->flows = NULL;
		p->own_flows = false;
	}
	descriptors_close(p);
	program_drop(p);
	p->local_mac = NULL;
	p->stamps = NULL;
}

int port_add_ring(struct ring_port *p, unsigned ring, const int *xsk_fds, unsigned n)
{
	int err = 0;

	if (ring >= VMA_XSK_RINGS || n > VMA_XSK_QUEUES)
		return -ENOSPC;
	for (uint32_t i = 0; !err && i < n; i++) {
		uint32_t slot = ring * VMA_XSK_QUEUES + i;

		err = bpf_map_update_elem(p->fd[PORT_XSKS], &slot, &xsk_fds[i], BPF_ANY);
	}
	return err;
}

void port_remove_ring(struct ring_port *p, unsigned ring)
{
	for (uint32_t i = 0; ring < VMA_XSK_RINGS && i < p->num_queues; i++) {
		uint32_t slot = ring * VMA_XSK_QUEUES + i;

		(void)bpf_map_delete_elem(p->fd[PORT_XSKS], &slot);
	}
}

static void descriptors_of_skeleton(struct ring_port *p)
{
	p->fd[PORT_FLOWS] = bpf_map__fd(p->skel->maps.flows);
	p->fd[PORT_PORTS] = bpf_map__fd(p->skel->maps.ports);
	p->fd[PORT_XSKS] = bpf_map__fd(p->skel->maps.xsks);
	p->fd[PORT_COUNTERS] = bpf_map__fd(p->skel->maps.counters);
	p->fd[PORT_OWNER] = bpf_map__fd(p->skel->maps.vma_owner);
	p->fd[PORT_POOL] = bpf_map__fd(p->skel->maps.vma_pool);
	p->fd[PORT_MEMORY] = bpf_map__fd(p->skel->maps.bss);
	p->fd[PORT_PROGRAM] = program_fd(p);
}

static int attach(struct ring_port *p, const int *xsk_fds, unsigned n)
{
	const struct vma_port_pool none = {.fd = p->pool_follows ? VMA_PORT_POOL_COMING
								 : VMA_PORT_POOL_NONE};
	char missing[128];
	bool last;
	int err;

	err = make_room(p);
	if (err)
		return err;
	err = program_load(p);
	if (err) {
		caps_missing(CAPS_BIT(CAP_NET_ADMIN) | CAPS_BIT(CAP_BPF) | CAPS_BIT(CAP_PERFMON),
			     missing, sizeof(missing));
		/* Generic mode may follow; without a right none is left, whatever the error was. */
		last = p->mode != PORT_NATIVE || p->bind != BIND_ANY || *missing;
		log_at(last ? LOG_WARN : LOG_DEBUG,
		       "ring/xdp: %s: cannot attach the steering program%s: %s%s%s", p->ifname,
		       p->bind == BIND_ANY ? "" : " as VMA_XDP_MODE says", strerror(-err), missing,
		       last ? ": sockets stay with the kernel" : "");
		if (err == -EBUSY)
			return -EEXIST;
		return *missing ? -EACCES : err;
	}
	descriptors_of_skeleton(p);
	err = port_publish(p, p->pid, process_start_time((unsigned)p->pid), &none);
	if (!err)
		err = memory_map(p);
	if (!err)
		err = port_add_ring(p, 0, xsk_fds, n);
	if (err) {
		log_warn("ring/xdp: %s: cannot set up the steering program: %s", p->ifname,
			 strerror(-err));
		return err;
	}
	port_set_mac(p, p->mac);
	note_program(p);
	maps_pin(p);
	return 0;
}

/* Where the pins are, as far as they can be seen from here. */
static void pins_find(struct ring_port *p)
{
	if (pins_dir(p->ifname, p->fd[PORT_OWNER], p->pin_dir, sizeof(p->pin_dir)))
		p->pin_dir[0] = '\0';
}

static int enter(struct ring_port *p, const int fd[PORT_DESCRIPTORS])
{
	int err;

	p->prog = xdp_program__from_fd(fd[PORT_PROGRAM]);
	err = (int)libxdp_get_error(p->prog);
	if (err) {
		p->prog = NULL;
		return err;
	}
	memcpy(p->fd, fd, sizeof(p->fd));
	err = memory_map(p);
	if (err) {
		for (unsigned i = 0; i < PORT_DESCRIPTORS; i++)
			p->fd[i] = -1;
		return err;
	}
	note_program(p);
	pins_find(p);
	return 0;
}

int port_enter(struct ring_port *p, const int fd[PORT_DESCRIPTORS])
{
	int err;

	p->others = true;
	ring_bpf_begin();
	err = enter(p, fd);
	ring_bpf_end();
	return err;
}

/*
 * True: the packets come by our program, perhaps through a dispatcher. False: they do not; *err: a
 * foreign one sits there.
 */
static bool program_stands(const struct ring_port *p, int *err)
{
	struct xdp_multiprog *mp = multiprog_get(p->ifindex);
	struct vma_port_owner o = {0}, ours = {0};
	uint32_t zero = 0;
	bool stands = mp && steer_find(mp, &o) &&
		      !bpf_map_lookup_elem(p->fd[PORT_OWNER], &zero, &ours) && o.pid == ours.pid;

	*err = !stands && mp && xdp_multiprog__is_legacy(mp) ? foreign_program(p, mp) : 0;
	xdp_multiprog__close(mp);
	return stands;
}

/* As port_program_changed(). libxdp is entered. */
static int program_restore(struct ring_port *p)
{
	int err = 0;

	if (p->prog && (program_stands(p, &err) || err))
		return err;
	if (p->prog) {
		err = p->tells ? attach_by_netlink(p)
			       : xdp_program__attach(p->prog, p->ifindex, attach_mode(p), 0);
	} else {
		/* Nobody takes it off by netlink: somebody has detached the link. */
		own_fd_close(p->link_fd);
		err = link_attach(p);
	}
	if (err)
		log_warn("ring/xdp: %s: the steering program was taken off and cannot be put back: "
			 "%s",
			 p->ifname, strerror(-err));
	else
		log_warn(
			"ring/xdp: %s: the steering program was taken off the interface: it is put "
			"back",
			p->ifname);
	return err;
}

/* Ours is there. Nobody tells that a link has come: what was heard may be of before. */
static bool is_there(const struct ring_port *p)
{
	uint32_t now = 0;
	bool is;

	ring_bpf_begin();
	is = !bpf_xdp_query_id(p->ifindex, mode_flags(p), &now) && now && now == p->prog_id;
	ring_bpf_end();
	return is;
}

int port_program_changed(struct ring_port *p, uint32_t id)
{
	int err;

	if (id == p->prog_id || is_there(p))
		return 0;
	/* While it was off the kernel may have accepted clients of any listener. */
	port_unquiet(p);
	ring_bpf_begin();
	err = program_restore(p);
	if (!err)
		note_program(p);
	ring_bpf_end();
	return err;
}

void port_guard(struct ring_port *p, void (*fn)(const struct vma_stray *stray))
{
	const struct xdp_guard_maps maps = {
		.flows = p->fd[PORT_FLOWS],
		.ports = p->fd[PORT_PORTS],
		.xsks = p->fd[PORT_XSKS],
		.counters = p->fd[PORT_COUNTERS],
		.row = p->row,
	};

	if (p->guard.tried) {
		guard_strays(&p->guard, fn);
		return;
	}
	/* The module hands in what reaches the kernel. */
	if (!atomic_load_explicit(&p->has_tcp, memory_order_relaxed) || kmod_fallback_fd() >= 0)
		return;
	ring_bpf_begin();
	guard_open(&p->guard, p->ifindex, p->ifname, &maps);
	ring_bpf_end();
}

int port_attach(struct ring_port *p, const int *xsk_fds, unsigned n)
{
	int err;

	ring_bpf_begin();
	err = attach(p, xsk_fds, n);
	if (err)
		detach(p);
	ring_bpf_end();
	return err;
}

void port_detach(struct ring_port *p)
{
	ring_bpf_begin();
	detach(p);
	ring_bpf_end();
}

/* One question about an interface that is open. */
static bool ethtool_once(const struct ring_port *p, void *cmd)
{
	struct ifreq ifr = {0};
	int fd = OWN_FD(libc.socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
	bool ok;

	if (fd < 0)
		return false;
	memcpy(ifr.ifr_name, p->ifname, sizeof(ifr.ifr_name));
	ok = ethtool(fd, &ifr, cmd) == 0;
	own_fd_close(fd);
	return ok;
}

bool port_has_carrier(const struct ring_port *p)
{
	struct ethtool_value link = {.cmd = ETHTOOL_GLINK};

	return !ethtool_once(p, &link) || link.data;
}

unsigned port_new_queues(const struct ring_port *p)
{
	struct ethtool_channels ch = {.cmd = ETHTOOL_GCHANNELS};
	unsigned now = 0;

	if (p->num_queues < PORT_MAX_QUEUES && ethtool_once(p, &ch))
		now = ch.rx_count + ch.combined_count;
	return now > p->num_queues ? now - p->num_queues : 0;
}

void port_close(struct ring_port *p)
{
	if (!p)
		return;
	if (p->opener == process_mark())
		port_detach(p);
	else
		detach(p); /* a child: no other thread is there */
	free(p);
}

void port_set_mac(struct ring_port *p, const uint8_t mac[6])
{
	uint64_t v = 0;

	memcpy(&v, mac, 6); /* in packet order, as the program compares it: little-endian hosts */
	__atomic_store_n(p->local_mac, v, __ATOMIC_RELAXED);
}
