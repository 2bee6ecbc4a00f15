/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Random calls from many threads on descriptors that they share. An ordinary program: it knows
 * nothing of the library.
 *
 *   chaos <seed> <calls> <threads> <own IPv4> <peer's> <own IPv6> <peer's> [fork] [cancel]
 *
 * Each thread makes so many calls, in both families. fork: some calls are a fork() whose child
 * makes calls, too. cancel: threads are cancelled and begun again. Ends with 0 when each call has
 * returned, with a result and an errno that the kernel gives, too; says what was wrong otherwise;
 * when a call does not return it says so and stays for the debugger. Nothing blocks for long:
 * descriptors have time limits before another thread sees them. What arrives chaos_data looks at.
 */
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "chaos.h"

#define SLOTS 48
#define PORTS 6
#define FIRST_PORT 9300
#define ROOM 9000
/* Upper half of what epoll is given; the lower half is a slot. */
#define EPOLL_MAGIC 0x63680a0500000000ull

static bool with_fork;
static _Atomic int slots[SLOTS];

/* --- descriptors */

/* Puts it where all threads find it; what was there is closed. errno is kept. */
static void publish(struct thread *t, int fd)
{
	int old = atomic_exchange(&slots[any(t, SLOTS)], fd), err = errno;

	/* fork() copies the table of descriptors and the memory at two moments. */
	if (old >= 0 && close(old) && errno != EINTR && !is_child)
		wrong("close(%d): %s", old, strerror(errno));
	errno = err;
}

struct address {
	struct sockaddr_storage a;
	socklen_t len;
};

static struct address address(struct thread *t, int family, bool peers)
{
	struct address to;

	to.len = host_address(&to.a, family, peers, (uint16_t)(FIRST_PORT + any(t, PORTS)));
	return to;
}

static int any_family(struct thread *t)
{
	return any(t, 2) ? AF_INET6 : AF_INET;
}

/* An address of the socket's family, now and then of the other one. */
static struct address address_for(struct thread *t, int fd, bool peers)
{
	int family = AF_INET;
	socklen_t len = sizeof(family);

	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &len) || !any(t, 16))
		family = any_family(t);
	return address(t, family == AF_INET6 ? AF_INET6 : AF_INET, peers);
}

static long new_tcp(struct thread *t, int unused)
{
	int fd = socket(any_family(t), SOCK_STREAM, 0), one = 1;

	(void)unused;
	if (fd < 0)
		return -1;
	limit(t, fd);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	publish(t, fd);
	return 0;
}

static long new_udp(struct thread *t, int unused)
{
	int fd = socket(any_family(t), SOCK_DGRAM, 0);

	(void)unused;
	if (fd < 0)
		return -1;
	limit(t, fd);
	publish(t, fd);
	return 0;
}

static long new_epoll(struct thread *t, int unused)
{
	int fd = epoll_create1(EPOLL_CLOEXEC);

	(void)unused;
	if (fd >= 0)
		publish(t, fd);
	return fd;
}

static long new_pipe(struct thread *t, int unused)
{
	int fds[2];

	(void)unused;
	if (pipe2(fds, O_NONBLOCK))
		return -1;
	publish(t, fds[0]);
	publish(t, fds[1]);
	return 0;
}

static long new_listener(struct thread *t, int unused)
{
	struct address a = address(t, any_family(t), false);
	int fd = socket(a.a.ss_family, SOCK_STREAM, 0), one = 1;
	long r;

	(void)unused;
	if (fd < 0)
		return -1;
	limit(t, fd);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	r = bind(fd, (struct sockaddr *)&a.a, a.len);
	if (!r)
		r = listen(fd, 16);
	publish(t, fd);
	return r;
}

/* The commonest life: most calls on it bring something. */
static long new_connection(struct thread *t, int unused)
{
	struct address a = address(t, any_family(t), true);
	int fd = socket(a.a.ss_family, SOCK_STREAM, 0);
	long r;

	(void)unused;
	if (fd < 0)
		return -1;
	limit(t, fd);
	r = connect(fd, (struct sockaddr *)&a.a, a.len);
	publish(t, fd);
	return r;
}

static long do_close(struct thread *t, int unused)
{
	int old = atomic_exchange(&slots[any(t, SLOTS)], -1);

	(void)unused;
	return old < 0 ? 0 : close(old);
}

static long do_dup(struct thread *t, int fd)
{
	int copy = dup(fd);

	if (copy >= 0)
		publish(t, copy);
	return copy;
}

