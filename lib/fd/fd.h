/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The room of descriptors: the table from a number to the object behind it. preload looks an fd up
 * with one load and one compare, then calls the object's operations (struct vfd_ops) or libc.
 * Sockets and epoll sets are such objects and stand above this room; it knows only their
 * operations.
 *
 * Objects are type-stable: the memory of a closed one is reused only for the same kind, so a thread
 * that raced with close() reads a dead object, never foreign memory.
 *
 * Every call of the program: vfd_get(), inline; vfd_notify(), inline, when something has become
 * ready. Rare: table.c (open, dup, close, fork) and closing.c (numbers that are being
 * closed), turn.c (threads and processes that accept from one listener take turns).
 */
#ifndef FD_FD_H
#define FD_FD_H

#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "mellanox/vma_extra.h"
#include "runtime/runtime.h"
#include "vma/stats.h"

/*
 * fds at or above this number are never offloaded. The table is .bss: untouched pages cost nothing.
 */
#define VFD_MAX (1u << 20)

enum vfd_kind { VFD_UDP = 1, VFD_TCP, VFD_EPOLL, VFD_CLOSING };

/* What poll() and epoll ask the kernel about the shadow socket. */
enum vfd_shadow {
	VFD_SHADOW_IN, /* what has arrived there; user space answers for writing */
	VFD_SHADOW_ALL, /* everything: the kernel serves the socket for now */
	VFD_SHADOW_NONE, /* nothing: an idle TCP socket is hung up and writable for ever */
};

struct vfd;
struct wait_spin_memory;

/*
 * Results and errno as the libc function of that name. The fd is passed because several fds (dup)
 * can name one object. An operation that is NULL is libc's on the fd (the shadow socket or the
 * kernel epoll has the same number).
 */
/*
 * VMA_SND_FLAGS_DUMMY, a flag of send() and its like: no kernel socket may be given it, which would
 * send: -1 and EAGAIN.
 */
