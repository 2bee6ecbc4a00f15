#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# kmod.sh: builds vma.ko from nothing with every warning of the kernel's build and of sparse, and reads its comments with
# kernel-doc. What any of them says is a failure.
set -eu -o pipefail

cd "$(dirname "$0")/.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
log=$tmp/out
# As an installed tree: what a build elsewhere would miss is missed here.
unset MAKEFLAGS MFLAGS MAKELEVEL
make -s install-kmod DESTDIR="$tmp" >/dev/null
if ! make -C "$tmp"/usr/src/vma-*/kmod -j"$(nproc)" W=1 C=2 CF=-D__CHECK_ENDIAN__ >"$log" 2>&1; then
	cat "$log"
	exit 1
fi
rc=0
grep -E 'warning|error' "$log" && rc=1
grep -q 'LD \[M\]' "$log" || { cat "$log"; exit 1; }
for f in kmod/*.c; do
	case $f in *.mod.c) continue ;; esac
	/usr/lib/linux-kbuild-6.1/scripts/kernel-doc -none "$f" 2>&1 | grep . && rc=1
done
exit $rc
