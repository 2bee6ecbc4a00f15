/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "source.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX "vmastat."
#define SYSFS "/sys/kernel/vma/process"
#define BYTES_MAX                                                                                  \
	(sizeof(struct vma_stats_header) + VMA_STATS_SOCKETS_MAX * sizeof(struct vma_stats_socket))

/* The pid that a directory entry is named after, behind a prefix; 0 if it is something else. */
static int name_pid(const char *name, const char *prefix)
{
	const char *digits = name + strlen(prefix);
	char *end;
	long pid;

	if (strncmp(name, prefix, strlen(prefix)) || *digits < '1' || *digits > '9')
		return 0;
	errno = 0;
	pid = strtol(digits, &end, 10);
	return errno || *end || pid > INT_MAX ? 0 : (int)pid;
}

/* Only a regular file that is ours to remove; a failure concerns nobody. */
static void clean_stale(int dir, const char *name)
{
	struct stat st;

	if (!fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) && S_ISREG(st.st_mode) &&
	    (st.st_uid == geteuid() || !geteuid()))
		unlinkat(dir, name, 0);
}

static int by_pid(const void *a, const void *b)
{
	int x = *(const int *)a, y = *(const int *)b;

	return (x > y) - (x < y);
}

/* Adds those of one directory to *pids, of which there are n. Their number or negative errno. */
static int find_in(const char *dir, const char *prefix, bool clean, int **pids, int n)
{
	DIR *d = opendir(dir);
	struct dirent *e;

	if (!d)
		return -errno;
	while ((e = readdir(d))) {
		int pid = name_pid(e->d_name, prefix), *more;

		if (!pid)
			continue;
		if (kill(pid, 0) && errno == ESRCH) {
			if (clean)
				clean_stale(dirfd(d), e->d_name);
			continue;
		}
		more = realloc(*pids, (size_t)(n + 1) * sizeof(**pids));
		if (!more)
			break;
		*pids = more;
		more[n++] = pid;
	}
	closedir(d);
	return n;
}

/*
 * Sorted, each once: a file of before the module was loaded may stand beside its process's
 * directory.
 */
static int sort(int *pids, int n)
{
	int kept = 0;

	qsort(pids, (size_t)n, sizeof(*pids), by_pid);
	for (int i = 0; i < n; i++)
		if (!kept || pids[kept - 1] != pids[i])
			pids[kept++] = pids[i];
	return kept;
}

int source_find(const char *dir, bool clean, int **pids)
{
	int n = 0;

	*pids = NULL;
	if (!dir) {
		n = find_in(SYSFS, "", false, pids, 0);
		if (n < 0)
			n = 0; /* no module */
	}
	n = find_in(dir ? dir : SOURCE_DEFAULT_DIR, PREFIX, clean, pids, n);
	return n > 0 && *pids ? sort(*pids, n) : n;
}

/*
 * True if uid is one of the process's four user ids: its file may be from before or after a change
 * of them.
 */
static bool process_uid(int pid, uid_t uid)
{
	unsigned id[4] = {0};
	char line[256];
	bool found = false;
	FILE *f;

	snprintf(line, sizeof(line), "/proc/%d/status", pid);
	f = fopen(line, "re");
	if (!f)
		return false;
	while (!found && fgets(line, sizeof(line), f))
		found = sscanf(line, "Uid: %u %u %u %u", &id[0], &id[1], &id[2], &id[3]) == 4;
	fclose(f);
	return found && (id[0] == uid || id[1] == uid || id[2] == uid || id[3] == uid);
}

static bool trusted(const struct stat *st, int pid)
{
	if (!st->st_uid || st->st_uid == geteuid())
		return true;
	return !geteuid() && process_uid(pid, st->st_uid);
}

