// SPDX-License-Identifier: GPL-2.0-only
/* One process: what it may register, and what is left to do when it dies. */
#include <linux/netfilter_ipv4.h>
#include <linux/random.h>
#include <linux/rcupdate.h>
#include <net/tcp.h>

#include "help.h"

#define CONNS 8

static struct vma_session *s;
static struct socket *shadow;

/* What leaves the host: resets, and those among them that are not of shadow's to 127.0.0.2. */
static u32 resets, strange, seq_xor;

static unsigned int see(void *priv, struct sk_buff *skb, const struct nf_hook_state *state)
{
	const struct iphdr *ip = ip_hdr(skb);
	const struct tcphdr *th = tcp_hdr(skb);

	if (ip->protocol != IPPROTO_TCP || !th->rst)
		return NF_ACCEPT;
	resets++;
	seq_xor ^= ntohl(th->seq);
	if (ip->saddr != htonl(INADDR_LOOPBACK) || ip->daddr != htonl(0x7f000002) ||
	    ntohs(th->source) != help_port(shadow) || ntohs(th->dest) < 1000)
		strange++;
	return NF_ACCEPT;
}

static const struct nf_hook_ops see_ops = {
	.hook = see,
	.pf = NFPROTO_IPV4,
	.hooknum = NF_INET_LOCAL_OUT,
};

static int setup(u32 conns)
{
	struct vma_kmod_setup arg = {.version = VMA_KMOD_VERSION,
				     .sockets = 4,
				     .conns = conns,
				     .ring = VMA_KMOD_RING_MIN};

	return vma_session_setup(s, &arg);
}

static int session_begin(struct kunit *test)
{
	resets = 0;
	strange = 0;
	seq_xor = 0;
	KUNIT_ASSERT_EQ(test, 0, help_lo_up(&init_net));
	shadow = help_socket(test, &init_net, AF_INET, IPPROTO_TCP, LOOPBACK, 0);
	s = vma_session_open();
	KUNIT_ASSERT_FALSE(test, IS_ERR(s));
	return nf_register_net_hook(&init_net, &see_ops);
}

static void session_over(void)
{
	vma_session_end(s);
	vma_net_flush(&init_net);
	rcu_barrier();
}

static void session_end(struct kunit *test)
{
	session_over();
	vma_session_put(s);
	nf_unregister_net_hook(&init_net, &see_ops);
	sock_release(shadow);
}

static s64 total(enum vma_total which)
{
	return atomic64_read(&vma_totals[which]);
}

/* Registers the connection to 127.0.0.2:port; the slot or negative errno. */
static int add(u16 port, u32 flags, bool by_net_raw)
{
	struct vma_kmod_conn arg = {
		.flags = flags,
		.key = help_key(IPPROTO_TCP, LOOPBACK, help_port(shadow), "127.0.0.2", port),
	};
	int err = vma_session_conn(s, shadow->sk, &arg, by_net_raw);

	return err ?: (int)arg.slot;
}

static struct vma_kmod_slot *slots(void)
{
	return s->slots.at;
}

/* ---- set-up */

static void a_process_has_one_session_at_a_time(struct kunit *test)
{
	struct vma_session *next;

	KUNIT_EXPECT_EQ(test, PTR_ERR(vma_session_open()), -EBUSY);
	KUNIT_EXPECT_EQ(test, setup(1), 0);
	vma_session_end(s);
	/* The next life of the process begins before the last reference to the old one is gone. */
	next = vma_session_open();
	KUNIT_ASSERT_FALSE(test, IS_ERR(next));
	swap(s, next);
	KUNIT_EXPECT_EQ(test, setup(1), 0);
	KUNIT_EXPECT_TRUE(test, s->kobj.state_in_sysfs);
	KUNIT_EXPECT_FALSE(test, next->kobj.state_in_sysfs);
	vma_session_put(next);
}

static void a_session_is_its_openers(struct kunit *test)
{
	struct mm_struct *mm = s->mm;

	KUNIT_EXPECT_TRUE(test, vma_session_is_callers(s));
	s->mm = (void *)8;
	KUNIT_EXPECT_FALSE(test, vma_session_is_callers(s));
	s->mm = mm;
	swap(s->owner, init_task.thread_pid);
	KUNIT_EXPECT_FALSE(test, vma_session_is_callers(s));
	swap(s->owner, init_task.thread_pid);
}

