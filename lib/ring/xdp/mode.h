/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How the steering program and the XSKs stand to an interface's driver, by what the driver can:
 * zero-copy where it has it; in the driver (native) where that takes nothing from the kernel's own
 * flows; on the skb (generic) else. VMA_XDP_MODE may say it in its place.
 */
#ifndef RING_XDP_MODE_H
#define RING_XDP_MODE_H

#include "ring/port.h"

/* Sets p->mode, bind and why. */
void mode_choose(struct ring_port *p);

#endif
