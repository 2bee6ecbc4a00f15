/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A connection is handed to the kernel: the kernel socket behind its fd takes it over where the
 * engine stands, by TCP_REPAIR, and the peer notices nothing. From then on every call is the
 * kernel's.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "socket/socket.h"
#include "handover/internal.h"
#include "runtime/runtime.h"
#include "config/config.h"
#include "vma/sockopt_numbers.h"

#define KERNEL_CLOSE 7 /* tcpi_state: TCP_CLOSE, which linux/tcp.h does not have */
#define CHUNK 65536u
/*
 * A call that shares a connection looks so often whether its receive callback has decided, and that
 * long: the callback may wait for something that the call's thread has.
 */
#define DECIDES_NS 200000
#define DECIDES_US 3000000u
/* What we send to a kernel socket arrives so soon, or not at all. */
#define ARRIVES_NS 100000
#define ARRIVES_TRIES 2000u
#define ARRIVES_AGAIN 50u /* where the last one did not */
/* The kernel's TCP_MIN_MSS and MAX_TCP_WINDOW: between them lies a TCP_MAXSEG. */
#define MAXSEG_LEAST 88
#define MAXSEG_MOST 32767
#define UNSCALED_WINDOW 65535
#define OPT_MSS 2u /* TCPOPT_* as TCP_REPAIR_OPTIONS wants them */
#define OPT_WSCALE 3u
#define OPT_SACK 4u
#define OPT_TS 8u

#define CAPS_MOVE (CAPS_BIT(CAP_NET_ADMIN) | CAPS_BIT(CAP_NET_BIND_SERVICE))

static int set(int fd, int level, int opt, int v)
{
	return libc.setsockopt(fd, level, opt, &v, sizeof(v)) ? -errno : 0;
}

static int get(int fd, int level, int opt)
{
	int v = 0;
	socklen_t len = sizeof(v);

	return libc.getsockopt(fd, level, opt, &v, &len) ? 0 : v;
}

static int set_seq(int fd, int queue, uint32_t seq)
{
	int err = set(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, queue);

	return err ? err : set(fd, IPPROTO_TCP, TCP_QUEUE_SEQ, (int)seq);
}

