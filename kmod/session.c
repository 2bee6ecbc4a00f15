// SPDX-License-Identifier: GPL-2.0-only
/*
 * One process: what it has registered. Locks, in this order: the process's mmap lock, session.lock,
 * sessions_lock. Nothing of user space's is touched with one of the latter two held.
 */
#include <linux/bitmap.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "vma.h"

static DEFINE_MUTEX(sessions_lock);
static LIST_HEAD(sessions); /* those that have not ended */
static u64 dead_sum[VMA_SUMS]; /* what processes that ended had counted */

/*
 * By number, which names it in sysfs: a dead process whose fd table another one shares has its
 * still.
 */
static int sessions_enter(struct vma_session *s)
{
	struct vma_session *other;
	int err = 0;

	mutex_lock(&sessions_lock);
	list_for_each_entry(other, &sessions, link)
		if (other->pid == s->pid)
			err = -EBUSY;
	if (!err)
		list_add_tail(&s->link, &sessions);
	mutex_unlock(&sessions_lock);
	return err;
}

static void sessions_leave(struct vma_session *s)
{
	mutex_lock(&sessions_lock);
	list_del(&s->link);
	vma_sum_pages(&s->stats, s->sockets, dead_sum);
	mutex_unlock(&sessions_lock);
}

/**
 * vma_sessions_sum - adds up what all processes have counted, those that are over too
 * @sum: VMA_SUMS of them, added to
 */
void vma_sessions_sum(u64 *sum)
{
	struct vma_session *s;
	int i;

	mutex_lock(&sessions_lock);
	for (i = 0; i < VMA_SUMS; i++)
		sum[i] += dead_sum[i];
	list_for_each_entry(s, &sessions, link)
		/* Pairs with the release in vma_session_setup(): the pages stand and stay. */
		if (smp_load_acquire(&s->is_set_up))
			vma_sum_pages(&s->stats, s->sockets, sum);
	mutex_unlock(&sessions_lock);
}

/**
 * vma_session_open - a session for the calling process
 *
 * Return: the session with one reference, for vma_session_put(); -EBUSY: it has one, -ENOMEM.
 */
struct vma_session *vma_session_open(void)
{
	struct vma_session *s = kzalloc(sizeof(*s), GFP_KERNEL_ACCOUNT);
	int err;

	if (!s)
		return ERR_PTR(-ENOMEM);
	mutex_init(&s->lock);
	vma_sysfs_prepare(s);
	s->owner = get_pid(task_tgid(current));
	s->pid = pid_nr(s->owner);
	current_euid_egid(&s->uid, &s->gid);
	s->mm = current->mm;
	if (s->mm)
		mmgrab(s->mm);
	err = sessions_enter(s);
	if (err) {
		s->ended = true;
		vma_session_put(s);
		return ERR_PTR(err);
	}
	vma_total_add(VMA_TOTAL_PROCESSES, 1);
	vma_total_add(VMA_TOTAL_PROCESSES_SEEN, 1);
	return s;
}

/* Is the caller a thread of the process that opened it, in the same life (no exec since)? */
bool vma_session_is_callers(const struct vma_session *s)
{
	return s->owner == task_tgid(current) && s->mm == current->mm;
}

static bool setup_ok(const struct vma_kmod_setup *arg)
{
	if (memchr_inv(arg->reserved, 0, sizeof(arg->reserved)) || arg->features ||
	    arg->stats_bytes || arg->conns_bytes || arg->ring_bytes)
		return false;
	if (arg->sockets > VMA_STATS_SOCKETS_MAX || arg->conns > VMA_KMOD_CONNS_MAX)
		return false;
	return !arg->ring || (is_power_of_2(arg->ring) && arg->ring >= VMA_KMOD_RING_MIN &&
			      arg->ring <= VMA_KMOD_RING_MAX);
}

