/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A process whose packets are captured: it is asked, it answers, it ends. */
#ifndef VMA_STATS_CAPTURE_PROCESS_H
#define VMA_STATS_CAPTURE_PROCESS_H

#include "capture_ring.h"

enum capture_state {
	CAPTURE_NEW, /* to be asked */
	CAPTURE_ASKED, /* has not answered yet */
	CAPTURE_ON, /* ring is there */
	CAPTURE_OVER, /* the process has ended, or runs another program; ring is there, to be read
		       */
	CAPTURE_REFUSED, /* why says why */
};

/* What is asked for. */
struct capture_wanted {
	const char *dir; /* as source_open() */
	uint32_t snap, bytes;
};

struct capture_process {
	int pid;
	enum capture_state state;
	uint64_t since_ms; /* in the states that wait */
	char program[64];
	char why[WHY_LEN];
	struct capture_ring ring;
	/* By the ring's number of the interface. */
	int in_file[VMA_CAPTURE_INTERFACES]; /* its number in the file; -1: none yet */
	uint64_t received[VMA_CAPTURE_INTERFACES], accepted[VMA_CAPTURE_INTERFACES];
};

void capture_process_init(struct capture_process *p, int pid);
/* Has the process ended? */
bool capture_process_gone(const struct capture_process *p);
/* Looks how things stand, and goes on to the next state where they do. */
void capture_process_step(struct capture_process *p, const struct capture_wanted *w);
/* Says that no more is wanted; the ring stays. */
void capture_process_stop(struct capture_process *p, const struct capture_wanted *w);
/* Gives the ring back, if there is one. */
void capture_process_close(struct capture_process *p);

#endif
