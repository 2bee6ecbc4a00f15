/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * kmod_compat: the calls of /dev/vma as a 32-bit program makes them, by the kernel's 32-bit system
 * calls, which a 64-bit program can reach, too. Ends with 0 if the answers are those of the 64-bit
 * calls.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "vma/kmod.h"

#define IOCTL_32 54

/* Addresses of 32 bits. */
static void *low;

static int ioctl_32(int fd, unsigned number, void *arg, size_t len)
{
	long err;

	memcpy(low, arg, len);
	__asm__ volatile("int $0x80"
			 : "=a"(err)
			 : "a"(IOCTL_32), "b"(fd), "c"(number), "d"((unsigned)(unsigned long)low)
			 : "memory", "r8", "r9", "r10", "r11");
	memcpy(arg, low, len);
	return (int)err;
}

/* What both ways must answer alike. */
static int differs(const struct vma_kmod_setup *a, const struct vma_kmod_setup *b)
{
	return memcmp(a, b, sizeof(*a)) || !a->features || !a->ring_bytes || a->conns_bytes != 4096;
}

int main(void)
{
	struct vma_kmod_setup setup[2];
	struct vma_kmod_region region = {.bytes = 1, .kind = VMA_KMOD_MEM_CONTIG, .node = -1};
	struct vma_kmod_unconn unconn = {.slot = 3};

	low = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1,
		   0);
	if (low == MAP_FAILED)
		return 1;
	for (int i = 0; i < 2; i++) {
		int fd = open("/dev/vma", O_RDWR | O_CLOEXEC), err;

		setup[i] = (struct vma_kmod_setup){.version = VMA_KMOD_VERSION,
						   .sockets = 1,
						   .conns = 8,
						   .ring = VMA_KMOD_RING_MIN};
		err = i ? ioctl_32(fd, VMA_KMOD_SETUP, &setup[i], sizeof(setup[i]))
			: ioctl(fd, VMA_KMOD_SETUP, &setup[i]);
		if (err)
			return 2;
		if (i && (ioctl_32(fd, VMA_KMOD_UNCONN, &unconn, sizeof(unconn)) != -ENOENT ||
			  ioctl_32(fd, VMA_KMOD_SETUP, &setup[0], sizeof(setup[0])) != -EINVAL ||
			  ioctl_32(fd, VMA_KMOD_REGION, &region, sizeof(region)) ||
			  ioctl_32(fd, VMA_KMOD_UNCONN + 1, &unconn, sizeof(unconn)) != -ENOTTY))
			return 3;
		close(fd);
	}
	if (differs(&setup[0], &setup[1]) || region.bytes != 4096 ||
	    region.offset != VMA_KMOD_MAP_REGION(0))
		return 4;
	puts("as 64 bits");
	return 0;
}
