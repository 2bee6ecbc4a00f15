# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A neighbour that gets another MAC without a word, as after a failover: it is found again, as by the kernel."""

import socket

import pytest

from differential import App
from netns import go_on, ip, stop, wait_for
from test_tcp_both import connected

MAC = "02:00:00:77:07:07"
# The connection has had the entry confirmed when it began; the default is once in 10 seconds.
OFTEN = {"VMA_NEIGH_UC_ARP_DELAY_MSEC": 100}


def impatient(host):
    """What does not answer is given up in a second."""
    for name, value in (("retrans_time_ms", 200), ("ucast_solicit", 2)):
        for family in ("ipv4", "ipv6"):
            host.run(["sysctl", "-qw", f"net.{family}.neigh.{host.dev}.{name}={value}"])


def goes_stale(host, address):
    ip("-n", host.name, "neigh", "change", address, "dev", host.dev, "nud", "stale")


def moves(host):
    """Its address has another MAC from now on, and nobody is told."""
    host.run(["sysctl", "-qw", f"net.ipv4.conf.{host.dev}.arp_notify=0"])
    host.run(["ip", "neigh", "flush", "all"])
    host.run(["ip", "link", "set", host.dev, "address", MAC])


@pytest.mark.parametrize("family", ["4", "6"])
def test_datagrams_find_it(net, family):
    impatient(net.a)
    address = net.b.ip(int(family))
    with App(net.a, True, family, OFTEN) as app:
        peer = net.b.socket(socket.AF_INET if family == "4" else socket.AF_INET6, timeout=0.3)
        peer.bind((address, 7001))
        app.do("s = udp(7000); s.connect((PEER, 7001))")

        def arrives():
            app.do("s.send(b'x')")
            try:
                return peer.recv(10)
            except TimeoutError:
                return None

        wait_for(arrives, what="a datagram")
        moves(net.b)
        goes_stale(net.a, address)
        while True:  # what was sent before
            try:
                peer.recv(10)
            except TimeoutError:
                break
        wait_for(arrives, 20, "a datagram to the new MAC")
        assert MAC in ip("-n", net.a.name, "neigh", "show", address, "dev", net.a.dev)


def test_a_connection_finds_it(net):
    """What was sent meanwhile arrives, too."""
    impatient(net.a)
    with connected(net, "4", True, False, OFTEN) as (server, client):
        server.do("s.sendall(b'before')")
        assert client.do("exactly(s, 6)") == b"before"
        moves(net.b)
        goes_stale(net.a, net.b.ip4)
        server.do("s.sendall(b'after')")
        assert client.do("exactly(s, 5)", 30) == b"after"


def no_link_local(host, how):
    """As an interface whose link-local address is not there, or not yet: duplicates are looked for."""
    if how == "none":
        host.run(["ip", "link", "set", host.dev, "addrgenmode", "none"])
        host.run(["ip", "-6", "addr", "flush", "dev", host.dev, "scope", "link"])
    else:
        host.run(["sysctl", "-qw", f"net.ipv6.conf.{host.dev}.dad_transmits=600", f"net.ipv6.conf.{host.dev}.accept_dad=1"])
        host.run(["ip", "-6", "addr", "flush", "dev", host.dev, "scope", "link"])
        host.run(["ip", "-6", "addr", "add", "fe80::77/64", "dev", host.dev])
    shown = ip("-n", host.name, "-6", "addr", "show", "dev", host.dev, "scope", "link")
    assert ("tentative" in shown) if how == "tentative" else not shown, shown


@pytest.mark.parametrize("how", ["none", "tentative"])
@pytest.mark.parametrize("kind", ["tcp", "udp"])
def test_without_a_link_local_address(net, kind, how):
    """The kernel asks for the neighbour with the packet's own address; asked to by netlink it would ask with the link-local one."""
    no_link_local(net.a, how)
    impatient(net.a)
    with net.b.socket(socket.AF_INET6, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM, timeout=20) as peer:
        peer.bind((net.b.ip6, 7001))
        if kind == "tcp":
            peer.listen()
        with App(net.a, True, "6") as app, net.a.tcp_bypassed():
            if kind == "tcp":
                app.do("s = socket.create_connection((PEER, 7001), 20); s.sendall(b'x' * 1000)", 30)
                with peer.accept()[0] as c:
                    assert c.recv(1000, socket.MSG_WAITALL) == b"x" * 1000
            else:
                app.do("s = udp(7000); s.connect((PEER, 7001)); [s.send(b'%d' % i) for i in range(3)]")
                assert [peer.recv(10) for _ in range(3)] == [b"0", b"1", b"2"]


def test_an_entry_that_was_set_a_moment_ago_stays(net):
    """The program sends before the library has heard of it: what asks the kernel for the neighbour must not take the entry away."""
    peers = [f"10.77.0.{100 + i}" for i in range(60)]
    with App(net.a, True) as app:
        app.do("s = udp(7000); await_ready(s, timeout=0.01)")
        app.do("def ask(peer): t = socket.socket(); t.setblocking(False); t.connect_ex((peer, 7001)); s.sendto(b'x', (peer, 7001)); kept.append(t)")
        app.do("kept = []")
        for peer in peers:
            stop(app.pid)
            ip("-n", net.a.name, "neigh", "replace", peer, "lladdr", MAC, "dev", net.a.dev, "nud", "permanent")
            app.start(f"ask({peer!r})")
            go_on(app.pid)
            app.answer()
    entries = ip("-n", net.a.name, "neigh", "show", "dev", net.a.dev)
    lost = [peer for peer in peers if f"{peer} lladdr {MAC} PERMANENT" not in entries]
    print(f"{len(peers)} entries, {len(lost)} lost")
    assert not lost
