/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* An object for the fd table's tests. After cmocka.h. */
#ifndef VFD_THING_H
#define VFD_THING_H

#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "runtime/libc.h"
#include "fd/fd.h"
#include "vfd_dup.h"

/* A vfd that knows which kernel object it is the front of. */
struct thing {
	struct vfd vfd;
	_Atomic unsigned magic;
	_Atomic unsigned long inode;
	_Atomic unsigned closed; /* how often ops->close ran */
	_Atomic int closed_fd;
};

#define MAGIC 0x7417f00du

static _Atomic unsigned wrong_close;

static inline unsigned long inode_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) ? 0 : st.st_ino;
}

static inline int thing_close(struct vfd *v, int fd)
{
	struct thing *t = (struct thing *)v;

	t->closed++;
	t->closed_fd = fd;
	if (fd < 0)
		return 0;
	if (vfd_get(fd) == v || inode_of(fd) != t->inode)
		wrong_close++;
	return vfd_release(fd);
}

static const struct vfd_ops thing_ops = {.close = thing_close};

static inline int new_fd(void)
{
	int fd = libc.socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	return fd;
}

static inline void thing_init(struct thing *t)
{
	memset(t, 0, sizeof(*t));
	t->vfd.ops = &thing_ops;
	t->vfd.kind = VFD_UDP;
	t->magic = MAGIC;
}

static inline void thing_install(struct thing *t, int fd)
{
	t->inode = inode_of(fd);
	assert_int_equal(vfd_install(fd, &t->vfd), 0);
}

#endif
