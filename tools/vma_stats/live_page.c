/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "live_page.h"

#include <stdio.h>

void page_clear(struct page *p, unsigned rows, unsigned columns)
{
	p->rows = rows < PAGE_ROWS ? rows : PAGE_ROWS;
	p->columns = columns < PAGE_COLUMNS ? columns : PAGE_COLUMNS;
	for (unsigned i = 0; i < p->rows; i++) {
		p->line[i].look = LOOK_PLAIN;
		p->line[i].text[0] = 0;
	}
}

/* Behind so many columns; each character but UTF-8's later bytes begins one. */
static void page_cut(char *text, unsigned columns)
{
	unsigned n = 0;

	for (char *c = text; *c; c++) {
		if (((unsigned char)*c & 0xc0) == 0x80)
			continue;
		if (n++ == columns) {
			*c = 0;
			return;
		}
	}
}

void page_put(struct page *p, unsigned row, enum look look, const char *fmt, ...)
{
	struct page_line *l;
	va_list ap;

	if (row >= p->rows)
		return;
	l = &p->line[row];
	va_start(ap, fmt);
	vsnprintf(l->text, sizeof(l->text), fmt, ap);
	va_end(ap);
	page_cut(l->text, p->columns);
	l->look = look;
}
