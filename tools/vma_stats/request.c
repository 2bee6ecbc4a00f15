/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* RFC 9112, as much of it as a server needs that only gives pages away. */
#include "request.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

/* The end of a line is CRLF; a single LF is taken for it, too (RFC 9112, 2.2). */
bool request_whole(const char *head, size_t len)
{
	const char *end = head + len;

	for (const char *lf = memchr(head, '\n', len); lf;
	     lf = memchr(lf + 1, '\n', (size_t)(end - lf - 1))) {
		if (end - lf >= 2 && lf[1] == '\n')
			return true;
		if (end - lf >= 3 && lf[1] == '\r' && lf[2] == '\n')
			return true;
	}
	return false;
}

/* A character of a method's or a field's name (RFC 9110, 5.6.2). */
static bool is_token(char c)
{
	return isalnum((unsigned char)c) || (c && strchr("!#$%&'*+-.^_`|~", c));
}

static size_t token(const char *text, size_t len)
{
	size_t n = 0;

	while (n < len && is_token(text[n]))
		n++;
	return n;
}

/* The line at *at, *len without its end; *at is behind it then. */
static const char *next_line(const char **at, const char *end, size_t *len)
{
	const char *line = *at, *lf = memchr(line, '\n', (size_t)(end - line));

	*at = lf ? lf + 1 : end;
	*len = (size_t)((lf ? lf : end) - line);
	if (*len && line[*len - 1] == '\r')
		(*len)--;
	return line;
}

/* "/path?query": what stands in front of the question mark, of visible characters. */
static bool take_path(struct request *r, const char *target, size_t len)
{
	const char *query = memchr(target, '?', len);
	size_t n = query ? (size_t)(query - target) : len;

	if (!n || target[0] != '/')
		return false;
	for (size_t i = 0; i < len; i++)
		if (!isgraph((unsigned char)target[i]))
			return false;
	/* A longer one names no page of ours. */
	if (n >= sizeof(r->path))
		n = sizeof(r->path) - 1;
	memcpy(r->path, target, n);
	r->path[n] = 0;
	return true;
}

/* "METHOD /path HTTP/1.1". The minor version, or -1. */
static int take_first_line(struct request *r, const char *line, size_t len)
{
	size_t method = token(line, len);
	const char *target = line + method + 1, *version;
	size_t rest;

	if (!method || method == len || line[method] != ' ')
		return -1;
	rest = len - method - 1;
	version = memchr(target, ' ', rest);
	if (!version || !take_path(r, target, (size_t)(version - target)))
		return -1;
	version++;
	if (line + len - version != 8 || memcmp(version, "HTTP/1.", 7) || version[7] < '0' ||
	    version[7] > '1')
		return -1;
	r->head_only = method == 4 && !memcmp(line, "HEAD", 4);
	if (!r->head_only && (method != 3 || memcmp(line, "GET", 3) != 0))
		r->status = 405;
	return version[7] - '0';
}

/* Names a field, and has nothing in it that ends a line elsewhere. */
static bool field_good(const char *line, size_t len)
{
	size_t name = token(line, len);

	return name && name < len && line[name] == ':' && !memchr(line, 0, len) &&
	       !memchr(line, '\r', len);
}

static bool is_host(const char *line, size_t len)
{
	return len >= 5 && !strncasecmp(line, "host:", 5);
}

void request_parse(struct request *r, const char *head, size_t len)
{
	const char *at = head, *end = head + len, *line;
	unsigned hosts = 0;
	bool good = true;
	size_t n;
	int minor;

	*r = (struct request){.status = 200};
	line = next_line(&at, end, &n);
	minor = take_first_line(r, line, n);
	for (line = next_line(&at, end, &n); n; line = next_line(&at, end, &n)) {
		good &= field_good(line, n);
		hosts += is_host(line, n);
	}
	/* Version 1.1 has to say whose page it wants (RFC 9112, 3.2). */
	if (minor < 0 || !good || hosts > 1 || (minor == 1 && !hosts))
		r->status = 400;
}
