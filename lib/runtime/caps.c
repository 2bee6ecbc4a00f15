/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "runtime/caps.h"

#include <errno.h>
#include <stdio.h>
#include <sys/syscall.h>

#include "runtime/libc.h"

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

struct caps caps_own(void)
{
	struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct d[_LINUX_CAPABILITY_U32S_3] = {{0}};

	if (libc_raw(SYS_capget, (long)(uintptr_t)&h, (long)(uintptr_t)d, 0, 0, 0, 0))
		return (struct caps){0};
	return (struct caps){.effective = word(d[0].effective, d[1].effective),
			     .permitted = word(d[0].permitted, d[1].permitted)};
}

int caps_follow(const struct caps *other, uint64_t mask)
{
	struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct d[_LINUX_CAPABILITY_U32S_3] = {{0}};
	struct caps own = caps_own();

	own.permitted &= ~mask | other->permitted;
	own.effective = (own.effective & ~mask) | (own.permitted & other->effective);
	for (unsigned i = 0; i < _LINUX_CAPABILITY_U32S_3; i++) {
		d[i].effective = (uint32_t)(own.effective >> (32 * i));
		d[i].permitted = (uint32_t)(own.permitted >> (32 * i));
	}
	return libc_raw(SYS_capset, (long)(uintptr_t)&h, (long)(uintptr_t)d, 0, 0, 0, 0) ? -errno
											 : 0;
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
