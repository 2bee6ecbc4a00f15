/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * rings <address> <port> <peer address>: a datagram socket with a ring of its own. Prints what the
 * socket receives and sends by, the headers of its packets, and what the ring says to calls that
 * only a ConnectX card serves. Then it sleeps on the ring until the peer has sent something.
 *
 *   gcc -o rings rings.c && LD_PRELOAD=libvma.so ./rings 192.0.2.1 7000 192.0.2.2
 */
#include <arpa/inet.h>
#include <errno.h>
#include <mellanox/vma_extra.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

/* One that no other socket has. It is said before the socket is used. */
static void own_ring(int fd)
{
	struct vma_ring_alloc_logic_attr logic = {
		.ring_alloc_logic = RING_LOGIC_PER_SOCKET, .ingress = 1, .engress = 1};

	logic.comp_mask = VMA_RING_ALLOC_MASK_RING_INGRESS | VMA_RING_ALLOC_MASK_RING_ENGRESS;
	check(!setsockopt(fd, SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, &logic, sizeof(logic)),
	      "SO_VMA_RING_ALLOC_LOGIC");
}

static int open_socket(char **argv)
{
	struct sockaddr_in me = {.sin_family = AF_INET}, peer;
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	me.sin_port = htons((uint16_t)atoi(argv[2]));
	peer = me;
	check(inet_pton(AF_INET, argv[1], &me.sin_addr) == 1, argv[1]);
	check(inet_pton(AF_INET, argv[3], &peer.sin_addr) == 1, argv[3]);
	check(!bind(fd, (struct sockaddr *)&me, sizeof(me)), "bind");
	own_ring(fd);
	check(!connect(fd, (struct sockaddr *)&peer, sizeof(peer)), "connect");
	return fd;
}

/* The neighbour may not be known before something was sent to it. */
static void print_header(struct vma_api_t *api, int fd)
{
	unsigned char header[64];
	uint16_t len = sizeof(header);

	while (api->get_socket_network_header(fd, header, &len)) {
		check(errno == ENOTCONN, "get_socket_network_header");
		check(send(fd, "hello", 5, 0) == 5, "send");
		poll(NULL, 0, 10);
		len = sizeof(header);
	}
	printf("header of %u bytes: ", len);
	for (unsigned i = 0; i < len; i++)
		printf("%02x", header[i]);
	printf("\n");
}

static void card_calls(struct vma_api_t *api, int ring)
{
	struct vma_modify_ring_attr slow = {.comp_bit_mask = VMA_MODIFY_RING_CQ_MODERATION,
					    .ring_fd = ring,
					    .cq_moderation = {8, 50}};
	struct vma_mlx_hw_device_data queues;
	static char memory[4096];
	uint32_t key;

#define TRY(call, ...) printf(#call ": %s\n", api->call(__VA_ARGS__) ? strerror(errno) : "done")
	TRY(vma_modify_ring, &slow);
	TRY(get_ring_direct_descriptors, ring, &queues);
	TRY(register_memory_on_ring, ring, memory, sizeof(memory), &key);
	TRY(deregister_memory_on_ring, ring, memory, sizeof(memory));
}

/* The socket, too: it has what the library took off the ring, and what the kernel brings. */
static void sleep_on(struct vma_api_t *api, int ring, int fd)
{
	struct vma_modify_ring_attr arm = {.comp_bit_mask = VMA_MODIFY_RING_CQ_ARM,
					   .ring_fd = ring};
	struct pollfd p[] = {{.fd = ring, .events = POLLIN}, {.fd = fd, .events = POLLIN}};

	if (!api->vma_modify_ring(&arm)) /* nothing waits already */
		poll(p, 2, 1000);
}

int main(int argc, char **argv)
{
	struct vma_api_t *api = vma_get_api();
	int fd, n, fds[16];
	char data[2000];
	ssize_t got;

	if (argc != 4 || !api) {
		fprintf(stderr, "LD_PRELOAD=libvma.so rings <address> <port> <peer address>\n");
		return 2;
	}
	fd = open_socket(argv);
	n = api->get_socket_rings_fds(fd, fds, 16);
	check(n > 0, "get_socket_rings_fds");
	print_header(api, fd);
	printf("%d of %d rings: receives by %d, sends by %d\n", n, api->get_socket_rings_num(fd),
	       fds[0], api->get_socket_tx_ring_fd(fd, NULL, 0));
	card_calls(api, fds[0]);
	printf("ready\n");
	fflush(stdout);
	while ((got = recv(fd, data, sizeof(data), MSG_DONTWAIT)) < 0)
		sleep_on(api, fds[0], fd);
	printf("received: %.*s\n", (int)got, data);
	return 0;
}
