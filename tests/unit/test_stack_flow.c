/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Rules and who wants them: one stands in the ring from its first user to its last, whatever comes
 * and goes between.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "stack/stack.h"

#define KEYS 40u

static struct stack st;
static struct ring ring;
static bool stands[KEYS];
static int refuse;

static uint32_t number_of(const struct vma_flow_key *key)
{
	return key->local_port - 1000u;
}

static int flow_add(struct ring *r, const struct vma_flow_key *key,
		    const struct vma_flow_info *info)
{
	(void)r;
	(void)info;
	if (refuse)
		return refuse;
	assert_false(stands[number_of(key)]);
	stands[number_of(key)] = true;
	return 0;
}

/* --- a card's rule for a listener's port, and a kernel's connection of that port */

static struct kernel_client {
	int listener, fd;
	struct sockaddr_in at;
	bool comes; /* while the rule is being set */
} client = {.listener = -1, .fd = -1};

static int port_flow_add(struct ring *r, const struct vma_flow_key *key,
			 const struct vma_flow_info *info)
{
	(void)r;
	(void)key;
	(void)info;
	if (client.comes) {
		client.fd = libc.socket(AF_INET, SOCK_STREAM, 0);
		assert_int_equal(
			libc.connect(client.fd, (struct sockaddr *)&client.at, sizeof(client.at)),
			0);
	}
	client.comes = false;
	stands[0] = true;
	return 0;
}

static int port_flow_del(struct ring *r, const struct vma_flow_key *key)
{
	(void)r;
	(void)key;
	stands[0] = false;
	return 0;
}

static struct ring_ops port_ops = {.flow_add = port_flow_add, .flow_del = port_flow_del};

static int flow_del(struct ring *r, const struct vma_flow_key *key)
{
	(void)r;
	assert_true(stands[number_of(key)]);
	stands[number_of(key)] = false;
	return 0;
}

static struct ring_ops ops = {.flow_add = flow_add, .flow_del = flow_del};

static struct vma_flow_key key_of(unsigned n)
{
	struct vma_flow_key key;

	memset(&key, 0, sizeof(key));
	key.proto = IPPROTO_UDP;
	key.local_port = (uint16_t)(1000 + n);
	return key;
}

static int setup(void **state)
{
	(void)state;
	ring.ops = &ops;
	st.ring = &ring;
	st.open = true;
	return 0;
}

static void a_rule_stands_from_its_first_user_to_its_last(void **state)
{
	unsigned users[KEYS] = {0}, seed = 3;

	(void)state;
	for (unsigned i = 0; i < 20000; i++) {
		unsigned n = (unsigned)rand_r(&seed) % KEYS;
		struct vma_flow_key key = key_of(n);

		if (rand_r(&seed) % 2 && users[n] < 5) {
			assert_int_equal(stack_flow_add(&st, &key, 7), 0);
			users[n]++;
		} else if (users[n]) {
			stack_flow_del(&st, &key);
			users[n]--;
		}
		for (n = 0; n < KEYS; n++) {
			key = key_of(n);
			assert_int_equal(stands[n], users[n] > 0);
			assert_int_equal(stack_flow_users(&st, &key), users[n]);
			assert_int_equal(stack_flow_stands(&st, &key), users[n] > 0);
		}
	}
	for (unsigned n = 0; n < KEYS; n++) {
		struct vma_flow_key key = key_of(n);

		for (; users[n]; users[n]--)
			stack_flow_del(&st, &key);
		assert_false(stands[n]);
	}
}

static void a_refused_rule_leaves_nothing(void **state)
{
	struct vma_flow_key key = key_of(1);

	(void)state;
	refuse = -ENOSPC;
	assert_int_equal(stack_flow_add(&st, &key, 7), -ENOSPC);
	assert_int_equal(stack_flow_users(&st, &key), 0);
	stack_flow_del(&st, &key);
	refuse = 0;
	assert_int_equal(stack_flow_add(&st, &key, 7), 0);
	stack_flow_del(&st, &key);
	assert_false(stands[1]);
}

static struct vma_flow_key listeners_key(void)
{
	struct vma_flow_key key = {.proto = IPPROTO_TCP};
	socklen_t len = sizeof(client.at);

	client.at = (struct sockaddr_in){.sin_family = AF_INET,
					 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	client.listener = libc.socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(
		libc.bind(client.listener, (struct sockaddr *)&client.at, sizeof(client.at)), 0);
	assert_int_equal(libc.listen(client.listener, 4), 0);
	assert_int_equal(libc.getsockname(client.listener, (struct sockaddr *)&client.at, &len), 0);
	key.local_port = ntohs(client.at.sin_port);
	return key;
}

static int card_setup(void **state)
{
	(void)state;
	libc_load();
	ring.ops = &port_ops;
	ring.caps.takes_all = true;
	return 0;
}

static int card_teardown(void **state)
{
	(void)state;
	ring.ops = &ops;
	ring.caps.takes_all = false;
	libc.close(client.listener);
	if (client.fd >= 0)
		libc.close(client.fd);
	client.fd = -1;
	return 0;
}

static void a_ports_rule_goes_for_who_comes_while_it_is_set(void **state)
{
	struct vma_flow_key key = listeners_key();

	(void)state;
	client.comes = true;
	assert_int_equal(stack_flow_add(&st, &key, 7), 0);
	assert_false(stands[0]);
	assert_false(stack_flow_stands(&st, &key));
	assert_int_equal(stack_flow_users(&st, &key), 1);
	stack_flow_del(&st, &key);
}

static void a_ports_rule_that_stands_anew_is_looked_at_twice(void **state)
{
	struct vma_flow_key key = listeners_key();

	(void)state;
	assert_int_equal(stack_flow_add(&st, &key, 7), 0);
	assert_true(stack_flow_stands(&st, &key));
	for (unsigned i = 0; i < 2; i++) {
		assert_true(stack_flow_on_trial(&st, &key));
		assert_true(stack_flow_tried(&st, &key));
	}
	assert_false(stack_flow_on_trial(&st, &key));
	assert_false(stack_flow_tried(&st, &key));
	stack_flow_suspend(&st, &key);
	client.comes = true;
	stack_flow_resume(&st, &key);
	assert_false(stack_flow_stands(&st, &key));
	assert_false(stack_flow_on_trial(&st, &key));
	assert_false(stack_flow_tried(&st, &key));
	stack_flow_del(&st, &key);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_rule_stands_from_its_first_user_to_its_last),
		cmocka_unit_test(a_refused_rule_leaves_nothing),
		cmocka_unit_test_setup_teardown(a_ports_rule_goes_for_who_comes_while_it_is_set,
						card_setup, card_teardown),
		cmocka_unit_test_setup_teardown(a_ports_rule_that_stands_anew_is_looked_at_twice,
						card_setup, card_teardown),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
