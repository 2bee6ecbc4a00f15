/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * mlx5_rings what own-address peer-address threads [devices]: several rings of one card, through
 * the whole library on mlx5 queues in plain memory (tests/mlx5_device); so many can be had. The
 * peer is this program, on the other side of the card, and the threads do what they are told, one
 * at a time.
 *
 *   udp      each thread has a datagram socket: what it sends and gets goes by one ring
 *   tcp      each thread has a connection, on a block of ports
 *   groups   each thread's socket joins a group of its own: they have one Ethernet address
 *
 * Prints what each ring had, in the order of opening, as JSON.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/if_ether.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "../mlx5_device/soft.h"

#define PORT 7001u
#define PEER_PORT 7002u
#define TURNS 50u
#define MAX 8u

struct frame {
	struct ethhdr eth;
	struct iphdr ip;
	union {
		struct udphdr uh;
		struct tcphdr th;
	};
	uint8_t data[4]; /* a datagram's are behind its shorter header */
} __attribute__((packed));

static struct sockaddr_in own, peer;
static uint32_t threads;
static int fds[MAX];
static struct frame last; /* what a card sent last */
static struct soft *last_by, *given_to; /* by which; who had what came last */
static unsigned sent_frames;

static void check(bool ok, const char *what, uint32_t which)
{
	if (ok)
		return;
	fprintf(stderr, "mlx5_rings: %s (%u): %s\n", what, which, strerror(errno));
	exit(1);
}

/* --- threads */

static struct worker {
	pthread_t thread;
	pthread_barrier_t begin, end;
	void (*todo)(unsigned i);
} workers[MAX];

static void *work(void *arg)
{
	struct worker *w = arg;

	for (;;) {
		pthread_barrier_wait(&w->begin);
		w->todo((unsigned)(w - workers));
		pthread_barrier_wait(&w->end);
	}
	return NULL;
}

/* fn, in the thread. */
static void in_thread(unsigned i, void (*fn)(unsigned i))
{
	workers[i].todo = fn;
	pthread_barrier_wait(&workers[i].begin);
	pthread_barrier_wait(&workers[i].end);
}

static void start_threads(void)
{
	for (unsigned i = 0; i < threads; i++) {
		pthread_barrier_init(&workers[i].begin, NULL, 2);
		pthread_barrier_init(&workers[i].end, NULL, 2);
		check(!pthread_create(&workers[i].thread, NULL, work, &workers[i]), "a thread", i);
	}
}

/* --- the card */

static uint32_t words(const void *data, size_t len)
{
	const uint8_t *p = data;
	uint32_t sum = 0;

	for (size_t i = 0; i < len; i++)
		sum += i & 1 ? p[i] : (uint32_t)p[i] << 8;
	return sum;
}

static uint16_t folded(uint32_t sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return htons((uint16_t)~sum);
}

static void sent(struct soft *s, const uint8_t *data, uint32_t len)
{
	struct frame f;

	memset(&f, 0, sizeof(f));
	memcpy(&f, data, len < sizeof(f) ? len : sizeof(f));
	if (f.eth.h_proto != htons(ETH_P_IP) ||
	    (f.ip.protocol != IPPROTO_UDP && f.ip.protocol != IPPROTO_TCP))
		return;
	last = f;
	last_by = s;
	s->arg = (void *)((uintptr_t)s->arg + 1); /* counts them */
	sent_frames++;
}

static void run_cards(void)
{
	for (struct soft *s = soft; s; s = s->next) {
		s->sent = sent;
		soft_run(s, ~0u);
	}
}

/* Waits for a frame of a thread's, which the card has from one ring. */
static void await_frame(unsigned before, uint32_t which)
{
	for (unsigned i = 0; i < 2000 && sent_frames == before; i++) {
		run_cards();
		if (sent_frames == before)
			poll(NULL, 0, 1);
	}
	check(sent_frames == before + 1, "one frame left", which);
}

/* Waits for a SYN of a connection that begins, or for what follows it. TCP sends again what a busy
 * machine leaves waiting. */
static void await_segment(unsigned before, bool syn, uint32_t which)
{
	for (unsigned i = 0; i < 20000 && (sent_frames == before || last.th.syn != syn); i++) {
		run_cards();
		if (sent_frames == before || last.th.syn != syn)
			poll(NULL, 0, 1);
	}
	check(last.ip.protocol == IPPROTO_TCP && last.th.syn == syn, syn ? "a SYN" : "an ACK",
	      which);
}

/*
 * A frame of the peer's to dst and port comes by the wire: each ring with a rule for it has it.
 * Returns how many.
 */
