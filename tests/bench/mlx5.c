/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * mlx5 what own-address peer-address calls: one UDP send, one burst of them, one UDP receive, with
 * a copy or without, one round of an event loop over 16 sockets, one burst of datagrams that a
 * callback takes, or one TCP segment each way, through the whole library on mlx5 queues in plain
 * memory. The card is tests/mlx5_device, and it runs between the calls, never in them; the peer is
 * this program, on the other side of the card. `check` sends and receives datagrams of every length
 * instead, `gone` takes the card away, and `tcp_full` gives it a small queue. The one call that
 * counts stands in measured_call(), for callgrind, and its entry point is called nowhere else.
 * Prints JSON.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/if_ether.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "../mlx5_device/soft.h"
#include "mellanox/vma_extra.h"
#include "net/net.h"

#define PAYLOAD 64u
#define UDP_MAX 1472u
#define PORT 7001
#define PEER_PORT 7002
#define WARM_UP 300u
#define BURST 64u
#define LOOP 16u /* sockets of an event loop */

struct frame {
	struct ethhdr eth;
	struct iphdr ip;
	union {
		struct {
			struct udphdr uh;
			uint8_t udp_data[UDP_MAX];
		};
		struct {
			struct tcphdr th;
			uint8_t options[20];
			uint8_t tcp_data[UDP_MAX];
		};
	};
} __attribute__((packed));

static struct sockaddr_in own, peer;
static struct frame to_us; /* what the peer sends; the link header is filled from what it got */
static uint32_t frames_seen;
static uint32_t their_seq = 1000, our_seq; /* TCP: next of the peer's, next that it expects */
static uint32_t our_time, their_time;
static uint8_t our_flags;
static int fd;

