/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * RFC 6191 (TIME-WAIT), 6528 (ISN), 1191/8201/4821 (path MTU), 2525 (close with unread data), 6093
 * (urgent data), 4987 (cookies).
 */
#include <errno.h>
#include <sys/socket.h>

#include "script.h"

static void to_time_wait(void)
{
	established();
	closing();
	out("FA", 1, 1, 0);
	in("FA", 1, 2, 0);
	out("A", 2, 2, 0);
	equal(state(), TCPS_TIME_WAIT);
}

static void rfc6191_2_a_higher_isn_reuses_time_wait(void)
{
	to_time_wait();
	in("S", 100000, 0, 0);
	out("SA", ANY, 100001, 0);
	equal(state(), TCPS_SYN_RECV);
}

static void rfc6191_2_a_lower_isn_does_not(void)
{
	to_time_wait();
	in("S", (uint32_t)-100000, 0, 0);
	out("A", 2, 2, 0);
	equal(state(), TCPS_TIME_WAIT);
}

static void rfc6191_2_a_later_time_stamp_reuses_time_wait(void)
{
	struct seg s;

	peer()->ts = true;
	to_time_wait();
	s = prepared("S", (uint32_t)-100000, 0, 0);
	s.tsval += 5000;
	inject(s);
	must(drain()->flags == (F_SYN | F_ACK));
}

static void rfc6191_2_an_older_time_stamp_does_not(void)
{
	struct seg s;

	peer()->ts = true;
	to_time_wait();
	s = prepared("S", 100000, 0, 0);
	s.tsval -= 3000;
	inject(s);
	out("A", 2, 2, 0);
	equal(state(), TCPS_TIME_WAIT);
}

static void rfc9293_3_10_7_4_a_syn_in_the_window_of_time_wait(void)
{
	to_time_wait();
	in("S", 3, 0, 0);
	must(drain()->flags & F_ACK);
}

static void rfc6528_3_isns_differ(void)
{
	uint32_t first;

	peer()->backlog = 8;
	listening();
	in("S", 0, 0, 0);
	first = drain()->seq;
	in("R", 1, 0, 0);
	wait_ms(100);
	in("S", 5000, 0, 0);
	must(first != drain()->seq || first == 0);
}

static void rfc1191_6_4_frag_needed_makes_segments_smaller(void)
{
	established();
	equal(sending(1000, 0), 1000);
	out("PA", 1, 1, 1000);
	in_icmp(TCP_ICMP_FRAG_NEEDED, 1, 640);
	/* What did not fit goes at once, in pieces. */
	out("*A", 1, 1, 600);
	drain();
	in("A", 1, 1001, 0);
	equal(sending(1000, 0), 1000);
	out("*A", 1001, 1, 600);
	out_by(300, "PA", 1601, 1, 400);
}

static void rfc1191_6_5_a_larger_mtu_is_not_believed(void)
{
	established();
	equal(sending(1000, 0), 1000);
	out("PA", 1, 1, 1000);
	in_icmp(TCP_ICMP_FRAG_NEEDED, 1, 9000);
	nothing();
	equal(info().tcpi_snd_mss, 1000);
}

static void rfc1191_6_5_an_absurd_mtu_is_not_believed(void)
{
	established();
	equal(sending(1000, 0), 1000);
	out("PA", 1, 1, 1000);
	in_icmp(TCP_ICMP_FRAG_NEEDED, 1, 68);
	/* Linux: not below net.ipv4.route.min_pmtu (552). */
	drain();
	equal(info().tcpi_snd_mss, 512);
}

static void rfc8201_4_the_floor_of_ipv6(void)
{
	engine_only();
	peer()->family = AF_INET6;
	peer()->mss = 1440;
	established();
	equal(sending(1440, 0), 1440);
	drain();
	in_icmp(TCP_ICMP_FRAG_NEEDED, 1, 600);
	drain();
	equal(info().tcpi_snd_mss, 1220);
}

static void rfc4821_7_a_black_hole_is_found(void)
{
	engine_only();
	peer()->mss = 1460;
	established();
	equal(sending(1460, 0), 1460);
	drain();
	for (unsigned i = 0; i < 100 && info().tcpi_snd_mss > 1100; i++)
		wait_ms(500);
	drain();
	must(info().tcpi_snd_mss <= 1240);
	equal(state(), TCPS_ESTABLISHED);
}

static void rfc2525_2_17_close_with_unread_data_resets(void)
{
	established();
	in("PA", 1, 1, 100);
	out("A", 1, 101, 0);
	closing();
	out("RA", 1, 101, 0);
	equal(state(), TCPS_CLOSED);
}

static void rfc2525_2_17_close_after_part_was_read_resets(void)
{
	established();
	in("PA", 1, 1, 100);
	out("A", 1, 101, 0);
	equal(receiving(99, 0), 99);
	closing();
	out("RA", 1, 101, 0);
}

static void rfc2525_2_17_data_after_close_resets(void)
{
	established();
	closing();
	out("FA", 1, 1, 0);
	in("PA", 1, 1, 10);
	out("R", ANY, ANY, 0);
	equal(state(), TCPS_CLOSED);
}

static void rfc2525_2_17_data_after_close_in_fin_wait2_resets(void)
{
	established();
	closing();
	out("FA", 1, 1, 0);
	in("A", 1, 2, 0);
	in("PA", 1, 2, 10);
	out("R", 2, ANY, 0);
	equal(state(), TCPS_CLOSED);
}

