/* SPDX-License-Identifier: GPL-2.0-only */
/* The module's nouns and their verbs; include/vma/kmod.h is what user space sees of them. */
#ifndef VMA_VMA_H
#define VMA_VMA_H

#include <linux/bits.h>
#include <linux/kobject.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mm_types.h>
#include <linux/mutex.h>
#include <linux/netfilter.h>
#include <linux/rhashtable.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <net/ipv6.h>
#include <net/sock.h>

#include "vma/kmod.h"
#include "vma/stats.h"

/* ---- area.c: memory that the kernel reads and one process has mapped */

struct vma_area {
	void *at;
	size_t bytes; /* whole pages; 0: none */
};

int vma_area_init(struct vma_area *a, size_t bytes);
void vma_area_fini(struct vma_area *a);
int vma_area_map(const struct vma_area *a, struct vm_area_struct *vma);

/* ---- ring.c: packets on their way to the process */

struct vma_ring {
	struct vma_area area;
	spinlock_t lock; /* the producer's, from softirq */
	u32 size; /* of the data, a power of two; 0: no ring */
	u32 produced; /* the truth: what stands in the area is a copy for the reader */
	u64 packets, dropped;
	wait_queue_head_t wait;
};

int vma_ring_init(struct vma_ring *r, u32 size);
void vma_ring_fini(struct vma_ring *r);
int vma_ring_put(struct vma_ring *r, u32 slot, struct sk_buff *skb);
bool vma_ring_ready(const struct vma_ring *r);

/* ---- totals.c: what the module itself counts */

enum vma_total {
	VMA_TOTAL_PROCESSES, /* now */
	VMA_TOTAL_PROCESSES_SEEN,
	VMA_TOTAL_CONNS, /* now */
	VMA_TOTAL_CONNS_SEEN,
	VMA_TOTAL_RESETS,
	VMA_TOTAL_RESETS_FAILED, /* no memory, no route */
	VMA_TOTAL_RESETS_VOID, /* not the process's any more, or not live */
	VMA_TOTAL_REGIONS, /* now */
	VMA_TOTAL_REGION_BYTES, /* now */
	VMA_TOTAL_FALLBACK_PACKETS,
	VMA_TOTAL_FALLBACK_DROPPED,
	VMA_TOTALS,
};

extern atomic64_t vma_totals[VMA_TOTALS];
extern const char *const vma_total_names[VMA_TOTALS];

static inline void vma_total_add(enum vma_total which, s64 n)
{
	atomic64_add(n, &vma_totals[which]);
}

/* ---- conn.c: flows of processes, found by their addresses */

struct vma_session;

struct vma_conn_key {
	struct vma_flow_key flow;
	struct net *net; /* lives: sk holds it */
};

/*
 * Beside VMA_KMOD_CONN_* in vma_conn.flags: who registered it had CAP_NET_RAW, by which a packet
 * socket sees what a filter drops as well.
 */
#define VMA_CONN_UNFILTERED BIT(31)

struct vma_conn {
	struct rhash_head node;
	struct vma_conn_key key;
	struct sock *sk; /* held; the proof of ownership */
	bool by_net_raw; /* registered by CAP_NET_RAW: sk need not be bound */
	u32 flags, slot;
	struct vma_session *session; /* outlives the RCU reader that found us in the table */
	u32 seq, ack; /* of the reset, once the process is dead */
	bool reset; /* send one */
	struct list_head dead;
	struct rcu_head rcu;
};

int vma_conn_init(void);
void vma_conn_exit(void);
struct vma_conn *vma_conn_add(struct sock *sk, const struct vma_flow_key *key, u32 flags,
			      bool by_net_raw, struct vma_session *session, u32 slot);
void vma_conn_unhash(struct vma_conn *c);
void vma_conn_free(struct vma_conn *c);
struct vma_conn *vma_conn_find(struct net *net, const struct vma_flow_key *key);

/* ---- owner.c: whose a flow is */

int vma_flow_check(const struct vma_flow_key *key, u32 flags);
int vma_owner_check(struct sock *sk, const struct vma_flow_key *key);
bool vma_owner_holds(const struct vma_conn *c);
int vma_owner_local(struct net *net, const struct vma_flow_key *key);
bool vma_kernel_has(struct net *net, const struct vma_flow_key *key, int ifindex);

/* IPv4 addresses are v4-mapped in a key. */
static inline bool vma_addr_is_v4(const struct vma_addr *a)
{
	return ipv6_addr_v4mapped((const struct in6_addr *)a);
}

static inline __be32 vma_addr_v4(const struct vma_addr *a)
{
	return ((const struct in6_addr *)a)->s6_addr32[3];
}

static inline const struct in6_addr *vma_addr_v6(const struct vma_addr *a)
{
	return (const struct in6_addr *)a;
}

/* ---- rst.c: the reset of a connection whose process is dead */

