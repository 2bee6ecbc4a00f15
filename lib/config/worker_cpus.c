/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Where the internal thread runs: VMA_INTERNAL_THREAD_CPUSET and VMA_INTERNAL_THREAD_AFFINITY. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "config/params.h"
#include "runtime/runtime.h"

/* VMA_INTERNAL_THREAD_CPUSET: a cgroup v1 cpuset directory whose tasks file takes our thread id. */
static void join_cpuset(const char *dir)
{
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/tasks", dir);
	f = own_fopen(path, "we");
	if (!f || fprintf(f, "%d\n", (int)gettid()) < 0 || fflush(f))
		log_warn("VMA_INTERNAL_THREAD_CPUSET=%s: cannot write %s: %s; the internal thread "
			 "keeps its CPUs",
			 dir, path, strerror(errno));
	if (f)
		own_fclose(f);
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
