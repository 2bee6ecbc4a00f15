// SPDX-License-Identifier: GPL-2.0-only
/* The fallback: which packets it takes on their way into the kernel, and which it leaves. */
#include <linux/netfilter_ipv4.h>
#include <linux/rcupdate.h>
#include <net/tcp.h>
#include <net/udp.h>

#include "help.h"

static struct vma_session *s;
static struct socket *to, *from; /* UDP on the loopback interface, to is the session's */

static int hook_begin(struct kunit *test)
{
	struct vma_kmod_setup arg = {
		.version = VMA_KMOD_VERSION, .conns = 4, .ring = VMA_KMOD_RING_MIN};

	KUNIT_ASSERT_EQ(test, 0, help_lo_up(&init_net));
	to = help_socket(test, &init_net, AF_INET, IPPROTO_UDP, LOOPBACK, 0);
	from = help_socket(test, &init_net, AF_INET, IPPROTO_UDP, LOOPBACK, 0);
	s = vma_session_open();
	KUNIT_ASSERT_FALSE(test, IS_ERR(s));
	return vma_session_setup(s, &arg);
}

static void hook_end(struct kunit *test)
{
	vma_session_end(s);
	vma_net_flush(&init_net);
	rcu_barrier();
	vma_session_put(s);
	if (to)
		sock_release(to);
	sock_release(from);
}

/* ---- the key */

static void a_packets_flow_is_read(struct kunit *test)
{
	struct vma_flow_key expect = help_key(IPPROTO_UDP, "10.0.0.1", 1000, "10.0.0.2", 2000), key;
	struct sk_buff *skb = help_packet(test, IPPROTO_UDP, 10);

	memset(&key, 0xff, sizeof(key));
	KUNIT_EXPECT_EQ(test, vma_hook_key(skb, NFPROTO_IPV4, &key), 0);
	KUNIT_EXPECT_EQ(test, memcmp(&key, &expect, sizeof(key)), 0);
	kfree_skb(skb);
}

static void ip_options_are_skipped(struct kunit *test)
{
	struct sk_buff *skb = help_packet(test, IPPROTO_UDP, 10);
	struct vma_flow_key key;

	ip_hdr(skb)->ihl = 6; /* the ports are now what was the UDP length and checksum */
	KUNIT_EXPECT_EQ(test, vma_hook_key(skb, NFPROTO_IPV4, &key), 0);
	KUNIT_EXPECT_EQ(test, key.local_port, 0);
	kfree_skb(skb);
}

static void what_has_no_ports_is_left(struct kunit *test)
{
	struct sk_buff *skb = help_packet(test, IPPROTO_UDP, 10);
	struct vma_flow_key key;

	ip_hdr(skb)->protocol = IPPROTO_ICMP;
	KUNIT_EXPECT_LT(test, vma_hook_key(skb, NFPROTO_IPV4, &key), 0);
	ip_hdr(skb)->protocol = IPPROTO_UDP;
	ip_hdr(skb)->frag_off = htons(IP_MF);
	KUNIT_EXPECT_LT(test, vma_hook_key(skb, NFPROTO_IPV4, &key), 0);
	ip_hdr(skb)->frag_off = htons(1);
	KUNIT_EXPECT_LT(test, vma_hook_key(skb, NFPROTO_IPV4, &key), 0);
	ip_hdr(skb)->frag_off = 0;
	skb_trim(skb, 23);
	KUNIT_EXPECT_LT(test, vma_hook_key(skb, NFPROTO_IPV4, &key), 0);
	kfree_skb(skb);
}

/* An IPv6 packet: header, perhaps a fragment header, ports. */
static struct sk_buff *packet6(struct kunit *test, bool fragment)
{
	struct sk_buff *skb = alloc_skb(100, GFP_KERNEL);
	struct ipv6hdr *ip;
	__be16 *ports;

	KUNIT_ASSERT_NOT_NULL(test, skb);
	ip = skb_put_zero(skb, sizeof(*ip));
	skb_reset_network_header(skb);
	ip->version = 6;
	ip->nexthdr = fragment ? IPPROTO_FRAGMENT : IPPROTO_UDP;
	ip->saddr.s6_addr[0] = 0xfd;
	if (fragment) {
		struct frag_hdr *f = skb_put_zero(skb, sizeof(*f));

		f->nexthdr = IPPROTO_UDP;
		f->frag_off = htons(8 | IP6_MF);
	}
	ports = skb_put_zero(skb, 8);
	ports[1] = htons(53);
	return skb;
}

