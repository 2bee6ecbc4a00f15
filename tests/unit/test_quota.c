/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * lib/wait/quota.c: the limit of a control group, from files as both versions have them, and that a
 * process near to it does not spin.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/runtime.h"
#include "wait/quota.h"
#include "wait/spin.h"

#define MS 1000000ull

static char root[] = "/tmp/vma-quota-XXXXXX";

/* The file below the root, with its folders. */
static void put(const char *name, const char *text)
{
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", root, name);
	for (char *p = path + strlen(root) + 1; (p = strchr(p, '/')); p++) {
		*p = '\0';
		(void)mkdir(path, 0755);
		*p = '/';
	}
	f = fopen(path, "w");
	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

static int begin(void **state)
{
	(void)state;
	strcpy(root + strlen(root) - 6, "XXXXXX");
	return mkdtemp(root) ? 0 : -1;
}

static int end(void **state)
{
	char command[64];

	(void)state;
	quota_set((struct wait_quota){0});
	snprintf(command, sizeof(command), "rm -rf %s", root);
	return system(command);
}

static void is(unsigned ncpus, unsigned quota_us, unsigned period_us)
{
	struct wait_quota q = quota_read(root, ncpus);

	assert_int_equal(q.cpu_ns, quota_us * 1000ull);
	assert_int_equal(q.period_ns, period_us * 1000ull);
}

static void no_limit_without_files(void **state)
{
	(void)state;
	is(2, 0, 0);
	put("proc/self/cgroup", "0::/\n");
	is(2, 0, 0);
	put("proc/self/cgroup", "nonsense\n::\n0\n4:cpu\n\n0::/a/b\n4:cpu:/c");
	is(2, 0, 0);
}

static void the_narrowest_of_version_2(void **state)
{
	(void)state;
	put("proc/self/cgroup", "0::/box/program\n");
	put("sys/fs/cgroup/box/program/cpu.max", "max 100000\n");
	is(4, 0, 0);
	put("sys/fs/cgroup/box/cpu.max", "150000 100000\n");
	is(4, 150000, 100000);
	put("sys/fs/cgroup/box/program/cpu.max", "10000 20000\n");
	is(4, 10000, 20000);
	/* In a container: the mount is the group's own. */
	put("proc/self/cgroup", "0::/elsewhere/on/the/host\n");
	put("sys/fs/cgroup/cpu.max", "50000 100000\n");
	is(4, 50000, 100000);
}

static void version_1_by_both_names(void **state)
{
	(void)state;
	put("proc/self/cgroup", "9:name=systemd:/\n7:cpuset:/c\n4:cpuacct,cpu:/box\n0::/\n");
	put("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "-1\n");
	put("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
	is(4, 0, 0);
	put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "30000\n");
	put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
	is(4, 30000, 100000);
	/* A group of another controller whose name begins alike is not looked at. */
	put("proc/self/cgroup", "7:cpuset:/box\n");
	is(4, 0, 0);
}

static void what_cannot_be_used_up_is_no_limit(void **state)
{
	(void)state;
	put("proc/self/cgroup", "0::/\n");
	put("sys/fs/cgroup/cpu.max", "200000 100000\n");
	is(2, 0, 0);
	is(3, 200000, 100000);
	put("sys/fs/cgroup/cpu.max", "99999999999999999999 100000\n");
	is(3, 0, 0);
	put("sys/fs/cgroup/cpu.max", "5 0\n");
	is(3, 0, 0);
	put("sys/fs/cgroup/cpu.max", "5 -1\n");
	is(3, 0, 0);
	put("sys/fs/cgroup/cpu.max", "\n");
	is(3, 0, 0);
}

/* Uses the processor until quota_near() says that half is used; the times that it was not yet. */
static unsigned until_near(void)
{
	unsigned looks = 0;

	while (!quota_near(clock_monotonic_ns()))
		looks++;
	return looks;
}

static void a_process_near_its_limit_does_not_spin(void **state)
{
	struct wait_spin_memory memory = {0};
	struct wait_spin sp;
	uint64_t now;

	(void)state;
	/* A period that does not end meanwhile, on a busy machine either. */
	quota_set((struct wait_quota){.cpu_ns = 40 * MS, .period_ns = 1000000 * MS});
	now = clock_monotonic_ns();
	assert_true(spin_begin(&sp, &memory, now));
	assert_true(spin_goes_on(&sp, now + 1000));
	spin_end(&sp, true);
	print_message("    %u looks until half is used\n", until_near());
	now = clock_monotonic_ns();
	assert_false(spin_begin(&sp, &memory, now));
	spin_end(&sp, true);
	/* The next period, as the clock will show it. */
	assert_false(quota_near(now + 1000000 * MS));
}

static void without_a_limit_it_is_never_near(void **state)
{
	(void)state;
	quota_set((struct wait_quota){0});
	assert_false(quota_near(clock_monotonic_ns()));
	assert_false(quota_near(UINT64_MAX));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(no_limit_without_files, begin, end),
		cmocka_unit_test_setup_teardown(the_narrowest_of_version_2, begin, end),
		cmocka_unit_test_setup_teardown(version_1_by_both_names, begin, end),
		cmocka_unit_test_setup_teardown(what_cannot_be_used_up_is_no_limit, begin, end),
		cmocka_unit_test_setup_teardown(a_process_near_its_limit_does_not_spin, begin, end),
		cmocka_unit_test(without_a_limit_it_is_never_near),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
