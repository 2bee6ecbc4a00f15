/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A packet as a line of text. */
#ifndef VMA_STATS_CAPTURE_TEXT_H
#define VMA_STATS_CAPTURE_TEXT_H

#include <stddef.h>
#include <stdint.h>

#define CAPTURE_TEXT 256

/*
 * "10.0.0.1.7000 > 10.0.0.2.80: TCP SA, seq 1, ack 2, win 500, length 0"; what is no TCP or UDP by
 * less. Any bytes may stand in the frame.
 */
const char *capture_text(char text[CAPTURE_TEXT], const uint8_t *frame, size_t len);

#endif
