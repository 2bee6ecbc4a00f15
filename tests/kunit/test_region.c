// SPDX-License-Identifier: GPL-2.0-only
/* Pinned memory: what is given, and who pays for it. */
#include <linux/cred.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/user.h>

#include "help.h"

static s64 total(enum vma_total which)
{
	return atomic64_read(&vma_totals[which]);
}

static void a_user_is_charged_up_to_the_limit(struct kunit *test)
{
	struct user_struct *user = get_uid(current_user());
	long before = atomic_long_read(&user->locked_vm);

	KUNIT_EXPECT_EQ(test, vma_region_charge(user, 10, before + 20), 0);
	KUNIT_EXPECT_EQ(test, vma_region_charge(user, 10, before + 20), 0);
	KUNIT_EXPECT_EQ(test, vma_region_charge(user, 1, before + 20), -ENOMEM);
	KUNIT_EXPECT_EQ(test, vma_region_charge(user, 1, 0), -EPERM);
	KUNIT_EXPECT_EQ(test, atomic_long_read(&user->locked_vm), before + 20);
	atomic_long_set(&user->locked_vm, before);
	free_uid(user);
}

/* As a user without CAP_IPC_LOCK whose limit is this many bytes. */
static struct vma_region *alloc_limited(struct kunit *test, struct vma_kmod_region *arg,
					unsigned long limit)
{
	struct rlimit *rlim = &current->signal->rlim[RLIMIT_MEMLOCK], old = *rlim;
	struct cred *cred = prepare_creds();
	const struct cred *before;
	struct vma_region *r;

	KUNIT_ASSERT_NOT_NULL(test, cred);
	cap_lower(cred->cap_effective, CAP_IPC_LOCK);
	before = override_creds(cred);
	rlim->rlim_cur = limit;
	r = vma_region_alloc(arg);
	*rlim = old;
	revert_creds(before);
	put_cred(cred);
	return r;
}

static void the_limit_refuses_and_freeing_gives_back(struct kunit *test)
{
	struct vma_kmod_region arg = {.bytes = 2 << 20, .kind = VMA_KMOD_MEM_HUGE, .node = -1};
	struct vma_kmod_region more = arg;
	struct user_struct *user = get_uid(current_user());
	long before = atomic_long_read(&user->locked_vm);
	struct vma_region *r;

	KUNIT_EXPECT_EQ(test, PTR_ERR(alloc_limited(test, &arg, 0)), -EPERM);
	KUNIT_EXPECT_EQ(test, PTR_ERR(alloc_limited(test, &arg, (2 << 20) - 1)), -ENOMEM);
	KUNIT_EXPECT_EQ(test, atomic_long_read(&user->locked_vm), before);
	r = alloc_limited(test, &arg, 3 << 20);
	KUNIT_ASSERT_FALSE(test, IS_ERR(r));
	KUNIT_EXPECT_EQ(test, atomic_long_read(&user->locked_vm), before + 512);
	KUNIT_EXPECT_EQ(test, PTR_ERR(alloc_limited(test, &more, 3 << 20)), -ENOMEM);
	vma_region_free(r);
	KUNIT_EXPECT_EQ(test, atomic_long_read(&user->locked_vm), before);
	free_uid(user);
}

static void who_may_lock_pays_nothing(struct kunit *test)
{
	struct vma_kmod_region arg = {.bytes = 1, .kind = VMA_KMOD_MEM_CONTIG, .node = -1};
	long before = atomic_long_read(&current_user()->locked_vm);
	struct vma_region *r = vma_region_alloc(&arg);

	KUNIT_ASSERT_FALSE(test, IS_ERR(r));
	KUNIT_EXPECT_EQ(test, atomic_long_read(&current_user()->locked_vm), before);
	KUNIT_EXPECT_EQ(test, arg.bytes, PAGE_SIZE);
	vma_region_free(r);
}

