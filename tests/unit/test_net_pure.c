/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The parts of lib/net that need no kernel: the table, and what netlink messages do to the mirror.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h wants the four above first. */
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <linux/if_addr.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <net/if_arp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "net/mirror.h"
#include "net/hash.h"
#include "runtime/libc.h"

struct rec {
	uint64_t key;
	uint64_t value;
	uint64_t check; /* value ^ key: a torn copy is seen */
	uint64_t epoch;
};
TABLE_CHECK(struct rec, value);

static struct in6_addr addr_of(const char *text)
{
	struct in6_addr a;
	uint32_t be;

	if (inet_pton(AF_INET, text, &be) == 1)
		return v4_mapped(be);
	assert_int_equal(inet_pton(AF_INET6, text, &a), 1);
	return a;
}

static struct rec rec_of(uint64_t key, uint64_t value, uint64_t epoch)
{
	return (struct rec){key, value, value ^ key, epoch};
}

#define MODEL_KEYS 400

/* Removes the odd values; counts what it sees. */
static bool drop_odd(const void *rec, void *arg)
{
	const struct rec *r = rec;

	++*(unsigned *)arg;
	return r->value & 1;
}

static void a_table_agrees_with_a_plain_array(void **state)
{
	static struct net_table t = TABLE_INIT(struct rec, value, 8);
	uint64_t model[MODEL_KEYS] = {0}; /* 0: not there */
	unsigned seed = 20261121, used = 0;
	struct rec r;
	sigset_t old;

	(void)state;
	net_table_seed();
	printf("seed %u\n", seed);
	for (unsigned step = 0; step < 40000; step++) {
		uint64_t key = (unsigned)rand_r(&seed) % MODEL_KEYS;
		unsigned what = (unsigned)rand_r(&seed) % 100, seen = 0, odd = 0;

		net_table_lock(&t, &old);
		if (what < 55) {
			uint64_t value = 1 + (unsigned)rand_r(&seed) % 5;
			int expected = !model[key]	     ? TABLE_ADDED
				       : model[key] != value ? TABLE_CHANGED
							     : TABLE_SAME;

			r = rec_of(key, value, step);
			assert_int_equal(net_table_put(&t, &r), expected);
			used += !model[key];
			model[key] = value;
		} else if (what < 99) {
			r = rec_of(key, 0, 0);
			assert_int_equal(net_table_del(&t, &r), model[key] != 0);
			used -= model[key] != 0;
			model[key] = 0;
		} else {
			for (unsigned k = 0; k < MODEL_KEYS; k++)
				if (model[k] & 1) {
					model[k] = 0;
					odd++;
				}
			assert_int_equal(net_table_sweep(&t, drop_odd, &seen), odd);
			assert_true(seen >= used);
			used -= odd;
		}
		net_table_unlock(&t, &old);
		assert_int_equal(t.used, used);
		key = (unsigned)rand_r(&seed) % MODEL_KEYS;
		r = rec_of(key, 0, 0);
		assert_int_equal(net_table_find(&t, &r, NULL, NULL, &r), model[key] != 0);
		if (model[key])
			assert_int_equal(r.value, model[key]);
	}
}

static void putting_the_same_record_is_no_change_but_its_last_word_is_kept(void **state)
{
	static struct net_table t = TABLE_INIT(struct rec, value, 8);
	struct rec r = rec_of(7, 1, 10);
	sigset_t old;

	(void)state;
	net_table_lock(&t, &old);
	assert_int_equal(net_table_put(&t, &r), TABLE_ADDED);
	r.epoch = 11;
	assert_int_equal(net_table_put(&t, &r), TABLE_SAME);
	net_table_unlock(&t, &old);
	r = rec_of(7, 0, 0);
	assert_true(net_table_find(&t, &r, NULL, NULL, &r));
	assert_int_equal(r.epoch, 11);
}

static void evicting_empties_a_table_one_by_one(void **state)
{
	static struct net_table t = TABLE_INIT(struct rec, value, 8);
	sigset_t old;

	(void)state;
	net_table_lock(&t, &old);
	for (uint64_t key = 0; key < 1000; key++) {
		struct rec r = rec_of(key, 1, 0);

		if (t.used == 100)
			net_table_evict(&t);
		assert_int_equal(net_table_put(&t, &r), TABLE_ADDED);
		assert_true(t.used <= 100);
	}
	for (unsigned left = 100; left; left--) {
		assert_int_equal(t.used, left);
		net_table_evict(&t);
	}
	net_table_evict(&t);
	assert_int_equal(t.used, 0);
	net_table_unlock(&t, &old);
}

