/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * pool_thief PID UID: as that user, with CAP_NET_RAW and CAP_NET_ADMIN, takes what it can get of
 * the process: its descriptors, and what its memory maps. Prints how much of it belongs to queues
 * that processes share, as one line of JSON.
 */
#include <dirent.h>
#include <grp.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static unsigned fetched, memory, queues, packets, maps, mapped;

static int become(uid_t uid)
{
	struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct d[2] = {0};

	d[0].permitted = d[0].effective = 1u << CAP_NET_RAW | 1u << CAP_NET_ADMIN;
	return prctl(PR_SET_KEEPCAPS, 1) || setgroups(0, NULL) || setgid(uid) || setuid(uid) ||
	       syscall(SYS_capset, &h, d);
}

static void look(int pidfd, int number)
{
	int fd = (int)syscall(SYS_pidfd_getfd, pidfd, number, 0), domain = 0;
	char path[64], target[128] = "";
	socklen_t len = sizeof(domain);

	if (fd < 0)
		return;
	fetched++;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (readlink(path, target, sizeof(target) - 1) < 0)
		target[0] = '\0';
	memory += strstr(target, "vma-port") != NULL;
	maps += strstr(target, "bpf-map") != NULL;
	if (!getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len)) {
		queues += domain == AF_XDP;
		packets += domain == AF_PACKET;
	}
	close(fd);
}

static void descriptors(const char *pid)
{
	int pidfd = (int)syscall(SYS_pidfd_open, atoi(pid), 0);
	struct dirent *e;
	char path[64];
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%s/fd", pid);
	d = opendir(path);
	while (d && (e = readdir(d)))
		if (e->d_name[0] != '.')
			look(pidfd, atoi(e->d_name));
	if (d)
		closedir(d);
}

static void mappings(const char *pid)
{
	char path[64], line[512];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%s/maps", pid);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f))
		mapped += strstr(line, "vma-port") || strstr(line, "anon_inode:bpf-map") ||
			  strstr(line, "socket:[");
	if (f)
		fclose(f);
}

int main(int argc, char **argv)
{
	if (argc < 3 || become((uid_t)atoi(argv[2])))
		return 1;
	descriptors(argv[1]);
	mappings(argv[1]);
	printf("{\"fetched\": %u, \"memory\": %u, \"queues\": %u, \"packets\": %u, \"maps\": %u, "
	       "\"mapped\": %u}\n",
	       fetched, memory, queues, packets, maps, mapped);
	return 0;
}
