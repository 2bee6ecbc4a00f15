// SPDX-License-Identifier: GPL-2.0-only
/* The table of registered flows. */
#include <linux/nsproxy.h>
#include <linux/rcupdate.h>
#include <net/net_namespace.h>

#include "help.h"

static struct socket *tcp, *udp;

static int conn_begin(struct kunit *test)
{
	tcp = help_socket(test, &init_net, AF_INET, IPPROTO_TCP, NULL, 0);
	udp = help_socket(test, &init_net, AF_INET, IPPROTO_UDP, NULL, 0);
	return 0;
}

static void conn_end(struct kunit *test)
{
	sock_release(tcp);
	sock_release(udp);
	rcu_barrier();
}

static struct vma_conn *find(struct net *net, const struct vma_flow_key *key)
{
	struct vma_conn *c;

	rcu_read_lock();
	c = vma_conn_find(net, key);
	rcu_read_unlock();
	return c;
}

static void drop(struct vma_conn *c)
{
	vma_conn_unhash(c);
	vma_conn_free(c);
}

static void a_flow_is_found_until_it_is_taken_out(struct kunit *test)
{
	struct vma_flow_key key = help_key(IPPROTO_TCP, LOOPBACK, 80, "10.0.0.2", 9);
	s64 before = atomic64_read(&vma_totals[VMA_TOTAL_CONNS]);
	struct vma_conn *c = vma_conn_add(tcp->sk, &key, 1, false, NULL, 3);

	KUNIT_ASSERT_FALSE(test, IS_ERR(c));
	KUNIT_EXPECT_PTR_EQ(test, find(&init_net, &key), c);
	KUNIT_EXPECT_EQ(test, atomic64_read(&vma_totals[VMA_TOTAL_CONNS]), before + 1);
	key.remote_port++;
	KUNIT_EXPECT_NULL(test, find(&init_net, &key));
	key.remote_port--;
	drop(c);
	KUNIT_EXPECT_NULL(test, find(&init_net, &key));
	KUNIT_EXPECT_EQ(test, atomic64_read(&vma_totals[VMA_TOTAL_CONNS]), before);
}

static void a_flow_has_one_owner(struct kunit *test)
{
	struct vma_flow_key key = help_key(IPPROTO_TCP, LOOPBACK, 80, "10.0.0.2", 9);
	struct vma_conn *c = vma_conn_add(tcp->sk, &key, 1, false, NULL, 3), *other;
	int refs = refcount_read(&tcp->sk->sk_refcnt);

	KUNIT_ASSERT_FALSE(test, IS_ERR(c));
	other = vma_conn_add(tcp->sk, &key, 1, true, NULL, 4);
	KUNIT_EXPECT_EQ(test, PTR_ERR(other), -EADDRINUSE);
	KUNIT_EXPECT_EQ(test, refcount_read(&tcp->sk->sk_refcnt), refs);
	drop(c);
	rcu_barrier();
	KUNIT_EXPECT_EQ(test, refcount_read(&tcp->sk->sk_refcnt), refs - 1);
	c = vma_conn_add(tcp->sk, &key, 1, false, NULL, 3);
	KUNIT_ASSERT_FALSE(test, IS_ERR(c));
	drop(c);
}

static void a_flow_with_this_remote_side_comes_before_one_with_any(struct kunit *test)
{
	struct vma_flow_key exact = help_key(IPPROTO_UDP, LOOPBACK, 53, "10.0.0.2", 9);
	struct vma_flow_key any = help_key(IPPROTO_UDP, LOOPBACK, 53, "::", 0);
	struct vma_conn *a = vma_conn_add(udp->sk, &any, 2, false, NULL, 0);
	struct vma_conn *e = vma_conn_add(udp->sk, &exact, 2, false, NULL, 1);

	KUNIT_ASSERT_FALSE(test, IS_ERR(a));
	KUNIT_ASSERT_FALSE(test, IS_ERR(e));
	KUNIT_EXPECT_PTR_EQ(test, find(&init_net, &exact), e);
	drop(e);
	KUNIT_EXPECT_PTR_EQ(test, find(&init_net, &exact), a);
	exact.proto = IPPROTO_TCP;
	KUNIT_EXPECT_NULL(test, find(&init_net, &exact));
	drop(a);
}

static void namespaces_are_apart(struct kunit *test)
{
	struct net *net = copy_net_ns(CLONE_NEWNET, &init_user_ns, &init_net);
	struct vma_flow_key key = help_key(IPPROTO_UDP, LOOPBACK, 53, "10.0.0.2", 9);
	struct vma_conn *here, *there;
	struct socket *sock;
	unsigned int held;

	KUNIT_ASSERT_FALSE(test, IS_ERR(net));
	sock = help_socket(test, net, AF_INET, IPPROTO_UDP, NULL, 0);
	here = vma_conn_add(udp->sk, &key, 2, false, NULL, 0);
	there = vma_conn_add(sock->sk, &key, 2, false, NULL, 0);
	KUNIT_ASSERT_FALSE(test, IS_ERR(here));
	KUNIT_ASSERT_FALSE(test, IS_ERR(there));
	KUNIT_EXPECT_PTR_EQ(test, find(&init_net, &key), here);
	KUNIT_EXPECT_PTR_EQ(test, find(net, &key), there);
	/* The registration holds the namespace by its socket, closed or not, and lets go of it. */
	sock_release(sock);
	held = refcount_read(&net->ns.count);
	KUNIT_EXPECT_EQ(test, held, 2);
	drop(there);
	rcu_barrier();
	KUNIT_EXPECT_EQ(test, refcount_read(&net->ns.count), 1);
	KUNIT_EXPECT_NULL(test, find(net, &key));
	drop(here);
	put_net(net);
}

static struct kunit_case cases[] = {
	KUNIT_CASE(a_flow_is_found_until_it_is_taken_out),
	KUNIT_CASE(a_flow_has_one_owner),
	KUNIT_CASE(a_flow_with_this_remote_side_comes_before_one_with_any),
	KUNIT_CASE(namespaces_are_apart),
	{}};

static struct kunit_suite suite = {
	.name = "vma_conn",
	.init = conn_begin,
	.exit = conn_end,
	.test_cases = cases,
};

kunit_test_suite(suite);
