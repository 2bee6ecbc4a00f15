// SPDX-License-Identifier: GPL-2.0-only
/*
 * Whose a flow is. Addresses and ports are never believed: a bound kernel socket of the caller's
 * vouches for them.
 */
#include <linux/inetdevice.h>
#include <net/addrconf.h>
#include <net/inet6_hashtables.h>
#include <net/inet_hashtables.h>
#include <net/ipv6.h>
#include <net/route.h>
#include <net/tcp.h>

#include "compat.h"
#include "vma.h"

#define FLAGS_KNOWN (VMA_KMOD_CONN_RST | VMA_KMOD_CONN_FALLBACK)

static bool addr_is_host(const struct vma_addr *a)
{
	__be32 v4 = vma_addr_v4(a);

	if (vma_addr_is_v4(a))
		return !ipv4_is_multicast(v4) && !ipv4_is_lbcast(v4) && !ipv4_is_zeronet(v4);
	return !ipv6_addr_is_multicast(vma_addr_v6(a)) && !ipv6_addr_any(vma_addr_v6(a));
}

/**
 * vma_flow_check - the gate for a flow from user space
 * @key: as it came
 * @flags: VMA_KMOD_CONN_*
 *
 * Return: 0 or -EINVAL.
 */
int vma_flow_check(const struct vma_flow_key *key, u32 flags)
{
	bool any = ipv6_addr_any(vma_addr_v6(&key->remote)) && !key->remote_port;

	/* A connection has one port of its own. */
	if (!flags || flags & ~FLAGS_KNOWN || key->port_bits ||
	    memchr_inv(key->reserved, 0, sizeof(key->reserved)))
		return -EINVAL;
	if (key->proto != IPPROTO_TCP && key->proto != IPPROTO_UDP)
		return -EINVAL;
	if (!key->local_port || !addr_is_host(&key->local))
		return -EINVAL;
	if (key->proto == IPPROTO_UDP && flags & VMA_KMOD_CONN_RST)
		return -EINVAL;
	/* What a listener misses the kernel's listener beside it has. */
	if (any)
		return key->proto == IPPROTO_UDP ? 0 : -EINVAL;
	if (!key->remote_port || !addr_is_host(&key->remote))
		return -EINVAL;
	return vma_addr_is_v4(&key->local) == vma_addr_is_v4(&key->remote) ? 0 : -EINVAL;
}

/*
 * Is sk bound to this port, and to the address or to all of its family? Lockless: the words are
 * read once each.
 */
static bool bound_to(const struct sock *sk, const struct vma_addr *addr, u16 port)
{
	bool v4 = vma_addr_is_v4(addr);
	__be32 any4;

	if (READ_ONCE(inet_sk(sk)->inet_num) != port)
		return false;
	if (sk->sk_family == AF_INET) {
		any4 = READ_ONCE(inet_sk(sk)->inet_rcv_saddr);
		return v4 && (!any4 || any4 == vma_addr_v4(addr));
	}
	if (ipv6_addr_any(&sk->sk_v6_rcv_saddr))
		return !v4 || !ipv6_only_sock(sk);
	return ipv6_addr_equal(&sk->sk_v6_rcv_saddr, vma_addr_v6(addr));
}

/* A UDP socket that is connected owns one remote side only. */
static bool connected_elsewhere(const struct sock *sk, const struct vma_flow_key *key)
{
	if (sk->sk_state != TCP_ESTABLISHED || !key->remote_port)
		return false;
	if (ntohs(inet_sk(sk)->inet_dport) != key->remote_port)
		return true;
	if (sk->sk_family == AF_INET)
		return inet_sk(sk)->inet_daddr != vma_addr_v4(&key->remote);
	return !ipv6_addr_equal(&sk->sk_v6_daddr, vma_addr_v6(&key->remote));
}

/*
 * Somebody else's socket of the same port and address: both set SO_REUSEADDR. A connection has its
 * own four numbers, for which vma_kernel_has() looks; as TIME_WAIT it has no user to ask for.
 * Bucket's lock held.
 */
static bool is_strangers(const struct sock *other, const struct sock *sk, const struct vma_addr *a)
{
	unsigned char state = READ_ONCE(other->sk_state);

	if (other == sk || (state != TCP_CLOSE && state != TCP_LISTEN))
		return false;
	if (uid_eq(other->sk_uid, sk->sk_uid))
		return false;
	return bound_to(other, a, inet_sk(sk)->inet_num);
}

