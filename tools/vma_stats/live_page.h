/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A screen's worth of lines, each with one look. What draws them knows no terminal. */
#ifndef VMA_STATS_LIVE_PAGE_H
#define VMA_STATS_LIVE_PAGE_H

#include <stdbool.h>
#include <stdarg.h>

#define PAGE_ROWS 200
#define PAGE_COLUMNS 400
#define PAGE_BYTES (PAGE_COLUMNS * 3 + 1) /* a column has at most three bytes of UTF-8 */

enum look { LOOK_PLAIN, LOOK_TITLE, LOOK_HEADING, LOOK_SELECTED, LOOK_FAINT };

struct page {
	unsigned rows, columns;
	struct page_line {
		enum look look;
		char text[PAGE_BYTES];
	} line[PAGE_ROWS];
};

/* Empty, with the terminal's size, which is cut to what a page has. */
void page_clear(struct page *p, unsigned rows, unsigned columns);
/* What does not fit is left out: a row below the last one, columns behind the last one. */
void page_put(struct page *p, unsigned row, enum look look, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

#endif
