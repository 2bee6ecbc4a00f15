/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* New processes and new programs, and the loading of this library itself. */
#include "preload/preload.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "handover/handover.h"
#include "iomux/iomux.h"
#include "preload/start.h"
#include "preload/poll_calls.h"
#include "runtime/runtime.h"
#include "stack/stack.h"
#include "socket/tcp/sock.h"

/* libc itself reads and writes these: stdio. */
#define FD_STDIO_MAX 2

/* This thread forks, and the child can claim what it inherits. */
static __thread bool claimable __attribute__((tls_model("initial-exec")));

/*
 * What another process will have, too, goes to the kernel, which counts who has it. all: also what
 * closes on exec.
 */
static void share(int last, bool all, struct vma_stats_why why)
{
	for (int fd = 0; fd < vfd_limit() && fd <= last; fd++) {
		struct vfd *v = vfd_get(fd);

		if (v && v->ops->share && (all || !(libc.fcntl(fd, F_GETFD) & FD_CLOEXEC)))
			v->ops->share(v, why);
	}
}

/* This thread has locked all that the child is to find unlocked: not where the library has left. */
static __thread bool prepared __attribute__((tls_model("initial-exec")));

static void fork_prepare(void)
{
	prepared = !library_has_left();
	if (!prepared)
		return;
	share(claimable ? FD_STDIO_MAX : INT_MAX, true, STATS_WHY(FORK));
	worker_pause();
	stacks_fork_prepare();
	vfd_fork_prepare(); /* before the next: signals are blocked from here on */
	worker_fork_prepare();
	own_fd_bar(); /* the child would have a descriptor of ours that nobody there knows */
	own_fd_limit_lock();
}

static void fork_parent(void)
{
	if (!prepared)
		return;
	own_fd_limit_unlock();
	own_fd_unbar();
	worker_fork_parent();
	vfd_fork_parent();
	stacks_fork_parent();
}

static void forked_child(void)
{
	process_mark_forked();
	if (!prepared) {
		own_fd_forked_unprepared();
		library_forked_child();
		return;
	}
	own_fd_forked();
	worker_fork_child();
	stacks_fork_parent(); /* this thread took the lock */
	vfd_fork_child();
	library_forked_child();
	vfd_fork_child_done();
}

/* As pthread_atfork() handlers, because daemon(), forkpty() and others fork inside libc. */
__attribute__((constructor(102))) static void register_fork_handlers(void)
{
	atfork_add_behind_allocator(fork_prepare, fork_parent, forked_child);
}

/* Each object has its own; the compiler's start files define it. */
extern void *__dso_handle __attribute__((visibility("hidden")));

/* Not where a sanitizer is: its runtime calls this before it has begun itself. */
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
/* What pthread_atfork() is in each object that calls it. */
PRELOAD int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
			      void *dso)
{
	bool ours = dso == &__dso_handle;
	bool allocators = !ours && atfork_is_allocators(prepare ? prepare : child);
	int err;

	if (!ours && !allocators)
		atfork_settle();
	err = libc.__register_atfork(prepare, parent, child, dso);
	if (allocators)
		atfork_allocator_registered();
	return err;
}
#endif

static pid_t fork_sockets(void)
{
	struct handover_fork f;
	pid_t pid;

	claimable = handover_fork_begin(&f);
	pid = libc.fork();
	claimable = false;
	if (pid)
		KEEPING_ERRNO(handover_fork_end(&f, pid));
	else
		handover_fork_child(&f);
	return pid;
}

PRELOAD pid_t fork(void)
{
	/* Also without sockets: libc calls fork_prepare() and its like. */
	return KEEP_ERRNO(likely(table_empty()) ? libc.fork() : fork_sockets());
}
PRELOAD_ALIAS(__fork, fork);

/*
 * Of the fork that runs no handlers nothing would tell the library: the child would go on with its
 * parent's rings and pages. Where there are any it becomes a fork(). pid_t(void) as in glibc's
 * unistd.h.
 */
PRELOAD pid_t _Fork(void)
{
	return table_empty() && !library_has_begun() ? libc._Fork() : fork();
}

/*
 * A child of vfork() runs in its parent's memory, where closing what it does not need would close
 * the parent's sockets. It gets memory of its own.
 */
PRELOAD pid_t vfork(void)
{
	return fork();
}
PRELOAD_ALIAS(__vfork, vfork);

PRELOAD int daemon(int nochdir, int noclose)
{
	/*
	 * The parent ends inside libc, where nobody hears of it: what is closed and not over would
	 * end with it.
	 */
	KEEPING_ERRNO(handover_at_exec());
	return KEEP_ERRNO(libc.daemon(nochdir, noclose));
}

