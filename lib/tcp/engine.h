/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The TCP engine (RFC 9293 and its kin) as its user sees it: the socket layer, the simulator, the
 * fuzzer. It does no I/O, reads no clock, has no globals: segments, time and memory come through
 * the calls below, segments and events leave through struct tcp_env. One tcp_stack and everything
 * in it belongs to one lock, held around every call.
 *
 * Times are microseconds of a clock that never goes back. Errors are negative errno. Addresses are
 * v4-mapped for IPv4, ports and sequence numbers in host order.
 */
#ifndef TCP_ENGINE_H
#define TCP_ENGINE_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "mem/mem.h"
#include "tcp/options.h"

struct tcp_stack;
struct tcp_conn;
struct tcp_listener;
struct tcp_fast_open_news;

/* The values are those of Linux's tcpi_state. */
enum tcp_state {
	TCPS_ESTABLISHED = 1,
	TCPS_SYN_SENT,
	TCPS_SYN_RECV,
	TCPS_FIN_WAIT1,
	TCPS_FIN_WAIT2,
	TCPS_TIME_WAIT,
	TCPS_CLOSED,
	TCPS_CLOSE_WAIT,
	TCPS_LAST_ACK,
	TCPS_LISTEN,
	TCPS_CLOSING,
};

/* Local is this host; in an outgoing segment it is the source. */
struct tcp_tuple {
	struct in6_addr local, remote;
	uint16_t lport, rport;
	uint8_t family; /* AF_INET or AF_INET6 */
	uint8_t reserved[3]; /* zero: the tuple is hashed as bytes */
};

#define TCP_HDR_MAX 60u

/* One segment to be sent, valid during the call only. */
struct tcp_tx {
	/*
	 * the connection's (tcp_conn_user()), or where that has none yet its listener's; NULL for
	 * an answer that belongs to neither
	 */
	void *user;
	const struct tcp_tuple *tuple;
	const uint8_t *hdr; /* TCP header and options in network order, checksum zero */
	const struct iovec *iov; /* payload */
	int iovcnt;
	uint32_t len; /* payload bytes */
	uint16_t mss; /* len > mss: a super-segment, to be cut every mss bytes (TSO) */
	uint8_t hdr_len;
	uint8_t tos; /* with the ECN bits */
	uint8_t ttl; /* 0: the default */
	uint8_t family;
};

/* What event() says; several at once. */
#define TCP_EV_IN 0x01u /* data, a FIN, or (listener) a connection to accept became readable */
#define TCP_EV_OUT 0x02u /* room in the send buffer */
#define TCP_EV_CONNECTED 0x04u /* an active open has succeeded */
#define TCP_EV_ERR 0x08u /* tcp_error() is set: reset, timed out, unreachable */
#define TCP_EV_HUP 0x10u /* both directions are closed */
#define TCP_EV_PRI 0x20u /* urgent data */
#define TCP_EV_RDHUP 0x40u /* the peer has closed its direction */
/*
 * A connection that the user has closed is over (its last timer too): its memory is gone when
 * event() returns, and tcp_tx.user will not name it again. Comes exactly once for each connection
 * that a user has had.
 */
#define TCP_EV_GONE 0x80u
/*
 * A closed connection has become a TIME_WAIT: its memory is gone, the tuple is free at TCP_EV_GONE.
 * Comes without other events, after tcp_close().
 */
#define TCP_EV_TIME_WAIT 0x100u

/* What the route of a connection asks of it (ip-route(8)); 0: nothing. */
struct tcp_route {
	uint32_t window; /* the largest that we tell, unless TCP_WINDOW_CLAMP says another */
	uint32_t rto_min_us;
	uint16_t advmss; /* what our SYN says, instead of what the MTU gives */
	uint16_t initcwnd, initrwnd; /* segments */
	uint8_t cc; /* enum tcp_cc, and 1 */
	bool quickack; /* no ACK is delayed */
	bool mtu_locked; /* the MTU is as it is, whatever ICMP says */
};

