/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A program that makes the calls that it is told, and says what each gave: whole_programs.py tells
 * it, once with kernel sockets and once with the library. An ordinary program: it knows nothing of
 * the library.
 *
 *	program <control>,<control>,...
 *
 * Each control is one end of a SOCK_SEQPACKET pair. The first speaks to this process's first
 * thread; each thread and each child that a script begins listens to another. These are the actors.
 * A message is one call a line: its name and arguments; the answer has as many lines. sN is a slot,
 * where a call leaves a descriptor or finds one; any other number is meant as it stands. Whatever
 * two runs cannot have in common (process ids, ports that the kernel chose, times) is not said.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef __clang__
#pragma GCC diagnostic ignored "-Wstringop-overflow"
#pragma GCC diagnostic ignored "-Wstringop-overread"
#pragma GCC diagnostic ignored "-Wnonnull"
#endif

#define ACTORS 8
#define SLOTS 32
#define FIRST_CONTROL 900 /* below the soft limit, above what a script has */
#define FIRST_SPARE (FIRST_CONTROL + ACTORS) /* copies of 0, 1 and 2 */
#define LIMIT 1024
#define PORTS 8
#define PATTERN 4093
#define OUT 16384
#define ERRNO_BEFORE ENOTNAM /* no call that works may change it */
#define PIECES_MAX 4

struct actor {
	int number;
	char *at; /* the rest of the line that is carried out */
	size_t used;
	char out[OUT];
};

struct command {
	const char *name;
	void (*fn)(void);
};

static __thread struct actor *me;
static int slots[SLOTS];
static int base_own, base_peer; /* the script's own ports, and the peer's */
static pthread_t threads[ACTORS];
static char pattern[PATTERN];

/* --- words of a line, and the answer */

static __attribute__((format(printf, 1, 2))) void say(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	me->used += (size_t)vsnprintf(me->out + me->used, OUT - me->used, format, ap);
	va_end(ap);
	if (me->used >= OUT)
		abort();
}

static char *word(void)
{
	static char none[] = "";
	char *begin = me->at + strspn(me->at, " ");

	if (!*begin)
		return none;
	me->at = begin + strcspn(begin, " ");
	if (*me->at)
		*me->at++ = 0;
	return begin;
}

static bool more(void)
{
	return me->at[strspn(me->at, " ")];
}

static long num(void)
{
	return strtol(word(), NULL, 0);
}

/* The slot that a call fills. */
static int *slot(void)
{
	return &slots[(unsigned)atoi(word() + 1) % SLOTS];
}

static int fd_of(const char *w)
{
	return *w == 's' ? slots[(unsigned)atoi(w + 1) % SLOTS] : atoi(w);
}

static int fd(void)
{
	return fd_of(word());
}

/* What the call gave, with errno as it left it. */
static long gave(long r)
{
	int err = errno;

	if (r < 0)
		say("%s", strerrorname_np(err));
	else
		say("%ld", r);
	if (r >= 0 && err != ERRNO_BEFORE)
		say(" and errno %s", strerrorname_np(err));
	return r;
}

#define CALL(call) (errno = ERRNO_BEFORE, gave((long)(call)))

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* --- data and addresses */

static void fill(char *b, size_t n, unsigned from)
{
	for (size_t i = 0; i < n; i++)
		b[i] = pattern[(from + i) % PATTERN];
}

static void say_data(const char *b, long n)
{
	uint32_t hash = 2166136261;

	if (n <= 0)
		return;
	for (long i = 0; i < n; i++)
		hash = (hash ^ (uint8_t)b[i]) * 16777619;
	say(" data %08x", hash);
}

/* A buffer to receive into; what lies behind the data must stay as it is. */
static char *room(size_t n)
{
	char *b = malloc(n + 16);

	memset(b, 0x5e, n + 16);
	return b;
}

static void say_room(char *b, size_t n, long r)
{
	size_t got = r < 0 ? 0 : (size_t)r < n ? (size_t)r : n;

	say_data(b, (long)got);
	for (size_t i = got; i < n + 16; i++) {
		if (b[i] == 0x5e)
			continue;
		say(" and writes behind it");
		break;
	}
	free(b);
}

/* "4A:3": family 4, 6 or m (mapped); A own, B peer's, * any, L loopback; a port; or "unspec". */
static socklen_t address(struct sockaddr_storage *ss, const char *w)
{
	static const char *const four[] = {"10.77.0.1", "10.77.0.2", "0.0.0.0", "127.0.0.1"};
	static const char *const six[] = {"fd77::1", "fd77::2", "::", "::1"};
	struct sockaddr_in *a4 = (struct sockaddr_in *)ss;
	struct sockaddr_in6 *a6 = (struct sockaddr_in6 *)ss;
	long who = w[1] ? strchrnul("AB*L", w[1]) - "AB*L" : 0;
	int port =
		strlen(w) > 3 && w[3] != 'z' ? atoi(w + 3) + (who == 1 ? base_peer : base_own) : 0;
	char text[64];

	memset(ss, 0, sizeof(*ss));
	if (*w == 'u' || who > 3)
		return sizeof(*a4);
	a4->sin_port = htons((uint16_t)port); /* at the same place in both */
	if (*w == '4') {
		a4->sin_family = AF_INET;
		inet_pton(AF_INET, four[who], &a4->sin_addr);
		return sizeof(*a4);
	}
	a6->sin6_family = AF_INET6;
	snprintf(text, sizeof(text), *w == 'm' ? "::ffff:%s" : "%s", (*w == 'm' ? four : six)[who]);
	inet_pton(AF_INET6, text, &a6->sin6_addr);
	return sizeof(*a6);
}

