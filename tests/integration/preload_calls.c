/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Calls every function that libvma.so intercepts, on pipes, files and sockets, and prints each
 * result with its errno. test_preload.py compares what it prints with and without the library. No
 * fd number is printed: the library has fds of its own. preload_calls file-to-use; with SANDBOX in
 * the environment the program makes itself a seccomp filter first.
 */
#include <aio.h>
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Names that libc exports without declaring them. */
int capset(void *header, const void *data);
int __close(int fd);
int __connect(int fd, const struct sockaddr *addr, socklen_t len);
int __dup2(int fd, int newfd);
int __fcntl(int fd, int cmd, ...);
pid_t __fork(void);
int __open(const char *path, int flags, ...);
int __open64(const char *path, int flags, ...);
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int dir, const char *path, int flags);
int __openat64_2(int dir, const char *path, int flags);
int __pipe(int fds[2]);
int __poll(struct pollfd *fds, nfds_t n, int msec);
int __poll_chk(struct pollfd *fds, nfds_t n, int msec, size_t room);
int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *ts, const sigset_t *mask,
		size_t room);
ssize_t __read(int fd, void *buf, size_t len);
ssize_t __read_chk(int fd, void *buf, size_t len, size_t room);
ssize_t __recv_chk(int fd, void *buf, size_t len, size_t room, int flags);
ssize_t __recvfrom_chk(int fd, void *buf, size_t len, size_t room, int flags, struct sockaddr *addr,
		       socklen_t *alen);
int __select(int n, fd_set *rd, fd_set *wr, fd_set *ex, struct timeval *tv);
ssize_t __send(int fd, const void *buf, size_t len, int flags);
int __sigaction(int sig, const struct sigaction *act, struct sigaction *old);
pid_t __vfork(void);
ssize_t __write(int fd, const void *buf, size_t len);
int __dprintf_chk(int fd, int flag, const char *fmt, ...);
int __vdprintf_chk(int fd, int flag, const char *fmt, va_list ap);

/* Wrong arguments and vfork() are on purpose. NOLINTBEGIN */
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wstringop-overflow"
#pragma GCC diagnostic ignored "-Wstringop-overread"
#pragma GCC diagnostic ignored "-Wnonnull"
#endif
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#pragma GCC diagnostic ignored "-Wunused-result"

/* What errno is before each call that is tried: no error has this number. */
#define POISON 4242

static const char *kind;
static const char *path;
static char buf[70000];

static void say(int line, const char *what, long ret)
{
	int err = errno;

	printf("%s %d: %s = %ld %s\n", kind, line, what, ret,
	       ret < 0	       ? strerrorname_np(err)
	       : err == POISON ? ""
			       : "and errno has changed");
	fflush(stdout);
}

#define TRY(call) (errno = POISON, say(__LINE__, #call, (long)(call)))
#define TRY_FD(call) try_fd(__LINE__, #call, (errno = POISON, call))
#define SEEN(...) (printf("%s %d:   ", kind, __LINE__), printf(__VA_ARGS__), putchar('\n'))

/* Returns the fd; prints only whether there is one. */
static int try_fd(int line, const char *what, int fd)
{
	say(line, what, fd < 0 ? -1 : 1);
	return fd;
}

static void fill(void)
{
	for (size_t i = 0; i < sizeof(buf); i++)
		buf[i] = (char)(i * 7);
}

/*
 * What was sent may be read: by the library's account it is there when poll() says so, which over
 * loopback can be a moment after send(), as over any other network.
 */
static void arrived(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	poll(&p, 1, 1000);
}

/* What comes in one piece here may come in two there. */
static int is_stream(int fd)
{
	int type = 0;
	socklen_t len = sizeof(type);

	return !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) && type == SOCK_STREAM;
}

/* Takes what is there, in any order of kinds, and says how much and what. */
static void drain(int fd)
{
	unsigned sum = 0;
	long total = 0;
	int n = 0;
	struct pollfd p = {.fd = fd, .events = POLLIN};

	while (poll(&p, 1, 20) == 1 && (p.revents & POLLIN) && n < 100) {
		ssize_t got = read(fd, buf, sizeof(buf));

		if (got <= 0)
			break;
		n++;
		total += got;
		for (ssize_t i = 0; i < got; i++)
			sum = sum * 31 + (unsigned char)buf[i];
	}
	if (!is_stream(fd))
		SEEN("drained %d times", n);
	SEEN("drained %ld bytes, sum %u", total, sum);
	fill();
}

/* --- one message in, one out, in all the forms there are. tx writes what rx reads. */

static void plain_forms(int tx, int rx)
{
	struct iovec two[2] = {{buf, 3}, {buf + 3, 4}}, none[1] = {{buf, 0}},
		     bad[1] = {{buf, (size_t)-5}};

	TRY(write(tx, "hello", 5));
	TRY(read(rx, buf, 0));
	TRY(read(rx, buf, 3));
	TRY(__write(tx, "world", 5));
	drain(rx);
	TRY(__send(tx, "send", 4, 0));
	TRY(send(tx, "more", 4, MSG_NOSIGNAL));
	drain(rx);
	TRY(write(tx, "abcdefg", 7));
	TRY(__read(rx, buf, 100));
	TRY(write(tx, "abcdefg", 7));
	TRY(__read_chk(rx, buf, 100, 200));
	TRY(writev(tx, two, 2));
	TRY(writev(tx, none, 1));
	TRY(writev(tx, two, 0));
	TRY(writev(tx, two, -1));
	TRY(writev(tx, two, 5000));
	TRY(writev(tx, bad, 1));
	TRY(readv(rx, none, 1));
	TRY(readv(rx, two, 0));
	TRY(readv(rx, two, -1));
	TRY(readv(rx, two, 2));
	SEEN("%.7s", buf);
	drain(rx);
	TRY(preadv(rx, two, 2, 0));
	TRY(preadv(rx, two, 2, -1));
	TRY(preadv64(rx, two, 2, 5));
	TRY(pwritev(tx, two, 2, 0));
	TRY(pwritev64(tx, two, 2, 7));
	TRY(pwritev2(tx, two, 2, -1, 0));
	TRY(pwritev64v2(tx, two, 2, -1, RWF_DSYNC));
	arrived(rx);
	TRY(preadv2(rx, two, 2, -1, RWF_NOWAIT));
	TRY(preadv64v2(rx, two, 2, -1, 0));
	drain(rx);
	TRY(preadv2(rx, two, 2, 5, 0));
	TRY(preadv2(rx, two, 2, -1, 0x40000000));
	TRY(pwritev2(tx, two, 2, -1, 0x40000000));
	TRY(pwritev2(tx, two, 2, 9, 0));
	drain(rx);
	TRY(lseek(rx, 0, SEEK_CUR));
	TRY(pread(rx, buf, 4, 0));
}