static struct net_table shared = TABLE_INIT(struct rec, value, 8);
static _Atomic bool stop;
static _Atomic unsigned long torn, lost, reads;

/* Key 1 is always there; whatever is found belongs together. */
static void *read_shared(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;
	struct rec r, key;

	while (!stop) {
		key = rec_of(1, 0, 0);
		lost += !net_table_find(&shared, &key, NULL, NULL, &r);
		key = rec_of(2 + (unsigned)rand_r(&seed) % 4, 0, 0);
		if (net_table_find(&shared, &key, NULL, NULL, &r))
			torn += r.key != key.key || r.check != (r.key ^ r.value);
		reads++;
	}
	return NULL;
}

static void readers_never_see_half_a_record_nor_miss_one_that_is_there(void **state)
{
	struct rec always = rec_of(1, 42, 0), r;
	pthread_t threads[2];
	unsigned seed = 3;
	sigset_t old;

	(void)state;
	net_table_lock(&shared, &old);
	net_table_put(&shared, &always);
	net_table_unlock(&shared, &old);
	for (uintptr_t i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, read_shared, (void *)(i + 1)),
				 0);
	/* Long stretches without a system call: only then do a write and a read meet. */
	for (unsigned step = 0; step < 2000 || reads < 100000; step++) {
		net_table_lock(&shared, &old);
		for (unsigned i = 0; i < 300; i++) {
			r = rec_of(2 + (unsigned)rand_r(&seed) % (step / 20 + 1), step * 300 + i,
				   0);
			if (i % 8)
				net_table_put(&shared, &r);
			else
				net_table_del(&shared, &r);
		}
		net_table_unlock(&shared, &old);
	}
	stop = true;
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	printf("%lu reads, %lu torn, %lu lost\n", reads, torn, lost);
	assert_int_equal(torn, 0);
	assert_int_equal(lost, 0);
}

struct overtaker {
	struct net_table *t;
	unsigned times;
	unsigned calls;
};

/* Between the reader's copy and its second look at the sequence: a writer changes the record. */
static bool overtake(const void *rec, const void *arg)
{
	struct overtaker *o = (struct overtaker *)(uintptr_t)arg;
	struct rec r = *(const struct rec *)rec;
	sigset_t old;

	if (o->calls++ < o->times) {
		r = rec_of(r.key, r.value + 1, 0);
		net_table_lock(o->t, &old);
		net_table_put(o->t, &r);
		net_table_unlock(o->t, &old);
	}
	return true;
}

static void a_reader_that_was_overtaken_looks_again_and_at_last_waits(void **state)
{
	static struct net_table t = TABLE_INIT(struct rec, value, 8);
	/* 64 attempts without the lock, then one with it. */
	static const unsigned times[] = {0, 1, 5, 63, 64};
	struct rec r, key = rec_of(9, 0, 0);
	sigset_t old;

	(void)state;
	for (unsigned i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
		struct overtaker o = {&t, times[i], 0};

		r = rec_of(9, 1000, 0);
		net_table_lock(&t, &old);
		net_table_put(&t, &r);
		net_table_unlock(&t, &old);
		assert_true(net_table_find(&t, &key, overtake, &o, &r));
		assert_int_equal(o.calls, times[i] + 1);
		assert_int_equal(r.value, 1000 + times[i]);
	}
}

static void multicast_macs_follow_the_rfcs(void **state)
{
	static const struct {
		const char *group;
		uint8_t mac[NET_MAC_LEN];
	} cases[] = {
		{"224.0.0.1", {0x01, 0x00, 0x5e, 0, 0, 1}},
		{"239.255.1.2", {0x01, 0x00, 0x5e, 0x7f, 1, 2}},
		{"225.129.3.4", {0x01, 0x00, 0x5e, 0x01, 3, 4}},
		{"ff02::1", {0x33, 0x33, 0, 0, 0, 1}},
		{"ff15::1234:5678", {0x33, 0x33, 0x12, 0x34, 0x56, 0x78}},
		{"ff02::1:ff00:a1b2", {0x33, 0x33, 0xff, 0, 0xa1, 0xb2}},
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct in6_addr group = addr_of(cases[i].group);
		uint8_t mac[NET_MAC_LEN];

		net_multicast_mac(&group, mac);
		assert_memory_equal(mac, cases[i].mac, NET_MAC_LEN);
	}
}

