/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Members of a port change its flow table, one instruction after the other: at each of them the
 * member is dead for a copy of this process, which makes the totals right, as who takes the port's
 * lock next does. They are then what the table holds, and so is what the steering program is told.
 * The kernel's maps are the test's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "ring/port.h"
#include "ring/ring.h"
#include "runtime/runtime.h"
#include "steps.h"

#define PORT 7000u
#define OTHER_PORT 7001u
#define INDEX (VMA_PORT_INDEX_TCP + PORT)
#define OTHER_INDEX (VMA_PORT_INDEX_TCP + OTHER_PORT)
#define OURS 3u
#define OTHERS 4u
#define FLOWS 8u

/* What all members see. */
struct shared {
	struct entry {
		bool used;
		struct vma_flow_key key;
		struct vma_flow_info info;
	} table[2][FLOWS];
	uint32_t now; /* which of the two it is: a system call changes it all at once */
	uint32_t busy;
	struct port_flows flows[VMA_PORT_INDEX_MAX];
};

static struct shared *shared;
static struct vma_port *told; /* the map that is mapped */
static struct ring_port port;

/* --- the kernel */

static struct entry *table(void)
{
	return shared->table[shared->now];
}

static int find(const void *key)
{
	for (unsigned i = 0; i < FLOWS; i++)
		if (table()[i].used && !memcmp(&table()[i].key, key, sizeof(table()[i].key)))
			return (int)i;
	return -1;
}

/* The table with one change; change_end() makes it the table. */
static struct entry *change_begin(void)
{
	struct entry *next = shared->table[!shared->now];

	memcpy(next, table(), sizeof(shared->table[0]));
	return next;
}

static int change_end(void)
{
	__atomic_store_n(&shared->now, !shared->now, __ATOMIC_RELEASE);
	return 0;
}

int bpf_map_update_elem(int fd, const void *key, const void *value, __u64 flags)
{
	struct entry *next = change_begin();
	int at = find(key);

	assert_int_equal(fd, port.fd[PORT_FLOWS]);
	if (at >= 0 && flags == BPF_NOEXIST)
		return -EEXIST;
	if (at < 0 && flags == BPF_EXIST)
		return -ENOENT;
	for (int i = 0; at < 0 && i < (int)FLOWS; i++)
		at = next[i].used ? -1 : i;
	assert_true(at >= 0);
	next[at].used = true;
	memcpy(&next[at].info, value, sizeof(next[at].info));
	memcpy(&next[at].key, key, sizeof(next[at].key));
	return change_end();
}

int bpf_map_lookup_elem(int fd, const void *key, void *value)
{
	int at = find(key);

	assert_int_equal(fd, port.fd[PORT_FLOWS]);
	if (at < 0)
		return -ENOENT;
	memcpy(value, &table()[at].info, sizeof(table()[at].info));
	return 0;
}

int bpf_map_delete_elem(int fd, const void *key)
{
	int at = find(key);

	assert_int_equal(fd, port.fd[PORT_FLOWS]);
	if (at < 0)
		return -ENOENT;
	change_begin()[at].used = false;
	return change_end();
}

int bpf_map_lookup_and_delete_elem(int fd, const void *key, void *value)
{
	int err = bpf_map_lookup_elem(fd, key, value);

	return err ? err : bpf_map_delete_elem(fd, key);
}

int bpf_map_get_next_key(int fd, const void *key, void *next)
{
	unsigned i = key ? (unsigned)(find(key) + 1) : 0;

	assert_int_equal(fd, port.fd[PORT_FLOWS]);
	while (i < FLOWS && !table()[i].used)
		i++;
	if (i == FLOWS)
		return -ENOENT;
	memcpy(next, &table()[i].key, sizeof(table()[i].key));
	return 0;
}

/* --- what a member does */

/* Of a connection from that port of 10.0.0.2, or (0) of a listener. */
static struct vma_flow_key tcp(uint16_t local_port, uint16_t remote_port)
{
	struct vma_flow_key k = {.local_port = local_port, .proto = IPPROTO_TCP};
	uint32_t local = htonl(0x0a000001), remote = htonl(0x0a000002);

