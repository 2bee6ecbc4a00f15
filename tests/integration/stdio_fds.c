/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * stdio_fds how ADDRESS PORT: makes its connection to a server that answers each line the standard
 * input, output and error, and talks to it by stdio. What it has seen goes to the output that it
 * was started with, and is the same on kernel sockets and with the library.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static int log_fd;

#define CHECK(x)                                                                                   \
	do {                                                                                       \
		if (!(x)) {                                                                        \
			dprintf(log_fd, "line %d: %s: %s\n", __LINE__, #x, strerror(errno));       \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

static int connected(const char *address, const char *port)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	CHECK(inet_pton(AF_INET, address, &to.sin_addr) == 1);
	CHECK(!connect(fd, (struct sockaddr *)&to, sizeof(to)));
	return fd;
}

/* All offloaded so far: a line each way. */
static void by_calls(int fd)
{
	char answer[64] = "";

	CHECK(send(fd, "calls\n", 6, 0) == 6);
	CHECK(recv(fd, answer, sizeof(answer) - 1, 0) > 0);
	dprintf(log_fd, "by calls: %s", answer);
}

static void place(const char *how, int fd, int number)
{
	if (!strcmp(how, "dup2"))
		CHECK(dup2(fd, number) == number);
	else if (!strcmp(how, "dup3"))
		CHECK(dup3(fd, number, 0) == number);
	else if (!strcmp(how, "dup"))
		CHECK(!close(number) && dup(fd) == number);
	else
		CHECK(!close(number) && fcntl(fd, F_DUPFD, 0) == number);
}

static void answer(const char *to)
{
	char line[64] = "";

	CHECK(fgets(line, sizeof(line), stdin));
	dprintf(log_fd, "%s: %s", to, line);
}

static void by_stdio(void)
{
	char word[64], *more = NULL;
	size_t size = 0;

	CHECK(printf("%s %d\n", "printf", 1) > 0 && !fflush(stdout));
	answer("printf");
	CHECK(fputs("fputs\n", stderr) >= 0);
	answer("stderr");
	CHECK(puts("puts") >= 0 && !fflush(NULL));
	CHECK(scanf("%63s", word) == 1 && getline(&more, &size, stdin) > 0);
	dprintf(log_fd, "scanf: %s, getline:%s", word, more);
	errno = ENOENT;
	perror("perror");
	answer("perror");
	CHECK(write(1, "write\n", 6) == 6);
	answer("write");
	free(more);
}

static void by_child(void)
{
	int status;

	status = system("echo a child; read line; echo \"$line\"");
	dprintf(log_fd, "system: %d\n", status);
	answer("system");
}

int main(int argc, char **argv)
{
	int fd;

	log_fd = fcntl(1, F_DUPFD, 50);
	CHECK(argc == 4);
	fd = connected(argv[2], argv[3]);
	by_calls(fd);
	for (int number = 0; number < 3; number++)
		place(argv[1], fd, number);
	CHECK(!close(fd));
	by_stdio();
	by_child();
	CHECK(!shutdown(1, SHUT_WR));
	dprintf(log_fd, "end of file: %d\n", getchar() == EOF);
	return 0;
}
