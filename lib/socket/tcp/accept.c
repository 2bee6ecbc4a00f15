/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* accept(): from the engine's queues and from the kernel's, and whether anything waits in them. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>

#include "runtime/libc.h"
#include "runtime/params.h"
#include "socket/tcp_int.h"

/* An established connection of any attachment, its stack locked; polls the stacks once when none waits. NULL: none. */
static struct tcp_conn *take_conn(struct tsock *s, struct tsock_att **out)
{
	for (struct tsock_att *att = s->spare.atts; att; att = att->next) {
		struct stack *st = att->st;
		struct tcp_conn *c = NULL;

		if (lock_mine(&st->lock))
			continue;
		lock_take(&st->lock);
		if (att->l && atomic_load_explicit(&st->open, memory_order_relaxed)) {
			c = tcp_accept(att->l);
			if (!c) {
				stack_poll_called(st);
				c = tcp_accept(att->l);
			}
		}
		if (c) {
			*out = att;
			return c;
		}
		lock_drop(&st->lock);
	}
	return NULL;
}

/* Gives the connection its object; its stack is locked and dropped here. */
static void wrap(struct tsock *l, int lfd, const struct tsock_att *att, struct tcp_conn *c, struct tsock *s, int fd)
{
	struct stack *st = att->st;
	struct tsock_queued *q = tcp_conn_user(c);

	/* All that the engine's calls look at, before it knows s. */
	tsock_fields_inherit(l, s);
	s->tuple = *tcp_conn_tuple(c);
	s->c = c;
	s->accepted = s->engine = true;
	s->own_rule = tsock_loose_taken(st->tcp, &s->tuple);
	stack_users(st, 1);
	atomic_store_explicit(&s->st, st, memory_order_release);
	atomic_store_explicit(&s->mode, TSOCK_CONN, memory_order_release);
	atomic_store_explicit(&s->v.shadow, VFD_SHADOW_NONE, memory_order_release);
	s->connected = true;
	if (att->spread)
		tsock_own_rule(s, st);
	tcp_conn_set_user(c, &s->user);
	tsock_show_addresses(s);
	tsock_kmod_accepted(s, q, lfd);
	tsock_show_state(s, tcp_conn_state(c));
	/* An interface that vanishes from now on takes its connection with it. */
	atomic_store_explicit(&s->in_use, true, memory_order_release);
	tsock_unlock_stack(st, tsock_now());
	tsock_opts_inherit(l, lfd, fd);
}

/* accept() of an offloaded connection. The new fd and its object, which is in no table; -EAGAIN: none waits, or negative errno. */
static int accept_ours(struct tsock *l, int lfd, int flags, struct tsock **out)
{
	struct tsock_att *att;
	struct tcp_conn *c;
	struct tsock *s;
	int fd, err;

	/* First the fd: without one the connection stays in the queue, as in the kernel. */
	fd = libc.socket(l->domain, SOCK_STREAM | (flags & (SOCK_NONBLOCK | SOCK_CLOEXEC)), 0);
	if (fd < 0)
		return -errno;
	s = tsock_new(fd, l->domain);
	if (!s) {
		libc.close(fd);
		return -ENOMEM;
	}
	c = take_conn(l, &att);
	if (!c) {
		err = -EAGAIN;
		goto none;
	}
	s->nonblock = flags & SOCK_NONBLOCK;
	tsock_show_blocking(s);
	wrap(l, lfd, att, c, s, fd);
	*out = s;
	return fd;
none:
	tsock_stats_end(s);
	tsock_free(s);
	libc.close(fd);
	return err;
}

/* Enters an accepted connection; no lock is held, as the number may still name an object. fd or negative errno. */
static int enter(struct tsock *s, int fd)
{
	if (!vfd_install(fd, &s->v))
		return fd;
	/* Beyond the table: the number cannot be served. */
	s->v.ops->close(&s->v, -1);
	libc.close(fd);
	return -EMFILE;
}

/* Something may wait in an attachment's queue: looked at before an fd is made in vain. */
static bool ours_ready(struct tsock *s)
{
	bool ready = false;

	for (struct tsock_att *att = s->spare.atts; att && !ready; att = att->next) {
		struct stack *st = att->st;

		if (lock_mine(&st->lock))
			continue;
		lock_take(&st->lock);
		if (att->l && atomic_load_explicit(&st->open, memory_order_relaxed)) {
			if (!tcp_accept_queued(att->l))
				stack_poll_called(st);
			ready = tcp_accept_queued(att->l) > 0;
		}
		lock_drop(&st->lock);
	}
	return ready;
}