static void die(const char *what)
{
	fprintf(stderr, "mlx5: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint16_t checksum(uint32_t sum, const void *data, size_t len)
{
	const uint8_t *p = data;

	for (size_t i = 0; i < len; i++)
		sum += i & 1 ? p[i] : (uint32_t)p[i] << 8;
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return htons((uint16_t)~sum);
}

static uint32_t words(const void *data, size_t len)
{
	return (uint16_t)~ntohs(checksum(0, data, len));
}

/*
 * Completes the headers of to_us for l4_len bytes behind the IP header, and gives the frame to the
 * card.
 */
static void peer_frame(uint8_t proto, uint32_t l4_len)
{
	uint8_t *check = (uint8_t *)&to_us + 34 + (proto == IPPROTO_TCP ? 16 : 6);
	uint32_t sum = proto + l4_len;
	uint16_t be = 0;

	to_us.eth.h_proto = htons(ETH_P_IP);
	to_us.ip = (struct iphdr){.version = 4,
				  .ihl = 5,
				  .tot_len = htons((uint16_t)(20 + l4_len)),
				  .ttl = 64,
				  .protocol = proto,
				  .saddr = peer.sin_addr.s_addr,
				  .daddr = own.sin_addr.s_addr};
	to_us.ip.check = checksum(0, (uint8_t *)&to_us + 14, 20);
	memcpy(check, &be, 2);
	sum += words((uint8_t *)&to_us + 26, 8);
	be = checksum(sum, (uint8_t *)&to_us + 34, l4_len);
	memcpy(check, &be, 2);
	if (!soft_receive(soft, &to_us, 34 + l4_len))
		die("the receive queue is empty");
}

static void peer_udp(uint32_t len)
{
	to_us.uh = (struct udphdr){
		.source = peer.sin_port, .dest = own.sin_port, .len = htons((uint16_t)(8 + len))};
	peer_frame(IPPROTO_UDP, 8 + len);
}

/* A segment of the peer's with len bytes; a SYN brings the options that a kernel's has. */
static void peer_tcp(bool syn, uint32_t len)
{
	static const uint8_t syn_options[20] = {2, 4, 5, 0xb4, 4, 2, 8, 10, [16] = 1, 3, 3, 7};
	static const uint8_t options[12] = {1, 1, 8, 10};
	uint32_t head = syn ? 40 : 32, time = htonl(++their_time), echo = htonl(our_time);
	uint8_t *stamp = to_us.options + (syn ? 8 : 4);

	to_us.th = (struct tcphdr){.source = peer.sin_port,
				   .dest = own.sin_port,
				   .seq = htonl(their_seq),
				   .ack_seq = htonl(our_seq),
				   .doff = (uint16_t)(head / 4),
				   .syn = syn,
				   .ack = 1,
				   .psh = len != 0,
				   .window = htons(60000)};
	memcpy(to_us.options, syn ? syn_options : options, head - 20);
	memcpy(stamp, &time, 4);
	memcpy(stamp + 4, &echo, 4);
	memset((uint8_t *)&to_us.th + head, 'p', len);
	their_seq += len + syn;
	peer_frame(IPPROTO_TCP, head + len);
}

static struct frame last; /* what the card sent last */

/* What the card sends. */
static void sent(struct soft *s, const uint8_t *data, uint32_t len)
{
	struct frame f;
	uint32_t head;

	(void)s;
	frames_seen++;
	memcpy(&f, data, len < sizeof(f) ? len : sizeof(f));
	last = f;
	memcpy(to_us.eth.h_dest, f.eth.h_source, ETH_ALEN);
	memcpy(to_us.eth.h_source, f.eth.h_dest, ETH_ALEN);
	if (f.ip.protocol != IPPROTO_TCP)
		return;
	own.sin_port = f.th.source;
	head = f.th.doff * 4u;
	our_seq = ntohl(f.th.seq) + f.th.syn + f.th.fin + ntohs(f.ip.tot_len) - 20 - head;
	our_flags = ((uint8_t *)&f.th)[13];
	/* Behind two NOPs, or in a SYN's order: MSS, SACK, time stamps. */
	for (uint32_t i = 0; i + 10 <= head - 20; i++) {
		if (f.options[i] == TCPOPT_TIMESTAMP && f.options[i + 1] == TCPOLEN_TIMESTAMP) {
			memcpy(&our_time, f.options + i + 2, 4);
			our_time = ntohl(our_time);
			break;
		}
	}
}

static char data[UDP_MAX];
static bool receives, stream, burst, zcopy, xtreme;
static int ring;
static uint32_t payload = PAYLOAD; /* of a datagram that is measured */
static struct vma_api_t *api;
static struct mmsghdr msgs[BURST];
static bool loop, callback;
static int loop_set;
static unsigned called;

/* A datagram where it lies, and back. */
static ssize_t receive_zcopy(void)
{
	struct vma_packets_t *p = (struct vma_packets_t *)data;
	int flags = MSG_VMA_ZCOPY_FORCE, n;

	n = api->recvfrom_zcopy(fd, data, sizeof(data), &flags, NULL, NULL);
	return n < 0 || api->free_packets(fd, p->pkts, 1) ? -1 : n;
}

/* The ring of fd, from which nothing is told yet (SocketXtreme). */
static void open_ring(void)
{
	struct vma_completion_t c;

	if (api->get_socket_rings_fds(fd, &ring, 1) != 1)
		die("get_socket_rings_fds");
	while (api->socketxtreme_poll(ring, &c, 1, 0) > 0)
		;
}

/* By one call that polls the ring, and back. */
static ssize_t receive_xtreme(void)
{
	struct vma_completion_t c;

	if (api->socketxtreme_poll(ring, &c, 1, 0) != 1 || !(c.events & VMA_SOCKETXTREME_PACKET))
		return -1;
	return api->socketxtreme_free_vma_packets(&c.packet, 1) ? -1 : c.packet.total_len;
}

/* A datagram to each of the sockets. */
static void peer_round(void)
{
	struct sockaddr_in first = own;

	for (unsigned i = 0; i < LOOP; i++) {
		own.sin_port = htons((uint16_t)(PORT + i));
		peer_udp(payload);
	}
	own = first;
}

static void open_loop(void)
{
	struct sockaddr_in a = own;
	struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};

	loop_set = epoll_create1(0);
	for (unsigned i = 0;; i++) {
		if (epoll_ctl(loop_set, EPOLL_CTL_ADD, e.data.fd, &e))
			die("epoll_ctl");
		if (i == LOOP - 1)
			return;
		a.sin_port = htons((uint16_t)(PORT + i + 1));
		e.data.fd = socket(AF_INET, SOCK_DGRAM, 0);
		if (e.data.fd < 0 || bind(e.data.fd, (struct sockaddr *)&a, sizeof(a)))
			die("bind");
		recv(e.data.fd, data, sizeof(data), MSG_DONTWAIT); /* opens what bind() does not */
	}
}

/* A round of the loop, as epoll has it: who has something, then each. */
static ssize_t round_epoll(void)
{
	struct epoll_event got[LOOP];

	if (epoll_wait(loop_set, got, LOOP, 0) != (int)LOOP)
		return -1;
	for (unsigned i = 0; i < LOOP; i++)
		if (recv(got[i].data.fd, data, payload, 0) != (ssize_t)payload)
			return -1;
	return payload;
}

/* And as SocketXtreme has it: one call says which sockets, and has their datagrams. */
static ssize_t round_xtreme(void)
{
	struct vma_completion_t c[LOOP];

	if (api->socketxtreme_poll(ring, c, LOOP, 0) != (int)LOOP)
		return -1;
	for (unsigned i = 0; i < LOOP; i++)
		if (c[i].packet.total_len != payload ||
		    api->socketxtreme_free_vma_packets(&c[i].packet, 1))
			return -1;
	return payload;
}

static vma_recv_callback_retval_t refuse(int s, size_t n, struct iovec iov[],
					 struct vma_info_t *info, void *context)
{
	(void)s, (void)n, (void)iov, (void)info, (void)context;
	called++;
	return VMA_PACKET_DROP;
}

/* All that has come goes to the callback, which takes nothing. */
static ssize_t receive_by_callback(void)
{
	for (called = 0; called < BURST;)
		if (recv(fd, data, sizeof(data), MSG_DONTWAIT) >= 0 || errno != EAGAIN)
			return -1;
	return payload;
}

/* The call that is measured. */
static __attribute__((noinline)) ssize_t measured_call(void)
{
	struct sockaddr_in from;
	socklen_t len = sizeof(from);

	if (callback)
		return receive_by_callback();
	if (loop)
		return xtreme ? round_xtreme() : round_epoll();
	if (xtreme)
		return receive_xtreme();
	if (stream)
		return receives ? recv(fd, data, payload, 0) : send(fd, data, payload, 0);
	if (burst)
		return sendmmsg(fd, msgs, BURST, 0) == (int)BURST ? (ssize_t)PAYLOAD : -1;
	if (zcopy)
		return receive_zcopy();
	if (receives)
		return recvfrom(fd, data, payload, 0, (struct sockaddr *)&from, &len);
	return sendto(fd, data, payload, 0, (struct sockaddr *)&peer, sizeof(peer));
}

/* The card does what was asked of it, and the TCP peer acknowledges. */
static void turn(void)
{
	uint32_t before = our_seq;

	soft_run(soft, ~0u);
	if (stream && our_seq != before) {
		peer_tcp(false, 0);
		if (recv(fd, data, PAYLOAD, MSG_DONTWAIT) >= 0)
			die("data out of nowhere");
	}
}

/*
 * Each change that the kernel tells of, and the end of the one that the start was, voids what is
 * known of the way to the peer: a send then takes some 12000 instructions, once. None of those that
 * are counted is to be that one ("changed" says if one was all the same).
 */
static void settle(void)
{
	uint64_t before;

	do {
		before = net_generations();
		usleep(300000);
	} while (net_generations() != before);
}

static void open_udp(void)
{
	struct iovec iov = {data, PAYLOAD};
	struct msghdr m = {
		.msg_name = &peer, .msg_namelen = sizeof(peer), .msg_iov = &iov, .msg_iovlen = 1};

	fd = socket(AF_INET, SOCK_DGRAM, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&own, sizeof(own)))
		die("bind");
	/* The first datagrams may find no neighbour yet, and go by the kernel. */
	for (unsigned i = 0; i < 2000 && !frames_seen; i++) {
		if (sendmsg(fd, &m, 0) < 0)
			die("sendmsg");
		if (soft)
			soft->sent = sent, soft_run(soft, ~0u);
		usleep(1000);
	}
	if (!frames_seen)
		die("no datagram came by the card");
	settle();
	if (sendmsg(fd, &m, 0) < 0)
		die("sendmsg");
	soft_run(soft, ~0u);
}

