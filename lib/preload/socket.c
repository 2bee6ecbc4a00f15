/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Calls that make sockets, name them, and set their options. */
#include "preload/preload.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "extra/extra.h"
#include "preload/clone.h"
#include "preload/memory.h"
#include "preload/message.h"
#include "preload/start.h"
#include "preload/trace.h"
#include "preload/uring.h"
#include "config/config.h"
#include "mem/mem.h"
#include "socket/socket.h"
#include "socket/tcp/sock.h"
#include "socket/udp/sock.h"

/*
 * The application's own new AF_INET* socket: user space may serve it from now on, under the same
 * number.
 */
static void socket_offer(int fd, int domain, int type, int proto)
{
	int cancel;

	allocator_settle();
	/* Neither a signal handler nor a cancellation may meet the library half started. */
	cancel = lock_quiet_begin();
	/* UDP-Lite, SCTP and ICMP echo sockets have these types, too: they stay with the kernel. */
	if (library_start() == 0 && extra_offloads_here() && netns_is_ours(fd)) {
		if ((type & 0xf) == SOCK_DGRAM && (proto == 0 || proto == IPPROTO_UDP))
			udp_socket_created(fd, domain, type, proto);
		else if ((type & 0xf) == SOCK_STREAM && (proto == 0 || proto == IPPROTO_TCP))
			tcp_sock_socket_created(fd, domain, type, proto);
	}
	lock_quiet_end(cancel);
}

static int do_socket(int domain, int type, int proto)
{
	int fd = SOCKET_NEW(libc.socket(domain, type, proto));

	if (fd >= 0 && !libc_internal && (domain == AF_INET || domain == AF_INET6) &&
	    likely(!atomic_load_explicit(&uring_raw, memory_order_relaxed)))
		KEEPING_ERRNO(socket_offer(fd, domain, type, proto));
	return fd;
}

PRELOAD int socket(int domain, int type, int proto)
{
	int ret = do_socket(domain, type, proto);

	TRACE(ret, "socket(%s, %d)", TRACE_KIND(domain, type), proto);
	return ret;
}

static int do_bind(int fd, __CONST_SOCKADDR_ARG addr, socklen_t len)
{
	struct vfd *v = vfd_get(fd);

	if (likely(!v) || !v->ops->bind || !memory_addr(addr.__sockaddr__, len))
		return libc.bind(fd, addr.__sockaddr__, len);
	return KEEP_ERRNO(v->ops->bind(v, fd, addr.__sockaddr__, len));
}

PRELOAD int bind(int fd, __CONST_SOCKADDR_ARG addr, socklen_t len)
{
	int ret = do_bind(fd, addr, len);

	TRACE(ret, "bind(%d, %s)", fd, TRACE_ADDR(addr.__sockaddr__, len));
	return ret;
}

/* bindresvport(3)'s: from 600 on, as many as a round of them, then those below. */
#define RESERVED_LEAST 512u
#define RESERVED_FIRST 600u
#define RESERVED_ROUND (IPPORT_RESERVED - RESERVED_FIRST)
#define RESERVED_ALL (IPPORT_RESERVED - RESERVED_LEAST)

static uint16_t reserved_port(unsigned i)
{
	return (uint16_t)(i < RESERVED_ROUND
				  ? RESERVED_FIRST + ((unsigned)getpid() + i) % RESERVED_ROUND
				  : RESERVED_LEAST + i - RESERVED_ROUND);
}

/* libc's makes its bind() where it is not seen. */
static int bind_reserved(int fd, struct sockaddr_in *addr)
{
	int ret = -1;

	if (addr->sin_family != AF_INET)
		return fail(EAFNOSUPPORT);
	errno = EADDRINUSE;
	for (unsigned i = 0; ret && errno == EADDRINUSE && i < RESERVED_ALL; i++) {
		addr->sin_port = htons(reserved_port(i));
		ret = do_bind(fd, (const struct sockaddr *)addr, sizeof(*addr));
	}
	return ret;
}

