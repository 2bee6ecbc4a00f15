/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The list of a process's connections, as others find it: lib/kmod/conns.c. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "kmod/kmod.h"
#include "runtime/runtime.h"

static struct vma_flow_key key_of(uint16_t port)
{
	return (struct vma_flow_key){
		.local_port = 80, .remote_port = port, .proto = IPPROTO_TCP, .remote.byte[15] = 1};
}

static struct vma_kmod_slot *add(uint16_t port)
{
	struct vma_flow_key key = key_of(port);
	struct vma_kmod_slot *slot = kmod_conn_add(-1, &key);

	if (slot)
		slot->live = 1;
	return slot;
}

/* The list has connections of these ports, and no others. */
static void has(const uint16_t *ports, unsigned num)
{
	struct vma_flow_key *keys;
	unsigned n = kmod_conns_read(kmod_conns_fd(), &keys);

	assert_int_equal(n, num);
	for (unsigned i = 0; i < num; i++)
		assert_int_equal(keys[i].remote_port, ports[i]);
	free(keys);
}
#define has(...) has((uint16_t[]){__VA_ARGS__}, sizeof((uint16_t[]){__VA_ARGS__}) / 2)

static void test_none_is_kept_until_somebody_asks(void **state)
{
	(void)state;
	assert_false(kmod_takes_conns());
	assert_null(add(1));
	assert_int_equal(errno, ENODEV);
	assert_true(kmod_conns_fd() >= 0);
	assert_true(kmod_takes_conns());
	assert_false(kmod_wants_seqs());
}

static void test_what_is_over_is_not_told(void **state)
{
	(void)state;
	struct vma_kmod_slot *a = add(1), *b = add(2), *c = add(3);
	struct vma_flow_key half = key_of(4);

	has(1, 2, 3);
	assert_int_not_equal(kmod_slot_number(a), kmod_slot_number(b));
	assert_true(kmod_slot_number(c) < VMA_KMOD_CONNS_MAX);
	kmod_conn_del(b);
	has(1, 3);
	/* Its place, before it is said to be one. */
	assert_ptr_equal(kmod_conn_add(-1, &half), b);
	has(1, 3);
	kmod_conn_del(b);
	kmod_conn_del(a);
	assert_ptr_equal(add(5), a);
	assert_ptr_equal(add(6), b);
	has(5, 6, 3);
	kmod_conn_del(a);
	kmod_conn_del(b);
	kmod_conn_del(c);
}

static void test_a_full_list(void **state)
{
	(void)state;
	static struct vma_kmod_slot *slot[VMA_KMOD_CONNS_MAX];
	struct vma_flow_key *keys;

	for (unsigned i = 0; i < VMA_KMOD_CONNS_MAX; i++) {
		slot[i] = add((uint16_t)(i | 1));
		assert_non_null(slot[i]);
	}
	assert_null(add(1));
	assert_int_equal(kmod_conns_read(kmod_conns_fd(), &keys), VMA_KMOD_CONNS_MAX);
	free(keys);
	for (unsigned i = 0; i < VMA_KMOD_CONNS_MAX; i++)
		kmod_conn_del(slot[i]);
	assert_int_equal(kmod_conns_read(kmod_conns_fd(), &keys), 0);
	free(keys);
}

/* What is no list, or one that a stranger has made, gives nothing that is not there. */
static void test_what_another_has_written(void **state)
{
	(void)state;
	struct vma_flow_key *keys;
	uint32_t word[4];
	struct stat st;
	int fd, plain;

	assert_int_equal(kmod_conns_read(-1, &keys), 0);
	assert_null(keys);
	assert_int_equal(fstat(kmod_conns_fd(), &st), 0);
	fd = own_fd_memory("short", (size_t)st.st_size - 1, 0);
	assert_int_equal(kmod_conns_read(fd, &keys), 0);
	assert_null(keys);
	own_fd_close(fd);
	/* Its owner could make it shorter while it is read. */
	plain = open("/tmp", O_TMPFILE | O_RDWR, 0600);
	assert_int_equal(ftruncate(plain, st.st_size), 0);
	assert_int_equal(kmod_conns_read(plain, &keys), 0);
	assert_null(keys);
	close(plain);
	fd = own_fd_memory("other", (size_t)st.st_size, 0);
	assert_int_equal(kmod_conns_read(fd, &keys), 0);
	free(keys);
	/* A header as ours, and a count beyond the end. */
	assert_int_equal(pread(kmod_conns_fd(), word, sizeof(word), 0), sizeof(word));
	word[2] = UINT32_MAX;
	assert_int_equal(pwrite(fd, word, sizeof(word), 0), sizeof(word));
	assert_int_equal(kmod_conns_read(fd, &keys), 0);
	free(keys);
	own_fd_close(fd);
}

static void test_a_child_has_none(void **state)
{
	(void)state;
	struct vma_kmod_slot *slot = add(1);
	int fd = kmod_conns_fd();

	kmod_forked();
	assert_false(kmod_takes_conns());
	assert_null(add(2));
	assert_false(own_fd_is(fd));
	assert_true(kmod_conns_fd() >= 0);
	assert_ptr_not_equal(add(3), slot);
	has(3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_none_is_kept_until_somebody_asks),
		cmocka_unit_test(test_what_is_over_is_not_told),
		cmocka_unit_test(test_a_full_list),
		cmocka_unit_test(test_what_another_has_written),
		cmocka_unit_test(test_a_child_has_none),
	};

	lock_mode = 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
