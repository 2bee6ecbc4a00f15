/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* RFC 9293: how connections begin (3.5, 3.10.7.1 to 3.10.7.3, and SYN-RECEIVED of 3.10.7.4). */
#include <errno.h>
#include <string.h>

#include "script.h"

static void rfc9293_3_5_passive_open(void)
{
	established();
	equal(state(), TCPS_ESTABLISHED);
	equal(ready(), TCP_EV_OUT);
}

static void rfc9293_3_5_passive_open_ipv6(void)
{
	peer()->family = AF_INET6;
	established();
	in("PA", 1, 1, 10);
	out("A", 1, 11, 0);
}

static void rfc9293_3_5_active_open(void)
{
	established_active();
	equal(state(), TCPS_ESTABLISHED);
	equal(ready(), TCP_EV_OUT);
	equal(pending_error(), 0);
}

static void rfc9293_3_5_active_open_ipv6(void)
{
	peer()->family = AF_INET6;
	established_active();
	equal(sending(10, 0), 10);
	out("PA", 1, 1, 10);
}

static void rfc9293_3_5_simultaneous_open(void)
{
	connecting();
	out("S", 0, ANY, 0);
	in("S", 0, 0, 0);
	out("SA", 0, 1, 0);
	equal(state(), TCPS_SYN_RECV);
	in("A", 1, 1, 0);
	equal(state(), TCPS_ESTABLISHED);
	equal(sending(10, 0), 10);
	out("PA", 1, 1, 10);
}

static void rfc9293_3_5_simultaneous_open_ends_with_the_peers_syn_ack(void)
{
	connecting();
	out("S", 0, ANY, 0);
	in("S", 0, 0, 0);
	out("SA", 0, 1, 0);
	in("SA", 0, 1, 0);
	equal(state(), TCPS_ESTABLISHED);
	drain();
	in("PA", 1, 1, 10);
	out("A", 1, 11, 0);
}

static void rfc9293_3_5_simultaneous_open_repeats_its_syn_ack(void)
{
	connecting();
	out("S", 0, ANY, 0);
	in("S", 0, 0, 0);
	out("SA", 0, 1, 0);
	out_after(1000, "SA", 0, 1, 0);
}

static void rfc9293_3_10_7_3_wrong_ack_in_syn_sent_is_reset(void)
{
	connecting();
	out("S", 0, ANY, 0);
	in("A", 5, 77, 0);
	out("R", 77, ANY, 0);
	equal(state(), TCPS_SYN_SENT);
}

/*
 * The peer's TIME_WAIT of an earlier life of the port ends by our RST; the SYN follows it at once,
 * as Linux's does.
 */
static void linux_the_syn_follows_the_rst_of_a_wrong_ack_at_once(void)
{
	connecting();
	out("S", 0, ANY, 0);
	in("A", 5, 77, 0);
	out("R", 77, ANY, 0);
	out_after(2, "S", 0, ANY, 0);
	/* Who goes on so is not answered by more SYNs than one a second. */
	in("A", 5, 77, 0);
	out("R", 77, ANY, 0);
	out_after(1000, "S", 0, ANY, 0);
	in("SA", 0, 1, 0);
	out("A", 1, 1, 0);
	equal(state(), TCPS_ESTABLISHED);
}

static void rfc9293_3_10_7_3_syn_ack_with_wrong_ack_is_reset(void)
{
	connecting();
	out("S", 0, ANY, 0);
	in("SA", 0, 0, 0);
	out("R", 0, ANY, 0);
	in("SA", 0, 2, 0);
	out("R", 2, ANY, 0);
	in("SA", 0, 1, 0);
	out("A", 1, 1, 0);
	equal(state(), TCPS_ESTABLISHED);
}

/* The RFC would have it refused; Linux's tcp_reset() knows only of SYN_SENT. */
static void rfc9293_3_10_7_4_a_rst_ends_a_simultaneous_open(void)
{
	opts()->timestamps = opts()->wscale = false;
	connecting();
	out("S", 0, ANY, 0);
	in("S", 0, 0, 0);
	out("SA", 0, 1, 0);
	in("R", 1, 0, 0);
	nothing();
	equal(state(), TCPS_CLOSED);
	equal(pending_error(), ECONNRESET);
}

