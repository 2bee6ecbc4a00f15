/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "pcapng.h"

#include <string.h>

/* Types of blocks (section 4 of the draft) and numbers of options. */
enum { SECTION = 0x0a0d0d0a, INTERFACE = 1, STATISTICS = 5, PACKET = 6 };
enum { OPT_END, OPT_COMMENT };
enum { SHB_USERAPPL = 4 };
enum { IF_NAME = 2, IF_DESCRIPTION = 3, IF_TSRESOL = 9, IF_FILTER = 11 };
enum { EPB_FLAGS = 2 };
enum { ISB_STARTTIME = 2, ISB_ENDTIME = 3, ISB_IFRECV = 4, ISB_IFDROP = 5, ISB_FILTERACCEPT = 6 };

#define LINKTYPE_ETHERNET 1
#define NANOSECONDS 9 /* if_tsresol: 10^-9 s */
#define OPTIONS_ROOM 1024

/* The options of a block, which is written when they are complete. */
struct options_list {
	uint8_t bytes[OPTIONS_ROOM];
	uint32_t len;
};

static uint32_t padded(uint32_t len)
{
	return (len + 3) & ~3u;
}

static void put(FILE *f, const void *bytes, uint32_t len)
{
	fwrite(bytes, 1, len, f);
}

static void put32(FILE *f, uint32_t value)
{
	put(f, &value, sizeof(value));
}

/* Two words, the high one first, in either byte order. */
static void put_time(FILE *f, uint64_t ns)
{
	put32(f, (uint32_t)(ns >> 32));
	put32(f, (uint32_t)ns);
}

/* A value that does not fit is left out. */
static void option(struct options_list *o, uint16_t code, const void *value, uint32_t len)
{
	uint16_t head[2] = {code, (uint16_t)len};

	if (o->len + sizeof(head) + padded(len) > OPTIONS_ROOM - sizeof(uint32_t))
		return;
	memcpy(o->bytes + o->len, head, sizeof(head));
	memset(o->bytes + o->len + sizeof(head), 0, padded(len));
	memcpy(o->bytes + o->len + sizeof(head), value, len);
	o->len += (uint32_t)sizeof(head) + padded(len);
}

static void option_text(struct options_list *o, uint16_t code, const char *text)
{
	option(o, code, text, (uint32_t)strlen(text));
}

static void option_time(struct options_list *o, uint16_t code, uint64_t ns)
{
	uint32_t words[2] = {(uint32_t)(ns >> 32), (uint32_t)ns};

	option(o, code, words, sizeof(words));
}

static void option_count(struct options_list *o, uint16_t code, uint64_t count)
{
	option(o, code, &count, sizeof(count));
}

/* Its length stands at both ends of a block. */
static uint32_t begin(FILE *f, uint32_t type, uint32_t body, const struct options_list *o)
{
	uint32_t len = 12 + body + o->len + 4;

	put32(f, type);
	put32(f, len);
	return len;
}

static void end(FILE *f, uint32_t len, const struct options_list *o)
{
	put(f, o->bytes, o->len);
	put32(f, OPT_END);
	put32(f, len);
}

void pcapng_begin(FILE *f, const char *application)
{
	static const uint16_t version[2] = {1, 0};
	static const int64_t unknown = -1; /* how long the section will be */
	struct options_list o = {.len = 0};
	uint32_t len;

	option_text(&o, SHB_USERAPPL, application);
	len = begin(f, SECTION, 16, &o);
	put32(f, 0x1a2b3c4d); /* says the byte order */
	put(f, version, sizeof(version));
	put(f, &unknown, sizeof(unknown));
	end(f, len, &o);
}

void pcapng_interface(FILE *f, const struct pcapng_interface *i)
{
	static const uint16_t link[2] = {LINKTYPE_ETHERNET, 0};
	static const uint8_t resolution = NANOSECONDS;
	struct options_list o = {.len = 0};
	char filter[OPTIONS_ROOM / 2];
	uint32_t len;

	option_text(&o, IF_NAME, i->name);
	option_text(&o, IF_DESCRIPTION, i->description);
	option(&o, IF_TSRESOL, &resolution, sizeof(resolution));
	/* A byte 0 in front: libpcap's language. */
	if (*i->filter && strlen(i->filter) < sizeof(filter) - 1) {
		filter[0] = 0;
		memcpy(filter + 1, i->filter, strlen(i->filter));
		option(&o, IF_FILTER, filter, (uint32_t)strlen(i->filter) + 1);
	}
	len = begin(f, INTERFACE, 8, &o);
	put(f, link, sizeof(link));
	put32(f, i->snap);
	end(f, len, &o);
}

void pcapng_packet(FILE *f, const struct pcapng_packet *p)
{
	static const uint8_t zeros[4];
	struct options_list o = {.len = 0};
	uint32_t flags = p->direction, len;

	option_text(&o, OPT_COMMENT, p->comment);
	option(&o, EPB_FLAGS, &flags, sizeof(flags));
	len = begin(f, PACKET, 20 + padded(p->caplen), &o);
	put32(f, p->interface);
	put_time(f, p->time_ns);
	put32(f, p->caplen);
	put32(f, p->len);
	put(f, p->data, p->caplen);
	put(f, zeros, padded(p->caplen) - p->caplen);
	end(f, len, &o);
}

void pcapng_statistics(FILE *f, const struct pcapng_statistics *s)
{
	struct options_list o = {.len = 0};
	uint32_t len;

	option_time(&o, ISB_STARTTIME, s->begin_ns);
	option_time(&o, ISB_ENDTIME, s->end_ns);
	option_count(&o, ISB_IFRECV, s->received + s->lost);
	option_count(&o, ISB_IFDROP, s->lost);
	option_count(&o, ISB_FILTERACCEPT, s->accepted);
	len = begin(f, STATISTICS, 12, &o);
	put32(f, s->interface);
	put_time(f, s->end_ns);
	end(f, len, &o);
}
