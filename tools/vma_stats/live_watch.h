/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the live view looks at again and again: the processes now, as they were before, their past.
 */
#ifndef VMA_STATS_LIVE_WATCH_H
#define VMA_STATS_LIVE_WATCH_H

#include "live_spark.h"
#include "processes.h"

/* What is counted of a socket, and of a process. */
enum figure {
	FIGURE_RX, /* packets, offloaded */
	FIGURE_TX,
	FIGURE_RX_BYTES,
	FIGURE_TX_BYTES,
	FIGURE_KERNEL, /* packets of both directions */
	FIGURE_DROPS,
	FIGURE_RETRANSMITS,
};

struct past_socket {
	unsigned generation;
	int fd;
	struct spark spark;
};

/* A process's past: of the process at the same place in `now`. */
struct past {
	const struct process *before; /* NULL: it was not there, or could not be read */
	struct spark spark; /* packets a second */
	struct past_socket *socket; /* by place */
	unsigned sockets;
};

struct watch {
	struct processes now, before;
	struct past *past;
	long long taken_ns;
	double seconds; /* between the two; 0: there is no before */
	int error; /* of the directory, negative errno; 0: it could be read */
};

/* Looks. w is zero before the first time. */
void watch_take(struct watch *w, const struct options *o);
void watch_free(struct watch *w);

/* The place of the process in w->now; -1: it is not there. */
int watch_find(const struct watch *w, int pid);
/* A figure of a process, or of a socket: a second's worth, or the total. */
double watch_process(const struct watch *w, unsigned process, enum figure f, bool total);
double watch_socket(const struct watch *w, unsigned process, unsigned slot, enum figure f,
		    bool total);

#endif
