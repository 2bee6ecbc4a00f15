#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# fuzz.sh build seconds [name,name]: runs each fuzz target for so many seconds, two cores' worth at a time, from the
# seeds in tests/fuzz/corpus/<noun> and what earlier runs found (build/fuzz/corpus). A crashing input is kept in
# build/fuzz/artifacts. Ends with "N passed, N failed, N skipped".
set -u -o pipefail

cd "$(dirname "$0")/.." || exit 1
build=${1:-build}
seconds=${2:-10}
only=${3:-}
mkdir -p "$build/fuzz/artifacts"

# fuzz name: runs one target; its log is <build>/fuzz/<name>.log and the exit status stands in <name>.rc
fuzz()
{
	local name=$1 noun=${1#fuzz_} rc=0
	local corpus=$build/fuzz/corpus/$noun seeds=tests/fuzz/corpus/$noun dict=tests/fuzz/$noun.dict

	mkdir -p "$corpus"
	set -- "$corpus"
	[ -d "$seeds" ] && set -- "$@" "$seeds"
	[ -e "$dict" ] && set -- "-dict=$dict" "$@"
	"$build/fuzz/$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
		-artifact_prefix="$build/fuzz/artifacts/$name-" "$@" >"$build/fuzz/$name.log" 2>&1 || rc=$?
	echo $rc >"$build/fuzz/$name.rc"
}

names=()
for source in tests/fuzz/fuzz_*.c; do
	[ -e "$source" ] || continue
	name=$(basename "$source" .c)
	case ",${only:-$name}," in *",$name,"* | *",${name#fuzz_},"*) names+=("$name") ;; esac
done
for name in "${names[@]}"; do
	while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do
		wait -n
	done
	rm -f "$build/fuzz/$name.rc"
	fuzz "$name" &
done
wait

passed=0 failed=0
for name in "${names[@]}"; do
	log=$build/fuzz/$name.log
	if [ "$(cat "$build/fuzz/$name.rc")" = 0 ]; then
		passed=$((passed + 1))
		printf '  ok      %-24s %s inputs, %s\n' "$name" \
			"$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" "$(sed -n 's/^INFO: Seed: /seed /p' "$log")"
	else
		failed=$((failed + 1))
		printf '  FAILED  %-24s the end of %s:\n' "$name" "$log"
		tail -n 50 "$log" | sed 's/^/    /'
	fi
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
