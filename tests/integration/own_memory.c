/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * own_memory <address> <port> [none]: a program that gives the library its own allocator by ioctl()
 * of the Extra API, then receives datagrams without a copy, and one connection's data. Says "given
 * <KiB>" when it is asked for memory, "back <which>" when it gets some back, and of what it reads
 * "<bytes> in <which>", or "elsewhere". A datagram "fork" makes a child that looks at the memory
 * and ends, "end" ends the program. With "none" there is no memory.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mellanox/vma_extra.h"

#define PIECES_MAX 16

static struct {
	char *begin;
	size_t bytes;
} pieces[PIECES_MAX];
static int num_pieces, none;
static struct vma_api_t *api;

static void check(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

static void say(const char *text)
{
	printf("%s\n", text);
	fflush(stdout);
}

/* Behind some bytes, as of an allocator whose memory begins anywhere. */
static void *give(size_t bytes)
{
	char text[64], *p = none ? MAP_FAILED
				 : mmap(NULL, bytes + 48, PROT_READ | PROT_WRITE,
					MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	snprintf(text, sizeof(text), "given %zu", bytes >> 10);
	say(text);
	if (p == MAP_FAILED || num_pieces == PIECES_MAX)
		return NULL;
	pieces[num_pieces].begin = p + 48;
	pieces[num_pieces++].bytes = bytes;
	return p + 48;
}

static int piece_of(const char *at)
{
	for (int i = 0; i < num_pieces; i++)
		if (at >= pieces[i].begin && at < pieces[i].begin + pieces[i].bytes)
			return i;
	return -1;
}

static void take_back(void *p)
{
	int i = piece_of(p);
	char text[64];

	snprintf(text, sizeof(text), "back %d%s", i,
		 i >= 0 && p == pieces[i].begin ? "" : ", which is none");
	say(text);
	if (i < 0)
		return;
	munmap(pieces[i].begin - 48, pieces[i].bytes + 48);
	/* The next one may lie there. */
	pieces[i].bytes = 0;
}

/* 0, or errno. */
static int ask(int level, int type, uint8_t flags, void *(*alloc)(size_t), void (*release)(void *),
	       size_t shorter)
{
	struct vma_cmsg_ioctl_user_alloc_t data = {flags, alloc, release};
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(data))];
	} c;

	memset(&c, 0, sizeof(c));
	c.head.cmsg_level = level;
	c.head.cmsg_type = type;
	c.head.cmsg_len = CMSG_LEN(sizeof(data)) - shorter;
	memcpy(CMSG_DATA(&c.head), &data, sizeof(data));
	return api->ioctl(&c, c.head.cmsg_len) ? errno : 0;
}

#define RX VMA_IOCTL_USER_ALLOC_FLAG_RX
#define TX VMA_IOCTL_USER_ALLOC_FLAG_TX
#define ASK(flags, alloc, release)                                                                 \
	ask(SOL_SOCKET, CMSG_VMA_IOCTL_USER_ALLOC, flags, alloc, release, 0)

/* What none of them changes: the last one that was right holds. */
static void ask_wrongly(void)
{
	char two[2 * CMSG_SPACE(sizeof(struct vma_cmsg_ioctl_user_alloc_t))] = {0};
	struct cmsghdr *c = (struct cmsghdr *)two;
	int short_end, nothing;

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = CMSG_VMA_IOCTL_USER_ALLOC;
	c->cmsg_len = CMSG_LEN(sizeof(struct vma_cmsg_ioctl_user_alloc_t));
	short_end = api->ioctl(two, c->cmsg_len - 1) ? errno : 0;
	nothing = api->ioctl(two, 3) ? errno : 0;
	printf("wrong: %d %d %d %d %d %d %d %d %d %d\n",
	       ask(SOL_SOCKET, CMSG_VMA_IOCTL_USER_ALLOC, RX, malloc, free, 1),
	       ask(SOL_IP, CMSG_VMA_IOCTL_USER_ALLOC, RX, malloc, free, 0),
	       ask(SOL_SOCKET, CMSG_VMA_IOCTL_USER_ALLOC + 1, RX, malloc, free, 0),
	       ASK(RX, NULL, free), ASK(RX, malloc, NULL), ASK(0, malloc, free),
	       ASK(4 | RX, malloc, free), short_end, nothing, api->ioctl(NULL, 32) ? errno : 0);
}

