/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The 4-tuple table and its hash. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "tcp/internal.h"
#include "tcp_test_env.h"

static const uint64_t key[2] = {UINT64_C(0x0706050403020100), UINT64_C(0x0f0e0d0c0b0a0908)};

/* From the paper (appendix A) and the authors' vectors: key 00..0f, message 00, 01, 02, ... */
static void the_hash_is_siphash_2_4(void **state)
{
	uint8_t m[15];

	(void)state;
	for (unsigned i = 0; i < sizeof(m); i++)
		m[i] = (uint8_t)i;
	assert_true(siphash(key, m, 0) == UINT64_C(0x726fdb47dd0e0e31));
	assert_true(siphash(key, m, 1) == UINT64_C(0x74f839c593dc67fd));
	assert_true(siphash(key, m, 8) == UINT64_C(0x93f5f5799a932462));
	assert_true(siphash(key, m, 15) == UINT64_C(0xa129ca6149be45e5));
}

/* The i-th of many tuples that differ little. */
static struct tcp_tuple tuple_of(uint32_t i)
{
	struct tcp_tuple t = {
		.lport = 80, .rport = (uint16_t)i, .family = i & 1 ? AF_INET6 : AF_INET};

	t.local.s6_addr[15] = 1;
	t.remote.s6_addr[13] = (uint8_t)(i >> 24);
	t.remote.s6_addr[14] = (uint8_t)(i >> 16);
	t.remote.s6_addr[15] = 2;
	if (t.family == AF_INET)
		memset(&t.local.s6_addr[10], 0xff, 2), memset(&t.remote.s6_addr[10], 0xff, 2);
	return t;
}

static void every_part_of_the_tuple_counts(void **state)
{
	struct memory m = {0};
	struct tcp_env env = test_env(&m);
	struct tcp_node n = {.tuple = tuple_of(2)};
	struct tcp_table t;

	(void)state;
	assert_int_equal(tcp_table_init(&t, &env, key), 0);
	tcp_table_add(&t, &env, &n);
	assert_ptr_equal(tcp_table_find(&t, &n.tuple), &n);
	for (size_t i = 0; i < offsetof(struct tcp_tuple, reserved); i++) {
		struct tcp_tuple other = n.tuple;

		((uint8_t *)&other)[i] ^= 1;
		assert_null(tcp_table_find(&t, &other));
	}
	tcp_table_del(&t, &n);
	assert_null(tcp_table_find(&t, &n.tuple));
	tcp_table_fini(&t, &env);
	assert_int_equal(m.blocks, 0);
}

static void no_memory_for_a_table_is_said(void **state)
{
	struct memory m = {.fail_at = 1};
	struct tcp_env env = test_env(&m);
	struct tcp_table t;

	(void)state;
	assert_int_equal(tcp_table_init(&t, &env, key), -ENOMEM);
	tcp_table_fini(&t, &env);
}

#define NODES 20000

/* Random additions, removals, replacements; what is there is found, what is not is not. */
static void random_use(struct memory *m, uint64_t seed)
{
	static struct tcp_node nodes[2][NODES];
	static struct tcp_node *in[NODES];
	struct tcp_env env = test_env(m);
	struct tcp_table t;
	uint32_t count = 0;

	memset(in, 0, sizeof(in));
	assert_int_equal(tcp_table_init(&t, &env, key), 0);
	for (uint32_t step = 0; step < 100000; step++) {
		uint32_t i = test_random(&seed) % (step / 5 + 1);
		uint32_t what = test_random(&seed) % 8;
		struct tcp_tuple tuple = tuple_of(i);

		assert_ptr_equal(tcp_table_find(&t, &tuple), in[i]);
		if (!in[i]) {
			in[i] = &nodes[what & 1][i];
			in[i]->tuple = tuple;
			tcp_table_add(&t, &env, in[i]);
			count++;
		} else if (what < 3) {
			tcp_table_del(&t, in[i]);
			in[i] = NULL;
			count--;
		} else if (what == 3) {
			struct tcp_node *other =
				in[i] == &nodes[0][i] ? &nodes[1][i] : &nodes[0][i];

			other->tuple = tuple;
			tcp_table_replace(&t, in[i], other);
			in[i] = other;
		}
		assert_int_equal(t.count, count);
	}
	for (uint32_t i = 0; i < NODES; i++) {
		struct tcp_tuple tuple = tuple_of(i);

		assert_ptr_equal(tcp_table_find(&t, &tuple), in[i]);
	}
	tcp_table_fini(&t, &env);
	assert_int_equal(m->blocks, 0);
}

