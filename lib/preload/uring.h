/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the rest of preload has of uring.c. */
#ifndef PRELOAD_URING_H
#define PRELOAD_URING_H

#include <stdbool.h>

/* A ring was made by a bare system call: the kernel serves all sockets from now
 * on. */
extern _Atomic bool uring_raw __attribute__((visibility("hidden")));
/* ring: what the call said; a refused one changes nothing. Returns ring. */
int uring_made_raw(int ring);

struct iocb;
/* io_submit(2) gets n requests. */
void uring_submitting(long n, struct iocb *const *list);

#endif