static void say_port(int port)
{
	if (port >= base_own && port < base_own + PORTS)
		say(":%d", port - base_own);
	else if (port >= base_peer && port < base_peer + PORTS)
		say(":peer %d", port - base_peer);
	else
		say(port ? ":some" : ":0");
}

/* There was room for so much. */
static void say_address(const void *a, socklen_t len, socklen_t room)
{
	const struct sockaddr_in *a4 = a;
	const struct sockaddr_in6 *a6 = a;
	char text[64] = "?";

	say(" len %u", len);
	if (len < sizeof(*a4) || room < len)
		return;
	if (a4->sin_family == AF_INET)
		inet_ntop(AF_INET, &a4->sin_addr, text, sizeof(text));
	else if (a4->sin_family == AF_INET6)
		inet_ntop(AF_INET6, &a6->sin6_addr, text, sizeof(text));
	else
		return say(" family %d", a4->sin_family);
	say(" %s", text);
	say_port(ntohs(a4->sin_port));
}

/* --- descriptors */

static void keep(int *where, long r)
{
	*where = r < 0 ? *where : (int)r;
}

static void do_socket(void)
{
	int *s = slot(), domain = (int)num(), type = (int)num();

	keep(s, CALL(socket(domain, type, (int)num())));
}

static void do_socketpair(void)
{
	int *s = slot(), *t = slot(), both[2] = {-1, -1};

	CALL(socketpair(AF_UNIX, (int)num(), 0, both));
	*s = both[0];
	*t = both[1];
}

static void do_pipe(void)
{
	int *s = slot(), *t = slot(), both[2] = {-1, -1};

	CALL(pipe2(both, (int)num()));
	*s = both[0];
	*t = both[1];
}

static void do_open(void)
{
	int *s = slot();

	keep(s, CALL(open(word(), O_RDWR)));
}

static void do_close(void)
{
	CALL(close(fd()));
}

static void do_close_loop(void)
{
	int from = (int)num(), to = (int)num(), closed = 0;

	for (int i = from; i < to; i++)
		closed += !close(i);
	say("%d", closed);
}

static void do_close_range(void)
{
	unsigned from = (unsigned)num(), to = (unsigned)num();

	CALL(close_range(from, to, (int)num()));
}

static void do_dup(void)
{
	int *s = slot();

	keep(s, CALL(dup(fd())));
}

static void do_dup2(void)
{
	int from = fd();

	CALL(dup2(from, fd()));
}

static void do_dup3(void)
{
	int from = fd(), to = fd();

	CALL(dup3(from, to, (int)num()));
}

static void do_dupfd(void)
{
	int *s = slot(), f = fd(), command = (int)num();

	keep(s, CALL(fcntl(f, command, (int)num())));
}

static void do_fcntl(void)
{
	int f = fd(), command = (int)num();

	CALL(fcntl(f, command, (int)num()));
}

static void do_ioctl(void)
{
	int f = fd(), value;
	unsigned long request = (unsigned long)num();

	value = (int)num();
	CALL(ioctl(f, request, &value));
	say(" value %d", value);
}

/* --- names and states */

static void do_bind(void)
{
	struct sockaddr_storage ss;
	int f = fd();
	socklen_t len = address(&ss, word());

	CALL(bind(f, (struct sockaddr *)&ss, len));
}

static void do_connect(void)
{
	struct sockaddr_storage ss;
	int f = fd();
	socklen_t len = address(&ss, word());

	CALL(connect(f, (struct sockaddr *)&ss, len));
}

static void do_listen(void)
{
	int f = fd();

	CALL(listen(f, (int)num()));
}

static void do_accept(void)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	int *s = slot(), f = fd();
	long r = CALL(accept4(f, (struct sockaddr *)&ss, &len, (int)num()));

	keep(s, r);
	if (r >= 0)
		say_address(&ss, len, sizeof(ss));
}

static void do_shutdown(void)
{
	int f = fd();

	CALL(shutdown(f, (int)num()));
}

static void do_getsockname(void)
{
	struct sockaddr_storage ss;
	int f = fd();
	socklen_t given = (socklen_t)num(), len = given;

	if (!CALL(getsockname(f, (struct sockaddr *)&ss, &len)))
		say_address(&ss, len, given);
}

static void do_getpeername(void)
{
	struct sockaddr_storage ss;
	int f = fd();
	socklen_t given = (socklen_t)num(), len = given;

	if (!CALL(getpeername(f, (struct sockaddr *)&ss, &len)))
		say_address(&ss, len, given);
}

/* --- options */

static void do_setsockopt(void)
{
	int f = fd(), level = (int)num(), name = (int)num(), value = (int)num();
	socklen_t len = more() ? (socklen_t)num() : sizeof(value);

	CALL(setsockopt(f, level, name, &value, len));
}

