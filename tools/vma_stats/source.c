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
#define BYTES_MAX                                                                                  \
	(sizeof(struct vma_stats_header) + VMA_STATS_SOCKETS_MAX * sizeof(struct vma_stats_socket))

/* The pid that a directory entry is named after; 0 if it is something else. */
static int name_pid(const char *name)
{
	const char *digits = name + strlen(PREFIX);
	char *end;
	long pid;

	if (strncmp(name, PREFIX, strlen(PREFIX)) || *digits < '1' || *digits > '9')
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

int source_find(const char *dir, bool clean, int **pids)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	int n = 0;

	*pids = NULL;
	if (!d)
		return -errno;
	while ((e = readdir(d))) {
		int pid = name_pid(e->d_name), *more;

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
	if (n)
		qsort(*pids, (size_t)n, sizeof(**pids), by_pid);
	return n;
}

/* True if uid is one of the process's four user ids: its file may be from before or after a change of them. */
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

	/* Not through a link, and not waiting for the other end of a FIFO: the directory is everybody's. */
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

int source_open(struct source *s, const char *dir, int pid, bool writable, char why[WHY_LEN])
{
	char path[PATH_MAX];
	void *map;

	*s = (struct source){.fd = -1, .pid = pid};
	snprintf(path, sizeof(path), "%s/" PREFIX "%d", dir, pid);
	if (file_open(s, path, writable, why)) {
		source_close(s);
		return -1;
	}
	map = mmap(NULL, s->size, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, s->fd,
		   0);
	if (map == MAP_FAILED) {
		snprintf(why, WHY_LEN, "%.150s cannot be mapped: %s", path, strerror(errno));
		source_close(s);
		return -1;
	}
	s->map = map;
	return 0;
}

void source_close(struct source *s)
{
	if (s->map)
		munmap(s->map, s->size);
	if (s->fd >= 0)
		close(s->fd);
	s->map = NULL;
	s->fd = -1;
}

static sigjmp_buf bus_jump;

static void on_bus(int signal)
{
	(void)signal;
	siglongjmp(bus_jump, 1);
}

int source_read(struct source *s, struct snapshot *out, char why[WHY_LEN])
{
	struct sigaction bus = {.sa_handler = on_bus}, old;
	char reason[WHY_LEN];
	struct stat st;
	int err;

	memset(out, 0, sizeof(*out));
	if (fstat(s->fd, &st) || (size_t)st.st_size < s->size) {
		snprintf(why, WHY_LEN, PREFIX "%d is truncated: it shrank to %lld bytes", s->pid,
			 (long long)st.st_size);
		return -1;
	}
	/* Its owner may still cut it while we copy. */
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
	if (!err && out->h.pid != (unsigned)s->pid) {
		snprintf(reason, sizeof(reason), "is corrupt: it is of process %u", out->h.pid);
		snapshot_free(out);
		err = -1;
	}
	if (err && !strncmp(reason, "Version ", 8))
		snprintf(why, WHY_LEN, "%s", reason);
	else if (err)
		snprintf(why, WHY_LEN, PREFIX "%d %.200s", s->pid, reason);
	return err;
}