static void socket_forms(int tx, int rx)
{
	struct sockaddr_storage from;
	socklen_t alen = sizeof(from);
	char ctrl[64];
	struct iovec iov = {buf, 4};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = ctrl,
			     .msg_controllen = sizeof(ctrl)};

	TRY(recv(rx, buf, 10, MSG_DONTWAIT));
	TRY(send(tx, "0123456789", 10, 0));
	arrived(rx);
	TRY(recv(rx, buf, 4, MSG_PEEK));
	TRY(recv(rx, buf, 4, MSG_PEEK | MSG_TRUNC));
	TRY(recvmsg(rx, &msg, 0));
	SEEN("flags %x controllen %zu", msg.msg_flags, msg.msg_controllen);
	drain(rx);
	TRY(sendto(tx, "to", 2, 0, NULL, 0));
	memset(&from, 0, sizeof(from));
	TRY(recvfrom(rx, buf, 10, 0, (struct sockaddr *)&from, &alen));
	SEEN("from family %d length %d", from.ss_family, (int)alen);
	TRY(send(tx, "chk", 3, 0));
	TRY(__recv_chk(rx, buf, 10, 100, 0));
	TRY(send(tx, "chk", 3, 0));
	alen = 2;
	TRY(__recvfrom_chk(rx, buf, 10, 100, 0, (struct sockaddr *)&from, &alen));
	SEEN("length %d", (int)alen);
	msg.msg_controllen = 0;
	TRY(sendmsg(tx, &msg, MSG_DONTWAIT));
	msg.msg_iovlen = 5000;
	TRY(sendmsg(tx, &msg, 0));
	arrived(rx);
	TRY(recvmsg(rx, &msg, MSG_DONTWAIT));
	drain(rx);
	TRY(send(tx, buf, 0, 0));
	arrived(rx);
	TRY(recv(rx, buf, 0, MSG_DONTWAIT));
	drain(rx);
	TRY(sockatmark(rx));
}

static void many_forms(int tx, int rx)
{
	struct mmsghdr m[4];
	struct iovec iov[4];
	struct timespec bad = {0, 2000000000}, some = {0, 30000000}, zero = {0, 0};

	memset(m, 0, sizeof(m));
	for (int i = 0; i < 4; i++) {
		iov[i] = (struct iovec){buf + 100 * i, (size_t)(10 + i)};
		m[i].msg_hdr.msg_iov = &iov[i];
		m[i].msg_hdr.msg_iovlen = 1;
	}
	TRY(sendmmsg(tx, m, 4, 0));
	SEEN("lengths %u %u %u %u", m[0].msg_len, m[1].msg_len, m[2].msg_len, m[3].msg_len);
	for (int i = 0; i < 4; i++)
		iov[i].iov_len = 10;
	arrived(rx);
	TRY(recvmmsg(rx, m, 2, 0, NULL));
	SEEN("lengths %u %u flags %x", m[0].msg_len, m[1].msg_len, m[0].msg_hdr.msg_flags);
	TRY(recvmmsg(rx, m, 4, MSG_WAITFORONE, NULL));
	drain(rx);
	TRY(recvmmsg(rx, m, 4, MSG_DONTWAIT, NULL));
	TRY(recvmmsg(rx, m, 4, MSG_DONTWAIT, &bad));
	TRY(recvmmsg(rx, m, 0, 0, NULL));
	TRY(sendmmsg(tx, m, 0, 0));
	TRY(sendmmsg(tx, m, 3, 0));
	arrived(rx);
	TRY(recvmmsg(rx, m, 4, MSG_DONTWAIT, &some));
	SEEN("slept %d", some.tv_nsec == 30000000);
	drain(rx);
	TRY(sendmmsg(tx, m, 3, 0));
	TRY(recvmmsg(rx, m, 4, 0, &zero));
	drain(rx);
	TRY(syscall(SYS_sendmmsg, tx, m, 2, 0));
	arrived(rx);
	TRY(syscall(SYS_recvmmsg, rx, m, 4, MSG_WAITFORONE, NULL));
	drain(rx);
}

static void option_forms(int fd)
{
	struct sockaddr_storage addr;
	socklen_t len = sizeof(addr), ilen = sizeof(int);
	int val = 1, n = -1;

	TRY(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &val, sizeof(val)));
	TRY(setsockopt(fd, SOL_SOCKET, 9999, &val, sizeof(val)));
	TRY(getsockopt(fd, SOL_SOCKET, SO_TYPE, &val, &ilen));
	SEEN("type %d length %d", val, (int)ilen);
	TRY(getsockopt(fd, SOL_SOCKET, 9999, &val, &ilen));
	TRY(getsockname(fd, (struct sockaddr *)&addr, &len));
	SEEN("family %d length %d", addr.ss_family, (int)len);
	len = sizeof(addr);
	TRY(getpeername(fd, (struct sockaddr *)&addr, &len));
	TRY(ioctl(fd, FIONREAD, &n));
	SEEN("waiting %d", n);
	TRY(ioctl(fd, 0xdead, &n));
	TRY(listen(fd, -1));
	TRY(accept4(fd, NULL, NULL, 0xffff));
}

/* --- moving bytes */

