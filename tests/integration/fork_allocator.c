/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * As an interposer: an allocator that holds its locks around fork(), as jemalloc and tcmalloc do.
 * It registers its handlers at its start (FORK_ALLOCATOR=start, tcmalloc) or when it is first asked
 * (jemalloc). Who asks it for memory between them would wait for ever; here the process is ended.
 *
 * As a program: fork_allocator ADDRESS PORT sends datagrams, and forks in each way that there is.
 * Its own handlers use its socket.
 */
#ifdef INTERPOSER

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t size);
extern void *__libc_memalign(size_t align, size_t size);
extern void __libc_free(void *p);

static int held;
static pthread_t holder;
static int is_registered;

static void hold(void)
{
	holder = pthread_self();
	held = 1;
}

static void drop(void)
{
	held = 0;
}

static void register_handlers(void)
{
	if (!is_registered) {
		is_registered = 1;
		pthread_atfork(hold, drop, drop);
	}
}

__attribute__((constructor)) static void start(void)
{
	register_handlers();
}

static void asked(void)
{
	static const char text[] = "the allocator is asked while it is locked for fork()\n";
	const char *when;

	if (held && holder == pthread_self()) {
		(void)!write(2, text, sizeof(text) - 1);
		abort();
	}
	if (!is_registered && environ && (when = getenv("FORK_ALLOCATOR")) &&
	    !strcmp(when, "first"))
		register_handlers();
}

void *malloc(size_t size)
{
	asked();
	return __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
	asked();
	return __libc_calloc(n, size);
}

void *realloc(void *p, size_t size)
{
	asked();
	return __libc_realloc(p, size);
}

void *memalign(size_t align, size_t size)
{
	asked();
	return __libc_memalign(align, size);
}

void *aligned_alloc(size_t align, size_t size)
{
	return memalign(align, size);
}

int posix_memalign(void **p, size_t align, size_t size)
{
	*p = memalign(align, size);
	return *p ? 0 : 12;
}

void free(void *p)
{
	if (p)
		asked();
	__libc_free(p);
}

#else

#include <arpa/inet.h>
#include <pthread.h>
#include <pty.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define STUCK_S 60

static struct sockaddr_in to = {.sin_family = AF_INET};
static int parents = -1;

static void send_one(int fd, const char *text)
{
	if (sendto(fd, text, strlen(text), 0, (struct sockaddr *)&to, sizeof(to)) < 0) {
		perror(text);
		_exit(1);
	}
}

static void in_child(void)
{
	if (parents >= 0)
		send_one(parents, "handler");
}

static int opened(void)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	if (fd < 0)
		_exit(2);
	return fd;
}

static void child_runs(void)
{
	alarm(STUCK_S);
	if (parents >= 0)
		send_one(parents, "parent's");
	send_one(opened(), "own");
	_exit(0);
}

static void ended(const char *how, pid_t pid)
{
	int status;

	if (pid < 0 || waitpid(pid, &status, 0) != pid || status) {
		fprintf(stderr, "%s: the child ended with status %#x\n", how, (unsigned)status);
		exit(1);
	}
}

static void all_ways(void)
{
	pid_t pid = fork();
	int pty;

	if (!pid)
		child_runs();
	ended("fork", pid);
	pid = forkpty(&pty, NULL, NULL, NULL); /* inside libc */
	if (!pid)
		child_runs();
	ended("forkpty", pid);
	close(pty);
	pid = vfork();
	if (!pid)
		_exit(0);
	ended("vfork", pid);
}

int main(int argc, char **argv)
{
	if (argc != 3 || inet_pton(AF_INET, argv[1], &to.sin_addr) != 1)
		return 2;
	to.sin_port = htons((uint16_t)atoi(argv[2]));
	alarm(2 * STUCK_S);
	pthread_atfork(NULL, NULL, in_child);
	all_ways();
	parents = opened();
	send_one(parents, "first");
	all_ways();
	puts("all children have ended");
	return 0;
}

#endif