struct vfd_ops {
	int (*bind)(struct vfd *v, int fd, const struct sockaddr *addr, socklen_t len);
	int (*connect)(struct vfd *v, int fd, const struct sockaddr *addr, socklen_t len);
	int (*listen)(struct vfd *v, int fd, int backlog);
	int (*accept4)(struct vfd *v, int fd, struct sockaddr *addr, socklen_t *len, int flags);
	int (*shutdown)(struct vfd *v, int fd, int how);
	int (*getsockname)(struct vfd *v, int fd, struct sockaddr *addr, socklen_t *len);
	int (*getpeername)(struct vfd *v, int fd, struct sockaddr *addr, socklen_t *len);
	int (*getsockopt)(struct vfd *v, int fd, int level, int opt, void *val, socklen_t *len);
	int (*setsockopt)(struct vfd *v, int fd, int level, int opt, const void *val,
			  socklen_t len);
	int (*ioctl)(struct vfd *v, int fd, unsigned long req, void *arg);
	/* F_DUPFD* never come here; the value is the third argument, whatever its type. */
	int (*fcntl)(struct vfd *v, int fd, int cmd, long arg);
	ssize_t (*recvmsg)(struct vfd *v, int fd, struct msghdr *msg, int flags);
	ssize_t (*sendmsg)(struct vfd *v, int fd, const struct msghdr *msg, int flags);
	/*
	 * The short forms: one buffer, optional address, the fd and the flags in one word
	 * (vfd_call()), so that no argument goes by the stack. NULL: preload builds a msghdr. Who
	 * has one has the long form, too.
	 */
	ssize_t (*recvfrom)(struct vfd *v, void *buf, size_t len, uint64_t call,
			    struct sockaddr *addr, socklen_t *alen);
	ssize_t (*sendto)(struct vfd *v, const void *buf, size_t len, uint64_t call,
			  const struct sockaddr *addr, socklen_t alen);
	int (*recvmmsg)(struct vfd *v, int fd, struct mmsghdr *msgs, unsigned n, int flags,
			struct timespec *timeout);
	int (*sendmmsg)(struct vfd *v, int fd, struct mmsghdr *msgs, unsigned n, int flags);
	/*
	 * May be NULL, both. Bytes that a stream takes now, where a send does not wait for room
	 * (what waits in the ring may make more); else SIZE_MAX. And what of n bytes from pos of
	 * the file `in` is sent without a buffer between, as sendfile(2); the caller sees to the
	 * rest, 0: to all. No lock held.
	 */
	size_t (*room)(struct vfd *v);
	size_t (*send_file)(struct vfd *v, int in, off_t pos, size_t n);
	/*
	 * The last fd of this object in this process is being closed; the object is out of the
	 * table already, no handler runs and no cancellation. The operation closes the kernel fd
	 * itself, by vfd_release(), and returns its result. fd -1 (vfd_forget): the kernel closed
	 * the number or is about to; there is nothing to close but what the object owns besides.
	 */
	int (*close)(struct vfd *v, int fd);
	/*
	 * What poll() would say now, EPOLL* bits, user-space state only (no system call, no packet
	 * processing): iomux asks the kernel for the shadow socket's own readiness besides. Any
	 * thread, no lock held.
	 */
	uint32_t (*events)(struct vfd *v);
	/*
	 * Somebody is going to wait for the object by poll, select or epoll. No lock held; may be
	 * NULL.
	 */
	void (*waited)(struct vfd *v);
	/*
	 * May be NULL, both. What threads remember that wait for v alone; NULL: what they wait for
	 * is no connection's. One is about to sleep, as one of many (wait_is_crowded()), and holds
	 * v: true if the kernel serves v from now on.
	 */
	struct wait_spin_memory *(*alone)(struct vfd *v);
	bool (*crowded)(struct vfd *v);
	/* May be NULL: another process is to have it, too, and why; it keeps errno. */
	void (*share)(struct vfd *v, struct vma_stats_why why);
	/*
	 * May be NULL: vfd_give(). Who is given what is nothing yet means to use it; a program that
	 * is started (by system() between bind() and listen()) hardly ever does.
	 */
	void (*give)(struct vfd *v, struct vma_stats_why why);
	/* May be NULL, all of them; they keep errno. */
	/* A number of v is about to be closed or replaced by the kernel, not by ops->close. */
	void (*leaving)(struct vfd *v);
	/*
	 * v->os_fd has changed, and the number that it was is about to be closed: waits for whoever
	 * has read it under the object's lock. No lock held. Who has a worker or another thread use
	 * os_fd has this operation.
	 */
	void (*renumbered)(struct vfd *v);
	/* Of a set: a call waits in it just now. Adds to *calls how many have begun so far. */
	bool (*is_waited_in)(struct vfd *v, uint32_t *calls);
	/* A use that has no operation here: dup, epoll_ctl, what libc does by itself. */
	void (*touch)(struct vfd *v);
	/*
	 * This process forks: the child will have v's numbers, too. The table is locked, signals
	 * are blocked; no lock may be taken.
	 */
	void (*forking)(struct vfd *v);
	/*
	 * In the child: the object that v's numbers name there, always the same one. NULL: libc
	 * serves them, as any fd of the kernel.
	 */
	struct vfd *(*inherited)(struct vfd *v);
	/*
	 * Another call of this process may be progressed by polling the object's stacks; see
	 * stack_poll_all().
	 */
};

/*
 * Someone who wants to know that an object became ready (an epoll item, a sleeping poll or recv).
 * notify() runs with the object's watch_lock held and often a stack lock: it must not take either,
 * nor block.
 */
struct vfd_watch {
	struct vfd_watch *next, **pprev; /* v->watch_lock; pprev is NULL for the first */
	void (*notify)(struct vfd_watch *w, uint32_t events);
	struct vfd *set; /* whose it is; NULL: of a call that sleeps */
};

