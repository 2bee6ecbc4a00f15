#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# kunit.sh [filter]: builds the module and tests/kunit into User Mode Linux, from Debian's linux-source and with the
# kernel's own kunit.py, and runs it; ends with "N passed, N failed". The kernel tree and what is built stay in
# VMA_KUNIT_CACHE (/var/cache/vma-kunit, else below XDG_CACHE_HOME), by version of the source and by configuration.
set -eu -o pipefail

cd "$(dirname "$0")/.."
source=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' 'linux-source-6.*' 2>/dev/null | sed -n 's/^installed //p' | sort -V | head -n 1)
[ -n "$source" ] || { echo "kunit: there is no linux-source: run scripts/deps.sh" >&2; exit 1; }
archive=/usr/src/$source.tar.xz
version=$(dpkg-query -W -f '${Version}' "$source")
cache=${VMA_KUNIT_CACHE:-/var/cache/vma-kunit}
mkdir -p "$cache" 2>/dev/null && [ -w "$cache" ] || cache=${XDG_CACHE_HOME:-$HOME/.cache}/vma-kunit
tree=$cache/$version/linux
out=$cache/$version/build-$(sha256sum <tests/kunit/kunitconfig | cut -c 1-12)
mkdir -p "$out"
# The tree holds one set of sources at a time.
exec 9>"$cache/$version/lock"
flock 9

if [ ! -e "$tree/drivers/vma" ]; then
	echo "kunit: unpacking $archive into $tree"
	rm -rf "$tree" "$tree.new"
	mkdir "$tree.new"
	tar -C "$tree.new" --strip-components=1 -xf "$archive"
	echo 'source "drivers/vma/Kconfig"' >>"$tree.new/drivers/Kconfig"
	echo 'obj-y += vma/' >>"$tree.new/drivers/Makefile"
	# kunit.py's own additions are for drivers of devices.
	: >"$tree.new/tools/testing/kunit/configs/arch_uml.config"
	mkdir "$tree.new/drivers/vma"
	mv "$tree.new" "$tree"
fi

# copy from to: as the tree's, each file only if it differs, so that nothing is built for nothing.
copy()
{
	local f

	mkdir -p "$2"
	for f in "$2"/*; do
		[ ! -f "$f" ] || [ -e "$1/${f##*/}" ] || rm "$f"
	done
	for f in "$1"/*.[ch] "$1"/K*; do
		case $f in *.mod.c) continue ;; esac
		[ ! -f "$f" ] || cmp -s "$f" "$2/${f##*/}" || cp "$f" "$2/"
	done
}

staged=$tree/drivers/vma
copy include/vma "$staged/include/vma"
copy kmod "$staged/kmod"
copy tests/kunit "$staged/tests"
[ -e "$staged/Kconfig" ] || echo 'source "drivers/vma/tests/Kconfig"' >"$staged/Kconfig"
[ -e "$staged/Makefile" ] || echo 'obj-y += kmod/ tests/' >"$staged/Makefile"

if ! scripts/checkpatch.sh "$tree"; then
	echo "0 passed, 1 failed: checkpatch"
	exit 1
fi

# KASAN_SANITIZE: only the module and its tests are instrumented, for the sake of the first build's time (-O1 too).
log=$out/test.log
rm -f "$log"
rc=0
unset MAKEFLAGS MFLAGS MAKELEVEL
(cd "$tree" && /usr/bin/python3 tools/testing/kunit/kunit.py run --jobs="$(nproc)" --timeout=300 --build_dir="$out" \
	--kunitconfig="$OLDPWD/tests/kunit/kunitconfig" --make_options KASAN_SANITIZE=n \
	--make_options KCFLAGS='-Werror -O1' "${1:-vma_*}") 9>&- || rc=$?
touch "$log"
passed=$(grep -cE '^ {4,}ok [0-9]+ ' "$log" || true)
failed=$(grep -cE '^ {4,}not ok [0-9]+ ' "$log" || true)
# What KASAN, lockdep and the lists' checks say goes to the kernel's log.
if grep -nE 'BUG:|WARNING:|KASAN|list_(add|del) corruption|INFO: possible|Kernel panic' "$log"; then
	failed=$((failed + 1))
fi
[ $rc -eq 0 ] || [ "$failed" -gt 0 ] || failed=1
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
