/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * errno_kept sockets|processes <own address> <peer address> <UDP port> <TCP port> <own TCP port>:
 * calls that succeed on UDP sockets, connections, a listener and epoll sets, and whether each left
 * errno as it was. The peer echoes on its two ports, and connects to ours once for each '!' that it
 * gets by UDP. "processes" also hands sockets to the kernel. Ends with 0 when errno was never
 * touched.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

/* No error has this number. */
#define POISON 4242

static struct sockaddr_in own = {.sin_family = AF_INET}, peer_udp, peer_tcp;
static const char *kind;
static char buf[65536];
static unsigned num_calls, num_touched, num_failed;

static long look(int line, const char *what, long ret)
{
	int err = errno;

	num_calls++;
	if (ret < 0) {
		num_failed++;
		printf("%s %d: %s failed: %s\n", kind, line, what, strerror(err));
	} else if (err != POISON) {
		num_touched++;
		printf("%s %d: %s = %ld, errno became %d (%s)\n", kind, line, what, ret, err,
		       strerror(err));
	}
	return ret;
}

#define OK(call) look(__LINE__, #call, (errno = POISON, (long)(call)))

static void readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	if (poll(&p, 1, 10000) == 1)
		return;
	printf("%s: nothing to read after 10 s\n", kind);
	exit(1);
}

/* Everything that has a form of its own; what is sent comes back. */
static void data_forms(int fd)
{
	struct iovec iov[2] = {{buf, 3}, {buf + 3, 4}};
	struct sockaddr_storage from;
	socklen_t len = sizeof(from);
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};
	struct mmsghdr many[2] = {{.msg_hdr = msg}, {.msg_hdr = msg}};

	for (int i = 0; i < 3; i++) { /* the first may resolve, the others are the usual case */
		OK(write(fd, "a", 1));
		OK(read(fd, buf, 10));
		OK(send(fd, "b", 1, 0));
		OK(recv(fd, buf, 10, 0));
		OK(sendto(fd, "c", 1, MSG_NOSIGNAL, NULL, 0));
		OK(recvfrom(fd, buf, 10, 0, (struct sockaddr *)&from, &len));
		OK(writev(fd, iov, 2));
		OK(readv(fd, iov, 2));
		OK(sendmsg(fd, &msg, 0));
		OK(recvmsg(fd, &msg, 0));
		OK(pwritev2(fd, iov, 2, -1, 0));
		OK(preadv2(fd, iov, 2, -1, 0));
		OK(sendmmsg(fd, many, 2, 0));
		readable(fd);
		OK(recvmmsg(fd, many, 1, 0, NULL));
		readable(fd);
		OK(recv(fd, buf, 100, 0));
	}
	OK(write(fd, "peek", 4));
	readable(fd);
	OK(recv(fd, buf, 4, MSG_PEEK | MSG_DONTWAIT));
	OK(read(fd, buf, 4));
	OK(syscall(SYS_sendto, fd, "n", 1, 0, NULL, 0));
	OK(syscall(SYS_recvfrom, fd, buf, 10, 0, NULL, NULL));
}

static void option_forms(int fd)
{
	int on = 1, n = 0;
	socklen_t len = sizeof(n);
	struct sockaddr_storage a;
	socklen_t alen = sizeof(a);
	struct timeval tv = {5, 0};

	OK(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)));
	OK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
	OK(setsockopt(fd, SOL_SOCKET, SO_PRIORITY, &on, sizeof(on)));
	OK(setsockopt(fd, IPPROTO_IP, IP_TTL, &(int){60}, sizeof(int)));
	OK(getsockopt(fd, SOL_SOCKET, SO_TYPE, &n, &len));
	OK(getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &n, &len));
	OK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &n, &len));
	OK(getsockname(fd, (struct sockaddr *)&a, &alen));
	alen = sizeof(a);
	OK(getpeername(fd, (struct sockaddr *)&a, &alen));
	OK(ioctl(fd, FIONREAD, &n));
	OK(ioctl(fd, FIONBIO, &on));
	OK(fcntl(fd, F_GETFL));
	OK(fcntl(fd, F_SETFL, O_RDWR));
	OK(fcntl(fd, F_GETFD));
}