/* Onto a number that no other thread has. */
static long do_dup2(struct thread *t, int fd)
{
	int to = atomic_exchange(&slots[any(t, SLOTS)], -1);
	long r;

	if (to < 0)
		return 0;
	r = dup2(fd, to);
	publish(t, to); /* what it was, if that failed */
	return r;
}

/* --- calls */

static long do_bind(struct thread *t, int fd)
{
	struct address a = address_for(t, fd, false);

	if (!any(t, 4) && a.a.ss_family == AF_INET)
		((struct sockaddr_in *)&a.a)->sin_addr.s_addr = INADDR_ANY;
	else if (!any(t, 4) && a.a.ss_family == AF_INET6)
		((struct sockaddr_in6 *)&a.a)->sin6_addr = in6addr_any;
	return bind(fd, (struct sockaddr *)&a.a, a.len);
}

static long do_connect(struct thread *t, int fd)
{
	struct address a = address_for(t, fd, any(t, 8));

	if (!any(t, 16))
		a.a.ss_family = AF_UNSPEC;
	return connect(fd, (struct sockaddr *)&a.a, a.len);
}

static long do_listen(struct thread *t, int fd)
{
	return listen(fd, (int)any(t, 20));
}

static long do_accept(struct thread *t, int fd)
{
	struct sockaddr_storage a;
	socklen_t len = sizeof(a);
	int got = accept4(fd, (struct sockaddr *)&a, &len, any(t, 2) ? SOCK_NONBLOCK : 0);

	if (got < 0)
		return -1;
	if (!(a.ss_family == AF_INET && len == sizeof(struct sockaddr_in)) &&
	    !(a.ss_family == AF_INET6 && len == sizeof(struct sockaddr_in6)))
		wrong("accept(): a peer's address of %u bytes, family %d", len, a.ss_family);
	limit(t, got);
	publish(t, got);
	return got;
}

static long do_send(struct thread *t, int fd)
{
	char buf[ROOM] = {0};
	size_t len = 1 + any(t, ROOM);
	ssize_t n =
		send(fd, buf, len,
		     MSG_NOSIGNAL | (any(t, 2) ? MSG_DONTWAIT : 0) | (any(t, 4) ? 0 : MSG_MORE));

	if (n > (ssize_t)len)
		wrong("send() of %zu bytes returned %zd", len, n);
	return n;
}

static long do_sendto(struct thread *t, int fd)
{
	struct address a = address_for(t, fd, true);
	char buf[1400] = {0};

	return sendto(fd, buf, any(t, sizeof(buf)), MSG_NOSIGNAL, (struct sockaddr *)&a.a, a.len);
}

static long do_writev(struct thread *t, int fd)
{
	static char zeros[700];
	struct iovec iov[3];

	for (int i = 0; i < 3; i++)
		iov[i] = (struct iovec){zeros, any(t, sizeof(zeros))};
	return writev(fd, iov, 3);
}

static long do_recv(struct thread *t, int fd)
{
	char buf[ROOM];
	size_t len = any(t, ROOM);
	ssize_t n = recv(fd, buf, len, (any(t, 2) ? MSG_DONTWAIT : 0) | (any(t, 6) ? 0 : MSG_PEEK));

	if (n > (ssize_t)len)
		wrong("recv() of %zu bytes returned %zd", len, n);
	return n;
}

