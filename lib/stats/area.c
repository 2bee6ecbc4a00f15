/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The statistics pages. They are one reservation of address space, made at the first request:
 * anonymous memory until stats_start() puts the file or the kernel module's pages over it,
 * anonymous again after stats_stop(), so that no block ever moves. A forked child begins a
 * reservation of its own and leaves the inherited one, emptied, to the blocks still held in it.
 */
#include "stats/area.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "kmod/kmod.h"
#include "runtime/runtime.h"
#include "stats/stats.h"
#include "vma/version.h"

#define PATH_LEN 4096
#define AREA_BYTES                                                                                 \
	(sizeof(struct vma_stats_header) + VMA_STATS_SOCKETS_MAX * sizeof(struct vma_stats_socket))

_Static_assert(sizeof(struct vma_stats_header) % 8 == 0, "copied in 64-bit words");
_Static_assert(sizeof(struct vma_stats_socket) % 8 == 0, "copied in 64-bit words");

pthread_mutex_t stats_mutex = PTHREAD_MUTEX_INITIALIZER;
struct stats_area *stats_area;
struct stats_followed stats_followed;
struct vma_stats_header stats_header_spill;
/* stats_mutex too. */
static char file_path[PATH_LEN]; /* "" when there is none */
static pid_t file_pid;
static size_t shown_bytes; /* of the file's or the module's pages; 0: tools see nothing */

