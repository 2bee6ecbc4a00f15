/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef SIM_SEGQ_CHECK_H
#define SIM_SEGQ_CHECK_H

struct tcp_conn;

/*
 * The retransmission queue's counters, links and order against a recount. NULL: they agree; else
 * why not.
 */
const char *check_segq(const struct tcp_conn *c);

#endif
