# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# shellcheck shell=bash
#
# ns.sh, to be sourced: two network namespaces joined by a veth pair, gone when the script ends.
#
#     NS_A  [ NS_DEV_A  NS_IP4_A  NS_IP6_A ] ---- veth ---- [ NS_DEV_B  NS_IP4_B  NS_IP6_B ]  NS_B
#
# The names carry the script's name and pid, so that two runs at once do not meet. Everything that
# runs in the namespaces is ended with them: at the end, at an error and at Ctrl-C alike.

NS_NAME=vma-$(basename "$0" .sh)
NS_A=$NS_NAME-$$-a
NS_B=$NS_NAME-$$-b
NS_DEV_A=veth-a
NS_DEV_B=veth-b
NS_IP4_A=10.77.0.1
NS_IP4_B=10.77.0.2
NS_IP6_A=fd77::1
NS_IP6_B=fd77::2
NS_MTU=1500

# Prints why and ends with 1 unless root runs this.
ns_need_root()
{
	[ "$(id -u)" = 0 ] && return
	echo "$(basename "$0"): this needs root, because it makes network namespaces" >&2
	exit 1
}

# Ends what runs in namespace $1, politely first, and deletes it.
ns_delete()
{
	local signal pids

	[ -e "/run/netns/$1" ] || return 0
	for signal in TERM KILL KILL; do
		for _ in {1..30}; do
			pids=$(ip netns pids "$1")
			[ -n "$pids" ] || break 2
			# shellcheck disable=SC2086 # a list
			kill -s $signal $pids 2>/dev/null || true
			sleep 0.05
		done
	done
	ip netns delete "$1"
}

ns_clean()
{
	trap '' INT TERM HUP
	ns_delete "$NS_A"
	ns_delete "$NS_B"
}

# A run that was killed with SIGKILL could not clean up: take away what is left of dead pids.
ns_clean_stale()
{
	local name pid

	for name in $(ip netns list | awk -v p="$NS_NAME-" 'index($1, p) == 1 { print $1 }'); do
		pid=${name#"$NS_NAME-"}
		pid=${pid%-?}
		[ -d "/proc/$pid" ] || ns_delete "$name"
	done
}

# Makes both namespaces; cleaning up is arranged before the first of them exists. NS_MTU may be set before.
ns_make()
{
	trap ns_clean EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM HUP
	ns_clean_stale
	ip netns add "$NS_A"
	ip netns add "$NS_B"
	ip -n "$NS_A" link add "$NS_DEV_A" mtu $NS_MTU type veth \
		peer name "$NS_DEV_B" mtu $NS_MTU netns "$NS_B"
	ns_addresses "$NS_A" "$NS_DEV_A" $NS_IP4_A $NS_IP6_A
	ns_addresses "$NS_B" "$NS_DEV_B" $NS_IP4_B $NS_IP6_B
}

# No duplicate address detection: the IPv6 address serves at once.
ns_addresses()
{
	ip -n "$1" addr add "$3/24" dev "$2"
	ip -n "$1" addr add "$4/64" dev "$2" nodad
	ip -n "$1" link set lo up
	ip -n "$1" link set "$2" up
}

# ns_wait_bound namespace port: returns when a UDP socket is bound to the port or a TCP socket listens on it, 1 after five seconds.
ns_wait_bound()
{
	for _ in {1..100}; do
		[ -n "$(ip netns exec "$1" ss -Hltun "sport = :$2")" ] && return 0
		sleep 0.05
	done
	echo "nothing bound port $2 within five seconds" >&2
	return 1
}

# ns_udp_received namespace: the datagrams that the kernel's own UDP has received there.
ns_udp_received()
{
	# shellcheck disable=SC2016 # awk's own fields
	ip netns exec "$1" awk '$1 == "Udp:" && $2 != "InDatagrams" { print $2 }' /proc/net/snmp
}