static void transfer_forms(int tx, int rx)
{
	int file = open(path, O_RDONLY), p[2];
	off_t off = 10, far = 1 << 20, negative = -1;
	off64_t off64 = 3;
	struct iovec iov = {buf, 100};

	pipe(p);
	TRY(sendfile(tx, file, &off, 1000));
	SEEN("offset %ld position %ld", (long)off, (long)lseek(file, 0, SEEK_CUR));
	drain(rx);
	TRY(sendfile64(tx, file, NULL, 700));
	SEEN("position %ld", (long)lseek(file, 0, SEEK_CUR));
	drain(rx);
	TRY(sendfile(tx, file, NULL, 0));
	TRY(sendfile(tx, file, &far, 10));
	TRY(sendfile(tx, file, &negative, 10));
	TRY(sendfile(tx, -1, NULL, 10));
	TRY(sendfile(-1, file, NULL, 10));
	TRY(sendfile(file, rx, NULL, 10));
	TRY(write(p[1], buf, 3000));
	TRY(splice(p[0], NULL, tx, NULL, 2000, 0));
	drain(rx);
	TRY(splice(p[0], NULL, tx, NULL, 2000, SPLICE_F_MOVE));
	drain(rx);
	TRY(splice(p[0], NULL, tx, NULL, 2000, SPLICE_F_NONBLOCK));
	TRY(splice(p[0], NULL, tx, &off64, 10, 0));
	TRY(splice(p[0], &off64, tx, NULL, 10, 0));
	TRY(splice(p[0], NULL, tx, NULL, 10, 0x100));
	TRY(splice(file, NULL, tx, NULL, 10, 0));
	TRY(write(tx, "splice in", 9));
	TRY(splice(rx, NULL, p[1], NULL, 100, 0));
	drain(p[0]);
	TRY(splice(rx, NULL, p[1], NULL, 0, 0));
	TRY(tee(p[0], tx, 10, SPLICE_F_NONBLOCK));
	TRY(tee(rx, p[1], 10, SPLICE_F_NONBLOCK));
	TRY(vmsplice(p[1], &iov, 1, 0));
	drain(p[0]);
	TRY(syscall(SYS_sendfile, tx, file, NULL, 100));
	drain(rx);
	TRY(write(p[1], "by number", 9));
	TRY(syscall(SYS_splice, p[0], NULL, tx, NULL, 100, 0));
	drain(rx);
	close(p[1]);
	TRY(splice(p[0], NULL, tx, NULL, 100, 0));
	close(p[0]);
	close(file);
}

/* --- waiting */

static void poll_forms(int tx, int rx)
{
	struct pollfd p[3] = {{rx, POLLIN, 0}, {tx, POLLOUT, 0}, {-1, POLLIN, 0}};
	struct timespec zero = {0, 0}, some = {0, 20000000}, bad = {0, -1};
	sigset_t mask;

	sigemptyset(&mask);
	TRY(poll(p, 1, 0));
	TRY(poll(p, 3, 50));
	SEEN("%x %x %x", p[0].revents, p[1].revents, p[2].revents);
	write(tx, "x", 1);
	arrived(rx);
	TRY(__poll(p, 3, -1));
	SEEN("%x %x %x", p[0].revents, p[1].revents, p[2].revents);
	TRY(ppoll(p, 2, &zero, &mask));
	TRY(ppoll(p, 2, NULL, NULL));
	TRY(ppoll(p, 2, &bad, NULL));
	TRY(__poll_chk(p, 3, 0, sizeof(p)));
	TRY(__ppoll_chk(p, 3, &zero, NULL, sizeof(p)));
	TRY(syscall(SYS_poll, p, 2, 0));
	TRY(syscall(SYS_ppoll, p, 2, &zero, &mask, 8));
	TRY(syscall(SYS_ppoll, p, 2, &zero, &mask, 7));
	drain(rx);
	TRY(syscall(SYS_ppoll, p, 1, &some, NULL, 8));
	SEEN("left %ld", (long)some.tv_nsec);
	p[2].fd = 9999;
	TRY(poll(p + 2, 1, 0));
	SEEN("%x", p[2].revents);
}

static void select_forms(int tx, int rx)
{
	fd_set rd, wr;
	struct timeval tv = {0, 20000}, bad = {-1, 0};
	struct timespec zero = {0, 0};
	int n = (rx > tx ? rx : tx) + 1;
	struct {
		const sigset_t *mask;
		size_t size;
	} six = {NULL, 8};

	FD_ZERO(&rd);
	FD_SET(rx, &rd);
	TRY(select(n, &rd, NULL, NULL, &tv));
	SEEN("left %ld set %d", (long)tv.tv_usec, FD_ISSET(rx, &rd) != 0);
	TRY(select(n, &rd, NULL, NULL, &bad));
	TRY(select(-1, NULL, NULL, NULL, &tv));
	write(tx, "x", 1);
	arrived(rx);
	FD_ZERO(&wr);
	FD_SET(tx, &wr);
	FD_SET(rx, &rd);
	TRY(__select(n, &rd, &wr, NULL, NULL));
	SEEN("set %d %d", FD_ISSET(rx, &rd) != 0, FD_ISSET(tx, &wr) != 0);
	TRY(pselect(n, &rd, NULL, NULL, &zero, NULL));
	tv = (struct timeval){0, 0};
	TRY(syscall(SYS_select, n, &rd, NULL, NULL, &tv));
	TRY(syscall(SYS_pselect6, n, &rd, NULL, NULL, &zero, &six));
	drain(rx);
}

static void epoll_forms(int tx, int rx)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 42}, got[4];
	struct timespec zero = {0, 0}, bad = {0, -1};
	sigset_t mask;
	int ep = TRY_FD(epoll_create1(EPOLL_CLOEXEC)), other;

	sigemptyset(&mask);
	memset(got, 0, sizeof(got));
	SEEN("cloexec %d", fcntl(ep, F_GETFD));
	TRY(epoll_ctl(ep, EPOLL_CTL_ADD, rx, &ev));
	TRY(epoll_ctl(ep, EPOLL_CTL_ADD, rx, &ev));
	TRY(epoll_ctl(ep, 77, rx, &ev));
	TRY(epoll_ctl(ep, EPOLL_CTL_ADD, 9999, &ev));
	TRY(epoll_ctl(ep, EPOLL_CTL_ADD, ep, &ev));
	TRY(epoll_ctl(rx, EPOLL_CTL_ADD, tx, &ev));
	TRY(epoll_wait(ep, got, 4, 0));
	write(tx, "x", 1);
	arrived(rx);
	TRY(epoll_wait(ep, got, 4, -1));
	SEEN("events %x data %ld", got[0].events, (long)got[0].data.u64);
	TRY(epoll_pwait(ep, got, 4, 0, &mask));
	TRY(epoll_pwait2(ep, got, 4, &zero, NULL));
	TRY(epoll_pwait2(ep, got, 4, &bad, NULL));
	TRY(epoll_wait(ep, got, 0, 0));
	TRY(epoll_wait(rx, got, 4, 0));
	TRY(syscall(SYS_epoll_wait, ep, got, 4, 0));
	TRY(syscall(SYS_epoll_pwait, ep, got, 4, 0, &mask, 8));
	TRY(syscall(SYS_epoll_pwait, ep, got, 4, 0, &mask, 9));
	TRY(syscall(SYS_epoll_pwait2, ep, got, 4, &zero, NULL, 0));
	TRY(read(ep, buf, 8));
	TRY(recv(ep, buf, 8, 0));
	ev.events = EPOLLOUT;
	TRY(epoll_ctl(ep, EPOLL_CTL_MOD, rx, &ev));
	TRY(epoll_ctl(ep, EPOLL_CTL_DEL, rx, NULL));
	TRY(epoll_ctl(ep, EPOLL_CTL_DEL, rx, NULL));
	TRY(epoll_create(0));
	other = TRY_FD(epoll_create(1));
	TRY(epoll_create1(0x1234));
	close(other);
	other = TRY_FD((int)syscall(SYS_epoll_create1, 0));
	close(other);
	TRY(close(ep));
	TRY(epoll_wait(ep, got, 4, 0));
	drain(rx);
}

