/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Every socket option there can be: sets it to many values and lengths, gets it after each, and
 * prints what came of it, a line an option. test_options.py runs it on kernel sockets and on the
 * library's and compares.
 *
 *	options_sweep sweep <4|6|mapped> <state> <my address> <peer address> <peer's namespace>
 *
 * state: connected, accepted, listening, inherited (set on a listener, read from what it accepts),
 * fresh, udp-fresh, udp-bound, udp-connected; early (0 and 1 are set, then it connects: who serves
 * it). A line: state family level option | initial | value:
 * answer ... | @ who serves the connection at the end, "user" or "kernel".
 *
 * The peer is this program, too, without the library and in the peer's namespace.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PEER_PORT 7400
#define MY_PORT 7401
#define TCP_CLOSE_STATE 7
#define ROOM 64

static const char *fam, *state;
static int domain;
static struct sockaddr_storage me, peer;
static socklen_t addr_len;
static int ask_peer; /* 'c': connect to MY_PORT; 'd': and send a byte */
static char *plenty; /* 1, and the 4 GiB behind it can be read, too */
static int standing = -1; /* the listener behind "accepted" */

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

static void plenty_map(void)
{
	plenty = mmap(NULL, (size_t)UINT32_MAX + 1, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (plenty == MAP_FAILED)
		die("mmap() of 4 GiB");
	*plenty = 1;
}

static void address(struct sockaddr_storage *ss, const char *text, int port)
{
	struct sockaddr_in *a4 = (struct sockaddr_in *)ss;
	struct sockaddr_in6 *a6 = (struct sockaddr_in6 *)ss;

	memset(ss, 0, sizeof(*ss));
	ss->ss_family = (sa_family_t)domain;
	a4->sin_port = htons((uint16_t)port); /* at the same place in both */
	if (inet_pton(domain, text,
		      domain == AF_INET ? (void *)&a4->sin_addr : (void *)&a6->sin6_addr) != 1)
		die(text);
	addr_len = domain == AF_INET ? sizeof(*a4) : sizeof(*a6);
}

/* --- the peer */

#define MAX_PEERS 4096

/* A connection as the sweep wants it; it may be reset at any time, then -1. */
static int asked(char how)
{
	int fd = socket(domain, SOCK_STREAM, 0);

	if (!connect(fd, (struct sockaddr *)&peer, addr_len) &&
	    (how == 'c' || send(fd, &how, 1, MSG_NOSIGNAL) == 1))
		return fd;
	if (errno != ECONNRESET && errno != EPIPE)
		die("the peer's connection");
	close(fd);
	return -1;
}

/*
 * After a call that has failed. True: whoever had the port before may still be on its way to its
 * end, and the next try is due.
 */
static bool port_may_come(int *tries)
{
	if (errno != EADDRINUSE || ++*tries == 3000)
		return false;
	usleep(10000);
	return true;
}

static bool binds(int fd, const struct sockaddr_storage *at)
{
	int tries = 0, ret;

	while ((ret = bind(fd, (const struct sockaddr *)at, addr_len)) && port_may_come(&tries))
		;
	return !ret;
}

static bool listens(int fd)
{
	int tries = 0, ret;

	if (!binds(fd, &me))
		return false;
	while ((ret = listen(fd, 128)) && port_may_come(&tries))
		;
	return !ret;
}

static void peer_main(int from, const char *family, const char *mine, const char *other)
{
	static struct pollfd p[MAX_PEERS];
	int n = 2, one = 1, listener;
	struct linger reset = {.l_onoff = 1};

	domain = strcmp(family, "4") ? AF_INET6 : AF_INET;
	listener = socket(domain, SOCK_STREAM, 0);
	address(&me, mine, PEER_PORT);
	address(&peer, other, MY_PORT);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (listener < 0 || !listens(listener))
		die("peer");
	p[0] = (struct pollfd){.fd = from, .events = POLLIN};
	p[1] = (struct pollfd){.fd = listener, .events = POLLIN};
	for (;;) {
		char c;
		int fd = -1;

		if (poll(p, (nfds_t)n, -1) < 0)
			die("poll");
		for (int i = 2; i < n; i++) {
			if (!p[i].revents)
				continue;
			setsockopt(p[i].fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
			close(p[i].fd);
			p[i--] = p[--n];
		}
		if (p[0].revents) {
			if (read(from, &c, 1) != 1)
				_exit(0);
			fd = asked(c);
		} else if (p[1].revents) {
			fd = accept(listener, NULL, NULL);
		}
		if (fd >= 0 && n < MAX_PEERS)
			p[n++] = (struct pollfd){.fd = fd, .events = POLLIN};
	}
}

/* Before this process has a socket. */
static void peer_start(const char *netns, char **argv)
{
	char path[64], from[16];
	int pipes[2], ns;

	snprintf(path, sizeof(path), "/run/netns/%s", netns);
	if (pipe(pipes))
		die("pipe");
	ask_peer = pipes[1];
	if (fork())
		return;
	ns = open(path, O_RDONLY);
	if (ns < 0 || setns(ns, CLONE_NEWNET))
		die(path);
	close(pipes[1]);
	snprintf(from, sizeof(from), "%d", pipes[0]);
	unsetenv("LD_PRELOAD");
	execl("/proc/self/exe", argv[0], "peer", from, argv[2], argv[5], argv[4], NULL);
	die("exec");
}

/* --- sockets in a state */

static bool is_udp(void)
{
	return !strncmp(state, "udp", 3);
}

static void bind_to(int fd, int port)
{
	struct sockaddr_storage at = me;
	int one = 1;

	((struct sockaddr_in *)&at)->sin_port = htons((uint16_t)port);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (!binds(fd, &at))
		die("bind");
}

static int listener(int port)
{
	struct pollfd p = {.events = POLLIN};
	int fd = socket(domain, SOCK_STREAM, 0);

	bind_to(fd, port);
	if (listen(fd, 16))
		die("listen");
	p.fd = fd;
	poll(&p, 1, 0); /* now it is offloaded */
	return fd;
}

static int accepted_from(int l, const char *how)
{
	int fd;

	if (write(ask_peer, how, 1) != 1)
		die("the peer");
	fd = accept(l, NULL, NULL);
	if (fd < 0)
		die("accept");
	return fd;
}

static int connect_again(int fd)
{
	for (int i = 0; i < 1000 && connect(fd, (struct sockaddr *)&peer, addr_len); i++) {
		if (errno != ECONNREFUSED)
			die("connect"); /* else the peer does not listen yet */
		usleep(10000);
	}
	return fd;
}

static int made(void)
{
	int fd;

	if (!strcmp(state, "connected"))
		return connect_again(socket(domain, SOCK_STREAM, 0));
	if (!strcmp(state, "accepted")) {
		if (standing < 0)
			standing = listener(MY_PORT);
		return accepted_from(standing, "c");
	}
	if (!strcmp(state, "listening") || !strcmp(state, "inherited"))
		return listener(MY_PORT);
	fd = socket(domain, is_udp() ? SOCK_DGRAM : SOCK_STREAM, 0);
	if (!strcmp(state, "udp-bound"))
		bind_to(fd, MY_PORT);
	if (!strcmp(state, "udp-connected") && connect(fd, (struct sockaddr *)&peer, addr_len))
		die("connect");
	return fd;
}

/* A connection ends by a RST: nothing is left of it. */
static void unmade(int fd)
{
	struct linger reset = {.l_onoff = 1};

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	close(fd);
}

/* Who serves the connection: past the library, which sees syscall(), too. */
static const char *server_of(int fd)
{
#ifdef __x86_64__
	struct tcp_info info = {0};
	socklen_t len = sizeof(info);
	long ret;
	register long r10 __asm__("r10") = (long)&info;
	register long r8 __asm__("r8") = (long)&len;

	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "a"(SYS_getsockopt), "D"((long)fd), "S"((long)IPPROTO_TCP),
			   "d"((long)TCP_INFO), "r"(r10), "r"(r8)
			 : "rcx", "r11", "memory");
	if (!ret)
		return info.tcpi_state == TCP_CLOSE_STATE ? "user" : "kernel";
#endif
	(void)fd;
	return "?";
}

/* --- the sweep */

/* What differs between two runs of the same program: only its length is shown. */
static bool varies(int level, int opt)
{
	static const int at[][2] = {
		{SOL_SOCKET, 49 /* INCOMING_CPU */},   {SOL_SOCKET, 55 /* MEMINFO */},
		{SOL_SOCKET, 56 /* NAPI_ID */},	       {SOL_SOCKET, 57 /* COOKIE */},
		{SOL_SOCKET, 71 /* NETNS_COOKIE */},   {SOL_SOCKET, 59 /* PEERGROUPS */},
		{IPPROTO_IP, 52 /* the local port */}, {IPPROTO_TCP, TCP_INFO},
		{IPPROTO_TCP, 24 /* TIMESTAMP */},     {IPPROTO_TCP, 26 /* CC_INFO */},
	};

	for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++)
		if (at[i][0] == level && at[i][1] == opt)
			return true;
	return false;
}