struct tcp_env {
	void *ctx;
	/*
	 * Sends. 0: taken (it may still be lost on the way); -ENOBUFS: the queue is full, the
	 * engine tries again after tcp_tx_ready() or by timer; -EMSGSIZE: larger than the path
	 * takes: it has called, or calls, tcp_mtu(). Any other error counts as a loss on the wire.
	 * Must not call back into the engine.
	 */
	int (*output)(void *ctx, const struct tcp_tx *tx);
	/* May be NULL: as output(), but nothing may leave (tcp_send_dummy()). */
	int (*output_dummy)(void *ctx, const struct tcp_tx *tx);
	/*
	 * Must not call back into the engine, but for the const functions. user: of the connection
	 * or listener.
	 */
	void (*event)(void *ctx, void *user, uint32_t events);
	/* Zeroed memory or NULL. Every allocation of the engine comes from here. */
	void *(*alloc)(void *ctx, size_t size);
	void (*free)(void *ctx, void *p, size_t size);
	/*
	 * May be NULL: as alloc(), for large pieces whose content does not matter. free() takes
	 * these too.
	 */
	void *(*alloc_raw)(void *ctx, size_t size);
	/*
	 * May be NULL: a handshake begins at the listener whose user this is, and its answer
	 * follows; 1: its end is to be told by ended(); 0: it is not. Negative errno: it is not
	 * answered.
	 */
	int (*begins)(void *ctx, void *listener, const struct tcp_tuple *tuple);
	/*
	 * May be NULL if begins() never returns 1: the handshake, or the connection that has come
	 * of it, has ended before tcp_ended_taken().
	 */
	void (*ended)(void *ctx, const struct tcp_tuple *tuple);
	/*
	 * May be NULL: c waits to be accepted now, from the listener whose user this is. Once for
	 * each, and before any of its data but a SYN's; the one thing it may do to c is to give it
	 * a user.
	 */
	void (*queued)(void *ctx, void *listener, struct tcp_conn *c);
	/*
	 * May be NULL: what the path takes (largest IP packet) and the largest payload of a
	 * super-segment, 0: none.
	 */
	void (*path)(void *ctx, const struct tcp_tuple *tuple, uint32_t *mtu, uint32_t *max_gso);
	/* May be NULL: fills r, which is zeroed. For each connection, and each SYN of a listener.
	 */
	void (*route)(void *ctx, const struct tcp_tuple *tuple, struct tcp_route *r);
	/* May be NULL: what the handshake of tcp_fast_open() has shown, for those to come. */
	void (*fast_open)(void *ctx, const struct tcp_tuple *tuple,
			  const struct tcp_fast_open_news *news);
	/*
	 * May be NULL. There is no connection here for a segment (opens: a SYN); true: it may be
	 * for one of somebody else's, and is dropped without an answer.
	 */
	bool (*is_others)(void *ctx, const struct tcp_tuple *tuple, bool opens);
	/*
	 * May be NULL: never. The peer of user's TIME_WAIT answers a SYN that is not ours; true:
	 * another program may have the local port by now. The TIME_WAIT ends, without a segment.
	 */
	bool (*may_be_others)(void *ctx, void *user);
};

/* See tcp_env.fast_open. */
struct tcp_fast_open_news {
	struct tcp_fast_open_cookie cookie; /* len > 0: the peer has given it */
	uint16_t mss; /* of the peer's SYN|ACK; 0: none has come */
	bool refused; /* asked for a cookie, the peer has said nothing of it */
	bool black_hole; /* the third SYN goes unanswered, too */
	bool worked; /* data of the SYN was taken */
};

enum tcp_cc { TCP_CC_NEWRENO, TCP_CC_CUBIC, TCP_CC_NONE, TCP_CC_BBR, TCP_CC_COUNT };

/* What a new connection or listener begins with; sizes are in bytes. */
struct tcp_opts {
	/* Each segment asks these. */
	uint32_t sndbuf, rcvbuf; /* as SO_SNDBUF/SO_RCVBUF report them (twice what was asked) */
	uint64_t pacing_rate; /* bytes/s, UINT64_MAX: none */
	uint8_t cc; /* enum tcp_cc */
	uint8_t tos, ttl; /* of IPv4; of IPv6 (class, hop limit): */
	uint8_t tos6, ttl6;
	bool nodelay, cork, quickack;
	/* These not. */
	uint32_t rcvbuf_max; /* auto-tuning grows to this; equal to rcvbuf: the user has fixed it */
	uint32_t sndbuf_max;
	uint32_t user_timeout_ms; /* TCP_USER_TIMEOUT, 0: by retries */
	uint32_t keepidle_s, keepintvl_s;
	uint32_t rcvlowat; /* SO_RCVLOWAT: poll()'s; 0 as 1 */
	uint32_t notsent_lowat; /* TCP_NOTSENT_LOWAT, UINT32_MAX: the stack's */
	uint32_t window_clamp; /* 0: none */
	uint32_t linger2_ms; /* TCP_LINGER2: FIN_WAIT2 of a closed socket */
	uint16_t maxseg; /* TCP_MAXSEG, 0: by the path */
	uint16_t defer_accept_s;
	uint8_t keepcnt;
	uint8_t syn_retries, retries1, retries2;
	bool keepalive, oobinline;
	bool timestamps : 1, sack : 1, wscale : 1; /* offered and accepted */
	bool ecn : 1, ecn_passive : 1; /* the same; accepted by a listener, not offered */
};

