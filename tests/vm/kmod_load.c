/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * kmod_load libvma.so address port: one preloaded program after the other, each with a connection
 * to an echo server there and some traffic on it, until it is killed or ends. Never two at once:
 * between them nobody has /dev/vma open. After SIGUSR1 none begins until SIGUSR2.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 10
#define PAUSE_US 50000

/* Sends n bytes and reads them back. */
static int echo(int fd, char *buf, size_t n)
{
	size_t got = 0;

	if (send(fd, buf, n, 0) != (ssize_t)n)
		return -1;
	while (got < n) {
		ssize_t r = recv(fd, buf, n - got, 0);

		if (r <= 0)
			return -1;
		got += (size_t)r;
	}
	return 0;
}

/* The preloaded program. Its exit status: was all as it should be? */
static int life(const char *address, const char *port, unsigned number)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	char buf[4096] = {0};

	if (inet_pton(AF_INET, address, &a.sin_addr) != 1 ||
	    connect(fd, (struct sockaddr *)&a, sizeof(a))) {
		perror("connect");
		return 1;
	}
	for (unsigned i = 0; i < ROUNDS; i++) {
		if (echo(fd, buf, 1 + (i * 997) % sizeof(buf))) {
			perror("echo");
			return 1;
		}
	}
	if (number % 3 == 0)
		raise(SIGKILL);
	if (number % 3 == 1)
		close(fd);
	return 0;
}

static void begin(char **argv, unsigned number)
{
	char text[16];
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(text, sizeof(text), "%u", number);
	setenv("LD_PRELOAD", argv[1], 1);
	execl(argv[0], argv[0], "-", argv[2], argv[3], text, NULL);
	_exit(1);
}

static volatile sig_atomic_t paused;

static void on_signal(int number)
{
	paused = number == SIGUSR1;
}

/* Both signals are blocked but here. */
static void wait_for_leave(void)
{
	sigset_t none;

	sigemptyset(&none);
	usleep(PAUSE_US);
	do {
		struct timespec now = {0};

		ppoll(NULL, 0, &now, &none); /* lets in what has come */
		if (paused)
			sigsuspend(&none);
	} while (paused);
}

static void take_signals(void)
{
	const struct sigaction sa = {.sa_handler = on_signal};
	sigset_t both;

	sigemptyset(&both);
	sigaddset(&both, SIGUSR1);
	sigaddset(&both, SIGUSR2);
	sigprocmask(SIG_BLOCK, &both, NULL);
	sigaction(SIGUSR1, &sa, NULL);
	sigaction(SIGUSR2, &sa, NULL);
}

int main(int argc, char **argv)
{
	int status;

	if (argc == 5 && !strcmp(argv[1], "-"))
		return life(argv[2], argv[3], (unsigned)atoi(argv[4]));
	if (argc != 4) {
		fputs("usage: kmod_load libvma.so address port\n", stderr);
		return 2;
	}
	take_signals();
	for (unsigned n = 0;; n++) {
		pid_t pid = fork();

		if (pid == 0)
			begin(argv, n);
		if (pid < 0 || waitpid(pid, &status, 0) != pid)
			return 1;
		if (status && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)) {
			printf("life %u: %x\n", n, (unsigned)status);
			return 1;
		}
		wait_for_leave();
	}
}