static void rfc9293_3_10_7_3_acceptable_rst_refuses(void)
{
	connecting();
	out("S", 0, ANY, 0);
	in("RA", 0, 1, 0);
	nothing();
	must((ready() & (TCP_EV_ERR | TCP_EV_HUP)) == (TCP_EV_ERR | TCP_EV_HUP));
	equal(pending_error(), ECONNREFUSED);
	equal(state(), TCPS_CLOSED);
}

static void rfc9293_3_10_7_3_rst_without_ack_is_ignored(void)
{
	connecting();
	out("S", 0, ANY, 0);
	in("R", 0, 0, 0);
	nothing();
	equal(state(), TCPS_SYN_SENT);
}

static void rfc9293_3_10_7_3_rst_with_wrong_ack_is_ignored(void)
{
	connecting();
	out("S", 0, ANY, 0);
	in("RA", 0, 2, 0);
	equal(state(), TCPS_SYN_SENT);
	in("SA", 0, 1, 0);
	wait_ms(1);
	/* Linux hurries its SYN after a wrong acknowledgement. */
	must(drain()->ack == 1);
	equal(state(), TCPS_ESTABLISHED);
}

static void rfc9293_3_10_7_3_fin_and_plain_ack_are_dropped(void)
{
	connecting();
	out("S", 0, ANY, 0);
	in("F", 0, 0, 0);
	nothing();
	in("A", 0, 1, 0);
	nothing();
	equal(state(), TCPS_SYN_SENT);
}

static void rfc9293_3_10_7_3_the_syn_ack_acknowledges_data_of_nobody(void)
{
	connecting();
	out("S", 0, ANY, 0);
	equal(sending(10, 0), -EAGAIN);
	in("SA", 0, 1, 0);
	out("A", 1, 1, 0);
	equal(sending(10, 0), 10);
	out("PA", 1, 1, 10);
}

static void rfc9293_3_10_7_2_syn_with_data(void)
{
	listening();
	in("S", 0, 0, 100);
	out("SA", 0, 1, 0);
	in("A", 1, 1, 0);
	equal(accepting(), 0);
	equal(receiving(100, 0), -EAGAIN);
	in("PA", 1, 1, 100);
	out("A", 1, 101, 0);
	equal(receiving(200, 0), 100);
}

static void rfc9293_3_10_7_1_syn_to_a_closed_port_is_reset(void)
{
	listening();
	in_elsewhere("S", 0, 0, 0);
	out("RA", 0, 1, 0);
}

static void rfc9293_3_10_7_1_the_reset_acknowledges_the_text(void)
{
	listening();
	in_elsewhere("S", 0, 0, 10);
	out("RA", 0, 11, 0);
	in_elsewhere("F", 5, 0, 10);
	out("RA", 0, 16, 0);
	in_elsewhere("", 5, 0, 10);
	out("RA", 0, 15, 0);
}

static void rfc9293_3_10_7_1_ack_to_a_closed_port_is_reset_at_its_ack(void)
{
	listening();
	in_elsewhere("A", 5, 77, 0);
	out("R", 77, ANY, 0);
	in_elsewhere("SA", 5, 78, 0);
	out("R", 78, ANY, 0);
	in_elsewhere("FA", 5, 79, 20);
	out("R", 79, ANY, 0);
}

static void rfc9293_3_10_7_1_rst_is_never_answered(void)
{
	listening();
	in_elsewhere("R", 5, 0, 0);
	nothing();
	in_elsewhere("RA", 5, 77, 0);
	nothing();
	in_elsewhere("SR", 5, 77, 0);
	nothing();
}

static void rfc9293_3_10_7_2_ack_to_a_listener_is_reset(void)
{
	listening();
	in("A", 5, 77, 0);
	out("R", 77, ANY, 0);
	in("SA", 5, 78, 0);
	out("R", 78, ANY, 0);
	in("PA", 5, 79, 30);
	out("R", 79, ANY, 0);
}

