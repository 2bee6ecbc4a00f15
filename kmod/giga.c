// SPDX-License-Identifier: GPL-2.0-only
/*
 * Blocks of 1 GiB, which the page allocator does not have: an aligned range of memory is emptied,
 * what others have there is moved elsewhere, and then it is ours page by page.
 */
#include <linux/highmem.h>
#include <linux/memory_hotplug.h>
#include <linux/mmzone.h>
#include <linux/mutex.h>
#include <linux/sched/signal.h>

#include "compat.h"
#include "vma.h"

/* A search at a time: two would take each other's ranges for busy ones. */
static DEFINE_MUTEX(search);

/* Can the pages from pfn on be had, as far as looking tells? */
static bool range_movable(const struct zone *z, unsigned long pfn)
{
	unsigned long end = pfn + VMA_GIGA_PAGES;

	for (; pfn < end; pfn++) {
		struct page *page = pfn_to_online_page(pfn);

		if (!page || page_zone(page) != z || PageReserved(page) || PageHuge(page))
			return false;
		cond_resched();
	}
	return true;
}

static struct page *take_of_zone(const struct zone *z)
{
	unsigned long pfn = ALIGN(z->zone_start_pfn, VMA_GIGA_PAGES);

	for (; pfn + VMA_GIGA_PAGES <= zone_end_pfn(z); pfn += VMA_GIGA_PAGES) {
		if (fatal_signal_pending(current))
			return NULL;
		if (range_movable(z, pfn) && !vma_alloc_contig(pfn, pfn + VMA_GIGA_PAGES))
			return pfn_to_page(pfn);
	}
	return NULL;
}

static struct page *take_of_node(int node)
{
	struct page *page = NULL;
	int zone;

	/* Not from ZONE_MOVABLE: what is there cannot be pinned. */
	for (zone = ZONE_NORMAL; zone >= 0 && !page; zone--)
		if (populated_zone(&NODE_DATA(node)->node_zones[zone]))
			page = take_of_zone(&NODE_DATA(node)->node_zones[zone]);
	return page;
}

/* The processor's own node first, if any will do. */
static struct page *take(int node)
{
	struct page *page = take_of_node(node == NUMA_NO_NODE ? numa_mem_id() : node);

	if (node == NUMA_NO_NODE)
		for_each_online_node(node)
			page = page ?: take_of_node(node);
	return page;
}

/**
 * vma_giga_alloc - an aligned, zeroed GiB, each page of it with a reference
 * @node: NUMA_NO_NODE: any
 *
 * Takes as long as copying it; a fatal signal ends that.
 *
 * Context: process, no lock held.
 * Return: the first page, for vma_giga_free(), or NULL.
 */
struct page *vma_giga_alloc(int node)
{
	struct page *page;
	unsigned long i;

	if (mutex_lock_killable(&search))
		return NULL;
	page = take(node);
	mutex_unlock(&search);
	for (i = 0; page && i < VMA_GIGA_PAGES; i++) {
		clear_highpage(page + i);
		cond_resched();
		if (fatal_signal_pending(current)) {
			vma_giga_free(page);
			return NULL;
		}
	}
	return page;
}

/* Pages that are mapped go with their last page table entry. */
void vma_giga_free(struct page *page)
{
	unsigned long i;

	for (i = 0; i < VMA_GIGA_PAGES; i++) {
		put_page(page + i);
		cond_resched();
	}
}
