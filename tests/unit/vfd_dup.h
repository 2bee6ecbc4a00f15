/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The entry of a copy that the kernel has made before. */
#ifndef VFD_DUP_H
#define VFD_DUP_H

#include "fd/fd.h"

/* newfd names what oldfd names from now on. False: that is nothing. */
static inline bool vfd_dup(int oldfd, int newfd)
{
	struct vfd_dup d;

	if (!vfd_dup_begin(&d, oldfd))
		return false;
	vfd_dup_end(&d, newfd);
	return d.v != NULL;
}

#endif