static void rfc9293_3_10_7_2_rst_to_a_listener_is_ignored(void)
{
	listening();
	in("R", 5, 0, 0);
	nothing();
	in("RA", 5, 77, 0);
	nothing();
	in("SR", 0, 0, 0);
	nothing();
}

static void rfc9293_3_10_7_2_anything_else_to_a_listener_is_dropped(void)
{
	listening();
	in("", 5, 0, 0);
	nothing();
	in("F", 5, 0, 0);
	nothing();
	in("PU", 5, 0, 30);
	nothing();
}

static void rfc9293_3_10_7_2_syn_fin_to_a_listener_is_dropped(void)
{
	listening();
	in("SF", 0, 0, 0);
	nothing();
	equal(state(), TCPS_CLOSED);
}

static void rfc9293_3_10_7_4_syn_again_in_syn_received(void)
{
	listening();
	in("S", 0, 0, 0);
	out("SA", 0, 1, 0);
	equal(state(), TCPS_SYN_RECV);
	wait_ms(600);
	in("S", 0, 0, 0);
	out("SA", 0, 1, 0);
	in("A", 1, 1, 0);
	equal(accepting(), 0);
}

/* The peer has forgotten its first SYN, and begins anew. */
static void rfc9293_3_10_7_4_another_syn_in_syn_received(void)
{
	listening();
	in("S", 0, 0, 0);
	out("SA", 0, 1, 0);
	wait_ms(600);
	in("S", 5000000, 0, 0);
	out("A", 1, 1, 0);
	equal(state(), TCPS_SYN_RECV);
	in("R", 1, 0, 0); /* its answer: that is no number of its */
	equal(state(), TCPS_CLOSED);
	in("S", 5000000, 0, 0);
	out("SA", ANY, 5000001, 0);
}

static void rfc9293_3_10_7_4_another_syn_below_in_syn_received(void)
{
	listening();
	in("S", 0, 0, 0);
	out("SA", 0, 1, 0);
	wait_ms(600);
	in("S", (uint32_t)-5000, 0, 0);
	out("A", 1, 1, 0);
	equal(state(), TCPS_SYN_RECV);
	in("A", 1, 1, 0);
	equal(accepting(), 0);
}

/* Linux: tcp_check_req(). RFC 5961, 4 would challenge it; nothing is established yet. */
static void rfc9293_3_10_7_4_another_syn_within_the_window_ends_syn_received(void)
{
	listening();
	in("S", 0, 0, 0);
	out("SA", 0, 1, 0);
	wait_ms(600);
	in("SA", 1000, 1, 0);
	out("R", 1, ANY, 0);
	equal(state(), TCPS_CLOSED);
	in("S", 1000, 0, 0);
	out("SA", ANY, 1001, 0);
}

static void rfc9293_3_10_7_4_rst_in_syn_received(void)
{
	listening();
	in("S", 0, 0, 0);
	out("SA", 0, 1, 0);
	in("R", 1, 0, 0);
	nothing();
	equal(state(), TCPS_CLOSED);
	in("A", 1, 1, 0);
	out("R", 1, ANY, 0);
	equal(accepting(), -EAGAIN);
}

static void rfc9293_3_10_7_4_rst_out_of_window_in_syn_received(void)
{
	listening();
	in("S", 0, 0, 0);
	out("SA", 0, 1, 0);
	in("R", 200000, 0, 0);
	nothing();
	equal(state(), TCPS_SYN_RECV);
	in("A", 1, 1, 0);
	equal(accepting(), 0);
}

static void rfc9293_3_10_7_4_wrong_ack_in_syn_received_is_reset(void)
{
	listening();
	in("S", 0, 0, 0);
	out("SA", 0, 1, 0);
	in("A", 1, 2, 0);
	out("R", 2, ANY, 0);
	in("A", 1, 0, 0);
	out("R", 0, ANY, 0);
	in("A", 1, 1, 0);
	equal(accepting(), 0);
	equal(state(), TCPS_ESTABLISHED);
}

