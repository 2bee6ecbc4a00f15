#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# demo.sh [build directory]: the same two sockperf programs, first over kernel sockets, then with
# libvma.so preloaded into both, side by side; and what vma_stats says about the running server.
#
#     [ sockperf client, cpu 1, 10.77.0.2 ] ---- veth ---- [ 10.77.0.1, cpu 0, sockperf server ]
set -eu -o pipefail

cd "$(dirname "$0")/.."
# shellcheck source=scripts/ns.sh
. scripts/ns.sh
ns_need_root

build=$(realpath "${1:-build}")
seconds=${DEMO_SECONDS:-3}
port=11110
work=
last_cpu=$(($(nproc) - 1))

finish()
{
	ns_clean
	rm -rf "$work"
}

fail()
{
	echo "demo: $*" >&2
	exit 1
}

# on namespace cpu preload command...: in the background of whoever calls it with &. The pid is the command's.
on()
{
	exec ip netns exec "$1" taskset -c "$2" env ${3:+LD_PRELOAD="$3"} "${@:4}"
}

# Until the server's port is served past the kernel. Where it never is, the table shows it.
wait_offloaded()
{
	for _ in $(seq 100); do
		if "$build/vma_stats" -p "$server" -v 5 -c 1 2>/dev/null | grep -q " Yes .*:$port "; then
			return 0
		fi
		sleep 0.1
	done
}

# server_start preload [--tcp]: sets $server, and $port, a new one: the last server's connection may still be ending on the old one
server_start()
{
	port=$((port + 1))
	on "$NS_A" 0 "$1" sockperf server -i $NS_IP4_A -p $port "${@:2}" >"$work/server" 2>&1 &
	server=$!
	ns_wait_bound "$NS_A" $port || { cat "$work/server" >&2; fail "the sockperf server did not start"; }
	if [ -n "$1" ] && [ -x "$build/vma_stats" ]; then
		wait_offloaded
	fi
}

# Ends the server and sets $messages, how many it received. Not for a subshell, which could not wait for it.
server_stop()
{
	kill -INT "$server"
	wait "$server" || true
	messages=$(sed -n 's/.*Total \([0-9]*\) messages received.*/\1/p' "$work/server")
}

# client seconds preload mode [--tcp]: sockperf's output goes to $work/client
client()
{
	(on "$NS_B" "$last_cpu" "$2" sockperf "${@:3}" -i $NS_IP4_A -p $port -m 64 -t "$1") >"$work/client" 2>&1 ||
		{ cat "$work/client" "$work/server" >&2; fail "sockperf $3 failed"; }
}

# pingpong preload [--tcp]: sets $median and $p99; the server runs on. On a busy machine a second may pass before the first answer.
pingpong()
{
	local time

	for time in "$seconds" $((seconds * 5)) $((seconds * 20)); do
		server_start "$@"
		client "$time" "$1" ping-pong "${@:2}"
		median=$(percentile 50.000)
		p99=$(percentile 99.000)
		[ -z "$median" ] || return 0
		server_stop
	done
	cat "$work/client" "$work/server" >&2
	fail "sockperf printed no median"
}

# rate preload [--tcp]: sets $messages, those that the server received in $took seconds, and the kernel's share of them in
# $kernel. On a busy machine the server may not have run at all.
rate()
{
	local before time

	for time in "$seconds" $((seconds * 5)) $((seconds * 20)); do
		server_start "$@"
		before=$(ns_udp_received "$NS_A")
		client "$time" "$1" throughput "${@:2}"
		server_stop
		kernel=$(($(ns_udp_received "$NS_A") - before))
		took=$time
		[ "${messages:-0}" -eq 0 ] || return 0
	done
	cat "$work/client" "$work/server" >&2
	fail "the server received nothing"
}

percentile()
{
	sed -n "s/.*percentile $1 = *\([0-9.]*\).*/\1/p" "$work/client"
}

# measure name preload: $work/<name> gets "median p99 rate share", the share (per cent) being that of the kernel's UDP
measure()
{
	local median p99 messages kernel took

	pingpong "$2"
	if [ -n "$2" ] && [ -x "$build/vma_stats" ]; then
		"$build/vma_stats" -p "$server" -v 1 -c 1 >"$work/stats" 2>&1 || true
	fi
	server_stop

	rate "$2"
	echo "$median $p99 $((messages / took)) $((kernel * 100 / messages))" >"$work/$1"
}

# measure_tcp name preload: adds "median rate" of a TCP connection to $work/<name>
measure_tcp()
{
	local median p99 messages kernel took

	pingpong "$2" --tcp
	server_stop
	rate "$2" --tcp
	echo "$(cat "$work/$1") $median $((messages / took))" >"$work/$1"
}

ns_make
trap finish EXIT
work=$(mktemp -d)
[ -e "$build/libvma.so" ] || fail "there is no $build/libvma.so: run make"

echo "sockperf over a veth pair between two network namespaces, 64-byte messages, $seconds s each"
echo "  kernel sockets ..."
measure kernel ""
measure_tcp kernel ""
echo "  LD_PRELOAD=${build#"$PWD"/}/libvma.so ..."
measure ours "$build/libvma.so"
measure_tcp ours "$build/libvma.so"

echo
paste -d ' ' "$work/kernel" "$work/ours" | awk '{
	printf "%-42s %12s %12s %9s\n", "", "kernel", "libvma.so", "ratio"
	printf "%-42s %12.2f %12.2f %8.1fx\n", "UDP half round trip, median (microseconds)", $1, $7, $1 / $7
	printf "%-42s %12.2f %12.2f %8.1fx\n", "UDP half round trip, 99th percentile", $2, $8, $2 / $8
	printf "%-42s %12d %12d %8.1fx\n", "UDP messages received per second", $3, $9, $9 / $3
	printf "%-42s %11d%% %11d%%\n", "of these through the kernel\047s UDP stack", $4, $10
	printf "%-42s %12.2f %12.2f %8.1fx\n", "TCP half round trip, median (microseconds)", $5, $11, $5 / $11
	printf "%-42s %12d %12d %8.1fx\n", "TCP messages received per second", $6, $12, $12 / $6
}'
if [ -s "$work/stats" ]; then
	echo
	echo "vma_stats of the running server:"
	cat "$work/stats"
fi
