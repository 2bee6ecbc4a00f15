/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "ring/xdp/pin.h"

#include <bpf/bpf.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "runtime/runtime.h"
#include "vma/flow.h"

/*
 * `ip netns exec` puts an empty /sys in front of the host's: the host's bpffs is then behind
 * process 1's root.
 */
static const char *const bpffs_places[] = {"/sys/fs/bpf", "/proc/1/root/sys/fs/bpf",
					   "/run/vma/bpf"};

static bool is_bpffs(const char *path)
{
	struct statfs s;

	return statfs(path, &s) == 0 && (unsigned)s.f_type == BPF_FS_MAGIC;
}

static bool mount_bpffs(const char *path)
{
	if (mount("bpf", path, "bpf", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=0700") == 0)
		return true;
	log_debug("ring/xdp: mount bpf on %s: %s", path, strerror(errno));
	return false;
}

/* The bpffs to pin in, mounted when there is none; NULL: not possible here. */
static const char *bpffs_find(void)
{
	for (size_t i = 0; i < sizeof(bpffs_places) / sizeof(bpffs_places[0]); i++)
		if (is_bpffs(bpffs_places[i]))
			return bpffs_places[i];
	if (mount_bpffs("/sys/fs/bpf"))
		return "/sys/fs/bpf";
	if ((mkdir("/run/vma", 0755) && errno != EEXIST) ||
	    (mkdir("/run/vma/bpf", 0700) && errno != EEXIST)) {
		log_debug("ring/xdp: mkdir /run/vma/bpf: %s", strerror(errno));
		return NULL;
	}
	return mount_bpffs("/run/vma/bpf") ? "/run/vma/bpf" : NULL;
}

uint64_t process_start_time(unsigned pid)
{
	char path[32], line[1024], *p;
	uint64_t start;

	snprintf(path, sizeof(path), "/proc/%u/stat", pid);
	text_file_read(path, line, sizeof(line));
	/* The name in field 2 may hold blanks and parentheses: count from its last one. */
	p = strrchr(line, ')');
	for (int field = 2; p && field < 22; field++)
		p = strchr(p + 1, ' ');
	return p && sscanf(p, " %lu", &start) == 1 ? start : 0;
}

static void dir_remove(const char *dir)
{
	struct dirent *e;
	DIR *d = own_opendir(dir);

	if (!d)
		return;
	while ((e = readdir(d)))
		if (e->d_name[0] != '.' && unlinkat(dirfd(d), e->d_name, 0))
			log_debug("ring/xdp: unlink %s/%s: %s", dir, e->d_name, strerror(errno));
	own_closedir(d);
	if (rmdir(dir))
		log_debug("ring/xdp: rmdir %s: %s", dir, strerror(errno));
}

void pins_remove(const char *dir)
{
	char parent[PATH_MAX];
	char *slash;

	dir_remove(dir);
	snprintf(parent, sizeof(parent), "%s", dir);
	slash = strrchr(parent, '/');
	if (!slash)
		return;
	*slash = '\0';
	slash = strrchr(parent, '/');
	if (slash && !strncmp(slash, "/netns-", 7))
		rmdir(parent); /* succeeds when this was the last interface in it */
}

/*
 * True when the process that pinned dir has gone. A directory without a readable owner is being
 * made just now.
 */
static bool is_orphan(const char *dir)
{
	struct vma_port_owner o = {0};
	char path[PATH_MAX];
	uint32_t zero = 0;
	int fd, err;

	if (snprintf(path, sizeof(path), "%s/owner", dir) >= (int)sizeof(path))
		return false;
	fd = bpf_obj_get(path);
	if (fd < 0)
		return false;
	err = bpf_map_lookup_elem(fd, &zero, &o);
	own_fd_close(fd);
	return !err && o.pid && process_start_time(o.pid) != o.start_time;
}

/* Removes the pins of dead processes below dir, and in the netns-* directories in it. */
static void sweep(const char *dir, bool descend)
{
	char path[PATH_MAX];
	struct dirent *e;
	DIR *d = own_opendir(dir);

	if (!d)
		return;
	while ((e = readdir(d))) {
		if (e->d_name[0] == '.' ||
		    snprintf(path, sizeof(path), "%s/%s", dir, e->d_name) >= (int)sizeof(path))
			continue;
		if (descend && !strncmp(e->d_name, "netns-", 6)) {
			sweep(path, false);
			rmdir(path); /* succeeds when nothing is left in it */
		} else if (is_orphan(path)) {
			log_debug("ring/xdp: %s: its process has gone: removed", path);
			dir_remove(path);
		}
	}
	own_closedir(d);
}

/*
 * The inode of the first network namespace, for where /proc/1 may not be read (PROC_NET_INIT_INO,
 * fixed since 6.18).
 */
#define FIRST_NETNS_INODE 0xeffffff9u

static bool in_first_netns(const struct stat *ours)
{
	struct stat first;

	return stat("/proc/1/ns/net", &first) ? ours->st_ino == FIRST_NETNS_INODE
					      : ours->st_ino == first.st_ino;
}

static bool same_map(int a, int b)
{
	struct bpf_map_info x = {0}, y = {0};
	uint32_t len = sizeof(x);

	if (bpf_obj_get_info_by_fd(a, &x, &len))
		return false;
	len = sizeof(y);
	return !bpf_obj_get_info_by_fd(b, &y, &len) && x.id == y.id;
}

/* Are these pins those of the port whose owner map that is? */
static bool pins_of(const char *dir, int owner_fd)
{
	char path[PATH_MAX];
	bool same;
	int fd;

	if (snprintf(path, sizeof(path), "%s/owner", dir) >= (int)sizeof(path))
		return false;
	fd = bpf_obj_get(path);
	if (fd < 0)
		return false;
	same = same_map(fd, owner_fd);
	own_fd_close(fd);
	return same;
}

int pins_dir(const char *ifname, int owner_fd, char *dir, size_t size)
{
	struct stat ours;

	if (stat("/proc/thread-self/ns/net", &ours))
		return -errno;
	for (size_t i = 0; i < sizeof(bpffs_places) / sizeof(bpffs_places[0]); i++) {
		if (!is_bpffs(bpffs_places[i]))
			continue;
		if (in_first_netns(&ours))
			snprintf(dir, size, "%s/vma/%s", bpffs_places[i], ifname);
		else
			snprintf(dir, size, "%s/vma/netns-%lu/%s", bpffs_places[i],
				 (unsigned long)ours.st_ino, ifname);
		if (pins_of(dir, owner_fd))
			return 0;
	}
	return -ENOENT;
}

/* dir = the directory for ifname in this thread's network namespace, made with its parents. */
static int pin_dir_make(const char *ifname, char *dir, size_t size)
{
	const char *bpffs = bpffs_find();
	struct stat ours;
	int n;

	if (!bpffs)
		return -ENOENT;
	n = snprintf(dir, size, "%s/vma", bpffs);
	if (mkdir(dir, 0700) && errno != EEXIST)
		return -errno;
	sweep(dir, true);
	if (stat("/proc/thread-self/ns/net", &ours))
		return -errno;
	if (!in_first_netns(&ours)) {
		n += snprintf(dir + n, size - (size_t)n, "/netns-%lu", (unsigned long)ours.st_ino);
		if (mkdir(dir, 0700) && errno != EEXIST)
			return -errno;
	}
	snprintf(dir + n, size - (size_t)n, "/%s", ifname);
	dir_remove(dir);
	return mkdir(dir, 0700) ? -errno : 0;
}

int pins_make(const char *ifname, const struct xdp_pin *pins, unsigned n, char *dir, size_t size)
{
	char path[PATH_MAX + 32];
	int err;

	err = pin_dir_make(ifname, dir, size);
	if (err == -ENOENT) /* no bpffs, or another process removed the empty parent meanwhile */
		err = pin_dir_make(ifname, dir, size);
	if (err) {
		dir[0] = '\0';
		return err;
	}
	for (unsigned i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, pins[i].name);
		err = bpf_obj_pin(pins[i].fd, path);
		if (err) {
			log_debug("ring/xdp: pin %s: %s", path, strerror(-err));
			pins_remove(dir);
			dir[0] = '\0';
			return err;
		}
	}
	return 0;
}
