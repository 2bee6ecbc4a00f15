/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Preloaded beside the library: a process that ends by exit() says so, by the file exited.<pid>
 * in the directory TEST_EXITS, where its statistics are. After _exit(), exec() or a signal there is
 * none (leftovers.py), nor of one that has given away what it takes to clear the steering away
 * (docs/limits.md).
 */
#include <fcntl.h>
#include <linux/capability.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static char directory[3072];
/* The process whose exec() brought this program, and ended another one that had sockets. */
static pid_t exec_left;

static void name(char (*text)[4096], const char *what)
{
	snprintf(*text, sizeof(*text), "%s/%s.%d", directory, what, (int)getpid());
}

__attribute__((constructor)) static void begun(void)
{
	const char *dir = getenv("TEST_EXITS");
	char text[4096];

	if (!dir)
		return;
	snprintf(directory, sizeof(directory), "%s", dir);
	name(&text, "vmastat");
	if (syscall(SYS_faccessat, AT_FDCWD, text, F_OK) == 0)
		exec_left = getpid();
}

static bool may_detach(void)
{
	struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct d[_LINUX_CAPABILITY_U32S_3] = {{0}};

	return !syscall(SYS_capget, &h, d) && d[0].effective & (1u << CAP_NET_ADMIN);
}

/* Not by libc's open(), which the library has. */
__attribute__((destructor)) static void ended(void)
{
	char text[4096];
	long fd;

	if (!*directory || exec_left == getpid() || !may_detach())
		return;
	name(&text, "exited");
	fd = syscall(SYS_openat, AT_FDCWD, text, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd >= 0)
		syscall(SYS_close, fd);
}
