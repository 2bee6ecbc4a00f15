/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "ring/xdp/kernel_types.h"

#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "ring/ring.h"
#include "runtime/runtime.h"
#include "vma/kernel_calls.h"

#define VMLINUX_BTF "/sys/kernel/btf/vmlinux"
/* Structures without a name in structures without a name: the kernel has two. */
#define NESTED_MAX 8

struct types {
	const char *strings;
	uint32_t strings_len; /* the last byte is 0 */
	const uint8_t *types;
	uint32_t types_len;
	uint32_t *at; /* where type 1 + i lies in types */
	uint32_t num;
};

/* "": there is none. */
static const char *name_at(const struct types *t, uint32_t off)
{
	return off < t->strings_len ? &t->strings[off] : "";
}

static const struct btf_type *type_at(const struct types *t, uint32_t id)
{
	return id - 1 < t->num ? (const struct btf_type *)&t->types[t->at[id - 1]] : NULL;
}

/* The bytes of a type of that kind with vlen entries; 0: a kind that is not known. */
static uint32_t type_len(uint32_t kind, uint32_t vlen)
{
	static const uint8_t fixed[] = {
		[BTF_KIND_INT] = 4,
		[BTF_KIND_ARRAY] = sizeof(struct btf_array),
		[BTF_KIND_VAR] = sizeof(struct btf_var),
		[BTF_KIND_DECL_TAG] = sizeof(struct btf_decl_tag),
	};
	static const uint8_t each[] = {
		[BTF_KIND_STRUCT] = sizeof(struct btf_member),
		[BTF_KIND_UNION] = sizeof(struct btf_member),
		[BTF_KIND_ENUM] = sizeof(struct btf_enum),
		[BTF_KIND_FUNC_PROTO] = sizeof(struct btf_param),
		[BTF_KIND_DATASEC] = sizeof(struct btf_var_secinfo),
		[BTF_KIND_ENUM64] = sizeof(struct btf_enum64),
	};
	uint32_t len = sizeof(struct btf_type);

	if (!kind || kind > BTF_KIND_ENUM64)
		return 0;
	if (kind < sizeof(fixed))
		len += fixed[kind];
	if (kind < sizeof(each))
		len += each[kind] * vlen;
	return len;
}

/* Finds the sections. btf is aligned. 0 or -EINVAL. */
static int sections(struct types *t, const void *btf, size_t len)
{
	const struct btf_header *h = btf;
	uint64_t types, strings;

	if (len < sizeof(*h) || h->magic != BTF_MAGIC || h->hdr_len < sizeof(*h))
		return -EINVAL;
	types = (uint64_t)h->hdr_len + h->type_off;
	strings = (uint64_t)h->hdr_len + h->str_off;
	if (types % 4 || types + h->type_len > len || strings + h->str_len > len || !h->str_len)
		return -EINVAL;
	t->types = (const uint8_t *)btf + types;
	t->types_len = h->type_len;
	t->strings = (const char *)btf + strings;
	t->strings_len = h->str_len;
	return t->strings[h->str_len - 1] ? -EINVAL : 0;
}

/* What is looked for. */
enum wanted {
	XDP_BUFF,
	SHARED_INFO,
	CAST_CTX,
	CAST_RDONLY,
	ASSIGN_REQSK,
	RX_TIMESTAMP,
	RX_VLAN_TAG,
	NUM_WANTED,
};

static const struct {
	const char *name;
	uint32_t kind;
} wanted[NUM_WANTED] = {
	[XDP_BUFF] = {"xdp_buff", BTF_KIND_STRUCT},
	[SHARED_INFO] = {"skb_shared_info", BTF_KIND_STRUCT},
	[CAST_CTX] = {"bpf_cast_to_kern_ctx", BTF_KIND_FUNC},
	[CAST_RDONLY] = {"bpf_rdonly_cast", BTF_KIND_FUNC},
	[ASSIGN_REQSK] = {"bpf_sk_assign_tcp_reqsk", BTF_KIND_FUNC},
	[RX_TIMESTAMP] = {"bpf_xdp_metadata_rx_timestamp", BTF_KIND_FUNC},
	[RX_VLAN_TAG] = {"bpf_xdp_metadata_rx_vlan_tag", BTF_KIND_FUNC},
};

