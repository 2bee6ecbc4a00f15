/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* --prometheus and --listen: the metrics on standard output, or for whoever asks by HTTP. */
#ifndef VMA_STATS_LISTEN_H
#define VMA_STATS_LISTEN_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "options.h"
#include "snapshot.h"

union listen_at {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

/*
 * "127.0.0.1:9100", "[::1]:9100", "localhost:9100", "9100" (the loopback interface). Other
 * addresses only by number, one of them: 0.0.0.0 and [::] are refused. 0, or -1 with why.
 */
int listen_address(union listen_at *at, const char *text, char why[WHY_LEN]);

/* The exit status, after lines about what went wrong. */
int listen_print(const struct options *o);
int listen_serve(const struct options *o);

#endif
