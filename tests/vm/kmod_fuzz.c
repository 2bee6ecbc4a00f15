/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * kmod_fuzz seconds seed: hostile processes with several threads each, who do with /dev/vma
 * whatever can be done in an order that nobody had in mind, and die in the midst of it: a third of
 * them as nobody, the others as root (who has CAP_NET_RAW, but is held to RLIMIT_MEMLOCK, for the
 * machine's sake), some in network namespaces of their own. Prints how often each call succeeded
 * and failed: a fuzzer whose calls all fail tests little. What was "stolen" must not succeed. The
 * kernel's log, and its sums afterwards, are the caller's to look at.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "vma/kmod.h"

#define PROCESSES 4
#define THREADS 3
#define SOCKETS 8
#define MAPS 16
#define PAGE 4096ul
#define LOCKED (64u << 20)
#define NOBODY 65534

enum call { OPEN, SETUP, CONN, STEAL, UNCONN, REGION, JUNK, MAP, NUM_CALLS };
static const char *const call_names[] = {"open",   "setup",  "conn", "stolen",
					 "unconn", "region", "junk", "mmap"};

/* Shared by all processes; atomic. */
static struct {
	unsigned long done[NUM_CALLS], failed[NUM_CALLS];
} * counts;

/* The port of a socket that is the parent's, and is bound as long as it lives. */
static uint16_t victim;

/* One process's, its threads quarrel over it without locks: that is the test. */
static volatile int dev = -1;
static int sock[SOCKETS];
static struct {
	void *volatile at;
	volatile size_t len;
} maps[MAPS];

static _Thread_local uint64_t rng;

static uint64_t draw(void)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return rng;
}

static unsigned below(unsigned n)
{
	return (unsigned)(draw() >> 33) % n;
}

static bool one_in(unsigned n)
{
	return below(n) == 0;
}

static int count(enum call c, long result)
{
	__atomic_fetch_add(result < 0 ? &counts->failed[c] : &counts->done[c], 1, __ATOMIC_RELAXED);
	return (int)result;
}

/* A few bytes of a good argument become bad ones. */
static void spoil(void *arg, size_t len)
{
	for (unsigned n = one_in(5) ? 1 + below(4) : 0; n; n--)
		((uint8_t *)arg)[below((unsigned)len)] = one_in(2) ? 0xff : (uint8_t)draw();
}

static void open_device(void)
{
	struct vma_kmod_setup s = {
		.version = VMA_KMOD_VERSION,
		.sockets = below(64),
		.conns = one_in(8) ? VMA_KMOD_CONNS_MAX : 1 + below(64),
		.ring = one_in(8) ? 0 : VMA_KMOD_RING_MIN,
	};
	int fd = count(OPEN, open("/dev/vma", O_RDWR | (one_in(16) ? 0 : O_CLOEXEC)));

	if (fd < 0)
		return;
	if (!one_in(16)) {
		spoil(&s, sizeof(s));
		count(SETUP, ioctl(fd, VMA_KMOD_SETUP, &s));
	}
	dev = fd;
}

/* A flow of this socket's, from one of 1,000 remote sides. */
static void flow_of(int fd, struct vma_flow_key *key)
{
	struct sockaddr_in a = {0};
	socklen_t len = sizeof(a);
	int type = 0;

	(void)getsockname(fd, (struct sockaddr *)&a, &len);
	len = sizeof(type);
	(void)getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len);
	memcpy(&key->local, "\0\0\0\0\0\0\0\0\0\0\xff\xff\x7f\0\0\1", 16);
	memcpy(&key->remote, &key->local, 16);
	((uint8_t *)&key->remote)[15] = (uint8_t)(1 + below(5));
	key->local_port = ntohs(a.sin_port);
	key->remote_port = (uint16_t)(1 + below(200));
	key->proto = type == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP;
}

static void do_conn(void)
{
	struct vma_kmod_conn c = {.fd = sock[below(SOCKETS)], .flags = 1 + below(3)};

	flow_of(c.fd, &c.key);
	if (c.key.proto == IPPROTO_UDP)
		c.flags = VMA_KMOD_CONN_FALLBACK;
	if (c.key.proto == IPPROTO_UDP && one_in(2)) {
		memset(&c.key.remote, 0, sizeof(c.key.remote));
		c.key.remote_port = 0;
	}
	spoil(&c, sizeof(c));
	count(CONN, ioctl(dev, VMA_KMOD_CONN, &c));
}

