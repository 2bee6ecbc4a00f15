/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* SipHash-2-4 (a public algorithm; the code is ours). */
#ifndef PROTO_SIPHASH_H
#define PROTO_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t siphash(const uint64_t key[2], const void *p, size_t len);

#endif
