/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "capture_options.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "source.h"

static void usage(FILE *f)
{
	fputs("\nThe packets of sockets that are offloaded\n"
	      "Usage:\n"
	      "\tvma_stats capture [-p pid] [-i interface] [-w file] [filter]\n"
	      "Options:\n"
	      "  -p, --pid=<pid>\t\tOf this process only; without it of all that you may see\n"
	      "  -k, --directory=<directory>\tWhere the processes' statistics are, as without "
	      "capture (" SOURCE_DEFAULT_DIR ")\n"
	      "  -i, --interface=<name>\tOf this interface only\n"
	      "  -Q, --direction=<in|out|inout>\tOf this direction only\n"
	      "  -w, --write=<file>\t\tWrite them to a pcapng file, - is standard output; "
	      "without it a line each is printed\n"
	      "  -c, --count=<n>\t\tEnd after <n> packets\n"
	      "  -s, --snapshot-length=<n>\tKeep <n> bytes of a packet, 64 to 262144 (262144)\n"
	      "  -B, --buffer-size=<KiB>\tMemory in each process, a power of two, 1024 to 262144 "
	      "(8192)\n"
	      "  -h, --help\t\t\tPrint this help message\n"
	      "The filter is in libpcap's language: pcap-filter(7).\n",
	      f);
}

static _Noreturn void mistake(const char *what, const char *value, const char *remedy)
{
	fprintf(stderr, "vmastat: capture: %s '%s': %s\n", what, value, remedy);
	exit(1);
}

static uint64_t number(const char *what, const char *text, uint64_t low, uint64_t high)
{
	char remedy[80], *end;
	unsigned long long n;

	errno = 0;
	n = strtoull(text, &end, 10);
	if (*text >= '0' && *text <= '9' && !errno && !*end && n >= low && n <= high)
		return n;
	snprintf(remedy, sizeof(remedy), "give a number from %" PRIu64 " to %" PRIu64, low, high);
	mistake(what, text, remedy);
}

static uint8_t direction(const char *text)
{
	if (!strcmp(text, "in"))
		return VMA_CAPTURE_IN;
	if (!strcmp(text, "out"))
		return VMA_CAPTURE_OUT;
	if (!strcmp(text, "inout"))
		return VMA_CAPTURE_VOID;
	mistake("-Q", text, "give in, out or inout");
}

/* The words that are left, as one text. */
static void take_filter(struct capture_options *o, char **words)
{
	size_t len = 0;

	for (; *words; words++) {
		int n = snprintf(o->filter + len, sizeof(o->filter) - len, "%s%s", len ? " " : "",
				 *words);

		if (n < 0 || (size_t)n >= sizeof(o->filter) - len)
			mistake("filter", *words, "the filter is too long");
		len += (size_t)n;
	}
}

static void parse_one(struct capture_options *o, int c)
{
	switch (c) {
	case 'p':
		o->pid = (int)number("-p", optarg, 1, INT_MAX);
		break;
	case 'k':
		o->wanted.dir = optarg;
		break;
	case 'i':
		o->interface = optarg;
		break;
	case 'Q':
		o->direction = direction(optarg);
		break;
	case 'w':
		o->file = optarg;
		break;
	case 'c':
		o->count = number("-c", optarg, 1, UINT64_MAX);
		break;
	case 's':
		o->wanted.snap =
			(uint32_t)number("-s", optarg, VMA_CAPTURE_SNAP_MIN, VMA_CAPTURE_SNAP_MAX);
		break;
	case 'B':
		o->wanted.bytes =
			1024 * (uint32_t)number("-B", optarg, VMA_CAPTURE_BYTES_MIN / 1024,
						VMA_CAPTURE_BYTES_MAX / 1024);
		break;
	case 'h':
		usage(stdout);
		exit(0);
	default:
		usage(stderr);
		exit(1);
	}
}

void capture_options_parse(struct capture_options *o, int argc, char **argv)
{
	static const struct option table[] = {
		{"pid", required_argument, NULL, 'p'},
		{"directory", required_argument, NULL, 'k'},
		{"interface", required_argument, NULL, 'i'},
		{"direction", required_argument, NULL, 'Q'},
		{"write", required_argument, NULL, 'w'},
		{"count", required_argument, NULL, 'c'},
		{"snapshot-length", required_argument, NULL, 's'},
		{"buffer-size", required_argument, NULL, 'B'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	int c;

	*o = (struct capture_options){.wanted = {.snap = VMA_CAPTURE_SNAP_MAX, .bytes = 8u << 20}};
	while ((c = getopt_long(argc, argv, "+p:k:i:Q:w:c:s:B:h", table, NULL)) != -1)
		parse_one(o, c);
	take_filter(o, argv + optind);
}