/* A value of two long words: a time of seconds and microseconds. */
static void do_settime(void)
{
	int f = fd(), name = (int)num();
	struct timeval tv;

	tv.tv_sec = num();
	tv.tv_usec = num();
	CALL(setsockopt(f, SOL_SOCKET, name, &tv, sizeof(tv)));
}

static void do_linger(void)
{
	int f = fd();
	struct linger l = {.l_onoff = (int)num(), .l_linger = (int)num()};

	CALL(setsockopt(f, SOL_SOCKET, SO_LINGER, &l, sizeof(l)));
}

static void do_getsockopt(void)
{
	int f = fd(), level = (int)num(), name = (int)num();
	unsigned char b[64] = {0};
	socklen_t len = (socklen_t)num();

	if (CALL(getsockopt(f, level, name, b, &len)))
		return;
	say(" len %u value", len);
	for (socklen_t i = 0; i < len && i < sizeof(b); i++)
		say(" %02x", b[i]);
}

static void do_tcp_state(void)
{
	struct tcp_info info = {0};
	socklen_t len = sizeof(info);

	if (!CALL(getsockopt(fd(), IPPROTO_TCP, TCP_INFO, &info, &len)))
		say(" state %d", info.tcpi_state);
}

/* --- data */

static void do_send(void)
{
	int f = fd();
	size_t n = (size_t)num();
	char *b = room(n);

	fill(b, n, (unsigned)num());
	CALL(send(f, b, n, (int)num()));
	free(b);
}

static void do_write(void)
{
	int f = fd();
	size_t n = (size_t)num();
	char *b = room(n);

	fill(b, n, (unsigned)num());
	CALL(write(f, b, n));
	free(b);
}

static void do_sendto(void)
{
	struct sockaddr_storage ss;
	int f = fd(), flags;
	size_t n = (size_t)num();
	char *b = room(n);
	socklen_t len;

	fill(b, n, (unsigned)num());
	flags = (int)num();
	len = address(&ss, word());
	CALL(sendto(f, b, n, flags, (struct sockaddr *)&ss, len));
	free(b);
}

/* n bytes in so many parts of different lengths, the first of them empty if there are three. */
static int pieces(struct iovec *iov, char *b, size_t n, int count)
{
	size_t at = 0;

	count = count < 1 ? 1 : count > PIECES_MAX ? PIECES_MAX : count;
	for (int i = 0; i < count; i++) {
		size_t len = i == count - 1 ? n - at : i == 0 && count == 3 ? 0 : (n - at) / 3;

		iov[i] = (struct iovec){b + at, len};
		at += len;
	}
	return count;
}

static void do_writev(void)
{
	struct iovec iov[PIECES_MAX];
	int f = fd();
	size_t n = (size_t)num();
	char *b = room(n);

	fill(b, n, (unsigned)num());
	CALL(writev(f, iov, pieces(iov, b, n, (int)num())));
	free(b);
}

/* sendmsg fd n from flags pieces address|- slots to pass */
static void do_sendmsg(void)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(int) * PIECES_MAX)];
	} control;
	struct sockaddr_storage ss;
	struct iovec iov[PIECES_MAX];
	struct msghdr m = {.msg_iov = iov};
	int f = fd(), flags, passed[PIECES_MAX], count = 0;
	size_t n = (size_t)num();
	char *b = room(n), *to;

	fill(b, n, (unsigned)num());
	flags = (int)num();
	m.msg_iovlen = (size_t)pieces(iov, b, n, (int)num());
	to = word();
	if (*to && *to != '-') {
		m.msg_name = &ss;
		m.msg_namelen = address(&ss, to);
	}
	while (more() && count < PIECES_MAX)
		passed[count++] = fd();
	if (count) {
		m.msg_control = &control;
		m.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)count);
		control.align = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int) * (size_t)count),
						 .cmsg_level = SOL_SOCKET,
						 .cmsg_type = SCM_RIGHTS};
		memcpy(CMSG_DATA(&control.align), passed, sizeof(int) * (size_t)count);
	}
	CALL(sendmsg(f, &m, flags));
	free(b);
}

static void do_sendmmsg(void)
{
	struct mmsghdr m[PIECES_MAX] = {0};
	struct iovec iov[PIECES_MAX];
	int f = fd();
	size_t n = (size_t)num();
	char *b = room(n);
	unsigned count;

	fill(b, n, (unsigned)num());
	count = (unsigned)pieces(iov, b, n, (int)num());
	for (unsigned i = 0; i < count; i++)
		m[i].msg_hdr = (struct msghdr){.msg_iov = &iov[i], .msg_iovlen = 1};
	CALL(sendmmsg(f, m, count, 0));
	for (unsigned i = 0; i < count; i++)
		say(" %u", m[i].msg_len);
	free(b);
}

static void do_recv(void)
{
	int f = fd();
	size_t n = (size_t)num();
	char *b = room(n);

	say_room(b, n, CALL(recv(f, b, n, (int)num())));
}

static void do_read(void)
{
	int f = fd();
	size_t n = (size_t)num();
	char *b = room(n);

	say_room(b, n, CALL(read(f, b, n)));
}