static int setup_memory(struct vma_session *s, const struct vma_kmod_setup *arg)
{
	size_t stats =
		sizeof(struct vma_stats_header) + arg->sockets * sizeof(struct vma_stats_socket);
	int err = vma_area_init(&s->stats, arg->sockets ? stats : 0);

	if (!err)
		err = vma_area_init(&s->slots, arg->conns * sizeof(struct vma_kmod_slot));
	if (!err)
		err = vma_ring_init(&s->ring, arg->ring);
	if (err || !arg->conns)
		return err;
	s->conns = kvcalloc(arg->conns, sizeof(*s->conns), GFP_KERNEL_ACCOUNT);
	s->slots_used = kvcalloc(BITS_TO_LONGS(arg->conns), sizeof(long), GFP_KERNEL_ACCOUNT);
	return s->conns && s->slots_used ? 0 : -ENOMEM;
}

static void setup_undo(struct vma_session *s)
{
	vma_area_fini(&s->stats);
	vma_area_fini(&s->slots);
	vma_ring_fini(&s->ring);
	kvfree(s->conns);
	kvfree(s->slots_used);
	s->conns = NULL;
	s->slots_used = NULL;
}

static int setup(struct vma_session *s, struct vma_kmod_setup *arg)
{
	int err;

	if (s->ended)
		return -EBADF;
	if (s->is_set_up)
		return -EALREADY;
	err = setup_memory(s, arg);
	if (!err) {
		s->sockets = arg->sockets;
		err = vma_sysfs_add(s);
	}
	if (err) {
		s->sockets = 0;
		setup_undo(s);
		return err;
	}
	s->num_slots = arg->conns;
	/* Whoever sees it set sees the areas. */
	smp_store_release(&s->is_set_up, true);
	return 0;
}

/**
 * vma_session_setup - VMA_KMOD_SETUP
 * @s: the caller's session
 * @arg: in and out
 *
 * Return: as in vma/kmod.h.
 */
int vma_session_setup(struct vma_session *s, struct vma_kmod_setup *arg)
{
	int err;

	if (arg->version != VMA_KMOD_VERSION)
		return -EPROTO;
	if (!setup_ok(arg))
		return -EINVAL;
	mutex_lock(&s->lock);
	err = setup(s, arg);
	mutex_unlock(&s->lock);
	if (err)
		return err;
	arg->features = VMA_KMOD_HAS_CONNS | VMA_KMOD_HAS_STATS | VMA_KMOD_HAS_REGIONS |
			VMA_KMOD_HAS_FALLBACK;
	arg->stats_bytes = s->stats.bytes;
	arg->conns_bytes = s->slots.bytes;
	arg->ring_bytes = s->ring.area.bytes;
	return 0;
}

static struct vma_kmod_slot *slot_of(const struct vma_session *s, u32 slot)
{
	return (struct vma_kmod_slot *)s->slots.at + slot;
}

/* Lock held. */
static int conn_enter(struct vma_session *s, struct sock *sk, struct vma_kmod_conn *arg, u32 flags,
		      bool by_net_raw)
{
	u32 slot = find_first_zero_bit(s->slots_used, s->num_slots);
	struct vma_conn *c;
	int err = 0;

	if (slot >= s->num_slots)
		return -ENOSPC;
	if (flags & VMA_KMOD_CONN_FALLBACK)
		err = vma_net_hook(sock_net(sk));
	if (err)
		return err;
	memset(slot_of(s, slot), 0, sizeof(struct vma_kmod_slot));
	c = vma_conn_add(sk, &arg->key, flags, by_net_raw, s, slot);
	if (IS_ERR(c))
		return PTR_ERR(c);
	s->conns[slot] = c;
	s->num_conns++;
	__set_bit(slot, s->slots_used);
	arg->slot = slot;
	return 0;
}

/**
 * vma_session_conn - VMA_KMOD_CONN
 * @s: the caller's session
 * @sk: the caller's socket of that fd, of the caller's network namespace
 * @arg: in and out
 * @has_net_raw: the caller has CAP_NET_RAW there
 *
 * Return: as in vma/kmod.h.
 */
