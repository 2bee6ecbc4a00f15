/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * TCP sockets used from many threads. An ordinary program: it knows nothing of the library.
 *
 *   tcp_threads accept|reuseport|epoll|exec <own address> <port> <threads>
 *            serves echoes until SIGTERM, then says who accepted what; exec: as accept, while one
 *            more thread tries to become a program that there is not
 *   tcp_threads client <address> <port> <threads> <connections of each>
 *            each says a few things and wants to hear them again
 *   tcp_threads hammer|close|options <address> <port> <threads> <seconds>
 *            against such a server
 *
 * Ends with 0 when all was as with kernel sockets.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define THREADS_MAX 16

static struct sockaddr_in where;
static int num_threads, count;
static _Atomic bool stop;
static _Atomic unsigned long accepted[THREADS_MAX], echoed;

#define CHECK(what)                                                                                \
	do {                                                                                       \
		if (!(what)) {                                                                     \
			fprintf(stderr, "line %d: %s: %s\n", __LINE__, #what, strerror(errno));    \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

static int listener(bool shared_port)
{
	int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK(!setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)));
	CHECK(!shared_port || !setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)));
	CHECK(!bind(fd, (struct sockaddr *)&where, sizeof(where)));
	CHECK(!listen(fd, 256));
	return fd;
}

static int connected(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	CHECK(fd >= 0);
	CHECK(!connect(fd, (struct sockaddr *)&where, sizeof(where)));
	return fd;
}

/* Sends it all again. False: the peer is done, or gone, or (errno EAGAIN) has said nothing. */
static bool echo_once(int fd)
{
	char buf[4096];
	ssize_t n = recv(fd, buf, sizeof(buf), 0), sent = 0;

	if (n == 0)
		errno = 0; /* not that of an earlier call */
	while (n > 0 && sent < n) {
		ssize_t k = send(fd, buf + sent, (size_t)(n - sent), MSG_NOSIGNAL);

		if (k < 0)
			return false;
		sent += k;
	}
	echoed += n > 0 ? (unsigned long)n : 0;
	return n > 0;
}

/* --- servers */

static int the_listener, the_epoll;

static void *accepter(void *arg)
{
	long me = (long)arg;
	int l = the_listener < 0 ? listener(true) : the_listener;

	while (!stop) {
		int fd = accept(l, NULL, NULL);

		CHECK(fd >= 0);
		accepted[me]++;
		while (echo_once(fd))
			;
		close(fd);
	}
	return NULL;
}

static void *epoll_worker(void *arg)
{
	long me = (long)arg;

	while (!stop) {
		struct epoll_event ev = {0};
		int fd;

		if (epoll_wait(the_epoll, &ev, 1, 1000) <= 0)
			continue;
		fd = ev.data.fd;
		if (fd == the_listener) {
			int new = accept4(fd, NULL, NULL, SOCK_NONBLOCK);

			if (new < 0) {
				CHECK(errno == EAGAIN); /* another one was faster */
				continue;
			}
			accepted[me]++;
			ev = (struct epoll_event){.events = EPOLLIN | EPOLLONESHOT, .data.fd = new};
			CHECK(!epoll_ctl(the_epoll, EPOLL_CTL_ADD, new, &ev));
			continue;
		}
		if (!echo_once(fd) && errno != EAGAIN) {
			close(fd);
			continue;
		}
		ev = (struct epoll_event){.events = EPOLLIN | EPOLLONESHOT, .data.fd = fd};
		CHECK(!epoll_ctl(the_epoll, EPOLL_CTL_MOD, fd, &ev));
	}
	return NULL;
}

static void *executer(void *arg)
{
	char *const argv[] = {"nothing", NULL};
	unsigned long n = 0;

	for (; !stop; n++)
		CHECK(execv("/nothing", argv) < 0 && errno == ENOENT);
	*(unsigned long *)arg = n;
	return NULL;
}

static void serve(const char *kind)
{
	bool by_epoll = !strcmp(kind, "epoll"), execs = !strcmp(kind, "exec");
	unsigned long all = 0, programs = 0;
	pthread_t execs_thread;
	pthread_t t[THREADS_MAX];
	sigset_t set;
	int sig;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	CHECK(!pthread_sigmask(SIG_BLOCK, &set, NULL));
	the_listener = strcmp(kind, "reuseport") ? listener(false) : -1;
	if (by_epoll) {
		struct epoll_event ev = {.events = EPOLLIN, .data.fd = the_listener};

		CHECK(!fcntl(the_listener, F_SETFL, O_NONBLOCK));
		the_epoll = epoll_create1(0);
		CHECK(!epoll_ctl(the_epoll, EPOLL_CTL_ADD, the_listener, &ev));
	}
	for (long i = 0; i < num_threads; i++)
		CHECK(!pthread_create(&t[i], NULL, by_epoll ? epoll_worker : accepter, (void *)i));
	CHECK(!execs || !pthread_create(&execs_thread, NULL, executer, &programs));
	CHECK(!sigwait(&set, &sig));
	stop = execs;
	if (execs)
		pthread_join(execs_thread, NULL);
	for (int i = 0; i < num_threads; i++) {
		all += accepted[i];
		printf("thread %d accepted %lu\n", i, accepted[i]);
	}
	printf("all accepted %lu echoed %lu\n", all, echoed);
	if (execs)
		printf("%lu programs\n", programs);
	fflush(stdout);
	exit(0); /* threads sit in accept() */
}

