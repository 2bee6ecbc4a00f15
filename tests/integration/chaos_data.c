/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Random calls from many threads on connections and datagram sockets whose data is known: what
 * arrives is what was sent, in its order, and all of it. An ordinary program, as chaos.c.
 *
 *   chaos_data <seed> <calls> <threads> <own IPv4> <peer's> <own IPv6> <peer's> [fork]
 *
 * One thread at a time sends on a connection, and one receives; meanwhile others make calls on it
 * that leave the data alone, and children look at it (which hands it to the kernel). The byte at
 * each place of a stream follows from the place and the connection's ports. Who ends a stream sends
 * one byte that is wrong, and FIN; nothing else ends with a FIN. So one that is cut short is seen.
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

#define STREAMS 24
#define LISTENERS 4 /* two ports in each family, and the same of datagram sockets */
#define FIRST_PORT 9400
#define ROOM 20000
#define DATAGRAM_MAX 1400
#define END_WAITS 1000 /* milliseconds for a thread that is just being told of an error */

struct stream {
	_Atomic int fd; /* -1: none */
	/* Who sends, or receives, has taken it; who closes has both. */
	_Atomic bool sending, receiving;
	_Atomic bool broken; /* an error was reported, once: what follows is no end of a stream */
	bool is_v6;
	/* Of the sender. */
	uint64_t sent;
	uint32_t key_out;
	bool shut;
	/* Of the receiver. */
	uint64_t received;
	uint32_t key_in;
	bool marked, ended; /* the wrong byte has come; FIN, too */
};

/* Of what was looked at, by family: 0 IPv4, 1 IPv6. */
struct seen {
	_Atomic unsigned long bytes, ends, datagrams;
};

static struct stream streams[STREAMS];
static int listeners[LISTENERS], udp[LISTENERS];
static struct seen seen[2];
static bool with_fork;

static uint8_t byte_at(uint32_t key, uint64_t place)
{
	uint64_t x = ((uint64_t)key << 32 ^ place >> 3) * 0x9e3779b97f4a7c15ull;

	x ^= x >> 29;
	x *= 0xbf58476d1ce4e5b9ull;
	return (uint8_t)(x >> (8 + 6 * (place & 7)));
}

static void fill(char *buf, size_t n, uint32_t key, uint64_t place)
{
	for (size_t i = 0; i < n; i++)
		buf[i] = (char)byte_at(key, place + i);
}

static bool take(_Atomic bool *flag)
{
	return !atomic_exchange_explicit(flag, true, memory_order_acquire);
}

static void give_back(_Atomic bool *flag)
{
	atomic_store_explicit(flag, false, memory_order_release);
}

static struct stream *any_stream(struct thread *t)
{
	return &streams[any(t, STREAMS)];
}

/* --- connections come and go */

static uint16_t port_of(const struct sockaddr_storage *a)
{
	return ntohs(a->ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)a)->sin6_port
					      : ((const struct sockaddr_in *)a)->sin_port);
}

/* fd is connected; s is taken both ways, and free. */
static void stream_begin(struct stream *s, int fd)
{
	struct sockaddr_storage own, peer;
	socklen_t len = sizeof(own), peer_len = sizeof(peer);

	if (getsockname(fd, (struct sockaddr *)&own, &len) ||
	    getpeername(fd, (struct sockaddr *)&peer, &peer_len)) {
		close(fd); /* reset before anything was sent */
		return;
	}
	s->key_out = (uint32_t)port_of(&own) << 16 | port_of(&peer);
	s->key_in = (uint32_t)port_of(&peer) << 16 | port_of(&own);
	s->is_v6 = own.ss_family == AF_INET6;
	s->sent = s->received = 0;
	s->shut = s->marked = s->ended = false;
	s->broken = false;
	atomic_store_explicit(&s->fd, fd, memory_order_release);
}

/* Both ways, for who makes or ends the connection. */
static bool take_both(struct stream *s)
{
	if (!take(&s->sending))
		return false;
	if (take(&s->receiving))
		return true;
	give_back(&s->sending);
	return false;
}

static void give_back_both(struct stream *s)
{
	give_back(&s->receiving);
	give_back(&s->sending);
}

static int wait_connected(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	int err = 0;
	socklen_t len = sizeof(err);

	if (poll(&p, 1, 100) <= 0)
		return -1;
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len))
		return -1;
	errno = err;
	return err ? -1 : 0;
}

/* As close(), with a RST: a FIN would be the end of the stream. */
static void reset(int fd)
{
	struct linger hard = {.l_onoff = 1};

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
	close(fd);
}

