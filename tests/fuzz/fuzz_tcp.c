/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The engine behind tcp_input(), with a listener and an established connection. The input is a
 * program: a line of configuration, then steps: segments (valid ones with fields moved), time,
 * socket calls, memory and output that fail. What must hold is in tcp_world.h.
 */
#include <stdint.h>
#include <sys/socket.h>

#include "tcp_peer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_STEPS 300

/* --- socket calls */

static struct user *pick(unsigned which)
{
	struct user *u = &w.user[which % USERS];

	for (unsigned i = 0; i < USERS && !u->c; i++)
		u = &w.user[(which + i) % USERS];
	return u->c ? u : NULL;
}

static void step_send(struct in *in, struct user *u)
{
	static uint8_t mem[BIG];
	uint8_t what = take8(in);
	uint32_t len = what & 1 ? take16(in) : take8(in), before = u->c->write_seq;
	struct iovec iov[2] = {{mem, len / 3}, {mem + len / 3, len - len / 3}};
	ssize_t n;

	memcpy(mem, world_stream(before), len);
	n = tcp_send(u->c, iov, 2,
		     (what & 2 ? MSG_MORE : 0) | (what & 4 ? MSG_OOB : 0) |
			     (what & 8 ? MSG_EOR : 0),
		     w.now);
	REQUIRE(n < 0 ? u->c->write_seq - before <= 1
		      : n <= (ssize_t)len && u->c->write_seq == before + (uint32_t)n);
}

static void step_recv(struct in *in, struct user *u)
{
	static uint8_t mem[BIG];
	static const int kinds[] = {
		0, 0, MSG_PEEK, MSG_TRUNC, MSG_OOB, MSG_OOB | MSG_PEEK, 0, MSG_PEEK | MSG_TRUNC};
	uint8_t what = take8(in);
	int flags = kinds[what & 7];
	uint32_t len = what & 8 ? take16(in) : BIG, before = u->c->copied_seq;
	struct iovec iov[2] = {{mem, len / 2}, {mem + len / 2, len - len / 2}};
	ssize_t n = tcp_recv(u->c, iov, 2, flags, w.now);

	REQUIRE(n <= (ssize_t)len);
	if (n < 0 || (flags & MSG_OOB) || u->urgent)
		return;
	REQUIRE(u->c->copied_seq == before + (flags & MSG_PEEK ? 0 : (uint32_t)n));
	if (!(flags & MSG_TRUNC))
		REQUIRE(!memcmp(mem, world_stream(before), (size_t)n));
}

static void step_options(struct in *in, struct user *u)
{
	struct tcp_opts o = *tcp_get_opts(u->c);
	uint8_t what = take8(in);

	o.nodelay = what & 1;
	o.cork = what & 2;
	o.quickack = what & 4;
	o.keepalive = what & 8;
	o.oobinline = what & 16;
	switch (take8(in) % 8) {
	case 0:
		o.sndbuf = 2304 + take16(in);
		break;
	case 1:
		o.rcvbuf = o.rcvbuf_max = 2304 + take16(in);
		break;
	case 2:
		o.window_clamp = take16(in);
		break;
	case 3:
		o.pacing_rate = 1000 + take32(in);
		break;
	case 4:
		o.cc = take8(in) % TCP_CC_COUNT;
		break;
	case 5:
		o.notsent_lowat = take16(in);
		break;
	case 6:
		o.user_timeout_ms = take16(in);
		break;
	default:
		o.maxseg = (uint16_t)(88 + take16(in) % 32679);
		o.keepidle_s = 1 + what;
		break;
	}
	tcp_set_opts(u->c, &o, w.now);
}

static void close_user(struct user *u, bool hard)
{
	struct tcp_conn *c = u->c;

	u->c = NULL;
	u->closed = true;
	if (hard)
		tcp_abort(c, w.now);
	else
		tcp_close(c, w.now);
}

static void look(const struct user *u, uint8_t what)
{
	uint8_t info[512];
	size_t len = what * 2u;

	REQUIRE(tcp_fill_info(u->c, info, len, w.now) <= len);
	REQUIRE(tcp_inq(u->c) <= UINT32_MAX / 2 && tcp_outq_unsent(u->c) <= tcp_outq(u->c));
	REQUIRE(!(tcp_ready(u->c) & ~0xffu));
	tcp_at_mark(u->c);
	REQUIRE(tcp_mss(u->c));
	if (what & 1)
		tcp_error(u->c);
}

