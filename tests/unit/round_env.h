/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Rounds as a test wants them: on, with the internal thread; what is unsaid is for ops->say(). */
#ifndef TESTS_UNIT_ROUND_ENV_H
#define TESTS_UNIT_ROUND_ENV_H

#include "config/config.h"
#include "runtime/runtime.h"
#include "stack/internal.h"

/* 0 or negative errno, as a group's setup is to return it. */
static inline int rounds_begin(const struct stack_timed_ops *timed)
{
	int err;

	libc_load();
	params.tx_coalesce = 1;
	stack_timed_ops = timed;
	err = worker_start(NULL, 1);
	return err ? err : stack_rounds_start();
}

/* A group's teardown. */
static inline int rounds_end(void **state)
{
	(void)state;
	worker_stop();
	return 0;
}

#endif
