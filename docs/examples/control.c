/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * control <address> <port>: three datagram sockets at <port>, <port> + 1 and <port> + 2. The first
 * one is offloaded, the second one a rule leaves to the kernel, the third one its thread. Each
 * receives one datagram; then the counters of the first one go to the log.
 *
 *   gcc -o control control.c && LD_PRELOAD=libvma.so ./control 192.0.2.1 7000
 */
#include <arpa/inet.h>
#include <mellanox/vma_extra.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define LEVEL_INFO 3

static void check(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

static int open_socket(const char *address, int port)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	check(inet_pton(AF_INET, address, &at.sin_addr) == 1, address);
	check(fd >= 0 && !bind(fd, (struct sockaddr *)&at, sizeof(at)), "socket");
	return fd;
}

/* What the kernel has is no socket of the library's, or one without a ring. */
static void print_who(struct vma_api_t *api, int port, int fd)
{
	printf("%d: %s\n", port, api->get_socket_rings_num(fd) > 0 ? "offloaded" : "the kernel's");
}

static void add_rule(struct vma_api_t *api, int port)
{
	char rule[64];

	snprintf(rule, sizeof(rule), "use os udp_receiver *:%d", port);
	check(!api->add_conf_rule(rule), rule);
}

static void print_one(int port, int fd)
{
	char data[2000];
	ssize_t n = recv(fd, data, sizeof(data), 0);

	check(n >= 0, "recv");
	printf("%d received: %.*s\n", port, (int)n, data);
}

int main(int argc, char **argv)
{
	struct vma_api_t *api = vma_get_api();
	int fd[3], port;

	if (argc != 3 || !api) {
		fprintf(stderr, argc != 3 ? "usage: control <address> <port>\n"
					  : "control: libvma.so is not preloaded\n");
		return 2;
	}
	port = atoi(argv[2]);
	/* Both count for sockets that are made, or bound, from now on. */
	add_rule(api, port + 1);
	check(!api->thread_offload(0, pthread_self()), "thread_offload");
	fd[2] = open_socket(argv[1], port + 2);
	check(!api->thread_offload(1, pthread_self()), "thread_offload");
	fd[0] = open_socket(argv[1], port);
	fd[1] = open_socket(argv[1], port + 1);
	for (int i = 0; i < 3; i++)
		print_who(api, port + i, fd[i]);
	printf("ready\n");
	fflush(stdout);
	for (int i = 0; i < 3; i++)
		print_one(port + i, fd[i]);
	fflush(stdout);
	check(!api->dump_fd_stats(fd[0], LEVEL_INFO), "dump_fd_stats");
	return 0;
}
