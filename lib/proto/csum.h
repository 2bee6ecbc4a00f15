/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The Internet checksum (RFC 1071). Sums are kept in memory byte order and unfolded in 64 bits. */
#ifndef PROTO_CSUM_H
#define PROTO_CSUM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

/*
 * One's complement addition of eight bytes: the carry comes back in at the bottom. 2^64 - 1 is a multiple of
 * 2^16 - 1, so wide words sum to the same.
 */
static inline uint64_t csum_acc(uint64_t sum, const void *p)
{
	uint64_t w;

	memcpy(&w, p, sizeof(w));
	sum += w;
	return sum + (sum < w);
}

/* Small enough that a caller may add such sums, and 16-bit words, in plain arithmetic. */
static inline uint64_t csum_narrow(uint64_t sum)
{
	return (sum & 0xffffffff) + (sum >> 32);
}

/* The last 0 to 7 bytes, as a little or big endian machine would have loaded them followed by zeros. */
static inline uint64_t csum_tail(uint64_t sum, const void *p, size_t len)
{
	uint64_t w = 0;

	if (len & 4)
		memcpy(&w, p, 4);
	if (len & 2)
		memcpy((uint8_t *)&w + (len & 4), (const uint8_t *)p + (len & 4), 2);
	if (len & 1)
		memcpy((uint8_t *)&w + (len & 6), (const uint8_t *)p + (len & 6), 1);
	return csum_acc(sum, &w);
}

/* Adds len bytes to sum as 16-bit words; an odd last byte is padded with zero. sum as csum_narrow() gives it, so is the result. */
static inline uint64_t csum_add(uint64_t sum, const void *p, size_t len)
{
	const uint8_t *b = p;
	uint64_t other = 0;

	for (; len >= 32; b += 32, len -= 32) {
		sum = csum_acc(sum, b);
		other = csum_acc(other, b + 8);
		sum = csum_acc(sum, b + 16);
		other = csum_acc(other, b + 24);
	}
	for (; len >= 8; b += 8, len -= 8)
		sum = csum_acc(sum, b);
	if (len)
		sum = csum_tail(sum, b, len);
	return csum_narrow(sum) + csum_narrow(other);
}

/* Copies len bytes and returns sum with them added: one pass over the user's memory. */
static inline uint64_t csum_copy(uint64_t sum, void *restrict to, const void *restrict from, size_t len)
{
	uint8_t *d = to;
	const uint8_t *s = from;
	uint64_t other = 0;

	for (; len >= 32; s += 32, d += 32, len -= 32) {
		memcpy(d, s, 32);
		sum = csum_acc(sum, d);
		other = csum_acc(other, d + 8);
		sum = csum_acc(sum, d + 16);
		other = csum_acc(other, d + 24);
	}
	memcpy(d, s, len);
	return csum_add(csum_narrow(sum) + csum_narrow(other), d, len);
}

/* The 16-bit one's complement sum, not inverted. */
static inline uint16_t csum_fold(uint64_t sum)
{
	uint32_t low = (uint32_t)sum, high = (uint32_t)(sum >> 32);

	low += high;
	low += low < high;
	/* Both halves added to each other: the upper half of the result has the sum with its carry. */
	low += low >> 16 | low << 16;
	return (uint16_t)(low >> 16);
}

/* csum_add() of an IPv4 header without options. */
static inline uint64_t csum_ipv4_header(const void *p)
{
	uint32_t last;

	memcpy(&last, (const uint8_t *)p + 16, 4);
	return csum_narrow(csum_acc(csum_acc(last, p), (const uint8_t *)p + 8));
}

/* The sum of a part that starts at an odd offset counts with its bytes swapped (RFC 1071, 2(B)). */
static inline uint64_t csum_swap(uint64_t sum)
{
	uint16_t f = csum_fold(sum);

	return (uint16_t)(f << 8 | f >> 8);
}

/* csum_copy() of vectors, one behind the other: a part that starts at an odd offset is summed swapped. */
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
