/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The inside of the engine. A file is a noun: tcp_rx_* are in input.c and so on (each block below
 * names its file). `now` is not handed around: the entry points store it in tcp_stack.now.
 */
#ifndef TCP_INTERNAL_H
#define TCP_INTERNAL_H

#include <stddef.h>

#include "tcp/queue/seqtree.h"
#include "proto/proto.h"
#include "tcp/engine.h"
#include "tcp/options.h"
#include "tcp/seq.h"

#define TCP_MSS_DEFAULT 536U /* RFC 9293, 3.7.1 (IPv4) */
#define TCP_MSS_DEFAULT6 1220u
#define TCP_MSS_MIN 48u /* less than this from a peer is not believed (Linux: tcp_min_snd_mss) */
#define TCP_INIT_CWND 10u /* RFC 6928 */
#define TCP_WSCALE_MAX 14u
#define TCP_DUPTHRESH 3u
#define TCP_RTO_MAX_US 120000000u
#define TCP_RTO_INIT_US 1000000u
#define TCP_TIMEOUT_MIN_US 2000u /* Linux: two ticks */
#define TCP_QUICKACKS 16u

/* --- options.c: the second gate; whoever is behind it reads no raw bytes */

/* A received segment. seq/end_seq count SYN and FIN. */
struct tcp_rx {
	/* payload only (its FIN and SYN are in flags); taken (set to NULL) by whoever keeps it */
	struct buf *b;
	uint32_t seq, end_seq, ack;
	uint32_t wnd; /* as in the header, not scaled */
	uint32_t len; /* payload bytes */
	uint16_t urg;
	uint8_t flags; /* TCPHDR_* */
	uint8_t ecn; /* the IP header's two bits */
	uint8_t ttl, tos; /* of the IP header */
	bool has_ts, has_mss, has_wscale, sack_ok;
	uint8_t wscale;
	uint8_t num_sacks;
	uint16_t mss;
	uint32_t tsval, tsecr;
	struct tcp_sack_block sack[TCP_SACK_MAX];
	struct tcp_fast_open_cookie fast_open;
};

/*
 * Reads header and options of b (data: the TCP header) into rx and makes b its payload. False:
 * malformed (a header length that cannot be); an option that does not fit ends the reading of
 * options and one of another length than its kind's is skipped, as in Linux. MSS, window scale,
 * SACK-permitted and Fast Open count on a SYN only, SACK blocks on others only.
 */
bool tcp_rx_parse(struct buf *b, struct tcp_rx *rx);

/* --- conn_table.c: connections, embryonic ones and TIME_WAITs by 4-tuple; chained, grows, keyed */

enum tcp_kind { TCP_KIND_CONN, TCP_KIND_REQ, TCP_KIND_TW };

struct tcp_node {
	struct tcp_node *next; /* hash chain */
	uint32_t hash;
	uint8_t kind; /* enum tcp_kind */
	uint8_t first_ttl, first_tos; /* connections: tcp_conn_first() */
	bool tells_end; /* tcp_env.ended() is to be called */
	struct tcp_tuple tuple;
};

struct tcp_table {
	struct tcp_node **bucket;
	/* buckets being moved into the doubled table, from `moved` on; NULL: none */
	struct tcp_node **old;
	uint32_t mask, old_mask, moved;
	uint32_t count;
	uint64_t key[2];
};

/* 0 or -ENOMEM. */
int tcp_table_init(struct tcp_table *t, const struct tcp_env *env, const uint64_t key[2]);
void tcp_table_fini(struct tcp_table *t, const struct tcp_env *env);
struct tcp_node *tcp_table_find(const struct tcp_table *t, const struct tcp_tuple *tuple);
/* fn must not change the table. */
void tcp_table_each(const struct tcp_table *t, void (*fn)(const struct tcp_node *n, void *arg),
		    void *arg);
/* The tuple must not be there. A table that cannot grow gets slower, not wrong. */
void tcp_table_add(struct tcp_table *t, const struct tcp_env *env, struct tcp_node *n);
void tcp_table_del(struct tcp_table *t, struct tcp_node *n);
/* n takes the place of old, which has the same tuple. */
void tcp_table_replace(struct tcp_table *t, struct tcp_node *old, struct tcp_node *n);

/*
 * --- tcp/recovery/rtt.c: RFC 6298 as Linux does it: microseconds, variance over a window of data,
 * floor on the variance part
 */

struct tcp_rtt {
	uint32_t srtt_us; /* << 3; 0: no sample yet */
	uint32_t mdev_us, mdev_max_us, rttvar_us;
	uint32_t rtt_seq; /* snd_nxt when the variance window ends */
	uint32_t rto_us; /* without back-off */
	uint32_t min_us; /* windowed minimum (5 min), UINT32_MAX: none */
	uint64_t min_stamp;
};

void tcp_rtt_init(struct tcp_rtt *r, uint32_t min_rto_us);
/*
 * rtt_us of data that was sent once (or by time stamp). snd_una/snd_nxt: the variance is let down
 * once a window.
 */
void tcp_rtt_sample(struct tcp_rtt *r, uint32_t rtt_us, uint32_t snd_una, uint32_t snd_nxt,
		    uint32_t min_rto_us, uint64_t now);

/* --- tcp/cc: windows are in segments, as in Linux */

/* A round-trip time of data that were sent once, and where the connection is. */
struct tcp_cc_rtt {
	uint64_t now;
	uint32_t us, min_us; /* this one; the shortest ever */
	uint32_t snd_una, snd_nxt;
	bool paced;
};

/* tcp/cc/hystart.c; all zero: no round has begun. */
struct tcp_hystart {
	uint32_t round_end; /* snd_nxt when the round began */
	uint32_t round_us, last_us; /* when it began; the train's last acknowledgement; low bits */
	uint32_t least_us; /* least time of the round's first samples */
	uint8_t samples;
	bool in_round;
};

/* One acknowledgement, for an algorithm that makes a model of the path; restart() has the first
 * four. */
struct tcp_cc_ack {
	uint64_t now;
	uint32_t srtt_us; /* 0: none yet */
	uint32_t mss;
	bool app_limited; /* the sample is of a program that had no more to send; restart(): it had
			     none */
	uint8_t ca_state;
	uint32_t delivered; /* of the connection; all counts are segments */
	uint32_t acked, lost; /* by this one */
	uint32_t flight, prior_flight; /* in flight after it and before it */
	uint32_t gso_segs; /* of the longest transmission */
	uint32_t rtt_us; /* 0: none */
	/*
	 * The rate (rate.c): so many in interval_us, 0: no sample; `delivered` when the newest of
	 * them left.
	 */
	uint32_t sample, interval_us, prior_delivered;
};

/* tcp/cc/bbr.c: its own memory, for it is larger than a connection has room for. */
#define TCP_BBR_ROUNDS 10u
struct tcp_bbr_top {
	uint64_t of[TCP_BBR_ROUNDS], max;
};

struct tcp_bbr {
	uint64_t pacing_rate; /* bytes/s */
	struct tcp_bbr_top bw; /* bytes/s */
	struct tcp_bbr_top extra; /* segments acknowledged beyond the rate */
	uint64_t full_bw; /* when it last grew by a quarter */
	uint64_t min_stamp, phase_start, probe_end; /* probe_end 0: not all has left yet */
	uint64_t extra_start, extra_acked;
	uint32_t min_us; /* 0: none */
	uint32_t round, round_end; /* number; `delivered` when it began */
	uint32_t saved_cwnd; /* before a recovery or the probe of the round trip */
	uint8_t mode, phase, full_rounds, ca_state;
	bool begun, seen_rtt, filled, round_start, conserving, restarted, probe_round;
};