static long do_connect(struct thread *t, int unused)
{
	struct stream *s = any_stream(t);
	struct sockaddr_storage a;
	socklen_t len = host_address(&a, any(t, 2) ? AF_INET6 : AF_INET, true,
				     (uint16_t)(FIRST_PORT + any(t, LISTENERS / 2)));
	long r = 0;
	int fd;

	(void)unused;
	if (!take_both(s))
		return 0;
	fd = s->fd < 0 ? socket(a.ss_family, SOCK_STREAM, 0) : -1;
	if (fd >= 0) {
		limit(t, fd);
		r = connect(fd, (struct sockaddr *)&a, len);
		if (r && (errno == EINPROGRESS || errno == EINTR || errno == EALREADY))
			r = wait_connected(fd);
		if (!r)
			stream_begin(s, fd);
		else
			reset(fd);
	}
	give_back_both(s);
	return r;
}

static long do_accept(struct thread *t, int unused)
{
	struct stream *s = any_stream(t);
	int fd = 0;

	(void)unused;
	if (!take_both(s))
		return 0;
	if (s->fd < 0) {
		fd = accept(listeners[any(t, LISTENERS)], NULL, NULL);
		if (fd >= 0) {
			limit(t, fd);
			stream_begin(s, fd);
		}
	}
	give_back_both(s);
	return fd;
}

static long do_close(struct thread *t, int unused)
{
	struct stream *s = any_stream(t);

	(void)unused;
	if (!take_both(s))
		return 0;
	if (s->fd >= 0 && ((s->shut && s->ended) || s->broken || !any(t, 20))) {
		int fd = atomic_exchange(&s->fd, -1);

		if (s->shut && s->ended)
			close(fd);
		else
			reset(fd);
	}
	give_back_both(s);
	return 0;
}

/* --- what is sent */

/* An error was reported to this call, which the other direction will not see again. */
static void note_error(struct stream *s, long n)
{
	if (n < 0 && errno != EAGAIN && errno != EINTR)
		s->broken = true;
}

static ssize_t send_some(struct thread *t, int fd, char *buf, size_t len)
{
	struct iovec iov[3] = {{buf, len / 3}, {buf + len / 3, len / 3}};

	iov[2] = (struct iovec){buf + len / 3 * 2, len - len / 3 * 2};
	switch (any(t, 5)) {
	case 0:
		return write(fd, buf, len);
	case 1:
		return writev(fd, iov, 3);
	case 2:
		return send(fd, buf, len, MSG_NOSIGNAL | MSG_MORE);
	case 3:
		return sendmsg(fd, &(struct msghdr){.msg_iov = iov, .msg_iovlen = 3}, MSG_NOSIGNAL);
	default:
		return send(fd, buf, len, MSG_NOSIGNAL | MSG_DONTWAIT);
	}
}

static long do_send(struct thread *t, int unused)
{
	struct stream *s = any_stream(t);
	char buf[ROOM];
	size_t len = 1 + any(t, any(t, 2) ? ROOM : 100);
	ssize_t n = 0;

	(void)unused;
	if (!take(&s->sending))
		return 0;
	if (s->fd >= 0 && !s->shut) {
		fill(buf, len, s->key_out, s->sent);
		n = send_some(t, s->fd, buf, len);
		if (n > (ssize_t)len)
			wrong("a call that sends %zu bytes returned %zd", len, n);
		s->sent += n > 0 ? (uint64_t)n : 0;
		note_error(s, n);
	}
	give_back(&s->sending);
	return n;
}

/* The byte that is wrong, and FIN. */
static long do_finish(struct thread *t, int unused)
{
	struct stream *s = any_stream(t);
	char mark;
	long n = 0;

	(void)t;
	(void)unused;
	if (!take(&s->sending))
		return 0;
	if (s->fd >= 0 && !s->shut) {
		mark = (char)~byte_at(s->key_out, s->sent);
		n = send(s->fd, &mark, 1, MSG_NOSIGNAL);
		if (n == 1) {
			s->shut = true;
			n = shutdown(s->fd, SHUT_WR);
		}
		note_error(s, n);
	}
	give_back(&s->sending);
	return n;
}

/* --- what is received */

/* Whether an error excuses an end of which the peer knows nothing. */
static bool is_broken(struct stream *s)
{
	for (int i = 0; i < END_WAITS && !s->broken && s->sending; i++)
		usleep(1000);
	return s->broken;
}

/* n bytes of s at the place that it has reached; peeked: they come again. */
static void look_at(struct stream *s, const char *buf, size_t n, bool peeked)
{
	for (size_t i = 0; i < n; i++) {
		uint8_t is = (uint8_t)buf[i], want = byte_at(s->key_in, s->received + i);

		if (s->marked || (is != want && ((is ^ want) != 0xff || i != n - 1)))
			wrong("port %u to %u: byte %lu is %#x, not %#x%s (%zu at once)",
			      s->key_in >> 16, s->key_in & 0xffff, s->received + i, is, want,
			      s->marked ? ", behind the end" : "", n);
		s->marked = s->marked || (is != want && !peeked);
	}
	if (peeked)
		return;
	s->received += n;
	seen[s->is_v6].bytes += n;
}