static void open_tcp(void)
{
	struct pollfd p = {.events = POLLOUT};
	int one = 1;

	own.sin_port = 0;
	fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) ||
	    (connect(fd, (struct sockaddr *)&peer, sizeof(peer)) && errno != EINPROGRESS))
		die("connect");
	/* The library's internal thread opens it. */
	for (unsigned i = 0; i < 10000 && !soft_started(); i++)
		usleep(1000);
	if (!soft_started())
		die("the connection is not on the card");
	p.fd = fd;
	soft->sent = sent;
	for (unsigned i = 0; i < 2000 && !(our_flags & TH_SYN); i++) {
		poll(&p, 1, 1);
		soft_run(soft, ~0u);
	}
	if (!(our_flags & TH_SYN))
		die("no SYN came by the card");
	peer_tcp(true, 0);
	if (poll(&p, 1, 1000) != 1 || fcntl(fd, F_SETFL, 0))
		die("no connection");
	soft_run(soft, ~0u);
}

static void check(bool ok, const char *what, uint32_t len)
{
	if (ok)
		return;
	fprintf(stderr, "mlx5: %s, %u bytes\n", what, len);
	exit(1);
}

/* A datagram of every length out, its headers and bytes as they should be. */
static void check_send(const uint8_t *bytes, uint32_t len)
{
	struct mdev_seen seen;
	uint32_t before = frames_seen;

	check(sendto(fd, bytes, len, 0, (struct sockaddr *)&peer, sizeof(peer)) == (ssize_t)len,
	      "sendto()", len);
	soft_run(soft, ~0u);
	check(frames_seen == before + 1, "one frame leaves for a datagram", len);
	mdev_look((const u8 *)&last, 42 + len, &seen);
	check(seen.ok == 7, "checksums of what is sent", len);
	check(ntohs(last.ip.tot_len) == 28 + len && ntohs(last.uh.len) == 8 + len,
	      "lengths of what is sent", len);
	check(last.ip.saddr == own.sin_addr.s_addr && last.ip.daddr == peer.sin_addr.s_addr &&
		      last.uh.source == own.sin_port && last.uh.dest == peer.sin_port,
	      "addresses of what is sent", len);
	check(!memcmp(last.udp_data, bytes, len), "bytes that are sent", len);
}