struct tcp_cc_state {
	uint32_t cwnd, ssthresh; /* segments */
	uint32_t cwnd_cnt; /* acknowledged since cwnd last grew */
	uint32_t prior_cwnd, prior_ssthresh; /* before the last reduction, for undo */
	bool searching; /* CUBIC's first slow start: cubic.hystart is in use */
	union {
		struct {
			union {
				struct {
					/* RFC 9438, 4.1.2: segments, seconds */
					double w_est, k_s;
					/* 0: no epoch of congestion avoidance */
					uint64_t epoch_start;
				};
				struct tcp_hystart hystart; /* while `searching` */
			};
			double w_max; /* segments */
			double credit; /* growth that is not a whole segment yet */
			uint64_t last_us; /* when acked() was last called */
			uint32_t cwnd_prior, w_max_undo; /* at the last reduction */
		} cubic;
		struct tcp_bbr *bbr; /* while BBR is in force, until the end of the connection */
	};
};

struct tcp_cc_ops {
	const char *name; /* "reno", "cubic", "none", "bbr" as TCP_CONGESTION says them */
	/*
	 * A zeroed state gets the initial window; one that another algorithm left keeps its windows
	 * (but those of "none").
	 */
	void (*init)(struct tcp_cc_state *s);
	/* The new ssthresh after a loss (segments, at least 2). */
	uint32_t (*ssthresh)(struct tcp_cc_state *s, uint64_t now);
	/*
	 * acked segments were newly acknowledged while the window limited the sender; slow start
	 * and avoidance.
	 */
	void (*acked)(struct tcp_cc_state *s, uint32_t acked, uint32_t srtt_us, uint64_t now);
	/* May be NULL: a sample in slow start; it may end that (ssthresh). Before acked(). */
	void (*rtt)(struct tcp_cc_state *s, const struct tcp_cc_rtt *rtt);
	/*
	 * NULL, or all that grows and shrinks the window: after each acknowledgement, in any state.
	 * True: what is sent now is kept low and says nothing of the path.
	 */
	bool (*control)(struct tcp_cc_state *s, const struct tcp_cc_ack *a);
	/* May be NULL: nothing is in flight, and something is about to leave. */
	void (*restart)(struct tcp_cc_state *s, const struct tcp_cc_ack *a);
	/* The window that a spurious reduction is undone to. */
	uint32_t (*undo)(struct tcp_cc_state *s);
	/* A timeout, or the sender was idle: a growth epoch begins anew. */
	void (*reset)(struct tcp_cc_state *s);
};
extern const struct tcp_cc_ops *const tcp_cc_ops[TCP_CC_COUNT];
extern const struct tcp_cc_ops tcp_cc_newreno, tcp_cc_cubic, tcp_cc_none, tcp_cc_bbr;

#define TCP_CWND_UNLIMITED (1u << 20) /* of "none": more than any buffer, less than overflows */
#define TCP_SSTHRESH_INFINITE 0x7fffffffu

/* For the algorithms (tcp/cc/choose.c): the first windows as init() gives them. */
void tcp_cc_first_window(struct tcp_cc_state *s);
/*
 * Slow start (RFC 5681, 3.1): grows cwnd up to ssthresh; returns what of acked is left for
 * congestion avoidance.
 */
uint32_t tcp_cc_slow_start(struct tcp_cc_state *s, uint32_t acked);
/* After each acknowledgement in slow start. True: it is over at this cwnd. */
bool tcp_hystart_rtt(struct tcp_hystart *h, const struct tcp_cc_rtt *rtt, uint32_t cwnd);
/* The larger of cwnd now and before the reduction. */
uint32_t tcp_cc_undo_cwnd(struct tcp_cc_state *s);

/*
 * --- queue/send_buffer.c: the bytes that the user gave, from snd_una (or before) to write_seq: a
 * rope of blocks
 */

struct tcp_block;
struct tcp_sndq {
	struct tcp_block *head, *tail;
	struct tcp_block *cursor; /* where the last look-up ended */
	uint32_t seq; /* of the first byte held */
	uint32_t len;
	uint32_t charge; /* memory of the blocks */
	uint32_t records; /* ends of records (MSG_EOR) in it */
};

void tcp_sndq_init(struct tcp_sndq *q, uint32_t seq);
/*
 * Copies up to len bytes from iov, skip bytes into it; returns how many it could (memory). Blocks:
 * small for little data, up to an eighth of the buffer, which is of so many bytes (SO_SNDBUF), or
 * 32 KiB.
 */
uint32_t tcp_sndq_put(struct tcp_sndq *q, const struct tcp_env *env, const struct iovec *iov,
		      int iovcnt, size_t skip, uint32_t len, uint32_t buffer);
/* See tcp_pieces_get(). */
void tcp_sndq_pieces(const struct tcp_env *env, uint32_t len, uint32_t buffer,
		     struct tcp_pieces *p);
/* The first len bytes of them are the next of the stream; how many there were. The rest stays. */
uint32_t tcp_sndq_take(struct tcp_sndq *q, struct tcp_pieces *p, uint32_t len);
/* The last byte that was put in ends a record: no segment has it and what is put in later. */
void tcp_sndq_end_record(struct tcp_sndq *q);
/* Bytes from seq on to the end of its record, len at most. */
uint32_t tcp_sndq_record(const struct tcp_sndq *q, uint32_t seq, uint32_t len);
/*
 * Vectors for [seq, seq+len), which must be held. Returns how many; *len is cut to what max vectors
 * cover.
 */
int tcp_sndq_iov(struct tcp_sndq *q, uint32_t seq, uint32_t *len, struct iovec *iov, int max);
/* Bytes before seq are no longer needed. */
void tcp_sndq_ack(struct tcp_sndq *q, const struct tcp_env *env, uint32_t seq);
void tcp_sndq_clear(struct tcp_sndq *q, const struct tcp_env *env);

/*
 * --- queue/scoreboard.c: what was sent and is not cumulatively acknowledged, in order of sequence:
 * the retransmission queue and the SACK scoreboard (RFC 6675) in one. The bytes are in the sndq.
 */

#define SEG_SYN 0x01u
#define SEG_FIN 0x02u
#define SEG_SACKED 0x04u
#define SEG_LOST 0x08u
#define SEG_RETRANS 0x10u /* a retransmission of it is in flight */
#define SEG_EVER_RETRANS 0x20u
#define SEG_PSH 0x40u
#define SEG_APP_LIMITED 0x80u /* rate.c: left when the program had no more to send */

struct tcp_seg {
	struct tcp_seg *next; /* by sequence */
	/* by time of the last transmission (RACK); not while SACKED, or LOST and not sent again */
	struct tcp_seg *tnext;
	union {
		struct tcp_seg *tprev;
		/* while SACKED: so are all from here to there; NULL: not known */
		struct tcp_seg *skip;
	};
	uint64_t sent_us; /* last transmission */
	union {
		/* while the queue has a tree; the number behind its links is ours */
		struct seq_node node;
		struct {
			struct seq_node *links[2];
			uint32_t seq, end_seq; /* with SYN and FIN */
		};
	};
	/* it is, or was, cut every mss bytes: pcount = ceil(payload / mss), at least 1 */
	uint16_t mss;
	uint8_t flags;
	uint8_t tries; /* transmissions - 1, saturating */
	uint32_t pcount;
	/*
	 * rate.c, when it last left: delivered and rate_delivered_us of the connection; when what
	 * was delivered latest by then had left.
	 */
	uint32_t delivered, delivered_us, first_us;
};