/* --- fds */

static void dup_forms(int tx, int rx)
{
	int a = TRY_FD(dup(rx)), b = TRY_FD(fcntl(rx, F_DUPFD, 100)),
	    c = TRY_FD(fcntl64(rx, F_DUPFD_CLOEXEC, 200));
	int d = dup(0), e = dup(0), f = dup(0);

	SEEN("at least %d %d, cloexec %d %d", b >= 100, c >= 200, fcntl(b, F_GETFD),
	     fcntl(c, F_GETFD));
	TRY(dup2(rx, d) == d);
	TRY(__dup2(rx, e) == e);
	TRY(dup3(rx, f, O_CLOEXEC) == f);
	SEEN("cloexec %d %d", fcntl(d, F_GETFD), fcntl(f, F_GETFD));
	TRY(dup2(rx, rx) == rx);
	TRY(dup3(rx, rx, 0));
	TRY(dup3(rx, f, 0x5555));
	TRY(dup2(9999, d));
	TRY(dup2(rx, -1));
	TRY(dup(9999));
	TRY(fcntl(rx, F_DUPFD, -1));
	write(tx, "through a copy", 14);
	TRY(read(d, buf, 7));
	write(tx, "again", 5);
	arrived(rx);
	TRY(poll(&(struct pollfd){.fd = f, .events = POLLIN}, 1, 0));
	drain(c);
	TRY(__close(a));
	TRY(close(a));
	TRY(close(b));
	TRY(syscall(SYS_close, c));
	TRY(dup2(tx, d) == d); /* onto a copy of the other side */
	TRY(write(d, "y", 1));
	drain(e);
	TRY(close(d));
	TRY(close(e));
	TRY(close(f));
	TRY(fcntl(f, F_GETFD));
	write(tx, "alive", 5);
	drain(rx);
	a = TRY_FD((int)syscall(SYS_dup, rx));
	b = dup(0);
	TRY(syscall(SYS_dup2, rx, b) == b);
	TRY(syscall(SYS_dup3, rx, b, 0) == b);
	TRY(syscall(SYS_fcntl, b, F_GETFD));
	close(a);
	close(b);
}

static void range_forms(int rx)
{
	int base = fcntl(rx, F_DUPFD, 500), next = fcntl(rx, F_DUPFD, base + 1),
	    last = fcntl(rx, F_DUPFD, base + 5);

	TRY(close_range((unsigned)base, (unsigned)next, CLOSE_RANGE_CLOEXEC));
	SEEN("cloexec %d %d %d", fcntl(base, F_GETFD), fcntl(next, F_GETFD), fcntl(last, F_GETFD));
	TRY(close_range((unsigned)next, (unsigned)base, 0));
	TRY(close_range((unsigned)base, (unsigned)next, 0x7777));
	SEEN("open %d", fcntl(base, F_GETFD) >= 0);
	TRY(close_range((unsigned)base, (unsigned)next, 0));
	SEEN("open %d %d %d", fcntl(base, F_GETFD) >= 0, fcntl(next, F_GETFD) >= 0,
	     fcntl(last, F_GETFD) >= 0);
	TRY(syscall(SYS_close_range, last, last, 0));
	SEEN("open %d", fcntl(last, F_GETFD) >= 0);
	base = fcntl(rx, F_DUPFD, 1000);
	closefrom(base);
	SEEN("open %d", fcntl(base, F_GETFD) >= 0);
	TRY(__fcntl(rx, F_GETFD));
	TRY(fcntl(rx, F_GETFL) & O_NONBLOCK);
	TRY(fcntl(rx, F_SETFL, fcntl(rx, F_GETFL) | O_NONBLOCK));
	TRY(read(rx, buf, 10));
	TRY(fcntl(rx, F_SETFL, fcntl(rx, F_GETFL) & ~O_NONBLOCK));
	TRY(fcntl(rx, 7777, 1));
}

static void limit_forms(void)
{
	struct rlimit was, l;
	struct rlimit64 l64;

	TRY(getrlimit(RLIMIT_NOFILE, &was));
	SEEN("limits %lu %lu", was.rlim_cur, was.rlim_max);
	l = (struct rlimit){was.rlim_cur - 10, was.rlim_max};
	TRY(setrlimit(RLIMIT_NOFILE, &l));
	TRY(getrlimit64(RLIMIT_NOFILE, &l64));
	SEEN("limits %lu %lu", l64.rlim_cur, l64.rlim_max);
	l64.rlim_cur -= 10;
	TRY(setrlimit64(RLIMIT_NOFILE, &l64));
	TRY(prlimit(getpid(), RLIMIT_NOFILE, &was, &l));
	SEEN("limits %lu %lu", l.rlim_cur, l.rlim_max);
	TRY(prlimit64(0, RLIMIT_NOFILE, NULL, &l64));
	SEEN("limits %lu %lu", l64.rlim_cur, l64.rlim_max);
	TRY(prlimit(getppid(), RLIMIT_CPU, NULL, &l));
	TRY(getrlimit(RLIMIT_CPU, &l));
	TRY(syscall(SYS_getrlimit, RLIMIT_NOFILE, &l));
	TRY(syscall(SYS_setrlimit, RLIMIT_NOFILE, &l));
	TRY(syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &l));
	SEEN("limits %lu %lu", l.rlim_cur, l.rlim_max);
	l = (struct rlimit){was.rlim_max + 1, was.rlim_max};
	TRY(setrlimit(RLIMIT_NOFILE, &l));
	TRY(getrlimit(99, &l));
}

