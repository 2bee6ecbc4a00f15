/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Handlers are installed behind a function of ours that counts and calls them: a call that spins in
 * user space learns so that it was interrupted. The application is always told its own handlers.
 */
#include "preload/preload.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "preload/fatal.h"
#include "preload/memory.h"
#include "runtime/runtime.h"

typedef void (*info_handler_t)(int, siginfo_t *, void *);

/*
 * The application's handlers, one array for each form: while sigaction() changes the form, a signal
 * still finds the handler that belongs to the form which the kernel has. Written by whoever calls
 * sigaction(), read by the handlers.
 */
static struct {
	_Atomic(sighandler_t) plain;
	_Atomic(info_handler_t) info;
	_Atomic bool restart;
	/* SA_RESETHAND: the kernel has forgotten the handler by the time it runs */
	_Atomic bool once;
} actions[_NSIG];

/*
 * Signals that came while this thread held a lock of the library: they are sent to it again when it
 * holds none.
 */
#define DEFERRED_MAX 16
struct deferred {
	_Atomic bool taken;
	/* More came: they wait in the kernel, blocked, until the thread has its own mask again. */
	bool blocked;
	sigset_t mask;
	siginfo_t info[DEFERRED_MAX];
};
/*
 * So many threads can have signals that wait at the same time: a moment each, and rare. Not in the
 * thread's storage, of which a library loaded with dlopen() finds little.
 */
#define DEFERRED_THREADS 256
static struct deferred deferred_pool[DEFERRED_THREADS];
static __thread int deferred_num;
static __thread struct deferred *_Atomic deferred; /* NULL: none wait */

/* Raised by what the thread does itself: it cannot go on without the handler. */
static bool synchronous(int sig)
{
	return sig == SIGSEGV || sig == SIGBUS || sig == SIGILL || sig == SIGFPE ||
	       sig == SIGTRAP || sig == SIGSYS || sig == SIGABRT;
}

/* This thread's place for signals that wait; NULL: all are taken. */
static struct deferred *deferred_get(void)
{
	struct deferred *d = atomic_load_explicit(&deferred, memory_order_relaxed);
	unsigned i = 0;

	if (d)
		return d;
	while (i < DEFERRED_THREADS &&
	       atomic_exchange_explicit(&deferred_pool[i].taken, true, memory_order_acquire))
		i++;
	if (i == DEFERRED_THREADS)
		return NULL;
	/* Another signal may have interrupted this one. */
	if (!atomic_compare_exchange_strong(&deferred, &d, &deferred_pool[i])) {
		atomic_store_explicit(&deferred_pool[i].taken, false, memory_order_relaxed);
		return d;
	}
	return &deferred_pool[i];
}

void signal_forked(void)
{
	const struct deferred *mine = atomic_load_explicit(&deferred, memory_order_relaxed);

	for (unsigned i = 0; i < DEFERRED_THREADS; i++)
		if (&deferred_pool[i] != mine)
			atomic_store_explicit(&deferred_pool[i].taken, false, memory_order_relaxed);
}

/* To this thread, as info describes it. */
static void send_again(siginfo_t *info)
{
	int sig = info->si_signo;

	if (libc_raw(SYS_rt_tgsigqueueinfo, getpid(), lock_self(), sig, (long)(uintptr_t)info, 0,
		     0) < 0)
		libc_raw(SYS_tgkill, getpid(), lock_self(), sig, 0, 0, 0);
}

/* The kernel's set in context: shorter than libc's, whose rest is not there. */
#define KERNEL_MASK ((_NSIG - 1) / 8)

/*
 * There is no more room, and a handler that left for good (siglongjmp()) would leave a lock and
 * watches behind: the signal goes back to the kernel, and no other one interrupts what context
 * holds before deferred_send(). Where that is another handler of ours it comes again at once, to
 * what that one interrupted.
 */
