/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CONFORM_MATRIX_H
#define CONFORM_MATRIX_H

/* Runs every cell on the engine, says which failed, adds to the counts. */
void matrix_run(unsigned *passed, unsigned *failed);

#endif
