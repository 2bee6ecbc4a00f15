/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "config/rules.h"

#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/runtime.h"
#include "config/params.h"
#include "config/rule_line.h"

#define ROLES 5
#define FILE_MAX_BYTES (1u << 20)
#define DEFAULT_PATH "/etc/libvma.conf"

static const char builtin[] = "application-id * *\nuse os udp_connect *:53\n";

/*
 * The rules of each role that concern this program, in the order in which they are asked. A rule in
 * a list is never changed; a new head is published with release, so that matching needs no lock.
 */
static _Atomic(struct rule *) heads[ROLES];

/* The file's log statement; 0 where nothing was said. */
static struct {
	enum rule_log dest;
	int min_level;
	char file[PATH_MAX];
} log_wanted;

static void list_free(struct rule *r)
{
	struct rule *next;

	for (; r; r = next) {
		next = r->next;
		free(r);
	}
}

void rules_free(void)
{
	unsigned i;

	for (i = 0; i < ROLES; i++)
		list_free(atomic_exchange(&heads[i], NULL));
	memset(&log_wanted, 0, sizeof(log_wanted));
}

static struct rule *rule_copy(const struct rule *rule)
{
	struct rule *r = malloc(sizeof(*r));

	if (r) {
		*r = *rule;
		r->next = NULL;
	}
	return r;
}

/* The program has a name without its path; its id is VMA_APPLICATION_ID. */
static bool is_for_us(const struct rule_statement *st)
{
	return rule_glob(st->program, program_invocation_short_name) &&
	       rule_glob(st->id, params.application_id);
}

/* While a text is parsed. */
struct parsing {
	const char *name;
	unsigned line;
	bool ours; /* the rules of the group that is open concern this program */
	int bad;
	struct rule **tails[ROLES];
	struct rule *lists[ROLES];
};

static void use_take(struct parsing *p, const struct rule_statement *st)
{
	struct rule *r;

	if (st->transport)
		log_warn("%s:%u: there is no transport %s here; these sockets are left to the "
			 "kernel",
			 p->name, p->line, st->transport);
	if (!p->ours)
		return;
	r = rule_copy(&st->rule);
	if (!r) {
		log_error("%s:%u: out of memory; the rule is skipped", p->name, p->line);
		return;
	}
	*p->tails[r->role] = r;
	p->tails[r->role] = &r->next;
}

static void log_take(const struct rule_statement *st)
{
	if (st->log) {
		log_wanted.dest = st->log;
		memcpy(log_wanted.file, st->file, sizeof(log_wanted.file));
	}
	if (st->min_level)
		log_wanted.min_level = st->min_level;
}

static void line_take(struct parsing *p, const char *line, size_t len, struct rule_statement *st)
{
	char why[200];

	if (rule_line_read(line, len, st, why, sizeof(why))) {
		p->bad++;
		log_warn("%s:%u: %s; the line is skipped%s", p->name, p->line, why,
			 st->kind == RULE_APPLICATION ? ", and with it the rules of its group"
						      : "");
		if (st->kind == RULE_APPLICATION)
			p->ours = false; /* nobody knows whom its rules were meant for */
		return;
	}
	switch (st->kind) {
	case RULE_NOTHING:
		return;
	case RULE_APPLICATION:
		p->ours = is_for_us(st);
		return;
	case RULE_USE:
		use_take(p, st);
		return;
	case RULE_LOG:
		log_take(st);
		return;
	}
}

int rules_parse(const char *text, size_t len, const char *name)
{
	struct parsing p = {.name = name, .ours = true};
	struct rule_statement *st =
		malloc(sizeof(*st)); /* holds a path: too large for a stranger's stack */
	const char *end = text + len, *newline;
	unsigned i;

	rules_free();
	if (!st) {
		log_error("%s: out of memory; there are no rules", name);
		return 0;
	}
	for (i = 0; i < ROLES; i++)
		p.tails[i] = &p.lists[i];
	for (; text < end; text = newline + 1) {
		p.line++;
		newline = memchr(text, '\n', (size_t)(end - text));
		if (!newline)
			newline = end;
		line_take(&p, text, (size_t)(newline - text), st);
	}
	free(st);
	for (i = 0; i < ROLES; i++)
		atomic_store_explicit(&heads[i], p.lists[i], memory_order_release);
	return p.bad;
}

int rules_add_top(const char *line)
{
	struct rule_statement *st = malloc(sizeof(*st));
	struct rule *r = NULL;
	char why[200];
	int err;

	if (!st)
		return -ENOMEM;
	err = rule_line_read(line, strcspn(line, "\n"), st, why, sizeof(why));
	if (err)
		log_warn("rule \"%.200s\": %s; it is not added", line, why);
	else if (st->kind != RULE_USE)
		err = -EINVAL;
	else if (!(r = rule_copy(&st->rule)))
		err = -ENOMEM;
	free(st);
	if (err)
		return err;
	r->next = atomic_load_explicit(&heads[r->role], memory_order_relaxed);
	while (!atomic_compare_exchange_weak_explicit(&heads[r->role], &r->next, r,
						      memory_order_release, memory_order_relaxed))
		;
	return 0;
}

