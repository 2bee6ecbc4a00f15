/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "proto/siphash.h"
#include "script_int.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Longer than this is not waited for in real time. */
#define PATIENCE_US 12000000u

/* Of the handshake: what the timers of a case come from, and more than the kernel's clock tick. */
#define RTT_MS 20u

struct script script;

/* --- the record */

static void record(bool compared, const char *format, ...)
{
	struct script *s = &script;
	char text[500];
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (s->verbose)
		printf("%10.3f ms  %s\n", (double)(s->b->now() - s->begun) / 1000, text);
	if (!compared || s->length + (unsigned)n + 2 > TRANSCRIPT)
		return;
	memcpy(s->transcript + s->length, text, (size_t)n);
	s->length += (unsigned)n;
	s->transcript[s->length++] = '\n';
	s->transcript[s->length] = 0;
}

void script_fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(script.why, sizeof(script.why), format, args);
	va_end(args);
	script.verdict = CASE_FAILED;
	longjmp(script.stop, 1);
}

void script_skip(const char *why)
{
	snprintf(script.why, sizeof(script.why), "%s", why);
	script.verdict = CASE_SKIPPED;
	longjmp(script.stop, 1);
}

static void happened(void)
{
	script.event_at = script.b->now();
}

/* --- set-up */

static void pass(uint64_t us)
{
	script.passed += us;
	script.b->wait(us);
}

struct tcp_opts *opts(void)
{
	return &script.o;
}

struct tcp_cfg *cfg(void)
{
	return &script.cfg;
}

struct peer *peer(void)
{
	return &script.peer;
}

static void addresses(void)
{
	bool v6 = script.peer.family == AF_INET6;

	inet_pton(AF_INET6, v6 ? "fd00::1" : "::ffff:192.0.2.1", &script.ours);
	inet_pton(AF_INET6, v6 ? "fd00::2" : "::ffff:192.0.2.2", &script.theirs);
}

static void began(void)
{
	addresses();
	script.b->begin();
	script.begun = script.b->now();
	happened();
}

/* --- calls */

void listening(void)
{
	began();
	script.b->listen();
}

int connecting(void)
{
	int rc;

	began();
	rc = script.b->connect();
	record(true, "connect() = %d", rc);
	happened();
	return rc;
}

int accepting(void)
{
	int rc = script.b->accept();

	record(true, "accept() = %d", rc);
	happened();
	return rc;
}

/* Byte i of what we send. */
static uint8_t our_byte(uint32_t i)
{
	return (uint8_t)(i * 31 + (i >> 8));
}

uint8_t peer_byte(uint32_t i)
{
	return (uint8_t)(i * 17 + (i >> 8) * 3 + 1);
}

/* The bytes of a call that sends; to be freed. */
static uint8_t *our_bytes(uint32_t n)
{
	uint8_t *p = malloc(n + 1);

	for (uint32_t i = 0; i < n; i++)
		p[i] = our_byte(script.sent_bytes + i);
	return p;
}

static int sent(uint8_t *p, int rc)
{
	free(p);
	if (rc > 0)
		script.sent_bytes += (uint32_t)rc;
	/* How much of a large write fits is the buffers' affair. */
	record(true, "send() = %d", rc > 60000 ? 60000 : rc);
	happened();
	return rc;
}

int sending(uint32_t n, int flags)
{
	uint8_t *p = our_bytes(n);

	return sent(p, script.b->send(p, n, flags));
}

int connecting_with(uint32_t n)
{
	uint8_t *p = our_bytes(n);

	began();
	return sent(p, script.b->connect_with(p, n));
}

int receiving(uint32_t n, int flags)
{
	uint8_t *p = malloc(n + 1);
	int rc = script.b->recv(p, n, flags);

	record(true, "recv() = %d", rc);
	for (int i = 0; i < rc && !(flags & (MSG_OOB | MSG_TRUNC)); i++)
		if (p[i] != peer_byte(script.received_bytes + (uint32_t)i)) {
			free(p);
			script_fail("recv(): byte %u is not what the peer sent",
				    script.received_bytes + (uint32_t)i);
		}
	free(p);
	if (rc > 0 && !(flags & (MSG_PEEK | MSG_OOB)))
		script.received_bytes += (uint32_t)rc;
	happened();
	return rc;
}

int shutting(int how)
{
	int rc = script.b->shutdown(how);

	record(true, "shutdown() = %d", rc);
	happened();
	return rc;
}

void closing(void)
{
	script.b->close(false);
	record(true, "close()");
	happened();
}

void aborting(void)
{
	script.b->close(true);
	record(true, "abort()");
	happened();
}

int pending_error(void)
{
	int rc = script.b->error();

	record(true, "SO_ERROR = %d", rc);
	return rc;
}