static void blocks_are_contiguous_aligned_and_zero(struct kunit *test)
{
	struct vma_kmod_region arg = {
		.bytes = (5 << 20) + 1, .kind = VMA_KMOD_MEM_HUGE, .node = -1};
	s64 regions = total(VMA_TOTAL_REGIONS), bytes = total(VMA_TOTAL_REGION_BYTES);
	struct vma_region *r = vma_region_alloc(&arg);
	int i;

	KUNIT_ASSERT_FALSE(test, IS_ERR(r));
	KUNIT_EXPECT_EQ(test, arg.bytes, 6 << 20);
	KUNIT_EXPECT_EQ(test, arg.block, 2 << 20);
	KUNIT_EXPECT_EQ(test, r->num, 3);
	for (i = 0; i < 3; i++) {
		KUNIT_EXPECT_EQ(test, page_to_pfn(r->blocks[i]) % 512, 0);
		KUNIT_EXPECT_NULL(test, memchr_inv(page_address(r->blocks[i]), 0, 2 << 20));
	}
	KUNIT_EXPECT_EQ(test, total(VMA_TOTAL_REGIONS), regions + 1);
	KUNIT_EXPECT_EQ(test, total(VMA_TOTAL_REGION_BYTES), bytes + (6 << 20));
	vma_region_free(r);
	KUNIT_EXPECT_EQ(test, total(VMA_TOTAL_REGIONS), regions);
	KUNIT_EXPECT_EQ(test, total(VMA_TOTAL_REGION_BYTES), bytes);
}

static void contiguous_memory_comes_in_large_blocks(struct kunit *test)
{
	struct vma_kmod_region arg = {.bytes = 9 << 20, .kind = VMA_KMOD_MEM_CONTIG, .node = -1};
	struct vma_region *r = vma_region_alloc(&arg);

	KUNIT_ASSERT_FALSE(test, IS_ERR(r));
	KUNIT_EXPECT_GE(test, arg.bytes, 9 << 20);
	KUNIT_EXPECT_EQ(test, arg.bytes % arg.block, 0);
	KUNIT_EXPECT_GE(test, arg.block, 32 << 10);
	vma_region_free(r);
}

static void nonsense_is_refused(struct kunit *test)
{
	static const struct vma_kmod_region bad[] = {
		{.bytes = 0, .kind = VMA_KMOD_MEM_HUGE, .node = -1},
		{.bytes = (1ull << 36) + 1, .kind = VMA_KMOD_MEM_HUGE, .node = -1},
		{.bytes = ~0ull, .kind = VMA_KMOD_MEM_CONTIG, .node = -1},
		{.bytes = 4096, .kind = 0, .node = -1},
		{.bytes = 4096, .kind = VMA_KMOD_MEM_GIGA + 1, .node = -1},
		{.bytes = 4096, .kind = VMA_KMOD_MEM_HUGE, .node = -2},
		{.bytes = 4096, .kind = VMA_KMOD_MEM_HUGE, .node = 0x7fffffff},
		{.bytes = 4096, .kind = VMA_KMOD_MEM_HUGE, .node = -1, .offset = 1},
		{.bytes = 4096, .kind = VMA_KMOD_MEM_HUGE, .node = -1, .block = 1},
		{.bytes = 4096, .kind = VMA_KMOD_MEM_HUGE, .node = -1, .reserved = 1},
	};
	int i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		struct vma_kmod_region arg = bad[i];

		KUNIT_EXPECT_EQ_MSG(test, PTR_ERR(vma_region_alloc(&arg)), -EINVAL, "case %d", i);
	}
}

static void more_than_there_is_fails_whole(struct kunit *test)
{
	struct vma_kmod_region arg = {.bytes = 1ull << 33, .kind = VMA_KMOD_MEM_HUGE, .node = -1};
	s64 regions = total(VMA_TOTAL_REGIONS);

	KUNIT_EXPECT_EQ(test, PTR_ERR(vma_region_alloc(&arg)), -ENOMEM);
	arg.bytes = 1;
	arg.kind = VMA_KMOD_MEM_GIGA; /* rounded up to what this machine has not */
	KUNIT_EXPECT_EQ(test, PTR_ERR(vma_region_alloc(&arg)), -ENOMEM);
	arg.kind = VMA_KMOD_MEM_HUGE;
	arg.bytes = (u64)totalram_pages() << PAGE_SHIFT;
	KUNIT_EXPECT_EQ(test, PTR_ERR(vma_region_alloc(&arg)), -ENOMEM);
	KUNIT_EXPECT_EQ(test, total(VMA_TOTAL_REGIONS), regions);
}

static struct kunit_case cases[] = {KUNIT_CASE(a_user_is_charged_up_to_the_limit),
				    KUNIT_CASE(the_limit_refuses_and_freeing_gives_back),
				    KUNIT_CASE(who_may_lock_pays_nothing),
				    KUNIT_CASE(blocks_are_contiguous_aligned_and_zero),
				    KUNIT_CASE(contiguous_memory_comes_in_large_blocks),
				    KUNIT_CASE(nonsense_is_refused),
				    KUNIT_CASE(more_than_there_is_fails_whole),
				    {}};

static struct kunit_suite suite = {
	.name = "vma_region",
	.test_cases = cases,
};

kunit_test_suite(suite);