/* A number that stdio closed inside libc is somebody else's next time. */
static void stdio_forms(int fd)
{
	int copy = fcntl(fd, F_DUPFD, 300), again;
	FILE *f = fdopen(copy, "r");

	TRY(fclose(f));
	TRY(read(copy, buf, 1));
	again = fcntl(0, F_DUPFD, copy);
	SEEN("same number %d", again == copy);
	TRY(send(again, "x", 1, 0));
	TRY(close(again));
	copy = fcntl(fd, F_DUPFD, 300);
	f = freopen("/dev/null", "r", fdopen(copy, "r"));
	SEEN("same number %d", f && fileno(f) == copy);
	TRY(read(copy, buf, 1));
	TRY(send(copy, "x", 1, 0));
	f = freopen64(path, "r", f);
	TRY(read(copy, buf, 1));
	TRY(fclose(f));
}

static void print_va(int fd, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	TRY(vdprintf(fd, fmt, ap));
	va_end(ap);
	va_start(ap, fmt);
	TRY(__vdprintf_chk(fd, 1, fmt, ap));
	va_end(ap);
}

/* What libc writes by itself. */
static void print_forms(void)
{
	char got[64] = "";
	int fds[2];
	FILE *f;

	kind = "print";
	if (pipe(fds))
		abort();
	TRY(dprintf(fds[1], "%d %s", 5, "five"));
	TRY(__dprintf_chk(fds[1], 1, "%d", 6));
	print_va(fds[1], "%d;", 7);
	TRY(read(fds[0], got, sizeof(got) - 1));
	SEEN("%s", got);
	TRY(dprintf(fds[0], "x")); /* not -1: glibc 2.36 loses a buffer then */
	TRY(close(fds[0]));
	TRY(close(fds[1]));
	TRY(system("exit 3"));
	TRY(system(NULL));
	f = popen("echo spoken", "r");
	SEEN("%s", f && fgets(got, sizeof(got), f) ? got : "nothing");
	TRY(pclose(f));
	SEEN("%d", popen("true", "x") == NULL);
}

static void exit_forms(void)
{
	int status;

	for (int form = 0; form < 2; form++) {
		pid_t pid = fork();

		if (!pid && form)
			_exit(4);
		if (!pid)
			_Exit(5);
		waitpid(pid, &status, 0);
		SEEN("%d", status);
	}
}

static void file_forms(void)
{
	int fds[8], dir = open("/", O_RDONLY | O_DIRECTORY);
	char name[4096];

	kind = "file";
	snprintf(name, sizeof(name), "%s.new", path);
	fds[0] = TRY_FD(open(name, O_CREAT | O_RDWR | O_EXCL, 0640));
	struct stat st;

	fstat(fds[0], &st);
	SEEN("mode %o", st.st_mode);
	TRY(write(fds[0], "contents", 8));
	TRY(pwrite(fds[0], "C", 1, 0));
	struct iovec iov = {buf, 5};

	TRY(preadv(fds[0], &iov, 1, 2));
	SEEN("%.5s", buf);
	TRY(pwritev(fds[0], &iov, 1, 20));
	TRY(preadv2(fds[0], &iov, 1, -1, 0));
	fds[1] = TRY_FD(open64(name, O_RDONLY));
	fds[2] = TRY_FD(openat(dir, name, O_RDONLY));
	fds[3] = TRY_FD(openat64(AT_FDCWD, name, O_WRONLY));
	fds[4] = TRY_FD(__open(name, O_RDONLY | O_CLOEXEC));
	fds[5] = TRY_FD(__open64(name, O_RDONLY));
	fds[6] = TRY_FD(creat(name, 0600));
	fds[7] = TRY_FD(creat64(name, 0600));
	for (int i = 0; i < 8; i++)
		close(fds[i]);
	fds[0] = TRY_FD(__open_2(name, O_RDONLY));
	fds[1] = TRY_FD(__open64_2(name, O_RDONLY));
	fds[2] = TRY_FD(__openat_2(AT_FDCWD, name, O_RDONLY));
	fds[3] = TRY_FD(__openat64_2(AT_FDCWD, name, O_RDONLY));
	fds[4] = TRY_FD((int)syscall(SYS_openat, AT_FDCWD, name, O_RDONLY, 0));
	for (int i = 0; i < 5; i++)
		close(fds[i]);
	TRY(open("/does/not/exist", O_RDONLY));
	TRY(openat(9999, "x", O_RDONLY));
	TRY(unlink(name));
	TRY(read(9999, buf, 1));
	TRY(write(-1, buf, 1));
	TRY(close(-1));
	TRY(close(1 << 30));
	TRY(recv(dir, buf, 1, 0));
	TRY(sendmsg(dir, &(struct msghdr){0}, 0));
	TRY(__connect(dir, NULL, 0));
	close(dir);
	TRY_FD(__pipe(fds));
	TRY(pipe2(fds + 2, O_CLOEXEC | O_NONBLOCK));
	SEEN("cloexec %d nonblock %d", fcntl(fds[2], F_GETFD), fcntl(fds[3], F_GETFL) & O_NONBLOCK);
	TRY(pipe2(fds + 4, 0x5a5a));
	for (int i = 0; i < 4; i++)
		close(fds[i]);
	TRY(socketpair(AF_INET, SOCK_STREAM, 0, fds));
	TRY(socket(AF_INET, 77, 0));
	TRY(socket(250, SOCK_DGRAM, 0));
	TRY(socket(AF_INET, SOCK_DGRAM, IPPROTO_TCP));
	TRY(syscall(SYS_socket, AF_INET, 77, 0));
	TRY(syscall(9999));
	TRY(syscall(SYS_getpid) == getpid());
	TRY(syscall(SYS_mmap, NULL, 4096, 0, 0x22, -1, 0) != -1); /* all six arguments */
}

/* --- signals */

static volatile int handled;

static void plain_handler(int sig)
{
	handled += sig;
}

static void info_handler(int sig, siginfo_t *info, void *context)
{
	handled += context && info->si_signo == sig ? 1000 + sig : 0;
}