static unsigned deliver(struct frame *f, uint8_t proto, uint32_t dst, uint16_t port, size_t l4_len)
{
	struct vma_flow_key key = {.local_port = port, .remote_port = PEER_PORT, .proto = proto};
	uint8_t *check_at = (uint8_t *)&f->uh + (proto == IPPROTO_TCP ? 16 : 6);
	unsigned copies = 0;
	uint16_t sum;

	key.local.byte[10] = key.local.byte[11] = key.remote.byte[10] = key.remote.byte[11] = 0xff;
	memcpy(&key.local.byte[12], &dst, 4);
	memcpy(&key.remote.byte[12], &peer.sin_addr, 4);
	f->eth.h_proto = htons(ETH_P_IP);
	f->ip = (struct iphdr){.version = 4,
			       .ihl = 5,
			       .tot_len = htons((uint16_t)(20 + l4_len)),
			       .ttl = 64,
			       .protocol = proto,
			       .saddr = peer.sin_addr.s_addr,
			       .daddr = dst};
	f->ip.check = folded(words(&f->ip, 20));
	memset(check_at, 0, 2);
	sum = folded(words(&f->ip.saddr, 8) + proto + (uint32_t)l4_len + words(&f->uh, l4_len));
	memcpy(check_at, &sum, 2);
	for (struct soft *s = soft; s; s = s->next) {
		bool steers = soft_steers(s, &key);

		/* A rule of an Ethernet address alone has neither protocol nor port. */
		for (unsigned i = 0; i < s->flows && IN_MULTICAST(ntohl(dst)); i++)
			steers = steers || !s->rules[i].proto;
		if (!steers)
			continue;
		given_to = s;
		check(soft_receive(s, f, (uint32_t)(34 + l4_len)), "the receive queue has room",
		      port);
		copies++;
	}
	return copies;
}

static unsigned deliver_udp(uint32_t dst, uint16_t port, uint32_t number)
{
	struct frame f = {.eth.h_dest = {0}};

	memcpy(f.eth.h_dest, last.eth.h_source, ETH_ALEN);
	memcpy(f.eth.h_source, last.eth.h_dest, ETH_ALEN);
	f.uh = (struct udphdr){.source = peer.sin_port, .dest = htons(port), .len = htons(12)};
	memcpy((uint8_t *)&f.uh + 8, &number, 4);
	return deliver(&f, IPPROTO_UDP, dst, port, 12);
}

/* --- what the threads do */

static uint32_t number; /* of the turn */

static void bind_one(unsigned i)
{
	struct timeval five = {5, 0};
	struct sockaddr_in a = own;

	fds[i] = socket(AF_INET, SOCK_DGRAM, 0);
	a.sin_port = htons((uint16_t)(PORT + i));
	if (fds[i] >= 0)
		setsockopt(fds[i], SOL_SOCKET, SO_RCVTIMEO, &five, sizeof(five));
	check(fds[i] >= 0 && !bind(fds[i], (struct sockaddr *)&a, sizeof(a)), "bind()", i);
}

static void send_one(unsigned i)
{
	check(sendto(fds[i], &number, 4, 0, (struct sockaddr *)&peer, sizeof(peer)) == 4,
	      "sendto()", i);
}

static void recv_one(unsigned i)
{
	uint32_t got = 0;

	check(recv(fds[i], &got, 4, 0) == 4 && got == number, "recv()", got);
}

static void none_left(unsigned i)
{
	uint32_t got;

	check(recv(fds[i], &got, 4, MSG_DONTWAIT) < 0 && errno == EAGAIN, "nothing comes twice", i);
}

