/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The simulator: two hosts, each with one engine, and a wire between them that follows a plan. Time
 * is virtual, the plan and every throw of the dice come from one seed. A file is a noun: plan (what
 * will happen), wire (packets under way), host (an engine with its memory), end (an application at
 * one end of a connection), check (what must hold), world (the events in their order).
 */
#ifndef SIM_SIM_H
#define SIM_SIM_H

#include <setjmp.h>

#include "tcp/tcp.h"
#include "tcp/internal.h"
#include "rng.h"
#include "seg.h"

#define MAX_CONNS 4u
#define SERVER_PORT 5001u
#define CLIENT_PORT 40000u /* of connection 0; the next ones follow */
#define FLOOD_PORT 20000u
#define US_PER_S 1000000ull

/* --- plan.c */

struct wire_plan { /* one direction */
	uint32_t loss_ppm, dup_ppm, corrupt_ppm;
	/*
	 * a segment's window arrives smaller than it was sent: a peer that takes back what it has
	 * promised
	 */
	uint32_t shrink_ppm;
	uint32_t burst_ppm, burst_len; /* a burst begins; packets lost in it */
	uint32_t reorder_ppm, reorder_us; /* packet is held back by so much */
	uint32_t delay_us, jitter_us;
	bool fifo; /* jitter does not reorder */
	uint64_t rate; /* bytes/s, 0: no limit */
	uint32_t queue; /* bytes that may wait */
	uint32_t mark; /* waiting bytes above which CE is set, 0: never */
	uint32_t mtu[3]; /* of the path, from mtu_at[i] on; 0: no change */
	uint64_t mtu_at[3];
	bool icmp; /* tells of packets that are too large; otherwise a black hole */
	uint64_t dark_at, dark_us; /* nothing passes; dark_us UINT64_MAX: for ever */
	bool cut; /* super-segments travel in pieces */
};

struct host_plan {
	uint32_t mtu, max_gso;
	uint32_t poll_us; /* packets are looked at together so much later */
	uint32_t timer_late_us;
	uint32_t alloc_fail_ppm, enobufs_ppm, senderr_ppm;
	uint32_t chunk; /* bytes of a receive buffer */
	bool unreach; /* ICMP host unreachable comes now and then */
};

enum ending {
	END_SHUTDOWN, /* shutdown(SHUT_WR) after the last byte, reads to the end, closes */
	END_WAIT, /* reads to the end of the peer's stream first, then closes */
	END_CLOSE, /* closes after the last byte was given, whatever comes */
	END_ABORT, /* RST somewhere in the middle */
};

struct end_plan {
	struct tcp_opts o;
	enum ending ending;
	uint32_t total; /* bytes to send */
	uint32_t abort_after; /* bytes sent and received */
	uint32_t write_max, read_max; /* bytes a call */
	uint32_t pause_ppm, pause_us; /* after a call */
	uint32_t read_pause_ppm, read_pause_us;
	uint32_t more_ppm; /* MSG_MORE; what was kept back is let go by the next call or by timer */
	uint32_t opts_ppm; /* toggles NODELAY, CORK, QUICKACK, buffer sizes */
	uint32_t peek_ppm;
	uint32_t oob_at; /* this byte is sent urgent; UINT32_MAX: none */
	uint64_t start_us; /* connect or accept not before this */
	uint32_t key; /* of the pattern that it sends */
};

struct conn_plan {
	bool both_open; /* simultaneous open */
	struct end_plan end[2]; /* 0: client */
};

/* Endings other than the graceful one that a plan makes legal. */
#define MAY_RESET 0x01u /* somebody throws data away, or aborts */
#define MAY_TIMEOUT 0x02u /* the wire is bad or cut for ever */
/* As MAY_RESET, and the RST may be lost: who only reads would wait for ever. */
#define MAY_STALL 0x04u
/* Cookies remember nothing: an old ACK may open a connection again. */
#define MAY_REPEAT 0x08u

struct plan {
	uint64_t seed, start;
	int family;
	unsigned conns, explains;
	int backlog;
	uint32_t flood; /* SYNs from strangers before the first connection */
	uint64_t close_listener_at; /* 0: at the end */
	struct tcp_cfg cfg;
	struct wire_plan wire[2]; /* by sending host */
	struct host_plan host[2];
	struct conn_plan conn[MAX_CONNS];
	uint64_t deadline;
	uint64_t stop_at; /* the run is broken off, nothing is checked (goodput); 0: never */
};

void plan_make(struct plan *p, uint64_t seed);
/* One line for a failure. */
void plan_print(const struct plan *p);

/* --- the objects */

struct world;

