// SPDX-License-Identifier: GPL-2.0-only
/* The text of sysfs, from pages that a process may have scribbled over. */
#include <linux/random.h>
#include <linux/string.h>

#include "help.h"

#define SOCKETS 8

static struct vma_area pages;

static int text_begin(struct kunit *test)
{
	return vma_area_init(&pages, sizeof(struct vma_stats_header) +
					     SOCKETS * sizeof(struct vma_stats_socket));
}

static void text_end(struct kunit *test)
{
	vma_area_fini(&pages);
}

static struct vma_stats_header *header(void)
{
	return pages.at;
}

static struct vma_stats_socket *sockets(void)
{
	return pages.at + sizeof(struct vma_stats_header);
}

/* The number behind a name in "name value" lines; -1 if it is not there. */
static long long number(const char *text, const char *name)
{
	size_t len = strlen(name);
	const char *line;
	long long n;

	for (line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
		if (!strncmp(line, name, len) && line[len] == ' ' &&
		    sscanf(line + len, " %lld", &n) == 1)
			return n;
	return -1;
}

static void sums_are_of_the_blocks_in_use(struct kunit *test)
{
	char *text = kunit_kzalloc(test, PAGE_SIZE, GFP_KERNEL);
	u64 sum[VMA_SUMS] = {};
	int i, len;

	KUNIT_ASSERT_NOT_NULL(test, text);
	for (i = 0; i < 3; i++) {
		sockets()[i].enabled = i != 1;
		sockets()[i].rx.packets = 10;
		sockets()[i].tx.bytes = 1000;
		sockets()[i].tx_dummy = 1;
		sockets()[i].waits.why[VMA_SLEPT_KERNEL] = 3;
	}
	header()->rings[15].enabled = 1;
	header()->rings[15].rx_packets = 5;
	header()->rings[15].drop_other = 6;
	header()->rings[0].rx_packets = 99;
	/* Of those that are no more. */
	header()->closed_sockets.rx.packets = 7;
	header()->closed_rings.drop_other = 8;
	vma_sum_pages(&pages, SOCKETS, sum);
	vma_sum_pages(&pages, SOCKETS, sum);
	len = vma_text_sums(text, PAGE_SIZE, 0, sum);
	KUNIT_EXPECT_EQ(test, number(text, "socket_rx_packets"), 54);
	KUNIT_EXPECT_EQ(test, number(text, "socket_tx_bytes"), 4000);
	KUNIT_EXPECT_EQ(test, number(text, "socket_tx_dummy"), 4);
	KUNIT_EXPECT_EQ(test, number(text, "socket_slept_kernel"), 12);
	KUNIT_EXPECT_EQ(test, number(text, "socket_rx_bytes"), 0);
	KUNIT_EXPECT_EQ(test, number(text, "ring_rx_packets"), 10);
	KUNIT_EXPECT_EQ(test, number(text, "ring_drop_other"), 28);
	KUNIT_EXPECT_EQ(test, len, strlen(text));
	KUNIT_EXPECT_EQ(test, text[len - 1], '\n');
}

static void the_largest_numbers_fit(struct kunit *test)
{
	char *text = kunit_kzalloc(test, PAGE_SIZE, GFP_KERNEL);
	u64 sum[VMA_SUMS];
	int at;

	KUNIT_ASSERT_NOT_NULL(test, text);
	memset(sum, 0xff, sizeof(sum));
	at = vma_text_totals(text, PAGE_SIZE);
	KUNIT_EXPECT_GE(test, number(text, "processes"), 0);
	KUNIT_EXPECT_GE(test, number(text, "fallback_dropped"), 0);
	/* 11 numbers of 20 digits in the totals' place would still leave room. */
	at = vma_text_sums(text, PAGE_SIZE, at, sum);
	KUNIT_EXPECT_LT(test, at, PAGE_SIZE - 300);
	KUNIT_EXPECT_NOT_NULL(test, strstr(text, "ring_drop_other 18446744073709551615\n"));
}

/* The line without what pads its columns. */
static void squeeze(char *line)
{
	char *to = line, *from;

	for (from = line; *from; from++)
		if (*from != ' ' || to == line || to[-1] != ' ')
			*to++ = *from;
	*to = 0;
}

static void a_socket_is_a_line(struct kunit *test)
{
	static const char who[] = "fd 5 proto udp state - local 10.0.0.1:53 remote [fd00::2]:1000 ";
	static const char counts[] = "rx_packets 1 rx_bytes 2 tx_packets 3 tx_bytes 4 ";
	static const char rest[] =
		"rx_drop_packets 5 rx_ready_bytes 6 tx_ready_bytes 7 tx_retransmits 8 why rule ";
	size_t at = strlen(who);
	char *line = kunit_kzalloc(test, VMA_SOCKET_LINE + 1, GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, line);
	KUNIT_EXPECT_FALSE(test, vma_text_socket(line, &pages, 2));
	sockets()[2] = (struct vma_stats_socket){
		.enabled = 1,
		.fd = 5,
		.proto = IPPROTO_UDP,
		.local = help_addr("10.0.0.1"),
		.local_port = 53,
		.remote = help_addr("fd00::2"),
		.remote_port = 1000,
		.rx = {.packets = 1, .bytes = 2},
		.tx = {.packets = 3, .bytes = 4},
		.rx_drop_packets = 5,
		.rx_ready_bytes = 6,
		.tx_ready_bytes = 7,
		.tx_retransmits = 8,
		.why = {[VMA_WHY_TX] = {.reason = VMA_WHY_RULE}},
	};
	KUNIT_EXPECT_TRUE(test, vma_text_socket(line, &pages, 2));
	KUNIT_EXPECT_EQ(test, line[VMA_SOCKET_LINE - 1], '\n');
	KUNIT_EXPECT_EQ(test, strlen(line), VMA_SOCKET_LINE);
	squeeze(line);
	KUNIT_EXPECT_EQ(test, strncmp(line, who, at), 0);
	KUNIT_EXPECT_EQ(test, strncmp(line + at, counts, strlen(counts)), 0);
	at += strlen(counts);
	KUNIT_EXPECT_EQ(test, strncmp(line + at, rest, strlen(rest)), 0);
}

/* Whatever stands there: printable, one line, of its width. */
static void expect_line(struct kunit *test, const char *line, int width)
{
	int i;

	for (i = 0; i < width - 1; i++)
		if (line[i] < ' ' || line[i] > '~')
			break;
	KUNIT_EXPECT_EQ(test, i, width - 1);
	KUNIT_EXPECT_EQ(test, line[width - 1], '\n');
}

static void scribbled_pages_make_lines_all_the_same(struct kunit *test)
{
	char *line = kunit_kzalloc(test, VMA_RING_LINE, GFP_KERNEL);
	u64 sum[VMA_SUMS] = {};
	int round, n;

	KUNIT_ASSERT_NOT_NULL(test, line);
	for (round = 0; round < 50; round++) {
		if (round)
			get_random_bytes(pages.at, pages.bytes);
		else
			memset(pages.at, 0xff, pages.bytes);
		for (n = 0; n < SOCKETS; n++) {
			sockets()[n].enabled |= 1;
			KUNIT_EXPECT_TRUE(test, vma_text_socket(line, &pages, n));
			expect_line(test, line, VMA_SOCKET_LINE);
		}
		for (n = 0; n < VMA_STATS_RINGS; n++) {
			header()->rings[n].enabled |= 1;
			KUNIT_EXPECT_TRUE(test, vma_text_ring(line, &pages, n));
			expect_line(test, line, VMA_RING_LINE);
		}
		vma_sum_pages(&pages, SOCKETS, sum);
	}
}

static void a_ring_without_a_name_has_a_dash(struct kunit *test)
{
	char *line = kunit_kzalloc(test, VMA_RING_LINE + 1, GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, line);
	header()->rings[0].enabled = 1;
	strcpy(header()->rings[0].type, "A B\n");
	vma_text_ring(line, &pages, 0);
	squeeze(line);
	KUNIT_EXPECT_EQ(test, strncmp(line, "ifname - ifindex 0 type A?B? rx_packets 0 ", 42), 0);
}

/* Where a name begins in a line; -1 if it is not there. */
static int column(const char *line, const char *name)
{
	const char *at = strstr(line, name);

	return at ? at - line : -1;
}

static void a_tcp_socket_has_its_state_by_name(struct kunit *test)
{
	static const char *const names[] = {"CLOSED",	   "LISTEN",	 "SYN_SENT",   "SYN_RCVD",
					    "ESTABLISHED", "FIN_WAIT_1", "FIN_WAIT_2", "CLOSE_WAIT",
					    "CLOSING",	   "LAST_ACK",	 "TIME_WAIT",  "-"};
	char *line = kunit_kzalloc(test, VMA_SOCKET_LINE + 1, GFP_KERNEL);
	char want[32];
	int i;

	KUNIT_ASSERT_NOT_NULL(test, line);
	sockets()[0].enabled = 1;
	sockets()[0].proto = IPPROTO_TCP;
	for (i = 0; i < ARRAY_SIZE(names); i++) {
		sockets()[0].state = i;
		KUNIT_EXPECT_TRUE(test, vma_text_socket(line, &pages, 0));
		scnprintf(want, sizeof(want), " state %-11s local ", names[i]);
		KUNIT_EXPECT_NOT_NULL(test, strstr(line, want));
	}
}

/* The shortest and the longest of everything. */
static void columns_line_up(struct kunit *test)
{
	static const char *const names[] = {" proto ",
					    " state ",
					    " local ",
					    " remote ",
					    " rx_packets ",
					    " rx_bytes ",
					    " tx_packets ",
					    " tx_bytes ",
					    " rx_drop_packets ",
					    " rx_ready_bytes ",
					    " tx_ready_bytes ",
					    " tx_retransmits ",
					    " why "};
	static const char *const ring_names[] = {" ifindex ", " type ", " rx_bytes ",
						 " drop_other "};
	char *line[2];
	int i;

	for (i = 0; i < 2; i++) {
		line[i] = kunit_kzalloc(test, VMA_RING_LINE + 1, GFP_KERNEL);
		KUNIT_ASSERT_NOT_NULL(test, line[i]);
	}
	memset(&sockets()[1], 0xff, sizeof(sockets()[1]));
	sockets()[1].fd = INT_MIN;
	sockets()[1].proto = IPPROTO_TCP;
	sockets()[1].state = VMA_STATE_ESTABLISHED;
	sockets()[1].why[0].reason = VMA_WHY_GROUP_CONNECTED;
	memset(&header()->rings[1], 0xff, sizeof(header()->rings[1]));
	sockets()[0].enabled = 1;
	header()->rings[0].enabled = 1;
	for (i = 0; i < 2; i++)
		KUNIT_EXPECT_TRUE(test, vma_text_socket(line[i], &pages, i));
	for (i = 0; i < ARRAY_SIZE(names); i++) {
		KUNIT_EXPECT_GT(test, column(line[0], names[i]), 0);
		KUNIT_EXPECT_EQ(test, column(line[0], names[i]), column(line[1], names[i]));
	}
	KUNIT_EXPECT_NOT_NULL(test, strstr(line[1], " why group-connected "));
	for (i = 0; i < 2; i++)
		KUNIT_EXPECT_TRUE(test, vma_text_ring(line[i], &pages, i));
	for (i = 0; i < ARRAY_SIZE(ring_names); i++) {
		KUNIT_EXPECT_GT(test, column(line[0], ring_names[i]), 0);
		KUNIT_EXPECT_EQ(test, column(line[0], ring_names[i]),
				column(line[1], ring_names[i]));
	}
}

/* Pieces of any size put together are the text. */
static void pieces_make_the_whole(struct kunit *test)
{
	static const size_t sizes[] = {1, 7, VMA_SOCKET_LINE, VMA_SOCKET_LINE + 1, 4096};
	size_t bytes = 3 * VMA_SOCKET_LINE;
	char *whole = kunit_kzalloc(test, 8192, GFP_KERNEL);
	char *parts = kunit_kzalloc(test, 8192, GFP_KERNEL);
	ssize_t n;
	int i;

	KUNIT_ASSERT_NOT_NULL(test, whole);
	KUNIT_ASSERT_NOT_NULL(test, parts);
	for (i = 1; i < SOCKETS; i += 3) {
		sockets()[i].enabled = 1;
		sockets()[i].fd = i;
	}
	sockets()[7].fd = 77;
	n = vma_text_lines(vma_text_socket, SOCKETS, VMA_SOCKET_LINE, &pages, whole, 0, 8192);
	KUNIT_ASSERT_EQ(test, bytes, n);
	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		ssize_t at = 0;

		while ((n = vma_text_lines(vma_text_socket, SOCKETS, VMA_SOCKET_LINE, &pages,
					   parts + at, at, sizes[i])) > 0)
			at += n;
		KUNIT_EXPECT_EQ(test, at, bytes);
		KUNIT_EXPECT_EQ(test, memcmp(whole, parts, bytes), 0);
	}
	KUNIT_EXPECT_EQ(test, 0,
			vma_text_lines(vma_text_socket, SOCKETS, VMA_SOCKET_LINE, &pages, parts,
				       1ll << 40, 100));
}

