/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * tcp_small_stack address port: a thread with the smallest stack that pthreads allow reads four
 * bytes that come in pieces, writes 4 MiB, sends as much of a file, moves a page of a pipe to the
 * connection and four bytes back, by calls that have to wait. Ends with 0 when all of it was done.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define PIECES 64

#define PAGE 4096

static char piece[(4 << 20) / PIECES];
static int file, ends[2];

/* These have room for whole datagrams meanwhile. */
static const char *moved_by_the_kernel(int fd)
{
	static char back[4];
	size_t left = 4 << 20;

	while (left) {
		ssize_t n = sendfile(fd, file, NULL, left);

		if (n <= 0)
			return "sendfile";
		left -= (size_t)n;
	}
	if (write(ends[1], piece, PAGE) != PAGE || splice(ends[0], NULL, fd, NULL, PAGE, 0) != PAGE)
		return "splice to the connection";
	if (splice(fd, NULL, ends[1], NULL, 4, 0) != 4 || read(ends[0], back, 4) != 4 ||
	    memcmp(back, "efgh", 4) != 0)
		return "splice from the connection";
	return NULL;
}

static void *work(void *arg)
{
	static struct iovec in[4], out[PIECES];
	struct msghdr msg = {.msg_iov = in, .msg_iovlen = 4};
	static char room[4];
	int fd = *(int *)arg;

	for (int i = 0; i < 4; i++)
		in[i] = (struct iovec){&room[i], 1};
	for (int i = 0; i < PIECES; i++)
		out[i] = (struct iovec){piece, sizeof(piece)};
	if (recvmsg(fd, &msg, MSG_WAITALL) != 4 || memcmp(room, "abcd", 4) != 0)
		return "recvmsg";
	if (writev(fd, out, PIECES) != 4 << 20)
		return "writev";
	return (void *)(uintptr_t)moved_by_the_kernel(fd);
}

int main(int argc, char **argv)
{
	struct sockaddr_in to = {.sin_family = AF_INET};
	const char *failed = "connect";
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	pthread_attr_t attr;
	pthread_t thread;

	if (argc != 3 || inet_pton(AF_INET, argv[1], &to.sin_addr) != 1)
		return 2;
	to.sin_port = htons((uint16_t)atoi(argv[2]));
	file = fileno(tmpfile());
	if (ftruncate(file, 4 << 20) || pipe(ends))
		return 2;
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0) {
		pthread_attr_init(&attr);
		pthread_attr_setstacksize(&attr, (size_t)sysconf(_SC_THREAD_STACK_MIN));
		if (pthread_create(&thread, &attr, work, &fd) ||
		    pthread_join(thread, (void **)&failed))
			failed = "pthread_create";
	}
	if (failed)
		fprintf(stderr, "%s failed\n", failed);
	return failed != NULL;
}
