/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * held_calls what address port: a thread is inside a call on a TCP connection to there, and
 * something happens to that thread or to the connection's number. Says each thing that it has done
 * on a line of its own, and goes on at each byte of its input. test_held_calls.py.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static struct sockaddr_in to = {.sin_family = AF_INET};
static int s;
static _Atomic int tid;
static pthread_t inside;
static sigjmp_buf out;

static void say(const char *what, long n)
{
	printf("%s %ld\n", what, n);
	fflush(stdout);
}

static void told(void)
{
	char c;

	if (read(STDIN_FILENO, &c, 1) != 1)
		exit(2);
}

static int connection(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to))) {
		perror("connect");
		exit(2);
	}
	return fd;
}

/* In which call the thread sleeps. */
static void where(char *text, size_t room)
{
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", tid);
	text[0] = 0;
	f = fopen(path, "r");
	if (f && !fgets(text, (int)room, f))
		text[0] = 0;
	if (f)
		fclose(f);
}

/* Until the thread sleeps in a call. */
static void asleep(void)
{
	char was[256] = "", now[256] = "";

	/* poll(), select(), recvfrom(), epoll_wait(), ppoll(): the same one at two looks. */
	do {
		usleep(20000);
		strcpy(was, now);
		if (tid)
			where(now, sizeof(now));
	} while (strcmp(was, now) ||
		 (strncmp(now, "7 ", 2) && strncmp(now, "23 ", 3) && strncmp(now, "45 ", 3) &&
		  strncmp(now, "232 ", 4) && strncmp(now, "270 ", 4) && strncmp(now, "271 ", 4) &&
		  strncmp(now, "281 ", 4)));
}

/* A thread in fn, which sleeps there when this returns. */
static void begin(void *(*fn)(void *arg))
{
	tid = 0;
	pthread_create(&inside, NULL, fn, NULL);
	asleep();
}

static void *receives(void *arg)
{
	char text[100];
	ssize_t n;

	tid = gettid();
	n = recv(s, text, sizeof(text), 0);
	say("recv", n < 0 ? -errno : n);
	return arg;
}

static void *receives_or_leaves(void *arg)
{
	if (!sigsetjmp(out, 1))
		return receives(arg);
	say("left", 0);
	for (;;)
		pause();
	return arg;
}

static void polls_for(int msec)
{
	struct pollfd p = {.fd = s, .events = POLLIN};
	int n;

	tid = gettid();
	n = poll(&p, 1, msec);
	say("poll", n);
	say("revents", p.revents);
}

static void *polls(void *arg)
{
	polls_for(60000);
	return arg;
}

static void *polls_shortly(void *arg)
{
	polls_for(2000);
	return arg;
}

static void *selects(void *arg)
{
	struct timeval tv = {60, 0};
	fd_set in;
	int n;

	FD_ZERO(&in);
	FD_SET(s, &in);
	tid = gettid();
	n = select(s + 1, &in, NULL, NULL, &tv);
	say("select", n < 0 ? -errno : n);
	return arg;
}

static void *waits_in_a_set(void *arg)
{
	struct epoll_event ev = {.events = EPOLLIN};
	int set = epoll_create1(0);

	epoll_ctl(set, EPOLL_CTL_ADD, s, &ev);
	tid = gettid();
	say("epoll_wait", epoll_wait(set, &ev, 1, 2000));
	return arg;
}

/* Where the call that was left had its variables stands something else. */
static __attribute__((noinline)) void overwrite(void)
{
	volatile char text[60000];

	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = 0x5a;
}

static void *polls_or_leaves(void *arg)
{
	char text[100];

	if (!sigsetjmp(out, 1))
		return polls(arg);
	overwrite();
	say("left", 0);
	say("recv", recv(s, text, sizeof(text), 0));
	for (;;)
		pause();
	return arg;
}