/* Linux's defaults (tcp_rmem, tcp_wmem, tcp_keepalive_*, tcp_retries*). */
void tcp_opts_default(struct tcp_opts *o);

/* Of the IP header: IPv4 and IPv6 have options of their own. */
static inline uint8_t tcp_tos(const struct tcp_opts *o, uint8_t family)
{
	return family == AF_INET6 ? o->tos6 : o->tos;
}

static inline uint8_t tcp_ttl(const struct tcp_opts *o, uint8_t family)
{
	return family == AF_INET6 ? o->ttl6 : o->ttl;
}

struct tcp_cfg {
	/* ISNs (RFC 6528), hash, SYN cookies, time stamp offsets: random, never told */
	uint64_t secret[4];
	uint32_t max_conns; /* 0: as many as memory gives */
	/* SYNs a second that each listener answers; 0: no limit (VMA_TCP_MAX_SYN_RATE) */
	uint32_t max_syn_rate;
	uint32_t max_tw; /* TIME_WAITs kept; the oldest goes first */
	uint32_t max_orphans;
	uint32_t min_rto_us; /* 200000 */
	uint32_t delack_min_us, delack_max_us; /* 40000, 200000 */
	uint32_t timewait_us; /* 60000000 */
	/*
	 * connect() takes over a TIME_WAIT with time stamps that has heard nothing for so long;
	 * 0: never (Linux: tcp_tw_reuse, tcp_tw_reuse_delay)
	 */
	uint32_t tw_reuse_us;
	/* Linux's tcp_mtu_probing, tcp_base_mss, tcp_mtu_probe_floor,
	 * tcp_probe_{interval,threshold} */
	uint32_t mtu_probing, base_mss, mtu_probe_floor, probe_interval_s, probe_threshold;
	uint32_t syn_retries, synack_retries; /* Linux's tcp_syn_retries, tcp_synack_retries */
	uint32_t notsent_lowat; /* Linux's tcp_notsent_lowat; UINT32_MAX: none */
	/* Linux's tcp_syncookies: 0: never, 1: when the SYN queue is full, 2: for each SYN */
	uint8_t syncookies;
	bool abort_on_overflow; /* a full accept queue resets (Linux's tcp_abort_on_overflow) */
	bool keep_cwnd; /* over pauses (Linux's tcp_slow_start_after_idle is 0) */
};

void tcp_cfg_default(struct tcp_cfg *cfg); /* all but the secret */

/*
 * 64-bit totals; names as in the kernel's SNMP and TcpExt tables. Written under the stack's lock.
 */
struct tcp_counters {
	uint64_t in_segs, out_segs, in_bytes, out_bytes, retrans_segs;
	uint64_t active_opens, passive_opens, attempt_fails, estab_resets, curr_estab;
	uint64_t in_errs, out_rsts, no_listener;
	uint64_t fast_path; /* segments that took the header prediction */
	uint64_t ofo_queue, ofo_drop, rcv_collapsed, rcvbuf_drop, zero_window_drop;
	uint64_t paws, challenge_ack, challenge_limited, rst_ignored, syn_challenge;
	uint64_t dsack_sent, dsack_recv, sack_reneging, spurious_rto, undo;
	uint64_t timeouts, tlp_probes, tlp_recovery, fast_retrans, rack_marks, lost_retrans;
	uint64_t delayed_acks, quick_acks, window_probes, keepalives;
	uint64_t syn_cookies_sent, syn_cookies_recv, syn_cookies_failed, listen_drops,
		listen_overflows, syn_rate_limited;
	uint64_t tw_created, tw_reused, tw_recycled, tw_killed;
	uint64_t abort_on_data, abort_on_close, abort_on_timeout, abort_on_linger, abort_on_memory;
	uint64_t pmtu_reduced, mtu_black_holes, ecn_reductions;
	uint64_t fast_open_active, fast_open_active_fail;
	uint64_t fast_open_passive, fast_open_passive_fail, fast_open_overflow, fast_open_asked;
	uint64_t no_memory;
};

