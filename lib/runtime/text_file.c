/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "runtime/text_file.h"

#include <fcntl.h>
#include <sys/types.h>

#include "runtime/libc.h"

void text_file_read(const char *path, char *text, size_t size)
{
	int fd = libc.open(path, O_RDONLY | O_CLOEXEC, 0);
	ssize_t n = fd < 0 ? -1 : libc.read(fd, text, size - 1);

	if (fd >= 0)
		libc.close(fd);
	text[n > 0 ? n : 0] = '\0';
}
