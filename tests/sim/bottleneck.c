/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One stream through a narrow place: what slow start throws away where it meets the limit, and what
 * is left of the rate when frames are lost at random.
 */
#include <stdio.h>
#include <string.h>

#include "goodput.h"
#include "sim.h"

#define LONG_US (10 * US_PER_S)
#define FIRST_US (2 * US_PER_S) /* slow start and what it costs is over */

struct narrow {
	const char *what;
	enum tcp_cc cc;
	uint32_t mbit, rtt_us, queue; /* queue: bytes in front of the narrow place */
	uint32_t loss_ppm;
	uint64_t run_us;
	uint64_t max_drops; /* packets, random losses included */
	double min_mbit; /* goodput */
};

static const struct narrow scenes[] = {
	{"slow start", TCP_CC_CUBIC, 10, 40000, 64000, 0, FIRST_US, 20, 8},
	{"slow start", TCP_CC_CUBIC, 50, 20000, 125000, 0, FIRST_US, 20, 40},
	{"slow start", TCP_CC_CUBIC, 50, 40000, 250000, 0, FIRST_US, 20, 38},
	{"slow start", TCP_CC_CUBIC, 50, 40000, 2000000, 0, FIRST_US, 20, 38},
	{"slow start", TCP_CC_CUBIC, 50, 100000, 625000, 0, FIRST_US, 20, 30},
	{"slow start", TCP_CC_CUBIC, 500, 10000, 625000, 0, FIRST_US, 20, 400},
	{"loss", TCP_CC_CUBIC, 50, 40000, 250000, 10000, LONG_US, 100, 2},
	{"loss", TCP_CC_BBR, 50, 40000, 250000, 0, LONG_US, 400, 45},
	/*
	 * The receiver grows its window for what comes behind a hole, too: it does not bound the
	 * flight. The random losses are counted.
	 */
	{"loss", TCP_CC_BBR, 50, 40000, 250000, 10000, LONG_US, 1000, 42},
	{"loss", TCP_CC_BBR, 50, 40000, 250000, 20000, LONG_US, 1500, 42},
	{"loss", TCP_CC_BBR, 50, 40000, 250000, 30000, LONG_US, 1800, 40},
	{"loss", TCP_CC_BBR, 10, 20000, 25000, 10000, LONG_US, 300, 8},
	{"loss", TCP_CC_BBR, 500, 10000, 625000, 10000, FIRST_US, 1800, 400},
};

static void make(struct plan *p, const struct narrow *n)
{
	goodput_plan(p, n->loss_ppm, n->rtt_us, n->cc, 7);
	p->wire[0].rate = (uint64_t)n->mbit * 125000;
	p->wire[0].queue = n->queue;
	p->stop_at = n->run_us;
}

int bottleneck_check(void)
{
	static struct plan p;
	unsigned failed = 0, num = sizeof(scenes) / sizeof(scenes[0]);

	for (unsigned i = 0; i < num; i++) {
		const struct narrow *n = &scenes[i];
		struct measured m;
		const char *why;
		double mbit;
		bool ok;

		make(&p, n);
		why = world_measure(&p, &m);
		mbit = (double)m.bytes * 8 / (double)n->run_us;
		ok = !why && m.drops <= n->max_drops && mbit >= n->min_mbit;
		failed += !ok;
		printf("%-10s %-7s %3u Mbit/s, %3u ms, queue %4u KB, loss %3.1f %%: %4llu of %6llu "
		       "packets dropped (%llu allowed), goodput %6.2f Mbit/s (%.2f asked)%s%s%s\n",
		       n->what, tcp_cc_ops[n->cc]->name, n->mbit, n->rtt_us / 1000, n->queue / 1000,
		       n->loss_ppm / 1e4, (unsigned long long)m.drops,
		       (unsigned long long)m.packets, (unsigned long long)n->max_drops, mbit,
		       n->min_mbit, ok ? "" : " FAILED", why ? ": " : "", why ? why : "");
	}
	printf("%u passed, %u failed, 0 skipped\n", num - failed, failed);
	return failed != 0;
}