static void rfc9293_3_10_7_4_no_ack_in_syn_received_is_dropped(void)
{
	listening();
	in("S", 0, 0, 0);
	out("SA", 0, 1, 0);
	in("P", 1, 0, 10);
	nothing();
	equal(state(), TCPS_SYN_RECV);
}

static void rfc9293_3_10_7_4_text_out_of_window_in_syn_received_is_acknowledged(void)
{
	listening();
	in("S", 0, 0, 0);
	out("SA", 0, 1, 0);
	in("A", 200000, 1, 10);
	out("A", 1, 1, 0);
	equal(state(), TCPS_SYN_RECV);
}

static void rfc9293_3_10_7_4_the_handshakes_ack_brings_text(void)
{
	listening();
	in("S", 0, 0, 0);
	out("SA", 0, 1, 0);
	in("PA", 1, 1, 50);
	out("A", 1, 51, 0);
	equal(accepting(), 0);
	equal(receiving(100, 0), 50);
}

static void rfc9293_3_10_7_4_the_handshakes_ack_is_lost_but_text_comes(void)
{
	listening();
	in("S", 0, 0, 0);
	out("SA", 0, 1, 0);
	wait_ms(300);
	in("PA", 1, 1, 50);
	out("A", 1, 51, 0);
	equal(accepting(), 0);
}

static void rfc9293_3_10_7_4_the_handshakes_ack_brings_fin(void)
{
	listening();
	in("S", 0, 0, 0);
	out("SA", 0, 1, 0);
	in("FA", 1, 1, 0);
	out_by(60, "A", 1, 2, 0);
	equal(accepting(), 0);
	equal(state(), TCPS_CLOSE_WAIT);
	equal(receiving(10, 0), 0);
}

static void rfc9293_3_10_7_4_syn_ack_is_repeated_with_backoff(void)
{
	listening();
	in("S", 0, 0, 0);
	out("SA", 0, 1, 0);
	out_after(1000, "SA", 0, 1, 0);
	out_after(2000, "SA", 0, 1, 0);
	out_after(4000, "SA", 0, 1, 0);
}

static void rfc9293_3_8_1_syn_is_repeated_with_backoff(void)
{
	connecting();
	out("S", 0, ANY, 0);
	out_after(1000, "S", 0, ANY, 0);
	/* Linux repeats the first few linearly (tcp_syn_linear_timeouts, since 6.5). */
	out_after(1000, "S", 0, ANY, 0);
	out_after(1000, "S", 0, ANY, 0);
	out_after(1000, "S", 0, ANY, 0);
	out_after(1000, "S", 0, ANY, 0);
	out_after(2000, "S", 0, ANY, 0);
	out_after(4000, "S", 0, ANY, 0);
}

static void rfc9293_3_8_3_syn_without_answer_times_out(void)
{
	opts()->syn_retries = 2;
	connecting();
	out("S", 0, ANY, 0);
	wait_ms(12000);
	drain();
	equal(pending_error(), ETIMEDOUT);
	equal(state(), TCPS_CLOSED);
}

static void rfc9293_3_10_1_close_in_syn_sent(void)
{
	connecting();
	out("S", 0, ANY, 0);
	closing();
	nothing();
	equal(state(), TCPS_CLOSED);
	in("SA", 0, 1, 0);
	out("R", 1, ANY, 0);
}

static void rfc9293_3_10_4_listener_closes_over_an_embryo(void)
{
	listening();
	in("S", 0, 0, 0);
	out("SA", 0, 1, 0);
	closing();
	drain();
	in("A", 1, 1, 0);
	out("R", 1, ANY, 0);
}

static void rfc9293_3_10_4_listener_closes_over_an_unaccepted_connection(void)
{
	listening();
	in("S", 0, 0, 0);
	out("SA", 0, 1, 0);
	in("A", 1, 1, 0);
	nothing();
	closing();
	out("RA", 1, 1, 0);
	equal(state(), TCPS_CLOSED);
}

