/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Whose turn it is: among this process's threads a word says so, among processes a record lock
 * (fcntl(2)) on the kernel socket, which ends with its process.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>

#include "fd/fd.h"
#include "runtime/runtime.h"

/* The byte that is locked. */
#define TURN_AT 0x766d61

static int turn_lock(struct vfd *v, short type)
{
	struct flock turn = {.l_type = type, .l_whence = SEEK_SET, .l_start = TURN_AT, .l_len = 1};
	int fd = atomic_load_explicit(&v->os_fd, memory_order_acquire);

	return raw.fcntl(fd, F_SETLK, &turn) ? errno : 0;
}

bool vfd_turn_begin(struct vfd *v)
{
	int err;

	if (atomic_exchange_explicit(&v->has_turn, true, memory_order_acquire))
		return false;
	err = turn_lock(v, F_WRLCK);
	/* Where a socket cannot be locked we go without. */
	if (err != EAGAIN && err != EACCES)
		return true;
	atomic_store_explicit(&v->has_turn, false, memory_order_release);
	return false;
}

void vfd_turn_over(struct vfd *v)
{
	(void)turn_lock(v, F_UNLCK);
	atomic_store_explicit(&v->has_turn, false, memory_order_release);
}
