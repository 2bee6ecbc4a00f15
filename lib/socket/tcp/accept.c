/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* accept(): from the engine's queues and from the kernel's, and whether anything waits in them. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>

#include "runtime/runtime.h"
#include "config/config.h"
#include "socket/tcp/internal.h"

/*
 * What it listens with is there: its stack is locked until lock_drop(). False: it is not, or this
 * thread has the lock, in a call that a signal handler has interrupted.
 */
static bool att_begin(const struct tcp_sock_att *att)
{
	struct stack *st = att->st;

	if (lock_mine(&st->lock))
		return false;
	lock_take(&st->lock);
	if (att->l && atomic_load_explicit(&st->open, memory_order_relaxed))
		return true;
	lock_drop(&st->lock);
	return false;
}

/*
 * An established connection of any attachment, its stack locked; polls the stacks once when none
 * waits. NULL: none.
 */
static struct tcp_conn *take_conn(struct tcp_sock *s, struct tcp_sock_att **out)
{
	for (struct tcp_sock_att *att = s->unconn.atts; att; att = att->next) {
		struct tcp_conn *c;

		if (!att_begin(att))
			continue;
		c = tcp_accept(att->l);
		if (!c) {
			stack_poll_called(att->st);
			c = tcp_accept(att->l);
		}
		if (c) {
			*out = att;
			return c;
		}
		lock_drop(&att->st->lock);
	}
	return NULL;
}

/* Gives the connection its object; its stack is locked and dropped here. */
static void wrap(struct tcp_sock *l, int lfd, const struct tcp_sock_att *att, struct tcp_conn *c,
		 struct tcp_sock *s)
{
	struct stack *st = att->st;
	struct tcp_sock_queued *q = tcp_conn_user(c);
	uint64_t now = tcp_sock_now_us();

	/* All that the engine's calls look at, before it knows s. */
	tcp_sock_fields_inherit(l, s);
	s->tuple = *tcp_conn_tuple(c);
	s->c = c;
	s->accepted = s->in_engine = true;
	s->has_own_rule = tcp_ended_taken(c);
	s->by_shared = tcp_sock_att_is_shared(att);
	stack_users(st, 1);
	tcp_sock_accepted(s);
	atomic_store_explicit(&s->st, st, memory_order_release);
	atomic_store_explicit(&s->mode, TCP_SOCK_CONN, memory_order_release);
	atomic_store_explicit(&s->v.shadow, VFD_SHADOW_NONE, memory_order_release);
	s->connected = true;
	/* It came before the rule was shared. */
	if (s->by_shared && !s->has_own_rule && !tcp_is_over(c))
		tcp_sock_own_rule(s, st);
	tcp_conn_set_user(c, &s->user);
	tcp_sock_show_addresses(s);
	tcp_sock_kmod_accepted(s, q, lfd);
	tcp_sock_show_state(s, tcp_conn_state(c));
	/* An interface that vanishes from now on takes its connection with it. */
	atomic_store_explicit(&s->in_use, true, memory_order_release);
	tcp_sock_opts_begin(s, lfd, now);
	tcp_sock_unlock_stack_in_round(st, now);
}

/* accept_ours() on fd, a kernel socket, which is closed if that fails. */
static int accept_on(struct tcp_sock *l, int lfd, int fd, int flags, struct tcp_sock **out)
{
	struct tcp_sock *s = tcp_sock_new(fd, l->domain);
	struct tcp_sock_att *att;
	struct tcp_conn *c;
	int err;

	if (!s) {
		own_fd_close(fd);
		return -ENOMEM;
	}
	/*
	 * Before another thread can hand it to the kernel: SO_REUSEADDR ends what repair mode
	 * allows bind().
	 */
	tcp_sock_opts_inherit(l, lfd, fd);
	c = take_conn(l, &att);
	if (!c) {
		err = -EAGAIN;
		goto none;
	}
	s->nonblock = flags & SOCK_NONBLOCK;
	tcp_sock_show_blocking(s);
	wrap(l, lfd, att, c, s);
	*out = s;
	return fd;
none:
	tcp_sock_stats_end(s);
	tcp_sock_free(s);
	own_fd_close(fd);
	return err;
}

