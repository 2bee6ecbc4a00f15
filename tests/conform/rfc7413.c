/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* RFC 7413: TCP Fast Open, as Linux does it. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "script.h"

/* A SYN with so many bytes and the cookie of our listener. */
static struct seg syn(uint32_t len)
{
	struct seg s = prepared("S", 0, 0, len);

	with_cookie(&s);
	return s;
}

/* A listener with Fast Open, for five that are not complete unless the test says for how many. */
static void offering(void)
{
	if (!peer()->fast_open)
		peer()->fast_open = 5;
	listening();
}

/* Such a listener, and a SYN that asks it for a cookie, maybe in the experimental option. */
static void asking(bool exp)
{
	struct seg s;

	offering();
	s = prepared("S", 0, 0, 0);
	s.fo = true;
	s.fo_exp = exp;
	inject(s);
}

/* A listener that has one, with 100 bytes of its SYN, accepted. */
static void opened(void)
{
	offering();
	inject(syn(100));
	out("SA", 0, 101, 0);
	equal(accepting(), 0);
}

static bool gives_cookie(const struct seg *s, bool exp)
{
	struct seg mine = {0};

	with_cookie(&mine);
	return s->fo && s->fo_exp == exp && s->fo_len == mine.fo_len &&
	       !memcmp(s->fo_cookie, mine.fo_cookie, mine.fo_len);
}

static void rfc7413_4_1_2_a_cookie_for_who_asks(void)
{
	asking(false);
	must(gives_cookie(out("SA", 0, 1, 0), false));
	must(!out_after(1000, "SA", 0, 1, 0)->fo);
	in("A", 1, 1, 0);
	equal(accepting(), 0);
	equal(info().tcpi_options & TCPI_OPT_SYN_DATA, 0);
}

static void rfc7413_4_1_2_a_cookie_for_who_asks_ipv6(void)
{
	peer()->family = AF_INET6;
	asking(false);
	must(gives_cookie(out("SA", 0, 1, 0), false));
}

static void rfc7413_a_cookie_in_the_experimental_option(void)
{
	asking(true);
	must(gives_cookie(out("SA", 0, 1, 0), true));
}

static void rfc7413_4_1_2_no_cookie_without_fast_open(void)
{
	listening();
	inject(syn(100));
	must(!out("SA", 0, 1, 0)->fo);
	in("A", 1, 1, 0);
	equal(accepting(), 0);
	equal(inq(), 0);
}

static void rfc7413_4_2_2_data_of_the_syn_is_read_before_the_handshake_ends(void)
{
	offering();
	inject(syn(100));
	must(!out("SA", 0, 101, 0)->fo);
	equal(accepting(), 0);
	equal(state(), TCPS_SYN_RECV);
	equal(ready(), TCP_EV_IN | TCP_EV_OUT);
	equal(receiving(200, 0), 100);
	equal(receiving(200, 0), -EAGAIN);
	in("A", 101, 1, 0);
	nothing();
	equal(state(), TCPS_ESTABLISHED);
	in("PA", 101, 1, 50);
	equal(receiving(200, 0), 50);
	must(info().tcpi_options & TCPI_OPT_SYN_DATA);
	equal(info().tcpi_bytes_acked, 0);
}

static void rfc7413_4_2_2_data_with_the_experimental_option(void)
{
	struct seg s;

	offering();
	s = syn(100);
	s.fo_exp = true;
	inject(s);
	out("SA", 0, 101, 0);
	equal(accepting(), 0);
	equal(receiving(200, 0), 100);
}

static void rfc7413_4_2_2_data_with_time_stamps_and_ipv6(void)
{
	peer()->family = AF_INET6;
	peer()->ts = true;
	peer()->wscale = 7;
	opened();
	equal(receiving(200, 0), 100);
	in("A", 101, 1, 0);
	equal(sending(10, 0), 10);
	out("PA", 1, 101, 10);
}