struct tcp_segq {
	struct tcp_seg *head, *tail;
	struct tcp_seg *thead, *ttail; /* oldest transmission first */
	struct seq_tree tree; /* of all, from the first look-up on until the queue is empty */
	uint32_t count; /* segs */
	/* In wire segments (pcount), as Linux counts them. */
	uint32_t packets_out, sacked_out, lost_out, retrans_out;
};

/* Appends what was just sent; NULL: no memory. */
struct tcp_seg *tcp_segq_add(struct tcp_segq *q, const struct tcp_env *env, uint32_t seq,
			     uint32_t end_seq, uint16_t mss, uint8_t flags, uint64_t now);
/*
 * Splits s at seq (inside it); the new second half follows it, same marks. NULL: no memory, s is
 * unchanged.
 */
struct tcp_seg *tcp_segq_split(struct tcp_segq *q, const struct tcp_env *env, struct tcp_seg *s,
			       uint32_t seq);
/* As tcp_segq_add() in two steps: the seg is the caller's until it is appended. NULL: no memory. */
struct tcp_seg *tcp_seg_new(const struct tcp_env *env, uint32_t seq, uint32_t end_seq, uint16_t mss,
			    uint8_t flags, uint64_t now);
void tcp_segq_append(struct tcp_segq *q, struct tcp_seg *s);
/* The seg that seq is in, or the last one; NULL: seq is before all. O(log n) in the mean. */
struct tcp_seg *tcp_segq_find(struct tcp_segq *q, uint32_t seq);
/*
 * s (may be NULL) or the first seg after it that is not SACKED; NULL: none. O(log n) in the mean.
 */
struct tcp_seg *tcp_segq_unsacked(const struct tcp_segq *q, struct tcp_seg *s);
/* Sets and clears marks keeping the counts. SEG_SACKED is not cleared here. */
void tcp_segq_mark(struct tcp_segq *q, struct tcp_seg *s, uint8_t set, uint8_t clear);
/* s was transmitted again: to the end of the time order. */
void tcp_segq_sent(struct tcp_segq *q, struct tcp_seg *s, uint64_t now);
/* Clears one mark of all segs: they return to their places in the order of time. O(n log n). */
void tcp_segq_unmark(struct tcp_segq *q, uint8_t mark);
/* The first one, which must be there, is no more. */
void tcp_segq_pop(struct tcp_segq *q, const struct tcp_env *env);
void tcp_segq_clear(struct tcp_segq *q, const struct tcp_env *env);

/*
 * --- queue/reassembly.c: received and in order (rcvq), received and out of order (ofo): bufs with
 * their place in the stream
 */

struct tcp_rcvq {
	struct buf *head, **tail;
	uint32_t charge; /* memory that the bufs occupy, as rcvbuf counts it */
	uint32_t count; /* bufs */
};

#define TCP_OFO_MAX 1024u /* intervals */

/*
 * An interval of the out-of-order queue: a run of bufs without holes. Sorted, disjoint, not
 * touching.
 */
struct tcp_ofo {
	struct tcp_ofo *next, *prev;
	union {
		struct seq_node node; /* of ofo_tree; the number behind its links is ours */
		struct {
			struct seq_node *links[2];
			uint32_t start, end;
		};
	};
	struct buf *head, **tail;
	bool fin; /* end includes a FIN */
	uint32_t charge;
};

/* --- the objects */

/* wheel_timer.kind: by this tcp_run_timers() finds the object. */
enum tcp_timer_kind {
	TCP_TIMER_RTX,
	TCP_TIMER_DELACK,
	TCP_TIMER_KEEP,
	TCP_TIMER_PACE,
	TCP_TIMER_REQ,
	TCP_TIMER_TW
};

/* An embryonic connection (SYN_RECV of a listener). */
struct tcp_req {
	struct tcp_node node; /* first */
	struct tcp_listener *l;
	struct tcp_req *next, **pprev; /* the listener's list, oldest first */
	struct wheel_timer timer; /* SYN|ACK again, or given up */
	uint64_t sent_us; /* first SYN|ACK */
	uint32_t irs, iss;
	uint32_t ts_recent, ts_off;
	uint32_t wnd; /* the peer's, as in its SYN */
	uint64_t oow_ack;
	uint16_t peer_mss, advmss, rcv_wnd;
	uint8_t retries;
	uint8_t snd_wscale, rcv_wscale;
	uint8_t tos;
	bool ts_ok, sack_ok, wscale_ok, ecn_ok;
	/*
	 * the handshake is complete, but the accept queue was full, or TCP_DEFER_ACCEPT waits for
	 * data
	 */
	bool acked;
};

/*
 * What only a Fast Open handshake has (RFC 7413). A client's and a server's connection keep it for
 * TCP_INFO; a server's is in its listener's list besides, until the handshake is complete.
 */
struct tcp_fast_open {
	struct tcp_fast_open *next, **pprev; /* of the listener's */
	struct tcp_listener *l; /* NULL: a client's, or in no list any more */
	uint64_t until; /* one that was reset counts until then (RFC 7413, 5.1) */
	struct tcp_fast_open_cookie cookie; /* of our SYN, or SYN|ACK, when it first leaves */
	uint16_t peer_mss; /* client: as it was remembered */
	uint16_t sent; /* client: bytes that the SYN had */
	uint8_t fail; /* tcpi_fastopen_client_fail */
};

/*
 * A TIME_WAIT (RFC 9293, 3.10.7.4; RFC 6191), also FIN_WAIT2 of a closed connection whose user is
 * gone.
 */
struct tcp_tw {
	struct tcp_node node; /* first */
	struct tcp_tw *next, **pprev; /* oldest first */
	struct wheel_timer timer;
	uint64_t ts_recent_stamp;
	uint32_t rcv_nxt, snd_nxt, rcv_wnd;
	uint32_t ts_recent, ts_off;
	/* whose tuple it took over while a user still has that; NULL: nobody has */
	struct tcp_conn *conn;
	/* when a segment out of the window was last answered (rate limit), 0: never */
	uint64_t oow_ack;
	uint8_t tos, rcv_wscale;
	bool ts_ok, fin_wait2;
	bool mute; /* tcp_forget(): what still comes for the tuple is dropped without an answer */
	void *user; /* gets TCP_EV_GONE; NULL: nobody */
};

/* What the retransmission timer waits for. */
enum tcp_pending {
	TCP_PENDING_NONE,
	TCP_PENDING_RTO,
	TCP_PENDING_TLP,
	TCP_PENDING_REO,
	TCP_PENDING_PROBE
};

/* What the sender's time goes to; the greater one counts. */
enum tcp_spends {
	TCP_SPENDS_NOT, /* nothing to send, nothing in flight */
	TCP_SPENDS_BUSY,
	TCP_SPENDS_RWND, /* the peer's window is full */
	TCP_SPENDS_SNDBUF /* the program waits for room in a send buffer that the path has drained
			   */
};