struct vfd {
	const struct vfd_ops *ops;
	uint8_t kind; /* enum vfd_kind */
	_Atomic bool has_turn; /* one of those that hold it (vfd_turn_take()) */
	_Atomic uint8_t shadow; /* enum vfd_shadow; vfd_shadow_changed() after a change */
	/*
	 * The program has closed its last number, and calls go on: os_fd is one of our own, which
	 * names the object until they are over. Changed under vfd_table_lock.
	 */
	_Atomic bool parked;
	_Atomic bool kernels; /* the kernel serves it until its end: see vfd_get_ours() */
	_Atomic uint16_t calls; /* how many hold it (vfd_hold(), vfd_ref()) */
	/* How many fds of this process name the object. Changed under vfd_table_lock. */
	_Atomic uint32_t nfds;
	/*
	 * One fd number by which the kernel object (shadow socket) can be reached; changes when
	 * that one is closed.
	 */
	_Atomic int os_fd;
	/*
	 * Set while the shadow socket may hold data or an error that user space has not taken (the
	 * worker's epoll says so).
	 */
	_Atomic uint32_t os_events;
	struct lock watch_lock;
	struct vfd_watch *_Atomic
		watches; /* NULL: nobody waits; checked without the lock on the fast path */
};

extern struct vfd *_Atomic vfd_table[VFD_MAX] __attribute__((visibility("hidden")));
/* How many numbers are in the table. 0: every poll() and select() goes to libc. */
extern _Atomic unsigned vfd_count __attribute__((visibility("hidden")));
/*
 * What a number names from the moment that vfd_close() has it until the kernel's socket is gone
 * from it: every operation fails with EBADF. Without it such a call would find nothing, go to the
 * kernel's socket and sleep there for ever.
 */
extern struct vfd vfd_closing __attribute__((visibility("hidden")));
/*
 * Takes an object that has no number left out of the sets that watch it. Called before ops->close,
 * whatever call closed it. Written once, by iomux before its first watch.
 */
extern void (*_Atomic vfd_unwatch)(struct vfd *v) __attribute__((visibility("hidden")));
/* Has the sets that watch v ask the kernel as v->shadow says now; written as vfd_unwatch. */
extern void (*_Atomic vfd_rewatch)(struct vfd *v) __attribute__((visibility("hidden")));
/*
 * Has v leave the sets that watch it, and its kernel socket stay in them as the user asked; written
 * as vfd_unwatch.
 */
extern void (*_Atomic vfd_watch_os)(struct vfd *v) __attribute__((visibility("hidden")));

/*
 * v (NULL: no) stands for a number that is being closed or kept: every call of it fails with EBADF.
 */
static inline bool vfd_is_closing(const struct vfd *v)
{
	return v && v->kind == VFD_CLOSING;
}

static inline uint64_t vfd_call(int fd, int flags)
{
	return (uint64_t)(uint32_t)flags << 32 | (uint32_t)fd;
}

static inline int vfd_call_fd(uint64_t call)
{
	return (int)(uint32_t)call;
}

static inline int vfd_call_flags(uint64_t call)
{
	return (int)(call >> 32);
}

static inline struct vfd *vfd_get(int fd)
{
	if (__builtin_expect((unsigned)fd >= VFD_MAX, 0))
		return NULL;
	return atomic_load_explicit(&vfd_table[fd], memory_order_acquire);
}

/*
 * What poll() and select() have to ask here: NULL for what is the kernel's alone, though it is in
 * the table still.
 */
static inline struct vfd *vfd_get_ours(int fd)
{
	struct vfd *v = vfd_get(fd);

	return v && !atomic_load_explicit(&v->kernels, memory_order_acquire) ? v : NULL;
}

/*
 * For ops->close: something is left to wait for (SO_LINGER). wait(v, arg) is called by the thread
 * that closes when the number is free, no lock is held, and handlers run again. v may be another's
 * by then: arg has to tell.
 */
void vfd_wait_after_close(struct vfd *v, void (*wait)(struct vfd *v, uint64_t arg), uint64_t arg);
/* Enters v under fd (nfds becomes 1). -EMFILE when fd is beyond the table. */
int vfd_install(int fd, struct vfd *v);
/*
 * Around the kernel's dup() of oldfd, or onto a number of the table: no number gets another object
 * meanwhile, and no handler runs. Close nothing else, and call nothing else of this room.
 */
