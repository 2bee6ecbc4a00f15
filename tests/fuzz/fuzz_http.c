/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The head of a request to vma_stats --listen: any bytes, as they come from the network. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../../tools/vma_stats/request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Exactly as long as it is: one byte more is the sanitizer's to see. */
static char *copy_of(const uint8_t *data, size_t size)
{
	char *copy = malloc(size ? size : 1);

	if (!copy)
		abort();
	memcpy(copy, data, size);
	return copy;
}

/* What the server relies on. */
static void check(const struct request *r)
{
	if (r->status != 200 && r->status != 400 && r->status != 405)
		abort();
	if (!memchr(r->path, 0, sizeof(r->path)) || (r->status == 200 && r->path[0] != '/'))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *head = copy_of(data, size);
	struct request r;

	if (size && request_whole(head, size)) {
		request_parse(&r, head, size);
		check(&r);
	}
	free(head);
	return 0;
}