static void do_recvfrom(void)
{
	struct sockaddr_storage ss;
	int f = fd(), flags;
	size_t n = (size_t)num();
	char *b = room(n);
	socklen_t given, len;
	long r;

	flags = (int)num();
	given = len = (socklen_t)num();
	r = CALL(recvfrom(f, b, n, flags, (struct sockaddr *)&ss, &len));
	if (r >= 0)
		say_address(&ss, len, given);
	say_room(b, n, r);
}

static void do_readv(void)
{
	struct iovec iov[PIECES_MAX];
	int f = fd();
	size_t n = (size_t)num();
	char *b = room(n);

	say_room(b, n, CALL(readv(f, iov, pieces(iov, b, n, (int)num()))));
}

/*
 * fd, which a message has brought, at the lowest free number: the library may have had that one for
 * a moment (docs/limits.md, Descriptors), which is longer on a busy machine.
 */
static int at_lowest(int fd)
{
	int low, looks = 0;

	while ((low = (int)syscall(SYS_dup, fd)) < 0 || low > fd) {
		syscall(SYS_close, low);
		if (looks++ == 5)
			return fd;
		poll(NULL, 0, 1);
	}
	if (fcntl(fd, F_GETFD))
		fcntl(low, F_SETFD, FD_CLOEXEC);
	close(fd);
	return low;
}

static void say_control(struct msghdr *m)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		say(" control %d %d len %zu", c->cmsg_level, c->cmsg_type, (size_t)c->cmsg_len);
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; CMSG_LEN(sizeof(int) * (i + 1)) <= c->cmsg_len; i++) {
			int one;

			memcpy(&one, CMSG_DATA(c) + sizeof(int) * i, sizeof(one));
			one = at_lowest(one);
			say(" fd %d", one);
			if (more())
				*slot() = one;
		}
	}
}

/* recvmsg fd n flags pieces room for control, slots that take what is passed */
static void do_recvmsg(void)
{
	char control[256];
	struct sockaddr_storage ss;
	struct iovec iov[PIECES_MAX];
	struct msghdr m = {.msg_name = &ss, .msg_namelen = sizeof(ss), .msg_iov = iov};
	int f = fd(), flags;
	size_t n = (size_t)num();
	char *b = room(n);
	long r;

	flags = (int)num();
	m.msg_iovlen = (size_t)pieces(iov, b, n, (int)num());
	m.msg_control = control;
	m.msg_controllen = (size_t)num() % (sizeof(control) + 1);
	r = CALL(recvmsg(f, &m, flags));
	if (r >= 0) {
		say(" flags %#x", (unsigned)m.msg_flags);
		say_address(&ss, m.msg_namelen, sizeof(ss));
		say_control(&m);
	}
	say_room(b, n, r);
}

/* recvmmsg fd count n flags milliseconds (-1: none) */
static void do_recvmmsg(void)
{
	struct mmsghdr m[PIECES_MAX] = {0};
	struct iovec iov[PIECES_MAX];
	static __thread char b[PIECES_MAX][2048];
	int f = fd(), flags;
	unsigned count = (unsigned)num() % (PIECES_MAX + 1);
	size_t n = (size_t)num() % sizeof(b[0]);
	long r, ms;

	flags = (int)num();
	ms = num();
	for (unsigned i = 0; i < count; i++) {
		iov[i] = (struct iovec){b[i], n};
		m[i].msg_hdr = (struct msghdr){.msg_iov = &iov[i], .msg_iovlen = 1};
	}
	r = CALL(recvmmsg(f, m, count, flags,
			  ms < 0 ? NULL : &(struct timespec){ms / 1000, ms % 1000 * 1000000}));
	for (long i = 0; i < r; i++) {
		say(" %u flags %#x", m[i].msg_len, (unsigned)m[i].msg_hdr.msg_flags);
		say_data(b[i], m[i].msg_len < n ? m[i].msg_len : (long)n);
	}
}

/* A file of n bytes goes out. */
static void do_sendfile(void)
{
	int f = fd(), file = memfd_create("program", 0);
	size_t n = (size_t)num();
	char *b = room(n);
	off_t at = 0;

	fill(b, n, (unsigned)num());
	if (write(file, b, n) != (ssize_t)n)
		abort();
	CALL(sendfile(f, file, &at, n));
	say(" at %ld", (long)at);
	close(file);
	free(b);
}

/* n bytes of a pipe go out: splice_out fd n from */
static void do_splice_out(void)
{
	int f = fd(), both[2];
	size_t n = (size_t)num();
	char *b = room(n);

	fill(b, n, (unsigned)num());
	if (pipe(both) || write(both[1], b, n) != (ssize_t)n)
		abort();
	CALL(splice(both[0], NULL, f, NULL, n, 0));
	close(both[0]);
	close(both[1]);
	free(b);
}

/* Up to n bytes come into a pipe: splice_in fd n */
static void do_splice_in(void)
{
	int f = fd(), both[2];
	size_t n = (size_t)num();
	char *b = room(n);
	long r;

	if (pipe(both))
		abort();
	r = CALL(splice(f, NULL, both[1], NULL, n, 0));
	if (r > 0 && read(both[0], b, (size_t)r) != r)
		abort();
	say_room(b, n, r);
	close(both[0]);
	close(both[1]);
}

