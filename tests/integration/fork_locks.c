/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * fork_locks CHILDREN ADDRESS PORT: threads that are inside libc's locks most of the time, and a
 * thread that forks. The first socket of each child is the first of its process; every tenth sends
 * a datagram there. A child that waits for a lock that nobody holds any more is ended by its alarm.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#define STUCK_S 60

static void *tell_time(void *unused)
{
	(void)unused;
	for (;;) {
		time_t now = time(NULL);
		struct tm tm;

		localtime_r(&now, &tm);
	}
	return NULL;
}

/* Not setlocale(): strerror() waits for that, and libbpf asks it for words whenever it is called.
 */
static void *change_environment(void *unused)
{
	(void)unused;
	for (;;) {
		setenv("FORK_LOCKS", "1", 1);
		(void)random();
	}
	return NULL;
}

static void *open_files(void *unused)
{
	(void)unused;
	for (;;) {
		FILE *f = fopen("/proc/self/comm", "re");
		char word[32];

		if (f && !fgets(word, sizeof(word), f))
			abort();
		if (f)
			fclose(f);
		free(malloc(100000));
	}
	return NULL;
}

/* As the library does itself, whose log goes there. */
static void *log_lines(void *unused)
{
	(void)unused;
	for (;;)
		syslog(LOG_USER | LOG_DEBUG, "fork_locks");
	return NULL;
}

static int child(const struct sockaddr_in *to, int sends)
{
	int fd;

	alarm(STUCK_S);
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	if (fd < 0)
		return 1;
	if (sends && sendto(fd, "child", 5, 0, (const struct sockaddr *)to, sizeof(*to)) != 5)
		return 2;
	return 0;
}

int main(int argc, char **argv)
{
	static void *(*const busy[])(void *) = {tell_time, tell_time, change_environment,
						open_files, log_lines};
	struct sockaddr_in to = {.sin_family = AF_INET};
	int children, status;
	pthread_t id;

	if (argc != 4 || inet_pton(AF_INET, argv[2], &to.sin_addr) != 1)
		return 2;
	children = atoi(argv[1]);
	to.sin_port = htons((uint16_t)atoi(argv[3]));
	for (size_t i = 0; i < sizeof(busy) / sizeof(*busy); i++) {
		if (pthread_create(&id, NULL, busy[i], NULL))
			return 2;
	}
	for (int i = 0; i < children; i++) {
		pid_t pid = fork();

		if (!pid)
			_exit(child(&to, i % 10 == 0));
		if (pid < 0 || waitpid(pid, &status, 0) != pid) {
			fprintf(stderr, "child %d: %s\n", i, strerror(errno));
			return 1;
		}
		if (status) {
			fprintf(stderr, "child %d ended with status %#x\n", i, (unsigned)status);
			return 1;
		}
	}
	printf("%d children have ended\n", children);
	fflush(stdout);
	_exit(0);
}