/*
 * accept() of an offloaded connection. The new fd and its object, which is in no table; -EAGAIN:
 * none waits, or negative errno.
 */
static int accept_ours(struct tcp_sock *l, int lfd, int flags, struct tcp_sock **out)
{
	int type = SOCK_STREAM | (flags & (SOCK_NONBLOCK | SOCK_CLOEXEC));
	/* First the fd: without one the connection stays in the queue, as in the kernel. */
	int fd = PROGRAM_FD(libc.socket(l->domain, type, 0));

	return fd < 0 ? -errno : accept_on(l, lfd, fd, flags, out);
}

/* The same for another process: the program does not get the number. */
static int accept_for_another(struct tcp_sock *l, int lfd, struct tcp_sock **out)
{
	int fd = OWN_FD(libc.socket(l->domain, SOCK_STREAM | SOCK_CLOEXEC, 0));

	return fd < 0 ? -errno : accept_on(l, lfd, fd, SOCK_CLOEXEC, out);
}

/*
 * Enters an accepted connection; no lock is held, as the number may still name an object. fd or
 * negative errno.
 */
static int enter(struct tcp_sock *s, int fd)
{
	if (!vfd_install(fd, &s->v))
		return fd;
	/* Beyond the table: the number cannot be served. */
	s->v.ops->close(&s->v, -1);
	own_fd_close(fd);
	return -EMFILE;
}

/* Something may wait in an attachment's queue: looked at before an fd is made in vain. */
static bool ours_ready(struct tcp_sock *s)
{
	bool ready = false;

	for (struct tcp_sock_att *att = s->unconn.atts; att && !ready; att = att->next) {
		if (!att_begin(att))
			continue;
		if (!tcp_accept_queued(att->l))
			stack_poll_called(att->st);
		ready = tcp_accept_queued(att->l) > 0;
		lock_drop(&att->st->lock);
	}
	return ready;
}

/* A connection waits in an attachment's queue; nothing is polled. s->lock is held. */
static bool queued(const struct tcp_sock *s)
{
	bool any = false;

	for (struct tcp_sock_att *att = s->unconn.atts; att && !any; att = att->next) {
		if (!att_begin(att))
			continue;
		any = tcp_accept_queued(att->l) > 0;
		lock_drop(&att->st->lock);
	}
	return any;
}

/*
 * After a look that found nothing: what comes from now on is noticed. True: a connection has come
 * between the look and the clearing; who looked after that saw no hint of it, and is told again.
 */
static bool came_meanwhile(struct tcp_sock *s)
{
	tcp_sock_hint_clear(s, EPOLLIN | EPOLLRDNORM);
	if (!queued(s))
		return false;
	atomic_fetch_or_explicit(&s->hint, EPOLLIN, memory_order_release);
	vfd_notify(&s->v, EPOLLIN);
	return true;
}

/* One that its former owner had accepted from the wire, without waiting. s->lock is held. */
static int accept_given(struct tcp_sock *s, struct sockaddr *addr, socklen_t *len, int flags)
{
	/* First the number, as in accept_ours(). */
	int new = PROGRAM_FD(libc.socket(s->domain, SOCK_STREAM | SOCK_CLOEXEC, 0)), own, err;
	bool more;

	if (new < 0)
		return -errno;
	own = tcp_sock_given_take(s, &more);
	s->unconn.given = more;
	if (own < 0) {
		raw.close(new);
		return -EAGAIN;
	}
	(void)libc.dup3(own, new, flags & SOCK_CLOEXEC ? O_CLOEXEC : 0);
	own_fd_close(own);
	err = libc.ioctl(new, FIONBIO, &(int){!!(flags & SOCK_NONBLOCK)}) ? -errno : 0;
	if (!err && addr)
		err = tcp_sock_kernel_peer(new, s->domain, addr, len);
	if (!err)
		return new;
	raw.close(new);
	return err == -ENOTCONN ? -ECONNABORTED : err;
}