/* --- clients */

static void *client(void *arg)
{
	unsigned seed = (unsigned)(long)arg;
	char out[3000], in[3000];

	for (int i = 0; i < count; i++) {
		int fd = connected();

		for (int round = 0; round < 3; round++) {
			size_t n = 1 + (size_t)rand_r(&seed) % sizeof(out);

			memset(out, rand_r(&seed), n);
			CHECK(send(fd, out, n, 0) == (ssize_t)n);
			CHECK(recv(fd, in, n, MSG_WAITALL) == (ssize_t)n);
			CHECK(!memcmp(in, out, n));
		}
		if (i % 3 == 0)
			CHECK(!shutdown(fd, SHUT_WR) && recv(fd, in, 1, 0) == 0);
		close(fd);
	}
	return NULL;
}

/* --- hammer: some connections, everything at once */

static int shared[2];

static void *writer(void *arg)
{
	char buf[2000] = {0};

	while (!stop)
		CHECK(send(shared[(long)arg % 2], buf, sizeof(buf), MSG_NOSIGNAL) > 0 || stop);
	return NULL;
}

static void *reader(void *arg)
{
	char buf[5000];

	while (!stop)
		if (recv(shared[(long)arg % 2], buf, sizeof(buf), 0) > 0)
			echoed++;
	return NULL;
}

static void *asker(void *arg)
{
	int ep = epoll_create1(0);

	for (int i = 0; i < 2; i++) {
		struct epoll_event ev = {.events = EPOLLIN | EPOLLET, .data.fd = shared[i]};

		CHECK(!epoll_ctl(ep, EPOLL_CTL_ADD, shared[i], &ev));
	}
	for (int i = 0; !stop; i++) {
		int fd = shared[i % 2], on = i & 1, left;
		struct pollfd p = {.fd = fd, .events = POLLIN | POLLOUT};
		struct epoll_event ev;
		struct tcp_info info;
		socklen_t len = sizeof(info);
		char c;

		CHECK(!setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)));
		CHECK(!setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &on, sizeof(on)));
		CHECK(!getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len));
		CHECK(!ioctl(fd, FIONREAD, &left));
		poll(&p, 1, 0);
		epoll_wait(ep, &ev, 1, 1);
		recv(fd, &c, 1, MSG_PEEK | MSG_DONTWAIT);
	}
	close(ep);
	return arg;
}

/* Connections that come and go beside it. */
static void *maker(void *arg)
{
	while (!stop)
		close(connected());
	return arg;
}

static void hammer(void)
{
	void *(*const jobs[])(void *) = {writer, reader, writer, reader, asker, maker};
	enum { N = sizeof(jobs) / sizeof(jobs[0]) };
	pthread_t t[N];

	shared[0] = connected();
	shared[1] = connected();
	for (long i = 0; i < N; i++)
		CHECK(!pthread_create(&t[i], NULL, jobs[i], (void *)(i / 2)));
	sleep((unsigned)count);
	stop = true;
	shutdown(shared[0], SHUT_WR);
	shutdown(shared[1], SHUT_WR);
	for (int i = 0; i < N; i++)
		pthread_join(t[i], NULL);
	CHECK(echoed > 0);
	printf("%lu pieces heard\n", echoed);
}

/* --- close: one thread waits, another shuts down or closes under it */

static _Atomic int victim = -1;

static void *waiter(void *arg)
{
	char c;

	while (!stop) {
		int fd = victim;

		if (fd >= 0 && recv(fd, &c, 1, 0) <= 0)
			usleep(100);
	}
	return arg;
}

static void close_under_readers(void)
{
	pthread_t t[THREADS_MAX];
	char c = 'x';

	victim = connected();
	for (int i = 0; i < num_threads; i++)
		CHECK(!pthread_create(&t[i], NULL, waiter, NULL));
	for (int i = 0; i < 100 * count; i++) {
		int old = victim, next = connected();

		send(old, &c, 1, MSG_NOSIGNAL);
		if (i % 4)
			usleep(1000);
		victim = next;
		/* close() alone wakes nobody. */
		shutdown(old, SHUT_RDWR);
		CHECK(!close(old));
	}
	stop = true;
	shutdown(victim, SHUT_RDWR);
	for (int i = 0; i < num_threads; i++)
		pthread_join(t[i], NULL);
	printf("closed under readers\n");
}

/*
 * --- options: threads set and ask them while the number is closed and given out again, to whatever
 * file: they may fail
 */