static long do_recvmsg(struct thread *t, int fd)
{
	char buf[2][800], control[256];
	struct iovec iov[2] = {{buf[0], any(t, 800)}, {buf[1], any(t, 800)}};
	struct sockaddr_storage a;
	struct msghdr m = {.msg_name = &a,
			   .msg_namelen = sizeof(a),
			   .msg_iov = iov,
			   .msg_iovlen = 2,
			   .msg_control = control,
			   .msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(fd, &m, MSG_DONTWAIT);

	if (n > (ssize_t)(iov[0].iov_len + iov[1].iov_len))
		wrong("recvmsg() returned %zd", n);
	if (n >= 0 && m.msg_controllen > sizeof(control))
		wrong("recvmsg(): %zu bytes of control", m.msg_controllen);
	return n;
}

static long do_read(struct thread *t, int fd)
{
	char buf[600];

	return read(fd, buf, any(t, sizeof(buf)));
}

static long do_shutdown(struct thread *t, int fd)
{
	return shutdown(fd, (int)any(t, 3));
}

static long do_setsockopt(struct thread *t, int fd)
{
	static const int options[][2] = {
		{IPPROTO_TCP, TCP_NODELAY},  {IPPROTO_TCP, TCP_CORK},
		{IPPROTO_TCP, TCP_QUICKACK}, {IPPROTO_TCP, TCP_USER_TIMEOUT},
		{IPPROTO_TCP, TCP_KEEPIDLE}, {SOL_SOCKET, SO_KEEPALIVE},
		{SOL_SOCKET, SO_RCVBUF},     {SOL_SOCKET, SO_SNDBUF},
		{SOL_SOCKET, SO_REUSEPORT},  {SOL_SOCKET, SO_RCVLOWAT},
		{SOL_SOCKET, SO_TIMESTAMP},  {SOL_SOCKET, SO_PRIORITY},
		{IPPROTO_IP, IP_TOS},	     {IPPROTO_IP, IP_PKTINFO},
		{IPPROTO_IPV6, IPV6_TCLASS}, {IPPROTO_IPV6, IPV6_V6ONLY},
	};
	const int *o = options[any(t, sizeof(options) / sizeof(options[0]))];
	struct linger hard = {.l_onoff = (int)any(t, 2), .l_linger = (int)any(t, 2)};
	int value = (int)any(t, o[1] == SO_RCVBUF || o[1] == SO_SNDBUF ? 200000 : 2);

	if (!any(t, 6))
		return setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
	return setsockopt(fd, o[0], o[1], &value, sizeof(value));
}

static long do_getsockopt(struct thread *t, int fd)
{
	static const int options[][2] = {
		{SOL_SOCKET, SO_ERROR},	       {SOL_SOCKET, SO_TYPE},	{SOL_SOCKET, SO_RCVBUF},
		{SOL_SOCKET, SO_ACCEPTCONN},   {IPPROTO_TCP, TCP_INFO}, {IPPROTO_TCP, TCP_MAXSEG},
		{IPPROTO_TCP, TCP_CONGESTION}, {SOL_SOCKET, SO_LINGER},
	};
	const int *o = options[any(t, sizeof(options) / sizeof(options[0]))];
	char room[512];
	socklen_t len = sizeof(room);
	long r = getsockopt(fd, o[0], o[1], room, &len);

	if (!r && len > sizeof(room))
		wrong("getsockopt(%d, %d): a length of %u", o[0], o[1], len);
	return r;
}

static long do_names(struct thread *t, int fd)
{
	struct sockaddr_storage a;
	socklen_t len = sizeof(a);

	return any(t, 2) ? getsockname(fd, (struct sockaddr *)&a, &len)
			 : getpeername(fd, (struct sockaddr *)&a, &len);
}

static long do_ioctl(struct thread *t, int fd)
{
	int n = 0;

	return ioctl(fd, any(t, 2) ? FIONREAD : TIOCOUTQ, &n);
}

static long do_nonblock(struct thread *t, int fd)
{
	int type;
	socklen_t len = sizeof(type);

	/* A pipe has no time limit. */
	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len))
		return -1;
	return fcntl(fd, F_SETFL, any(t, 2) ? O_NONBLOCK : 0);
}

static long do_poll(struct thread *t, int fd)
{
	struct pollfd p[6] = {{.fd = fd, .events = POLLIN}};
	int n;

	for (unsigned i = 1; i < 6; i++)
		p[i] = (struct pollfd){.fd = slots[any(t, SLOTS)],
				       .events = (short)(any(t, 2) ? POLLIN : POLLOUT)};
	n = poll(p, 6, (int)any(t, 10));
	if (n > 6)
		wrong("poll() of 6 returned %d", n);
	return n;
}

static long do_select(struct thread *t, int fd)
{
	struct timeval tv = {.tv_usec = (int)any(t, 10000)};
	fd_set in, out;
	int top = -1;

	FD_ZERO(&in);
	FD_ZERO(&out);
	for (int i = 0; i < 4; i++) {
		int one = i ? slots[any(t, SLOTS)] : fd;

		if (one < 0 || one >= FD_SETSIZE)
			continue;
		FD_SET(one, any(t, 2) ? &in : &out);
		top = one > top ? one : top;
	}
	return select(top + 1, &in, &out, NULL, &tv);
}

