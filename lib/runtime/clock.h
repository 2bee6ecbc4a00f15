/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The clock that all deadlines of the library are told in. */
#ifndef RUNTIME_CLOCK_H
#define RUNTIME_CLOCK_H

#include <stdint.h>

/* CLOCK_MONOTONIC in ns. */
uint64_t clock_monotonic_ns(void);
/* Sleeps so long, or until a signal. No cancellation point; keeps errno. */
void clock_sleep_ns(uint64_t ns);

#endif