uint32_t ready(void)
{
	uint32_t events = script.b->ready();

	record(true, "poll() = %#x", events);
	return events;
}

enum tcp_state state(void)
{
	enum tcp_state st = script.b->state();

	record(true, "state %u", st);
	return st;
}

union tcp_info_all info_all(void)
{
	union tcp_info_all ti;

	memset(&ti, 0, sizeof(ti));
	script.b->info(&ti);
	return ti;
}

struct tcp_info info(void)
{
	return info_all().is;
}

uint64_t late_us(void)
{
	return script.b->now() - script.begun - script.passed;
}

void noted(const char *when, const char *name, uint64_t value, uint64_t slack)
{
	record(true, NOTED, when, name, (unsigned long long)value, (unsigned long long)slack);
}

void changed_opts(void)
{
	script.b->set_opts();
	happened();
}

uint32_t inq(void)
{
	return script.b->inq();
}

/* --- the peer */

static uint8_t flags_of(const char *text)
{
	static const char names[] = "FSRPAUEC";
	uint8_t flags = 0;

	for (; *text; text++) {
		const char *at = strchr(names, *text);

		if (at)
			flags |= (uint8_t)(1u << (at - names));
	}
	return flags;
}

struct seg prepared(const char *flags, uint32_t seq, uint32_t ack, uint32_t len)
{
	const struct peer *p = &script.peer;
	struct seg s = {.seq = seq, .ack = ack, .len = len, .flags = flags_of(flags), .wscale = -1};
	uint32_t wnd =
		p->wnd >> (script.scaled && !(s.flags & F_SYN) && p->wscale > 0 ? p->wscale : 0);

	s.wnd = (uint16_t)(wnd > 65535 ? 65535 : wnd);
	if (s.flags & F_SYN) {
		s.mss = p->mss;
		s.sackok = p->sack;
		s.wscale = p->wscale;
	}
	if (p->ts && ((s.flags & F_SYN) || script.ts_agreed)) {
		s.ts = true;
		s.tsval = p->tsval + (uint32_t)((script.b->now() - script.begun) / 1000);
		s.tsecr = s.flags & F_ACK ? script.our_tsval : 0;
	}
	return s;
}

static void send_in(struct seg s, uint16_t from, uint16_t port)
{
	uint8_t *p = malloc(SEG_HDR_MAX + s.len);
	unsigned hdr;
	char text[300];

	record(false, "< %s", seg_text(text, sizeof(text), &s, 0, 0));
	for (unsigned i = 0; i < s.nsack; i++) {
		s.sack[i][0] += script.iss;
		s.sack[i][1] += script.iss;
	}
	for (uint32_t i = 0; i < s.len; i++)
		p[SEG_HDR_MAX + i] = 0;
	s.ack = s.flags & F_ACK ? s.ack + script.iss : s.ack;
	s.seq += script.peer.iss;
	hdr = seg_build(p, &s);
	for (uint32_t i = 0; i < s.len; i++)
		p[hdr + i] = peer_byte(s.seq - script.peer.iss - 1 + i + ((s.flags & F_SYN) != 0));
	p[0] = (uint8_t)(from >> 8);
	p[1] = (uint8_t)from;
	p[2] = (uint8_t)(port >> 8);
	p[3] = (uint8_t)port;
	happened();
	script.b->inject(p, hdr + s.len, s.tos);
	free(p);
}

void inject(struct seg s)
{
	send_in(s, PEER_PORT, OUR_PORT);
}

void in(const char *flags, uint32_t seq, uint32_t ack, uint32_t len)
{
	inject(prepared(flags, seq, ack, len));
}

void in_bare(const char *flags, uint32_t seq, uint32_t ack, uint32_t len)
{
	struct seg s = prepared(flags, seq, ack, len);

	s.ts = s.sackok = false;
	s.wscale = -1;
	s.mss = 0;
	inject(s);
}

void in_elsewhere(const char *flags, uint32_t seq, uint32_t ack, uint32_t len)
{
	send_in(prepared(flags, seq, ack, len), PEER_PORT, OUR_PORT + 1);
}

void in_strangers(struct seg s)
{
	send_in(s, PEER_PORT + 1, OUR_PORT);
}

void in_stranger(void)
{
	in_strangers(prepared("S", 0, 0, 0));
}

void with_cookie(struct seg *s)
{
	unsigned skip = script.peer.family == AF_INET6 ? 0 : 12, len = 16 - skip;
	uint8_t pair[32];
	uint64_t key[2], hash;

	memcpy(key, FAST_OPEN_KEY, sizeof(key));
	memcpy(pair, script.theirs.s6_addr + skip, len);
	memcpy(pair + len, script.ours.s6_addr + skip, len);
	hash = siphash(key, pair, 2 * (size_t)len);
	memcpy(s->fo_cookie, &hash, sizeof(hash));
	s->fo = true;
	s->fo_len = sizeof(hash);
}