/* mtu/probe.c; sizes of IP packets. */
struct tcp_mtu_probe {
	uint64_t stamp; /* when the search began */
	uint32_t low, high; /* gets through; the largest that may */
	uint32_t size; /* of what is being tried, 0: nothing */
	uint32_t start, end; /* its numbers */
	bool is_on;
};

/* conn_ext.c: made when one of it is needed first. */
struct tcp_conn_ext {
	uint64_t bytes_retrans;
	uint32_t rwnd_ms, sndbuf_ms; /* tcp_spends() */
	uint32_t rcv_ooopack; /* segments behind a hole */
	uint32_t delivered_ce; /* wire segments whose acknowledgement said ECE */
	uint32_t rto_min_us; /* of the route, 0: the stack's */
	uint16_t initcwnd; /* of the route, 0: TCP_INIT_CWND */
	uint16_t rtos, rto_recoveries; /* timeouts; first ones of a row */
	uint32_t rto_ms, rto_since; /* in such rows; 0: in none now */
	uint32_t shown_seq; /* while tcp_conn.shows: what lies before may be read */
	struct tcp_mtu_probe probe;
	struct tcp_fast_open *fast_open; /* NULL: the handshake was an ordinary one */
};

/* As in Linux's tcpi_ca_state. */
enum tcp_ca { TCPCA_OPEN, TCPCA_DISORDER, TCPCA_CWR, TCPCA_RECOVERY, TCPCA_LOSS };

/*
 * What the next segment in order reads and writes stands first and together: with a million
 * connections each line of it is a miss in every cache. What only loss, the handshake and the end
 * need comes behind.
 */
struct tcp_conn {
	/* Found by the tuple; on to the user. */
	struct tcp_node node; /* first */
	struct tcp_stack *ts;
	void *user;
	struct tcp_conn *dirty_next; /* flush list */

	/* State, and what header prediction asks. */
	uint8_t state; /* enum tcp_state */
	uint8_t ca_state, pending;
	bool dirty; /* on the flush list */
	bool orphan; /* the user has closed it */
	bool closing; /* being torn down: no more events but GONE */
	bool ts_ok, sack_ok;
	uint8_t snd_wscale, rcv_wscale;
	bool urg_valid, urg_here; /* announced; its byte is in urg_byte */
	/* tlp_out: see tlp_end_seq; frto_new: see frto; nospace: see snd_urg */
	bool tlp_out, frto_new, nospace, fin_queued;

	/* Acknowledging. */
	uint8_t ack_needed; /* 0: no; 1: may wait (the delack timer runs); 2: at the flush */
	uint8_t quick; /* quick ACKs left; whoever sends an ACK, alone or with data, takes one */
	/*
	 * small segments since the last ACK, up to 2: the user's reading acknowledges them; cleared
	 * with ack_needed
	 */
	uint8_t pushed;
	bool pingpong; /* interactive: our data carry the ACKs */
	uint8_t probes, backoff;
	uint16_t soft_error; /* of ICMP: reported if the connection times out */

	/* Receive (RFC 9293, 3.3.1). */
	uint32_t rcv_nxt, rcv_wup; /* rcv_wup: rcv_nxt when the window was last told */
	uint32_t rcv_wnd; /* as last told, from rcv_wup on, bytes */
	uint32_t ts_recent;
	uint64_t ts_recent_stamp;
	struct tcp_rcvq rcvq;
	struct tcp_ofo *ofo;
	uint32_t ofo_charge; /* of those, and of what the user has taken (tcp_take()) */
	uint32_t copied_seq; /* first byte that the user has not read */
	/* estimate of the peer's segments (for delayed ACKs), super-segments count as mss */
	uint32_t rcv_mss;
	uint32_t last_seg_size;
	uint32_t advmss; /* what our SYN said */
	uint32_t ato_us;
	uint64_t last_rcv_us;
	uint64_t rcv_rtt_time;
	uint32_t rcv_rtt_us, rcv_rtt_seq, rcv_rtt_tsecr; /* receiver's own RTT estimate */
	uint32_t ts_off;
	uint64_t bytes_received;
	uint32_t segs_in, data_segs_in;
	uint32_t window_clamp, rcv_ssthresh;
	struct wheel_timer delack;

	/* Send. */
	uint32_t snd_una, snd_nxt, snd_wnd, snd_wl1, max_wnd;
	/* behind the last byte that the user gave (a queued FIN has this number) */
	uint32_t write_seq;
	uint32_t iss;
	uint32_t fack; /* end of the highest SACKed segment; snd_una when there is none */
	uint32_t delivered, lost; /* wire segments */
	uint64_t rcv_tstamp; /* last ACK received */
	struct tcp_rtt rtt;
	struct tcp_segq segq;
	struct tcp_sndq sndq;
	uint64_t lsndtime; /* last data sent */
	uint32_t spent_since, busy_ms; /* see `spends`; low bits of milliseconds */
	uint64_t bytes_acked, bytes_sent;
	uint32_t segs_out, data_segs_out;
	uint32_t last_ack_sent;
	/* behind the last PSH; end of the last small segment (Minshall) */
	uint32_t push_seq, sml_seq;
	uint32_t mss; /* payload of a full segment now: path, peer and options taken into account */
	/* largest payload of one transmission: whole segments of mss, at least one */
	uint32_t gso_len;
	uint32_t snd_up; /* urgent: the byte after; valid while snd_urg */
	struct tcp_sack_block dsack; /* to be told with the next ACK; start == end: none */
	bool snd_urg, cwr; /* cwr: the next new data says so */
	bool more; /* the last send said MSG_MORE: no PSH at its end */
	bool more_holds; /* as corked, until the peer's next segment (Linux: MSG_MORE) */
	bool push_held; /* what more or a cork holds is to go: TCP_NODELAY was set */
	/* nospace, above: the user was told -EAGAIN: EV_OUT when a third is free */
	bool ece; /* ECE until a CWR comes */
	bool ecn_ok, cwnd_limited;
	struct tcp_opts o;
	struct wheel_timer rtx; /* `pending` says what for */
	struct tcp_cc_state cc;
	/* largest packets_out of this round, which ends at max_out_seq: is the window used? */
	uint32_t max_out;
	uint32_t max_out_seq;
	uint32_t cwnd_used; /* since cwnd_stamp, while the window was not the limit (RFC 2861) */
	/*
	 * rate.c: when something was last delivered; when that had left; what `delivered` becomes
	 * when all is that left while the program had nothing more to send (0: it had). Low bits of
	 * microseconds. Each stands where there was a gap.
	 */
	uint32_t rate_delivered_us;
	uint64_t cwnd_stamp;
	uint64_t pace_next; /* earliest time of the next transmission when paced */

