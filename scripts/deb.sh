#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# deb.sh: builds the Debian packages in build/deb, from a copy of the tree, and has lintian look at them. What debian/ says is
# not right without its reason in a lintian-overrides file there ends it with 1. `make deb` has installed what it needs.
set -eu -o pipefail

cd "$(dirname "$0")/.."
version=$(dpkg-parsechangelog -S Version)
source=build/deb/libvma-$version
log=build/deb/build.log

rm -rf build/deb
mkdir -p "$source"
# Of a tree without git's own directory (an archive's) all but what is built.
if git ls-files -z >/dev/null 2>&1; then
	git ls-files -z --cached --others --exclude-standard
else
	find . -path ./build -prune -o -type f -print0
fi | tar --null --ignore-failed-read -cf - -T - 2>/dev/null | tar -xf - -C "$source"

# What the calling make was told is not for the makes below.
unset MAKEFLAGS MFLAGS MAKEOVERRIDES MAKELEVEL BUILD PREFIX LIBDIR DESTDIR SYSCONFDIR SANITIZE CHECK_LOCKS CC
if ! (cd "$source" && dpkg-buildpackage -us -uc -b "-j$(nproc)") >"$log" 2>&1; then
	tail -40 "$log" >&2
	echo "deb: dpkg-buildpackage failed; all that it said: $log" >&2
	exit 1
fi
lintian --allow-root --fail-on error,warning --tag-display-limit 0 "build/deb/libvma_${version}_amd64.changes"
rm -rf "$source"
ls build/deb/*.deb
