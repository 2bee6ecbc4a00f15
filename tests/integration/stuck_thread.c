/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * stuck_thread ADDRESS PORT [alarm]
 *
 * Waits for a datagram; alarm: for a second. Built once more as a library (-DINTERPOSER) this file
 * is a bind() that never returns for an AF_XDP socket: what it is preloaded behind is stuck there,
 * in the middle of opening a ring.
 */
#define _GNU_SOURCE
#include <sys/socket.h>
#include <unistd.h>

#ifdef INTERPOSER
#include <dlfcn.h>

int bind(int fd, const struct sockaddr *addr, socklen_t len)
{
	static int (*next)(int, const struct sockaddr *, socklen_t);

	while (addr->sa_family == AF_XDP)
		if (write(1, "stuck\n", 6) == 6)
			pause();
	if (!next)
		next = (int (*)(int, const struct sockaddr *, socklen_t))dlsym(RTLD_NEXT, "bind");
	return next(fd, addr, len);
}
#else
#include <arpa/inet.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	int s = socket(AF_INET, SOCK_DGRAM, 0);
	char c;

	if (argc < 3 || inet_pton(AF_INET, argv[1], &a.sin_addr) != 1)
		return 2;
	a.sin_port = htons((uint16_t)atoi(argv[2]));
	if (s < 0 || bind(s, (struct sockaddr *)&a, sizeof(a)))
		return 1;
	if (argc > 3)
		alarm(1);
	return recv(s, &c, 1, 0) != 1;
}
#endif