int vma_session_conn(struct vma_session *s, struct sock *sk, struct vma_kmod_conn *arg,
		     bool has_net_raw)
{
	u32 flags = arg->flags | (has_net_raw ? VMA_CONN_UNFILTERED : 0);
	int err = arg->slot || arg->reserved ? -EINVAL : vma_flow_check(&arg->key, arg->flags);
	bool by_net_raw;

	if (err)
		return err;
	err = vma_owner_check(sk, &arg->key);
	by_net_raw = err == -EPERM;
	if (err && (!by_net_raw || !has_net_raw))
		return err;
	err = vma_owner_local(sock_net(sk), &arg->key);
	if (err)
		return err;
	mutex_lock(&s->lock);
	if (s->ended || !s->is_set_up)
		err = -EBADF;
	else if (arg->flags & VMA_KMOD_CONN_FALLBACK && !s->ring.size)
		err = -EINVAL;
	else
		err = conn_enter(s, sk, arg, flags, by_net_raw);
	mutex_unlock(&s->lock);
	return err;
}

/* Lock held; it is not in the table any more. The caller owns it. */
static struct vma_conn *conn_leave(struct vma_session *s, u32 slot)
{
	struct vma_conn *c = s->conns[slot];

	vma_conn_unhash(c);
	__clear_bit(slot, s->slots_used);
	s->conns[slot] = NULL;
	s->num_conns--;
	return c;
}

/**
 * vma_session_unconn - VMA_KMOD_UNCONN
 * @s: the caller's session
 * @arg: which
 *
 * Return: 0, -EINVAL, -ENOENT.
 */
int vma_session_unconn(struct vma_session *s, const struct vma_kmod_unconn *arg)
{
	struct vma_conn *c = NULL;

	if (arg->reserved)
		return -EINVAL;
	mutex_lock(&s->lock);
	if (arg->slot < s->num_slots && test_bit(arg->slot, s->slots_used))
		c = conn_leave(s, arg->slot);
	mutex_unlock(&s->lock);
	if (!c)
		return -ENOENT;
	vma_conn_free(c);
	return 0;
}

/**
 * vma_session_region - VMA_KMOD_REGION
 * @s: the caller's session
 * @arg: in and out
 *
 * Return: as in vma/kmod.h.
 */
int vma_session_region(struct vma_session *s, struct vma_kmod_region *arg)
{
	struct vma_region *r = vma_region_alloc(arg);
	unsigned int id = 0;
	int err = 0;

	if (IS_ERR(r))
		return PTR_ERR(r);
	mutex_lock(&s->lock);
	while (id < VMA_REGIONS && s->regions[id])
		id++;
	if (s->ended)
		err = -EBADF;
	else if (id == VMA_REGIONS)
		err = -ENOSPC;
	else
		s->regions[r->id = id] = r;
	mutex_unlock(&s->lock);
	if (err)
		vma_region_free(r);
	else
		arg->offset = VMA_KMOD_MAP_REGION(id);
	return err;
}

/* ---- mappings */

/* Another one of the same region, since part of it was unmapped or protected. */
static void region_open(struct vm_area_struct *vma)
{
	struct vma_session *s = vma->vm_file->private_data;
	struct vma_region *r = vma->vm_private_data;

	mutex_lock(&s->lock);
	r->maps++;
	mutex_unlock(&s->lock);
}

static void region_close(struct vm_area_struct *vma)
{
	struct vma_session *s = vma->vm_file->private_data;
	struct vma_region *r = vma->vm_private_data;
	bool last;

	mutex_lock(&s->lock);
	last = !--r->maps;
	if (last)
		s->regions[r->id] = NULL;
	mutex_unlock(&s->lock);
	if (last)
		vma_region_free(r);
}

static const struct vm_operations_struct region_ops = {
	.open = region_open,
	.close = region_close,
};

/* Lock held. After an error nothing of vma is left, and close() is not called for it. */
static int map_region(struct vma_session *s, u64 id, struct vm_area_struct *vma)
{
	struct vma_region *r = id < VMA_REGIONS ? s->regions[id] : NULL;
	int err;

	if (!r)
		return -EINVAL;
	err = vma_region_map(r, vma);
	if (err)
		return err;
	r->maps++;
	vma->vm_private_data = r;
	vma->vm_ops = &region_ops;
	return 0;
}

