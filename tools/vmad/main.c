/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * vmad: a process without sockets that has the queues of an interface. What the library does in a
 * program's process it does here: others of this user join it, and it buries those that are killed
 * (lib/ring/xdp/member.c).
 */
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "config/config.h"
#include "options.h"
#include "preload/parts.h"
#include "runtime/runtime.h"
#include "stack/stack.h"
#include "stats/stats.h"

/* Preloaded the library would serve what it has itself: it looks whether this is there. */
__attribute__((visibility("default"), used)) const char vma_serves_itself = 1;

/* The exit status where queues cannot be shared: to start it again would change nothing. */
#define STATUS_UNSHARED 3

/* An interface that is wanted. */
struct wanted {
	const char *name;
	int ifindex; /* when it was looked for last; 0: there was none */
	struct stack *st; /* NULL: it is not there just now */
	bool is_unshared; /* its queues are one process's here */
};

/* Nobody listens here. */
static int begin_nothing(void)
{
	return 0;
}

static int library_begin(const struct options *o)
{
	if (o->verbose)
		setenv("VMA_TRACELEVEL", o->verbose, 1);
	params_load(environ);
	lock_mode = params.thread_mode ? params.thread_mode : 1;
	if (!o->console)
		log_to_syslog();
	return parts_start(begin_nothing);
}

/* Else every program would stay with the kernel that has them without us. */
static bool can_be_shared(struct stack *st)
{
	bool joins;

	lock_take(&st->lock);
	joins = st->ring->caps.joins;
	lock_drop(&st->lock);
	return joins;
}

/* Has the interface's queues if it is there and can be had. */
static bool is_kept(struct wanted *w)
{
	if (w->st && atomic_load(&w->st->open) && w->st->ifindex == w->ifindex)
		return true;
	if (w->st) {
		log_warn("vmad: %s has gone: its queues are opened again when it is back", w->name);
		stack_put(w->st);
	}
	w->ifindex = (int)if_nametoindex(w->name);
	w->st = w->ifindex ? stack_get(w->ifindex, 0) : NULL;
	if (w->st && !can_be_shared(w->st)) {
		w->is_unshared = true;
		stack_put(w->st);
		w->st = NULL;
	}
	if (w->st)
		log_info("vmad: keeps the queues of %s", w->name);
	return w->st;
}

static void complain(const struct wanted *w)
{
	char text[STATS_WHY_TEXT];
	struct vma_stats_why why;

	if (!w->ifindex) {
		fprintf(stderr, "vmad: there is no interface %s; see ip link\n", w->name);
		return;
	}
	if (w->is_unshared) {
		fprintf(stderr,
			"vmad: the queues of %s cannot be shared here, and programs do better "
			"without vmad; see WHERE IT CANNOT BE in vmad(8)\n",
			w->name);
		return;
	}
	why = stack_why_not(w->ifindex);
	fprintf(stderr, "vmad: the queues of %s cannot be had: %s\n", w->name,
		stats_why_text(text, &why));
}

static int keep(struct wanted *w, unsigned n, const sigset_t *ends)
{
	const struct timespec second = {.tv_sec = 1};

	while (sigtimedwait(ends, NULL, &second) < 0) {
		for (unsigned i = 0; i < n; i++) {
			if (is_kept(&w[i]) || !w[i].is_unshared)
				continue;
			log_error("vmad: the queues of %s cannot be shared any more", w[i].name);
			return -EBUSY;
		}
	}
	return 0;
}

/* What it opens later does not get the numbers of the standard ones. */
static void standard_fds(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

/* Where a parent waits for it (-1: none does), it is told that all is there, and is gone then. */
static int background(void)
{
	int pipe_fd[2], status;
	char ok = 0;
	pid_t pid;

	if (pipe(pipe_fd) || (pid = fork()) < 0) {
		perror("vmad: fork");
		exit(1);
	}
	if (pid) {
		close(pipe_fd[1]);
		if (read(pipe_fd[0], &ok, 1) == 1)
			_exit(0);
		_exit(waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status)
									   : 1);
	}
	close(pipe_fd[0]);
	setsid();
	if (chdir("/"))
		perror("vmad: chdir /");
	return pipe_fd[1];
}

static void is_ready(int to)
{
	if (to < 0)
		return;
	if (!freopen("/dev/null", "r", stdin) || !freopen("/dev/null", "w", stdout) ||
	    !freopen("/dev/null", "w", stderr))
		log_warn("vmad: /dev/null: %s", strerror(errno));
	if (write(to, "", 1) != 1)
		log_warn("vmad: who started it is not there any more");
	close(to);
}

static int run(const struct options *o, int parent)
{
	struct wanted *w = calloc(o->num, sizeof(*w));
	sigset_t ends;
	int err;

	if (!w) {
		perror("vmad");
		return 1;
	}
	sigemptyset(&ends);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGINT);
	sigprocmask(SIG_BLOCK, &ends, NULL);
	err = library_begin(o);
	if (err)
		fprintf(stderr, "vmad: start-up failed: %s\n", strerror(-err));
	for (unsigned i = 0; !err && i < o->num; i++) {
		w[i].name = o->interfaces[i];
		if (!is_kept(&w[i])) {
			complain(&w[i]);
			err = w[i].is_unshared ? -EBUSY : -ENODEV;
		}
	}
	if (!err) {
		is_ready(parent);
		err = keep(w, o->num, &ends);
	}
	parts_stop();
	free(w);
	return err == -EBUSY ? STATUS_UNSHARED : err ? 1 : 0;
}

int main(int argc, char **argv)
{
	struct options o;
	int status;

	standard_fds();
	signal(SIGPIPE, SIG_IGN);
	if (!options_read(argc, argv, &o, &status))
		return status;
	return run(&o, o.console ? -1 : background());
}
