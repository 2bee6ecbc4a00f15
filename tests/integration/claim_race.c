/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * claim_race CHILDREN ADDRESS: each child of fork() has two threads that use every socket which it
 * has inherited, at the same moment.
 */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SOCKETS 100

static int fds[SOCKETS];
static _Atomic int arrived;

static void *use_all(void *unused)
{
	char c;

	(void)unused;
	for (int i = 0; i < SOCKETS; i++) {
		atomic_fetch_add(&arrived, 1);
		while (atomic_load(&arrived) < 2 * (i + 1))
			;
		recv(fds[i], &c, 1, MSG_DONTWAIT);
	}
	return NULL;
}

static int child(void)
{
	pthread_t other;

	if (pthread_create(&other, NULL, use_all, NULL))
		return 1;
	use_all(NULL);
	return pthread_join(other, NULL);
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	int status;
	char c;

	if (argc != 3 || inet_pton(AF_INET, argv[2], &a.sin_addr) != 1)
		return 2;
	for (int i = 0; i < SOCKETS; i++) {
		fds[i] = socket(AF_INET, SOCK_DGRAM, 0);
		if (fds[i] < 0 || bind(fds[i], (struct sockaddr *)&a, sizeof(a)))
			return 2;
		recv(fds[i], &c, 1, MSG_DONTWAIT);
	}
	for (int n = atoi(argv[1]); n > 0; n--) {
		pid_t pid = fork();

		if (!pid)
			_exit(child());
		if (waitpid(pid, &status, 0) != pid || status) {
			printf("a child ended with status %#x\n", (unsigned)status);
			return 1;
		}
	}
	printf("all children have ended\n");
	return 0;
}
