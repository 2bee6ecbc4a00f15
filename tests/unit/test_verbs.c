/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the mlx5 ring asks of rdma-core: the functions that it loads, and the steering rules as
 * bytes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <errno.h>
#include <ftw.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ring/mlx5/device.h"
#include "ring/mlx5/ibv.h"
#include "ring/mlx5/mlx5.h"
#include "ring/mlx5/rule.h"
#include "runtime/libc.h"

static const uint8_t mac[6] = {0x02, 1, 2, 3, 4, 5};

static void key_set(struct vma_flow_key *k, const char *local, uint16_t lport, const char *remote,
		    uint16_t rport, uint8_t proto)
{
	memset(k, 0, sizeof(*k));
	assert_int_equal(inet_pton(AF_INET6, local, &k->local), 1);
	assert_int_equal(inet_pton(AF_INET6, remote, &k->remote), 1);
	k->local_port = lport;
	k->remote_port = rport;
	k->proto = proto;
}

static void rdma_core_has_every_function(void **state)
{
	(void)state;
	assert_int_equal(ibv_load(), 0);
	assert_int_equal(ibv_load(), 0);
	assert_non_null(ibv.ibv_create_qp);
	assert_non_null(ibv.mlx5dv_init_obj);
}

static void an_interface_without_such_a_device_has_no_such_ring(void **state)
{
	struct ring *r = NULL;

	(void)state;
	libc_load();
	assert_int_equal(mlx5_ring_open((int)if_nametoindex("lo"), &r), -EOPNOTSUPP);
	assert_null(r);
}

static char sys[sizeof("/tmp/test_verbs.XXXXXX")];

/* A path below sys. */
static const char *at(const char *path)
{
	static char whole[128];

	snprintf(whole, sizeof(whole), "%s/%s", sys, path);
	return whole;
}

