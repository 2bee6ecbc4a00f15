/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* `vma_stats capture`: the packets of offloaded sockets, to a file or as text. */
#ifndef VMA_STATS_CAPTURE_H
#define VMA_STATS_CAPTURE_H

/* argv[0] is "capture". The exit status. */
int capture(int argc, char **argv);

#endif
