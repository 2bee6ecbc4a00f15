/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The order in which the library comes and goes. */
#include "preload/start.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/auxv.h>

#include "handover/handover.h"
#include "net/net.h"
#include "preload/fatal.h"
#include "preload/parts.h"
#include "preload/poll_calls.h"
#include "iomux/iomux.h"
#include "kmod/kmod.h"
#include "runtime/runtime.h"
#include "config/config.h"
#include "stats/stats.h"
#include "stack/stack.h"
#include "socket/tcp/sock.h"
#include "socket/udp/sock.h"
#include "wait/wait.h"

/* Descriptors below it are looked at. */
#define INHERITED_MAX 64

enum state {
	STATE_NEW,
	STATE_RUNNING,
	STATE_OFF,
	STATE_LEAVING, /* no new socket is ours, and what is goes */
	STATE_LEFT,
};

static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int state;
/*
 * some thread, of this process or of one before it, has been in configure() or library_begin(), and
 * may be there still
 */
static _Atomic bool begun;

/*
 * Who preloads the library for one program, or sets a parameter of it, wants to hear from it. With
 * /etc/ld.so.preload it is in every program, and scripts read what those print.
 */
static bool is_asked_for(void)
{
	const char *preload = getenv("LD_PRELOAD");

	if (preload && strstr(preload, "libvma"))
		return true;
	for (char **e = environ; e && *e; e++)
		if (!strncmp(*e, "VMA_", 4))
			return true;
	return false;
}

/*
 * Listeners and datagram sockets that the program was started with (LISTEN_FDS, inetd, fd@) are
 * shared with who started it: nobody here knows who else waits for them.
 */
static void inherited_note(void)
{
	struct sockaddr_storage a;
	int domain, type;
	socklen_t len = sizeof(int), alen;

	for (int fd = 0; log_enabled(LOG_DEBUG) && fd < INHERITED_MAX; fd++) {
		if (vfd_get(fd) || own_fd_is(fd) ||
		    libc.getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) ||
		    (domain != AF_INET && domain != AF_INET6) ||
		    libc.getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) ||
		    (type != SOCK_STREAM && type != SOCK_DGRAM))
			continue;
		/* Without a port it is the one that has started the library. Both families'. */
		alen = sizeof(a);
		if (libc.getsockname(fd, (struct sockaddr *)&a, &alen) ||
		    !((struct sockaddr_in *)&a)->sin_port)
			continue;
		log_debug("fd %d stays with the kernel: the program was started with it, and "
			  "others may have it",
			  fd);
	}
}

/* The parameters hold. In a forked child, too: there nobody asks again who wanted the library. */
static _Atomic bool configured;

/* start_lock held. */
static void configure(void)
{
	/* Who starts a set-uid program (by way of /etc/ld.so.preload) does not say what it writes.
	 */
	bool secure = getauxval(AT_SECURE) != 0;

	if (!atomic_load_explicit(&configured, memory_order_relaxed))
		params_unasked = secure || !is_asked_for();
	params_load(secure ? NULL : environ);
	/*
	 * The internal thread is one more in every process: the promise of VMA_THREAD_MODE=0 cannot
	 * hold for it.
	 */
	lock_mode = params.thread_mode ? params.thread_mode : 1;
	atomic_store_explicit(&configured, true, memory_order_release);
}

/* What has been said once need not be said by every forked child. */
static bool banner_shown;

/* Why nothing may be started; NULL: it may. */
static const char *too_little_room(void)
{
	static char text[128];
	unsigned few = own_fd_too_few();

	if (!few)
		return NULL;
	snprintf(text, sizeof(text),
		 "it may have %u descriptors, and the library wants a limit of %u (RLIMIT_NOFILE, "
		 "systemd: LimitNOFILE=)",
		 few, OWN_FD_LEAST);
	return text;
}