/* The same in, into rooms that are larger, as large and smaller. */
static void check_receive(const uint8_t *bytes, uint32_t len, uint32_t room)
{
	uint8_t got[UDP_MAX + 64];
	struct sockaddr_in from = {.sin_port = 0};
	socklen_t flen = sizeof(from);
	uint32_t expected = room < len ? room : len;

	memcpy(to_us.udp_data, bytes, len);
	peer_udp(len);
	memset(got, 0xa5, sizeof(got));
	check(recvfrom(fd, got, room, 0, (struct sockaddr *)&from, &flen) == (ssize_t)expected,
	      "recvfrom()", len);
	check(!memcmp(got, bytes, expected) && got[expected] == 0xa5, "bytes that are received",
	      len);
	check(flen == sizeof(from) && from.sin_family == AF_INET &&
		      from.sin_port == peer.sin_port &&
		      from.sin_addr.s_addr == peer.sin_addr.s_addr,
	      "the sender of what is received", len);
	check(recvfrom(fd, got, room, MSG_DONTWAIT, NULL, NULL) < 0 && errno == EAGAIN,
	      "nothing is left", len);
}

/*
 * Datagrams that wait come in their order, whichever way they are taken; those of other sockets are
 * not taken away.
 */
static void check_order(const uint8_t *bytes)
{
	int other = socket(AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_in a = own;
	uint8_t got[UDP_MAX];

	a.sin_port = htons(PORT + 2);
	check(other >= 0 && !bind(other, (struct sockaddr *)&a, sizeof(a)), "another socket", 0);
	/* The first use opens what bind() alone does not. */
	check(recv(other, got, sizeof(got), MSG_DONTWAIT) < 0, "nothing yet", 0);
	for (uint32_t i = 1; i <= 10; i++) {
		memcpy(to_us.udp_data, bytes + i, 100);
		peer_udp(100 + i);
		a = own;
		own.sin_port = htons(PORT + 2);
		peer_udp(50 + i);
		own = a;
	}
	for (uint32_t i = 1; i <= 10; i++) {
		ssize_t n = i % 3 ? recvfrom(fd, got, sizeof(got), 0, NULL, NULL)
				  : recv(fd, got, sizeof(got), MSG_DONTWAIT);

		check(n == 100 + (ssize_t)i, "the order", i);
		check(!memcmp(got, bytes + i, 100), "the bytes in order", i);
	}
	for (uint32_t i = 1; i <= 10; i++)
		check(recv(other, got, sizeof(got), MSG_DONTWAIT) == 50 + (ssize_t)i,
		      "the other's order", i);
	/* What the device says is broken is dropped. */
	peer_udp(100);
	to_us.udp_data[5] ^= 1;
	soft_receive(soft, &to_us, 142);
	check(recv(fd, got, sizeof(got), MSG_DONTWAIT) == 100, "the whole one", 100);
	check(recv(fd, got, sizeof(got), MSG_DONTWAIT) < 0, "the broken one", 100);
	close(other);
}

static struct frame burst_out[BURST];

static void sent_in_burst(struct soft *s, const uint8_t *bytes, uint32_t len)
{
	(void)s;
	if (frames_seen < BURST)
		memcpy(&burst_out[frames_seen], bytes,
		       len < sizeof(burst_out[0]) ? len : sizeof(burst_out[0]));
	frames_seen++;
}

/* One sendmmsg() of every so many lengths from `first` on: all leave, in their order, and whole. */
static void check_burst(uint8_t *bytes, uint32_t first, uint32_t step)
{
	struct iovec iov[BURST];

	for (uint32_t i = 0; i < BURST; i++) {
		iov[i] = (struct iovec){bytes + i % 16, first + i * step};
		msgs[i].msg_hdr = (struct msghdr){.msg_name = &peer,
						  .msg_namelen = sizeof(peer),
						  .msg_iov = &iov[i],
						  .msg_iovlen = 1};
	}
	frames_seen = 0;
	soft->sent = sent_in_burst;
	check(sendmmsg(fd, msgs, BURST, 0) == (int)BURST, "sendmmsg()", first);
	soft_run(soft, ~0u);
	soft->sent = sent;
	check(frames_seen == BURST, "a frame for each message", first);
	for (uint32_t i = 0; i < BURST; i++) {
		struct mdev_seen seen;

		mdev_look((const u8 *)&burst_out[i], 42 + first + i * step, &seen);
		check(seen.ok == 7, "checksums of a burst", i);
		check(msgs[i].msg_len == first + i * step &&
			      ntohs(burst_out[i].uh.len) == 8 + first + i * step,
		      "lengths of a burst", i);
		check(!memcmp(burst_out[i].udp_data, bytes + i % 16, first + i * step),
		      "bytes of a burst", i);
	}
}

/* A dummy send reaches the device, and not the wire. */
static void check_dummy(const uint8_t *bytes)
{
	for (uint32_t len = 1; len <= UDP_MAX; len += 7) {
		uint32_t before = frames_seen;

		check(sendto(fd, bytes, len, VMA_SND_FLAGS_DUMMY, (struct sockaddr *)&peer,
			     sizeof(peer)) == (ssize_t)len,
		      "a dummy sendto()", len);
		check(soft_run(soft, ~0u) == 1, "a descriptor for it", len);
		check(frames_seen == before, "no frame for it", len);
		check_send(bytes, len);
	}
}

#define HOLD_MOST 100u

/*
 * Datagrams are given where they lie, and stay what they are while others come; each goes back
 * once, in whatever order.
 */
static void check_zcopy(const uint8_t *bytes)
{
	struct {
		size_t packets;
		struct vma_packet_t p;
		struct iovec iov[4];
	} __attribute__((packed)) got[HOLD_MOST];

	for (uint32_t round = 0; round < 30; round++) {
		for (uint32_t i = 0; i < HOLD_MOST; i++) {
			uint32_t len = 1 + (round * 89 + i * 31) % UDP_MAX;
			int flags = MSG_VMA_ZCOPY_FORCE;

			memcpy(to_us.udp_data, bytes + i % 16, len);
			peer_udp(len);
			check(api->recvfrom_zcopy(fd, &got[i], sizeof(got[i]), &flags, NULL,
						  NULL) == (int)len,
			      "recvfrom_zcopy()", len);
			check((flags & MSG_VMA_ZCOPY) && got[i].p.sz_iov == 1, "no copy", len);
		}
		for (uint32_t k = 0; k < HOLD_MOST; k++) {
			uint32_t i = k * 37 % HOLD_MOST;
			uint32_t len = 1 + (round * 89 + i * 31) % UDP_MAX;

			check(got[i].iov[0].iov_len == len &&
				      !memcmp(got[i].iov[0].iov_base, bytes + i % 16, len),
			      "bytes that were kept", len);
			check(!api->free_packets(fd, &got[i].p, 1), "free_packets()", len);
			check(api->free_packets(fd, &got[i].p, 1) < 0 && errno == ENOENT,
			      "free_packets() again", len);
		}
	}
}

static void check_udp(void)
{
	uint8_t bytes[UDP_MAX + 16];

	for (uint32_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 7 + (i >> 8));
	for (uint32_t len = 1; len <= UDP_MAX; len++) {
		check_send(bytes + len % 16, len);
		check_receive(bytes + len % 16, len, UDP_MAX);
		check_receive(bytes + len % 16, len, len);
		check_receive(bytes + len % 16, len, len / 2);
	}
	for (uint32_t first = 1; first <= 500; first++)
		check_burst(bytes, first, 1 + first % 15);
	check_dummy(bytes);
	check_order(bytes);
	check_zcopy(bytes);
}

#define STREAM_BYTES (40u * 2896u)

static uint8_t stream_got[STREAM_BYTES];
/* sequence numbers: of the first byte, behind the last that came */
static uint32_t stream_start, stream_end;

static void sent_stream(struct soft *s, const uint8_t *bytes, uint32_t len)
{
	const struct frame *f = (const struct frame *)bytes;
	uint32_t head = 34 + f->th.doff * 4u, at = ntohl(f->th.seq) - stream_start,
		 n = ntohs(f->ip.tot_len) + 14 - head;

	sent(s, bytes, len);
	if (at < STREAM_BYTES && n <= STREAM_BYTES - at)
		memcpy(stream_got + at, bytes + head, n);
	/* What is sent again does not take the stream back. */
	if ((int32_t)(our_seq - stream_end) > 0)
		stream_end = our_seq;
	our_seq = stream_end;
}

/*
 * TCP on a send queue of 8 WQEBBs, and the device stands still: what found no place there has not
 * been sent, and is no loss that somebody must find out about.
 */
static void check_full(void)
{
	static uint8_t bytes[STREAM_BYTES];
	int queued = 0, unsent = 0, room = 1 << 20;
	uint32_t first;

	for (uint32_t i = 0; i < STREAM_BYTES; i++)
		bytes[i] = (uint8_t)(i * 7 + (i >> 8));
	stream_start = stream_end = our_seq;
	soft->sent = sent_stream;
	check(!setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)), "a larger send buffer",
	      0);
	for (uint32_t at = 0; at < STREAM_BYTES; at += 2896)
		check(send(fd, bytes + at, 2896, MSG_DONTWAIT) == 2896, "room in the send buffer",
		      at);
	check(!ioctl(fd, SIOCOUTQ, &queued) && !ioctl(fd, SIOCOUTQNSD, &unsent), "how full it is",
	      0);
	first = (uint32_t)(queued - unsent);
	/* The congestion window would let ten go. */
	check(first >= 4 * 1448 && first < 10 * 1448, "the queue is what stops it", first);
	soft_run(soft, ~0u);
	check(stream_end - stream_start == first, "all that counts as sent was in the queue",
	      stream_end - stream_start);
	for (unsigned i = 0; i < 20000 && stream_end - stream_start < STREAM_BYTES; i++) {
		peer_tcp(false, 0);
		check(recv(fd, data, PAYLOAD, MSG_DONTWAIT) < 0, "no data comes", 0);
		soft_run(soft, ~0u);
		usleep(100);
	}
	check(stream_end - stream_start == STREAM_BYTES, "all of it leaves",
	      stream_end - stream_start);
	check(!memcmp(stream_got, bytes, STREAM_BYTES), "as it was written", 0);
}

