#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# check.sh build [name...]: runs the unit tests that stand in tests/unit (or those named), built in the build
# directory, and the symbol check of the library if it is not a sanitizer's. Ends with
# "N passed, N failed, N skipped"; fails when one failed or was skipped.
set -u -o pipefail

cd "$(dirname "$0")/.." || exit 1
build=${1:-build}
shift
passed=0 failed=0 skipped=0

# Sums what cmocka counted, a group a line: count WORD < log
count()
{
	awk -v w="$1" '$0 ~ "^\\[  " w " *\\] [0-9]+ test\\(s\\)" { n += $(NF - 1) ~ /^[0-9]+$/ ? $(NF - 1) : $4 } END { print n + 0 }'
}

unit()
{
	local name=$1 log=$build/tests/unit/$1.log rc=0 p f s

	timeout 300 "$build/tests/unit/$name" >"$log" 2>&1 || rc=$?
	p=$(count PASSED <"$log") f=$(count FAILED <"$log") s=$(count SKIPPED <"$log")
	# It died, or a sanitizer spoke at its end: cmocka's count does not have it.
	[ "$rc" -ne 0 ] && [ "$f" -eq 0 ] && f=1
	# A program that tests nothing is a failure too.
	[ "$rc" -eq 0 ] && [ $((p + f + s)) -eq 0 ] && f=1
	passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
	if [ "$f" -eq 0 ]; then
		printf '  ok      %-24s %3d passed%s\n' "$name" "$p" "$([ "$s" -eq 0 ] || echo ", $s skipped")"
	else
		printf '  FAILED  %-24s %3d failed, exit %d; the end of %s:\n' "$name" "$f" "$rc" "$log"
		grep -v '^\[ *\(RUN\|OK\) *\]' "$log" | tail -n 60 | sed 's/^/    /'
	fi
}

if [ $# -eq 0 ]; then
	for source in tests/unit/test_*.c; do
		[ -e "$source" ] && set -- "$@" "$(basename "$source" .c)"
	done
fi
for name in "$@"; do
	unit "$name"
done

if [ -x scripts/check_symbols.sh ] && [ -e "$build/libvma.so" ] && ! nm -D "$build/libvma.so" | grep -q '__[at]san_init'; then
	if scripts/check_symbols.sh "$build/libvma.so" >"$build/symbols.log" 2>&1; then
		passed=$((passed + 1))
		echo "  ok      symbols"
	else
		failed=$((failed + 1))
		echo "  FAILED  symbols:"
		sed 's/^/    /' "$build/symbols.log"
	fi
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$skipped" -eq 0 ]