static void handle(int sig, void (*fn)(int), int flags)
{
	struct sigaction a = {.sa_handler = fn, .sa_flags = flags};

	sigaction(sig, &a, NULL);
}

static void ends_thread(int sig)
{
	(void)sig;
	pthread_exit(NULL);
}

static void jumps(int sig)
{
	siglongjmp(out, sig);
}

static void closes(int sig)
{
	(void)sig;
	close(s);
}

static volatile sig_atomic_t returned;

static void returns(int sig)
{
	(void)sig;
	returned = 1;
}

/* close() in the middle of fn's call. */
static void closed_inside(void *(*fn)(void *arg))
{
	begin(fn);
	say("close", close(s));
	told();
	told();
	pthread_join(inside, NULL);
}

static void cancelled(void)
{
	begin(receives);
	say("close", close(s));
	told();
	pthread_cancel(inside);
	pthread_join(inside, NULL);
	say("cancelled", 0);
	told();
}

/* The handler does what it does in the middle of recv(); then the number is closed. */
static void handled(void *(*fn)(void *arg), void (*handler)(int), bool ends)
{
	handle(SIGUSR1, handler, SA_RESTART);
	begin(fn);
	pthread_kill(inside, SIGUSR1);
	if (ends) {
		pthread_join(inside, NULL);
		say("ended", 0);
	}
	/* The call has begun anew: only then it has the socket when that is closed. */
	if (handler == returns) {
		while (!returned)
			usleep(1000);
		asleep();
	}
	told();
	say("close", close(s));
	told();
}

static void reused(void)
{
	char text[10];
	int was = s, other;

	begin(receives);
	close(s);
	other = connection();
	say("the same number", other == was);
	told();
	pthread_join(inside, NULL);
	say("the other", recv(other, text, sizeof(text), 0));
	told();
}

static void child(void)
{
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(7077)};
	char c;

	for (int i = 0; i < 2; i++) {
		int fd = socket(AF_INET, SOCK_DGRAM, 0);

		say("bind in the child", bind(fd, (struct sockaddr *)&any, sizeof(any)));
		if (recv(fd, &c, 1, MSG_DONTWAIT) >= 0 || close(fd))
			say("the child's socket", -1);
	}
	told();
	_exit(0);
}

static void forked(void)
{
	pid_t pid;

	begin(receives);
	pid = fork();
	if (!pid)
		child();
	say("close", close(s));
	told();
	waitpid(pid, NULL, 0);
	say("the child is over", 0);
	told();
	pthread_join(inside, NULL);
}

int main(int argc, char **argv)
{
	const char *what = argc == 4 ? argv[1] : "";

	if (argc != 4)
		return 2;
	inet_pton(AF_INET, argv[2], &to.sin_addr);
	to.sin_port = htons((uint16_t)atoi(argv[3]));
	s = connection();
	if (!strcmp(what, "recv"))
		closed_inside(receives);
	else if (!strcmp(what, "poll"))
		closed_inside(polls);
	else if (!strcmp(what, "poll, nothing comes"))
		closed_inside(polls_shortly);
	else if (!strcmp(what, "select"))
		closed_inside(selects);
	else if (!strcmp(what, "epoll"))
		closed_inside(waits_in_a_set);
	else if (!strcmp(what, "cancel"))
		cancelled();
	else if (!strcmp(what, "handler ends the thread"))
		handled(receives, ends_thread, true);
	else if (!strcmp(what, "handler jumps"))
		handled(receives_or_leaves, jumps, false);
	else if (!strcmp(what, "handler jumps out of poll"))
		handled(polls_or_leaves, jumps, false);
	else if (!strcmp(what, "handler closes"))
		handled(receives, closes, true);
	else if (!strcmp(what, "handler returns"))
		handled(receives, returns, false);
	else if (!strcmp(what, "number reused"))
		reused();
	else if (!strcmp(what, "fork"))
		forked();
	else
		return 2;
	return 0;
}