struct vfd_dup {
	struct vfd *v;
	int cancel;
};
/* False and EBADF: oldfd is being closed, and vfd_dup_end() is not to be called. */
bool vfd_dup_begin(struct vfd_dup *d, int oldfd);
/* The same onto newfd: where another thread is closing that, its close() would take the copy. */
bool vfd_dup_onto(struct vfd_dup *d, int oldfd, int newfd);
/*
 * newfd is the copy, and names what oldfd named at the begin; -1: the kernel has made none. What it
 * named before is closed as by vfd_forget(). errno is kept.
 */
void vfd_dup_end(struct vfd_dup *d, int newfd);
/*
 * Closes fd: takes it from its object first, then ops->close for the last fd of the object,
 * vfd_release() otherwise. Returns close()'s result; for an fd that is not ours it is
 * libc.close(fd). EBADF while another close() of it is under way.
 */
int vfd_close(int fd);
/*
 * For ops->close: closes the kernel's fd of the number that vfd_close() has taken. close()'s
 * result.
 */
int vfd_release(int fd);
/* The same of a kernel socket whose close() neither lingers nor tells a peer. */
int vfd_release_idle(int fd);
/* The same where a thread that is still in a call on fd may be served by the kernel as before. */
int vfd_release_plain(int fd);
/*
 * closing.c: closes what the kernel has under fd but keeps the number taken, by something whose
 * every use fails with EBADF. When no descriptor is left for that, it does nothing.
 */
void vfd_vacate(int fd);
/*
 * closing.c: for ops->close in place of vfd_release(): the kernel's socket is gone from the number,
 * which stays taken and refuses everything until vfd_unkeep(). The result is what that wants; NULL:
 * out of memory, or the number is another's already.
 */
struct vfd *vfd_keep(int fd);
/* For vfd_fork_child(). */
void vfd_closing_forked(void);
/*
 * Frees a number that was kept, if no dup2() or close_range() has taken it meanwhile. Any lock but
 * the table's may be held.
 */
void vfd_unkeep(int fd, struct vfd *kept);
/*
 * The number names `to` (NULL: nothing) if it names `from` now; their counts of numbers stay as
 * they are.
 */
bool vfd_exchange(int fd, const struct vfd *from, struct vfd *to);
/*
 * A call that waits holds its object, as the kernel's holds the file: what close() leaves of an
 * object that is held goes when the last call lets go of it. Such a call reaches it by v->os_fd
 * from then on. What a thread that ends (pthread_cancel()) has not let go of is let go of for it.
 */
struct vfd_held {
	struct vfd *v;
	unsigned depth; /* calls within one another, all of them of v */
	bool turn; /* vfd_turn_take() */
};
/*
 * False: fd names v no more, and the call has no object (EBADF). Who asks for v's generation first
 * and then holds it sees by that whether a close() that had begun before ends it all the same. No
 * lock held, nor for the next.
 */
bool vfd_hold(struct vfd *v, int fd);
/* It may close the object, and then waits as close() (SO_LINGER). Keeps errno. */
void vfd_let_go(void);
/*
 * The same of what is held beside that (poll() of many), for as long as no handler of this thread
 * can run: vfd_unref() follows. What was closed before is seen afterwards. Keep errno.
 */
static inline void vfd_ref(struct vfd *v)
{
	atomic_fetch_add(&v->calls, 1);
}
void vfd_unref(struct vfd *v);
/* This thread holds v. */
bool vfd_holds(const struct vfd *v);
/* A number that names v, which the caller holds and has found under fd: fd, if it still does. */
static inline int vfd_held_fd(struct vfd *v, int fd)
{
	return __builtin_expect(vfd_get(fd) == v, 1)
		       ? fd
		       : atomic_load_explicit(&v->os_fd, memory_order_acquire);
}
/*
 * Around a function of the program's that runs in the middle of a call (a signal's handler), and
 * may never come back (longjmp()): this thread's calls hold nothing meanwhile. As in the kernel,
 * where a handler runs when the call has ended, and the call is made anew.
 */
