/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * bad_pointers <own address> <peer address> <UDP port> <TCP port>: every call with every pointer
 * bad in turn (NULL, a small number, unmapped, the kernel's, none that could be) on a datagram
 * socket and a connection. Prints what each answered: with kernel sockets and with the library it
 * is the same. The peer echoes on both ports.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef __clang__
#pragma GCC diagnostic ignored "-Wstringop-overflow"
#pragma GCC diagnostic ignored "-Wstringop-overread"
#pragma GCC diagnostic ignored "-Wnonnull"
#endif
#pragma GCC diagnostic ignored "-Wunused-result"

static struct sockaddr_in own = {.sin_family = AF_INET}, peer_udp, peer_tcp;
static const char *kind, *what;
static void *bad; /* of the kind that is on */
static int fd, ep, file;
static unsigned probes;
static volatile int handled;

static void say(const char *call, long ret)
{
	int err = errno;

	probes++;
	printf("%s, %s: %s: %s\n", kind, what, call,
	       ret < 0 ? strerrorname_np(err)
	       : ret   ? "some"
		       : "0");
}

#define TRY(call) (refill(), say(#call, (long)(call)))

/* Something to read is there. */
static void refill(void)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	while (poll(&p, 1, 0) != 1) {
		if (send(fd, "hello", 5, 0) != 5)
			perror("send"), exit(1);
		if (poll(&p, 1, 10000) < 0)
			perror("poll"), exit(1);
	}
}

static void writing(void)
{
	char good[8] = "good";
	struct iovec base = {bad, 4}, ok = {good, 4}, second[2] = {{good, 4}, {bad, 4}},
		     minus = {good, (size_t)-1};
	struct sockaddr_in *to = bad;
	struct mmsghdr m = {.msg_hdr = {.msg_iov = &base, .msg_iovlen = 1}};

	TRY(send(fd, bad, 4, 0));
	TRY(send(fd, bad, 0, MSG_MORE));
	TRY(write(fd, bad, 1500));
	TRY(sendto(fd, bad, 4, 0, NULL, 0));
	TRY(sendto(fd, good, 4, 0, (void *)to, sizeof(*to)));
	TRY(sendmsg(fd, bad, 0));
	TRY(sendmsg(fd, &(struct msghdr){.msg_iov = bad, .msg_iovlen = 1}, 0));
	TRY(sendmsg(fd, &(struct msghdr){.msg_iov = &base, .msg_iovlen = 1}, 0));
	TRY(sendmsg(fd, &(struct msghdr){.msg_iov = &minus, .msg_iovlen = 1}, 0));
	TRY(sendmsg(fd, &(struct msghdr){bad, 16, &ok, 1, NULL, 0, 0}, 0) < 0 && bad ? -1 : 0);
	TRY(sendmsg(fd, &(struct msghdr){NULL, 0, &ok, 1, bad, 64, 0}, 0));
	TRY(writev(fd, bad, 1));
	TRY(writev(fd, &base, 1));
	TRY(writev(fd, &minus, 1));
	if (strcmp(kind, "tcp") != 0)
		TRY(writev(fd, second, 2));
	TRY(sendmmsg(fd, bad, 1, 0));
	TRY(sendmmsg(fd, &m, 1, 0));
	TRY(sendfile(fd, file, bad, 10) < 0 ? -1 : 0);
}

static void reading(void)
{
	char good[64];
	struct iovec base = {bad, 4}, ok = {good, 4}, minus = {good, (size_t)-1};
	struct mmsghdr m = {.msg_hdr = {.msg_iov = &base, .msg_iovlen = 1}};
	struct sockaddr_in from;
	socklen_t len = sizeof(from);

	TRY(recv(fd, bad, 4, 0));
	TRY(recv(fd, bad, 4, MSG_PEEK));
	TRY(read(fd, bad, 1500));
	TRY(read(fd, bad, 0));
	TRY(recvfrom(fd, bad, 4, 0, NULL, NULL));
	if (strcmp(kind, "tcp") != 0 && bad) {
		TRY(recvfrom(fd, good, 4, 0, bad, &len));
		TRY(recvfrom(fd, good, 4, 0, (void *)&from, bad));
	}
	TRY(recvmsg(fd, bad, 0));
	TRY(recvmsg(fd, &(struct msghdr){.msg_iov = bad, .msg_iovlen = 1}, 0));
	TRY(recvmsg(fd, &(struct msghdr){.msg_iov = &base, .msg_iovlen = 1}, 0));
	TRY(recvmsg(fd, &(struct msghdr){.msg_iov = &minus, .msg_iovlen = 1}, 0));
	TRY(recvmsg(fd, &(struct msghdr){NULL, 0, &ok, 1, bad, 64, 0}, 0));
	TRY(readv(fd, bad, 1));
	TRY(readv(fd, &base, 1));
	TRY(readv(fd, &minus, 1));
	TRY(recvmmsg(fd, bad, 1, 0, NULL));
	TRY(recvmmsg(fd, &m, 1, 0, NULL));
	if (bad)
		TRY(recvmmsg(fd, &m, 1, 0, bad));
}