	k.local.byte[10] = k.local.byte[11] = 0xff;
	memcpy(&k.local.byte[12], &local, sizeof(local));
	if (!remote_port)
		return k;
	k.remote_port = remote_port;
	k.remote.byte[10] = k.remote.byte[11] = 0xff;
	memcpy(&k.remote.byte[12], &remote, sizeof(remote));
	return k;
}

static void add(unsigned ring, struct vma_flow_key key)
{
	const struct vma_flow_info info = {
		.pid = 1, .fd = 5, .flags = key.remote_port ? 0 : VMA_FLOW_JOINT};

	assert_int_equal(port_flow_add(&port, ring, &key, &info), 0);
}

static void del(unsigned ring, struct vma_flow_key key)
{
	assert_int_equal(port_flow_del(&port, ring, &key), 0);
}

static void first_connection(void)
{
	add(OURS, tcp(PORT, 1));
}

static void second_connection(void)
{
	add(OURS, tcp(PORT, 2));
}

static void last_connection_ends(void)
{
	del(OURS, tcp(PORT, 1));
}

static void listens(void)
{
	add(OURS, tcp(PORT, 0));
}

static void listens_no_more(void)
{
	del(OURS, tcp(PORT, 0));
}

/* As when its process has ended: all flows of its ring. */
static void all_end(void)
{
	port_flows_drop(&port, OURS);
}

static void nothing(void)
{
}

static void two_connections(void)
{
	add(OURS, tcp(PORT, 1));
	add(OTHERS, tcp(PORT, 2));
}

static void anothers_listener(void)
{
	add(OTHERS, tcp(PORT, 0));
}

static void two_listeners(void)
{
	add(OURS, tcp(PORT, 0));
	add(OTHERS, tcp(PORT, 0));
}

static void all_of_it(void)
{
	two_listeners();
	two_connections();
	add(OURS, tcp(PORT, 3));
}

static const struct act {
	const char *name;
	void (*before)(void), (*does)(void);
} acts[] = {
	{"the first connection of a port", nothing, first_connection},
	{"a second one", first_connection, second_connection},
	{"the last one ends", first_connection, last_connection_ends},
	{"one of two ends", two_connections, last_connection_ends},
	{"a listener", first_connection, listens},
	{"a listener beside another's", anothers_listener, listens},
	{"a listener ends", two_listeners, listens_no_more},
	{"all flows of a ring end", all_of_it, all_end},
};

/* --- what the others find */

static void count(const struct vma_flow_key *k, const struct vma_flow_info *i,
		  struct port_flows *to)
{
	uint32_t local, remote;

	memcpy(&local, &k->local.byte[12], sizeof(local));
	memcpy(&remote, &k->remote.byte[12], sizeof(remote));
	to->num_exact += k->remote_port != 0;
	to->num_3tuple += k->remote_port == 0;
	to->num_spread += i->num_rings > 1;
	to->num_v4++;
	to->local ^= local;
	to->remote ^= remote;
	to->remote_port ^= k->remote_port;
	to->ring ^= i->ring[0];
}

/* Nothing that the program is told may keep a packet from its flow, or take the kernel's. */
static bool is_told(const struct port_flows *is)
{
	const struct vma_port *p = &told[INDEX];
	uint32_t kinds = (is->num_exact ? VMA_PORT_EXACT : 0) |
			 (is->num_3tuple ? VMA_PORT_3TUPLE | VMA_PORT_KERNEL : 0);

	if ((p->flags & ~VMA_PORT_SOLE4) != kinds)
		return false;
	if (!(p->flags & VMA_PORT_SOLE4))
		return true;
	return is->num_v4 == 1 && !is->num_spread && p->local == is->local &&
	       p->remote == is->remote && p->remote_port == is->remote_port && p->ring == is->ring;
}

static bool are_same(const struct port_flows *a, const struct port_flows *b)
{
	return !memcmp(a, b, offsetof(struct port_flows, quiet)) && a->quiet == b->quiet;
}

/* Another port's, which nothing here may change. */
static struct {
	struct port_flows flows;
	struct vma_port told;
} others;

