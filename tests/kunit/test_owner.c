// SPDX-License-Identifier: GPL-2.0-only
/* Whose a flow is: what is refused, and who is. */
#include <net/tcp.h>

#include "help.h"

static int owner_begin(struct kunit *test)
{
	return help_lo_up(&init_net);
}

/* ---- the gate */

static struct vma_flow_key good(void)
{
	return help_key(IPPROTO_TCP, "10.0.0.1", 80, "10.0.0.2", 4000);
}

static void a_good_flow_passes(struct kunit *test)
{
	struct vma_flow_key key = good();

	KUNIT_EXPECT_EQ(test, vma_flow_check(&key, VMA_KMOD_CONN_RST), 0);
	KUNIT_EXPECT_EQ(test, vma_flow_check(&key, VMA_KMOD_CONN_RST | VMA_KMOD_CONN_FALLBACK), 0);
	key = help_key(IPPROTO_TCP, "fd00::1", 80, "fd00::2", 4000);
	KUNIT_EXPECT_EQ(test, vma_flow_check(&key, VMA_KMOD_CONN_RST), 0);
	key = help_key(IPPROTO_UDP, "10.0.0.1", 80, "::", 0);
	KUNIT_EXPECT_EQ(test, vma_flow_check(&key, VMA_KMOD_CONN_FALLBACK), 0);
}

static void bad_flags_are_refused(struct kunit *test)
{
	struct vma_flow_key key = good();

	KUNIT_EXPECT_EQ(test, vma_flow_check(&key, 0), -EINVAL);
	KUNIT_EXPECT_EQ(test, vma_flow_check(&key, 4), -EINVAL);
	KUNIT_EXPECT_EQ(test, vma_flow_check(&key, VMA_KMOD_CONN_RST | 1u << 31), -EINVAL);
	key.proto = IPPROTO_UDP;
	KUNIT_EXPECT_EQ(test, vma_flow_check(&key, VMA_KMOD_CONN_RST), -EINVAL);
}

static void bad_fields_are_refused(struct kunit *test)
{
	static const char *const not_hosts[] = {"0.0.0.0", "224.0.0.1", "255.255.255.255",
						"::", "ff02::1"};
	struct vma_flow_key key;
	int i;

	for (i = 0; i < ARRAY_SIZE(key.reserved); i++) {
		key = good();
		key.reserved[i] = 1;
		KUNIT_EXPECT_EQ(test, vma_flow_check(&key, VMA_KMOD_CONN_RST), -EINVAL);
	}
	key = good();
	key.port_bits = 1;
	KUNIT_EXPECT_EQ(test, vma_flow_check(&key, VMA_KMOD_CONN_RST), -EINVAL);
	for (i = 0; i < ARRAY_SIZE(not_hosts); i++) {
		key = good();
		key.local = help_addr(not_hosts[i]);
		KUNIT_EXPECT_EQ(test, vma_flow_check(&key, VMA_KMOD_CONN_RST), -EINVAL);
		key = good();
		key.remote = help_addr(not_hosts[i]);
		KUNIT_EXPECT_EQ(test, vma_flow_check(&key, VMA_KMOD_CONN_RST), -EINVAL);
	}
	key = good();
	key.local_port = 0;
	KUNIT_EXPECT_EQ(test, vma_flow_check(&key, VMA_KMOD_CONN_RST), -EINVAL);
	key = good();
	key.remote_port = 0;
	KUNIT_EXPECT_EQ(test, vma_flow_check(&key, VMA_KMOD_CONN_RST), -EINVAL);
	key = good();
	key.proto = IPPROTO_ICMP;
	KUNIT_EXPECT_EQ(test, vma_flow_check(&key, VMA_KMOD_CONN_RST), -EINVAL);
	key = good();
	key.remote = help_addr("fd00::2");
	KUNIT_EXPECT_EQ(test, vma_flow_check(&key, VMA_KMOD_CONN_RST), -EINVAL);
	/* A TCP flow without a remote side. */
	key = help_key(IPPROTO_TCP, "10.0.0.1", 80, "::", 0);
	KUNIT_EXPECT_EQ(test, vma_flow_check(&key, VMA_KMOD_CONN_FALLBACK), -EINVAL);
}

