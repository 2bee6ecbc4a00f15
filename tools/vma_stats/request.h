/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The head of an HTTP request: the gate for what comes from the network. */
#ifndef VMA_STATS_REQUEST_H
#define VMA_STATS_REQUEST_H

#include <stdbool.h>
#include <stddef.h>

#define REQUEST_MAX 8192

struct request {
	int status; /* 200, or that of the answer: 400, 405 */
	bool head_only; /* HEAD */
	char path[256]; /* 200: without the query */
};

/* Is the head whole? head is len bytes, of which none is looked at twice by a later parser. */
bool request_whole(const char *head, size_t len);
/* Of a whole head. */
void request_parse(struct request *r, const char *head, size_t len);

#endif