static void before_the_start_nothing_is_known(void **state)
{
	struct in6_addr a = addr_of("10.0.0.1");
	struct net_route_query q = {.dst = a};
	struct net_route route;
	struct net_neigh neigh;
	struct net_link link;
	struct net_link_walk links = {.num = 0};

	(void)state;
	assert_int_equal(net_fd(), -1);
	assert_int_equal(net_link_get(1, &link), -ENODEV);
	assert_int_equal(net_link_next(&links), 0);
	assert_int_equal(net_addr_list(0, NULL, 0), 0);
	assert_int_equal(net_neigh_get(1, &a, &neigh), -ENOENT);
	assert_int_equal(net_route_get(&q, &route), -ENETDOWN);
	assert_false(net_addr_is_local(&a, 0));
	net_neigh_confirm(1, &a);
	net_process();
	net_stop();
}

/* A message under construction, as the kernel would send it. */
struct message {
	_Alignas(8) uint8_t bytes[512];
};

static struct nlmsghdr *message(struct message *m, int type, const void *body, size_t len)
{
	struct nlmsghdr *h;

	*m = (struct message){0};
	h = (struct nlmsghdr *)m->bytes;
	h->nlmsg_type = (uint16_t)type;
	h->nlmsg_len = (uint32_t)NLMSG_LENGTH(len);
	memcpy(NLMSG_DATA(h), body, len);
	return h;
}

static void put(struct nlmsghdr *h, int type, const void *data, size_t len)
{
	struct nlattr *a = (struct nlattr *)((uint8_t *)h + NLMSG_ALIGN(h->nlmsg_len));

	a->nla_type = (uint16_t)type;
	a->nla_len = (uint16_t)(NLA_HDRLEN + len);
	memcpy((uint8_t *)a + NLA_HDRLEN, data, len);
	h->nlmsg_len = (uint32_t)(NLMSG_ALIGN(h->nlmsg_len) + NLA_ALIGN(a->nla_len));
}

static struct nlmsghdr *neigh_message(struct message *m, int type, uint16_t nud, uint8_t flags,
				      const char *addr, const uint8_t *mac, size_t mac_len)
{
	struct in6_addr a = addr_of(addr);
	bool v4 = IN6_IS_ADDR_V4MAPPED(&a);
	struct ndmsg nd = {.ndm_family = v4 ? AF_INET : AF_INET6,
			   .ndm_ifindex = 77,
			   .ndm_state = nud,
			   .ndm_flags = flags};
	struct nlmsghdr *h = message(m, type, &nd, sizeof(nd));

	put(h, NDA_DST, v4 ? &a.s6_addr[12] : a.s6_addr, v4 ? 4 : 16);
	if (mac)
		put(h, NDA_LLADDR, mac, mac_len);
	return h;
}

static void only_neighbours_that_can_be_sent_to_are_usable(void **state)
{
	static const uint8_t mac[20] = {2, 0, 0, 0, 0, 9};
	static const struct {
		uint16_t nud;
		uint8_t flags;
		size_t mac_len;
		bool usable, stale;
	} cases[] = {
		{NUD_PERMANENT, 0, 6, true, false},
		{NUD_REACHABLE, 0, 6, true, false},
		{NUD_STALE, 0, 6, true, true},
		{NUD_DELAY, 0, 6, true, false},
		{NUD_PROBE, 0, 6, true, false},
		{NUD_NOARP, 0, 6, true, false},
		{NUD_INCOMPLETE, 0, 6, false, false},
		{NUD_FAILED, 0, 6, false, false},
		{NUD_NONE, 0, 6, false, false},
		{NUD_REACHABLE, 0, 0, false, false}, /* no address */
		{NUD_REACHABLE, 0, 20, false, false}, /* InfiniBand */
		{NUD_PERMANENT, NTF_PROXY, 6, false, false},
	};
	static const char *const addrs[] = {"10.1.2.3", "fd00::3"};
	struct net_neigh n;
	struct message m;

	(void)state;
	net_table_seed();
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		for (unsigned f = 0; f < 2; f++) {
			struct in6_addr a = addr_of(addrs[f]);
			uint32_t gen = net_neigh_generation();

			neigh_input(neigh_message(&m, RTM_NEWNEIGH, cases[i].nud, cases[i].flags,
						  addrs[f], cases[i].mac_len ? mac : NULL,
						  cases[i].mac_len),
				    1);
			assert_int_equal(net_neigh_get(77, &a, &n), cases[i].usable ? 0 : -ENOENT);
			assert_int_equal(net_neigh_generation() - gen, cases[i].usable);
			if (cases[i].usable) {
				assert_memory_equal(n.mac, mac, NET_MAC_LEN);
				assert_int_equal(n.stale, cases[i].stale);
			}
			neigh_input(
				neigh_message(&m, RTM_DELNEIGH, cases[i].nud, 0, addrs[f], NULL, 0),
				1);
			assert_int_equal(net_neigh_get(77, &a, &n), -ENOENT);
		}
}

