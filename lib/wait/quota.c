/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "wait/quota.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/runtime.h"

/* What the process has used is asked for this often: a system call. */
#define LOOK_NS 500000u
/* More processors than this are no limit anywhere; and products stay in 64 bits. */
#define CPUS_MOST 8192u
#define PERIOD_MOST_US 1000000u /* the kernel's own bound */
#define PATH_MOST 1024

static struct wait_quota limit;
/* The window in which use is counted now. Threads that race for it blur it, no more. */
static _Atomic uint64_t window_ends_ns, used_before_ns, looked_ns;
static _Atomic bool used_up;

/* --- what the kernel says */

struct ratio {
	uint64_t quota_us, period_us; /* quota_us 0: no limit */
};

static void narrow(struct ratio *r, uint64_t quota_us, uint64_t period_us)
{
	if (!quota_us || !period_us || period_us > PERIOD_MOST_US ||
	    quota_us / period_us >= CPUS_MOST)
		return;
	if (!r->quota_us || quota_us * r->period_us < r->quota_us * period_us)
		*r = (struct ratio){quota_us, period_us};
}

/* Room for the numbers of such a file. */
struct numbers {
	char text[64];
};

/* "" when it is not there. */
static struct numbers read_file(const char *folder, const char *name)
{
	char path[PATH_MOST + 32];
	struct numbers n = {""};

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	text_file_read(path, n.text, sizeof(n.text));
	return n;
}

/* "50000 100000" or "max 100000" */
static void read_max(const char *folder, struct ratio *r)
{
	struct numbers n = read_file(folder, "cpu.max");
	char *end;
	uint64_t quota_us = strtoull(n.text, &end, 10); /* 0 of "max" */

	if (end != n.text)
		narrow(r, quota_us, strtoull(end, NULL, 10));
}

/* Version 1: two files, a quota of -1 for none. */
static void read_cfs(const char *folder, struct ratio *r)
{
	struct numbers quota = read_file(folder, "cpu.cfs_quota_us"), period;
	long long quota_us = strtoll(quota.text, NULL, 10);

	if (quota_us <= 0)
		return;
	period = read_file(folder, "cpu.cfs_period_us");
	narrow(r, (uint64_t)quota_us, strtoull(period.text, NULL, 10));
}

/*
 * The group and those above it. In a container the path may be the host's, and the mount the
 * group's own: what is not there is passed over.
 */
static void read_groups(const char *root, const char *mount, const char *group,
			void (*read)(const char *folder, struct ratio *r), struct ratio *r)
{
	char folder[PATH_MOST];
	size_t least = (size_t)snprintf(folder, sizeof(folder), "%s%s", root, mount);
	char *slash;

	if (least + strlen(group) >= sizeof(folder))
		return;
	strcpy(folder + least, group);
	for (;;) {
		read(folder, r);
		slash = strrchr(folder + least, '/');
		if (!slash)
			return;
		*slash = '\0';
	}
}

/* Whether the list "cpu,cpuacct" has the word. */
static bool listed(const char *list, const char *word)
{
	size_t len = strlen(word);

	for (const char *p = list; p; p = strchr(p, ',')) {
		p += *p == ',';
		if (!strncmp(p, word, len) && (p[len] == ',' || !p[len]))
			return true;
	}
	return false;
}

/*
 * One line of /proc/self/cgroup: "0::/group", "4:cpu,cpuacct:/group". The kernel does not say where
 * the mounts stand: that is custom.
 */
static void read_line(const char *root, char *line, struct ratio *r)
{
	char *names = strchr(line, ':'), *group = names ? strchr(names + 1, ':') : NULL;

	if (!group)
		return;
	*group++ = '\0';
	names++;
	if (!*names) {
		read_groups(root, "/sys/fs/cgroup", group, read_max, r);
		read_groups(root, "/sys/fs/cgroup/unified", group, read_max, r);
	} else if (listed(names, "cpu")) {
		read_groups(root, "/sys/fs/cgroup/cpu", group, read_cfs, r);
		read_groups(root, "/sys/fs/cgroup/cpu,cpuacct", group, read_cfs, r);
	}
}

struct wait_quota quota_read(const char *root, unsigned ncpus)
{
	char path[PATH_MOST], text[4096], *rest = text, *line;
	struct ratio r = {0};

	snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
	text_file_read(path, text, sizeof(text));
	while ((line = strsep(&rest, "\n")))
		read_line(root, line, &r);
	if (!r.quota_us || r.quota_us >= ncpus * r.period_us)
		return (struct wait_quota){0};
	return (struct wait_quota){r.quota_us * 1000, r.period_us * 1000};
}

/* --- how much of it is used */

void quota_set(struct wait_quota q)
{
	limit = q;
	atomic_store(&window_ends_ns, 0);
	atomic_store(&looked_ns, 0);
	atomic_store(&used_up, false);
}

static uint64_t used_ns(void)
{
	struct timespec ts = {0};

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static void look(uint64_t now_ns)
{
	uint64_t used = used_ns(),
		 before = atomic_load_explicit(&used_before_ns, memory_order_relaxed);

	/* A child's use begins anew. */
	if (used < before ||
	    now_ns >= atomic_load_explicit(&window_ends_ns, memory_order_relaxed)) {
		atomic_store_explicit(&used_before_ns, used, memory_order_relaxed);
		atomic_store_explicit(&window_ends_ns, now_ns + limit.period_ns,
				      memory_order_relaxed);
		atomic_store_explicit(&used_up, false, memory_order_relaxed);
	} else if (used - before >= limit.cpu_ns / 2) {
		atomic_store_explicit(&used_up, true, memory_order_relaxed);
	}
}

bool quota_near(uint64_t now_ns)
{
	uint64_t last;

	if (__builtin_expect(!limit.cpu_ns, 1))
		return false;
	last = atomic_load_explicit(&looked_ns, memory_order_relaxed);
	if (now_ns >= last + LOOK_NS &&
	    atomic_compare_exchange_strong_explicit(&looked_ns, &last, now_ns, memory_order_relaxed,
						    memory_order_relaxed))
		look(now_ns);
	return atomic_load_explicit(&used_up, memory_order_relaxed);
}