static void get(int fd, int level, int opt, socklen_t room)
{
	struct sockaddr_storage name;
	socklen_t name_len = sizeof(name), len = room;
	uint8_t val[ROOM];
	unsigned n;

	memset(val, 0xaa, sizeof(val));
	errno = 0;
	if (getsockopt(fd, level, opt, val, &len)) {
		printf(" e%d", errno);
		return;
	}
	printf(" %d", (int)len);
	if (varies(level, opt) || !len)
		return;
	n = len < sizeof(val) ? len : sizeof(val);
	if (level == SOL_SOCKET && opt == 28 /* PEERNAME: the port is chosen at random */) {
		printf("=%s", !getpeername(fd, (struct sockaddr *)&name, &name_len) &&
					      !memcmp(&name, val, n < name_len ? n : name_len)
				      ? "peername"
				      : "?");
		return;
	}
	printf("=");
	while (n && !val[n - 1]) /* zeroes at the end say nothing */
		n--;
	for (unsigned i = 0; i < n; i++)
		printf("%02x", val[i]);
}

static void gets(int fd, int level, int opt)
{
	static const socklen_t rooms[] = {4, ROOM, 1, 0, (socklen_t)-1};

	for (size_t i = 0; i < sizeof(rooms) / sizeof(rooms[0]); i++)
		get(fd, level, opt, rooms[i]);
}

