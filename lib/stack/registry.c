/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "stack/internal.h"

struct stack *_Atomic stacks[STACKS_MAX];
_Atomic unsigned num_stacks;
_Atomic bool stacks_have_ring_attr;