/*
 * The new program finds each inherited socket as the kernel's own, under the same number. Nothing
 * of the library goes along: its fds are close-on-exec. Said in the log, because datagrams that
 * wait in user space do not go along either.
 */
static void exec_note(void)
{
	if (likely(table_empty()) || !log_enabled(LOG_DEBUG))
		return;
	for (int fd = 0; fd < vfd_limit(); fd++)
		if (vfd_get(fd) && !(libc.fcntl(fd, F_GETFD) & FD_CLOEXEC))
			log_debug("exec: fd %d becomes a kernel fd in the new program", fd);
}

/* A connection of user space would be an idle kernel socket in the new program. */
static void exec_prepare(void)
{
	handover_at_exec(); /* also what is closed and not over */
	if (likely(table_empty()))
		return;
	share(INT_MAX, false, STATS_WHY(PASSED));
	exec_note();
}

/* File actions may copy any fd to where the program finds it. */
static void spawn_prepare(bool actions)
{
	if (likely(table_empty()))
		return;
	share(INT_MAX, actions, STATS_WHY(FORK));
	exec_note();
}

/* call, which makes a process or a program inside libc: that gets our RLIMIT_NOFILE as it is. */
#define SPAWNED(call)                                                                              \
	({                                                                                         \
		__typeof__(call) ret_;                                                             \
		int err_;                                                                          \
                                                                                                   \
		own_fd_limit_keep();                                                               \
		ret_ = call;                                                                       \
		err_ = errno;                                                                      \
		own_fd_limit_unkeep();                                                             \
		errno = err_;                                                                      \
		ret_;                                                                              \
	})

PRELOAD int execve(const char *path, char *const argv[], char *const envp[])
{
	KEEPING_ERRNO(exec_prepare());
	return SPAWNED(libc.execve(path, argv, envp));
}

PRELOAD int execv(const char *path, char *const argv[])
{
	return execve(path, argv, environ);
}

PRELOAD int execvpe(const char *file, char *const argv[], char *const envp[])
{
	KEEPING_ERRNO(exec_prepare());
	return SPAWNED(libc.execvpe(file, argv, envp));
}

PRELOAD int execvp(const char *file, char *const argv[])
{
	return execvpe(file, argv, environ);
}

PRELOAD int execveat(int dir, const char *path, char *const argv[], char *const envp[], int flags)
{
	KEEPING_ERRNO(exec_prepare());
	return SPAWNED(libc.execveat(dir, path, argv, envp, flags));
}

PRELOAD int fexecve(int fd, char *const argv[], char *const envp[])
{
	KEEPING_ERRNO(exec_prepare());
	return SPAWNED(libc.fexecve(fd, argv, envp));
}

/* The length of a list of arguments after arg, without its NULL. */
static size_t list_length(va_list from)
{
	size_t n = 0;
	va_list ap;

	va_copy(ap, from);
	while (va_arg(ap, char *))
		n++;
	va_end(ap);
	return n;
}

/* argv[0..n+1]: arg, the n of ap, NULL. Takes the NULL from ap, too. */
static void list_copy(char **argv, const char *arg, va_list *ap, size_t n)
{
	argv[0] = (char *)arg;
	for (size_t i = 1; i <= n + 1; i++)
		argv[i] = va_arg(*ap, char *);
}

/* On the stack, as exec must be callable from a signal handler. */
#define EXEC_LIST(argv, arg, ap)                                                                   \
	size_t argv##_n = list_length(ap);                                                         \
	char *argv[argv##_n + 2];                                                                  \
	list_copy(argv, arg, &(ap), argv##_n)

PRELOAD int execl(const char *path, const char *arg, ...)
{
	va_list ap;

	va_start(ap, arg);
	EXEC_LIST(argv, arg, ap);
	va_end(ap);
	return execve(path, argv, environ);
}

PRELOAD int execlp(const char *file, const char *arg, ...)
{
	va_list ap;

	va_start(ap, arg);
	EXEC_LIST(argv, arg, ap);
	va_end(ap);
	return execvpe(file, argv, environ);
}

PRELOAD int execle(const char *path, const char *arg, ...)
{
	char *const *envp;
	va_list ap;

	va_start(ap, arg);
	EXEC_LIST(argv, arg, ap);
	envp = va_arg(ap, char *const *);
	va_end(ap);
	return execve(path, argv, envp);
}

/*
 * The child of a spawn runs libc's own code only, between a vfork of libc's and the exec: nothing
 * of ours is touched.
 */
PRELOAD int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *acts,
			const posix_spawnattr_t *attr, char *const argv[], char *const envp[])
{
	KEEPING_ERRNO(spawn_prepare(acts != NULL));
	return SPAWNED(libc.posix_spawn(pid, path, acts, attr, argv, envp));
}

PRELOAD int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *acts,
			 const posix_spawnattr_t *attr, char *const argv[], char *const envp[])
{
	KEEPING_ERRNO(spawn_prepare(acts != NULL));
	return SPAWNED(libc.posix_spawnp(pid, file, acts, attr, argv, envp));
}

