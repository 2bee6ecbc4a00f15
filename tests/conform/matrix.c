/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Every state, every combination of flags, the sequence number below, at the edges of, in and above
 * the window: what RFC 9293, 3.10.7 (with RFC 5961's answers) says, written here as the RFC has it
 * and without a look at the engine.
 */
#include "matrix.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "script_int.h"

enum place { OLD, BEFORE, EXACT, INSIDE, LAST, BEYOND, PLACES };

/* What may be seen afterwards. */
enum answer { SILENT, ACKED, RESET, SYN_ACKED, ANSWERED };

struct expected {
	enum answer answer;
	enum tcp_state state;
	bool vague; /* the RFC leaves it open: only that the state is legal is looked at */
};

static const enum tcp_state states[] = {TCPS_LISTEN,	  TCPS_SYN_SENT,  TCPS_SYN_RECV,
					TCPS_ESTABLISHED, TCPS_FIN_WAIT1, TCPS_FIN_WAIT2,
					TCPS_CLOSE_WAIT,  TCPS_CLOSING,	  TCPS_LAST_ACK,
					TCPS_TIME_WAIT,	  TCPS_CLOSED};
static const char *const state_names[] = {"listen",	"syn_sent",   "syn_received", "established",
					  "fin_wait_1", "fin_wait_2", "close_wait",   "closing",
					  "last_ack",	"time_wait",  "closed"};
static const char *const place_names[] = {"old", "before", "exact", "inside", "last", "beyond"};

#define STATES (sizeof(states) / sizeof(states[0]))
#define FLAGS 32u /* FIN SYN RST PSH ACK; URG apart */
#define WINDOW 20000u

/* --- bringing it there: rcv_nxt and snd_nxt when it is */

static uint32_t rcv_nxt, snd_nxt, snd_una;

static void synchronized(enum tcp_state st)
{
	established();
	rcv_nxt = 1;
	snd_una = snd_nxt = 1;
	if (st == TCPS_CLOSE_WAIT || st == TCPS_LAST_ACK) {
		in("FA", 1, 1, 0);
		out_by(300, "A", 1, 2, 0);
		rcv_nxt = 2;
	}
	if (st == TCPS_ESTABLISHED || st == TCPS_CLOSE_WAIT)
		return;
	shutting(SHUT_WR);
	drain();
	snd_nxt = 2;
	if (st == TCPS_FIN_WAIT2 || st == TCPS_TIME_WAIT)
		in("A", 1, 2, 0), snd_una = 2;
	if (st == TCPS_CLOSING)
		in("FA", 1, 1, 0), rcv_nxt = 2;
	if (st == TCPS_TIME_WAIT)
		in("FA", 1, 2, 0), rcv_nxt = 2;
	drain();
	/* The rate limits of answers begin anew. */
	wait_us(1000);
}

static void bring_to(enum tcp_state st)
{
	opts()->rcvbuf = opts()->rcvbuf_max = 2 * WINDOW;
	switch (st) {
	case TCPS_CLOSED:
	case TCPS_LISTEN:
		listening();
		rcv_nxt = snd_nxt = snd_una = 0;
		return;
	case TCPS_SYN_SENT:
		connecting();
		out("S", 0, ANY, 0);
		rcv_nxt = 0;
		snd_una = 0;
		snd_nxt = 1;
		return;
	case TCPS_SYN_RECV:
		listening();
		in("S", 0, 0, 0);
		out("SA", 0, 1, 0);
		rcv_nxt = 1;
		snd_una = 0;
		snd_nxt = 1;
		return;
	default:
		synchronized(st);
	}
}

/* --- 3.10.7.1 to 3.10.7.3 */

static struct expected in_closed(uint8_t f)
{
	if (f & F_RST)
		return (struct expected){SILENT, TCPS_CLOSED, false};
	return (struct expected){RESET, TCPS_CLOSED, false};
}

static struct expected in_listen(uint8_t f)
{
	if (f & F_RST)
		return (struct expected){SILENT, TCPS_CLOSED, false};
	if (f & F_ACK)
		return (struct expected){RESET, TCPS_CLOSED, false};
	/* Linux, against scanners: no SYN with a FIN. */
	if ((f & (F_SYN | F_FIN)) == F_SYN)
		return (struct expected){SYN_ACKED, TCPS_SYN_RECV, false};
	return (struct expected){SILENT, TCPS_CLOSED, false};
}

static struct expected in_syn_sent(uint8_t f)
{
	/* The acknowledgement is SND.NXT here: acceptable. */
	if ((f & (F_RST | F_ACK)) == (F_RST | F_ACK))
		return (struct expected){SILENT, TCPS_CLOSED, false};
	if (f & F_RST)
		return (struct expected){SILENT, TCPS_SYN_SENT, false};
	/* A FIN on the SYN: Linux drops it all, the RFC keeps it. */
	if ((f & (F_SYN | F_FIN)) == (F_SYN | F_FIN))
		return (struct expected){SILENT, TCPS_SYN_SENT, true};
	if ((f & (F_SYN | F_ACK)) == (F_SYN | F_ACK))
		return (struct expected){ACKED, TCPS_ESTABLISHED, false};
	if (f & F_SYN)
		return (struct expected){SYN_ACKED, TCPS_SYN_RECV, false};
	return (struct expected){SILENT, TCPS_SYN_SENT, false};
}

/* --- 3.10.7.4 */

static enum tcp_state after_fin(enum tcp_state st)
{
	switch (st) {
	case TCPS_SYN_RECV:
	case TCPS_ESTABLISHED:
		return TCPS_CLOSE_WAIT;
	case TCPS_FIN_WAIT1:
	case TCPS_FIN_WAIT2:
		/* The acknowledgement was looked at before. */
		return TCPS_TIME_WAIT;
	default:
		return st;
	}
}

static enum tcp_state after_ack(enum tcp_state st)
{
	switch (st) {
	case TCPS_SYN_RECV:
		return TCPS_ESTABLISHED;
	case TCPS_FIN_WAIT1:
		return TCPS_FIN_WAIT2;
	case TCPS_CLOSING:
		return TCPS_TIME_WAIT;
	case TCPS_LAST_ACK:
		return TCPS_CLOSED;
	default:
		return st;
	}
}

static struct expected in_window(enum tcp_state st, uint8_t f, enum place p)
{
	bool fin = f & F_FIN;

	if (f & F_RST) { /* RFC 5961, 3.2 */
		if (p == EXACT)
			return (struct expected){SILENT, TCPS_CLOSED, false};
		return (struct expected){ACKED, st, st == TCPS_TIME_WAIT};
	}
	if ((f & F_SYN) && st == TCPS_SYN_RECV) /* of a passive open: to LISTEN */
		return (struct expected){RESET, TCPS_CLOSED, false};
	if (f & F_SYN) /* RFC 5961, 4; in TIME-WAIT a new connection may begin */
		return (struct expected){ACKED, st, st == TCPS_TIME_WAIT};
	/*
	 * At the edge and without FIN it is nothing; else our last ACK was lost (Linux:
	 * tcp_timewait_state_process()).
	 */
	if (st == TCPS_TIME_WAIT)
		return (struct expected){fin || p != EXACT ? ACKED : SILENT, st, false};
	if (!(f & F_ACK))
		return (struct expected){SILENT, st, false};
	st = after_ack(st);
	if (st == TCPS_CLOSED)
		return (struct expected){SILENT, TCPS_CLOSED, p != EXACT || fin};
	if (fin && p == EXACT)
		return (struct expected){after_fin(st) == st ? ANSWERED : ACKED, after_fin(st),
					 after_fin(st) == st};
	if (fin) /* behind a gap */
		return (struct expected){ACKED, st, st == TCPS_CLOSE_WAIT || st == TCPS_TIME_WAIT};
	return (struct expected){SILENT, st, false};
}

static struct expected in_synchronized(enum tcp_state st, uint8_t f, enum place p)
{
	bool empty = !(f & (F_SYN | F_FIN));

	/*
	 * The first test: a segment without text is acceptable from RCV.NXT to the right edge.
	 * Below it a duplicate is.
	 */
	if (p == OLD || p == BEYOND) {
		if (f & F_RST)
			return (struct expected){SILENT, st, false};
		return (struct expected){ACKED, st, st == TCPS_TIME_WAIT && (f & F_SYN)};
	}
	if (p == BEFORE) {
		if (f & F_RST) /* one below: Linux takes it for a RST of the FIN's number in the
				  closing states */
			return (struct expected){SILENT, st, true};
		if (empty || st == TCPS_SYN_RECV || st == TCPS_TIME_WAIT)
			return (struct expected){ACKED, st, true};
		/*
		 * A SYN or FIN that fills the number below the window: Linux looks at its
		 * acknowledgement.
		 */
		return (struct expected){ACKED, st, true};
	}
	return in_window(st, f, p);
}

static struct expected expectation(enum tcp_state st, uint8_t f, enum place p)
{
	switch (st) {
	case TCPS_CLOSED:
		return in_closed(f);
	case TCPS_LISTEN:
		return in_listen(f);
	case TCPS_SYN_SENT:
		return in_syn_sent(f);
	default:
		return in_synchronized(st, f, p);
	}
}

static uint32_t number(enum place p)
{
	static const uint32_t off[PLACES] = {(uint32_t)-30000, (uint32_t)-1, 0, 100, 4000, 500000};

	return rcv_nxt + off[p];
}

static enum answer seen(void)
{
	enum answer a = SILENT;
	const struct seg *s = NULL;

	/* What may be delayed comes now. */
	if (waiting() == 0)
		wait_us(45000);
	if (waiting())
		s = drain();
	if (!s)
		return a;
	if (s->flags & F_RST)
		return RESET;
	return s->flags & F_SYN ? SYN_ACKED : ACKED;
}

/* States that can follow from st at all. */
static bool legal(enum tcp_state st, enum tcp_state now)
{
	return now == st || now == TCPS_CLOSED || now == after_ack(st) || now == after_fin(st) ||
	       now == after_fin(after_ack(st)) || (st == TCPS_TIME_WAIT && now == TCPS_SYN_RECV) ||
	       st == TCPS_SYN_SENT;
}

static struct {
	unsigned state;
	uint8_t flags;
	enum place place;
	int family;
} cell;

static const char *flag_text(uint8_t f)
{
	static char text[9];
	unsigned n = 0;

	for (unsigned i = 0; i < 8; i++)
		if (f & 1u << i)
			text[n++] = "FSRPAUEC"[i];
	text[n] = 0;
	return text;
}

static void one_cell(void)
{
	enum tcp_state st = states[cell.state], now;
	struct expected e = expectation(st, cell.flags, cell.place);
	const char *flags = flag_text(cell.flags);
	enum answer a;

	peer()->family = cell.family;
	bring_to(st);
	if (st == TCPS_CLOSED)
		in_elsewhere(flags, number(cell.place), 1, 0);
	else
		in(flags, number(cell.place), st == TCPS_LISTEN ? 1 : snd_nxt, 0);
	a = seen();
	now = state();
	if (e.vague ? !legal(st, now) : now != e.state)
		script_fail("state %u, expected %u", now, e.state);
	if (!e.vague && e.answer != ANSWERED && a != e.answer)
		script_fail("answer %u, expected %u (0 none, 1 ACK, 2 RST, 3 SYN|ACK)", a,
			    e.answer);
}

void matrix_run(unsigned *passed, unsigned *failed)
{
	static const int families[] = {AF_INET, AF_INET6};
	static const struct conform_case c = {"matrix", one_cell};
	static char transcript[TRANSCRIPT];

	for (unsigned i = 0; i < 2 * STATES * FLAGS * PLACES; i++) {
		cell.family = families[i % 2];
		cell.place = (enum place)(i / 2 % PLACES);
		cell.flags = (uint8_t)(i / 2 / PLACES % FLAGS);
		cell.state = i / 2 / PLACES / FLAGS;
		if (script_run(&c, &engine_backend, false, transcript) == CASE_PASSED) {
			++*passed;
			continue;
		}
		++*failed;
		printf("  FAILED  matrix: %s, flags %s, %s, IPv%u: %s\n", state_names[cell.state],
		       flag_text(cell.flags), place_names[cell.place],
		       cell.family == AF_INET ? 4 : 6, script.why);
	}
}