static void wait_forms(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN | POLLOUT};
	struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT}, got[4];
	struct timeval tv = {0, 1000};
	struct timespec ts = {0, 1000000};
	int ep = (int)OK(epoll_create1(0)), other = (int)OK(epoll_create(1));
	fd_set rd, wr;

	OK(poll(&p, 1, 10));
	OK(ppoll(&p, 1, &ts, NULL));
	p.events = POLLIN;
	OK(poll(&p, 1, 2)); /* nothing is there: it sleeps */
	FD_ZERO(&rd);
	FD_ZERO(&wr);
	FD_SET(fd, &rd);
	FD_SET(fd, &wr);
	OK(select(fd + 1, &rd, &wr, NULL, &tv));
	FD_ZERO(&rd);
	FD_SET(fd, &rd);
	OK(pselect(fd + 1, &rd, NULL, NULL, &ts, NULL));
	OK(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev));
	OK(epoll_wait(ep, got, 4, 10));
	OK(epoll_pwait(ep, got, 4, 10, NULL));
	OK(epoll_pwait2(ep, got, 4, &ts, NULL));
	ev.events = EPOLLIN;
	OK(epoll_ctl(ep, EPOLL_CTL_MOD, fd, &ev));
	OK(epoll_wait(ep, got, 4, 2));
	OK(epoll_ctl(ep, EPOLL_CTL_DEL, fd, NULL));
	OK(close(ep));
	OK(close(other));
}

static void transfer_forms(int fd)
{
	int p[2], file = (int)OK(open("/proc/self/exe", O_RDONLY));
	off_t off = 64;

	OK(pipe(p));
	OK(sendfile(fd, file, NULL, 100));
	readable(fd);
	OK(recv(fd, buf, 200, 0));
	OK(sendfile(fd, file, &off, 100));
	readable(fd);
	OK(recv(fd, buf, 200, 0));
	OK(write(p[1], "pipe", 4));
	OK(splice(p[0], NULL, fd, NULL, 100, 0));
	readable(fd);
	OK(splice(fd, NULL, p[1], NULL, 100, 0));
	OK(read(p[0], buf, 100));
	OK(close(p[0]));
	OK(close(p[1]));
	OK(close(file));
}

static void copy_forms(int fd)
{
	int a = (int)OK(dup(fd)), b = (int)OK(fcntl(fd, F_DUPFD_CLOEXEC, 0));

	OK(dup2(fd, a));
	OK(dup3(fd, b, O_CLOEXEC));
	OK(write(a, "d", 1));
	OK(read(b, buf, 10));
	OK(close(a));
	OK(close_range((unsigned)b, (unsigned)b, 0));
	a = fcntl(fd, F_DUPFD, 200);
	closefrom(a);
}

static int udp(void)
{
	struct sockaddr_in any = own;
	int fd = (int)OK(socket(AF_INET, SOCK_DGRAM, 0));

	kind = "udp";
	any.sin_port = 0;
	OK(bind(fd, (struct sockaddr *)&any, sizeof(any)));
	OK(sendto(fd, "first", 5, 0, (struct sockaddr *)&peer_udp, sizeof(peer_udp)));
	OK(recv(fd, buf, 10, 0));
	OK(connect(fd, (struct sockaddr *)&peer_udp, sizeof(peer_udp)));
	return fd;
}

static int tcp(void)
{
	int fd = (int)OK(socket(AF_INET, SOCK_STREAM, 0));

	kind = "tcp";
	OK(connect(fd, (struct sockaddr *)&peer_tcp, sizeof(peer_tcp)));
	return fd;
}

static void all_forms(int fd)
{
	option_forms(fd);
	data_forms(fd);
	wait_forms(fd);
	transfer_forms(fd);
	copy_forms(fd);
}

