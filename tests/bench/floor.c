/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The floor: the least that AF_XDP costs on this machine and interface. One XSK on queue 0 in
 * generic (SKB) mode with the UMEM and ring sizes of the library, a program of five instructions
 * that redirects everything, no library code.
 *
 *   floor IFNAME server   answers what "client" sends, until SIGTERM or SIGINT
 *   floor IFNAME client   ping-pong, spinning; prints half round trips
 *   floor IFNAME recv     counts what "send" sends, until SIGTERM, SIGINT or a silence (-s)
 *   floor IFNAME send     sends as fast as it can for -s seconds
 *       -c CPU   run on this processor
 *       -n N     client: measured round trips (100000), after a tenth of that as warm-up
 *       -s SEC   send: duration (3); recv: silence that ends it (1), after the first frame
 *       -l LEN   payload bytes (64); a frame has 42 more, as UDP over IPv4 has
 *       -b N     send: frames for each system call (32)
 *       -f       a program that takes fragments (xdp.frags): slower in generic mode, where
 *                the kernel copies every frame to pages
 *
 * Each prints one JSON line:
 *   {"mode": "client", "unit": "us", "count": N, "lost": N, "median": X,
 *    "percentiles": {"0": X, "50": X, ...}}
 *   {"mode": "send"|"recv", "packets": N, "seconds": X, "pps": X}
 *   {"mode": "server", "packets": N}
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/if_link.h>
#include <linux/if_xdp.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#ifndef XDP_USE_SG
#define XDP_USE_SG (1 << 4)
#endif
#ifndef BPF_F_XDP_HAS_FRAGS
#define BPF_F_XDP_HAS_FRAGS (1U << 5)
#endif

#define CHUNK 4096u
#define RX_CHUNKS 2048u
#define TX_CHUNKS 1024u
#define RING 2048u
#define HEADERS 42u
#define ETHERTYPE_EXPERIMENTAL 0xb588 /* 0x88b5 in packet order */
#define RECLAIM_EVERY 32

struct side {
	uint32_t *producer, *consumer;
	void *entries;
	uint32_t at;
};

static struct {
	const char *ifname, *mode;
	int cpu;
	long count;
	double seconds;
	uint32_t payload, batch;
	bool frags;
} opt = {.cpu = -1, .count = 100000, .payload = 64, .batch = 32};

static int ifindex, prog_fd, xsk_fd;
static uint8_t *umem;
static struct side rx, tx, fill, comp;
static uint32_t tx_free[TX_CHUNKS], tx_num, tx_since;
static volatile sig_atomic_t stop;

static void on_signal(int sig)
{
	(void)sig;
	stop = 1;
}

static void die(const char *what)
{
	fprintf(stderr, "floor: %s: %s: %s\n", opt.ifname, what, strerror(errno));
	if (ifindex)
		bpf_xdp_detach(ifindex, XDP_FLAGS_SKB_MODE, NULL);
	exit(1);
}

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* return bpf_redirect_map(&xsks, ctx->rx_queue_index, XDP_PASS) */
static int program_load(int map_fd)
{
	const struct bpf_insn insns[] = {
		{.code = BPF_LDX | BPF_MEM | BPF_W, .dst_reg = 2, .src_reg = 1, .off = 16},
		{.code = BPF_LD | BPF_IMM | BPF_DW,
		 .dst_reg = 1,
		 .src_reg = BPF_PSEUDO_MAP_FD,
		 .imm = map_fd},
		{0},
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 3, .imm = XDP_PASS},
		{.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_redirect_map},
		{.code = BPF_JMP | BPF_EXIT},
	};
	LIBBPF_OPTS(bpf_prog_load_opts, o, .prog_flags = opt.frags ? BPF_F_XDP_HAS_FRAGS : 0);

	return bpf_prog_load(BPF_PROG_TYPE_XDP, "floor", "GPL", insns,
			     sizeof(insns) / sizeof(insns[0]), &o);
}

static void side_map(struct side *s, const struct xdp_ring_offset *o, size_t entry, off_t where)
{
	uint8_t *m = mmap(NULL, o->desc + RING * entry, PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_POPULATE, xsk_fd, where);

	if (m == MAP_FAILED)
		die("mmap ring");
	s->producer = (uint32_t *)(m + o->producer);
	s->consumer = (uint32_t *)(m + o->consumer);
	s->entries = m + o->desc;
}

