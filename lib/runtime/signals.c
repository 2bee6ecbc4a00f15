/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The counters of signals.h. Written by preload/signal.c in the thread that the handler interrupts.
 */
#include "runtime/signals.h"

__thread volatile uint32_t signals_handled;
__thread volatile uint32_t signals_interrupting;
