/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * mlx5_ports what own-address peer-address number: steering rules and local ports of so many
 * connections, through the whole library on mlx5 queues in plain memory (tests/mlx5_device). The
 * peer is this program, on the other side of the card.
 *
 *   connect     opens them one after the other, prints what that cost as JSON; each way of
 *               making sure that nobody else has their ports is tried
 *   serve       accepted ones: one goes to the kernel, and neither its segments nor the next
 *               SYNs come to the card any more
 *   taken       the port is another process's for a while
 *   to_kernel   one goes to the kernel: its segments, too, the others' stay with the card
 *   refused     there is no room for their rules: the kernel serves them
 *   udp         a datagram socket that is bound and connected to so many peers, one after the
 *               other
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/if_ether.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "../mlx5_device/soft.h"

#define PEER_PORT 7002
#define LISTEN_PORT 7003
#define MAX 1000u

struct segment {
	struct ethhdr eth;
	struct iphdr ip;
	struct tcphdr th;
} __attribute__((packed));

static struct sockaddr_in own, peer;
static struct segment to_us;
static uint16_t syn_port; /* network order; 0: none came since */
static uint32_t their_seq = 1000, their_ack;
static int fds[MAX];
static uint16_t ports[MAX];

static void check(bool ok, const char *what, uint32_t which)
{
	if (ok)
		return;
	fprintf(stderr, "mlx5_ports: %s (%u): %s\n", what, which, strerror(errno));
	exit(1);
}

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

/* To which the kernel has connections; what was sent there. */
#define KERNELS_PORT 9001
static uint32_t answers;

/* What the card sends: the peer takes a SYN. */
static void sent(struct soft *s, const uint8_t *data, uint32_t len)
{
	struct segment f;

	(void)s;
	if (len < sizeof(f))
		return;
	memcpy(&f, data, sizeof(f));
	if (f.ip.protocol != IPPROTO_TCP)
		return;
	answers += f.th.dest == htons(KERNELS_PORT) || f.th.dest == htons(KERNELS_PORT + 1);
	if (!f.th.syn)
		return;
	syn_port = f.th.source;
	their_ack = ntohl(f.th.seq) + 1;
	memcpy(to_us.eth.h_dest, f.eth.h_source, ETH_ALEN);
	memcpy(to_us.eth.h_source, f.eth.h_dest, ETH_ALEN);
	to_us.eth.h_proto = htons(ETH_P_IP);
	to_us.ip = (struct iphdr){.version = 4,
				  .ihl = 5,
				  .tot_len = htons(40),
				  .ttl = 64,
				  .protocol = IPPROTO_TCP,
				  .saddr = peer.sin_addr.s_addr,
				  .daddr = own.sin_addr.s_addr};
	to_us.ip.check = folded(words(&to_us.ip, 20));
	to_us.th = (struct tcphdr){.source = peer.sin_port,
				   .dest = syn_port,
				   .seq = htonl(their_seq++),
				   .ack_seq = htonl(ntohl(f.th.seq) + 1),
				   .doff = 5,
				   .syn = 1,
				   .ack = 1,
				   .window = htons(60000)};
	to_us.th.check =
		folded(words(&to_us.ip.saddr, 8) + IPPROTO_TCP + 20 + words(&to_us.th, 20));
}

static struct vma_flow_key flow_of(uint16_t port)
{
	struct vma_flow_key key = {
		.local_port = port, .remote_port = PEER_PORT, .proto = IPPROTO_TCP};

	key.local.byte[10] = key.local.byte[11] = key.remote.byte[10] = key.remote.byte[11] = 0xff;
	memcpy(&key.local.byte[12], &own.sin_addr, 4);
	memcpy(&key.remote.byte[12], &peer.sin_addr, 4);
	return key;
}

static bool steered(uint16_t port)
{
	struct vma_flow_key key = flow_of(port);

	return soft_steers(soft, &key);
}

static bool steered_udp(uint32_t peer_port)
{
	struct vma_flow_key key = flow_of(7001);

	key.proto = IPPROTO_UDP;
	key.remote_port = (uint16_t)peer_port;
	return soft_steers(soft, &key);
}

static uint64_t connect_ns; /* that connect() took, all but the first together */

