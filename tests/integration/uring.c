/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * uring how ADDRESS PORT: talks over io_uring to a server that answers each line, on sockets that
 * were used by calls before. how: submit, files (registered), poll, set (of epoll), splice (into a
 * registered pipe), raw (a ring made by a bare system call). What it sees goes to standard output,
 * the same on kernel sockets and with the library.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
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

static struct io_uring ring;
static struct sockaddr_in server;

/* What the entry that was handed over has come to. */
static int finished(const char *what)
{
	struct __kernel_timespec limit = {10, 0};
	struct io_uring_cqe *cqe;
	int res;

	CHECK(!io_uring_wait_cqe_timeout(&ring, &cqe, &limit));
	res = cqe->res;
	io_uring_cqe_seen(&ring, cqe);
	printf("%s: %s\n", what, res < 0 ? strerror(-res) : "done");
	return res;
}

static int done(const char *what)
{
	CHECK(io_uring_submit(&ring) == 1);
	return finished(what);
}

static void by_calls(int fd, const char *line)
{
	char answer[64] = "";

	CHECK(send(fd, line, strlen(line), 0) == (ssize_t)strlen(line));
	CHECK(recv(fd, answer, sizeof(answer) - 1, 0) > 0);
	printf("by calls: %s", answer);
}

/* fd: a descriptor, or an index of registered ones. */
static void by_ring(int fd, const char *line, unsigned flags)
{
	struct io_uring_sqe *e = io_uring_get_sqe(&ring);
	char answer[64] = "";

	io_uring_prep_send(e, fd, line, strlen(line), 0);
	e->flags |= flags;
	CHECK(done("send") == (int)strlen(line));
	e = io_uring_get_sqe(&ring);
	io_uring_prep_recv(e, fd, answer, sizeof(answer) - 1, 0);
	e->flags |= flags;
	CHECK(done("recv") > 0);
	printf("by the ring: %s", answer);
}

static int connected(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	CHECK(!connect(fd, (struct sockaddr *)&server, sizeof(server)));
	return fd;
}

/* Something comes by fd, which epoll_wait() of the set tells. */
static void told(int set, int fd, unsigned number)
{
	struct epoll_event ev;

	CHECK(epoll_wait(set, &ev, 1, 10000) == 1 && ev.data.u64 == number);
	by_calls(fd, "");
}

/* The ring waits for a set with a socket in it, and puts another one there. */
static void by_a_set(int fd)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 7};
	int set = epoll_create1(0), another = connected();
	struct io_uring_sqe *e;

	CHECK(!epoll_ctl(set, EPOLL_CTL_ADD, fd, &ev));
	CHECK(!epoll_wait(set, &ev, 1, 0));
	e = io_uring_get_sqe(&ring);
	io_uring_prep_poll_add(e, set, POLLIN);
	CHECK(io_uring_submit(&ring) == 1);
	CHECK(send(fd, "polled\n", 7, 0) == 7);
	CHECK(finished("poll of the set") & POLLIN);
	told(set, fd, 7);
	by_calls(another, "another\n");
	ev = (struct epoll_event){.events = EPOLLIN, .data.u64 = 8};
	e = io_uring_get_sqe(&ring);
	io_uring_prep_epoll_ctl(e, set, another, EPOLL_CTL_ADD, &ev);
	CHECK(!done("epoll_ctl"));
	CHECK(send(another, "in the set\n", 11, 0) == 11);
	told(set, another, 8);
	close(another);
	close(set);
}

static void by_splice(int fd)
{
	struct io_uring_sqe *e = io_uring_get_sqe(&ring);
	char answer[64] = "";
	int ends[2];

	CHECK(!pipe(ends) && !io_uring_register_files(&ring, &ends[1], 1));
	CHECK(send(fd, "to a pipe\n", 10, 0) == 10);
	io_uring_prep_splice(e, fd, -1, 0, -1, sizeof(answer) - 1, 0);
	e->flags |= IOSQE_FIXED_FILE;
	CHECK(done("splice") > 0 && read(ends[0], answer, sizeof(answer) - 1) > 0);
	printf("by a pipe: %s", answer);
	close(ends[0]);
	close(ends[1]);
}

static void begin(const char *how)
{
	struct io_uring_params p = {.flags = 0};
	int fd;

	if (strcmp(how, "raw")) {
		CHECK(!io_uring_queue_init(8, &ring, 0));
		return;
	}
	fd = (int)syscall(SYS_io_uring_setup, 8, &p);
	CHECK(fd >= 0 && !io_uring_queue_mmap(fd, &p, &ring));
	ring.features = p.features;
	for (unsigned i = 0; i < p.sq_entries; i++)
		ring.sq.array[i] = i;
}

int main(int argc, char **argv)
{
	const char *how = argv[1];
	struct io_uring_sqe *e;
	int fd, other;

	CHECK(argc == 4);
	server = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(atoi(argv[3]))};
	CHECK(inet_pton(AF_INET, argv[2], &server.sin_addr) == 1);
	fd = connected();
	by_calls(fd, "first\n");
	begin(how);
	if (!strcmp(how, "files")) {
		CHECK(!io_uring_register_files(&ring, &fd, 1));
		by_ring(0, "registered\n", IOSQE_FIXED_FILE);
	} else if (!strcmp(how, "poll")) {
		CHECK(send(fd, "polled\n", 7, 0) == 7);
		e = io_uring_get_sqe(&ring);
		io_uring_prep_poll_add(e, fd, POLLIN);
		CHECK(done("poll") & POLLIN);
		by_calls(fd, "");
	} else if (!strcmp(how, "set")) {
		by_a_set(fd);
	} else if (!strcmp(how, "splice")) {
		by_splice(fd);
	}
	by_ring(fd, "second\n", 0);
	by_calls(fd, "third\n");
	/* One that the ring connects, and one that it closes. */
	other = socket(AF_INET, SOCK_STREAM, 0);
	e = io_uring_get_sqe(&ring);
	io_uring_prep_connect(e, other, (struct sockaddr *)&server, sizeof(server));
	CHECK(!done("connect"));
	by_ring(other, "other\n", 0);
	by_calls(other, "other by calls\n");
	e = io_uring_get_sqe(&ring);
	io_uring_prep_close(e, other);
	CHECK(!done("close"));
	CHECK(send(other, "x", 1, 0) < 0 && errno == EBADF);
	CHECK(connected() == other);
	by_calls(other, "its number again\n");
	return 0;
}