/* Not malloc(), which a handler that calls recv() may have interrupted. NULL: no memory. */
static uint8_t *room_make(void)
{
	void *p = (void *)(uintptr_t)libc_raw(SYS_mmap, 0, CHUNK, PROT_READ | PROT_WRITE,
					      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

/* [seq, end) of one of the engine's queues into the kernel's. */
static int fill(struct tcp_conn *c, int fd, bool received, uint32_t seq, uint32_t end)
{
	uint8_t *room = seq == end ? NULL : room_make();
	int err = seq == end || room ? 0 : -ENOMEM;

	while (!err && seq != end) {
		uint32_t n = end - seq < CHUNK ? end - seq : CHUNK;
		ssize_t sent;

		if ((received ? tcp_export_received(c, seq, room, n)
			      : tcp_export_unacked(c, seq, room, n)) != n) {
			err = -EIO;
			break;
		}
		sent = raw.send(fd, room, n, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (sent <= 0)
			err = sent ? -errno : -EIO;
		else
			seq += (uint32_t)sent;
	}
	if (room)
		libc_raw(SYS_munmap, (long)(uintptr_t)room, CHUNK, 0, 0, 0, 0);
	return err;
}

/* TCP_MAXSEG, 0: the program has set none. */
static uint16_t maxseg_of(const struct tcp_sock *s)
{
	return s->c ? tcp_get_opts(s->c)->maxseg : 0;
}

/* What the peer takes, and the program wants sent. */
static uint16_t mss_of(const struct tcp_sock *s, const struct tcp_image *im)
{
	uint16_t users = maxseg_of(s);

	return users && users < im->peer_mss ? users : im->peer_mss;
}

/*
 * What the kernel takes from a SYN|ACK, and a connection in repair mode has none: without it it
 * sends segments of 524 bytes for ever, and scales a window that the peer reads as it is. Before
 * connect(); settle() sets what the user has set.
 */
static int set_limits(const struct tcp_sock *s, int fd, const struct tcp_image *im)
{
	int maxseg = mss_of(s, im);

	if (!im->wscale_ok)
		(void)set(fd, IPPROTO_TCP, TCP_WINDOW_CLAMP, UNSCALED_WINDOW);
	if (maxseg > MAXSEG_MOST)
		maxseg = MAXSEG_MOST;
	return set(fd, IPPROTO_TCP, TCP_MAXSEG, maxseg > MAXSEG_LEAST ? maxseg : MAXSEG_LEAST);
}

/* The kernel socket's own address. 0 or negative errno. */
static int own_name(int fd, struct in6_addr *addr, uint16_t *port)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	uint32_t scope;

	if (libc.getsockname(fd, (struct sockaddr *)&ss, &len))
		return -errno;
	return sock_addr_get((struct sockaddr *)&ss, len, addr, port, &scope) ? 0 : -EAFNOSUPPORT;
}

/* A socket that is bound to no address would go on with the one that the routes say by now. */
static int check_name(const struct tcp_sock *s, int fd)
{
	struct in6_addr addr;
	uint16_t port = 0;
	int err = own_name(fd, &addr, &port);

	if (err)
		return err;
	return port == s->tuple.lport && !memcmp(&addr, &s->tuple.local, sizeof(addr))
		       ? 0
		       : -EADDRNOTAVAIL;
}

/* The kernel socket gets the two addresses; it may have the local port already (a client's). */
static int name(const struct tcp_sock *s, int fd)
{
	struct sockaddr_storage ss;
	socklen_t len;
	struct in6_addr addr;
	uint16_t port = 0;
	int err = own_name(fd, &addr, &port);

	if (err)
		return err;
	if (!port) {
		len = sizeof(ss);
		tcp_sock_addr_put(s, false, (struct sockaddr *)&ss, &len);
		if (libc.bind(fd, (struct sockaddr *)&ss, len))
			return -errno;
	}
	len = sizeof(ss);
	tcp_sock_addr_put(s, true, (struct sockaddr *)&ss, &len);
	return raw.connect(fd, (struct sockaddr *)&ss, len) ? -errno : check_name(s, fd);
}

/*
 * An odd number would mean that it counts microseconds (Linux 6.7). It may be a millisecond ahead,
 * and must not be behind.
 */
static int set_timestamp(int fd, uint32_t tsval)
{
	return set(fd, IPPROTO_TCP, TCP_TIMESTAMP, (int)((tsval + 1) & ~1u));
}

static int set_options(const struct tcp_sock *s, int fd, const struct tcp_image *im)
{
	struct tcp_repair_opt o[4];
	unsigned n = 0;

	if (im->sack_ok)
		o[n++] = (struct tcp_repair_opt){OPT_SACK, 0};
	if (im->wscale_ok)
		o[n++] = (struct tcp_repair_opt){OPT_WSCALE,
						 im->snd_wscale | (uint32_t)im->rcv_wscale << 16};
	if (im->ts_ok)
		o[n++] = (struct tcp_repair_opt){OPT_TS, 0};
	o[n++] = (struct tcp_repair_opt){OPT_MSS, mss_of(s, im)};
	if (libc.setsockopt(fd, IPPROTO_TCP, TCP_REPAIR_OPTIONS, o, n * sizeof(o[0])))
		return -errno;
	return im->ts_ok ? set_timestamp(fd, im->tsval) : 0;
}

/* snd_wnd: what may be in flight, in bytes. */
static int set_window(int fd, const struct tcp_image *im, uint32_t snd_wnd)
{
	struct tcp_repair_window w = {
		.snd_wl1 = im->snd_wl1,
		.snd_wnd = snd_wnd,
		.max_window = im->max_wnd,
		.rcv_wnd = im->rcv_wnd,
		.rcv_wup = im->rcv_wup,
	};

	return libc.setsockopt(fd, IPPROTO_TCP, TCP_REPAIR_WINDOW, &w, sizeof(w)) ? -errno : 0;
}

/* Room for what the queues hold: the kernel counts its own overhead, too. */
static void make_room(int fd, const struct tcp_image *im)
{
	(void)set(fd, SOL_SOCKET, SO_SNDBUFFORCE,
		  (int)(2 * (im->write_seq - im->snd_una) + (1u << 20)));
	(void)set(fd, SOL_SOCKET, SO_RCVBUFFORCE,
		  (int)(2 * (im->rcv_nxt - im->copied_seq + im->rcv_wnd) + (1u << 18)));
}

/* All but the unsent data and the FINs, the socket in repair mode: it says nothing. */
static int restore(struct tcp_sock *s, int fd, const struct tcp_image *im)
{
	int err = set(fd, IPPROTO_TCP, TCP_REPAIR, 1);

	if (err)
		return err;
	/* The connect() below is not one that waits for data to take along. */
	(void)set(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 0);
	make_room(fd, im);
	err = set_seq(fd, TCP_SEND_QUEUE, im->snd_una);
	if (!err)
		err = set_seq(fd, TCP_RECV_QUEUE, im->copied_seq);
	if (!err)
		err = set_limits(s, fd, im);
	if (!err)
		err = name(s, fd);
	/* It has done what it was for; a user's own is set at the end. */
	if (!err)
		err = set(fd, IPPROTO_TCP, TCP_MAXSEG, 0);
	if (!err)
		err = set_options(s, fd, im);
	if (!err)
		err = fill(s->c, fd, true, im->copied_seq, im->rcv_nxt);
	if (!err)
		err = set(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, TCP_SEND_QUEUE);
	if (!err)
		err = fill(s->c, fd, false, im->snd_una, im->snd_nxt);
	if (!err)
		err = set_window(fd, im, im->snd_wnd);
	if (!err)
		err = set(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, TCP_NO_QUEUE);
	return err;
}

static void disconnect(int fd)
{
	struct sockaddr any = {.sa_family = AF_UNSPEC};

	(void)raw.connect(fd, &any, sizeof(any));
}

/* The kernel socket is nobody's connection again. In repair mode nothing is sent. */
static void undo(const struct tcp_sock *s, int fd, int reuse)
{
	(void)set(fd, IPPROTO_TCP, TCP_REPAIR, TCP_REPAIR_ON);
	disconnect(fd);
	(void)set(fd, IPPROTO_TCP, TCP_MAXSEG, maxseg_of(s));
	(void)set(fd, IPPROTO_TCP, TCP_REPAIR, 0);
	if (reuse) /* repair mode has cleared it */
		(void)set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
	(void)get(fd, SOL_SOCKET, SO_ERROR);
}

/*
 * A rule of its own: it goes before any other and steers the segments to us, where they are
 * dropped, until the kernel is ready.
 */
int tcp_sock_hold_segments(struct tcp_sock *s, struct stack *st, int fd)
{
	struct vma_flow_info info = {.pid = (uint32_t)getpid(), .fd = (uint32_t)fd};
	struct vma_flow_key key;
	int err;

	if (s->has_own_rule || s->on_block)
		return 0;
	tcp_sock_key(&s->tuple, true, &key);
	err = st->ring->ops->flow_add(st->ring, &key, &info);
	s->has_own_rule = !err;
	return err;
}

static void release_segments(struct tcp_sock *s, struct stack *st)
{
	struct vma_flow_key key;

	/*
	 * A listener's rule leaves to the kernel what it has a socket for, but only while it is
	 * told to look.
	 */
	st->ring->ops->port_quiet(st->ring, s->tuple.lport, false);
	st->tcp->to_kernel++;
	if (s->on_block) {
		tcp_sock_block_to_kernel(s, st);
		return;
	}
	tcp_sock_suspend_rule(&s->tuple, st);
	tcp_sock_key(&s->tuple, true, &key);
	st->ring->ops->flow_del(st->ring, &key);
	s->has_own_rule = false;
}

/* Whose FIN comes first is the difference between LAST_ACK and CLOSING. */
static int fins(int fd, const struct tcp_image *im)
{
	bool crossed = im->state == TCPS_CLOSING;
	int err = im->fin_rcvd && !crossed ? tcp_sock_fin_replay(im) : 0;

	if (!err && im->fin_queued && libc.shutdown(fd, SHUT_WR))
		err = -errno;
	return !err && crossed ? tcp_sock_fin_replay(im) : err;
}

/* The peer has reset it since: it is what it would be had it been the kernel's all the time. */
static bool is_over(int fd)
{
	struct tcp_info info;
	socklen_t len = sizeof(info);

	return !libc.getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) &&
	       info.tcpi_state == KERNEL_CLOSE;
}

/*
 * What was not sent yet goes into the kernel's queue while the peer's segments are held: of a RST
 * send() would be told, and then nobody. Nothing leaves, since the window is shut meanwhile: an
 * answer would be lost. Repair mode, before and after.
 */
static int queue_rest(const struct tcp_sock *s, int fd, const struct tcp_image *im)
{
	int err = set_window(fd, im, 0);

	if (!err && tcp_get_opts(s->c)->cork)
		err = set(fd, IPPROTO_TCP, TCP_CORK, 1);
	if (!err)
		err = set(fd, IPPROTO_TCP, TCP_REPAIR, TCP_REPAIR_OFF_NO_WP);
	if (!err)
		err = fill(s->c, fd, false, im->snd_nxt, im->write_seq);
	if (!err)
		err = set(fd, IPPROTO_TCP, TCP_REPAIR, TCP_REPAIR_ON);
	return err ? err : set_window(fd, im, im->snd_wnd);
}

/*
 * Out of repair mode, by a probe: the peer says again what nobody has heard. The rest leaves now,
 * and not with the answer; under a cork only full segments of it may, which the answer lets go.
 */
static int speak(const struct tcp_sock *s, int fd, const struct tcp_image *im)
{
	int err = set(fd, IPPROTO_TCP, TCP_REPAIR, TCP_REPAIR_OFF);

	if (!err && im->snd_nxt != im->write_seq && !tcp_get_opts(s->c)->cork)
		err = set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	return err;
}

/* The kernel socket has the connection: what the program has set of it holds there. */
static void settle(struct tcp_sock *s, int fd)
{
	/* Buffers that the user has not fixed grow by themselves again. */
	(void)set(fd, SOL_SOCKET, SO_BUF_LOCK, 0);
	tcp_sock_opts_to_kernel(s, fd, tcp_get_opts(s->c));
	tcp_sock_flags_sync(s, fd);
}

/* The peer is heard again, and the FINs are where they were. */
static void go_on(struct tcp_sock *s, int fd, const struct tcp_image *im, int reuse)
{
	int err = speak(s, fd, im);

	if (reuse)
		(void)set(fd, SOL_SOCKET, SO_REUSEADDR, 1); /* repair mode has cleared it */
	if (!err)
		err = fins(fd, im);
	if (!err && im->shut_rd)
		(void)libc.shutdown(fd, SHUT_RD);
	/* Of a stream without its middle neither side may see the rest: both see ECONNRESET. */
	if (err && !is_over(fd)) {
		log_error("fd %d: a connection went to the kernel, but not all of it: %s: it is "
			  "reset",
			  fd, strerror(-err));
		disconnect(fd);
	}
	settle(s, fd);
}

/* st->lock is held. The caller has the engine forget the connection. */
static void mark_moved(struct tcp_sock *s)
{
	s->in_kernel = s->unconn.no_offload = true;
	tcp_sock_figures_end(s);
	tcp_sock_show_left(s);
	atomic_store_explicit(&s->v.shadow, VFD_SHADOW_ALL, memory_order_release);
	atomic_store_explicit(&s->mode, TCP_SOCK_KERNEL, memory_order_release);
	tcp_sock_kmod_del(s);
}

void tcp_sock_leave_engine(struct tcp_sock *s, struct stack *st, uint64_t now)
{
	release_segments(s, st);
	mark_moved(s);
	tcp_forget(s->c, now);
}

/* connect() of a kernel socket, begun. 0 or negative errno. */
static int begin_there(int fd, const struct sockaddr_storage *to, socklen_t len)
{
	int flags = raw.fcntl(fd, F_GETFL), err = 0;
	bool blocks = flags >= 0 && !(flags & O_NONBLOCK);

	if (blocks)
		(void)raw.fcntl(fd, F_SETFL, flags | O_NONBLOCK);
	/* Who has been told EINPROGRESS waits for a handshake, not to send something. */
	(void)set(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 0);
	if (raw.connect(fd, (const struct sockaddr *)to, len) && errno != EINPROGRESS)
		err = -errno;
	if (blocks)
		(void)raw.fcntl(fd, F_SETFL, flags);
	return err;
}

/* The library leaves: the kernel connects anew where nobody has answered a SYN. */
static _Atomic bool syns_move;

void tcp_sock_syns_to_kernel(void)
{
	atomic_store(&syns_move, true);
}

static bool is_unanswered(const struct tcp_conn *c)
{
	return tcp_syn_is_held(c) ||
	       (atomic_load(&syns_move) && tcp_conn_state(c) == TCPS_SYN_SENT && !tcp_outq(c));
}

/*
 * The SYN of s counts for nothing: the kernel makes the connection, from the same port. st is
 * locked.
 */
static void move_held(struct tcp_sock *s, struct stack *st, int fd, uint64_t now)
{
	struct sockaddr_storage to;
	socklen_t len = sizeof(to);
	int err;

	tcp_sock_addr_put(s, true, (struct sockaddr *)&to, &len);
	tcp_sock_opts_to_kernel(s, fd, tcp_get_opts(s->c));
	tcp_sock_flags_sync(s, fd);
	tcp_sock_leave_engine(s, st, now);
	err = begin_there(fd, &to, len);
	/* As if its SYN had failed: nobody waits in a call to be told now. */
	if (err)
		atomic_store_explicit(&s->pending_error, (uint16_t)-err, memory_order_relaxed);
}

/* Our FIN: in repair mode it is not sent, but counts as sent. */
static int fin_unsent(int fd)
{
	int err = set(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, TCP_SEND_QUEUE);

	return !err && libc.shutdown(fd, SHUT_WR) ? -errno : err;
}

/* The kernel ends what both sides have ended. */
static int end_again(int fd, const struct tcp_image *im, int reuse)
{
	int err = fin_unsent(fd);

	if (!err)
		err = set(fd, IPPROTO_TCP, TCP_REPAIR, 0);
	if (reuse) /* repair mode has cleared it */
		(void)set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
	return err ? err : tcp_sock_fin_acked(im);
}

/* Where a firewall takes what ends it, each would cost the time: it is waited for in vain once. */
static int wait_until_over(int fd)
{
	static _Atomic unsigned tries = ARRIVES_TRIES;
	unsigned most = atomic_load_explicit(&tries, memory_order_relaxed);
	bool over = is_over(fd);

	for (unsigned i = 0; i < most && !over; i++) {
		clock_sleep_ns(ARRIVES_NS);
		over = is_over(fd);
	}
	atomic_store_explicit(&tries, over ? ARRIVES_TRIES : ARRIVES_AGAIN, memory_order_relaxed);
	return over ? 0 : -ETIMEDOUT;
}

/*
 * The kernel's connection, restored and in repair mode, ends as im's has, of which no TIME_WAIT is
 * left: by FINs where there were some, and by a RST in any case. After FINs both ways that is no
 * error, and the RST leaves none.
 */
static int end_there(int fd, const struct tcp_image *im)
{
	int err = im->fin_queued ? fin_unsent(fd) : 0;

	if (!err)
		err = set(fd, IPPROTO_TCP, TCP_REPAIR, TCP_REPAIR_OFF_NO_WP);
	if (!err && im->fin_rcvd)
		err = tcp_sock_fin_replay(im);
	if (!err)
		err = tcp_sock_rst_replay(im);
	if (!err)
		err = wait_until_over(fd);
	if (!err && !im->so_error)
		(void)get(fd, SOL_SOCKET, SO_ERROR);
	return err;
}

/* What has ended in fd: its end is the kernel's now, and nothing of it stays here. */
static void leave_ended(struct tcp_sock *s, int fd, uint64_t now)
{
	settle(s, fd);
	mark_moved(s);
	tcp_conn_set_user(s->c, NULL);
	tcp_abort(s->c, now);
	tcp_sock_conn_over(s);
}

/* The peer knows of the end, or nobody will ask. */
static int move_over(struct tcp_sock *s, int fd, const struct tcp_image *im, uint64_t now)
{
	int reuse = get(fd, SOL_SOCKET, SO_REUSEADDR), err = restore(s, fd, im);

	if (!err)
		err = end_there(fd, im);
	if (err) {
		undo(s, fd, reuse);
		return err;
	}
	if (reuse)
		(void)set(fd, SOL_SOCKET, SO_REUSEADDR, 1); /* repair mode has cleared it */
	leave_ended(s, fd, now);
	return 0;
}

/* The peer's FIN may come again: the kernel has the TIME_WAIT, too. */
static int move_with_time_wait(struct tcp_sock *s, struct stack *st, int fd,
			       const struct tcp_image *im, uint64_t now)
{
	int reuse = get(fd, SOL_SOCKET, SO_REUSEADDR), err = tcp_sock_hold_segments(s, st, fd);

	if (err)
		return err;
	err = restore(s, fd, im);
	if (!err)
		err = end_again(fd, im, reuse);
	if (err) {
		undo(s, fd, reuse);
		return err;
	}
	(void)wait_until_over(fd); /* or the peer says its FIN again */
	release_segments(s, st);
	tcp_forget_time_wait(st->tcp->ts, &s->tuple, now);
	leave_ended(s, fd, now);
	return 0;
}

/* One that has ended: whoever has it besides reads what had come, and is told of the end. */
static int move_ended(struct tcp_sock *s, struct stack *st, int fd, uint64_t now)
{
	struct tcp_image im;
	int err = tcp_export_ended(s->c, &im);

	/* Afterwards it would be a connection that lives. */
	if (!err)
		err = tcp_sock_fin_may_replay(&im);
	if (err)
		return err;
	return tcp_is_over(s->c) ? move_over(s, fd, &im, now)
				 : move_with_time_wait(s, st, fd, &im, now);
}

static int move_as_is(struct tcp_sock *s, struct stack *st, int fd, uint64_t now)
{
	struct tcp_image im;
	int reuse, err;

	if (tcp_conn_state(s->c) == TCPS_CLOSED)
		return move_ended(s, st, fd, now);
	if (is_unanswered(s->c)) {
		move_held(s, st, fd, now);
		return 0;
	}
	reuse = get(fd, SOL_SOCKET, SO_REUSEADDR);
	err = tcp_export(s->c, &im);
	/* Afterwards there is no way back. */
	if (!err && im.fin_rcvd)
		err = tcp_sock_fin_may_replay(&im);
	if (!err)
		err = tcp_sock_hold_segments(s, st, fd);
	if (err)
		return err;
	err = restore(s, fd, &im);
	if (!err && im.snd_nxt != im.write_seq)
		err = queue_rest(s, fd, &im);
	if (err) {
		undo(s, fd, reuse);
		return err;
	}
	release_segments(s, st);
	go_on(s, fd, &im, reuse);
	mark_moved(s);
	tcp_forget(s->c, now);
	return 0;
}

/*
 * The connection of s, st locked, is moved. The caller answers who has claimed it. What that takes
 * is not effective after seteuid(): TCP_REPAIR wants CAP_NET_ADMIN, bind() to a low port the other.
 */
static int move(struct tcp_sock *s, struct stack *st, int fd, uint64_t now)
{
	struct caps_sets before = caps_raise(CAPS_MOVE);
	int err = move_as_is(s, st, fd, now);

	caps_lower(&before);
	return err;
}

/*
 * A handshake that is under way cannot be moved, and who waits for its end waits in the kernel,
 * which begins one of its own. As move().
 */
static int begin_anew(struct tcp_sock *s, struct stack *st, int fd, uint64_t now)
{
	if (!tcp_take_back_syn(s->c, now))
		return -EOPNOTSUPP;
	/* Before the kernel's SYN. */
	st->tcp->posted = false;
	ring_kick(st->ring);
	move_held(s, st, fd, now);
	return 0;
}

/* Who asks the kernel from now on would ask a socket that is none of the connection's. */
static bool is_for_the_kernels_users(uint8_t why)
{
	return why == VMA_WHY_ASYNC || why == VMA_WHY_IO_URING || why == VMA_WHY_STDIO ||
	       why == VMA_WHY_PASSED;
}

static int move_for(struct tcp_sock *s, struct stack *st, int fd, uint8_t why, uint64_t now)
{
	int err = move(s, st, fd, now);

	if (err != -EOPNOTSUPP || !is_for_the_kernels_users(why))
		return err;
	return begin_anew(s, st, fd, now);
}

/* What poll() says of a connection of the kernel's: sends without a copy, an error of connect(). */
static bool is_still_told_here(const struct tcp_sock *s)
{
	return atomic_load(&s->zc_told) != atomic_load(&s->zc_next) ||
	       atomic_load_explicit(&s->pending_error, memory_order_relaxed);
}

/* waits: says what keeps the connection here for now; st->lock is held. As tcp_sock_to_kernel(). */
static int hand_over(struct tcp_sock *s, struct vma_stats_why why,
		     bool (*waits)(struct tcp_sock *s, uint64_t now))
{
	int fd = -1, err = -ENOTCONN, cancel = tcp_sock_lock(s);
	struct stack *st = tcp_sock_mode(s) == TCP_SOCK_CONN ? tcp_sock_conn_lock(s) : NULL;
	uint64_t now = tcp_sock_now_us(), claim = tcp_sock_claim_of(s);
	char text[STATS_WHY_TEXT];

	libc_internal_begin();
	if (st) {
		/* What has arrived need not be sent again. */
		if (atomic_load_explicit(&st->open, memory_order_relaxed))
			stack_poll(st, (unsigned)params.cq_poll_batch_max);
		if (s->c && !s->closed && atomic_load_explicit(&st->open, memory_order_relaxed)) {
			fd = tcp_sock_conn_fd(s);
			err = waits(s, now) ? -EBUSY : move_for(s, st, fd, why.reason, now);
			/* Whoever has the kernel socket besides is left alone with it. */
			if (err == -EOPNOTSUPP)
				tcp_sock_opts_sync(s, fd);
		}
		tcp_sock_unlock_stack(st, now);
	}
	if (!err) {
		atomic_store_explicit(&s->st, NULL, memory_order_release);
		atomic_store_explicit(&s->v.kernels, !is_still_told_here(s), memory_order_release);
		/* Whoever waits looks again, at the kernel. */
		atomic_fetch_or_explicit(&s->hint, EPOLLIN | EPOLLOUT | EPOLLRDHUP,
					 memory_order_release);
		if (why.reason)
			stats_why(tcp_sock_shown(s), fd, VMA_WHY_SOCKET, why);
		else
			log_debug("fd %d goes on through the kernel: the process ends", fd);
	}
	libc_internal_end();
	tcp_sock_unlock(s, cancel);
	if (!err) {
		vfd_shadow_changed(&s->v);
		/* Not before: to the child's next step the sets here know the kernel socket. */
		tcp_sock_claim_in_kernel(s, claim);
		vfd_notify(&s->v, EPOLLIN | EPOLLOUT | EPOLLRDHUP);
	} else if (err != -ENOTCONN && err != -EOPNOTSUPP && err != -EBUSY) {
		log_at(why.reason == VMA_WHY_CROWD ? LOG_DEBUG : LOG_WARN,
		       "fd %d cannot be handed to the kernel (%s): %s", fd,
		       why.reason ? stats_why_text(text, &why) : "the process ends",
		       strerror(-err));
	}
	return err;
}

int tcp_sock_to_kernel(struct tcp_sock *s, struct vma_stats_why why)
{
	return hand_over(s, why, tcp_sock_show_awaited);
}

int tcp_sock_to_kernel_unless(struct tcp_sock *s, struct vma_stats_why why,
			      bool (*stays)(struct tcp_sock *s, uint64_t now))
{
	return hand_over(s, why, stays);
}

static bool waits_for_nothing(struct tcp_sock *s, uint64_t now)
{
	(void)s;
	(void)now;
	return false;
}

int tcp_sock_to_kernel_now(struct tcp_sock *s, struct vma_stats_why why)
{
	return hand_over(s, why, waits_for_nothing);
}

static bool is_over_for_all(struct tcp_sock *s, uint64_t now)
{
	(void)now;
	return tcp_conn_state(s->c) == TCPS_CLOSED && !tcp_sock_has_copies(s);
}

int tcp_sock_to_kernel_last(struct tcp_sock *s)
{
	return hand_over(s, STATS_WHY(NONE), is_over_for_all);
}

void tcp_sock_decided(struct tcp_sock *s)
{
	(void)tcp_sock_to_kernel(s, STATS_WHY(FORK));
}

bool tcp_sock_to_kernel_allowed(void)
{
	struct caps_sets before = caps_raise(CAPS_BIT(CAP_NET_ADMIN));
	int fd = OWN_FD(libc.socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	bool allowed = fd >= 0 && !set(fd, IPPROTO_TCP, TCP_REPAIR, 1);

	caps_lower(&before);
	if (fd >= 0)
		own_fd_close(fd);
	return allowed;
}

/* A kernel socket that is made like s. The fd, or negative errno. */
static int new_fd(const struct tcp_sock *s)
{
	int mark = (int)s->mark, ifindex = s->bound_if,
	    fd = OWN_FD(libc.socket(s->domain, SOCK_STREAM | SOCK_CLOEXEC, 0));
	struct caps_sets before;

	if (fd < 0)
		return -errno;
	/*
	 * It must not be in the way of who listens next: as an accepted one has it from its
	 * listener.
	 */
	(void)set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
	if (!mark && !ifindex)
		return fd;
	before = caps_raise(CAPS_BIT(CAP_NET_ADMIN) | CAPS_BIT(CAP_NET_RAW));
	if (mark)
		(void)set(fd, SOL_SOCKET, SO_MARK, mark);
	if (ifindex)
		(void)set(fd, SOL_SOCKET, SO_BINDTOIFINDEX, ifindex);
	caps_lower(&before);
	return fd;
}

/*
 * A kernel socket for an orphan: the one that has kept its port, or a new one. It is s's from here
 * on. st->lock is held.
 */
static int orphan_fd(struct tcp_sock *s)
{
	static const struct linger off;

	if (s->port_fd < 0)
		return s->port_fd = new_fd(s);
	/* The user's close() has lingered already. */
	(void)libc.setsockopt(s->port_fd, SOL_SOCKET, SO_LINGER, &off, sizeof(off));
	return s->port_fd;
}

/*
 * Of an accepted one: it may have SO_REUSEPORT from its listener, and the next one is not to be
 * refused for it. When it is bound: before, the kernel would take the port for one that is shared.
 */
static void share_port(const struct tcp_sock *s, int fd)
{
	if (s->counted)
		(void)set(fd, SOL_SOCKET, SO_REUSEPORT, 1);
}

int tcp_sock_orphan_to_kernel(struct tcp_sock *s)
{
	struct stack *st = tcp_sock_conn_lock(s);
	int fd, err = -ENOTCONN;
	uint64_t now = tcp_sock_now_us(), claim = tcp_sock_claim_of(s);

	if (!st)
		return err;
	libc_internal_begin();
	if (s->closed && s->in_engine && atomic_load_explicit(&st->open, memory_order_relaxed)) {
		fd = orphan_fd(s);
		err = fd < 0 ? fd : move(s, st, fd, now);
		if (!err) {
			share_port(s, fd);
			tcp_sock_claim_in_kernel(s, claim);
		}
	}
	libc_internal_end();
	/* Says TCP_EV_GONE: the kernel socket is closed, and the kernel goes on with the rest. */
	tcp_sock_unlock_stack(st, now);
	if (err && err != -ENOTCONN && err != -EOPNOTSUPP)
		log_warn("a closed connection cannot be handed to the kernel: %s", strerror(-err));
	return err;
}

/* What is left of the connection of s, st locked, is moved to fd. */
static int move_time_wait(struct tcp_sock *s, struct stack *st, int fd, const struct tcp_image *im,
			  uint64_t now)
{
	struct caps_sets before;
	int err = tcp_sock_hold_segments(s, st, fd);

	if (err)
		return err;
	before = caps_raise(CAPS_MOVE);
	err = restore(s, fd, im);
	if (!err) {
		share_port(s, fd);
		err = end_again(fd, im, true);
	}
	caps_lower(&before);
	release_segments(s, st);
	if (!err)
		tcp_forget_time_wait(st->tcp->ts, &s->tuple, now);
	return err;
}

int tcp_sock_time_wait_to_kernel(struct tcp_sock *s, unsigned *time_waits)
{
	struct stack *st = atomic_load_explicit(&s->st, memory_order_acquire);
	struct tcp_image im;
	int fd, err = -ENOENT;
	uint64_t now;

	if (!st || lock_mine(&st->lock))
		return err;
	lock_take(&st->lock);
	now = tcp_sock_now_us();
	libc_internal_begin();
	if (s->in_engine && st->tcp && atomic_load_explicit(&st->open, memory_order_relaxed))
		err = tcp_export_time_wait(st->tcp->ts, &s->tuple, now, &im);
	if (!err && im.state == TCPS_TIME_WAIT && !(*time_waits && (*time_waits)--))
		err = -ENOENT;
	if (!err) {
		/* The one that holds the port: another could not have it. */
		fd = orphan_fd(s);
		err = fd < 0 ? fd : move_time_wait(s, st, fd, &im, now);
		tcp_sock_port_give_back(s);
	}
	libc_internal_end();
	tcp_sock_unlock_stack(st, now);
	if (err && err != -ENOENT)
		log_warn("what is left of a connection cannot be handed to the kernel: %s",
			 strerror(-err));
	return err;
}

static void leave_stack(struct tcp_sock *s, void *arg)
{
	unsigned time_waits = 1;

	if (tcp_sock_mode(s) != TCP_SOCK_CONN ||
	    atomic_load_explicit(&s->st, memory_order_acquire) != arg)
		return;
	if (tcp_sock_to_kernel_now(s, STATS_WHY(RING_GONE)) && tcp_sock_orphan_to_kernel(s))
		(void)tcp_sock_time_wait_to_kernel(s, &time_waits);
}

void tcp_sock_stack_to_kernel(struct stack *st)
{
	tcp_sock_each(leave_stack, st);
}

/* Anybody can send a segment by that name, few one with a number that the peer would give it. */
static bool is_its(struct tcp_sock *s, const struct vma_stray *stray)
{
	struct stack *st = tcp_sock_mode(s) == TCP_SOCK_CONN ? tcp_sock_conn_lock(s) : NULL;
	struct vma_flow_key ours;
	bool its;

	if (!st)
		return false;
	tcp_sock_key(&s->tuple, true, &ours);
	its = !memcmp(&ours, &stray->key, sizeof(ours)) && tcp_seq_likely(s->c, stray->seq);
	lock_drop(&st->lock);
	return its;
}

static void leave(struct tcp_sock *s, struct vma_stats_why why)
{
	if (tcp_sock_to_kernel(s, why) == -ENOTCONN)
		(void)tcp_sock_orphan_to_kernel(s);
}

void tcp_sock_leave(struct tcp_sock *s, struct vma_stats_why why)
{
	if (tcp_sock_to_kernel_allowed())
		leave(s, why);
}

static void leave_strays(struct tcp_sock *s, void *arg)
{
	if (is_its(s, arg))
		leave(s, STATS_WHY(STRAY));
}

void tcp_sock_strays_to_kernel(const struct vma_stray *stray)
{
	struct vma_stray copy = *stray;

	tcp_sock_each(leave_strays, &copy);
}

static void share_conn(struct tcp_sock *s, struct vma_stats_why why)
{
	uint64_t until = tcp_sock_now_us() + DECIDES_US;
	int err;

	/* Who runs the callback may be faster than the next try. */
	while ((err = tcp_sock_to_kernel(s, why)) == -EBUSY && tcp_sock_now_us() < until)
		clock_sleep_ns(DECIDES_NS);
	if (err == -EBUSY)
		(void)tcp_sock_to_kernel_now(s, why);
}

/*
 * What is nothing yet is the kernel's whatever it becomes: who else has it could not connect it,
 * nor accept.
 */
static void give_new(struct tcp_sock *s, struct vma_stats_why why)
{
	int fd, cancel = tcp_sock_lock_fd(s, &fd);

	if (tcp_sock_mode(s) == TCP_SOCK_KERNEL && !s->unconn.no_offload) {
		s->unconn.no_offload = true;
		libc_internal_begin();
		stats_why(tcp_sock_shown(s), fd, VMA_WHY_SOCKET, why);
		libc_internal_end();
	}
	tcp_sock_unlock(s, cancel);
}

void tcp_sock_share(struct vfd *v, struct vma_stats_why why)
{
	struct tcp_sock *s = tcp_sock_of(v);
	int err = errno;

	if (tcp_sock_mode(s) == TCP_SOCK_LISTEN) {
		tcp_sock_listener_leave(s);
		tcp_sock_listener_share(s, why);
	} else {
		share_conn(s, why);
	}
	errno = err;
}

void tcp_sock_give(struct vfd *v, struct vma_stats_why why)
{
	int err = errno;

	give_new(tcp_sock_of(v), why);
	errno = err;
	tcp_sock_share(v, why);
}

void tcp_sock_leaving(struct vfd *v)
{
	struct tcp_sock *s = tcp_sock_of(v);
	int err = errno;

	if (tcp_sock_mode(s) == TCP_SOCK_CONN && tcp_sock_has_copies(s))
		(void)tcp_sock_to_kernel_now(s, STATS_WHY(PASSED));
	errno = err;
}
