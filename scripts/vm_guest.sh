#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# vm_guest.sh: runs /vm/command in the guest that scripts/vm started, leaves its status and the kernel log in /vm, ends the guest.

exec </dev/null >/dev/hvc0 2>&1
stty -F /dev/hvc0 raw
dmesg -n 7
hostname vm
ip link set lo up
# There is no udev, which would make its device before the module is asked for.
modprobe tun
read -r seconds </vm/seconds

# Before the command is ended: who holds what, for its log.
(
	sleep $((seconds - 3))
	echo "vm: the time is nearly over" >/dev/kmsg
	echo l >/proc/sysrq-trigger
	echo w >/proc/sysrq-trigger
) &
# Everything takes longer here.
export TEST_PATIENCE=8
# As by Ctrl-C, at which pytest says what has failed so far.
timeout -s INT -k 30 "$seconds" bash /vm/command
status=$?
# It did not end at the first word.
[ $status != 137 ] || status=124
echo $status >/vm/status.part
dmesg >/vm/dmesg
mv /vm/status.part /vm/status
sync
# Read before it is run, and nothing of it is a program: the files go away before the machine does.
{
	echo o >/proc/sysrq-trigger
	while :; do :; done
}