/* Enters the number of a type that is looked for. */
static void note_wanted(const struct types *t, const struct btf_type *type, uint32_t kind,
			uint32_t id, uint32_t found[NUM_WANTED])
{
	const char *name = name_at(t, type->name_off);

	for (unsigned i = 0; i < NUM_WANTED; i++)
		if (kind == wanted[i].kind && name[0] == wanted[i].name[0] &&
		    !strcmp(name, wanted[i].name))
			found[i] = id;
}

/* Enters where each type lies, and the numbers of those that are looked for. 0 or negative errno.
 */
static int enter_types(struct types *t, uint32_t found[NUM_WANTED])
{
	uint32_t off = 0, len, kind;

	/* As many as there can be: memory that is never touched costs nothing. */
	t->at = malloc(t->types_len / sizeof(struct btf_type) * sizeof(t->at[0]) + 1);
	if (!t->at)
		return -ENOMEM;
	while (t->types_len - off >= sizeof(struct btf_type)) {
		const struct btf_type *type = (const struct btf_type *)&t->types[off];

		kind = btf_kind(type);
		len = type_len(kind, btf_vlen(type));
		if (!len || len > t->types_len - off)
			return -EINVAL;
		t->at[t->num++] = off;
		off += len;
		if (kind == BTF_KIND_STRUCT || kind == BTF_KIND_FUNC)
			note_wanted(t, type, kind, t->num, found);
	}
	return off == t->types_len ? 0 : -EINVAL;
}

/*
 * Adds the bytes at which a member of the structure lies to *off, also one of a structure without a
 * name in it. False: there is no such member.
 */
static bool member_off(const struct types *t, uint32_t id, const char *name, unsigned nested,
		       uint32_t *off)
{
	const struct btf_type *s = type_at(t, id);

	if (!s || !btf_is_composite(s) || nested > NESTED_MAX)
		return false;
	for (uint32_t i = 0; i < btf_vlen(s); i++) {
		const struct btf_member *m = &btf_members(s)[i];
		const char *its = name_at(t, m->name_off);

		if (!strcmp(its, name) ||
		    (!*its && member_off(t, m->type, name, nested + 1, off))) {
			*off += btf_member_bit_offset(s, i) / 8;
			return true;
		}
	}
	return false;
}

static int fill(const struct types *t, const uint32_t found[NUM_WANTED], struct vma_steer_kernel *k)
{
	memset(k, 0, sizeof(*k));
	if (!member_off(t, found[XDP_BUFF], "data_hard_start", 0, &k->data_hard_start) ||
	    !member_off(t, found[XDP_BUFF], "frame_sz", 0, &k->frame_sz) ||
	    !member_off(t, found[SHARED_INFO], "gso_size", 0, &k->gso_size) ||
	    !member_off(t, found[SHARED_INFO], "gso_type", 0, &k->gso_type))
		return -ENOENT;
	k->shared_info_size = type_at(t, found[SHARED_INFO])->size;
	k->shared_info_id = found[SHARED_INFO];
	k->cast_ctx_id = found[CAST_CTX];
	k->cast_rdonly_id = found[CAST_RDONLY];
	k->assign_reqsk_id = found[ASSIGN_REQSK];
	k->rx_timestamp_id = found[RX_TIMESTAMP];
	k->rx_vlan_tag_id = found[RX_VLAN_TAG];
	return 0;
}