/* --- waiting */

/* The rest of the line as fd:events. */
static int watched(struct pollfd *p, int max)
{
	int n = 0;

	while (more() && n < max) {
		char *w = word(), *colon = strchr(w, ':');

		p[n++] = (struct pollfd){.fd = fd_of(w),
					 .events = (short)(colon ? strtol(colon + 1, NULL, 0) : 1)};
	}
	return n;
}

static void say_polled(const struct pollfd *p, int n, long r)
{
	for (int i = 0; r >= 0 && i < n; i++)
		say(" %#x", (unsigned)(unsigned short)p[i].revents);
}

static void do_poll(void)
{
	struct pollfd p[16];
	int ms = (int)num(), n = watched(p, 16);

	say_polled(p, n, CALL(poll(p, (nfds_t)n, ms)));
}

/* ppoll seconds nanoseconds fd:events ...; seconds "-": no limit */
static void do_ppoll(void)
{
	struct timespec ts, *limit;
	sigset_t none;
	struct pollfd p[16];
	char *w = word();
	int n;

	ts.tv_sec = atol(w);
	ts.tv_nsec = num();
	limit = *w == '-' && !w[1] ? NULL : &ts;
	n = watched(p, 16);
	sigemptyset(&none);
	say_polled(p, n, CALL(ppoll(p, (nfds_t)n, limit, n % 2 ? &none : NULL)));
}

static int select_sets(const struct pollfd *p, int n, fd_set *sets)
{
	static const short bits[] = {POLLIN, POLLOUT, POLLPRI};
	int top = 0;

	for (int j = 0; j < 3; j++)
		FD_ZERO(&sets[j]);
	for (int i = 0; i < n; i++) {
		if (p[i].fd < 0)
			continue;
		for (int j = 0; j < 3; j++)
			if (p[i].events & bits[j])
				FD_SET(p[i].fd, &sets[j]);
		top = p[i].fd >= top ? p[i].fd + 1 : top;
	}
	return top;
}

static void say_selected(const struct pollfd *p, int n, fd_set *sets)
{
	for (int i = 0; i < n; i++)
		if (p[i].fd >= 0)
			say(" %c%c%c", FD_ISSET(p[i].fd, &sets[0]) ? 'r' : '-',
			    FD_ISSET(p[i].fd, &sets[1]) ? 'w' : '-',
			    FD_ISSET(p[i].fd, &sets[2]) ? 'x' : '-');
}

/* select seconds microseconds fd:events ... */
static void do_select(void)
{
	struct timeval tv, *limit;
	struct pollfd p[16];
	fd_set sets[3];
	char *w = word();
	int n, top;
	long r;

	tv.tv_sec = atol(w);
	tv.tv_usec = num();
	limit = *w == '-' && !w[1] ? NULL : &tv;
	n = watched(p, 16);
	top = select_sets(p, n, sets);
	r = CALL(select(top, &sets[0], &sets[1], &sets[2], limit));
	if (r >= 0)
		say_selected(p, n, sets);
	if (!r && limit)
		say(" left %ld.%06ld", (long)tv.tv_sec, (long)tv.tv_usec);
}

static void do_pselect(void)
{
	struct timespec ts, *limit;
	struct pollfd p[16];
	fd_set sets[3];
	sigset_t none;
	char *w = word();
	int n, top;

	ts.tv_sec = atol(w);
	ts.tv_nsec = num();
	limit = *w == '-' && !w[1] ? NULL : &ts;
	n = watched(p, 16);
	top = select_sets(p, n, sets);
	sigemptyset(&none);
	if (CALL(pselect(top, &sets[0], &sets[1], &sets[2], limit, n % 2 ? &none : NULL)) >= 0)
		say_selected(p, n, sets);
}

static void do_epoll_create(void)
{
	int *s = slot();

	keep(s, CALL(epoll_create1((int)num())));
}

/* epoll_ctl set operation fd events; what comes back is the word that named the descriptor */
static void do_epoll_ctl(void)
{
	int set = fd(), op = (int)num();
	char *w = word();
	struct epoll_event ev;

	ev.data.u64 = (uint64_t)atoi(w + (*w == 's'));
	ev.events = (uint32_t)num();
	CALL(epoll_ctl(set, op, fd_of(w), &ev));
}

static int by_data(const void *a, const void *b)
{
	const struct epoll_event *x = a, *y = b;

	return x->data.u64 < y->data.u64 ? -1 : x->data.u64 > y->data.u64;
}

/* epoll_wait set max milliseconds variant. The order in which things became ready is nobody's. */
static void do_epoll_wait(void)
{
	struct epoll_event ev[16];
	int set = fd(), max = (int)num(), ms = (int)num();
	struct timespec ts = {ms / 1000, ms % 1000 * 1000000L};
	sigset_t none;
	long r;

	sigemptyset(&none);
	switch (num()) {
	case 1:
		r = CALL(epoll_pwait(set, ev, max, ms, &none));
		break;
	case 2:
		r = CALL(epoll_pwait2(set, ev, max, ms < 0 ? NULL : &ts, NULL));
		break;
	default:
		r = CALL(epoll_wait(set, ev, max, ms));
	}
	if (r > 0)
		qsort(ev, (size_t)r, sizeof(*ev), by_data);
	for (long i = 0; i < r; i++)
		say(" %d:%#x", (int)ev[i].data.u64, ev[i].events);
}