static void v6_too(struct kunit *test)
{
	struct sk_buff *skb = packet6(test, false);
	struct vma_flow_key key;

	KUNIT_EXPECT_EQ(test, vma_hook_key(skb, NFPROTO_IPV6, &key), 0);
	KUNIT_EXPECT_EQ(test, key.local_port, 53);
	KUNIT_EXPECT_EQ(test, key.remote.byte[0], 0xfd);
	kfree_skb(skb);
	skb = packet6(test, true);
	KUNIT_EXPECT_LT(test, vma_hook_key(skb, NFPROTO_IPV6, &key), 0);
	kfree_skb(skb);
}

/* ---- on the way */

static int add_by(struct socket *sock, u8 proto, const char *remote, u16 rport, bool has_net_raw)
{
	struct vma_kmod_conn arg = {
		.flags = VMA_KMOD_CONN_FALLBACK,
		.key = help_key(proto, LOOPBACK, help_port(sock), remote, rport),
	};
	int err = vma_session_conn(s, sock->sk, &arg, has_net_raw);

	return err ?: (int)arg.slot;
}

static int add(struct socket *sock, u8 proto, const char *remote, u16 rport)
{
	return add_by(sock, proto, remote, rport, false);
}

static void send(struct kunit *test, size_t bytes)
{
	struct sockaddr_in sin = {.sin_family = AF_INET,
				  .sin_port = htons(help_port(to)),
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct msghdr msg = {.msg_name = &sin, .msg_namelen = sizeof(sin)};
	void *data = kunit_kzalloc(test, bytes, GFP_KERNEL);
	struct kvec vec = {.iov_base = data, .iov_len = bytes};

	KUNIT_ASSERT_NOT_NULL(test, data);
	KUNIT_EXPECT_EQ(test, kernel_sendmsg(from, &msg, &vec, 1, bytes), bytes);
	help_settle();
}

/* Datagrams that the kernel's socket has; taken. */
static int arrived(void)
{
	char data[16];
	struct kvec vec = {.iov_base = data, .iov_len = sizeof(data)};
	struct msghdr msg = {};
	int n = 0;

	while (kernel_recvmsg(to, &msg, &vec, 1, sizeof(data), MSG_DONTWAIT | MSG_TRUNC) > 0)
		n++;
	return n;
}

static struct vma_kmod_record *record(void)
{
	return s->ring.area.at + VMA_KMOD_RING_DATA;
}

static void a_registered_flow_goes_to_its_process(struct kunit *test)
{
	s64 taken = atomic64_read(&vma_totals[VMA_TOTAL_FALLBACK_PACKETS]);
	struct vma_kmod_unconn which = {};

	KUNIT_ASSERT_EQ(test, add(to, IPPROTO_UDP, LOOPBACK, help_port(from)), 0);
	send(test, 100);
	KUNIT_EXPECT_EQ(test, arrived(), 0);
	KUNIT_EXPECT_EQ(test, s->ring.packets, 1);
	KUNIT_EXPECT_EQ(test, record()->len, 128);
	KUNIT_EXPECT_EQ(test, record()->slot, 0);
	KUNIT_EXPECT_EQ(test, record()->ifindex, init_net.loopback_dev->ifindex);
	KUNIT_EXPECT_EQ(test, atomic64_read(&vma_totals[VMA_TOTAL_FALLBACK_PACKETS]), taken + 1);
	KUNIT_EXPECT_EQ(test, vma_session_unconn(s, &which), 0);
	send(test, 100);
	KUNIT_EXPECT_EQ(test, arrived(), 1);
	KUNIT_EXPECT_EQ(test, s->ring.packets, 1);
}

static void another_remote_side_is_left_alone(struct kunit *test)
{
	KUNIT_ASSERT_EQ(test, add(to, IPPROTO_UDP, LOOPBACK, help_port(from) + 1), 0);
	send(test, 100);
	KUNIT_EXPECT_EQ(test, arrived(), 1);
	KUNIT_EXPECT_EQ(test, s->ring.packets, 0);
}

static void fragments_arrive_as_one(struct kunit *test)
{
	struct net_device *lo = init_net.loopback_dev;
	unsigned int mtu = lo->mtu;

	KUNIT_ASSERT_EQ(test, add(to, IPPROTO_UDP, "::", 0), 0);
	rtnl_lock();
	KUNIT_EXPECT_EQ(test, dev_set_mtu(lo, 1500), 0);
	rtnl_unlock();
	send(test, 4000);
	rtnl_lock();
	dev_set_mtu(lo, mtu);
	rtnl_unlock();
	KUNIT_EXPECT_EQ(test, arrived(), 0);
	KUNIT_EXPECT_EQ(test, s->ring.packets, 1);
	KUNIT_EXPECT_EQ(test, record()->len, 4028);
}

static unsigned int drop(void *priv, struct sk_buff *skb, const struct nf_hook_state *state)
{
	return NF_DROP;
}

static const struct nf_hook_ops filter = {
	.hook = drop,
	.pf = NFPROTO_IPV4,
	.hooknum = NF_INET_LOCAL_IN,
	.priority = NF_IP_PRI_FILTER,
};

static void what_the_filter_drops_gets_who_could_see_it(struct kunit *test)
{
	struct vma_kmod_unconn which = {};

	KUNIT_ASSERT_EQ(test, nf_register_net_hook(&init_net, &filter), 0);
	KUNIT_EXPECT_EQ(test, add(to, IPPROTO_UDP, "::", 0), 0);
	send(test, 100);
	KUNIT_EXPECT_EQ(test, s->ring.packets, 0);
	KUNIT_EXPECT_EQ(test, vma_session_unconn(s, &which), 0);
	KUNIT_EXPECT_EQ(test, add_by(to, IPPROTO_UDP, "::", 0, true), 0);
	send(test, 100);
	KUNIT_EXPECT_EQ(test, s->ring.packets, 1);
	nf_unregister_net_hook(&init_net, &filter);
	KUNIT_EXPECT_EQ(test, arrived(), 0);
}

static void a_full_ring_drops_and_counts(struct kunit *test)
{
	s64 dropped = atomic64_read(&vma_totals[VMA_TOTAL_FALLBACK_DROPPED]);

	KUNIT_ASSERT_EQ(test, add(to, IPPROTO_UDP, "::", 0), 0);
	send(test, 40000);
	send(test, 40000);
	KUNIT_EXPECT_EQ(test, arrived(), 0);
	KUNIT_EXPECT_EQ(test, s->ring.packets, 1);
	KUNIT_EXPECT_EQ(test, s->ring.dropped, 1);
	KUNIT_EXPECT_EQ(test, atomic64_read(&vma_totals[VMA_TOTAL_FALLBACK_DROPPED]), dropped + 1);
}

/* The old owner closed its socket and kept the registration: the new one gets its packets. */
static void a_port_given_away_is_left_alone(struct kunit *test)
{
	u16 port = help_port(to);

	KUNIT_ASSERT_EQ(test, add(to, IPPROTO_UDP, "::", 0), 0);
	sock_release(to);
	to = help_socket(test, &init_net, AF_INET, IPPROTO_UDP, LOOPBACK, port);
	send(test, 100);
	KUNIT_EXPECT_EQ(test, arrived(), 1);
	KUNIT_EXPECT_EQ(test, s->ring.packets, 0);
}

static void the_dead_get_nothing(struct kunit *test)
{
	KUNIT_ASSERT_EQ(test, add(to, IPPROTO_UDP, "::", 0), 0);
	vma_session_end(s);
	send(test, 100);
	KUNIT_EXPECT_EQ(test, arrived(), 1);
	KUNIT_EXPECT_EQ(test, s->ring.packets, 0);
}

static void a_segment_of_a_connection_goes_to_its_process(struct kunit *test)
{
	struct socket *shadow = help_socket(test, &init_net, AF_INET, IPPROTO_TCP, LOOPBACK, 0);
	/* Any segment from the peer will do: a reset is one. */
	struct vma_conn peer = {
		.key.flow = help_key(IPPROTO_TCP, "127.0.0.2", 9, LOOPBACK, help_port(shadow)),
		.key.net = &init_net,
		.sk = shadow->sk,
	};

	KUNIT_ASSERT_EQ(test, add(shadow, IPPROTO_TCP, "127.0.0.2", 9), 0);
	KUNIT_EXPECT_EQ(test, vma_rst_send(&peer), 0);
	help_settle();
	KUNIT_EXPECT_EQ(test, s->ring.packets, 1);
	KUNIT_EXPECT_EQ(test, record()->len, 40);
	peer.key.flow.local_port = 10;
	KUNIT_EXPECT_EQ(test, vma_rst_send(&peer), 0);
	help_settle();
	KUNIT_EXPECT_EQ(test, s->ring.packets, 1);
	sock_release(shadow);
}

static struct kunit_case cases[] = {KUNIT_CASE(a_packets_flow_is_read),
				    KUNIT_CASE(ip_options_are_skipped),
				    KUNIT_CASE(what_has_no_ports_is_left),
				    KUNIT_CASE(v6_too),
				    KUNIT_CASE(a_registered_flow_goes_to_its_process),
				    KUNIT_CASE(another_remote_side_is_left_alone),
				    KUNIT_CASE(fragments_arrive_as_one),
				    KUNIT_CASE(what_the_filter_drops_gets_who_could_see_it),
				    KUNIT_CASE(a_full_ring_drops_and_counts),
				    KUNIT_CASE(a_port_given_away_is_left_alone),
				    KUNIT_CASE(the_dead_get_nothing),
				    KUNIT_CASE(a_segment_of_a_connection_goes_to_its_process),
				    {}};

static struct kunit_suite suite = {
	.name = "vma_hook",
	.init = hook_begin,
	.exit = hook_end,
	.test_cases = cases,
};

kunit_test_suite(suite);
