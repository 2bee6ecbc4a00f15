/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * libvma.conf: every form of a line, first match, groups, and what is said about lines that cannot
 * be read.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "log_capture.h"
#include "runtime/libc.h"
#include "runtime/log_syslog.h"
#include "config/params.h"
#include "config/rules.h"
#include "config/rule_line.h"

/* "10.0.0.1" or "2001:db8::1"; NULL stays NULL. */
static const struct sockaddr *addr(struct sockaddr_storage *ss, const char *text, unsigned port)
{
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ss;
	struct sockaddr_in *in = (struct sockaddr_in *)ss;

	memset(ss, 0, sizeof(*ss));
	if (!text)
		return NULL;
	if (inet_pton(AF_INET, text, &in->sin_addr) == 1) {
		in->sin_family = AF_INET;
		in->sin_port = htons((uint16_t)port);
	} else {
		assert_int_equal(inet_pton(AF_INET6, text, &in6->sin6_addr), 1);
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons((uint16_t)port);
	}
	return (const struct sockaddr *)ss;
}

static enum rule_target match2(enum rule_role role, const char *a, unsigned port, const char *b,
			       unsigned port2)
{
	struct sockaddr_storage one, two;

	return rules_match(role, addr(&one, a, port), addr(&two, b, port2));
}

static enum rule_target match(enum rule_role role, const char *a, unsigned port)
{
	return match2(role, a, port, NULL, 0);
}

static int parse(const char *text)
{
	capture_clear();
	return rules_parse(text, strlen(text), "test.conf");
}

#define is_os(...) assert_int_equal(match(__VA_ARGS__), RULE_OS)
#define is_vma(...) assert_int_equal(match(__VA_ARGS__), RULE_VMA)

static void nothing_matches_by_default(void **state)
{
	(void)state;
	assert_int_equal(parse(""), 0);
	is_vma(RULE_TCP_SERVER, "10.0.0.1", 80);
	is_vma(RULE_UDP_CONNECT, "2001:db8::1", 53);
}

static void each_role_has_its_own_rules(void **state)
{
	static const char *const names[] = {"tcp_server", "tcp_client", "udp_sender",
					    "udp_receiver", "udp_connect"};
	char text[100];
	unsigned i, j;

	(void)state;
	for (i = 0; i < 5; i++) {
		snprintf(text, sizeof(text), "use os %s *:*", names[i]);
		assert_int_equal(parse(text), 0);
		for (j = 0; j < 5; j++)
			assert_int_equal(match((enum rule_role)j, "10.0.0.1", 1),
					 i == j ? RULE_OS : RULE_VMA);
	}
	printf("    5 roles, none touches another\n");
}

static void the_first_match_decides(void **state)
{
	(void)state;
	assert_int_equal(parse("use vma tcp_client 10.0.0.0/8:80\nuse os tcp_client *:80\nuse vma "
			       "tcp_client *:*\n"),
			 0);
	is_vma(RULE_TCP_CLIENT, "10.1.2.3", 80);
	is_os(RULE_TCP_CLIENT, "11.1.2.3", 80);
	is_vma(RULE_TCP_CLIENT, "11.1.2.3", 81);
}

static void prefixes_of_ipv4(void **state)
{
	static const struct {
		const char *rule, *in, *out;
	} t[] = {
		{"10.1.2.3", "10.1.2.3", "10.1.2.4"},
		{"10.1.2.3/32", "10.1.2.3", "10.1.2.2"},
		{"10.1.2.3/31", "10.1.2.2", "10.1.2.4"},
		{"10.1.2.0/24", "10.1.2.255", "10.1.3.0"},
		{"10.1.128.0/17", "10.1.255.1", "10.1.127.255"},
		{"10.0.0.0/7", "11.255.0.1", "12.0.0.0"},
		{"0.0.0.0/0", "255.255.255.255", "2001:db8::1"},
		{"128.0.0.0/1", "200.0.0.1", "127.255.255.255"},
	};
	char text[100];
	unsigned i;

	(void)state;
	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		snprintf(text, sizeof(text), "use os udp_sender %s:*", t[i].rule);
		assert_int_equal(parse(text), 0);
		printf("    %s holds %s, not %s\n", t[i].rule, t[i].in, t[i].out);
		is_os(RULE_UDP_SENDER, t[i].in, 9);
		is_vma(RULE_UDP_SENDER, t[i].out, 9);
	}
}

