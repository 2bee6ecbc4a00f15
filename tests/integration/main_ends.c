/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * main_ends how address port: a program whose main thread ends before another thread has sent
 * "hello" by TCP and read the answer. how: "exit" pthread_exit(); "cancel" the other thread cancels
 * it; "late" as "exit", the first socket comes afterwards; "alone" no other thread, the socket is
 * the main thread's; "child" as "exit" in a forked child of another thread, whose status is
 * printed.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *how;
static struct sockaddr_in to = {.sin_family = AF_INET};
static pthread_t main_thread;
static int first = -1;

static void talk(int fd)
{
	char text[16] = "";

	if (fd < 0)
		fd = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)) || send(fd, "hello", 5, 0) != 5 ||
	    recv(fd, text, 15, 0) <= 0)
		perror("talk");
	printf("answer: %s\n", text);
}

static void *worker(void *arg)
{
	if (!strcmp(how, "cancel"))
		pthread_cancel(main_thread);
	usleep(300000); /* main has ended */
	talk(first);
	return arg;
}

static void go_on(void)
{
	pthread_t t;

	main_thread = pthread_self();
	if (strcmp(how, "late") != 0)
		first = socket(AF_INET, SOCK_STREAM, 0);
	if (!strcmp(how, "alone"))
		talk(first);
	else if (pthread_create(&t, NULL, worker, NULL))
		exit(3);
	if (!strcmp(how, "cancel"))
		pause();
	pthread_exit((void *)7);
}

/* A zombie, as long as another thread is left (proc(5)). */
static bool main_is_over(void)
{
	char text[256] = "";
	int fd = open("/proc/self/stat", O_RDONLY);

	if (fd < 0 || read(fd, text, sizeof(text) - 1) < 0)
		exit(4);
	close(fd);
	return strstr(text, ") Z ") != NULL;
}

static void *forker(void *arg)
{
	int status = -1;
	pid_t pid;

	/* AddressSanitizer's locks, which main takes as it ends, are no good to a child. */
	while (!main_is_over())
		usleep(10000);
	pid = fork();
	if (!pid)
		go_on();
	waitpid(pid, &status, 0);
	printf("child: %x\n", status);
	return arg;
}

static void at_exit(void)
{
	printf("atexit\n");
}

int main(int argc, char **argv)
{
	pthread_t t;

	if (argc != 4 || inet_pton(AF_INET, argv[2], &to.sin_addr) != 1)
		return 2;
	how = argv[1];
	to.sin_port = htons((uint16_t)atoi(argv[3]));
	atexit(at_exit);
	if (strcmp(how, "child") != 0)
		go_on();
	close(socket(AF_INET, SOCK_STREAM, 0)); /* the parent, too, has the library's thread */
	if (pthread_create(&t, NULL, forker, NULL))
		return 3;
	pthread_exit(NULL);
}