static int file_open(struct source *s, const char *path, bool writable, char why[WHY_LEN])
{
	struct stat st;

	/*
	 * Not through a link, and not waiting for the other end of a FIFO: the directory is
	 * everybody's.
	 */
	s->fd = open(path, (writable ? O_RDWR : O_RDONLY) | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (s->fd < 0) {
		if (errno == ENOENT)
			snprintf(why, WHY_LEN, "VMA statistics data for process id %d not found",
				 s->pid);
		else
			snprintf(why, WHY_LEN, "%.150s cannot be opened%s: %s", path,
				 writable ? " for writing" : "",
				 errno == ELOOP ? "it is a symbolic link" : strerror(errno));
		return -1;
	}
	if (fstat(s->fd, &st) || !S_ISREG(st.st_mode)) {
		snprintf(why, WHY_LEN, "%.150s is not a regular file", path);
		return -1;
	}
	if (!trusted(&st, s->pid)) {
		snprintf(why, WHY_LEN,
			 "%.150s belongs to user id %u: run vma_stats as that user or as root",
			 path, st.st_uid);
		return -1;
	}
	if (st.st_size < 32) {
		snprintf(why, WHY_LEN, "%.150s is truncated: %lld bytes", path,
			 (long long)st.st_size);
		return -1;
	}
	s->size = (size_t)st.st_size < BYTES_MAX ? (size_t)st.st_size : BYTES_MAX;
	return 0;
}

/* 0; 1: no such process there; -1 with why. */
static int sysfs_open(struct source *s, bool writable, char why[WHY_LEN])
{
	char path[sizeof(SYSFS) + 32], byte;

	snprintf(path, sizeof(path), SYSFS "/%d/pages", s->pid);
	s->fd = open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC);
	if (s->fd < 0 && errno == ENOENT)
		return 1;
	if (s->fd < 0) {
		snprintf(why, WHY_LEN, "%s cannot be opened%s: %s", path,
			 writable ? " for writing" : "", strerror(errno));
		return -1;
	}
	/* Who shows no sockets (VMA_STATS_FD_NUM=0) has a file, as without the module. */
	if (pread(s->fd, &byte, 1, 0) == 0) {
		close(s->fd);
		s->fd = -1;
		return 1;
	}
	s->is_sysfs = true;
	s->map = malloc(BYTES_MAX);
	if (s->map)
		return 0;
	snprintf(why, WHY_LEN, "out of memory");
	return -1;
}

/* A new copy. 0, or -1 with why. */
static int sysfs_copy(struct source *s, char why[WHY_LEN])
{
	ssize_t n;

	s->size = 0;
	while (s->size < BYTES_MAX && (n = pread(s->fd, (char *)s->map + s->size,
						 BYTES_MAX - s->size, (off_t)s->size)) > 0)
		s->size += (size_t)n;
	if (s->size)
		return 0;
	/* The file of a process that has ended reads as nothing. */
	snprintf(why, WHY_LEN,
		 SYSFS "/%d/pages cannot be read: the process has no statistics, or has ended",
		 s->pid);
	return -1;
}

static int file_map(struct source *s, const char *dir, bool writable, char why[WHY_LEN])
{
	char path[PATH_MAX];
	void *map;

	snprintf(path, sizeof(path), "%s/" PREFIX "%d", dir, s->pid);
	if (file_open(s, path, writable, why))
		return -1;
	map = mmap(NULL, s->size, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, s->fd,
		   0);
	if (map == MAP_FAILED) {
		snprintf(why, WHY_LEN, "%.150s cannot be mapped: %s", path, strerror(errno));
		return -1;
	}
	s->map = map;
	return 0;
}

int source_open(struct source *s, const char *dir, int pid, bool writable, char why[WHY_LEN])
{
	int err;

	*s = (struct source){.fd = -1, .pid = pid};
	err = dir ? 1 : sysfs_open(s, writable, why);
	if (err > 0)
		err = file_map(s, dir ? dir : SOURCE_DEFAULT_DIR, writable, why);
	if (err)
		source_close(s);
	return err;
}

static sigjmp_buf bus_jump;

static void on_bus(int signal)
{
	(void)signal;
	siglongjmp(bus_jump, 1);
}

static void sysfs_put(struct source *s, size_t offset, const void *word, size_t size)
{
	if (pwrite(s->fd, word, size, (off_t)offset) != (ssize_t)size)
		fprintf(stderr, "vmastat: " SYSFS "/%d/pages cannot be written: %s\n", s->pid,
			strerror(errno));
}

static void store(void *at, __u64 value, size_t size)
{
	if (size == sizeof(__u32))
		__atomic_store_n((__u32 *)at, (__u32)value, __ATOMIC_RELEASE);
	else
		__atomic_store_n((__u64 *)at, value, __ATOMIC_RELEASE);
}

