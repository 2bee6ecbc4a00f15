/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * TCP_INFO after the same exchange: every field is the kernel's, or near it where it is a time or
 * made of one, or stands here with the reason why not.
 */
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

#include "script.h"

enum how { SAME, NEAR, APART };

struct field {
	const char *name;
	unsigned off, size;
	enum how how;
	uint32_t slack; /* NEAR: so much more or less; PER_CENT(n) */
	const char *why; /* APART */
};

#define PER_CENT(n) (UINT32_MAX - (n))
#define US(ms) ((ms)*1000u)
#define PART(member, h, s, w)                                                                      \
	PIECE(#member, offsetof(union tcp_info_all, member),                                       \
	      sizeof(((union tcp_info_all *)0)->member), h, s, w)
#define PIECE(n, o, z, h, s, w)                                                                    \
	{                                                                                          \
		.name = (n), .off = (o), .size = (z), .how = (h), .slack = (s), .why = (w)         \
	}
#define ALIKE(member) PART(is.tcpi_##member, SAME, 0, NULL)
#define CLOSE(member, slack) PART(is.tcpi_##member, NEAR, slack, NULL)
#define OTHERWISE(member, why) PART(is.tcpi_##member, APART, 0, why)

/* The kernel's clock ticks every 4 ms, and its peer here sleeps and wakes in real time. */
static const struct field fields[] = {
	ALIKE(state),
	ALIKE(ca_state),
	ALIKE(retransmits),
	ALIKE(probes),
	ALIKE(backoff),
	ALIKE(options),
	PIECE("wscale", 6, 1, SAME, 0, NULL),
	PIECE("app_limited", 7, 1, SAME, 0, NULL),
	CLOSE(rto, US(40)),
	CLOSE(ato, US(4)),
	ALIKE(snd_mss),
	ALIKE(rcv_mss),
	ALIKE(unacked),
	ALIKE(sacked),
	ALIKE(lost),
	ALIKE(retrans),
	ALIKE(fackets),
	CLOSE(last_data_sent, 40),
	CLOSE(last_ack_sent, 40),
	CLOSE(last_data_recv, 40),
	CLOSE(last_ack_recv, 40),
	ALIKE(pmtu),
	OTHERWISE(rcv_ssthresh, "memory is counted otherwise"),
	CLOSE(rtt, US(15)),
	CLOSE(rttvar, US(15)),
	ALIKE(snd_ssthresh),
	ALIKE(snd_cwnd),
	ALIKE(advmss),
	ALIKE(reordering),
	CLOSE(rcv_rtt, US(15)),
	OTHERWISE(rcv_space, "memory is counted otherwise"),
	ALIKE(total_retrans),
	CLOSE(pacing_rate, PER_CENT(40)),
	ALIKE(max_pacing_rate),
	ALIKE(bytes_acked),
	ALIKE(bytes_received),
	ALIKE(segs_out),
	ALIKE(segs_in),
	ALIKE(notsent_bytes),
	CLOSE(min_rtt, US(15)),
	ALIKE(data_segs_in),
	ALIKE(data_segs_out),
	CLOSE(delivery_rate, PER_CENT(50)),
	CLOSE(busy_time, US(40)),
	CLOSE(rwnd_limited, US(40)),
	CLOSE(sndbuf_limited, US(40)),
	ALIKE(delivered),
	ALIKE(delivered_ce),
	ALIKE(bytes_sent),
	ALIKE(bytes_retrans),
	ALIKE(dsack_dups),
	ALIKE(reord_seen),
	ALIKE(rcv_ooopack),
	ALIKE(snd_wnd),
	PART(later.rcv_wnd, APART, 0, "memory is counted otherwise"),
	PART(later.rehash, APART, 0, "no flow label, no hash: no other path can be tried"),
	PART(later.total_rto, SAME, 0, NULL),
	PART(later.total_rto_recoveries, SAME, 0, NULL),
	PART(later.total_rto_time, NEAR, 40, NULL),
};

#define NUM (sizeof(fields) / sizeof(fields[0]))

static void every_byte_is_a_fields(void)
{
	unsigned at = 0;

	for (unsigned i = 0; i < NUM; i++) {
		equal(fields[i].off, at);
		equal(fields[i].how == APART, fields[i].why != NULL);
		at += fields[i].size;
	}
	equal(at, sizeof(union tcp_info_all));
}

static uint64_t value(const union tcp_info_all *i, const struct field *f)
{
	uint64_t v = 0;

	memcpy(&v, (const uint8_t *)i + f->off, f->size);
	return v;
}

/* What is made of a few times is late by a few latenesses. */
static uint64_t slack(const struct field *f, uint64_t v)
{
	uint64_t late = 8 * late_us();
	uint32_t percent = UINT32_MAX - f->slack;

	if (percent <= 100)
		return late < US(20) ? v / 100 * percent : UINT64_MAX;
	return f->slack + (f->slack < US(1) ? late / 1000 : late);
}

/* What TCP_INFO says now goes into the record. */
static void told(const char *when)
{
	union tcp_info_all i = info_all();

	for (unsigned n = 0; n < NUM; n++) {
		const struct field *f = &fields[n];
		uint64_t v = value(&i, f);

		/* The kernel shows the pacing rate of the last acknowledgement. */
		if (i.is.tcpi_retransmits && f->off == offsetof(struct tcp_info, tcpi_pacing_rate))
			continue;
		if (f->how != APART)
			noted(when, f->name, v, f->how == NEAR ? slack(f, v) : 0);
	}
}

/* --- the exchanges */

static void info_every_field_is_looked_at(void)
{
	every_byte_is_a_fields();
	established();
	told("established");
}

