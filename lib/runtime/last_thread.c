/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "runtime/last_thread.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/log.h"
#include "runtime/process_mark.h"
#include "runtime/text_file.h"

/* set in the main thread: the destructor runs when that ends other than by exit() */
static pthread_key_t key;
static bool have_key;
static _Atomic bool main_over;
static sigset_t main_mask; /* written before it */
static bool ending; /* worker only */

/* The state of the main thread, and how many threads there are. False: it cannot be told. */
static bool look(char *state, int *threads)
{
	char text[1024], *at;

	text_file_read("/proc/self/stat", text, sizeof(text));
	/*
	 * proc(5): the name, in brackets, may have any character; the state is field 3, the number
	 * of threads field 20.
	 */
	at = strrchr(text, ')');
	return at && sscanf(at, ") %c%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%d", state,
			    threads) == 2;
}

/*
 * The main thread is a zombie (its destructors may take long), and besides it there is only the one
 * that asks.
 */
static bool alone(void)
{
	char state;
	int threads;

	return look(&state, &threads) && state == 'Z' && threads == 2;
}

bool last_thread_is_only_one(void)
{
	char state;
	int threads;

	return look(&state, &threads) && threads == 2;
}

/* exit() joins the worker, so it is not the worker's to call. */
static void *end(void *arg)
{
	(void)arg;
	pthread_sigmask(SIG_SETMASK, &main_mask, NULL);
	exit(0);
}

void last_thread_look(void)
{
	pthread_t thread;
	int err;

	if (!atomic_load_explicit(&main_over, memory_order_acquire) || ending || !alone())
		return;
	err = pthread_create(&thread, NULL, end, NULL);
	if (err)
		log_error("the program has ended, but no thread can be started to say so: %s",
			  strerror(err));
	ending = !err;
}

static void main_ends(void *value)
{
	(void)value;
	pthread_sigmask(SIG_SETMASK, NULL, &main_mask);
	atomic_store_explicit(&main_over, true, memory_order_release);
}

__attribute__((constructor)) static void watch_main(void)
{
	have_key = gettid() == process_loaded_by() && !pthread_key_create(&key, main_ends);
	if (have_key)
		pthread_setspecific(key, &key);
}

void last_thread_forked(void)
{
	ending = false;
	atomic_store_explicit(&main_over, false, memory_order_relaxed);
	if (have_key)
		pthread_setspecific(key, &key);
}
