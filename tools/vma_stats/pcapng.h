/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A file of packets as Wireshark and tcpdump read it: pcapng, draft-ietf-opsawg-pcapng, in the byte
 * order of this machine. What cannot be written stands in ferror(f).
 */
#ifndef VMA_STATS_PCAPNG_H
#define VMA_STATS_PCAPNG_H

#include <stdint.h>
#include <stdio.h>

enum pcapng_direction { PCAPNG_IN = 1, PCAPNG_OUT = 2 };

struct pcapng_interface {
	const char *name, *description, *filter; /* filter "": none */
	uint32_t snap;
};

struct pcapng_packet {
	uint32_t interface; /* the how manieth of the file, from 0 */
	enum pcapng_direction direction;
	uint64_t time_ns; /* since the epoch */
	uint32_t len, caplen;
	const uint8_t *data;
	const char *comment;
};

struct pcapng_statistics {
	uint32_t interface;
	uint64_t begin_ns, end_ns; /* of the capture */
	uint64_t received, accepted, lost; /* packets; lost are those among neither */
};

/* First. */
void pcapng_begin(FILE *f, const char *application);
/* Ethernet; before its packets. */
void pcapng_interface(FILE *f, const struct pcapng_interface *i);
void pcapng_packet(FILE *f, const struct pcapng_packet *p);
void pcapng_statistics(FILE *f, const struct pcapng_statistics *s);

#endif
