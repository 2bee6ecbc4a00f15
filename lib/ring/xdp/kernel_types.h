/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What our programs have to know of the running kernel: where some fields of its structures
 * lie, and the numbers of some functions. The kernel's own description (BTF, see bpf/btf.rst of its
 * documentation) has that among some 126,000 types. They are looked through once: a relocation in
 * the program would make libbpf read and parse all of them, 11 ms of CPU time for each ring.
 */
#ifndef RING_XDP_KERNEL_TYPES_H
#define RING_XDP_KERNEL_TYPES_H

#include <linux/bpf.h>
#include <stddef.h>

#include "vma/steer.h"

/*
 * Finds it in btf, len bytes as in /sys/kernel/btf/vmlinux. 0, -ENOENT: a structure or a field of
 * it is not there; -EINVAL: that is no BTF of this machine's; -ENOMEM. A function that is not there
 * has the number 0.
 */
int kernel_types_parse(const void *btf, size_t len, struct vma_steer_kernel *k);
/*
 * The same of the running kernel, which is asked once. Under the caller's lock. 0 or negative
 * errno.
 */
int kernel_types_get(struct vma_steer_kernel *k);
/*
 * Enters the numbers of k where the n instructions call by stand-ins (vma/kernel_calls.h). 0, or
 * -EOPNOTSUPP: one of them calls what the kernel does not have. Those of a device's metadata stay
 * where k has no number for them.
 */
int kernel_calls_enter(struct bpf_insn *insns, size_t n, const struct vma_steer_kernel *k);
/* The same in a program that is not loaded yet; or another negative errno. */
struct bpf_program;
int kernel_calls_set(struct bpf_program *prog, const struct vma_steer_kernel *k);

#endif
