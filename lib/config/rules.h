/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * libvma.conf: who offloads what (libvma.conf(5)). First match wins;
 * default: offload.
 */
#ifndef CONFIG_RULES_H
#define CONFIG_RULES_H

#include <stddef.h>
#include <sys/socket.h>

enum rule_role {
	RULE_TCP_SERVER,
	RULE_TCP_CLIENT,
	RULE_UDP_SENDER,
	RULE_UDP_RECEIVER,
	RULE_UDP_CONNECT
};
enum rule_target { RULE_OS, RULE_VMA };

/*
 * Reads VMA_CONFIG_FILE (missing file: built-in default "use os udp_connect *:53"). Unreadable
 * lines are reported and skipped. Follows the file's log statement. Like rules_parse() and
 * rules_free(), not while another thread matches.
 */
void rules_load(const char *path);
/*
 * Parses text as a file named `name`; replaces what was loaded. For rules_load, tests and fuzzing:
 * has no effect but on the rules. Returns the number of bad lines.
 */
int rules_parse(const char *text, size_t len, const char *name);
/* One line on top of all others (Extra API add_conf_rule). 0, -EINVAL or -ENOMEM. Thread-safe. */
int rules_add_top(const char *line);
/*
 * The first address: tcp_server/udp_receiver: local; tcp_client/udp_sender/udp_connect: remote.
 * The second (may be NULL): the local side of a udp_connect or tcp_client rule with two pairs.
 * v4-mapped IPv6 addresses match IPv4 rules. Thread-safe.
 */
enum rule_target rules_match(enum rule_role role, const struct sockaddr *first,
			     const struct sockaddr *second);
void rules_free(void);

#endif