static int do_bindresvport(int fd, struct sockaddr_in *addr)
{
	struct sockaddr_in any = {.sin_family = AF_INET};

	if (likely(!vfd_get(fd)))
		return libc.bindresvport(fd, addr);
	return KEEP_ERRNO(bind_reserved(fd, addr ? addr : &any));
}

PRELOAD int bindresvport(int fd, struct sockaddr_in *addr)
{
	int ret = do_bindresvport(fd, addr);

	TRACE(ret, "bindresvport(%d)", fd);
	return ret;
}

static int do_connect(int fd, __CONST_SOCKADDR_ARG addr, socklen_t len)
{
	struct vfd *v = vfd_get(fd);

	if (likely(!v) || !v->ops->connect || !memory_addr(addr.__sockaddr__, len))
		return libc.connect(fd, addr.__sockaddr__, len);
	return CANCELLABLE(v->ops->connect(v, fd, addr.__sockaddr__, len));
}

PRELOAD int connect(int fd, __CONST_SOCKADDR_ARG addr, socklen_t len)
{
	int ret = do_connect(fd, addr, len);

	TRACE(ret, "connect(%d, %s)", fd, TRACE_ADDR(addr.__sockaddr__, len));
	return ret;
}
PRELOAD_ALIAS(__connect, connect);

static int do_listen(int fd, int backlog)
{
	struct vfd *v = vfd_get(fd);

	if (likely(!v) || !v->ops->listen)
		return libc.listen(fd, backlog);
	return KEEP_ERRNO(v->ops->listen(v, fd, backlog));
}

PRELOAD int listen(int fd, int backlog)
{
	int ret = do_listen(fd, backlog);

	TRACE(ret, "listen(%d, %d)", fd, backlog);
	return ret;
}

/* As accept4() of a connection whose address cannot be given: it is lost, as in the kernel. */
static int accept_bad(struct vfd *v, int fd, int flags)
{
	int new = v->ops->accept4(v, fd, NULL, NULL, flags);

	if (new < 0)
		return new;
	vfd_close(new);
	return fail(EFAULT);
}

/* No address is wanted, or it can be given. */
static bool name_fits(const struct sockaddr *addr, const socklen_t *len)
{
	return !addr || memory_out(addr, len);
}

static int do_accept(int fd, __SOCKADDR_ARG addr, socklen_t *len)
{
	struct vfd *v = vfd_get(fd);

	if (likely(!v) || !v->ops->accept4)
		return fd_fresh(PROGRAM_FD(libc.accept(fd, addr.__sockaddr__, len)));
	if (unlikely(!name_fits(addr.__sockaddr__, len)))
		return CANCELLABLE(accept_bad(v, fd, 0));
	return CANCELLABLE(v->ops->accept4(v, fd, addr.__sockaddr__, len, 0));
}

PRELOAD int accept(int fd, __SOCKADDR_ARG addr, socklen_t *len)
{
	int ret = do_accept(fd, addr, len);

	TRACE(ret, "accept(%d%s)", fd, TRACE_GOT(ret, addr.__sockaddr__, len));
	return ret;
}

static int do_accept4(int fd, __SOCKADDR_ARG addr, socklen_t *len, int flags)
{
	struct vfd *v = vfd_get(fd);

	if (likely(!v) || !v->ops->accept4)
		return fd_fresh(PROGRAM_FD(libc.accept4(fd, addr.__sockaddr__, len, flags)));
	if (unlikely(!name_fits(addr.__sockaddr__, len)))
		return CANCELLABLE(accept_bad(v, fd, flags));
	return CANCELLABLE(v->ops->accept4(v, fd, addr.__sockaddr__, len, flags));
}

PRELOAD int accept4(int fd, __SOCKADDR_ARG addr, socklen_t *len, int flags)
{
	int ret = do_accept4(fd, addr, len, flags);

	TRACE(ret, "accept4(%d%s, flags 0x%x)", fd, TRACE_GOT(ret, addr.__sockaddr__, len),
	      (unsigned)flags);
	return ret;
}

static int do_shutdown(int fd, int how)
{
	struct vfd *v = vfd_get(fd);

	if (likely(!v) || !v->ops->shutdown)
		return libc.shutdown(fd, how);
	return KEEP_ERRNO(v->ops->shutdown(v, fd, how));
}

