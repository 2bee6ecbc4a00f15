/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The libc table before it is filled, while it is being filled, and after. This program's own
 * dlsym() stands between: it makes calls through the table, as an allocator inside dlsym() may, and
 * denies some names, as an old libc does.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/libc.h"

/*
 * A sanitizer needs the real dlsym() before it can run any code of ours: there, only the filled
 * table is looked at.
 */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define DENIED 0
#else
#define DENIED 2

static int calls_in_dlsym, wrong_in_dlsym;

#define EXPECT(what)                                                                               \
	(calls_in_dlsym++, wrong_in_dlsym = wrong_in_dlsym ? wrong_in_dlsym : (what) ? 0 : __LINE__)

/* Every family of raw calls once, on a pipe and a pair of sockets. */
static void use_the_table(void)
{
	struct timespec ts = {0, 1000000};
	struct timeval tv = {0, 1000};
	struct epoll_event ev = {.events = EPOLLIN}, got;
	struct pollfd p = {.events = POLLIN};
	int fds[2] = {-1, -1}, sv[2] = {-1, -1}, fd, ep, n = -1;
	char c[8] = "";
	fd_set rd;

	EXPECT(libc.pipe(fds) == 0);
	EXPECT(libc.write(fds[1], "ab", 2) == 2);
	EXPECT(libc.ioctl(fds[0], FIONREAD, &n) == 0 && n == 2);
	EXPECT(libc.fcntl(fds[0], F_GETFD) == 0);
	EXPECT(libc.fcntl(fds[0], F_SETFD, FD_CLOEXEC) == 0 &&
	       libc.fcntl64(fds[0], F_GETFD) == FD_CLOEXEC);
	p.fd = fds[0];
	EXPECT(libc.poll(&p, 1, -1) == 1 && p.revents == POLLIN);
	FD_ZERO(&rd);
	FD_SET(fds[0], &rd);
	EXPECT(libc.select(fds[0] + 1, &rd, NULL, NULL, NULL) == 1);
	EXPECT(libc.pselect(fds[0] + 1, &rd, NULL, NULL, &ts, NULL) == 1 && ts.tv_nsec == 1000000);
	ep = libc.epoll_create(1);
	EXPECT(ep >= 0 && libc.epoll_ctl(ep, EPOLL_CTL_ADD, fds[0], &ev) == 0);
	EXPECT(libc.epoll_wait(ep, &got, 1, -1) == 1);
	EXPECT(libc.read(fds[0], c, 8) == 2 && !strcmp(c, "ab"));
	EXPECT(libc.poll(&p, 1, 1) == 0);
	EXPECT(libc.ppoll(&p, 1, &ts, NULL) == 0 && ts.tv_nsec == 1000000);
	FD_SET(fds[0], &rd);
	EXPECT(libc.select(fds[0] + 1, &rd, NULL, NULL, &tv) == 0 && tv.tv_usec == 0);
	EXPECT(libc.epoll_pwait(ep, &got, 1, 0, NULL) == 0);
	fd = libc.dup(ep);
	EXPECT(fd >= 0 && libc.dup2(fds[0], fd) == fd && libc.dup2(fd, fd) == fd &&
	       libc.dup3(fd, fd, 0) == -1);
	EXPECT(libc.close(fd) == 0);
	EXPECT(libc.close(fd) == -1 && errno == EBADF);
	EXPECT(libc.dup2(fd, fd) == -1 && errno == EBADF);
	EXPECT(libc.close(ep) == 0 && libc.close(fds[0]) == 0 && libc.close(fds[1]) == 0);
	EXPECT(libc.socketpair(AF_UNIX, SOCK_STREAM, 0, sv) == 0);
	EXPECT(libc.send(sv[0], "x", 1, 0) == 1 && libc.recv(sv[1], c, 8, 0) == 1);
	EXPECT(libc.recv(sv[1], c, 8, MSG_DONTWAIT) == -1 && errno == EAGAIN);
	EXPECT(libc.__recv_chk(sv[1], c, 8, 4, 0) == -1); /* never overflows */
	EXPECT(libc.close(sv[0]) == 0 && libc.close(sv[1]) == 0);
	fd = libc.open("/proc/self/statm", O_RDONLY);
	EXPECT(fd >= 0 && libc.read(fd, c, 1) == 1 && libc.close(fd) == 0);
	EXPECT(libc.open("/does/not/exist", O_RDONLY) == -1 && errno == ENOENT);
	EXPECT(libc.daemon(0, 0) == -1 && errno == ENOSYS);
	EXPECT(libc.posix_spawn(NULL, "", NULL, NULL, NULL, NULL) == ENOSYS);
	EXPECT(libc.syscall(SYS_getpid) == getpid());
}

