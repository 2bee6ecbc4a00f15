/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A ring under remote control: test_ring.py writes one command a line, each is answered by one
 * JSON line.
 *
 *   open IF | close | fds | counters | caps
 *   flow add|del 4|6 udp|tcp LOCAL LPORT [REMOTE RPORT]
 *   recv N MSEC      frames until N came or the time is over: count, bytes, fragments,
 *                    payload lengths' extremes
 *   hold N MSEC      the same, and keeps the buffers;  drop: gives them back
 *   send N LEN DMAC SIP DIP SPORT DPORT     N IPv4 UDP frames of LEN bytes, 32 at a time
 *   gso LEN SIZE DMAC SIP DIP SPORT DPORT   one GSO burst: LEN payload bytes in datagrams of SIZE
 *   echo N           answers N datagrams (addresses and ports exchanged)
 *   mtu N            link_changed() with a new MTU
 *   fork             a child closes its copy of the ring and ends
 *   together IF IF   opens both at the same time in two threads, and closes them
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ring/ring.h"
#include "ring/xdp/xdp.h"
#include "runtime/libc.h"
#include "runtime/log.h"
#include "config/params.h"

static struct ring *ring;
static struct buf *held;

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static uint32_t sum16(const void *p, size_t len, uint32_t sum)
{
	const uint8_t *b = p;

	for (; len > 1; b += 2, len -= 2)
		sum += (uint32_t)(b[0] << 8 | b[1]);
	if (len)
		sum += (uint32_t)b[0] << 8;
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

static void answer(const char *what, int err)
{
	printf("{\"%s\": %d, \"error\": \"%s\"}\n", what, err,
	       err < 0 ? strerrorname_np(-err) : "");
}

/*
 * Headers of an IPv4 UDP datagram; the checksum field gets the pseudo-header's sum, or with `full`
 * the whole.
 */
static int make_frame(uint8_t *f, uint32_t payload, char **a, bool full)
{
	/* Made where the fields are aligned: behind an Ethernet header at f they are not. */
	uint8_t room[2 + 42] __attribute__((aligned(4))) = {0}, *h = room + 2;
	struct ether_header *eth = (void *)h;
	struct iphdr *ip = (void *)(eth + 1);
	struct udphdr *udp = (void *)(ip + 1);
	uint32_t sum;

	if (sscanf(a[0], "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", h, h + 1, h + 2, h + 3, h + 4, h + 5) !=
	    6)
		return -EINVAL;
	memset(h + 6, 2, 6);
	eth->ether_type = htons(ETHERTYPE_IP);
	ip->version = 4;
	ip->ihl = 5;
	ip->ttl = 64;
	ip->protocol = IPPROTO_UDP;
	ip->tot_len = htons((uint16_t)(28 + payload));
	inet_pton(AF_INET, a[1], &ip->saddr);
	inet_pton(AF_INET, a[2], &ip->daddr);
	ip->check = htons((uint16_t)~sum16(ip, 20, 0));
	udp->source = htons((uint16_t)atoi(a[3]));
	udp->dest = htons((uint16_t)atoi(a[4]));
	udp->len = htons((uint16_t)(8 + payload));
	sum = sum16(&ip->saddr, 8, IPPROTO_UDP + 8 + payload);
	if (full) /* header without the checksum, then what follows it in the frame */
		sum = (uint16_t)~sum16(f + 42, payload, sum16(udp, 8, sum));
	udp->check = htons((uint16_t)sum);
	memcpy(f, h, 42);
	return 0;
}

static void cmd_open(const char *ifname)
{
	double t0 = now_ms();
	int err = ring_open((int)if_nametoindex(ifname), &ring);

	if (err) {
		ring = NULL;
		answer("open", err);
		return;
	}
	printf("{\"open\": 0, \"queues\": %u, \"sg\": %d, \"zerocopy\": %d, \"ms\": %.1f, "
	       "\"pins\": \"%s\"}\n",
	       xdp_ring(ring)->num_queues, xdp_ring(ring)->sg, xdp_ring(ring)->zerocopy,
	       now_ms() - t0, xdp_ring(ring)->port->pin_dir);
}

static void cmd_flow(char **a, int n)
{
	struct vma_flow_info info = {.pid = (uint32_t)getpid(), .fd = 3};
	struct vma_flow_key k = {0};
	int err;

	for (int i = 0; i < 2 && 3 + 2 * i + 1 < n; i++) {
		struct vma_addr *to = i ? &k.remote : &k.local;

		if (*a[1] == '6') {
			inet_pton(AF_INET6, a[3 + 2 * i], to);
		} else {
			to->byte[10] = to->byte[11] = 0xff;
			inet_pton(AF_INET, a[3 + 2 * i], &to->byte[12]);
		}
	}
	k.local_port = (uint16_t)atoi(a[4]);
	k.remote_port = n > 6 ? (uint16_t)atoi(a[6]) : 0;
	k.proto = strcmp(a[2], "tcp") ? IPPROTO_UDP : IPPROTO_TCP;
	err = strcmp(a[0], "add") ? ring->ops->flow_del(ring, &k)
				  : ring->ops->flow_add(ring, &k, &info);
	answer("flow", err);
}

static void cmd_recv(unsigned want, double msec, bool hold)
{
	unsigned n = 0, frags = 0, partial = 0, heap = 0, bad = 0, gso_bursts = 0;
	uint32_t min = ~0u, max = 0;
	uint64_t bytes = 0;
	double end = now_ms() + msec;
	struct buf *pkts[32];

	while (n < want) {
		unsigned got = ring_poll(ring, pkts, want - n < 32 ? want - n : 32);

		/* Who was off its processor till then has looked once all the same. */
		if (!got && now_ms() >= end)
			break;
		for (unsigned i = 0; i < got; i++) {
			struct buf *b = pkts[i];
			uint32_t sum = 0;

			for (struct buf *f = b; f; f = f->frag, frags++)
				sum += f->len;
			bad += sum != b->total || b->refs != 1;
			bytes += b->total;
			min = b->total < min ? b->total : min;
			max = b->total > max ? b->total : max;
			partial += !!(b->flags & BUF_CSUM_PARTIAL_OK);
			heap += b->pool != &xdp_ring(ring)->umem.pool;
			gso_bursts += b->gso_size != 0;
			if (hold) {
				b->next = held;
				held = b;
			} else {
				buf_free(b);
			}
		}
		n += got;
	}
	printf("{\"recv\": %u, \"bytes\": %lu, \"fragments\": %u, \"min\": %u, \"max\": %u, "
	       "\"partial\": %u, \"heap\": %u, "
	       "\"bad\": %u, \"bursts\": %u}\n",
	       n, bytes, frags, n ? min : 0, max, partial, heap, bad, gso_bursts);
}

static void cmd_drop(void)
{
	unsigned n = 0;

	for (struct buf *b; (b = held); n++) {
		held = b->next;
		buf_free(b);
	}
	printf("{\"drop\": %u}\n", n);
}

static void cmd_send(unsigned count, uint32_t len, char **a)
{
	unsigned sent = 0;
	int err = 0;

	while (sent < count && !err) {
		unsigned burst = 0;

		for (; burst < 32 && sent + burst < count; burst++) {
			struct buf *b = ring_tx_alloc(ring, 2048);

			if (!b)
				break;
			if (len > b->room || len < 42) {
				err = -EMSGSIZE;
				buf_free(b);
				break;
			}
			memset(b->data, 'x', len);
			make_frame(b->data, len - 42, a, true);
			b->len = b->total = len;
			err = ring_post(ring, b);
			if (err) {
				buf_free(b);
				break;
			}
		}
		sent += burst;
		if (err == -ENOBUFS)
			err = 0;
		if (!err)
			err = ring_kick(ring);
	}
	printf("{\"send\": %u, \"error\": \"%s\"}\n", sent, err ? strerrorname_np(-err) : "");
}

static void cmd_gso(uint32_t len, uint16_t size, char **a)
{
	struct ring_gso g = {
		.hdr_len = 42,
		.l4_off = 34,
		.csum_off = 6,
		.gso_size = size,
		.proto = IPPROTO_UDP,
		.family = AF_INET,
	};
	uint8_t head[42], *payload = malloc(len);
	struct iovec v[2] = {{head, sizeof(head)}, {payload, len}};

	for (uint32_t i = 0; i < len; i++)
		payload[i] = (uint8_t)(i / size);
	make_frame(head, len, a, false);
	answer("gso", ring->ops->send_gso(ring, v, 2, &g));
	free(payload);
}

static void cmd_echo(unsigned count)
{
	double end = now_ms() + 10000;
	unsigned done = 0;
	struct buf *in, *out;

	while (done < count && now_ms() < end) {
		if (!ring_poll(ring, &in, 1))
			continue;
		out = ring_tx_alloc(ring, 2048);
		if (out && in->len == in->total) {
			uint8_t *d = out->data;

			memcpy(d, in->data, in->len);
			memcpy(d, in->data + 6, 6);
			memcpy(d + 6, in->data, 6);
			memcpy(d + 26, in->data + 30, 4);
			memcpy(d + 30, in->data + 26, 4);
			memcpy(d + 34, in->data + 36, 2);
			memcpy(d + 36, in->data + 34, 2);
			d[40] = d[41] = 0;
			out->len = out->total = in->len;
			if (ring_post(ring, out))
				buf_free(out);
			ring_kick(ring);
			done++;
		}
		buf_free(in);
	}
	printf("{\"echo\": %u}\n", done);
}

static void cmd_counters(void)
{
	const struct ring_counters *c = ring->counters;

	printf("{\"rx_packets\": %lu, \"tx_packets\": %lu, \"rx_gso_frames\": %lu, "
	       "\"tx_gso_frames\": %lu, "
	       "\"tx_gso_packets\": %lu, "
	       "\"rx_drop_no_buf\": %lu, "
	       "\"rx_drop_invalid\": %lu, \"tx_drop_oversize\": %lu, \"tx_full\": %lu, \"kicks\": "
	       "%lu}\n",
	       c->rx_packets, c->tx_packets, c->rx_gso_frames, c->tx_gso_frames, c->tx_gso_packets,
	       c->rx_drop_no_buf, c->rx_drop_invalid, c->tx_drop_oversize, c->tx_full, c->kicks);
}

static void cmd_fork(void)
{
	int status = -1;
	pid_t child = fork();

	if (child == 0) {
		ring->ops->close(ring);
		_exit(0);
	}
	waitpid(child, &status, 0);
	answer("fork", status);
}

static void *open_one(void *ifname)
{
	struct ring *r;
	int err = ring_open((int)if_nametoindex(ifname), &r);

	if (!err)
		r->ops->close(r);
	return (void *)(intptr_t)err;
}

static void cmd_together(char **ifnames)
{
	void *result[2] = {NULL, NULL};
	pthread_t thread[2];

	for (int i = 0; i < 2; i++)
		pthread_create(&thread[i], NULL, open_one, ifnames[i]);
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], &result[i]);
	printf("{\"first\": %d, \"second\": %d}\n", (int)(intptr_t)result[0],
	       (int)(intptr_t)result[1]);
}

