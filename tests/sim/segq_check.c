/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "segq_check.h"

#include <stdint.h>
#include <stdio.h>

#include "tcp/internal.h"

const char *check_segq(const struct tcp_conn *c)
{
	static char why[200];
	uint32_t out = 0, sacked = 0, lost = 0, retrans = 0, timed = 0, untimed = 0;
	const struct tcp_segq *q = &c->segq;
	const struct tcp_seg *before = NULL;

	for (const struct tcp_seg *s = q->head; s; before = s, s = s->next) {
		out += s->pcount;
		sacked += s->flags & SEG_SACKED ? s->pcount : 0;
		lost += s->flags & SEG_LOST ? s->pcount : 0;
		retrans += s->flags & SEG_RETRANS ? s->pcount : 0;
		timed += !(s->flags & SEG_SACKED) &&
			 (s->flags & (SEG_LOST | SEG_RETRANS)) != SEG_LOST;
		if (before && before->end_seq != s->seq)
			return "the retransmission queue has a hole or a wrong link";
		if ((s->flags & SEG_SACKED) && (s->flags & SEG_LOST))
			return "a segment is both SACKed and lost";
	}
	if (before != q->tail)
		return "the retransmission queue's tail is another segment";
	if (q->head &&
	    (!seq_leq(q->head->seq, c->snd_una) || !seq_after(q->head->end_seq, c->snd_una)))
		return "snd_una is not in the first segment";
	if (q->tail && q->tail->end_seq != c->snd_nxt)
		return "the last segment does not end at snd_nxt";
	for (const struct tcp_seg *s = q->thead; s; s = s->tnext) {
		untimed++;
		if (s->tnext && s->tnext->sent_us < s->sent_us)
			return "the time order is not in order";
	}
	if (timed != untimed)
		return "the time order has other segments than the queue";
	/* Without SACK duplicate ACKs are counted there instead. */
	if (!c->sack_ok && sacked == 0 && q->sacked_out <= q->packets_out)
		sacked = q->sacked_out;
	if (out == q->packets_out && sacked == q->sacked_out && lost == q->lost_out &&
	    retrans == q->retrans_out)
		return NULL;
	snprintf(why, sizeof(why), "counted out %u sacked %u lost %u retrans %u, kept %u %u %u %u",
		 out, sacked, lost, retrans, q->packets_out, q->sacked_out, q->lost_out,
		 q->retrans_out);
	return why;
}