/* The one that libc.c gets. */
void *dlsym(void *handle, const char *name)
{
	static void *(*real)(void *, const char *);
	static int used;

	if (!real)
		real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
	if (used++ == 0 && handle == RTLD_NEXT)
		use_the_table();
	if (handle == RTLD_NEXT && (!strcmp(name, "close_range") || !strcmp(name, "epoll_pwait2")))
		return NULL;
	return real(handle, name);
}

static long early_read, early_errno_kept;

/* Before every constructor, the table's own too. */
static void before_constructors(void)
{
	int fds[2];
	char c;

	errno = 77;
	if (libc_loaded || libc.pipe2(fds, O_CLOEXEC))
		return;
	early_errno_kept = errno == 77;
	libc.write(fds[1], "e", 1);
	early_read = libc.read(fds[0], &c, 1);
	libc.close(fds[0]);
	libc.close(fds[1]);
}

__attribute__((section(".preinit_array"),
	       used)) static void (*const preinit)(void) = before_constructors;

static void a_call_before_constructors_fills_the_table_first(void **state)
{
	(void)state;
	assert_int_equal(early_read, 1);
	assert_true(early_errno_kept);
	assert_true(libc_loaded);
}

static void calls_inside_dlsym_are_bare_system_calls(void **state)
{
	(void)state;
	assert_true(calls_in_dlsym > 25);
	if (wrong_in_dlsym)
		fail_msg("line %d", wrong_in_dlsym);
}

static void a_name_that_libc_lacks_is_the_system_call(void **state)
{
	int fd = fcntl(0, F_DUPFD, 300), ep = epoll_create1(0);
	struct epoll_event ev;
	struct timespec zero = {0, 0};

	(void)state;
	assert_int_equal(libc.close_range((unsigned)fd, (unsigned)fd, 0), 0);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
	assert_int_equal(libc.epoll_pwait2(ep, &ev, 1, &zero, NULL), 0);
	close(ep);
}
#endif

#ifndef VMA_CHECK /* where the table has functions of the checker's, which call libc's */
static void every_other_entry_is_libcs_function(void **state)
{
	unsigned same = 0, all = 0;

	(void)state;
#define LIBC_FN(ret, name, params, args, raw)                                                      \
	all++, same += (void *)libc.name == dlsym(RTLD_NEXT, #name);
#define LIBC_VARIADIC LIBC_FN_5
#define LIBC_FN_5(ret, name, params, last, args, raw) LIBC_FN(ret, name, params, args, raw)
#include "runtime/libc.def"
	print_message("%u of %u entries are libc's own\n", same, all);
	assert_true(all > 70);
	assert_int_equal(same, all - DENIED);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
#if DENIED
		cmocka_unit_test(a_call_before_constructors_fills_the_table_first),
		cmocka_unit_test(calls_inside_dlsym_are_bare_system_calls),
		cmocka_unit_test(a_name_that_libc_lacks_is_the_system_call),
#endif
#ifndef VMA_CHECK
		cmocka_unit_test(every_other_entry_is_libcs_function),
#endif
	};

	libc_load();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