static void signal_forms(void)
{
	struct sigaction act = {.sa_handler = plain_handler, .sa_flags = SA_RESTART}, old;

	kind = "signal";
	TRY(sigaction(SIGUSR1, &act, &old));
	SEEN("default %d", old.sa_handler == SIG_DFL);
	raise(SIGUSR1);
	SEEN("handled %d", handled);
	act.sa_flags = SA_SIGINFO;
	act.sa_sigaction = info_handler;
	TRY(__sigaction(SIGUSR1, &act, &old));
	SEEN("mine %d flags %x", old.sa_handler == plain_handler, old.sa_flags & (int)~0x04000000);
	raise(SIGUSR1);
	SEEN("handled %d", handled);
	TRY(sigaction(SIGUSR1, NULL, &old));
	SEEN("mine %d", old.sa_sigaction == info_handler);
	TRY(signal(SIGUSR1, plain_handler) == (sighandler_t)(void (*)(void))info_handler);
	TRY(siginterrupt(SIGUSR1, 1));
	TRY(sigaction(SIGUSR1, NULL, &old));
	SEEN("restart %d", (old.sa_flags & SA_RESTART) != 0);
	TRY(signal(SIGUSR1, SIG_IGN) == plain_handler);
	raise(SIGUSR1);
	TRY(signal(SIGUSR1, SIG_DFL) == SIG_IGN);
	TRY(sigaction(SIGKILL, &act, NULL));
	TRY(sigaction(0, &act, NULL));
	TRY(sigaction(70, &act, NULL));
	TRY(signal(SIGKILL, plain_handler) == SIG_ERR);
	TRY(sigaction(SIGUSR1, NULL, &old));
	SEEN("default %d", old.sa_handler == SIG_DFL);
	act.sa_handler = plain_handler;
	act.sa_flags = (int)SA_RESETHAND;
	TRY(sigaction(SIGUSR2, &act, NULL));
	raise(SIGUSR2);
	TRY(sigaction(SIGUSR2, NULL, &old));
	SEEN("default %d handled %d", old.sa_handler == SIG_DFL, handled);
}

/* What other standards call signal(). */
extern sighandler_t bsd_signal(int sig, sighandler_t handler);
extern int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
			     void *dso);

static void other_signals(void)
{
	struct sigaction now;

	kind = "other signals";
	TRY(sysv_signal(SIGUSR2, plain_handler) == SIG_DFL);
	TRY(sigaction(SIGUSR2, NULL, &now));
	SEEN("mine %d flags %x", now.sa_handler == plain_handler, now.sa_flags & (int)~0x04000000);
	raise(SIGUSR2);
	TRY(__sysv_signal(SIGUSR2, plain_handler) == SIG_DFL);
	SEEN("handled %d", handled);
	TRY(ssignal(SIGUSR2, plain_handler) == plain_handler);
	TRY(bsd_signal(SIGUSR2, plain_handler) == plain_handler);
	TRY(sigset(SIGUSR2, SIG_HOLD) == plain_handler);
	raise(SIGUSR2);
	SEEN("handled %d", handled);
	TRY(sigset(SIGUSR2, SIG_HOLD) == SIG_HOLD);
	TRY(sigset(SIGUSR2, plain_handler) == SIG_HOLD);
	SEEN("handled %d", handled);
	TRY(sigset(SIGUSR2, SIG_IGN) == plain_handler);
	TRY(sigset(SIGKILL, plain_handler) == SIG_ERR);
	TRY(sysv_signal(SIGUSR2, SIG_ERR) == SIG_ERR);
	TRY(sysv_signal(99, plain_handler) == SIG_ERR);
	TRY(sysv_signal(SIGUSR2, SIG_DFL) == SIG_IGN);
}

/* --- processes. What a child prints and returns is compared too. */

static void reap(const char *what, pid_t pid)
{
	int status = -1;

	waitpid(pid, &status, 0);
	SEEN("%s: status %x", what, status);
}

/* The child of any fork reads and writes the sockets that it inherited. */
static void child_uses(int tx, int rx)
{
	char got[8] = "";

	if (write(tx, "child", 5) != 5 || read(rx, got, sizeof(got)) != 5)
		_exit(1);
	if (close(rx) || close(tx) || read(rx, got, 1) != -1)
		_exit(2);
	_exit(strcmp(got, "child") ? 3 : 0);
}

static void fork_forms(int tx, int rx)
{
	pid_t pid;
	int status;

	fflush(stdout);
	if ((pid = fork()) == 0)
		child_uses(tx, rx);
	reap("fork", pid);
	if ((pid = __fork()) == 0)
		child_uses(tx, rx);
	reap("__fork", pid);
	if ((pid = (pid_t)syscall(SYS_fork)) == 0)
		child_uses(tx, rx);
	reap("syscall", pid);
	if ((pid = fork()) == 0) {
		/* Its child goes on; this one waits for it through a pipe. */
		int p[2];
		char c;

		pipe(p);
		if (fork() == 0) {
			if (daemon(1, 1) == 0 && write(tx, "daemon", 6) == 6 &&
			    read(rx, buf, 10) == 6)
				write(p[1], "+", 1);
			_exit(0);
		}
		close(p[1]);
		_exit(read(p[0], &c, 1) == 1 && c == '+' ? 0 : 1);
	}
	reap("daemon", pid);
	write(tx, "parent", 6);
	drain(rx);
	status = system("exit 7");
	SEEN("system %x", status);
	FILE *f = popen("echo popen", "r");

	if (fgets(buf, 100, f))
		SEEN("%s", buf);
	SEEN("pclose %x", pclose(f));
	fill();
}

static void *sleeper(void *arg)
{
	pause();
	return arg;
}

static void thread_forms(void)
{
	pthread_t t;
	void *result = NULL;

	kind = "thread";
	TRY(-pthread_create(&t, NULL, sleeper, NULL));
	TRY(-pthread_cancel(t));
	TRY(-__register_atfork(NULL, NULL, NULL, NULL));
	TRY(-pthread_join(t, &result));
	SEEN("cancelled %d", result == PTHREAD_CANCELED);
}

static int leaves(void *arg)
{
	(void)arg;
	return 12;
}

/* glibc 2.39 has them. */
int pidfd_spawn(int *pidfd, const char *path, const posix_spawn_file_actions_t *acts,
		const posix_spawnattr_t *attr, char *const argv[], char *const env[])
	__attribute__((weak));
int pidfd_spawnp(int *pidfd, const char *file, const posix_spawn_file_actions_t *acts,
		 const posix_spawnattr_t *attr, char *const argv[], char *const env[])
	__attribute__((weak));

