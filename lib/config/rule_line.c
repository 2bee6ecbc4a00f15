/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "config/rule_line.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define WORD_MAX PATH_MAX

/* What is left of the line, and where complaints go. */
struct reader {
	const char *at, *end;
	char *why;
	size_t why_size;
	char word[WORD_MAX];
};

static int __attribute__((format(printf, 2, 3))) bad(struct reader *r, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(r->why, r->why_size, fmt, ap);
	va_end(ap);
	return -EINVAL;
}

static bool blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
}

/*
 * The next word into r->word; "" at the end of the line. -EINVAL when it is too long or holds a
 * zero byte.
 */
static int word_next(struct reader *r)
{
	size_t len = 0;

	while (r->at < r->end && blank(*r->at))
		r->at++;
	while (r->at < r->end && !blank(*r->at)) {
		if (!*r->at)
			return bad(r, "it holds a zero byte");
		if (len == sizeof(r->word) - 1)
			return bad(r, "a word is longer than %zu bytes", sizeof(r->word) - 1);
		r->word[len++] = *r->at++;
	}
	r->word[len] = '\0';
	return 0;
}

/* The next word must be there; `what` says what it should be. */
static int word_need(struct reader *r, const char *what)
{
	int err = word_next(r);

	if (!err && !*r->word)
		err = bad(r, "%s is missing", what);
	return err;
}

static int line_ends(struct reader *r)
{
	int err = word_next(r);

	if (!err && *r->word)
		err = bad(r, "\"%.60s\" is too much", r->word);
	return err;
}

/* Reads digits at *s, moves *s behind them. The number, or -1 without digits or above max. */
static int digits(const char **s, int max)
{
	const char *at = *s;
	int n = 0;

	if (*at < '0' || *at > '9')
		return -1;
	for (; *at >= '0' && *at <= '9'; at++) {
		n = n * 10 + (*at - '0');
		if (n > max)
			return -1;
	}
	*s = at;
	return n;
}

static int ports_read(struct reader *r, const char **s, struct rule_side *side)
{
	const char *start = *s;
	int lo, hi;

	if (**s == '*') {
		(*s)++;
		side->port_min = 0;
		side->port_max = 65535;
		return 0;
	}
	lo = hi = digits(s, 65535);
	if (lo > 0 && **s == '-') {
		(*s)++;
		hi = digits(s, 65535);
	}
	if (lo <= 0 || hi < lo)
		return bad(r, "\"%.60s\" is not a port (1-65535), a range (from-to) or *", start);
	side->port_min = (uint16_t)lo;
	side->port_max = (uint16_t)hi;
	return 0;
}

/* "/len" when it is there; max when it is not. The length or a negative errno. */
static int prefix_read(struct reader *r, const char **s, int max)
{
	int len;

	if (**s != '/')
		return max;
	(*s)++;
	len = digits(s, max);
	return len < 0 ? bad(r, "the prefix length is not 0 to %d", max) : len;
}

static int v6_read(struct reader *r, const char **s, struct rule_side *side)
{
	const char *end = strchr(*s, ']');
	char text[INET6_ADDRSTRLEN];
	int len;

	if (!end || (size_t)(end - *s - 1) >= sizeof(text))
		return bad(r, "\"%.60s\" is not an IPv6 address in [ ]", *s);
	snprintf(text, sizeof(text), "%.*s", (int)(end - *s - 1), *s + 1);
	if (inet_pton(AF_INET6, text, &side->addr) != 1)
		return bad(r, "\"%.60s\" is not an IPv6 address", text);
	*s = end + 1;
	len = prefix_read(r, s, 128);
	if (len < 0)
		return len;
	side->prefix = (uint8_t)len;
	side->v4 = len >= 96 && IN6_IS_ADDR_V4MAPPED(&side->addr);
	return 0;
}

static int v4_read(struct reader *r, const char **s, struct rule_side *side)
{
	size_t n = strcspn(*s, ":/");
	char text[INET_ADDRSTRLEN];
	struct in_addr v4;
	int len;

	snprintf(text, sizeof(text), "%.*s", n < sizeof(text) ? (int)n : (int)sizeof(text) - 1, *s);
	if (n >= sizeof(text) || inet_pton(AF_INET, text, &v4) != 1)
		return bad(r, "\"%.*s\" is not an address (IPv6 is written in [ ])",
			   n > 60 ? 60 : (int)n, *s);
	*s += n;
	len = prefix_read(r, s, 32);
	if (len < 0)
		return len;
	memset(&side->addr, 0, 10);
	side->addr.s6_addr[10] = side->addr.s6_addr[11] = 0xff;
	memcpy(&side->addr.s6_addr[12], &v4, 4);
	side->prefix = (uint8_t)(96 + len);
	side->v4 = true;
	return 0;
}

/* address:ports */
static int side_read(struct reader *r, const char **s, struct rule_side *side)
{
	int err = 0;

	if (**s == '*') {
		side->any = true;
		(*s)++;
	} else if (**s == '[') {
		err = v6_read(r, s, side);
	} else {
		err = v4_read(r, s, side);
	}
	if (err)
		return err;
	if (**s != ':')
		return bad(r, "\"%.60s\" is not address:ports", r->word);
	(*s)++;
	return ports_read(r, s, side);
}

