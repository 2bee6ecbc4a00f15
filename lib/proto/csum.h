/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The Internet checksum (RFC 1071). Sums are kept in memory byte order and unfolded in 64 bits. */
#ifndef PROTO_CSUM_H
#define PROTO_CSUM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

/*
 * A sum under way: 64-bit words, and how many carries left them at the top. 2^64 and 2^32 are 1
 * modulo 2^16 - 1, so wide words sum to the same and a carry counts 1. Two instructions for eight
 * bytes.
 */
struct csum {
	uint64_t sum, carry;
};

static inline void csum_word(struct csum *c, const void *p)
{
	uint64_t w;

	memcpy(&w, p, sizeof(w));
	c->carry += __builtin_add_overflow(c->sum, w, &c->sum);
}

/* Small enough that a caller may add such sums, and 16-bit words, in plain arithmetic. */
static inline uint64_t csum_narrow(const struct csum *c)
{
	return (uint32_t)c->sum + (c->sum >> 32) + c->carry;
}

/*
 * The last 1 to 7 bytes, as a little or big endian machine would have loaded them followed by
 * zeros.
 */
static inline void csum_tail(struct csum *c, const void *p, size_t len)
{
	uint64_t w = 0;

	if (len & 4)
		memcpy(&w, p, 4);
	if (len & 2)
		memcpy((uint8_t *)&w + (len & 4), (const uint8_t *)p + (len & 4), 2);
	if (len & 1)
		memcpy((uint8_t *)&w + (len & 6), (const uint8_t *)p + (len & 6), 1);
	csum_word(c, &w);
}

/*
 * Adds len bytes to sum as 16-bit words; an odd last byte is padded with zero. sum as csum_narrow()
 * gives it, so is the result.
 */
static inline uint64_t csum_add(uint64_t sum, const void *p, size_t len)
{
	const uint8_t *b = p;
	struct csum c = {.sum = sum};

	for (; len >= 32; b += 32, len -= 32) {
		csum_word(&c, b);
		csum_word(&c, b + 8);
		csum_word(&c, b + 16);
		csum_word(&c, b + 24);
	}
	for (; len >= 8; b += 8, len -= 8)
		csum_word(&c, b);
	if (len)
		csum_tail(&c, b, len);
	return csum_narrow(&c);
}

/* Copies len bytes and returns sum with them added: one pass over the user's memory. */
static inline uint64_t csum_copy(uint64_t sum, void *restrict to, const void *restrict from,
				 size_t len)
{
	uint8_t *d = to;
	const uint8_t *s = from;
	struct csum c = {.sum = sum};

	for (; len >= 32; s += 32, d += 32, len -= 32) {
		memcpy(d, s, 32);
		csum_word(&c, d);
		csum_word(&c, d + 8);
		csum_word(&c, d + 16);
		csum_word(&c, d + 24);
	}
	for (; len >= 8; s += 8, d += 8, len -= 8) {
		memcpy(d, s, 8);
		csum_word(&c, d);
	}
	if (len) {
		memcpy(d, s, len);
		csum_tail(&c, d, len);
	}
	return csum_narrow(&c);
}

/* The 16-bit one's complement sum, not inverted. */
static inline uint16_t csum_fold(uint64_t sum)
{
	uint32_t low = (uint32_t)sum, high = (uint32_t)(sum >> 32);

	low += high;
	low += low < high;
	/*
	 * Both halves added to each other: the upper half of the result has the sum with its carry.
	 */
	low += low >> 16 | low << 16;
	return (uint16_t)(low >> 16);
}

/* csum_add() of an IPv4 header without options. */
static inline uint64_t csum_ipv4_header(const void *p)
{
	struct csum c = {0};
	uint32_t last;

	memcpy(&last, (const uint8_t *)p + 16, 4);
	c.sum = last;
	csum_word(&c, p);
	csum_word(&c, (const uint8_t *)p + 8);
	return csum_narrow(&c);
}

/* The sum of a part that starts at an odd offset counts with its bytes swapped (RFC 1071, 2(B)). */
static inline uint64_t csum_swap(uint64_t sum)
{
	uint16_t f = csum_fold(sum);

	return (uint16_t)(f << 8 | f >> 8);
}

/*
 * csum_copy() of vectors, one behind the other: a part that starts at an odd offset is summed
 * swapped.
 */
static inline uint64_t csum_copy_iov(uint64_t sum, uint8_t *to, const struct iovec *iov, int iovcnt)
{
	size_t done = 0;

	for (int i = 0; i < iovcnt; i++) {
		uint64_t part;

		if (!iov[i].iov_len)
			continue; /* the base may be NULL then */
		part = csum_copy(0, to + done, iov[i].iov_base, iov[i].iov_len);
		sum += done & 1 ? csum_swap(part) : part;
		done += iov[i].iov_len;
	}
	return sum;
}

#endif
