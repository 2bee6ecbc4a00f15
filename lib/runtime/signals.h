/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which signals interrupted this thread: a call that spins in user space must end with EINTR as one
 * that sleeps in the kernel would. preload wraps handlers (sigaction, signal) so that these
 * counters move; they only grow.
 */
#ifndef RUNTIME_SIGNALS_H
#define RUNTIME_SIGNALS_H

#include <stdint.h>

/*
 * Handlers that have run in this thread. poll, select, epoll_wait and calls with a timeout end by
 * any of them (signal(7)).
 */
extern __thread volatile uint32_t signals_handled __attribute__((tls_model("initial-exec")));
/* Those installed without SA_RESTART: every blocking call ends. */
extern __thread volatile uint32_t signals_interrupting __attribute__((tls_model("initial-exec")));

#endif