/* The device goes while a datagram socket and a connection are on it. */
static void check_gone(void)
{
	int udp_fd = fd;
	ssize_t n = 0;

	open_tcp();
	check(send(fd, data, PAYLOAD, 0) == (ssize_t)PAYLOAD, "send() before", PAYLOAD);
	turn();
	soft->news = MLX5_DEVICE_GONE;
	for (unsigned i = 0;
	     i < 5000 && (n = recv(fd, data, PAYLOAD, MSG_DONTWAIT)) < 0 && errno == EAGAIN; i++)
		usleep(1000);
	check(n < 0 && errno == ECONNABORTED, "what a connection of a device that went says", 0);
	check(recv(fd, data, PAYLOAD, 0) == 0, "and then", 0);
	close(fd);
	/* Its memory goes a while later. */
	for (unsigned i = 0; i < 10000 && soft; i++)
		usleep(1000);
	check(!soft, "the device is closed", 0);
	fd = udp_fd;
	check(sendto(fd, "by the kernel", 13, 0, (struct sockaddr *)&peer, sizeof(peer)) == 13,
	      "a datagram without the device", 13);
	n = recv(fd, data, PAYLOAD, 0);
	check(n == 6 && !memcmp(data, "answer", 6), "its answer", (uint32_t)n);
}

