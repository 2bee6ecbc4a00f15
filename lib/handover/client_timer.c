/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * While clients wait for accept() at a listener of several processes, a look at them each
 * LOOK_MS: the ticks of the internal thread are too far apart for who finds its process busy.
 */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/timerfd.h>

#include "handover/internal.h"
#include "runtime/runtime.h"

#define LOOK_MS 4
/* Looks that find nobody, until it stops: programming a timer costs more than it does. */
#define IDLE_LOOKS 50

static _Atomic int timer_fd = -1;
static _Atomic bool armed;
static unsigned idle; /* the internal thread's */

static void timer_set(int fd, int ms)
{
	struct itimerspec its = {.it_interval = {0, ms * 1000000L}, .it_value = {0, ms * 1000000L}};

	if (timerfd_settime(fd, 0, &its, NULL))
		log_error("timerfd_settime of the timer of clients that wait: %s", strerror(errno));
}

static void due(int fd, uint32_t events, void *arg)
{
	uint64_t times;

	(void)events;
	(void)arg;
	(void)!raw.read(fd, &times, sizeof(times));
	idle = tcp_sock_listeners_look() ? 0 : idle + 1;
	if (idle < IDLE_LOOKS)
		return;
	idle = 0;
	timer_set(fd, 0);
	atomic_store(&armed, false);
	/* Who came before that has found the timer armed. */
	if (tcp_sock_listeners_look() && !atomic_exchange(&armed, true))
		timer_set(fd, LOOK_MS);
}

void client_timer_start(void)
{
	int fd, none = -1, err;

	if (atomic_load_explicit(&timer_fd, memory_order_relaxed) >= 0)
		return;
	fd = OWN_FD(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
	err = fd < 0 ? -errno : worker_fd_add(fd, EPOLLIN, due, NULL);
	if (err)
		log_error("no timer for clients that wait for accept(), who wait longer "
			  "therefore: %s",
			  strerror(-err));
	else if (atomic_compare_exchange_strong(&timer_fd, &none, fd))
		return;
	else
		worker_fd_del(fd, NULL);
	if (fd >= 0)
		own_fd_close(fd);
}

void client_timer_go(void)
{
	int fd = atomic_load_explicit(&timer_fd, memory_order_relaxed);

	if (fd >= 0 && !atomic_load(&armed) && !atomic_exchange(&armed, true))
		timer_set(fd, LOOK_MS);
}

void client_timer_forked(void)
{
	int fd = atomic_exchange(&timer_fd, -1);

	if (fd >= 0)
		own_fd_close(fd);
	atomic_store(&armed, false);
}
