/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A watchdog's signal, of those that a thread usually causes itself, comes while its thread copies
 * and closes sockets; the handler does the same. Ends after so many signals, or never.
 *
 *   abort_close SIGNAL TIMES
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t handled;
static int sock;

static void handler(int sig)
{
	int s = socket(AF_INET, SOCK_DGRAM, 0);

	(void)sig;
	close(s);
	handled++;
}

/* One at a time: pending ones are one. */
static void send_all(int sig, int times, int told)
{
	pid_t to = getppid();
	char c;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (times-- && !kill(to, sig) && read(told, &c, 1) == 1)
		;
	_exit(0);
}

int main(int argc, char **argv)
{
	int sig = argc > 1 ? atoi(argv[1]) : SIGABRT, times = argc > 2 ? atoi(argv[2]) : 1000;
	int tell[2], seen = 0;
	pid_t child;

	sock = socket(AF_INET, SOCK_STREAM, 0);
	if (sock < 0 || pipe(tell) || signal(sig, handler) == SIG_ERR) {
		perror("abort_close");
		return 1;
	}
	child = fork();
	if (!child)
		send_all(sig, times, tell[0]);
	while (seen < times) {
		close(dup(sock));
		if (handled == seen)
			continue;
		seen++;
		if (write(tell[1], "", 1) != 1)
			return 1;
	}
	waitpid(child, NULL, 0);
	printf("%d signals handled\n", seen);
	return 0;
}
