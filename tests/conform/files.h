/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CONFORM_FILES_H
#define CONFORM_FILES_H

struct conform_case;

/* One for each RFC; ends in NULL. */
extern const struct conform_case *const conform_files[];

#endif
