/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * SipHash-2-4 (Aumasson and Bernstein, 2012): a short-input keyed hash whose collisions a stranger
 * cannot build.
 */
#include <string.h>

#include "proto/siphash.h"

struct sip {
	uint64_t a, b, c, d;
};

static inline uint64_t rotate(uint64_t x, unsigned by)
{
	return x << by | x >> (64 - by);
}

static inline void round_once(struct sip *s)
{
	s->a += s->b;
	s->c += s->d;
	s->b = rotate(s->b, 13) ^ s->a;
	s->d = rotate(s->d, 16) ^ s->c;
	s->a = rotate(s->a, 32);
	s->c += s->b;
	s->a += s->d;
	s->b = rotate(s->b, 17) ^ s->c;
	s->d = rotate(s->d, 21) ^ s->a;
	s->c = rotate(s->c, 32);
}

static inline void absorb(struct sip *s, uint64_t word)
{
	s->d ^= word;
	round_once(s);
	round_once(s);
	s->a ^= word;
}

uint64_t siphash(const uint64_t key[2], const void *p, size_t len)
{
	struct sip s = {
		.a = key[0] ^ 0x736f6d6570736575,
		.b = key[1] ^ 0x646f72616e646f6d,
		.c = key[0] ^ 0x6c7967656e657261,
		.d = key[1] ^ 0x7465646279746573,
	};
	const uint8_t *at = p, *end = at + (len & ~(size_t)7);
	uint64_t word;

	for (; at < end; at += 8) {
		memcpy(&word, at, 8);
		absorb(&s, word);
	}
	word = (uint64_t)len << 56;
	for (unsigned i = 0; i < (len & 7); i++)
		word |= (uint64_t)at[i] << (8 * i);
	absorb(&s, word);
	s.c ^= 0xff;
	round_once(&s);
	round_once(&s);
	round_once(&s);
	round_once(&s);
	return s.a ^ s.b ^ s.c ^ s.d;
}