static void set_up_refuses_nonsense(struct kunit *test)
{
	static const struct vma_kmod_setup bad[] = {
		{.version = VMA_KMOD_VERSION, .sockets = VMA_STATS_SOCKETS_MAX + 1},
		{.version = VMA_KMOD_VERSION, .sockets = ~0u},
		{.version = VMA_KMOD_VERSION, .conns = VMA_KMOD_CONNS_MAX + 1},
		{.version = VMA_KMOD_VERSION, .ring = VMA_KMOD_RING_MIN / 2},
		{.version = VMA_KMOD_VERSION, .ring = VMA_KMOD_RING_MIN + 4096},
		{.version = VMA_KMOD_VERSION, .ring = VMA_KMOD_RING_MAX * 2},
		{.version = VMA_KMOD_VERSION, .reserved = {0, 1}},
		{.version = VMA_KMOD_VERSION, .features = 1},
		{.version = VMA_KMOD_VERSION, .ring_bytes = 1},
	};
	struct vma_kmod_setup arg = {.version = VMA_KMOD_VERSION + 1};
	int i;

	KUNIT_EXPECT_EQ(test, vma_session_setup(s, &arg), -EPROTO);
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		arg = bad[i];
		KUNIT_EXPECT_EQ_MSG(test, vma_session_setup(s, &arg), -EINVAL, "case %d", i);
	}
	KUNIT_EXPECT_EQ(test, setup(CONNS), 0);
	KUNIT_EXPECT_EQ(test, setup(CONNS), -EALREADY);
}

static void set_up_says_what_can_be_mapped(struct kunit *test)
{
	struct vma_kmod_setup arg = {.version = VMA_KMOD_VERSION, .sockets = 1, .conns = 1};
	size_t stats = sizeof(struct vma_stats_header) + sizeof(struct vma_stats_socket);

	KUNIT_EXPECT_EQ(test, vma_session_setup(s, &arg), 0);
	KUNIT_EXPECT_EQ(test, arg.conns_bytes, PAGE_SIZE);
	KUNIT_EXPECT_EQ(test, arg.ring_bytes, 0);
	KUNIT_EXPECT_EQ(test, arg.stats_bytes, PAGE_ALIGN(stats));
	/* Without a ring nothing can fall back. */
	KUNIT_EXPECT_EQ(test, add(1000, VMA_KMOD_CONN_FALLBACK, false), -EINVAL);
}

static void after_the_end_nothing_is_taken(struct kunit *test)
{
	struct vma_kmod_region region = {.bytes = 1, .kind = VMA_KMOD_MEM_CONTIG, .node = -1};

	KUNIT_EXPECT_EQ(test, add(1000, VMA_KMOD_CONN_RST, false), -EBADF);
	vma_session_end(s);
	KUNIT_EXPECT_EQ(test, setup(CONNS), -EBADF);
	KUNIT_EXPECT_EQ(test, add(1000, VMA_KMOD_CONN_RST, false), -EBADF);
	KUNIT_EXPECT_EQ(test, vma_session_region(s, &region), -EBADF);
}

/* ---- connections */

static void slots_are_handed_out_and_come_back_empty(struct kunit *test)
{
	struct vma_kmod_unconn which = {.slot = 3};
	int i;

	KUNIT_ASSERT_EQ(test, setup(CONNS), 0);
	for (i = 0; i < CONNS; i++)
		KUNIT_EXPECT_EQ(test, add(1000 + i, VMA_KMOD_CONN_RST, false), i);
	KUNIT_EXPECT_EQ(test, add(2000, VMA_KMOD_CONN_RST, false), -ENOSPC);
	memset(s->slots.at, 0xff, s->slots.bytes);
	KUNIT_EXPECT_EQ(test, vma_session_unconn(s, &which), 0);
	KUNIT_EXPECT_EQ(test, vma_session_unconn(s, &which), -ENOENT);
	KUNIT_EXPECT_EQ(test, add(2000, VMA_KMOD_CONN_RST, false), 3);
	KUNIT_EXPECT_NULL(test, memchr_inv(&slots()[3], 0, sizeof(slots()[3])));
	which.slot = CONNS;
	KUNIT_EXPECT_EQ(test, vma_session_unconn(s, &which), -ENOENT);
	which.slot = ~0u;
	KUNIT_EXPECT_EQ(test, vma_session_unconn(s, &which), -ENOENT);
	which = (struct vma_kmod_unconn){.slot = 1, .reserved = 1};
	KUNIT_EXPECT_EQ(test, vma_session_unconn(s, &which), -EINVAL);
}