static void step_call(struct in *in, unsigned which)
{
	struct user *u = pick(which);
	uint8_t call = take8(in) % 12;

	if (!u)
		return;
	switch (call) {
	case 0:
	case 1:
	case 2:
		step_send(in, u);
		break;
	case 3:
	case 4:
	case 5:
		step_recv(in, u);
		break;
	case 6:
		step_options(in, u);
		break;
	case 7:
		tcp_shutdown(u->c, take8(in) % 3, w.now);
		break;
	case 8:
		close_user(u, false);
		break;
	case 9:
		close_user(u, true);
		break;
	case 10:
		tcp_mtu(u->c, 68 + take16(in), w.now);
		break;
	default:
		look(u, take8(in));
		break;
	}
}

/* --- the rest */

static struct tcp_opts opts;

static void accept_one(void)
{
	struct user *u = world_idle(&w);
	struct tcp_conn *c;

	if (!w.l || !u)
		return;
	c = tcp_accept(w.l);
	if (!c)
		return;
	u->c = c;
	u->urgent = true; /* nobody has kept count while it had no user */
	tcp_conn_set_user(c, u);
}

static void step_connect(unsigned which)
{
	struct tcp_tuple t = tuple_of(PASSIVE + which % (TUPLES - PASSIVE));
	struct tcp_fast_open_client how = {.cookie.len = which & 32 ? 8 : 0,
					   .with_data = which & 32};
	struct user *u = world_idle(&w);

	if (!u)
		return;
	if (tcp_connect(w.ts, &t, &opts, u, w.now, &u->c))
		u->c = NULL;
	else if (which & 64)
		tcp_fast_open(u->c, &how);
}

static void open_listener(uint8_t what)
{
	struct tcp_listen_spec spec = {
		.local = tuple_of(0).local, .port = PORT, .family = family, .backlog = what % 4};

	struct tcp_fast_open_server fo = {
		.qlen = what >> 2 & 3, .no_cookie = what & 16, .num_keys = 1 + (what >> 5 & 1)};

	if (tcp_listen(w.ts, &spec, &opts, &w.listener, &w.l))
		w.l = NULL;
	else
		tcp_listen_fast_open(w.l, &fo);
}

static void step_listener(struct in *in)
{
	uint8_t what = take8(in);

	if (!w.l)
		open_listener(what);
	else if (what & 64)
		tcp_listen_backlog(w.l, what & 7);
	else if (what & 128) {
		tcp_listen_close(w.l, w.now);
		w.l = NULL;
	} else {
		accept_one();
	}
}

static void step_trouble(struct in *in)
{
	static const int errors[] = {-ENOBUFS, -EMSGSIZE, -EIO, -ENOBUFS};
	uint8_t what = take8(in);

	if (what & 128) {
		w.fail_in = what & 15;
		w.fail_count = 1 + (what >> 4 & 7);
	} else if (what & 64) {
		w.out_error = errors[what & 3];
		w.out_errors = 1 + (what >> 2 & 15);
	} else {
		w.out_errors = 0;
		tcp_tx_ready(w.ts, w.now);
	}
}

static void step_icmp(struct in *in, unsigned which)
{
	struct tcp_tuple t = tuple_of(which);
	uint8_t what = take8(in);

	tcp_icmp(w.ts, &t, place_of(&t).una + (what & 8 ? take16(in) : 0),
		 (enum tcp_icmp)(what % TCP_ICMP_COUNT), take16(in), w.now);
}

static void step_time(struct in *in)
{
	static const uint32_t scale[] = {1, 1000, 50000, 1000000};
	uint8_t what = take8(in);
	uint64_t next = tcp_next_timer(w.ts);

	if (what & 128)
		w.now = next != WHEEL_NEVER && next > w.now ? next : w.now;
	else
		w.now += (uint64_t)(what & 31) * scale[what >> 5];
	tcp_run_timers(w.ts, w.now);
}

static bool step(struct in *in)
{
	uint8_t op = take8(in);
	unsigned which = op >> 4;

	switch (op & 15) {
	case 0:
	case 1:
	case 2:
	case 3:
		step_segment(in, which);
		return false;
	case 4:
		step_raw(in, which);
		return false;
	case 5:
	case 6:
		step_answer(in, which);
		return false;
	case 7:
	case 8:
	case 9:
		step_call(in, which);
		return false;
	case 10:
		step_time(in);
		return true;
	case 11:
		step_connect(which);
		return false;
	case 12:
		step_listener(in);
		return false;
	case 13:
		step_trouble(in);
		return false;
	case 14:
		step_icmp(in, which);
		return false;
	default:
		tcp_flush(w.ts, w.now);
		return true;
	}
}

