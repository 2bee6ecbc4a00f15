/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The room of memory: packet buffers, and the pages that a device writes to. Used by everything
 * that touches a packet.
 *
 * Every packet: buf.h, copy.h and prefetch.h, which are inline but for cutting and skipping
 * (buf.c). Rare: pages.c and allocator.c, when a ring is opened.
 */
#ifndef MEM_MEM_H
#define MEM_MEM_H

#include "mem/allocator.h"
#include "mem/buf.h"
#include "mem/copy.h"
#include "mem/pages.h"
#include "mem/prefetch.h"

#endif
