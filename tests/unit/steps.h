/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A process that does something, one instruction after the other. It says traced_begin(), does it,
 * and says traced_end(); between the two it stops at each. Included after cmocka.h.
 */
#ifndef UNIT_STEPS_H
#define UNIT_STEPS_H

#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

static inline void traced_begin(void)
{
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
		_exit(2);
	raise(SIGSTOP);
}

static inline _Noreturn void traced_end(void)
{
	raise(SIGSTOP);
	_exit(0);
}

/* It has come to the begin. */
static inline void steps_begin(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
	assert_int_equal(ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_EXITKILL), 0);
}

/* So many instructions further. False: it has come to the end. */
static inline bool step(pid_t pid, unsigned each)
{
	int status;

	for (unsigned i = 0; i < each; i++) {
		assert_int_equal(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), 0);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSTOPPED(status));
		if (WSTOPSIG(status) == SIGTRAP)
			continue;
		assert_int_equal(WSTOPSIG(status), SIGSTOP);
		return false;
	}
	return true;
}

static inline void steps_end(pid_t pid)
{
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/*
 * Who steps and who is stepped take turns: on one processor that costs a fifth. Returns where the
 * process may run.
 */
static inline cpu_set_t stay_here(void)
{
	cpu_set_t here, before;

	assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
	CPU_ZERO(&here);
	CPU_SET(sched_getcpu(), &here);
	assert_int_equal(sched_setaffinity(0, sizeof(here), &here), 0);
	return before;
}

#endif
