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
#include "config/config.h"
#include "runtime/runtime.h"

typedef void (*info_handler_t)(int, siginfo_t *, void *);

/* What the kernel calls in place of the application's handlers. */
static void info_entry(int sig, siginfo_t *info, void *context);
static void plain_info_entry(int sig, siginfo_t *info, void *context);
#if defined(__x86_64__)
static void plain_entry3(int sig, siginfo_t *info, void *context);
#define plain_entry ((sighandler_t)(void (*)(void))plain_entry3)
#else
static void plain_entry(int sig);
#endif

/*
 * A handler for one time (SA_RESETHAND). The kernel would forget it before we know whether it may
 * run now, so it has no such flag from us, and begin() does that.
 */
enum once {
	ONCE_NOT,
	ONCE_ARMED,
	ONCE_SPENT, /* the next one meets SIG_DFL, as soon as the kernel has heard */
};

/*
 * The application's handlers, one array for each form: while sigaction() changes the form, a signal
 * still finds the handler that belongs to the form which the kernel has. Written by whoever calls
 * sigaction(), read by the handlers.
 */
static struct {
	_Atomic(sighandler_t) plain;
	_Atomic(info_handler_t) info;
	_Atomic int flags; /* as the application gave them */
	_Atomic int dfl_flags; /* the same of SIG_DFL */
	_Atomic bool interrupts; /* siginterrupt(): signal() installs without SA_RESTART */
	_Atomic uint8_t once; /* enum once */
} actions[_NSIG];

/*
 * Who sets or spends a handler for one time. No handler of this thread runs meanwhile but of what
 * it raises itself.
 */
static _Atomic bool once_busy;

/*
 * Signals that came while this thread held a lock of the library: they are sent to it again when it
 * holds none.
 */
#define DEFERRED_MAX 32
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

