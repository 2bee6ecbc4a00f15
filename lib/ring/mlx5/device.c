/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "ring/mlx5/device.h"

#include <dirent.h>
#include <limits.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/runtime.h"

#define NAME_MAX_RDMA 64u
#define DRIVER "mlx5_core" /* of a subfunction mlx5_core.sf */

/*
 * Other vendors have RDMA devices, too: a host with such a card only is not to load rdma-core for
 * nothing. A device that has no driver at all (one in software) is for rdma-core to tell.
 */
static bool driver_fits(const char *sys, const char *ifname)
{
	char path[PATH_MAX], link[PATH_MAX] = "";
	const char *name;

	snprintf(path, sizeof(path), "%s/class/net/%s/device/driver", sys, ifname);
	if (readlink(path, link, sizeof(link) - 1) < 0)
		return true;
	name = strrchr(link, '/');
	return !strncmp(name ? name + 1 : link, DRIVER, strlen(DRIVER));
}

bool device_name(const char *sys, const char *ifname, char *name, size_t size)
{
	char path[PATH_MAX];
	struct dirent *e;
	bool found = false;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/class/net/%s/device/infiniband", sys, ifname);
	dir = own_opendir(path);
	if (!dir)
		return false;
	while (!found && (e = readdir(dir)))
		found = e->d_name[0] != '.' && snprintf(name, size, "%s", e->d_name) < (int)size;
	own_closedir(dir);
	return found && driver_fits(sys, ifname);
}

bool device_in_bond(const char *sys, const char *ifname)
{
	char path[PATH_MAX], slaves[256], name[NAME_MAX_RDMA], *next, *slave;
	bool found = false;

	snprintf(path, sizeof(path), "%s/class/net/%s/bonding/slaves", sys, ifname);
	text_file_read(path, slaves, sizeof(slaves));
	for (slave = strtok_r(slaves, " \n", &next); slave && !found;
	     slave = strtok_r(NULL, " \n", &next))
		found = strlen(slave) < IF_NAMESIZE && device_name(sys, slave, name, sizeof(name));
	return found;
}

/* One of the interface's files, in a word: empty where it has none. */
static void word_read(const char *sys, const char *ifname, const char *file, char word[32])
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/class/net/%s/%s", sys, ifname, file);
	text_file_read(path, word, 32);
	word[strcspn(word, "\n")] = '\0';
}

bool device_is_representor(const char *sys, const char *ifname)
{
	char id[32], name[32];
	unsigned port;
	int end = 0;

	/* The names are the kernel's (devlink): "pf0vf3", "c1pf0sf7"; of an uplink "p0". */
	word_read(sys, ifname, "phys_switch_id", id);
	word_read(sys, ifname, "phys_port_name", name);
	return id[0] && name[0] && (sscanf(name, "p%u%n", &port, &end) != 1 || name[end]);
}

int device_vector(int vectors)
{
	static _Atomic uint32_t rings;

	return vectors > 0 ? (int)(((uint32_t)getpid() + rings++) % (uint32_t)vectors) : 0;
}

uint8_t device_port(const char *sys, const char *ifname)
{
	char path[PATH_MAX], text[16];
	unsigned port = 0;

	snprintf(path, sizeof(path), "%s/class/net/%s/dev_port", sys, ifname);
	text_file_read(path, text, sizeof(text));
	sscanf(text, "%u", &port);
	return (uint8_t)(port + 1);
}