	/* Rare: identity, the handshake, the end. */
	struct tcp_conn_ext *ext; /* NULL: nothing of it was needed yet */
	struct tcp_conn *next, **pprev; /* the stack's list, or the listener's accept queue */
	struct tcp_listener *l; /* accepted from it, but not by accept() yet */
	/* whom output() refused; pprev is NULL: not on it */
	struct tcp_conn *blocked_next, **blocked_pprev;
	struct tcp_tw *tw; /* CLOSED, the user still has it, and this keeps the tuple */
	bool shut_rd, shut_wr; /* the user has; shut_wr: a FIN is or will be queued */
	bool fin_sent, fin_acked, fin_rcvd;
	bool reset_on_close; /* data was thrown away: close means RST */
	bool wscale_ok;
	bool urg_read : 1;
	bool shows : 1; /* tcp_set_shows(); ext is there */
	bool shows_end : 1; /* not any more when `showing` is over */
	bool showing : 1; /* the user has what was to be shown, and has not decided */
	uint8_t urg_byte;
	bool sack_reneged;
	uint8_t mtu_tried; /* black hole: retries at the last step down */
	uint8_t mtu_holes; /* how many were found */
	uint16_t so_error; /* positive errno, taken by the user */
	uint8_t num_recent, num_sack_seen;
	uint32_t irs;
	uint32_t rcv_up; /* urgent pointer: the byte after the urgent one */
	uint32_t peer_mss, pmtu, max_gso;
	uint32_t rate_first_us;
	/*
	 * when a segment out of the window or a challenge was last answered (500 ms apart), 0:
	 * never
	 */
	uint64_t oow_ack;
	uint64_t mtu_stamp; /* of the last step down at a black hole */
	uint32_t rcvq_space_seq, rcvq_space; /* auto-tuning: bytes read in an RTT */
	uint64_t rcvq_space_time;

	/* Out of order, and recovery. */
	struct tcp_ofo *ofo_tail;
	struct seq_tree ofo_tree;
	uint32_t ofo_count;
	/* numbers in the intervals that changed last, the latest first */
	uint32_t sack_recent[TCP_SACK_MAX];
	uint32_t app_limited; /* see rate_delivered_us */
	/* no seg before it waits for its retransmission, NULL: not known */
	struct tcp_seg *rtx_hint;
	/* of the last ACK that had any: need not be walked again */
	struct tcp_sack_block sack_seen[TCP_SACK_MAX];
	uint32_t high_seq; /* snd_nxt when the state was entered */
	uint32_t undo_marker; /* valid while can_undo */
	/* retransmissions that no D-SACK has called needless, -1: none was made */
	int32_t undo_retrans;
	uint32_t prr_delivered, prr_out; /* RFC 6937 */
	uint32_t reordering;
	bool can_undo;
	bool frto; /* RFC 5682: the retransmission timeout may have been spurious */
	/* frto_new, above: its step 2b: new data before retransmissions, at the next output */
	uint8_t retries;
	uint8_t rack_reo_steps, rack_persist;
	bool rack_dsack_seen, rack_reord, rack_advanced;
	bool tlp_retrans : 1, syn_held : 1; /* syn_held: SYN_SENT, tcp_hold_syn() */
	bool pace_waits; /* data waits for pace_next */
	bool rate_app_limited; /* the last rate is one of a program that had no more to send */
	uint8_t spends : 2; /* enum tcp_spends, since spent_since */
	bool ecn_seen : 1; /* a segment that said ECT or CE */
	bool quickack : 1, mtu_locked : 1; /* of the route (struct tcp_route) */
	/*
	 * handshake/fast_open.c. fo_waits: SYN_SENT, the SYN waits for the first data; fo_child:
	 * SYN_RECV, and the user may read and write; syn_data: what a SYN brought was acknowledged
	 */
	bool fo_waits : 1, fo_child : 1, syn_data : 1;
	uint32_t rack_rtt_us, rack_end_seq, rack_dsack_round;
	uint32_t tlp_end_seq; /* valid while tlp_out */
	uint32_t rate_delivered; /* the last rate: so many segments in rate_interval_us (0: none) */
	uint64_t rack_mstamp;
	uint64_t retrans_stamp; /* first retransmission of this recovery (us), 0: none */
	uint64_t probe_stamp; /* first unanswered probe or retransmission: user timeout */
	uint32_t total_retrans; /* wire segments */
	uint32_t dsack_dups, reord_seen;
	uint32_t rate_interval_us;
	struct wheel_timer keep; /* keepalive, or the end of FIN_WAIT2 */
	struct wheel_timer pace;
};

/* What a segment and its acknowledgement touch ends here. */
#define TCP_CONN_HOT offsetof(struct tcp_conn, rtx)
/* All of an idle connection: the issue allows 1536 bytes with the socket on top. */
_Static_assert(sizeof(struct tcp_conn) <= 1096, "an idle connection has grown");
/*
 * A segment in order that needs no answer: these five lines, RTT and retransmission queue behind
 * them, options.
 */
_Static_assert(offsetof(struct tcp_conn, rtt) <= 320, "the receiver's part has grown");

struct tcp_listener {
	struct tcp_listener *next, **pprev; /* bucket by port */
	struct tcp_stack *ts;
	void *user;
	struct tcp_listen_spec spec;
	struct tcp_opts o;
	struct tcp_req *reqs, **reqs_tail;
	struct tcp_conn *accept_head, **accept_tail;
	bool stopped; /* tcp_listen_stop() */
	unsigned num_reqs, num_accept;
	/* when cookies were last sent: acceptable for two minutes from then */
	uint64_t cookie_stamp;
	uint64_t syn_second; /* VMA_TCP_MAX_SYN_RATE: of which syn_left more are answered */
	uint32_t syn_left;
	struct tcp_fast_open_server fast_open;
	/* of SYN_RECV, by a cookie; those that were accepted and then reset, the oldest first */
	struct tcp_fast_open *fo_open, *fo_reset, **fo_reset_tail;
	uint32_t fo_count; /* of both */
};

#define TCP_LISTEN_BUCKETS 64u

struct tcp_stack {
	struct tcp_env env;
	struct tcp_cfg cfg;
	uint64_t now;
	struct tcp_table table;
	struct tcp_listener *listeners[TCP_LISTEN_BUCKETS];
	struct wheel wheel;
	struct tcp_conn *last; /* whose segment came last, NULL: not known */
	struct tcp_conn *conns; /* all that are not in an accept queue */
	struct tcp_conn *dirty, **dirty_tail;
	bool blocked; /* output() has refused something since tcp_tx_ready() */
	/* to whom: they go first when there is room again; who waited longest first */
	struct tcp_conn *refused, **refused_tail;
	/* done, their users gone: freed at the end of the flush (linked by next) */
	struct tcp_conn *dead;
	struct buf_pool pool; /* of the bufs that receive queues are collapsed into */
	uint64_t read_time_ns; /* tcp_read_time() */
	/* of the connection that follows a TIME_WAIT (RFC 6191), 0: none; within tcp_input() */
	uint32_t reuse_isn;
	struct tcp_tw *tws, **tws_tail;
	unsigned num_conns, num_orphans, num_tw;
	uint64_t challenge_second; /* RFC 5961, 7: challenge ACKs in this second */
	uint32_t challenge_left;
	struct tcp_counters n;
};

static inline void *tcp_alloc(struct tcp_stack *ts, size_t size)
{
	return ts->env.alloc(ts->env.ctx, size);
}

static inline void tcp_free(struct tcp_stack *ts, void *p, size_t size)
{
	ts->env.free(ts->env.ctx, p, size);
}

static inline struct tcp_conn *tcp_conn_of_timer(struct wheel_timer *t, size_t offset)
{
	return (struct tcp_conn *)((char *)t - offset);
}

static inline uint32_t tcp_min_rto(const struct tcp_conn *c)
{
	return c->ext && c->ext->rto_min_us ? c->ext->rto_min_us : c->ts->cfg.min_rto_us;
}

