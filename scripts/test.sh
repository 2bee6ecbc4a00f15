#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# test.sh: what is run before each commit, or with ALL=1 every test there is; ends with the line
# "N passed, N failed, N skipped". What was skipped counts as a failure: on a machine with root everything can run.
#
#     ONLY=step,step   some steps, whichever of the two they belong to; SANITIZE=1 and SANITIZE=thread: those of one sanitizer
#     REPEAT=3         so many times in a row        LOAD=2   beside so many endless loops
#     WORKERS=6        how many tests of integration run side by side
#
# A step is a line below; the steps of one lane follow each other, and the lanes run side by side. The logs stay in
# build/test, and so do the times, from which the next run says how long it will take.
set -u -o pipefail

cd "$(dirname "$0")/.." || exit 1
# shellcheck source=scripts/ns.sh
. scripts/ns.sh
ns_need_root

only=${ONLY:-} all=${ALL:-} repeat=${REPEAT:-1} load=${LOAD:-0} workers=${WORKERS:-6}
[ -n "$only" ] || case ${SANITIZE:-} in
1) only=asan-build,asan-unit,asan-sim,asan-conform,asan-integration ;;
thread) only=tsan-build,tsan-unit,tsan-threads ;;
esac
# What the outer make was told is not for the makes below.
unset MAKEFLAGS MFLAGS MAKEOVERRIDES MAKELEVEL SANITIZE BUILD ONLY ALL REPEAT LOAD WORKERS
python=/usr/bin/python3
# A wait that ends well ends at once; one that fails may be that of a machine with other work.
export TEST_PATIENCE=${TEST_PATIENCE:-3}
# A test that hangs ends, fails and says where it was: else the whole is over with it, and nobody knows which it was.
export PYTEST_TIMEOUT=1500
export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1
logs=build/test
mkdir -p $logs

build()
{
	make -j"$(nproc)" -k "$@"
}