/* What a socket address says to a rule. */
struct match_addr {
	bool known; /* an IPv4 or IPv6 address */
	bool v4;
	uint16_t port;
	struct in6_addr addr;
};

static struct match_addr subject_of(const struct sockaddr *sa)
{
	struct match_addr s = {0};
	const struct sockaddr_in6 *in6;
	const struct sockaddr_in *in;

	if (sa && sa->sa_family == AF_INET) {
		in = (const struct sockaddr_in *)(const void *)sa;
		s.known = s.v4 = true;
		s.port = ntohs(in->sin_port);
		s.addr.s6_addr[10] = s.addr.s6_addr[11] = 0xff;
		memcpy(&s.addr.s6_addr[12], &in->sin_addr, 4);
	} else if (sa && sa->sa_family == AF_INET6) {
		in6 = (const struct sockaddr_in6 *)(const void *)sa;
		s.known = true;
		s.v4 = IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr);
		s.port = ntohs(in6->sin6_port);
		s.addr = in6->sin6_addr;
	}
	return s;
}

static bool prefix_holds(const struct in6_addr *prefix, unsigned bits, const struct in6_addr *addr)
{
	unsigned bytes = bits / 8, rest = bits % 8;

	if (memcmp(prefix, addr, bytes))
		return false;
	return !rest || !((prefix->s6_addr[bytes] ^ addr->s6_addr[bytes]) >> (8 - rest));
}

static bool side_matches(const struct rule_side *side, const struct match_addr *s)
{
	if (s->port < side->port_min || s->port > side->port_max)
		return false;
	if (side->any)
		return true;
	return s->known && s->v4 == side->v4 && prefix_holds(&side->addr, side->prefix, &s->addr);
}

enum rule_target rules_match(enum rule_role role, const struct sockaddr *first,
			     const struct sockaddr *second)
{
	struct match_addr one = subject_of(first), two = subject_of(second);
	const struct rule *r = atomic_load_explicit(&heads[role], memory_order_acquire);

	for (; r; r = r->next)
		if (side_matches(&r->first, &one) &&
		    (!r->two_sides || side_matches(&r->second, &two)))
			return r->target;
	return RULE_VMA;
}

/* The file's text (malloc) or NULL with errno. */
static char *file_read(const char *path, size_t *len)
{
	FILE *f = own_fopen(path, "re");
	char *text;
	int err;

	if (!f)
		return NULL;
	text = malloc(FILE_MAX_BYTES);
	*len = text ? fread(text, 1, FILE_MAX_BYTES, f) : 0;
	err = !text ? ENOMEM : ferror(f) ? errno : *len == FILE_MAX_BYTES ? EFBIG : 0;
	own_fclose(f);
	if (err) {
		free(text);
		errno = err;
		return NULL;
	}
	return text;
}

/* The levels of the old grammar, 1 everything to 9 errors only, on ours. */
static int level_of(int min_level)
{
	static const int level[] = {
		[1] = LOG_FINE,	   [2] = LOG_DEBUG, [3] = LOG_DETAILS,
		[4] = LOG_DETAILS, [5] = LOG_INFO,  [6] = LOG_INFO,
		[7] = LOG_INFO,	   [8] = LOG_WARN,  [9] = LOG_ERROR,
	};

	return level[min_level];
}

/* A variable of the environment wins over the file. */
static void log_follow(const char *path)
{
	int err = 0;

	if (log_wanted.min_level && !secure_getenv("VMA_TRACELEVEL"))
		__atomic_store_n(&log_level_now, level_of(log_wanted.min_level), __ATOMIC_RELAXED);
	if (*params.log_file || !log_wanted.dest)
		return;
	switch (log_wanted.dest) {
	case RULE_LOG_STDERR:
		log_to_stderr();
		return;
	case RULE_LOG_SYSLOG:
		log_to_syslog();
		return;
	case RULE_LOG_FILE:
		err = log_to_file(log_wanted.file);
		if (err)
			log_warn("%s: cannot log to %s: %s; the log goes to standard error", path,
				 log_wanted.file, strerror(-err));
		return;
	}
}

void rules_load(const char *path)
{
	size_t len = 0;
	char *text = *path ? file_read(path, &len) : NULL;

	if (!text) {
		/* It is no mistake to have no file, but to name one that is not there. */
		if (*path && (errno != ENOENT || strcmp(path, DEFAULT_PATH)))
			log_warn("VMA_CONFIG_FILE: cannot read %s: %s; everything is offloaded but "
				 "DNS",
				 path, strerror(errno));
		rules_parse(builtin, sizeof(builtin) - 1, "built-in rules");
		return;
	}
	rules_parse(text, len, path);
	free(text);
	log_follow(path);
}
