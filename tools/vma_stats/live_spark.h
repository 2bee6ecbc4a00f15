/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A short history of a rate, and the line of small bars that shows it. */
#ifndef VMA_STATS_LIVE_SPARK_H
#define VMA_STATS_LIVE_SPARK_H

#include <stdbool.h>
#include <stddef.h>

#define SPARK_SAMPLES 120

struct spark {
	float sample[SPARK_SAMPLES]; /* a ring */
	unsigned taken;
};

void spark_add(struct spark *s, double value);
/*
 * The last `width` samples as so many columns, the newest on the right, the highest of them as a
 * whole bar. Bars are block characters, or ASCII for a terminal without UTF-8.
 */
void spark_text(const struct spark *s, char *text, size_t size, unsigned width, bool utf8);

#endif