static inline uint32_t tcp_init_cwnd(const struct tcp_conn *c)
{
	return c->ext && c->ext->initcwnd ? c->ext->initcwnd : TCP_INIT_CWND;
}

/* tcp_tx.user of its segments: until it is accepted its listener's, unless it has one. */
static inline void *tcp_tx_user(const struct tcp_conn *c)
{
	return c->user || !c->l ? c->user : c->l->user;
}

/* Puts c on the flush list. */
static inline void tcp_mark_dirty(struct tcp_conn *c)
{
	struct tcp_stack *ts = c->ts;

	if (c->dirty)
		return;
	c->dirty = true;
	c->dirty_next = NULL;
	*ts->dirty_tail = c;
	ts->dirty_tail = &c->dirty_next;
}

/* Time stamp option's clock: milliseconds with the connection's own offset (RFC 7323, 5.4). */
static inline uint32_t tcp_ts_now(const struct tcp_conn *c)
{
	return (uint32_t)(c->ts->now / 1000) + c->ts_off;
}

/*
 * tcp/cc/choose.c: the connection's algorithm, at its beginning or later; CUBIC when there is no
 * memory for BBR, or no such number. Drop: at the end; no operation may be called after it.
 */
void tcp_cc_set(struct tcp_conn *c, uint8_t cc);
void tcp_cc_drop(struct tcp_conn *c);

/* Bytes/s that may leave: the user's limit or the algorithm's; UINT64_MAX: neither. */
static inline uint64_t tcp_pacing_rate(const struct tcp_conn *c)
{
	uint64_t rate = c->o.pacing_rate;

	if (c->o.cc == TCP_CC_BBR && c->cc.bbr && c->cc.bbr->pacing_rate < rate)
		rate = c->cc.bbr->pacing_rate;
	return rate;
}

/* --- socket/tcp/connect.c: birth, death, state (states and their transitions are told here) */

/*
 * A zeroed connection with options, timers and queues made, in no state and no table. NULL: no
 * memory.
 */
struct tcp_conn *tcp_conn_new(struct tcp_stack *ts, const struct tcp_tuple *tuple,
			      const struct tcp_opts *o);
void tcp_set_state(struct tcp_conn *c, enum tcp_state state);
/*
 * The end: out of the table, timers and send buffers gone, CLOSED; what was received can still be
 * read. err: 0 or a positive errno for the user. When the user is gone the memory follows at the
 * end of the flush (TCP_EV_GONE): c can be looked at until then, but nothing may be sent or armed
 * (c->closing).
 */
void tcp_conn_done(struct tcp_conn *c, int err);
/* As tcp_conn_done(), but a tcp_tw takes the tuple over. */
void tcp_conn_time_wait(struct tcp_conn *c, bool fin_wait2);
/* As tcp_conn_done() without an error; n takes the tuple over. */
void tcp_conn_replace(struct tcp_conn *c, struct tcp_node *n);
/* Tells the user; nothing once `closing`. */
void tcp_event(struct tcp_conn *c, uint32_t events);
/*
 * The user has let go: what is done already dies with the flush, else tcp_conn_done() will see to
 * it.
 */
void tcp_conn_release(struct tcp_conn *c);
/* Frees the dead; at the end of the flush. */
void tcp_conn_reap(struct tcp_stack *ts);
/* On the stack's list (not while in an accept queue). */
void tcp_conn_link(struct tcp_conn *c);
/* Off whatever list it is on, onto the one of the dead. */
void tcp_conn_bury(struct tcp_conn *c);
/*
 * The window that a SYN tells (Linux: tcp_select_initial_window); segments: at most so many of mss,
 * 0: any number.
 */
uint32_t tcp_initial_window(const struct tcp_opts *o, uint32_t mss, uint32_t segments);
/* What the tuple's route asks, and the options o with that. */
struct tcp_route tcp_route_of(struct tcp_stack *ts, const struct tcp_tuple *tuple,
			      struct tcp_opts *o);
/* The peer's SYN: irs and what follows from it. */
void tcp_conn_set_irs(struct tcp_conn *c, uint32_t irs);
/* A RST that must be believed has come (Linux: tcp_reset()). */
void tcp_conn_reset(struct tcp_conn *c);
/* mss, windows and buffers from what the handshake brought (both sides). */
void tcp_conn_established(struct tcp_conn *c);

/* --- conn_ext.c */

/* The part that few connections need, made if need be. NULL: no memory, or the connection is over.
 */
struct tcp_conn_ext *tcp_conn_ext(struct tcp_conn *c);
/* The connection's memory goes. */
void tcp_conn_ext_drop(struct tcp_conn *c);
/* The sender's time goes to this from now on, or no more. */
void tcp_spends(struct tcp_conn *c, enum tcp_spends what);
void tcp_spends_no_more(struct tcp_conn *c, enum tcp_spends what);
/* The connection is over; what it was spent on is still told. */
void tcp_spends_nothing(struct tcp_conn *c);
struct tcp_spent {
	uint64_t all_ms;
	uint32_t rwnd_ms, sndbuf_ms;
};
void tcp_spent(const struct tcp_conn *c, uint64_t now, struct tcp_spent *s);
/* A retransmission timeout, before `retries` counts it; the Loss state is left. */
void tcp_count_rto(struct tcp_conn *c);
void tcp_rto_over(struct tcp_conn *c);

/* --- input.c, handshake/syn_sent.c, input_data.c: RFC 9293, 3.10.7 */

/* A segment for c, whatever its state. */
void tcp_conn_input(struct tcp_conn *c, struct tcp_rx *rx);
/* A segment in SYN_SENT. */
void tcp_syn_sent_input(struct tcp_conn *c, struct tcp_rx *rx);
/* rx's urgent pointer, and the urgent byte when it is in rx. */
void tcp_urgent_input(struct tcp_conn *c, const struct tcp_rx *rx);
/* rx is the next data, within the window, without FIN; rx->b stays when there is no memory. */
void tcp_data_in_order(struct tcp_conn *c, struct tcp_rx *rx);
/* What is due to be acknowledged after the output: now, or by the timer. */
void tcp_ack_flush(struct tcp_conn *c);
/* Data of rx (trimmed here to the window) into the queues; FIN; acknowledgement scheduled. */
void tcp_data_input(struct tcp_conn *c, struct tcp_rx *rx);
/* SACK blocks to be told now, D-SACK first (RFC 2018, 2883). Returns how many. */
unsigned tcp_sack_blocks(struct tcp_conn *c, struct tcp_sack_block *to, unsigned max);
/*
 * The window that rcvbuf, auto-tuning and the clamp allow now, bytes from rcv_nxt on. Silly-window
 * avoidance, rounding and not taking back what was told are tcp_select_window()'s.
 */
uint32_t tcp_rcv_space(const struct tcp_conn *c);
/* What rcvbuf alone leaves, bytes: by this a window is judged silly or not. */
uint32_t tcp_rcv_free(const struct tcp_conn *c);
/* What is left of the window that was told (never negative). */
static inline uint32_t tcp_rcv_window(const struct tcp_conn *c)
{
	uint32_t right = c->rcv_wup + c->rcv_wnd;

	return seq_after(right, c->rcv_nxt) ? right - c->rcv_nxt : 0;
}
/* --- queue/reassembly.c, recv.c: the receive queues and the user's end of them */

