/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the steering program is told of the kernel, against libbpf's reading of the same bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <bpf/btf.h>
#include <errno.h>
#include <linux/btf.h>

#include "ring/xdp/kernel_types.h"
#include "vma/kernel_calls.h"

#define BITS(bytes) ((bytes)*8)

/* A kernel's BTF in small: frame_sz lies in a structure in a union, as since Linux 6.17. */
static struct btf *kernel_new(bool casts)
{
	struct btf *b = btf__new_empty();
	int u32 = btf__add_int(b, "unsigned int", 4, 0), inner, uni, proto;

	btf__add_enum(b, "xdp_buff", 4); /* the name alone is not enough */
	btf__add_enum_value(b, "XDP", 1);
	btf__add_array(b, u32, u32, 3);
	btf__add_decl_tag(b, "tag", u32, -1);
	inner = btf__add_struct(b, "", 8);
	btf__add_field(b, "frame_sz", u32, BITS(0), 0);
	btf__add_field(b, "flags", u32, BITS(4), 0);
	uni = btf__add_union(b, "", 8);
	btf__add_field(b, "", inner, 0, 0);
	btf__add_field(b, "frame_sz_flags_init", u32, 0, 0);
	btf__add_struct(b, "xdp_buff", 56);
	btf__add_field(b, "data", u32, 0, 0);
	btf__add_field(b, "data_hard_start", u32, BITS(24), 0);
	btf__add_field(b, "", uni, BITS(48), 0);
	btf__add_struct(b, "skb_shared_info", 320);
	btf__add_field(b, "gso_size", u32, BITS(4), 0);
	btf__add_field(b, "gso_type", u32, BITS(24), 0);
	proto = btf__add_func_proto(b, u32);
	btf__add_func_param(b, "ctx", u32);
	if (casts) {
		btf__add_func(b, "bpf_cast_to_kern_ctx", BTF_FUNC_STATIC, proto);
		btf__add_func(b, "bpf_rdonly_cast", BTF_FUNC_STATIC, proto);
		btf__add_func(b, "bpf_xdp_metadata_rx_timestamp", BTF_FUNC_STATIC, proto);
		btf__add_func(b, "bpf_xdp_metadata_rx_vlan_tag", BTF_FUNC_STATIC, proto);
	}
	return b;
}

static void fields_and_functions_are_found(void **state)
{
	struct vma_steer_kernel k;
	struct btf *b = kernel_new(true);
	uint32_t len;
	const void *data = btf__raw_data(b, &len);

	(void)state;
	assert_int_equal(kernel_types_parse(data, len, &k), 0);
	assert_int_equal(k.data_hard_start, 24);
	assert_int_equal(k.frame_sz, 48);
	assert_int_equal(k.shared_info_size, 320);
	assert_int_equal(k.gso_size, 4);
	assert_int_equal(k.gso_type, 24);
	assert_int_equal(k.shared_info_id,
			 btf__find_by_name_kind(b, "skb_shared_info", BTF_KIND_STRUCT));
	assert_int_equal(k.cast_ctx_id,
			 btf__find_by_name_kind(b, "bpf_cast_to_kern_ctx", BTF_KIND_FUNC));
	assert_int_equal(k.cast_rdonly_id,
			 btf__find_by_name_kind(b, "bpf_rdonly_cast", BTF_KIND_FUNC));
	assert_int_equal(k.rx_timestamp_id,
			 btf__find_by_name_kind(b, "bpf_xdp_metadata_rx_timestamp", BTF_KIND_FUNC));
	assert_int_equal(k.rx_vlan_tag_id,
			 btf__find_by_name_kind(b, "bpf_xdp_metadata_rx_vlan_tag", BTF_KIND_FUNC));
	btf__free(b);
	b = kernel_new(false);
	data = btf__raw_data(b, &len);
	assert_int_equal(kernel_types_parse(data, len, &k), 0);
	assert_int_equal(k.cast_ctx_id, 0);
	assert_int_equal(k.cast_rdonly_id, 0);
	assert_int_equal(k.rx_timestamp_id, 0);
	assert_int_equal(k.rx_vlan_tag_id, 0);
	btf__free(b);
}

/* In memory of exactly that size: address sanitizer sees what is read behind it. */
static int parse_copy(const void *data, uint32_t len, struct vma_steer_kernel *k)
{
	void *copy = malloc(len);
	int err;

	if (len)
		memcpy(copy, data, len);
	err = kernel_types_parse(copy, len, k);
	free(copy);
	return err;
}

static void what_is_cut_off_or_broken_is_refused(void **state)
{
	struct vma_steer_kernel k;
	struct btf *b = kernel_new(true);
	struct btf_header *h;
	uint32_t len;
	const void *data = btf__raw_data(b, &len);
	uint8_t *broken = malloc(len);

	(void)state;
	for (uint32_t n = 0; n < len; n++)
		assert_int_equal(parse_copy(data, n, &k), -EINVAL);
	/* Each byte in turn is something else: it may be found or not, but nothing is read behind.
	 */
	for (uint32_t i = 0; i < len; i++)
		for (int flip = 1; flip < 256; flip++) {
			memcpy(broken, data, len);
			broken[i] ^= (uint8_t)flip;
			(void)parse_copy(broken, len, &k);
		}
	memcpy(broken, data, len);
	h = (struct btf_header *)broken;
	h->type_len = 0;
	assert_int_equal(parse_copy(broken, len, &k), -ENOENT);
	free(broken);
	btf__free(b);
}