struct sk_buff *vma_rst_build(const struct vma_flow_key *key, u32 seq, u32 ack, u8 ttl);
int vma_rst_send(const struct vma_conn *c);

/* ---- net.c: what belongs to a network namespace: the dead connections' queue, the hook */

int vma_net_init(void);
void vma_net_exit(void);
void vma_net_bury(struct net *net, struct list_head *dead);
void vma_net_flush(struct net *net);
int vma_net_hook(struct net *net);

/* ---- hook.c: packets of registered flows that reached the kernel */

extern const struct nf_hook_ops vma_hook_ops[];
extern const unsigned int vma_hook_ops_count;
int vma_hook_key(const struct sk_buff *skb, u8 family, struct vma_flow_key *key);

/* ---- giga.c: blocks of 1 GiB */

#define VMA_GIGA_ORDER (30 - PAGE_SHIFT)
#define VMA_GIGA_PAGES BIT(VMA_GIGA_ORDER)

struct page *vma_giga_alloc(int node);
void vma_giga_free(struct page *page);

/* ---- region.c: pinned memory */

struct vma_region {
	struct page **blocks;
	unsigned long num;
	unsigned int order; /* of each block */
	/*
	 * Whose user's locked pages count them; NULL: nobody's. Modules of 6.1.0-50 have no
	 * free_uid().
	 */
	const struct cred *cred;
	unsigned int id, maps; /* the session's: its place there, mappings now (session.lock) */
};

struct vma_region *vma_region_alloc(struct vma_kmod_region *arg);
void vma_region_free(struct vma_region *r);
int vma_region_map(const struct vma_region *r, struct vm_area_struct *vma);
int vma_region_charge(struct user_struct *user, unsigned long pages, unsigned long limit);

static inline unsigned long vma_region_pages(const struct vma_region *r)
{
	return r->num << r->order;
}

/* ---- session.c: one process */

#define VMA_REGIONS 255

struct vma_session {
	struct kobject kobj; /* /sys/kernel/vma/process/<pid>; its reference is the session's */
	struct mutex lock; /* everything below that can change */
	struct list_head link;
	struct pid *owner;
	struct mm_struct *mm; /* for comparing only; held so that the address is nobody else's */
	pid_t pid; /* as the initial namespace counts */
	kuid_t uid;
	kgid_t gid;
	bool is_set_up, ended;
	struct vma_area stats, slots;
	struct vma_ring ring;
	u32 sockets, num_slots, num_conns;
	struct vma_conn **conns; /* by slot */
	unsigned long *slots_used;
	struct vma_region *regions[VMA_REGIONS];
};

struct vma_session *vma_session_open(void);
bool vma_session_is_callers(const struct vma_session *s);
int vma_session_setup(struct vma_session *s, struct vma_kmod_setup *arg);
int vma_session_conn(struct vma_session *s, struct sock *sk, struct vma_kmod_conn *arg,
		     bool has_net_raw);
int vma_session_unconn(struct vma_session *s, const struct vma_kmod_unconn *arg);
int vma_session_region(struct vma_session *s, struct vma_kmod_region *arg);
int vma_session_map(struct vma_session *s, struct vm_area_struct *vma);
void vma_session_end(struct vma_session *s);
void vma_session_put(struct vma_session *s);
void vma_session_free(struct vma_session *s);
void vma_sessions_sum(u64 *sum);

/* ---- dev.c: /dev/vma */

union vma_arg {
	struct vma_kmod_setup setup;
	struct vma_kmod_conn conn;
	struct vma_kmod_unconn unconn;
	struct vma_kmod_region region;
	struct vma_kmod_secret secret;
};

int vma_dev_init(void);
void vma_dev_exit(void);
int vma_dev_arg_size(unsigned int cmd);
long vma_dev_call(struct vma_session *s, unsigned int cmd, union vma_arg *arg);

/* ---- text.c, sysfs.c: /sys/kernel/vma */

#define VMA_SUMS 53
#define VMA_SOCKET_LINE 512
#define VMA_RING_LINE 896

void vma_sum_pages(const struct vma_area *stats, u32 sockets, u64 sum[VMA_SUMS]);
int vma_text_sums(char *text, size_t size, int at, const u64 sum[VMA_SUMS]);
int vma_text_totals(char *text, size_t size);
bool vma_text_socket(char *line, const struct vma_area *stats, u32 n);
bool vma_text_ring(char *line, const struct vma_area *stats, u32 n);
ssize_t vma_text_lines(bool (*one)(char *line, const struct vma_area *stats, u32 n), u32 max,
		       u32 width, const struct vma_area *stats, char *to, loff_t at, size_t count);
int vma_sysfs_init(void);
void vma_sysfs_exit(void);
void vma_sysfs_prepare(struct vma_session *s);
int vma_sysfs_add(struct vma_session *s);

#endif
