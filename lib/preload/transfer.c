/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * sendfile and splice to and from an object of ours: by copying, with the kernel calls' partial
 * results.
 */
#include "preload/preload.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#include "preload/memory.h"
#include "preload/message.h"

/* A multiple of the page, and room for the largest datagram. */
#define CHUNK 65536u
/* Where there is no room, or hardly any: to find out that there is none. */
#define CHUNK_LEAST 4096u

/*
 * A thread's, from its first such call to its end: a small stack has no room for it, and malloc() a
 * signal handler may have interrupted.
 */
struct room {
	char bytes[CHUNK];
	/* A call has it; a handler that interrupts that one makes another. */
	bool taken;
};

static pthread_key_t key;
static bool key_valid;

static void room_unmap(void *room)
{
	munmap(room, sizeof(struct room));
}

/* At the start, so that the key is one of the first 32: others may take memory by calloc(). */
__attribute__((constructor)) static void key_make(void)
{
	key_valid = pthread_key_create(&key, room_unmap) == 0;
}

static struct room *threads_own(void)
{
	return key_valid ? pthread_getspecific(key) : NULL;
}

/* NULL and errno: there is no memory. */
static struct room *room_take(void)
{
	struct room *r = threads_own();

	if (!r || r->taken) {
		r = mmap(NULL, sizeof(*r), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			 0);
		if (r == MAP_FAILED)
			return NULL;
		if (key_valid && !threads_own())
			pthread_setspecific(key, r);
	}
	r->taken = true;
	return r;
}

/* Keeps errno. */
static void room_give(struct room *r)
{
	if (r == threads_own())
		r->taken = false;
	else
		room_unmap(r);
}

/* call, of type ssize_t, with CHUNK bytes at buf, which it names; -1 without memory. */
#define WITH_ROOM(buf, call)                                                                       \
	({                                                                                         \
		struct room *room_ = room_take();                                                  \
		ssize_t moved_ = -1;                                                               \
                                                                                                   \
		if (room_) {                                                                       \
			char *buf = room_->bytes;                                                  \
                                                                                                   \
			moved_ = (call);                                                           \
			room_give(room_);                                                          \
		}                                                                                  \
		moved_;                                                                            \
	})

static size_t chunk_of(size_t n)
{
	return n < CHUNK ? n : CHUNK;
}

/* Of n bytes those that are read: what is not sent would have to be read again. */
static size_t readable(struct vfd *v, size_t n)
{
	size_t room = v->ops->room ? v->ops->room(v) : CHUNK;

	if (room < CHUNK_LEAST)
		room = CHUNK_LEAST;
	return chunk_of(n < room ? n : room);
}

/*
 * From pos of the file to the socket. Returns the bytes sent; -1 only when none were. What was read
 * but not sent is read again by the caller's next call, because only sent bytes move the position.
 */
static ssize_t send_file(struct vfd *v, int out, int in, off_t pos, size_t n, char *buf)
{
	size_t done = 0;

	while (done < n) {
		ssize_t got = pread(in, buf, readable(v, n - done), pos + (off_t)done);
		ssize_t sent;

		if (got == 0)
			break;
		if (got < 0 && errno == EISDIR)
			errno = EINVAL; /* sendfile(2) of a folder; read(2) has a word for it */
		sent = got < 0 ? -1 : message_send(v, out, buf, (size_t)got, 0, NULL, 0);
		if (sent < 0)
			return done ? (ssize_t)done : -1;
		done += (size_t)sent;
		if (sent < got)
			break;
	}
	return (ssize_t)done;
}

/* The same, without buf as far as that can be. */
static ssize_t send_from(struct vfd *v, int out, int in, off_t pos, size_t n)
{
	size_t done = v->ops->send_file ? v->ops->send_file(v, in, pos, n) : 0;
	ssize_t rest = 0;

	if (done < n)
		rest = WITH_ROOM(buf, send_file(v, out, in, pos + (off_t)done, n - done, buf));
	if (rest < 0)
		return done ? (ssize_t)done : -1;
	return (ssize_t)done + rest;
}

static ssize_t sendfile_ours(struct vfd *v, int out, int in, off_t *off, size_t n)
{
	off_t pos = off ? *off : lseek(in, 0, SEEK_CUR);
	ssize_t ret;

	if (pos < 0)
		return off ? fail(EINVAL) : fail(errno == ESPIPE ? EINVAL : errno);
	ret = send_from(v, out, in, pos, message_most(n));
	if (ret < 0)
		return off && errno == ESPIPE ? fail(ESPIPE) : ret;
	if (off)
		*off = pos + ret;
	else
		lseek(in, pos + ret, SEEK_SET);
	return ret;
}

PRELOAD ssize_t sendfile(int out, int in, off_t *off, size_t n)
{
	struct vfd *v = vfd_get(out);

	/* So much the kernel refuses, whatever the descriptors are. */
	if (likely(!v) || !v->ops->sendmsg || n > SSIZE_MAX || !memory_optional(off, sizeof(*off)))
		return libc.sendfile(out, in, off, n);
	return KEEP_ERRNO(sendfile_ours(v, out, in, off, n));
}
PRELOAD_ALIAS(sendfile64, sendfile);