/*
 * By the mapping: the process must not see half a word. Its owner may cut the file before, and then
 * nobody needs the word.
 */
static void file_put(struct source *s, size_t offset, __u64 value, size_t size)
{
	struct sigaction bus = {.sa_handler = on_bus}, old;

	if (s->is_cut)
		return;
	sigaction(SIGBUS, &bus, &old);
	if (!sigsetjmp(bus_jump, 1))
		store((char *)s->map + offset, value, size);
	else
		s->is_cut = true;
	sigaction(SIGBUS, &old, NULL);
	if (s->is_cut)
		fprintf(stderr, "vmastat: " PREFIX "%d cannot be written: it is truncated\n",
			s->pid);
}

__u64 source_get64(struct source *s, size_t offset)
{
	const __u64 *at = (const __u64 *)((const char *)s->map + offset);
	struct sigaction bus = {.sa_handler = on_bus}, old;
	__u64 value = 0;

	if (s->is_sysfs)
		return *at;
	sigaction(SIGBUS, &bus, &old);
	if (!sigsetjmp(bus_jump, 1))
		value = __atomic_load_n(at, __ATOMIC_RELAXED);
	sigaction(SIGBUS, &old, NULL);
	return value;
}

void source_put32(struct source *s, size_t offset, __u32 value)
{
	if (s->is_sysfs)
		sysfs_put(s, offset, &value, sizeof(value));
	else
		file_put(s, offset, value, sizeof(value));
}

void source_put64(struct source *s, size_t offset, __u64 value)
{
	if (s->is_sysfs)
		sysfs_put(s, offset, &value, sizeof(value));
	else
		file_put(s, offset, value, sizeof(value));
}

void source_close(struct source *s)
{
	if (s->is_sysfs)
		free(s->map);
	else if (s->map)
		munmap(s->map, s->size);
	if (s->fd >= 0)
		close(s->fd);
	s->map = NULL;
	s->fd = -1;
}

/* What is wrong with the pages, behind their name. */
static int checked(struct source *s, struct snapshot *out, int err, char reason[WHY_LEN],
		   char why[WHY_LEN])
{
	/* The folder's name is right; in a PID namespace of its own the process has another number.
	 */
	if (!err && s->is_sysfs)
		out->h.pid = (unsigned)s->pid;
	if (!err && out->h.pid != (unsigned)s->pid) {
		snprintf(reason, WHY_LEN, "is corrupt: it is of process %u", out->h.pid);
		snapshot_free(out);
		err = -1;
	}
	if (err && !strncmp(reason, "Version ", 8))
		snprintf(why, WHY_LEN, "%s", reason);
	else if (err)
		snprintf(why, WHY_LEN, PREFIX "%d %.200s", s->pid, reason);
	return err;
}

/* Its owner may cut the file while we copy. */
static int file_read(struct source *s, struct snapshot *out, char why[WHY_LEN])
{
	struct sigaction bus = {.sa_handler = on_bus}, old;
	char reason[WHY_LEN];
	struct stat st;
	int err;

	if (fstat(s->fd, &st) || (size_t)st.st_size < s->size) {
		snprintf(why, WHY_LEN, PREFIX "%d is truncated: it shrank to %lld bytes", s->pid,
			 (long long)st.st_size);
		return -1;
	}
	sigaction(SIGBUS, &bus, &old);
	if (sigsetjmp(bus_jump, 1)) {
		sigaction(SIGBUS, &old, NULL);
		snapshot_free(out);
		snprintf(why, WHY_LEN, PREFIX "%d is truncated: it shrank while it was read",
			 s->pid);
		return -1;
	}
	err = snapshot_take(out, s->map, s->size, reason);
	sigaction(SIGBUS, &old, NULL);
	return checked(s, out, err, reason, why);
}

int source_read(struct source *s, struct snapshot *out, char why[WHY_LEN])
{
	char reason[WHY_LEN];

	memset(out, 0, sizeof(*out));
	if (!s->is_sysfs)
		return file_read(s, out, why);
	if (sysfs_copy(s, why))
		return -1;
	return checked(s, out, snapshot_take(out, s->map, s->size, reason), reason, why);
}