static void rfc9293_3_7_1_no_mss_option_means_536(void)
{
	peer()->mss = 0;
	established();
	equal(sending(1000, 0), 1000);
	out("A", 1, 1, 536);
	out("PA", 537, 1, 464);
}

static void rfc9293_3_7_1_no_mss_option_means_1220_on_ipv6(void)
{
	peer()->mss = 0;
	peer()->family = AF_INET6;
	established();
	equal(sending(2000, 0), 2000);
	drain();
}

static void rfc9293_3_7_1_our_mss_is_the_links(void)
{
	const struct seg *s;

	listening();
	in("S", 0, 0, 0);
	s = out("SA", 0, 1, 0);
	equal(s->mss, 1460);
}

static void rfc9293_3_7_1_our_mss_is_the_links_on_ipv6(void)
{
	const struct seg *s;

	peer()->family = AF_INET6;
	connecting();
	s = out("S", 0, ANY, 0);
	equal(s->mss, 1440);
}

static void rfc9293_3_7_1_maxseg_is_said_and_kept(void)
{
	const struct seg *s;

	opts()->maxseg = 500;
	connecting();
	s = out("S", 0, ANY, 0);
	equal(s->mss, 500);
	in("SA", 0, 1, 0);
	out("A", 1, 1, 0);
	equal(sending(1000, 0), 1000);
	out("*A", 1, 1, 500);
	out("PA", 501, 1, 500);
}

static void rfc9293_3_7_1_an_absurd_mss_is_not_believed(void)
{
	peer()->mss = 8;
	established();
	equal(sending(100, 0), 100);
	out("A", 1, 1, 48);
	out("*A", 49, 1, 48);
	out("PA", 97, 1, 4);
}

static void rfc9293_3_1_options_unknown_and_malformed_are_skipped(void)
{
	static const uint8_t raw[] = {254, 4, 1, 2, 1, 1,   2, 4, 2, 88,
				      77,  2, 4, 2, 8, 200, 1, 1, 1, 1};
	struct seg s;

	listening();
	s = prepared("S", 0, 0, 0);
	memcpy(s.raw, raw, sizeof(raw));
	s.raw_len = sizeof(raw);
	inject(s);
	/* MSS 600 and SACK-permitted stand before the broken time stamp. */
	must(out("SA", 0, 1, 0)->sackok);
	in("A", 1, 1, 0);
	equal(accepting(), 0);
	equal(sending(1000, 0), 1000);
	out("*A", 1, 1, 600);
	out("PA", 601, 1, 400);
}

static void rfc9293_3_1_an_option_of_length_zero_ends_the_options(void)
{
	static const uint8_t raw[] = {77, 0, 2, 4, 2, 88, 1, 1};
	struct seg s;

	listening();
	s = prepared("S", 0, 0, 0);
	memcpy(s.raw, raw, sizeof(raw));
	s.raw_len = sizeof(raw);
	inject(s);
	must(!out("SA", 0, 1, 0)->sackok);
	in("A", 1, 1, 0);
	equal(accepting(), 0);
	equal(sending(600, 0), 600);
	out("A", 1, 1, 536);
	out("PA", 537, 1, 64);
}

static void rfc9293_3_5_backlog_full_connections_wait_as_embryos(void)
{
	peer()->backlog = 0;
	listening();
	in("S", 0, 0, 0);
	out("SA", 0, 1, 0);
	in("A", 1, 1, 0);
	equal(accepting(), 0);
	equal(accepting(), -EAGAIN);
}