/* --- the stack (engine.c) */

/* A stack on memory of env; NULL when there is none. */
struct tcp_stack *tcp_stack_new(const struct tcp_env *env, const struct tcp_cfg *cfg,
				uint64_t now_us);
/* Frees everything, sends nothing, tells nobody. */
void tcp_stack_free(struct tcp_stack *ts);
const struct tcp_counters *tcp_stack_counters(const struct tcp_stack *ts);
/* Connections (not TIME_WAIT, not embryonic) that live. */
unsigned tcp_stack_conns(const struct tcp_stack *ts);

/*
 * One frame that passed the gate (pkt_parse() said PKT_TCP): data is the TCP header, total its
 * length with the payload, meta says whence. Takes b. Answers may be sent at once; most wait for
 * tcp_flush().
 */
void tcp_input(struct tcp_stack *ts, struct buf *b, uint64_t now_us);
/*
 * After a batch of input, and at the end of a socket call: sends what became due (acknowledgements,
 * data).
 */
void tcp_flush(struct tcp_stack *ts, uint64_t now_us);
/*
 * In its place, where the caller goes on: what connections have to say waits for the next
 * tcp_flush(), and leaves together with what they say until then (an answer, and the FIN behind
 * it). True: something waits.
 */
bool tcp_flush_later(struct tcp_stack *ts, uint64_t now_us);
/* c is one of those, with bytes of the user's. */
bool tcp_waits_for_flush(const struct tcp_conn *c);
/* Runs the timers that are due; ends with a flush. */
void tcp_run_timers(struct tcp_stack *ts, uint64_t now_us);
/* When tcp_run_timers() must be called next, WHEEL_NEVER: no need. */
uint64_t tcp_next_timer(const struct tcp_stack *ts);
/* output() can take segments again. */
void tcp_tx_ready(struct tcp_stack *ts, uint64_t now_us);

/* What each is for the user says tcp/mtu/path_mtu.c. */
enum tcp_icmp {
	/* no route: the back-off of what was lost meanwhile is taken back (RFC 6069) */
	TCP_ICMP_UNREACH_NET,
	TCP_ICMP_UNREACH_HOST,
	TCP_ICMP_UNREACH_PORT,
	TCP_ICMP_FRAG_NEEDED,
	TCP_ICMP_UNREACH_PROTO,
	TCP_ICMP_SOURCE_ROUTE,
	TCP_ICMP_HOST_UNKNOWN,
	TCP_ICMP_HOST_ISOLATED,
	TCP_ICMP_REFUSED_NET, /* there is a route, and it is not for this */
	TCP_ICMP_REFUSED_HOST, /* or the packet's time was out on it */
	TCP_ICMP_PROHIBITED, /* ICMPv6's word for both */
	TCP_ICMP_PROTOCOL, /* somebody did not understand our header */
	TCP_ICMP_COUNT
};
/*
 * An ICMP error that quotes a segment of ours with this sequence number (RFC 5927: must be in
 * flight). mtu: for FRAG_NEEDED.
 */
void tcp_icmp(struct tcp_stack *ts, const struct tcp_tuple *tuple, uint32_t seq, enum tcp_icmp kind,
	      uint32_t mtu, uint64_t now_us);

/* --- connections */

/*
 * Active open (RFC 9293, 3.10.1): sends the SYN at the next flush. -EADDRNOTAVAIL: the tuple is in
 * use (a TIME_WAIT of it is taken over as RFC 6191 allows). -ENOMEM.
 */
int tcp_connect(struct tcp_stack *ts, const struct tcp_tuple *tuple, const struct tcp_opts *opts,
		void *user, uint64_t now_us, struct tcp_conn **out);
/*
 * What tcp_connect() has just made has no path yet: before the flush. Its SYN does not leave, and
 * no time runs, until tcp_let_syn_go(): at the next flush, by the path as it is then.
 */