static struct sock_filter all_pass = {BPF_RET | BPF_K, 0, 0, 0xffffffff};
static struct sock_fprog filter = {1, &all_pass};

static const struct value {
	const char *name;
	socklen_t len;
	const void *data;
	int only_level, only_opt; /* -1: any */
} values[] = {
	{"0", 4, "\0\0\0\0", -1, 0},
	{"1", 4, "\1\0\0\0", -1, 0},
	{"-1", 4, "\377\377\377\377", -1, 0},
	{"2", 4, "\2\0\0\0", -1, 0},
	{"40", 4, "\50\0\0\0", -1, 0},
	{"1000", 4, "\350\3\0\0", -1, 0},
	{"70000", 4, "\160\21\1\0", -1, 0},
	{"min", 4, "\0\0\0\200", -1, 0},
	{"short", 1, "\1", -1, 0},
	{"empty", 0, "", -1, 0},
	{"2bytes", 2, "\1\0", -1, 0},
	{"8bytes", 8, "\1\0\0\0\1\0\0\0", -1, 0},
	{"16bytes", 16, "\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0", -1, 0},
	{"64zeroes", 64, (const char[64]){0}, -1, 0},
	{"minus-length", (socklen_t)-1, NULL, -1, 0},
	{"off", 4, "\0\0\0\0", -1, 0},
	{"minus-microseconds", 16, "\0\0\0\0\0\0\0\0\377\377\377\377\377\377\377\377", SOL_SOCKET,
	 20},
	{"filter", sizeof(filter), &filter, SOL_SOCKET, SO_ATTACH_FILTER},
	{"reno", 4, "reno", IPPROTO_TCP, TCP_CONGESTION},
	{"cubic", 5, "cubic", IPPROTO_TCP, TCP_CONGESTION},
	{"tls", 3, "tls", IPPROTO_TCP, TCP_ULP},
};

