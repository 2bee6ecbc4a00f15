/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A connection that the engine has accepted and the program has not enters the queue of the
 * kernel's listener: whoever accepts there, another program perhaps, gets it. TCP_REPAIR makes no
 * connection of a listener. But a listener takes a segment for the answer to a SYN cookie when a
 * BPF program says so (bpf/implant.bpf.c; Linux 6.9).
 */
#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "handover/internal.h"
#include "implant.skel.h"
#include "ring/ring.h"
#include "runtime/runtime.h"
#include "stack/stack.h"
#include "tcp/tcp.h"
#include "vma/implant.h"

#define TCX_INGRESS ((enum bpf_attach_type)46) /* BPF_TCX_INGRESS, since 6.6 */
#define LOOPBACK_IFINDEX 1
/* The window of a new connection of the kernel's is half its buffer, but 64 KB at most. */
#define RECEIVED_MAX 32768u
#define SEGMENT_MAX 16384u
/* What the kernel takes of an answer to a SYN cookie: bpf_sk_assign_tcp_reqsk(). */
#define MSS_MIN_V4 536u
#define MSS_MIN_V6 1220u
#define MS_NS 1000000u
/* Another CPU may have the loopback's packets, a reader the socket: pauses of 1, 2, 4... ms. */
#define ROUNDS 12
#define PAUSE_MAX_MS 64u
/* For one that the kernel does not take, and for all of a listener's together: its stack waits. */
#define PAUSES_LEAST_MS 4u
#define PAUSES_MOST_MS 600u

struct implant {
	struct implant *next;
	struct implant_bpf *skel;
	int link_fd;
	struct replay by;
	uint32_t room; /* bytes that nobody has read */
	uint32_t paused_ms; /* for all so far */
	bool is_prepared; /* this process could not load another one */
};

/* Of all threads; between ring_bpf_begin() and its end. */
static struct implant *implants;
/* Loaded by implant_prepare(), and not in use; it is. The same. */
static struct implant *prepared;
static bool prepared_in_use;

/* Without them the kernel does not look at what the program says. */
static bool syn_cookies(void)
{
	char text[16];

	text_file_read("/proc/sys/net/ipv4/tcp_syncookies", text, sizeof(text));
	return strtol(text, NULL, 10) > 0;
}

/* Of the kernel socket fd: what a connection that it accepts takes at once. */
static uint32_t room_of(int fd)
{
	int rcvbuf = 0;
	socklen_t len = sizeof(rcvbuf);

	if (libc.getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &rcvbuf, &len) || rcvbuf < 0)
		return 0;
	return (uint32_t)rcvbuf / 4 < RECEIVED_MAX ? (uint32_t)rcvbuf / 4 : RECEIVED_MAX;
}

/* 0 or negative errno: destroy() either way. A kernel that cannot do it is no error. */
static int load(struct implant *im)
{
	int err;

	im->skel = implant_bpf__open();
	err = im->skel ? ring_kernel_calls(im->skel->progs.implant) : -errno;
	if (!err)
		err = implant_bpf__load(im->skel);
	if (err)
		return err;
	/* A family that the machine does not have has no clients either. */
	(void)replay_open(&im->by, &(struct in6_addr)IN6ADDR_LOOPBACK_INIT);
	(void)replay_open(&im->by,
			  &(struct in6_addr){.s6_addr = {[10] = 0xff, 0xff, 127, 0, 0, 1}});
	return 0;
}

static void detach(struct implant *im)
{
	if (im->link_fd >= 0)
		own_fd_close(im->link_fd);
	im->link_fd = -1;
}

static void destroy(struct implant *im)
{
	replay_close(&im->by);
	detach(im);
	implant_bpf__destroy(im->skel);
	free(im);
}

/* Of them nothing is effective after seteuid(). */
#define NEEDED                                                                                     \
	(CAPS_BIT(CAP_NET_ADMIN) | CAPS_BIT(CAP_NET_RAW) | CAPS_BIT(CAP_SYS_ADMIN) |               \
	 CAPS_BIT(CAP_BPF) | CAPS_BIT(CAP_PERFMON))

/* NULL and *err. */
static struct implant *make(int *err)
{
	struct implant *im = malloc(sizeof(*im));
	struct caps_sets before;

	*err = -ENOMEM;
	if (!im)
		return NULL;
	*im = (struct implant){.link_fd = -1, .by = REPLAY_NONE};
	before = caps_raise(NEEDED);
	*err = load(im);
	caps_lower(&before);
	if (!*err)
		return im;
	destroy(im);
	return NULL;
}

/* Takes part in what comes by the loopback. 0 or negative errno. */
static int attach(struct implant *im)
{
	struct caps_sets before = caps_raise(NEEDED);

	im->link_fd = bpf_link_create(bpf_program__fd(im->skel->progs.implant), LOOPBACK_IFINDEX,
				      TCX_INGRESS, NULL);
	caps_lower(&before);
	return im->link_fd < 0 ? im->link_fd : 0;
}