static void a_mac_validity_and_going_stale_bump_the_neighbour_generation(void **state)
{
	static const uint8_t one[] = {2, 0, 0, 0, 0, 1}, two[] = {2, 0, 0, 0, 0, 2};
	static const struct {
		int type;
		uint16_t nud;
		const uint8_t *mac;
		unsigned bumps;
	} steps[] = {
		{RTM_NEWNEIGH, NUD_INCOMPLETE, NULL, 0}, {RTM_NEWNEIGH, NUD_REACHABLE, one, 1},
		{RTM_NEWNEIGH, NUD_STALE, one, 1},	 {RTM_NEWNEIGH, NUD_STALE, one, 0},
		{RTM_NEWNEIGH, NUD_DELAY, one, 0},	 {RTM_NEWNEIGH, NUD_PROBE, one, 0},
		{RTM_NEWNEIGH, NUD_REACHABLE, one, 0},	 {RTM_NEWNEIGH, NUD_STALE, two, 1},
		{RTM_NEWNEIGH, NUD_FAILED, NULL, 1},	 {RTM_NEWNEIGH, NUD_FAILED, NULL, 0},
		{RTM_NEWNEIGH, NUD_PERMANENT, two, 1},	 {RTM_DELNEIGH, NUD_PERMANENT, two, 1},
		{RTM_DELNEIGH, NUD_PERMANENT, two, 0},
	};
	struct message m;

	(void)state;
	for (unsigned i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		uint32_t before = net_neigh_generation(), other = net_generation();

		neigh_input(neigh_message(&m, steps[i].type, steps[i].nud, 0, "10.5.0.1",
					  steps[i].mac, 6),
			    1);
		assert_int_equal(net_neigh_generation() - before, steps[i].bumps);
		assert_int_equal(net_generation(), other);
	}
}

static struct nlmsghdr *addr_message(struct message *m, int type, const char *local,
				     const char *peer, const char *broadcast, uint8_t prefix_len,
				     uint32_t flags)
{
	struct in6_addr a = addr_of(local), p = addr_of(peer), b;
	bool v4 = IN6_IS_ADDR_V4MAPPED(&a);
	struct ifaddrmsg ifa = {.ifa_family = v4 ? AF_INET : AF_INET6,
				.ifa_index = 78,
				.ifa_prefixlen = prefix_len};
	struct nlmsghdr *h = message(m, type, &ifa, sizeof(ifa));

	put(h, IFA_LOCAL, v4 ? &a.s6_addr[12] : a.s6_addr, v4 ? 4 : 16);
	put(h, IFA_ADDRESS, v4 ? &p.s6_addr[12] : p.s6_addr, v4 ? 4 : 16);
	put(h, IFA_FLAGS, &flags, 4);
	if (broadcast) {
		b = addr_of(broadcast);
		put(h, IFA_BROADCAST, &b.s6_addr[12], 4);
	}
	return h;
}

static bool is_local(const char *text)
{
	struct in6_addr a = addr_of(text);

	return net_addr_is_local(&a, 0);
}

static bool is_broadcast(const char *text)
{
	struct in6_addr a = addr_of(text);

	return net_addr_is_broadcast(&a);
}

static void the_peer_of_a_point_to_point_link_is_not_local(void **state)
{
	struct message m;

	(void)state;
	addr_input(addr_message(&m, RTM_NEWADDR, "10.6.0.1", "10.7.0.1", NULL, 24, 0), 1);
	assert_true(is_local("10.6.0.1"));
	assert_false(is_local("10.7.0.1"));
	assert_true(is_broadcast("10.7.0.255"));
	addr_input(addr_message(&m, RTM_DELADDR, "10.6.0.1", "10.7.0.1", NULL, 24, 0), 1);
	assert_false(is_local("10.6.0.1"));
	assert_false(is_broadcast("10.7.0.255"));
}