/* As too_little_room(). */
static const char *watched(void)
{
	static char text[160];
	const char *program = net_cgroup_program();

	if (!program)
		return NULL;
	snprintf(text, sizeof(text),
		 "its control group has a BPF program (%s), which only the kernel runs (systemd: "
		 "IPAddressDeny=, IPAccounting=)",
		 program);
	return text;
}

/*
 * 0 or negative errno, which is said: as an error only where it is one, as who keeps a service
 * small did not ask for us in it.
 */
static int parts_begin(const char *forbidden)
{
	static bool said; /* forked children need not say it again */
	int err;

	if (!forbidden)
		forbidden = too_little_room();
	if (!forbidden)
		forbidden = watched();
	if (forbidden) {
		if (!said)
			log_warn("nothing is offloaded in this process: %s", forbidden);
		said = true;
		return -EPERM;
	}
	err = parts_start(library_start);
	if (err == -EAFNOSUPPORT)
		log_warn("nothing is offloaded in this process");
	else if (err)
		log_error("nothing is offloaded in this process: start-up failed: %s",
			  strerror(-err));
	return err;
}

/* Of a program that has the library's parts in itself (vmad): in all others there is no such thing.
 */
extern const char vma_serves_itself __attribute__((weak));

/* start_lock held. */
static void library_begin(void)
{
	const char *forbidden;
	int err;

	if (&vma_serves_itself) {
		atomic_store_explicit(&state, STATE_OFF, memory_order_release);
		return;
	}
	/* Before any call that the program has not made. */
	forbidden = sandbox_forbids(NULL);
	configure();
	if (!banner_shown && !forbidden) {
		params_banner();
		rules_load(params.config_file);
		inherited_note();
	}
	err = parts_begin(forbidden);
	banner_shown = true;
	if (!err)
		fatal_start();
	atomic_store_explicit(&state, err ? STATE_OFF : STATE_RUNNING, memory_order_release);
}

/* Runs fn, one thread at a time. errno stays. */
static void alone(void (*fn)(const void *arg), const void *arg)
{
	int saved = errno;

	libc_internal_begin();
	atfork_settle();
	atomic_store(&begun, true);
	pthread_mutex_lock(&start_lock);
	fn(arg);
	pthread_mutex_unlock(&start_lock);
	libc_internal_end();
	errno = saved;
}

static void configure_once(const void *arg)
{
	(void)arg;
	if (!atomic_load_explicit(&configured, memory_order_relaxed))
		configure();
}

void library_configure(void)
{
	if (__builtin_expect(atomic_load_explicit(&configured, memory_order_acquire), 1))
		return;
	/* A signal handler would wait for start_lock for ever. */
	lock_enter();
	alone(configure_once, NULL);
	lock_leave();
}

static void begin_once(const void *arg)
{
	(void)arg;
	if (atomic_load_explicit(&state, memory_order_relaxed) == STATE_NEW)
		library_begin();
}

int library_start(void)
{
	if (__builtin_expect(atomic_load_explicit(&state, memory_order_acquire) == STATE_NEW, 0)) {
		alone(begin_once, NULL);
		if (atomic_load_explicit(&state, memory_order_acquire) == STATE_OFF &&
		    params.exception_handling == EXCEPTION_EXITS)
			exit(EXIT_FAILURE);
	}
	return atomic_load_explicit(&state, memory_order_acquire) == STATE_RUNNING ? 0
										   : -EOPNOTSUPP;
}

/* A thread of the program may be inside kick(), which holds no lock: never for so long. */
#define KICK_NS 2000000000L

static void give_all(void *arg)
{
	(void)arg;
	handover_leave();
}

static void close_rings(void *arg)
{
	(void)arg;
	stacks_retired_end();
}

/* What is the internal thread's to do. False: it cannot be asked, and has been ended. */
static bool in_its_place(void (*fn)(void *arg))
{
	if (!worker_run(fn, NULL))
		return true;
	worker_stop();
	fn(NULL);
	return false;
}

