# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# shellcheck shell=bash disable=SC2154 # what the caller sets
#
# backports.sh, to be sourced: kernels of this release's backports. Their list is read aside, and what comes of them is unpacked
# in $cache: nothing of this machine's configuration changes, and nothing is installed. The caller has cache and fail.

# The lists of packages that apt-get and apt-cache read: the machine's, or the backports' alone.
apt_options=()

# Makes apt read the backports of this release, from the machine's own mirror.
backports_read()
{
	local lists=$cache/backports mirror codename key=/usr/share/keyrings/debian-archive-keyring.gpg

	codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
	# shellcheck disable=SC2016 # apt-get's own names
	mirror=$(apt-get indextargets --format '$(REPO_URI)' "Codename: $codename" | head -n 1)
	mkdir -p "$lists/lists/partial" "$lists/cache" || fail "cannot write in $cache"
	echo "deb [signed-by=$key] ${mirror:-http://deb.debian.org/debian} $codename-backports main" >"$lists/list"
	apt_options=(-o Dir::Etc::SourceList="$lists/list" -o Dir::Etc::SourceParts=- -o Dir::State::Lists="$lists/lists"
		-o Dir::Cache="$lists/cache" -o APT::Sandbox::User=root)
}

# backports_release 6.12: prints the newest release of that version; one of which the cache has the kernel (linux-) or the headers
# (headers-) comes before one of the backports, so that the two fit.
backports_release()
{
	local there

	there=$(find "$cache" -maxdepth 1 -name "linux-$1.*-amd64" -o -maxdepth 1 -name "headers-$1.*-amd64" 2>/dev/null | sort -V | tail -n 1)
	if [ -n "$there" ]; then
		there=${there##*/}
		echo "${there#*-}"
	else
		apt-get "${apt_options[@]}" update -qq >/dev/null
		apt-cache "${apt_options[@]}" search --names-only "^linux-image-${1//./\\.}\\.[^-]*-amd64\$" |
			sed -n 's/^linux-image-\([^ ]*\) .*/\1/p' | sort -V | tail -n 1
	fi
}

# packages_download directory package...: what apt_options say, into the directory; its log there tells what went wrong.
packages_download()
{
	local dir=$1

	shift
	(cd "$dir" && { apt-get "${apt_options[@]}" download -qq "$@" ||
		{ apt-get "${apt_options[@]}" update -qq && apt-get "${apt_options[@]}" download -qq "$@"; }; }) >"$dir/log" 2>&1
}
