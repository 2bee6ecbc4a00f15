#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# test.sh: every test there is; ends with the line "N passed, N failed, N skipped". What was skipped counts as
# a failure: on a machine with root everything can run. ONLY=step,step runs some steps, SANITIZE=1 and
# SANITIZE=thread those of one sanitizer. The logs stay in build/test.
set -u -o pipefail

cd "$(dirname "$0")/.." || exit 1
# shellcheck source=scripts/ns.sh
. scripts/ns.sh
ns_need_root

only=${ONLY:-}
[ -n "$only" ] || case ${SANITIZE:-} in
1) only=asan-build,asan-unit,asan-sim,asan-conform,asan-integration ;;
thread) only=tsan-build,tsan-unit,tsan-threads ;;
esac
# What the outer make was told is not for the makes below.
unset MAKEFLAGS MFLAGS MAKEOVERRIDES MAKELEVEL SANITIZE BUILD ONLY
python=/usr/bin/python3
# A wait that ends well ends at once; one that fails may be that of a machine with other work.
export TEST_PATIENCE=${TEST_PATIENCE:-3}
logs=build/test
mkdir -p $logs
passed=0 failed=0 skipped=0
started=$SECONDS

# Adds up "12 passed, 1 failed, ..." of the last line that has such words; errors are failures.
tally()
{
	local line words n

	line=$(grep -E '[0-9]+ (passed|failed|error|skipped)' "$1" | tail -n 1)
	while read -r n words; do
		case $words in
		passed) passed=$((passed + n)) ;;
		failed | error | errors) failed=$((failed + n)) ;;
		skipped) skipped=$((skipped + n)) ;;
		esac
	done < <(grep -oE '[0-9]+ (passed|failed|errors?|skipped)' <<<"$line")
}

# step name command...: runs it, shows its end if it failed, counts what it says or else itself.
step()
{
	local name=$1 log=$logs/$1.log begun rc=0 before=$failed
	shift
	case ",${only:-$name}," in *",$name,"*) ;; *) return ;; esac
	begun=$SECONDS
	"$@" >"$log" 2>&1 || rc=$?
	if grep -qE '^=* *[0-9]+ (passed|failed|errors?|skipped)' "$log"; then
		tally "$log"
		[ $rc -ne 0 ] && [ "$failed" -eq "$before" ] && [ "$skipped" -eq 0 ] && failed=$((failed + 1))
	elif [ $rc -eq 0 ]; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
	fi
	printf '%-6s %-18s %4d s   %s\n' "$([ $rc -eq 0 ] && echo ok || echo FAILED)" "$name" $((SECONDS - begun)) \
		"$(grep -E '[0-9]+ (passed|failed|skipped)' "$log" | tail -n 1 | sed 's/=//g; s/^ *//; s/ in [0-9].*//')"
	[ $rc -eq 0 ] || show_failure "$log"
}

# What failed, by name, then the end of the log: CI shows the first lines only. pytest's rows of dots tell nothing.
show_failure()
{
	{
		grep -E '^(FAILED|ERROR) ' "$1"
		grep -vE '^[.FEsxX]+ +\[ *[0-9]+%\]$|^(FAILED|ERROR) ' "$1" | tail -n "${LINES_OF_FAILURE:-120}"
	} | cut -c 1-240 | sed 's/^/    /'
}

build()
{
	make -j"$(nproc)" -k "$@"
}

# integration [options]: kernel peers, real programs, namespaces
integration()
{
	$python -m pytest tests/integration -q -p no:cacheprovider --tb=short --durations=40 "$@"
}

# On Debian's own kernel, with the module.
vm()
{
	make kmod mlx5-device && scripts/vm -t 3000 -m 6144 tests/vm --tb=short --durations=25
}

# ring/mlx5 on the mlx5 device in software there: a part that is a matter of minutes; tests/vm/test_mlx5.py has kernel peers. All (hours):
#     scripts/vm -m 2048 -t 20000 tests/integration/test_{udp,tcp}_*.py --mlx5
vm_mlx5()
{
	local both="_both and not mapped and not [6 and not 20971520 and not ours-listens and not ours-connects"
	local forks="ours-serves and (replaced or test_prefork and select) or test_parent_closes_and_child_serves and 4"

	make mlx5-device && scripts/vm -o build/vm-mlx5 -m 2048 -t 1800 tests/integration/test_{udp_both,tcp_both,tcp_fork,tcp_prefork}.py \
		--mlx5 --tb=short --durations=8 -k "$both or $forks"
}

# Both ends the library's: what is not preloaded runs no code of ours.
threads_with_tsan()
{
	$python -m pytest tests/integration/test_tcp_threads.py --tsan -q -p no:cacheprovider --tb=short \
		-k "both-ours or control or udp"
}

export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1

step build build all unit sim helpers vm-bin bench-bin
step unit scripts/check.sh build
step kmod scripts/kmod.sh
step kunit scripts/kunit.sh
step sim build/tests/sim/sim --count 60000
step conform build/tests/conform/conform
step differential build/tests/conform/conform --differential docs/tcp-differences.md
step fuzz-build build fuzz-bin
step fuzz scripts/fuzz.sh build 10
step integration integration
step vm vm
step vm-mlx5 vm_mlx5
step asan-build build SANITIZE=1 all unit sim helpers
step asan-unit scripts/check.sh build/asan
step asan-sim build/asan/tests/sim/sim --count 10000
step asan-conform build/asan/tests/conform/conform
step asan-integration integration --sanitize
step tsan-build build SANITIZE=thread all unit helpers
step tsan-unit scripts/check.sh build/tsan
step tsan-threads threads_with_tsan
step clang build CC=clang BUILD=build/clang all unit

printf '\n%d s in all\n' $((SECONDS - started))
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$skipped" -eq 0 ]
