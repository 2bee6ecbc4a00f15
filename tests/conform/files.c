/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "files.h"

#include <stddef.h>

#include "script.h"

extern const struct conform_case cases_rfc9293_open[];

const struct conform_case *const conform_files[] = {
	cases_rfc9293_open,
	NULL,
};
