/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "runtime/text_file.h"

#include <fcntl.h>
#include <sys/types.h>

#include "runtime/libc.h"
#include "runtime/own_fd.h"

void text_file_read(const char *path, char *text, size_t size)
{
	int fd = OWN_FD(raw.open(path, O_RDONLY | O_CLOEXEC, 0));
	ssize_t n = fd < 0 ? -1 : raw.read(fd, text, size - 1);

	if (fd >= 0)
		own_fd_close(fd);
	text[n > 0 ? n : 0] = '\0';
}