static void wait_for_kicks(void)
{
	uint64_t now = clock_monotonic_ns(), end = now + KICK_NS;

	/* A signal ends a sleep. */
	for (; now < end; now = clock_monotonic_ns())
		clock_sleep_ns((long)(end - now));
}

/* They have nothing of ours any more, as a rule; of those in one another the inner ones first. */
static void leave_sets(void)
{
	bool more = true;

	while (more) {
		more = false;
		for (int fd = 0; fd < vfd_limit(); fd++)
			more = iomux_epoll_leave(fd) || more;
	}
}

/* start_lock held. */
static void leave(void)
{
	bool runs = atomic_exchange(&state, STATE_LEAVING) == STATE_RUNNING,
	     there = in_its_place(give_all);

	leave_sets();
	if (runs && !(there && last_thread_is_only_one()))
		wait_for_kicks();
	(void)in_its_place(close_rings);
	if (runs)
		parts_stop();
	fatal_stop();
	atomic_store(&state, STATE_LEFT);
}

/* Of the parent's, perhaps, which the child has not used yet. */
static bool has_sockets(int is)
{
	bool any = is == STATE_RUNNING || is == STATE_LEAVING;

	if (is == STATE_LEFT)
		return false;
	for (int fd = 0; !any && !table_empty() && fd < vfd_limit(); fd++) {
		const struct vfd *v = vfd_get(fd);

		any = v && (v->kind == VFD_TCP || v->kind == VFD_UDP);
	}
	return any;
}

/* filter: of sandbox_forbids(). */
static void leave_if_forbidden(const void *filter)
{
	const char *forbidden = has_sockets(atomic_load(&state)) ? sandbox_forbids(filter) : NULL;

	if (!forbidden)
		return;
	log_warn("nothing is offloaded in this process any more: %s", forbidden);
	leave();
}

bool library_has_left(void)
{
	return atomic_load_explicit(&state, memory_order_relaxed) == STATE_LEFT;
}

void library_filter_comes(const struct filter_call *filter)
{
	int cancel;

	/* Who finds another thread leaving waits until it has. */
	if (!has_sockets(atomic_load(&state)))
		return;
	cancel = lock_quiet_begin();
	alone(leave_if_forbidden, filter);
	lock_quiet_end(cancel);
}

void library_preopen(uid_t uid)
{
	int cancel;

	/* As for a new socket: nobody may meet the library half started. */
	cancel = lock_quiet_begin();
	stacks_open_pending();
	tcp_sock_preopen();
	udp_preopen();
	if (uid != (uid_t)-1)
		stats_give(uid);
	lock_quiet_end(cancel);
}

bool library_has_begun(void)
{
	return atomic_load(&begun);
}

void library_forked_child(void)
{
	lock_thread_forked();
	signal_forked();
	last_thread_forked();
	log_forked();
	/* Not `state`: another thread may have been starting the library. */
	/* A process that has only inherited sockets hands them down, too. */
	if (!atomic_load(&begun) || library_has_left())
		return;
	libc_internal = 0; /* as the parent had it at this instant */
	libc_internal_begin();
	pthread_mutex_init(&start_lock, NULL);
	worker_forked();
	net_forked();
	kmod_forked();
	stats_forked();
	stats_whys_forked();
	stacks_forked();
	handover_forked();
	atomic_store_explicit(&state, STATE_NEW, memory_order_relaxed);
	libc_internal_end();
}

/* exit() and dlclose: steering ends here, so that no packet is sent to queues that nobody reads. */
__attribute__((destructor)) static void library_stop(void)
{
	int is = atomic_load_explicit(&state, memory_order_acquire);

	if (is == STATE_NEW || is == STATE_LEFT)
		return;
	libc_internal_begin();
	if (is == STATE_LEAVING) /* another thread stops the parts */
		handover_at_end();
	else
		parts_stop();
	libc_internal_end();
}
