/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <errno.h>

#include <cmocka.h>

#include "mem/allocator.h"
#include "mem/pages.h"
#include "runtime/libc.h"
#include "runtime/own_fd.h"

/* What the child's allocator may do: use the addresses that the parent's memory has. */
static int child(void *p, size_t bytes)
{
	uint8_t *own = mmap(p, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	if (own != p)
		return 1;
	own[0] = 7;
	pages_unmap(p, bytes);
	return msync(own, bytes, MS_ASYNC) || own[0] != 7 ? 2 : 0;
}

static void a_child_has_none_of_it_and_loses_nothing_of_its_own(void **state)
{
	size_t bytes = 1 << 20;
	void *p = pages_map(PAGES_ANON, &bytes);
	int status;
	pid_t pid;

	(void)state;
	assert_non_null(p);
	pid = fork();
	if (!pid)
		_exit(child(p, bytes));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	memset(p, 1, bytes);
	pages_unmap(p, bytes);
	assert_int_equal(msync(p, bytes, MS_ASYNC), -1);
}

static void what_is_shared_can_be_mapped_and_not_made_smaller(void **state)
{
	size_t bytes = 1 << 20;
	int fd;
	uint8_t *p = pages_map_shared(PAGES_ANON, &bytes, &fd), *again;

	(void)state;
	assert_non_null(p);
	again = pages_map_fd(fd, bytes);
	assert_non_null(again);
	p[bytes - 1] = 7;
	assert_int_equal(again[bytes - 1], 7);
	assert_int_equal(ftruncate(fd, 0), -1);
	pages_unmap(again, bytes);
	pages_unmap(p, bytes);
	own_fd_close(fd);
}

/* --- the program's allocator; from here on it is there */

#define GIVEN_MAX 4
#define ODD 40 /* not where a page begins */

static struct {
	uint8_t *begin;
	size_t bytes;
	bool freed;
} given[GIVEN_MAX];
static unsigned num_given;
static bool empty;

/* Dirty memory at no particular place, as malloc() gives it. */
static void *give(size_t bytes)
{
	uint8_t *p = empty ? NULL : malloc(bytes + ODD);

	if (!p)
		return NULL;
	memset(p, 0xa5, bytes + ODD);
	assert_true(num_given < GIVEN_MAX);
	given[num_given].begin = p + ODD;
	given[num_given++].bytes = bytes;
	return p + ODD;
}

static void take_back(void *p)
{
	for (unsigned i = 0; i < num_given; i++) {
		/* malloc() may have given the place before. */
		if (given[i].begin != p || given[i].freed)
			continue;
		given[i].freed = true;
		free((uint8_t *)p - ODD);
		return;
	}
	fail_msg("%p is not given", p);
}

static void it_is_settled_by_the_first_socket(void **state)
{
	const struct allocator other = {.alloc = malloc, .free = free},
			       theirs = {.alloc = give, .free = take_back};
	size_t bytes = 4096;
	void *p;

	(void)state;
	assert_int_equal(allocator_set(&other), 0);
	assert_int_equal(allocator_set(&theirs), 0);
	/* There may still come another one. */
	assert_false(allocator_is_there());
	p = pages_map(PAGES_ANON, &bytes);
	assert_int_equal(num_given, 0);
	allocator_settle();
	allocator_settle();
	assert_true(allocator_is_there());
	assert_int_equal(allocator_set(&other), -EINVAL);
	pages_unmap(p, bytes);
	assert_int_equal(msync(p, bytes, MS_ASYNC), -1);
}

static bool is_zero(const uint8_t *p, size_t bytes)
{
	return !p[0] && !memcmp(p, p + 1, bytes - 1);
}

static void pages_are_the_programs(void **state)
{
	size_t bytes[2] = {(3 << 20) + 1, 4096};
	uint8_t *p[2];

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		size_t asked = bytes[i];

		p[i] = pages_map(PAGES_HUGE, &bytes[i]);
		assert_non_null(p[i]);
		assert_int_equal((uintptr_t)p[i] % 4096, 0);
		assert_true(bytes[i] >= asked && bytes[i] % 4096 == 0);
		assert_true(p[i] >= given[i].begin &&
			    p[i] + bytes[i] <= given[i].begin + given[i].bytes);
		assert_true(is_zero(p[i], bytes[i]));
		memset(p[i], 1, bytes[i]);
	}
	pages_unmap(p[0], bytes[0]);
	assert_true(given[0].freed && !given[1].freed);
	assert_true(!is_zero(p[1], bytes[1]));
	pages_unmap(p[1], bytes[1]);
	assert_true(given[1].freed);
}

/* 0: the child has nothing at p, has given nothing back, and gets memory of its own. */
static int child_of_the_allocator(uint8_t *p, size_t bytes)
{
	uint8_t *own;

	if (msync(p, bytes, MS_ASYNC) != -1)
		return 1;
	pages_unmap(p, bytes);
	if (given[num_given - 1].freed)
		return 2;
	own = pages_map(PAGES_ANON, &bytes);
	if (!own || !is_zero(own, bytes))
		return 3;
	pages_unmap(own, bytes);
	return given[num_given - 1].freed ? 0 : 4;
}

static void a_child_has_none_of_the_programs_pages_and_may_have_its_own(void **state)
{
	size_t bytes = 1 << 20;
	uint8_t *p = pages_map(PAGES_ANON, &bytes);
	int status;
	pid_t pid;

	(void)state;
	assert_non_null(p);
	pid = fork();
	if (!pid)
		_exit(child_of_the_allocator(p, bytes));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	p[bytes - 1] = 1;
	pages_unmap(p, bytes);
	assert_true(given[num_given - 1].freed);
}

static void a_program_that_has_no_memory_gets_no_other(void **state)
{
	size_t bytes = 4096;
	unsigned before = num_given;

	(void)state;
	empty = true;
	assert_null(pages_map(PAGES_ANON, &bytes));
	assert_int_equal(errno, ENOMEM);
	empty = false;
	assert_int_equal(num_given, before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_child_has_none_of_it_and_loses_nothing_of_its_own),
		cmocka_unit_test(what_is_shared_can_be_mapped_and_not_made_smaller),
		cmocka_unit_test(it_is_settled_by_the_first_socket),
		cmocka_unit_test(pages_are_the_programs),
		cmocka_unit_test(a_child_has_none_of_the_programs_pages_and_may_have_its_own),
		cmocka_unit_test(a_program_that_has_no_memory_gets_no_other),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
