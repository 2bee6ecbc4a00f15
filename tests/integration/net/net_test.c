/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A process with a mirror, driven by test_net.py: a command a line on standard input, a JSON value
 * a line on standard output. Between commands it takes in events, as the internal thread does.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "net/net.h"
#include "runtime/libc.h"
#include "config/params.h"

#define ARGS_MAX 9
#define LIST_MAX 256
#define THREADS_MAX 8

static unsigned long told[NET_EVENT_NEIGH + 1];
static bool paused;

/*
 * What libnl calls goes through the preload in an application: none of it may look like the
 * application's.
 */
static _Atomic unsigned long libnl_sends, libnl_unguarded;

ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	libnl_sends++;
	libnl_unguarded += !libc_internal;
	return libc.sendmsg(fd, msg, flags);
}

ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	libnl_unguarded += !libc_internal;
	return libc.recvmsg(fd, msg, flags);
}

int close(int fd)
{
	libnl_unguarded += !libc_internal;
	return libc.close(fd);
}

static void listener(enum net_event ev, int ifindex, void *arg)
{
	struct net_link link;
	struct net_route route;
	struct net_route_query q = {.dst = IN6ADDR_LOOPBACK_INIT};
	struct net_link_walk links = {.num = 0};

	(void)arg;
	told[ev]++;
	/* No lock is held: everything may be asked from here. */
	net_link_get(ifindex, &link);
	net_route_get(&q, &route);
	net_link_next(&links);
}

static struct in6_addr addr_of(const char *text)
{
	struct in6_addr a = IN6ADDR_ANY_INIT;
	char mapped[INET6_ADDRSTRLEN + 8];

	snprintf(mapped, sizeof(mapped), "%s%s", strchr(text, ':') ? "" : "::ffff:", text);
	if (inet_pton(AF_INET6, mapped, &a) != 1) {
		fprintf(stderr, "net_test: %s is not an address\n", text);
		exit(2);
	}
	return a;
}

static const char *text_of(const struct in6_addr *a, char *out)
{
	if (IN6_IS_ADDR_V4MAPPED(a))
		return inet_ntop(AF_INET, &a->s6_addr[12], out, INET6_ADDRSTRLEN);
	return inet_ntop(AF_INET6, a, out, INET6_ADDRSTRLEN);
}