/* A connection to the peer, established. */
static int open_one(uint16_t *port)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	struct sockaddr_in a;
	socklen_t len = sizeof(a);
	uint64_t start = now_ns();
	int ret;

	syn_port = 0;
	ret = connect(fd, (struct sockaddr *)&peer, sizeof(peer));
	connect_ns += now_ns() - start;
	check(fd >= 0 && (!ret || errno == EINPROGRESS), "connect()", 0);
	/* The library's internal thread opens it, if this is the first. */
	for (unsigned i = 0; i < 10000 && !soft_started(); i++)
		usleep(1000);
	check(soft_started(), "the connection is on the card", 0);
	soft->sent = sent;
	for (unsigned i = 0; i < 2000 && !syn_port; i++) {
		soft_run(soft, ~0u);
		if (!syn_port)
			poll(&p, 1, 1);
	}
	check(syn_port, "a SYN came by the card", 0);
	check(soft_receive(soft, &to_us, sizeof(to_us)), "the receive queue has room", 0);
	/* It has come: without a wait, as nobody tells of it before the device runs. */
	for (unsigned i = 0; i < 1000 && !poll(&p, 1, 0); i++)
		;
	check(p.revents == POLLOUT, "a connection", (uint32_t)p.revents);
	check(!getsockname(fd, (struct sockaddr *)&a, &len) && a.sin_port == syn_port, "its name",
	      ntohs(a.sin_port));
	*port = ntohs(syn_port);
	return fd;
}

/* bind() by another kernel socket, one that is not ours, as another process's would be. */
static bool can_bind(uint16_t port, int reuseaddr, int reuseport, bool any)
{
	struct sockaddr_in a = own;
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	bool can;

	a.sin_port = htons(port);
	if (any)
		a.sin_addr.s_addr = 0;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuseaddr, sizeof(int));
	setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &reuseport, sizeof(int));
	can = !bind(fd, (struct sockaddr *)&a, sizeof(a));
	close(fd);
	return can;
}

/* What the card takes nobody else can have. */
static void check_nobody_else(void)
{
	for (uint32_t port = 1; port < 65536; port++) {
		if (!steered((uint16_t)port))
			continue;
		for (int way = 0; way < 8; way++)
			check(!can_bind((uint16_t)port, way & 1, way >> 1 & 1, way >> 2),
			      "a port is taken from others", port);
	}
}

static void open_many(uint32_t number)
{
	bool seen[65536] = {false};
	unsigned up = 0;

	for (uint32_t i = 0; i < number; i++) {
		fds[i] = open_one(&ports[i]);
		if (!i)
			connect_ns = 0; /* it has opened the ring */
		check(steered(ports[i]), "the card takes the connection's segments", i);
		check(!seen[ports[i]], "no port twice", ports[i]);
		seen[ports[i]] = true;
		up += i && ports[i] > ports[i - 1];
	}
	check(number < 50 || soft_config.whole_ports ||
		      (up > number / 4 && up < number - number / 4),
	      "a random order", up);
}

static void many(uint32_t number)
{
	unsigned made;

	open_many(number);
	made = soft->flows_made;
	check_nobody_else();
	for (uint32_t i = 0; i < number; i++) {
		struct linger at_once = {1, 0};

		setsockopt(fds[i], SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
		close(fds[i]);
	}
	printf("{\"rules_made\": %u, \"rules_left\": %u, \"us\": %.1f}\n", made, soft->flows,
	       (double)connect_ns / 1000 / (number - 1));
}

static int sharing[2];

/* The descriptor is another process's, too. */
static void share(int fd)
{
	char room[CMSG_SPACE(sizeof(int))] = {0}, byte = 0;
	struct iovec iov = {&byte, 1};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = room,
			   .msg_controllen = sizeof(room)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(int));
	check(!socketpair(AF_UNIX, SOCK_STREAM, 0, sharing) && sendmsg(sharing[0], &m, 0) == 1,
	      "sendmsg()", 0);
}

