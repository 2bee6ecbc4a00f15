// SPDX-License-Identifier: GPL-2.0-only
/* /dev/vma: one open file for each process. */
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/net.h>
#include <linux/nsproxy.h>
#include <linux/poll.h>
#include <linux/random.h>
#include <linux/siphash.h>
#include <linux/uaccess.h>

#include "vma.h"

/* A number that is not said again in struct vma_kmod_*: every field has a fixed place. */
static_assert(sizeof(struct vma_kmod_setup) == 64);
static_assert(sizeof(struct vma_kmod_conn) == 56);
static_assert(sizeof(struct vma_kmod_unconn) == 8);
static_assert(sizeof(struct vma_kmod_region) == 40);
static_assert(sizeof(struct vma_kmod_secret) == 32);
static_assert(sizeof(struct vma_kmod_slot) == 16);
static_assert(sizeof(struct vma_kmod_ring) == 144);
static_assert(sizeof(struct vma_kmod_record) == 16);
static_assert(sizeof(struct vma_flow_key) == 40);

static int open(struct inode *inode, struct file *file)
{
	struct vma_session *s = vma_session_open();

	if (IS_ERR(s))
		return PTR_ERR(s);
	file->private_data = s;
	return nonseekable_open(inode, file);
}

/*
 * At every close() of an fd, in whatever process: at the owner's, also by exit and exec, it is
 * over. Before VMA_KMOD_SETUP it has not begun: the library moves its descriptor to another number.
 */
static int flush(struct file *file, fl_owner_t id)
{
	struct vma_session *s = file->private_data;

	if (s->owner == task_tgid(current) && READ_ONCE(s->is_set_up))
		vma_session_end(s);
	return 0;
}

static int release(struct inode *inode, struct file *file)
{
	struct vma_session *s = file->private_data;

	vma_session_end(s);
	vma_session_put(s);
	return 0;
}

/**
 * vma_dev_arg_size - bytes of a command's argument
 * @cmd: any number
 *
 * Return: -ENOTTY: no such command, or with an argument of another size.
 */
int vma_dev_arg_size(unsigned int cmd)
{
	switch (cmd) {
	case VMA_KMOD_SETUP:
	case VMA_KMOD_CONN:
	case VMA_KMOD_UNCONN:
	case VMA_KMOD_REGION:
	case VMA_KMOD_SECRET:
		return _IOC_SIZE(cmd);
	default:
		return -ENOTTY;
	}
}

/* Of another namespace than the caller's: what may be said of it there is not known here. */
static int same_net(const struct sock *sk)
{
	return net_eq(sock_net(sk), current->nsproxy->net_ns) ? 0 : -EPERM;
}

static int call_conn(struct vma_session *s, struct vma_kmod_conn *arg)
{
	struct socket *sock;
	int err;

	sock = sockfd_lookup(arg->fd, &err);
	if (!sock)
		return err;
	err = same_net(sock->sk);
	if (!err)
		err = vma_session_conn(s, sock->sk, arg,
				       ns_capable(sock_net(sock->sk)->user_ns, CAP_NET_RAW));
	sockfd_put(sock);
	return err;
}

/* Written before there is a device. */
static siphash_key_t secret;

/*
 * A network namespace has its own, as it has its own addresses: a container's root is not told what
 * the host's connections are made from.
 */
static int call_secret(struct vma_kmod_secret *arg)
{
	u64 net = current->nsproxy->net_ns->net_cookie;
	unsigned int i;

	if (!capable(CAP_NET_RAW))
		return -EPERM;
	for (i = 0; i < ARRAY_SIZE(arg->words); i++)
		arg->words[i] = siphash_2u64(net, i, &secret);
	return 0;
}

/**
 * vma_dev_call - one ioctl
 * @s: the file's session
 * @cmd: vma_dev_arg_size() knew it
 * @arg: copied in; copied out again for commands that answer, if this succeeds
 *
 * Return: 0; -EPERM: not the process that opened the file; -EBADF: ended, or not set up; or as in
 * vma/kmod.h.
 */
long vma_dev_call(struct vma_session *s, unsigned int cmd, union vma_arg *arg)
{
	if (!vma_session_is_callers(s))
		return -EPERM;
	if (cmd == VMA_KMOD_SETUP)
		return vma_session_setup(s, &arg->setup);
	/* Pairs with vma_session_setup()'s release. */
	if (!smp_load_acquire(&s->is_set_up))
		return -EBADF;
	switch (cmd) {
	case VMA_KMOD_CONN:
		return call_conn(s, &arg->conn);
	case VMA_KMOD_UNCONN:
		return vma_session_unconn(s, &arg->unconn);
	case VMA_KMOD_REGION:
		return vma_session_region(s, &arg->region);
	case VMA_KMOD_SECRET:
		return call_secret(&arg->secret);
	default:
		return -ENOTTY;
	}
}

/*
 * After a failing copy of the answer the process does not know what it has; it all goes with its
 * file.
 */
static long ioctl(struct file *file, unsigned int cmd, unsigned long user)
{
	int size = vma_dev_arg_size(cmd);
	union vma_arg arg = {};
	long err;

	if (size < 0)
		return size;
	if (copy_from_user(&arg, (void __user *)user, size))
		return -EFAULT;
	err = vma_dev_call(file->private_data, cmd, &arg);
	if (!err && _IOC_DIR(cmd) & _IOC_READ && copy_to_user((void __user *)user, &arg, size))
		return -EFAULT;
	return err;
}

static int mmap(struct file *file, struct vm_area_struct *vma)
{
	struct vma_session *s = file->private_data;

	return vma_session_is_callers(s) ? vma_session_map(s, vma) : -EPERM;
}

static __poll_t poll(struct file *file, struct poll_table_struct *wait)
{
	struct vma_session *s = file->private_data;

	/* Pairs with vma_session_setup()'s release: before it there is no ring to wait for. */
	if (!smp_load_acquire(&s->is_set_up))
		return EPOLLERR;
	poll_wait(file, &s->ring.wait, wait);
	return vma_ring_ready(&s->ring) ? EPOLLIN | EPOLLRDNORM : 0;
}

static const struct file_operations fops = {
	.owner = THIS_MODULE,
	.open = open,
	.flush = flush,
	.release = release,
	.unlocked_ioctl = ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.mmap = mmap,
	.poll = poll,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "vma",
	.fops = &fops,
	.mode = 0660,
};

int vma_dev_init(void)
{
	get_random_bytes(&secret, sizeof(secret));
	return misc_register(&device);
}

/* No file is open: each holds the module. */
void vma_dev_exit(void)
{
	misc_deregister(&device);
}
