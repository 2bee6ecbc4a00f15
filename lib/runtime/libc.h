/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The real libc, reached through one table that libc_load() fills once (dlsym RTLD_NEXT). Nothing
 * else calls dlsym for a function of libc's. Inside lib/ every system call that preload intercepts
 * is made through this table.
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
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

struct aiocb;
struct sockaddr_in;

struct libc_table {
#define LIBC_FN(ret, name, params, args, raw) ret(*name) params;
#define LIBC_VARIADIC(ret, name, params, last, args, raw) ret(*name) params;
#include "runtime/libc.def"
#undef LIBC_FN
#undef LIBC_VARIADIC
	long (*syscall)(long nr, ...);
};

/*
 * Before libc_load() every entry is a stub that calls it first, so no call needs a check. No entry
 * is ever NULL.
 */
extern struct libc_table libc __attribute__((visibility("hidden")));
extern bool libc_loaded __attribute__((visibility("hidden")));

/*
 * The same calls by the bare system call (ENOSYS where there is none): no cancellation points. What
 * the library does for itself is done by these; libc's own are for a call of the program's that is
 * passed on, with nothing held. A thread that is cancelled in the middle would keep what it holds.
 */
extern struct libc_table raw __attribute__((visibility("hidden")));

/*
 * What poll(2) is asked, as select(2)'s sets. poll() refuses more entries than RLIMIT_NOFILE, which
 * a program may have set to 0 when it had opened all that it needs; select() looks at any. So raw's
 * poll() and ppoll() have no such limit: without it they are poll()'s, with it they know POLLIN,
 * POLLOUT, POLLPRI and their like, and POLLNVAL.
 */
struct poll_sets {
	fd_set *rd, *wr, *ex; /* nfds bits each, in one mapping */
	size_t bytes; /* of each */
	int nfds;
};
/* select() can be asked for all that may be said of it. */
bool poll_sets_know(const struct pollfd *p);
/* Not by malloc(), which a signal handler may have interrupted. False: no memory (errno). */
bool poll_sets_map(struct poll_sets *s, const struct pollfd *p, nfds_t n);
/* select() of the sets has returned r: fills in revents. Returns as poll(). */
int poll_sets_answer(const struct poll_sets *s, struct pollfd *p, nfds_t n, int r);
/* Of a struct poll_sets. errno stays. */
void poll_sets_unmap(void *sets);

/*
 * Fills the table. Safe from any thread, any number of times, before constructors have run and
 * while dlsym itself allocates.
 */
void libc_load(void);

/*
 * &errno without a call: libc has it at the same distance from each thread's pointer. Before
 * libc_load() it is a word that nobody changes.
 */
extern long libc_errno_distance __attribute__((visibility("hidden")));
static inline char *libc_thread_pointer(void)
{
#if defined(__x86_64__)
	char *thread;

	__asm__("mov %%fs:0, %0" : "=r"(thread));
	return thread;
#else
	return __builtin_thread_pointer();
#endif
}

static inline int *libc_errno(void)
{
	return (int *)(void *)(libc_thread_pointer() + libc_errno_distance);
}

/*
 * Of what runs before the sanitizers do: they ask for limits, of their stacks and of dumps, before
 * they can be asked anything.
 */
#define NO_SANITIZERS                                                                              \
	__attribute__((no_sanitize("address"), no_sanitize("thread"), no_sanitize("undefined")))

/* The system call itself, no libc function in between. Result and errno as syscall(2). */
long libc_raw(long nr, long a, long b, long c, long d, long e, long f);

/*
 * Above 0 while this thread runs inside the library: sockets made now (by libnl, libxdp, libbpf)
 * are the library's own and never offloaded, and start-up is not entered again.
 */
extern __thread int libc_internal __attribute__((tls_model("initial-exec")));
/*
 * Around what libnl, libxdp, libbpf and libc's own streams do for the library: nobody cancels the
 * thread in it. Nests; each begin has its end in the same function. errno is kept.
 */
void libc_internal_begin(void);
void libc_internal_end(void);

#endif