/* A segment of the peer's to the listener; what it is answered is in syn_port and their_ack. */
static void from_peer(uint16_t port, uint32_t seq, bool ack)
{
	to_us.ip = (struct iphdr){.version = 4,
				  .ihl = 5,
				  .tot_len = htons(40),
				  .ttl = 64,
				  .protocol = IPPROTO_TCP,
				  .saddr = peer.sin_addr.s_addr,
				  .daddr = own.sin_addr.s_addr};
	to_us.ip.check = folded(words(&to_us.ip, 20));
	to_us.th = (struct tcphdr){.source = htons(port),
				   .dest = htons(LISTEN_PORT),
				   .seq = htonl(seq),
				   .ack_seq = htonl(their_ack),
				   .doff = 5,
				   .syn = !ack,
				   .ack = ack,
				   .window = htons(60000)};
	to_us.th.check =
		folded(words(&to_us.ip.saddr, 8) + IPPROTO_TCP + 20 + words(&to_us.th, 20));
	check(soft_receive(soft, &to_us, sizeof(to_us)), "the receive queue has room", port);
}

/* The peer connects from `port`, and is connected when accept() or poll() of fd looks. */
static void peer_connects(int fd, uint16_t port)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	syn_port = 0;
	from_peer(port, 5000, false);
	/* Ten seconds: who the neighbour is must be found out first. */
	for (unsigned i = 0; i < 10000 && !syn_port; i++) {
		poll(&p, 1, 0);
		soft_run(soft, ~0u);
		usleep(syn_port ? 0 : 1000);
	}
	check(syn_port == htons(LISTEN_PORT), "a SYN is answered", port);
	from_peer(port, 5001, true);
}

static bool steered_from(uint16_t port)
{
	struct vma_flow_key key = flow_of(LISTEN_PORT);

	key.remote_port = port;
	return soft_steers(soft, &key);
}

/* Which a program has waited for. */
static int listener(void)
{
	struct sockaddr_in a = own;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	struct pollfd p = {.fd = fd, .events = POLLIN};

	a.sin_port = htons(LISTEN_PORT);
	check(!bind(fd, (struct sockaddr *)&a, sizeof(a)) && !listen(fd, 100) && !poll(&p, 1, 0),
	      "a listener", 0);
	return fd;
}

/* The listener's rule is back. */
static void wait_rule(void)
{
	for (unsigned i = 0; i < 100 && !steered_from(9000); i++)
		usleep(100000);
	check(steered_from(9000), "the listener's rule is back", 0);
}

/* What a process does whose listener the card serves. */
static void taken(void)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	int len = sprintf(name.sun_path + 1, "libvma/tcp/%u", LISTEN_PORT);
	int other = socket(AF_UNIX, SOCK_DGRAM, 0);

	check(!bind(other, (struct sockaddr *)&name,
		    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len)),
	      "the name", 0);
	listener();
	check(soft && !soft->flows, "no rule", soft ? soft->flows : 0);
	close(other);
	wait_rule();
	printf("{\"rules_made\": %u, \"rules_left\": %u}\n", soft->flows_made, soft->flows);
}

/*
 * What the card has brought of the port, or brings yet, when the rule is suspended: connections are
 * the kernel's. Neither a reset nor an answer to a SYN leaves.
 */
static void check_no_answer(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	answers = 0;
	from_peer(KERNELS_PORT, 7001, true);
	from_peer(KERNELS_PORT + 1, 7001, false);
	for (unsigned i = 0; i < 100; i++) {
		poll(&p, 1, 0);
		soft_run(soft, ~0u);
	}
	check(!answers, "what is the kernel's is not answered", answers);
}