/**
 * vma_session_map - mmap() of the device
 * @s: the caller's session
 * @vma: its offset names the part, see VMA_KMOD_MAP_*
 *
 * Return: 0, -EBADF: ended, -EINVAL: no such part, or longer than it is, or private.
 */
int vma_session_map(struct vma_session *s, struct vm_area_struct *vma)
{
	u64 offset = (u64)vma->vm_pgoff << PAGE_SHIFT;
	int err;

	mutex_lock(&s->lock);
	if (s->ended || !s->is_set_up)
		err = -EBADF;
	else if (offset == VMA_KMOD_MAP_CONNS)
		err = vma_area_map(&s->slots, vma);
	else if (offset == VMA_KMOD_MAP_STATS)
		err = vma_area_map(&s->stats, vma);
	else if (offset == VMA_KMOD_MAP_RING)
		err = vma_area_map(&s->ring.area, vma);
	else if (offset >= VMA_KMOD_MAP_REGION(0) && offset % VMA_KMOD_MAP_REGION(0) == 0)
		err = map_region(s, offset / VMA_KMOD_MAP_REGION(0) - 1, vma);
	else
		err = -EINVAL;
	mutex_unlock(&s->lock);
	return err;
}

/* ---- the end */

/* Reads the slot's words once each: the process may still write. */
static void last_words(struct vma_session *s, struct vma_conn *c)
{
	const struct vma_kmod_slot *slot = slot_of(s, c->slot);

	if (!(c->flags & VMA_KMOD_CONN_RST) || !READ_ONCE(slot->live))
		return;
	c->seq = READ_ONCE(slot->seq);
	c->ack = READ_ONCE(slot->ack);
	/* Now, while the sockets of a process that exits are still open. */
	c->reset = vma_owner_holds(c);
	if (!c->reset)
		vma_total_add(VMA_TOTAL_RESETS_VOID, 1);
}

/* Lock held. */
static void bury_all(struct vma_session *s)
{
	struct net *net = NULL;
	LIST_HEAD(dead);
	u32 slot;

	for_each_set_bit(slot, s->slots_used, s->num_slots) {
		struct vma_conn *c = conn_leave(s, slot);

		last_words(s, c);
		/* A process that changed its namespace has some in each. */
		if (net && net != c->key.net)
			vma_net_bury(net, &dead);
		net = c->key.net;
		list_add_tail(&c->dead, &dead);
	}
	if (net)
		vma_net_bury(net, &dead);
}

/* Those that nobody has mapped; the others go with their mappings. Lock held. */
static void drop_regions(struct vma_session *s)
{
	unsigned int i;

	for (i = 0; i < VMA_REGIONS; i++) {
		if (!s->regions[i] || s->regions[i]->maps)
			continue;
		vma_region_free(s->regions[i]);
		s->regions[i] = NULL;
	}
}

/**
 * vma_session_end - the process is dead, or has closed the device
 * @s: its session
 *
 * Registrations are gone when it returns; resets are sent by a worker. What is mapped stays so. May
 * be called again.
 */
void vma_session_end(struct vma_session *s)
{
	bool again;

	mutex_lock(&s->lock);
	again = s->ended;
	s->ended = true;
	if (!again) {
		bury_all(s);
		drop_regions(s);
	}
	mutex_unlock(&s->lock);
	if (again)
		return;
	/*
	 * Waits for readers in sysfs, who take none of our locks. The name is free before the
	 * process's next life can begin.
	 */
	if (s->is_set_up)
		kobject_del(&s->kobj);
	sessions_leave(s);
	vma_total_add(VMA_TOTAL_PROCESSES, -1);
}

/* The file is gone, and with it every mapping. */
void vma_session_put(struct vma_session *s)
{
	kobject_put(&s->kobj);
}

/* By the last reference. */
void vma_session_free(struct vma_session *s)
{
	/* Whoever found one of our registrations in the table may still be writing to the ring. */
	synchronize_rcu();
	setup_undo(s);
	put_pid(s->owner);
	if (s->mm)
		mmdrop(s->mm);
	kfree(s);
}
