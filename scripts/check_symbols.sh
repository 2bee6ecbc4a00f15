#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# check_symbols.sh build/libvma.so: the library exports exactly what lib/preload/libvma.map names, and each of these
# names is one that this machine's libc exports (another would be a function that no program calls).
set -eu -o pipefail

cd "$(dirname "$0")/.."
lib=${1:-build/libvma.so}
map=lib/preload/libvma.map
# awk reads to the end: ldconfig would fail (pipefail) when its reader leaves early, now and then.
libc=$(ldconfig -p | awk '$1 == "libc.so.6" && /64/ && !n++ { print $NF }')
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# The names between "global:" and "local:", without comments.
sed -e ':a; s:/\*[^*]*\*/::g; /\/\*/{N; ba}' "$map" | sed -n '/global:/,/local:/p' | grep -oE '[A-Za-z_][A-Za-z0-9_]*;' |
	tr -d ';' | sort >"$tmp/map"
nm -D --defined-only "$lib" | awk '{ sub(/@.*/, "", $3); print $3 }' | sort -u >"$tmp/lib"
nm -D --defined-only "$libc" | awk '{ sub(/@.*/, "", $3); print $3 }' | sort -u >"$tmp/libc"

# say what file: prints the names in it under a heading; false when there are any.
say()
{
	[ -s "$2" ] || return 0
	echo "$1:"
	sed 's/^/    /' "$2"
	return 1
}

rc=0
[ -s "$tmp/map" ] || { echo "no names found in $map"; rc=1; }
uniq -d "$tmp/map" >"$tmp/twice"
say "named twice in $map" "$tmp/twice" || rc=1
comm -23 "$tmp/map" "$tmp/lib" >"$tmp/missing"
say "in $map but not exported by $lib" "$tmp/missing" || rc=1
comm -13 "$tmp/map" "$tmp/lib" >"$tmp/extra"
say "exported by $lib but not in $map" "$tmp/extra" || rc=1
# liburing's and libaio's functions stand in no libc, and glibc has these two since 2.39.
comm -23 "$tmp/map" "$tmp/libc" | grep -vE '^(io_uring_.*|io_submit|pidfd_spawnp?)$' >"$tmp/unknown" || true
say "intercepted but not exported by $libc" "$tmp/unknown" || rc=1
[ $rc -ne 0 ] || echo "$(wc -l <"$tmp/map") names: $map, $lib and $libc agree"
exit $rc