static void file(const char *path, const char *text)
{
	FILE *f = fopen(at(path), "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

/*
 * Two interfaces and a bond of each: card is an mlx5's, other has RDMA by another driver, soft has
 * no driver.
 */
static int make_sys(void **state)
{
	static const char *const dirs[] = {"class",
					   "class/net",
					   "class/net/card",
					   "class/net/card/device",
					   "class/net/card/device/infiniband",
					   "class/net/card/device/infiniband/mlx5_2",
					   "class/net/other",
					   "class/net/other/device",
					   "class/net/other/device/infiniband",
					   "class/net/other/device/infiniband/irdma0",
					   "class/net/soft",
					   "class/net/soft/device",
					   "class/net/soft/device/infiniband",
					   "class/net/soft/device/infiniband/mlx5_9",
					   "class/net/rep",
					   "class/net/rep/device",
					   "class/net/rep/device/infiniband",
					   "class/net/rep/device/infiniband/mlx5_2",
					   "class/net/sf",
					   "class/net/up",
					   "class/net/bond0",
					   "class/net/bond0/bonding",
					   "class/net/bond1",
					   "class/net/bond1/bonding"};

	(void)state;
	libc_load();
	strcpy(sys, "/tmp/test_verbs.XXXXXX");
	assert_non_null(mkdtemp(sys));
	for (unsigned i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++)
		assert_int_equal(mkdir(at(dirs[i]), 0700), 0);
	assert_int_equal(
		symlink("../../../bus/pci/drivers/mlx5_core", at("class/net/card/device/driver")),
		0);
	assert_int_equal(
		symlink("../../../bus/pci/drivers/ice", at("class/net/other/device/driver")), 0);
	file("class/net/card/dev_port", "1\n");
	file("class/net/card/phys_port_name", "p1\n"); /* and no switch */
	file("class/net/rep/phys_switch_id", "8e0f2a\n");
	file("class/net/rep/phys_port_name", "pf0vf3\n");
	file("class/net/sf/phys_switch_id", "8e0f2a\n");
	file("class/net/sf/phys_port_name", "c1pf0sf12\n");
	file("class/net/up/phys_switch_id", "8e0f2a\n");
	file("class/net/up/phys_port_name", "p0\n");
	file("class/net/bond0/bonding/slaves", "other card\n");
	file("class/net/bond1/bonding/slaves", "other lo\n");
	return 0;
}

static int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st;
	(void)flag;
	(void)ftw;
	return remove(path);
}

static int remove_sys(void **state)
{
	(void)state;
	return nftw(sys, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static void only_devices_of_its_driver_are_asked(void **state)
{
	char name[64];

	(void)state;
	assert_true(device_name(sys, "card", name, sizeof(name)));
	assert_string_equal(name, "mlx5_2");
	assert_int_equal(device_port(sys, "card"), 2);
	assert_int_equal(device_port(sys, "other"), 1);
	assert_false(device_name(sys, "other", name, sizeof(name)));
	assert_true(device_name(sys, "soft", name, sizeof(name)));
	assert_false(device_name(sys, "lo", name, sizeof(name)));
	assert_true(device_in_bond(sys, "bond0"));
	assert_false(device_in_bond(sys, "bond1"));
	assert_false(device_in_bond(sys, "card"));
}

static void a_representor_is_not_its_uplink(void **state)
{
	char name[64];

	(void)state;
	/* It has the uplink's RDMA device, and would be taken for it. */
	assert_true(device_name(sys, "rep", name, sizeof(name)));
	assert_true(device_is_representor(sys, "rep"));
	assert_true(device_is_representor(sys, "sf"));
	assert_false(device_is_representor(sys, "up"));
	assert_false(device_is_representor(sys, "card"));
	assert_false(device_is_representor(sys, "soft"));
}

static void each_ring_has_another_completion_vector(void **state)
{
	(void)state;
	for (int vectors = 1; vectors < 10; vectors++) {
		unsigned taken[10] = {0};

		for (int i = 0; i < 5 * vectors; i++)
			taken[device_vector(vectors)]++;
		for (int i = 0; i < vectors; i++)
			assert_int_equal(taken[i], 5);
	}
	assert_int_equal(device_vector(0), 0);
}

static void a_rule_of_a_connection(void **state)
{
	static const uint8_t golden[] = {
		/* Ethernet, 40 bytes: to our MAC, IPv4. */
		0x20,
		0,
		0,
		0,
		40,
		0,
		0x02,
		1,
		2,
		3,
		4,
		5,
		0,
		0,
		0,
		0,
		0,
		0,
		0x08,
		0x00,
		0,
		0,
		0xff,
		0xff,
		0xff,
		0xff,
		0xff,
		0xff,
		0,
		0,
		0,
		0,
		0,
		0,
		0xff,
		0xff,
		0,
		0,
		0,
		0,
		/* IPv4, 24 bytes: from, to. */
		0x30,
		0,
		0,
		0,
		24,
		0,
		0,
		0,
		10,
		0,
		0,
		2,
		10,
		0,
		0,
		1,
		0xff,
		0xff,
		0xff,
		0xff,
		0xff,
		0xff,
		0xff,
		0xff,
		/* TCP, 16 bytes: to 80, from 4660. */
		0x40,
		0,
		0,
		0,
		16,
		0,
		0,
		80,
		0x12,
		0x34,
		0xff,
		0xff,
		0xff,
		0xff,
		0,
		0,
	};
	struct vma_flow_key key;
	struct mlx5_rule r;

	(void)state;
	key_set(&key, "::ffff:10.0.0.1", 80, "::ffff:10.0.0.2", 0x1234, IPPROTO_TCP);
	rule_make(&r, &key, mac, 2, 0);
	assert_int_equal(r.attr.type, IBV_FLOW_ATTR_NORMAL);
	assert_int_equal(r.attr.port, 2);
	assert_int_equal(r.attr.priority, 0);
	assert_int_equal(r.attr.num_of_specs, 3);
	assert_int_equal(r.attr.size, sizeof(r.attr) + sizeof(golden));
	/* The specifications stand directly behind the attributes. */
	assert_int_equal(offsetof(struct mlx5_rule, specs), sizeof(r.attr));
	assert_memory_equal(r.specs, golden, sizeof(golden));
}

static void a_rule_on_a_vlan_wants_its_tag(void **state)
{
	struct ibv_flow_spec_eth eth;
	struct vma_flow_key key;
	struct mlx5_rule r;

	(void)state;
	key_set(&key, "::ffff:10.0.0.1", 53, "::", 0, IPPROTO_UDP);
	rule_make(&r, &key, mac, 1, 0x123);
	memcpy(&eth, r.specs, sizeof(eth));
	assert_int_equal(eth.val.vlan_tag, htons(0x123));
	assert_int_equal(eth.mask.vlan_tag, htons(0xfff));
	assert_int_equal(eth.val.ether_type, htons(0x0800));
}

static void a_rule_of_any_peer_goes_behind(void **state)
{
	struct ibv_flow_spec_ipv4 ip;
	struct ibv_flow_spec_tcp_udp l4;
	struct vma_flow_key key;
	struct mlx5_rule r;

	(void)state;
	key_set(&key, "::ffff:10.0.0.1", 53, "::", 0, IPPROTO_UDP);
	rule_make(&r, &key, mac, 1, 0);
	assert_int_equal(r.attr.priority, 1);
	memcpy(&ip, r.specs + 40, sizeof(ip));
	memcpy(&l4, r.specs + 64, sizeof(l4));
	assert_int_equal(ip.mask.src_ip, 0);
	assert_int_equal(ip.mask.dst_ip, 0xffffffff);
	assert_int_equal(l4.type, IBV_FLOW_SPEC_UDP);
	assert_int_equal(l4.val.dst_port, htons(53));
	assert_int_equal(l4.mask.src_port, 0);
}

/* Without the group bit, which has no part in the match. */
static void group_mac_check(const struct ibv_flow_spec_eth *eth, const uint8_t group[6])
{
	assert_int_equal(eth->val.dst_mac[0], group[0] & 0xfe);
	assert_int_equal(eth->mask.dst_mac[0], 0xfe);
	assert_memory_equal(eth->val.dst_mac + 1, group + 1, 5);
	for (unsigned i = 1; i < 6; i++)
		assert_int_equal(eth->mask.dst_mac[i], 0xff);
}

/* The priority that the kernel's driver gives the rule (mlx5_ib, flow_is_multicast_only()). */
static int kernel_priority(const struct mlx5_rule *r)
{
	struct ibv_flow_spec_eth eth;

	memcpy(&eth, r->specs, sizeof(eth));
	return eth.mask.dst_mac[0] & eth.val.dst_mac[0] & 1 ? 99 : r->attr.priority;
}

static void rules_of_groups_keep_their_order(void **state)
{
	static const char *const groups[] = {"::ffff:239.129.2.3", "ff02::1234"},
				 *const peers[] = {"::ffff:10.0.0.2", "fd00::2"};
	struct vma_flow_key exact, any, all;
	struct mlx5_rule r[3];

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		key_set(&exact, groups[i], 5000, peers[i], 7, IPPROTO_UDP);
		key_set(&any, groups[i], 5000, "::", 0, IPPROTO_UDP);
		rule_group_key(&all, &any);
		rule_make(&r[0], &exact, mac, 1, 0);
		rule_make(&r[1], &any, mac, 1, 0);
		rule_make(&r[2], &all, mac, 1, 0);
		assert_true(kernel_priority(&r[0]) < kernel_priority(&r[1]));
		assert_true(kernel_priority(&r[1]) < kernel_priority(&r[2]));
	}
}

static void rules_of_ipv6_and_of_groups(void **state)
{
	static const uint8_t mac4[6] = {0x01, 0x00, 0x5e, 0x01, 0x02, 0x03},
			     mac6[6] = {0x33, 0x33, 0, 0, 0x12, 0x34};
	struct ibv_flow_spec_eth eth;
	struct ibv_flow_spec_ipv6 ip;
	struct vma_flow_key key;
	struct mlx5_rule r;

	(void)state;
	key_set(&key, "fd00::1", 80, "fd00::2", 7, IPPROTO_TCP);
	rule_make(&r, &key, mac, 1, 0);
	memcpy(&eth, r.specs, sizeof(eth));
	memcpy(&ip, r.specs + 40, sizeof(ip));
	assert_int_equal(eth.val.ether_type, htons(0x86dd));
	assert_memory_equal(eth.val.dst_mac, mac, 6);
	assert_false(ring_flow_of_group(&key));
	assert_memory_equal(ip.val.dst_ip, &key.local, 16);
	assert_memory_equal(ip.val.src_ip, &key.remote, 16);
	assert_int_equal(ip.mask.src_ip[15], 0xff);
	assert_int_equal(r.attr.size, sizeof(r.attr) + 40 + sizeof(ip) + 16);

	key_set(&key, "::ffff:239.129.2.3", 5000, "::", 0, IPPROTO_UDP);
	rule_make(&r, &key, mac, 1, 0);
	memcpy(&eth, r.specs, sizeof(eth));
	group_mac_check(&eth, mac4);
	assert_true(ring_flow_of_group(&key));

	key_set(&key, "ff02::1234", 5000, "::", 0, IPPROTO_UDP);
	rule_make(&r, &key, mac, 1, 0);
	memcpy(&eth, r.specs, sizeof(eth));
	group_mac_check(&eth, mac6);
	assert_true(ring_flow_of_group(&key));
}

static void a_rule_of_a_block_of_ports(void **state)
{
	struct ibv_flow_spec_tcp_udp l4;
	struct vma_flow_key key;
	struct mlx5_rule r;

	(void)state;
	key_set(&key, "::ffff:10.0.0.1", 40000, "::", 0, IPPROTO_TCP);
	key.port_bits = 6;
	rule_make(&r, &key, mac, 1, 0);
	assert_int_equal(r.attr.priority, 2);
	memcpy(&l4, r.specs + 64, sizeof(l4));
	assert_int_equal(l4.val.dst_port, htons(40000));
	assert_int_equal(l4.mask.dst_port, htons(0xffc0));
	assert_int_equal(l4.mask.src_port, 0);
}

static void a_rule_of_a_groups_ethernet_address_alone(void **state)
{
	static const uint8_t mac4[6] = {0x01, 0x00, 0x5e, 0x01, 0x02, 0x03},
			     mac6[6] = {0x33, 0x33, 0, 0, 0x12, 0x34};
	struct vma_flow_key flow, key, alike;
	struct ibv_flow_spec_eth eth;
	struct mlx5_rule r;

	(void)state;
	key_set(&flow, "::ffff:239.129.2.3", 5000, "::", 0, IPPROTO_UDP);
	rule_group_key(&key, &flow);
	key_set(&flow, "::ffff:225.1.2.3", 6000, "::", 0, IPPROTO_UDP);
	rule_group_key(&alike, &flow);
	assert_memory_equal(&key, &alike, sizeof(key));
	rule_make(&r, &key, mac, 1, 0);
	assert_int_equal(r.attr.num_of_specs, 1);
	assert_int_equal(r.attr.priority, 2);
	assert_int_equal(r.attr.size, sizeof(r.attr) + sizeof(eth));
	memcpy(&eth, r.specs, sizeof(eth));
	group_mac_check(&eth, mac4);
	assert_int_equal(eth.mask.ether_type, 0);
	assert_true(ring_flow_of_group(&key));

	key_set(&flow, "ff02::7:1234", 5000, "::", 0, IPPROTO_UDP);
	rule_group_key(&key, &flow);
	key_set(&flow, "ff15::8:7:1234", 5001, "::", 0, IPPROTO_UDP);
	rule_group_key(&alike, &flow);
	assert_memory_equal(&key.local.byte[1], &alike.local.byte[1], 15);
	key_set(&flow, "ff02::1234", 5000, "::", 0, IPPROTO_UDP);
	rule_group_key(&key, &flow);
	rule_make(&r, &key, mac, 1, 0);
	memcpy(&eth, r.specs, sizeof(eth));
	group_mac_check(&eth, mac6);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rdma_core_has_every_function),
		cmocka_unit_test(an_interface_without_such_a_device_has_no_such_ring),
		cmocka_unit_test_setup_teardown(only_devices_of_its_driver_are_asked, make_sys,
						remove_sys),
		cmocka_unit_test_setup_teardown(a_representor_is_not_its_uplink, make_sys,
						remove_sys),
		cmocka_unit_test(each_ring_has_another_completion_vector),
		cmocka_unit_test(a_rule_of_a_connection),
		cmocka_unit_test(a_rule_on_a_vlan_wants_its_tag),
		cmocka_unit_test(a_rule_of_any_peer_goes_behind),
		cmocka_unit_test(rules_of_groups_keep_their_order),
		cmocka_unit_test(rules_of_ipv6_and_of_groups),
		cmocka_unit_test(a_rule_of_a_block_of_ports),
		cmocka_unit_test(a_rule_of_a_groups_ethernet_address_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
