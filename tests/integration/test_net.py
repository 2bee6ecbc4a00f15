# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""lib/net against the truth of `ip`: a process with a mirror (net/net_test.c) in a namespace that changes under it.

    ns A (the mirror)                                 ns B (the peer)
    v0 10.77.0.1/24 fd77::1/64  ---- veth ----        v0 10.77.0.2/24 fd77::2/64
    v1 10.78.0.1/24 fd78::1/64  ---- veth ----        v1 10.78.0.2/24 fd78::2/64

The process is built here, with AddressSanitizer and UBSan, for the threads with ThreadSanitizer.
"""

import errno
import ipaddress
import json
import os
import subprocess
import time

import pytest

from netns import ROOT, made_once, wait_for

ETHER, VIRTUAL, LOOPBACK, OTHER = range(4)
UNICAST, LOCAL, BROADCAST, MULTICAST, UNREACHABLE = range(5)
MAC_B = "02:00:00:77:00:02"


def sh(command, check=True):
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert not check or done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def build(tmp_path_factory, sanitizer):
    runtime = "lib/runtime/caps.c lib/runtime/clock.c lib/runtime/libc.c lib/runtime/lock.c lib/runtime/log*.c lib/runtime/own_fd.c lib/runtime/text_file.c"
    config = "lib/config/param*.c lib/config/profiles.c"

    def compiled(directory):
        sh(f"cd {ROOT} && gcc -std=gnu11 -D_GNU_SOURCE -g -O1 -Wall -Wextra -Werror -fsanitize={sanitizer}"
           f" -fno-sanitize-recover=all -Ilib -Iinclude -I/usr/include/libnl3 -o {directory}/net_test tests/integration/net/net_test.c"
           f" lib/net/*.c {runtime} {config} -lbpf -lnl-route-3 -lnl-3 -lpthread -ldl")
    return made_once(tmp_path_factory, f"net-{sanitizer}", compiled) / "net_test"


@pytest.fixture(scope="session")
def asan(tmp_path_factory):
    return build(tmp_path_factory, "address,undefined")


@pytest.fixture(scope="session")
def tsan(tmp_path_factory):
    return build(tmp_path_factory, "thread")


class Names:
    """The two namespaces."""

    def __init__(self):
        self.a, self.b = f"net{os.getpid()}a", f"net{os.getpid()}b"
        for ns in (self.a, self.b):
            sh(f"ip netns add {ns}; ip -n {ns} link set lo up;"
               f"ip netns exec {ns} sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0")
        for i, mac in ((0, MAC_B), (1, "02:00:00:78:00:02")):
            sh(f"ip -n {self.a} link add v{i} type veth peer name v{i} address {mac} netns {self.b}")
            for ns, host in ((self.a, 1), (self.b, 2)):
                sh(f"ip -n {ns} addr add 10.{77 + i}.0.{host}/24 brd + dev v{i};"
                   f"ip -n {ns} addr add fd{77 + i}::{host}/64 dev v{i} nodad; ip -n {ns} link set v{i} up")
        for ns in (self.a, self.b):
            wait_for(lambda: all(link["operstate"] == "UP" for link in json.loads(sh(f"ip -n {ns} -j link show type veth"))))
        self.index = [self.link(f"v{i}")["ifindex"] for i in (0, 1)]

    def ip(self, command, check=True):
        return sh(f"ip -n {self.a} {command}", check)

    def link(self, name):
        return json.loads(self.ip(f"-j -d link show {name}"))[0]

    def run(self, command, check=True):
        return sh(f"ip netns exec {self.a} {command}", check)

    def poke(self, addr):
        """Has the kernel send something to addr, for which it must resolve the neighbour."""
        family = "INET6" if ":" in addr else "INET"
        self.run(f"/usr/bin/python3 -c \"from socket import *; socket(AF_{family}, SOCK_DGRAM).sendto(b'x', ('{addr}', 9))\"")

    def close(self):
        for ns in (self.a, self.b):
            sh(f"ip netns del {ns}", check=False)


@pytest.fixture
def names():
    n = Names()
    yield n
    n.close()


class Mirror:
    """The process. A method is a command of net_test.c."""

    def __init__(self, names, binary):
        env = dict(os.environ, TSAN_OPTIONS="halt_on_error=1", UBSAN_OPTIONS="print_stacktrace=1")
        # Without address randomisation, which ThreadSanitizer cannot do with everywhere.
        self.process = subprocess.Popen(["setarch", "-R", "ip", "netns", "exec", names.a, binary], text=True, env=env,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=1)

    def __getattr__(self, command):
        return lambda *args: self.ask(command, *args)

    def ask(self, *words):
        self.process.stdin.write(" ".join(str(w) for w in words) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"net_test died at {words}, exit {self.process.wait()}"
        return json.loads(line)

    def route(self, dst, src="::", oif=0, mark=0, tos=0, proto=0, sport=0, dport=0):
        return self.ask("route", dst, src, oif, mark, tos, proto, sport, dport)

    def close(self):
        self.process.stdin.close()
        status = self.process.wait(20)
        assert status == 0, f"net_test ended with {status}: a sanitizer's report stands above"

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def started(names, binary):
    m = Mirror(names, binary)
    assert m.start() == 0
    assert m.listen() == 0
    return m


@pytest.fixture
def mirror(names, asan):
    m = started(names, asan)
    yield m
    try:
        assert m.state()["unguarded"] == 0, "a call of libnl that the preload would take for the application's"
        m.close()
    finally:
        m.kill()


def bumped(mirror, change, key="gen"):
    """Runs change and waits until the generation has moved."""
    before = mirror.state()[key]
    change()
    wait_for(lambda: mirror.state()[key] != before, what=f"{key} stays {before}")


def settle(mirror):
    """Waits until no event and no second bump is outstanding."""
    last = mirror.state()
    while True:
        time.sleep(0.25)
        now = mirror.state()
        if (now["gen"], now["neigh_gen"]) == (last["gen"], last["neigh_gen"]):
            return now
        last = now


# Links

def test_a_link_is_what_ip_says(names, mirror):
    truth = names.link("v0")
    link = mirror.link(names.index[0])
    assert (link["err"], link["name"], link["mtu"], link["mac"], link["driver"], link["kind"], link["up"]) == (
        0, "v0", truth["mtu"], truth["address"], "veth", VIRTUAL, 1)
    assert link["queues"] == 1, "one queue is in use, however many are allocated"
    assert mirror.link(1)["kind"] == LOOPBACK
    assert sorted(mirror.links()) == sorted(x["ifindex"] for x in json.loads(names.ip("-j link")))
    assert mirror.link(9999)["err"] == -errno.ENODEV
    assert mirror.link(0)["err"] == -errno.ENODEV
    assert mirror.link(-1)["err"] == -errno.ENODEV


def test_queues_of_a_multi_queue_link_are_those_in_use(names, mirror):
    names.ip("link add q0 numrxqueues 4 numtxqueues 4 type veth peer name q1 numrxqueues 4 numtxqueues 4")
    index = names.link("q0")["ifindex"]
    wait_for(lambda: mirror.link(index)["err"] == 0)
    assert mirror.link(index)["queues"] == 4
    names.run("ethtool -L q0 rx 2 tx 2")
    bumped(mirror, lambda: names.ip("link set q0 mtu 1400"))
    wait_for(lambda: mirror.link(index)["queues"] == 2)


def test_mtu_mac_name_and_state_changes_arrive(names, mirror):
    index = names.index[0]
    bumped(mirror, lambda: names.ip("link set v0 mtu 1400"))
    wait_for(lambda: mirror.link(index)["mtu"] == 1400)
    bumped(mirror, lambda: names.ip("link set v0 address 02:11:22:33:44:55"))
    wait_for(lambda: mirror.link(index)["mac"] == "02:11:22:33:44:55")
    bumped(mirror, lambda: names.ip("link set v0 down"))
    wait_for(lambda: not mirror.link(index)["up"])
    names.ip("link set v0 name other")
    wait_for(lambda: mirror.link(index)["name"] == "other")
    names.ip("link set other up")
    wait_for(lambda: mirror.link(index)["up"])
    # The peer goes down: IFF_UP stays, IFF_RUNNING goes.
    sh(f"ip -n {names.b} link set v0 down")
    wait_for(lambda: not mirror.link(index)["up"])
    assert mirror.state()["told"][0] > 0


def test_kinds_of_links(names, mirror):
    kinds = {"dummy": VIRTUAL, "bridge": VIRTUAL, "vxlan id 7 dstport 4789": VIRTUAL, "macvlan link v1": VIRTUAL,
             "wireguard": OTHER, "gre local 10.77.0.1 remote 10.77.0.2": OTHER}
    tried = 0
    for what, kind in kinds.items():
        name, link = f"k{tried}", ""
        words = what.split()
        if "link" in words:
            link, words = "link v1", words[:1]
        if subprocess.run(f"ip -n {names.a} link add {link} name {name} type {' '.join(words)}", shell=True,
                          capture_output=True).returncode:
            continue
        index = names.link(name)["ifindex"]
        wait_for(lambda: mirror.link(index)["err"] == 0, what=what)
        got = mirror.link(index)
        assert (got["driver"], got["kind"]) == (words[0], kind), what
        tried += 1
    names.ip("tuntap add mode tap name tap0")
    names.ip("tuntap add mode tun name tun0")
    for name, kind in (("tap0", VIRTUAL), ("tun0", OTHER)):
        index = names.link(name)["ifindex"]
        wait_for(lambda: mirror.link(index)["err"] == 0, what=name)
        assert mirror.link(index)["kind"] == kind, name
    assert tried >= 2, "no software link could be made"


def test_a_master_is_seen_and_a_bridge_port_leaving_is_not_a_link_gone(names, mirror):
    names.ip("link add br0 type bridge")
    bridge = names.link("br0")["ifindex"]
    names.ip("link set v1 master br0")
    wait_for(lambda: mirror.link(names.index[1])["master"] == bridge)
    names.ip("link set v1 nomaster")
    wait_for(lambda: mirror.link(names.index[1])["master"] == 0)
    settle(mirror)
    assert mirror.link(names.index[1])["err"] == 0
    assert mirror.local("10.78.0.1")


def test_a_deleted_link_takes_its_addresses_and_neighbours_along(names, mirror):
    index = names.index[1]
    names.ip(f"neigh add 10.78.0.9 lladdr 02:00:00:00:00:09 dev v1 nud permanent")
    wait_for(lambda: mirror.neigh(index, "10.78.0.9")["err"] == 0)
    assert mirror.local("10.78.0.1") and mirror.broadcast("10.78.0.255")
    names.ip("link del v1")
    wait_for(lambda: mirror.link(index)["err"] == -errno.ENODEV)
    wait_for(lambda: not mirror.local("10.78.0.1"))
    assert mirror.neigh(index, "10.78.0.9")["err"] == -errno.ENOENT
    assert not mirror.broadcast("10.78.0.255")
    assert index not in mirror.links()
    assert mirror.route("10.78.0.2")["err"] == -errno.ENETUNREACH


# Addresses

def truth_addrs(names, dev=""):
    return sorted(str(ipaddress.ip_address(a["local"])) for link in json.loads(names.ip(f"-j addr show {dev}"))
                  for a in link.get("addr_info", []) if "local" in a and not a.get("tentative"))


def test_addresses_are_those_of_ip(names, mirror):
    assert sorted(mirror.addrs(0)) == truth_addrs(names)
    for i in (0, 1):
        assert sorted(mirror.addrs(names.index[i])) == truth_addrs(names, f"v{i}")
    assert mirror.local("10.77.0.1") and mirror.local("fd77::1") and mirror.local("127.0.0.1")
    assert mirror.local("127.3.2.1"), "127.0.0.0/8 is local as a whole"
    assert not mirror.local("10.77.0.2") and not mirror.local("fd77::2") and not mirror.local("10.77.0.255")
    assert mirror.ifindex("10.78.0.1") == names.index[1] and mirror.ifindex("fd78::1") == names.index[1]
    assert mirror.ifindex("10.78.0.2") == 0 and mirror.ifindex("127.9.9.9") == 1


def test_an_address_comes_and_goes(names, mirror):
    for addr, plen in (("10.99.0.1", 16), ("fd99::1", 64)):
        assert not mirror.local(addr)
        bumped(mirror, lambda: names.ip(f"addr add {addr}/{plen} dev v0 {'nodad' if ':' in addr else ''}"))
        wait_for(lambda: mirror.local(addr))
        assert mirror.ifindex(addr) == names.index[0]
        assert sorted(mirror.addrs(0)) == truth_addrs(names)
        bumped(mirror, lambda: names.ip(f"addr del {addr}/{plen} dev v0"))
        wait_for(lambda: not mirror.local(addr))
        assert sorted(mirror.addrs(0)) == truth_addrs(names)
    assert mirror.state()["told"][1] > 0


def test_one_address_with_two_prefixes_stays_until_both_are_gone(names, mirror):
    names.ip("addr add 10.99.0.1/24 dev v0")
    names.ip("addr add 10.99.0.1/16 dev v0")
    wait_for(lambda: mirror.broadcast("10.99.255.255"))
    bumped(mirror, lambda: names.ip("addr del 10.99.0.1/24 dev v0"))
    settle(mirror)
    assert mirror.local("10.99.0.1") and not mirror.broadcast("10.99.0.255")
    names.ip("addr del 10.99.0.1/16 dev v0")
    wait_for(lambda: not mirror.local("10.99.0.1"))


def test_broadcast_addresses(names, mirror):
    assert mirror.broadcast("255.255.255.255") and mirror.broadcast("10.77.0.255")
    assert not mirror.broadcast("10.77.0.254") and not mirror.broadcast("10.77.0.1")
    assert not mirror.broadcast("127.255.255.255") and not mirror.broadcast("ff02::1")
    names.ip("addr add 10.99.1.1/24 brd 10.99.1.200 dev v0")
    wait_for(lambda: mirror.broadcast("10.99.1.200"))
    assert mirror.broadcast("10.99.1.255"), "the prefix' own one is a broadcast too, as in the kernel's table"
    names.ip("addr add 10.99.2.1/31 dev v0")
    wait_for(lambda: mirror.local("10.99.2.1"))
    assert not mirror.broadcast("10.99.2.1") and not mirror.broadcast("10.99.2.0")
    names.ip("addr del 10.99.1.1/24 dev v0")
    wait_for(lambda: not mirror.broadcast("10.99.1.200"))
    assert not mirror.broadcast("10.99.1.255")
    table = names.ip("route show table local type broadcast dev v0")
    assert "10.77.0.255" in table and "10.77.0.0 " not in table, table


def test_a_broadcast_address_of_two_addresses_stays_until_both_are_gone(names, mirror):
    names.ip("addr add 10.77.0.7/24 brd + dev v0")
    wait_for(lambda: mirror.local("10.77.0.7"))
    bumped(mirror, lambda: names.ip("addr del 10.77.0.7/24 dev v0"))
    settle(mirror)
    assert mirror.broadcast("10.77.0.255")


def test_link_local_addresses_belong_to_their_interface(names, mirror):
    own = [next(a["local"] for a in json.loads(names.ip(f"-j addr show v{i}"))[0]["addr_info"]
                if a["local"].startswith("fe80")) for i in (0, 1)]
    assert mirror.local(own[0], names.index[0]) and mirror.local(own[0])
    assert not mirror.local(own[0], names.index[1])
    names.ip(f"addr add {own[0]}/64 dev v1 nodad")
    wait_for(lambda: mirror.local(own[0], names.index[1]))
    names.ip(f"addr del {own[0]}/64 dev v1")
    wait_for(lambda: not mirror.local(own[0], names.index[1]))
    assert mirror.local(own[0], names.index[0])
    # A global address is local whatever the interface.
    assert mirror.local("fd77::1", names.index[1])


def test_a_tentative_address_is_not_there_yet(names, mirror):
    # The peer has the address: detection fails, it never becomes usable.
    names.poke("fd77::2")
    wait_for(lambda: mirror.neigh(names.index[0], "fd77::2")["err"] == 0, what="the peer answers")
    names.run("sysctl -qw net.ipv6.conf.v0.accept_dad=1 net.ipv6.conf.all.accept_dad=1")
    names.ip("addr add fd77::2/64 dev v0")
    wait_for(lambda: "dadfailed" in names.ip("addr show v0"), timeout=8)
    settle(mirror)
    assert not mirror.local("fd77::2") and "fd77::2" not in mirror.addrs(0)


# Routes

def truth_route(names, dst, extra=""):
    return json.loads(names.ip(f"-j route get {dst} {extra}"))[0]


def agrees(names, mirror, dst, extra="", **query):
    truth = truth_route(names, dst, extra)
    got = mirror.route(dst, **query)
    assert got["err"] == 0
    assert got["oif"] == names.link(truth["dev"])["ifindex"], (dst, truth, got)
    assert got["gateway"] == truth.get("gateway", "::"), (dst, truth, got)
    if "prefsrc" in truth:
        assert got["prefsrc"] == truth["prefsrc"], (dst, truth, got)
    return got


def test_routes_are_those_of_the_kernel(names, mirror):
    assert agrees(names, mirror, "10.77.0.2")["type"] == UNICAST
    assert agrees(names, mirror, "10.77.0.1")["type"] == LOCAL
    assert agrees(names, mirror, "127.0.0.1")["type"] == LOCAL
    assert agrees(names, mirror, "10.77.0.255")["type"] == BROADCAST
    assert agrees(names, mirror, "fd77::2")["type"] == UNICAST
    assert agrees(names, mirror, "fd77::1")["type"] == LOCAL
    assert agrees(names, mirror, "::1")["type"] == LOCAL
    assert mirror.route("8.8.8.8")["err"] == -errno.ENETUNREACH
    assert mirror.route("2001:db8::1")["err"] == -errno.ENETUNREACH
    got = mirror.route("10.77.0.2")
    assert (got["mtu"], got["multipath"], got["prefsrc"]) == (1500, 0, "10.77.0.1")


def test_route_add_replace_and_del(names, mirror):
    for family, dst, gw in (("", "10.200.0.1", ("10.77.0.2", "10.78.0.2")), ("-6", "fd20::1", ("fd77::2", "fd78::2"))):
        net = "10.200.0.0/16" if not family else "fd20::/64"
        assert mirror.route(dst)["err"] == -errno.ENETUNREACH
        bumped(mirror, lambda: names.ip(f"{family} route add {net} via {gw[0]} mtu 1300"))
        wait_for(lambda: mirror.route(dst)["err"] == 0)
        got = agrees(names, mirror, dst)
        assert (got["gateway"], got["mtu"], got["oif"]) == (gw[0], 1300, names.index[0])
        bumped(mirror, lambda: names.ip(f"{family} route replace {net} via {gw[1]}"))
        wait_for(lambda: mirror.route(dst)["gateway"] == gw[1])
        assert agrees(names, mirror, dst)["mtu"] == 1500
        bumped(mirror, lambda: names.ip(f"{family} route del {net}"))
        wait_for(lambda: mirror.route(dst)["err"] == -errno.ENETUNREACH)
    assert mirror.state()["told"][2] > 0


def test_the_mtu_is_the_metric_or_the_links_and_never_above_it(names, mirror):
    names.ip("route add 10.200.0.0/16 via 10.77.0.2 mtu 9000")
    wait_for(lambda: mirror.route("10.200.0.1")["err"] == 0)
    assert mirror.route("10.200.0.1")["mtu"] == 1500
    names.ip("link set v0 mtu 1400")
    wait_for(lambda: mirror.route("10.77.0.2")["mtu"] == 1400)


@pytest.mark.parametrize("kind, error4, error6", [
    ("unreachable", errno.EHOSTUNREACH, errno.EHOSTUNREACH),
    ("prohibit", errno.EACCES, errno.EACCES),
    ("blackhole", errno.EINVAL, errno.EINVAL)])
def test_a_route_that_refuses_gives_the_errno_of_send(names, mirror, kind, error4, error6):
    names.ip(f"route add {kind} 10.201.0.0/16")
    names.ip(f"-6 route add {kind} fd21::/64")
    wait_for(lambda: mirror.route("10.201.0.1")["err"] != -errno.ENETUNREACH)
    wait_for(lambda: mirror.route("fd21::1")["err"] != -errno.ENETUNREACH)
    for dst, error in (("10.201.0.1", error4), ("fd21::1", error6)):
        got = mirror.route(dst)
        assert got["err"] == -error and got["type"] == UNREACHABLE, (dst, got)
        probe = ("import socket,sys\ns=socket.socket(socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET,"
                 "socket.SOCK_DGRAM)\ntry: s.sendto(b'x',(sys.argv[1],9)); print(0)\nexcept OSError as e: print(e.errno)")
        kernel = int(names.run(f"python3 -c \"{probe}\" {dst}"))
        assert kernel == error, "what the kernel's own socket says"


def test_policy_rules_marks_tos_and_source_decide(names, mirror):
    names.ip("route add default via 10.77.0.2")
    names.ip("route add default via 10.78.0.2 table 100")
    names.ip("-6 route add default via fd77::2")
    names.ip("-6 route add default via fd78::2 table 100")
    wait_for(lambda: mirror.route("8.8.8.8")["gateway"] == "10.77.0.2")
    wait_for(lambda: mirror.route("2001:db8::1")["gateway"] == "fd77::2")
    bumped(mirror, lambda: names.ip("rule add fwmark 7 table 100"))
    bumped(mirror, lambda: names.ip("-6 rule add fwmark 7 table 100"))
    settle(mirror)
    assert agrees(names, mirror, "8.8.8.8", "mark 7", mark=7)["gateway"] == "10.78.0.2"
    assert agrees(names, mirror, "8.8.8.8")["gateway"] == "10.77.0.2"
    assert agrees(names, mirror, "2001:db8::1", "mark 7", mark=7)["gateway"] == "fd78::2"
    assert agrees(names, mirror, "2001:db8::1")["gateway"] == "fd77::2"
    bumped(mirror, lambda: names.ip("rule del fwmark 7 table 100"))
    wait_for(lambda: mirror.route("8.8.8.8", mark=7)["gateway"] == "10.77.0.2")
    names.ip("rule add from 10.78.0.1 table 100")
    wait_for(lambda: mirror.route("8.8.8.8", src="10.78.0.1")["gateway"] == "10.78.0.2")
    assert mirror.route("8.8.8.8", src="10.78.0.1")["prefsrc"] == "10.78.0.1"
    names.ip("rule add tos 0x10 table 100")
    wait_for(lambda: mirror.route("8.8.8.8", tos=0x10)["gateway"] == "10.78.0.2")
    assert mirror.route("8.8.8.8", tos=0x11)["gateway"] == "10.78.0.2", "ECN bits do not route"
    assert mirror.route("8.8.8.8")["gateway"] == "10.77.0.2"
    assert agrees(names, mirror, "8.8.8.8", "oif v1", oif=names.index[1])["oif"] == names.index[1]


@pytest.mark.parametrize("v6", [False, True], ids=["4", "6"])
def test_policy_rules_by_protocol_and_port_decide(names, mirror, v6):
    """Of one host several routes then; without such a rule one answer is for all ports, which the kernel is asked for once."""
    six, host, ways = ("-6", "2001:db8::1", ("fd77::2", "fd78::2")) if v6 else ("", "8.8.8.8", ("10.77.0.2", "10.78.0.2"))
    names.ip(f"{six} route add default via {ways[0]}")
    names.ip(f"{six} route add default via {ways[1]} table 100")
    wait_for(lambda: mirror.route(host)["gateway"] == ways[0])
    settle(mirror)

    def way(proto, sport, dport):
        got = mirror.route(host, proto=proto, sport=sport, dport=dport)
        if proto:
            name = {6: "tcp", 17: "udp"}[proto]
            assert truth_route(names, host, f"ipproto {name} sport {sport} dport {dport}")["gateway"] == got["gateway"]
        return ways.index(got["gateway"])
    asked = mirror.state()["sends"]
    assert [way(6, 5000 + i, 80) for i in range(20)] == [0] * 20
    assert mirror.state()["sends"] - asked <= 2, "without such a rule ports make no difference"
    bumped(mirror, lambda: names.ip(f"{six} rule add ipproto tcp dport 80 table 100"))
    settle(mirror)
    seen = [way(*flow) for flow in ((6, 5000, 80), (6, 5001, 80), (6, 5000, 81), (17, 5000, 80), (0, 0, 0))]
    print(f"by dport 80 of TCP: {seen}")
    assert seen == [1, 1, 0, 0, 0]
    bumped(mirror, lambda: names.ip(f"{six} rule add ipproto udp sport 7000-7009 table 100"))
    settle(mirror)
    assert [way(17, port, 53) for port in (6999, 7000, 7009, 7010)] == [0, 1, 1, 0]
    bumped(mirror, lambda: names.ip(f"{six} rule del ipproto tcp dport 80 table 100"))
    settle(mirror)
    assert way(6, 5000, 80) == 0 and way(17, 7000, 53) == 1


def test_a_rule_by_port_from_before_the_start_is_known(names, asan):
    names.ip("route add default via 10.77.0.2")
    names.ip("route add default via 10.78.0.2 table 100")
    names.ip("rule add dport 80 table 100")
    m = started(names, asan)
    try:
        assert m.route("8.8.8.8", proto=6, dport=80)["gateway"] == "10.78.0.2"
        assert m.route("8.8.8.8", proto=6, dport=81)["gateway"] == "10.77.0.2"
        m.close()
    finally:
        m.kill()


def test_each_of_many_links_is_there(names, mirror):
    """More than one look at the table gives: none is left out, none is there twice."""
    lines = "".join(f"link add many{i} type bridge\n" for i in range(200))
    subprocess.run(["ip", "-n", names.a, "-batch", "-"], input=lines, text=True, check=True)
    truth = sorted(link["ifindex"] for link in json.loads(names.ip("-j link show")))
    wait_for(lambda: mirror.links() == truth, 10, lambda: f"{len(mirror.links())} of {len(truth)} links")
    print(f"{len(truth)} links")
    assert len(truth) > 200


def test_a_source_that_is_not_ours_or_of_the_other_family_is_refused(names, mirror):
    assert mirror.route("10.77.0.2", src="10.77.0.99")["err"] in (
        -errno.EINVAL, -errno.ENETUNREACH), "which of the two depends on the kernel"
    assert mirror.route("10.77.0.2", src="fd77::1")["err"] == -errno.EINVAL
    assert mirror.route("fd77::2", src="10.77.0.1")["err"] == -errno.EINVAL
    assert mirror.route("10.77.0.2", src="0.0.0.0")["err"] == 0


def test_multicast_routes(names, mirror):
    names.ip("route add 224.0.0.0/4 dev v1")
    wait_for(lambda: mirror.route("239.1.2.3")["oif"] == names.index[1])
    got = mirror.route("239.1.2.3")
    assert (got["type"], got["gateway"], got["prefsrc"]) == (MULTICAST, "::", "10.78.0.1")
    got = mirror.route("239.1.2.3", oif=names.index[0])
    assert (got["type"], got["oif"]) == (MULTICAST, names.index[0])
    for i in (0, 1):
        got = mirror.route("ff15::7", oif=names.index[i])
        assert (got["err"], got["type"], got["oif"]) == (0, MULTICAST, names.index[i])


def test_link_local_destinations_need_their_interface(names, mirror):
    for i in (0, 1):
        got = mirror.route("fe80::1234", oif=names.index[i])
        assert (got["err"], got["type"], got["oif"], got["gateway"]) == (0, UNICAST, names.index[i], "::")
        assert got["prefsrc"].startswith("fe80::")


def test_more_than_one_next_hop_is_said(names, mirror):
    names.ip("route add 10.202.0.0/16 nexthop via 10.77.0.2 nexthop via 10.78.0.2")
    names.ip("-6 route add fd22::/64 nexthop via fd77::2 nexthop via fd78::2")
    for dst, hops in (("10.202.0.1", ("10.77.0.2", "10.78.0.2")), ("fd22::1", ("fd77::2", "fd78::2"))):
        wait_for(lambda: mirror.route(dst)["err"] == 0)
        got = mirror.route(dst)
        assert got["multipath"] == 1 and got["gateway"] in hops
    assert mirror.route("10.77.0.2")["multipath"] == 0


def test_next_hop_objects_and_ipv6_gateways_of_ipv4_routes(names, mirror):
    names.ip("route add 10.203.0.0/16 via inet6 fd77::2 dev v0")
    wait_for(lambda: mirror.route("10.203.0.1")["err"] == 0)
    assert mirror.route("10.203.0.1")["gateway"] == "fd77::2"
    names.ip("nexthop add id 5 via 10.77.0.2 dev v0")
    names.ip("route add 10.204.0.0/16 nhid 5")
    wait_for(lambda: mirror.route("10.204.0.1")["err"] == 0)
    bumped(mirror, lambda: names.ip("nexthop replace id 5 via 10.78.0.2 dev v1"))
    wait_for(lambda: mirror.route("10.204.0.1")["gateway"] == "10.78.0.2")


def test_a_link_that_goes_down_takes_its_routes_along_for_good(names, mirror):
    """The kernel announces the link before it flushes the routes: an answer between the two must not stay."""
    names.ip("route add 10.200.0.0/16 via 10.77.0.2")
    wait_for(lambda: mirror.route("10.200.0.1")["err"] == 0)
    names.ip("link set v0 down")
    wait_for(lambda: mirror.route("10.200.0.1")["err"] == -errno.ENETUNREACH)
    settle(mirror)
    assert mirror.route("10.200.0.1")["err"] == -errno.ENETUNREACH


def test_the_generation_is_bumped_once_more_after_the_last_event(names, mirror):
    for command in ("add", "del"):
        before = settle(mirror)["gen"]
        names.ip(f"route {command} 10.210.0.0/16 via 10.77.0.2")
        wait_for(lambda: mirror.state()["gen"] >= before + 1)
        wait_for(lambda: mirror.state()["gen"] >= before + 2)
        assert settle(mirror)["gen"] == before + 2, "and then it is quiet"


def test_a_cached_route_costs_no_system_call_and_the_cache_is_bounded(names, mirror):
    names.ip("route add 10.9.0.0/16 via 10.77.0.2")
    wait_for(lambda: mirror.route("10.9.0.1")["err"] == 0)
    settle(mirror)
    assert mirror.routes(5000, 1) == 5000, "far more than the cache holds"
    assert mirror.routes(5000, 1) == 5000
    assert mirror.routes(100, 1) == 100
    before = mirror.state()["sends"]
    assert mirror.routes(100, 50) == 5000
    # Old entries make room in no particular order: a few of the hundred may have been among them.
    assert mirror.state()["sends"] - before < 100
    names.ip("link set v1 mtu 1400")
    settle(mirror)
    before = mirror.state()["sends"]
    assert mirror.routes(100, 1) == 100
    assert mirror.state()["sends"] - before >= 100, "a new generation asks anew"


# Neighbours

def test_a_permanent_neighbour(names, mirror):
    index = names.index[0]
    for addr in ("10.77.0.9", "fd77::9"):
        assert mirror.neigh(index, addr)["err"] == -errno.ENOENT
        bumped(mirror, lambda: names.ip(f"neigh add {addr} lladdr 02:00:00:00:00:09 dev v0 nud permanent"), "neigh_gen")
        assert mirror.neigh(index, addr) == {"err": 0, "mac": "02:00:00:00:00:09", "stale": 0}
        assert mirror.neigh(names.index[1], addr)["err"] == -errno.ENOENT, "an entry belongs to its interface"
        bumped(mirror, lambda: names.ip(f"neigh change {addr} lladdr 02:00:00:00:00:0a dev v0"), "neigh_gen")
        assert mirror.neigh(index, addr)["mac"] == "02:00:00:00:00:0a"
        bumped(mirror, lambda: names.ip(f"neigh del {addr} dev v0"), "neigh_gen")
        assert mirror.neigh(index, addr)["err"] == -errno.ENOENT
    assert mirror.state()["told"][3] > 0


def test_a_learned_neighbour_that_goes_stale_is_told_and_confirmed(names, mirror):
    index = names.index[0]
    for addr in ("10.77.0.2", "fd77::2"):
        names.poke(addr)
        wait_for(lambda: mirror.neigh(index, addr)["err"] == 0)
        assert mirror.neigh(index, addr)["mac"] == MAC_B
        settle(mirror)
        before = mirror.state()["neigh_gen"]
        # Whoever sends there past the kernel has to have it confirmed: the kernel sees none of that.
        bumped(mirror, lambda: names.ip(f"neigh change {addr} dev v0 nud stale"), "neigh_gen")
        assert mirror.neigh(index, addr)["stale"] == 1
        settle(mirror)
        before = mirror.state()["neigh_gen"]
        assert mirror.confirm(index, addr) == 1
        wait_for(lambda: mirror.neigh(index, addr)["stale"] == 0)
        state = json.loads(names.ip(f"-j neigh show {addr} dev v0"))[0]["state"]
        assert state[0] in ("DELAY", "PROBE", "REACHABLE"), state
        assert mirror.state()["neigh_gen"] == before, "confirming does not invalidate"
        # Once in VMA_NEIGH_UC_ARP_DELAY_MSEC only.
        names.ip(f"neigh change {addr} dev v0 nud stale")
        wait_for(lambda: mirror.neigh(index, addr)["stale"] == 1)
        assert mirror.confirm(index, addr) == 0, "to be asked again"
        settle(mirror)
        assert mirror.neigh(index, addr)["stale"] == 1
        mirror.confirm_delay(0)
        mirror.confirm(index, addr)
        wait_for(lambda: mirror.neigh(index, addr)["stale"] == 0)
        mirror.confirm_delay(10000)


def test_confirming_leaves_a_permanent_entry_and_an_unknown_one_alone(names, mirror):
    names.ip("neigh add 10.77.0.9 lladdr 02:00:00:00:00:09 dev v0 nud permanent")
    mirror.confirm(names.index[0], "10.77.0.9")
    mirror.confirm(names.index[0], "10.77.0.200")
    mirror.confirm(9999, "10.77.0.200")
    settle(mirror)
    shown = names.ip("neigh show dev v0")
    assert "10.77.0.9 lladdr 02:00:00:00:00:09 PERMANENT" in shown and "10.77.0.200" not in shown


def test_a_neighbour_that_does_not_answer_is_told_and_never_usable(names, mirror):
    index = names.index[0]
    names.run("sysctl -qw net.ipv4.neigh.v0.retrans_time_ms=50 net.ipv4.neigh.v0.mcast_solicit=2")
    settle(mirror)
    before = mirror.state()
    names.poke("10.77.0.250")
    wait_for(lambda: "FAILED" in names.ip("neigh show 10.77.0.250 dev v0"))
    wait_for(lambda: mirror.state()["told"][3] > before["told"][3])
    assert mirror.neigh(index, "10.77.0.250")["err"] == -errno.ENOENT
    assert mirror.state()["neigh_gen"] == before["neigh_gen"]


def test_a_neighbour_whose_mac_changes_bumps_the_generation(names, mirror):
    names.poke("10.77.0.2")
    wait_for(lambda: mirror.neigh(names.index[0], "10.77.0.2")["err"] == 0)
    settle(mirror)
    bumped(mirror, lambda: names.ip("neigh change 10.77.0.2 lladdr 02:00:00:99:99:99 dev v0 nud reachable"), "neigh_gen")
    assert mirror.neigh(names.index[0], "10.77.0.2")["mac"] == "02:00:00:99:99:99"


def test_interfaces_without_lladdr_have_no_usable_neighbours(names, mirror):
    names.poke("127.0.0.1")
    settle(mirror)
    assert mirror.neigh(names.index[0], "10.77.0.1")["err"] == -errno.ENOENT


# The mirror itself

def test_start_is_idempotent_and_stop_leaves_nothing(names, mirror):
    assert mirror.start() == 0
    fds = mirror.fds()
    assert fds["open"] > 0 and fds["inherited"] == 0
    mirror.stop()
    assert mirror.fds()["open"] == 0 and mirror.links() == [] and mirror.addrs(0) == []
    assert mirror.state()["fd"] == -1 and mirror.route("10.77.0.2")["err"] == -errno.ENETDOWN
    mirror.stop()
    names.ip("link set v0 mtu 1300")
    assert mirror.start() == 0
    assert mirror.link(names.index[0])["mtu"] == 1300 and mirror.fds()["open"] == fds["open"]


def test_the_child_of_a_fork_has_no_mirror_and_can_have_its_own(names, mirror):
    assert mirror.fork() == 0, "the failed step of forked_child()"
    bumped(mirror, lambda: names.ip("link set v0 mtu 1300"))
    wait_for(lambda: mirror.link(names.index[0])["mtu"] == 1300)


def test_at_most_eight_listeners(mirror):
    assert [mirror.listen() for _ in range(8)] == [0] * 7 + [-errno.ENOSPC]


def storm(names, count):
    """Many addresses and neighbours come and go in one batch each; what stays at the end is known."""
    batch = []
    for i in range(count):
        addr = f"10.{100 + i // 60000}.{i // 250 % 240}.{i % 250 + 1}"
        batch += [f"addr add {addr}/32 dev v1", f"neigh replace {addr} lladdr 02:00:00:00:{i >> 8 & 255:02x}:{i & 255:02x}"
                  f" dev v0 nud permanent", f"addr del {addr}/32 dev v1"]
        if i % 2:
            batch.append(f"neigh del {addr} dev v0")
    subprocess.run(["ip", "-n", names.a, "-batch", "-"], input="\n".join(batch) + "\n", text=True, check=True)


def truth_neighs(names):
    return {(n["dst"], n["lladdr"]) for n in json.loads(names.ip("-j neigh show dev v0 nud permanent")) if "lladdr" in n}


def test_lost_events_lead_to_a_new_dump(names, mirror):
    settle(mirror)
    mirror.pause(1)
    before = mirror.state()
    # Its coming is still heard of, its going is lost.
    early = [f"10.97.0.{i}" for i in range(1, 9)]
    for addr in early:
        names.ip(f"addr add {addr}/32 dev v1")
    storm(names, 6000)
    for addr in early:
        names.ip(f"addr del {addr}/32 dev v1")
    names.ip("addr add 10.99.0.1/16 dev v0")
    names.ip("addr del 10.78.0.1/24 dev v1")
    names.ip("link set v1 mtu 1333")
    assert mirror.local("10.78.0.1"), "paused: it cannot know yet"
    overrun = any(int(line.split()[8]) > 0 for line in names.run("cat /proc/net/netlink").splitlines()[1:])
    assert overrun, "the storm was too small to overflow the event socket"
    mirror.pause(0)
    wait_for(lambda: mirror.link(names.index[1])["mtu"] == 1333, timeout=20)
    settle(mirror)
    assert not any(mirror.local(addr) for addr in early), "an event older than the dump was taken in after it"
    after = mirror.state()
    assert after["gen"] != before["gen"] and after["neigh_gen"] != before["neigh_gen"]
    assert sorted(mirror.addrs(0)) == truth_addrs(names)
    truth = truth_neighs(names)
    assert len(truth) >= 500
    for addr, mac in list(truth)[:300]:
        assert mirror.neigh(names.index[0], addr)["mac"] == mac
    for i in range(1, 300, 2):
        assert mirror.neigh(names.index[0], f"10.100.{i // 250}.{i % 250 + 1}")["err"] == -errno.ENOENT
    # And it lives on.
    names.ip("addr add 10.98.0.1/16 dev v0")
    wait_for(lambda: mirror.local("10.98.0.1"))


def test_many_threads_read_while_everything_changes(names, tsan):
    mirror = started(names, tsan)
    try:
        mirror.readers(4, names.index[0])
        end = time.monotonic() + 5
        while time.monotonic() < end:
            storm(names, 100)
            names.ip("link set v0 mtu 1400; true")
            names.ip("link set v0 mtu 1500")
            names.ip("route replace 10.200.0.0/16 via 10.77.0.2")
            names.ip(f"neigh replace 10.77.0.2 lladdr 02:00:00:77:00:03 dev v0 nud stale")
        done = mirror.readers_stop()
        assert done["wrong"] == 0 and done["done"] > 1000, done
        settle(mirror)
        assert sorted(mirror.addrs(0)) == truth_addrs(names)
        mirror.close()
    finally:
        mirror.kill()
