/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "preload/preload.h"

#include "handover/handover.h"
#include "preload/fatal.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/runtime.h"
#include "socket/tcp/sock.h"

static _Atomic bool started;

/* SIG_DFL ends the process (signal(7)), and the kernel lets us catch it. */
static bool ends_process(int sig)
{
	switch (sig) {
	case SIGKILL:
	case SIGSTOP:
	case SIGTSTP:
	case SIGTTIN:
	case SIGTTOU:
	case SIGCONT:
	case SIGCHLD:
	case SIGURG:
	case SIGWINCH:
		return false;
	default:
		return sig < __SIGRTMIN || sig >= SIGRTMIN; /* between them are libc's own */
	}
}

/* Comes again by itself when the handler returns: the instruction that raised it is run again. */
static bool comes_again(int sig, const siginfo_t *info)
{
	return info->si_code > 0 &&
	       (sig == SIGSEGV || sig == SIGBUS || sig == SIGFPE || sig == SIGILL);
}

/* Whatever waits for the process sees that this signal has ended it, a debugger sees where. */
static void fatal_entry(int sig, siginfo_t *info, void *context)
{
	struct sigaction dfl;
	sigset_t all;
	int err = errno;

	if (signal_touched(sig, context) || signal_defer(sig, info, context))
		return;
	sigfillset(&all); /* until this returns */
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	handover_at_end();
	memset(&dfl, 0, sizeof(dfl));
	dfl.sa_handler = SIG_DFL;
	libc.sigaction(sig, &dfl, NULL);
	if (!comes_again(sig, info) && libc_raw(SYS_rt_tgsigqueueinfo, getpid(), lock_self(), sig,
						(long)(uintptr_t)info, 0, 0) < 0)
		libc_raw(SYS_tgkill, getpid(), lock_self(), sig, 0, 0, 0);
	errno = err;
}

bool fatal_is(sighandler_t h)
{
	return (void (*)(void))h == (void (*)(void))fatal_entry;
}

void fatal_instead(int sig, struct sigaction *act)
{
	if (!atomic_load(&started) || !ends_process(sig))
		return;
	act->sa_sigaction = fatal_entry;
	act->sa_flags |= SA_SIGINFO | SA_ONSTACK;
	act->sa_flags &= ~(int)SA_RESETHAND; /* it may have to come again */
}

static void instead_of_default(int sig)
{
	struct sigaction now;

	if (libc.sigaction(sig, NULL, &now) || now.sa_handler != SIG_DFL)
		return;
	fatal_instead(sig, &now);
	libc.sigaction(sig, &now, NULL);
}

void fatal_start(void)
{
	atomic_store(&started, true);
	for (int sig = 1; sig < _NSIG; sig++) {
		if (ends_process(sig))
			instead_of_default(sig);
	}
}