void tcp_hold_syn(struct tcp_conn *c);
bool tcp_syn_is_held(const struct tcp_conn *c);
void tcp_let_syn_go(struct tcp_conn *c);
/*
 * Fast Open (RFC 7413) of what tcp_connect() has just made, before the flush. Without memory for it
 * the handshake is an ordinary one.
 */
struct tcp_fast_open_client {
	struct tcp_fast_open_cookie cookie; /* of the SYN: len 0 asks for one */
	uint16_t mss; /* the peer's, as remembered; 0: not known */
	bool with_data; /* the SYN waits for the first tcp_send(), and has what fits of that */
};
void tcp_fast_open(struct tcp_conn *c, const struct tcp_fast_open_client *how);
/* The SYN waits; it waits no more, and leaves at the next flush as it is. */
bool tcp_fast_open_waits(const struct tcp_conn *c);
void tcp_fast_open_go(struct tcp_conn *c);
/* True when a connection, an embryonic one or a TIME_WAIT has the tuple. */
bool tcp_tuple_used(const struct tcp_stack *ts, const struct tcp_tuple *tuple);
/* As it, but for a TIME_WAIT that tcp_connect() would take over. */
bool tcp_tuple_taken(const struct tcp_stack *ts, const struct tcp_tuple *tuple, uint64_t now_us);
/*
 * Runs fn, which must not call the engine, for each connection that waits to be accepted, half-open
 * ones included, of which tcp_env.ended() is not to be called. True: it is from now on.
 */
void tcp_each_unaccepted(struct tcp_stack *ts, bool (*fn)(const struct tcp_tuple *tuple, void *arg),
			 void *arg);
/* tcp_env.ended() is not called for c any more. True: it would have been. */
bool tcp_ended_taken(struct tcp_conn *c);
/*
 * Copies into the send buffer as much as there is room for; returns the bytes taken. -EAGAIN: none;
 * -EPIPE: the sending side is closed (the caller raises SIGPIPE); -ENOTCONN; the pending error
 * (taken). flags: MSG_MORE, MSG_EOR, MSG_OOB.
 */
ssize_t tcp_send(struct tcp_conn *c, const struct iovec *iov, int iovcnt, int flags,
		 uint64_t now_us);
/* Bytes that it takes now; 0 while it refuses all. */
uint32_t tcp_send_room(const struct tcp_conn *c);

/*
 * What is read from a file where it is sent from: memory of the send buffer that is filled without
 * the stack's lock, and belongs to whoever has it.
 */
#define TCP_PIECES 8
struct tcp_pieces {
	int n;
	struct iovec iov[TCP_PIECES];
	struct tcp_block *block[TCP_PIECES];
};

/* For len bytes that c is to send, or for fewer. None (n is 0): memory is short. */
void tcp_pieces_get(struct tcp_conn *c, uint32_t len, struct tcp_pieces *p);
/*
 * As tcp_send() of their first len bytes. What it has not taken is still in p, and to be given
 * back.
 */
ssize_t tcp_send_pieces(struct tcp_conn *c, struct tcp_pieces *p, uint32_t len, uint64_t now_us);
/* By env, of which only ctx and free() count: c may be gone. */
void tcp_pieces_free(const struct tcp_env *env, struct tcp_pieces *p);
/*
 * Has env.output_dummy() do with these bytes what it would do if they were sent now; the connection
 * does not change. Their number. -EAGAIN: they would not leave at once, in one segment.
 */
ssize_t tcp_send_dummy(const struct tcp_conn *c, const struct iovec *iov, int iovcnt, int flags);
/*
 * Copies out; returns bytes, 0 at the end of the stream, -EAGAIN, -ENOTCONN, or the pending error
 * (taken; data that came before it is read first). flags: MSG_PEEK, MSG_TRUNC (discards), MSG_OOB
 * (-EINVAL: none).
 */
ssize_t tcp_recv(struct tcp_conn *c, const struct iovec *iov, int iovcnt, int flags,
		 uint64_t now_us);