struct vfd_held vfd_hold_pause(void);
void vfd_hold_resume(struct vfd_held paused);
/*
 * One at a time of the calls that hold v, in all processes that have its kernel socket, however
 * they have got it: true until vfd_turn_end(), the end of the hold, or a handler of the program's.
 * False: it is another one's turn.
 */
bool vfd_turn_take(struct vfd *v);
void vfd_turn_end(void);
/* turn.c: the same of who may be any thread */
bool vfd_turn_begin(struct vfd *v);
void vfd_turn_over(struct vfd *v);
/*
 * Before the kernel closes or replaces fd, or vfd_close() does: v->os_fd is another number then,
 * if there is one, and nobody uses fd by it. If it is the last one of an object that calls hold,
 * the object gets one that only they know; if nobody holds it, ops->close waits instead. errno is
 * kept.
 */
void vfd_park(int fd);
/*
 * Somebody else uses v's kernel socket by itself from now on: another process (SCM_RIGHTS), libc's
 * stdio, the kernel (io_uring). As ops->share, whatever v becomes.
 */
static inline void vfd_give(struct vfd *v, struct vma_stats_why why)
{
	if (v->ops->give)
		v->ops->give(v, why);
	else if (v->ops->share)
		v->ops->share(v, why);
}

/*
 * fd was or will be closed by the kernel without close() (exec, close_range): forget it, run
 * ops->close semantics without closing the number.
 */
void vfd_forget(int fd);
/*
 * v->shadow has another value: who watches v asks the kernel accordingly. No lock held; errno is
 * kept.
 */
void vfd_shadow_changed(struct vfd *v);
/*
 * Takes every number of v out of the table and v out of the sets that watch it; the kernel's fds
 * stay open, and from now on only the kernel serves them. No lock held; errno is kept. False: the
 * last one has been closed meanwhile, v is not the caller's.
 */
bool vfd_disown(struct vfd *v);
/*
 * newfd's file takes the place of v's kernel socket under every number that names v; newfd stays
 * the caller's. The sets that watch v learn of it by vfd_shadow_changed(). errno is kept.
 */
void vfd_replace_os(struct vfd *v, int newfd);
/* Highest fd in use in the table + 1 (for close_range, fork). */
int vfd_limit(void);

/*
 * An epoll set from before a fork() is going to be used, and nobody knows what is in it: runs every
 * ops->touch.
 */
void vfd_touch_all(void);

/*
 * Around fork(): prepare blocks changes of the table; the child starts with what each object in it
 * names as inherited (vfd_ops.inherited) (its other fds are plain kernel fds, the objects are the
 * parent's and nothing of theirs is run or freed). Signals are blocked from prepare on; in the
 * child until done, which comes when all that a handler of ours may need knows that it is in a
 * child.
 */
void vfd_fork_prepare(void);
void vfd_fork_parent(void);
void vfd_fork_child(void);
void vfd_fork_child_done(void);

void vfd_watch_add(struct vfd *v, struct vfd_watch *w);
/* After it returns, notify runs no more. */
void vfd_watch_del(struct vfd *v, struct vfd_watch *w);
void vfd_notify_slow(struct vfd *v, uint32_t events);
/*
 * A call waits for v just now, by itself or in a set. Adds to *calls how many have begun to wait in
 * the sets so far: who compares sees that there was one.
 */
bool vfd_is_waited_for(struct vfd *v, uint32_t *calls);
/* The set has v, or has a set that has it. */
bool vfd_is_in_set(struct vfd *v, const struct vfd *set);
/* A call begins to wait in the set; NULL: nobody wants to know. No lock held. */
extern void (*_Atomic vfd_set_waits)(struct vfd *set);

/* Tells the watchers, if there are any, that events (EPOLL*) became true. */
static inline void vfd_notify(struct vfd *v, uint32_t events)
{
	perturb_wake();
	if (__builtin_expect(atomic_load_explicit(&v->watches, memory_order_seq_cst) != NULL, 0))
		vfd_notify_slow(v, events);
}

#endif