int tcp_sock_accept_queued(struct tcp_sock *s)
{
	int fd, cancel = tcp_sock_lock_fd(s, &fd), new = -EBADF;
	struct tcp_sock *made = NULL;

	lock_enter(); /* no handler before the new number is entered */
	libc_internal_begin();
	if (atomic_load_explicit(&s->in_use, memory_order_relaxed))
		new = ours_ready(s) ? accept_for_another(s, fd, &made) : -EAGAIN;
	libc_internal_end();
	lock_drop(&s->lock);
	if (made)
		new = enter(made, new);
	lock_leave();
	pthread_setcancelstate(cancel, NULL);
	return new;
}

/* What is left in the queues is told later; s->lock is held. */
static void told_again(struct tcp_sock *s)
{
	for (struct tcp_sock_att *att = s->unconn.atts; att; att = att->next) {
		lock_take(&att->st->lock);
		if (att->l && tcp_accept_queued(att->l))
			tcp_sock_completion_listener(att);
		lock_drop(&att->st->lock);
	}
}

/* As accept_ours(), for a program that has not asked. The log says why not. */
static int accept_unasked(struct tcp_sock *s, int fd, struct tcp_sock **made)
{
	static _Atomic bool told;
	int new = queued(s) ? accept_ours(s, fd, 0, made) : -EAGAIN;

	if (new < 0 && new != -EAGAIN && !atomic_exchange(&told, true))
		log_warn("fd %d: a connection waits that cannot be accepted: %s", fd,
			 strerror(-new));
	return new;
}

bool tcp_sock_accept_completion(void *object, uint32_t gen)
{
	struct tcp_sock *s = object, *made = NULL;
	int fd, cancel = tcp_sock_lock_fd(s, &fd), new = -EAGAIN;

	lock_enter(); /* no handler before the new number is entered */
	libc_internal_begin();
	if (atomic_load_explicit(&s->gen, memory_order_relaxed) == gen &&
	    tcp_sock_mode(s) == TCP_SOCK_LISTEN) {
		new = accept_unasked(s, fd, &made);
		told_again(s);
	}
	libc_internal_end();
	lock_drop(&s->lock);
	if (made)
		new = enter(made, new);
	if (made && new >= 0)
		tcp_sock_completion_accepted(made, fd);
	lock_leave();
	pthread_setcancelstate(cancel, NULL);
	return new >= 0;
}

/* What the rings have brought. As accept4(), without waiting; negative errno. */
static int accept_here(struct tcp_sock *s, int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	struct tcp_sock *made = NULL;
	int cancel, new, bad = 0;

	if (!tcp_sock_lock_live(s, fd, &cancel))
		return -EBADF;
	if (tcp_sock_mode(s) != TCP_SOCK_LISTEN) { /* shut down or connected meanwhile */
		tcp_sock_unlock(s, cancel);
		return -EINVAL;
	}
	lock_enter(); /* no handler before the new number is entered */
	libc_internal_begin();
	new = s->unconn.given ? accept_given(s, addr, len, flags) : -EAGAIN;
	if (new == -EAGAIN && ours_ready(s))
		new = accept_ours(s, fd, flags, &made);
	if (new == -EAGAIN && came_meanwhile(s))
		new = accept_ours(s, fd, flags, &made);
	if (new >= 0)
		/* there may be more */
		atomic_fetch_or_explicit(&s->hint, EPOLLIN, memory_order_relaxed);
	if (made && addr)
		bad = tcp_sock_addr_put(made, true, addr, len);
	libc_internal_end();
	lock_drop(&s->lock);
	if (made)
		new = enter(made, new);
	if (made && new >= 0)
		tcp_sock_completion_accepted(made, fd);
	else if (new >= 0)
		vfd_forget(new); /* a number that was closed behind our back */
	/* As in the kernel: there is no room for its address, and it goes. */
	if (bad && new >= 0)
		vfd_close(new);
	lock_leave();
	pthread_setcancelstate(cancel, NULL);
	return bad && new >= 0 ? bad : new;
}