/* A flag of tcp_recv(), none of Linux's: tcp_read_time() is to know when the last byte came. */
#define TCP_RECV_TIME 0x1000000
/* buf.time_ns of the last byte that the last call with TCP_RECV_TIME has given; 0: not known. */
uint64_t tcp_read_time(const struct tcp_conn *c);
/* Bytes that have come and were not read, an unread end of the stream as one (TCP_INQ). */
uint32_t tcp_unread(const struct tcp_conn *c);
/*
 * Takes what is read next as it came, as one frame of at most `pieces` fragments. It occupies the
 * receive buffer until tcp_give_back(). NULL: nothing can be read, it is too many fragments, an
 * urgent mark is near, or it was copied together for want of room: tcp_recv() gives it. The caller
 * owns it and says tcp_taken(), or tcp_put_back() before anything else is read.
 */
struct buf *tcp_take(struct tcp_conn *c, unsigned pieces);
/* What was taken is the user's: the window follows. */
void tcp_taken(struct tcp_conn *c, uint64_t now_us);
/* It was not wanted, and can be read as before. */
void tcp_put_back(struct tcp_conn *c, struct buf *b);
/* charge: tcp_buf_charge() of what was taken, which is memory again. */
void tcp_give_back(struct tcp_conn *c, uint32_t charge, uint64_t now_us);
/* What a frame occupies in a receive buffer, bytes. */
uint32_t tcp_buf_charge(const struct buf *b);
/* What was read with tcp_recv() occupies as much all the same, until tcp_give_back(). */
void tcp_occupy(struct tcp_conn *c, uint32_t charge);
/*
 * From now on, or no more, what arrives is shown before it can be read: by tcp_take_unshown(). No
 * more begins when what has been taken so is decided. -ENOMEM.
 */
int tcp_set_shows(struct tcp_conn *c, bool shows);
/* With it on: what may be read but was not is to be shown after all. */
void tcp_show_unread(struct tcp_conn *c);
/* All that was shown has been read, and more has come. */
bool tcp_unshown(const struct tcp_conn *c);
/* Closed, and no TIME_WAIT has its name. */
bool tcp_is_over(const struct tcp_conn *c);
/* More has come than what may be read, and is shown when that has been read. */
bool tcp_is_held_back(const struct tcp_conn *c);
/* What tcp_take_unshown() gave is not decided yet. */
bool tcp_is_showing(const struct tcp_conn *c);
/* As tcp_take() of that; tcp_put_back() lets it be read. */
struct buf *tcp_take_unshown(struct tcp_conn *c, unsigned pieces);
/* SHUT_RD, SHUT_WR or SHUT_RDWR. -ENOTCONN. */
int tcp_shutdown(struct tcp_conn *c, int how, uint64_t now_us);
/*
 * The user lets go: FIN after the data, RST when data is unread or had been discarded (RFC
 * 2525, 2.17). The connection lives on by itself and user gets TCP_EV_GONE at the end (perhaps
 * within this call).
 */
void tcp_close(struct tcp_conn *c, uint64_t now_us);
/* RST at once (SO_LINGER 0); then as tcp_close(). */
void tcp_abort(struct tcp_conn *c, uint64_t now_us);
void tcp_conn_set_user(struct tcp_conn *c, void *user);
void *tcp_conn_user(const struct tcp_conn *c);
const struct tcp_tuple *tcp_conn_tuple(const struct tcp_conn *c);
enum tcp_state tcp_conn_state(const struct tcp_conn *c);
/* What is sent next, and what is expected next: the numbers of a RST (RFC 9293, 3.5.2). */
void tcp_conn_seqs(const struct tcp_conn *c, uint32_t *snd_nxt, uint32_t *rcv_nxt);
/*
 * A segment that begins there may be the peer's: what it sends next, or sends again. True also
 * where nothing is known of its numbers yet (TCPS_SYN_SENT).
 */
bool tcp_seq_likely(const struct tcp_conn *c, uint32_t seq);
/* TCP_EV_* that are true now (level): what poll() would say. */
uint32_t tcp_ready(const struct tcp_conn *c);
/* SO_ERROR: the pending error (positive errno) is returned and taken. */
int tcp_error(struct tcp_conn *c);
/* Bytes: readable; in the send buffer and not acknowledged; of those, not sent yet. */
uint32_t tcp_inq(const struct tcp_conn *c);
uint32_t tcp_outq(const struct tcp_conn *c);
uint32_t tcp_outq_unsent(const struct tcp_conn *c);
/* 1: our FIN follows the data, and is not acknowledged; not sent. (Linux counts it among them.) */
uint32_t tcp_fin_unacked(const struct tcp_conn *c);
uint32_t tcp_fin_unsent(const struct tcp_conn *c);
/* SIOCATMARK. */
bool tcp_at_mark(const struct tcp_conn *c);
/*
 * The options in force; set with the call below, which lets what changed take effect (uncorking
 * sends).
 */
