/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "ring/bond.h"

#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

#include "runtime/runtime.h"

/* As the driver numbers them (linux/if_bonding.h). */
#define MODE_ACTIVE_BACKUP 1
#define MODE_8023AD 4
#define MODE_BALANCE_ALB 6
#define FAIL_OVER_MAC_ACTIVE 1

/* A small file of the interface; empty when it has none. */
static void file_of(const char *ifname, const char *name, char *text, size_t size)
{
	char path[96];

	snprintf(path, sizeof(path), "/sys/class/net/%s/%s", ifname, name);
	text_file_read(path, text, size);
}

/* The number in a file like "active-backup 1"; -1: it is no bond. */
static int bond_setting(const char *ifname, const char *name)
{
	char text[64];
	int value;

	file_of(ifname, name, text, sizeof(text));
	return sscanf(text, "%*s %d", &value) == 1 ? value : -1;
}

/* The first time that it is asked of this interface. The stacks' mutex is held. */
static bool is_news(char warned[IF_NAMESIZE], const char *ifname)
{
	if (!strcmp(warned, ifname))
		return false;
	snprintf(warned, IF_NAMESIZE, "%s", ifname);
	return true;
}

static void mode_check(const char *ifname, int mode)
{
	static char warned[IF_NAMESIZE];
	int mac = bond_setting(ifname, "bonding/fail_over_mac");

	if (mode == MODE_8023AD ||
	    (mode == MODE_ACTIVE_BACKUP && (mac == 0 || mac == FAIL_OVER_MAC_ACTIVE)))
		return;
	if (is_news(warned, ifname))
		log_box("VMA doesn't support current bonding configuration of %s.\n"
			"The only supported bonding mode is \"802.3ad(#4)\" or "
			"\"active-backup(#1)\"\n"
			"with \"fail_over_mac=1\" or \"fail_over_mac=0\"; it has mode %d, "
			"fail_over_mac %d.\n"
			"The effect of working in unsupported bonding mode is undefined.\n"
			"Remedy: set /sys/class/net/%s/bonding/mode while the bond is down.",
			ifname, mode, mac, ifname);
}

/*
 * Frames that are not for the interface's own address the steering leaves to the kernel, which in
 * this mode tells each peer another one: that of a device below the bond. 0 or -EOPNOTSUPP.
 */
static int address_check(const char *ifname, int mode)
{
	if (mode != MODE_BALANCE_ALB)
		return 0;
	log_warn("ring: %s: a bond in mode \"balance-alb(#6)\" receives by the addresses of the "
		 "devices below it: sockets stay with the kernel",
		 ifname);
	return -EOPNOTSUPP;
}

/* The interface under a VLAN; false: it is none. */
static bool vlan_lower(const char *ifname, char lower[IF_NAMESIZE])
{
	char text[128];
	unsigned index;

	file_of(ifname, "uevent", text, sizeof(text));
	if (!strstr(text, "DEVTYPE=vlan"))
		return false;
	file_of(ifname, "iflink", text, sizeof(text));
	return sscanf(text, "%u", &index) == 1 && if_indextoname(index, lower);
}

int bond_check(const char *ifname)
{
	static char warned[IF_NAMESIZE];
	int mode = bond_setting(ifname, "bonding/mode");
	char lower[IF_NAMESIZE];

	if (mode >= 0) {
		mode_check(ifname, mode);
		return address_check(ifname, mode);
	}
	if (!vlan_lower(ifname, lower))
		return 0;
	if (address_check(ifname, bond_setting(lower, "bonding/mode")))
		return -EOPNOTSUPP;
	if (bond_setting(lower, "bonding/fail_over_mac") != FAIL_OVER_MAC_ACTIVE)
		return 0;
	if (is_news(warned, ifname))
		log_box("%s: vlan over bond while fail_over_mac=1 is not offloaded.\n"
			"Remedy: set /sys/class/net/%s/bonding/fail_over_mac to 0.",
			ifname, lower);
	return -EOPNOTSUPP;
}
