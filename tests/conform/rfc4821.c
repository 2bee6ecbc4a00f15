/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* RFC 4821 as Linux does it (net.ipv4.tcp_mtu_probing): larger segments are tried. */
#include <errno.h>
#include <sys/socket.h>

#include "script.h"

/* The path takes 3000 and the window, shut so far, has let two segments of the base size go. */
static void much_to_send(uint32_t bytes)
{
	cfg()->mtu_probing = 2;
	opts()->nodelay = true;
	opts()->sndbuf = opts()->sndbuf_max = 4000000;
	peer()->mtu = 3000;
	peer()->mss = 2960;
	peer()->wnd = 2048;
	peer()->route.initcwnd = 20;
	peer()->metrics = "initcwnd 20";
	established();
	equal(sending(2048 + bytes, 0), 2048 + bytes);
	out("*A", 1, 1, 1024);
	out("*A", 1025, 1, 1024);
	nothing();
	wait_ms(20);
	peer()->wnd = 65535;
}

static void rfc4821_a_larger_segment_is_tried(void)
{
	much_to_send(12000);
	in("A", 1, 2049, 0);
	/* Half-way between 1064 and 3000. */
	out("*A", 2049, 1, 1992);
	out("*A", 4041, 1, 1024);
	drain();
	wait_ms(20);
	in("A", 1, 4041, 0);
	drain();
	equal(info().tcpi_snd_mss, 1992);
}

static void rfc4821_a_size_that_arrives_is_used_and_the_next_tried(void)
{
	const struct seg *last;
	uint32_t next;

	much_to_send(40000);
	in("A", 1, 2049, 0);
	out("*A", 2049, 1, 1992);
	last = drain();
	wait_ms(20);
	next = last->seq + last->len;
	in("A", 1, next, 0);
	equal(info().tcpi_snd_mss, 1992);
	/* Between 2032 and 3000. */
	out("*A", next, 1, 2476);
}

static void rfc4821_a_lost_probe_is_no_congestion(void)
{
	const struct seg *last;
	uint32_t cwnd, end;

	much_to_send(12000);
	in("A", 1, 2049, 0);
	out("*A", 2049, 1, 1992);
	last = drain();
	end = last->seq + last->len;
	cwnd = info().tcpi_snd_cwnd;
	wait_ms(20);
	in_sack(2049, 1, 4041, 4041 + 4 * 1024);
	/* Again, in segments that go through. */
	out("*A", 2049, 1, 1024);
	drain();
	must(info().tcpi_snd_cwnd > cwnd);
	equal(info().tcpi_snd_mss, 1024);
	wait_ms(20);
	in("A", 1, end, 0);
	equal(info().tcpi_ca_state, 0);
	must(info().tcpi_snd_cwnd > cwnd);
}

static void rfc4821_little_data_is_not_tried(void)
{
	much_to_send(6000);
	in("A", 1, 2049, 0);
	for (unsigned i = 0; i < 5; i++)
		out("*A", 2049 + 1024 * i, 1, 1024);
	out("PA", 2049 + 5 * 1024, 1, 6000 - 5 * 1024);
	nothing();
}

static void rfc4821_records_are_not_joined_for_it(void)
{
	much_to_send(900);
	for (unsigned i = 0; i < 12; i++)
		equal(sending(1000, MSG_EOR), 1000);
	in("A", 1, 2049, 0);
	out("*A", 2049, 1, 1024);
	drain();
}

static void rfc4821_behind_a_black_hole_the_base_size_is_used(void)
{
	cfg()->mtu_probing = 1;
	peer()->mss = 1460;
	peer()->sack = false;
	established();
	equal(sending(1460, 0), 1460);
	out("PA", 1, 1, 1460);
	for (uint32_t after = 220; after <= 880; after *= 2)
		out_after(after, "PA", 1, 1, 1460);
	out_after(1760, "*A", 1, 1, 1024);
	wait_ms(20);
	in("A", 1, 1025, 0);
	out("PA", 1025, 1, 436);
	equal(info().tcpi_snd_mss, 1024);
}

const struct conform_case cases_rfc4821[] = {
	CASE(rfc4821_a_larger_segment_is_tried),
	CASE(rfc4821_a_size_that_arrives_is_used_and_the_next_tried),
	CASE(rfc4821_a_lost_probe_is_no_congestion),
	CASE(rfc4821_little_data_is_not_tried),
	CASE(rfc4821_records_are_not_joined_for_it),
	CASE(rfc4821_behind_a_black_hole_the_base_size_is_used),
	{0},
};
