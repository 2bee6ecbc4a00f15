/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A long and lossy wire between two interfaces: every frame leaves the other one after a delay,
 * some never do. The kernels that have neither netem nor fq can be measured over it, and which
 * frame is lost depends on the seed alone: the nth of its direction, whoever sent it.
 *
 *   lossy_link DEVICE DEVICE DELAY_US LOSS_PPM SEED [MBIT]
 *              prints "ready", at SIGTERM what it did
 *
 * With MBIT the wire is narrow, too: frames wait in front of it, for as long as the delay at most,
 * and those that come then are dropped ("full").
 *
 * The frames are as long as the devices' peers sent them: switch their TSO off, or a loss takes 64
 * KiB.
 */
#include <errno.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"

#ifndef PACKET_IGNORE_OUTGOING
#define PACKET_IGNORE_OUTGOING 23
#endif
#define SLOTS 16384u /* on the way in one direction; a power of two */
#define FRAME_MAX 2048
#define SPARED 8 /* of each direction: address resolution and the handshake */

struct frame {
	uint64_t due;
	uint32_t len;
	uint8_t bytes[FRAME_MAX];
};

struct direction {
	int from, to;
	uint64_t random;
	uint64_t seen, lost, full, too_long, refused;
	uint64_t idle_at; /* when all that came before has passed the narrow place */
	uint32_t head, tail; /* frames tail .. head - 1 are on the way, in the order of due */
	struct frame *slots;
};

struct wire {
	uint64_t delay_ns, mbit; /* mbit 0: as fast as they come */
	uint32_t loss_ppm;
};

static volatile sig_atomic_t ended;

static void end(int number)
{
	(void)number;
	ended = 1;
}

static void die(const char *what)
{
	perror(what);
	exit(1);
}

/* splitmix64: of equal quality from any seed. */
static uint64_t draw(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

/*
 * A packet socket that sees every frame that arrives on the device, each behind its virtio-net
 * header: what the sender left for the device to sum is passed on as such.
 */
static int open_device(const char *name)
{
	struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL)};
	struct packet_mreq all = {.mr_type = PACKET_MR_PROMISC};
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, 0), one = 1, room = 32 << 20;

	at.sll_ifindex = all.mr_ifindex = (int)if_nametoindex(name);
	if (fd < 0 || !at.sll_ifindex)
		die(name);
	if (setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof(one)) ||
	    setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof(one)) ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room)) ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room)) ||
	    bind(fd, (struct sockaddr *)&at, sizeof(at)) ||
	    setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof(all)))
		die(name);
	return fd;
}

/* Takes what has arrived; it is due after the delay, or lost. */
static void take(struct direction *d, const struct wire *w)
{
	for (;;) {
		uint64_t now = now_ns(), begin;
		struct frame *f = &d->slots[d->head % SLOTS];
		ssize_t n = recv(d->from, f->bytes, sizeof(f->bytes), MSG_TRUNC);

		if (n < 0 && (errno == EAGAIN || errno == ENETDOWN))
			return;
		if (n < 0)
			die("recv");
		if ((size_t)n > sizeof(f->bytes)) {
			d->too_long++;
			continue;
		}
		if (d->seen++ >= SPARED && draw(&d->random) % 1000000 < w->loss_ppm) {
			d->lost++;
			continue;
		}
		begin = d->idle_at > now ? d->idle_at : now;
		if (d->head - d->tail == SLOTS - 1 || begin - now > w->delay_ns) {
			d->full++;
			continue;
		}
		if (w->mbit)
			d->idle_at = begin + (uint64_t)n * 8000 / w->mbit;
		f->due = begin + w->delay_ns;
		f->len = (uint32_t)n;
		d->head++;
	}
}

/* Sends what is due. Returns when the next will be, UINT64_MAX: there is none. */
static uint64_t give(struct direction *d)
{
	uint64_t now = now_ns();

	while (d->tail != d->head) {
		struct frame *f = &d->slots[d->tail % SLOTS];

		if (f->due > now)
			return f->due;
		if (send(d->to, f->bytes, f->len, 0) < 0)
			d->refused++;
		d->tail++;
	}
	return UINT64_MAX;
}

static void relay(struct direction d[2], const struct wire *w)
{
	struct pollfd ready[2] = {{.fd = d[0].from, .events = POLLIN},
				  {.fd = d[1].from, .events = POLLIN}};

	while (!ended) {
		uint64_t due = UINT64_MAX, now;
		struct timespec wait;

		for (int i = 0; i < 2; i++) {
			uint64_t next;

			take(&d[i], w);
			next = give(&d[i]);
			due = next < due ? next : due;
		}
		now = now_ns();
		wait = (struct timespec){
			0, due > now ? (long)(due - now < 100000000 ? due - now : 100000000) : 0};
		ppoll(ready, 2, &wait, NULL);
	}
}

int main(int argc, char **argv)
{
	struct direction d[2] = {0};
	struct wire w;
	int fds[2];

	if (argc != 6 && argc != 7) {
		fprintf(stderr, "usage: lossy_link DEVICE DEVICE DELAY_US LOSS_PPM SEED [MBIT]\n");
		return 2;
	}
	w = (struct wire){.delay_ns = strtoull(argv[3], NULL, 0) * 1000,
			  .loss_ppm = (uint32_t)strtoul(argv[4], NULL, 0),
			  .mbit = argc > 6 ? strtoull(argv[6], NULL, 0) : 0};
	signal(SIGTERM, end);
	signal(SIGINT, end);
	prctl(PR_SET_TIMERSLACK, 1ul);
	/* Ends that spin must not lengthen the wire. */
	if (sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 1}))
		perror("SCHED_FIFO");
	for (int i = 0; i < 2; i++)
		fds[i] = open_device(argv[1 + i]);
	for (int i = 0; i < 2; i++) {
		d[i].from = fds[i];
		d[i].to = fds[!i];
		d[i].random = strtoull(argv[5], NULL, 0) * 2 + (uint64_t)i;
		d[i].slots = calloc(SLOTS, sizeof(struct frame));
		if (!d[i].slots)
			die("calloc");
	}
	printf("ready\n");
	fflush(stdout);
	relay(d, &w);
	for (int i = 0; i < 2; i++) {
		printf("%s to %s: seen %llu lost %llu full %llu too-long %llu refused %llu\n",
		       argv[1 + i], argv[2 - i], (unsigned long long)d[i].seen,
		       (unsigned long long)d[i].lost, (unsigned long long)d[i].full,
		       (unsigned long long)d[i].too_long, (unsigned long long)d[i].refused);
		free(d[i].slots);
		close(fds[i]);
	}
	return 0;
}
