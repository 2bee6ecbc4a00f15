/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * aio how ADDRESS PORT: talks by requests to a server that answers each line, on a socket that was
 * used by calls before. how: posix (aio(7)), list (lio_listio()), call (the function io_submit(),
 * where a library has it), number (syscall()), poll (the kernel waits for it). What it sees goes to
 * standard output, the same on kernel sockets and with the library.
 */
#include <aio.h>
#include <arpa/inet.h>
#include <errno.h>
#include <linux/aio_abi.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CHECK(x)                                                                                   \
	do {                                                                                       \
		if (!(x)) {                                                                        \
			printf("line %d: %s: %s\n", __LINE__, #x, strerror(errno));                \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

/* libaio's; without one it is the system call. */
int io_submit(aio_context_t ring, long n, struct iocb **list) __attribute__((weak));

static aio_context_t ring;
static const char *how;
static char answer[64];

static void by_calls(int fd, const char *line)
{
	memset(answer, 0, sizeof(answer));
	CHECK(send(fd, line, strlen(line), 0) == (ssize_t)strlen(line));
	CHECK(recv(fd, answer, sizeof(answer) - 1, 0) > 0);
	printf("by calls: %s", answer);
}

static ssize_t by_the_kernel(int fd, int what, const void *buf, size_t len)
{
	struct iocb request = {.aio_fildes = (uint32_t)fd,
			       .aio_lio_opcode = (uint16_t)what,
			       .aio_buf = (uintptr_t)buf,
			       .aio_nbytes = len},
		    *list[] = {&request};
	struct timespec limit = {10, 0};
	struct io_event end = {0};

	CHECK((strcmp(how, "call") == 0 && io_submit
		       ? io_submit(ring, 1, list)
		       : (int)syscall(SYS_io_submit, ring, 1, list)) == 1);
	CHECK(syscall(SYS_io_getevents, ring, 1, 1, &end, &limit) == 1);
	return end.res;
}

static ssize_t by_libc(int fd, int what, const void *buf, size_t len)
{
	struct aiocb request = {.aio_fildes = fd,
				.aio_lio_opcode = what,
				.aio_buf = (void *)(uintptr_t)buf,
				.aio_nbytes = len},
		     *list[] = {NULL, &request};
	const struct aiocb *one[] = {&request};

	if (strcmp(how, "list") == 0)
		CHECK(!lio_listio(LIO_NOWAIT, list, 2, NULL));
	else
		CHECK(!(what == LIO_READ ? aio_read(&request) : aio_write(&request)));
	while (aio_error(&request) == EINPROGRESS)
		aio_suspend(one, 1, NULL);
	return aio_return(&request);
}

static void by_requests(int fd, const char *line)
{
	bool libc = strcmp(how, "posix") == 0 || strcmp(how, "list") == 0;
	ssize_t (*move)(int, int, const void *, size_t) = libc ? by_libc : by_the_kernel;

	memset(answer, 0, sizeof(answer));
	CHECK(move(fd, libc ? LIO_WRITE : IOCB_CMD_PWRITE, line, strlen(line)) ==
	      (ssize_t)strlen(line));
	CHECK(move(fd, libc ? LIO_READ : IOCB_CMD_PREAD, answer, sizeof(answer) - 1) > 0);
	printf("by requests: %s", answer);
}

int main(int argc, char **argv)
{
	struct sockaddr_in server = {.sin_family = AF_INET};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	CHECK(argc == 4);
	how = argv[1];
	server.sin_port = htons((uint16_t)atoi(argv[3]));
	CHECK(inet_pton(AF_INET, argv[2], &server.sin_addr) == 1);
	CHECK(!connect(fd, (struct sockaddr *)&server, sizeof(server)));
	CHECK(!syscall(SYS_io_setup, 4, &ring));
	by_calls(fd, "first\n");
	if (strcmp(how, "poll") == 0) {
		CHECK(send(fd, "polled\n", 7, 0) == 7);
		CHECK(by_the_kernel(fd, IOCB_CMD_POLL, (void *)(uintptr_t)POLLIN, 0) & POLLIN);
		by_calls(fd, "");
	}
	by_requests(fd, "second\n");
	by_calls(fd, "third\n");
	return 0;
}
