/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The protocols that use stacks. Until they have registered nothing is there for anybody. */
#include "stack/stack.h"

static void drop_input(struct stack *st, struct buf *b, uint64_t *now_us)
{
	(void)now_us;
	stats_add(&st->stats->drop_no_socket, 1);
	buf_free(b);
}

static void nothing_gone(struct stack *st)
{
	(void)st;
}

static void nothing_polled(struct stack *st, uint64_t now_us)
{
	(void)st;
	(void)now_us;
}

static bool never_blocked(const struct stack *st)
{
	(void)st;
	return false;
}

static bool always_rests(struct stack *st)
{
	(void)st;
	return true;
}

static void nothing(void)
{
}

static uint64_t never_sent_again(const struct stack *st)
{
	(void)st;
	return 0;
}

static int nothing_timed(void)
{
	return 0;
}

static bool nothing_there(void)
{
	return true;
}

static const struct stack_user_ops nobody = {
	.input = drop_input,
	.gone = nothing_gone,
	.addresses_changed = nothing,
	.show = nothing_there,
};
static const struct stack_timed_ops nobody_timed = {
	.first_ring = nothing_timed,
	.polled = nothing_polled,
	.say = nothing_gone,
	.is_blocked = never_blocked,
	.sleep_hint = nothing,
	.rests = always_rests,
	.may_rest = nothing_there,
	.paths_changed = nothing,
	.neighbours_changed = nothing,
	.figures = nothing,
	.retransmits = never_sent_again,
	.ring_came = nothing_gone,
};

const struct stack_user_ops *stack_udp_ops = &nobody;
const struct stack_user_ops *stack_tcp_ops = &nobody;
const struct stack_timed_ops *stack_timed_ops = &nobody_timed;

void stack_register_udp(const struct stack_user_ops *ops)
{
	stack_udp_ops = ops;
}

void stack_register_tcp(const struct stack_user_ops *ops, const struct stack_timed_ops *timed)
{
	stack_tcp_ops = ops;
	stack_timed_ops = timed;
}