/* Until fd has one of the events, or for so long: what the next calls see is then certain. */
static void do_await(void)
{
	struct pollfd p[1];
	int ms = (int)num(), n = watched(p, 1);
	long r = poll(p, (nfds_t)n, ms);

	say("%s", r == 1 ? "there" : r ? "failed" : "not there");
}

/* Until n bytes wait there. */
static void do_await_bytes(void)
{
	int f = fd(), n = (int)num(), have = 0;
	double end = now() + 5;

	while (have < n && now() < end)
		if (ioctl(f, FIONREAD, &have) || poll(NULL, 0, 0))
			break;
	say("%s", have == n ? "there" : have > n ? "more" : "not there");
}

/* Until the connection is in that state. */
static void do_await_state(void)
{
	struct tcp_info info = {0};
	socklen_t len = sizeof(info);
	int f = fd(), state = (int)num();
	double end = now() + 5;

	while (!getsockopt(f, IPPROTO_TCP, TCP_INFO, &info, &len) && info.tcpi_state != state &&
	       now() < end)
		poll(NULL, 0, 0);
	say("state %d", info.tcpi_state);
}

/* Sends until there has been no room for a while: the peer does not read. */
static void do_fill(void)
{
	static const char b[1 << 16];
	int f = fd();

	do
		while (send(f, b, sizeof(b), MSG_DONTWAIT) > 0)
			;
	while (errno == EAGAIN && !poll(NULL, 0, 200) && send(f, b, sizeof(b), MSG_DONTWAIT) > 0);
	say("%s", strerrorname_np(errno));
}

static void run_line(char *line);

/* The call on the rest of the line takes no less than so many milliseconds. */
static void do_lasts(void)
{
	double ms = (double)num(), begin = now();

	run_line(me->at);
	if ((now() - begin) * 1000 < ms - 0.5)
		say(" EARLY");
}

/* --- processes and threads */

static void listen_to(int number);

static void quiet(int sig)
{
	(void)sig;
}

static void do_handler(void)
{
	struct sigaction act = {.sa_handler = quiet, .sa_flags = (int)num()};

	CALL(sigaction(SIGUSR1, &act, NULL));
}

/* fork <actor> <way>: fork(), clone() past libc */
static void do_fork(void)
{
	int number = (int)num();
	pid_t pid;

	errno = ERRNO_BEFORE;
	pid = num() ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
	if (!pid)
		listen_to(number);
	gave(pid > 0 ? 0 : -1);
}

/* What another program needs to go on as this one: "resume actor ports slots". */
static char **resumed(int number, bool answers)
{
	static char text[5 + SLOTS][16];
	static char *argv[6 + SLOTS + 1];
	int values[] = {number, answers, base_own, base_peer};

	argv[0] = "program";
	argv[1] = "resume";
	for (int i = 0; i < 4 + SLOTS; i++) {
		snprintf(text[i], sizeof(text[i]), "%d", i < 4 ? values[i] : slots[i - 4]);
		argv[i + 2] = text[i];
	}
	return argv;
}

static void do_exec(void)
{
	execv("/proc/self/exe", resumed(me->number, true));
	gave(-1);
}

static void do_spawn(void)
{
	extern char **environ;
	int number = (int)num();
	pid_t pid = -1;

	errno = posix_spawn(&pid, "/proc/self/exe", NULL, NULL, resumed(number, false), environ);
	say("%s", errno ? strerrorname_np(errno) : "0");
}

static void do_vfork(void)
{
	char **argv = resumed((int)num(), false);
	pid_t pid = vfork();

	if (!pid) {
		execv("/proc/self/exe", argv);
		_exit(127);
	}
	say("%s", pid < 0 ? strerrorname_np(errno) : "0");
}

static void do_seteuid(void)
{
	CALL(seteuid((uid_t)num()));
}

static void do_wait(void)
{
	int status = 0;

	errno = ERRNO_BEFORE;
	if (gave(waitpid(-1, &status, 0) > 0 ? 0 : -1))
		return;
	if (WIFEXITED(status))
		say(" exited %d", WEXITSTATUS(status));
	else
		say(" killed by %d", WTERMSIG(status));
}

static void do_exit(void)
{
	exit((int)num());
}

static void do__exit(void)
{
	_exit((int)num());
}

static void *thread(void *arg)
{
	listen_to((int)(intptr_t)arg);
	return NULL;
}

static void do_thread(void)
{
	int number = (int)num() % ACTORS;

	say("%d", pthread_create(&threads[number], NULL, thread, (void *)(intptr_t)number));
}

static void do_cancel(void)
{
	say("%d", pthread_cancel(threads[num() % ACTORS]));
}

static void do_join(void)
{
	void *result;
	int r = pthread_join(threads[num() % ACTORS], &result);

	say("%d%s", r, r ? "" : result == PTHREAD_CANCELED ? " cancelled" : " ended");
}