/* Reads and drops n bytes of the pipe that are known to be there. */
static void pipe_drop(int pipe_fd, char *buf, size_t n)
{
	while (n) {
		ssize_t got = libc.read(pipe_fd, buf, chunk_of(n));

		if (got <= 0)
			return;
		n -= (size_t)got;
	}
}

/*
 * Pipe to socket. The bytes stay in the pipe until they are sent: tee() copies them to a pipe of
 * our own first. It also gives the errors and the end of file that splice() has for the input.
 */
static ssize_t splice_out(struct vfd *v, int in, int out, size_t n, unsigned flags, char *buf)
{
	int copy[2];
	ssize_t got, sent;

	if (!OWN_FD_PAIR(libc.pipe2(copy, O_CLOEXEC), copy))
		return -1;
	got = libc.tee(in, copy[1], chunk_of(n), flags & SPLICE_F_NONBLOCK);
	if (got > 0)
		got = libc.read(copy[0], buf, (size_t)got);
	sent = got <= 0 ? got
			: message_send(v, out, buf, (size_t)got,
				       flags & SPLICE_F_MORE ? MSG_MORE : 0, NULL, 0);
	if (sent > 0)
		pipe_drop(in, buf, (size_t)sent);
	own_fd_close(copy[0]);
	own_fd_close(copy[1]);
	return sent;
}

/* What poll() says of one pipe to write to, POLL* bits; -1 and 0 as poll(). */
static int pipe_wait(int pipe_fd, int msec)
{
	struct pollfd p = {.fd = pipe_fd, .events = POLLOUT};
	int ready = libc.poll(&p, 1, msec);

	/* A limit of 0 is none to splice(), but to poll(): raw's has none, and is not cancelled. */
	if (ready < 0 && errno == EINVAL)
		ready = raw.poll(&p, 1, msec);
	return ready > 0 ? p.revents : ready;
}

/* Waits until the pipe takes bytes. How many it surely takes, or -1. */
static ssize_t pipe_room(int pipe_fd, unsigned flags)
{
	int size = libc.fcntl(pipe_fd, F_GETPIPE_SZ), used = 0;
	int how = libc.fcntl(pipe_fd, F_GETFL);
	int block = !(flags & SPLICE_F_NONBLOCK) && !(how & O_NONBLOCK);
	int ready;

	if (how >= 0 && (how & O_ACCMODE) == O_RDONLY)
		return fail(EBADF); /* a pipe's other end never has room */
	if (size < 0)
		return fail(EINVAL); /* neither side is a pipe */
	ready = pipe_wait(pipe_fd, block ? -1 : 0);
	if (ready <= 0)
		return ready < 0 ? -1 : fail(EAGAIN);
	if (ready & POLLERR) {
		raise(SIGPIPE); /* nobody reads: what is received now would be lost */
		return fail(EPIPE);
	}
	if (libc.ioctl(pipe_fd, FIONREAD, &used) < 0)
		return -1;
	/* Nearly empty slots count as used ones: a page is what POLLOUT promises. */
	return used == 0 ? size : 4096;
}

/*
 * Socket to pipe. Bytes taken from the socket must reach the pipe, so the end of the write is
 * waited for.
 */
static ssize_t splice_in(struct vfd *v, int in, int out, size_t n, unsigned flags, char *buf)
{
	ssize_t room = pipe_room(out, flags), got, done = 0;

	if (room < 0)
		return -1;
	got = message_recv(v, in, buf, chunk_of(n < (size_t)room ? n : (size_t)room),
			   flags & SPLICE_F_NONBLOCK ? MSG_DONTWAIT : 0, NULL, NULL);
	while (done < got) {
		ssize_t put = libc.write(out, buf + done, (size_t)(got - done));

		if (put >= 0)
			done += put;
		else if (errno == EAGAIN)
			pipe_wait(out, -1);
		else if (errno != EINTR)
			return done ? done : -1;
	}
	return got;
}

PRELOAD ssize_t splice(int in, off64_t *ioff, int out, off64_t *ooff, size_t n, unsigned flags)
{
	struct vfd *from = vfd_get(in), *to = vfd_get(out);

	/*
	 * An offset on a socket, unknown flags, and no pipe at all: the kernel refuses them in its
	 * own order.
	 */
	if (likely(!from && !to) || ioff || ooff || n == 0 || (from && to) ||
	    (flags & ~(SPLICE_F_MOVE | SPLICE_F_NONBLOCK | SPLICE_F_MORE | SPLICE_F_GIFT)))
		return libc.splice(in, ioff, out, ooff, n, flags);
	if (to && to->ops->sendmsg)
		return CANCELLABLE(WITH_ROOM(buf, splice_out(to, in, out, n, flags, buf)));
	if (from && from->ops->recvmsg)
		return CANCELLABLE(WITH_ROOM(buf, splice_in(from, in, out, n, flags, buf)));
	return libc.splice(in, ioff, out, ooff, n, flags);
}

/* These two are between pipes: a socket gets the kernel's EINVAL or EBADF through its shadow. */
PRELOAD ssize_t tee(int in, int out, size_t n, unsigned flags)
{
	return libc.tee(in, out, n, flags);
}

PRELOAD ssize_t vmsplice(int fd, const struct iovec *iov, size_t n, unsigned flags)
{
	return libc.vmsplice(fd, iov, n, flags);
}
