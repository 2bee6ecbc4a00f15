#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# deps.sh [bench|programs|deb]: installs the Debian packages that building and testing need; with bench, also those that only
# `make bench` measures; with programs, those that tests/integration/programs runs; with deb, those that `make deb` needs. Does nothing, and asks no server, when all of them are there.
set -eu -o pipefail

packages=(
	gcc libc6-dev linux-libc-dev # the compiler
	clang libclang-rt-14-dev clang-tidy clang-format cppcheck shellcheck # BPF, fuzzing, lint
	libxdp-dev libbpf-dev bpftool # AF_XDP and the steering program
	libibverbs-dev ibverbs-providers ibverbs-utils # the descriptors of mlx5, and who opens its device
	libnl-3-dev libnl-route-3-dev # the kernel's routes and neighbours
	libncurses-dev # the live view of vma_stats
	libpcap-dev tshark # the filter of vma_stats capture, and who reads what it writes
	g++ pkg-config # programs that use the Extra API
	libcmocka-dev python3-pytest python3-pytest-xdist python3-pytest-timeout python3-scapy # tests; xdist: side by side; timeout: none for ever
	sockperf iperf3 # measuring
	redis-server redis-tools memcached nginx-light haproxy curl wrk socat # programs that the TCP tests run
	openssh-server openssh-client bubblewrap git perl cron rsync chrony # a system with the library in /etc/ld.so.preload
	libjemalloc2 # an allocator that is locked around fork()
	libmicrohttpd12 # what systemd-journal-remote (below) needs there
	systemd openbsd-inetd php-fpm # services that are started when a client comes
	dbus libpam-systemd # with them systemd starts as the first process of a namespace
	strace # what a start asks of the kernel
	liburing-dev # a program with io_uring
	python3-matplotlib # the plot
	linux-headers-amd64 sparse pahole # the kernel module; pahole: what the headers of newer kernels call
	linux-source-6.1 xz-utils make python3 flex bison bc # User Mode Linux for its tests
	iproute2 ethtool tcpdump procps util-linux # namespaces and what is seen in them
	qemu-system-x86 busybox-static kmod # the virtual machine of scripts/vm
)

# Parts of that system which would change this machine: it stays as it is, they are unpacked where the system is made (boot.sh).
unpacked=(systemd-resolved systemd-timesyncd systemd-journal-remote)
unpacked_dir=/var/cache/vma-system
# Large programs that nothing but the benchmarks runs.
bench_packages=(
	postgresql # pgbench comes with it
	mariadb-server-core mariadb-client-core sysbench # without the service; the client has what makes a data directory
	unbound dnsperf
	nghttp2-client # h2load
)
# Programs that only `make test ALL=1` runs, a file each in tests/integration/programs.
program_packages=(
	lighttpd varnish squid tinyproxy microsocks gunicorn nodejs php8.2-fpm libfcgi-bin vsftpd stunnel4 # servers of files and pages
	mosquitto mosquitto-clients nng-utils beanstalkd # messages
	unbound knot nsd dnsmasq-base bind9-dnsutils # names
	libnginx-mod-stream # datagrams through a proxy
	erlang-base # an emulator that waits for sockets in its own way
	snmpd snmp tftpd-hpa tftp-hpa # datagrams
	apache2-utils siege nghttp2-client wget axel aria2 lftp # who asks
	iperf nuttcp ncat netcat-openbsd # streams
)
# What makes Debian packages, looks at them, and makes the bare system in which a test installs them.
deb_packages=(
	build-essential debhelper dh-dkms # debian/; the first is what dpkg-buildpackage asks for before it begins
	lintian
	mmdebstrap
)
# What Debian 13 calls otherwise.
declare -A names_of_13=(
	[libclang-rt-14-dev]=libclang-rt-19-dev
	[libmicrohttpd12]=libmicrohttpd12t64
	[linux-source-6.1]=linux-source-6.12
	[php8.2-fpm]=php8.4-fpm
)
case ${1:-} in
bench) packages+=("${bench_packages[@]}") ;;
programs) packages+=("${program_packages[@]}") ;;
deb) packages+=("${deb_packages[@]}") ;;
esac

missing=() download=()
[ "$(sed -n 's/^VERSION_ID="\([0-9]*\).*/\1/p' /etc/os-release)" = 12 ] && names_of_13=()
for p in "${packages[@]}"; do
	p=${names_of_13[$p]-$p}
	status=$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null || true)
	[ "$status" = installed ] || missing+=("$p")
done
# Of the release of this machine's systemd, whose libraries they share.
release_of() { sed 's/[.-].*//'; }
for p in "${unpacked[@]}"; do
	have=$(dpkg-deb -f "$unpacked_dir/$p.deb" Version 2>/dev/null | release_of || true)
	[ -n "$have" ] && [ "$have" = "$(dpkg-query -W -f '${Version}' systemd 2>/dev/null | release_of)" ] || download+=("$p")
done
[ ${#missing[@]} -gt 0 ] || [ ${#download[@]} -gt 0 ] || exit 0

if [ "$(id -u)" != 0 ]; then
	echo "deps: these packages are missing and only root can install them: ${missing[*]} ${download[*]}" >&2
	exit 1
fi
echo "deps: installing ${missing[*]} ${download[*]}"
log=$(mktemp)
policy=/usr/sbin/policy-rc.d
[ -e "$policy" ] && policy=$log.policy
trap 'rm -f "$log" "$policy"' EXIT
export DEBIAN_FRONTEND=noninteractive
# redis, nginx and the like are wanted as programs: their packages do not start them as services (where a policy stands, it decides).
printf '#!/bin/sh\nexit 101\n' >"$policy"
chmod 755 "$policy"
# The package lists of a fresh machine may be empty or old: read them again only if they do not serve.
install()
{
	local dir

	{
		[ ${#missing[@]} -eq 0 ] || apt-get install -y -qq --no-install-recommends "${missing[@]}" || return 1
		for p in "${download[@]}"; do
			dir=$(mktemp -d) && (cd "$dir" && apt-get download -qq "$p") && mkdir -p "$unpacked_dir" &&
				mv "$dir/$p"_*.deb "$unpacked_dir/$p.deb" && rmdir "$dir" || return 1
		done
	} >"$log" 2>&1
}
if ! install; then
	apt-get update -qq >"$log" 2>&1 || { cat "$log" >&2; echo "deps: apt-get update failed" >&2; exit 1; }
	install || { cat "$log" >&2; echo "deps: apt-get install failed" >&2; exit 1; }
fi
