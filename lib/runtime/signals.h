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

/*
 * For a thread that is about to sleep, or sleeps: an eventfd that stands among what it sleeps on. A
 * signal writes to it, so that one which comes between the last look and the system call ends that
 * at once, without a mask. 0: none; below 0: it has been written to.
 */
extern __thread volatile int signals_bell __attribute__((tls_model("initial-exec")));
void signals_bell_ring(void);

/* By preload, for each signal of the program's, whether its handler runs or is put off. */
static inline void signals_came(void)
{
	if (__builtin_expect(signals_bell > 0, 0))
		signals_bell_ring();
}

#endif
