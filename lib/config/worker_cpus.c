/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Where the internal thread runs: VMA_INTERNAL_THREAD_CPUSET and VMA_INTERNAL_THREAD_AFFINITY. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "config/params.h"
#include "runtime/runtime.h"

/* Writes the thread's number to dir/file. 0 or negative errno. */
static int enter(const char *dir, const char *file)
{
	char path[512], text[16];
	int fd, len, err = 0;

	snprintf(path, sizeof(path), "%s/%s", dir, file);
	fd = OWN_FD(raw.open(path, O_WRONLY | O_CLOEXEC, 0));
	if (fd < 0)
		return -errno;
	len = snprintf(text, sizeof(text), "%d\n", (int)gettid());
	if (raw.write(fd, text, (size_t)len) != len)
		err = -errno;
	own_fd_close(fd);
	return err;
}

/* The processors that dir's threads have. 0 or negative errno. */
static int cpus_of(const char *dir, cpu_set_t *set)
{
	char path[512], list[4096];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%s/cpuset.cpus.effective", dir);
	fd = OWN_FD(raw.open(path, O_RDONLY | O_CLOEXEC, 0));
	if (fd < 0)
		return -errno;
	n = raw.read(fd, list, sizeof(list) - 1);
	own_fd_close(fd);
	if (n <= 0)
		return -ENODATA;
	list[n] = '\0';
	list[strcspn(list, "\n")] = '\0';
	return params_cpus(list, set);
}

/*
 * By cgroup v1 a thread can be in any directory; by v2 in a threaded one below its process's only.
 * Elsewhere it stays where it is, and takes that directory's processors.
 */
static void join_cpuset(const char *dir)
{
	cpu_set_t set;
	int err = enter(dir, "tasks"), read;

	if (err == -ENOENT)
		err = enter(dir, "cgroup.threads");
	if (!err)
		return;
	read = cpus_of(dir, &set);
	if (!read && !pthread_setaffinity_np(pthread_self(), sizeof(set), &set)) {
		log_debug("VMA_INTERNAL_THREAD_CPUSET=%s: %s; the internal thread has its CPUs all "
			  "the same",
			  dir, strerror(-err));
		return;
	}
	log_warn("VMA_INTERNAL_THREAD_CPUSET=%s: the internal thread cannot enter: %s; it keeps "
		 "its CPUs",
		 dir, strerror(-err));
}

void params_worker_begins(void)
{
	const char *text = params.internal_thread_affinity;
	cpu_set_t set;

	if (params.internal_thread_cpuset && *params.internal_thread_cpuset)
		join_cpuset(params.internal_thread_cpuset);
	if (!text || !*text || !strcmp(text, "-1"))
		return;
	if (params_cpus(text, &set))
		log_warn("VMA_INTERNAL_THREAD_AFFINITY=%s is neither a mask (0x3) nor a list "
			 "(0,2-3) of CPUs; ignored",
			 text);
	else if (pthread_setaffinity_np(pthread_self(), sizeof(set), &set))
		log_warn("VMA_INTERNAL_THREAD_AFFINITY=%s: none of these CPUs is usable; ignored",
			 text);
}