/* Whether rcvbuf takes b (which lies at seq); makes room of what may be dropped. */
bool tcp_rcvq_admit(struct tcp_conn *c, const struct buf *b, uint32_t seq);
/* Appends b, whose first byte has the number rcv_nxt; takes it. rcv_nxt is the caller's to move. */
void tcp_rcvq_add(struct tcp_conn *c, struct buf *b);
/*
 * What waits first, copied to the heap: it is one piece, and may outlive the stack. False: no
 * memory, nothing has happened. Something waits.
 */
bool tcp_rcvq_front_to_heap(struct tcp_conn *c);
/* Frees what was received and not read. */
void tcp_rcvq_clear(struct tcp_conn *c);
/*
 * [seq, end) with rx's payload into the out-of-order queue; takes rx->b if it keeps it. fin: end
 * counts a FIN. What is there already becomes a D-SACK.
 */
void tcp_ofo_add(struct tcp_conn *c, struct tcp_rx *rx);
/*
 * Moves what has become in order to the receive queue, rcv_nxt with it; true: the peer's FIN was
 * among it.
 */
bool tcp_ofo_drain(struct tcp_conn *c);
/* The interval that seq is in, NULL: none. */
struct tcp_ofo *tcp_ofo_find(struct tcp_conn *c, uint32_t seq);
void tcp_ofo_clear(struct tcp_conn *c);
/*
 * Cuts what rx covers down to [start, end), within it; a FIN that is not the last of that goes.
 * rx->b becomes NULL when no payload is left.
 */
void tcp_rx_cut(struct tcp_rx *rx, uint32_t start, uint32_t end);
/* Drops the first n bytes of a chain; returns its new head, NULL when nothing is left. */
struct buf *tcp_buf_trim_front(struct buf *b, uint32_t n);
/* Ends a chain after its first `keep` bytes. */
void tcp_buf_trim_tail(struct buf *b, uint32_t keep);
/* What [start, end) of a D-SACK says: received again (RFC 2883). */
void tcp_dsack_set(struct tcp_conn *c, uint32_t start, uint32_t end);
/* The user stands at the mark and its byte is not part of the stream: steps over it. */
void tcp_skip_mark(struct tcp_conn *c);
/* poll's POLLIN for data. */
bool tcp_readable(const struct tcp_conn *c);

/*
 * An answer to a segment out of the window may be sent now: at most one in 500 ms for each stamp
 * (Linux: tcp_invalid_ratelimit).
 */
bool tcp_oow_allowed(struct tcp_stack *ts, uint64_t *stamp);
/*
 * As above, for a segment; one with data or a FIN is no part of a loop of ACKs and always answered.
 */
static inline bool tcp_oow_answer(struct tcp_stack *ts, uint64_t *stamp, const struct tcp_rx *rx)
{
	return (rx->seq != rx->end_seq && !(rx->flags & TCPHDR_SYN)) || tcp_oow_allowed(ts, stamp);
}
/*
 * The MSS that a SYN or SYN|ACK of ours says: of the route or path, or TCP_MAXSEG when that is less
 * (socket/tcp/connect.c).
 */
uint16_t tcp_adv_mss(struct tcp_stack *ts, const struct tcp_tuple *tuple, const struct tcp_opts *o,
		     const struct tcp_route *route);
/* An answer to data was wanted at once: the next `max` ACKs are not delayed (input_data.c). */
void tcp_enter_quickack(struct tcp_conn *c, unsigned max);

/* --- handshake/fast_open_client.c */

/* Bytes that the SYN takes; those that it had. */
uint32_t tcp_fast_open_room(const struct tcp_conn *c);
uint32_t tcp_fast_open_sent(const struct tcp_conn *c);
/* The SYN|ACK is here, its acknowledgement not taken in yet. True: data of the SYN must go again.
 */
bool tcp_fast_open_answered(struct tcp_conn *c, const struct tcp_rx *rx);
/* A SYN goes unanswered; before `retries` counts it. */
void tcp_fast_open_timeout(struct tcp_conn *c);

/* --- handshake/fast_open.c */

/*
 * The Fast Open side of a SYN for l. True: it has become a connection, which is answered and can be
 * accepted. False: an ordinary handshake, whose SYN|ACK is to say *answer.
 */
bool tcp_fast_open_syn(struct tcp_listener *l, struct tcp_rx *rx, const struct tcp_tuple *tuple,
		       struct tcp_fast_open_cookie *answer);
/* The SYN of a connection in SYN_RECV once more; true: it is done with. */
bool tcp_fast_open_syn_again(struct tcp_conn *c, const struct tcp_rx *rx);
/* Our SYN|ACK is acknowledged: it counts no more against its listener's limit. */
void tcp_fast_open_complete(struct tcp_conn *c);
/* c ends; reset: by the peer. */
void tcp_fast_open_over(struct tcp_conn *c);
void tcp_fast_open_reset(struct tcp_conn *c);
/* The listener ends. */
void tcp_fast_open_unlisten(struct tcp_listener *l);
/* c's memory goes. */
void tcp_fast_open_drop(struct tcp_conn *c);

/* --- handshake/request.c, handshake/syn_cookie.c, time_wait.c */

/* What the SYN says and the listener allows. r is zeroed; it gets no ISN. */
void tcp_req_fill(struct tcp_req *r, struct tcp_listener *l, const struct tcp_rx *rx,
		  const struct tcp_tuple *tuple);
/*
 * A connection with what the handshake has settled, but for what it sends; in no table or queue.
 * NULL: no memory.
 */
struct tcp_conn *tcp_req_child(const struct tcp_req *r, const struct tcp_rx *rx);
/* c, in the table, can be accepted. */
void tcp_accept_add(struct tcp_listener *l, struct tcp_conn *c);

/*
 * SYN|ACKs that go unanswered, unless TCP_SYNCNT says another number than the default (Linux:
 * tcp_synack_retries, tcp_syn_retries).
 */
#define TCP_SYNACK_RETRIES 5u
#define TCP_SYN_RETRIES 6u

/*
 * The handshake with r's partner is complete (rx says so): a connection in l's accept queue, which
 * is given rx. r is freed if it is in the table; one of a cookie is not. False: no room, or no
 * memory.
 */
bool tcp_req_complete(struct tcp_req *r, struct tcp_rx *rx);
/* SYN|ACK for r; tsval: 0, or what a cookie's time stamp says; fo may be NULL. */
void tcp_send_synack(struct tcp_stack *ts, const struct tcp_req *r, uint32_t tsval,
		     const struct tcp_fast_open_cookie *fo);
/* A SYN without state: answered with a cookie. r: filled but for iss. */
void tcp_cookie_syn(struct tcp_req *r, const struct tcp_rx *rx);
/* Milliseconds as time stamps count them, without a connection's offset. */
static inline uint32_t tcp_ts_clock(const struct tcp_stack *ts)
{
	return (uint32_t)(ts->now / 1000);
}
/* RFC 7323, 5.3: rx's time stamp is older than ts_recent, which is not too old itself (24 days). */
bool tcp_paws_reject(uint64_t now, uint32_t ts_recent, uint64_t ts_recent_stamp,
		     const struct tcp_rx *rx, int32_t slack);
