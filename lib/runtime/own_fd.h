/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The library's own descriptors. Each goes through OWN_FD() when it is made and own_fd_close() at
 * its end; scripts/own_fds holds it in `make lint`. They have numbers that the program never gets
 * (above its soft limit, where the hard limit leaves room), are closed by exec(), and are entered
 * here, so that preload keeps the program from closing and replacing them. A child of fork() has
 * the same entries as it has the same descriptors.
 *
 * What libraries under us open (libnl, libxdp, libbpf, libibverbs) comes back to preload's
 * functions, which enter it here while libc_internal is set.
 */
#ifndef RUNTIME_OWN_FD_H
#define RUNTIME_OWN_FD_H

#include <dirent.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Numbers from here on are never entered, and never chosen. */
#define OWN_FD_MAX (1u << 20)

extern _Atomic uint64_t own_fd_bits[OWN_FD_MAX / 64] __attribute__((visibility("hidden")));
/* OWN_FD()s that were begun, and those that are over: in between one has a number of the program's.
 */
extern _Atomic uint32_t own_fd_begun __attribute__((visibility("hidden")));
extern _Atomic uint32_t own_fd_over __attribute__((visibility("hidden")));

/* True: fd is the library's own. Any thread, no lock. */
static inline bool own_fd_is(int fd)
{
	return (unsigned)fd < OWN_FD_MAX &&
	       atomic_load_explicit(&own_fd_bits[(unsigned)fd / 64], memory_order_relaxed) >>
			       ((unsigned)fd % 64) &
		       1;
}

/* Of a limit below this some thirty descriptors of ours are too large a part. */
#define OWN_FD_LEAST 256u
/* Which have room above the soft limit if the hard one is so much higher. */
#define OWN_FDS_USUAL 64u
/*
 * 0: there are numbers that the program never gets, or enough of those that it gets. Else its
 * limit, of which we should have to take a part that it notices.
 */
unsigned own_fd_too_few(void);

/*
 * Around what gives the library a number of the program's until own_fd_adopt() has moved it; and
 * around what opens and closes a file without our seeing it (fopen() of a library under us).
 */
void own_fd_begin(void);
void own_fd_end(void);
/*
 * Around a call of the program's that closes whatever stands under a number, be it nothing of the
 * program's (a loop over all numbers, dup2(2) onto a free one), and around fork(): no OWN_FD() has
 * such a number meanwhile. Where a program's call blocks, it holds up OWN_FD() for milliseconds at
 * most. No OWN_FD() in between, no cancellation point.
 */
void own_fd_bar(void);
void own_fd_unbar(void);

/*
 * The descriptor that call (an expression which may run twice) makes, under a number of our own.
 * -1 and errno when it cannot be made. Also when the program has used up its limit: that is the
 * program's, not ours.
 */
#define OWN_FD(call)                                                                               \
	({                                                                                         \
		int own_fd_;                                                                       \
                                                                                                   \
		own_fd_begin();                                                                    \
		own_fd_ = (call);                                                                  \
		if (own_fd_ < 0 && errno == EMFILE && own_fd_room_begin()) {                       \
			own_fd_ = (call);                                                          \
			own_fd_room_end();                                                         \
		}                                                                                  \
		own_fd_ = own_fd_adopt(own_fd_);                                                   \
		own_fd_end();                                                                      \
		own_fd_;                                                                           \
	})

/* The same of a call that makes two, in fds, and returns 0 or -1. True; false and errno: none. */
#define OWN_FD_PAIR(call, fds)                                                                     \
	({                                                                                         \
		bool made_;                                                                        \
                                                                                                   \
		own_fd_begin();                                                                    \
		made_ = !(call) && own_fd_adopt_pair(fds);                                         \
		own_fd_end();                                                                      \
		made_;                                                                             \
	})

/*
 * So many bytes of memory (memfd_create(2), flags besides), which nobody can make smaller: another
 * one's access would end that process. -1 and errno.
 */
int own_fd_memory(const char *name, size_t bytes, unsigned flags);
/* fd, which another process has made, is such memory. */
bool own_fd_memory_is(int fd);

/*
 * The socket, pipe or set that call makes for the program. It has the lowest free number, as the
 * program may count on, also when the library had that one for a moment. Not of a file: a copy is
 * closed, and with it the process's record locks would go. -1 and errno as call.
 */
#define PROGRAM_FD(call) PROGRAM_FD_FROM(call, 0)
/* The same of a call that gives the lowest free number from least on (F_DUPFD, fcntl(2)). */
#define PROGRAM_FD_FROM(call, least)                                                               \
	({                                                                                         \
		uint32_t over_ = atomic_load(&own_fd_over);                                        \
		int program_fd_ = (call);                                                          \
                                                                                                   \
		if (__builtin_expect(atomic_load(&own_fd_begun) != over_, 0))                      \
			program_fd_ = own_fd_lowest(program_fd_, least);                           \
		program_fd_;                                                                       \
	})
/* fd, one that nobody knows yet, under the lowest free number from least on. -1 as it is. errno
 * stays. */
int own_fd_lowest(int fd, int least);

/*
 * fd, which was made just now, moved to a number of our own; fd is closed. A number below 0 is
 * returned as it is, errno kept. -1 and EMFILE when there is no number for it but a standard
 * descriptor's.
 */
int own_fd_adopt(int fd);
/* A copy of fd, a socket of the program's, under a number of our own; or -1. */
int own_fd_copy(int fd);
/* A non-blocking eventfd() with that count, or -1 and errno. */
int own_eventfd(unsigned count);
/* OWN_FD_PAIR()'s: false and errno when one cannot be kept; both are closed. */
bool own_fd_adopt_pair(int fds[2]);
/*
 * Closes fd, whether it is our own or (a child's, a socket's) not. No cancellation point. 0, or -1
 * and errno.
 */
int own_fd_close(int fd);
/* fd is not ours any more: it was closed by means that we do not see. -1 is none. */
void own_fd_lost(int fd);
/* The first own number at or above from; OWN_FD_MAX when there is none. */
unsigned own_fd_next(unsigned from);

/*
 * fopen() and opendir() under numbers of our own. mode as fopen()'s, with "e". NULL and errno. Both
 * are closed by the function beside them only.
 */
FILE *own_fopen(const char *path, const char *mode);
int own_fclose(FILE *f);
DIR *own_opendir(const char *path);
void own_closedir(DIR *d);

/*
 * OWN_FD() raises RLIMIT_NOFILE for a moment: who reads or sets it waits for the end of that. Also
 * around fork(), and from the look which numbers are our own to closing the others. Of this header
 * only own_fd_is() and own_fd_next() are called in between.
 */
void own_fd_limit_lock(void);
void own_fd_limit_unlock(void);
/* own_fd_limit_unlock() of the child. */
void own_fd_forked(void);
/* In the child of a thread that had not locked it, as others may have. */
void own_fd_forked_unprepared(void);
/*
 * From keep to unkeep nobody raises it: a process that is being made here gets it as it is. For
 * what takes long; OWN_FD() works meanwhile, with lower numbers.
 */
void own_fd_limit_keep(void);
void own_fd_limit_unkeep(void);
/* The process may have got the right to raise the hard limit. */
void own_fd_rights_changed(void);

/*
 * dup3(2) onto newfd, a number of ours. It stands above the soft limit as a rule, where the kernel
 * takes no number.
 */
int own_fd_dup3(int oldfd, int newfd, int flags);

/* OWN_FD()'s. From begin, if it returns true, to end other threads of the library wait. */
bool own_fd_room_begin(void);
void own_fd_room_end(void);

#endif