static void option(int name, const void *value, socklen_t len)
{
	if (setsockopt(xsk_fd, SOL_XDP, name, value, len))
		die("setsockopt");
}

static void start(void)
{
	struct xdp_umem_reg reg = {.len = (uint64_t)(RX_CHUNKS + TX_CHUNKS) * CHUNK,
				   .chunk_size = CHUNK};
	struct sockaddr_xdp a = {.sxdp_family = AF_XDP,
				 .sxdp_flags = XDP_COPY | XDP_USE_NEED_WAKEUP | XDP_USE_SG};
	uint32_t n = RING, zero = 0;
	struct xdp_mmap_offsets o;
	socklen_t len = sizeof(o);
	int map_fd, size = 8 << 20;

	ifindex = (int)if_nametoindex(opt.ifname);
	if (!ifindex)
		die("if_nametoindex");
	xsk_fd = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
	umem = mmap(NULL, reg.len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (xsk_fd < 0 || umem == MAP_FAILED)
		die("socket");
	reg.addr = (uintptr_t)umem;
	setsockopt(xsk_fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size));
	option(XDP_UMEM_REG, &reg, sizeof(reg));
	option(XDP_UMEM_FILL_RING, &n, sizeof(n));
	option(XDP_UMEM_COMPLETION_RING, &n, sizeof(n));
	option(XDP_RX_RING, &n, sizeof(n));
	option(XDP_TX_RING, &n, sizeof(n));
	if (getsockopt(xsk_fd, SOL_XDP, XDP_MMAP_OFFSETS, &o, &len))
		die("XDP_MMAP_OFFSETS");
	side_map(&fill, &o.fr, sizeof(uint64_t), (off_t)XDP_UMEM_PGOFF_FILL_RING);
	side_map(&comp, &o.cr, sizeof(uint64_t), (off_t)XDP_UMEM_PGOFF_COMPLETION_RING);
	side_map(&rx, &o.rx, sizeof(struct xdp_desc), XDP_PGOFF_RX_RING);
	side_map(&tx, &o.tx, sizeof(struct xdp_desc), (off_t)XDP_PGOFF_TX_RING);
	a.sxdp_ifindex = (uint32_t)ifindex;
	for (int left = 200; bind(xsk_fd, (struct sockaddr *)&a, sizeof(a)); left--) {
		if (errno == EINVAL && a.sxdp_flags & XDP_USE_SG)
			a.sxdp_flags &= (uint16_t)~XDP_USE_SG;
		else if (errno != EBUSY || left == 0)
			die("bind");
		usleep(500);
	}
	map_fd = bpf_map_create(BPF_MAP_TYPE_XSKMAP, "floor_xsks", 4, 4, 1, NULL);
	if (map_fd < 0 || bpf_map_update_elem(map_fd, &zero, &xsk_fd, BPF_ANY))
		die("XSKMAP");
	prog_fd = program_load(map_fd);
	if (prog_fd < 0)
		die("BPF_PROG_LOAD");
	if (bpf_xdp_attach(ifindex, prog_fd, XDP_FLAGS_SKB_MODE | XDP_FLAGS_UPDATE_IF_NOEXIST,
			   NULL)) {
		ifindex = 0; /* somebody else's program stays */
		die("attach");
	}
	for (uint32_t i = 0; i < RX_CHUNKS; i++)
		((uint64_t *)fill.entries)[fill.at++] = (uint64_t)i * CHUNK;
	__atomic_store_n(fill.producer, fill.at, __ATOMIC_RELEASE);
	for (uint32_t i = 0; i < TX_CHUNKS; i++)
		tx_free[tx_num++] = RX_CHUNKS + i;
}

/* The next received frame, or NULL; rx_done() gives it back. */
static inline uint8_t *rx_next(uint32_t *len, uint64_t *addr)
{
	const struct xdp_desc *d;

	if (__atomic_load_n(rx.producer, __ATOMIC_ACQUIRE) == rx.at)
		return NULL;
	d = &((struct xdp_desc *)rx.entries)[rx.at & (RING - 1)];
	*len = d->len;
	*addr = d->addr;
	return umem + d->addr;
}

static inline void rx_done(uint64_t addr)
{
	__atomic_store_n(rx.consumer, ++rx.at, __ATOMIC_RELEASE);
	((uint64_t *)fill.entries)[fill.at & (RING - 1)] = addr & ~(uint64_t)(CHUNK - 1);
	__atomic_store_n(fill.producer, ++fill.at, __ATOMIC_RELEASE);
}

