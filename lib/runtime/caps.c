/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "runtime/caps.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

#include "runtime/libc.h"
#include "runtime/log.h"

static const struct {
	int cap;
	const char *name;
} names[] = {
	{CAP_NET_ADMIN, "CAP_NET_ADMIN"}, {CAP_NET_RAW, "CAP_NET_RAW"},
	{CAP_IPC_LOCK, "CAP_IPC_LOCK"},	  {CAP_SYS_ADMIN, "CAP_SYS_ADMIN"},
	{CAP_PERFMON, "CAP_PERFMON"},	  {CAP_BPF, "CAP_BPF"},
};

static uint64_t word(uint32_t low, uint32_t high)
{
	return low | (uint64_t)high << 32;
}

/* Version 3: d has _LINUX_CAPABILITY_U32S_3 of them. 0 or -1 and errno. */
static int call(long nr, struct __user_cap_data_struct *d)
{
	struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};

	return libc_raw(nr, (long)(uintptr_t)&h, (long)(uintptr_t)d, 0, 0, 0, 0) ? -1 : 0;
}

struct caps_sets caps_own(void)
{
	struct __user_cap_data_struct d[_LINUX_CAPABILITY_U32S_3] = {{0}};

	if (call(SYS_capget, d))
		return (struct caps_sets){0};
	return (struct caps_sets){.effective = word(d[0].effective, d[1].effective),
				  .permitted = word(d[0].permitted, d[1].permitted)};
}

/* What is inheritable stays. 0 or negative errno. */
static int become(const struct caps_sets *sets)
{
	struct __user_cap_data_struct d[_LINUX_CAPABILITY_U32S_3] = {{0}};

	if (call(SYS_capget, d))
		return -errno;
	for (unsigned i = 0; i < _LINUX_CAPABILITY_U32S_3; i++) {
		d[i].effective = (uint32_t)(sets->effective >> (32 * i));
		d[i].permitted = (uint32_t)(sets->permitted >> (32 * i));
	}
	return call(SYS_capset, d) ? -errno : 0;
}

int caps_follow(const struct caps_sets *other, uint64_t mask)
{
	struct caps_sets own = caps_own();

	own.permitted &= ~mask | other->permitted;
	own.effective = (own.effective & ~mask) | (own.permitted & other->effective);
	return become(&own);
}

struct caps_sets caps_raise(uint64_t mask)
{
	struct caps_sets before = caps_own(), sets = before;

	sets.effective |= sets.permitted & mask;
	if (sets.effective != before.effective && become(&sets))
		log_debug("capset(): %s", strerror(errno));
	return before;
}

void caps_lower(const struct caps_sets *before)
{
	struct caps_sets own = caps_own();

	if (own.effective == before->effective)
		return;
	own.effective = before->effective & own.permitted;
	if (become(&own))
		log_warn("capset(): %s: this thread keeps capabilities that the program has laid "
			 "down",
			 strerror(errno));
}

bool caps_have(uint64_t caps)
{
	return (caps_own().effective & caps) == caps;
}

const char *caps_missing(uint64_t caps, char *text, size_t size)
{
	uint64_t have = caps_own().effective;
	size_t len = 0;

	if (have & CAPS_BIT(CAP_SYS_ADMIN))
		have |= CAPS_BIT(CAP_BPF) | CAPS_BIT(CAP_PERFMON);
	text[0] = '\0';
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && len < size; i++) {
		if (caps & ~have & CAPS_BIT(names[i].cap))
			len += (size_t)snprintf(text + len, size - len, "%s%s",
						len ? ", " : " (missing: ", names[i].name);
	}
	if (len && len < size)
		snprintf(text + len, size - len, ")");
	return text;
}