static void rfc2525_2_17_unread_data_in_close_wait(void)
{
	established();
	in("FPA", 1, 1, 10);
	out_by(60, "A", 1, 12, 0);
	closing();
	out("RA", 1, 12, 0);
	equal(state(), TCPS_CLOSED);
}

static void rfc6093_4_urgent_byte_out_of_line(void)
{
	struct seg s;

	established();
	s = prepared("PAU", 1, 1, 10);
	s.urg = 5;
	inject(s);
	drain();
	must(ready() & TCP_EV_PRI);
	equal(receiving(1, MSG_OOB), 1);
	equal(receiving(100, 0), 4);
	/* The rest begins with byte 6. */
	equal(receiving(100, MSG_TRUNC), 5);
}

static void rfc6093_4_urgent_byte_in_line(void)
{
	struct seg s;

	opts()->oobinline = true;
	established();
	s = prepared("PAU", 1, 1, 10);
	s.urg = 5;
	inject(s);
	drain();
	equal(receiving(100, 0), 4);
	equal(receiving(100, 0), 6);
	equal(receiving(1, MSG_OOB), -EINVAL);
}

static void rfc6093_4_urgent_byte_is_sent(void)
{
	const struct seg *s;

	established();
	equal(sending(3, MSG_OOB), 3);
	s = out("PAU", 1, 1, 3);
	equal(s->urg, 3);
	in("A", 1, 4, 0);
	equal(sending(3, 0), 3);
	out("PA", 4, 1, 3);
}

static void rfc6093_4_nothing_urgent_to_read(void)
{
	established();
	equal(receiving(1, MSG_OOB), -EINVAL);
	in("PA", 1, 1, 10);
	drain();
	equal(receiving(1, MSG_OOB), -EINVAL);
}

static void rfc6093_4_urgent_byte_is_announced_first(void)
{
	struct seg s;

	established();
	s = prepared("PAU", 1, 1, 10);
	s.urg = 20;
	inject(s);
	drain();
	equal(receiving(1, MSG_OOB), -EAGAIN);
	equal(receiving(100, 0), 10);
}

static void rfc4987_3_6_a_cookie_opens_a_connection(void)
{
	engine_only();
	peer()->backlog = 0;
	listening();
	in_stranger();
	in("S", 0, 0, 0);
	out("SA", 0, 1, 0);
	/* Nothing is remembered. */
	equal(state(), TCPS_CLOSED);
	in("A", 1, 1, 0);
	equal(accepting(), 0);
	in("PA", 1, 1, 10);
	out("A", 1, 11, 0);
	equal(counters()->syn_cookies_recv, 1);
}

static void rfc4987_3_6_a_wrong_cookie_is_reset(void)
{
	engine_only();
	peer()->backlog = 0;
	listening();
	in_stranger();
	in("S", 0, 0, 0);
	out("SA", 0, 1, 0);
	in("A", 1, 77, 0);
	out("R", 77, ANY, 0);
	equal(accepting(), -EAGAIN);
}

static void rfc4987_3_6_an_old_cookie_is_reset(void)
{
	engine_only();
	peer()->backlog = 0;
	listening();
	in_stranger();
	in("S", 0, 0, 0);
	out("SA", 0, 1, 0);
	wait_ms(300000);
	in("A", 1, 1, 0);
	out("R", 1, ANY, 0);
	equal(accepting(), -EAGAIN);
}

const struct conform_case cases_rfc_more[] = {
	CASE(rfc6191_2_a_higher_isn_reuses_time_wait),
	CASE(rfc6191_2_a_lower_isn_does_not),
	CASE(rfc6191_2_a_later_time_stamp_reuses_time_wait),
	CASE(rfc6191_2_an_older_time_stamp_does_not),
	CASE(rfc9293_3_10_7_4_a_syn_in_the_window_of_time_wait),
	CASE(rfc6528_3_isns_differ),
	CASE(rfc1191_6_4_frag_needed_makes_segments_smaller),
	CASE(rfc1191_6_5_a_larger_mtu_is_not_believed),
	CASE(rfc1191_6_5_an_absurd_mtu_is_not_believed),
	CASE(rfc8201_4_the_floor_of_ipv6),
	CASE(rfc4821_7_a_black_hole_is_found),
	CASE(rfc2525_2_17_close_with_unread_data_resets),
	CASE(rfc2525_2_17_close_after_part_was_read_resets),
	CASE(rfc2525_2_17_data_after_close_resets),
	CASE(rfc2525_2_17_data_after_close_in_fin_wait2_resets),
	CASE(rfc2525_2_17_unread_data_in_close_wait),
	CASE(rfc6093_4_urgent_byte_out_of_line),
	CASE(rfc6093_4_urgent_byte_in_line),
	CASE(rfc6093_4_urgent_byte_is_sent),
	CASE(rfc6093_4_nothing_urgent_to_read),
	CASE(rfc6093_4_urgent_byte_is_announced_first),
	CASE(rfc4987_3_6_a_cookie_opens_a_connection),
	CASE(rfc4987_3_6_a_wrong_cookie_is_reset),
	CASE(rfc4987_3_6_an_old_cookie_is_reset),
	{0},
};