const struct tcp_opts *tcp_get_opts(const struct tcp_conn *c);
void tcp_set_opts(struct tcp_conn *c, const struct tcp_opts *o, uint64_t now_us);
/*
 * TCP_NODELAY is set, perhaps again: what a cork or MSG_MORE holds goes, what comes later is held
 * as before.
 */
void tcp_push_held(struct tcp_conn *c, uint64_t now_us);
/* The path takes packets of this size now (route or link changed; ICMP comes by tcp_icmp()). */
void tcp_mtu(struct tcp_conn *c, uint32_t mtu, uint64_t now_us);
/* Largest payload of a segment as sent now (TCP_MAXSEG). */
uint32_t tcp_mss(const struct tcp_conn *c);
/* The window that may be offered now (TCP_WINDOW_CLAMP); never 0. */
uint32_t tcp_window_clamp(const struct tcp_conn *c);
/*
 * TCP_QUICKACK: ACKs wait no more for our data (odd: until what is due now has gone, even: once),
 * or 0: they do. Not for ever: what follows decides anew.
 */
void tcp_quickack(struct tcp_conn *c, int value, uint64_t now_us);
bool tcp_is_quickack(const struct tcp_conn *c);
/* Of the IP header that came with the ACK of our SYN|ACK; 0 in a connection that we began. */
void tcp_conn_first(const struct tcp_conn *c, uint8_t *ttl, uint8_t *tos);
/*
 * Fills at most len bytes of a struct tcp_info (linux/tcp.h) as Linux 6.7 has it, which may be more
 * than the headers know, zeros behind what is known; returns the bytes filled.
 */
#define TCP_INFO_BYTES 248u
size_t tcp_fill_info(const struct tcp_conn *c, void *info, size_t len, uint64_t now_us);

/* What vma_stats shows of c; conn_stats.c */
struct vma_stats_tcp;
void tcp_figures(const struct tcp_conn *c, struct vma_stats_tcp *f);
/* Pieces, of as many frames at most, that wait to be read. */
uint32_t tcp_inq_pieces(const struct tcp_conn *c);

/* --- leaving for another stack (repair.c) */

/* What another stack must know to go on with a connection: Linux takes it by TCP_REPAIR. */
struct tcp_image {
	struct tcp_tuple tuple;
	uint8_t state; /* enum tcp_state */
	bool fin_rcvd, fin_queued; /* the peer's FIN is in; ours is behind the data, sent or not */
	bool shut_rd; /* the user reads no more */
	bool ts_ok, sack_ok, wscale_ok;
	uint8_t snd_wscale, rcv_wscale;
	uint16_t peer_mss; /* what the peer's SYN said */
	uint16_t so_error; /* has ended by it, and nobody was told yet (positive errno) */
	uint32_t tsval; /* the next segment's time stamp, milliseconds */
	uint32_t ts_recent; /* the peer's last one */
	/*
	 * Sent and not acknowledged: [snd_una, snd_nxt); not sent yet: [snd_nxt, write_seq). FINs
	 * are not counted.
	 */
	uint32_t snd_una, snd_nxt, write_seq;
	/* Received and not read: [copied_seq, rcv_nxt). Without the peer's FIN. */
	uint32_t copied_seq, rcv_nxt;
	uint32_t snd_wl1, snd_wnd, max_wnd; /* the peer's window */
	/* ours, as last told: rcv_wnd bytes from rcv_wup, which is not after rcv_nxt */
	uint32_t rcv_wnd, rcv_wup;
};

/*
 * Takes a picture of a connection, also of one that the user has closed, the engine unchanged.
 * -EOPNOTSUPP: not in a state that can be moved (the handshake is not complete, or all is over).
 * Urgent data becomes plain data; what came out of order is left out: the peer has kept it.
 */
int tcp_export(const struct tcp_conn *c, struct tcp_image *im);
/*
 * The same of one that has ended, both ways or by an error, and that the user has not closed: what
 * was received can still be read. -EOPNOTSUPP: it has not ended, or never had a peer.
 */