static void run(char **a, int n)
{
	if (!strcmp(a[0], "open"))
		cmd_open(a[1]);
	else if (!strcmp(a[0], "together") && n == 3)
		cmd_together(a + 1);
	else if (!ring)
		answer(a[0], -EBADF);
	else if (!strcmp(a[0], "close"))
		ring->ops->close(ring), ring = NULL, answer("close", 0);
	else if (!strcmp(a[0], "flow") && n >= 6)
		cmd_flow(a + 1, n - 1);
	else if (!strcmp(a[0], "recv") || !strcmp(a[0], "hold"))
		cmd_recv((unsigned)atoi(a[1]), atof(a[2]), *a[0] == 'h');
	else if (!strcmp(a[0], "fork"))
		cmd_fork();
	else if (!strcmp(a[0], "drop"))
		cmd_drop();
	else if (!strcmp(a[0], "send") && n == 8)
		cmd_send((unsigned)atoi(a[1]), (uint32_t)atoi(a[2]), a + 3);
	else if (!strcmp(a[0], "gso") && n == 8)
		cmd_gso((uint32_t)atoi(a[1]), (uint16_t)atoi(a[2]), a + 3);
	else if (!strcmp(a[0], "echo"))
		cmd_echo((unsigned)atoi(a[1]));
	else if (!strcmp(a[0], "counters"))
		cmd_counters();
	else if (!strcmp(a[0], "mtu"))
		ring->ops->link_changed(ring, (uint32_t)atoi(a[1]), xdp_ring(ring)->port->mac),
			answer("mtu", 0);
	else if (!strcmp(a[0], "caps"))
		printf("{\"max_frame\": %u, \"max_gso\": %u, \"max_rx_frame\": %u}\n",
		       ring->caps.max_frame, ring->caps.max_gso, ring->caps.max_rx_frame);
	else
		answer(a[0], -EINVAL);
}

int main(void)
{
	char line[512], *a[16];

	libc_load();
	params_load(environ);
	while (fgets(line, sizeof(line), stdin)) {
		int n = 0;

		for (char *p = strtok(line, " \n"); p && n < 16; p = strtok(NULL, " \n"))
			a[n++] = p;
		if (n)
			run(a, n);
		fflush(stdout);
	}
	if (ring) {
		cmd_drop();
		ring->ops->close(ring);
	}
	return 0;
}