static void join_one(unsigned i)
{
	struct ip_mreq m = {.imr_interface = own.sin_addr};
	int yes = 1;

	fds[i] = socket(AF_INET, SOCK_DGRAM, 0);
	setsockopt(fds[i], SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	m.imr_multiaddr.s_addr = htonl(0xe0010101 + (i << 24)); /* 224.1.1.1, 225.1.1.1, ... */
	check(!bind(fds[i],
		    (struct sockaddr *)&(struct sockaddr_in){
			    .sin_family = AF_INET, .sin_port = htons((uint16_t)(PORT + i))},
		    sizeof(struct sockaddr_in)),
	      "bind()", i);
	check(!setsockopt(fds[i], IPPROTO_IP, IP_MULTICAST_ALL, &(int){0}, sizeof(int)),
	      "IP_MULTICAST_ALL", i);
	check(!setsockopt(fds[i], IPPROTO_IP, IP_ADD_MEMBERSHIP, &m, sizeof(m)),
	      "IP_ADD_MEMBERSHIP", i);
	/* The first use opens what bind() alone does not. */
	none_left(i);
}

static void connect_one(unsigned i)
{
	fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	check(connect(fds[i], (struct sockaddr *)&peer, sizeof(peer)) < 0 && errno == EINPROGRESS,
	      "connect()", i);
}

static void established(unsigned i)
{
	struct pollfd p = {.fd = fds[i], .events = POLLOUT};

	check(poll(&p, 1, 5000) == 1 && p.revents == POLLOUT, "a connection", (uint32_t)p.revents);
}

/* --- what is tried */

/*
 * What the library sends first asks for the neighbour, and may go by the kernel: until one has come
 * by the card.
 */
static void warm_up(unsigned i)
{
	for (unsigned n = 0; n < 200; n++) {
		unsigned before = sent_frames;

		in_thread(i, send_one);
		for (unsigned k = 0; k < 10 && sent_frames == before; k++) {
			run_cards();
			poll(NULL, 0, 1);
		}
		if (sent_frames > before)
			return;
	}
	check(false, "a datagram left by the card", i);
}

static void udp(void)
{
	for (unsigned i = 0; i < threads; i++) {
		in_thread(i, bind_one);
		warm_up(i);
	}
	for (number = 1; number <= TURNS; number++) {
		for (unsigned i = 0; i < threads; i++) {
			unsigned before = sent_frames;

			in_thread(i, send_one);
			await_frame(before, i);
			check(last.uh.source == htons((uint16_t)(PORT + i)), "whose datagram", i);
			check(deliver_udp(own.sin_addr.s_addr, (uint16_t)(PORT + i), number) == 1,
			      "one ring gets it", i);
			in_thread(i, recv_one);
			check(given_to == last_by, "the ring that sends receives", i);
		}
	}
}

static void tcp(void)
{
	uint16_t ports[MAX];

	for (unsigned i = 0; i < threads; i++) {
		struct frame f = {.eth.h_dest = {0}};
		unsigned before = sent_frames;

		in_thread(i, connect_one);
		await_segment(before, true, i);
		ports[i] = ntohs(last.th.source);
		for (unsigned k = 0; k < i; k++)
			check(ports[k] != ports[i], "no port twice", ports[i]);
		memcpy(f.eth.h_dest, last.eth.h_source, ETH_ALEN);
		memcpy(f.eth.h_source, last.eth.h_dest, ETH_ALEN);
		f.th = (struct tcphdr){.source = peer.sin_port,
				       .dest = last.th.source,
				       .seq = htonl(1000),
				       .ack_seq = htonl(ntohl(last.th.seq) + 1),
				       .doff = 5,
				       .syn = 1,
				       .ack = 1,
				       .window = htons(60000)};
		check(deliver(&f, IPPROTO_TCP, own.sin_addr.s_addr, ports[i], 20) == 1,
		      "one ring has its segments", i);
		before = sent_frames;
		in_thread(i, established);
		await_segment(before, false, i);
		check(given_to == last_by, "the ring that sends receives", i);
	}
}

static void groups(void)
{
	for (unsigned i = 0; i < threads; i++)
		in_thread(i, join_one);
	memset(&last, 0, sizeof(last));
	for (number = 1; number <= TURNS; number++) {
		for (unsigned i = 0; i < threads; i++) {
			memcpy(last.eth.h_source, (uint8_t[]){0x01, 0x00, 0x5e, 1, 1, 1}, 6);
			check(deliver_udp(htonl(0xe0010101 + (i << 24)), (uint16_t)(PORT + i),
					  number) == 1,
			      "one ring gets it", i);
			for (unsigned k = 0; k < threads; k++)
				in_thread(k, k == i ? recv_one : none_left);
		}
	}
}

static unsigned complaints;

/* The oldest first. */
static void show(const struct soft *s)
{
	if (!s)
		return;
	show(s->next);
	printf("%s{\"rules\": %u, \"received\": %u, \"sent\": %u}", s->next ? ", " : "", s->flows,
	       s->rq.ci, (unsigned)(uintptr_t)s->arg);
	complaints += s->dev.complaints;
}

int main(int argc, char **argv)
{
	if (argc < 5 || (threads = (uint32_t)strtoul(argv[4], NULL, 10)) > MAX)
		return fprintf(stderr, "mlx5_rings udp|tcp|groups own peer threads [devices]\n"), 2;
	own = (struct sockaddr_in){.sin_family = AF_INET};
	peer = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(PEER_PORT)};
	check(inet_pton(AF_INET, argv[2], &own.sin_addr) == 1 &&
		      inet_pton(AF_INET, argv[3], &peer.sin_addr) == 1,
	      "addresses", 0);
	soft_config.devices = argc > 5 ? (unsigned)strtoul(argv[5], NULL, 10) : MAX;
	start_threads();
	if (!strcmp(argv[1], "udp"))
		udp();
	else if (!strcmp(argv[1], "tcp"))
		tcp();
	else
		groups();
	printf("[");
	show(soft);
	printf("]\n");
	return complaints != 0;
}