static void tx_reclaim(void)
{
	uint32_t end = __atomic_load_n(comp.producer, __ATOMIC_ACQUIRE);

	for (; comp.at != end; comp.at++)
		tx_free[tx_num++] =
			(uint32_t)(((uint64_t *)comp.entries)[comp.at & (RING - 1)] / CHUNK);
	__atomic_store_n(comp.consumer, comp.at, __ATOMIC_RELEASE);
	tx_since = 0;
}

/* A free transmit chunk's memory, or NULL. */
static inline uint8_t *tx_next(uint32_t *chunk)
{
	if (++tx_since > RECLAIM_EVERY || !tx_num)
		tx_reclaim();
	if (!tx_num)
		return NULL;
	*chunk = tx_free[--tx_num];
	return umem + (size_t)*chunk * CHUNK;
}

static inline void tx_put(uint32_t chunk, uint32_t len)
{
	((struct xdp_desc *)tx.entries)[tx.at & (RING - 1)] =
		(struct xdp_desc){(uint64_t)chunk * CHUNK, len, 0};
	__atomic_store_n(tx.producer, ++tx.at, __ATOMIC_RELEASE);
}

static inline void kick(void)
{
	while (sendto(xsk_fd, NULL, 0, MSG_DONTWAIT, NULL, 0) < 0 &&
	       (errno == EAGAIN || errno == EBUSY || errno == ENOBUFS) &&
	       __atomic_load_n(tx.consumer, __ATOMIC_ACQUIRE) != tx.at && !stop)
		;
}

static void frame_make(uint8_t *f, uint32_t len)
{
	memset(f, 'x', len);
	memset(f, 0xff, 6);
	memset(f + 6, 2, 6);
	*(uint16_t *)(f + 12) = ETHERTYPE_EXPERIMENTAL;
}

static inline bool is_ours(const uint8_t *f)
{
	return *(const uint16_t *)(f + 12) == ETHERTYPE_EXPERIMENTAL;
}

/*
 * Waits, spinning, for a frame of ours; copies it to `to` when that is not NULL. False: stopped or
 * nothing for a second.
 */
static bool wait_frame(uint8_t *to, uint32_t *len)
{
	double end = 0;

	for (unsigned spins = 0; !stop; spins++) {
		uint64_t addr;
		uint8_t *f = rx_next(len, &addr);

		if (f) {
			bool ours = is_ours(f);

			if (ours && to)
				memcpy(to, f, *len);
			rx_done(addr);
			if (ours)
				return true;
		} else if (!to && (spins & 0xffff) == 0xffff) { /* only a client gives up */
			if (!end)
				end = now_us() + 1e6;
			else if (now_us() > end)
				return false;
		}
	}
	return false;
}

static void run_server(void)
{
	uint64_t n = 0;
	uint32_t chunk, len;

	while (!stop) {
		uint8_t *f = tx_next(&chunk);

		if (!f || !wait_frame(f, &len))
			continue;
		tx_put(chunk, len);
		kick();
		n++;
	}
	printf("{\"mode\": \"server\", \"packets\": %lu}\n", n);
}

static int compare(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return (x > y) - (x < y);
}

static void run_client(void)
{
	static const double percentiles[] = {0,	 1,  5,	   10,	 25,	50,    75,     90,
					     95, 99, 99.5, 99.9, 99.95, 99.99, 99.999, 100};
	long warm = opt.count / 10, got = 0, lost = 0;
	float *half = calloc((size_t)opt.count, sizeof(*half));
	uint32_t chunk, len;

	if (!half)
		die("calloc");
	for (long i = -warm; got < opt.count && !stop; i++) {
		uint8_t *f = tx_next(&chunk);
		double t0;

		if (!f)
			continue;
		t0 = now_us();
		frame_make(f, HEADERS + opt.payload);
		tx_put(chunk, HEADERS + opt.payload);
		kick();
		if (!wait_frame(NULL, &len))
			lost++;
		else if (i >= 0)
			half[got++] = (float)((now_us() - t0) / 2);
		if (lost > 10)
			break;
	}
	qsort(half, (size_t)got, sizeof(*half), compare);
	printf("{\"mode\": \"client\", \"unit\": \"us\", \"count\": %ld, \"lost\": %ld, "
	       "\"median\": %.3f, \"percentiles\": {",
	       got, lost, got ? (double)half[got / 2] : 0);
	for (size_t i = 0; got && i < sizeof(percentiles) / sizeof(percentiles[0]); i++)
		printf("%s\"%g\": %.3f", i ? ", " : "", percentiles[i],
		       (double)half[(long)((double)(got - 1) * percentiles[i] / 100)]);
	printf("}}\n");
	free(half);
}