/* From the kernel's queue, without waiting; s->lock is held, so no other thread of ours takes it away between. */
static int accept_os(struct tsock *s, int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int new;

	if (!atomic_load_explicit(&s->v.os_events, memory_order_acquire))
		return -EAGAIN;
	atomic_store_explicit(&s->v.os_events, 0, memory_order_release);
	if (!s->nonblock && libc.poll(&p, 1, 0) <= 0)
		return -EAGAIN;
	new = libc.accept4(fd, addr, len, flags);
	if (new < 0)
		return -errno;
	atomic_fetch_or_explicit(&s->v.os_events, EPOLLIN, memory_order_release); /* there may be more */
	return new;
}

static int accept_once(struct tsock *s, int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	int cancel = tsock_lock(s), new;
	struct tsock *made = NULL;

	if (!atomic_load_explicit(&s->in_use, memory_order_relaxed)) {
		tsock_unlock(s, cancel);
		return -EBADF;
	}
	lock_enter(); /* no handler before the new number is entered */
	libc_internal++;
	tsock_hint_clear(s, EPOLLIN | EPOLLRDNORM);
	new = ours_ready(s) ? accept_ours(s, fd, flags, &made) : -EAGAIN;
	if (new >= 0)
		atomic_fetch_or_explicit(&s->hint, EPOLLIN, memory_order_relaxed); /* there may be more */
	if (made)
		tsock_addr_put(made, true, addr, len);
	else if (new == -EAGAIN)
		new = accept_os(s, fd, addr, len, flags);
	libc_internal--;
	lock_drop(&s->lock);
	if (made)
		new = enter(made, new);
	else if (new >= 0)
		vfd_forget(new); /* a number that was closed behind our back */
	lock_leave();
	pthread_setcancelstate(cancel, NULL);
	return new;
}

int tsock_accept4(struct vfd *v, int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	struct tsock *s = tsock_of(v);
	struct tsock_wait w;
	int new;

	if (tsock_mode(s) == TSOCK_CONN) {
		errno = EINVAL;
		return -1;
	}
	if (tsock_mode(s) != TSOCK_LISTEN || (flags & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) || (addr && !len))
		return libc.accept4(fd, addr, len, flags);
	tsock_waited(v);
	tsock_wait_init(s, &w, EPOLLIN | EPOLLERR | EPOLLHUP, s->rcvtimeo_ns);
	for (;;) {
		if (tsock_mode(s) != TSOCK_LISTEN) /* shut down meanwhile */
			return libc.accept4(fd, addr, len, flags);
		new = accept_once(s, fd, addr, len, flags);
		if (new >= 0)
			return new;
		if (new == -EAGAIN && !s->nonblock)
			new = tsock_wait_more(s, fd, &w);
		if (new)
			break;
	}
	errno = -new;
	return -1;
}

/* A connection waits in an attachment's queue; nothing is polled. */
static bool queued(struct tsock *s)
{
	bool any = false;

	if (lock_mine(&s->lock))
		return false;
	lock_take(&s->lock);
	for (struct tsock_att *att = s->spare.atts; att && !any; att = att->next) {
		if (lock_mine(&att->st->lock))
			continue;
		lock_take(&att->st->lock);
		any = att->l && tcp_accept_queued(att->l);
		lock_drop(&att->st->lock);
	}
	lock_drop(&s->lock);
	return any;
}

uint32_t tsock_listen_events(struct tsock *s)
{
	struct pollfd os = { .fd = atomic_load_explicit(&s->v.os_fd, memory_order_relaxed), .events = POLLIN };
	struct timespec at_once = { 0 };
	bool come = atomic_load_explicit(&s->hint, memory_order_acquire) & EPOLLIN;
	uint32_t ev = come && queued(s) ? EPOLLIN | EPOLLRDNORM : 0;

	if (ev || !atomic_load_explicit(&s->v.os_events, memory_order_acquire))
		return ev;
	atomic_store_explicit(&s->v.os_events, 0, memory_order_release);
	/* Not libc's poll(): that is a cancellation point, and an epoll set's lock may be held. */
	if (libc_raw(SYS_ppoll, (long)(uintptr_t)&os, 1, (long)(uintptr_t)&at_once, 0, 0, 0) <= 0)
		return 0;
	atomic_fetch_or_explicit(&s->v.os_events, (uint32_t)os.revents, memory_order_release);
	return (uint32_t)os.revents & (EPOLLIN | EPOLLRDNORM | EPOLLERR | EPOLLHUP | EPOLLRDHUP);
}