int tcp_export_ended(const struct tcp_conn *c, struct tcp_image *im);
/*
 * Copies n bytes from seq on, which must lie within the picture's receive or send queue. Returns n,
 * or less: not there.
 */
uint32_t tcp_export_received(const struct tcp_conn *c, uint32_t seq, void *to, uint32_t n);
uint32_t tcp_export_unacked(struct tcp_conn *c, uint32_t seq, void *to, uint32_t n);
/*
 * Another stack has the connection: it ends here without a segment. The user gets TCP_EV_GONE at
 * the next flush. What the rings still hold for the tuple is dropped in silence for TCP_FORGET_US.
 */
#define TCP_FORGET_US 1000000u
void tcp_forget(struct tcp_conn *c, uint64_t now_us);

/*
 * The same two for what is left of a connection that both sides, or the user, have ended: FIN_WAIT2
 * or TIME_WAIT, the queues empty. -ENOENT: nothing of the tuple is left, or nothing that the peer
 * may still ask for: after TCP_TW_FRESH_US in TIME_WAIT it has our last acknowledgement. The user
 * gets TCP_EV_GONE later.
 */
#define TCP_TW_FRESH_US 2000000u
int tcp_export_time_wait(struct tcp_stack *ts, const struct tcp_tuple *tuple, uint64_t now_us,
			 struct tcp_image *im);
void tcp_forget_time_wait(struct tcp_stack *ts, const struct tcp_tuple *tuple, uint64_t now_us);

/*
 * Our SYN was not answered, and another stack begins the same connection anew: whoever has got the
 * SYN forgets it (if it has left, a RST leaves at once). False: it was, nothing has happened.
 * tcp_forget() follows.
 */
bool tcp_take_back_syn(struct tcp_conn *c, uint64_t now_us);

/* --- listeners */

/*
 * local :: with family AF_INET6 takes both families unless v6only. Several listeners on the same
 * address, port and device (reuseport) share by hash. backlog: as listen()'s. user: gets TCP_EV_IN.
 */
struct tcp_listen_spec {
	struct in6_addr local;
	uint16_t port;
	uint8_t family;
	bool v6only, reuseport;
	bool mapped; /* an IPv6 socket bound to an IPv4 address, the family's AF_INET */
	bool on_device; /* bound to the stack's interface: goes before those that are not */
	bool joint; /* another stack with the same secret may have sent a SYN cookie for it */
	int backlog;
};
int tcp_listen(struct tcp_stack *ts, const struct tcp_listen_spec *spec,
	       const struct tcp_opts *opts, void *user, struct tcp_listener **out);
void tcp_listen_backlog(struct tcp_listener *l, int backlog);
/*
 * No new connections: a SYN is dropped without an answer, as by a full queue. Handshakes that are
 * under way go on, and what is established can be accepted.
 */
void tcp_listen_stop(struct tcp_listener *l);
void tcp_listen_opts(struct tcp_listener *l, const struct tcp_opts *opts);
/*
 * Fast Open (RFC 7413) of a listener: data of a SYN with one of its cookies can be accepted, and
 * answered, before the handshake is complete. TCP_SYN_RECV is the state of such a connection then.
 */
struct tcp_fast_open_server {
	uint32_t qlen; /* connections in that state at most (TCP_FASTOPEN); 0: no Fast Open */
	bool no_cookie; /* data is taken from everybody */
	uint8_t num_keys; /* of cookies: the first makes them, all are good */
	uint64_t key[2][2];
};
void tcp_listen_fast_open(struct tcp_listener *l, const struct tcp_fast_open_server *fo);
/*
 * The oldest established connection, NULL when there is none; the caller sets its user (until then
 * it has that of queued()).
 */
struct tcp_conn *tcp_accept(struct tcp_listener *l);
/* The one that it takes next, not to be looked into; NULL: none. */
const struct tcp_conn *tcp_accept_first(const struct tcp_listener *l);
unsigned tcp_accept_queued(const struct tcp_listener *l);
/* Handshakes that are under way. */
unsigned tcp_listen_requests(const struct tcp_listener *l);
/* Embryonic and unaccepted connections are reset. */
void tcp_listen_close(struct tcp_listener *l, uint64_t now_us);

#endif
