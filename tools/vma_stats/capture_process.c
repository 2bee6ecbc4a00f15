/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "capture_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "source.h"

/* The library looks once a second at least, and gives up a tool that has not come after five. */
#define ANSWER_MS 15000

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* What we ask by: another tool has another one. */
static uint32_t number(void)
{
	return (uint32_t)getpid();
}

bool capture_process_gone(const struct capture_process *p)
{
	return kill(p->pid, 0) && errno == ESRCH;
}

void capture_process_init(struct capture_process *p, int pid)
{
	*p = (struct capture_process){.pid = pid, .since_ms = now_ms()};
	for (unsigned i = 0; i < VMA_CAPTURE_INTERFACES; i++)
		p->in_file[i] = -1;
}

static void refused(struct capture_process *p)
{
	p->state = capture_process_gone(p) ? CAPTURE_OVER : CAPTURE_REFUSED;
}

/*
 * A descriptor of the process's opened anew. It may be anything: what opening may have an effect on
 * is not opened. -1 and errno.
 */
static int open_theirs(int pid, int fd)
{
	char path[64];
	struct stat st;
	int at, opened = -1;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
	at = open(path, O_PATH | O_CLOEXEC);
	if (at < 0)
		return -1;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", at);
	if (!fstat(at, &st) && S_ISREG(st.st_mode))
		opened = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	else
		errno = ENODEV;
	close(at);
	return opened;
}

/* As capture_ring_open(). */
static int ring_of(struct capture_process *p, const struct vma_stats_header *h)
{
	int fd = open_theirs(p->pid, h->capture_fd), err;

	if (fd < 0) {
		snprintf(p->why, WHY_LEN, "its descriptor %d cannot be opened: %s%s", h->capture_fd,
			 strerror(errno),
			 errno == EACCES ? ": it may more than this user; root, or a tool with the "
					   "same capabilities, may capture it"
					 : "");
		return -1;
	}
	err = capture_ring_open(&p->ring, fd, h->capture_is, p->why);
	if (err)
		close(fd);
	return err;
}

static void ask(struct capture_process *p, const struct capture_wanted *w, struct source *src)
{
	source_put32(src, offsetof(struct vma_stats_header, capture_error), 0);
	source_put32(src, offsetof(struct vma_stats_header, capture_snap), w->snap);
	source_put32(src, offsetof(struct vma_stats_header, capture_bytes), w->bytes);
	source_put32(src, offsetof(struct vma_stats_header, capture), number());
	p->state = CAPTURE_ASKED;
	p->since_ms = now_ms();
}

/*
 * Somebody else has asked it: a tool that is there, or was, or is about to come. Its ring is only
 * looked at: the library ends what nobody reads.
 */
static void look_at_other(struct capture_process *p, const struct vma_stats_header *h)
{
	int fd = h->capture_fd >= 0 ? open_theirs(p->pid, h->capture_fd) : -1;

	if (fd < 0)
		return;
	if (capture_ring_taken(fd)) {
		snprintf(p->why, WHY_LEN, "another vma_stats captures it");
		p->state = CAPTURE_REFUSED;
	}
	close(fd);
}

static void answered(struct capture_process *p, const struct vma_stats_header *h)
{
	if (h->capture_is == number() && h->capture_error) {
		snprintf(p->why, WHY_LEN, "there is no memory for its packets: %s",
			 strerror(h->capture_error));
		p->state = CAPTURE_REFUSED;
	} else if (h->capture_is == number() && h->capture_fd >= 0) {
		if (ring_of(p, h))
			refused(p);
		else
			p->state = CAPTURE_ON;
	} else if (h->capture && h->capture != number()) {
		/* Another tool has asked at the same moment, and after us. */
		p->state = CAPTURE_NEW;
	}
}

static void step(struct capture_process *p, const struct capture_wanted *w, struct source *src,
		 const struct vma_stats_header *h)
{
	switch (p->state) {
	case CAPTURE_NEW:
		snprintf(p->program, sizeof(p->program), "%s", h->program);
		if (h->capture || h->capture_fd >= 0)
			look_at_other(p, h);
		else
			ask(p, w, src);
		break;
	case CAPTURE_ASKED:
		answered(p, h);
		break;
	case CAPTURE_ON:
		/*
		 * After exec() it is another program, whose library knows of nothing. A killed one
		 * leaves its file.
		 */
		if (h->capture_is != number() || h->capture_fd < 0 || capture_process_gone(p))
			p->state = CAPTURE_OVER;
		break;
	default:
		break;
	}
}

void capture_process_step(struct capture_process *p, const struct capture_wanted *w)
{
	struct snapshot snap;
	struct source src;

	if (p->state == CAPTURE_OVER || p->state == CAPTURE_REFUSED)
		return;
	if (source_open(&src, w->dir, p->pid, true, p->why)) {
		p->state = p->state == CAPTURE_ON || capture_process_gone(p) ? CAPTURE_OVER
									     : CAPTURE_REFUSED;
		return;
	}
	if (!source_read(&src, &snap, p->why)) {
		step(p, w, &src, &snap.h);
		snapshot_free(&snap);
	} else if (p->state != CAPTURE_ON || capture_process_gone(p)) {
		refused(p);
	}
	source_close(&src);
	if ((p->state == CAPTURE_NEW || p->state == CAPTURE_ASKED) &&
	    now_ms() - p->since_ms > ANSWER_MS) {
		snprintf(p->why, WHY_LEN, "it does not answer");
		p->state = CAPTURE_REFUSED;
	}
}

void capture_process_stop(struct capture_process *p, const struct capture_wanted *w)
{
	struct snapshot snap;
	struct source src;

	if ((p->state != CAPTURE_ASKED && p->state != CAPTURE_ON) ||
	    source_open(&src, w->dir, p->pid, true, p->why))
		return;
	if (!source_read(&src, &snap, p->why)) {
		if (snap.h.capture == number())
			source_put32(&src, offsetof(struct vma_stats_header, capture), 0);
		snapshot_free(&snap);
	}
	source_close(&src);
}

void capture_process_close(struct capture_process *p)
{
	if (p->ring.shared)
		capture_ring_close(&p->ring);
}