static void serve(uint32_t number)
{
	int fd = listener();
	struct pollfd p = {.fd = fd, .events = POLLIN};

	check(soft && soft->flows == 1, "its rule", 0);
	to_us.eth = (struct ethhdr){.h_source = {2}, .h_proto = htons(ETH_P_IP)};
	memcpy(to_us.eth.h_dest, soft->mac, ETH_ALEN);
	soft->sent = sent;
	for (uint32_t i = 0; i < number; i++) {
		peer_connects(fd, (uint16_t)(8000 + i));
		if (i == number - 1)
			break; /* one waits */
		for (unsigned n = 0; n < 10000 && (fds[i] = accept(fd, NULL, NULL)) < 0; n++)
			usleep(1000);
		check(fds[i] >= 0, "accept()", i);
	}
	check(poll(&p, 1, 1000) == 1 && soft->flows == 1, "one rule for all", soft->flows);
	share(fds[1]);
	for (uint32_t i = 0; i < number; i++)
		check(steered_from((uint16_t)(8000 + i)) == (i != 1), "who has the segments", i);
	check(!steered_from(9000), "the next ones are the kernel's", 0);
	check_no_answer(fd);
	check((fds[number - 1] = accept(fd, NULL, NULL)) >= 0, "accept() of the one that waited",
	      0);
	for (uint32_t i = 0; i < number; i++) {
		struct linger at_once = {1, 0};

		setsockopt(fds[i], SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
		close(fds[i]);
	}
	check(!soft->flows, "the rules are gone", soft->flows);
	close(sharing[0]);
	close(sharing[1]); /* ends the kernel's */
	wait_rule();
	printf("{\"rules_made\": %u, \"rules_left\": %u}\n", soft->flows_made, soft->flows);
}

static void to_kernel(uint32_t number)
{
	open_many(number);
	share(fds[number / 2]);
	for (uint32_t i = 0; i < number; i++)
		check(steered(ports[i]) == (i != number / 2), "who has the segments", i);
	printf("{\"rules_made\": %u, \"rules_left\": %u}\n", soft->flows_made, soft->flows);
}

/* A datagram socket, bound. */
static int bound(void)
{
	struct sockaddr_in a = own;
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	char c;

	a.sin_port = htons(7001);
	check(fd >= 0 && !bind(fd, (struct sockaddr *)&a, sizeof(a)), "bind()", 0);
	/* The first use opens what bind() alone does not. */
	check(recv(fd, &c, 1, MSG_DONTWAIT) < 0, "nothing yet", 0);
	check(soft && soft->flows == 1, "its rule", soft ? soft->flows : 0);
	return fd;
}

static void refused(uint32_t number)
{
	bound();
	soft_config.flows_max = 1;
	for (uint32_t i = 0; i < number; i++) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);

		check(connect(fd, (struct sockaddr *)&peer, sizeof(peer)) < 0 &&
			      errno == ECONNREFUSED,
		      "connect() by the kernel", i);
		close(fd);
	}
	printf("{\"rules_made\": %u, \"rules_left\": %u}\n", soft->flows_made, soft->flows);
}

static void udp(uint32_t number)
{
	struct sockaddr none = {.sa_family = AF_UNSPEC};
	int fd = bound();

	for (uint32_t i = 0; i < number; i++) {
		struct sockaddr_in to = peer;

		to.sin_port = htons((uint16_t)(8000 + i));
		check(!connect(fd, (struct sockaddr *)&to, sizeof(to)), "connect()", i);
		check(steered_udp(8000 + i), "the card takes the peer's datagrams", i);
	}
	check(!connect(fd, &none, sizeof(none)), "connect() to none", 0);
	printf("{\"rules_made\": %u, \"rules_left\": %u}\n", soft->flows_made, soft->flows);
}

int main(int argc, char **argv)
{
	uint32_t number;

	if (argc < 5 || (number = (uint32_t)strtoul(argv[4], NULL, 10)) > MAX)
		return fprintf(stderr,
			       "mlx5_ports connect|serve|taken|to_kernel|refused|udp own peer "
			       "number [whole_ports]\n"),
		       2;
	own = (struct sockaddr_in){.sin_family = AF_INET};
	peer = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(PEER_PORT)};
	check(inet_pton(AF_INET, argv[2], &own.sin_addr) == 1 &&
		      inet_pton(AF_INET, argv[3], &peer.sin_addr) == 1,
	      "addresses", 0);
	for (int i = 5; i < argc; i++)
		soft_config.whole_ports = !strcmp(argv[i], "whole_ports");
	if (!strcmp(argv[1], "connect"))
		many(number);
	else if (!strcmp(argv[1], "serve"))
		serve(number);
	else if (!strcmp(argv[1], "taken"))
		taken();
	else if (!strcmp(argv[1], "to_kernel"))
		to_kernel(number);
	else if (!strcmp(argv[1], "refused"))
		refused(number);
	else
		udp(number);
	return soft->dev.complaints != 0;
}