# integration [options]: kernel peers, real programs, namespaces; each test has its own, and waits more than it computes. Those
# that measure run after the others, one at a time. All of them with ALL=1, in the plain build; else a part (few.py).
integration()
{
	local rc=0 options=(--ignore=tests/integration/programs --ignore=tests/integration/test_deb.py -q -p no:cacheprovider --tb=short --durations=40 -rfEs "$@")

	{ [ -n "$all" ] && [ $# -eq 0 ]; } || options+=("--few=$part")
	$python -m pytest tests/integration -n "$workers" -m "not alone" "${options[@]}" || rc=1
	$python -m pytest tests/integration -n 0 -m alone "${options[@]}" || rc=1
	return $rc
}

# More programs of Debian's, whose packages are installed for this step only.
programs()
{
	scripts/deps.sh programs && $python -m pytest tests/integration/programs -q -n "$workers" -p no:cacheprovider --tb=short --durations=10 -rfEs
}

# Debian packages, and a bare Debian in which they come and go; build/chroot keeps that one.
# One of the tests downloads a compiler and a kernel's headers there: vma-dkms builds the module.
deb()
{
	make deb && $python -m pytest tests/integration/test_deb.py -q -p no:cacheprovider --tb=short -rfEs
}

# sim build count: random exchanges, a part on each processor, and the narrow place; ends with what all of them say.
sim()
{
	local n each jobs rc=0

	jobs=$(nproc)
	each=$(($2 / jobs))
	for ((n = 0; n < jobs; n++)); do
		"$1/tests/sim/sim" --from $((each * n + 1)) --count $each >"$1/sim.$n" 2>&1 &
	done
	for ((n = 0; n < jobs; n++)); do
		wait -n || rc=1
	done
	"$1/tests/sim/sim" --bottleneck >"$1/sim.$jobs" 2>&1 || rc=1
	cat "$1"/sim.[0-9]* | awk '/^[0-9]+ passed, / { p += $1; f += $3; s += $5; next } { print }
		END { printf "%d passed, %d failed, %d skipped\n", p, f, s }'
	rm "$1"/sim.[0-9]*
	return $rc
}

# On Debian's own kernel, with the module. vm [options of pytest]
vm()
{
	make kmod mlx5-device && scripts/vm -t 4500 -m 6144 "$@" --tb=short --durations=25
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
	$python -m pytest tests/integration/test_{tcp_threads,chaos}.py --tsan -q -n "$workers" -p no:cacheprovider --tb=short \
		-k "both-ours and not fork or threads-ours or control or udp"
}

# Threads that lose their processor at each lock and each wake-up, and locks that know their order (lib/runtime/lock_check.h).
threads_with_locks()
{
	$python -m pytest tests/integration/test_{tcp_threads,wakeups,tcp_waits,udp_life}.py --locks -q -n "$workers" -p no:cacheprovider \
		--tb=short -k "both-ours or control or hammer or wakeups or peeking or cancelled or every_call"
}
# Sixteen threads of random calls, forks, cancellations, interfaces that vanish.
chaos_with_locks()
{
	CHAOS_CALLS=1500 $python -m pytest tests/integration/test_chaos.py --locks -q -n "$workers" -p no:cacheprovider --tb=short \
		-k "ours or vanish"
}
# What takes minutes of it. Other lanes wait more than it does: it takes what they leave.
tidy()
{
	build all && nice -n 5 scripts/lint.sh build cppcheck clang-tidy
}

export LOCK_CHECK_SEED=${LOCK_CHECK_SEED:-$RANDOM}
# Of scripts/mutate's defects those that the unit tests find at once.
quick_mutants=option-off-by-one,fold-without-second-carry,unlock-missing-on-error,watch-not-unlinked

# shellcheck source=scripts/test/run.sh
. scripts/test/run.sh

# What the module and the mlx5 ring are for, in one machine of two minutes; of two cases alike one.
smoke="past_the_kernel and not b] and not udp-a] or tcp_by_a_striding_queue or a_stream_to_a_kernel_peer or bpftool or the_peers_of_a_killed"
smoke="$smoke or forked_children_live and [fork]"
# The unit programs with several threads: in one thread there is no race to see (nor in sim and conform).
mapfile -t threaded < <(grep -lE 'pthread_create|worker_|net_start' tests/unit/test_*.c | sed 's|.*/||; s|\.c$||')
many=$([ -n "$all" ] && echo 3 || echo 1)
# Of few.py's: each commit has another one than the one before it.
part=$(git rev-list --count HEAD 2>/dev/null || echo 0)

# step lane when name command...: when is each (each time), few (without ALL=1) or all (with ALL=1 only). The lane `first`
# ends before main, vm and lint begin. What waits for nobody is beside, at a low priority: a cold kernel of KUnit's is minutes of work.
plan()
{
	step first each build build all unit sim helpers vm-bin bench-bin
	step beside each kunit nice -n 5 scripts/kunit.sh
	step vm few vm-smoke vm tests/vm --few-cards -k "$smoke"
	step vm all vm vm tests/vm --few-cards
	step vm all vm-mlx5 vm_mlx5
	step lint all tidy tidy
	step main each lint scripts/lint.sh build format width shell arrows cancel-points own-fds mutants
	step main each unit scripts/check.sh build
	step main each sim sim build 60000
	step main each conform build/tests/conform/conform
	step main each differential build/tests/conform/conform --differential docs/tcp-differences.md
	step main each asan-build build SANITIZE=1 all unit sim helpers
	step main each asan-unit scripts/check.sh build/asan
	step main each asan-sim sim build/asan $((4000 * many))
	step main each asan-conform build/asan/tests/conform/conform
	step main each tsan-build build SANITIZE=thread all helpers "${threaded[@]/#/build/tsan/tests/unit/}"
	step main each tsan-unit scripts/check.sh build/tsan "${threaded[@]}"
	step main each tsan-threads threads_with_tsan
	step main each locks-build build CHECK_LOCKS=1 all unit helpers
	step main each locks-unit scripts/check.sh build/check
	step main each locks-threads threads_with_locks
	step main each integration integration
	step main all locks-chaos chaos_with_locks
	step main all programs programs
	step main all asan-integration integration --sanitize
	step main all kmod scripts/kmod.sh
	step main all kmod-6.12 scripts/kmod.sh 6.12
	step main all fuzz-build build fuzz-bin
	step main all fuzz scripts/fuzz.sh build 10
	step main all mutate env ONLY=$quick_mutants scripts/mutate
	step main all deb deb
	step main all clang build CC=clang BUILD=build/clang all unit
}

run_all
