/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the card knows of frames: headers and checksums. */
#include "device.h"

void mdev_find(const u8 *f, u32 len, struct mdev_where *w)
{
	u32 at = 14;

	memset(w, 0, sizeof(*w));
	w->vlan = len >= 18 && get16(f + 12) == 0x8100;
	/* A provider's tag (802.1ad) is looked behind, too. */
	if (w->vlan || (len >= 18 && get16(f + 12) == 0x88a8))
		at = 18;
	w->type = at - 2;
	if (len < at + 20)
		return;
	if (get16(f + at - 2) == 0x0800 && f[at] >> 4 == 4) {
		u32 head = (f[at] & 15) * 4u, total = get16(f + at + 2);

		if (head < 20 || total < head || total > len - at)
			return;
		w->l3 = at;
		w->family = 4;
		w->end = at + total;
		w->proto = f[at + 9];
		w->fragment = get16(f + at + 6) & 0x3fff;
		w->l4 = at + head;
	} else if (get16(f + at - 2) == 0x86dd && f[at] >> 4 == 6 && len >= at + 40) {
		if (get16(f + at + 4) > len - at - 40)
			return;
		w->l3 = at;
		w->family = 6;
		w->end = at + 40 + get16(f + at + 4);
		w->proto = f[at + 6];
		w->l4 = at + 40;
	}
	if (w->fragment ||
	    !((w->proto == 6 && w->end - w->l4 >= 20) || (w->proto == 17 && w->end - w->l4 >= 8)))
		w->l4 = 0;
}

u32 mdev_cut_point(const u8 *f, u32 header, u32 *l3, u32 *l4)
{
	u8 proto;

	*l3 = header >= 18 && get16(f + 12) == 0x8100 ? 18 : 14;
	if (header < *l3 + 20)
		return 0;
	if (get16(f + *l3 - 2) == 0x0800 && f[*l3] >> 4 == 4) {
		*l4 = *l3 + (f[*l3] & 15) * 4u;
		proto = f[*l3 + 9];
	} else if (get16(f + *l3 - 2) == 0x86dd && header >= *l3 + 40) {
		*l4 = *l3 + 40;
		proto = f[*l3 + 6];
	} else {
		return 0;
	}
	if (proto == 17)
		return *l4 + 8;
	return proto == 6 && header >= *l4 + 20 ? *l4 + (f[*l4 + 12] >> 4) * 4u : 0;
}

void mdev_cut_header(u8 *f, u32 l3, u32 l4, u32 n, u32 at, u32 len, bool last)
{
	u32 end = l4 + len;
	bool tcp = (f[l3] >> 4 == 4 ? f[l3 + 9] : f[l3 + 6]) == 6;

	end += tcp ? (f[l4 + 12] >> 4) * 4u : 8u;
	if (f[l3] >> 4 == 4) {
		put16(f + l3 + 2, (u16)(end - l3));
		put16(f + l3 + 4, (u16)(get16(f + l3 + 4) + n));
	} else {
		put16(f + l3 + 4, (u16)(end - l3 - 40));
	}
	/* The length in UDP's header is the same in all: also in a last one that is shorter. */
	if (!tcp)
		return;
	put32(f + l4 + 4, get32(f + l4 + 4) + at);
	if (!last)
		f[l4 + 13] &= (u8)~0x09; /* FIN, PSH */
	if (n)
		f[l4 + 13] &= 0x7f; /* CWR */
}

static u32 sum16(u32 sum, const u8 *p, u32 len)
{
	for (u32 i = 0; i < len; i++)
		sum += i & 1 ? p[i] : (u32)p[i] << 8;
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* Over pseudo header and segment. */
static u32 l4_sum(const u8 *f, const struct mdev_where *w)
{
	u32 len = w->end - w->l4;
	u32 sum = w->family == 4 ? sum16(0, f + w->l3 + 12, 8) : sum16(0, f + w->l3 + 8, 32);

	return sum16(sum + w->proto + len, f + w->l4, len);
}

void mdev_look(const u8 *frame, u32 len, struct mdev_seen *seen)
{
	struct mdev_where w;

	mdev_find(frame, len, &w);
	seen->ok = 1;
	seen->types = 0;
	if (!w.l3)
		return;
	seen->types = w.family == 6 ? 1 << 2 : 2 << 2;
	if (w.family == 6 || sum16(0, frame + w.l3, (frame[w.l3] & 15) * 4u) == 0xffff)
		seen->ok |= 2;
	if (!w.l4)
		return;
	seen->types |= w.proto == 17 ? 2 << 4 : 1 << 4;
	if (l4_sum(frame, &w) == 0xffff)
		seen->ok |= 4;
}

void mdev_checksum(u8 *frame, u32 len, u8 flags)
{
	struct mdev_where w;
	u32 at, sum;

	if (!(flags & 0xc0))
		return;
	mdev_find(frame, len, &w);
	if (w.family == 4 && (flags & 0x40)) {
		put16(frame + w.l3 + 10, 0);
		put16(frame + w.l3 + 10, (u16)~sum16(0, frame + w.l3, (frame[w.l3] & 15) * 4u));
	}
	if (!w.l4 || !(flags & 0x80))
		return;
	at = w.l4 + (w.proto == 17 ? 6 : 16);
	put16(frame + at, 0);
	sum = ~l4_sum(frame, &w) & 0xffff;
	put16(frame + at, (u16)(sum || w.proto != 17 ? sum : 0xffff));
}
