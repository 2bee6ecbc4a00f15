/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a route asks of its connections: the metrics of ip-route(8) that Linux's TCP follows. */
#include <errno.h>
#include <sys/socket.h>

#include "script.h"

static void route_advmss_is_what_our_syn_says(void)
{
	peer()->route.advmss = 700;
	peer()->metrics = "advmss 700";
	equal(connecting(), 0);
	equal(out("S", 0, ANY, 0)->mss, 700);
}

static void route_advmss_is_what_our_syn_ack_says(void)
{
	peer()->route.advmss = 700;
	peer()->metrics = "advmss 700";
	listening();
	in("S", 0, 0, 0);
	equal(out("SA", 0, 1, 0)->mss, 700);
}

static void route_window_is_the_largest_that_we_tell(void)
{
	peer()->route.window = 5000;
	peer()->metrics = "window 5000";
	listening();
	in("S", 0, 0, 0);
	/* Linux forgets it when it has measured its first large segments. */
	must(out("SA", 0, 1, 0)->wnd <= 5000);
}

static void route_initcwnd_is_how_much_leaves_first(void)
{
	peer()->route.initcwnd = 3;
	peer()->metrics = "initcwnd 3";
	established();
	equal(sending(20000, 0), 20000);
	for (unsigned i = 0; i < 3; i++)
		out("*A", 1 + 1000 * i, 1, 1000);
	nothing();
	equal(info().tcpi_snd_cwnd, 3);
}

static void route_initcwnd_counts_when_we_connect(void)
{
	peer()->route.initcwnd = 20;
	peer()->metrics = "initcwnd 20";
	established_active();
	equal(info().tcpi_snd_cwnd, 20);
}

static void route_initrwnd_is_the_first_window(void)
{
	peer()->route.initrwnd = 4;
	peer()->metrics = "initrwnd 4";
	listening();
	in("S", 0, 0, 0);
	equal(out("SA", 0, 1, 0)->wnd, 4 * 1460);
}

static void question_and_answer(void)
{
	established();
	for (unsigned i = 0; i < 3; i++) {
		in("PA", 1 + 10 * i, 1 + 10 * i, 10);
		drain();
		equal(receiving(100, 0), 10);
		equal(sending(10, 0), 10);
		drain();
		wait_ms(5);
	}
	in("PA", 31, 31, 10);
}

static void an_answers_ack_waits_for_it(void)
{
	question_and_answer();
	nothing();
}

static void route_quickack_lets_no_ack_wait(void)
{
	peer()->route.quickack = true;
	peer()->metrics = "quickack 1";
	question_and_answer();
	out("A", 31, 41, 0);
}

static void route_rto_min_is_the_least_timeout(void)
{
	peer()->route.rto_min_us = 60000;
	peer()->metrics = "rto_min 60ms";
	peer()->sack = false;
	established();
	equal(sending(500, 0), 500);
	out("PA", 1, 1, 500);
	out_after(80, "PA", 1, 1, 500);
}

static void three_of_ten_are_lost(void)
{
	opts()->nodelay = true;
	established();
	equal(sending(10000, 0), 10000);
	drain();
	wait_ms(20);
	in_sack(1, 1, 1001, 4001);
	drain();
}

static void cubic_leaves_seven_of_ten(void)
{
	three_of_ten_are_lost();
	equal(info().tcpi_snd_ssthresh, 7);
}

static void route_congctl_comes_before_the_sockets(void)
{
	peer()->route.cc = TCP_CC_NEWRENO + 1;
	peer()->metrics = "congctl reno";
	three_of_ten_are_lost();
	equal(info().tcpi_snd_ssthresh, 5);
}

static void send_with_mtu_1400(void)
{
	peer()->mss = 1460;
	established();
	equal(sending(1360, 0), 1360);
	out("PA", 1, 1, 1360);
	in_icmp(TCP_ICMP_FRAG_NEEDED, 1, 700);
}

static void icmp_makes_the_mtu_smaller(void)
{
	peer()->mtu = 1400;
	send_with_mtu_1400();
	out("*A", 1, 1, 660);
}

static void route_mtu_lock_keeps_it(void)
{
	peer()->mtu = 1400;
	peer()->route.mtu_locked = true;
	peer()->metrics = "mtu lock 1400";
	send_with_mtu_1400();
	nothing();
	equal(info().tcpi_pmtu, 1400);
}

const struct conform_case cases_linux_route[] = {
	CASE(route_advmss_is_what_our_syn_says),
	CASE(route_advmss_is_what_our_syn_ack_says),
	CASE(route_window_is_the_largest_that_we_tell),
	CASE(route_initcwnd_is_how_much_leaves_first),
	CASE(route_initcwnd_counts_when_we_connect),
	CASE(route_initrwnd_is_the_first_window),
	CASE(an_answers_ack_waits_for_it),
	CASE(route_quickack_lets_no_ack_wait),
	CASE(route_rto_min_is_the_least_timeout),
	CASE(cubic_leaves_seven_of_ten),
	CASE(route_congctl_comes_before_the_sockets),
	CASE(icmp_makes_the_mtu_smaller),
	CASE(route_mtu_lock_keeps_it),
	{0},
};