static void a_flow_that_is_not_the_callers_needs_net_raw(struct kunit *test)
{
	struct vma_kmod_conn arg = {
		.flags = VMA_KMOD_CONN_RST,
		.key = help_key(IPPROTO_TCP, LOOPBACK, help_port(shadow) + 1, "127.0.0.2", 1000),
	};

	KUNIT_ASSERT_EQ(test, setup(CONNS), 0);
	KUNIT_EXPECT_EQ(test, vma_session_conn(s, shadow->sk, &arg, false), -EPERM);
	KUNIT_EXPECT_EQ(test, vma_session_conn(s, shadow->sk, &arg, true), 0);
	KUNIT_EXPECT_TRUE(test, s->conns[0]->by_net_raw);
	KUNIT_EXPECT_EQ(test, add(1000, VMA_KMOD_CONN_RST, true), 1);
	KUNIT_EXPECT_FALSE(test, s->conns[1]->by_net_raw);
	/* No right makes an address this host's, or a flow free. */
	KUNIT_EXPECT_EQ(test, add(1000, VMA_KMOD_CONN_RST, true), -EADDRINUSE);
	arg.slot = 0;
	arg.key.local = help_addr("10.9.9.9");
	KUNIT_EXPECT_EQ(test, vma_session_conn(s, shadow->sk, &arg, true), -EADDRNOTAVAIL);
	arg.reserved = 1;
	KUNIT_EXPECT_EQ(test, vma_session_conn(s, shadow->sk, &arg, true), -EINVAL);
}

/* ---- death */

static void death_resets_what_is_live(struct kunit *test)
{
	s64 sent = total(VMA_TOTAL_RESETS);
	struct vma_kmod_unconn which;
	int i;

	KUNIT_ASSERT_EQ(test, setup(CONNS), 0);
	for (i = 0; i < 5; i++)
		add(1000 + i, VMA_KMOD_CONN_RST, false);
	add(2000, VMA_KMOD_CONN_FALLBACK, false);
	for (i = 0; i < CONNS; i++)
		slots()[i] = (struct vma_kmod_slot){.seq = 1u << i, .ack = 1, .live = i != 2};
	which.reserved = 0;
	which.slot = 4;
	KUNIT_EXPECT_EQ(test, vma_session_unconn(s, &which), 0);
	session_over();
	/* 0, 1 and 3: 2 was closed, 4 taken back, 5 wanted none, 6 and 7 were nothing. */
	KUNIT_EXPECT_EQ(test, resets, 3);
	KUNIT_EXPECT_EQ(test, seq_xor, 0x0b);
	KUNIT_EXPECT_EQ(test, strange, 0);
	KUNIT_EXPECT_EQ(test, total(VMA_TOTAL_RESETS), sent + 3);
}

static void a_port_given_away_is_not_reset(struct kunit *test)
{
	s64 none = total(VMA_TOTAL_RESETS_VOID);
	u16 port;

	KUNIT_ASSERT_EQ(test, setup(CONNS), 0);
	add(1000, VMA_KMOD_CONN_RST, false);
	slots()[0].live = 1;
	port = help_port(shadow);
	sock_release(shadow);
	/* Somebody else's now. */
	shadow = help_socket(test, &init_net, AF_INET, IPPROTO_TCP, LOOPBACK, port);
	session_over();
	KUNIT_EXPECT_EQ(test, resets, 0);
	KUNIT_EXPECT_EQ(test, total(VMA_TOTAL_RESETS_VOID), none + 1);
}

static void scribbled_slots_reset_nobody_else(struct kunit *test)
{
	int i;

	KUNIT_ASSERT_EQ(test, setup(CONNS), 0);
	for (i = 0; i < 4; i++)
		add(1000 + i, VMA_KMOD_CONN_RST, false);
	get_random_bytes(s->slots.at, s->slots.bytes);
	for (i = 0; i < CONNS; i++)
		slots()[i].live |= 1;
	session_over();
	KUNIT_EXPECT_EQ(test, resets, 4);
	KUNIT_EXPECT_EQ(test, strange, 0);
}

static void thousands_are_reset(struct kunit *test)
{
	s64 conns = total(VMA_TOTAL_CONNS);
	int i;

	KUNIT_ASSERT_EQ(test, setup(2000), 0);
	for (i = 0; i < 2000; i++) {
		KUNIT_ASSERT_EQ(test, add(1000 + i, VMA_KMOD_CONN_RST, false), i);
		slots()[i].live = 1;
	}
	KUNIT_EXPECT_EQ(test, total(VMA_TOTAL_CONNS), conns + 2000);
	session_over();
	KUNIT_EXPECT_EQ(test, resets, 2000);
	KUNIT_EXPECT_EQ(test, strange, 0);
	KUNIT_EXPECT_EQ(test, total(VMA_TOTAL_CONNS), conns);
}

static void registrations_let_go_of_their_sockets(struct kunit *test)
{
	int refs = refcount_read(&shadow->sk->sk_refcnt);

	KUNIT_ASSERT_EQ(test, setup(CONNS), 0);
	add(1000, VMA_KMOD_CONN_RST | VMA_KMOD_CONN_FALLBACK, false);
	KUNIT_EXPECT_EQ(test, refcount_read(&shadow->sk->sk_refcnt), refs + 1);
	session_over();
	KUNIT_EXPECT_EQ(test, refcount_read(&shadow->sk->sk_refcnt), refs);
}