static void asking(void)
{
	char val[64];
	socklen_t len = sizeof(val);
	struct sockaddr_in a;

	TRY(getsockname(fd, bad, &len));
	TRY(getsockname(fd, (void *)&a, bad));
	TRY(getpeername(fd, bad, &len));
	TRY(getpeername(fd, (void *)&a, bad));
	TRY(getsockopt(fd, SOL_SOCKET, SO_RCVBUF, bad, &len));
	TRY(getsockopt(fd, SOL_SOCKET, SO_RCVBUF, val, bad));
	TRY(getsockopt(fd, SOL_SOCKET, SO_ERROR, bad, &len));
	TRY(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, bad, 4));
	TRY(setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, bad, 8));
	TRY(ioctl(fd, FIONREAD, bad));
	TRY(ioctl(fd, FIONBIO, bad));
	TRY(bind(fd, bad, 16));
	TRY(connect(fd, bad, 16));
	TRY(connect(fd, bad, 4000));
}

static void waiting(void)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	struct epoll_event ev;
	fd_set rd;

	FD_ZERO(&rd);
	FD_SET(fd, &rd);
	TRY(poll(bad, 1, 0));
	if (bad) {
		TRY(ppoll(&p, 1, NULL, bad));
		TRY(select(fd + 1, bad, NULL, NULL, NULL));
		TRY(select(fd + 1, NULL, NULL, bad, NULL));
		TRY(pselect(fd + 1, &rd, NULL, NULL, NULL, bad));
		TRY(syscall(SYS_pselect6, fd + 1, &rd, NULL, NULL, NULL, bad));
		TRY(syscall(SYS_ppoll, &p, 1, NULL, bad, 8));
		TRY(syscall(SYS_ppoll, &p, 1, bad, NULL, 8)); /* libc itself reads the time */
	}
	TRY(epoll_ctl(ep, EPOLL_CTL_MOD, fd, bad));
	TRY(epoll_ctl(ep, EPOLL_CTL_ADD, fd, bad));
	TRY(epoll_wait(ep, bad, 1, 0));
	TRY(epoll_wait(ep, bad, 0, 0));
	if (bad)
		TRY(epoll_pwait(ep, &ev, 1, 0, bad));
}

#define NOBODYS 0x100000000000 /* half of the way up */

static void all(const char *name, int s)
{
	static const struct {
		const char *name;
		uintptr_t at; /* 1: the page that is not there */
	} bads[] = {{"NULL", 0},
		    {"8", 8},
		    {"unmapped", 1},
		    {"kernel", 0xffff800000001000},
		    {"no address", 0x8000000000001000}};
	struct epoll_event ev = {.events = EPOLLIN};
	/*
	 * Far from where mmap() finds room: a hole that there had been a page in another thread
	 * may get.
	 */
	void *page = mmap((void *)(uintptr_t)NOBODYS, 4096, PROT_READ,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	if (page == MAP_FAILED || munmap(page, 4096))
		perror("mmap"), exit(1);
	kind = name;
	fd = s;
	if (epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev))
		perror("epoll_ctl"), exit(1);
	for (unsigned i = 0; i < sizeof(bads) / sizeof(bads[0]); i++) {
		what = bads[i].name;
		bad = bads[i].at == 1 ? page : (void *)bads[i].at;
		writing();
		reading();
		asking();
		waiting();
	}
}

static void handler(int sig)
{
	handled = sig;
}

/* The program's own handler has its faults. */
static void own_handler(int flags)
{
	struct sigaction act = {.sa_handler = handler, .sa_flags = flags}, old;
	pid_t pid = getpid();

	what = "own handler";
	bad = (void *)8;
	handled = 0;
	sigaction(SIGSEGV, &act, &old);
	TRY(send(fd, bad, 4, 0));
	TRY(recv(fd, bad, 4, 0));
	printf("handled %d\n", handled);
	syscall(SYS_tgkill, pid, (pid_t)syscall(SYS_gettid), SIGSEGV);
	printf("handled %d\n", handled);
	sigaction(SIGSEGV, &old, NULL);
	TRY(send(fd, bad, 4, 0));
}

int main(int argc, char **argv)
{
	int u = socket(AF_INET, SOCK_DGRAM, 0), t = socket(AF_INET, SOCK_STREAM, 0);

	if (argc != 5 || inet_pton(AF_INET, argv[1], &own.sin_addr) != 1)
		return 2;
	peer_udp = peer_tcp = own;
	inet_pton(AF_INET, argv[2], &peer_udp.sin_addr);
	peer_tcp.sin_addr = peer_udp.sin_addr;
	peer_udp.sin_port = htons((uint16_t)atoi(argv[3]));
	peer_tcp.sin_port = htons((uint16_t)atoi(argv[4]));
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGPIPE, SIG_IGN);
	ep = epoll_create1(0);
	file = fileno(tmpfile());
	if (connect(u, (struct sockaddr *)&peer_udp, sizeof(own)) ||
	    connect(t, (struct sockaddr *)&peer_tcp, sizeof(own)))
		perror("connect"), exit(1);
	/* What the library takes for a thread that waits shall not stand where a page is taken
	 * away. */
	poll(&(struct pollfd){.fd = u, .events = POLLIN}, 1, 10);
	all("udp", u);
	all("tcp", t);
	own_handler(SA_RESTART);
	own_handler((int)SA_RESETHAND);
	printf("%u probes\n", probes);
	return 0;
}