static void prefixes_of_ipv6(void **state)
{
	static const struct {
		const char *rule, *in, *out;
	} t[] = {
		{"[2001:db8::1]", "2001:db8::1", "2001:db8::2"},
		{"[2001:db8::]/32", "2001:db8:ffff::1", "2001:db9::1"},
		{"[fe80::]/10", "febf::1", "fec0::1"},
		{"[::1]/128", "::1", "::2"},
		{"[ff02::]/16", "ff02::1:2", "ff05::1:2"},
		{"[::]/0", "2001:db8::1", "10.0.0.1"}, /* the IPv6 internet, not IPv4 */
		{"[::]/0", "::1", "::ffff:10.0.0.1"},
		{"[::ffff:10.0.0.0]/104", "10.9.9.9", "11.0.0.1"},
	};
	char text[100];
	unsigned i;

	(void)state;
	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		snprintf(text, sizeof(text), "use os udp_receiver %s:*", t[i].rule);
		assert_int_equal(parse(text), 0);
		printf("    %s holds %s, not %s\n", t[i].rule, t[i].in, t[i].out);
		is_os(RULE_UDP_RECEIVER, t[i].in, 9);
		is_vma(RULE_UDP_RECEIVER, t[i].out, 9);
	}
}

static void a_mapped_address_is_an_ipv4_address(void **state)
{
	(void)state;
	assert_int_equal(parse("use os tcp_server 10.1.0.0/16:*"), 0);
	is_os(RULE_TCP_SERVER, "::ffff:10.1.5.5", 80);
	is_vma(RULE_TCP_SERVER, "::ffff:10.2.5.5", 80);
	is_vma(RULE_TCP_SERVER, "::10.1.5.5", 80);
}

static void ports_and_ranges(void **state)
{
	(void)state;
	assert_int_equal(parse("use os tcp_server *:5000-5010\nuse os udp_receiver *:1\nuse os "
			       "udp_sender *:65535"),
			 0);
	is_vma(RULE_TCP_SERVER, "10.0.0.1", 4999);
	is_os(RULE_TCP_SERVER, "10.0.0.1", 5000);
	is_os(RULE_TCP_SERVER, "::1", 5010);
	is_vma(RULE_TCP_SERVER, "10.0.0.1", 5011);
	is_os(RULE_UDP_RECEIVER, "10.0.0.1", 1);
	is_vma(RULE_UDP_RECEIVER, "10.0.0.1", 0);
	is_os(RULE_UDP_SENDER, "10.0.0.1", 65535);
	assert_int_equal(parse("use os udp_receiver *:*"), 0);
	is_os(RULE_UDP_RECEIVER, "0.0.0.0", 0);
}

static void two_pairs_want_both_sides(void **state)
{
	(void)state;
	assert_int_equal(parse("use os udp_connect 10.0.0.0/8:53:192.168.1.1:4000-4001\n"
			       "use os tcp_client [2001:db8::]/32:*:[::1]:*\n"
			       "use os tcp_client 192.168.1.0/24:*:*:*\n"),
			 0);
	assert_int_equal(match2(RULE_UDP_CONNECT, "10.1.1.1", 53, "192.168.1.1", 4001), RULE_OS);
	assert_int_equal(match2(RULE_UDP_CONNECT, "10.1.1.1", 53, "192.168.1.1", 4002), RULE_VMA);
	assert_int_equal(match2(RULE_UDP_CONNECT, "10.1.1.1", 53, "192.168.1.2", 4001), RULE_VMA);
	assert_int_equal(match2(RULE_UDP_CONNECT, "10.1.1.1", 54, "192.168.1.1", 4001), RULE_VMA);
	assert_int_equal(match2(RULE_UDP_CONNECT, "10.1.1.1", 53, NULL, 0), RULE_VMA);
	assert_int_equal(match2(RULE_TCP_CLIENT, "2001:db8::9", 7, "::1", 1), RULE_OS);
	assert_int_equal(match2(RULE_TCP_CLIENT, "2001:db8::9", 7, "::2", 1), RULE_VMA);
	assert_int_equal(match2(RULE_TCP_CLIENT, "192.168.1.7", 7, NULL, 0),
			 RULE_OS); /* *:* says nothing about it */
}