static const char *mac_text(const uint8_t *m, char *out)
{
	sprintf(out, "%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5]);
	return out;
}

static void cmd_link(char **a)
{
	struct net_link l = {0};
	char mac[18];
	int err = net_link_get(atoi(a[0]), &l);

	printf("{\"err\":%d,\"ifindex\":%d,\"name\":\"%s\",\"driver\":\"%s\",\"kind\":%d,\"up\":%d,"
	       "\"mtu\":%u,\"mac\":\"%s\","
	       "\"master\":%d,\"queues\":%u}\n",
	       err, l.ifindex, l.name, l.driver, l.kind, l.up, l.mtu, mac_text(l.mac, mac),
	       l.master, l.num_rx_queues);
}

static void cmd_links(char **a)
{
	struct net_link_walk links = {.num = 0};
	const char *between = "";
	int ifindex;

	(void)a;
	printf("[");
	for (; (ifindex = net_link_next(&links)); between = ",")
		printf("%s%d", between, ifindex);
	printf("]\n");
}

static void cmd_addrs(char **a)
{
	struct in6_addr list[LIST_MAX];
	unsigned n = net_addr_list(atoi(a[0]), list, LIST_MAX);
	char text[INET6_ADDRSTRLEN];

	printf("[");
	for (unsigned i = 0; i < n && i < LIST_MAX; i++)
		printf("%s\"%s\"", i ? "," : "", text_of(&list[i], text));
	printf("]\n");
}

static void cmd_local(char **a)
{
	struct in6_addr addr = addr_of(a[0]);

	printf("%d\n", net_addr_is_local(&addr, a[1] ? atoi(a[1]) : 0));
}

static void cmd_ifindex(char **a)
{
	struct in6_addr addr = addr_of(a[0]);

	printf("%d\n", net_addr_ifindex(&addr));
}

static void cmd_broadcast(char **a)
{
	struct in6_addr addr = addr_of(a[0]);

	printf("%d\n", net_addr_is_broadcast(&addr));
}

static void cmd_route(char **a)
{
	struct net_route_query q = {
		.dst = addr_of(a[0]),
		.src = addr_of(a[1]),
		.oif = atoi(a[2]),
		.mark = (uint32_t)strtoul(a[3], NULL, 0),
		.tos = (uint8_t)strtoul(a[4], NULL, 0),
		.proto = (uint8_t)strtoul(a[5] ? a[5] : "0", NULL, 0),
		.sport = (uint16_t)strtoul(a[5] && a[6] ? a[6] : "0", NULL, 0),
		.dport = (uint16_t)strtoul(a[5] && a[6] && a[7] ? a[7] : "0", NULL, 0),
	};
	struct net_route r = {0};
	char gw[INET6_ADDRSTRLEN], src[INET6_ADDRSTRLEN];
	int err = net_route_get(&q, &r);

	printf("{\"err\":%d,\"type\":%d,\"oif\":%d,\"gateway\":\"%s\",\"prefsrc\":\"%s\",\"mtu\":%"
	       "u,\"multipath\":%d}\n",
	       err, r.type, r.oif, text_of(&r.gateway, gw), text_of(&r.prefsrc, src), r.mtu,
	       r.multipath);
}

/*
 * Asks for `count` destinations of 10.0.0.0/8 `rounds` times and says how many answers there were.
 */
static void cmd_routes(char **a)
{
	struct net_route_query q = {.oif = 0};
	struct net_route r;
	unsigned long good = 0, count = strtoul(a[0], NULL, 0), rounds = strtoul(a[1], NULL, 0);
	char text[INET_ADDRSTRLEN];

	for (unsigned long round = 0; round < rounds; round++)
		for (unsigned long i = 0; i < count; i++) {
			snprintf(text, sizeof(text), "10.9.%lu.%lu", i >> 8 & 255, i & 255);
			q.dst = addr_of(text);
			good += net_route_get(&q, &r) == 0;
		}
	printf("%lu\n", good);
}

static void cmd_neigh(char **a)
{
	struct in6_addr addr = addr_of(a[1]);
	struct net_neigh n = {0};
	char mac[18];
	int err = net_neigh_get(atoi(a[0]), &addr, &n);

	printf("{\"err\":%d,\"mac\":\"%s\",\"stale\":%d}\n", err, mac_text(n.mac, mac), n.stale);
}

static void cmd_confirm(char **a)
{
	struct in6_addr addr = addr_of(a[1]);

	printf("%d\n", net_neigh_confirm(atoi(a[0]), &addr));
}

static void cmd_confirm_delay(char **a)
{
	params.neigh_uc_arp_delay_msec = atoi(a[0]);
	printf("0\n");
}

static void cmd_state(char **a)
{
	(void)a;
	printf("{\"gen\":%u,\"neigh_gen\":%u,\"fd\":%d,\"told\":[%lu,%lu,%lu,%lu],",
	       net_generation(), net_neigh_generation(), net_fd(), told[0], told[1], told[2],
	       told[3]);
	printf("\"sends\":%lu,\"unguarded\":%lu}\n", libnl_sends, libnl_unguarded);
}

static void cmd_start(char **a)
{
	(void)a;
	printf("%d\n", net_start());
}

static void cmd_stop(char **a)
{
	(void)a;
	net_stop();
	printf("0\n");
}

static void cmd_listen(char **a)
{
	(void)a;
	printf("%d\n", net_listen(listener, NULL));
}

static void cmd_pause(char **a)
{
	paused = atoi(a[0]);
	printf("0\n");
}

/* Fds beyond standard error that are open, and how many of them an exec would pass on. */
static void count_fds(int *open_fds, int *inherited)
{
	DIR *d = opendir("/proc/self/fd");
	struct dirent *e;

	*open_fds = *inherited = 0;
	while (d && (e = readdir(d))) {
		int fd = atoi(e->d_name);

		if (fd < 3 || fd == dirfd(d))
			continue;
		++*open_fds;
		*inherited += !(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	}
	if (d)
		closedir(d);
	else
		perror("/proc/self/fd");
}

static void cmd_fds(char **a)
{
	int open_fds, inherited;

	(void)a;
	count_fds(&open_fds, &inherited);
	printf("{\"open\":%d,\"inherited\":%d}\n", open_fds, inherited);
}

/*
 * In the child: no mirror and no fd of it; then a mirror of its own. Returns the step that failed,
 * or 0.
 */
static int forked_child(void)
{
	struct net_link l;
	int open_fds, inherited;

	net_forked();
	count_fds(&open_fds, &inherited);
	if (open_fds)
		return 1;
	if (net_fd() != -1 || net_link_get(1, &l) != -ENODEV)
		return 2;
	if (net_start())
		return 3;
	if (net_link_get(1, &l) || l.kind != NET_LINK_LOOPBACK)
		return 4;
	net_stop();
	count_fds(&open_fds, &inherited);
	return open_fds ? 5 : 0;
}

static void cmd_fork(char **a)
{
	int status = -1;
	pid_t pid;

	(void)a;
	fflush(stdout);
	pid = fork();
	if (pid == 0)
		_exit(forked_child());
	waitpid(pid, &status, 0);
	printf("%d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

static _Atomic bool readers_stop;
static _Atomic unsigned long readers_done, readers_wrong;
/*
 * What the readers look for: an interface whose MTU and address are changed together with its name
 * being constant.
 */
static int reader_ifindex;

static void *reader(void *arg)
{
	struct net_route_query q = {.dst = addr_of("10.77.0.2")};
	struct in6_addr list[LIST_MAX], peer = addr_of("10.77.0.2"), self = addr_of("127.0.0.1");
	struct net_link l;
	struct net_route r;
	struct net_neigh n;

	(void)arg;
	while (!readers_stop) {
		struct net_link_walk links = {.num = 0};
		uint32_t gen = net_generation();

		if (net_link_get(reader_ifindex, &l) || l.ifindex != reader_ifindex ||
		    strcmp(l.driver, "veth"))
			readers_wrong++;
		if (!net_route_get(&q, &r) && r.oif != reader_ifindex)
			readers_wrong++;
		if (!net_neigh_get(reader_ifindex, &peer, &n) && n.mac[0] != 0x02)
			readers_wrong++;
		if (!net_addr_is_local(&self, 0))
			readers_wrong++;
		if (net_generation() - gen > 1u << 31)
			readers_wrong++;
		if (++readers_done % 64 == 0) {
			net_addr_list(0, list, LIST_MAX);
			while (net_link_next(&links))
				;
			net_addr_is_broadcast(&peer);
			(void)net_neigh_confirm(reader_ifindex, &peer);
		}
	}
	return NULL;
}

static pthread_t readers[THREADS_MAX];
static int reader_count;

static void cmd_readers(char **a)
{
	reader_count = atoi(a[0]) < THREADS_MAX ? atoi(a[0]) : THREADS_MAX;
	reader_ifindex = atoi(a[1]);
	readers_stop = false;
	readers_done = readers_wrong = 0;
	for (int i = 0; i < reader_count; i++)
		if (pthread_create(&readers[i], NULL, reader, NULL))
			exit(2);
	printf("0\n");
}

static void cmd_readers_stop(char **a)
{
	(void)a;
	readers_stop = true;
	for (int i = 0; i < reader_count; i++)
		pthread_join(readers[i], NULL);
	printf("{\"done\":%lu,\"wrong\":%lu}\n", readers_done, readers_wrong);
}

static const struct {
	const char *name;
	void (*run)(char **args);
	int args;
} commands[] = {
	{"link", cmd_link, 1},	     {"links", cmd_links, 0},
	{"addrs", cmd_addrs, 1},     {"local", cmd_local, 1},
	{"ifindex", cmd_ifindex, 1}, {"broadcast", cmd_broadcast, 1},
	{"route", cmd_route, 5},     {"routes", cmd_routes, 2},
	{"neigh", cmd_neigh, 2},     {"confirm", cmd_confirm, 2},
	{"state", cmd_state, 0},     {"confirm_delay", cmd_confirm_delay, 1},
	{"start", cmd_start, 0},     {"stop", cmd_stop, 0},
	{"listen", cmd_listen, 0},   {"pause", cmd_pause, 1},
	{"fds", cmd_fds, 0},	     {"fork", cmd_fork, 0},
	{"readers", cmd_readers, 2}, {"readers_stop", cmd_readers_stop, 0},
};

static void run(char *line)
{
	char *args[ARGS_MAX + 1] = {NULL}, *save = NULL;
	int n = 0;

	for (char *word = strtok_r(line, " \n", &save); word && n < ARGS_MAX;
	     word = strtok_r(NULL, " \n", &save))
		args[n++] = word;
	for (unsigned i = 0; n && i < sizeof(commands) / sizeof(commands[0]); i++)
		if (!strcmp(args[0], commands[i].name) && n > commands[i].args) {
			commands[i].run(args + 1);
			fflush(stdout);
			return;
		}
	fprintf(stderr, "net_test: %s: no such command or too few arguments\n", n ? args[0] : "");
	exit(2);
}

int main(void)
{
	struct pollfd fds[2];
	char line[512];

	libc_load();
	setvbuf(stdin, NULL, _IONBF, 0);
	for (;;) {
		fds[0] = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
		fds[1] = (struct pollfd){.fd = paused ? -1 : net_fd(), .events = POLLIN};
		if (poll(fds, 2, -1) < 0)
			return 2;
		if (fds[1].revents)
			net_process();
		if (!fds[0].revents)
			continue;
		if (!fgets(line, sizeof(line), stdin))
			break;
		run(line);
	}
	net_stop();
	return 0;
}