static void print_rate(uint64_t packets, double us)
{
	printf("{\"mode\": \"%s\", \"packets\": %lu, \"seconds\": %.3f, \"pps\": %.0f}\n", opt.mode,
	       packets, us / 1e6, us > 0 ? (double)packets / us * 1e6 : 0);
}

static void run_send(void)
{
	double t0 = now_us(), end = t0 + (opt.seconds > 0 ? opt.seconds : 3) * 1e6;
	uint64_t n = 0;
	uint32_t chunk;

	while (!stop && now_us() < end) {
		for (uint32_t i = 0; i < opt.batch; i++) {
			uint8_t *f = tx_next(&chunk);

			if (!f)
				break;
			frame_make(f, HEADERS + opt.payload);
			tx_put(chunk, HEADERS + opt.payload);
			n++;
		}
		kick();
	}
	print_rate(n, now_us() - t0);
}

static void run_recv(void)
{
	double silence = (opt.seconds > 0 ? opt.seconds : 1) * 1e6, first = 0, last = 0;
	uint64_t n = 0;

	for (unsigned spins = 0; !stop; spins++) {
		uint32_t end = __atomic_load_n(rx.producer, __ATOMIC_ACQUIRE);

		if (end != rx.at) {
			uint64_t before = n;

			for (; rx.at != end; rx.at++) {
				uint64_t addr =
					((struct xdp_desc *)rx.entries)[rx.at & (RING - 1)].addr;

				n += is_ours(umem + addr);
				((uint64_t *)fill.entries)[fill.at++ & (RING - 1)] =
					addr & ~(uint64_t)(CHUNK - 1);
			}
			__atomic_store_n(rx.consumer, rx.at, __ATOMIC_RELEASE);
			__atomic_store_n(fill.producer, fill.at, __ATOMIC_RELEASE);
			if (n != before) {
				last = now_us();
				first = first ? first : last;
			}
		} else if ((spins & 0xfff) == 0 && first && now_us() - last > silence) {
			break;
		}
	}
	print_rate(n, last - first);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} modes[] = {{"server", run_server},
		     {"client", run_client},
		     {"send", run_send},
		     {"recv", run_recv}};
	struct sigaction sa = {.sa_handler = on_signal};
	size_t m = 0;
	int c;

	if (argc > 2) {
		opt.ifname = argv[1];
		opt.mode = argv[2];
		while (m < 4 && strcmp(modes[m].name, opt.mode))
			m++;
	}
	optind = 3;
	while ((c = argc > 2 ? getopt(argc, argv, "c:n:s:l:b:f") : -1) != -1) {
		switch (c) {
		case 'c':
			opt.cpu = atoi(optarg);
			break;
		case 'n':
			opt.count = atol(optarg);
			break;
		case 's':
			opt.seconds = atof(optarg);
			break;
		case 'l':
			opt.payload = (uint32_t)atoi(optarg);
			break;
		case 'b':
			opt.batch = (uint32_t)atoi(optarg);
			break;
		case 'f':
			opt.frags = true;
			break;
		default:
			m = 4;
		}
	}
	if (argc < 3 || m == 4 || opt.payload + HEADERS > CHUNK || opt.count < 1 || !opt.batch ||
	    opt.batch > TX_CHUNKS) {
		fprintf(stderr, "usage: floor IFNAME server|client|send|recv [-c cpu] [-n count] "
				"[-s sec] [-l len] [-b batch] [-f]\n");
		return 2;
	}
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	if (opt.cpu >= 0) {
		cpu_set_t set;

		CPU_ZERO(&set);
		CPU_SET(opt.cpu, &set);
		if (sched_setaffinity(0, sizeof(set), &set))
			die("sched_setaffinity");
	}
	start();
	modes[m].run();
	bpf_xdp_detach(ifindex, XDP_FLAGS_SKB_MODE, NULL);
	return 0;
}
