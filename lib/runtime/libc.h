/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The real libc, reached through one table that libc_load() fills once (dlsym RTLD_NEXT). Nothing else
 * calls dlsym. Inside lib/ every system call that preload intercepts is made through this table.
 */
#ifndef RUNTIME_LIBC_H
#define RUNTIME_LIBC_H

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

struct libc_table {
#define LIBC_FN(ret, name, params, args, raw) ret(*name) params;
#define LIBC_VARIADIC(ret, name, params, last, args, raw) ret(*name) params;
#include "runtime/libc.def"
#undef LIBC_FN
#undef LIBC_VARIADIC
	long (*syscall)(long nr, ...);
};

/* Before libc_load() every entry is a stub that calls it first, so no call needs a check. No entry is ever NULL. */
extern struct libc_table libc __attribute__((visibility("hidden")));
extern bool libc_loaded __attribute__((visibility("hidden")));

/* Fills the table. Safe from any thread, any number of times, before constructors have run and while dlsym itself allocates. */
void libc_load(void);

/* The system call itself, no libc function in between. Result and errno as syscall(2). */
long libc_raw(long nr, long a, long b, long c, long d, long e, long f);

/*
 * Above 0 while this thread runs inside the library: sockets made now (by libnl, libxdp, libbpf) are the
 * library's own and never offloaded, and start-up is not entered again.
 */
extern __thread int libc_internal __attribute__((tls_model("initial-exec")));

#endif