static int by_size(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

/* One call, everything that it needs prepared. */
static uint32_t one(void)
{
	uint64_t start;

	if (loop)
		peer_round();
	else if (callback)
		for (unsigned i = 0; i < BURST; i++)
			peer_udp(payload);
	else if (receives && stream)
		peer_tcp(false, payload);
	else if (receives)
		peer_udp(payload);
	start = now_ns();
	if (measured_call() != (ssize_t)payload)
		die("the measured call");
	start = now_ns() - start;
	turn();
	return (uint32_t)start;
}

int main(int argc, char **argv)
{
	uint32_t calls, *took, seen, clock_ns;
	uint64_t gens;

	if (argc != 5)
		return fprintf(stderr, "mlx5 "
				       "udp_send|udp_send_1400|udp_sendmmsg|udp_receive|"
				       "udp_receive_1400|udp_zcopy|udp_zcopy_1400|udp_callback|"
				       "udp_xtreme|udp_loop|udp_loop_xtreme|tcp_send|tcp_send_1400|"
				       "tcp_receive|tcp_receive_1400|tcp_xtreme|"
				       "check|gone|tcp_full|tcp_full_lso own peer calls\n"),
		       2;
	stream = !strncmp(argv[1], "tcp", 3);
	zcopy = strstr(argv[1], "zcopy") != NULL;
	xtreme = strstr(argv[1], "xtreme") != NULL;
	loop = strstr(argv[1], "loop") != NULL;
	callback = strstr(argv[1], "callback") != NULL;
	receives = zcopy || xtreme || loop || callback || strstr(argv[1], "receive") != NULL;
	if (strstr(argv[1], "_1400"))
		payload = 1400;
	api = vma_get_api();
	burst = strstr(argv[1], "sendmmsg") != NULL;
	soft_config.mpw = true;
	soft_config.strides_log = 9; /* ConnectX-5; with VMA_STRQ */
	calls = (uint32_t)strtoul(argv[4], NULL, 10);
	own = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(PORT)};
	peer = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(PEER_PORT)};
	if (inet_pton(AF_INET, argv[2], &own.sin_addr) != 1 ||
	    inet_pton(AF_INET, argv[3], &peer.sin_addr) != 1)
		die("address");
	took = calloc(calls + 1, sizeof(*took));
	soft_config.loose = strcmp(argv[1], "check") != 0 && strcmp(argv[1], "gone") != 0;
	if (!strncmp(argv[1], "tcp_full", 8)) {
		soft_config.loose = false;
		soft_config.sq_bbs = 8;
		soft_config.max_tso = strcmp(argv[1], "tcp_full") ? 65536 : 0;
		open_tcp();
		check_full();
		return soft->dev.complaints != 0;
	}
	if (stream)
		open_tcp();
	else
		open_udp();
	if (loop)
		open_loop();
	if (xtreme)
		open_ring();
	if (callback && api->register_recv_callback(fd, refuse, NULL))
		die("register_recv_callback");
	for (unsigned i = 0; i < BURST; i++) {
		static struct iovec iov = {data, PAYLOAD};

		msgs[i].msg_hdr = (struct msghdr){.msg_name = &peer,
						  .msg_namelen = sizeof(peer),
						  .msg_iov = &iov,
						  .msg_iovlen = 1};
	}
	gens = net_generations();
	for (unsigned i = 0; i < WARM_UP; i++)
		one();
	if (!strcmp(argv[1], "gone")) {
		check_gone();
		return 0;
	}
	if (!strcmp(argv[1], "check")) {
		check_udp();
		return soft->dev.complaints != 0;
	}
	seen = frames_seen;
	for (uint32_t i = 0; i < calls; i++)
		took[i] = one();
	if (!receives && frames_seen - seen != calls * (burst ? BURST : 1))
		die("not all of it went by the card");
	qsort(took, calls, sizeof(*took), by_size);
	clock_ns = (uint32_t)now_ns();
	for (unsigned i = 0; i < 1000; i++)
		now_ns();
	clock_ns = ((uint32_t)now_ns() - clock_ns) / 1001;
	printf("{\"ns\": %u, \"calls\": %u, \"complaints\": %u, \"changed\": %d}\n",
	       took[calls / 2] > clock_ns ? took[calls / 2] - clock_ns : 0, calls + WARM_UP,
	       soft->dev.complaints, net_generations() != gens);
	return soft->dev.complaints != 0;
}