static void no_pages_are_no_text(struct kunit *test)
{
	struct vma_area none = {};
	u64 sum[VMA_SUMS] = {};
	ssize_t n;
	char c;

	vma_sum_pages(&none, 0, sum);
	KUNIT_EXPECT_NULL(test, memchr_inv(sum, 0, sizeof(sum)));
	n = vma_text_lines(vma_text_ring, VMA_STATS_RINGS, VMA_RING_LINE, &none, &c, 0, 1);
	KUNIT_EXPECT_EQ(test, 0, n);
}

static struct kunit_case cases[] = {KUNIT_CASE(sums_are_of_the_blocks_in_use),
				    KUNIT_CASE(the_largest_numbers_fit),
				    KUNIT_CASE(a_socket_is_a_line),
				    KUNIT_CASE(scribbled_pages_make_lines_all_the_same),
				    KUNIT_CASE(a_ring_without_a_name_has_a_dash),
				    KUNIT_CASE(a_tcp_socket_has_its_state_by_name),
				    KUNIT_CASE(columns_line_up),
				    KUNIT_CASE(pieces_make_the_whole),
				    KUNIT_CASE(no_pages_are_no_text),
				    {}};

static struct kunit_suite suite = {
	.name = "vma_text",
	.init = text_begin,
	.exit = text_end,
	.test_cases = cases,
};

kunit_test_suite(suite);