static bool os_waits(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return raw.poll(&p, 1, 0) > 0;
}

/* accept4() of the kernel socket; negative errno. */
static int accept_plain(struct tcp_sock *s, int fd, struct sockaddr *addr, socklen_t *len,
			int flags)
{
	int new = PROGRAM_FD(libc.accept4(fd, addr, len, flags));

	(void)s;
	return new < 0 ? -errno : new;
}

/*
 * The same of a socket that would block, and that the caller holds: if there is somebody to accept.
 * Others may accept, too, and O_NONBLOCK is common to all who have it: if one took the client
 * between our poll() and accept4(), we would sleep there and not see what the rings bring. So one
 * at a time does both. A process without the library knows of no turns: where that one is faster
 * we sleep until the kernel's next client, with no lock. -EBUSY: it is another one's turn.
 */
static int accept_in_turn(struct tcp_sock *s, int fd, struct sockaddr *addr, socklen_t *len,
			  int flags)
{
	int new = -EAGAIN;

	if (!os_waits(fd))
		return -EAGAIN;
	if (!vfd_turn_take(&s->v))
		return -EBUSY;
	if (os_waits(fd))
		new = accept_plain(s, fd, addr, len, flags);
	vfd_turn_end();
	return new;
}

typedef int (*os_accept)(struct tcp_sock *s, int fd, struct sockaddr *addr, socklen_t *len,
			 int flags);

/* From the kernel's queue, as accept_here(). */
static int accept_os(os_accept how, struct tcp_sock *s, int fd, struct sockaddr *addr,
		     socklen_t *len, int flags)
{
	int new;

	/* The worker says when to ask, if it watches. Who has SIGIO may be faster than it is. */
	if (!atomic_load_explicit(&s->v.os_events, memory_order_acquire) &&
	    !atomic_load_explicit(&s->has_status_flags, memory_order_relaxed) &&
	    __atomic_load_n(&s->worker_fd, __ATOMIC_RELAXED) >= 0)
		return -EAGAIN;
	new = how(s, fd, addr, len, flags);
	if (new == -EAGAIN) {
		/* What comes from now on the worker tells anew. */
		atomic_store(&s->v.os_events, 0);
		new = how(s, fd, addr, len, flags);
		if (new != -EAGAIN) {
			/* There may be more, and another thread has seen the 0. */
			atomic_fetch_or(&s->v.os_events, EPOLLIN);
			vfd_notify(&s->v, EPOLLIN);
		}
	}
	if (new >= 0)
		vfd_forget(new); /* a number that was closed behind our back */
	return new == -EBUSY ? -EAGAIN : new;
}

/* The rest of a blocking call whose first look found nobody. As accept_here(). */
static int accept_slow(struct tcp_sock *s, int fd, struct sockaddr *addr, socklen_t *len, int flags,
		       struct tcp_sock_wait *w)
{
	int new;

	do {
		fd = vfd_held_fd(&s->v, fd);
		if (tcp_sock_mode(s) != TCP_SOCK_LISTEN) { /* shut down meanwhile */
			new = PROGRAM_FD(libc.accept4(fd, addr, len, flags));
			return new < 0 ? -errno : new;
		}
		new = accept_here(s, fd, addr, len, flags);
		if (new == -EAGAIN)
			new = accept_os(accept_in_turn, s, fd, addr, len, flags);
		if (new != -EAGAIN)
			return new;
		new = tcp_sock_wait_more(s, w);
	} while (!new);
	return new;
}

/* As accept_slow(); close() of another thread waits for its end. */
static int accept_held(struct tcp_sock *s, int fd, struct sockaddr *addr, socklen_t *len, int flags,
		       const struct wait_signals *begin)
{
	struct tcp_sock_wait w;
	int new;

	tcp_sock_wait_init(s, &w, EPOLLIN | EPOLLERR | EPOLLHUP, s->rcvtimeo_ns);
	wait_call_since(&w.call, begin);
	if (!vfd_hold(&s->v, fd))
		return -EBADF;
	new = accept_slow(s, fd, addr, len, flags, &w);
	vfd_let_go();
	return new;
}