static void it_agrees_with_a_plain_array_under_random_use(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 4; seed++) {
		struct memory m = {0};

		print_message("seed %llu\n", (unsigned long long)seed);
		random_use(&m, seed);
	}
}

static void a_table_that_cannot_grow_gets_slower_not_wrong(void **state)
{
	(void)state;
	for (unsigned fail = 2; fail < 12; fail++) {
		struct memory m = {.fail_at = fail};

		random_use(&m, 99);
	}
	for (size_t above = 512; above < 100000; above *= 4) {
		struct memory m = {.fail_above = above};

		random_use(&m, 100);
	}
}

/*
 * The longest chain of a million stays what chance makes it, and no addition moves more than a few.
 */
static void a_million_connections_have_short_chains(void **state)
{
	const uint32_t count = 1000000;
	struct tcp_node *nodes = calloc(count, sizeof(*nodes));
	struct memory m = {0};
	struct tcp_env env = test_env(&m);
	uint32_t longest = 0;
	struct tcp_table t;

	(void)state;
	assert_non_null(nodes);
	assert_int_equal(tcp_table_init(&t, &env, key), 0);
	for (uint32_t i = 0; i < count; i++) {
		uint32_t moved = t.moved;

		nodes[i].tuple = tuple_of(i);
		tcp_table_add(&t, &env, &nodes[i]);
		assert_true(!t.old || t.moved - moved <= 2 || t.moved <= 2);
	}
	assert_int_equal(t.mask + 1, 1u << 20);
	assert_null(t.old);
	for (uint32_t i = 0; i <= t.mask; i++) {
		uint32_t length = 0;

		for (struct tcp_node *n = t.bucket[i]; n; n = n->next)
			length++;
		longest = length > longest ? length : longest;
	}
	assert_in_range(longest, 2, 14);
	for (uint32_t i = 0; i < count; i++)
		assert_ptr_equal(tcp_table_find(&t, &nodes[i].tuple), &nodes[i]);
	tcp_table_fini(&t, &env);
	assert_int_equal(m.blocks, 0);
	free(nodes);
}

static void another_key_is_another_order(void **state)
{
	const uint64_t other[2] = {1, 2};
	struct tcp_node a = {.tuple = tuple_of(2)}, b = a;
	struct memory m = {0};
	struct tcp_env env = test_env(&m);
	struct tcp_table t, u;

	(void)state;
	assert_int_equal(tcp_table_init(&t, &env, key), 0);
	assert_int_equal(tcp_table_init(&u, &env, other), 0);
	tcp_table_add(&t, &env, &a);
	tcp_table_add(&u, &env, &b);
	assert_int_not_equal(a.hash, b.hash);
	tcp_table_fini(&t, &env);
	tcp_table_fini(&u, &env);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_hash_is_siphash_2_4),
		cmocka_unit_test(every_part_of_the_tuple_counts),
		cmocka_unit_test(no_memory_for_a_table_is_said),
		cmocka_unit_test(it_agrees_with_a_plain_array_under_random_use),
		cmocka_unit_test(a_table_that_cannot_grow_gets_slower_not_wrong),
		cmocka_unit_test(a_million_connections_have_short_chains),
		cmocka_unit_test(another_key_is_another_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