/* ---- the socket */

static int check(const struct socket *sock, u8 proto, const char *local, u16 port,
		 const char *remote)
{
	struct vma_flow_key key = help_key(proto, local, port, remote, 5000);

	return vma_owner_check(sock->sk, &key);
}

static void a_bound_socket_owns_its_address_and_port(struct kunit *test)
{
	struct socket *s = help_socket(test, &init_net, AF_INET, IPPROTO_TCP, LOOPBACK, 0);
	u16 port = help_port(s);

	KUNIT_EXPECT_EQ(test, check(s, IPPROTO_TCP, LOOPBACK, port, "127.0.0.9"), 0);
	KUNIT_EXPECT_EQ(test, check(s, IPPROTO_TCP, LOOPBACK, port + 1, "127.0.0.9"), -EPERM);
	KUNIT_EXPECT_EQ(test, check(s, IPPROTO_TCP, "127.0.0.2", port, "127.0.0.9"), -EPERM);
	KUNIT_EXPECT_EQ(test, check(s, IPPROTO_TCP, "::1", port, "::2"), -EPERM);
	KUNIT_EXPECT_EQ(test, check(s, IPPROTO_UDP, LOOPBACK, port, "127.0.0.9"), -EPROTOTYPE);
	sock_release(s);
}

static void a_socket_bound_to_all_owns_each(struct kunit *test)
{
	struct socket *s = help_socket(test, &init_net, AF_INET, IPPROTO_UDP, NULL, 0);
	struct socket *six = help_socket(test, &init_net, AF_INET6, IPPROTO_UDP, NULL, 0);

	KUNIT_EXPECT_EQ(test, check(s, IPPROTO_UDP, "127.0.0.2", help_port(s), "127.0.0.9"), 0);
	KUNIT_EXPECT_EQ(test, check(s, IPPROTO_UDP, "::1", help_port(s), "::2"), -EPERM);
	KUNIT_EXPECT_EQ(test, check(six, IPPROTO_UDP, "::1", help_port(six), "::2"), 0);
	KUNIT_EXPECT_EQ(test, check(six, IPPROTO_UDP, "127.0.0.2", help_port(six), "127.0.0.9"), 0);
	six->sk->sk_ipv6only = 1;
	KUNIT_EXPECT_EQ(test, check(six, IPPROTO_UDP, "127.0.0.2", help_port(six), "127.0.0.9"),
			-EPERM);
	sock_release(s);
	sock_release(six);
}

static void an_unbound_socket_owns_nothing(struct kunit *test)
{
	struct socket *s;

	KUNIT_ASSERT_EQ(test, 0,
			sock_create_kern(&init_net, AF_INET, SOCK_STREAM, IPPROTO_TCP, &s));
	KUNIT_EXPECT_EQ(test, check(s, IPPROTO_TCP, LOOPBACK, 80, "127.0.0.9"), -EPERM);
	sock_release(s);
}

static void a_socket_of_another_kind_owns_nothing(struct kunit *test)
{
	struct socket *s;

	KUNIT_ASSERT_EQ(test, 0, sock_create_kern(&init_net, AF_INET, SOCK_RAW, IPPROTO_TCP, &s));
	KUNIT_EXPECT_EQ(test, check(s, IPPROTO_TCP, LOOPBACK, IPPROTO_TCP, "127.0.0.9"),
			-EPROTOTYPE);
	sock_release(s);
	KUNIT_ASSERT_EQ(test, 0, sock_create_kern(&init_net, AF_NETLINK, SOCK_RAW, 0, &s));
	KUNIT_EXPECT_EQ(test, check(s, IPPROTO_TCP, LOOPBACK, 80, "127.0.0.9"), -ENOTSOCK);
	sock_release(s);
}

