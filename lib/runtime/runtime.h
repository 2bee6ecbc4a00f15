/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The room under all others: libc's own functions, locks, the log, the clock, the internal thread,
 * the library's own descriptors.
 * Everything in lib/ may use it but the protocol core (tcp, proto), which has no clock and makes no
 * system call. It knows nothing above it: what the internal thread does is registered with it
 * (worker.h).
 *
 * Every call of the program: libc.h, lock.h, signals.h; clock.h where it waits. Rare: log.h and
 * log_syslog.h, backtrace.h, worker.h (the
 * internal thread), own_fd.h, atfork.h, process_mark.h, caps.h, text_file.h, last_thread.h (ends
 * the process with its last thread). lock_check.h is in debug builds only; tsan.h tells
 * ThreadSanitizer what it cannot see.
 */
#ifndef RUNTIME_RUNTIME_H
#define RUNTIME_RUNTIME_H

#include "runtime/atfork.h"
#include "runtime/backtrace.h"
#include "runtime/caps.h"
#include "runtime/clock.h"
#include "runtime/last_thread.h"
#include "runtime/libc.h"
#include "runtime/lock.h"
#include "runtime/log.h"
#include "runtime/own_fd.h"
#include "runtime/process_mark.h"
#include "runtime/signals.h"
#include "runtime/text_file.h"
#include "runtime/tsan.h"
#include "runtime/worker.h"

#endif
