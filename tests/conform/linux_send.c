/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How Linux cuts and holds what is sent: MSG_MORE, MSG_EOR. */
#include <sys/socket.h>

#include "script.h"

/* --- MSG_MORE: as TCP_CORK, but for its own call only */

static void more_goes_with_the_peers_next_ack(void)
{
	opts()->nodelay = true;
	established();
	equal(sending(10, MSG_MORE), 10);
	nothing();
	in("A", 1, 1, 0);
	out("A", 1, 1, 10);
}

static void a_cork_holds_on_when_an_ack_comes(void)
{
	opts()->nodelay = true;
	opts()->cork = true;
	established();
	equal(sending(10, 0), 10);
	in("A", 1, 1, 0);
	nothing();
}

static void the_peers_data_alone_lets_nothing_go(void)
{
	opts()->nodelay = true;
	established();
	equal(sending(10, MSG_MORE), 10);
	in("PA", 1, 1, 10);
	/* Quick ACK: what is held does not go along. */
	out("A", 1, 11, 0);
	equal(receiving(100, 0), 10);
	nothing();
}

static void more_goes_by_itself_after_a_timeout(void)
{
	established();
	equal(sending(10, MSG_MORE), 10);
	out_after(220, "PA", 1, 1, 10);
}

static void more_holds_the_rest_until_what_left_is_acknowledged(void)
{
	established();
	equal(sending(1500, MSG_MORE), 1500);
	out("A", 1, 1, 1000);
	nothing();
	wait_ms(20);
	in("A", 1, 1001, 0);
	out("A", 1001, 1, 500);
}

static void more_does_not_hold_whole_segments_nor_push_them(void)
{
	established();
	equal(sending(1000, MSG_MORE), 1000);
	out("A", 1, 1, 1000);
	equal(sending(1000, 0), 1000);
	out("PA", 1001, 1, 1000);
}

/* --- MSG_EOR: no segment has the end of a record and what follows it */

static void a_record_that_has_another_behind_it_is_not_held(void)
{
	opts()->cork = true;
	established();
	equal(sending(100, MSG_EOR), 100);
	nothing();
	equal(sending(100, MSG_EOR), 100);
	out("PA", 1, 1, 100);
	nothing();
	equal(sending(100, 0), 100);
	out("PA", 101, 1, 100);
	nothing();
}

static void the_last_record_is_held_as_any_end_of_the_queue(void)
{
	established();
	equal(sending(100, 0), 100);
	out("PA", 1, 1, 100);
	equal(sending(100, MSG_EOR), 100);
	nothing();
	equal(sending(100, 0), 100);
	out("PA", 101, 1, 100);
	nothing();
	wait_ms(20);
	in("A", 1, 201, 0);
	out("PA", 201, 1, 100);
}

static void a_long_record_ends_with_a_segment_of_its_own(void)
{
	opts()->nodelay = true;
	established();
	equal(sending(1500, MSG_EOR), 1500);
	out("*A", 1, 1, 1000);
	out("PA", 1001, 1, 500);
	equal(sending(1500, MSG_EOR | MSG_MORE), 1500);
	out("*A", 1501, 1, 1000);
	nothing();
	equal(sending(1000, 0), 1000);
	out("*A", 2501, 1, 500);
	out("PA", 3001, 1, 1000);
}

static void records_that_wait_for_the_window_stay_apart(void)
{
	opts()->nodelay = true;
	peer()->wnd = 2000;
	established();
	equal(sending(2000, 0), 2000);
	out("*A", 1, 1, 1000);
	out("PA", 1001, 1, 1000);
	for (unsigned i = 0; i < 3; i++)
		equal(sending(100, MSG_EOR), 100);
	equal(sending(100, 0), 100);
	nothing();
	wait_ms(20);
	in("A", 1, 2001, 0);
	for (unsigned i = 0; i < 4; i++)
		out("PA", 2001 + 100 * i, 1, 100);
	nothing();
}

static void plain_writes_that_wait_for_the_window_are_one(void)
{
	opts()->nodelay = true;
	peer()->wnd = 2000;
	established();
	equal(sending(2000, 0), 2000);
	out("*A", 1, 1, 1000);
	out("PA", 1001, 1, 1000);
	for (unsigned i = 0; i < 4; i++)
		equal(sending(100, 0), 100);
	wait_ms(20);
	in("A", 1, 2001, 0);
	out("PA", 2001, 1, 400);
}

static void records_are_sent_again_as_they_were(void)
{
	opts()->nodelay = true;
	peer()->sack = false; /* no tail loss probe */
	established();
	equal(sending(100, MSG_EOR), 100);
	equal(sending(100, 0), 100);
	out("PA", 1, 1, 100);
	out("PA", 101, 1, 100);
	out_after(220, "PA", 1, 1, 100);
}

const struct conform_case cases_linux_send[] = {
	CASE(more_goes_with_the_peers_next_ack),
	CASE(a_cork_holds_on_when_an_ack_comes),
	CASE(the_peers_data_alone_lets_nothing_go),
	CASE(more_goes_by_itself_after_a_timeout),
	CASE(more_holds_the_rest_until_what_left_is_acknowledged),
	CASE(more_does_not_hold_whole_segments_nor_push_them),
	CASE(a_record_that_has_another_behind_it_is_not_held),
	CASE(the_last_record_is_held_as_any_end_of_the_queue),
	CASE(a_long_record_ends_with_a_segment_of_its_own),
	CASE(records_that_wait_for_the_window_stay_apart),
	CASE(plain_writes_that_wait_for_the_window_are_one),
	CASE(records_are_sent_again_as_they_were),
	{0},
};