static bool for_all(const struct value *v)
{
	return v->only_level < 0;
}

/* A listener that is bound to another interface, or sends extension headers that mean nothing. */
static bool nobody_comes(int level, int opt)
{
	return (level == SOL_SOCKET && (opt == SO_BINDTODEVICE || opt == 62)) ||
	       (level == IPPROTO_IPV6 && (opt == IPV6_HOPOPTS || opt == IPV6_RTHDRDSTOPTS ||
					  opt == IPV6_RTHDR || opt == IPV6_DSTOPTS));
}

/* Sets one value and reads; true when it was taken. */
static bool one_value(int fd, int level, int opt, const struct value *v)
{
	int ret, from = fd;

	errno = 0;
	ret = setsockopt(fd, level, opt, v->data ? v->data : plenty, v->len);
	printf(" | %s:", v->name);
	if (ret) {
		printf(" e%d", errno);
		return false;
	}
	if (!strcmp(state, "inherited")) {
		if (nobody_comes(level, opt))
			return true;
		from = accepted_from(fd, "d"); /* TCP_DEFER_ACCEPT waits for data */
	}
	gets(from, level, opt);
	if (from != fd)
		unmade(from);
	return true;
}

/* Set before connect(): who serves the connection then. A new socket for each value. */
static void one_early(int level, int opt)
{
	printf("%s %s %d %d |", state, fam, level, opt);
	for (size_t i = 0; i < 2; i++) {
		int fd = socket(domain, SOCK_STREAM, 0);

		errno = 0;
		if (setsockopt(fd, level, opt, values[i].data, values[i].len)) {
			printf(" | %s: e%d", values[i].name, errno);
		} else if (!nobody_comes(level, opt)) {
			connect_again(fd);
			printf(" | %s: %s", values[i].name, server_of(fd));
		}
		unmade(fd);
	}
	printf(" | @ ?\n");
}

/* Returns the socket to go on with. */
static int one_option(int fd, int level, int opt)
{
	const char *server;
	bool taken = false;

	printf("%s %s %d %d |", state, fam, level, opt);
	gets(fd, level, opt);
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		const struct value *v = &values[i];

		if (for_all(v) || (v->only_level == level && v->only_opt == opt))
			taken |= one_value(fd, level, opt, v);
	}
	server = is_udp() ? "?" : server_of(fd);
	printf(" | @ %s\n", server);
	if (!taken && strcmp(server, "kernel"))
		return fd;
	unmade(fd);
	return made();
}

/* Tables of netfilter, which are asked for by socket options: modules would be loaded. */
static bool left_out(int level, int opt)
{
	return (level == IPPROTO_IP && opt >= 64 && opt <= 83) ||
	       (level == IPPROTO_IPV6 &&
		(opt == 64 || opt == 65 || opt == 68 || opt == 69 || opt >= 80));
}

int main(int argc, char **argv)
{
	static const int levels[] = {SOL_SOCKET, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP,
				     IPPROTO_UDP};
	int fd;

	if (argc == 6 && !strcmp(argv[1], "peer"))
		peer_main(atoi(argv[2]), argv[3], argv[4], argv[5]);
	if (argc != 7 || strcmp(argv[1], "sweep"))
		return 2;
	alarm(60);
	setvbuf(stdout, NULL, _IOLBF, 0);
	fam = argv[2];
	state = argv[3];
	plenty_map();
	domain = strcmp(fam, "4") ? AF_INET6 : AF_INET;
	address(&me, argv[4], 0);
	address(&peer, argv[5], PEER_PORT);
	peer_start(argv[6], argv);
	fd = strcmp(state, "early") ? made() : -1;
	for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
		int last = levels[i] == IPPROTO_UDP ? 110 : 92;

		for (int opt = 0; opt <= last; opt++)
			if (left_out(levels[i], opt))
				continue;
			else if (fd < 0)
				one_early(levels[i], opt);
			else
				fd = one_option(fd, levels[i], opt);
	}
	return 0;
}