static void a_dead_process_stays_in_the_sum(struct kunit *test)
{
	u64 before[VMA_SUMS] = {}, live[VMA_SUMS] = {}, dead[VMA_SUMS] = {};
	struct vma_stats_header *h;

	vma_sessions_sum(before);
	KUNIT_ASSERT_EQ(test, setup(0), 0);
	h = s->stats.at;
	h->rings[0].enabled = 1;
	h->rings[0].rx_packets = 1000;
	vma_sessions_sum(live);
	KUNIT_EXPECT_EQ(test, live[VMA_STATS_SOCKET_COUNTERS],
			before[VMA_STATS_SOCKET_COUNTERS] + 1000);
	vma_session_end(s);
	h->rings[0].rx_packets = 5000;
	vma_sessions_sum(dead);
	KUNIT_EXPECT_EQ(test, memcmp(live, dead, sizeof(live)), 0);
}

static void the_tool_writes_whole_words_within_the_pages(struct kunit *test)
{
	struct bin_attribute *pages = s->kobj.ktype->default_groups[0]->bin_attrs[2];
	char data[8] = "abcdefgh";
	loff_t end;

	KUNIT_ASSERT_EQ(test, setup(0), 0);
	end = s->stats.bytes;
	KUNIT_EXPECT_EQ(test, pages->write(NULL, &s->kobj, pages, data, end - 8, 8), 8);
	KUNIT_EXPECT_EQ(test, memcmp(s->stats.at + end - 8, data, 8), 0);
	KUNIT_EXPECT_EQ(test, pages->write(NULL, &s->kobj, pages, data, end - 4, 8), -EFBIG);
	KUNIT_EXPECT_EQ(test, pages->write(NULL, &s->kobj, pages, data, end, 4), -EFBIG);
	KUNIT_EXPECT_EQ(test, pages->write(NULL, &s->kobj, pages, data, -4, 4), -EFBIG);
	KUNIT_EXPECT_EQ(test, pages->write(NULL, &s->kobj, pages, data, 2, 4), -EINVAL);
	KUNIT_EXPECT_EQ(test, pages->write(NULL, &s->kobj, pages, data, 4, 3), -EINVAL);
	KUNIT_EXPECT_EQ(test, pages->read(NULL, &s->kobj, pages, data, end - 4, 8), 4);
	KUNIT_EXPECT_EQ(test, memcmp(data, "efgh", 4), 0);
}

/* ---- memory */

static void regions_have_places_and_go_at_the_end(struct kunit *test)
{
	struct vma_kmod_region arg = {.kind = VMA_KMOD_MEM_CONTIG, .node = -1};
	s64 before = total(VMA_TOTAL_REGIONS);
	int i;

	KUNIT_ASSERT_EQ(test, setup(0), 0);
	for (i = 0; i < VMA_REGIONS; i++) {
		arg.offset = 0;
		arg.block = 0;
		arg.bytes = 1;
		KUNIT_ASSERT_EQ(test, vma_session_region(s, &arg), 0);
		KUNIT_ASSERT_EQ(test, arg.offset, VMA_KMOD_MAP_REGION(i));
	}
	arg.offset = 0;
	arg.block = 0;
	KUNIT_EXPECT_EQ(test, vma_session_region(s, &arg), -ENOSPC);
	KUNIT_EXPECT_EQ(test, total(VMA_TOTAL_REGIONS), before + VMA_REGIONS);
	vma_session_end(s);
	KUNIT_EXPECT_EQ(test, total(VMA_TOTAL_REGIONS), before);
}

static struct kunit_case cases[] = {KUNIT_CASE(a_process_has_one_session_at_a_time),
				    KUNIT_CASE(a_session_is_its_openers),
				    KUNIT_CASE(set_up_refuses_nonsense),
				    KUNIT_CASE(set_up_says_what_can_be_mapped),
				    KUNIT_CASE(after_the_end_nothing_is_taken),
				    KUNIT_CASE(slots_are_handed_out_and_come_back_empty),
				    KUNIT_CASE(a_flow_that_is_not_the_callers_needs_net_raw),
				    KUNIT_CASE(death_resets_what_is_live),
				    KUNIT_CASE(a_port_given_away_is_not_reset),
				    KUNIT_CASE(scribbled_slots_reset_nobody_else),
				    KUNIT_CASE(thousands_are_reset),
				    KUNIT_CASE(registrations_let_go_of_their_sockets),
				    KUNIT_CASE(a_dead_process_stays_in_the_sum),
				    KUNIT_CASE(the_tool_writes_whole_words_within_the_pages),
				    KUNIT_CASE(regions_have_places_and_go_at_the_end),
				    {}};

static struct kunit_suite suite = {
	.name = "vma_session",
	.init = session_begin,
	.exit = session_end,
	.test_cases = cases,
};

kunit_test_suite(suite);