static void *option_setter(void *arg)
{
	static const int words[][2] = {
		{SOL_SOCKET, SO_RCVBUF},	 {SOL_SOCKET, SO_SNDBUF},
		{SOL_SOCKET, SO_RCVLOWAT},	 {SOL_SOCKET, SO_KEEPALIVE},
		{IPPROTO_TCP, TCP_NODELAY},	 {IPPROTO_TCP, TCP_CORK},
		{IPPROTO_TCP, TCP_KEEPIDLE},	 {IPPROTO_TCP, TCP_QUICKACK},
		{IPPROTO_TCP, TCP_USER_TIMEOUT},
	};
	enum { N = sizeof(words) / sizeof(words[0]) };

	for (int i = (int)(long)arg; !stop; i++) {
		struct linger reset = {.l_onoff = i & 1};
		struct timeval wait = {.tv_sec = 1};
		int val = 1 + i % 3;

		setsockopt(victim, words[i % N][0], words[i % N][1], &val, sizeof(val));
		setsockopt(victim, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
		setsockopt(victim, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
		setsockopt(victim, IPPROTO_TCP, TCP_CONGESTION, i & 1 ? "reno" : "cubic",
			   4 + (~i & 1));
	}
	return arg;
}

static void *option_asker(void *arg)
{
	static const int words[][2] = {
		{SOL_SOCKET, SO_ERROR},	   {SOL_SOCKET, SO_RCVBUF},   {SOL_SOCKET, SO_ACCEPTCONN},
		{SOL_SOCKET, SO_RCVLOWAT}, {IPPROTO_TCP, TCP_MAXSEG}, {IPPROTO_TCP, TCP_INFO},
	};
	enum { N = sizeof(words) / sizeof(words[0]) };

	for (int i = (int)(long)arg; !stop; i++) {
		struct sockaddr_in name;
		char room[512];
		socklen_t len = sizeof(room);

		getsockopt(victim, words[i % N][0], words[i % N][1], room, &len);
		len = sizeof(name);
		getsockname(victim, (struct sockaddr *)&name, &len);
		len = sizeof(name);
		getpeername(victim, (struct sockaddr *)&name, &len);
	}
	return arg;
}

/* Every fourth is a listener. */
static int next_victim(int i)
{
	struct sockaddr_in any = {.sin_family = AF_INET};
	struct pollfd p = {.events = POLLIN};

	if (i % 4)
		return connected();
	p.fd = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(!bind(p.fd, (struct sockaddr *)&any, sizeof(any)) && !listen(p.fd, 10));
	CHECK(poll(&p, 1, 0) == 0);
	return p.fd;
}

static void options(void)
{
	pthread_t t[THREADS_MAX];
	struct sockaddr_in peer = {0};
	socklen_t len = sizeof(peer);
	char c = 'x';

	victim = connected();
	for (long i = 0; i < num_threads; i++)
		CHECK(!pthread_create(&t[i], NULL, i % 2 ? option_asker : option_setter,
				      (void *)i));
	for (int i = 0; i < 100 * count; i++) {
		int old = victim;

		send(old, &c, 1, MSG_NOSIGNAL);
		if (i % 3)
			usleep(1000);
		if (i % 2)
			victim = next_victim(i);
		CHECK(!close(old));
		if (i % 2 == 0)
			victim = next_victim(i);
	}
	stop = true;
	for (int i = 0; i < num_threads; i++)
		pthread_join(t[i], NULL);
	/* What is left of it is whole. */
	close(victim);
	victim = connected();
	CHECK(!getpeername(victim, (struct sockaddr *)&peer, &len) &&
	      peer.sin_port == where.sin_port);
	CHECK(send(victim, &c, 1, 0) == 1 && recv(victim, &c, 1, 0) == 1 && c == 'x');
	printf("options of what was closed\n");
}

int main(int argc, char **argv)
{
	pthread_t t[THREADS_MAX];

	CHECK(argc >= 5);
	where = (struct sockaddr_in){.sin_family = AF_INET,
				     .sin_addr.s_addr = inet_addr(argv[2]),
				     .sin_port = htons((uint16_t)atoi(argv[3]))};
	num_threads = atoi(argv[4]);
	count = argc > 5 ? atoi(argv[5]) : 1;
	CHECK(num_threads > 0 && num_threads <= THREADS_MAX);
	if (!strcmp(argv[1], "hammer")) {
		hammer();
	} else if (!strcmp(argv[1], "close")) {
		close_under_readers();
	} else if (!strcmp(argv[1], "options")) {
		options();
	} else if (!strcmp(argv[1], "client")) {
		for (long i = 0; i < num_threads; i++)
			CHECK(!pthread_create(&t[i], NULL, client, (void *)i));
		for (int i = 0; i < num_threads; i++)
			pthread_join(t[i], NULL);
		printf("%d connections answered\n", num_threads * count);
	} else {
		serve(argv[1]);
	}
	return 0;
}