static void a_connected_udp_socket_owns_one_remote_side(struct kunit *test)
{
	struct socket *s = help_socket(test, &init_net, AF_INET, IPPROTO_UDP, LOOPBACK, 0);
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_port = htons(5000),
				 .sin_addr.s_addr = htonl(0x7f000009)};

	KUNIT_ASSERT_EQ(test, 0, kernel_connect(s, (struct sockaddr *)&to, sizeof(to), 0));
	KUNIT_EXPECT_EQ(test, check(s, IPPROTO_UDP, LOOPBACK, help_port(s), "127.0.0.9"), 0);
	KUNIT_EXPECT_EQ(test, check(s, IPPROTO_UDP, LOOPBACK, help_port(s), "127.0.0.8"), -EPERM);
	sock_release(s);
}

/* The kernel's own connection: looked up, and not to be registered. */
static void a_connection_of_the_kernels_is_seen(struct kunit *test)
{
	struct socket *l = help_socket(test, &init_net, AF_INET, IPPROTO_TCP, LOOPBACK, 0);
	struct socket *s = help_socket(test, &init_net, AF_INET, IPPROTO_TCP, LOOPBACK, 0);
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_port = htons(help_port(l)),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct vma_flow_key key =
		help_key(IPPROTO_TCP, LOOPBACK, help_port(s), LOOPBACK, help_port(l));

	KUNIT_EXPECT_FALSE(test, vma_kernel_has(&init_net, &key, 0));
	KUNIT_ASSERT_EQ(test, 0, kernel_listen(l, 1));
	KUNIT_ASSERT_EQ(test, 0, kernel_connect(s, (struct sockaddr *)&to, sizeof(to), 0));
	KUNIT_EXPECT_TRUE(test, vma_kernel_has(&init_net, &key, 0));
	KUNIT_EXPECT_EQ(test, vma_owner_check(s->sk, &key), -EISCONN);
	key.remote_port++;
	KUNIT_EXPECT_FALSE(test, vma_kernel_has(&init_net, &key, 0));
	sock_release(s);
	sock_release(l);
}

static void a_closed_socket_holds_no_more(struct kunit *test)
{
	struct socket *s = help_socket(test, &init_net, AF_INET, IPPROTO_TCP, LOOPBACK, 0);
	struct vma_conn c = {
		.sk = s->sk,
		.key.flow = help_key(IPPROTO_TCP, LOOPBACK, help_port(s), "127.0.0.9", 1),
	};

	sock_hold(c.sk);
	KUNIT_EXPECT_TRUE(test, vma_owner_holds(&c));
	sock_release(s);
	KUNIT_EXPECT_FALSE(test, vma_owner_holds(&c));
	c.by_net_raw = true;
	KUNIT_EXPECT_FALSE(test, vma_owner_holds(&c));
	sock_put(c.sk);
}

static void only_addresses_of_this_host_are_local(struct kunit *test)
{
	struct vma_flow_key key = help_key(IPPROTO_TCP, LOOPBACK, 1, "127.0.0.9", 1);

	KUNIT_EXPECT_EQ(test, vma_owner_local(&init_net, &key), 0);
	key.local = help_addr("10.9.9.9");
	KUNIT_EXPECT_EQ(test, vma_owner_local(&init_net, &key), -EADDRNOTAVAIL);
	key.local = help_addr("::1");
	KUNIT_EXPECT_EQ(test, vma_owner_local(&init_net, &key), 0);
	key.local = help_addr("fd00::9");
	KUNIT_EXPECT_EQ(test, vma_owner_local(&init_net, &key), -EADDRNOTAVAIL);
}