static ssize_t receive_some(struct thread *t, int fd, char *buf, size_t len, bool *peeked)
{
	struct iovec iov[2] = {{buf, len / 2}, {buf + len / 2, len - len / 2}};

	*peeked = false;
	switch (any(t, 6)) {
	case 0:
		return read(fd, buf, len);
	case 1:
		return readv(fd, iov, 2);
	case 2:
		*peeked = true;
		return recv(fd, buf, len, MSG_PEEK);
	case 3:
		return recvmsg(fd, &(struct msghdr){.msg_iov = iov, .msg_iovlen = 2}, 0);
	case 4:
		return recv(fd, buf, len, MSG_WAITALL);
	default:
		return recv(fd, buf, len, MSG_DONTWAIT);
	}
}

static long do_receive(struct thread *t, int unused)
{
	struct stream *s = any_stream(t);
	char buf[ROOM];
	size_t len = 1 + any(t, any(t, 2) ? ROOM : 100);
	bool peeked;
	ssize_t n = 0;

	(void)unused;
	if (!take(&s->receiving))
		return 0;
	if (s->fd >= 0 && !s->ended) {
		n = receive_some(t, s->fd, buf, len, &peeked);
		note_error(s, n);
		if (n > 0)
			look_at(s, buf, (size_t)n, peeked);
		if (!n && !s->marked && !is_broken(s))
			wrong("port %u to %u: a stream ended after %llu bytes, which is not its "
			      "end",
			      s->key_in >> 16, s->key_in & 0xffff, (unsigned long long)s->received);
		if (!n) {
			s->ended = true;
			seen[s->is_v6].ends += s->marked;
		}
	}
	give_back(&s->receiving);
	return n;
}

/* --- datagrams: a key, and the bytes that follow from it and from the length */

static long do_send_datagram(struct thread *t, int unused)
{
	int i = (int)any(t, LISTENERS);
	struct sockaddr_storage a;
	socklen_t len = host_address(&a, i % 2 ? AF_INET6 : AF_INET, true,
				     (uint16_t)(FIRST_PORT + any(t, LISTENERS / 2)));
	char buf[DATAGRAM_MAX];
	uint32_t key = any(t, 1u << 30), n = sizeof(key) + any(t, sizeof(buf) - sizeof(key));

	(void)unused;
	memcpy(buf, &key, sizeof(key));
	fill(buf + sizeof(key), n - sizeof(key), key, n);
	return sendto(udp[i], buf, n, any(t, 2) ? MSG_DONTWAIT : 0, (struct sockaddr *)&a, len);
}

static long do_receive_datagram(struct thread *t, int unused)
{
	int i = (int)any(t, LISTENERS);
	char buf[2 * DATAGRAM_MAX];
	uint32_t key;
	ssize_t n = recv(udp[i], buf, sizeof(buf), any(t, 2) ? MSG_DONTWAIT : 0);

	(void)unused;
	if (n < 0)
		return n;
	if (n < (ssize_t)sizeof(key) || n > DATAGRAM_MAX)
		wrong("a datagram of %zd bytes", n);
	memcpy(&key, buf, sizeof(key));
	for (ssize_t k = sizeof(key); k < n; k++)
		if ((uint8_t)buf[k] != byte_at(key, (uint64_t)(n + k) - sizeof(key)))
			wrong("a datagram of %zd bytes: byte %zd is %#x", n, k, (uint8_t)buf[k]);
	seen[i % 2].datagrams++;
	return n;
}

/* --- calls that leave the data alone, by anybody; the number may be another's by now */

static long do_poll(struct thread *t, int unused)
{
	struct pollfd p[4];

	(void)unused;
	for (int i = 0; i < 4; i++)
		p[i] = (struct pollfd){.fd = any_stream(t)->fd, .events = POLLIN | POLLOUT};
	return poll(p, 4, (int)any(t, 10));
}

static long do_epoll(struct thread *t, int unused)
{
	struct epoll_event ev[4];
	int set = epoll_create1(0);
	long r;

	(void)unused;
	for (int i = 0; i < 4; i++) {
		ev[i] = (struct epoll_event){.events = EPOLLIN | (any(t, 2) ? EPOLLET : 0u)};
		epoll_ctl(set, EPOLL_CTL_ADD, any_stream(t)->fd, &ev[i]);
	}
	r = epoll_wait(set, ev, 4, (int)any(t, 10));
	close(set);
	return r;
}

