// SPDX-License-Identifier: GPL-2.0-only
/*
 * /sys/kernel/vma; docs/abi/sysfs-kernel-vma describes each file. Nothing here takes session.lock.
 */
#include <linux/kobject.h>
#include <linux/sysfs.h>

#include "compat.h"
#include "vma.h"
#include "vma/version.h"

static struct kobject *root, *processes;

static ssize_t version_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%s abi %u stats %u\n", VMA_LIBRARY_VERSION, VMA_KMOD_VERSION,
			  VMA_STATS_VERSION);
}

static ssize_t stats_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	u64 sum[VMA_SUMS] = {};

	vma_sessions_sum(sum);
	return vma_text_sums(buf, PAGE_SIZE, vma_text_totals(buf, PAGE_SIZE), sum);
}

static struct kobj_attribute version_attr = __ATTR_RO(version);
static struct kobj_attribute all_stats_attr = __ATTR_RO(stats);

static struct attribute *root_attrs[] = {&version_attr.attr, &all_stats_attr.attr, NULL};
static const struct attribute_group root_group = {.attrs = root_attrs};

/* ---- process/<pid> */

static struct vma_session *session_of(const struct kobject *kobj)
{
	return container_of(kobj, struct vma_session, kobj);
}

static ssize_t process_stats_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	struct vma_session *s = session_of(kobj);
	u64 sum[VMA_SUMS] = {};
	int at;

	vma_sum_pages(&s->stats, s->sockets, sum);
	at = sysfs_emit(buf, "conns %u\nfallback_packets %llu\nfallback_dropped %llu\n",
			READ_ONCE(s->num_conns), READ_ONCE(s->ring.packets),
			READ_ONCE(s->ring.dropped));
	return vma_text_sums(buf, PAGE_SIZE, at, sum);
}

static ssize_t sockets_read(struct file *file, struct kobject *kobj, struct bin_attribute *attr,
			    char *to, loff_t at, size_t count)
{
	struct vma_session *s = session_of(kobj);

	return vma_text_lines(vma_text_socket, s->sockets, VMA_SOCKET_LINE, &s->stats, to, at,
			      count);
}

static ssize_t rings_read(struct file *file, struct kobject *kobj, struct bin_attribute *attr,
			  char *to, loff_t at, size_t count)
{
	return vma_text_lines(vma_text_ring, VMA_STATS_RINGS, VMA_RING_LINE,
			      &session_of(kobj)->stats, to, at, count);
}

static ssize_t pages_read(struct file *file, struct kobject *kobj, struct bin_attribute *attr,
			  char *to, loff_t at, size_t count)
{
	const struct vma_area *stats = &session_of(kobj)->stats;

	return memory_read_from_buffer(to, count, &at, stats->at, stats->bytes);
}

/* The tool's control words, by the process's user: whole words, as everybody writes these pages. */
static ssize_t pages_write(struct file *file, struct kobject *kobj, struct bin_attribute *attr,
			   char *from, loff_t at, size_t count)
{
	const struct vma_area *stats = &session_of(kobj)->stats;
	size_t i;
	u32 word;

	if (at < 0 || at >= stats->bytes || count > stats->bytes - at)
		return -EFBIG;
	if (at % sizeof(word) || count % sizeof(word))
		return -EINVAL;
	for (i = 0; i < count; i += sizeof(word)) {
		memcpy(&word, from + i, sizeof(word));
		WRITE_ONCE(*(u32 *)(stats->at + at + i), word);
	}
	return count;
}

static struct kobj_attribute process_stats_attr = __ATTR(stats, 0444, process_stats_show, NULL);
static struct bin_attribute sockets_attr = __BIN_ATTR(sockets, 0444, sockets_read, NULL, 0);
static struct bin_attribute rings_attr = __BIN_ATTR(rings, 0444, rings_read, NULL, 0);
static struct bin_attribute pages_attr = __BIN_ATTR(pages, 0644, pages_read, pages_write, 0);

static struct attribute *process_attrs[] = {&process_stats_attr.attr, NULL};
static struct bin_attribute *process_bin_attrs[] = {&sockets_attr, &rings_attr, &pages_attr, NULL};
static const struct attribute_group process_group = {
	.attrs = process_attrs,
	.bin_attrs = process_bin_attrs,
};

static const struct attribute_group *process_groups[] = {&process_group, NULL};

static void process_release(struct kobject *kobj)
{
	vma_session_free(session_of(kobj));
}

static void process_ownership(vma_owned_kobject *kobj, kuid_t *uid, kgid_t *gid)
{
	const struct vma_session *s = session_of(kobj);

	*uid = s->uid;
	*gid = s->gid;
}

static struct kobj_type process_type = {
	.release = process_release,
	.sysfs_ops = &kobj_sysfs_ops,
	.default_groups = process_groups,
	.get_ownership = process_ownership,
};

/* The session's one reference from here on. */
void vma_sysfs_prepare(struct vma_session *s)
{
	kobject_init(&s->kobj, &process_type);
}

/* Visible from now on, its areas stand. 0 or negative errno. */
int vma_sysfs_add(struct vma_session *s)
{
	return kobject_add(&s->kobj, processes, "%d", s->pid);
}

int vma_sysfs_init(void)
{
	int err;

	root = kobject_create_and_add("vma", kernel_kobj);
	if (!root)
		return -ENOMEM;
	err = sysfs_create_group(root, &root_group);
	if (err)
		goto err_root;
	processes = kobject_create_and_add("process", root);
	if (processes)
		return 0;
	err = -ENOMEM;
err_root:
	kobject_put(root);
	return err;
}

void vma_sysfs_exit(void)
{
	kobject_put(processes);
	kobject_put(root);
}