/* Both set SO_REUSEADDR, as clients that choose their port do. */
static void a_port_shared_with_another_user_is_nobodys(struct kunit *test)
{
	struct socket *mine = help_reuser(test, LOOPBACK, 0);
	struct socket *theirs = help_reuser(test, LOOPBACK, help_port(mine));
	struct vma_flow_key key = help_key(IPPROTO_TCP, LOOPBACK, help_port(mine), "127.0.0.2", 9);

	/* Another process of the same user may do what this one may. */
	KUNIT_EXPECT_EQ(test, vma_owner_check(mine->sk, &key), 0);
	theirs->sk->sk_uid = KUIDT_INIT(1234);
	KUNIT_EXPECT_EQ(test, vma_owner_check(mine->sk, &key), -EPERM);
	KUNIT_EXPECT_EQ(test, vma_owner_check(theirs->sk, &key), -EPERM);
	/* To listen makes it no more one's own. */
	KUNIT_EXPECT_EQ(test, kernel_listen(mine, 1), 0);
	KUNIT_EXPECT_EQ(test, vma_owner_check(mine->sk, &key), -EPERM);
	sock_release(theirs);
	KUNIT_EXPECT_EQ(test, vma_owner_check(mine->sk, &key), 0);
	/* The same port of another address is another port. */
	theirs = help_reuser(test, "127.0.0.3", help_port(mine));
	theirs->sk->sk_uid = KUIDT_INIT(1234);
	KUNIT_EXPECT_EQ(test, vma_owner_check(mine->sk, &key), 0);
	sock_release(theirs);
	sock_release(mine);
}

/* A connection of the kernel's on the port is not the port: it has four numbers of its own. */
static void a_connection_of_another_users_shares_no_port(struct kunit *test)
{
	struct socket *l = help_socket(test, &init_net, AF_INET, IPPROTO_TCP, LOOPBACK, 0);
	struct socket *mine = help_reuser(test, LOOPBACK, 0);
	struct socket *theirs = help_reuser(test, LOOPBACK, help_port(mine));
	struct vma_flow_key key = help_key(IPPROTO_TCP, LOOPBACK, help_port(mine), "127.0.0.2", 9);
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_port = htons(help_port(l)),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	KUNIT_ASSERT_EQ(test, 0, kernel_listen(l, 1));
	theirs->sk->sk_uid = KUIDT_INIT(1234);
	KUNIT_EXPECT_EQ(test, vma_owner_check(mine->sk, &key), -EPERM);
	KUNIT_ASSERT_EQ(test, 0, kernel_connect(theirs, (struct sockaddr *)&to, sizeof(to), 0));
	KUNIT_EXPECT_EQ(test, vma_owner_check(mine->sk, &key), 0);
	sock_release(theirs);
	sock_release(mine);
	sock_release(l);
}

static struct kunit_case cases[] = {KUNIT_CASE(a_good_flow_passes),
				    KUNIT_CASE(bad_flags_are_refused),
				    KUNIT_CASE(bad_fields_are_refused),
				    KUNIT_CASE(a_bound_socket_owns_its_address_and_port),
				    KUNIT_CASE(a_socket_bound_to_all_owns_each),
				    KUNIT_CASE(an_unbound_socket_owns_nothing),
				    KUNIT_CASE(a_port_shared_with_another_user_is_nobodys),
				    KUNIT_CASE(a_connection_of_another_users_shares_no_port),
				    KUNIT_CASE(a_socket_of_another_kind_owns_nothing),
				    KUNIT_CASE(a_connected_udp_socket_owns_one_remote_side),
				    KUNIT_CASE(a_connection_of_the_kernels_is_seen),
				    KUNIT_CASE(a_closed_socket_holds_no_more),
				    KUNIT_CASE(only_addresses_of_this_host_are_local),
				    {}};

static struct kunit_suite suite = {
	.name = "vma_owner",
	.init = owner_begin,
	.test_cases = cases,
};

kunit_test_suite(suite);
