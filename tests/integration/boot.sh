#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# boot.sh directory [library]: systemd as the first process of namespaces of its own, on a copy of this system's files that
# lasts as long as it (an overlay of the directory); library: in its /etc/ld.so.preload. The caller has made a namespace of
# mounts (unshare -m). `boot.sh directory --end` removes the control group afterwards.
set -eu

work=$1 library=${2:-}
root=$work/root

# In a control group of its own: two that begin at the same one take each other's.
if [ $$ != 1 ]; then
	mount --make-rprivate /
	mount -t tmpfs tmpfs "$work"
	mkdir "$work/groups"
	mount -t cgroup2 cgroup2 "$work/groups"
	group=$work/groups/$CONTROL_GROUP
	if [ "$library" = --end ]; then
		exec find "$group" -depth -type d -exec rmdir {} +
	fi
	mkdir "$group"
	echo $$ >"$group/cgroup.procs"
	exec unshare -pfuiC --kill-child "$0" "$@"
fi
umount "$work/groups"
mkdir "$work"/{upper,work,root}
mount -t overlay -o "lowerdir=/,upperdir=$work/upper,workdir=$work/work" overlay "$root"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for node in null zero full random urandom tty; do
	touch "$root/dev/$node"
	mount --bind "/dev/$node" "$root/dev/$node"
done
mkdir "$root"/dev/{pts,shm}
mount -t devpts -o newinstance,ptmxmode=666 devpts "$root/dev/pts"
mount -t tmpfs tmpfs "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"

# Parts of systemd that this machine does not have, and their users.
for package in /var/cache/vma-system/*.deb; do
	dpkg-deb --fsys-tarfile "$package" | tar -x --keep-directory-symlink -C "$root"
done
chroot "$root" systemd-sysusers

# A new machine: nothing of what the packages of this one start but what is asked for here.
echo 0123456789abcdef0123456789abcdef >"$root/etc/machine-id"
rm -rf "$root"/etc/systemd/system/*.wants "$root"/etc/rc?.d "$root"/etc/crontab "$root"/etc/cron.*/* "$root"/var/log/journal
wants=$root/etc/systemd/system/multi-user.target.wants
mkdir -p "$wants"
for unit in $SERVICES; do
	ln -s "/lib/systemd/system/$unit.service" "$wants/"
done
cp -r "$work.files/." "$root/"
if [ -n "$library" ]; then
	# Services have a /tmp of their own: it lies where all of them see it.
	cp "$library" "$root/usr/lib/libvma.so"
	echo /usr/lib/libvma.so >"$root/etc/ld.so.preload"
fi

cd "$root"
mkdir old
pivot_root . old
umount -l old
exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --unit=multi-user.target
