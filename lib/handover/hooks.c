/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The room's start and stop, and what it registers with the sockets below. */
#include "handover/internal.h"
#include "socket/tcp/sock.h"
#include "socket/udp/sock.h"

static _Atomic bool running;

static const struct tcp_sock_handover tcp_ops = {
	.share = tcp_sock_share,
	.give = tcp_sock_give,
	.leaving = tcp_sock_leaving,
	.forking = tcp_sock_forking,
	.inherited = tcp_sock_inherited,
	.made = tcp_sock_claim_new,
	.over = tcp_sock_claim_over,
	.listener_inherited = tcp_sock_listener_inherited,
	.listener_wanted = tcp_sock_listener_wanted,
	.listener_given = tcp_sock_listener_given,
	.listener_closing = tcp_sock_listener_closing,
	.listener_waits = tcp_sock_listener_waits,
	.client = tcp_sock_listeners_client,
	.accepted = tcp_sock_listener_accepted,
	.tick = tcp_sock_listeners_tick,
	.rests = tcp_sock_listeners_rest,
	.second = tcp_sock_claims_look,
	.cut_off = tcp_sock_stack_to_kernel,
	.strays = tcp_sock_strays_to_kernel,
	.leave = tcp_sock_leave,
	.decided = tcp_sock_decided,
	.crowded = tcp_sock_crowded,
};

int handover_start(void)
{
	int err;

	tcp_sock_handover_register(&tcp_ops);
	udp_claim_raise = udp_raise_claim;
	udp_queue_leave = udp_replay_queued;
	err = udp_claims_start();
	if (!err)
		err = exit_start();
	running = !err;
	return err;
}

bool handover_running(void)
{
	return running;
}

void handover_stop(void)
{
	running = false;
	exit_off();
}

void handover_forked(void)
{
	running = false;
	implants_forked();
	udp_claims_forked();
	udp_forked(udp_inherit);
	exit_off();
	tcp_sock_claims_forked();
	tcp_sock_listeners_forked();
	tcp_sock_forked();
}