/* One established connection of the first peer. */
static void handshake(uint8_t what)
{
	struct tcp_tuple t = tuple_of(0);
	struct tcp_hdr_spec h = {.flags = TCPHDR_SYN,
				 .seq = what & 128 ? UINT32_MAX - 3000 : 5000,
				 .wnd = 65535,
				 .mss = 1460,
				 .ts = what & 1,
				 .tsval = 7,
				 .sack_permitted = what & 2,
				 .wscale_present = what & 4,
				 .wscale = 7};
	struct tcp_hdr_spec ack = {
		.flags = TCPHDR_ACK, .seq = h.seq + 1, .wnd = 600, .ts = what & 1, .tsval = 8};

	send_spec(&t, &h, 0, 0, 0);
	tcp_flush(w.ts, w.now);
	REQUIRE(w.num_sent == 1 && w.sent[0].flags == (TCPHDR_SYN | TCPHDR_ACK));
	ack.ack = w.sent[0].seq + 1;
	ack.tsecr = w.sent[0].tsval;
	send_spec(&t, &ack, 0, 0, 0);
	tcp_flush(w.ts, w.now);
	accept_one();
	REQUIRE(w.user[0].c);
	w.user[0].urgent = false;
}

static void begin(struct in *in)
{
	struct tcp_env env = {.ctx = &w,
			      .output = world_output,
			      .event = world_event,
			      .alloc = world_alloc,
			      .free = world_free,
			      .path = world_path};
	uint8_t a = take8(in), b = take8(in);
	struct tcp_cfg cfg;

	memset(&w, 0, sizeof(w));
	arena_reset();
	family = a & 8 ? AF_INET6 : AF_INET;
	tcp_cfg_default(&cfg);
	memset(cfg.secret, 0x5a, sizeof(cfg.secret));
	cfg.max_tw = 3;
	cfg.max_orphans = 4;
	cfg.max_syn_rate = a & 16 ? 5 : 0;
	cfg.mtu_probing = a >> 6;
	tcp_opts_default(&opts);
	opts.timestamps = a & 1;
	opts.sack = a & 2;
	opts.wscale = a & 4;
	opts.ecn = a & 32;
	opts.cc = b % TCP_CC_COUNT;
	opts.nodelay = b & 4;
	opts.defer_accept_s = b & 8 ? 3 : 0;
	if (b & 16)
		opts.rcvbuf = opts.rcvbuf_max = 8192;
	if (b & 32)
		opts.sndbuf = 8192;
	w.now = 1000000;
	w.ts = tcp_stack_new(&env, &cfg, w.now);
	REQUIRE(w.ts);
	opts.defer_accept_s = 0;
	open_listener(b >> 6);
	REQUIRE(w.l);
	handshake(a);
	opts.defer_accept_s = b & 8 ? 3 : 0;
	tcp_listen_opts(w.l, &opts);
}

/* Everybody lets go: with no answer from the peer all must be over after a while. */
static void wind_up(void)
{
	w.fail_count = w.out_errors = 0;
	/*
	 * Thousands of small segments, one for each turn of the timers, would end too, but not
	 * here.
	 */
	for (struct tcp_conn *c = w.ts->conns; c; c = c->next)
		c->o.pacing_rate = UINT64_MAX;
	for (unsigned i = 0; i < USERS; i++)
		if (w.user[i].c)
			close_user(&w.user[i], false);
	if (w.l)
		tcp_listen_close(w.l, w.now);
	w.l = NULL;
	tcp_flush(w.ts, w.now);
	for (unsigned i = 0; i < 5000; i++) {
		uint64_t next = tcp_next_timer(w.ts);

		if (next == WHEEL_NEVER)
			break;
		w.now = next > w.now ? next : w.now;
		tcp_run_timers(w.ts, w.now);
		world_check(&w, true);
	}
	REQUIRE(tcp_next_timer(w.ts) == WHEEL_NEVER && !tcp_stack_conns(w.ts));
	for (unsigned i = 0; i < USERS; i++)
		REQUIRE(!w.user[i].c && !w.user[i].closed);
	REQUIRE(!w.bufs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct in in = {data, data + size};
	bool gently;

	begin(&in);
	gently = take8(&in) & 1;
	for (unsigned i = 0; i < MAX_STEPS && in.p < in.end; i++)
		world_check(&w, step(&in));
	if (gently)
		wind_up();
	tcp_stack_free(w.ts);
	REQUIRE(!w.blocks && !w.bytes && !w.bufs);
	return 0;
}