/* 0: nothing is where the packet lay, and the child has what else the program had there. */
static int look(char *packet)
{
	char *page = (char *)((uintptr_t)packet & ~4095ul), *begin;

	begin = pieces[piece_of(packet)].begin;
	return msync(page, 4096, MS_ASYNC) == 0 ? 1 : *(begin - 1) != 0 ? 2 : 0;
}

static void told(const char *what, size_t n, const char *at)
{
	int i = piece_of(at);

	printf("%s: %zu bytes ", what, n);
	if (i < 0)
		say("elsewhere");
	else
		printf("in %d\n", i), fflush(stdout);
}

/* Returns 0 when that was the last one. */
static int datagram(int u)
{
	char buf[512];
	struct vma_packets_t *p = (struct vma_packets_t *)buf;
	struct sockaddr_in from;
	socklen_t len = sizeof(from);
	int flags = 0, goes_on, status;
	ssize_t n =
		api->recvfrom_zcopy(u, buf, sizeof(buf), &flags, (struct sockaddr *)&from, &len);
	char *data = flags & MSG_VMA_ZCOPY ? p->pkts[0].iov[0].iov_base : buf;

	check(n > 0, "recvfrom_zcopy");
	told("datagram", (size_t)n, data);
	if (n == 4 && !memcmp(data, "fork", 4)) {
		pid_t pid = fork();

		if (!pid)
			_exit(look(data));
		check(waitpid(pid, &status, 0) == pid, "waitpid");
		printf("child %d\n", status);
	}
	goes_on = n != 3 || memcmp(data, "end", 3);
	check(sendto(u, data, (size_t)n, 0, (struct sockaddr *)&from, len) == n, "sendto");
	if (flags & MSG_VMA_ZCOPY)
		check(!api->free_packets(u, p->pkts, 1), "free_packets");
	return goes_on;
}

/* Answers with what comes. */
static void stream(int l)
{
	static char buf[65536];
	int c = accept(l, NULL, NULL);
	ssize_t n;

	check(c >= 0, "accept");
	while ((n = recv(c, buf, sizeof(buf), 0)) > 0)
		check(send(c, buf, (size_t)n, 0) == n, "send");
	close(c);
	say("stream");
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	struct pollfd p[2];

	if (argc < 3)
		return 2;
	none = argc > 3;
	a.sin_port = htons((uint16_t)atoi(argv[2]));
	inet_pton(AF_INET, argv[1], &a.sin_addr);
	api = vma_get_api();
	if (!api || !(api->vma_extra_supported_mask & VMA_EXTRA_API_IOCTL))
		return 3;
	/* One after the other: the last one holds. */
	printf("right: %d", ASK(TX, malloc, free));
	printf(" %d", ASK(TX | RX, malloc, free));
	printf(" %d\n", ASK(RX, give, take_back));
	ask_wrongly();
	p[0].fd = socket(AF_INET, SOCK_DGRAM, 0);
	printf("late: %d\n", ASK(RX, malloc, free));
	p[1].fd = socket(AF_INET, SOCK_STREAM, 0);
	check(!bind(p[0].fd, (struct sockaddr *)&a, sizeof(a)), "bind");
	check(!bind(p[1].fd, (struct sockaddr *)&a, sizeof(a)), "bind");
	check(!listen(p[1].fd, 5), "listen");
	p[0].events = p[1].events = POLLIN;
	poll(p, 2, 0);
	say("ready");
	for (;;) {
		check(poll(p, 2, -1) >= 0 || errno == EINTR, "poll");
		if (p[1].revents & POLLIN)
			stream(p[1].fd);
		if (p[0].revents & POLLIN && !datagram(p[0].fd))
			break;
	}
	say("the end");
	return 0;
}