static long do_ask(struct thread *t, int unused)
{
	int fd = any_stream(t)->fd, n = 0;
	struct tcp_info info;
	socklen_t len = sizeof(info);

	(void)unused;
	switch (any(t, 4)) {
	case 0:
		return ioctl(fd, FIONREAD, &n);
	case 1:
		return ioctl(fd, TIOCOUTQ, &n);
	case 2:
		return fcntl(fd, F_SETFL, any(t, 2) ? O_NONBLOCK : 0);
	default:
		return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len);
	}
}

static long do_set(struct thread *t, int unused)
{
	static const int options[] = {TCP_NODELAY, TCP_CORK, TCP_QUICKACK};
	int value = (int)any(t, 2);

	(void)unused;
	return setsockopt(any_stream(t)->fd, IPPROTO_TCP, options[any(t, 3)], &value,
			  sizeof(value));
}

/* A copy lives for a moment: meanwhile the connection does not end. */
static long do_copy(struct thread *t, int unused)
{
	int copy = dup(any_stream(t)->fd);

	(void)unused;
	if (copy < 0)
		return -1;
	if (any(t, 2))
		usleep(any(t, 2000));
	return close(copy);
}

/*
 * A child looks at connections: to do so it has the kernel serve them. It does not receive: an
 * error is reported once.
 */
static void child(struct thread *t)
{
	is_child = true;
	alarm(STUCK_S);
	for (int i = 0; i < 3; i++) {
		do_poll(t, -1);
		do_ask(t, -1);
	}
	_exit(0);
}

static long do_fork(struct thread *t, int unused)
{
	int status;
	pid_t pid;

	(void)unused;
	if (!with_fork)
		return 0;
	pid = fork();
	if (pid < 0)
		return -1;
	if (!pid)
		child(t);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		wrong("a child ended with status %#x", status);
	return 0;
}

static const struct op ops[] = {
	{"connect", 6, do_connect, true},
	{"accept", 8, do_accept, true},
	{"close", 4, do_close, true},
	{"send", 24, do_send, true},
	{"finish", 1, do_finish, true},
	{"recv", 30, do_receive, true},
	{"send of a datagram", 6, do_send_datagram, true},
	{"recv of a datagram", 8, do_receive_datagram, true},
	{"poll", 3, do_poll, true},
	{"epoll_wait", 2, do_epoll, true},
	{"ioctl", 2, do_ask, true},
	{"setsockopt", 2, do_set, true},
	{"dup", 1, do_copy, true},
	{"fork", 1, do_fork, true},
};

static void *run(void *arg)
{
	struct thread *t = arg;

	while (t->left)
		make_call(t, choose(t, ops, sizeof(ops) / sizeof(ops[0])), -1);
	t->ended = true;
	return NULL;
}

static int bound(struct thread *t, int kind, int i)
{
	struct sockaddr_storage a;
	socklen_t len =
		host_address(&a, i % 2 ? AF_INET6 : AF_INET, false, (uint16_t)(FIRST_PORT + i / 2));
	int fd = socket(a.ss_family, kind, 0), one = 1;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, len) ||
	    (kind == SOCK_STREAM && listen(fd, 16)))
		wrong("a socket at port %d: %s", FIRST_PORT + i / 2, strerror(errno));
	limit(t, fd);
	return fd;
}

/* The peer listens: its threads begin when ours do. */
static void wait_for_peer(void)
{
	struct sockaddr_storage a;
	socklen_t len = host_address(&a, AF_INET, true, FIRST_PORT);
	long until = now_s() + STUCK_S;
	int err;

	do {
		int fd = socket(AF_INET, SOCK_STREAM, 0);

		err = connect(fd, (struct sockaddr *)&a, len) ? errno : 0;
		reset(fd);
		if (err && now_s() > until)
			wrong("the peer does not listen: %s", strerror(err));
	} while (err && !usleep(10000));
}

int main(int argc, char **argv)
{
	read_arguments(argc, argv);
	with_fork = argc > FIRST_WORD && !strcmp(argv[FIRST_WORD], "fork");
	for (unsigned i = 0; i < STREAMS; i++)
		streams[i].fd = -1;
	for (int i = 0; i < LISTENERS; i++) {
		listeners[i] = bound(&threads[0], SOCK_STREAM, i);
		udp[i] = bound(&threads[0], SOCK_DGRAM, i);
	}
	wait_for_peer();
	run_all(run, false);
	for (unsigned i = 0; i < STREAMS; i++)
		if (streams[i].fd >= 0)
			reset(streams[i].fd);
	print_sums();
	for (int i = 0; i < 2; i++)
		printf("IPv%d: %lu bytes, %lu ends, %lu datagrams\n", i ? 6 : 4, seen[i].bytes,
		       seen[i].ends, seen[i].datagrams);
	return 0;
}