static void groups_are_for_programs_and_ids(void **state)
{
	char *real = program_invocation_short_name;
	const char *id = params.application_id;

	(void)state;
	program_invocation_short_name = (char *)"tcp-lat";
	params.application_id = "B1";
	assert_int_equal(parse("application-id tcp-lat B1\nuse os tcp_server *:1\n"
			       "application-id tcp-lat B2\nuse os tcp_server *:2\n"
			       "application-id other *\nuse os tcp_server *:3\n"
			       "application-id t?p-l* *\nuse os tcp_server *:4\n"
			       "application-id * *\nuse os tcp_server *:5\n"
			       "application-id * B*\nuse os tcp_server *:6\n"),
			 0);
	is_os(RULE_TCP_SERVER, "10.0.0.1", 1);
	is_vma(RULE_TCP_SERVER, "10.0.0.1", 2);
	is_vma(RULE_TCP_SERVER, "10.0.0.1", 3);
	is_os(RULE_TCP_SERVER, "10.0.0.1", 4);
	is_os(RULE_TCP_SERVER, "10.0.0.1", 5);
	is_os(RULE_TCP_SERVER, "10.0.0.1", 6);
	/* Without VMA_APPLICATION_ID only the groups of every id. */
	params.application_id = id;
	assert_int_equal(
		parse("use os tcp_server *:9\napplication-id tcp-lat B1\nuse os tcp_server *:1\n"),
		0);
	is_vma(RULE_TCP_SERVER, "10.0.0.1", 1);
	is_os(RULE_TCP_SERVER, "10.0.0.1", 9); /* before any group: for everybody */
	program_invocation_short_name = real;
}

static void the_four_transports_and_the_star(void **state)
{
	(void)state;
	assert_int_equal(
		parse("use os tcp_server *:1\nuse vma tcp_server *:2\nuse sdp tcp_server *:3\n"
		      "use sa tcp_server *:4\nuse * tcp_server *:5\nuse os tcp_server *:*\n"),
		0);
	is_os(RULE_TCP_SERVER, "10.0.0.1", 1);
	is_vma(RULE_TCP_SERVER, "10.0.0.1", 2);
	is_os(RULE_TCP_SERVER, "10.0.0.1", 3);
	is_os(RULE_TCP_SERVER, "10.0.0.1", 4);
	is_vma(RULE_TCP_SERVER, "10.0.0.1", 5);
	assert_true(captured_has("test.conf:3: there is no transport sdp here"));
	assert_true(captured_has("test.conf:4: there is no transport sa here"));
}

static void blanks_comments_and_case_do_not_matter(void **state)
{
	(void)state;
	assert_int_equal(parse("# nothing\n\n   \t\r\n\tUSE  OS\ttcp_server   *:7   # why "
			       "not\r\nuse os udp_sender *:8"),
			 0);
	is_os(RULE_TCP_SERVER, "10.0.0.1", 7);
	is_os(RULE_UDP_SENDER, "10.0.0.1", 8);
	assert_int_equal(captured_lines(), 0);
}

