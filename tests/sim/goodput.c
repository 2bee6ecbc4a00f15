/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What loss costs: one stream for a while of virtual time, by loss and round-trip time. Nothing is
 * asserted.
 */
#include <stdio.h>
#include <string.h>

#include "goodput.h"
#include "sim.h"

#define RUN_US (30 * US_PER_S)
#define RATE 125000000u /* 1 Gbit/s */

void goodput_plan(struct plan *p, uint32_t loss_ppm, uint32_t rtt_us, enum tcp_cc cc, uint64_t seed)
{
	memset(p, 0, sizeof(*p));
	p->seed = seed;
	p->start = 1;
	p->family = AF_INET;
	p->conns = 1;
	p->backlog = 8;
	p->deadline = 24 * 3600 * US_PER_S;
	tcp_cfg_default(&p->cfg);
	for (unsigned i = 0; i < 4; i++)
		p->cfg.secret[i] = seed * (i + 3);
	for (unsigned i = 0; i < 2; i++) {
		struct end_plan *e = &p->conn[0].end[i];

		p->wire[i] = (struct wire_plan){.delay_us = rtt_us / 2,
						.mtu = {1500},
						.rate = RATE,
						.queue = 2000000,
						.fifo = true};
		p->host[i] = (struct host_plan){.mtu = 1500, .chunk = 3840};
		tcp_opts_default(&e->o);
		e->o.cc = (uint8_t)cc;
		e->write_max = e->read_max = 1u << 17;
		e->oob_at = UINT32_MAX;
		e->key = i;
	}
	p->wire[0].loss_ppm = loss_ppm;
	p->conn[0].end[0].total = UINT32_MAX - 1;
	p->stop_at = RUN_US;
}

int goodput_table(void)
{
	static const uint32_t losses[] = {0, 1000, 10000, 50000}, rtts[] = {1000, 10000, 50000};
	static const enum tcp_cc ccs[] = {TCP_CC_NEWRENO, TCP_CC_CUBIC, TCP_CC_BBR};
	static struct plan p;
	int rc = 0;

	printf("goodput in Mbit/s: one stream, %u s, link of 1000 Mbit/s, MTU 1500, loss towards "
	       "the receiver\n",
	       (unsigned)(RUN_US / US_PER_S));
	printf("%-8s %8s", "", "loss");
	for (unsigned j = 0; j < 3; j++)
		printf(" %6u ms", rtts[j] / 1000);
	putchar('\n');
	for (unsigned k = 0; k < 3; k++)
		for (unsigned i = 0; i < 4; i++) {
			printf("%-8s %6.1f %%", tcp_cc_ops[ccs[k]]->name, losses[i] / 1e4);
			for (unsigned j = 0; j < 3; j++) {
				struct measured m;

				goodput_plan(&p, losses[i], rtts[j], ccs[k], 7);
				if (world_measure(&p, &m)) {
					rc = 1;
					printf(" %9s", "failed");
					continue;
				}
				printf(" %9.1f", (double)m.bytes * 8 / (double)RUN_US);
			}
			putchar('\n');
		}
	return rc;
}