static void dialogue(void)
{
	told("established");
	in("PA", 1, 1, 100);
	out_by(50, "A", 1, 101, 0);
	equal(receiving(1000, 0), 100);
	told("asked");
	equal(sending(300, 0), 300);
	out("PA", 1, 101, 300);
	told("answering");
	wait_ms(20);
	in("A", 101, 301, 0);
	wait_ms(100);
	told("answered");
}

static void info_of_a_dialogue(void)
{
	established();
	dialogue();
}

static void info_of_a_dialogue_that_we_began(void)
{
	established_active();
	dialogue();
}

static void info_with_time_stamps_and_scale(void)
{
	peer()->ts = true;
	peer()->wscale = 7;
	opts()->timestamps = true;
	established();
	in("PA", 1, 1, 100);
	out_by(50, "A", 1, 101, 0);
	told("asked");
	equal(sending(3000, 0), 3000);
	drain();
	wait_ms(20);
	in("A", 101, 3001, 0);
	told("answered");
}

static void info_of_a_stream(void)
{
	opts()->nodelay = true;
	established();
	for (unsigned i = 0; i < 3; i++) {
		equal(sending(8000, 0), 8000);
		drain();
		wait_ms(20);
		in("A", 1, 8001 + 8000 * i, 0);
	}
	told("idle");
	equal(sending(30000, 0), 30000);
	drain();
	told("in flight");
}

static void info_after_a_loss(void)
{
	opts()->nodelay = true;
	established();
	equal(sending(8000, 0), 8000);
	drain();
	wait_ms(20);
	in_sack(1001, 1, 2001, 3001);
	in_sack(1001, 1, 2001, 4001);
	in_sack(1001, 1, 2001, 5001);
	drain();
	told("recovering");
	wait_ms(20);
	in("A", 1, 8001, 0);
	told("recovered");
}

static void info_after_a_timeout(void)
{
	peer()->sack = false;
	established();
	equal(sending(1000, 0), 1000);
	out("PA", 1, 1, 1000);
	out_after(220, "PA", 1, 1, 1000);
	told("once");
	wait_ms(20);
	in("A", 1, 1001, 0);
	told("over");
}

static void info_of_a_receiver_with_a_hole(void)
{
	established();
	in("A", 1001, 1, 1000);
	in("A", 2001, 1, 1000);
	drain();
	told("hole");
	in("A", 1, 1, 1000);
	in("A", 1, 1, 1000); /* again */
	drain();
	equal(receiving(5000, 0), 3000);
	in("FPA", 3001, 1, 100);
	drain();
	equal(receiving(5000, 0), 100);
	equal(receiving(5000, 0), 0);
	told("ended");
}

static void info_with_fins_of_both(void)
{
	established_active();
	equal(sending(100, 0), 100);
	out("PA", 1, 1, 100);
	equal(shutting(SHUT_WR), 0);
	out("FA", 101, 1, 0);
	wait_ms(20);
	in("A", 1, 102, 0);
	told("ended");
}

static void info_when_the_window_is_the_limit(void)
{
	opts()->nodelay = true;
	peer()->wnd = 2000;
	established();
	equal(sending(5000, 0), 5000);
	out("*A", 1, 1, 1000);
	out("*A", 1001, 1, 1000);
	wait_ms(20);
	told("filled");
	peer()->wnd = 0;
	in("A", 1, 2001, 0);
	wait_ms(150);
	told("shut");
	peer()->wnd = 20000;
	in("A", 1, 2001, 0);
	drain();
	told("open");
	wait_ms(20);
	in("A", 1, 5001, 0);
	wait_ms(100);
	told("done");
}

/* The kernel's buffer holds as much as cwnd lets go, whatever its size: nothing to compare. */
static void info_when_the_buffer_is_the_limit(void)
{
	union tcp_info_all i;

	engine_only();
	opts()->nodelay = true;
	opts()->sndbuf = opts()->sndbuf_max = 9216;
	established();
	/* Until cwnd lets more go than the buffer holds. */
	for (unsigned round = 0; round < 6; round++) {
		const struct seg *last;

		sending(60000, 0);
		last = drain();
		wait_ms(20);
		in("A", 1, last->seq + last->len, 0);
		last = drain();
		if (last)
			in("A", 1, last->seq + last->len, 0);
	}
	sending(60000, 0);
	drain();
	wait_ms(150);
	i = info_all();
	must(i.is.tcpi_sndbuf_limited > 100000);
	must(i.is.tcpi_busy_time >= i.is.tcpi_sndbuf_limited);
	equal(i.is.tcpi_rwnd_limited, 0);
}

static void info_of_marked_segments(void)
{
	struct seg s;

	opts()->ecn_passive = true;
	peer()->syn_ecn = true;
	established();
	s = prepared("PA", 1, 1, 100);
	s.tos = 3;
	inject(s);
	drain();
	told("marked");
	equal(sending(100, 0), 100);
	drain();
	wait_ms(20);
	in("AE", 101, 101, 0);
	told("echoed");
}

const struct conform_case cases_tcp_info[] = {
	CASE(info_every_field_is_looked_at),
	CASE(info_of_a_dialogue),
	CASE(info_of_a_dialogue_that_we_began),
	CASE(info_with_time_stamps_and_scale),
	CASE(info_of_a_stream),
	CASE(info_after_a_loss),
	CASE(info_after_a_timeout),
	CASE(info_of_a_receiver_with_a_hole),
	CASE(info_with_fins_of_both),
	CASE(info_when_the_window_is_the_limit),
	CASE(info_when_the_buffer_is_the_limit),
	CASE(info_of_marked_segments),
	{0},
};
