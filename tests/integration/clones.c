/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * clones how ADDRESS PORT: has a TCP connection to a server that answers each line, a datagram
 * socket and a listener, and makes a process by clone() or enters a namespace. What the child and
 * the parent see goes to standard output, and is the same on kernel sockets and with the library.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(x)                                                                                   \
	do {                                                                                       \
		if (!(x)) {                                                                        \
			printf("line %d: %s: %s\n", __LINE__, #x, strerror(errno));                \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

#define NAMESPACES (CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWUTS)

static struct sockaddr_in server;
static int tcp, udp, listener, epoll;

static void open_sockets(void)
{
	struct timeval tv = {10, 0};
	struct epoll_event ev = {.events = EPOLLIN};

	tcp = socket(AF_INET, SOCK_STREAM, 0);
	udp = socket(AF_INET, SOCK_DGRAM, 0);
	listener = socket(AF_INET, SOCK_STREAM, 0);
	epoll = epoll_create1(0);
	CHECK(!connect(tcp, (struct sockaddr *)&server, sizeof(server)));
	CHECK(!connect(udp, (struct sockaddr *)&server, sizeof(server)));
	CHECK(!setsockopt(tcp, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
	CHECK(!listen(listener, 5));
	CHECK(!epoll_ctl(epoll, EPOLL_CTL_ADD, tcp, &ev));
}

/* A line there and back. */
static void talk(const char *who)
{
	struct epoll_event ev;
	char answer[64] = "";
	ssize_t n;

	CHECK(send(tcp, who, strlen(who), 0) == (ssize_t)strlen(who) && send(tcp, "\n", 1, 0) == 1);
	CHECK(epoll_wait(epoll, &ev, 1, 10000) == 1);
	n = recv(tcp, answer, sizeof(answer) - 1, 0);
	CHECK(n > 0);
	printf("%s: %s", who, answer);
	fflush(stdout);
}

static int child(void *arg)
{
	struct sockaddr_in a;
	socklen_t len = sizeof(a);

	(void)arg;
	talk("child");
	CHECK(!getpeername(udp, (struct sockaddr *)&a, &len) && a.sin_port == server.sin_port);
	CHECK(!close(udp) && !close(listener));
	printf("child's new socket: %d\n", socket(AF_INET, SOCK_DGRAM, 0) >= 0);
	fflush(stdout);
	_exit(7);
}

/* One that touches nothing but what it closes, as between vfork() and exec(). */
static int closing_child(void *arg)
{
	(void)arg;
	close(tcp);
	close(udp);
	close(listener);
	close(epoll);
	_exit(7);
}

static pid_t by_clone(int (*fn)(void *), int flags)
{
	static char stack[256 * 1024] __attribute__((aligned(16)));

	return clone(fn, stack + sizeof(stack), flags | SIGCHLD, NULL);
}

static pid_t by_syscall(int flags)
{
	pid_t pid = (pid_t)syscall(SYS_clone, flags | SIGCHLD, NULL, NULL, NULL, NULL);

	if (!pid)
		child(NULL);
	return pid;
}

static pid_t by_clone3(uint64_t flags)
{
	struct clone_args args = {.flags = flags, .exit_signal = SIGCHLD};
	pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));

	if (!pid)
		child(NULL);
	return pid;
}

static void ended(pid_t pid)
{
	int status;

	CHECK(pid > 0);
	CHECK(waitpid(pid, &status, 0) == pid);
	printf("the child's status: %d\n", WEXITSTATUS(status));
	talk("parent");
}

/* A new socket of this thread, and the one that it had. */
static void look(const char *where)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0), stream = socket(AF_INET, SOCK_STREAM, 0), err;

	err = connect(fd, (struct sockaddr *)&server, sizeof(server)) ? errno : 0;
	printf("%s: UDP connect(): %s\n", where, strerror(err));
	err = connect(stream, (struct sockaddr *)&server, sizeof(server)) ? errno : 0;
	printf("%s: TCP connect(): %s\n", where, strerror(err));
	close(fd);
	close(stream);
	talk(where);
}

static void enter_namespace(void)
{
	int home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);

	look("at home");
	CHECK(home >= 0 && !unshare(CLONE_NEWNET));
	look("away");
	CHECK(!setns(home, CLONE_NEWNET));
	look("at home again");
}

/* Parent and child are both number 1 of their PID namespace. */
static void same_pid(void)
{
	CHECK(getpid() == 1);
	ended(by_syscall(CLONE_NEWPID));
	look("parent");
}

int main(int argc, char **argv)
{
	const char *how = argv[1];

	CHECK(argc == 4);
	server = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(atoi(argv[3]))};
	CHECK(inet_pton(AF_INET, argv[2], &server.sin_addr) == 1);
	open_sockets();
	talk("before");
	if (!strcmp(how, "syscall"))
		ended(by_syscall(NAMESPACES));
	else if (!strcmp(how, "same-pid"))
		same_pid();
	else if (!strcmp(how, "syscall-net"))
		ended(by_syscall(CLONE_NEWNET));
	else if (!strcmp(how, "clone3"))
		ended(by_clone3(NAMESPACES | CLONE_NEWNET));
	else if (!strcmp(how, "clone"))
		ended(by_clone(child, NAMESPACES | CLONE_NEWNET));
	else if (!strcmp(how, "clone-vfork"))
		ended(by_clone(closing_child, CLONE_VM | CLONE_VFORK));
	else
		enter_namespace();
	return 0;
}
