# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# shellcheck shell=bash disable=SC2154 # what the caller sets
#
# vm_cards.sh, to be sourced by scripts/vm: the guest's network cards, two of each kind with one wire for both. The caller has cache
# and fail, and backports.sh.
#
#     e1000e, igb, vmxnet3    emulated cards
#     virtio                  one queue; its host sees whole frames with their checksums
#     virtio4                 four queues, and a host that takes large segments and partial checksums, as a cloud's does; memory
#                             by the DMA interface, which zero-copy needs

declare -A card_models=([e1000e]=e1000e [igb]=igb [vmxnet3]=vmxnet3 [virtio]=virtio-net-pci [virtio4]=virtio-net-pci)
declare -A card_options=([virtio4]=",mq=on,vectors=10,iommu_platform=on,disable-legacy=on")

# What to run QEMU by, and its options of the cards; the namespace of their wire, if one is needed.
qemu_command=(qemu-system-x86_64) cards=() wire=''

# cards_check kind...: each is one.
cards_check()
{
	local kind

	for kind in "$@"; do
		[ -n "${card_models[$kind]-}" ] || fail "-n $kind: there is no such card; there are $(echo "${!card_models[@]}" | tr ' ' '\n' | sort | xargs)"
	done
}

# shellcheck disable=SC2317 # cache_fetch calls it
qemu_unpack()
{
	local package

	for package in "$1"/*.deb; do
		dpkg-deb -x "$package" "$2" || return 1
	done
}

# The backports' QEMU where the installed one lacks a card (igb came with 8).
qemu_choose()
{
	local kind dir=$cache/qemu-$codename-backports

	for kind in "$@"; do
		"${qemu_command[0]}" -device help 2>/dev/null | grep -q "^name \"${card_models[$kind]}\"" && continue
		backports_read
		cache_fetch "${dir##*/}" qemu_unpack "set NIC or -n without $kind" qemu-system-x86 qemu-system-common qemu-system-data seabios
		export QEMU_MODULE_DIR=$dir/usr/lib/x86_64-linux-gnu/qemu
		qemu_command=("$dir/usr/bin/qemu-system-x86_64" -L "$dir/usr/share/seabios" -L "$dir/usr/share/qemu")
		return
	done
}

wire_do()
{
	ip -n "$wire" "$@" || fail "ip $*, for the wire of virtio4: ip said why"
}

# A bridge between two taps, in a namespace of its own.
wire_make()
{
	local number name

	# Of a run that was killed.
	for name in $(ip netns list | grep -o '^vma-vm-[0-9]*'); do
		[ -e "/proc/${name##*-}" ] || ip netns delete "$name"
	done
	wire=vma-vm-$$
	ip netns add "$wire" || fail "there is no namespace for the wire of virtio4: ip said why"
	wire_do link add wire type bridge mcast_snooping 0
	# It only carries frames: it says nothing itself.
	ip netns exec "$wire" sysctl -qw net.ipv6.conf.{all,default}.disable_ipv6=1
	for number in 0 1; do
		wire_do tuntap add "tap$number" mode tap multi_queue vnet_hdr
		wire_do link set "tap$number" master wire up
	done
	wire_do link set wire up
	qemu_command=(nsenter "--net=/run/netns/$wire" "${qemu_command[@]}")
}

wire_remove()
{
	[ -z "$wire" ] || ip netns delete "$wire"
}

# cards_make kind...: sets qemu_command and cards.
cards_make()
{
	local kind number wire_options hub=0

	qemu_choose "$@"
	for kind in "$@"; do
		[ "$kind" != virtio4 ] || wire_make
		for number in 0 1; do
			wire_options=hubport,hubid=$hub
			[ "$kind" != virtio4 ] || wire_options=tap,ifname=tap$number,queues=4,script=no,downscript=no
			# A bus of its own: igb has room for virtual functions there.
			cards+=(-netdev "$wire_options,id=$kind$number" -device "pcie-root-port,id=$kind${number}port,chassis=$((2 * hub + number + 1))"
				-device "${card_models[$kind]},netdev=$kind$number,bus=$kind${number}port,romfile=${card_options[$kind]-}")
		done
		hub=$((hub + 1))
	done
}
