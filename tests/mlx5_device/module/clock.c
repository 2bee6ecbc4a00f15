// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The card's clocks: a counter of cycles, and a PTP clock that follows it. Users see both in pages
 * of ordinary memory, which are as new as run.c's last round.
 */
#include <linux/mm.h>
#include <linux/timekeeping.h>

#include "card.h"

#define CYCLES_SHIFT 5 /* 6.4 ns each */
#define CYCLES_MULT 5
#define PTP_SHIFT 21
#define PTP_MULT 13421773u /* 6.4 << PTP_SHIFT */
/* As far from the system's time as TAI would never be: a test can tell which one it was given. */
#define PTP_AHEAD_NS (1000 * NSEC_PER_SEC)
#define PTP_UPDATE_MS 100

static u64 cycles_now(void)
{
	return (ktime_get_ns() * CYCLES_MULT) >> CYCLES_SHIFT;
}

int clock_make(struct card *card)
{
	card->clock = (u8 *)get_zeroed_page(GFP_KERNEL);
	card->ptp = (struct mlx5_ib_clock_info *)get_zeroed_page(GFP_KERNEL);
	if (card->clock && card->ptp)
		return 0;
	clock_free(card);
	return -ENOMEM;
}

/* Who has a page mapped keeps it. */
void clock_free(struct card *card)
{
	free_page((unsigned long)card->clock);
	free_page((unsigned long)card->ptp);
}

static void ptp_write(struct mlx5_ib_clock_info *info, u64 cycles)
{
	u32 sign = info->sign;

	/* Whoever reads while this is so begins again. */
	smp_store_mb(info->sign, sign | MLX5_IB_CLOCK_INFO_KERNEL_UPDATING);
	info->nsec = ktime_get_real_ns() + PTP_AHEAD_NS;
	info->cycles = cycles;
	info->frac = 0;
	info->mult = PTP_MULT;
	info->shift = PTP_SHIFT;
	info->mask = U64_MAX;
	info->overflow_period = NSEC_PER_SEC;
	/* After the fields. */
	smp_store_release(&info->sign, sign + 2 * MLX5_IB_CLOCK_INFO_KERNEL_UPDATING);
}

/* The card's lock is held. */
void clock_run(struct card *card)
{
	u64 cycles = cycles_now();

	/* In one piece, as its reader looks at the halves. */
	WRITE_ONCE(*(__be64 *)(card->clock + CLOCK_OFFSET), cpu_to_be64(cycles));
	if (ktime_before(ktime_get(), card->ptp_due))
		return;
	card->ptp_due = ktime_add_ms(ktime_get(), PTP_UPDATE_MS);
	ptp_write(card->ptp, cycles);
}

/* Of a completion. The lock is held. */
u64 clock_stamp(struct card *card)
{
	struct timespec64 ts;

	if (!card->faults.real_time)
		return cycles_now();
	ktime_get_real_ts64(&ts);
	return (u64)ts.tv_sec << 32 | (u32)ts.tv_nsec;
}

int clock_mmap(struct card *card, struct vm_area_struct *vma, unsigned long what)
{
	void *page = what == MLX5_IB_MMAP_CLOCK_INFO ? (void *)card->ptp : card->clock;

	if (vma->vm_flags & VM_WRITE || vma->vm_end - vma->vm_start != PAGE_SIZE)
		return -EPERM;
	vma->vm_flags &= ~VM_MAYWRITE;
	return vm_insert_page(vma, vma->vm_start, virt_to_page(page));
}