/* Somebody else's port. CAP_NET_RAW may. */
static void do_steal(void)
{
	struct vma_kmod_conn c = {.fd = sock[below(SOCKETS)], .flags = 1 + below(3)};

	flow_of(c.fd, &c.key);
	/* In a namespace of its own the port may be its own. */
	if (getuid() != NOBODY || c.key.local_port == victim)
		return;
	c.key.local_port = victim;
	count(STEAL, ioctl(dev, VMA_KMOD_CONN, &c));
}

/* A block of 1 GiB is more than it may lock. */
static void do_region(void)
{
	struct vma_kmod_region r = {
		.bytes = 1 + below(8u << 20), .kind = 1 + below(one_in(8) ? 3 : 2), .node = -1};

	spoil(&r.kind, sizeof(r) - sizeof(r.bytes));
	count(REGION, ioctl(dev, VMA_KMOD_REGION, &r));
}

static void do_unconn(void)
{
	struct vma_kmod_unconn u = {.slot = below(64)};

	spoil(&u, sizeof(u));
	count(UNCONN, ioctl(dev, VMA_KMOD_UNCONN, &u));
}

static void do_junk(void)
{
	const unsigned long real[] = {VMA_KMOD_SETUP, VMA_KMOD_CONN, VMA_KMOD_UNCONN,
				      VMA_KMOD_REGION, VMA_KMOD_SECRET};
	unsigned long number = _IOC(below(4), VMA_KMOD_IOC, below(6), below(128));
	uint64_t words[32];
	unsigned zeros = 1 + below(8);

	if (one_in(4))
		number = draw() & 0xffffffff;
	else if (!one_in(3))
		number = real[below(5)];
	for (unsigned i = 0; i < 32; i++)
		words[i] = one_in(zeros) ? draw() : 0;
	count(JUNK, ioctl(dev, number, one_in(8) ? (void *)(uintptr_t)draw() : words));
}

static void do_map(void)
{
	const off_t where[] = {VMA_KMOD_MAP_CONNS, (off_t)VMA_KMOD_MAP_STATS,
			       (off_t)VMA_KMOD_MAP_RING, (off_t)VMA_KMOD_MAP_REGION(below(4)),
			       (off_t)(draw() & 0x7fffffffff000ull)};
	size_t len = (1 + below(one_in(4) ? 600 : 8)) * PAGE;
	unsigned i = below(MAPS);
	uint8_t *at = mmap(NULL, len, one_in(4) ? PROT_READ : PROT_READ | PROT_WRITE,
			   one_in(8) ? MAP_PRIVATE : MAP_SHARED, dev, where[below(5)]);

	count(MAP, at == MAP_FAILED ? -1 : 0);
	if (at == MAP_FAILED)
		return;
	if (maps[i].at)
		munmap(maps[i].at, maps[i].len);
	maps[i].len = len;
	maps[i].at = at;
}

/*
 * What a process does with its own memory: writes anything, tears holes, protects, moves. Faults
 * are its end, and are wanted too.
 */
static void abuse_map(void)
{
	unsigned i = below(MAPS);
	uint8_t *at = maps[i].at;
	size_t len = maps[i].len, page;

	if (!at || !len)
		return;
	page = below((unsigned)(len / PAGE)) * PAGE;
	switch (below(8)) {
	case 0:
		munmap(at + page, PAGE);
		break;
	case 1:
		mprotect(at + page, PAGE, one_in(2) ? PROT_READ : PROT_READ | PROT_WRITE);
		break;
	case 2:
		(void)mremap(at, len, len + PAGE, MREMAP_MAYMOVE);
		break;
	case 3:
		madvise(at, len, (int)below(20));
		break;
	default:
		for (unsigned n = below(64); n; n--)
			__atomic_store_n((uint32_t *)(at + page) + below(1024), (uint32_t)draw(),
					 __ATOMIC_RELAXED);
	}
}

static void new_socket(unsigned i)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	bool tcp = one_in(2);

	if (sock[i] >= 0)
		close(sock[i]);
	sock[i] = socket(AF_INET, tcp ? SOCK_STREAM : SOCK_DGRAM, 0);
	(void)bind(sock[i], (struct sockaddr *)&a, sizeof(a));
	if (tcp && one_in(3))
		(void)listen(sock[i], 4);
}

/* Larger than lo's packets in the test: fragments, which the fallback has. */
static void do_send(void)
{
	unsigned to = below(SOCKETS);
	struct sockaddr_in a = {0};
	socklen_t len = sizeof(a);

	if (!getsockname(sock[to], (struct sockaddr *)&a, &len))
		(void)sendto(sock[below(SOCKETS)], counts, one_in(2) ? 8 : 2 * PAGE, MSG_DONTWAIT,
			     (struct sockaddr *)&a, len);
}

