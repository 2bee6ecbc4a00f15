# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A neighbour that gets another MAC without a word, as after a failover: it is found again, as by the kernel."""

import socket

import pytest

from differential import App
from netns import ip, wait_for
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