static void exec_forms(void)
{
	static char stack[256 * 1024] __attribute__((aligned(16)));
	char *sh[] = {"sh", "-c", "exit 5", NULL}, *env[] = {"V=1", NULL};
	pid_t pid;
	int fd = open("/bin/sh", O_RDONLY | O_CLOEXEC);

	kind = "exec";
	fflush(stdout);
#define CHILD(call)                                                                                \
	do {                                                                                       \
		if ((pid = fork()) == 0) {                                                         \
			call;                                                                      \
			_exit(100);                                                                \
		}                                                                                  \
		reap(#call, pid);                                                                  \
	} while (0)
	CHILD(execve("/bin/sh", sh, env));
	CHILD(execv("/bin/sh", sh));
	CHILD(execvp("sh", sh));
	CHILD(execvpe("sh", sh, env));
	CHILD(execl("/bin/sh", "sh", "-c", "exit 6", NULL));
	CHILD(execlp("sh", "sh", "-c", "exit $#", "a", "b", "c", NULL));
	CHILD(execle("/bin/sh", "sh", "-c", "exit $V", NULL, env));
	CHILD(execl("/bin/sh", "sh", NULL));
	CHILD(fexecve(fd, sh, env));
	CHILD(execveat(AT_FDCWD, "/bin/sh", sh, env, 0));
	CHILD(execve("/does/not/exist", sh, env));
	if ((pid = vfork()) == 0) {
		execv("/bin/sh", sh);
		_exit(100);
	}
	reap("vfork", pid);
	if ((pid = __vfork()) == 0)
		_exit(9);
	reap("__vfork", pid);
	if ((pid = _Fork()) == 0)
		_exit(10);
	reap("_Fork", pid);
	if ((pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)) == 0)
		_exit(11);
	reap("SYS_clone", pid);
	reap("clone", clone(leaves, stack + sizeof(stack), SIGCHLD, NULL));
	reap("clone as vfork()",
	     clone(leaves, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD, NULL));
	TRY(clone(NULL, stack, SIGCHLD, NULL));
	TRY(unshare(0));
	TRY(unshare(-1));
	TRY(setns(-1, 0));
	TRY(posix_spawn(&pid, "/bin/sh", NULL, NULL, sh, env));
	reap("posix_spawn", pid);
	TRY(posix_spawnp(&pid, "sh", NULL, NULL, sh, env));
	reap("posix_spawnp", pid);
	TRY(posix_spawn(&pid, "/does/not/exist", NULL, NULL, sh, env));
	TRY(!pidfd_spawn ? ENOSYS : pidfd_spawn(&fd, "/does/not/exist", NULL, NULL, sh, env));
	TRY(!pidfd_spawnp ? ENOSYS : pidfd_spawnp(&fd, "/does/not/exist", NULL, NULL, sh, env));
	close(fd);
}

/* A fortified program must still be stopped. */
/* A user changes in a child each: the next call of it is refused. */
static void user_forms(void)
{
	struct {
		unsigned version;
		int pid;
	} header = {0x20080522, 0};
	unsigned none[6] = {0};
	pid_t pid;

	kind = "user";
	fflush(stdout);
	CHILD(_exit(setuid(65534) || !setuid(0)));
	CHILD(_exit(seteuid(65534) || seteuid(0)));
	CHILD(_exit(setreuid((uid_t)-1, 65534) || setreuid((uid_t)-1, 0)));
	CHILD(_exit(setresuid(65534, 65534, 65534) || !setresuid(0, 0, 0)));
	CHILD(_exit(setresuid((uid_t)-1, (uid_t)-1, (uid_t)-1)));
	CHILD(_exit((int)syscall(SYS_setuid, 65534) || !syscall(SYS_setuid, 0)));
	CHILD(_exit(capset(&header, none) || !chroot("/")));
	CHILD(_exit(chroot("/tmp") || access("/etc/passwd", F_OK) == 0));
	TRY(chroot("/nowhere"));
	TRY(capset(NULL, NULL));
	CHILD(_exit(prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) || prctl(PR_GET_KEEPCAPS, 0, 0, 0, 0) != 1 ||
		    (int)syscall(SYS_prctl, PR_SET_KEEPCAPS, 0, 0, 0, 0) ||
		    prctl(PR_GET_KEEPCAPS, 0, 0, 0, 0)));
	TRY(prctl(PR_SET_KEEPCAPS, 2, 0, 0, 0));
}

static void overflow_forms(int rx)
{
	struct pollfd p = {rx, POLLIN, 0};
	struct timespec zero = {0, 0};
	pid_t pid;

	kind = "overflow";
	fflush(stdout);
	CHILD(__read_chk(rx, buf, 10, 5));
	CHILD(__recv_chk(rx, buf, 10, 5, 0));
	CHILD(__recvfrom_chk(rx, buf, 10, 5, 0, NULL, NULL));
	CHILD(__poll_chk(&p, 2, 0, sizeof(p)));
	CHILD(__ppoll_chk(&p, 2, &zero, NULL, sizeof(p)));
}

/* --- the kinds of fd */

static void all_forms(int tx, int rx)
{
	plain_forms(tx, rx);
	socket_forms(tx, rx);
	many_forms(tx, rx);
	option_forms(rx);
	transfer_forms(tx, rx);
	poll_forms(tx, rx);
	select_forms(tx, rx);
	epoll_forms(tx, rx);
	dup_forms(tx, rx);
	range_forms(rx);
	stdio_forms(rx);
	fork_forms(tx, rx);
}

static void address(struct sockaddr_storage *addr, socklen_t *len, int family)
{
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)addr;
	struct sockaddr_in *four = (struct sockaddr_in *)addr;

	memset(addr, 0, sizeof(*addr));
	addr->ss_family = (sa_family_t)family;
	if (family == AF_INET)
		four->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	else
		six->sin6_addr = in6addr_loopback;
	*len = family == AF_INET ? sizeof(*four) : sizeof(*six);
}