static void tentative_addresses_count_once_they_are_not(void **state)
{
	static const struct {
		uint32_t flags;
		bool local;
	} steps[] = {
		{IFA_F_TENTATIVE, false}, {IFA_F_TENTATIVE | IFA_F_OPTIMISTIC, true},
		{IFA_F_PERMANENT, true},  {IFA_F_DADFAILED, false},
		{IFA_F_DEPRECATED, true},
	};
	struct message m;

	(void)state;
	for (unsigned i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		addr_input(addr_message(&m, RTM_NEWADDR, "fd06::1", "fd06::1", NULL, 64,
					steps[i].flags),
			   1);
		assert_int_equal(is_local("fd06::1"), steps[i].local);
		assert_int_equal(net_addr_list(78, NULL, 0), steps[i].local);
	}
	addr_input(addr_message(&m, RTM_DELADDR, "fd06::1", "fd06::1", NULL, 64, 0), 1);
	assert_false(is_local("fd06::1"));
}

static void a_prefix_of_no_length_has_the_broadcast_of_all(void **state)
{
	struct message m;

	(void)state;
	addr_input(addr_message(&m, RTM_NEWADDR, "10.8.0.1", "10.8.0.1", "10.8.0.77", 0, 0), 1);
	assert_true(is_broadcast("10.8.0.77"));
	assert_true(is_broadcast("255.255.255.255"));
	addr_link_gone(78);
	assert_false(is_broadcast("10.8.0.77"));
	assert_false(is_local("10.8.0.1"));
}

/* A scan of a wireless interface is told so (wireless_send_event()). */
static void an_event_with_the_name_alone_changes_no_interface(void **state)
{
	static const uint8_t mac[] = {2, 0, 0, 0, 0, 7}, event[8] = {0};
	const struct ifinfomsg ifi = {.ifi_family = AF_UNSPEC,
				      .ifi_type = ARPHRD_ETHER,
				      .ifi_index = 79,
				      .ifi_flags = IFF_UP | IFF_RUNNING};
	uint32_t mtu = 1500;
	struct net_link was, is;
	struct message m;
	struct nlmsghdr *h = message(&m, RTM_NEWLINK, &ifi, sizeof(ifi));

	(void)state;
	put(h, IFLA_IFNAME, "wlan7", 6);
	put(h, IFLA_MTU, &mtu, sizeof(mtu));
	put(h, IFLA_ADDRESS, mac, sizeof(mac));
	link_input(h, 1);
	assert_int_equal(net_link_get(79, &was), 0);
	assert_int_equal(was.mtu, 1500);
	h = message(&m, RTM_NEWLINK, &ifi, sizeof(ifi));
	put(h, IFLA_IFNAME, "wlan7", 6);
	put(h, IFLA_WIRELESS, event, sizeof(event));
	link_input(h, 1);
	h = message(&m, RTM_NEWLINK, &ifi, sizeof(ifi));
	link_input(h, 1);
	assert_int_equal(net_link_get(79, &is), 0);
	assert_memory_equal(&was, &is, sizeof(is));
	h->nlmsg_type = RTM_DELLINK;
	link_input(h, 1);
	assert_int_equal(net_link_get(79, &is), -ENODEV);
}

/* The kernel's word that the interfaces 100 to 100 + n - 1 are there, or gone, in no order. */
static void tell_links(int type, int n)
{
	const uint32_t mtu = 1500;

	for (int i = 0; i < n; i++) {
		const struct ifinfomsg ifi = {.ifi_family = AF_UNSPEC,
					      .ifi_type = ARPHRD_NONE,
					      .ifi_index = 100 + i * 7 % n};
		struct message m;
		struct nlmsghdr *h = message(&m, type, &ifi, sizeof(ifi));

		put(h, IFLA_MTU, &mtu, sizeof(mtu));
		link_input(h, 1);
	}
}