typedef int pidfd_spawn_t(int *pidfd, const char *path, const posix_spawn_file_actions_t *acts,
			  const posix_spawnattr_t *attr, char *const argv[], char *const envp[]);

/*
 * As glibc's pidfd_spawn() or pidfd_spawnp(), by name. Both came with 2.39, and the headers of an
 * older one do not have them. Not in libc's table: dlsym() allocates for a name that it does not
 * find, and the table may be filled inside malloc().
 */
static int pidfd_spawn_by(const char *name, int *pidfd, const char *path,
			  const posix_spawn_file_actions_t *acts, const posix_spawnattr_t *attr,
			  char *const argv[], char *const envp[])
{
	pidfd_spawn_t *fn = (pidfd_spawn_t *)dlsym(RTLD_NEXT, name);
	int ret;

	if (!fn)
		return ENOSYS;
	KEEPING_ERRNO(spawn_prepare(acts != NULL));
	ret = SPAWNED(fn(pidfd, path, acts, attr, argv, envp));
	if (ret == 0)
		(void)fd_fresh(*pidfd);
	return ret;
}

PRELOAD pidfd_spawn_t pidfd_spawn, pidfd_spawnp;

int pidfd_spawn(int *pidfd, const char *path, const posix_spawn_file_actions_t *acts,
		const posix_spawnattr_t *attr, char *const argv[], char *const envp[])
{
	return pidfd_spawn_by("pidfd_spawn", pidfd, path, acts, attr, argv, envp);
}

int pidfd_spawnp(int *pidfd, const char *file, const posix_spawn_file_actions_t *acts,
		 const posix_spawnattr_t *attr, char *const argv[], char *const envp[])
{
	return pidfd_spawn_by("pidfd_spawnp", pidfd, file, acts, attr, argv, envp);
}

/* These two spawn a shell inside libc. */
PRELOAD int system(const char *command)
{
	if (command)
		KEEPING_ERRNO(spawn_prepare(false));
	return SPAWNED(libc.system(command));
}

PRELOAD FILE *popen(const char *command, const char *mode)
{
	KEEPING_ERRNO(spawn_prepare(false));
	return SPAWNED(libc.popen(command, mode));
}

/* Neither destructors nor atexit() run. May be called in a signal handler. */
PRELOAD void _exit(int status)
{
	handover_at_end();
	libc._exit(status);
	__builtin_unreachable();
}
PRELOAD_ALIAS(_Exit, _exit);

/* quick_exit() ends with libc's own _exit(). Who registers first runs last. */
__attribute__((constructor(102))) static void register_quick_exit(void)
{
	if (at_quick_exit(handover_at_end))
		log_warn("at_quick_exit: no memory: quick_exit() will not close connections as the "
			 "kernel does");
}

/*
 * --- RLIMIT_NOFILE of this process, which the library raises for a moment when it makes a
 * descriptor of its own (runtime/own_fd.h): who reads or sets it comes before that or after it.
 */

NO_SANITIZERS static int limit_call(pid_t pid, __rlimit_resource_t what, const struct rlimit *new,
				    struct rlimit *old)
{
	return (int)libc_raw(SYS_prlimit64, pid, (long)what, (long)(uintptr_t) new,
			     (long)(uintptr_t)old, 0, 0);
}

/* Of RLIMIT_NOFILE of this process. */
static int limit_call_alone(const struct rlimit *new, struct rlimit *old)
{
	int ret, err;

	own_fd_limit_lock();
	ret = limit_call(0, RLIMIT_NOFILE, new, old);
	err = errno;
	if (new)
		iomux_limit_changed();
	own_fd_limit_unlock();
	errno = err;
	return ret;
}

NO_SANITIZERS PRELOAD int prlimit(pid_t pid, __rlimit_resource_t what, const struct rlimit *new,
				  struct rlimit *old)
{
	if (what == RLIMIT_NOFILE && (!pid || pid == getpid()))
		return limit_call_alone(new, old);
	return limit_call(pid, what, new, old);
}
PRELOAD_ALIAS(prlimit64, prlimit);

NO_SANITIZERS PRELOAD int getrlimit(__rlimit_resource_t what, struct rlimit *limit)
{
	return prlimit(0, what, NULL, limit);
}
PRELOAD_ALIAS(getrlimit64, getrlimit);

NO_SANITIZERS PRELOAD int setrlimit(__rlimit_resource_t what, const struct rlimit *limit)
{
	return prlimit(0, what, limit, NULL);
}
PRELOAD_ALIAS(setrlimit64, setrlimit);