PRELOAD int shutdown(int fd, int how)
{
	int ret = do_shutdown(fd, how);

	TRACE(ret, "shutdown(%d, %s)", fd,
	      how == SHUT_RD	 ? "SHUT_RD"
	      : how == SHUT_WR	 ? "SHUT_WR"
	      : how == SHUT_RDWR ? "SHUT_RDWR"
				 : "?");
	return ret;
}

/*
 * VMA_TRIGGER_DUMMY_SEND_GETSOCKNAME: of so many bytes as the original's; nobody is told how it
 * went.
 */
static __attribute__((noinline)) void dummy_send(struct vfd *v, int fd)
{
	static const char nothing[264];

	if (v->ops->sendmsg)
		message_send(v, fd, nothing, sizeof(nothing), VMA_SND_FLAGS_DUMMY, NULL, 0);
}

/* As op, one of getsockname() and getpeername(), whose answer cannot be given. */
static int name_bad(int (*op)(struct vfd *v, int fd, struct sockaddr *addr, socklen_t *len),
		    struct vfd *v, int fd)
{
	struct sockaddr_storage addr;
	socklen_t len = sizeof(addr);

	return op(v, fd, (struct sockaddr *)&addr, &len) ? -1 : fail(EFAULT);
}

static int do_getsockname(int fd, __SOCKADDR_ARG addr, socklen_t *len)
{
	struct vfd *v = vfd_get(fd);

	if (likely(!v))
		return libc.getsockname(fd, addr.__sockaddr__, len);
	if (unlikely(params.trigger_dummy_send_getsockname))
		KEEPING_ERRNO(dummy_send(v, fd));
	if (!v->ops->getsockname)
		return libc.getsockname(fd, addr.__sockaddr__, len);
	if (unlikely(!memory_out(addr.__sockaddr__, len)))
		return KEEP_ERRNO(name_bad(v->ops->getsockname, v, fd));
	return KEEP_ERRNO(v->ops->getsockname(v, fd, addr.__sockaddr__, len));
}

PRELOAD int getsockname(int fd, __SOCKADDR_ARG addr, socklen_t *len)
{
	int ret = do_getsockname(fd, addr, len);

	TRACE(ret, "getsockname(%d%s)", fd, TRACE_GOT(ret, addr.__sockaddr__, len));
	return ret;
}

static int do_getpeername(int fd, __SOCKADDR_ARG addr, socklen_t *len)
{
	struct vfd *v = vfd_get(fd);

	if (likely(!v) || !v->ops->getpeername)
		return libc.getpeername(fd, addr.__sockaddr__, len);
	if (unlikely(!memory_out(addr.__sockaddr__, len)))
		return KEEP_ERRNO(name_bad(v->ops->getpeername, v, fd));
	return KEEP_ERRNO(v->ops->getpeername(v, fd, addr.__sockaddr__, len));
}

PRELOAD int getpeername(int fd, __SOCKADDR_ARG addr, socklen_t *len)
{
	int ret = do_getpeername(fd, addr, len);

	TRACE(ret, "getpeername(%d%s)", fd, TRACE_GOT(ret, addr.__sockaddr__, len));
	return ret;
}

/*
 * A pacing rate in the form of the Extra API. libc is asked first: it says so when val cannot be
 * read or written.
 */
static __attribute__((noinline)) int get_limit(struct vfd *v, int fd, void *val, socklen_t *len)
{
	socklen_t eight = sizeof(uint64_t);
	uint64_t rate = PACING_NONE;
	int err = libc.getsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, val, len);

	if (!err)
		err = v->ops->getsockopt(v, fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, &eight);
	if (err)
		return err;
	pacing_put(val, rate);
	*len = sizeof(struct pacing_limit);
	return 0;
}

static __attribute__((noinline)) int set_limit(struct vfd *v, int fd, const void *val,
					       socklen_t len)
{
	uint64_t rate;

	if (libc.setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, val, len))
		return -1;
	rate = pacing_of(val);
	return v->ops->setsockopt(v, fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof(rate));
}

