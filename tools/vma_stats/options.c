/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "control.h"
#include "runtime/log.h"
#include "source.h"
#include "vma/log_names.h"
#include "vma/version.h"

#define LEVEL(level, name) {name, level},
static const struct {
	const char *name;
	int level;
} levels[] = {LOG_LEVEL_NAMES(LEVEL)};
#undef LEVEL

#define NUM_LEVELS (sizeof(levels) / sizeof(levels[0]))

static void usage(FILE *f, const char *self)
{
	fprintf(f,
		"\nVMA Statistics\n"
		"Usage:\n"
		"\t%s [-p pid] [-k directory] [-v view] [-d details] [-i interval] \n"
		"\t%s capture [-p pid] [-i interface] [-w file] [filter]\n"
		"Defaults:\n"
		"\tfind_pid=enabled, directory=\"" SOURCE_DEFAULT_DIR
		"\", view=1, details=1, interval=1, \n"
		"Options:\n"
		"  -p, --pid=<pid>\t\tShow VMA statistics for process with pid: <pid>\n"
		"  -k, --directory=<directory>\tSet shared memory directory path to <directory>\n"
		"  -n, --name=<application>\tShow VMA statistics for application: <application>\n"
		"  -f, --find_pid\t\tFind and show statistics for VMA instance running (default)\n"
		"  -F, --forbid_clean\t\tBy setting this flag inactive shared objects would not be "
		"removed\n"
		"  -i, --interval=<n>\t\tPrint report every <n> seconds\n"
		"  -c, --cycles=<n>\t\tDo <n> report print cycles and exit, use 0 value for "
		"infinite (default)\n"
		"  -v, --view=<1|2|3|4|5|6>\tSet view type: 1- basic info, 2- extra info, 3- full "
		"info, "
		"4- mc groups, 5- similar to 'netstat -tunaep', 6- processes of each interface\n"
		"  -d, --details=<1|2>\t\tSet details mode: 1- to see totals, 2- to see deltas\n"
		"  -s, --sockets=<list|range>\tLog only sockets that match <list> or <range>, "
		"format: 4-16 or 1,9 "
		"(or combination)\n"
		"  -z, --zero\t\t\tZero the sockets' counters\n"
		"  -l, --log_level=<level>\tSet VMA log level to <level>(one of: "
		"none/panic/error/warn/info/details/debug/fine/finer/all, or 0 to 7)\n"
		"  -S, --fd_dump=<fd> [<level>]\tDump statistics for fd number <fd> using log "
		"level <level>. Use 0 value "
		"for all open fds\n"
		"  -D, --details_level=<level>\tSet VMA log detail level to <level>(0 <= level <= "
		"3)\n"
		"      --json\t\t\tPrint one JSON object each cycle\n"
		"      --live\t\t\tShow all processes on the whole screen (without options on a "
		"terminal)\n"
		"      --prometheus\t\tPrint the metrics of all processes in Prometheus' text "
		"format\n"
		"      --listen=<address:port>\tServe them by HTTP, as in 127.0.0.1:9100\n"
		"  -V, --version\t\t\tPrint version\n"
		"  -h, --help\t\t\tPrint this help message\n",
		self, self);
}

static _Noreturn void mistake(const char *what, const char *value, const char *remedy)
{
	fprintf(stderr, "vmastat: %s '%s': %s\n", what, value, remedy);
	exit(1);
}

static int number(const char *what, const char *text, int low, int high)
{
	char remedy[64], *end;
	long n;

	errno = 0;
	n = strtol(text, &end, 10);
	if (errno || end == text || *end || n < low || n > high) {
		snprintf(remedy, sizeof(remedy), "give a number from %d to %d", low, high);
		mistake(what, text, remedy);
	}
	return (int)n;
}

/* Name or number, as VMA_TRACELEVEL takes them. */
static int level(const char *what, const char *text)
{
	for (size_t i = 0; i < NUM_LEVELS; i++)
		if (!strcasecmp(text, levels[i].name))
			return levels[i].level;
	mistake(what, text,
		"give one of none, panic, error, warn, info, details, debug, fine, finer, all, "
		"or a number from 0 (panic) to 7 (all)");
}

static int dump_level(const char *text)
{
	int wanted = level("-S level", text);

	if (wanted < 0)
		mistake("-S level", text,
			"nothing would be written; give one of panic, error, warn, info, details, "
			"debug, fine, finer, all, or a number from 0 (panic) to 7 (all)");
	return wanted;
}

const char *options_level_name(int wanted)
{
	for (size_t i = 0; i < NUM_LEVELS; i++)
		if (levels[i].level == wanted)
			return levels[i].name;
	return "?";
}

/* The number at *p, which moves behind it; false if there is none that fits. */
static bool range_end(const char **p, int *out)
{
	char *end;
	long n;

	if (**p < '0' || **p > '9')
		return false;
	errno = 0;
	n = strtol(*p, &end, 10);
	*p = end;
	*out = (int)n;
	return !errno && n <= INT_MAX;
}

