#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# kmod.sh [version]: builds vma.ko from nothing with every warning of the kernel's build and of sparse, and reads its comments with
# kernel-doc. What any of them says is a failure. With a version (6.12) it is built for the kernel of that one in this release's
# backports, with their headers (root), and stays in build/kmod-<version>, where the virtual machine of that kernel finds it.
set -eu -o pipefail

cd "$(dirname "$0")/.."
cache=${VMA_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/vma}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
log=$tmp/out
# As an installed tree: what a build elsewhere would miss is missed here.
unset MAKEFLAGS MFLAGS MAKELEVEL

fail()
{
	echo "kmod: $*" >&2
	exit 1
}

# headers_unpack downloads directory: the packages' /usr.
# shellcheck disable=SC2317 # cache_fetch calls it
headers_unpack()
{
	local package

	for package in "$1"/*.deb; do
		dpkg-deb -x "$package" "$2" || return 1
	done
}

# build [make's words]
# shellcheck disable=SC2119,SC2120 # which another shell gives
build()
{
	if ! make -C "$tmp"/usr/src/vma-*/kmod -j"$(nproc)" W=1 C=2 CF=-D__CHECK_ENDIAN__ "$@" >"$log" 2>&1; then
		cat "$log"
		return 1
	fi
	if grep -E 'warning|error' "$log"; then
		return 1
	fi
	grep -q 'LD \[M\]' "$log" || { cat "$log"; return 1; }
}

# The headers name each other by where they would be installed: they are seen there, by this build only.
build_of_backports()
{
	# shellcheck source=scripts/backports.sh
	. scripts/backports.sh
	backports_choose "$1"
	cache_fetch "headers-$release" headers_unpack "remove $cache/linux-$release" \
		"linux-headers-$release" "linux-headers-${release%-amd64}-common" "linux-kbuild-${release%-amd64}"
	export -f build
	export tmp log release
	unshare -m bash -euc "mount -t overlay -o lowerdir='$cache/headers-$release/usr:/usr' overlay /usr; build KDIR=/usr/src/linux-headers-\$release"
	mkdir -p "build/kmod-$1"
	cp "$tmp"/usr/src/vma-*/kmod/vma.ko "build/kmod-$1/"
}

make -s install-kmod DESTDIR="$tmp" >/dev/null
if [ -n "${1:-}" ]; then
	build_of_backports "$1"
	exit
fi
# shellcheck disable=SC2119 # none here
build
rc=0
for f in kmod/*.c; do
	case $f in *.mod.c) continue ;; esac
	/usr/lib/linux-kbuild-6.1/scripts/kernel-doc -none "$f" 2>&1 | grep . && rc=1
done
exit $rc
