/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * own_fds case soft hard ADDRESS PORT: what a program sees of descriptors that are not its own, and
 * what becomes of its sockets when it closes and replaces all that it does not know. ADDRESS PORT
 * is of an echo server. It prints the same on kernel sockets and with the library.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define NUMBERS 65600

static struct sockaddr_in echo;
static bool mine[NUMBERS];

#define CHECK(x)                                                                                   \
	do {                                                                                       \
		if (!(x)) {                                                                        \
			printf("line %d: %s: %s\n", __LINE__, #x, strerror(errno));                \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

static int limit(void)
{
	struct rlimit l;

	CHECK(!getrlimit(RLIMIT_NOFILE, &l));
	return (int)l.rlim_cur;
}

static void set_limit(int soft, int hard)
{
	CHECK(!setrlimit(RLIMIT_NOFILE, &(struct rlimit){(rlim_t)soft, (rlim_t)hard}));
}

static int own(int fd)
{
	CHECK(fd >= 0 && fd < NUMBERS);
	mine[fd] = true;
	return fd;
}

static int new_socket(int type)
{
	struct timeval patience = {20, 0};
	int fd = own(socket(AF_INET, type, 0));

	CHECK(!setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)));
	CHECK(!connect(fd, (struct sockaddr *)&echo, sizeof(echo)));
	return fd;
}

/* One round trip, with a thread of its own that waits for the answer. */
static void *wait_for_echo(void *arg)
{
	char c = 0;

	CHECK(recv(*(int *)arg, &c, 1, 0) == 1 && c == 'x');
	return NULL;
}

static void round_trip(int fd)
{
	pthread_t t;

	CHECK(!pthread_create(&t, NULL, wait_for_echo, &fd));
	usleep(5000); /* rather asleep than not; right both ways */
	CHECK(send(fd, "x", 1, 0) == 1);
	CHECK(!pthread_join(t, NULL));
}

static void say(const char *what, int fd)
{
	round_trip(fd);
	printf("%s: a round trip on fd %d\n", what, fd);
}

/* The next number. A descriptor of the library's may have one for a moment, until it is moved. */
static int next_number(void)
{
	int next = open("/dev/null", O_RDONLY), before;

	do {
		before = next;
		close(next);
		usleep(1000);
		next = open("/dev/null", O_RDONLY);
	} while (next != before);
	return next;
}

/* The descriptors below the soft limit that the program has not made, but the directory's. */
static void strangers(const char *when)
{
	DIR *d = opendir("/proc/self/fd");
	struct dirent *e;
	int num = 0;

	CHECK(d);
	while ((e = readdir(d))) {
		int fd = atoi(e->d_name);

		if (e->d_name[0] == '.' || fd == dirfd(d) || fd >= limit() || mine[fd])
			continue;
		num++;
	}
	closedir(d);
	printf("%s: %d strangers below %d, next %d\n", when, num, limit(), next_number());
}

static void list(int udp, int tcp)
{
	int fd;

	strangers("both open");
	round_trip(udp);
	round_trip(tcp);
	strangers("both used");
	CHECK(!close(udp));
	fd = open("/dev/null", O_RDONLY);
	printf("closed %d, opened %d\n", udp, fd);
}

static void close_loop(int udp, int tcp)
{
	int closed = 0;

	for (int fd = 0; fd < NUMBERS; fd++)
		if ((fd > 2 && !mine[fd]) && !close(fd))
			closed++;
	printf("closed %d\n", closed);
	say("close()", udp);
	say("close()", tcp);
	say("close()", new_socket(SOCK_DGRAM));
}

static void all_but_standard(void (*fn)(void))
{
	fn();
	memset(mine + 3, 0, sizeof(mine) - 3);
	say("after it", new_socket(SOCK_DGRAM));
	say("after it", new_socket(SOCK_STREAM));
}

static void range(void)
{
	CHECK(!close_range(3, ~0u, 0));
}

static void range_by_number(void)
{
	CHECK(!syscall(SYS_close_range, 3, ~0u, 0));
}

static void from(void)
{
	closefrom(3);
}

static void replace(int udp, int tcp)
{
	int null = own(open("/dev/null", O_RDWR)), done = 0, last = 0;

	strangers("before it");
	for (int fd = 3; fd < NUMBERS; fd++) {
		if (mine[fd])
			continue;
		if (dup2(null, fd) == fd) {
			done++;
			last = fd;
			close(fd);
		} else {
			CHECK(errno == EBADF);
		}
	}
	printf("replaced %d, the last %d\n", done, last);
	say("dup2()", udp);
	say("dup2()", tcp);
}

/* How many more there can be, and that a thread can wait with none left. */
static void exhaust(int udp, int tcp)
{
	int num = 0, fd, last = 0;

	strangers("before it");
	while ((fd = dup(0)) >= 0) {
		num++;
		last = fd;
	}
	printf("%d more, the last %d, then %s\n", num, last, strerror(errno));
	CHECK(open("/dev/null", O_RDONLY) < 0 && errno == EMFILE);
	CHECK(socket(AF_INET, SOCK_DGRAM, 0) < 0 && errno == EMFILE);
	say("all taken", udp);
	say("all taken", tcp);
	printf("limit %d\n", limit());
	for (fd = 3; fd <= last; fd++)
		if (!mine[fd])
			close(fd);
}

static void lowered(int udp, int tcp)
{
	set_limit(32, 32);
	exhaust(udp, tcp);
}

static void forked(int udp, int tcp)
{
	pid_t pid;
	int status;

	say("parent", udp);
	fflush(stdout);
	pid = fork();
	if (!pid) {
		close_loop(new_socket(SOCK_DGRAM), tcp);
		fflush(stdout);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && !status);
	say("parent", new_socket(SOCK_DGRAM));
}

/* What a new program finds. */
static void executed(void)
{
	fflush(stdout);
	execl("/bin/sh", "sh", "-c", "ls /proc/$$/fd; ulimit -n; ulimit -Hn", NULL);
	CHECK(!"exec");
}

int main(int argc, char **argv)
{
	const char *what = argc > 5 ? argv[1] : "";
	int udp, tcp;

	CHECK(argc > 5);
	setvbuf(stdout, NULL, _IOLBF, 0);
	set_limit(atoi(argv[2]), atoi(argv[3]));
	echo = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(atoi(argv[5]))};
	CHECK(inet_pton(AF_INET, argv[4], &echo.sin_addr) == 1);
	mine[0] = mine[1] = mine[2] = true;
	udp = new_socket(SOCK_DGRAM);
	tcp = new_socket(SOCK_STREAM);
	round_trip(udp);
	round_trip(tcp);
	if (!strcmp(what, "list"))
		list(udp, tcp);
	else if (!strcmp(what, "close"))
		close_loop(udp, tcp);
	else if (!strcmp(what, "closefrom"))
		all_but_standard(from);
	else if (!strcmp(what, "close_range"))
		all_but_standard(range);
	else if (!strcmp(what, "SYS_close_range"))
		all_but_standard(range_by_number);
	else if (!strcmp(what, "dup2"))
		replace(udp, tcp);
	else if (!strcmp(what, "emfile"))
		exhaust(udp, tcp);
	else if (!strcmp(what, "lowered"))
		lowered(udp, tcp);
	else if (!strcmp(what, "fork"))
		forked(udp, tcp);
	else if (!strcmp(what, "exec"))
		executed();
	else
		CHECK(!"a case");
	printf("end\n");
	return 0;
}