static bool bucket_has_strangers(struct inet_bind_bucket *tb, const struct sock *sk,
				 const struct vma_addr *addr)
{
	struct sock *other;

	vma_for_each_bound(other, tb)
		if (is_strangers(other, sk, addr))
			return true;
	return false;
}

/* Does a user who is not the socket's have the TCP port at this address, too? */
static bool shared(struct sock *sk, const struct vma_addr *addr)
{
	struct net *net = sock_net(sk);
	struct inet_hashinfo *table = net->ipv4.tcp_death_row.hashinfo;
	struct inet_bind_hashbucket *head;
	struct inet_bind_bucket *tb;
	u16 port = READ_ONCE(inet_sk(sk)->inet_num);
	bool found;

	head = &table->bhash[inet_bhashfn(net, port, table->bhash_size)];
	spin_lock_bh(&head->lock);
	/* It may have been closed meanwhile: then nothing says whose the port is. */
	tb = inet_csk(sk)->icsk_bind_hash;
	found = !tb || tb->port != port || bucket_has_strangers(tb, sk, addr);
	spin_unlock_bh(&head->lock);
	return found;
}

/**
 * vma_owner_check - may the holder of this socket say that the flow is theirs?
 * @sk: a socket of the caller's
 * @key: passed vma_flow_check()
 *
 * Return: 0; -EPERM: not bound to the local side, or another user is too, which CAP_NET_RAW makes
 * good; -ENOTSOCK, -EPROTOTYPE, -EISCONN as in vma/kmod.h, which nothing makes good.
 */
int vma_owner_check(struct sock *sk, const struct vma_flow_key *key)
{
	if (sk->sk_family != AF_INET && sk->sk_family != AF_INET6)
		return -ENOTSOCK;
	/* A raw socket has a protocol too, but owns no port. */
	if (sk->sk_protocol != key->proto ||
	    sk->sk_type != (key->proto == IPPROTO_TCP ? SOCK_STREAM : SOCK_DGRAM))
		return -EPROTOTYPE;
	if (key->proto == IPPROTO_TCP && sk->sk_state != TCP_CLOSE && sk->sk_state != TCP_LISTEN)
		return -EISCONN;
	if (!bound_to(sk, &key->local, key->local_port) || connected_elsewhere(sk, key))
		return -EPERM;
	return key->proto == IPPROTO_TCP && shared(sk, &key->local) ? -EPERM : 0;
}

/**
 * vma_owner_holds - is a registration still its owner's?
 * @c: the registration
 *
 * A socket that was closed gave its port away, perhaps to somebody else. Softirq or process,
 * lockless.
 */
bool vma_owner_holds(const struct vma_conn *c)
{
	if (sock_flag(c->sk, SOCK_DEAD))
		return false;
	return c->by_net_raw || bound_to(c->sk, &c->key.flow.local, c->key.flow.local_port);
}

/**
 * vma_owner_local - 0 if the flow's local address is one of this host's, else -EADDRNOTAVAIL
 * @net: the socket's namespace
 * @key: the flow
 */
int vma_owner_local(struct net *net, const struct vma_flow_key *key)
{
	if (vma_addr_is_v4(&key->local))
		return inet_addr_type(net, vma_addr_v4(&key->local)) == RTN_LOCAL ? 0
										  : -EADDRNOTAVAIL;
#if IS_ENABLED(CONFIG_IPV6)
	if (ipv6_chk_addr(net, vma_addr_v6(&key->local), NULL, 0))
		return 0;
#endif
	return -EADDRNOTAVAIL;
}

/**
 * vma_kernel_has - does the kernel serve this TCP flow, or remember it (TIME_WAIT)?
 * @net: where
 * @key: the flow
 * @ifindex: that a packet came by, or that the socket is bound to
 *
 * Context: softirq or process.
 */
bool vma_kernel_has(struct net *net, const struct vma_flow_key *key, int ifindex)
{
	struct inet_hashinfo *table = net->ipv4.tcp_death_row.hashinfo;
	struct sock *sk = NULL;

	if (key->proto != IPPROTO_TCP)
		return false;
	local_bh_disable();
	if (vma_addr_is_v4(&key->local))
		sk = __inet_lookup_established(net, table, vma_addr_v4(&key->remote),
					       htons(key->remote_port), vma_addr_v4(&key->local),
					       key->local_port, ifindex, 0);
#if IS_ENABLED(CONFIG_IPV6)
	else
		sk = __inet6_lookup_established(net, table, vma_addr_v6(&key->remote),
						htons(key->remote_port), vma_addr_v6(&key->local),
						key->local_port, ifindex, 0);
#endif
	if (sk)
		sock_gen_put(sk);
	local_bh_enable();
	return sk;
}