static void an_unreadable_line_is_named_and_skipped(void **state)
{
	static const struct {
		const char *line, *says;
	} t[] = {
		{"user os tcp_server *:1", "\"user\" is none of application-id, use, log"},
		{"use", "the transport (os or vma) is missing"},
		{"use tcp tcp_server *:1", "\"tcp\" is not a transport"},
		{"use os", "the role is missing"},
		{"use os udp_conect *:1", "\"udp_conect\" is not a role"},
		{"use os tcp_server", "address:ports is missing"},
		{"use os tcp_server *", "\"*\" is not address:ports"},
		{"use os tcp_server *:", "\"\" is not a port"},
		{"use os tcp_server *:0", "\"0\" is not a port"},
		{"use os tcp_server *:65536", "\"65536\" is not a port"},
		{"use os tcp_server *:99999999999999999999", "is not a port"},
		{"use os tcp_server *:-5", "\"-5\" is not a port"},
		{"use os tcp_server *:7-", "\"7-\" is not a port"},
		{"use os tcp_server *:9-8", "\"9-8\" is not a port"},
		{"use os tcp_server *:80x", "\"x\" behind the ports is too much"},
		{"use os tcp_server *:80 more", "\"more\" is too much"},
		{"use os tcp_server 10.0.0:80", "\"10.0.0\" is not an address"},
		{"use os tcp_server 10.0.0.256:80", "\"10.0.0.256\" is not an address"},
		{"use os tcp_server 10.0.0.1/33:80", "the prefix length is not 0 to 32"},
		{"use os tcp_server 10.0.0.1/:80", "the prefix length is not 0 to 32"},
		{"use os tcp_server 10.0.0.1/x:80", "the prefix length is not 0 to 32"},
		{"use os tcp_server host:80", "\"host\" is not an address"},
		{"use os tcp_server 2001:db8::1:80", "is not an address (IPv6 is written in [ ])"},
		{"use os tcp_server [2001:db8::1:80", "is not an IPv6 address in [ ]"},
		{"use os tcp_server [2001:zz::]:80", "\"2001:zz::\" is not an IPv6 address"},
		{"use os tcp_server [2001:db8::1]/129:80", "the prefix length is not 0 to 128"},
		{"use os tcp_server [2001:db8::1]", "is not address:ports"},
		{"use os tcp_server *:80:*:*",
		 "only tcp_client and udp_connect have a second address"},
		{"use os tcp_client *:80:*", "is not address:ports"},
		{"use os tcp_client *:80:*:*:*:*", "behind the ports is too much"},
		{"application-id", "the program name is missing"},
		{"application-id x", "the application id is missing"},
		{"application-id x y z", "\"z\" is too much"},
		{"log", "destination or min-level is missing"},
		{"log somewhere", "\"somewhere\" is neither destination nor min-level"},
		{"log destination", "the destination (stderr, syslog or file) is missing"},
		{"log destination printer", "\"printer\" is not a destination"},
		{"log destination file", "the file name is missing"},
		{"log min-level 0", "\"0\" is not a level (1-9)"},
		{"log min-level 10", "\"10\" is not a level (1-9)"},
		{"log min-level", "the level (1-9) is missing"},
	};
	char text[200], says[200];
	unsigned i;

	(void)state;
	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		snprintf(text, sizeof(text), "use os udp_sender *:5\n%s\nuse os udp_sender *:6\n",
			 t[i].line);
		snprintf(says, sizeof(says), "%s", t[i].says);
		assert_int_equal(parse(text), 1);
		assert_true(captured_has("test.conf:2: "));
		assert_true(captured_has(says));
		assert_int_equal(captured_lines(), 1);
		is_os(RULE_UDP_SENDER, "10.0.0.1", 5);
		is_vma(RULE_TCP_SERVER, "10.0.0.1", 80);
		/* What follows a bad line is read; a bad group head takes its rules with it. */
		assert_int_equal(match(RULE_UDP_SENDER, "10.0.0.1", 6),
				 strncmp(t[i].line, "application", 11) ? RULE_OS : RULE_VMA);
	}
	printf("    %u kinds of bad lines\n", i);
}

static void zero_bytes_and_long_words_are_refused(void **state)
{
	static char text[9000];

	(void)state;
	assert_int_equal(rules_parse("use os tcp_server *:1\0x\n", 24, "t"), 1);
	memset(text, 'a', sizeof(text) - 1);
	assert_int_equal(rules_parse(text, sizeof(text) - 1, "t"), 1);
	memcpy(text, "application-id ", 15);
	assert_int_equal(rules_parse(text, 400, "t"), 1);
}

static void a_rule_on_top_wins(void **state)
{
	(void)state;
	assert_int_equal(parse("use vma tcp_server *:80\n"), 0);
	assert_int_equal(rules_add_top("use os tcp_server *:80"), 0);
	is_os(RULE_TCP_SERVER, "10.0.0.1", 80);
	assert_int_equal(rules_add_top("use vma tcp_server 10.0.0.1:80\n"), 0);
	is_vma(RULE_TCP_SERVER, "10.0.0.1", 80);
	is_os(RULE_TCP_SERVER, "10.0.0.2", 80);
	assert_int_equal(rules_add_top("use os nonsense *:80"), -EINVAL);
	assert_int_equal(rules_add_top("application-id * *"), -EINVAL);
	assert_int_equal(rules_add_top(""), -EINVAL);
	rules_free();
	is_vma(RULE_TCP_SERVER, "10.0.0.2", 80);
}

static void other_families_match_only_the_star(void **state)
{
	struct sockaddr un = {.sa_family = AF_UNIX};

	(void)state;
	assert_int_equal(parse("use os tcp_client 0.0.0.0/0:*\nuse os tcp_client [::]/0:*\n"), 0);
	assert_int_equal(rules_match(RULE_TCP_CLIENT, &un, NULL), RULE_VMA);
	assert_int_equal(rules_match(RULE_TCP_CLIENT, NULL, NULL), RULE_VMA);
	assert_int_equal(parse("use os tcp_client *:*\n"), 0);
	assert_int_equal(rules_match(RULE_TCP_CLIENT, &un, NULL), RULE_OS);
}

