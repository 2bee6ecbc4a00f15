/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * cancel_points pending|waiting|races <own address> <peer address> <UDP port> <TCP port> [count]:
 * threads that are cancelled in calls on UDP sockets and connections. The peer echoes on both
 * ports.
 *
 * pending: the request is there before the call. Prints for each call whether it ended the thread.
 * waiting: it comes while the call waits for what never comes; prints the same.
 * races: it comes at any time in a loop of calls; count threads.
 * After each thread the other sockets must go on: nothing that it held may have stayed taken.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* How long the other sockets may take for an echo. */
#define PATIENCE_S 20

static struct sockaddr_in own = {.sin_family = AF_INET}, peer_udp, peer_tcp;
static const char *now = "the start";
static char buf[4096];
static int u, t, l, ep; /* what the calls are made on */
static int other_u, other_t; /* what must go on */
static struct iovec iov = {buf, 3};

#define CHECK(what)                                                                                \
	do {                                                                                       \
		if (!(what)) {                                                                     \
			printf("line %d, %s: %s: %s\n", __LINE__, now, #what, strerror(errno));    \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

static void stuck(int sig)
{
	(void)sig;
	if (write(1, "stuck after ", 12) < 0 || write(1, now, strlen(now)) < 0 ||
	    write(1, "\n", 1) < 0)
		_exit(4);
	_exit(3);
}

/* A mark that no packet had before: the path of what is sent next is asked for anew. */
static void forget_path(int fd)
{
	static int mark;

	mark++;
	CHECK(!setsockopt(fd, SOL_SOCKET, SO_MARK, &mark, sizeof(mark)));
}

static int tcp(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	CHECK(fd >= 0);
	CHECK(!connect(fd, (struct sockaddr *)&peer_tcp, sizeof(peer_tcp)));
	return fd;
}

static int udp(void)
{
	struct timeval tv = {1, 0};
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	CHECK(fd >= 0);
	CHECK(!connect(fd, (struct sockaddr *)&peer_udp, sizeof(peer_udp)));
	CHECK(!setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
	return fd;
}

static void goes_on(void)
{
	char in[16];

	alarm(PATIENCE_S);
	forget_path(other_t);
	CHECK(send(other_t, "x", 1, 0) == 1);
	CHECK(recv(other_t, in, 1, 0) == 1);
	do {
		forget_path(other_u);
		CHECK(send(other_u, "y", 1, 0) == 1);
	} while (recv(other_u, in, 16, 0) != 1);
	close(tcp());
	close(udp());
	alarm(0);
}

/* --- one call with the request pending */

static void c_send(void)
{
	send(t, "abc", 3, 0);
}
static void c_write(void)
{
	(void)!write(t, "abc", 3);
}
static void c_sendmsg(void)
{
	sendmsg(t, &(struct msghdr){.msg_iov = &iov, .msg_iovlen = 1}, 0);
}
static void c_writev(void)
{
	(void)!writev(t, &iov, 1);
}
static void c_recv(void)
{
	recv(t, buf, 10, MSG_DONTWAIT);
}
static void c_read(void)
{
	(void)!read(t, buf, 10);
}
static void c_send_udp(void)
{
	send(u, "abc", 3, 0);
}
static void c_sendto(void)
{
	sendto(u, "abc", 3, 0, (struct sockaddr *)&peer_udp, sizeof(own));
}
static void c_sendmmsg(void)
{
	struct mmsghdr m = {.msg_hdr = {.msg_iov = &iov, .msg_iovlen = 1}};

	sendmmsg(u, &m, 1, 0);
}
static void c_recvfrom(void)
{
	recvfrom(u, buf, 10, MSG_DONTWAIT, NULL, NULL);
}
static void c_recvmsg(void)
{
	recvmsg(u, &(struct msghdr){.msg_iov = &iov, .msg_iovlen = 1}, MSG_DONTWAIT);
}
static void c_recvmmsg(void)
{
	struct mmsghdr m = {.msg_hdr = {.msg_iov = &iov, .msg_iovlen = 1}};

	recvmmsg(u, &m, 1, MSG_DONTWAIT, NULL);
}
static void c_accept(void)
{
	accept(l, NULL, NULL);
}
static void c_connect(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	connect(fd, (struct sockaddr *)&peer_tcp, sizeof(peer_tcp));
	close(fd);
}
static void c_connect_udp(void)
{
	connect(u, (struct sockaddr *)&peer_udp, sizeof(peer_udp));
}
static void c_poll(void)
{
	poll(&(struct pollfd){.fd = t, .events = POLLOUT}, 1, 100);
}
static void c_select(void)
{
	struct timeval tv = {0, 1000};
	fd_set rd;

	FD_ZERO(&rd);
	FD_SET(u, &rd);
	select(u + 1, &rd, NULL, NULL, &tv);
}
static void c_epoll_wait(void)
{
	struct epoll_event ev;

	epoll_wait(ep, &ev, 1, 1);
}
static void c_splice(void)
{
	(void)!splice(t, NULL, u, NULL, 10, 0);
}
static void c_close(void)
{
	close(dup(t));
}
/* Those that are no cancellation points. */
static void c_socket(void)
{
	(void)!socket(AF_INET, SOCK_STREAM, 0);
}
static void c_bind(void)
{
	struct sockaddr_in any = own;
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	bind(fd, (struct sockaddr *)&any, sizeof(any));
}
static void c_listen(void)
{
	struct sockaddr_in any = own;
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	bind(fd, (struct sockaddr *)&any, sizeof(any));
	listen(fd, 4);
}
static void c_setsockopt(void)
{
	forget_path(t);
}
static void c_getsockname(void)
{
	getsockname(t, (struct sockaddr *)buf, &(socklen_t){16});
}
static void c_getsockopt(void)
{
	getsockopt(t, SOL_SOCKET, SO_ERROR, buf, &(socklen_t){4});
}
static void c_epoll_ctl(void)
{
	epoll_ctl(ep, EPOLL_CTL_MOD, u, &(struct epoll_event){.events = EPOLLIN});
}
static void c_dup2(void)
{
	dup2(t, t);
}
static void c_shutdown(void)
{
	shutdown(t, SHUT_WR);
}

static const struct {
	const char *name;
	void (*call)(void);
} calls[] = {
	{"send", c_send},
	{"write", c_write},
	{"sendmsg", c_sendmsg},
	{"writev", c_writev},
	{"recv", c_recv},
	{"read", c_read},
	{"send, udp", c_send_udp},
	{"sendto", c_sendto},
	{"sendmmsg", c_sendmmsg},
	{"recvfrom", c_recvfrom},
	{"recvmsg", c_recvmsg},
	{"recvmmsg", c_recvmmsg},
	{"accept", c_accept},
	{"connect", c_connect},
	{"connect, udp", c_connect_udp},
	{"poll", c_poll},
	{"select", c_select},
	{"epoll_wait", c_epoll_wait},
	{"splice", c_splice},
	{"close", c_close},
	{"socket", c_socket},
	{"bind", c_bind},
	{"listen", c_listen},
	{"setsockopt", c_setsockopt},
	{"getsockname", c_getsockname},
	{"getsockopt", c_getsockopt},
	{"epoll_ctl", c_epoll_ctl},
	{"dup2", c_dup2},
	{"shutdown", c_shutdown},
};

static void *one_call(void *arg)
{
	void (*const *call)(void) = arg;
	int state;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	pthread_cancel(pthread_self());
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
	(*call)();
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	return NULL;
}

static void pending(void)
{
	for (unsigned i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		pthread_t thread;
		void *result;

		now = calls[i].name;
		forget_path(t);
		forget_path(u);
		alarm(PATIENCE_S);
		CHECK(!pthread_create(&thread, NULL, one_call, (void *)&calls[i].call));
		CHECK(!pthread_join(thread, &result));
		printf("%s %s\n", now, result == PTHREAD_CANCELED ? "cancelled" : "returned");
		goes_on();
	}
}

/* --- calls that wait until they are cancelled */

static void w_recv(void)
{
	recv(t, buf, 10, 0);
}
static void w_peek(void)
{
	recv(t, buf, 10, MSG_PEEK | MSG_WAITALL);
}
static void w_recvfrom(void)
{
	recvfrom(u, buf, 10, 0, NULL, NULL);
}
static void w_recvmsg(void)
{
	recvmsg(u, &(struct msghdr){.msg_iov = &iov, .msg_iovlen = 1}, 0);
}
static void w_recvmmsg(void)
{
	struct mmsghdr m = {.msg_hdr = {.msg_iov = &iov, .msg_iovlen = 1}};

	recvmmsg(u, &m, 1, 0, NULL);
}
static void w_poll(void)
{
	poll(&(struct pollfd){.fd = t, .events = POLLIN}, 1, -1);
}
static void w_ppoll(void)
{
	struct timespec hour = {3600, 0};

	ppoll(&(struct pollfd){.fd = u, .events = POLLIN}, 1, &hour, NULL);
}
static void w_select(void)
{
	fd_set rd;

	FD_ZERO(&rd);
	FD_SET(u, &rd);
	select(u + 1, &rd, NULL, NULL, NULL);
}
static void w_epoll_wait(void)
{
	struct epoll_event ev;

	epoll_wait(ep, &ev, 1, -1);
}
/* The peer's echo is not read: both directions fill. */
static void w_send(void)
{
	for (;;)
		send(t, buf, sizeof(buf), 0);
}

/* The last one leaves a connection that is of no more use. */
static const struct {
	const char *name;
	void (*call)(void);
} waits[] = {
	{"recv", w_recv},
	{"recv, peek", w_peek},
	{"read", c_read},
	{"recvfrom", w_recvfrom},
	{"recvmsg", w_recvmsg},
	{"recvmmsg", w_recvmmsg},
	{"accept", c_accept},
	{"poll", w_poll},
	{"ppoll", w_ppoll},
	{"select", w_select},
	{"epoll_wait", w_epoll_wait},
	{"send", w_send},
};

static void *one_wait(void *arg)
{
	void (*const *call)(void) = arg;

	(*call)();
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	return NULL;
}

static void waiting(void)
{
	struct timeval for_ever = {0};

	CHECK(!setsockopt(u, SOL_SOCKET, SO_RCVTIMEO, &for_ever, sizeof(for_ever)));
	CHECK(!fcntl(l, F_SETFL, 0));
	for (unsigned i = 0; i < sizeof(waits) / sizeof(waits[0]); i++) {
		pthread_t thread;
		void *result;

		now = waits[i].name;
		CHECK(!pthread_create(&thread, NULL, one_wait, (void *)&waits[i].call));
		/* Most are asleep, or spin, by then; for none may it matter. */
		usleep(50000);
		CHECK(!pthread_cancel(thread));
		alarm(PATIENCE_S);
		CHECK(!pthread_join(thread, &result));
		printf("%s %s\n", now, result == PTHREAD_CANCELED ? "cancelled" : "returned");
		goes_on();
	}
}

/* --- the request at any time */

static void *loop(void *arg)
{
	char in[64];

	for (unsigned i = *(unsigned *)arg;; i++) {
		int c = tcp(), d = udp();

		forget_path(c);
		forget_path(d);
		send(c, "abc", 3, 0);
		send(d, "abc", 3, 0);
		if (i % 3)
			recv(c, in, sizeof(in), 0);
		else
			recv(d, in, sizeof(in), 0);
		close(c);
		close(d);
	}
	return NULL;
}

static void races(unsigned count)
{
	now = "a cancelled loop";
	for (unsigned i = 0; i < count; i++) {
		pthread_t thread;

		CHECK(!pthread_create(&thread, NULL, loop, &i));
		usleep((i * 7919) % 3000);
		alarm(PATIENCE_S);
		CHECK(!pthread_cancel(thread));
		CHECK(!pthread_join(thread, NULL));
		goes_on();
	}
	printf("%u threads cancelled\n", count);
}

int main(int argc, char **argv)
{
	struct epoll_event ev = {.events = EPOLLIN};

	if (argc < 6 || inet_pton(AF_INET, argv[2], &own.sin_addr) != 1)
		return 2;
	peer_udp = peer_tcp = own;
	inet_pton(AF_INET, argv[3], &peer_udp.sin_addr);
	peer_tcp.sin_addr = peer_udp.sin_addr;
	peer_udp.sin_port = htons((uint16_t)atoi(argv[4]));
	peer_tcp.sin_port = htons((uint16_t)atoi(argv[5]));
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGALRM, stuck);
	other_u = udp();
	other_t = tcp();
	u = udp();
	t = tcp();
	l = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	ep = epoll_create1(0);
	CHECK(!listen(l, 8) && !epoll_ctl(ep, EPOLL_CTL_ADD, u, &ev));
	goes_on();
	if (!strcmp(argv[1], "pending"))
		pending();
	else if (!strcmp(argv[1], "waiting"))
		waiting();
	else
		races(argc > 6 ? (unsigned)atoi(argv[6]) : 100);
	return 0;
}