/* The Extra API's table; a rule that is added by it must not be replaced by the file's. */
static __attribute__((noinline)) int get_api(void *val, socklen_t *len)
{
	int cancel;

	if (!memory_out(val, len))
		return fail(EFAULT);
	cancel = lock_quiet_begin();
	library_start();
	lock_quiet_end(cancel);
	return extra_get_api(val, len);
}

static int do_getsockopt(int fd, int level, int opt, void *val, socklen_t *len)
{
	struct vfd *v = vfd_get(fd);

	if (unlikely(opt == SO_VMA_GET_API && level == SOL_SOCKET))
		return KEEP_ERRNO(get_api(val, len));
	if (likely(!v) || !v->ops->getsockopt || !memory_out(val, len))
		return libc.getsockopt(fd, level, opt, val, len);
	if (unlikely(extra_is_option(level, opt)))
		return KEEP_ERRNO(extra_getsockopt(fd, opt, val, len));
	if (unlikely(len && pacing_is_limit(level, opt, *len)))
		return KEEP_ERRNO(get_limit(v, fd, val, len));
	return KEEP_ERRNO(v->ops->getsockopt(v, fd, level, opt, val, len));
}

PRELOAD int getsockopt(int fd, int level, int opt, void *val, socklen_t *len)
{
	int ret = do_getsockopt(fd, level, opt, val, len);

	TRACE(ret, "getsockopt(%d, %s%s)", fd, TRACE_OPTION(level, opt),
	      TRACE_GOT_VALUE(ret, val, len));
	return ret;
}

static int do_setsockopt(int fd, int level, int opt, const void *val, socklen_t len)
{
	struct vfd *v = vfd_get(fd);

	/* The kernel reads the length as an int, and refuses a negative one. */
	if (likely(!v) || !v->ops->setsockopt || len > INT32_MAX || !memory_ends(val, len))
		return libc.setsockopt(fd, level, opt, val, len);
	if (unlikely(extra_is_option(level, opt)))
		return KEEP_ERRNO(extra_setsockopt(fd, opt, val, len));
	if (unlikely(pacing_is_limit(level, opt, len)))
		return KEEP_ERRNO(set_limit(v, fd, val, len));
	return KEEP_ERRNO(v->ops->setsockopt(v, fd, level, opt, val, len));
}

PRELOAD int setsockopt(int fd, int level, int opt, const void *val, socklen_t len)
{
	int ret = do_setsockopt(fd, level, opt, val, len);

	TRACE(ret, "setsockopt(%d, %s, %s)", fd, TRACE_OPTION(level, opt), TRACE_VALUE(val, len));
	return ret;
}

/* What arg points to, for the requests that user space answers. */
static size_t ioctl_bytes(unsigned long req)
{
	switch (req) {
	case FIONREAD:
	case FIONBIO:
	case SIOCOUTQ:
	case SIOCOUTQNSD:
	case SIOCATMARK:
		return sizeof(int);
	case SIOCGSTAMP_OLD:
	case SIOCGSTAMPNS_OLD:
	case SIOCGSTAMP_NEW:
	case SIOCGSTAMPNS_NEW:
		return 2 * sizeof(long);
	default:
		return 0;
	}
}

static int do_ioctl(int fd, unsigned long req, void *arg)
{
	struct vfd *v = vfd_get(fd);

	if (likely(!v) || !v->ops->ioctl || !memory_ends(arg, ioctl_bytes(req)))
		return libc.ioctl(fd, req, arg);
	return KEEP_ERRNO(v->ops->ioctl(v, fd, req, arg));
}

PRELOAD int ioctl(int fd, unsigned long req, ...)
{
	va_list ap;
	void *arg;
	int ret;

	va_start(ap, req);
	arg = va_arg(ap, void *);
	va_end(ap);
	ret = do_ioctl(fd, req, arg);
	TRACE_FD(fd, ret, "ioctl(%d, 0x%lx)", fd, req);
	return ret;
}

PRELOAD int sockatmark(int fd)
{
	int at;

	return ioctl(fd, SIOCATMARK, &at) ? -1 : at;
}
