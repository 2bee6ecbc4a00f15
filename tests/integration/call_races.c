/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * call_races pairs|info <own address> <peer address> <TCP port> [count]: calls on one TCP socket
 * from two threads at once.
 *
 * pairs: connect() against listen(), bind(), shutdown(), close() and itself, count rounds each. As
 * with kernel sockets one of them comes first: a socket never both connects and listens, and is
 * bound only before it connects. info: threads ask a connection for TCP_INFO until it
 * is over; the answer stays that of the connection, also when its interface has gone.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct sockaddr_in own = {.sin_family = AF_INET}, peer = {.sin_family = AF_INET};
static _Atomic unsigned round_now;
static _Atomic bool over;
static int fd;

/* What the other thread does, and its answer. */
static int (*other)(void);
static int other_ret, other_err;
static _Atomic unsigned done;

#define CHECK(what)                                                                                \
	do {                                                                                       \
		if (!(what)) {                                                                     \
			printf("line %d: %s: %s\n", __LINE__, #what, strerror(errno));             \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

static int do_listen(void)
{
	return listen(fd, 4);
}

static int do_bind(void)
{
	struct sockaddr_in any = own;

	return bind(fd, (struct sockaddr *)&any, sizeof(any));
}

static int do_shutdown(void)
{
	return shutdown(fd, SHUT_RDWR);
}

static int do_close(void)
{
	return close(fd);
}

static int do_connect(void)
{
	return connect(fd, (struct sockaddr *)&peer, sizeof(peer));
}

static void *second(void *arg)
{
	for (unsigned r = 1;; r++) {
		while (atomic_load(&round_now) != r)
			if (sched_yield() || atomic_load(&over))
				return arg;
		/* At another moment of the first one's each time. */
		for (volatile unsigned spin = r * 7919 % 60000; spin; spin--)
			;
		other_ret = other();
		other_err = errno;
		atomic_store(&done, r);
	}
}

static void judge(int ret, int err)
{
	bool began = !ret || err == EINPROGRESS;

	if (other == do_listen && began && !other_ret) {
		printf("it connects and listens\n");
		exit(1);
	}
	/* Who connects has an address, which another one may not replace. */
	if (other == do_bind && !other_ret && began) {
		struct sockaddr_in a;
		socklen_t len = sizeof(a);

		CHECK(!getsockname(fd, (struct sockaddr *)&a, &len));
		CHECK(a.sin_addr.s_addr == own.sin_addr.s_addr);
	}
}

static void pair(const char *name, int (*with)(void), unsigned count)
{
	pthread_t t;

	other = with;
	atomic_store(&over, false);
	atomic_store(&round_now, 0);
	CHECK(!pthread_create(&t, NULL, second, NULL));
	for (unsigned r = 1; r <= count; r++) {
		struct linger abort = {1, 0};
		int ret, err;

		fd = socket(AF_INET, SOCK_STREAM | (r % 2 ? SOCK_NONBLOCK : 0), 0);
		CHECK(fd >= 0);
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &abort, sizeof(abort));
		atomic_store(&round_now, r);
		ret = do_connect();
		err = errno;
		while (atomic_load(&done) != r)
			sched_yield();
		judge(ret, err);
		if (with != do_close)
			close(fd);
	}
	atomic_store(&over, true);
	CHECK(!pthread_join(t, NULL));
	atomic_store(&done, 0);
	printf("%u times %s\n", count, name);
}

static void *ask(void *arg)
{
	unsigned *asked = arg, first = 0, more = 1000;

	/* Until the connection is over, and some times after that. */
	for (struct tcp_info info = {0}; more; (*asked)++) {
		socklen_t len = sizeof(info);

		CHECK(!getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len));
		more -= info.tcpi_state == TCP_CLOSE;
		if (!first)
			first = info.tcpi_snd_mss;
		if (info.tcpi_snd_mss == first)
			continue;
		printf("the MSS was %u and became %u, state %u\n", first, info.tcpi_snd_mss,
		       info.tcpi_state);
		exit(1);
	}
	return NULL;
}

static void info(void)
{
	unsigned asked[4] = {0};
	pthread_t t[4];

	fd = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(!do_connect());
	CHECK(send(fd, "x", 1, 0) == 1);
	for (int i = 0; i < 4; i++)
		CHECK(!pthread_create(&t[i], NULL, ask, &asked[i]));
	printf("asking\n");
	for (int i = 0; i < 4; i++)
		CHECK(!pthread_join(t[i], NULL));
	printf("asked %u times\n", asked[0] + asked[1] + asked[2] + asked[3]);
}

int main(int argc, char **argv)
{
	unsigned count = argc > 5 ? (unsigned)atoi(argv[5]) : 100;

	if (argc < 5 || inet_pton(AF_INET, argv[2], &own.sin_addr) != 1 ||
	    inet_pton(AF_INET, argv[3], &peer.sin_addr) != 1)
		return 2;
	peer.sin_port = htons((uint16_t)atoi(argv[4]));
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!strcmp(argv[1], "info")) {
		info();
		return 0;
	}
	pair("connect and listen", do_listen, count);
	pair("connect and bind", do_bind, count);
	pair("connect and shutdown", do_shutdown, count);
	pair("connect and connect", do_connect, count);
	pair("connect and close", do_close, count);
	return 0;
}
