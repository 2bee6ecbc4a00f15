# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# shellcheck shell=bash disable=SC2154 # what the caller sets
#
# backports.sh, to be sourced: packages that are unpacked in $cache and not installed, of this release, its backports or those of
# Debian 13, whose lists are read aside: nothing of this machine's configuration changes. The caller has cache and fail.

# The lists of packages that apt-get and apt-cache read: the machine's, or the backports' alone.
apt_options=()

codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)

# The machine's own mirror, where apt tells it.
machine_mirror()
{
	local mirror

	# shellcheck disable=SC2016 # apt-get's own names
	mirror=$(apt-get indextargets --format '$(REPO_URI)' "Codename: $codename" | head -n 1)
	echo "${mirror:-http://deb.debian.org/debian}"
}

# backports_read [bookworm]: apt reads that release's backports, from the machine's own mirror.
backports_read()
{
	local of=${1:-$codename} key=/usr/share/keyrings/debian-archive-keyring.gpg
	local lists=$cache/backports-$of

	mkdir -p "$lists/lists/partial" "$lists/cache" || fail "cannot write in $cache"
	echo "deb [signed-by=$key] $(machine_mirror) $of-backports main" >"$lists/list"
	apt_options=(-o Dir::Etc::SourceList="$lists/list" -o Dir::Etc::SourceParts=- -o Dir::State::Lists="$lists/lists"
		-o Dir::Cache="$lists/cache" -o APT::Sandbox::User=root)
}

# backports_release 6.12 12: prints the newest release of that version in the backports of that Debian, which stands in its name; one of
# which the cache has the kernel (linux-) or the headers (headers-) comes before one of the archive's, so that the two fit.
backports_release()
{
	local there

	there=$(find "$cache" -maxdepth 1 \( -name "linux-$1.*+deb$2-amd64" -o -name "headers-$1.*+deb$2-amd64" \) 2>/dev/null | sort -V | tail -n 1)
	if [ -n "$there" ]; then
		there=${there##*/}
		echo "${there#*-}"
	else
		apt-get "${apt_options[@]}" update -qq >/dev/null
		apt-cache "${apt_options[@]}" search --names-only "^linux-image-${1//./\\.}\\.[^-]*-amd64\$" |
			sed -n 's/^linux-image-\([^ ]*\) .*/\1/p' | sort -V | tail -n 1
	fi
}

# backports_choose 6.12: apt reads the first backports that have that version, and $release is what backports_release says.
backports_choose()
{
	local of number

	for of in bookworm:12 trixie:13; do
		number=${of#*:} of=${of%:*}
		backports_read "$of"
		release=$(backports_release "$1" "$number")
		[ -z "$release" ] || return 0
	done
	fail "there is no Linux $1 for amd64 in the backports of Debian 12 and 13"
}

# cache_fetch name unpack remedy package...: $cache/<name> has what `unpack downloads directory` puts into the directory.
cache_fetch()
{
	local name=$1 unpack=$2 remedy=$3 work

	shift 3
	[ -e "$cache/$name" ] && return
	mkdir -p "$cache"
	work=$(mktemp -d "$cache/fetch.XXXXXX") || fail "cannot write in $cache"
	if ! (cd "$work" && { apt-get "${apt_options[@]}" download -qq "$@" ||
		{ apt-get "${apt_options[@]}" update -qq && apt-get "${apt_options[@]}" download -qq "$@"; }; }) >"$work/log" 2>&1; then
		cat "$work/log" >&2
		rm -rf "$work"
		fail "apt-get cannot download $1, and there is none in $cache (older than the archive's: $remedy)"
	fi
	mkdir "$work/unpacked"
	if ! "$unpack" "$work" "$work/unpacked"; then
		rm -rf "$work"
		fail "$1 cannot be unpacked"
	fi
	# The last step, and one step: a cache is whole or is not there. Another run may have been faster.
	mv -T "$work/unpacked" "$cache/$name" 2>/dev/null || [ -e "$cache/$name" ] || fail "cannot write $cache/$name"
	rm -rf "$work"
}
