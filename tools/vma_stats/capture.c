/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "capture.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pcap/pcap.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "capture_options.h"
#include "capture_text.h"
#include "pcapng.h"
#include "say.h"
#include "source.h"
#include "stop.h"
#include "vma/version.h"

/* How often it is seen which processes there are, and how long nothing is looked at when there is
 * nothing. */
#define LOOK_NS 50000000u
#define PAUSE_NS 2000000
#define AT_ONCE 4096 /* packets between two looks at what else is to be done */

struct session {
	struct capture_options o;
	struct bpf_program filter;
	bool filters;
	FILE *file; /* NULL: text */
	uint32_t interfaces; /* in the file */
	struct capture_process *process;
	unsigned n;
	uint64_t begin_ns, shown;
	uint64_t received, lost; /* of processes that are over */
	uint8_t frame[VMA_CAPTURE_SNAP_MAX]; /* the packet, which nobody changes any more */
};

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- before it begins */

/* 0, or 1 after a line. */
static int compile(struct session *s)
{
	char why[WHY_LEN + PCAP_ERRBUF_SIZE];
	pcap_t *p;

	if (!s->o.filter[0])
		return 0;
	p = pcap_open_dead(DLT_EN10MB, VMA_CAPTURE_SNAP_MAX);
	if (!p)
		return complain("out of memory");
	s->filters = !pcap_compile(p, &s->filter, s->o.filter, 1, PCAP_NETMASK_UNKNOWN);
	if (!s->filters) {
		snprintf(why, sizeof(why), "capture: filter '%.100s': %s", s->o.filter,
			 pcap_geterr(p));
		complain(why);
	}
	pcap_close(p);
	return !s->filters;
}