/* A SYN for l. */
void tcp_listen_syn(struct tcp_listener *l, struct tcp_rx *rx, const struct tcp_tuple *tuple);
/*
 * A segment for an embryonic connection; may make it a connection that is then given the segment.
 */
void tcp_req_input(struct tcp_req *r, struct tcp_rx *rx);
void tcp_req_free(struct tcp_req *r);
/* tcp_env.begins() for n, which stands for a handshake at l. False: it is not to be answered. */
bool tcp_begins(const struct tcp_listener *l, struct tcp_node *n);
/* tcp_env.ended(), if that is due. */
void tcp_ended(struct tcp_stack *ts, struct tcp_node *n);
void tcp_req_timer(struct tcp_req *r);
/* An ACK without connection that reaches l: a cookie come back? */
bool tcp_cookie_input(struct tcp_listener *l, struct tcp_rx *rx, const struct tcp_tuple *tuple);
/*
 * True: the segment is done with. False: the TIME_WAIT is gone and the segment (a SYN) is to be
 * looked up anew (RFC 6191).
 */
bool tcp_tw_input(struct tcp_stack *ts, struct tcp_tw *tw, struct tcp_rx *rx);
void tcp_tw_free(struct tcp_stack *ts, struct tcp_tw *tw);
/* A TIME_WAIT (or FIN_WAIT2) made from c, not in the table yet. NULL: no memory. */
struct tcp_tw *tcp_tw_new(struct tcp_conn *c, bool fin_wait2);
/*
 * The same of one that somebody else goes on with: until then its segments are dropped without an
 * answer. It is none of tcp_config.max_tw.
 */
struct tcp_tw *tcp_tw_mute(struct tcp_conn *c, uint64_t until);
void tcp_tw_timer(struct tcp_stack *ts, struct tcp_tw *tw);
struct tcp_listener *tcp_listener_find(struct tcp_stack *ts, const struct tcp_tuple *tuple);
/* RFC 6528. */
uint32_t tcp_isn(const struct tcp_stack *ts, const struct tcp_tuple *tuple);
uint32_t tcp_ts_offset(const struct tcp_stack *ts, const struct tcp_tuple *tuple);
/* Receive window scale that suits a buffer of this size. */
uint8_t tcp_wscale_for(const struct tcp_opts *o);

/* --- output.c, control.c: what leaves */

/*
 * The sending half of a new connection (of tcp_conn_new() and of tcp_req's): queues, RTT,
 * congestion control, mss. iss: of the SYN; acked: the SYN has been acknowledged already (passive
 * open).
 */
void tcp_snd_init(struct tcp_conn *c, uint32_t iss, bool acked);
/*
 * Sends all that windows, Nagle, cork and pacing let go: retransmissions first, then new data and
 * FIN. Arms timers.
 */
void tcp_output(struct tcp_conn *c);
/* c no longer waits for tcp_tx_ready(). */
void tcp_unblock(struct tcp_conn *c);
/* A pure ACK now; clears what is due to be acknowledged. */
void tcp_send_ack(struct tcp_conn *c);
/* RFC 5961: an ACK within the rate limits. */
void tcp_challenge_ack(struct tcp_conn *c);
/*
 * SYN in SYN_SENT: iss, advmss, rcv_wnd, rcv_wscale, ts_off are set. Makes the SEG_SYN, snd_nxt =
 * iss + 1, arms the timer. In SYN_RECV (simultaneous open) the SEG_SYN is there already: goes out
 * again as SYN|ACK. tcp_output() does nothing in these two states: tcp_flush() calls this when
 * snd_nxt == iss, handshake/syn_sent.c when the peer's SYN comes.
 */
void tcp_send_syn(struct tcp_conn *c);
/* Our SYN has not left. Not by numbers alone: after 4 GiB iss is one of the stream's. */
static inline bool tcp_syn_to_come(const struct tcp_conn *c)
{
	return c->snd_nxt == c->iss && (c->state == TCPS_SYN_SENT || c->state == TCPS_SYN_RECV);
}
/* The SYN (or, when the peer's came first, the SYN|ACK) found no room in the queue yet. */
static inline bool tcp_syn_unsent(const struct tcp_conn *c)
{
	return tcp_syn_to_come(c) && !c->fo_waits && !c->syn_held;
}
/* RST of a connection (RST|ACK at snd_nxt). */
void tcp_send_rst(struct tcp_conn *c);
/* RFC 9293, 3.10.7.1: the answer to a segment that belongs to nothing. Never to a RST. */
void tcp_reply_rst(struct tcp_stack *ts, const struct tcp_tuple *tuple, const struct tcp_rx *rx);
/* A bare segment that belongs to no connection object: header by spec. */
int tcp_xmit_bare(struct tcp_stack *ts, const struct tcp_tuple *tuple, void *user,
		  const struct tcp_hdr_spec *h, uint8_t tos, uint8_t ttl);
/* The window to tell (scaled), remembering it (RFC 9293, 3.8.6.2.2: silly window avoidance). */
uint16_t tcp_select_window(struct tcp_conn *c);
/* The user has read: tell the window if it opened enough. */
void tcp_window_update(struct tcp_conn *c);
/*
 * c->mss and gso_len from pmtu (asked of env.path() while 0), the peer's MSS, maxseg and the
 * options of every segment.
 */
void tcp_sync_mss(struct tcp_conn *c);
/* window_clamp is what the receive buffer, and the user, allow. */
void tcp_clamp_by_rcvbuf(struct tcp_conn *c);
/* Before the SYN has left: what was asked of env.path() is asked again. */
void tcp_path_anew(struct tcp_conn *c);
/*
 * Room in the send buffer that is worth waking somebody: a third is free, TCP_NOTSENT_LOWAT
 * (send.c).
 */
bool tcp_writable(const struct tcp_conn *c);
/* Keepalive on: the timer is armed when the connection is established (timers.c). */
void tcp_keep_start(struct tcp_conn *c);

/* --- ack.c, tcp/recovery/sack.c, tcp/recovery/rack.c, tcp/recovery/states.c: what comes back */

/*
 * The acknowledgement field, window and SACK blocks of an acceptable segment (ack within [snd_una,
 * snd_nxt], or older: for its SACK blocks): frees what is acknowledged, RTT, loss detection,
 * congestion window, undo. Output follows at the flush. In SYN_SENT and SYN_RECV it is the ACK of
 * our SYN (its window is not scaled when SYN is in rx->flags). Sets fin_acked; what follows from
 * that for the state is the caller's.
 */
void tcp_ack_input(struct tcp_conn *c, const struct tcp_rx *rx);
/* A send buffer that auto-tuning may grow: room for two windows. */
void tcp_sndbuf_expand(struct tcp_conn *c);
/* RTT of a passive open's handshake (us), for which there was no segq. */
void tcp_ack_syn(struct tcp_conn *c, uint32_t rtt_us);
void tcp_rtx_timer(struct tcp_conn *c); /* c->rtx has run out */
void tcp_delack_timer(struct tcp_conn *c);
void tcp_keep_timer(struct tcp_conn *c);
void tcp_pace_timer(struct tcp_conn *c);
/* After a transmission or an ACK: RTO or TLP as the flight wants it. */
void tcp_rearm_rtx(struct tcp_conn *c);
/* Enters or leaves the zero-window probe state. */
void tcp_check_probe(struct tcp_conn *c);
uint32_t tcp_rto(const struct tcp_conn *c); /* with back-off */

#endif
