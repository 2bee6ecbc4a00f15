#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# lint.sh build: clang-format over every C file (`make format` mends it), which room of lib/ uses which (scripts/arrows), its cancellation points,
# that no descriptor goes past own_fd.h (scripts/own_fds), clang-tidy over the C sources, cppcheck over those that are installed, shellcheck over the scripts, the kernel's checkpatch
# over the module. 0 when clean.
set -u -o pipefail

cd "$(dirname "$0")/.." || exit 1
build=${1:-build}
rc=0
flags=(-D_GNU_SOURCE= -Ilib -Iinclude "-I$build/bpf" -I/usr/include/libnl3)
# The kernel's sources have the kernel's tools: scripts/kmod.sh, scripts/kunit.sh.
mapfile -t sources < <(find lib tools tests -name '*.c' -not -path 'tests/kunit/*' -not -path 'tests/mlx5_device/module/*' | sort)
mapfile -t installed < <(find lib tools -name '*.c' | sort)

git ls-files -z '*.c' '*.h' | xargs -0 clang-format --dry-run --Werror || rc=1
scripts/arrows "$build" || rc=1
scripts/cancel_points "$build" || rc=1
scripts/own_fds "$build" || rc=1
cppcheck --quiet --error-exitcode=1 --std=c11 --inline-suppr --enable=warning,portability -j"$(nproc)" \
	--suppress=missingIncludeSystem --library=posix --library=gnu --suppressions-list=scripts/cppcheck.suppress \
	-D_GNU_SOURCE= -D__x86_64__ -D__LP64__ "-DLIBBPF_OPTS(type, name, ...)=struct type name = {__VA_ARGS__}" \
	-Ilib -Iinclude "${installed[@]}" || rc=1
printf '%s\n' "${sources[@]}" |
	xargs -P "$(nproc)" -I{} clang-tidy --quiet {} -- -std=gnu11 "${flags[@]}" -Itests/unit -Itests/fuzz 2>/dev/null || rc=1
# A kernel tree is there once `make kunit` has run, which checks the same.
for tree in "${VMA_KUNIT_CACHE:-/var/cache/vma-kunit}"/*/linux; do
	[ ! -e "$tree/scripts/checkpatch.pl" ] || scripts/checkpatch.sh "$tree" || rc=1
done
shellcheck -x scripts/*.sh scripts/vm .ci/run || rc=1
exit $rc