static void ranges(struct options *o, const char *text)
{
	static const char remedy[] =
		"give numbers and ranges separated by commas, at most 64, as in 4-16,19";
	const char *p = text;

	for (;;) {
		struct fd_range r;

		if (o->num_ranges == FD_RANGES || !range_end(&p, &r.first))
			mistake("-s", text, remedy);
		r.last = r.first;
		if (*p == '-') {
			p++;
			if (!range_end(&p, &r.last))
				mistake("-s", text, remedy);
		}
		if (r.last < r.first || (*p && *p != ','))
			mistake("-s", text, remedy);
		o->ranges[o->num_ranges++] = r;
		if (!*p)
			return;
		p++;
	}
}

bool options_fd(const struct options *o, int fd)
{
	for (unsigned i = 0; i < o->num_ranges; i++)
		if (fd >= o->ranges[i].first && fd <= o->ranges[i].last)
			return true;
	return !o->num_ranges;
}

/* The options that choose what is shown. False if c is none of them. */
static bool parse_view(struct options *o, int c)
{
	switch (c) {
	case 'i':
		o->interval = (unsigned)number("-i", optarg, 1, 86400);
		break;
	case 'c':
		o->cycles = (unsigned)number("-c", optarg, 0, INT_MAX);
		break;
	case 'v':
		o->view = (enum view)number("-v", optarg, VIEW_BASIC, VIEW_MEMBERS);
		break;
	case 'd':
		o->deltas = number("-d", optarg, 1, 2) == 2;
		break;
	case 'j':
		o->json = true;
		break;
	case 'T':
		o->live = true;
		break;
	case 'P':
		o->prometheus = true;
		break;
	case 'L':
		o->listen = optarg;
		break;
	default:
		return false;
	}
	o->shows = true;
	return true;
}

static void parse_one(struct options *o, int c, int argc, char **argv)
{
	switch (c) {
	case 'p':
		o->pid = number("-p", optarg, 1, INT_MAX);
		break;
	case 'k':
		o->dir = optarg;
		break;
	case 'n':
		o->name = optarg;
		break;
	case 'f':
		o->pid = 0;
		break;
	case 'F':
		o->forbid_clean = true;
		break;
	case 's':
		ranges(o, optarg);
		break;
	case 'z':
		o->zero = true;
		break;
	case 'l':
		o->log_level = level("-l", optarg);
		break;
	case 'D':
		o->log_details = number("-D", optarg, 0, 3);
		break;
	case 'S':
		o->dump_fd = number("-S", optarg, 0, INT_MAX);
		if (optind < argc && argv[optind][0] != '-')
			o->dump_level = dump_level(argv[optind++]);
		break;
	case 'V':
		printf("vma_stats %s\n", VMA_LIBRARY_VERSION);
		exit(0);
	case 'h':
		usage(stdout, argv[0]);
		exit(0);
	default:
		usage(stderr, argv[0]);
		exit(1);
	}
}

/* What cannot be asked for at once. */
static void check(const struct options *o)
{
	const char *outputs[] = {
		o->json ? "--json" : NULL,
		o->live ? "--live" : NULL,
		o->prometheus ? "--prometheus" : NULL,
		o->listen ? "--listen" : NULL,
	};
	const char *one = NULL;

	for (size_t i = 0; i < sizeof(outputs) / sizeof(outputs[0]); i++) {
		if (one && outputs[i])
			mistake(one, outputs[i], "choose one of them");
		one = outputs[i] ? outputs[i] : one;
	}
	if ((o->prometheus || o->listen || o->live) && control_asked(o))
		mistake(one, "-z, -l, -D or -S", "these two need a call each");
}

void options_parse(struct options *o, int argc, char **argv)
{
	static const struct option table[] = {
		{"pid", required_argument, NULL, 'p'},
		{"directory", required_argument, NULL, 'k'},
		{"name", required_argument, NULL, 'n'},
		{"find_pid", no_argument, NULL, 'f'},
		{"forbid_clean", no_argument, NULL, 'F'},
		{"interval", required_argument, NULL, 'i'},
		{"cycles", required_argument, NULL, 'c'},
		{"view", required_argument, NULL, 'v'},
		{"details", required_argument, NULL, 'd'},
		{"sockets", required_argument, NULL, 's'},
		{"zero", no_argument, NULL, 'z'},
		{"log_level", required_argument, NULL, 'l'},
		{"fd_dump", required_argument, NULL, 'S'},
		{"details_level", required_argument, NULL, 'D'},
		{"json", no_argument, NULL, 'j'},
		{"live", no_argument, NULL, 'T'},
		{"prometheus", no_argument, NULL, 'P'},
		{"listen", required_argument, NULL, 'L'},
		{"version", no_argument, NULL, 'V'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	int c;

	*o = (struct options){
		.interval = 1,
		.view = VIEW_BASIC,
		.log_level = UNSET,
		.log_details = UNSET,
		.dump_fd = UNSET,
		.dump_level = 3,
	};
	while ((c = getopt_long(argc, argv, "+p:k:n:fFi:c:v:d:s:zl:S:D:Vh", table, NULL)) != -1)
		if (!parse_view(o, c))
			parse_one(o, c, argc, argv);
	check(o);
	/* These are shown once, and as JSON they do not call totals rates. */
	o->deltas = o->deltas && o->view < VIEW_GROUPS;
	if (optind < argc)
		mistake("argument", argv[optind], "no such option; see vma_stats -h");
}
