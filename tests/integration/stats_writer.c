/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A process with known statistics, for test_vma_stats.py: stats_writer <directory> [max_sockets].
 * It says "ready", then obeys a word a line: add, control, log, file <path>, at_close <path>, close
 * <fd>, open <fd>, stop. Each is answered by a line.
 */
#include "stats/blocks.c"
#include "stats/area.c"
#include "stats/text.c"
#include "stats/sockopt_names.c"

/* Only these pieces of lib/ are here: the rest is stood in for. */
struct libc_table libc, raw;
int log_level_now = LOG_INFO;
int log_details_now;
struct params params;

void own_fd_begin(void)
{
}

void own_fd_end(void)
{
}

int own_fd_adopt(int fd)
{
	return fd;
}

int own_fd_close(int fd)
{
	return close(fd);
}

bool own_fd_room_begin(void)
{
	return false;
}

void own_fd_room_end(void)
{
}

void stats_capture_forked(void)
{
}

void *kmod_stats_map(size_t *bytes)
{
	*bytes = 0;
	return NULL;
}

void log_high_level(void)
{
}

void log_write(enum log_level level, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "log %d: ", level);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

static struct vma_stats_socket *udp, *tcp, *idle;
static struct vma_stats_ring *ring;
static struct vma_stats_iomux *selects, *epolls;

static void set_addr(struct vma_addr *a, const char *text)
{
	if (strchr(text, ':')) {
		inet_pton(AF_INET6, text, a->byte);
		return;
	}
	memset(a, 0, sizeof(*a));
	a->byte[10] = a->byte[11] = 0xff;
	inet_pton(AF_INET, text, a->byte + 12);
}

static void make_udp(void)
{
	udp = stats_socket_get(14);
	udp->family = AF_INET;
	udp->proto = IPPROTO_UDP;
	udp->inode = 1001;
	udp->offloaded = udp->blocking = udp->mc_loop = 1;
	set_addr(&udp->local, "0.0.0.0");
	set_addr(&udp->remote, "0.0.0.0");
	udp->local_port = 11111;
	udp->rx_tid = 77;
	udp->tx_tid = 78;
	udp->rx_by_user = udp->tx_by_user = 1;
	udp->rx_ring_user = 4000000000;
	udp->tx_ring_user = 5;
	udp->rx = (struct vma_stats_counters){786133, 1128530 * 1024, 1, 2, 3, 4096, 5, 6};
	udp->tx = (struct vma_stats_counters){10, 20480, 0, 0, 0, 0, 0, 0};
	udp->rx_poll_hit = 300;
	udp->rx_poll_miss = 100;
	udp->waits.spun = 290;
	udp->waits.spun_in_vain = 30;
	udp->waits.slept = 100;
	udp->waits.why[VMA_SLEPT_WINDOW] = 30;
	udp->waits.why[VMA_SLEPT_QUOTA] = 70;
	udp->rx_ready_packets = 1;
	udp->rx_ready_bytes = 1470;
	udp->rx_ready_packets_max = 16;
	udp->rx_ready_bytes_max = 23520;
	udp->rx_ready_limit = 16777216;
	udp->rx_drop_packets = 7;
	udp->rx_drop_bytes = 700;
	udp->num_groups = 2;
	set_addr(&udp->groups[0], "224.7.7.7");
	set_addr(&udp->groups[1], "224.4.1.3");
}

static void make_tcp(void)
{
	tcp = stats_socket_get(15);
	tcp->family = AF_INET6;
	tcp->proto = IPPROTO_TCP;
	tcp->state = VMA_STATE_ESTABLISHED;
	tcp->inode = 1002;
	tcp->offloaded = 1;
	set_addr(&tcp->local, "2001:db8::1");
	set_addr(&tcp->remote, "2001:db8::2");
	tcp->local_port = 44522;
	tcp->remote_port = 6666;
	/* Above 32 bits. */
	tcp->tx = (struct vma_stats_counters){5000000000, 5120000000000, 0, 0, 0, 0, 0, 0};
	tcp->tx_retransmits = 9;
	tcp->tx_ready_bytes = 55;
	tcp->why[VMA_WHY_TX] = (struct vma_stats_why){VMA_WHY_FLAGS, 0x40};
	tcp->why_ever = 1ull << VMA_WHY_FLAGS | 1ull << VMA_WHY_RULE;
	tcp->num_groups = 0;
}