int kernel_types_parse(const void *btf, size_t len, struct vma_steer_kernel *k)
{
	uint32_t found[NUM_WANTED] = {0};
	struct types t = {.num = 0};
	int err = sections(&t, btf, len);

	if (!err)
		err = enter_types(&t, found);
	if (!err)
		err = fill(&t, found, k);
	free(t.at);
	return err;
}

/* The file's mapping (Linux 6.16). -ENODEV: the kernel has none for it. */
static int parse_mapped(struct vma_steer_kernel *k)
{
	int fd = OWN_FD(raw.open(VMLINUX_BTF, O_RDONLY | O_CLOEXEC, 0)), err;
	void *map = MAP_FAILED;
	struct stat st;

	if (fd < 0)
		return -errno;
	if (!fstat(fd, &st) && st.st_size > 0)
		map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	own_fd_close(fd);
	if (map == MAP_FAILED)
		return -ENODEV;
	err = kernel_types_parse(map, (size_t)st.st_size, k);
	munmap(map, (size_t)st.st_size);
	return err;
}

/* libbpf looks in the other places as well where a kernel's BTF may be. */
static int parse_read(struct vma_steer_kernel *k)
{
	struct btf *btf;
	const void *data;
	uint32_t len;
	int err;

	own_fd_begin();
	btf = btf__load_vmlinux_btf();
	err = -errno;
	own_fd_end();
	if (!btf)
		return err;
	data = btf__raw_data(btf, &len);
	err = data ? kernel_types_parse(data, len, k) : -ENOMEM;
	btf__free(btf);
	return err;
}

int kernel_types_get(struct vma_steer_kernel *k)
{
	static struct vma_steer_kernel known;
	int err = 0;

	if (!known.shared_info_id) {
		err = parse_mapped(&known);
		if (err)
			err = parse_read(&known);
	}
	*k = known;
	return err;
}

/* What a program asks of a driver it does not call where there is no number for it. */
static int64_t if_there(uint32_t id)
{
	return id ? (int64_t)id : -1;
}

/* The number of the function that stand_in, an instruction's imm, stands for; -1: for none. */
static int64_t function_of(const struct vma_steer_kernel *k, int32_t stand_in)
{
	switch (stand_in) {
	case VMA_CALL_CAST_CTX:
		return k->cast_ctx_id;
	case VMA_CALL_CAST_RDONLY:
		return k->cast_rdonly_id;
	case VMA_CALL_ASSIGN_REQSK:
		return k->assign_reqsk_id;
	case VMA_CALL_RX_TIMESTAMP:
		return if_there(k->rx_timestamp_id);
	case VMA_CALL_RX_VLAN_TAG:
		return if_there(k->rx_vlan_tag_id);
	default:
		return -1;
	}
}

int kernel_calls_enter(struct bpf_insn *insns, size_t n, const struct vma_steer_kernel *k)
{
	for (struct bpf_insn *in = insns; in < insns + n; in++) {
		int64_t id = -1;

		if (in->code == (BPF_JMP | BPF_CALL) && !in->src_reg)
			id = function_of(k, in->imm);
		if (!id)
			return -EOPNOTSUPP;
		if (id < 0)
			continue;
		in->src_reg = BPF_PSEUDO_KFUNC_CALL;
		in->imm = (int32_t)id;
	}
	return 0;
}

int kernel_calls_set(struct bpf_program *prog, const struct vma_steer_kernel *k)
{
	size_t n = bpf_program__insn_cnt(prog);
	struct bpf_insn *insns;
	int err;

	insns = malloc(n * sizeof(*insns));
	if (!insns)
		return -ENOMEM;
	memcpy(insns, bpf_program__insns(prog), n * sizeof(*insns));
	err = kernel_calls_enter(insns, n, k);
	if (!err)
		err = bpf_program__set_insns(prog, insns, n);
	free(insns);
	return err;
}

int ring_kernel_calls(struct bpf_program *prog)
{
	struct vma_steer_kernel k;
	int err = kernel_types_get(&k);

	return err ? err : kernel_calls_set(prog, &k);
}
