/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * BPF programs of the control group that the process is in (of version 2): the kernel asks them of
 * each packet, or of an address that the program names. What user space serves they would not see.
 * Those that look at bind() see the shadow socket's.
 */
#include <bpf/bpf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "net/net.h"
#include "runtime/runtime.h"

#define PATH_MOST 1024

static const struct {
	enum bpf_attach_type type;
	const char *name; /* as bpftool's and libbpf's */
} hooks[] = {
	{BPF_CGROUP_INET_INGRESS, "cgroup_skb/ingress"},
	{BPF_CGROUP_INET_EGRESS, "cgroup_skb/egress"},
	{BPF_CGROUP_INET4_CONNECT, "cgroup/connect4"},
	{BPF_CGROUP_INET6_CONNECT, "cgroup/connect6"},
	{BPF_CGROUP_UDP4_SENDMSG, "cgroup/sendmsg4"},
	{BPF_CGROUP_UDP6_SENDMSG, "cgroup/sendmsg6"},
	{BPF_CGROUP_UDP4_RECVMSG, "cgroup/recvmsg4"},
	{BPF_CGROUP_UDP6_RECVMSG, "cgroup/recvmsg6"},
};

/* Its own or of a group above it. */
static bool has_program(int group, enum bpf_attach_type type)
{
	__u32 count = 0;

	return !bpf_prog_query(group, type, BPF_F_QUERY_EFFECTIVE, NULL, NULL, &count) && count;
}

/*
 * The group's directory; of one that is not there the next above it. In a container the path may be
 * the host's, and the mount the group's own. -1: there is none.
 */
static int group_open(const char *mount, const char *group)
{
	char path[PATH_MOST], *slash;
	int fd;

	if ((size_t)snprintf(path, sizeof(path), "%s%s", mount, group) >= sizeof(path))
		return -1;
	for (;;) {
		fd = OWN_FD(raw.open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0));
		slash = strrchr(path + strlen(mount), '/');
		if (fd >= 0 || errno != ENOENT || !slash)
			return fd;
		*slash = '\0';
	}
}

static const char *program_of(const char *mount, const char *group)
{
	const char *found = NULL;
	int fd = group_open(mount, group);

	for (unsigned i = 0; fd >= 0 && !found && i < sizeof(hooks) / sizeof(hooks[0]); i++) {
		if (has_program(fd, hooks[i].type))
			found = hooks[i].name;
	}
	if (fd >= 0)
		own_fd_close(fd);
	return found;
}

const char *net_cgroup_program(void)
{
	char text[4096], *rest = text, *line;
	const char *found = NULL;

	text_file_read("/proc/self/cgroup", text, sizeof(text));
	while ((line = strsep(&rest, "\n"))) {
		if (strncmp(line, "0::", 3))
			continue;
		/* The second one beside version 1. Where the mounts stand is custom. */
		found = program_of("/sys/fs/cgroup", line + 3);
		if (!found)
			found = program_of("/sys/fs/cgroup/unified", line + 3);
	}
	return found;
}
