/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * VMA_* parameters. One table, config/parameters.def; field names are the variable's without VMA_,
 * in lower case: VMA_RX_POLL is params.rx_poll. Numbers, booleans and enums are int, strings const
 * char * (never NULL).
 */
#ifndef CONFIG_PARAMS_H
#define CONFIG_PARAMS_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum param_xdp_mode { PARAM_XDP_AUTO, PARAM_XDP_GENERIC, PARAM_XDP_NATIVE, PARAM_XDP_ZEROCOPY };
enum ring_type { RING_TYPE_AUTO, RING_TYPE_MLX5, RING_TYPE_XDP, RING_TYPE_NONE };

/* VMA_SPEC: the profiles' numbers are those that the variable accepts too, where it has one. */
enum params_spec {
	SPEC_NONE = 0,
	SPEC_ULTRA_LATENCY = 10,
	SPEC_LATENCY = 15,
	SPEC_29WEST = 29,
	SPEC_WOMBAT_FH = 554,
	SPEC_MCD = 623,
	SPEC_MCD_IRQ = 624,
	SPEC_RTI = 784,
	SPEC_7750 = 7750,
	SPEC_MULTI_RING_LATENCY,
};

/* VMA_RX_POLL and VMA_SELECT_POLL: how long a wait spins is learned (lib/wait/spin.h). */
#define POLL_ADAPTIVE (-2)

struct params {
#define PARAM_INT(field, ...) int field;
#define PARAM_BOOL(field, ...) int field;
#define PARAM_ENUM(field, ...) int field;
#define PARAM_STR(field, ...) const char *field;
#include "config/parameters.def"
};

/* The defaults until params_load() has run. Written by that only, read by all. */
extern struct params params __attribute__((visibility("hidden")));

/*
 * Set before params_load(): nobody has asked for the library in this process, it came by
 * /etc/ld.so.preload. The log says errors only then, unless VMA_TRACELEVEL says otherwise.
 */
extern bool params_unasked __attribute__((visibility("hidden")));

/*
 * Reads the environment: defaults, then VMA_SPEC, then single variables, then ranges. Opens the log
 * and warns through it. Does nothing when this process has called it before. In a forked child what
 * its parent has read holds, whatever envp is by then; names that have the process's number in them
 * are made anew, and nothing is warned of twice.
 */
void params_load(char *const *envp);
/*
 * The same without regard to earlier calls. For tests and fuzzing; not while another thread runs.
 */
void params_reload(char *const *envp);
/*
 * True when the environment names the parameter whose field this is, whatever its value: a profile
 * or a default is nobody's wish, and what becomes of it need not be said. Strings' fields, too.
 */
bool params_given(const void *field);
/*
 * The banner and the parameter lines (values that differ from the default; all of them at DETAILS).
 */
void params_banner(void);
/*
 * Reads a processor set in the form of VMA_INTERNAL_THREAD_AFFINITY: "0x3" (mask) or "0,2-3"
 * (list). 0, or -EINVAL, also for "-1" and for a processor that a cpu_set_t cannot hold.
 */
int params_cpus(const char *text, cpu_set_t *set);
/* On the internal thread: moves it to the CPUs that the user wants it on; says what cannot be. */
void params_worker_begins(void);

#endif
