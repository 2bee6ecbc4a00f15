/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "live_spark.h"

#include <stdio.h>

#define BARS 8

void spark_add(struct spark *s, double value)
{
	s->sample[s->taken++ % SPARK_SAMPLES] = (float)value;
	/* The count goes on behind its end without a gap. */
	if (s->taken == 2 * SPARK_SAMPLES)
		s->taken = SPARK_SAMPLES;
}

/* The one that was taken so many before the next one. */
static float sample_ago(const struct spark *s, unsigned ago)
{
	return s->sample[(s->taken - ago) % SPARK_SAMPLES];
}

static unsigned bar(float value, float highest)
{
	if (value <= 0 || highest <= 0)
		return 0;
	return value >= highest ? BARS - 1 : (unsigned)(value / highest * (BARS - 1));
}

void spark_text(const struct spark *s, char *text, size_t size, unsigned width, bool utf8)
{
	static const char *const blocks[BARS] = {"\u2581", "\u2582", "\u2583", "\u2584",
						 "\u2585", "\u2586", "\u2587", "\u2588"};
	static const char *const ascii[BARS] = {"_", ".", ":", "-", "=", "+", "*", "#"};
	unsigned known = s->taken < SPARK_SAMPLES ? s->taken : SPARK_SAMPLES;
	float highest = 0;
	size_t at = 0;

	text[0] = 0;
	for (unsigned ago = 1; ago <= known && ago <= width; ago++)
		if (sample_ago(s, ago) > highest)
			highest = sample_ago(s, ago);
	/* A block has three bytes. */
	for (unsigned ago = width; ago && at + 4 <= size; ago--) {
		const char *piece = " ";

		if (ago <= known)
			piece = (utf8 ? blocks : ascii)[bar(sample_ago(s, ago), highest)];
		at += (size_t)snprintf(text + at, size - at, "%s", piece);
	}
}