/* 0, or 1 after a line. */
static int open_file(struct session *s)
{
	char why[WHY_LEN];
	int fd = STDOUT_FILENO;

	if (!s->o.file)
		return 0;
	if (!strcmp(s->o.file, "-")) {
		if (isatty(fd))
			return complain(
				"capture: -w -: standard output is a terminal: send it to a "
				"file or a program");
	} else {
		/* What others say to each other is not everybody's. */
		fd = open(s->o.file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	}
	s->file = fd < 0 ? NULL : fdopen(fd, "w");
	if (s->file)
		return 0;
	snprintf(why, sizeof(why), "capture: %.150s cannot be written: %s", s->o.file,
		 strerror(errno));
	return complain(why);
}

/* ---- packets */

static void show_interface(struct session *s, struct capture_process *p, unsigned interface)
{
	char name[16], description[128];

	if (p->in_file[interface] >= 0)
		return;
	p->in_file[interface] = (int)s->interfaces++;
	if (!s->file)
		return;
	capture_ring_name(&p->ring, interface, name);
	snprintf(description, sizeof(description), "%s of process %d (%s)", name, p->pid,
		 p->program);
	pcapng_interface(s->file, &(struct pcapng_interface){.name = name,
							     .description = description,
							     .filter = s->o.filter,
							     .snap = s->o.wanted.snap});
}

static void show_text(const struct capture_process *p, const struct capture_packet *pkt,
		      const uint8_t *frame)
{
	time_t second = (time_t)(pkt->time_ns / 1000000000u);
	char name[16], text[CAPTURE_TEXT], fd[16] = "?";
	struct tm tm = {.tm_sec = 0};

	localtime_r(&second, &tm);
	capture_ring_name(&p->ring, pkt->interface, name);
	if (pkt->fd >= 0)
		snprintf(fd, sizeof(fd), "%d", pkt->fd);
	printf("%02d:%02d:%02d.%09u %s %-3s pid %d fd %s  %s\n", tm.tm_hour, tm.tm_min, tm.tm_sec,
	       (unsigned)(pkt->time_ns % 1000000000u), name,
	       pkt->direction == VMA_CAPTURE_IN ? "in" : "out", p->pid, fd,
	       capture_text(text, frame, pkt->caplen));
}

static void show_packet(struct session *s, struct capture_process *p,
			const struct capture_packet *pkt)
{
	char comment[128], fd[24] = "";

	s->shown++;
	if (!s->file) {
		show_text(p, pkt, s->frame);
		return;
	}
	if (pkt->fd >= 0)
		snprintf(fd, sizeof(fd), " fd %d", pkt->fd);
	snprintf(comment, sizeof(comment), "pid %d%s (%s)", p->pid, fd, p->program);
	pcapng_packet(s->file, &(struct pcapng_packet){
				       .interface = (uint32_t)p->in_file[pkt->interface],
				       .direction = pkt->direction == VMA_CAPTURE_IN ? PCAPNG_IN
										     : PCAPNG_OUT,
				       .time_ns = pkt->time_ns,
				       .len = pkt->len,
				       .caplen = pkt->caplen,
				       .data = s->frame,
				       .comment = comment});
}

/* Is it one of those that are asked for? Its bytes are in s->frame. */
static bool wanted(const struct session *s, const struct capture_process *p,
		   const struct capture_packet *pkt)
{
	struct pcap_pkthdr h = {.caplen = pkt->caplen, .len = pkt->len};
	char name[16];

	if (s->o.direction && pkt->direction != s->o.direction)
		return false;
	if (s->o.interface) {
		capture_ring_name(&p->ring, pkt->interface, name);
		if (strcmp(name, s->o.interface) != 0)
			return false;
	}
	return !s->filters || pcap_offline_filter(&s->filter, &h, s->frame);
}

static void take(struct session *s, struct capture_process *p, const struct capture_packet *pkt)
{
	if (pkt->direction != VMA_CAPTURE_VOID) {
		memcpy(s->frame, pkt->data, pkt->caplen);
		p->received[pkt->interface]++;
		show_interface(s, p, pkt->interface);
		if (wanted(s, p, pkt)) {
			p->accepted[pkt->interface]++;
			show_packet(s, p, pkt);
		}
	}
	capture_ring_drop(&p->ring, pkt);
}

/* The process with the oldest packet, which is *oldest; NULL: none has one. */
static struct capture_process *next(struct session *s, struct capture_packet *oldest)
{
	struct capture_process *found = NULL;
	struct capture_packet pkt;

	for (unsigned i = 0; i < s->n; i++) {
		struct capture_process *p = &s->process[i];
		int there = p->ring.shared ? capture_ring_peek(&p->ring, &pkt) : 0;

		if (there < 0) {
			snprintf(p->why, WHY_LEN, "what it gives are no packets");
			fprintf(stderr, "vmastat: process %d is left out: %s\n", p->pid, p->why);
			p->state = CAPTURE_REFUSED;
			capture_process_close(p);
		}
		if (there > 0 && (!found || pkt.time_ns < oldest->time_ns)) {
			found = p;
			*oldest = pkt;
		}
	}
	return found;
}

static bool enough(const struct session *s)
{
	return (s->o.count && s->shown >= s->o.count) || ferror(s->file ? s->file : stdout);
}

/* True: there may be more. */
static bool drain(struct session *s)
{
	struct capture_process *p;
	struct capture_packet pkt;

	for (unsigned n = 0; n < AT_ONCE; n++) {
		if (enough(s))
			return false;
		p = next(s, &pkt);
		if (!p)
			return false;
		take(s, p, &pkt);
	}
	return true;
}

/* ---- processes */

static bool known(const struct session *s, int pid)
{
	for (unsigned i = 0; i < s->n; i++)
		if (s->process[i].pid == pid)
			return true;
	return false;
}

static void add(struct session *s, int pid)
{
	struct capture_process *more;

	if (known(s, pid))
		return;
	more = realloc(s->process, (s->n + 1) * sizeof(*more));
	if (!more)
		return;
	s->process = more;
	capture_process_init(&more[s->n++], pid);
}

static void find(struct session *s)
{
	int *pids, n;

	if (s->o.pid) {
		if (!s->n)
			add(s, s->o.pid);
		return;
	}
	n = source_find(s->o.wanted.dir, false, &pids);
	for (int i = 0; i < n; i++)
		add(s, pids[i]);
	free(pids);
}

/* A line for what has changed with it. */
static void step(struct session *s, struct capture_process *p)
{
	enum capture_state before = p->state;

	capture_process_step(p, &s->o.wanted);
	/* With -p it is a mistake to name one that is not there. */
	if (s->o.pid && before == CAPTURE_NEW && p->state == CAPTURE_OVER)
		p->state = CAPTURE_REFUSED;
	if (p->state == before)
		return;
	if (p->state == CAPTURE_OVER && p->ring.shared)
		capture_ring_last(&p->ring);
	else if (p->state == CAPTURE_ON)
		fprintf(stderr, "vmastat: capturing process %d (%s)\n", p->pid, p->program);
	else if (p->state == CAPTURE_REFUSED)
		fprintf(stderr, "vmastat: process %d is left out: %s\n", p->pid, p->why);
}

/* Adds up what a process has had, says it in the file, and gives its ring back. */
static void close_ring(struct session *s, struct capture_process *p)
{
	for (unsigned i = 0; i < VMA_CAPTURE_INTERFACES && p->ring.shared; i++) {
		uint64_t lost = capture_ring_lost(&p->ring, i);

		s->received += p->received[i];
		s->lost += lost;
		if (s->file && p->in_file[i] >= 0)
			pcapng_statistics(s->file, &(struct pcapng_statistics){
							   .interface = (uint32_t)p->in_file[i],
							   .begin_ns = s->begin_ns,
							   .end_ns = clock_ns(CLOCK_REALTIME),
							   .received = p->received[i],
							   .accepted = p->accepted[i],
							   .lost = lost});
	}
	capture_process_close(p);
}

/* It brings nothing more, and nothing is to be remembered of it. */
static bool done_with(const struct capture_process *p)
{
	struct capture_packet pkt;

	if (p->state == CAPTURE_REFUSED)
		return capture_process_gone(p);
	return p->state == CAPTURE_OVER && (!p->ring.shared || !capture_ring_peek(&p->ring, &pkt));
}

/* With -p the one process stays: how it ended is the tool's end. */
static void forget(struct session *s)
{
	for (unsigned i = 0; i < s->n && !s->o.pid;) {
		if (!done_with(&s->process[i])) {
			i++;
			continue;
		}
		close_ring(s, &s->process[i]);
		s->process[i] = s->process[--s->n];
	}
}

static void look(struct session *s)
{
	find(s);
	for (unsigned i = 0; i < s->n; i++)
		step(s, &s->process[i]);
	forget(s);
}

/* With -p: the one process will bring nothing more. */
static bool over(const struct session *s)
{
	return s->o.pid && s->n && s->process[0].state >= CAPTURE_OVER;
}

static void run(struct session *s)
{
	static const struct timespec pause = {.tv_nsec = PAUSE_NS};
	uint64_t looked = 0, now;

	while (!stop_asked() && !enough(s) && !over(s)) {
		now = clock_ns(CLOCK_MONOTONIC);
		if (now - looked >= LOOK_NS) {
			look(s);
			looked = now;
		}
		if (drain(s))
			continue;
		fflush(s->file ? s->file : stdout);
		nanosleep(&pause, NULL);
	}
}

/* ---- the end */

/* The exit status. */
static int finish(struct session *s)
{
	FILE *out = s->file ? s->file : stdout;
	int refused = s->o.pid && s->n && s->process[0].state == CAPTURE_REFUSED;

	for (unsigned i = 0; i < s->n; i++) {
		capture_process_stop(&s->process[i], &s->o.wanted);
		if (s->process[i].ring.shared)
			capture_ring_last(&s->process[i].ring);
	}
	while (drain(s))
		;
	for (unsigned i = 0; i < s->n; i++)
		close_ring(s, &s->process[i]);
	if (fflush(out) || ferror(out))
		return complain("capture: the packets cannot be written");
	if (!refused)
		fprintf(stderr,
			"vmastat: %" PRIu64 " packets captured, %" PRIu64 " received, %" PRIu64
			" lost because the memory for them was full%s\n",
			s->shown, s->received, s->lost, s->lost ? " (-B gives more)" : "");
	return refused;
}

int capture(int argc, char **argv)
{
	struct session *s = calloc(1, sizeof(*s));
	int err;

	if (!s)
		return complain("out of memory");
	capture_options_parse(&s->o, argc, argv);
	stop_on(SIGTERM);
	s->begin_ns = clock_ns(CLOCK_REALTIME);
	err = compile(s) || open_file(s);
	if (!err) {
		if (s->file)
			pcapng_begin(s->file, "vma_stats " VMA_LIBRARY_VERSION);
		run(s);
		err = finish(s);
	}
	if (s->filters)
		pcap_freecode(&s->filter);
	free(s->process);
	free(s);
	return err;
}
