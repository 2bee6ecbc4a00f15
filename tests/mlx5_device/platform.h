/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the checker needs of its surroundings: it is built into the kernel module for the VM and
 * into the unit tests.
 */
#ifndef MLX5_DEVICE_PLATFORM_H
#define MLX5_DEVICE_PLATFORM_H

#ifdef __KERNEL__
#include <linux/compiler.h>
#include <linux/string.h>
#include <linux/types.h>
#include <asm/barrier.h>
#define device_wmb() smp_wmb()
#define device_rmb() smp_rmb()
#else
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
/* As the driver's own; a fence of C is nothing that ThreadSanitizer knows. */
#include "ring/mlx5/queue/barrier.h"
#define device_wmb() dev_wmb()
#define device_rmb() dev_rmb()
#endif

/*
 * Big-endian fields, by their bytes: no alignment is asked for and no struct of the driver's side
 * is shared.
 */
static inline u16 get16(const u8 *p)
{
	return (u16)(p[0] << 8 | p[1]);
}

static inline u32 get32(const u8 *p)
{
	return (u32)get16(p) << 16 | get16(p + 2);
}

static inline u64 get64(const u8 *p)
{
	return (u64)get32(p) << 32 | get32(p + 4);
}

static inline void put16(u8 *p, u16 v)
{
	p[0] = (u8)(v >> 8);
	p[1] = (u8)v;
}

static inline void put32(u8 *p, u32 v)
{
	put16(p, (u16)(v >> 16));
	put16(p + 2, (u16)v);
}

static inline void put64(u8 *p, u64 v)
{
	put32(p, (u32)(v >> 32));
	put32(p + 4, (u32)v);
}

/* A word that the driver writes while we look: one load. */
static inline u32 get32_once(const void *p)
{
	u32 v = *(const volatile u32 *)p;

	return get32((const u8 *)&v);
}

#endif