static void rfc7413_4_2_2_the_server_answers_before_the_handshake_ends(void)
{
	opened();
	equal(receiving(200, 0), 100);
	equal(sending(500, 0), 500);
	out("PA", 1, 101, 500);
	equal(sending(500, 0), 500);
	in("A", 101, 1, 0);
	in("A", 101, 501, 0);
	drain();
	in("A", 101, 1001, 0);
	equal(state(), TCPS_ESTABLISHED);
	equal(info().tcpi_total_retrans, 0);
	equal(info().tcpi_bytes_acked, 1000);
}

static void rfc7413_4_2_2_one_ack_for_the_syn_and_the_answer(void)
{
	opened();
	equal(sending(500, 0), 500);
	out("PA", 1, 101, 500);
	in("PA", 101, 501, 20);
	equal(state(), TCPS_ESTABLISHED);
	equal(receiving(200, 0), 120);
}

static void rfc7413_4_1_2_a_wrong_cookie_gets_a_good_one(void)
{
	struct seg s;

	offering();
	s = syn(100);
	s.fo_cookie[3] ^= 1;
	inject(s);
	must(gives_cookie(out("SA", 0, 1, 0), false));
	equal(accepting(), -EAGAIN);
	in("A", 1, 1, 100);
	drain();
	equal(accepting(), 0);
	equal(receiving(200, 0), 100);
}

static void rfc7413_4_1_2_a_cookie_of_another_length_gets_a_good_one(void)
{
	struct seg s;

	offering();
	s = syn(100);
	s.fo_len = 6;
	inject(s);
	must(gives_cookie(out("SA", 0, 1, 0), false));
	equal(accepting(), -EAGAIN);
}

static void rfc7413_4_1_1_a_cookie_too_short_is_no_option(void)
{
	struct seg s;

	offering();
	s = syn(100);
	s.fo_len = 2;
	inject(s);
	must(!out("SA", 0, 1, 0)->fo);
}

static void rfc7413_data_without_a_cookie_is_not_taken(void)
{
	offering();
	in("S", 0, 0, 100);
	must(!out("SA", 0, 1, 0)->fo);
	equal(accepting(), -EAGAIN);
}

static void rfc7413_4_2_2_a_cookie_without_data_opens_too(void)
{
	offering();
	inject(syn(0));
	out("SA", 0, 1, 0);
	equal(accepting(), 0);
	equal(ready(), TCP_EV_OUT);
	equal(sending(10, 0), 10);
	out("PA", 1, 1, 10);
	equal(info().tcpi_options & TCPI_OPT_SYN_DATA, 0);
}

static void rfc7413_5_1_no_more_than_the_limit(void)
{
	peer()->fast_open = 1;
	offering();
	in_strangers(syn(100));
	drain();
	inject(syn(100));
	must(!out("SA", 0, 1, 0)->fo);
	equal(accepting(), 0); /* the stranger's */
}

static void rfc7413_5_1_one_that_is_complete_counts_no_more(void)
{
	peer()->fast_open = 1;
	opened();
	in("A", 101, 1, 0);
	in_strangers(syn(100));
	drain();
	equal(accepting(), 0);
}

static void rfc7413_5_1_one_that_was_reset_counts_on(void)
{
	peer()->fast_open = 1;
	opened();
	in("R", 101, 0, 0);
	equal(state(), TCPS_CLOSED);
	equal(receiving(200, 0), 100);
	equal(receiving(200, 0), -ECONNRESET);
	in_strangers(syn(100));
	drain();
	equal(accepting(), -EAGAIN);
}

static void rfc7413_the_syn_once_more_is_answered(void)
{
	opened();
	in("S", 0, 0, 0);
	must(!out("SA", 0, 101, 0)->fo);
	equal(state(), TCPS_SYN_RECV);
	wait_ms(600);
	inject(syn(100));
	out("SA", 0, 101, 0);
	in("A", 101, 1, 0);
	equal(state(), TCPS_ESTABLISHED);
	equal(receiving(200, 0), 100);
}