static void do_leave(void)
{
	pthread_exit(NULL);
}

/* --- bad pointers */

static void *bad_pointer(long kind)
{
	static void *none; /* held, so that nothing comes to be there */

	if (!none)
		none = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return kind == 0 ? NULL : kind == 1 ? (void *)8 : kind == 2 ? none : (void *)-4096L;
}

static void bad_data(int f, void *bad, long which)
{
	char good[64] = {0};
	struct iovec iov = {bad, 4}, minus = {good, (size_t)-1};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1}, n = {.msg_iov = bad, .msg_iovlen = 1};

	switch (which) {
	case 0:
		CALL(send(f, bad, 4, MSG_DONTWAIT));
		break;
	case 1:
		CALL(recv(f, bad, 4, MSG_DONTWAIT));
		break;
	case 2:
		CALL(sendmsg(f, &m, MSG_DONTWAIT));
		break;
	case 3:
		CALL(recvmsg(f, &m, MSG_DONTWAIT));
		break;
	case 4:
		CALL(sendmsg(f, &n, MSG_DONTWAIT));
		break;
	case 5:
		CALL(writev(f, &minus, 1));
		break;
	case 6:
		CALL(readv(f, &minus, 1));
		break;
	default:
		CALL(recvmsg(f, bad, MSG_DONTWAIT));
	}
}

static void bad_names(int f, void *bad, long which)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);

	switch (which) {
	case 8:
		CALL(getsockname(f, bad, &len));
		break;
	case 9:
		CALL(getpeername(f, (struct sockaddr *)&ss, bad));
		break;
	case 10:
		CALL(getsockopt(f, SOL_SOCKET, SO_TYPE, bad, &len));
		break;
	case 11:
		CALL(setsockopt(f, SOL_SOCKET, SO_KEEPALIVE, bad, 4));
		break;
	case 12:
		CALL(ioctl(f, FIONREAD, bad));
		break;
	case 13:
		CALL(bind(f, bad, 16));
		break;
	case 14:
		CALL(connect(f, bad, 16));
		break;
	case 15:
		CALL(poll(bad, 1, 0));
		break;
	default:
		CALL(epoll_ctl(f, EPOLL_CTL_ADD, f, bad));
	}
}

/* bad fd pointer call */
static void do_bad(void)
{
	int f = fd();
	void *bad = bad_pointer(num());
	long which = num();

	(which < 8 ? bad_data : bad_names)(f, bad, which);
}

/* --- begin and end of a script */

static int by_number(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

/* Numbers of the descriptors below the soft limit that a script can have. */
static int open_numbers(int *numbers)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	for (struct dirent *e; dir && (e = readdir(dir));) {
		int number = atoi(e->d_name);

		if (*e->d_name != '.' && number != dirfd(dir) && number < FIRST_CONTROL)
			numbers[n++] = number;
	}
	closedir(dir);
	qsort(numbers, (size_t)n, sizeof(*numbers), by_number);
	return n;
}

static void say_fds(void)
{
	int numbers[LIMIT], n = open_numbers(numbers);

	for (int i = 0; i < n; i++) {
		char path[64], link[256];
		ssize_t len;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", numbers[i]);
		len = readlink(path, link, sizeof(link) - 1);
		if (len < 0)
			continue; /* the library had it for a moment (OWN_FD()) */
		link[strcspn((link[len] = 0, link), ":")] = 0;
		if (numbers[i] > 2 || !strncmp(link, "socket", 6))
			say(" %d %s%s", numbers[i], link,
			    fcntl(numbers[i], F_GETFD) ? " cloexec" : "");
	}
}

/*
 * What two looks agree on: at one of them the library may have had the lowest free number for a
 * moment (OWN_FD()), however long a busy machine makes that. Closing a number that nobody has waits
 * until each such moment is over.
 */
static void do_fds(void)
{
	size_t from = me->used;
	char before[OUT];

	say_fds();
	do {
		memcpy(before, me->out, OUT);
		me->used = from;
		close_range(FIRST_CONTROL - 1, FIRST_CONTROL - 1, 0);
		memset(me->out + from, 0, OUT - from);
		say_fds();
	} while (strcmp(before, me->out));
}

/* Threads of the program: the library has one, which is not counted. */
static void do_threads(void)
{
	DIR *dir = opendir("/proc/self/task");
	int n = 0;

	for (struct dirent *e; dir && (e = readdir(dir));) {
		char path[300], name[32] = "";
		FILE *f;

		if (*e->d_name == '.')
			continue;
		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", e->d_name);
		f = fopen(path, "r");
		if (f && fgets(name, sizeof(name), f))
			n += strncmp(name, "vma-worker", 10) != 0;
		if (f)
			fclose(f);
	}
	closedir(dir);
	say("%d", n);
}

static void do_begin(void)
{
	base_own = (int)num();
	base_peer = (int)num();
	for (int i = 0; i < SLOTS; i++)
		slots[i] = -1;
	say("ready");
}