static void a_walk_comes_to_each_link_once_and_in_order(void **state)
{
	/* tell_links() wants no multiple of 7. */
	static const int numbers[] = {1, 62, 64, 65, 2 * 64, 200};

	(void)state;
	for (unsigned i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		struct net_link_walk links = {.num = 0};
		int n = numbers[i];

		tell_links(RTM_NEWLINK, n);
		for (int k = 0; k < n; k++)
			assert_int_equal(net_link_next(&links), 100 + k);
		assert_int_equal(net_link_next(&links), 0);
		tell_links(RTM_DELLINK, n);
	}
}

static void malformed_messages_change_nothing(void **state)
{
	uint32_t gen = net_generation(), neigh_gen = net_neigh_generation();
	static const uint8_t mac[] = {2, 0, 0, 0, 0, 1};
	static const int no_interfaces[] = {0, -1, INT_MIN};
	struct message m;
	struct nlmsghdr *h;

	(void)state;
	/* Cut off anywhere. */
	for (uint32_t len = 0; len < sizeof(struct nlmsghdr) + sizeof(struct ndmsg); len++) {
		h = neigh_message(&m, RTM_NEWNEIGH, NUD_REACHABLE, 0, "10.9.0.1", mac, 6);
		h->nlmsg_len = len;
		neigh_input(h, 1);
		h->nlmsg_type = RTM_NEWLINK;
		link_input(h, 1);
		h->nlmsg_type = RTM_NEWADDR;
		h->nlmsg_len = len < sizeof(struct nlmsghdr) + sizeof(struct ifaddrmsg) ? len : 0;
		addr_input(h, 1);
	}
	/* An address of the other family's length. */
	h = neigh_message(&m, RTM_NEWNEIGH, NUD_REACHABLE, 0, "fd00::9", mac, 6);
	((struct ndmsg *)NLMSG_DATA(h))->ndm_family = AF_INET;
	neigh_input(h, 1);
	/* Interfaces that cannot be. */
	for (unsigned i = 0; i < sizeof(no_interfaces) / sizeof(no_interfaces[0]); i++) {
		h = neigh_message(&m, RTM_NEWNEIGH, NUD_REACHABLE, 0, "10.9.0.1", mac, 6);
		((struct ndmsg *)NLMSG_DATA(h))->ndm_ifindex = no_interfaces[i];
		neigh_input(h, 1);
		h = addr_message(&m, RTM_NEWADDR, "10.9.0.2", "10.9.0.2", NULL, 24, 0);
		((struct ifaddrmsg *)NLMSG_DATA(h))->ifa_index = (uint32_t)no_interfaces[i];
		addr_input(h, 1);
		assert_false(is_local("10.9.0.2"));
	}
	assert_int_equal(net_generation(), gen);
	assert_int_equal(net_neigh_generation(), neigh_gen);
}

static void an_answer_becomes_a_route(void **state)
{
	static const struct {
		uint8_t rtm_type;
		enum net_route_type type;
		int err;
	} cases[] = {
		{RTN_UNICAST, NET_ROUTE_UNICAST, 0},
		{RTN_LOCAL, NET_ROUTE_LOCAL, 0},
		{RTN_ANYCAST, NET_ROUTE_LOCAL, 0},
		{RTN_BROADCAST, NET_ROUTE_BROADCAST, 0},
		{RTN_MULTICAST, NET_ROUTE_MULTICAST, 0},
		{RTN_BLACKHOLE, NET_ROUTE_UNREACHABLE, -EINVAL},
		{RTN_PROHIBIT, NET_ROUTE_UNREACHABLE, -EACCES},
		{RTN_UNREACHABLE, NET_ROUTE_UNREACHABLE, -EHOSTUNREACH},
		{RTN_THROW, NET_ROUTE_UNREACHABLE, -ENETUNREACH},
		{200, NET_ROUTE_UNREACHABLE, -ENETUNREACH},
	};
	struct net_route_query q = {.dst = addr_of("10.0.0.1")};
	struct in6_addr gateway = addr_of("10.0.0.2");
	struct message m;

	(void)state;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct rtmsg rtm = {.rtm_family = AF_INET, .rtm_type = cases[i].rtm_type};
		struct nlmsghdr *h = message(&m, RTM_NEWROUTE, &rtm, sizeof(rtm));
		struct net_route r = {0};
		uint32_t oif = 5;
		int err = 1;

		put(h, RTA_OIF, &oif, 4);
		put(h, RTA_GATEWAY, &gateway.s6_addr[12], 4);
		assert_true(route_parse(h, &q, &r, &err));
		assert_int_equal(r.type, cases[i].type);
		assert_int_equal(err, cases[i].err);
		assert_int_equal(r.oif, 5);
		assert_int_equal(IN6_ARE_ADDR_EQUAL(&r.gateway, &gateway),
				 r.type == NET_ROUTE_UNICAST);
		h->nlmsg_type = RTM_NEWLINK;
		assert_false(route_parse(h, &q, &r, &err));
	}
}