void in_sack(uint32_t ack, unsigned n, ...)
{
	struct seg s = prepared("A", 1, ack, 0);
	va_list args;

	s.seq = 1 + script.received_bytes;
	va_start(args, n);
	for (unsigned i = 0; i < n; i++) {
		s.sack[i][0] = va_arg(args, uint32_t);
		s.sack[i][1] = va_arg(args, uint32_t);
	}
	va_end(args);
	s.nsack = n;
	inject(s);
}

void in_icmp(enum tcp_icmp kind, uint32_t seq, uint32_t mtu)
{
	record(false, "< ICMP %d for %u, mtu %u", kind, seq, mtu);
	happened();
	script.b->icmp(kind, seq + script.iss, mtu);
}

void wait_us(uint64_t us)
{
	if (!script.b->virtual_time && us > PATIENCE_US)
		script_skip("too long for real time");
	pass(us);
}

void wait_ms(uint32_t ms)
{
	wait_us(ms * 1000ull);
}

/* --- what leaves */

static void check_payload(const struct seg *s, const uint8_t *p)
{
	uint32_t at = s->seq - script.iss - !(s->flags & F_SYN);

	for (uint32_t i = 0; i < s->len; i++)
		if (p[i] != our_byte(at + i))
			script_fail("byte %u of our stream left as %02x", at + i, p[i]);
}

static void learn(const struct seg *s)
{
	if (s->flags & F_SYN) {
		script.iss = s->seq;
		script.iss_known = true;
		script.our_wscale = s->wscale;
		script.ts_agreed = s->ts && script.peer.ts;
		script.scaled = s->wscale >= 0 && script.peer.wscale >= 0;
	}
	if (s->ts)
		script.our_tsval = s->tsval;
}

void script_left(const uint8_t *tcp, unsigned n, uint8_t tos, uint64_t when)
{
	struct script *s = &script;
	struct seg seg, shown;
	char text[300];

	if (!seg_parse(&seg, tcp, n))
		script_fail("what left is no TCP header");
	seg.when = when;
	seg.tos = tos;
	learn(&seg);
	if (script.iss_known && seg.len)
		check_payload(&seg, tcp + seg.hdr_len);
	if (s->first + s->count == MAX_OUT)
		script_fail("too many segments left");
	s->sent[s->first + s->count++] = seg;
	shown = seg;
	/*
	 * Clocks differ; how much memory a segment costs, too, so that of a window only whether it
	 * is open counts.
	 */
	if (!s->verbose)
		shown.tsval = shown.tsecr = 0;
	if (!s->verbose && !(seg.flags & F_SYN))
		shown.wnd = seg.wnd != 0;
	/*
	 * Where a burst of the kernel ended is no matter of the protocol; out() looks at PSH where
	 * it is.
	 */
	if (!s->verbose)
		shown.flags &= (uint8_t)~F_PSH;
	record(true, "> %s",
	       seg_text(text, sizeof(text), &shown, script.iss_known ? script.iss : 0,
			seg.flags & F_ACK ? script.peer.iss : 0));
}

static const struct seg *take(void)
{
	struct script *s = &script;

	if (s->count == 0)
		return NULL;
	s->last = s->sent[s->first++];
	if (--s->count == 0)
		s->first = 0;
	s->last.seq -= script.iss_known ? s->iss : 0;
	if (s->last.flags & F_ACK)
		s->last.ack -= s->peer.iss;
	for (unsigned i = 0; i < s->last.nsack; i++) {
		s->last.sack[i][0] -= s->peer.iss;
		s->last.sack[i][1] -= s->peer.iss;
	}
	return &s->last;
}

static const char *base(const char *file)
{
	const char *slash = strrchr(file, '/');

	return slash ? slash + 1 : file;
}

static const struct seg *compare(const char *file, int line, const char *flags, uint32_t seq,
				 uint32_t ack, uint32_t len)
{
	const struct seg *s = take();
	uint8_t ignored = strchr(flags, '*') ? F_PSH : 0;
	char text[300];

	if (!s)
		script_fail("%s:%d: expected %s %u(%u) ack %u, nothing has left", base(file), line,
			    flags, seq, len, ack);
	if (((s->flags ^ flags_of(flags)) & ~ignored) || (seq != ANY && s->seq != seq) ||
	    (ack != ANY && (s->flags & F_ACK) && s->ack != ack) || (len != ANY && s->len != len))
		script_fail("%s:%d: expected %s %u(%u) ack %u, got %s", base(file), line, flags,
			    seq, len, ack, seg_text(text, sizeof(text), s, 0, 0));
	return s;
}

