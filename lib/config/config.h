/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The room of settings: the VMA_* parameters and libvma.conf's rules, read once when the library
 * starts. Any room but the protocol core may ask it.
 *
 * Every packet reads fields of `params`, nothing else. rules_match() is asked once for a socket
 * (rules.c), exception.c where an option cannot be done. At the start: params.c and params_table.c,
 * profiles.c (VMA_SPEC), rule_line.c (one line of libvma.conf), banner.c, worker_cpus.c.
 */
#ifndef CONFIG_CONFIG_H
#define CONFIG_CONFIG_H

#include "config/exception.h"
#include "config/params.h"
#include "config/rules.h"

#endif
