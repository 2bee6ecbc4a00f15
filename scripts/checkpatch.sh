#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# checkpatch.sh tree: the kernel's own idea of its style, over the module's sources. Silent and 0 when clean.
set -eu -o pipefail

cd "$(dirname "$0")/.."
checkpatch=("$1/scripts/checkpatch.pl" --no-tree --strict --quiet --terse --no-summary)
mapfile -t sources < <(find kmod tests/kunit tests/mlx5_device/module include/vma/kmod.h -name '*.[ch]' -not -name '*.mod.c' -not -name compat.h | sort)
rc=0
"${checkpatch[@]}" --file "${sources[@]}" || rc=1
# This one is there to ask for the version.
"${checkpatch[@]}" --ignore LINUX_VERSION_CODE,CONSTANT_COMPARISON --file kmod/compat.h || rc=1
exit $rc