static size_t page_size(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

static size_t page_up(size_t n)
{
	return (n + page_size() - 1) & ~(page_size() - 1);
}

char *stats_area_pages(const struct stats_area *a)
{
	return (char *)a + page_size();
}

struct stats_area *stats_area_get(void)
{
	size_t bytes = page_up(AREA_BYTES);
	struct vma_stats_header *h;
	void *p;

	if (stats_area && stats_area->bytes)
		return stats_area;
	p = mmap(NULL, page_size() + bytes, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	stats_area = p;
	stats_area->bytes = bytes;
	h = (struct vma_stats_header *)stats_area_pages(stats_area);
	h->dump_fd = VMA_STATS_DUMP_NONE;
	h->capture_fd = -1;
	h->select.epfd = STATS_SELECT;
	h->poll.epfd = STATS_SELECT;
	return stats_area;
}

struct vma_stats_header *stats_header_get(void)
{
	struct stats_area *a = stats_area_get();

	return a ? (struct vma_stats_header *)stats_area_pages(a) : &stats_header_spill;
}

struct stats_area *stats_area_of(const void *p)
{
	struct stats_area *a;

	for (a = stats_area; a; a = a->older)
		if ((const char *)p >= stats_area_pages(a) &&
		    (const char *)p < stats_area_pages(a) + a->bytes)
			return a;
	return NULL;
}

bool stats_has_file(void)
{
	return shown_bytes != 0;
}

/* ---- the file */

static void fill_header(struct vma_stats_header *h, unsigned max_sockets)
{
	static const char version[] = VMA_LIBRARY_VERSION;

	h->version = VMA_STATS_VERSION;
	h->header_size = sizeof(*h);
	h->socket_size = sizeof(struct vma_stats_socket);
	h->max_sockets = max_sockets;
	h->pid = (uint32_t)getpid();
	h->release[0] = VMA_LIBRARY_MAJOR;
	h->release[1] = VMA_LIBRARY_MINOR;
	h->release[2] = VMA_LIBRARY_REVISION;
	h->release[3] = VMA_STATS_VERSION;
	h->start_time = (uint64_t)time(NULL);
	snprintf(h->library_version, sizeof(h->library_version), "%s", version);
	snprintf(h->program, sizeof(h->program), "%s", program_invocation_short_name);
	stats_followed.level = __atomic_load_n(&log_level_now, __ATOMIC_RELAXED);
	stats_followed.details = __atomic_load_n(&log_details_now, __ATOMIC_RELAXED);
	h->log_level = stats_followed.level;
	h->log_details = stats_followed.details;
	h->dump_fd = VMA_STATS_DUMP_NONE;
	h->capture = h->capture_is = 0;
	h->capture_fd = -1;
	h->capture_error = 0;
	h->magic = VMA_STATS_MAGIC;
}

int stats_reserve(int fd, size_t bytes)
{
	struct rlimit limit;

	/* The kernel would answer with SIGXFSZ. */
	if (!libc.getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur != RLIM_INFINITY &&
	    limit.rlim_cur < bytes)
		return -EFBIG;
	return -posix_fallocate(fd, 0, (off_t)bytes);
}

/*
 * What was counted before goes into the pages that tools will see. Who counts meanwhile may lose
 * that one count.
 */
static void pages_fill(const struct stats_area *a, void *p, size_t bytes, unsigned max_sockets)
{
	stats_copy_words(p, stats_area_pages(a), bytes);
	fill_header(p, max_sockets);
}

/* Puts p's pages over the area's. Mutex held. 0 or negative errno, then nothing has changed. */
static int pages_move(struct stats_area *a, void *p, size_t bytes)
{
	if (mremap(p, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, stats_area_pages(a)) ==
	    MAP_FAILED)
		return -errno;
	shown_bytes = bytes;
	return 0;
}

/*
 * The pages are the kernel module's memory: its sysfs shows them. False: there is no module, or it
 * did not work. Mutex held.
 */
static bool module_install(unsigned max_sockets)
{
	struct stats_area *a = stats_area_get();
	size_t bytes;
	void *p = kmod_stats_map(&bytes);

	if (!p)
		return false;
	if (a && bytes <= a->bytes) {
		pages_fill(a, p, bytes, max_sockets);
		if (!pages_move(a, p, bytes))
			return true;
	}
	munmap(p, bytes);
	return false;
}

/*
 * Puts the pages of the file over the area's and gives the file its name. Mutex held. 0 or negative
 * errno, then nothing has changed and *what names the call.
 */
static int file_install(int fd, const char *temporary, const char *name, unsigned max_sockets,
			const char **what)
{
	struct stats_area *a = stats_area_get();
	size_t bytes = page_up(sizeof(struct vma_stats_header) +
			       max_sockets * sizeof(struct vma_stats_socket));
	void *p;
	int err;

	if (!a)
		return *what = "mmap", -ENOMEM;
	/*
	 * 0644 whatever the umask: any user may read. Sticky: who cleans /tmp of what is old
	 * (tmpfiles.d(5)) leaves it alone.
	 */
	if (fchmod(fd, S_ISVTX | 0644))
		return *what = "fchmod", -errno;
	err = stats_reserve(fd, bytes);
	if (err)
		return *what = "posix_fallocate", err;
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return *what = "mmap", -errno;
	pages_fill(a, p, bytes, max_sockets);
	/*
	 * Complete, so it may appear. Takes the place of a stale file that an earlier process with
	 * our pid left.
	 */
	if (rename(temporary, name)) {
		err = -errno;
		munmap(p, bytes);
		return *what = "rename", err;
	}
	err = pages_move(a, p, bytes);
	if (err) {
		munmap(p, bytes);
		unlink(name);
		*what = "mremap";
	}
	return err;
}

/* Mutex held, nothing is shown yet. As stats_start(). */
static int file_start(const char *dir, unsigned max_sockets)
{
	char temporary[PATH_LEN], name[PATH_LEN];
	const char *what = "open";
	int fd, err = 0;

	if (!dir || !*dir)
		return 0;
	if (snprintf(temporary, sizeof(temporary), "%s/.vmastat.%d.XXXXXX", dir, getpid()) >=
	    (int)sizeof(temporary)) {
		log_warn("statistics: VMA_STATS_SHMEM_DIR is longer than %d bytes: vma_stats will "
			 "not see this process",
			 PATH_LEN);
		return -ENAMETOOLONG;
	}
	snprintf(name, sizeof(name), "%s/vmastat.%d", dir, getpid());
	/* O_CREAT | O_EXCL under a name nobody can foresee: /tmp is everybody's. */
	own_fd_begin();
	fd = own_fd_adopt(mkostemp(temporary, O_CLOEXEC));
	own_fd_end();
	if (fd < 0) {
		err = -errno;
	} else {
		err = file_install(fd, temporary, name, max_sockets, &what);
		if (err)
			unlink(temporary);
		own_fd_close(fd);
	}
	if (!err) {
		memcpy(file_path, name, sizeof(file_path));
		file_pid = getpid();
	}
	if (err)
		log_warn("statistics: %s of %s: %s: vma_stats will not see this process "
			 "(VMA_STATS_SHMEM_DIR names the directory)",
			 what, name, strerror(-err));
	return err;
}

int stats_start(const char *dir, unsigned max_sockets)
{
	int err = 0;

	if (max_sockets > VMA_STATS_SOCKETS_MAX)
		max_sockets = VMA_STATS_SOCKETS_MAX;
	pthread_mutex_lock(&stats_mutex);
	if (!shown_bytes && !module_install(max_sockets))
		err = file_start(dir, max_sockets);
	pthread_mutex_unlock(&stats_mutex);
	return err;
}

void stats_give(uid_t uid)
{
	pthread_mutex_lock(&stats_mutex);
	if (file_path[0] && file_pid == getpid() && lchown(file_path, uid, (gid_t)-1))
		log_debug("statistics: %s stays another user's, who has to remove it: %s",
			  file_path, strerror(errno));
	pthread_mutex_unlock(&stats_mutex);
}

/* Private pages with the same content in place of those that tools see. Mutex held. */
static void pages_leave(bool keep_content)
{
	char *pages = stats_area_pages(stats_area);
	void *p = mmap(NULL, shown_bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p != MAP_FAILED) {
		if (keep_content)
			stats_copy_words(p, pages, shown_bytes);
		if (mremap(p, shown_bytes, shown_bytes, MREMAP_MAYMOVE | MREMAP_FIXED, pages) ==
		    MAP_FAILED)
			munmap(p, shown_bytes);
	}
	file_path[0] = 0;
	shown_bytes = 0;
}

void stats_stop(void)
{
	pthread_mutex_lock(&stats_mutex);
	if (shown_bytes) {
		/*
		 * Who has become another user since may not; vma_stats removes what dead processes
		 * left.
		 */
		if (file_path[0] && file_pid == getpid() && unlink(file_path) && errno != ENOENT)
			log_at(errno == EPERM || errno == EACCES ? LOG_DEBUG : LOG_WARN,
			       "statistics: unlink of %s: %s", file_path, strerror(errno));
		pages_leave(true);
	}
	pthread_mutex_unlock(&stats_mutex);
}

void stats_forked(void)
{
	struct stats_area *inherited = stats_area, *fresh;

	/* Another thread of the parent may have held it. */
	pthread_mutex_init(&stats_mutex, NULL);
	stats_capture_forked();
	if (!inherited)
		return;
	if (shown_bytes)
		pages_leave(false);
	stats_area = NULL;
	fresh = stats_area_get();
	if (fresh)
		fresh->older = inherited;
	else
		stats_area = inherited;
}