static void rfc7413_the_syn_ack_is_repeated(void)
{
	opened();
	must(!out_after(1000, "SA", 0, 101, 0)->fo);
	out_after(2000, "SA", 0, 101, 0);
	in("A", 101, 1, 0);
	equal(state(), TCPS_ESTABLISHED);
	equal(sending(10, 0), 10);
	out("PA", 1, 101, 10);
}

static void rfc7413_the_answer_goes_again_when_the_syn_ack_was_lost(void)
{
	opened();
	equal(sending(500, 0), 500);
	out("PA", 1, 101, 500);
	out_after(1000, "SA", 0, 101, 0);
	in("A", 101, 1, 0);
	wait_ms(3500);
	out("PA", 1, 101, 500);
	drain();
	in("A", 101, 501, 0);
	equal(sending(10, 0), 10);
	out("PA", 501, 101, 10);
}

static void rfc7413_another_syn_is_not_believed(void)
{
	opened();
	in("S", 5000000, 0, 0);
	drain();
	equal(state(), TCPS_SYN_RECV);
	in("A", 101, 1, 0);
	equal(state(), TCPS_ESTABLISHED);
}

static void rfc7413_a_wrong_ack_is_reset(void)
{
	opened();
	in("A", 101, 77, 0);
	out("R", 77, ANY, 0);
	equal(state(), TCPS_SYN_RECV);
}

static void rfc7413_closing_sends_a_fin_before_the_handshake_ends(void)
{
	opened();
	equal(receiving(200, 0), 100);
	closing();
	out("FA", 1, 101, 0);
	in("A", 101, 1, 0);
	in("A", 101, 2, 0);
	equal(state(), TCPS_FIN_WAIT2);
}

static void rfc7413_closing_with_data_unread_resets(void)
{
	opened();
	closing();
	out("RA", 1, 101, 0);
	equal(state(), TCPS_CLOSED);
}

static void rfc7413_the_listener_closes(void)
{
	offering();
	inject(syn(100));
	out("SA", 0, 101, 0);
	closing();
	out("RA", 1, 101, 0);
	in("A", 101, 1, 0);
	out("R", 1, ANY, 0);
}

static void rfc7413_nobody_completes_it(void)
{
	opts()->syn_retries = 1;
	opened();
	out_after(1000, "SA", 0, 101, 0);
	wait_ms(2500);
	equal(state(), TCPS_CLOSED);
	equal(receiving(200, 0), 100);
	equal(receiving(200, 0), -ETIMEDOUT);
}

/* As if the SYN|ACK that is on its way had arrived: the kernel has no such state to be given. */
static void rfc7413_it_can_leave_before_the_handshake_ends(void)
{
	struct tcp_image im;
	uint8_t got[100];

	engine_only();
	opened();
	equal(sending(500, 0), 500);
	out("PA", 1, 101, 500);
	equal(tcp_export(the_conn(), &im), 0);
	equal(im.state, TCPS_ESTABLISHED);
	equal(im.snd_nxt - im.snd_una, 500);
	equal(im.rcv_nxt - im.copied_seq, 100);
	equal(tcp_export_received(the_conn(), im.copied_seq, got, 100), 100);
	equal(got[99], peer_byte(99));
}

/* --- the client */

static void rfc7413_4_1_2_a_client_asks_for_a_cookie(void)
{
	const struct seg *s;

	peer()->asks = true;
	equal(connecting_with(100), -EINPROGRESS);
	s = out("S", 0, ANY, 0);
	must(s->fo && !s->fo_exp && !s->fo_len);
	in("SA", 0, 1, 0);
	out("A", 1, 1, 0);
	equal(sending(100, 0), 100);
	out("PA", 1, 1, 100);
	equal(info().tcpi_options & TCPI_OPT_SYN_DATA, 0);
	equal(info().tcpi_fastopen_client_fail, 1);
}