static long do_epoll_ctl(struct thread *t, int fd)
{
	static const uint32_t bits[] = {EPOLLIN, EPOLLOUT, EPOLLET, EPOLLONESHOT, EPOLLRDHUP};
	static const int ops[] = {EPOLL_CTL_ADD, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL};
	unsigned slot = any(t, SLOTS);
	struct epoll_event ev = {.data.u64 = EPOLL_MAGIC | slot};

	for (unsigned i = 0; i < sizeof(bits) / sizeof(bits[0]); i++)
		ev.events |= any(t, 2) ? bits[i] : 0;
	return epoll_ctl(fd, ops[any(t, 4)], slots[slot], &ev);
}

static long do_epoll_wait(struct thread *t, int fd)
{
	struct epoll_event ev[8];
	int max = 1 + (int)any(t, 8), n = epoll_wait(fd, ev, max, (int)any(t, 10));

	if (n > max)
		wrong("epoll_wait() of %d returned %d", max, n);
	for (int i = 0; i < n; i++)
		if ((ev[i].data.u64 & ~0xffull) != EPOLL_MAGIC || (ev[i].data.u64 & 0xff) >= SLOTS)
			wrong("epoll_wait() gave data %#llx, events %#x",
			      (unsigned long long)ev[i].data.u64, ev[i].events);
	return n;
}

static void calls(struct thread *t);

/* A child that uses what it has inherited, and the end of it. */
static long do_fork(struct thread *t, int unused)
{
	int status;
	pid_t pid;

	(void)unused;
	if (!with_fork || is_child)
		return 0;
	pid = fork();
	if (pid < 0)
		return -1;
	if (!pid) {
		is_child = true;
		t->left = 30;
		calls(t);
		_exit(0);
	}
	/* However long its calls take together. */
	t->call = NULL;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		wrong("a child ended with status %#x", status);
	return 0;
}

static const struct op ops[] = {
	{"socket(tcp)", 2, new_tcp, true},
	{"socket(udp)", 2, new_udp, true},
	{"epoll_create", 1, new_epoll, true},
	{"pipe", 1, new_pipe, true},
	{"listener", 3, new_listener, true},
	{"connection", 8, new_connection, true},
	{"fork", 1, do_fork, true},
	{"close", 5, do_close, true},
	{"dup", 1, do_dup, false},
	{"dup2", 1, do_dup2, false},
	{"bind", 2, do_bind, false},
	{"connect", 3, do_connect, false},
	{"listen", 1, do_listen, false},
	{"accept", 8, do_accept, false},
	{"send", 12, do_send, false},
	{"sendto", 6, do_sendto, false},
	{"writev", 4, do_writev, false},
	{"recv", 12, do_recv, false},
	{"recvmsg", 5, do_recvmsg, false},
	{"read", 4, do_read, false},
	{"shutdown", 2, do_shutdown, false},
	{"setsockopt", 4, do_setsockopt, false},
	{"getsockopt", 4, do_getsockopt, false},
	{"getsockname", 2, do_names, false},
	{"ioctl", 2, do_ioctl, false},
	{"fcntl", 2, do_nonblock, false},
	{"poll", 4, do_poll, false},
	{"select", 3, do_select, false},
	{"epoll_ctl", 6, do_epoll_ctl, false},
	{"epoll_wait", 6, do_epoll_wait, false},
};
#define OPS (sizeof(ops) / sizeof(ops[0]))

/* --- threads */

static void calls(struct thread *t)
{
	while (t->left) {
		const struct op *op = choose(t, ops, OPS);
		int fd = op->no_fd ? -1 : slots[any(t, SLOTS)];

		if (op->no_fd || fd >= 0)
			make_call(t, op, fd);
	}
}

static void cancelled(void *arg)
{
	struct thread *t = arg;

	t->call = NULL;
	t->ended = true;
}

static void *run(void *arg)
{
	struct thread *t = arg;

	pthread_cleanup_push(cancelled, t);
	calls(t);
	pthread_cleanup_pop(1);
	return NULL;
}

int main(int argc, char **argv)
{
	bool with_cancel = false;

	read_arguments(argc, argv);
	for (int i = FIRST_WORD; i < argc; i++) {
		with_fork |= !strcmp(argv[i], "fork");
		with_cancel |= !strcmp(argv[i], "cancel");
	}
	for (unsigned i = 0; i < SLOTS; i++)
		slots[i] = -1;
	run_all(run, with_cancel);
	for (unsigned i = 0; i < SLOTS; i++)
		if (slots[i] >= 0 && close(slots[i]))
			wrong("close(%d) at the end: %s", slots[i], strerror(errno));
	print_sums();
	return 0;
}