static int target_read(struct reader *r, struct rule_statement *st)
{
	int err = word_need(r, "the transport (os or vma)");

	if (err)
		return err;
	st->rule.target = RULE_VMA;
	if (!strcasecmp(r->word, "vma") || !strcmp(r->word, "*"))
		return 0;
	st->rule.target = RULE_OS;
	if (!strcasecmp(r->word, "os"))
		return 0;
	if (!strcasecmp(r->word, "sdp"))
		st->transport = "sdp";
	else if (!strcasecmp(r->word, "sa"))
		st->transport = "sa";
	else
		return bad(r, "\"%.60s\" is not a transport (os or vma)", r->word);
	return 0;
}

static int role_read(struct reader *r, enum rule_role *role)
{
	static const char *const names[] = {
		[RULE_TCP_SERVER] = "tcp_server",   [RULE_TCP_CLIENT] = "tcp_client",
		[RULE_UDP_SENDER] = "udp_sender",   [RULE_UDP_RECEIVER] = "udp_receiver",
		[RULE_UDP_CONNECT] = "udp_connect",
	};
	int err = word_need(r, "the role");
	unsigned i;

	if (err)
		return err;
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!strcasecmp(r->word, names[i])) {
			*role = (enum rule_role)i;
			return 0;
		}
	}
	return bad(r,
		   "\"%.60s\" is not a role (tcp_server, tcp_client, udp_sender, udp_receiver, "
		   "udp_connect)",
		   r->word);
}

static int use_read(struct reader *r, struct rule_statement *st)
{
	const char *s = r->word;
	int err;

	st->kind = RULE_USE;
	err = target_read(r, st);
	if (!err)
		err = role_read(r, &st->rule.role);
	if (!err)
		err = word_need(r, "address:ports");
	if (!err)
		err = side_read(r, &s, &st->rule.first);
	if (err)
		return err;
	if (*s == ':') {
		if (st->rule.role != RULE_TCP_CLIENT && st->rule.role != RULE_UDP_CONNECT)
			return bad(r, "only tcp_client and udp_connect have a second address");
		s++;
		st->rule.two_sides = true;
		err = side_read(r, &s, &st->rule.second);
		if (err)
			return err;
	}
	if (*s)
		return bad(r, "\"%.60s\" behind the ports is too much", s);
	return line_ends(r);
}

static int name_read(struct reader *r, char out[RULE_NAME_MAX], const char *what)
{
	int err = word_need(r, what);

	if (err)
		return err;
	if (strlen(r->word) >= RULE_NAME_MAX)
		return bad(r, "%s is longer than %d bytes", what, RULE_NAME_MAX - 1);
	strcpy(out, r->word);
	return 0;
}

static int application_read(struct reader *r, struct rule_statement *st)
{
	int err;

	st->kind = RULE_APPLICATION;
	err = name_read(r, st->program, "the program name");
	if (!err)
		err = name_read(r, st->id, "the application id");
	return err ? err : line_ends(r);
}

static int destination_read(struct reader *r, struct rule_statement *st)
{
	int err = word_need(r, "the destination (stderr, syslog or file)");

	if (err)
		return err;
	if (!strcasecmp(r->word, "stderr")) {
		st->log = RULE_LOG_STDERR;
	} else if (!strcasecmp(r->word, "syslog")) {
		st->log = RULE_LOG_SYSLOG;
	} else if (!strcasecmp(r->word, "file")) {
		err = word_need(r, "the file name");
		st->log = RULE_LOG_FILE;
		strcpy(st->file, r->word);
	} else {
		err = bad(r, "\"%.60s\" is not a destination (stderr, syslog or file)", r->word);
	}
	return err;
}

static int min_level_read(struct reader *r, struct rule_statement *st)
{
	int err = word_need(r, "the level (1-9)");
	const char *s = r->word;

	if (err)
		return err;
	st->min_level = digits(&s, 9);
	return st->min_level > 0 && !*s ? 0 : bad(r, "\"%.60s\" is not a level (1-9)", r->word);
}

/* destination and min-level in any order, at least one of them. */
static int log_read(struct reader *r, struct rule_statement *st)
{
	int err = word_need(r, "destination or min-level");

	st->kind = RULE_LOG;
	while (!err && *r->word) {
		if (!strcasecmp(r->word, "destination"))
			err = destination_read(r, st);
		else if (!strcasecmp(r->word, "min-level"))
			err = min_level_read(r, st);
		else
			err = bad(r, "\"%.60s\" is neither destination nor min-level", r->word);
		if (!err)
			err = word_next(r);
	}
	return err;
}

int rule_line_read(const char *line, size_t len, struct rule_statement *st, char *why,
		   size_t why_size)
{
	const char *comment = memchr(line, '#', len);
	struct reader r = {.at = line,
			   .end = comment ? comment : line + len,
			   .why = why,
			   .why_size = why_size};
	int err;

	memset(st, 0, sizeof(*st));
	err = word_next(&r);
	if (err || !*r.word)
		return err;
	if (!strcasecmp(r.word, "use"))
		return use_read(&r, st);
	if (!strcasecmp(r.word, "application-id"))
		return application_read(&r, st);
	if (!strcasecmp(r.word, "log"))
		return log_read(&r, st);
	return bad(&r, "\"%.60s\" is none of application-id, use, log", r.word);
}

bool rule_glob(const char *pattern, const char *name)
{
	const char *star = NULL, *retry = NULL;

	while (*name) {
		if (*pattern == '*') {
			star = ++pattern;
			retry = name;
		} else if (*pattern == '?' || *pattern == *name) {
			pattern++;
			name++;
		} else if (star) {
			/* The last star takes one byte more; earlier ones never need to. */
			pattern = star;
			name = ++retry;
		} else {
			return false;
		}
	}
	while (*pattern == '*')
		pattern++;
	return !*pattern;
}
