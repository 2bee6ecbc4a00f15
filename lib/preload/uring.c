/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * io_uring: the kernel carries out calls that stand in a ring, and it knows the kernel's sockets
 * only. A socket that a ring gets goes to the kernel before.
 *
 * liburing makes its system calls inside itself, but hands the ring over in the functions below:
 * what the entries that wait in it name is seen there. Programs that make the ring by syscall()
 * fill it by themselves, and nothing tells which sockets it will name: there all go, once and for
 * good.
 *
 * So does io_submit(2), which libaio calls, with the requests that it is given.
 */
#include "preload/uring.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/memory.h"
#include "preload/poll_calls.h"
#include "preload/preload.h"
#include "runtime/runtime.h"

_Atomic bool uring_raw;

/* The head of liburing's struct io_uring, which is its ABI (liburing.so.2). */
struct io_uring {
	unsigned *khead, *ktail, *kring_mask, *kring_entries, *kflags, *kdropped, *array;
	struct io_uring_sqe *sqes;
	unsigned sqe_head, sqe_tail; /* filled, and not handed over yet */
	size_t ring_size;
	void *ring;
	unsigned rest[4];
	/* of the completions */
	void *pointers[7];
	size_t cq_size;
	void *cq_ring;
	unsigned cq_rest[4];
	unsigned flags;
};

static void to_kernel(int fd)
{
	struct vfd *v = vfd_get(fd);

	if (v)
		KEEPING_ERRNO(vfd_give(v, STATS_WHY(IO_URING)));
}

static void registering(const int *fds, unsigned n)
{
	if (likely(table_empty()))
		return;
	memory_touch_begin();
	if (!memory_ends(fds, (size_t)n * sizeof(*fds)))
		return;
	for (unsigned i = 0; i < n; i++)
		to_kernel(fds[i]);
}

/* Newer than linux-libc-dev 6.1. */
enum {
	OP_WAITID = 50,
	OP_FUTEX_WAIT,
	OP_FUTEX_WAKE,
	OP_FUTEX_WAITV,
	OP_PIPE = 62,
};

/* What an entry names goes to the kernel. */
static void look_at(const struct io_uring_sqe *e)
{
	const bool fixed = e->flags & IOSQE_FIXED_FILE;

	switch (e->opcode) {
	case IORING_OP_CLOSE:
		if (fixed || e->file_index)
			return; /* one of the ring's own */
		to_kernel(e->fd);
		fd_stale(e->fd); /* the number goes without a close() */
		return;
	case IORING_OP_EPOLL_CTL:
		to_kernel(e->fd);
		to_kernel((int)e->off);
		return;
	/* Their first field is another thing: a domain, how many, whose end, flags. */
	case IORING_OP_SOCKET:
	case IORING_OP_PROVIDE_BUFFERS:
	case IORING_OP_REMOVE_BUFFERS:
	case OP_WAITID:
	case OP_FUTEX_WAIT:
	case OP_FUTEX_WAKE:
	case OP_FUTEX_WAITV:
	case OP_PIPE:
		return;
	case IORING_OP_FILES_UPDATE:
		registering((const int *)(uintptr_t)e->addr, e->len);
		return;
	case IORING_OP_SPLICE:
	case IORING_OP_TEE:
		if (!(e->splice_flags & SPLICE_F_FD_IN_FIXED))
			to_kernel(e->splice_fd_in);
		break;
	}
	if (!fixed)
		to_kernel(e->fd);
}

/* What stands in the ring and has not been handed over. */
static void handing_over(const struct io_uring *r)
{
	unsigned shift = r->flags & IORING_SETUP_SQE128 ? 1 : 0;

	if (likely(table_empty()))
		return;
	for (unsigned i = r->sqe_head; i != r->sqe_tail; i++)
		look_at(&r->sqes[(size_t)(i & *r->kring_mask) << shift]);
}

void uring_submitting(long n, struct iocb *const *list)
{
	if (likely(table_empty()))
		return;
	memory_touch_begin();
	for (long i = 0; i < n && memory_ends(&list[i], sizeof(list[i])); i++) {
		if (!memory_ends(list[i], sizeof(*list[i])))
			return; /* the kernel looks at no more */
		to_kernel((int)list[i]->aio_fildes);
	}
}

int uring_made_raw(int ring)
{
	if (ring < 0 || atomic_exchange(&uring_raw, true))
		return ring;
	for (int fd = 0; fd < vfd_limit(); fd++)
		to_kernel(fd);
	return ring;
}

/*
 * liburing's own function. The library that calls may have been loaded by dlopen(), where the next
 * one after us is not among the program's.
 */
static void *real(const char *name)
{
	void *fn = dlsym(RTLD_NEXT, name), *lib;

	if (fn)
		return fn;
	lib = dlopen("liburing.so.2", RTLD_LAZY | RTLD_NOLOAD);
	return lib ? dlsym(lib, name) : NULL;
}

/* Defines the function: look at what it hands over, then call liburing's. */
#define URING(name, params, args, look)                                                            \
	int name params;                                                                           \
	PRELOAD int name params                                                                    \
	{                                                                                          \
		static int(*_Atomic fn_) params;                                                   \
		int(*fn) params = atomic_load_explicit(&fn_, memory_order_acquire);                \
                                                                                                   \
		if (!fn) {                                                                         \
			fn = (int(*) params)real(#name);                                           \
			atomic_store_explicit(&fn_, fn, memory_order_release);                     \
		}                                                                                  \
		if (!fn)                                                                           \
			return -ENOSYS;                                                            \
		look;                                                                              \
		return fn args;                                                                    \
	}

int io_uring_setup(unsigned n, struct io_uring_params *p);

PRELOAD int io_uring_setup(unsigned n, struct io_uring_params *p)
{
	int ring = (int)syscall(SYS_io_uring_setup, n, p);

	return ring < 0 ? -errno : ring;
}

int io_submit(aio_context_t ring, long n, struct iocb **list);

/* libaio's is the bare call. */
PRELOAD int io_submit(aio_context_t ring, long n, struct iocb **list)
{
	int err = errno, ret;

	uring_submitting(n, list);
	ret = (int)libc_raw(SYS_io_submit, (long)ring, n, (long)(uintptr_t)list, 0, 0, 0);
	if (ret < 0)
		ret = -errno;
	errno = err;
	return ret;
}

URING(io_uring_submit, (struct io_uring * r), (r), handing_over(r))
URING(io_uring_submit_and_wait, (struct io_uring * r, unsigned n), (r, n), handing_over(r))
URING(io_uring_submit_and_wait_timeout,
      (struct io_uring * r, void *cqe, unsigned n, void *ts, sigset_t *mask), (r, cqe, n, ts, mask),
      handing_over(r))
URING(io_uring_submit_and_get_events, (struct io_uring * r), (r), handing_over(r))
URING(io_uring_register_files, (struct io_uring * r, const int *fds, unsigned n), (r, fds, n),
      registering(fds, n))
URING(io_uring_register_files_tags,
      (struct io_uring * r, const int *fds, const uint64_t *tags, unsigned n), (r, fds, tags, n),
      registering(fds, n))
URING(io_uring_register_files_update,
      (struct io_uring * r, unsigned off, const int *fds, unsigned n), (r, off, fds, n),
      registering(fds, n))
URING(io_uring_register_files_update_tag,
      (struct io_uring * r, unsigned off, const int *fds, const uint64_t *tags, unsigned n),
      (r, off, fds, tags, n), registering(fds, n))