/* And it did: the kernel found it, or it is raise() or abort(). */
static bool is_its_own(const siginfo_t *info)
{
	return !info || info->si_code > 0 || info->si_pid == getpid();
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
	atomic_store_explicit(&once_busy, false, memory_order_relaxed);
	fatal_forked();
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

static siginfo_t described(int sig, const siginfo_t *info)
{
	siginfo_t what = info ? *info : (siginfo_t){.si_code = SI_TKILL};

	what.si_signo = sig;
	return what;
}

/*
 * One of these waits already: as with the kernel's own pending signals the second one is none
 * (signal(7)). So room is short for real-time signals only.
 */
static bool waits_already(const struct deferred *d, int sig)
{
	int n = deferred_num < DEFERRED_MAX ? deferred_num : DEFERRED_MAX;

	for (int i = 0; sig < SIGRTMIN && i < n; i++)
		if (d->info[i].si_signo == sig)
			return true;
	return false;
}

/* True: the handler is not to run now. info and context, of what is interrupted, may be NULL. */
bool signal_defer(int sig, const siginfo_t *info, void *context)
{
	siginfo_t what = described(sig, info);
	struct deferred *d;
	int n, err = errno;

	if (likely(!lock_thread.depth) || (synchronous(sig) && is_its_own(info)))
		return false;
	d = deferred_get();
	if (!d)
		return false;
	if (waits_already(d, sig))
		return true;
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
	for (int i = 0; i < deferred_num; i++) {
		send_again(&d->info[i]);
		/* waits_already() may look at the place before the next one is written. */
		d->info[i].si_signo = 0;
	}
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

static void once_take(void)
{
	lock_enter();
	while (atomic_exchange_explicit(&once_busy, true, memory_order_acquire))
		clock_sleep_ns(1000);
}

static void once_drop(void)
{
	atomic_store_explicit(&once_busy, false, memory_order_release);
	lock_leave();
}

static bool is_plain_entry(const struct sigaction *act)
{
	if (act->sa_flags & SA_SIGINFO)
		return act->sa_sigaction == plain_info_entry;
	return act->sa_handler == plain_entry;
}

static bool is_info_entry(const struct sigaction *act)
{
	return (act->sa_flags & SA_SIGINFO) && act->sa_sigaction == info_entry;
}

/* SIG_DFL, as sigaction(2) has it after a handler for one time; nobody has changed it since. */
static void reset(int sig)
{
	struct sigaction now;

	if (libc.sigaction(sig, NULL, &now) || !(is_plain_entry(&now) || is_info_entry(&now)))
		return;
	atomic_store(&actions[sig].dfl_flags, atomic_load(&actions[sig].flags));
	now.sa_handler = SIG_DFL;
	fatal_instead(sig, &now);
	libc.sigaction(sig, &now, NULL);
}

/* False: another thread was faster, and this signal is not the handler's any more. */
static bool spend(int sig)
{
	uint8_t armed = ONCE_ARMED;
	bool mine;

	once_take();
	mine = atomic_compare_exchange_strong(&actions[sig].once, &armed, ONCE_SPENT);
	if (mine)
		reset(sig);
	once_drop();
	return mine || armed == ONCE_NOT;
}

/*
 * Calls that wait end with EINTR. At SIGINT with VMA_HANDLE_SIGINTR all do, as the original's: by
 * signal(), with SA_RESTART, too.
 */
static bool interrupts(int sig)
{
	if (sig == SIGINT && params.handle_sigintr) {
		log_debug("SIGINT: calls that wait end, and the program's handler runs");
		return true;
	}
	return !(atomic_load_explicit(&actions[sig].flags, memory_order_relaxed) & SA_RESTART);
}

/*
 * The application's handler is about to run. Keeps errno. False: it is not to, but what stands in
 * its place by now.
 */
static bool begin(int sig, const siginfo_t *info)
{
	int err = errno;

	if (unlikely(atomic_load_explicit(&actions[sig].once, memory_order_relaxed)) &&
	    !spend(sig)) {
		siginfo_t again = described(sig, info);

		send_again(&again);
		errno = err;
		return false;
	}
	signals_handled++;
	if (interrupts(sig))
		signals_interrupting++;
	signals_came();
	errno = err;
	return true;
}

bool signal_touched(int sig, void *context)
{
	return unlikely(sig == SIGSEGV || sig == SIGBUS) && context && memory_recover(context);
}

/* What the thread was in the middle of when the application's handler began. */
struct interrupted {
	int inside;
	struct vfd_held held;
};

/* info and context may be NULL. False: the handler does not run. */
static bool enter(int sig, const siginfo_t *info, void *context, struct interrupted *what)
{
	if (signal_touched(sig, context) || signal_defer(sig, info, context) || !begin(sig, info))
		return false;
	fatal_backtrace(sig, info, context);
	what->inside = libc_internal > 0;
	what->held = vfd_hold_pause();
	handlers_inside += what->inside;
	return true;
}

static void leave(const struct interrupted *what)
{
	handlers_inside -= what->inside;
	vfd_hold_resume(what->held);
}

static void call_plain(int sig, const siginfo_t *info, void *context)
{
	struct interrupted what;

	if (!enter(sig, info, context, &what))
		return;
	atomic_load_explicit(&actions[sig].plain, memory_order_acquire)(sig);
	leave(&what);
}

#if defined(__x86_64__)
/* The kernel gives all three to any handler, but info says nothing. */
static void plain_entry3(int sig, siginfo_t *info, void *context)
{
	(void)info;
	call_plain(sig, NULL, context);
}
#else
static void plain_entry(int sig)
{
	call_plain(sig, NULL, NULL);
}
#endif

/* Of the signals of which we must know where they come from. */
static void plain_info_entry(int sig, siginfo_t *info, void *context)
{
	call_plain(sig, info, context);
}

static void info_entry(int sig, siginfo_t *info, void *context)
{
	struct interrupted what;

	if (!enter(sig, info, context, &what))
		return;
	atomic_load_explicit(&actions[sig].info, memory_order_acquire)(sig, info, context);
	leave(&what);
}

static bool is_function(sighandler_t h)
{
	return h != SIG_DFL && h != SIG_IGN && h != SIG_ERR;
}

/* What the application has said of a signal; of SIG_DFL only the flags. */
struct said {
	sighandler_t plain;
	info_handler_t info;
	int flags, dfl_flags;
	uint8_t once;
};

static struct said said_of(int sig)
{
	return (struct said){.plain = atomic_load(&actions[sig].plain),
			     .info = atomic_load(&actions[sig].info),
			     .flags = atomic_load(&actions[sig].flags),
			     .dfl_flags = atomic_load(&actions[sig].dfl_flags),
			     .once = atomic_load(&actions[sig].once)};
}

static void say(int sig, const struct said *what)
{
	atomic_store(&actions[sig].flags, what->flags);
	atomic_store(&actions[sig].dfl_flags, what->dfl_flags);
	atomic_store(&actions[sig].once, what->once);
	atomic_store(&actions[sig].info, what->info);
	atomic_store(&actions[sig].plain, what->plain);
}

/* What the application sees in our place, and which of its flags the kernel does not have so. */
#define FLAGS_OF_OURS (SA_RESETHAND | SA_SIGINFO | SA_ONSTACK)

/* What the kernel said, in the application's terms. */
static void translate(struct sigaction *old, const struct said *said)
{
	int flags = said->flags;

	if (fatal_is(old->sa_handler)) {
		old->sa_handler = SIG_DFL;
		flags = said->dfl_flags;
	} else if (is_info_entry(old)) {
		old->sa_sigaction = said->info;
	} else if (is_plain_entry(old)) {
		old->sa_handler = said->plain;
	} else {
		return;
	}
	old->sa_flags = (old->sa_flags & ~FLAGS_OF_OURS) | (flags & FLAGS_OF_OURS);
}

static void enter_plain(int sig, struct sigaction *act)
{
	if (synchronous(sig)) {
		act->sa_sigaction = plain_info_entry;
		act->sa_flags |= SA_SIGINFO;
	} else {
		act->sa_handler = plain_entry;
	}
}

/* The application says *act; what the kernel is to get is in its place afterwards. */
static void take_over(int sig, struct sigaction *act)
{
	struct said said = said_of(sig);

	if (act->sa_handler != SIG_DFL)
		fatal_no_more(sig);
	if (is_function(act->sa_handler)) {
		said.flags = act->sa_flags;
		said.once = act->sa_flags & SA_RESETHAND ? ONCE_ARMED : ONCE_NOT;
		act->sa_flags &= ~(int)SA_RESETHAND;
		if (act->sa_flags & SA_SIGINFO) {
			said.info = act->sa_sigaction;
			act->sa_sigaction = info_entry;
		} else {
			said.plain = act->sa_handler;
			enter_plain(sig, act);
		}
	} else if (act->sa_handler == SIG_DFL) {
		said.dfl_flags = act->sa_flags;
		fatal_instead(sig, act);
	}
	say(sig, &said);
}

/* As sigaction(); *old has room. */
static int change(int sig, struct sigaction *act, struct sigaction *old)
{
	struct said before = said_of(sig);
	int ret;

	take_over(sig, act);
	ret = libc.sigaction(sig, act, old);
	if (ret < 0)
		say(sig, &before);
	else
		translate(old, &before);
	return ret;
}

/* The same where a handler for one time comes or goes. */
static int change_once(int sig, struct sigaction *act, struct sigaction *old)
{
	int ret;

	once_take();
	ret = change(sig, act, old);
	once_drop();
	return ret;
}

static int ask(int sig, struct sigaction *old)
{
	int ret = libc.sigaction(sig, NULL, old);
	struct said said = said_of(sig);

	if (ret == 0)
		translate(old, &said);
	return ret;
}

PRELOAD int sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	struct sigaction new, was;
	int ret;

	if (sig <= 0 || sig >= _NSIG || (!act && !old))
		return libc.sigaction(sig, act, old);
	if (act) {
		memcpy(&new, act, sizeof(new)); /* act may be old */
		ret = new.sa_flags &SA_RESETHAND || atomic_load(&actions[sig].once) == ONCE_ARMED
			      ? change_once(sig, &new, &was)
			      : change(sig, &new, &was);
	} else {
		ret = ask(sig, &was);
	}
	if (ret == 0 && old)
		memcpy(old, &was, sizeof(was));
	return ret;
}
PRELOAD_ALIAS(__sigaction, sigaction);

PRELOAD sighandler_t signal(int sig, sighandler_t handler)
{
	struct sigaction act = {.sa_handler = handler}, old;

	if (sig <= 0 || sig >= _NSIG || handler == SIG_ERR)
		return libc.signal(sig, handler);
	sigaddset(&act.sa_mask, sig);
	act.sa_flags = atomic_load(&actions[sig].interrupts) ? 0 : SA_RESTART;
	return sigaction(sig, &act, &old) ? SIG_ERR : old.sa_handler;
}

PRELOAD_ALIAS(bsd_signal, signal);
PRELOAD_ALIAS(ssignal, signal);

/* signal() of a program that is compiled for X/Open alone. */
PRELOAD sighandler_t sysv_signal(int sig, sighandler_t handler)
{
	struct sigaction act = {.sa_handler = handler,
				.sa_flags = (int)SA_RESETHAND | SA_NODEFER | SA_INTERRUPT},
			 old;

	if (handler != SIG_ERR)
		return sigaction(sig, &act, &old) ? SIG_ERR : old.sa_handler;
	errno = EINVAL;
	return SIG_ERR;
}
PRELOAD_ALIAS(__sysv_signal, sysv_signal);

PRELOAD sighandler_t sigset(int sig, sighandler_t disposition)
{
	struct sigaction act = {.sa_handler = disposition}, old;
	const bool holds = disposition == SIG_HOLD;
	sigset_t one, blocked;

	sigemptyset(&one);
	if (sigaddset(&one, sig) || sigaction(sig, holds ? NULL : &act, &old))
		return SIG_ERR;
	pthread_sigmask(holds ? SIG_BLOCK : SIG_UNBLOCK, &one, &blocked);
	return sigismember(&blocked, sig) ? SIG_HOLD : old.sa_handler;
}

PRELOAD int siginterrupt(int sig, int interrupt)
{
	struct sigaction act;

	if (sigaction(sig, NULL, &act))
		return -1;
	atomic_store(&actions[sig].interrupts, interrupt != 0);
	act.sa_flags &= ~SA_RESTART;
	act.sa_flags |= interrupt ? 0 : SA_RESTART;
	return sigaction(sig, &act, NULL);
}
