// SPDX-License-Identifier: GPL-2.0-only
/* The fallback ring, read as the library reads it. */
#include <linux/random.h>

#include "help.h"

static struct vma_ring ring;

static int ring_begin(struct kunit *test)
{
	memset(&ring, 0, sizeof(ring));
	return vma_ring_init(&ring, VMA_KMOD_RING_MIN);
}

static void ring_end(struct kunit *test)
{
	vma_ring_fini(&ring);
}

static struct vma_kmod_ring *head(void)
{
	return ring.area.at;
}

/* The next record, or NULL; taken. */
static struct vma_kmod_record *take(struct vma_kmod_record *copy)
{
	u32 at = head()->consumed & (VMA_KMOD_RING_MIN - 1);
	struct vma_kmod_record *rec = ring.area.at + VMA_KMOD_RING_DATA + at;

	if (head()->consumed == head()->produced)
		return NULL;
	if (rec->len == VMA_KMOD_RECORD_SKIP) {
		head()->consumed += VMA_KMOD_RING_MIN - at;
		return take(copy);
	}
	*copy = *rec;
	head()->consumed += ALIGN(sizeof(*rec) + rec->len, 8);
	return rec;
}

static int put(struct kunit *test, u32 slot, u32 payload)
{
	struct sk_buff *skb = help_packet(test, IPPROTO_UDP, payload);
	int err;

	skb->skb_iif = 3;
	err = vma_ring_put(&ring, slot, skb);
	kfree_skb(skb);
	return err;
}

static void a_packet_arrives_whole(struct kunit *test)
{
	struct vma_kmod_record rec, *at;

	KUNIT_EXPECT_FALSE(test, vma_ring_ready(&ring));
	KUNIT_EXPECT_EQ(test, put(test, 7, 101), 0);
	KUNIT_EXPECT_TRUE(test, vma_ring_ready(&ring));
	at = take(&rec);
	KUNIT_ASSERT_NOT_NULL(test, at);
	KUNIT_EXPECT_EQ(test, rec.len, 129);
	KUNIT_EXPECT_EQ(test, rec.slot, 7);
	KUNIT_EXPECT_EQ(test, rec.ifindex, 3);
	KUNIT_EXPECT_EQ(test, rec.gso_size, 0);
	KUNIT_EXPECT_EQ(test, rec.flags, 0);
	KUNIT_EXPECT_EQ(test, ((u8 *)(at + 1))[0], 0x45);
	KUNIT_EXPECT_EQ(test, ((u8 *)(at + 1))[128], 100);
	KUNIT_EXPECT_NULL(test, take(&rec));
	KUNIT_EXPECT_FALSE(test, vma_ring_ready(&ring));
	KUNIT_EXPECT_EQ(test, head()->packets, 1);
}

static void what_the_kernel_checked_is_said(struct kunit *test)
{
	struct sk_buff *skb = help_packet(test, IPPROTO_TCP, 3000);
	struct vma_kmod_record rec;

	skb->ip_summed = CHECKSUM_UNNECESSARY;
	skb_shinfo(skb)->gso_size = 1448;
	KUNIT_EXPECT_EQ(test, vma_ring_put(&ring, 0, skb), 0);
	kfree_skb(skb);
	KUNIT_ASSERT_NOT_NULL(test, take(&rec));
	KUNIT_EXPECT_EQ(test, rec.gso_size, 1448);
	KUNIT_EXPECT_EQ(test, rec.flags, VMA_KMOD_RECORD_CSUM_OK);
}

/* Sizes that divide nothing, so that records end at every multiple of 8 before the data's end. */
static void it_goes_round_and_loses_nothing(struct kunit *test)
{
	struct vma_kmod_record rec, *at;
	u32 i, put_at = 0, taken = 0;

	for (i = 0; i < 5000; i++) {
		if (put(test, put_at, put_at * 37 % 1400) == 0)
			put_at++;
		if (i % 3 == 0)
			continue;
		at = take(&rec);
		if (!at)
			continue;
		KUNIT_ASSERT_EQ(test, rec.slot, taken);
		KUNIT_ASSERT_EQ(test, rec.len, 28 + taken * 37 % 1400);
		KUNIT_ASSERT_EQ(test, ((u8 *)(at + 1))[0], 0x45);
		taken++;
	}
	while (take(&rec))
		taken++;
	KUNIT_EXPECT_EQ(test, taken, put_at);
	KUNIT_EXPECT_EQ(test, head()->packets, put_at);
	KUNIT_EXPECT_EQ(test, head()->packets + head()->dropped, 5000);
	KUNIT_EXPECT_GT(test, head()->produced, VMA_KMOD_RING_MIN);
}