const struct conform_case cases_rfc9293_open[] = {
	CASE(rfc9293_3_5_passive_open),
	CASE(rfc9293_3_5_passive_open_ipv6),
	CASE(rfc9293_3_5_active_open),
	CASE(rfc9293_3_5_active_open_ipv6),
	CASE(rfc9293_3_5_simultaneous_open),
	CASE(rfc9293_3_5_simultaneous_open_ends_with_the_peers_syn_ack),
	CASE(rfc9293_3_5_simultaneous_open_repeats_its_syn_ack),
	CASE(rfc9293_3_10_7_3_wrong_ack_in_syn_sent_is_reset),
	CASE(linux_the_syn_follows_the_rst_of_a_wrong_ack_at_once),
	CASE(rfc9293_3_10_7_3_syn_ack_with_wrong_ack_is_reset),
	CASE(rfc9293_3_10_7_4_a_rst_ends_a_simultaneous_open),
	CASE(rfc9293_3_10_7_3_acceptable_rst_refuses),
	CASE(rfc9293_3_10_7_3_rst_without_ack_is_ignored),
	CASE(rfc9293_3_10_7_3_rst_with_wrong_ack_is_ignored),
	CASE(rfc9293_3_10_7_3_fin_and_plain_ack_are_dropped),
	CASE(rfc9293_3_10_7_3_the_syn_ack_acknowledges_data_of_nobody),
	CASE(rfc9293_3_10_7_2_syn_with_data),
	CASE(rfc9293_3_10_7_1_syn_to_a_closed_port_is_reset),
	CASE(rfc9293_3_10_7_1_the_reset_acknowledges_the_text),
	CASE(rfc9293_3_10_7_1_ack_to_a_closed_port_is_reset_at_its_ack),
	CASE(rfc9293_3_10_7_1_rst_is_never_answered),
	CASE(rfc9293_3_10_7_2_ack_to_a_listener_is_reset),
	CASE(rfc9293_3_10_7_2_rst_to_a_listener_is_ignored),
	CASE(rfc9293_3_10_7_2_anything_else_to_a_listener_is_dropped),
	CASE(rfc9293_3_10_7_2_syn_fin_to_a_listener_is_dropped),
	CASE(rfc9293_3_10_7_4_syn_again_in_syn_received),
	CASE(rfc9293_3_10_7_4_another_syn_in_syn_received),
	CASE(rfc9293_3_10_7_4_another_syn_below_in_syn_received),
	CASE(rfc9293_3_10_7_4_another_syn_within_the_window_ends_syn_received),
	CASE(rfc9293_3_10_7_4_rst_in_syn_received),
	CASE(rfc9293_3_10_7_4_rst_out_of_window_in_syn_received),
	CASE(rfc9293_3_10_7_4_wrong_ack_in_syn_received_is_reset),
	CASE(rfc9293_3_10_7_4_no_ack_in_syn_received_is_dropped),
	CASE(rfc9293_3_10_7_4_text_out_of_window_in_syn_received_is_acknowledged),
	CASE(rfc9293_3_10_7_4_the_handshakes_ack_brings_text),
	CASE(rfc9293_3_10_7_4_the_handshakes_ack_is_lost_but_text_comes),
	CASE(rfc9293_3_10_7_4_the_handshakes_ack_brings_fin),
	CASE(rfc9293_3_10_7_4_syn_ack_is_repeated_with_backoff),
	CASE(rfc9293_3_8_1_syn_is_repeated_with_backoff),
	CASE(rfc9293_3_8_3_syn_without_answer_times_out),
	CASE(rfc9293_3_10_1_close_in_syn_sent),
	CASE(rfc9293_3_10_4_listener_closes_over_an_embryo),
	CASE(rfc9293_3_10_4_listener_closes_over_an_unaccepted_connection),
	CASE(rfc9293_3_7_1_no_mss_option_means_536),
	CASE(rfc9293_3_7_1_no_mss_option_means_1220_on_ipv6),
	CASE(rfc9293_3_7_1_our_mss_is_the_links),
	CASE(rfc9293_3_7_1_our_mss_is_the_links_on_ipv6),
	CASE(rfc9293_3_7_1_maxseg_is_said_and_kept),
	CASE(rfc9293_3_7_1_an_absurd_mss_is_not_believed),
	CASE(rfc9293_3_1_options_unknown_and_malformed_are_skipped),
	CASE(rfc9293_3_1_an_option_of_length_zero_ends_the_options),
	CASE(rfc9293_3_5_backlog_full_connections_wait_as_embryos),
	{0},
};
