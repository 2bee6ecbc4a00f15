/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the manual says of bonds. */
#ifndef RING_BOND_H
#define RING_BOND_H

/*
 * The interface may have a ring: 0. -EOPNOTSUPP: it is a bond of mode balance-alb, or a VLAN over
 * one, which the log says; or a VLAN over a bond whose address follows its active device. That, and
 * a bond of a mode that is not supported, are said in a box, once.
 */
int bond_check(const char *ifname);

#endif