static void do_fork(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		for (unsigned n = below(20); n; n--) {
			do_conn();
			do_junk();
		}
		if (one_in(2))
			close(dev);
		_exit(0);
	}
	if (pid > 0)
		waitpid(pid, NULL, 0);
}

static void step(void)
{
	struct pollfd p = {.fd = dev, .events = POLLIN};

	switch (below(40)) {
	case 0:
		close(one_in(3) ? dup(dev) : dev);
		open_device();
		break;
	case 1:
		do_fork();
		break;
	case 2:
		(void)poll(&p, 1, 0);
		break;
	case 3:
	case 4:
		do_region();
		break;
	case 5 ... 8:
		do_unconn();
		break;
	case 9 ... 12:
		do_junk();
		break;
	case 13 ... 16:
		do_map();
		break;
	case 17 ... 24:
		abuse_map();
		break;
	case 25 ... 28:
		do_send();
		break;
	case 29:
		new_socket(below(SOCKETS));
		break;
	case 30:
		do_steal();
		break;
	default:
		do_conn();
	}
}

static void *run(void *seed)
{
	rng = (uintptr_t)seed * 0x9e3779b97f4a7c15ull | 1;
	for (;;)
		step();
	return NULL;
}

/* A namespace of its own, whose lo has packets that are soon too large. */
static void move_out(void)
{
	struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP};
	int fd;

	if (unshare(CLONE_NEWNET))
		return;
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	(void)ioctl(fd, SIOCSIFFLAGS, &lo);
	lo.ifr_mtu = 1500;
	(void)ioctl(fd, SIOCSIFMTU, &lo);
	close(fd);
}

/* The memory that it may pin is counted, whoever it is. False: it would not be. */
static bool drop_rights(bool nobody)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct caps[2];

	if (setrlimit(RLIMIT_MEMLOCK, &(struct rlimit){LOCKED, LOCKED}))
		return false;
	if (nobody)
		return !setresuid(NOBODY, NOBODY, NOBODY);
	if (syscall(SYS_capget, &head, caps))
		return false;
	caps[0].effective &= ~(1u << CAP_IPC_LOCK);
	caps[0].permitted &= ~(1u << CAP_IPC_LOCK);
	return !syscall(SYS_capset, &head, caps);
}

/*
 * One process's life: two seconds at most, ended by a signal that nobody can catch, or by a fault
 * of its own.
 */
static void live(uintptr_t seed)
{
	struct itimerval life = {
		.it_value = {(time_t)(seed % 2), 20000 + (suseconds_t)(seed * 7919 % 900000)}};
	pthread_t t;

	if (seed % 4 == 0)
		move_out();
	if (!drop_rights(seed % 3 == 0))
		_exit(1);
	rng = seed * 0x9e3779b97f4a7c15ull | 1;
	for (unsigned i = 0; i < SOCKETS; i++) {
		sock[i] = -1;
		new_socket(i);
	}
	signal(SIGALRM, SIG_DFL);
	setitimer(ITIMER_REAL, &life, NULL);
	open_device();
	for (unsigned i = 1; i < THREADS; i++)
		pthread_create(&t, NULL, run, (void *)(seed * THREADS + i));
	run((void *)(seed * THREADS));
}

static int usage(void)
{
	fputs("usage: kmod_fuzz seconds seed\n", stderr);
	return 2;
}

/* A bound socket that is nobody's to register. */
static bool victim_bind(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) ||
	    getsockname(fd, (struct sockaddr *)&a, &len))
		return false;
	victim = ntohs(a.sin_port);
	return true;
}

int main(int argc, char **argv)
{
	unsigned long lives = 0;
	uintptr_t seed;
	time_t end;

	if (argc != 3)
		return usage();
	end = time(NULL) + atol(argv[1]);
	seed = strtoul(argv[2], NULL, 0);
	counts = mmap(NULL, sizeof(*counts) + 4 * PAGE, PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (counts == MAP_FAILED || !victim_bind())
		return 1;
	while (time(NULL) < end) {
		for (unsigned i = 0; i < PROCESSES; i++)
			if (fork() == 0)
				live(seed + i);
		while (wait(NULL) > 0)
			lives++;
		seed += PROCESSES;
	}
	printf("%lu lives\n", lives);
	for (int c = 0; c < NUM_CALLS; c++)
		printf("%s: %lu done, %lu failed\n", call_names[c], counts->done[c],
		       counts->failed[c]);
	return 0;
}
