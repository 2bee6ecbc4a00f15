#!/bin/busybox sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# shellcheck shell=dash
#
# vm_init.sh: the guest's first process, in its initrd. Finds the host's files by 9p, lays a tmpfs over them and goes on
# there with vm_guest.sh. From the kernel's command line come KERNEL, where on the host its modules are, and TREE, where the project is.

die()
{
	echo "vm_init: $*" >/dev/kmsg
	/bin/busybox poweroff -f
}

/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
while read -r module; do
	insmod "/modules/$module" || die "$module cannot be loaded"
done </modules/order
mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=512000,cache=loose host /h || die "the host's files cannot be mounted"
mount -t tmpfs -o mode=755 tmpfs /o
mkdir /o/upper /o/work /o/tree /o/tree-work
mount -t overlay -o lowerdir=/h,upperdir=/o/upper,workdir=/o/work overlay /n || die "no overlay"
# What programs of the host leave in its /tmp, tests would take for theirs: the numbers of processes are the same here.
mount -t tmpfs -o mode=1777 tmpfs /n/tmp
case $TREE in
/tmp/*)
	mkdir -p "/n$TREE"
	mount -t overlay -o lowerdir="/h$TREE",upperdir=/o/tree,workdir=/o/tree-work overlay "/n$TREE" || die "no overlay of $TREE"
	;;
esac
for dir in proc sys dev; do
	mount --move /$dir /n/$dir
done
mount -t tmpfs -o mode=755 tmpfs /n/run
mkdir -p /n/dev/shm /n/dev/pts /n/vm /n/run/netns
mount -t tmpfs tmpfs /n/dev/shm
mount -t devpts devpts /n/dev/pts
mount -t bpf bpf /n/sys/fs/bpf
mount -t debugfs debugfs /n/sys/kernel/debug
mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000 share /n/vm || die "the share cannot be mounted"
# modprobe, and the kernel that calls it, serve in the guest as anywhere. (This process's root is the kernel threads' too.)
modules=/n/lib/modules/$(uname -r)
mkdir -p "$modules"
mount --bind "/n$KERNEL/lib/modules/$(uname -r)" "$modules" || die "no modules in $KERNEL"
# Not chroot: the mount namespaces that tests make and enter must have this root.
exec switch_root /n /bin/bash /vm/guest.sh