/* Without inode: netstat must not show it. In the group of fd 14 too. */
static void make_idle(void)
{
	idle = stats_socket_get(16);
	idle->family = AF_INET;
	idle->proto = IPPROTO_UDP;
	set_addr(&idle->local, "0.0.0.0");
	set_addr(&idle->remote, "0.0.0.0");
	set_addr(&idle->mc_if_addr, "10.0.0.1");
	set_addr(&idle->groups[0], "224.7.7.7");
	idle->num_groups = 1;
}

static void make_rest(void)
{
	struct vma_stats_cq *cq = stats_cq_get();
	struct vma_stats_pool *rx = stats_pool_get(true), *tx = stats_pool_get(false);

	cq->drained_max = 511;
	cq->pool_len = 500;
	rx->size = 168000;
	tx->size = 199488;
	tx->no_buffers = 3;
	ring = stats_ring_get();
	snprintf(ring->type, sizeof(ring->type), "RING_XDP");
	snprintf(ring->ifname, sizeof(ring->ifname), "veth0");
	snprintf(ring->mode, sizeof(ring->mode), "native");
	ring->moderation_frames = 10;
	ring->moderation_usec = 181;
	ring->dev_mem_alloc = 16384;
	ring->dev_mem_bytes = 3 * 1024;
	ring->dev_mem_packets = 12;
	ring->dev_mem_oob = 2;
	ring->rx_packets = 786133;
	ring->rx_bytes = 1192953 * 1024;
	ring->interrupts_requested = 786137;
	ring->interrupts_received = 78613;
	ring->drop_checksum = 4;
	selects = stats_iomux_get(STATS_SELECT);
	selects->ready_os = 15185;
	selects->ready_offloaded = 30372;
	selects->poll_hit = 10;
	selects->polling_cpu = 70;
	epolls = stats_iomux_get(7);
	epolls->tid = 79;
	epolls->ready_offloaded = 5;
	epolls->poll_hit = 1;
	epolls->poll_miss = 3;
	epolls->timeouts = 2;
	epolls->errors = 1;
}

static void add(void)
{
	stats_add(&udp->rx.packets, 1000);
	stats_add(&udp->rx.bytes, 1024000);
	stats_add(&udp->rx_poll_hit, 50);
	stats_add(&udp->tx.os_packets, 20);
	stats_add(&ring->rx_packets, 1000);
	stats_add(&selects->ready_os, 4);
}

static void dump(int fd, int level)
{
	printf("dump %d %d ", fd, level);
}

static void obey(const char *word, const char *rest)
{
	if (!strcmp(word, "add"))
		add();
	else if (!strcmp(word, "control"))
		stats_control(dump);
	else if (!strcmp(word, "log"))
		stats_control(NULL);
	else if (!strcmp(word, "at_close"))
		params.stats_file = strdup(rest);
	else if (!strcmp(word, "file"))
		printf("%d ", stats_file_dump(rest, udp));
	else if (!strcmp(word, "close"))
		stats_socket_put(atoi(rest) == 14 ? udp : atoi(rest) == 15 ? tcp : idle);
	else if (!strcmp(word, "open"))
		make_udp();
	else if (!strcmp(word, "stop"))
		stats_stop();
	printf("%s level %d details %d\n", word, log_level_now, log_details_now);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	char line[512], word[32], rest[400];
	int err;

	raw.open = open;
	raw.close = close;
	libc.fclose = fclose;
	raw.write = write;
	libc.getrlimit = getrlimit;
	err = stats_start(argc > 1 ? argv[1] : "",
			  argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 4);
	make_udp();
	make_tcp();
	make_idle();
	make_rest();
	printf("ready %d\n", err);
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		rest[0] = 0;
		if (sscanf(line, "%31s %399s", word, rest) >= 1)
			obey(word, rest);
	}
	stats_stop();
	return 0;
}
