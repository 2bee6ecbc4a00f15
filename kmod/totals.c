// SPDX-License-Identifier: GPL-2.0-only
/* What the module itself counts. */
#include "vma.h"

atomic64_t vma_totals[VMA_TOTALS];

const char *const vma_total_names[VMA_TOTALS] = {
	[VMA_TOTAL_PROCESSES] = "processes",
	[VMA_TOTAL_PROCESSES_SEEN] = "processes_seen",
	[VMA_TOTAL_CONNS] = "conns",
	[VMA_TOTAL_CONNS_SEEN] = "conns_seen",
	[VMA_TOTAL_RESETS] = "resets_sent",
	[VMA_TOTAL_RESETS_FAILED] = "resets_failed",
	[VMA_TOTAL_RESETS_VOID] = "resets_void",
	[VMA_TOTAL_REGIONS] = "regions",
	[VMA_TOTAL_REGION_BYTES] = "region_bytes",
	[VMA_TOTAL_FALLBACK_PACKETS] = "fallback_packets",
	[VMA_TOTAL_FALLBACK_DROPPED] = "fallback_dropped",
};
