/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef RUNTIME_TEXT_FILE_H
#define RUNTIME_TEXT_FILE_H

#include <stddef.h>

/*
 * The first size - 1 bytes of a small file, of /proc or /sys, and a NUL behind them; by the
 * kernel's own calls, no allocation. An empty text when it cannot be read.
 */
void text_file_read(const char *path, char *text, size_t size);

#endif
