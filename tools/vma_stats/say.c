/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "say.h"

#include <stdarg.h>
#include <stdio.h>

void say(const struct options *o, const char *fmt, ...)
{
	FILE *f = o->json ? stderr : stdout;
	va_list ap;

	fputs("vmastat: ", f);
	va_start(ap, fmt);
	vfprintf(f, fmt, ap);
	va_end(ap);
	fputc('\n', f);
	fflush(f);
}

int complain(const char *why)
{
	fflush(stdout);
	fprintf(stderr, "vmastat: %s\n", why);
	return 1;
}
