/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A small HTTP server: GET and HEAD, one answer a connection. One loop serves all clients; each has
 * a deadline, and the oldest goes when there are too many, so that none keeps others from an
 * answer.
 */
#ifndef VMA_STATS_HTTP_H
#define VMA_STATS_HTTP_H

#include <stddef.h>

/* What page() fills in. */
struct http_body {
	const char *type;
	char *text; /* malloc()ed; becomes the server's */
	size_t len;
};

/* The page at a path: 200, or the status of why there is none. */
typedef int (*http_page)(const char *path, struct http_body *body, void *arg);

/* Serves what comes to listener, which does not block, until stop_asked(). 0 or negative errno. */
int http_serve(int listener, http_page page, void *arg);

#endif
