/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The order in which the library comes and goes. */
#include "preload/start.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "net/net.h"
#include "preload/fatal.h"
#include "runtime/kmod.h"
#include "runtime/last_thread.h"
#include "runtime/libc.h"
#include "runtime/lock.h"
#include "runtime/log.h"
#include "runtime/params.h"
#include "runtime/rules.h"
#include "runtime/stats.h"
#include "runtime/worker.h"
#include "socket/stack_int.h"
#include "socket/tcp.h"
#include "socket/udp.h"

enum state { STATE_NEW, STATE_RUNNING, STATE_OFF };

static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int state;
static _Atomic bool begun; /* some thread, of this process or of one before it, has been in library_begin(), and may be there still */

static void net_readable(int fd, uint32_t events, void *arg)
{
	(void)fd;
	(void)events;
	(void)arg;
	net_process();
	stacks_follow();
}

/* Everything that may fail; what has been started stays (it is idle) and is ended by library_stop(). */
static int start_parts(void)
{
	int err;

	kmod_start((unsigned)params.stats_fd_num);
	err = stats_start(params.stats_shmem_dir, (unsigned)params.stats_fd_num);
	if (err)
		log_warn("no statistics in %s: %s", params.stats_shmem_dir, strerror(-err));
	err = worker_start();
	if (!err)
		err = net_start();
	if (!err)
		err = worker_fd_add(net_fd(), EPOLLIN, net_readable, NULL);
	if (!err)
		err = udp_start();
	if (!err)
		err = tsock_start(library_start);
	return err ? err : stacks_start();
}

/* What has been said once need not be said by every forked child. */
static bool banner_shown;

static void library_begin(void)
{
	int err;

	params_load(environ);
	/* The internal thread is one more in every process: the promise of VMA_THREAD_MODE=0 cannot hold for it. */
	lock_mode = params.thread_mode ? params.thread_mode : 1;
	if (!banner_shown) {
		params_banner();
		rules_load(params.config_file);
	}
	banner_shown = true;
	err = start_parts();
	if (err)
		log_error("nothing is offloaded in this process: start-up failed: %s", strerror(-err));
	else
		fatal_start();
	atomic_store_explicit(&state, err ? STATE_OFF : STATE_RUNNING, memory_order_release);
}

int library_start(void)
{
	int now = atomic_load_explicit(&state, memory_order_acquire);

	if (__builtin_expect(now == STATE_NEW, 0)) {
		int saved = errno;

		libc_internal++;
		atomic_store(&begun, true);
		pthread_mutex_lock(&start_lock);
		if (atomic_load_explicit(&state, memory_order_relaxed) == STATE_NEW)
			library_begin();
		pthread_mutex_unlock(&start_lock);
		libc_internal--;
		errno = saved;
		now = atomic_load_explicit(&state, memory_order_acquire);
	}
	return now == STATE_RUNNING ? 0 : -EOPNOTSUPP;
}

void library_open_early(uid_t uid)
{
	int cancel;

	/* As for a new socket: nobody may meet the library half started. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	lock_enter();
	tsock_open_early();
	if (uid != (uid_t)-1)
		stats_give(uid);
	lock_leave();
	pthread_setcancelstate(cancel, NULL);
}

bool library_has_begun(void)
{
	return atomic_load(&begun);
}

void library_forked_child(void)
{
	lock_thread_forked();
	last_thread_forked();
	/* Not `state`: another thread may have been starting the library. */
	/* A process that has only inherited sockets hands them down, too. */
	if (!atomic_load(&begun))
		return;
	libc_internal = 1;
	pthread_mutex_init(&start_lock, NULL);
	worker_forked();
	net_forked();
	kmod_forked();
	stats_forked();
	stacks_forked();
	udp_forked();
	tsock_forked();
	atomic_store_explicit(&state, STATE_NEW, memory_order_relaxed);
	libc_internal = 0;
}

/* exit() and dlclose: steering ends here, so that no packet is sent to queues that nobody reads. */
__attribute__((destructor)) static void library_stop(void)
{
	if (atomic_load_explicit(&state, memory_order_acquire) == STATE_NEW)
		return;
	libc_internal++;
	tsock_end();
	worker_stop();
	tsock_exit_off();
	stacks_stop();
	kmod_stop();
	net_stop();
	stats_stop();
	libc_internal--;
}