static void full_is_counted_and_ends(struct kunit *test)
{
	struct vma_kmod_record rec;
	u32 n = 0;

	while (put(test, n, 1000) == 0)
		n++;
	KUNIT_EXPECT_EQ(test, n, VMA_KMOD_RING_MIN / ALIGN(16 + 1028, 8));
	KUNIT_EXPECT_EQ(test, head()->dropped, 1);
	KUNIT_ASSERT_NOT_NULL(test, take(&rec));
	KUNIT_ASSERT_NOT_NULL(test, take(&rec));
	KUNIT_EXPECT_EQ(test, put(test, n, 1000), 0);
}

static void a_packet_larger_than_the_ring_is_dropped(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, put(test, 0, 60000), 0);
	ring.produced = 0;
	head()->consumed = 0;
	KUNIT_EXPECT_EQ(test, put(test, 0, VMA_KMOD_RING_MIN), -ENOBUFS);
}

/* More than was produced, or more behind than the ring is long. */
static void a_position_that_cannot_be_only_makes_it_full(struct kunit *test)
{
	static const u32 nonsense[] = {1, 8, 0x80000000, 0u - VMA_KMOD_RING_MIN, 12345678};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(nonsense); i++) {
		head()->consumed = nonsense[i];
		memset(&head()->produced, 0xee, sizeof(head()->produced));
		KUNIT_EXPECT_EQ(test, put(test, 0, 100), -ENOBUFS);
	}
	KUNIT_EXPECT_EQ(test, ring.dropped, ARRAY_SIZE(nonsense));
	head()->consumed = 0;
	memset(&head()->dropped, 0xee, 16);
	KUNIT_EXPECT_EQ(test, put(test, 0, 100), 0);
	KUNIT_EXPECT_EQ(test, ring.packets, 1);
	KUNIT_EXPECT_EQ(test, head()->packets, 1);
}

/*
 * A lie that could be true loses packets of the liar's own, and nothing is written outside (KASAN
 * watches).
 */
static void any_position_is_harmless(struct kunit *test)
{
	u32 i, was;

	for (i = 0; i < 2000; i++) {
		head()->consumed = get_random_u32() % 4 ? ring.produced - get_random_u32() % 70000
							: get_random_u32();
		head()->produced = get_random_u32();
		was = ring.produced;
		if (put(test, 0, get_random_u32() % 3000) == 0) {
			KUNIT_EXPECT_EQ(test, head()->produced, ring.produced);
			KUNIT_EXPECT_LE(test, ring.produced - was, 2 * 3100);
		} else {
			KUNIT_EXPECT_EQ(test, ring.produced, was);
		}
	}
	KUNIT_EXPECT_EQ(test, ring.packets + ring.dropped, 2000);
	KUNIT_EXPECT_GT(test, ring.packets, 100);
}

static void no_ring_takes_nothing(struct kunit *test)
{
	vma_ring_fini(&ring);
	KUNIT_EXPECT_EQ(test, put(test, 0, 1), -ENOBUFS);
	KUNIT_EXPECT_FALSE(test, vma_ring_ready(&ring));
}

static struct kunit_case cases[] = {KUNIT_CASE(a_packet_arrives_whole),
				    KUNIT_CASE(what_the_kernel_checked_is_said),
				    KUNIT_CASE(it_goes_round_and_loses_nothing),
				    KUNIT_CASE(full_is_counted_and_ends),
				    KUNIT_CASE(a_packet_larger_than_the_ring_is_dropped),
				    KUNIT_CASE(a_position_that_cannot_be_only_makes_it_full),
				    KUNIT_CASE(any_position_is_harmless),
				    KUNIT_CASE(no_ring_takes_nothing),
				    {}};

static struct kunit_suite suite = {
	.name = "vma_ring",
	.init = ring_begin,
	.exit = ring_end,
	.test_cases = cases,
};

kunit_test_suite(suite);