static void udp(int family, const char *name)
{
	struct sockaddr_storage addr, from;
	socklen_t len, flen = sizeof(from);
	int rx, tx;

	kind = name;
	address(&addr, &len, family);
	rx = TRY_FD(socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
	tx = TRY_FD(socket(family, SOCK_DGRAM, IPPROTO_UDP));
	SEEN("cloexec %d %d", fcntl(rx, F_GETFD), fcntl(tx, F_GETFD));
	TRY(bind(rx, (struct sockaddr *)&addr, 3));
	TRY(bind(rx, (struct sockaddr *)&addr, len));
	TRY(bind(rx, (struct sockaddr *)&addr, len));
	getsockname(rx, (struct sockaddr *)&addr, &len);
	TRY(send(tx, "nowhere", 7, 0));
	TRY(sendto(tx, "first", 5, 0, (struct sockaddr *)&addr, len));
	TRY(recvfrom(rx, buf, 100, 0, (struct sockaddr *)&from, &flen));
	SEEN("from family %d length %d", from.ss_family, (int)flen);
	TRY(connect(tx, (struct sockaddr *)&addr, len));
	TRY(accept(rx, NULL, NULL));
	TRY(write(tx, "", 0));
	TRY(recv(rx, buf, 10, 0));
	all_forms(tx, rx);
	TRY(send(tx, buf, 65508, 0));
	TRY(shutdown(tx, 99));
	TRY(shutdown(rx, SHUT_RD));
	TRY(close(rx));
	TRY(close(rx));
	TRY(close(tx));
}

static void tcp(void)
{
	struct sockaddr_storage addr;
	socklen_t len;
	int l, a, b;

	kind = "tcp";
	address(&addr, &len, AF_INET);
	l = TRY_FD(socket(AF_INET, SOCK_STREAM, 0));
	TRY(bind(l, (struct sockaddr *)&addr, len));
	TRY(listen(l, 4));
	getsockname(l, (struct sockaddr *)&addr, &len);
	a = TRY_FD(socket(AF_INET, SOCK_STREAM, 0));
	TRY(__connect(a, (struct sockaddr *)&addr, len));
	b = TRY_FD(accept4(l, (struct sockaddr *)&addr, &len, SOCK_CLOEXEC));
	SEEN("cloexec %d family %d", fcntl(b, F_GETFD), addr.ss_family);
	all_forms(a, b);
	TRY(connect(a, (struct sockaddr *)&addr, len));
	TRY(shutdown(a, SHUT_WR));
	TRY(recv(b, buf, 10, 0));
	close(a);
	close(b);
	a = TRY_FD(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
	getsockname(l, (struct sockaddr *)&addr, &len);
	TRY(syscall(SYS_connect, a, &addr, len));
	b = TRY_FD(accept(l, NULL, NULL));
	close(a);
	close(b);
	close(l);
}

static void reserved_forms(int type)
{
	struct sockaddr_in addr = {.sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(addr);
	int fd, port;

	kind = "reserved";
	fd = TRY_FD(socket(AF_INET, type, 0));
	TRY(bindresvport(fd, &addr));
	port = ntohs(addr.sin_port);
	TRY(getsockname(fd, (struct sockaddr *)&addr, &len));
	SEEN("reserved %d", port == ntohs(addr.sin_port) && port >= 512 && port < 1024);
	TRY(bindresvport(fd, NULL));
	addr.sin_family = AF_INET6;
	TRY(bindresvport(fd, &addr));
	TRY(close(fd));
}

static void aio_end(const struct aiocb *request)
{
	const struct aiocb *one[] = {request};
	int err;

	while ((err = aio_error(request)) == EINPROGRESS)
		aio_suspend(one, 1, NULL);
	SEEN("error %d, %zd bytes", err, aio_return((struct aiocb *)(uintptr_t)request));
}

/* A datagram socket that is connected to itself. */
static void aio_forms(void)
{
	struct sockaddr_storage addr;
	struct aiocb out, in, *list[1];
	socklen_t len;
	int fd;

	kind = "aio";
	address(&addr, &len, AF_INET);
	fd = TRY_FD(socket(AF_INET, SOCK_DGRAM, 0));
	TRY(bind(fd, (struct sockaddr *)&addr, len));
	getsockname(fd, (struct sockaddr *)&addr, &len);
	TRY(connect(fd, (struct sockaddr *)&addr, len));
	out = (struct aiocb){.aio_fildes = fd,
			     .aio_lio_opcode = LIO_WRITE,
			     .aio_buf = "by aio",
			     .aio_nbytes = 6};
	in = (struct aiocb){
		.aio_fildes = fd, .aio_lio_opcode = LIO_READ, .aio_buf = buf, .aio_nbytes = 100};
	TRY(aio_write(&out));
	aio_end(&out);
	TRY(aio_read(&in));
	aio_end(&in);
	TRY(aio_write64((struct aiocb64 *)&out));
	aio_end(&out);
	TRY(aio_read64((struct aiocb64 *)&in));
	aio_end(&in);
	list[0] = &out;
	TRY(lio_listio(LIO_WAIT, list, 1, NULL));
	aio_end(&out);
	list[0] = &in;
	TRY(lio_listio64(LIO_WAIT, (struct aiocb64 *const *)list, 1, NULL));
	aio_end(&in);
	TRY(close(fd));
}

/* A program that has had sockets gives itself a filter that ends who calls bpf(2). */
static void sandbox(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_bpf, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = {sizeof(code) / sizeof(code[0]), code};
	struct sockaddr_in lo = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&lo, sizeof(lo)) ||
	    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) || close(fd))
		perror("sandbox");
	kind = "sandbox";
	TRY(prctl(PR_GET_SECCOMP));
}

int main(int argc, char **argv)
{
	int fds[2];

	signal(SIGPIPE, SIG_IGN);
	if (getenv("SANDBOX")) {
		setvbuf(stdout, NULL, _IOLBF, 0); /* strace sees each result by itself */
		sandbox();
	}
	if (argc != 2) {
		fprintf(stderr, "usage: preload_calls file-to-use\n");
		return 2;
	}
	path = argv[1];
	fill();
	file_forms();
	print_forms();
	limit_forms();
	exit_forms();
	kind = "pipe";
	TRY(pipe(fds));
	plain_forms(fds[1], fds[0]);
	poll_forms(fds[1], fds[0]);
	select_forms(fds[1], fds[0]);
	epoll_forms(fds[1], fds[0]);
	dup_forms(fds[1], fds[0]);
	kind = "unix-stream";
	TRY(socketpair(AF_UNIX, SOCK_STREAM, 0, fds));
	all_forms(fds[1], fds[0]);
	kind = "unix-datagram";
	TRY(socketpair(AF_UNIX, SOCK_DGRAM, 0, fds));
	all_forms(fds[1], fds[0]);
	udp(AF_INET, "udp4");
	udp(AF_INET6, "udp6");
	tcp();
	reserved_forms(SOCK_DGRAM);
	reserved_forms(SOCK_STREAM);
	signal_forms();
	other_signals();
	thread_forms();
	exec_forms();
	user_forms();
	TRY(pipe(fds));
	overflow_forms(fds[0]);
	aio_forms();
	return 0;
}
/* NOLINTEND */