static void leave_to_kernel(struct deferred *d, siginfo_t info, ucontext_t *context)
{
	sigset_t all, before;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL); /* until this handler returns */
	for (int sig = 1; sig < _NSIG; sig++)
		if (synchronous(sig))
			sigdelset(&all, sig);
	sigemptyset(&before);
	memcpy(&before, &context->uc_sigmask, KERNEL_MASK);
	sigorset(&all, &all, &before);
	/* Else ppoll() let it in by a mask of its own, and the thread's is known. */
	if (memcmp(&all, &before, KERNEL_MASK) != 0)
		d->mask = before;
	d->blocked = true;
	memcpy(&context->uc_sigmask, &all, KERNEL_MASK);
	send_again(&info);
}

/* True: the handler is not to run now. info and context, of what is interrupted, may be NULL. */
bool signal_defer(int sig, const siginfo_t *info, void *context)
{
	siginfo_t what = info ? *info : (siginfo_t){.si_code = SI_TKILL};
	struct deferred *d;
	int n, err = errno;

	what.si_signo = sig;
	if (likely(!lock_thread.depth) || synchronous(sig) ||
	    atomic_load_explicit(&actions[sig].once, memory_order_relaxed))
		return false;
	d = deferred_get();
	if (!d)
		return false;
	/* One step, because another signal may interrupt this one. */
	n = __atomic_fetch_add(&deferred_num, 1, __ATOMIC_RELAXED);
	if (n >= DEFERRED_MAX) {
		__atomic_fetch_sub(&deferred_num, 1, __ATOMIC_RELAXED);
		if (!context)
			return false;
		leave_to_kernel(d, what, context);
		errno = err;
		return true;
	}
	d->info[n] = what;
	lock_thread.deferred = true;
	signals_came();
	return true;
}

/* The kernel delivers them anew, with the mask and on the stack that the handler asked for. */
static void deferred_send(void)
{
	struct deferred *d;
	sigset_t all, old;
	int err = errno;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	d = atomic_load_explicit(&deferred, memory_order_relaxed);
	for (int i = 0; i < deferred_num; i++)
		send_again(&d->info[i]);
	deferred_num = 0;
	atomic_store_explicit(&deferred, NULL, memory_order_relaxed);
	if (d) {
		if (d->blocked)
			old = d->mask;
		d->blocked = false;
		atomic_store_explicit(&d->taken, false, memory_order_release);
	}
	lock_thread.deferred = false;
	errno = err;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	errno = err;
}

__attribute__((constructor)) static void deferred_init(void)
{
	lock_deferred_fn = deferred_send;
}

__thread int handlers_inside __attribute__((tls_model("initial-exec")));

/* The application's handler is about to run. Keeps errno. */
static void begin(int sig)
{
	int err = errno;

	signals_handled++;
	if (!atomic_load_explicit(&actions[sig].restart, memory_order_relaxed))
		signals_interrupting++;
	signals_came();
	if (unlikely(atomic_exchange_explicit(&actions[sig].once, false, memory_order_relaxed)))
		fatal_again(sig);
	errno = err;
}

bool signal_touched(int sig, void *context)
{
	return unlikely(sig == SIGSEGV || sig == SIGBUS) &&
	       !atomic_load_explicit(&actions[sig].once, memory_order_relaxed) &&
	       memory_recover(context);
}

#if defined(__x86_64__)
/* The kernel gives all three to any handler. */
static void plain_entry3(int sig, siginfo_t *info, void *context)
{
	int inside = libc_internal > 0;
	struct vfd_held held;

	(void)info;
	if (signal_touched(sig, context) || signal_defer(sig, NULL, context))
		return;
	begin(sig);
	held = vfd_hold_pause();
	handlers_inside += inside;
	atomic_load_explicit(&actions[sig].plain, memory_order_acquire)(sig);
	handlers_inside -= inside;
	vfd_hold_resume(held);
}
#define plain_entry ((sighandler_t)(void (*)(void))plain_entry3)
#else
static void plain_entry(int sig)
{
	int inside = libc_internal > 0;
	struct vfd_held held;

	if (signal_defer(sig, NULL, NULL))
		return;
	begin(sig);
	held = vfd_hold_pause();
	handlers_inside += inside;
	atomic_load_explicit(&actions[sig].plain, memory_order_acquire)(sig);
	handlers_inside -= inside;
	vfd_hold_resume(held);
}
#endif

