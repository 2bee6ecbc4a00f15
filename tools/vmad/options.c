/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "options.h"

#include <getopt.h>
#include <stdio.h>

#include "vma/version.h"

/* Options without a letter. */
enum { CONSOLE = 256, NOTIFY_DIR, FORCE_RST, VERSION };

static const struct option names[] = {
	{"console", no_argument, NULL, CONSOLE},
	{"verbose", required_argument, NULL, 'v'},
	{"notify-dir", required_argument, NULL, NOTIFY_DIR},
	{"pid", required_argument, NULL, 'p'},
	{"fid", required_argument, NULL, 'f'},
	{"force-rst", no_argument, NULL, FORCE_RST},
	{"retry-interval", required_argument, NULL, 'r'},
	{"version", no_argument, NULL, VERSION},
	{"help", no_argument, NULL, 'h'},
	{0},
};

static void help(void)
{
	printf("Usage: vmad [options] interface...\n"
	       "Keeps the queues of these interfaces open for the programs of this user that run\n"
	       "over libvma.so, and has the peers of those reset that are killed.\n\n"
	       "  --console              stay in the foreground, log to standard error\n"
	       "  -v, --verbose=LEVEL    as VMA_TRACELEVEL (see libvma(7))\n"
	       "  -h, --help             this text\n"
	       "  --version              the version\n\n"
	       "The original's -p, --pid, -f, --fid, -r, --retry-interval, --force-rst and\n"
	       "--notify-dir are taken, and change nothing.\n");
}

static int wrong(const char *what)
{
	fprintf(stderr, "vmad: %s; see vmad --help\n", what);
	return 2;
}

static const char *name_of(int c)
{
	for (const struct option *n = names; n->name; n++)
		if (n->val == c)
			return n->name;
	return "?";
}

bool options_read(int argc, char **argv, struct options *o, int *status)
{
	int c;

	*o = (struct options){.console = false};
	*status = 0;
	while ((c = getopt_long(argc, argv, "v:p:f:r:h", names, NULL)) >= 0) {
		switch (c) {
		case CONSOLE:
			o->console = true;
			break;
		case 'v':
			o->verbose = optarg;
			break;
		case 'h':
			help();
			return false;
		case VERSION:
			puts("vmad " VMA_LIBRARY_VERSION);
			return false;
		case '?':
			*status = wrong("see above");
			return false;
		default: /* the original's */
			fprintf(stderr, "vmad: --%s changes nothing here\n", name_of(c));
		}
	}
	o->interfaces = argv + optind;
	o->num = (unsigned)(argc - optind);
	if (!o->num)
		*status = wrong("no interface is named: vmad eth0");
	return o->num;
}
