/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * UDP sockets used from many threads. An ordinary program: it knows nothing of the library.
 *
 *   udp_threads cancel|emfile|churn|signals|hammer <own address> <peer address>
 *               <peer port, which echoes> [count]
 *
 * Prints what it did; ends with 0 when all was as with kernel sockets.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static struct sockaddr_in own, peer;

#define CHECK(what)                                                                                \
	do {                                                                                       \
		if (!(what)) {                                                                     \
			fprintf(stderr, "line %d: %s: %s\n", __LINE__, #what, strerror(errno));    \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

/* A socket bound to port (0: any) whose recv() gives up after ms (0: never). */
static int udp(int port, int ms)
{
	struct timeval tv = {ms / 1000, ms % 1000 * 1000};
	struct sockaddr_in a = own;
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	CHECK(fd >= 0);
	a.sin_port = htons((uint16_t)port);
	CHECK(!bind(fd, (struct sockaddr *)&a, sizeof(a)));
	CHECK(!setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
	return fd;
}

static ssize_t to_peer(int fd)
{
	return sendto(fd, "hello", 5, 0, (struct sockaddr *)&peer, sizeof(peer));
}

/* There and back; the first datagrams may be lost to a neighbour that is not known yet. */
static void echo(int fd)
{
	char buf[16];

	for (int i = 0; i < 5; i++) {
		CHECK(to_peer(fd) == 5);
		if (recv(fd, buf, sizeof(buf), 0) == 5)
			return;
		CHECK(errno == EAGAIN);
	}
	CHECK(!"no answer from the peer");
}

static unsigned count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static long rss_kb(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	long size, rss;

	CHECK(fscanf(f, "%ld %ld", &size, &rss) == 2);
	fclose(f);
	return rss * 4;
}

/* --- cancel: a thread that is cancelled in recv() leaves nothing behind --- */

static void *receive(void *arg)
{
	char buf[16];

	recv(*(int *)arg, buf, sizeof(buf), 0);
	return NULL;
}

static void cancel(int count)
{
	int fd = udp(0, 0);

	for (int i = 0; i < count; i++) {
		struct timespec until;
		pthread_t t;
		void *result;

		CHECK(!pthread_create(&t, NULL, receive, &fd));
		usleep(i % 2 ? 100000 : 2000); /* asleep; spinning */
		CHECK(!pthread_cancel(t));
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec += 3;
		errno = pthread_timedjoin_np(t, &result, &until);
		CHECK(!errno);
		CHECK(result == PTHREAD_CANCELED);
	}
	close(fd);
	fd = udp(0, 1000);
	echo(fd);
	printf("%d threads cancelled in recv()\n", count);
}

/* --- emfile: waiting needs no new descriptor --- */

static void *wait_in_vain(void *arg)
{
	char buf[16];

	CHECK(recv(*(int *)arg, buf, sizeof(buf), 0) < 0);
	CHECK(errno == EAGAIN);
	return NULL;
}

static void emfile(void)
{
	struct rlimit limit;
	int fd = udp(0, 500);
	pthread_t t;

	CHECK(!getrlimit(RLIMIT_NOFILE, &limit));
	limit.rlim_cur = count_fds();
	while (limit.rlim_cur && dup(0) < (int)limit.rlim_cur)
		;
	CHECK(!setrlimit(RLIMIT_NOFILE, &limit));
	CHECK(socket(AF_INET, SOCK_DGRAM, 0) < 0 && errno == EMFILE);
	CHECK(!pthread_create(&t, NULL, wait_in_vain, &fd));
	pthread_join(t, NULL);
	echo(fd);
	printf("waited and answered without a free descriptor\n");
}

/* --- churn: sockets come and go, nothing stays --- */

static void churn_some(int count)
{
	for (int i = 0; i < count; i++) {
		int fd = udp(0, 0);

		to_peer(fd);
		CHECK(!close(fd));
	}
}

static void churn(int count)
{
	unsigned fds;
	long rss;

	churn_some(200);
	fds = count_fds();
	rss = rss_kb();
	churn_some(count);
	printf("%d sockets made and closed: %ld KiB more, %d fds more\n", count, rss_kb() - rss,
	       (int)(count_fds() - fds));
	CHECK(count_fds() == fds);
	CHECK(rss_kb() - rss < 1024);
}

/* --- signals: a handler may use sockets, whatever it interrupted; and it may never return --- */

static int mine;
static volatile sig_atomic_t rang;
static sigjmp_buf jump;

static void ring(int sig)
{
	struct sockaddr_in to = peer;
	struct pollfd p = {.fd = mine, .events = POLLIN};
	int err = errno, fd;
	char buf[16];

	(void)sig;
	rang++;
	to.sin_addr.s_addr = htonl(ntohl(peer.sin_addr.s_addr) + (unsigned)rang % 2);
	sendto(mine, "sig", 3, MSG_DONTWAIT, (struct sockaddr *)&to, sizeof(to));
	recv(mine, buf, sizeof(buf), MSG_DONTWAIT);
	poll(&p, 1, 0);
	if (rang % 16 == 0) {
		fd = dup(mine);
		send(fd, "x", 1, 0);
		close(fd);
	}
	errno = err;
}

static void leave(int sig)
{
	siglongjmp(jump, sig);
}

static void signals(int count)
{
	struct itimerval often = {{0, 500}, {0, 500}}, never = {0};
	struct sigaction act = {.sa_handler = ring, .sa_flags = SA_RESTART};
	char buf[16];

	mine = udp(0, 0);
	CHECK(!sigaction(SIGALRM, &act, NULL));
	CHECK(!setitimer(ITIMER_REAL, &often, NULL));
	while (rang < count) {
		to_peer(mine);
		recv(mine, buf, sizeof(buf), rang % 8 ? MSG_DONTWAIT : 0);
	}
	CHECK(!setitimer(ITIMER_REAL, &never, NULL));
	act.sa_handler = leave;
	CHECK(!sigaction(SIGALRM, &act, NULL));
	while (recv(mine, buf, sizeof(buf), MSG_DONTWAIT) >= 0)
		;
	often = (struct itimerval){.it_value = {0, 50000}};
	for (volatile int i = 0; i < 20; i++) {
		if (!sigsetjmp(jump, 1)) {
			CHECK(!setitimer(ITIMER_REAL, &often, NULL));
			while (recv(mine, buf, sizeof(buf), 0))
				;
		}
	}
	close(mine);
	echo(udp(0, 1000));
	printf("%d signals whose handlers used sockets\n", (int)rang);
}

/* --- hammer: everything at once --- */

static _Atomic bool stop;
static int shared[4];
static _Atomic unsigned long received, made;

static void *sender(void *arg)
{
	while (!stop)
		for (int i = 0; i < 4; i++)
			to_peer(shared[i]);
	return arg;
}

static void *receiver(void *arg)
{
	char buf[4][64];
	struct iovec iov[4];
	struct mmsghdr m[4] = {0};

	for (int i = 0; i < 4; i++) {
		iov[i] = (struct iovec){buf[i], sizeof(buf[i])};
		m[i].msg_hdr = (struct msghdr){.msg_iov = &iov[i], .msg_iovlen = 1};
	}
	for (unsigned i = 0; !stop; i++) {
		int n = i % 2 ? recv(shared[i % 4], buf[0], 64, 0) > 0
			      : recvmmsg(shared[i % 4], m, 4, MSG_WAITFORONE, NULL);

		if (n > 0)
			received += (unsigned long)n;
	}
	return arg;
}

static void *maker(void *arg)
{
	for (; !stop; made++) {
		int fd = udp(0, 10), other = dup(fd);
		char c;

		to_peer(fd);
		CHECK(!connect(fd, (struct sockaddr *)&peer, sizeof(peer)));
		send(other, "x", 1, 0);
		recv(other, &c, 1, 0);
		close(fd);
		recv(other, &c, 1, MSG_DONTWAIT);
		close(other);
	}
	return arg;
}

static void *optioner(void *arg)
{
	for (int i = 1; !stop; i++) {
		int ttl = 1 + i % 200, on = i & 1, size = 65536 + i % 4 * 65536;

		setsockopt(shared[i % 4], IPPROTO_IP, IP_TTL, &ttl, sizeof(ttl));
		setsockopt(shared[i % 4], SOL_SOCKET, SO_TIMESTAMP, &on, sizeof(on));
		setsockopt(shared[i % 4], SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
		usleep(100);
	}
	return arg;
}

static void *connecter(void *arg)
{
	struct sockaddr none = {.sa_family = AF_UNSPEC};

	while (!stop) {
		connect(shared[3], (struct sockaddr *)&peer, sizeof(peer));
		usleep(200);
		connect(shared[3], &none, sizeof(none));
	}
	return arg;
}

static void *poller(void *arg)
{
	int ep = epoll_create1(0);
	struct epoll_event ev = {.events = EPOLLIN};
	struct pollfd p[4];

	for (int i = 0; i < 4; i++) {
		epoll_ctl(ep, EPOLL_CTL_ADD, shared[i], &ev);
		p[i] = (struct pollfd){.fd = shared[i], .events = POLLIN};
	}
	while (!stop) {
		poll(p, 4, 1);
		epoll_wait(ep, &ev, 1, 1);
		recv(shared[0], p, 1, MSG_DONTWAIT);
	}
	close(ep);
	return arg;
}

static void *forker(void *arg)
{
	while (!stop) {
		int status;
		pid_t pid = fork();

		if (!pid) {
			to_peer(shared[2]);
			_exit(7);
		}
		CHECK(waitpid(pid, &status, 0) == pid);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
		usleep(20000);
	}
	return arg;
}

static void hammer(int seconds, bool forks)
{
	void *(*const jobs[])(void *) = {
		sender,	  receiver,  receiver, maker,  maker,
		optioner, connecter, poller,   poller, forks ? forker : sender};
	enum { N = sizeof(jobs) / sizeof(jobs[0]) };
	pthread_t t[N];

	for (int i = 0; i < 4; i++)
		shared[i] = udp(0, 20);
	for (int i = 0; i < N; i++)
		CHECK(!pthread_create(&t[i], NULL, jobs[i], NULL));
	sleep((unsigned)seconds);
	stop = true;
	for (int i = 0; i < N; i++)
		pthread_join(t[i], NULL);
	printf("%lu datagrams received, %lu sockets made\n", received, made);
	CHECK(received > 0 && made > 0);
	echo(udp(0, 1000));
}

int main(int argc, char **argv)
{
	int count = argc > 5 ? atoi(argv[5]) : 1;

	CHECK(argc >= 5);
	own = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = inet_addr(argv[2])};
	peer = (struct sockaddr_in){.sin_family = AF_INET,
				    .sin_addr.s_addr = inet_addr(argv[3]),
				    .sin_port = htons((uint16_t)atoi(argv[4]))};
	echo(udp(0, 1000));
	if (!strcmp(argv[1], "cancel"))
		cancel(count);
	else if (!strcmp(argv[1], "emfile"))
		emfile();
	else if (!strcmp(argv[1], "churn"))
		churn(count);
	else if (!strcmp(argv[1], "signals"))
		signals(count);
	else
		hammer(count, !strcmp(argv[1], "hammer"));
	return 0;
}