static void end(struct implant *im)
{
	detach(im);
	if (im->is_prepared && !prepared) {
		prepared = im;
		prepared_in_use = false;
	} else {
		destroy(im);
	}
}

/* NULL and *err. Between ring_bpf_begin() and its end. */
static struct implant *begin(int listener, int *err)
{
	struct implant *im = prepared ? prepared : make(err);

	if (im && im == prepared) {
		prepared = NULL;
		prepared_in_use = true;
	}
	if (!im && prepared_in_use)
		*err = -EBUSY;
	if (!im)
		return NULL;
	*err = attach(im);
	if (*err) {
		end(im);
		return NULL;
	}
	im->room = room_of(listener);
	im->paused_ms = 0;
	im->next = implants;
	implants = im;
	return im;
}

int implant_open(int listener, struct implant **out)
{
	struct implant *im = NULL;
	int err = -EOPNOTSUPP;

	libc_internal_begin();
	/* An offloaded loopback would take what is sent once more. */
	if (syn_cookies() && !stack_any(LOOPBACK_IFINDEX)) {
		ring_bpf_begin();
		im = begin(listener, &err);
		ring_bpf_end();
	}
	libc_internal_end();
	*out = im;
	if (im)
		return 0;
	if (err != -EBUSY && err != -EOPNOTSUPP)
		log_debug("connections that nobody has accepted cannot wait in the kernel: %s",
			  strerror(-err));
	return err;
}

void implant_close(struct implant *im)
{
	struct implant **at = &implants;

	if (!im)
		return;
	libc_internal_begin();
	ring_bpf_begin();
	while (*at != im)
		at = &(*at)->next;
	*at = im->next;
	end(im);
	ring_bpf_end();
	libc_internal_end();
}

void implant_prepare(void)
{
	int err;

	libc_internal_begin();
	ring_bpf_begin();
	if (!prepared && syn_cookies())
		prepared = make(&err);
	if (prepared)
		prepared->is_prepared = true;
	ring_bpf_end();
	libc_internal_end();
}

void implants_forked(void)
{
	libc_internal_begin();
	if (prepared)
		destroy(prepared);
	prepared = NULL;
	prepared_in_use = false;
	while (implants) {
		struct implant *im = implants;

		implants = im->next;
		destroy(im);
	}
	libc_internal_end();
}

/* What the kernel can be told of by one segment, and the rest by a few. */
static bool is_small(const struct implant *im, const struct tcp_image *c)
{
	uint32_t mss_min = IN6_IS_ADDR_V4MAPPED(&c->tuple.local) ? MSS_MIN_V4 : MSS_MIN_V6;

	return (c->state == TCPS_ESTABLISHED || c->state == TCPS_CLOSE_WAIT) &&
	       c->snd_una == c->write_seq && c->rcv_nxt - c->copied_seq <= im->room &&
	       c->peer_mss >= mss_min && !IN6_IS_ADDR_LINKLOCAL(&c->tuple.remote) &&
	       !IN6_IS_ADDR_LINKLOCAL(&c->tuple.local);
}

static int tell(const struct implant *im, const struct tcp_image *c)
{
	struct vma_implant v = {
		.rport = htons(c->tuple.rport),
		.lport = htons(c->tuple.lport),
		.seq = htonl(c->copied_seq),
		.ack = htonl(c->snd_una),
		.tsval = c->ts_recent,
		.tsecr = c->tsval,
		.mss = c->peer_mss,
		.rcv_wscale = c->rcv_wscale,
		.snd_wscale = c->snd_wscale,
		.wscale_ok = c->wscale_ok,
		.sack_ok = c->sack_ok,
		.ts_ok = c->ts_ok,
		.result = -ENOENT,
	};

	return bpf_map_update_elem(bpf_map__fd(im->skel->maps.implants), &(uint32_t){0}, &v, 0);
}

static struct vma_implant answer(const struct implant *im)
{
	struct vma_implant v = {.result = -ENOENT};

	(void)bpf_map_lookup_elem(bpf_map__fd(im->skel->maps.implants), &(uint32_t){0}, &v);
	return v;
}

/* The peer's n bytes from seq on, once more. */
static int send_again(const struct replay *by, const struct tcp_image *c, uint32_t seq,
		      uint8_t flags, const void *data, uint32_t n)
{
	struct replay_to to = {.src = c->tuple.remote, .dst = c->tuple.local, .proto = IPPROTO_TCP};
	struct tcp_hdr_spec h = {
		.sport = c->tuple.rport,
		.dport = c->tuple.lport,
		.seq = seq,
		.ack = c->snd_una,
		.wnd = (uint16_t)(c->snd_wnd >> c->snd_wscale),
		.flags = TCPHDR_ACK | flags,
		.ts = c->ts_ok,
		.tsval = c->ts_recent,
		.tsecr = c->tsval,
	};
	uint8_t header[TCP_HDR_MAX];
	struct iovec iov[] = {{header, tcp_hdr_write(header, &h)}, {(void *)(uintptr_t)data, n}};
	uint16_t check = replay_csum(&to, iov, 2);

	memcpy(header + 16, &check, sizeof(check));
	return replay_send(by, &to, iov, 2);
}