/* A listener, and connections of the peer that are accepted in both forms and while waiting. */
static void listener(int udp_fd)
{
	int fd = (int)OK(socket(AF_INET, SOCK_STREAM, 0)), on = 1, c;
	struct sockaddr_in who;
	socklen_t len = sizeof(who);

	kind = "listener";
	OK(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)));
	OK(bind(fd, (struct sockaddr *)&own, sizeof(own)));
	OK(listen(fd, 8));
	OK(listen(fd, 16));
	OK(poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 1));
	OK(write(udp_fd, "!", 1));
	c = (int)OK(accept(fd, (struct sockaddr *)&who, &len));
	OK(write(c, "x", 1));
	OK(close(c));
	OK(write(udp_fd, "!", 1));
	readable(fd);
	c = (int)OK(accept4(fd, NULL, NULL, SOCK_CLOEXEC));
	OK(shutdown(c, SHUT_WR));
	OK(read(c, buf, 10));
	OK(close(c));
	OK(getsockname(fd, (struct sockaddr *)&who, &len));
	OK(shutdown(fd, SHUT_RDWR));
	OK(close(fd));
}

static void ends(int tcp_fd, int udp_fd)
{
	struct sockaddr none = {.sa_family = AF_UNSPEC};
	int lingering = tcp();
	struct linger li = {1, 5};

	OK(setsockopt(lingering, SOL_SOCKET, SO_LINGER, &li, sizeof(li)));
	OK(write(lingering, "z", 1));
	OK(close(lingering));
	OK(shutdown(tcp_fd, SHUT_WR));
	OK(read(tcp_fd, buf, 10));
	OK(connect(tcp_fd, &none, sizeof(none)));
	OK(close(tcp_fd));
	kind = "udp";
	OK(connect(udp_fd, &none, sizeof(none)));
	OK(close(udp_fd));
}

static void reap(void)
{
	while (wait(NULL) > 0)
		;
}

/* What takes connections out of user space: forks, new programs, stdio, other privileges. */
static void processes(int fd)
{
	FILE *f;
	long pid = OK(fork());
	int status;

	if (!pid)
		_exit(0);
	reap();
	pid = OK(vfork());
	if (!pid)
		_exit(0);
	reap();
	pid = OK(syscall(SYS_fork));
	if (!pid) {
		OK(write(fd, "c", 1));
		OK(seteuid(65534));
		OK(seteuid(0));
		OK(setuid(65534));
		_exit(num_touched > 0);
	}
	if (wait(&status) < 0 || status)
		num_touched++; /* the child has said which */
	OK(read(fd, buf, 10));
	OK(system("true"));
	errno = POISON;
	f = popen("true", "r");
	look(__LINE__, "popen", f ? 0 : -1);
	pclose(f);
	OK(dprintf(fd, "%d", 5));
	readable(fd);
	OK(read(fd, buf, 10));
	errno = POISON;
	f = fdopen(dup(fd), "r");
	look(__LINE__, "fdopen", f ? 0 : -1);
	OK(fclose(f));
	OK(write(fd, "k", 1));
	OK(read(fd, buf, 10));
}

int main(int argc, char **argv)
{
	int u, t;

	if (argc != 7 || inet_pton(AF_INET, argv[2], &own.sin_addr) != 1)
		return 2;
	own.sin_port = htons((uint16_t)atoi(argv[6]));
	peer_udp = peer_tcp = own;
	inet_pton(AF_INET, argv[3], &peer_udp.sin_addr);
	peer_tcp.sin_addr = peer_udp.sin_addr;
	peer_udp.sin_port = htons((uint16_t)atoi(argv[4]));
	peer_tcp.sin_port = htons((uint16_t)atoi(argv[5]));
	setvbuf(stdout, NULL, _IOLBF, 0);
	kind = "first";
	u = udp();
	t = tcp();
	if (!strcmp(argv[1], "processes")) {
		processes(t);
		kind = "udp";
		processes(u);
	} else {
		all_forms(t);
		kind = "udp";
		all_forms(u);
		listener(u);
		ends(t, u);
	}
	printf("%u calls, %u failed, %u touched errno\n", num_calls, num_failed, num_touched);
	return num_failed || num_touched;
}