static void rfc7413_4_1_2_the_second_syn_does_not_ask(void)
{
	peer()->asks = true;
	equal(connecting_with(100), -EINPROGRESS);
	must(out("S", 0, ANY, 0)->fo);
	must(!out_after(1000, "S", 0, ANY, 0)->fo);
	in("SA", 0, 1, 0);
	out("A", 1, 1, 0);
}

static void rfc7413_4_2_1_data_in_the_syn(void)
{
	equal(connecting_with(100), 100);
	equal(state(), TCPS_SYN_SENT);
	equal(ready(), 0);
	equal(sending(10, 0), -EAGAIN);
	out("S", 0, ANY, 100);
	in("SA", 0, 101, 0);
	out("A", 101, 1, 0);
	nothing();
	equal(state(), TCPS_ESTABLISHED);
	must(info().tcpi_options & TCPI_OPT_SYN_DATA);
	equal(info().tcpi_total_retrans, 0);
	equal(info().tcpi_bytes_acked, 101);
	equal(info().tcpi_bytes_sent, 100);
	equal(info().tcpi_fastopen_client_fail, 0);
	equal(sending(10, 0), 10);
	out("PA", 101, 1, 10);
}

static void rfc7413_4_2_1_data_that_was_not_taken_goes_again(void)
{
	equal(connecting_with(100), 100);
	out("S", 0, ANY, 100);
	in("SA", 0, 1, 0);
	out("A*", 1, 1, 100);
	in("A", 1, 101, 0);
	equal(info().tcpi_options & TCPI_OPT_SYN_DATA, 0);
	equal(info().tcpi_total_retrans, 1);
	equal(info().tcpi_fastopen_client_fail, 2);
	equal(sending(10, 0), 10);
	out("PA", 101, 1, 10);
}

static void rfc7413_4_2_1_time_stamps_and_ipv6(void)
{
	peer()->family = AF_INET6;
	peer()->ts = true;
	equal(connecting_with(100), 100);
	out("S", 0, ANY, 100);
	wait_ms(30);
	in("SA", 0, 101, 0);
	out("A", 101, 1, 0);
	equal(sending(10, 0), 10);
	out("PA", 101, 1, 10);
}

static void rfc7413_4_2_1_as_much_as_a_segment_less_the_options(void)
{
	equal(connecting_with(5000), 1420);
	out("S", 0, ANY, 1420);
	in("SA", 0, 1421, 0);
	out("A", 1421, 1, 0);
}

static void rfc7413_4_2_1_a_lost_syn_goes_again_without_data(void)
{
	equal(connecting_with(100), 100);
	out("S", 0, ANY, 100);
	out_after(1000, "S", 0, ANY, 0);
	in("SA", 0, 1, 0);
	out("A*", 1, 1, 100);
	equal(info().tcpi_fastopen_client_fail, 3);
	in("A", 1, 101, 0);
	equal(state(), TCPS_ESTABLISHED);
}

static void rfc7413_4_2_1_the_answer_to_the_second_syn_may_take_the_data(void)
{
	equal(connecting_with(100), 100);
	out("S", 0, ANY, 100);
	out_after(1000, "S", 0, ANY, 0);
	in("SA", 0, 101, 0);
	out("A", 101, 1, 0);
	nothing();
	must(info().tcpi_options & TCPI_OPT_SYN_DATA);
}

static void rfc7413_4_2_1_an_answer_beyond_the_data_is_reset(void)
{
	equal(connecting_with(100), 100);
	out("S", 0, ANY, 100);
	in("SA", 0, 102, 0);
	out("R", 102, ANY, 0);
	equal(state(), TCPS_SYN_SENT);
}

