/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "preload/preload.h"

#include "handover/handover.h"
#include "preload/fatal.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "config/config.h"
#include "runtime/runtime.h"
#include "socket/tcp/sock.h"

/* What is caught of what is at SIG_DFL. */
enum caught { NOTHING, TOUCHES, ALL };
static _Atomic int caught;
_Atomic bool fatal_begun;

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

static bool is_fault(int sig)
{
	return sig == SIGSEGV || sig == SIGBUS || sig == SIGFPE || sig == SIGILL;
}

/* Comes again by itself when the handler returns: the instruction that raised it is run again. */
static bool comes_again(int sig, const siginfo_t *info)
{
	return info->si_code > 0 && is_fault(sig);
}

/*
 * The first process of a PID namespace (a container's) does not get what it has left at SIG_DFL:
 * the kernel drops it, and delivers only the process's own faults. In fatal_entry()'s place it
 * would be delivered, and dropped when it is sent again.
 */
static bool is_first(void)
{
	return getpid() == 1;
}

/*
 * A signal that came while its thread was inside the library is put off. That is a moment, but a
 * thread that is never done must not make a process that only SIGKILL ends: the kernel sends the
 * signal once more after so many seconds, and then it is not put off.
 */
#define INSIST_S 2

static _Atomic int put_off; /* the signal; 0: none waits */
static _Atomic uint64_t put_off_ns; /* since when */
static _Atomic int insists; /* the kernel's timer, + 1; 0: there is none */

static bool waits_too_long(void)
{
	return atomic_load(&put_off) &&
	       clock_monotonic_ns() - atomic_load(&put_off_ns) >= INSIST_S * 1000000000ull;
}

/* No thread and no memory of the process is needed for it. */
static void insist(int sig)
{
	struct itimerspec when = {.it_value.tv_sec = INSIST_S, .it_interval.tv_sec = 1};
	struct sigevent what = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = sig};
	int timer;

	if (atomic_load(&put_off))
		return;
	atomic_store(&put_off_ns, clock_monotonic_ns());
	if (atomic_exchange(&put_off, sig) ||
	    libc_raw(SYS_timer_create, CLOCK_MONOTONIC, (long)(uintptr_t)&what,
		     (long)(uintptr_t)&timer, 0, 0, 0))
		return;
	libc_raw(SYS_timer_settime, timer, 0, (long)(uintptr_t)&when, 0, 0, 0);
	atomic_store(&insists, timer + 1);
}

static void insist_no_more(void)
{
	int timer = atomic_exchange(&insists, 0);

	if (timer)
		libc_raw(SYS_timer_delete, timer - 1, 0, 0, 0, 0, 0);
	atomic_store(&put_off, 0);
}

void fatal_no_more(int sig)
{
	if (atomic_load(&put_off) == sig)
		insist_no_more();
}

void fatal_backtrace(int sig, const siginfo_t *info, const void *context)
{
	if (likely(sig != SIGSEGV) || !params.handle_sigsegv)
		return;
	/* Without a fault it is somebody's kill(). */
	if (info && info->si_code > 0)
		log_write(LOG_PANIC, "Segmentation fault (SIGSEGV) at address %p:", info->si_addr);
	else
		log_write(LOG_PANIC, "Segmentation fault (SIGSEGV):");
	backtrace_log(LOG_PANIC, context);
}

/* Whatever waits for the process sees that this signal has ended it, a debugger sees where. */
static void fatal_entry(int sig, siginfo_t *info, void *context)
{
	struct sigaction dfl;
	sigset_t all;
	int err = errno;

	if (signal_touched(sig, context) || (is_first() && !comes_again(sig, info)))
		return;
	fatal_backtrace(sig, info, context);
	if (!waits_too_long() && signal_defer(sig, info, context)) {
		insist(sig);
		errno = err;
		return;
	}
	insist_no_more();
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

/* At SIG_DFL it is ours. */
static bool is_caught(int sig)
{
	switch (atomic_load(&caught)) {
	case ALL:
		return ends_process(sig) && (is_fault(sig) || !is_first());
	case TOUCHES:
		return sig == SIGSEGV || sig == SIGBUS;
	default:
		return false;
	}
}

bool fatal_is(sighandler_t h)
{
	return (void (*)(void))h == (void (*)(void))fatal_entry;
}

void fatal_instead(int sig, struct sigaction *act)
{
	if (!is_caught(sig))
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

static void prepare(void)
{
	if (params.handle_sigsegv)
		backtrace_prepare();
}

void fatal_touches_begin(void)
{
	int err = errno, nothing = NOTHING;

	prepare();
	/* Another thread may have begun with all. */
	atomic_compare_exchange_strong(&caught, &nothing, TOUCHES);
	instead_of_default(SIGSEGV);
	instead_of_default(SIGBUS);
	atomic_store(&fatal_begun, true);
	errno = err;
}

void fatal_start(void)
{
	prepare();
	atomic_store(&caught, ALL);
	for (int sig = 1; sig < _NSIG; sig++) {
		if (ends_process(sig))
			instead_of_default(sig);
	}
	atomic_store(&fatal_begun, true);
}

/* Where there is ours, the kernel's own. */
static void default_again(int sig)
{
	struct sigaction now;

	if (libc.sigaction(sig, NULL, &now) || !fatal_is(now.sa_handler))
		return;
	now.sa_handler = SIG_DFL;
	now.sa_flags &= ~(SA_SIGINFO | SA_ONSTACK);
	libc.sigaction(sig, &now, NULL);
}

void fatal_forked(void)
{
	/* The timer is the parent's. */
	atomic_store(&insists, 0);
	atomic_store(&put_off, 0);
	if (atomic_load(&caught) != ALL || !is_first())
		return;
	for (int sig = 1; sig < _NSIG; sig++) {
		if (ends_process(sig) && !is_fault(sig))
			default_again(sig);
	}
}

void fatal_stop(void)
{
	/* First: nobody touches a pointer of the program's without a handler. */
	atomic_store(&fatal_begun, false);
	atomic_store(&caught, NOTHING);
	for (int sig = 1; sig < _NSIG; sig++) {
		if (ends_process(sig))
			default_again(sig);
	}
}