static void globs(void **state)
{
	static const struct {
		const char *pattern, *name;
		bool match;
	} t[] = {
		{"*", "", true},	 {"*", "x", true},	    {"", "", true},
		{"", "x", false},	 {"db2*", "db2sysc", true}, {"db2*", "db", false},
		{"t?cp", "txcp", true},	 {"t?cp", "tcp", false},    {"*a*b", "xaxbxb", true},
		{"*a*b", "xbxa", false}, {"a**b", "ab", true},	    {"[a]", "a", false},
	};
	char evil[80], name[4000];
	unsigned i;

	(void)state;
	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++)
		assert_int_equal(rule_glob(t[i].pattern, t[i].name), t[i].match);
	/* Exponential in a naive matcher. */
	for (i = 0; i < sizeof(evil) - 2; i += 2)
		memcpy(evil + i, "*a", 2);
	strcpy(evil + i, "b");
	memset(name, 'a', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	assert_false(rule_glob(evil, name));
}

static void write_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void loading_a_file_and_having_none(void **state)
{
	char path[] = "/tmp/vma_test_conf.XXXXXX";

	(void)state;
	close(mkstemp(path));
	write_file(path, "use os tcp_server *:80\nbroken\n");
	capture_clear();
	rules_load(path);
	is_os(RULE_TCP_SERVER, "10.0.0.1", 80);
	is_vma(RULE_UDP_CONNECT, "10.0.0.1", 53);
	assert_true(captured_has(path));
	assert_true(captured_has(":2: \"broken\" is none of"));

	unlink(path);
	capture_clear();
	rules_load(path); /* named, but not there: built-in, and said so */
	is_vma(RULE_TCP_SERVER, "10.0.0.1", 80);
	is_os(RULE_UDP_CONNECT, "10.0.0.1", 53);
	is_os(RULE_UDP_CONNECT, "2001:db8::1", 53);
	is_vma(RULE_UDP_CONNECT, "10.0.0.1", 54);
	assert_true(captured_has("cannot read /tmp/vma_test_conf."));

	capture_clear();
	rules_load("/tmp"); /* a directory */
	assert_true(captured_has("cannot read /tmp: Is a directory"));
	capture_clear();
	rules_load("");
	is_os(RULE_UDP_CONNECT, "10.0.0.1", 53);
	assert_int_equal(captured_lines(), 0);
}

static void the_shipped_file_offloads_all_but_dns(void **state)
{
	char path[PATH_MAX];
	const char *root = getenv("VMA_SRC") ? getenv("VMA_SRC") : ".";

	(void)state;
	snprintf(path, sizeof(path), "%s/etc/libvma.conf", root);
	if (access(path, R_OK)) {
		print_message("    %s is not here (run from the top of the tree)\n", path);
		skip();
	}
	capture_clear();
	rules_load(path);
	assert_int_equal(captured_lines(), 0);
	is_os(RULE_UDP_CONNECT, "8.8.8.8", 53);
	is_os(RULE_UDP_CONNECT, "2001:4860:4860::8888", 53);
	is_vma(RULE_UDP_CONNECT, "8.8.8.8", 54);
	is_vma(RULE_TCP_CLIENT, "8.8.8.8", 53);
	is_vma(RULE_TCP_SERVER, "0.0.0.0", 80);
}

/* Bytes that have come to fd, and takes them. */
static ssize_t arrived(int fd)
{
	char line[200];

	return recv(fd, line, sizeof(line), MSG_DONTWAIT);
}

/* Each word sends a line to one place, and to none of the others. */
static void the_word_behind_destination_chooses_it(void **state)
{
	char dir[] = "/tmp/vma_test_dest.XXXXXX", conf[100], text[300], *words[3];
	const char *dev_log = log_syslog_path;
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int daemon = socket(AF_UNIX, SOCK_DGRAM, 0), err[2], before = dup(STDERR_FILENO);
	struct stat st;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(conf, sizeof(conf), "%s/conf", dir);
	snprintf(at.sun_path, sizeof(at.sun_path), "%s/dev_log", dir);
	snprintf(text, sizeof(text), "file %s/file", dir);
	words[0] = "stderr", words[1] = "syslog", words[2] = strdup(text);
	assert_int_equal(bind(daemon, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM, 0, err), 0);
	log_syslog_path = at.sun_path;
	params.log_file = "";
	for (unsigned turn = 0; turn < 6; turn++) {
		unsigned to = turn % 3;

		snprintf(text, sizeof(text), "log min-level 8 destination %s\n", words[to]);
		write_file(conf, text);
		assert_int_equal(dup2(err[1], STDERR_FILENO), STDERR_FILENO);
		log_stderr_note();
		rules_load(conf);
		log_warn("a line");
		assert_int_equal(dup2(before, STDERR_FILENO), STDERR_FILENO);
		log_stderr_note();
		print_message("    %s\n", words[to]);
		assert_int_equal(arrived(err[0]) > 0, to == 0);
		assert_int_equal(arrived(daemon) > 0, to == 1);
		snprintf(text, sizeof(text), "%s/file", dir);
		assert_int_equal(!stat(text, &st) && st.st_size, to == 2);
		unlink(text);
	}
	unlink(conf);
	unlink(at.sun_path);
	assert_int_equal(rmdir(dir), 0);
	free(words[2]);
	log_syslog_path = dev_log;
	close(daemon), close(err[0]), close(err[1]), close(before);
	capture_at(LOG_INFO);
}