static bool is_right(void)
{
	struct port_flows is = {0}, *have = &shared->flows[INDEX];

	for (unsigned i = 0; i < FLOWS; i++)
		if (table()[i].used && table()[i].key.local_port == PORT)
			count(&table()[i].key, &table()[i].info, &is);
	return are_same(have, &is) && is_told(&is) &&
	       are_same(&shared->flows[OTHER_INDEX], &others.flows) &&
	       !memcmp(&told[OTHER_INDEX], &others.told, sizeof(others.told));
}

/* What changes; the rest of the totals is other ports'. */
struct copy {
	struct entry table[2][FLOWS];
	uint32_t now, busy;
	struct port_flows flows;
	struct vma_port told;
};

/* False: nothing has been written since, but where the kernel makes the next table. */
static bool copy_now(struct copy *is)
{
	if (is->now == shared->now && is->busy == shared->busy &&
	    are_same(&is->flows, &shared->flows[INDEX]) &&
	    !memcmp(&is->told, &told[INDEX], sizeof(is->told)))
		return false;
	memcpy(is->table, shared->table, sizeof(is->table));
	is->now = shared->now;
	is->busy = shared->busy;
	is->flows = shared->flows[INDEX];
	is->told = told[INDEX];
	return true;
}

static void copy_back(const struct copy *is)
{
	memcpy(shared->table, is->table, sizeof(is->table));
	shared->now = is->now;
	shared->busy = is->busy;
	shared->flows[INDEX] = is->flows;
	shared->flows[OTHER_INDEX] = others.flows;
	told[INDEX] = is->told;
	told[OTHER_INDEX] = others.told;
}

/* True: with the member dead here, the one that comes next makes it right. */
static bool survives(const struct copy *is)
{
	int status = -1;
	pid_t survivor = fork();

	if (!survivor) {
		signal(SIGSEGV, SIG_DFL); /* not cmocka's */
		port_flows_recount(&port);
		if (!is_right() || shared->busy)
			_exit(1);
		/* And the table goes on: its flows, and one more, end. */
		port_flows_drop(&port, OURS);
		port_flows_drop(&port, OTHERS);
		_exit(is_told(&(struct port_flows){0}) ? 0 : 1);
	}
	waitpid(survivor, &status, 0);
	copy_back(is);
	return status == 0;
}

static void port_setup(void)
{
	int fd = memfd_create("ports", 0);
	size_t bytes = VMA_PORT_INDEX_MAX * sizeof(struct vma_port);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	told = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(told, MAP_FAILED);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	assert_ptr_not_equal(shared, MAP_FAILED);
	port = (struct ring_port){.flows = shared->flows, .flow_busy = &shared->busy};
	port.fd[PORT_FLOWS] = 1000;
	port.fd[PORT_PORTS] = fd;
	add(OTHERS, tcp(OTHER_PORT, 1));
	others.flows = shared->flows[OTHER_INDEX];
	others.told = told[OTHER_INDEX];
}

static void port_teardown(void)
{
	port_flows_unmap(&port);
	munmap(shared, sizeof(*shared));
	munmap(told, VMA_PORT_INDEX_MAX * sizeof(struct vma_port));
	close(port.fd[PORT_PORTS]);
}

static void act_by_steps(const struct act *a)
{
	struct copy is = {.now = 2};
	unsigned steps = 0, states = 0;
	pid_t pid;

	a->before();
	assert_true(is_right());
	pid = fork();
	if (!pid) {
		traced_begin();
		a->does();
		traced_end();
	}
	steps_begin(pid);
	do {
		bool differs = copy_now(&is);

		if (differs && !survives(&is)) {
			kill(pid, SIGKILL);
			fail_msg("%s: killed at step %u", a->name, steps);
		}
		states += differs;
		steps++;
	} while (step(pid, 1));
	assert_true(is_right());
	print_message("%s: killed at %u places, in %u states\n", a->name, steps, states);
	steps_end(pid);
	assert_true(states > 3);
}

static void test_killed_at_each_instruction(void **state)
{
	cpu_set_t before = stay_here();

	(void)state;
	for (unsigned i = 0; i < sizeof(acts) / sizeof(acts[0]); i++) {
		port_setup();
		act_by_steps(&acts[i]);
		port_teardown();
	}
	assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_killed_at_each_instruction),
	};

	libc_load();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