struct packet {
	uint32_t len; /* of the IP packet */
	uint16_t mss; /* payload above it: a super-segment */
	int from;
	uint8_t data[];
};

struct end {
	struct world *w;
	struct tcp_conn *c; /* NULL: not yet, or gone */
	const struct end_plan *p;
	struct end *peer;
	unsigned host, index;
	bool opened, connected, closed, gone, eof, shut, read_blocked, write_blocked, aborted,
		awake;
	bool oob_sent, oob_got;
	int error; /* first errno that a call gave */
	uint32_t sent, received;
	uint64_t pause_until, read_pause_until;
	struct rng rng;
	uint32_t events; /* seen ever */
	/* check.c: the last values seen */
	bool watched;
	uint32_t una, rcv_nxt;
};

struct host {
	struct world *w;
	unsigned index;
	const struct host_plan *p;
	struct tcp_stack *ts;
	struct tcp_listener *listener;
	struct in6_addr addr;
	struct packet *rx[4096];
	unsigned num_rx;
	bool poll_due, full, accept_due;
	uint64_t allocs, bytes, bufs; /* outstanding */
	uint64_t allocs_at_start;
	struct rng rng;
};

struct wire { /* one direction */
	struct rng rng;
	uint64_t busy_until, last_arrival;
	uint32_t burst_left;
	uint64_t burst_until;
	uint64_t packets, drops, bytes;
};

/* What the receiver of a direction has promised, as seen on the wire. */
struct promise {
	bool known;
	uint32_t edge; /* right edge of the window */
	int wscale; /* -1: not offered */
};

enum event_kind { EVENT_PACKET, EVENT_POLL, EVENT_END, EVENT_READY, EVENT_FLOOD, EVENT_LISTENER };

struct event {
	uint64_t when, order;
	enum event_kind kind;
	unsigned host;
	void *p;
};

struct world {
	struct plan p;
	uint64_t now, order, steps;
	struct event *heap;
	unsigned num_events, max_events;
	struct host host[2];
	struct wire wire[2];
	struct end end[MAX_CONNS][2];
	struct promise promise[MAX_CONNS][2]; /* by the host that promised */
	uint64_t same_time; /* packets sent without time passing */
	uint64_t last_sent;
	bool verbose;
	jmp_buf fail;
	char why[512];
};

/* --- world.c */

/* Runs a plan. NULL: all is well; else why not. The text lives until the next run. */
const char *world_run(const struct plan *p, bool verbose);
struct measured {
	uint64_t bytes; /* that the server has read */
	uint64_t packets, drops; /* of the client's: sent; of these lost on the wire */
};
/* As world_run(), up to the plan's stop_at. */
const char *world_measure(const struct plan *p, struct measured *m);
/* Ends the run with a reason. */
_Noreturn void world_fail(struct world *w, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void world_at(struct world *w, uint64_t when, enum event_kind kind, unsigned host, void *p);
void world_say(const struct world *w, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* --- host.c */

void host_init(struct host *h, struct world *w, unsigned index);
/* Looks at what has come, runs the applications. */
void host_poll(struct host *h);
void host_timers(struct host *h);
/* After any call into the engine: applications that were woken, flush, checks. */
void host_settle(struct host *h);
void host_accept(struct host *h);
void host_free(struct host *h);

/* --- wire.c */

/* As tcp_env.output(): 0 or a negative errno. */
int wire_output(struct host *from, const struct tcp_tx *tx);
/* A packet to `to` that the plan's flood made. */
void wire_flood(struct world *w, uint32_t n);
/* NULL: the gate refused it, or there was no memory. */
struct buf *wire_receive(struct host *to, const struct packet *p);
/* Packets too large for the path now: tells the sender if the plan says so. */
uint32_t wire_mtu(const struct world *w, unsigned from);

/* --- end.c */

void end_init(struct end *e, struct world *w, unsigned conn, unsigned side);
void end_start(struct end *e);
void end_accepted(struct end *e, struct tcp_conn *c);
void end_event(struct end *e, uint32_t events);
/* Lets the application go on as far as it can. */
void end_run(struct end *e);
/* Gives a connection up on which nothing happens any more. */
void end_give_up(struct end *e);
struct tcp_tuple end_tuple(const struct end *e);

/* --- check.c */

void check_host(struct host *h);
void check_sent(struct host *from, const struct tcp_tx *tx);
void check_finished(struct world *w);
/*
 * The other end's user is gone and its stack gave the orphan up (Linux: tcp_orphan_retries): this
 * one need not have heard of it.
 */
bool check_left_by_orphan(const struct world *w, unsigned conn, unsigned side);

#endif
