/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The table of socket options (rows.def) and what its rows do with a number; this folder's own.
 */
#ifndef SOCKET_TCP_OPTION_ROWS_H
#define SOCKET_TCP_OPTION_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tcp/tcp.h"

/* As rows.def has them. */
enum tcp_opt_kind {
	OPT_FIELD,
	OPT_ENGINE,
	OPT_SOCK,
	OPT_ASK,
	OPT_ASK_ADDRESS,
	OPT_ASK_KERNEL,
	OPT_KEPT,
	OPT_ASLEEP,
	OPT_EARLY,
	OPT_NO_CONN,
	OPT_MOVES,
};

struct tcp_opt_row {
	int level, opt;
	enum tcp_opt_kind kind;
	uint16_t off; /* OPT_FIELD: in tcp_opts */
	uint8_t size; /* of the field there */
	uint16_t scale; /* field = option * scale; 0: 1 */
	int err; /* OPT_NO_CONN */
	int lo, hi; /* the values that need no kernel; lo > hi: none */
};

/* The n-th row, NULL behind the last one; that of an option, NULL: none. */
const struct tcp_opt_row *opt_row_at(size_t n);
const struct tcp_opt_row *opt_row_of(int level, int opt);
/* The row's bit of tcp_sock.unconn.touched: rare rows share one. */
uint64_t opt_row_bit(const struct tcp_opt_row *r);
/* An option that the engine has, as the kernel numbers it. */
bool opt_row_is(const struct tcp_opt_row *r, int level, int opt);
/* It is the size of a buffer, which the kernel doubles when it is set; where it is read back. */
bool opt_row_is_size(const struct tcp_opt_row *r);
int opt_row_read(const struct tcp_opt_row *r);

/* A row's field in o; what the kernel's getsockopt() says of it. */
void opt_field_put(struct tcp_opts *o, const struct tcp_opt_row *r, uint64_t v);
uint64_t opt_field_get(const struct tcp_opts *o, const struct tcp_opt_row *r);
/* Copies the row's option, OPT_FIELD or OPT_ENGINE, from the kernel socket into o. */
void opt_mirror(const struct tcp_opt_row *r, int fd, struct tcp_opts *o);
/* An option of the kernel socket as a number. */
int opt_get_int(int fd, int level, int opt, int fallback);
/* 0 or negative errno. */
int opt_set_int(int fd, int level, int opt, int value);

#endif