static void rfc7413_4_2_1_the_server_answers_before_our_ack(void)
{
	equal(connecting_with(100), 100);
	out("S", 0, ANY, 100);
	in("SA", 0, 101, 0);
	out("A", 101, 1, 0);
	in("PA", 1, 101, 50);
	drain();
	equal(receiving(100, 0), 50);
}

static void rfc7413_4_2_1_refused(void)
{
	equal(connecting_with(100), 100);
	out("S", 0, ANY, 100);
	in("RA", 0, 101, 0);
	nothing();
	equal(pending_error(), ECONNREFUSED);
	equal(state(), TCPS_CLOSED);
}

static void rfc7413_an_empty_write_connects(void)
{
	equal(connecting_with(0), -EINPROGRESS);
	out("S", 0, ANY, 0);
	in("SA", 0, 1, 0);
	out("A", 1, 1, 0);
}

const struct conform_case cases_rfc7413[] = {
	CASE(rfc7413_4_1_2_a_client_asks_for_a_cookie),
	CASE(rfc7413_4_1_2_the_second_syn_does_not_ask),
	CASE(rfc7413_4_2_1_data_in_the_syn),
	CASE(rfc7413_4_2_1_data_that_was_not_taken_goes_again),
	CASE(rfc7413_4_2_1_time_stamps_and_ipv6),
	CASE(rfc7413_4_2_1_as_much_as_a_segment_less_the_options),
	CASE(rfc7413_4_2_1_a_lost_syn_goes_again_without_data),
	CASE(rfc7413_4_2_1_the_answer_to_the_second_syn_may_take_the_data),
	CASE(rfc7413_4_2_1_an_answer_beyond_the_data_is_reset),
	CASE(rfc7413_4_2_1_the_server_answers_before_our_ack),
	CASE(rfc7413_4_2_1_refused),
	CASE(rfc7413_an_empty_write_connects),
	CASE(rfc7413_4_1_2_a_cookie_for_who_asks),
	CASE(rfc7413_4_1_2_a_cookie_for_who_asks_ipv6),
	CASE(rfc7413_a_cookie_in_the_experimental_option),
	CASE(rfc7413_4_1_2_no_cookie_without_fast_open),
	CASE(rfc7413_4_2_2_data_of_the_syn_is_read_before_the_handshake_ends),
	CASE(rfc7413_4_2_2_data_with_the_experimental_option),
	CASE(rfc7413_4_2_2_data_with_time_stamps_and_ipv6),
	CASE(rfc7413_4_2_2_the_server_answers_before_the_handshake_ends),
	CASE(rfc7413_4_2_2_one_ack_for_the_syn_and_the_answer),
	CASE(rfc7413_4_1_2_a_wrong_cookie_gets_a_good_one),
	CASE(rfc7413_4_1_2_a_cookie_of_another_length_gets_a_good_one),
	CASE(rfc7413_4_1_1_a_cookie_too_short_is_no_option),
	CASE(rfc7413_data_without_a_cookie_is_not_taken),
	CASE(rfc7413_4_2_2_a_cookie_without_data_opens_too),
	CASE(rfc7413_5_1_no_more_than_the_limit),
	CASE(rfc7413_5_1_one_that_is_complete_counts_no_more),
	CASE(rfc7413_5_1_one_that_was_reset_counts_on),
	CASE(rfc7413_the_syn_once_more_is_answered),
	CASE(rfc7413_the_syn_ack_is_repeated),
	CASE(rfc7413_the_answer_goes_again_when_the_syn_ack_was_lost),
	CASE(rfc7413_another_syn_is_not_believed),
	CASE(rfc7413_a_wrong_ack_is_reset),
	CASE(rfc7413_closing_sends_a_fin_before_the_handshake_ends),
	CASE(rfc7413_closing_with_data_unread_resets),
	CASE(rfc7413_the_listener_closes),
	CASE(rfc7413_nobody_completes_it),
	CASE(rfc7413_it_can_leave_before_the_handshake_ends),
	{0},
};
