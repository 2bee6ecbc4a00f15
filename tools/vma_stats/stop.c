/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "stop.h"

#include <stddef.h>
#include <time.h>

static volatile sig_atomic_t asked;
static sigset_t outside; /* the mask in stop_poll() */

static void on_signal(int signal)
{
	(void)signal;
	asked = 1;
}

void stop_on(int signal)
{
	struct sigaction action = {.sa_handler = on_signal};

	sigaction(signal, &action, NULL);
}

bool stop_asked(void)
{
	return asked;
}

void stop_hold(void)
{
	static const int held[] = {SIGINT, SIGTERM, SIGHUP, SIGWINCH};
	sigset_t set;

	sigemptyset(&set);
	for (unsigned i = 0; i < sizeof(held) / sizeof(held[0]); i++)
		sigaddset(&set, held[i]);
	sigprocmask(SIG_BLOCK, &set, &outside);
	/* Who started the tool may have blocked them. */
	for (unsigned i = 0; i < sizeof(held) / sizeof(held[0]); i++)
		sigdelset(&outside, held[i]);
}

int stop_poll(struct pollfd *fds, unsigned n, int timeout_ms)
{
	struct timespec t = {.tv_sec = timeout_ms / 1000,
			     .tv_nsec = (long)(timeout_ms % 1000) * 1000000};

	return ppoll(fds, n, timeout_ms < 0 ? NULL : &t, &outside);
}
