/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The only file that knows ncurses: shows pages, reads keys, leaves the terminal as it was. */
#ifndef VMA_STATS_LIVE_TERMINAL_H
#define VMA_STATS_LIVE_TERMINAL_H

#include <stdbool.h>

#include "live_page.h"

/* Can standard input and output be used for it? */
bool terminal_usable(void);
/* 0, or -1: the terminal cannot do it. *utf8: it shows block characters. */
int terminal_open(bool *utf8);
void terminal_size(unsigned *rows, unsigned *columns);
void terminal_show(const struct page *p);
/* An enum live_key or a character; 0: none is there, -1: one that has no meaning here. */
int terminal_key(void);
void terminal_close(void);

#endif
