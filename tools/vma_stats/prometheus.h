/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* --prometheus: the statistics as metrics, in Prometheus' text format (version 0.0.4). */
#ifndef VMA_STATS_PROMETHEUS_H
#define VMA_STATS_PROMETHEUS_H

#include <stdio.h>

#include "options.h"
#include "processes.h"

#define PROMETHEUS_TYPE "text/plain; version=0.0.4; charset=utf-8"

void prometheus_print(FILE *f, const struct processes *all, const struct options *o);

#endif
