/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The secret behind initial sequence numbers and time stamp offsets (RFC 6528, RFC 7323): one for
 * all processes of a user or of the host, from one boot to the next. With secrets of their own a
 * connection of one process could begin below the numbers that the peer remembers, in TIME_WAIT, of
 * another's from the same port: its SYN would be refused, and come again after a second.
 *
 * Where vma.ko is loaded it is the module's, for processes of all users in a network namespace.
 * Otherwise it is a file in /dev/shm, which every user can make, whatever the privileges, in any
 * network namespace, and which is gone at the next boot. Only its owner can read it; whoever could
 * read it otherwise could foresee the numbers.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kmod/kmod.h"
#include "runtime/runtime.h"
#include "socket/tcp/internal.h"

#define DIRECTORY "/dev/shm"
#define NAME DIRECTORY "/vma-tcp-secret-%u"

/* Set once; a child of fork() keeps the parent's. */
static uint64_t secret[4];
static bool known;

/* Reads the file. 0 or negative errno; -EPERM: it is not what we have made. */
static int file_get(const char *name)
{
	int fd = OWN_FD(raw.open(name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
	struct stat st;
	int err = 0;

	if (fd < 0)
		return -errno;
	/* The folder is everybody's: somebody else may have put a file of the name there. */
	if (fstat(fd, &st))
		err = -errno;
	else if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077) ||
		 raw.read(fd, secret, sizeof(secret)) != sizeof(secret))
		err = -EPERM;
	own_fd_close(fd);
	return err;
}

/* Makes the file of what is in secret: with its name it has its content. 0 or negative errno. */
static int file_make(const char *name)
{
	int fd = OWN_FD(raw.open(DIRECTORY, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)), err = 0;
	char self[40];

	if (fd < 0)
		return -errno;
	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	if (raw.write(fd, secret, sizeof(secret)) != sizeof(secret))
		err = -ENOSPC;
	else if (linkat(AT_FDCWD, self, AT_FDCWD, name, AT_SYMLINK_FOLLOW))
		err = -errno;
	own_fd_close(fd);
	return err;
}

void tcp_sock_secret_read(void)
{
	char name[sizeof(NAME) + 10];
	int err;

	if (known)
		return;
	known = true;
	if (kmod_secret(secret)) {
		log_debug("tcp: sequence numbers are made from the kernel module's secret");
		return;
	}
	snprintf(name, sizeof(name), NAME, (unsigned)geteuid());
	err = file_get(name);
	if (!err)
		return;
	if (libc_raw(SYS_getrandom, (long)(uintptr_t)secret, sizeof(secret), 0, 0, 0, 0) !=
	    (long)sizeof(secret))
		log_warn("tcp: getrandom: %s: sequence numbers can be guessed", strerror(errno));
	if (err == -ENOENT) {
		err = file_make(name);
		/* Another process was first. */
		if (err == -EEXIST)
			err = file_get(name);
	}
	if (err)
		log_debug("tcp: %s: %s: sequence numbers are this process's own", name,
			  strerror(-err));
}

void tcp_sock_secret(uint64_t to[4])
{
	memcpy(to, secret, sizeof(secret));
}