static void a_routes_metrics_are_read(void **state)
{
	struct net_route_query q = {.dst = addr_of("10.0.0.1")};
	uint32_t of[RTAX_MAX + 1] = {0};
	struct rtmsg rtm = {.rtm_family = AF_INET, .rtm_type = RTN_UNICAST};
	const struct net_metrics *m;
	struct net_route r;
	struct message msg;
	int err;

	(void)state;
	of[RTAX_MTU] = 1400;
	of[RTAX_WINDOW] = 5000;
	of[RTAX_ADVMSS] = 700;
	of[RTAX_INITCWND] = 3;
	of[RTAX_INITRWND] = 4;
	of[RTAX_QUICKACK] = 1;
	of[RTAX_RTO_MIN] = 60;
	for (unsigned locked = 0; locked < 2; locked++) {
		struct nlmsghdr *h = message(&msg, RTM_NEWROUTE, &rtm, sizeof(rtm));
		uint8_t nest[256];
		size_t n = 0;

		of[RTAX_LOCK] = locked ? 1u << RTAX_RTO_MIN | 1u << RTAX_MTU : 0;
		for (unsigned i = 1; i <= RTAX_MAX; i++) {
			struct rtattr a = {.rta_len = RTA_LENGTH(4), .rta_type = (uint16_t)i};

			if (!of[i])
				continue;
			memcpy(nest + n, &a, sizeof(a));
			memcpy(nest + n + sizeof(a), &of[i], 4);
			n += RTA_SPACE(4);
		}
		memcpy(nest + n,
		       &(struct rtattr){.rta_len = RTA_LENGTH(6), .rta_type = RTAX_CC_ALGO},
		       sizeof(struct rtattr));
		memcpy(nest + n + sizeof(struct rtattr), "cubic\0\0", 8);
		n += RTA_SPACE(6);
		put(h, RTA_METRICS, nest, n);
		memset(&r, 0, sizeof(r));
		assert_true(route_parse(h, &q, &r, &err));
		m = &r.metrics;
		assert_int_equal(r.mtu, 1400);
		assert_int_equal(m->window, 5000);
		assert_int_equal(m->advmss, 700);
		assert_int_equal(m->initcwnd, 3);
		assert_int_equal(m->initrwnd, 4);
		assert_true(m->quickack);
		assert_string_equal(m->congctl, "cubic");
		assert_int_equal(m->mtu_locked, locked);
		assert_int_equal(m->rto_min_ms, locked ? 60 : 0);
	}
}

static int setup(void **state)
{
	(void)state;
	libc_load();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(before_the_start_nothing_is_known),
		cmocka_unit_test(a_routes_metrics_are_read),
		cmocka_unit_test(a_table_agrees_with_a_plain_array),
		cmocka_unit_test(putting_the_same_record_is_no_change_but_its_last_word_is_kept),
		cmocka_unit_test(evicting_empties_a_table_one_by_one),
		cmocka_unit_test(readers_never_see_half_a_record_nor_miss_one_that_is_there),
		cmocka_unit_test(a_reader_that_was_overtaken_looks_again_and_at_last_waits),
		cmocka_unit_test(multicast_macs_follow_the_rfcs),
		cmocka_unit_test(only_neighbours_that_can_be_sent_to_are_usable),
		cmocka_unit_test(a_mac_validity_and_going_stale_bump_the_neighbour_generation),
		cmocka_unit_test(the_peer_of_a_point_to_point_link_is_not_local),
		cmocka_unit_test(tentative_addresses_count_once_they_are_not),
		cmocka_unit_test(a_prefix_of_no_length_has_the_broadcast_of_all),
		cmocka_unit_test(an_event_with_the_name_alone_changes_no_interface),
		cmocka_unit_test(a_walk_comes_to_each_link_once_and_in_order),
		cmocka_unit_test(malformed_messages_change_nothing),
		cmocka_unit_test(an_answer_becomes_a_route),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