/*
 * What the peer has sent and nobody has read (data), from byte `at` of it on, and its FIN. Last an
 * empty segment, for which the program looks how far the kernel has come.
 */
static int send_received(const struct replay *by, const struct tcp_image *c, const uint8_t *data,
			 uint32_t at)
{
	uint32_t all = c->rcv_nxt - c->copied_seq, n;
	int err = 0;

	for (; !err && at < all; at += n) {
		n = all - at < SEGMENT_MAX ? all - at : SEGMENT_MAX;
		err = send_again(by, c, c->copied_seq + at, TCPHDR_PSH, data + at, n);
	}
	if (!err && c->fin_rcvd)
		err = send_again(by, c, c->rcv_nxt, TCPHDR_FIN, NULL, 0);
	return err ? err : send_again(by, c, c->rcv_nxt + c->fin_rcvd, 0, NULL, 0);
}

/* Before round i. False: that was all the time there is. */
static bool pause_before(struct implant *im, unsigned i)
{
	uint32_t ms = i && 1u << (i - 1) < PAUSE_MAX_MS ? 1u << (i - 1) : PAUSE_MAX_MS;

	if (!i)
		return true;
	if (im->paused_ms + ms > PAUSES_MOST_MS && ms > PAUSES_LEAST_MS)
		return false;
	im->paused_ms += ms;
	clock_sleep_ns((uint64_t)ms * MS_NS);
	return true;
}

/*
 * Sends until the kernel has all, or will not. Returns 0; -ECONNRESET: it has a part, and that has
 * been reset; other negative errno: it has nothing.
 */
static int send_until_there(struct implant *im, const struct tcp_image *c, const uint8_t *data)
{
	uint32_t all = c->rcv_nxt + c->fin_rcvd - c->copied_seq, at = 0;
	struct vma_implant v = {0};
	int err = 0;

	for (unsigned i = 0; i < ROUNDS && pause_before(im, i); i++) {
		err = 0;
		if (!v.is_there)
			err = send_again(&im->by, c, c->copied_seq, 0, NULL, 0);
		if (!err)
			err = send_received(&im->by, c, data, at);
		v = answer(im);
		if (v.is_there && v.rcv_nxt - c->copied_seq == all)
			return 0;
		if (v.is_there && v.rcv_nxt - c->copied_seq < all)
			at = v.rcv_nxt - c->copied_seq;
		if (v.result && v.result != -ENOENT)
			return v.result;
	}
	if (!v.is_there)
		return err ? err : -ECONNABORTED;
	(void)send_again(&im->by, c, v.rcv_nxt, TCPHDR_RST, NULL, 0);
	return -ECONNRESET;
}

/* The segments of s are held back; its stack is locked. As send_until_there(). */
static int make_in_kernel(struct implant *im, const struct tcp_sock *s, const struct tcp_image *c)
{
	uint32_t n = c->rcv_nxt - c->copied_seq;
	uint8_t *data = malloc(n + 1);
	int err = data ? 0 : -ENOMEM;

	if (!err && tcp_export_received(s->c, c->copied_seq, data, n) != n)
		err = -EIO;
	if (!err)
		err = tell(im, c);
	if (!err)
		err = send_until_there(im, c, data);
	free(data);
	return err;
}

int implant(struct implant *im, struct tcp_sock *s)
{
	int err = -ENOTCONN, cancel = tcp_sock_lock(s);
	struct stack *st = tcp_sock_mode(s) == TCP_SOCK_CONN ? tcp_sock_conn_lock(s) : NULL;
	uint64_t now = tcp_sock_now_us();
	struct tcp_image c = {.state = TCPS_CLOSED};

	libc_internal_begin();
	if (st && s->c && atomic_load_explicit(&st->open, memory_order_relaxed))
		err = s->bound_if ? -EOPNOTSUPP : tcp_export(s->c, &c);
	if (!err && !is_small(im, &c))
		err = -EOPNOTSUPP;
	if (!err)
		err = tcp_sock_hold_segments(s, st, tcp_sock_conn_fd(s));
	if (!err)
		err = make_in_kernel(im, s, &c);
	if (!err)
		tcp_sock_leave_engine(s, st, now);
	if (st)
		tcp_sock_unlock_stack(st, now);
	if (!err)
		atomic_store_explicit(&s->st, NULL, memory_order_release);
	libc_internal_end();
	tcp_sock_unlock(s, cancel);
	if (err)
		log_debug("TCP port %u: a connection that nobody has accepted cannot wait in the "
			  "kernel: %s",
			  s->tuple.lport, strerror(-err));
	return err;
}
