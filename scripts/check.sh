#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# check.sh build [name...]: runs the unit tests that stand in tests/unit (or those named), built in the build
# directory, one for each processor at a time, and the symbol check of the library if it is not a sanitizer's. Ends
# with "N passed, N failed, N skipped"; fails when one failed or was skipped.
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

# run name: its output goes to <build>/tests/unit/<name>.log, its exit status and the seconds to <name>.rc
run()
{
	local rc=0 begun=$SECONDS

	# Where each lock yields (CHECK_LOCKS=1) and others want the processors it may take minutes.
	timeout 900 "$build/tests/unit/$1" >"$build/tests/unit/$1.log" 2>&1 || rc=$?
	echo $rc $((SECONDS - begun)) >"$build/tests/unit/$1.rc"
}

# skips name < log: a line for each skipped test, with what it printed last.
skips()
{
	awk -v name="$1" '/^\[ RUN /{ why = "no reason given" } /^ /{ why = $0; sub(/^ +/, "", why) }
		/^\[  SKIPPED \] / && !/test\(s\)/ && NF == 4 && !seen[$4]++ { printf "SKIPPED %s: %s: %s\n", name, $4, why }'
}

# Counts what a program has said.
report()
{
	local name=$1 log=$build/tests/unit/$1.log rc seconds p f s

	read -r rc seconds <"$build/tests/unit/$name.rc"
	p=$(count PASSED <"$log") f=$(count FAILED <"$log") s=$(count SKIPPED <"$log")
	# It died, or a sanitizer spoke at its end: cmocka's count does not have it.
	[ "$rc" -ne 0 ] && [ "$f" -eq 0 ] && f=1
	# A program that tests nothing is a failure too.
	[ "$rc" -eq 0 ] && [ $((p + f + s)) -eq 0 ] && f=1
	passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
	if [ "$f" -eq 0 ]; then
		printf '  ok      %-24s %3d passed%s%s\n' "$name" "$p" "$([ "$s" -eq 0 ] || echo ", $s skipped")" \
			"$([ "$seconds" -lt 3 ] || echo ", $seconds s")"
		[ "$s" -eq 0 ] || skips "$name" <"$log"
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
	while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do
		wait -n
	done
	run "$name" &
done
wait
for name in "$@"; do
	report "$name"
done

# grep reads to the end: nm would fail (pipefail) when its reader leaves early, now and then.
if [ -e "$build/libvma.so" ] && ! nm -D "$build/libvma.so" | grep '__[at]san_init' >/dev/null; then
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