static void info_entry(int sig, siginfo_t *info, void *context)
{
	int inside = libc_internal > 0;
	struct vfd_held held;

	if (signal_touched(sig, context) || signal_defer(sig, info, context))
		return;
	begin(sig);
	held = vfd_hold_pause();
	handlers_inside += inside;
	atomic_load_explicit(&actions[sig].info, memory_order_acquire)(sig, info, context);
	handlers_inside -= inside;
	vfd_hold_resume(held);
}

static bool is_function(sighandler_t h)
{
	return h != SIG_DFL && h != SIG_IGN && h != SIG_ERR;
}

/* What the kernel said, in the application's terms. */
static void translate(struct sigaction *old, sighandler_t plain, info_handler_t info)
{
	fatal_hide(old);
	if (old->sa_flags & SA_SIGINFO) {
		if (old->sa_sigaction == info_entry)
			old->sa_sigaction = info;
	} else if (old->sa_handler == plain_entry) {
		old->sa_handler = plain;
	}
}

PRELOAD int sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	struct sigaction new;
	sighandler_t plain;
	info_handler_t info;
	bool restart;
	int ret;

	if (sig <= 0 || sig >= _NSIG)
		return libc.sigaction(sig, act, old);
	plain = atomic_load(&actions[sig].plain);
	info = atomic_load(&actions[sig].info);
	restart = atomic_load(&actions[sig].restart);
	if (act) {
		memcpy(&new, act, sizeof(new)); /* act may be old */
		if (is_function(act->sa_handler)) {
			atomic_store(&actions[sig].restart, (act->sa_flags & SA_RESTART) != 0);
			atomic_store(&actions[sig].once, (act->sa_flags & SA_RESETHAND) != 0);
			if (act->sa_flags & SA_SIGINFO) {
				atomic_store(&actions[sig].info, act->sa_sigaction);
				new.sa_sigaction = info_entry;
			} else {
				atomic_store(&actions[sig].plain, act->sa_handler);
				new.sa_handler = plain_entry;
			}
		} else if (act->sa_handler == SIG_DFL) {
			fatal_instead(sig, &new);
		}
	}
	ret = libc.sigaction(sig, act ? &new : NULL, old);
	if (ret < 0) {
		atomic_store(&actions[sig].plain, plain);
		atomic_store(&actions[sig].info, info);
		atomic_store(&actions[sig].restart, restart);
	} else if (old) {
		translate(old, plain, info);
	}
	return ret;
}
PRELOAD_ALIAS(__sigaction, sigaction);

PRELOAD sighandler_t signal(int sig, sighandler_t handler)
{
	sighandler_t plain, old;
	info_handler_t info;
	struct sigaction now;

	if (sig <= 0 || sig >= _NSIG || handler == SIG_ERR)
		return libc.signal(sig, handler);
	plain = atomic_load(&actions[sig].plain);
	info = atomic_load(&actions[sig].info);
	if (is_function(handler)) {
		atomic_store(&actions[sig].plain, handler);
		atomic_store(&actions[sig].once, false);
		old = libc.signal(sig, plain_entry);
		/*
		 * libc decides whether calls are restarted: siginterrupt() may have said no before.
		 */
		if (old != SIG_ERR && libc.sigaction(sig, NULL, &now) == 0)
			atomic_store(&actions[sig].restart, (now.sa_flags & SA_RESTART) != 0);
	} else {
		old = libc.signal(sig, handler);
		if (handler == SIG_DFL && old != SIG_ERR)
			fatal_again(sig);
	}
	if (old == SIG_ERR)
		atomic_store(&actions[sig].plain, plain);
	else if (fatal_is(old))
		old = SIG_DFL;
	else if (old == plain_entry)
		old = plain;
	else if ((void (*)(void))old == (void (*)(void))info_entry)
		old = (sighandler_t)(void (*)(void))info;
	return old;
}

PRELOAD int siginterrupt(int sig, int interrupt)
{
	int ret = libc.siginterrupt(sig, interrupt);

	if (ret == 0)
		atomic_store(&actions[sig].restart, !interrupt);
	return ret;
}