/* The kernel answers within its softirq, but its reader may be late. */
static void settle(void)
{
	if (!script.b->virtual_time && script.count == 0)
		pass(3000);
}

const struct seg *expect_out(const char *file, int line, const char *flags, uint32_t seq,
			     uint32_t ack, uint32_t len)
{
	settle();
	happened();
	return compare(file, line, flags, seq, ack, len);
}

const struct seg *expect_after(const char *file, int line, uint32_t ms, const char *flags,
			       uint32_t seq, uint32_t ack, uint32_t len)
{
	uint64_t due = script.event_at + ms * 1000ull;
	uint64_t early = script.b->virtual_time ? ms * 20ull : ms * 100ull + 12000;
	uint64_t late = script.b->virtual_time ? ms * 100ull + 10000 : ms * 200ull + 40000;
	const struct seg *s;

	if (!script.b->virtual_time && ms * 1000ull > PATIENCE_US)
		script_skip("too long for real time");
	while (script.count == 0 && script.b->now() < due + late)
		pass(script.b->virtual_time ? 1000 : 2000);
	s = compare(file, line, flags, seq, ack, len);
	if (s->when + early < due || s->when > due + late)
		script_fail("%s:%d: left %.1f ms after the last event, expected %u ms", base(file),
			    line, (double)(int64_t)(s->when - script.event_at) / 1000, ms);
	script.event_at = s->when;
	return s;
}

const struct seg *expect_by(const char *file, int line, uint32_t ms, const char *flags,
			    uint32_t seq, uint32_t ack, uint32_t len)
{
	for (uint32_t i = 0; script.count == 0 && i < ms; i++)
		pass(1000);
	return expect_out(file, line, flags, seq, ack, len);
}

void expect_nothing(const char *file, int line)
{
	char text[300];

	settle();
	if (script.count == 0)
		return;
	script_fail("%s:%d: expected nothing, got %s", base(file), line,
		    seg_text(text, sizeof(text), take(), 0, 0));
}

void expect_true(const char *file, int line, bool ok, const char *text)
{
	if (!ok)
		script_fail("%s:%d: not so: %s", base(file), line, text);
}

void expect_equal(const char *file, int line, long long a, long long b, const char *text)
{
	if (a != b)
		script_fail("%s:%d: not so: %s (%lld, %lld)", base(file), line, text, a, b);
}

const struct seg *drain(void)
{
	const struct seg *s = NULL, *last = NULL;

	settle();
	while ((s = take()) != NULL)
		last = s;
	happened();
	return last;
}

unsigned waiting(void)
{
	settle();
	return script.count;
}

/* --- often */

void established(void)
{
	listening();
	in(script.peer.syn_ecn ? "SEC" : "S", 0, 0, 0);
	expect_out(__FILE__, __LINE__,
		   script.peer.syn_ecn && (script.o.ecn || script.o.ecn_passive) ? "SAE" : "SA", 0,
		   1, 0);
	wait_ms(RTT_MS);
	in("A", 1, 1, 0);
	equal(accepting(), 0);
	nothing();
}

void established_active(void)
{
	equal(connecting(), 0);
	expect_out(__FILE__, __LINE__, script.o.ecn ? "SEC" : "S", 0, ANY, 0);
	wait_ms(RTT_MS);
	in(script.peer.syn_ecn ? "SAE" : "SA", 0, 1, 0);
	out("A", 1, 1, 0);
	nothing();
}

void engine_only(void)
{
	if (!script.b->virtual_time)
		script_skip("asks what the engine alone can tell");
}

enum verdict script_run(const struct conform_case *c, const struct backend *b, bool verbose,
			char *transcript)
{
	struct script *s = &script;

	memset(s, 0, sizeof(*s));
	s->b = b;
	s->verbose = verbose;
	s->transcript = transcript;
	transcript[0] = 0;
	s->our_wscale = -1;
	s->peer = (struct peer){.mss = 1000,
				.wscale = -1,
				.sack = true,
				.wnd = 65535,
				.iss = 1000,
				.tsval = 5000,
				.family = AF_INET,
				.mtu = 1500,
				.backlog = 8};
	tcp_opts_default(&s->o);
	tcp_cfg_default(&s->cfg);
	/* Time stamps only where a case wants them: the lengths stay round. */
	if (!setjmp(s->stop)) {
		c->run();
		s->verdict = CASE_PASSED;
	}
	/* What must hold at the end may fail too. */
	if (!setjmp(s->stop))
		b->end();
	return s->verdict;
}
