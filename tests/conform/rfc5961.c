/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* RFC 5961: blind attacks; RFC 5927: ICMP. */
#include <errno.h>
#include <sys/socket.h>

#include "script.h"

static void rfc5961_3_rst_at_the_exact_number(void)
{
	established();
	in("PA", 1, 1, 100);
	out("A", 1, 101, 0);
	in("R", 101, 0, 0);
	nothing();
	equal(state(), TCPS_CLOSED);
}

static void rfc5961_3_rst_in_the_window_is_challenged(void)
{
	established();
	in("R", 2, 0, 0);
	out("A", 1, 1, 0);
	equal(state(), TCPS_ESTABLISHED);
}

static void rfc5961_3_rst_below_the_window_is_ignored(void)
{
	established();
	in("PA", 1, 1, 100);
	out("A", 1, 101, 0);
	in("R", 1, 0, 0);
	nothing();
	equal(state(), TCPS_ESTABLISHED);
}

static void rfc5961_3_rst_above_the_window_is_ignored(void)
{
	established();
	in("R", 1000000, 0, 0);
	nothing();
	equal(state(), TCPS_ESTABLISHED);
}

static void rfc5961_3_rst_behind_a_hole_after_sack(void)
{
	established();
	in("PA", 101, 1, 100);
	out("A", 1, 1, 0);
	/*
	 * Linux takes a RST at the end of what was SACKed (the peer may have reset after data that
	 * is lost).
	 */
	in("R", 201, 0, 0);
	nothing();
	equal(state(), TCPS_CLOSED);
}

static void rfc5961_4_syn_is_challenged(void)
{
	established();
	in("S", 1, 0, 0);
	out("A", 1, 1, 0);
	equal(state(), TCPS_ESTABLISHED);
}

static void rfc5961_4_syn_below_and_above_the_window_is_answered(void)
{
	established();
	in("S", (uint32_t)-5000, 0, 0);
	out("A", 1, 1, 0);
	wait_ms(600);
	in("S", 500000, 0, 0);
	out("A", 1, 1, 0);
	equal(state(), TCPS_ESTABLISHED);
}

static void rfc5961_4_syn_ack_in_established_is_challenged(void)
{
	established_active();
	in("SA", 0, 1, 0);
	out("A", 1, 1, 0);
	equal(state(), TCPS_ESTABLISHED);
}

static void rfc5961_5_ack_far_below_is_challenged(void)
{
	established();
	in("PA", 1, (uint32_t)-100000, 10);
	out("A", 1, 1, 0);
	equal(receiving(100, 0), -EAGAIN);
}

static void rfc5961_5_ack_above_is_challenged(void)
{
	established();
	in("A", 1, 2, 0);
	out("A", 1, 1, 0);
	equal(state(), TCPS_ESTABLISHED);
}

static void rfc5961_7_challenges_are_few(void)
{
	established();
	for (unsigned i = 0; i < 50; i++)
		in("R", 2 + i, 0, 0);
	must(waiting() >= 1);
	must(waiting() <= 5);
}

static void rfc5961_7_out_of_window_answers_are_few(void)
{
	established();
	for (unsigned i = 0; i < 50; i++)
		in("A", 1000000 + i, 1, 0);
	equal(waiting(), 1);
}

static void rfc5961_4_syn_in_close_wait_is_challenged(void)
{
	established();
	in("FA", 1, 1, 0);
	out_by(60, "A", 1, 2, 0);
	in("S", 2, 0, 0);
	out("A", 1, 2, 0);
	equal(state(), TCPS_CLOSE_WAIT);
}

/* Linux: tcp_reset_check(): macOS resets with its FIN's number what it has closed. */
static void rfc5961_3_2_the_fins_number_resets_in_close_wait(void)
{
	established();
	in("FA", 1, 1, 0);
	out_by(60, "A", 1, 2, 0);
	in("R", 1, 0, 0);
	equal(state(), TCPS_CLOSED);
	equal(pending_error(), EPIPE);
}

static void rfc5961_3_2_the_fins_number_resets_in_last_ack(void)
{
	established();
	in("FA", 1, 1, 0);
	out_by(60, "A", 1, 2, 0);
	equal(shutting(SHUT_WR), 0);
	out("FA", 1, 2, 0);
	in("R", 1, 0, 0);
	equal(state(), TCPS_CLOSED);
	equal(pending_error(), ECONNRESET);
}

static void rfc5961_3_2_the_fins_number_resets_in_closing(void)
{
	established();
	equal(shutting(SHUT_WR), 0);
	out("FA", 1, 1, 0);
	in("FA", 1, 1, 0);
	out("A", 2, 2, 0);
	in("R", 1, 0, 0);
	equal(state(), TCPS_CLOSED);
	equal(pending_error(), ECONNRESET);
}

static void rfc5927_7_unreachable_does_not_end_a_connection(void)
{
	established();
	equal(sending(100, 0), 100);
	out("PA", 1, 1, 100);
	in_icmp(TCP_ICMP_UNREACH_HOST, 1, 0);
	equal(state(), TCPS_ESTABLISHED);
	equal(pending_error(), EHOSTUNREACH);
	equal(pending_error(), 0);
	in("A", 1, 101, 0);
	equal(sending(100, 0), 100);
	out("PA", 101, 1, 100);
}

static void rfc5927_4_icmp_for_a_number_not_in_flight(void)
{
	established();
	equal(sending(1000, 0), 1000);
	out("PA", 1, 1, 1000);
	in_icmp(TCP_ICMP_FRAG_NEEDED, 5000, 600);
	in("A", 1, 1001, 0);
	equal(sending(1000, 0), 1000);
	out("PA", 1001, 1, 1000);
}

