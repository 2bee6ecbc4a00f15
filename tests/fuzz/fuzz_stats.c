/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What vma_stats maps: the bytes are patches of an otherwise good file (so that the fuzzer gets
 * past the header), or, if the first byte is odd, the whole file. What snapshot_take() accepts is
 * shown in every view, as deltas, as metrics and in the live view.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../tools/vma_stats/fields.c"
#include "../../tools/vma_stats/snapshot.c"
#include "../../tools/vma_stats/view.c"
#undef SCREEN_LINES
#include "../../tools/vma_stats/view_full.c"
#include "../../tools/vma_stats/view_json.c"
#include "../../tools/vma_stats/prometheus.c"
#include "../../tools/vma_stats/live_spark.c"
#include "../../tools/vma_stats/live_page.c"
#include "../../tools/vma_stats/live_watch.c"
#include "../../tools/vma_stats/live_columns.c"
#include "../../tools/vma_stats/live_rows.c"
#include "../../tools/vma_stats/live_draw.c"
#include "../../tools/vma_stats/live_keys.c"

#define SOCKETS 3
#define FILE_BYTES (sizeof(struct vma_stats_header) + SOCKETS * sizeof(struct vma_stats_socket))

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* tools/vma_stats/options.c exits on mistakes; only this is needed of it. */
bool options_fd(const struct options *o, int fd)
{
	(void)o;
	return fd != 12345;
}

/*
 * A file in which everything is in use. Exactly as long as it must be: one byte more is the
 * sanitizer's to see.
 */
static uint8_t *good_file(void)
{
	uint8_t *file = calloc(1, FILE_BYTES);
	struct vma_stats_header *h = (struct vma_stats_header *)file;
	struct vma_stats_socket *s;

	if (!file)
		abort();
	s = (struct vma_stats_socket *)(file + sizeof(*h));
	memset(file + 32, 1, FILE_BYTES - 32);
	h->magic = VMA_STATS_MAGIC;
	h->version = VMA_STATS_VERSION;
	h->header_size = sizeof(*h);
	h->socket_size = sizeof(*s);
	h->max_sockets = SOCKETS;
	h->pid = 1;
	for (unsigned i = 0; i < SOCKETS; i++) {
		s[i].num_groups = i;
		s[i].family = i & 1 ? 2 : 10;
	}
	return file;
}

/* Patches: offset (2 bytes), length (1), that many bytes. */
static void patch(uint8_t *file, const uint8_t *data, size_t size)
{
	while (size > 3) {
		size_t at = (size_t)(data[0] | data[1] << 8) % FILE_BYTES, n = data[2];

		data += 3;
		size -= 3;
		n = n < size ? n : size;
		n = n < FILE_BYTES - at ? n : FILE_BYTES - at;
		memcpy(file + at, data, n);
		data += n;
		size -= n;
		if (!n)
			return;
	}
}

/* tools/vma_stats/processes.c would look for files: the only process is the one made up. */
static const struct snapshot *made_up;

int processes_take(struct processes *all, const struct options *o)
{
	(void)o;
	all->process = calloc(1, sizeof(*all->process));
	if (!all->process || snapshot_clone(&all->process->snap, made_up))
		abort();
	all->process->pid = 1;
	all->process->readable = true;
	snapshot_sum(&all->process->sum, made_up);
	all->n = 1;
	return 0;
}

void processes_free(struct processes *all)
{
	for (unsigned i = 0; i < all->n; i++)
		snapshot_free(&all->process[i].snap);
	free(all->process);
	*all = (struct processes){.process = NULL};
}

/* Of tools/vma_stats/control.c: nothing is written here. */
int control_zero(const struct options *o, int pid, char why[WHY_LEN])
{
	(void)o;
	snprintf(why, WHY_LEN, "%d", pid);
	return -1;
}

static void show_metrics(struct snapshot *s, FILE *f, const struct options *o)
{
	struct processes all;

	made_up = s;
	processes_take(&all, o);
	prometheus_print(f, &all, o);
	processes_free(&all);
}

/* What a terminal would get: ASCII, as spark_text() is asked for. */
static void check_page(const struct page *p)
{
	for (unsigned i = 0; i < p->rows; i++) {
		if (strlen(p->line[i].text) > p->columns)
			abort();
		for (const char *c = p->line[i].text; *c; c++)
			if (*c < 0x20 || *c > 0x7e)
				abort();
	}
}

/* All levels, in several sizes. */
static void show_live(struct snapshot *s, const struct options *o)
{
	static const int keys[] = {
		's', LIVE_KEY_DOWN, LIVE_KEY_ENTER, 't', 'S', LIVE_KEY_END,
		'z', 'y',	    LIVE_KEY_ENTER, 'G', 'i', 'q',
	};
	static struct page p;
	struct live l = {.o = o, .interval = 1};
	struct watch w = {.seconds = 0};

	made_up = s;
	for (unsigned i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		if (i < 3)
			watch_take(&w, o);
		page_clear(&p, i & 1 ? 24 : 5, i & 2 ? 80 : 300);
		live_draw(&p, &l, &w);
		check_page(&p);
		live_key(&l, &w, keys[i]);
	}
	watch_free(&w);
}

static void show(struct snapshot *s, FILE *f)
{
	struct options o = {.view = VIEW_BASIC};
	struct snapshot later;
	unsigned lines = 0;

	for (int deltas = 0; deltas < 2; deltas++) {
		o.deltas = deltas;
		o.view = VIEW_BASIC;
		view_table(f, s, &o, &lines);
		o.view = VIEW_MEDIUM;
		view_table(f, s, &o, &lines);
		view_full(f, s, &o);
		view_json(f, s, &o);
	}
	view_groups(f, s, &o);
	view_netstat_heading(f);
	view_netstat(f, s, &o);
	show_metrics(s, f, &o);
	show_live(s, &o);
	if (snapshot_clone(&later, s))
		return;
	snapshot_delta(&later, s, 3);
	view_json(f, &later, &o);
	snapshot_free(&later);
}

/* What the views and the JSON rely on. */
static void check(const struct snapshot *s)
{
	if (s->h.max_sockets > VMA_STATS_SOCKETS_MAX ||
	    memchr(s->h.program, 0, sizeof(s->h.program)) == NULL)
		abort();
	for (unsigned i = 0; i < s->h.max_sockets; i++)
		if (s->sockets[i].num_groups > VMA_STATS_GROUPS)
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t bytes = FILE_BYTES;
	struct snapshot s;
	char why[WHY_LEN];
	uint8_t *file;
	FILE *f;

	if (!size)
		return 0;
	if (data[0] & 1) {
		bytes = size - 1;
		file = malloc(bytes ? bytes : 1);
		if (!file)
			abort();
		memcpy(file, data + 1, bytes);
	} else {
		file = good_file();
		patch(file, data + 1, size - 1);
	}
	if (!snapshot_take(&s, file, bytes, why)) {
		check(&s);
		f = fopen("/dev/null", "w");
		if (!f)
			abort();
		show(&s, f);
		fclose(f);
		snapshot_free(&s);
	} else if (!why[0] || strchr(why, '\n')) {
		abort();
	}
	free(file);
	return 0;
}
