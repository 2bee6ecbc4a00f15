/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_child_has_none_of_it_and_loses_nothing_of_its_own),
		cmocka_unit_test(what_is_shared_can_be_mapped_and_not_made_smaller),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