/* Whatever the script left: closed; children: waited for. */
static void do_end(void)
{
	struct sigaction act = {.sa_handler = SIG_DFL};
	int children = 0, status;

	for (int i = 0; i < 3; i++)
		dup2(FIRST_SPARE + i, i);
	for (int i = 3; i < FIRST_CONTROL; i++)
		close(i);
	while (waitpid(-1, &status, 0) > 0)
		children++;
	sigaction(SIGUSR1, &act, NULL);
	if (seteuid(getuid()))
		abort();
	say("%d children", children);
}

/* --- the actors */

static const struct command commands[] = {
	{"socket", do_socket},
	{"socketpair", do_socketpair},
	{"pipe", do_pipe},
	{"open", do_open},
	{"close", do_close},
	{"close_loop", do_close_loop},
	{"close_range", do_close_range},
	{"dup", do_dup},
	{"dup2", do_dup2},
	{"dup3", do_dup3},
	{"dupfd", do_dupfd},
	{"fcntl", do_fcntl},
	{"ioctl", do_ioctl},
	{"bind", do_bind},
	{"connect", do_connect},
	{"listen", do_listen},
	{"accept", do_accept},
	{"shutdown", do_shutdown},
	{"getsockname", do_getsockname},
	{"getpeername", do_getpeername},
	{"setsockopt", do_setsockopt},
	{"settime", do_settime},
	{"linger", do_linger},
	{"getsockopt", do_getsockopt},
	{"tcp_state", do_tcp_state},
	{"send", do_send},
	{"write", do_write},
	{"sendto", do_sendto},
	{"writev", do_writev},
	{"sendmsg", do_sendmsg},
	{"sendmmsg", do_sendmmsg},
	{"sendfile", do_sendfile},
	{"splice_out", do_splice_out},
	{"splice_in", do_splice_in},
	{"recv", do_recv},
	{"read", do_read},
	{"recvfrom", do_recvfrom},
	{"readv", do_readv},
	{"recvmsg", do_recvmsg},
	{"recvmmsg", do_recvmmsg},
	{"poll", do_poll},
	{"ppoll", do_ppoll},
	{"select", do_select},
	{"pselect", do_pselect},
	{"epoll_create", do_epoll_create},
	{"epoll_ctl", do_epoll_ctl},
	{"epoll_wait", do_epoll_wait},
	{"await", do_await},
	{"await_bytes", do_await_bytes},
	{"await_state", do_await_state},
	{"fill", do_fill},
	{"lasts", do_lasts},
	{"handler", do_handler},
	{"fork", do_fork},
	{"exec", do_exec},
	{"spawn", do_spawn},
	{"vfork", do_vfork},
	{"seteuid", do_seteuid},
	{"wait", do_wait},
	{"exit", do_exit},
	{"_exit", do__exit},
	{"thread", do_thread},
	{"cancel", do_cancel},
	{"join", do_join},
	{"leave", do_leave},
	{"bad", do_bad},
	{"fds", do_fds},
	{"threads", do_threads},
	{"begin", do_begin},
	{"end", do_end},
};

static void run_line(char *line)
{
	const char *name;

	me->at = line;
	name = word();
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (!strcmp(name, commands[i].name))
			return commands[i].fn();
	say("no such call: %s", name);
}

static void answer(void)
{
	if (send(FIRST_CONTROL + me->number, me->out, me->used, MSG_NOSIGNAL) < 0)
		_exit(3);
	me->used = 0;
}

/* One message: its lines are carried out; a thread can be cancelled only in them. */
static void carry_out(char *message)
{
	char *rest = message;

	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
	for (char *line; (line = strsep(&rest, "\n"));) {
		run_line(line);
		say("\n");
	}
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
}

/* Until the driver has no more to say. */
static void listen_to(int number)
{
	static __thread char message[OUT];
	static __thread struct actor self;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	self.number = number % ACTORS;
	self.used = 0;
	me = &self;
	for (;;) {
		ssize_t n = recv(FIRST_CONTROL + me->number, message, OUT - 1, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			_exit(0);
		message[n] = 0;
		carry_out(message);
		answer();
	}
}

/* The other half of do_exec() and do_spawn(). */
static void resume(char **argv)
{
	int number = atoi(argv[0]);

	base_own = atoi(argv[2]);
	base_peer = atoi(argv[3]);
	for (int i = 0; i < SLOTS; i++)
		slots[i] = atoi(argv[4 + i]);
	if (atoi(argv[1]) && send(FIRST_CONTROL + number, "0\n", 2, 0) < 0)
		_exit(3);
	listen_to(number);
}

int main(int argc, char **argv)
{
	char *rest;

	for (int i = 0; i < PATTERN; i++)
		pattern[i] = (char)(i * i + (i >> 3));
	signal(SIGPIPE, SIG_IGN);
	if (argc > 5 + SLOTS && !strcmp(argv[1], "resume"))
		resume(argv + 2);
	if (argc != 2)
		return 2;
	rest = argv[1];
	for (int i = 0; i < ACTORS && rest; i++) {
		int control = atoi(strsep(&rest, ","));

		if (dup2(control, FIRST_CONTROL + i) < 0 || close(control))
			return 2;
	}
	for (int i = 0; i < 3; i++)
		if (dup2(i, FIRST_SPARE + i) < 0)
			return 2;
	listen_to(0);
}
