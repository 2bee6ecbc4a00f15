/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "runtime/caps.h"

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

static uint64_t effective(void)
{
	struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct d[_LINUX_CAPABILITY_U32S_3] = {{0}};

	if (libc_raw(SYS_capget, (long)(uintptr_t)&h, (long)(uintptr_t)d, 0, 0, 0, 0))
		return 0;
	return d[0].effective | (uint64_t)d[1].effective << 32;
}

bool caps_have(uint64_t caps)
{
	return (effective() & caps) == caps;
}

const char *caps_missing(uint64_t caps, char *text, size_t size)
{
	uint64_t have = effective();
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