/* A structure without a name that is a member of itself. */
static void a_circle_has_an_end(void **state)
{
	struct vma_steer_kernel k;
	struct btf *b = btf__new_empty();
	const void *data;
	uint32_t len;

	(void)state;
	btf__add_struct(b, "", 8);
	btf__add_field(b, "", 1, 0, 0);
	btf__add_struct(b, "xdp_buff", 8);
	btf__add_field(b, "", 1, 0, 0);
	data = btf__raw_data(b, &len);
	assert_int_equal(kernel_types_parse(data, len, &k), -ENOENT);
	btf__free(b);
}

static uint32_t offset_by_libbpf(const struct btf *b, int id, const char *name)
{
	const struct btf_type *t = btf__type_by_id(b, (uint32_t)id);

	for (uint32_t i = 0; i < btf_vlen(t); i++)
		if (!strcmp(btf__name_by_offset(b, btf_members(t)[i].name_off), name))
			return btf_member_bit_offset(t, i) / 8;
	return UINT32_MAX;
}

static void the_running_kernel_is_read_as_libbpf_reads_it(void **state)
{
	struct vma_steer_kernel k, again;
	struct btf *b = btf__load_vmlinux_btf();
	int info, buff;

	(void)state;
	if (!b) {
		print_message(
			"    this kernel tells its types to nobody (CONFIG_DEBUG_INFO_BTF)\n");
		skip();
	}
	info = btf__find_by_name_kind(b, "skb_shared_info", BTF_KIND_STRUCT);
	buff = btf__find_by_name_kind(b, "xdp_buff", BTF_KIND_STRUCT);
	assert_int_equal(kernel_types_get(&k), 0);
	assert_int_equal(k.shared_info_id, info);
	assert_int_equal(k.shared_info_size, btf__type_by_id(b, (uint32_t)info)->size);
	assert_int_equal(k.gso_size, offset_by_libbpf(b, info, "gso_size"));
	assert_int_equal(k.gso_type, offset_by_libbpf(b, info, "gso_type"));
	assert_int_equal(k.data_hard_start, offset_by_libbpf(b, buff, "data_hard_start"));
	if (offset_by_libbpf(b, buff, "frame_sz") != UINT32_MAX)
		assert_int_equal(k.frame_sz, offset_by_libbpf(b, buff, "frame_sz"));
	if (btf__find_by_name_kind(b, "bpf_rdonly_cast", BTF_KIND_FUNC) > 0)
		assert_int_equal(k.cast_rdonly_id,
				 btf__find_by_name_kind(b, "bpf_rdonly_cast", BTF_KIND_FUNC));
	assert_int_equal(kernel_types_get(&again), 0);
	assert_memory_equal(&k, &again, sizeof(k));
	btf__free(b);
}

static void stand_ins_become_the_kernels_functions(void **state)
{
	const struct bpf_insn helper = {.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_ktime_get_ns};
	const struct bpf_insn call = {.code = BPF_JMP | BPF_CALL, .imm = VMA_CALL_ASSIGN_REQSK};
	/* The number as a value, and in a call of a function of the program's own. */
	const struct bpf_insn value = {.code = BPF_ALU | BPF_MOV | BPF_K,
				       .imm = VMA_CALL_ASSIGN_REQSK};
	const struct bpf_insn own = {.code = BPF_JMP | BPF_CALL,
				     .src_reg = BPF_PSEUDO_CALL,
				     .imm = VMA_CALL_ASSIGN_REQSK};
	struct bpf_insn insns[] = {helper, call, value, own};
	struct vma_steer_kernel k = {.cast_ctx_id = 5, .assign_reqsk_id = 4711};

	(void)state;
	assert_int_equal(kernel_calls_enter(insns, 4, &k), 0);
	assert_memory_equal(&insns[0], &helper, sizeof(helper));
	assert_int_equal(insns[1].src_reg, BPF_PSEUDO_KFUNC_CALL);
	assert_int_equal(insns[1].imm, 4711);
	assert_memory_equal(&insns[2], &value, sizeof(value));
	assert_memory_equal(&insns[3], &own, sizeof(own));
	insns[1] = call;
	k.assign_reqsk_id = 0;
	assert_int_equal(kernel_calls_enter(insns, 4, &k), -EOPNOTSUPP);
}

/* A program asks a driver where it has been told that it can. */
static void what_asks_a_driver_stays_where_the_kernel_cannot(void **state)
{
	const struct bpf_insn stamp = {.code = BPF_JMP | BPF_CALL, .imm = VMA_CALL_RX_TIMESTAMP};
	const struct bpf_insn tag = {.code = BPF_JMP | BPF_CALL, .imm = VMA_CALL_RX_VLAN_TAG};
	struct bpf_insn insns[] = {stamp, tag};
	struct vma_steer_kernel k = {.rx_timestamp_id = 17};

	(void)state;
	assert_int_equal(kernel_calls_enter(insns, 2, &k), 0);
	assert_int_equal(insns[0].src_reg, BPF_PSEUDO_KFUNC_CALL);
	assert_int_equal(insns[0].imm, 17);
	assert_memory_equal(&insns[1], &tag, sizeof(tag));
	insns[0] = stamp;
	k = (struct vma_steer_kernel){.rx_vlan_tag_id = 18};
	assert_int_equal(kernel_calls_enter(insns, 2, &k), 0);
	assert_memory_equal(&insns[0], &stamp, sizeof(stamp));
	assert_int_equal(insns[1].imm, 18);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fields_and_functions_are_found),
		cmocka_unit_test(what_is_cut_off_or_broken_is_refused),
		cmocka_unit_test(a_circle_has_an_end),
		cmocka_unit_test(the_running_kernel_is_read_as_libbpf_reads_it),
		cmocka_unit_test(stand_ins_become_the_kernels_functions),
		cmocka_unit_test(what_asks_a_driver_stays_where_the_kernel_cannot),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