static void the_log_statement_moves_the_log(void **state)
{
	char conf[] = "/tmp/vma_test_conf.XXXXXX", log[] = "/tmp/vma_test_dest.XXXXXX", text[200];
	struct stat st;

	(void)state;
	close(mkstemp(conf));
	close(mkstemp(log));
	snprintf(text, sizeof(text), "log min-level 8 destination file %s\n", log);
	write_file(conf, text);
	unsetenv("VMA_TRACELEVEL");
	rules_load(conf);
	assert_int_equal(log_level_now, LOG_WARN);
	log_info("too fine");
	log_warn("to the file");
	assert_int_equal(stat(log, &st), 0);
	assert_int_equal(st.st_size, strlen(" VMA WARNING: to the file\n"));
	/* The environment wins. */
	capture_at(LOG_INFO);
	params.log_file = capture_path;
	setenv("VMA_TRACELEVEL", "info", 1);
	rules_load(conf);
	assert_int_equal(log_level_now, LOG_INFO);
	log_info("still here");
	assert_true(captured_has("still here"));
	/* Parsing alone changes nothing. */
	params.log_file = "";
	rules_parse(text, strlen(text), "t");
	assert_int_equal(log_level_now, LOG_INFO);
	unsetenv("VMA_TRACELEVEL");
	unlink(conf);
	unlink(log);
}

static void *adder(void *arg)
{
	unsigned i;

	(void)arg;
	for (i = 0; i < 200; i++)
		assert_int_equal(rules_add_top("use os udp_sender 10.0.0.0/8:7"), 0);
	return NULL;
}

/* For ThreadSanitizer more than for the result. */
static void matching_while_rules_are_added(void **state)
{
	pthread_t t[2];
	unsigned i;

	(void)state;
	assert_int_equal(parse("use os udp_sender *:9\n"), 0);
	for (i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&t[i], NULL, adder, NULL), 0);
	for (i = 0; i < 1000; i++)
		is_os(RULE_UDP_SENDER, "11.0.0.1", 9);
	for (i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	is_os(RULE_UDP_SENDER, "10.1.1.1", 7);
}

static int setup(void **state)
{
	(void)state;
	libc_load();
	capture_open();
	capture_at(LOG_INFO);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	rules_free();
	capture_close();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_matches_by_default),
		cmocka_unit_test(each_role_has_its_own_rules),
		cmocka_unit_test(the_first_match_decides),
		cmocka_unit_test(prefixes_of_ipv4),
		cmocka_unit_test(prefixes_of_ipv6),
		cmocka_unit_test(a_mapped_address_is_an_ipv4_address),
		cmocka_unit_test(ports_and_ranges),
		cmocka_unit_test(two_pairs_want_both_sides),
		cmocka_unit_test(groups_are_for_programs_and_ids),
		cmocka_unit_test(the_four_transports_and_the_star),
		cmocka_unit_test(blanks_comments_and_case_do_not_matter),
		cmocka_unit_test(an_unreadable_line_is_named_and_skipped),
		cmocka_unit_test(zero_bytes_and_long_words_are_refused),
		cmocka_unit_test(a_rule_on_top_wins),
		cmocka_unit_test(other_families_match_only_the_star),
		cmocka_unit_test(globs),
		cmocka_unit_test(loading_a_file_and_having_none),
		cmocka_unit_test(the_shipped_file_offloads_all_but_dns),
		cmocka_unit_test(matching_while_rules_are_added),
		cmocka_unit_test(the_word_behind_destination_chooses_it),
		cmocka_unit_test(the_log_statement_moves_the_log),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
