/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "preload/parts.h"

#include <string.h>
#include <sys/epoll.h>

#include "config/config.h"
#include "handover/handover.h"
#include "kmod/kmod.h"
#include "net/net.h"
#include "runtime/runtime.h"
#include "socket/tcp/sock.h"
#include "socket/udp/sock.h"
#include "stack/stack.h"
#include "stats/stats.h"
#include "wait/wait.h"

static void net_readable(int fd, uint32_t events, void *arg)
{
	(void)fd;
	(void)events;
	(void)arg;
	net_process();
	stacks_follow();
}

int parts_start(int (*begin)(void))
{
	int err;

	wait_start();
	kmod_start((unsigned)params.stats_fd_num);
	err = stats_start(params.stats_shmem_dir, (unsigned)params.stats_fd_num);
	if (err)
		log_warn("no statistics in %s: %s", params.stats_shmem_dir, strerror(-err));
	err = worker_start(params_worker_begins, (unsigned)params.timer_resolution_msec);
	if (!err)
		err = net_start();
	if (!err)
		err = worker_fd_add(net_fd(), EPOLLIN, net_readable, NULL);
	if (!err)
		err = handover_start();
	if (!err)
		err = udp_start();
	if (!err)
		err = tcp_sock_start(begin);
	return err ? err : stacks_start();
}

void parts_stop(void)
{
	stats_why_summary();
	handover_at_end();
	worker_stop();
	handover_stop();
	stacks_stop();
	stats_log_end();
	kmod_stop();
	net_stop();
	stats_stop();
}
