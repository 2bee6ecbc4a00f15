/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What no RFC says and programs know of Linux: TCP_NODELAY, TCP_NOTSENT_LOWAT, TCP_USER_TIMEOUT. */
#include <errno.h>
#include <sys/socket.h>

#include "script.h"

static void setting_nodelay_pushes_what_a_cork_holds(void)
{
	opts()->cork = true;
	established();
	equal(sending(10, 0), 10);
	nothing();
	opts()->nodelay = true;
	changed_opts();
	out("PA", 1, 1, 10);
	in("A", 1, 11, 0);
	equal(sending(10, 0), 10);
	nothing();
}

static void setting_nodelay_again_does_so_too(void)
{
	opts()->nodelay = true;
	opts()->cork = true;
	established();
	equal(sending(10, 0), 10);
	nothing();
	changed_opts();
	out("PA", 1, 1, 10);
}

static void the_user_timeout_counts_while_the_window_is_shut(void)
{
	opts()->user_timeout_ms = 2000;
	established();
	equal(sending(500, 0), 500);
	out("PA", 1, 1, 500);
	peer()->wnd = 0;
	/* The peer is there, and takes nothing. */
	for (unsigned i = 0; i < 40; i++) {
		in("A", 1, 1, 0);
		wait_ms(100);
		drain();
	}
	equal(pending_error(), ETIMEDOUT);
	equal(state(), TCPS_CLOSED);
}

static void notsent_lowat_bounds_one_write(void)
{
	int n;

	opts()->notsent_lowat = 10000;
	opts()->sndbuf = 4000000;
	established();
	/* Ten segments leave, 10,000 bytes may wait, and Linux adds whole buffers of up to 64 KiB.
	 */
	n = sending(1000000, 0);
	must(n >= 20000 && n <= 20000 + 65536);
	must(info().tcpi_notsent_bytes <= 10000 + 65536);
	equal(sending(1000, 0), -EAGAIN);
}

static void ecn_is_accepted_and_not_asked_for(void)
{
	peer()->syn_ecn = true;
	opts()->ecn_passive = true;
	established(); /* SYN|ACK with ECE */
}

static void no_ecn_when_it_is_off(void)
{
	peer()->syn_ecn = true;
	opts()->ecn_passive = false;
	established();
}

static void a_syn_of_ours_does_not_ask_for_ecn(void)
{
	opts()->ecn_passive = true;
	established_active();
}

/* Three segments behind a hole; what the first and the last of their answers offer. */
static void behind_a_hole(uint16_t *first, uint16_t *last)
{
	opts()->window_clamp = 20000;
	established();
	opts()->window_clamp = 60000;
	changed_opts();
	in("A", 1001, 1, 1000);
	*first = out("A", 1, 1, 0)->wnd;
	in("A", 2001, 1, 1000);
	out("A", 1, 1, 0);
	in("A", 3001, 1, 1000);
	*last = out("A", 1, 1, 0)->wnd;
}

static void the_window_grows_for_what_comes_out_of_order(void)
{
	uint16_t first, last;

	behind_a_hole(&first, &last);
	must(last > first);
}

static void without_sack_duplicates_have_one_window(void)
{
	uint16_t first, last;

	peer()->sack = false;
	behind_a_hole(&first, &last);
	equal(last, first);
}

const struct conform_case cases_linux[] = {
	CASE(setting_nodelay_pushes_what_a_cork_holds),
	CASE(setting_nodelay_again_does_so_too),
	CASE(the_user_timeout_counts_while_the_window_is_shut),
	CASE(notsent_lowat_bounds_one_write),
	CASE(ecn_is_accepted_and_not_asked_for),
	CASE(no_ecn_when_it_is_off),
	CASE(a_syn_of_ours_does_not_ask_for_ecn),
	CASE(the_window_grows_for_what_comes_out_of_order),
	CASE(without_sack_duplicates_have_one_window),
	{0},
};
