/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The list of connections that another process of the user has left (lib/kmod/conns.c): the bytes
 * stand at its beginning, behind a good header if the first one is even.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kmod/kmod.h"
#include "runtime/runtime.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HEADER 8

static size_t bytes_of_a_list(void)
{
	struct stat st;

	if (fstat(kmod_conns_fd(), &st))
		abort();
	return (size_t)st.st_size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int fd = -1;
	struct vma_flow_key *keys;
	uint8_t header[HEADER];
	off_t at = size && data[0] & 1 ? 0 : HEADER;
	unsigned n;

	if (fd < 0) {
		lock_mode = 1;
		fd = own_fd_memory("fuzz", bytes_of_a_list(), 0);
	}
	if (size > 65536 || pread(kmod_conns_fd(), header, HEADER, 0) != HEADER ||
	    pwrite(fd, header, HEADER, 0) != HEADER || pwrite(fd, data, size, at) != (ssize_t)size)
		return 0;
	n = kmod_conns_read(fd, &keys);
	if (n > VMA_KMOD_CONNS_MAX)
		abort();
	for (unsigned i = 0; i < n; i++)
		if (!keys[i].remote_port)
			abort();
	free(keys);
	return 0;
}
