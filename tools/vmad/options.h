/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* vmad's command line (docs/vmad.8). */
#ifndef VMAD_OPTIONS_H
#define VMAD_OPTIONS_H

#include <stdbool.h>

struct options {
	bool console; /* stays in the foreground, and logs to standard error */
	const char *verbose; /* as VMA_TRACELEVEL; NULL: that decides */
	char **interfaces; /* names */
	unsigned num;
};

/* False: *status is the exit status, and what there was to say has been said. */
bool options_read(int argc, char **argv, struct options *o, int *status);

#endif