static void rfc5461_4_unreachable_fails_a_connect(void)
{
	connecting();
	out("S", 0, ANY, 0);
	in_icmp(TCP_ICMP_UNREACH_HOST, 0, 0);
	equal(state(), TCPS_CLOSED);
	equal(pending_error(), EHOSTUNREACH);
}

static void rfc5461_4_port_unreachable_refuses_a_connect(void)
{
	connecting();
	out("S", 0, ANY, 0);
	in_icmp(TCP_ICMP_UNREACH_PORT, 0, 0);
	equal(state(), TCPS_CLOSED);
	equal(pending_error(), ECONNREFUSED);
}

static void rfc5461_4_net_unreachable_fails_a_connect(void)
{
	connecting();
	out("S", 0, ANY, 0);
	in_icmp(TCP_ICMP_UNREACH_NET, 0, 0);
	equal(state(), TCPS_CLOSED);
	equal(pending_error(), ENETUNREACH);
}

/* Linux: icmp_err_convert. */
static void unreachable_fails_a_connect(enum tcp_icmp kind, int error)
{
	connecting();
	out("S", 0, ANY, 0);
	in_icmp(kind, 0, 0);
	equal(state(), TCPS_CLOSED);
	equal(pending_error(), error);
}

static void rfc5461_4_protocol_unreachable_fails_a_connect(void)
{
	unreachable_fails_a_connect(TCP_ICMP_UNREACH_PROTO, ENOPROTOOPT);
}

static void rfc5461_4_a_failed_source_route_fails_a_connect(void)
{
	unreachable_fails_a_connect(TCP_ICMP_SOURCE_ROUTE, EOPNOTSUPP);
}

static void rfc5461_4_host_unknown_fails_a_connect(void)
{
	unreachable_fails_a_connect(TCP_ICMP_HOST_UNKNOWN, EHOSTDOWN);
}

static void rfc5461_4_host_isolated_fails_a_connect(void)
{
	unreachable_fails_a_connect(TCP_ICMP_HOST_ISOLATED, ENONET);
}

static void rfc5461_4_net_prohibited_fails_a_connect(void)
{
	unreachable_fails_a_connect(TCP_ICMP_REFUSED_NET, ENETUNREACH);
}

static void rfc5461_4_host_prohibited_fails_a_connect(void)
{
	unreachable_fails_a_connect(TCP_ICMP_REFUSED_HOST, EHOSTUNREACH);
}

/* Our SYN is something that the peer has acknowledged: the number before it is an old one. */
static void rfc5961_5_2_an_old_ack_before_any_data_brings_its_text(void)
{
	established_active();
	in("PA", 1, 0, 100);
	out_by(500, "A", 1, 101, 0);
	equal(receiving(1000, 0), 100);
	/* One more was never sent. */
	in("PA", 101, UINT32_MAX, 100);
	out("A", 1, 101, 0);
	equal(receiving(1000, 0), -EAGAIN);
}

static void rfc5961_5_2_an_acked_fin_counts_too(void)
{
	established();
	equal(shutting(SHUT_WR), 0);
	out("FA", 1, 1, 0);
	in("A", 1, 2, 0);
	equal(state(), TCPS_FIN_WAIT2);
	in("PA", 1, 1, 100);
	out_by(500, "A", 2, 101, 0);
	equal(receiving(1000, 0), 100);
}

static void rfc5961_5_2_a_number_that_was_never_sent_brings_nothing(void)
{
	established();
	in("PA", 1, 0, 100);
	out("A", 1, 1, 0);
	equal(receiving(1000, 0), -EAGAIN);
}

const struct conform_case cases_rfc5961[] = {
	CASE(rfc5961_3_rst_at_the_exact_number),
	CASE(rfc5961_3_rst_in_the_window_is_challenged),
	CASE(rfc5961_3_rst_below_the_window_is_ignored),
	CASE(rfc5961_3_rst_above_the_window_is_ignored),
	CASE(rfc5961_3_rst_behind_a_hole_after_sack),
	CASE(rfc5961_4_syn_is_challenged),
	CASE(rfc5961_4_syn_below_and_above_the_window_is_answered),
	CASE(rfc5961_4_syn_ack_in_established_is_challenged),
	CASE(rfc5961_5_ack_far_below_is_challenged),
	CASE(rfc5961_5_ack_above_is_challenged),
	CASE(rfc5961_5_2_an_old_ack_before_any_data_brings_its_text),
	CASE(rfc5961_5_2_an_acked_fin_counts_too),
	CASE(rfc5961_5_2_a_number_that_was_never_sent_brings_nothing),
	CASE(rfc5961_7_challenges_are_few),
	CASE(rfc5961_7_out_of_window_answers_are_few),
	CASE(rfc5961_4_syn_in_close_wait_is_challenged),
	CASE(rfc5961_3_2_the_fins_number_resets_in_close_wait),
	CASE(rfc5961_3_2_the_fins_number_resets_in_last_ack),
	CASE(rfc5961_3_2_the_fins_number_resets_in_closing),
	CASE(rfc5927_7_unreachable_does_not_end_a_connection),
	CASE(rfc5927_4_icmp_for_a_number_not_in_flight),
	CASE(rfc5461_4_unreachable_fails_a_connect),
	CASE(rfc5461_4_port_unreachable_refuses_a_connect),
	CASE(rfc5461_4_net_unreachable_fails_a_connect),
	CASE(rfc5461_4_protocol_unreachable_fails_a_connect),
	CASE(rfc5461_4_a_failed_source_route_fails_a_connect),
	CASE(rfc5461_4_host_unknown_fails_a_connect),
	CASE(rfc5461_4_host_isolated_fails_a_connect),
	CASE(rfc5461_4_net_prohibited_fails_a_connect),
	CASE(rfc5461_4_host_prohibited_fails_a_connect),
	{0},
};
