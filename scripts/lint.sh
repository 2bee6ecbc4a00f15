#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# lint.sh build [check...]: looks at the sources: all checks, or those named. Each is a function below, and some run
# side by side. `make test` has those that take seconds, with ALL=1 cppcheck and clang-tidy, too, which take minutes.
# Prints what a check complains of, and ends with "N passed, N failed, N skipped"; 0 when clean.
set -u -o pipefail

cd "$(dirname "$0")/.." || exit 1
build=${1:-build}
shift
checks=(format width shell arrows cancel-points own-fds mutants checkpatch cppcheck clang-tidy)
if [[ " ${checks[*]} " == *" $build "* ]]; then
	echo "lint.sh: '$build' is a check: name the build directory before it" >&2
	exit 1
fi
[ $# -gt 0 ] || set -- "${checks[@]}"
passed=0 failed=0
macros=(-D_GNU_SOURCE= -Ilib -Iinclude)
logs=$build/lint
mkdir -p "$logs"

# sources extension...: those of the repository. An archive has none of git's, and root may not be let into a user's.
sources()
{
	local names=() extension

	git ls-files -- "${@/#/*.}" 2>/dev/null && return
	for extension in "$@"; do
		names+=(-o -name "*.$extension")
	done
	find . -path ./build -prune -o -type f -not -name '*.mod.c' \( "${names[@]:1}" \) -printf '%P\n' | sort
}

# clang-format over every C file; `make format` mends it.
lint_format()
{
	sources c h | xargs clang-format --dry-run --Werror
}

# .editorconfig's for Python.
lint_width()
{
	local most

	most=$(awk '/^\[/ { python = $0 == "[*.py]" } python && /^max_line_length/ { print $3 }' .editorconfig)
	{ sources py; grep -l -d skip '^#!/usr/bin/python3' scripts/*; } |
		xargs awk -v most="$most" 'length > most { printf "%s:%d: %d columns, %d at most\n", FILENAME, FNR, length, most; bad = 1 } END { exit bad }'
}

lint_shell()
{
	shellcheck -x scripts/*.sh scripts/vm .ci/run
}

# Which room of lib/ uses which.
lint_arrows()
{
	scripts/arrows "$build"
}

lint_cancel_points()
{
	scripts/cancel_points "$build"
}

# No descriptor goes past own_fd.h.
lint_own_fds()
{
	scripts/own_fds "$build"
}

# Whoever renames what a deliberate defect names learns it here.
lint_mutants()
{
	scripts/mutate --list
}

# The module's style. A kernel tree is there once `make kunit` has run, which checks the same.
lint_checkpatch()
{
	local tree

	for tree in "${VMA_KUNIT_CACHE:-/var/cache/vma-kunit}"/*/linux; do
		[ ! -e "$tree/scripts/checkpatch.pl" ] || scripts/checkpatch.sh "$tree" || return
	done
}

# Over what is installed.
lint_cppcheck()
{
	find lib tools -name '*.c' -print0 | sort -z | xargs -0 cppcheck --quiet --error-exitcode=1 --std=c11 --inline-suppr \
		--enable=warning,portability -j"$(nproc)" --suppress=missingIncludeSystem --library=posix --library=gnu \
		--suppressions-list=scripts/cppcheck.suppress -D__x86_64__ -D__LP64__ \
		"-DLIBBPF_OPTS(type, name, ...)=struct type name = {__VA_ARGS__}" "${macros[@]}"
}

# Not over the kernel's sources, which have the kernel's tools: scripts/kmod.sh, scripts/kunit.sh.
lint_clang_tidy()
{
	find lib tools tests -name '*.c' -not -path 'tests/kunit/*' -not -path 'tests/mlx5_device/module/*' | sort |
		xargs -P "$(nproc)" -I{} clang-tidy --quiet {} -- -std=gnu11 "${macros[@]}" "-I$build/bpf" -I/usr/include/libnl3 \
			-Itests/unit -Itests/fuzz 2>/dev/null
}

# run check: its output and its exit status go to build/lint.
run()
{
	local rc=0 begun=$SECONDS

	"lint_${1//-/_}" >"$logs/$1.log" 2>&1 || rc=$?
	echo $rc $((SECONDS - begun)) >"$logs/$1.rc"
}

report()
{
	local rc seconds

	read -r rc seconds <"$logs/$1.rc"
	if [ "$rc" -eq 0 ]; then
		passed=$((passed + 1))
		printf '  ok      %-16s %3d s\n' "$1" "$seconds"
	else
		failed=$((failed + 1))
		printf '  FAILED  %-16s %3d s\n' "$1" "$seconds"
		head -n 60 "$logs/$1.log" | sed 's/^/    /'
	fi
}

for check in "$@"; do
	[ "$(type -t "lint_${check//-/_}")" = function ] || { echo "lint.sh: there is no check $check" >&2; exit 2; }
done
for check in "$@"; do
	while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do
		wait -n
	done
	run "$check" &
done
wait
for check in "$@"; do
	report "$check"
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