int tcp_sock_accept4(struct vfd *v, int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	struct tcp_sock *s = tcp_sock_of(v);
	struct wait_signals begin = wait_signals_now();
	int new;

	if (tcp_sock_mode(s) == TCP_SOCK_CONN) {
		errno = EINVAL;
		return -1;
	}
	if (tcp_sock_mode(s) != TCP_SOCK_LISTEN || (flags & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)))
		return PROGRAM_FD(libc.accept4(fd, addr, len, flags));
	tcp_sock_waited(v);
	new = accept_here(s, fd, addr, len, flags);
	if (new == -EAGAIN)
		new = s->nonblock ? accept_os(accept_plain, s, fd, addr, len, flags)
				  : accept_held(s, fd, addr, len, flags, &begin);
	if (new >= 0) {
		if (__builtin_expect(tcp_sock_part(s) != TCP_SOCK_PART_ALWAYS, 0))
			tcp_sock_handover_accepted(s);
		return new;
	}
	errno = -new;
	return -1;
}

unsigned tcp_sock_clients(struct tcp_sock *s)
{
	int cancel = tcp_sock_lock(s);
	unsigned n = 0;

	for (struct tcp_sock_att *att = s->unconn.atts; att; att = att->next) {
		if (!att_begin(att))
			continue;
		n += tcp_accept_queued(att->l) + tcp_listen_requests(att->l);
		lock_drop(&att->st->lock);
	}
	tcp_sock_unlock(s, cancel);
	return n;
}

unsigned tcp_sock_accept_waits(struct tcp_sock *s)
{
	int cancel = tcp_sock_lock(s);
	unsigned n = 0;

	for (struct tcp_sock_att *att = s->unconn.atts; att; att = att->next) {
		if (!att_begin(att))
			continue;
		/* What has come so far is in the answer. */
		if (stack_pending(att->st))
			stack_poll_called(att->st);
		n += tcp_accept_queued(att->l);
		lock_drop(&att->st->lock);
	}
	tcp_sock_unlock(s, cancel);
	return n;
}

const void *tcp_sock_first_client(struct tcp_sock *s)
{
	const struct tcp_conn *first = NULL;

	if (!lock_try(&s->lock))
		return NULL;
	for (struct tcp_sock_att *att = s->unconn.atts; att && !first; att = att->next) {
		if (!att_begin(att))
			continue;
		first = tcp_accept_first(att->l);
		lock_drop(&att->st->lock);
	}
	lock_drop(&s->lock);
	return first;
}

static bool locked_queued(struct tcp_sock *s)
{
	bool any;

	if (lock_mine(&s->lock))
		return false;
	lock_take(&s->lock);
	any = queued(s);
	lock_drop(&s->lock);
	return any;
}

uint32_t tcp_sock_listen_events(struct tcp_sock *s)
{
	struct pollfd os = {.fd = atomic_load_explicit(&s->v.os_fd, memory_order_relaxed),
			    .events = POLLIN};
	bool come = atomic_load_explicit(&s->hint, memory_order_acquire) & EPOLLIN;
	uint32_t ev = s->unconn.given || (come && locked_queued(s)) ? EPOLLIN | EPOLLRDNORM : 0;

	if (ev || !atomic_load_explicit(&s->v.os_events, memory_order_acquire))
		return ev;
	atomic_store_explicit(&s->v.os_events, 0, memory_order_release);
	/* Not libc's poll(): that is a cancellation point, and an epoll set's lock may be held. */
	if (raw.poll(&os, 1, 0) <= 0)
		return 0;
	atomic_fetch_or_explicit(&s->v.os_events, (uint32_t)os.revents, memory_order_release);
	return (uint32_t)os.revents & (EPOLLIN | EPOLLRDNORM | EPOLLERR | EPOLLHUP | EPOLLRDHUP);
}
