/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Time lines: a case says what its peer sends, what the program calls, and what must leave, in
 * order. The same case runs on the engine (virtual time) and on this machine's kernel (over a tun
 * device in a namespace of its own), so the two can be compared. One connection a case; all numbers
 * are relative: 0 is the SYN's, 1 the first byte's.
 *
 * Segments are written as flags ("S", "SA", "PA", "FA", "R", "EC"...; "*": PSH or not), sequence,
 * acknowledgement, length.
 */
#ifndef CONFORM_SCRIPT_H
#define CONFORM_SCRIPT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "tcp/info.h"
#include "tcp/tcp.h"
#include "../sim/seg.h"

#define ANY 0xfffffff0u /* out(): this number does not matter */

struct conform_case {
	const char *name; /* file's prefix, section, what must hold */
	void (*run)(void);
};

#define CASE(n)                                                                                    \
	{                                                                                          \
#n, n                                                                              \
	}

/* --- before the connection is made */

/*
 * The options of our socket (and of the namespace: sack, timestamps, wscale, ecn); change before
 * listening(), connecting().
 */
struct tcp_opts *opts(void);
struct tcp_cfg *cfg(void); /* the engine only */
/*
 * What the peer's SYN offers; begins with mss 1000, SACK, no window scale, no time stamps, window
 * 65535.
 */
struct peer {
	uint16_t mss;
	int wscale; /* -1: none */
	bool sack, ts;
	uint32_t wnd; /* bytes; segments of in() say it, shifted when both sides scale */
	uint32_t iss;
	uint32_t tsval; /* goes on with the time in ms */
	int family;
	uint32_t mtu; /* of our interface */
	int backlog;
	bool syn_ecn;
	/* the route to it: for the engine, and the same for ip(8) */
	struct tcp_route route;
	const char *metrics;
	/* Fast Open: how many the listener has at most (TCP_FASTOPEN), 0: none */
	unsigned fast_open;
	/* connecting_with(): its SYN asks for a cookie; else it has data without one */
	bool asks;
};
struct peer *peer(void);

/* --- calls; results are those of the system call, errors -errno */

void listening(void);
/* 0, or -EINPROGRESS made 0. */
int connecting(void);
/* sendto() with MSG_FASTOPEN. */
int connecting_with(uint32_t n);
/* 0 or -EAGAIN. */
int accepting(void);
int sending(uint32_t n, int flags);
int receiving(uint32_t n, int flags);
int shutting(int how);
void closing(void);
void aborting(void); /* SO_LINGER 0 and close */
int pending_error(void); /* SO_ERROR */
uint32_t ready(void); /* TCP_EV_* as poll() says */
enum tcp_state state(void); /* TCPS_CLOSED when it is no more */
struct tcp_info info(void);
union tcp_info_all info_all(void);
/*
 * How much more time than the script's own has gone so far: a busy machine is late with what it
 * sends to the kernel.
 */
uint64_t late_us(void);
/* A value that engine and kernel must have alike, but for so much. */
void noted(const char *when, const char *name, uint64_t value, uint64_t slack);
/* Lets a change of opts() take effect on the connection. */
void changed_opts(void);
uint32_t inq(void);

/* --- the peer */

/* A segment with the peer's window and, when agreed, time stamps. */
void in(const char *flags, uint32_t seq, uint32_t ack, uint32_t len);
/* The same, to be changed before inject(); sack blocks are relative too. */
struct seg prepared(const char *flags, uint32_t seq, uint32_t ack, uint32_t len);
void inject(struct seg s);
/* Without time stamps or any option although they were agreed. */
void in_bare(const char *flags, uint32_t seq, uint32_t ack, uint32_t len);
void in_sack(uint32_t ack, unsigned n, ...); /* n pairs of relative edges of our data */
/* To another port of ours where nobody listens. */
void in_elsewhere(const char *flags, uint32_t seq, uint32_t ack, uint32_t len);
/*
 * Another peer's SYN, which it never follows up: a half-open connection. What it is answered is not
 * seen.
 */
void in_stranger(void);
void in_strangers(struct seg s);
/* Sets s's Fast Open option: the cookie that our listener gives the peer. */
void with_cookie(struct seg *s);
/* An ICMP error quoting our segment with this sequence number (engine only on IPv6). */
void in_icmp(enum tcp_icmp kind, uint32_t seq, uint32_t mtu);
/* What in() of data carries: byte i of the stream. */
uint8_t peer_byte(uint32_t i);
void wait_ms(uint32_t ms);
void wait_us(uint64_t us);

/* --- what leaves */

#define out(flags, seq, ack, len) expect_out(__FILE__, __LINE__, flags, seq, ack, len)
/*
 * The same, `ms` after the last thing that happened (in, call or out), within the clock's
 * tolerance.
 */
#define out_after(ms, flags, seq, ack, len)                                                        \
	expect_after(__FILE__, __LINE__, ms, flags, seq, ack, len)
/* The same, at once or at most `ms` later: an ACK that may be delayed. */
#define out_by(ms, flags, seq, ack, len) expect_by(__FILE__, __LINE__, ms, flags, seq, ack, len)
#define nothing() expect_nothing(__FILE__, __LINE__)
#define must(condition) expect_true(__FILE__, __LINE__, condition, #condition)
#define equal(a, b) expect_equal(__FILE__, __LINE__, a, b, #a " == " #b)
/* The segment, numbers relative; valid until the next one. */
const struct seg *expect_out(const char *file, int line, const char *flags, uint32_t seq,
			     uint32_t ack, uint32_t len);
const struct seg *expect_after(const char *file, int line, uint32_t ms, const char *flags,
			       uint32_t seq, uint32_t ack, uint32_t len);
const struct seg *expect_by(const char *file, int line, uint32_t ms, const char *flags,
			    uint32_t seq, uint32_t ack, uint32_t len);
void expect_nothing(const char *file, int line);
void expect_true(const char *file, int line, bool ok, const char *text);
void expect_equal(const char *file, int line, long long a, long long b, const char *text);
/* Takes whatever has left; the last of it, NULL: nothing had. */
const struct seg *drain(void);
/* How many have left and were not taken. */
unsigned waiting(void);

/* --- often */

void established(void); /* passive open, accepted */
void established_active(void);
/* This case asks what only the engine can tell; on the kernel it ends here as not comparable. */
void engine_only(void);
struct tcp_conn *the_conn(void); /* engine_only() */
const struct tcp_counters *counters(void);

#endif
