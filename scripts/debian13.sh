#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# debian13.sh [command...]: runs a command in a Debian 13 with nothing but what scripts/deps.sh installs there, over a copy of the
# files that git knows; without one the tests that need no other kernel, and the demo. Of this machine it uses the kernel and the
# network, and changes nothing but VMA_CACHE (~/.cache/vma), where the system stays: the first time takes five minutes more.
set -eu -o pipefail

here=$(realpath "$(dirname "$0")")
cache=${VMA_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/vma}
root=$cache/debian13
# shellcheck source=scripts/backports.sh
. "$here/backports.sh"
steps=unit,sim,conform,clang,fuzz-build,fuzz,differential,asan-build,asan-unit

[ "$(id -u)" = 0 ] || { echo "debian13: this needs root: it makes a system of its own and changes its root directory" >&2; exit 1; }
command -v mmdebstrap >/dev/null || "$here/deps.sh" deb

if [ ! -e "$root" ]; then
	echo "debian13: making $root"
	mkdir -p "$cache"
	rm -rf "$root.new"
	mmdebstrap --quiet --variant=minbase --skip=cleanup/apt trixie "$root.new" "$(machine_mirror)"
	mv "$root.new" "$root"
fi

# What was built stays; what is no file any more goes.
mkdir -p "$root/root/vma"
find "$root/root/vma" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
(cd "$here/.." && git ls-files -z --cached --others --exclude-standard | tar -c --null -T - --ignore-failed-read) | tar -x -m -C "$root/root/vma"

[ $# -gt 0 ] || set -- sh -c "make test ONLY=$steps && make demo"
# shellcheck disable=SC2016 # the inner shells' own
# The mounts are a namespace's of their own, and gone with it.
exec unshare --mount --propagation private bash -eu -c '
	root=$1
	shift
	mount --bind "$root" "$root"
	mount -t proc proc "$root/proc"
	mount -t sysfs sysfs "$root/sys"
	mount -t tmpfs tmpfs "$root/run"
	mount --rbind /dev "$root/dev"
	exec chroot "$root" env -i HOME=/root TERM="${TERM-dumb}" LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin \
		bash -c '\''cd /root/vma && scripts/deps.sh && exec "$@"'\'' bash "$@"
' bash "$root" "$@"
