# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""AF_XDP on what is no device itself: an interface of a VLAN, a bond. Debian's kernel has their modules."""

import platform
import re
import time

import pytest

from netns import ip, wait_for
from overlays import A, up, vlan
from test_mlx5 import ECHO, PORT, TCP_CLIENT, UDP_CLIENT, lost, whole

BOTH = pytest.mark.parametrize("ours", ["a", "b"])
KINDS = pytest.mark.parametrize("kind", ["udp", "tcp"])


def bond(net, mode="active-backup"):
    """Two wires, of which one is in use, or one for each peer."""
    ip("-n", net.a.name, "link", "add", "second", "type", "veth", "peer", "name", "second", "netns", net.b.name)
    for host in (net.a, net.b):
        ip("-n", host.name, "link", "add", "over", "type", "bond", "mode", mode, "miimon", "100")
        for member in (host.dev, "second"):
            ip("-n", host.name, "link", "set", member, "down")
            ip("-n", host.name, "link", "set", member, "master", "over")
            ip("-n", host.name, "link", "set", member, "up")
        ip("-n", host.name, "link", "set", "over", "type", "bond", "active_slave", host.dev)
    up(net)


# What GRO has merged AF_XDP takes since then, and in generic mode, which is all that these have, it comes so.
TAKES_MERGED = tuple(map(int, re.match(r"(\d+)\.(\d+)", platform.release()).groups())) >= (6, 6)


def only(here):
    """A test of this kernel, or not one at all: scripts/vm runs Debian 12's own, scripts/vm -k 6.12 the other."""
    return lambda test: test if here else None


MAKES = pytest.mark.parametrize("make", [vlan, bond], ids=["vlan", "bond"])


def answered_past_the_kernel(net):
    """The port is bound before it is steered, and what comes in between is the kernel's."""
    before = net.a.counters()["UdpInDatagrams"]
    with net.b.socket() as s:
        s.sendto(b"0 ", (A, PORT))
        s.recv(10)
    return net.a.counters()["UdpInDatagrams"] == before


def served(net, kind, ours):
    server = net.a.python(ECHO, ours == "a", [kind, A], env={"VMA_TRACELEVEL": "INFO"})
    net.a.wait_bound(PORT, kind)
    if ours == "a" and kind == "udp" and TAKES_MERGED:
        wait_for(lambda: answered_past_the_kernel(net), 20, "the port is steered")
    elif ours == "a" and TAKES_MERGED:
        net.a.wait_steered(PORT, "tcp", 20)
    return server


def asks(net, kind, ours, size):
    client = net.b.python(UDP_CLIENT if kind == "udp" else TCP_CLIENT, ours == "b", [A, size], env={"VMA_TRACELEVEL": "INFO"})
    if kind == "udp":
        assert lost(client) == 0
    else:
        whole(client)
    return client


@only(TAKES_MERGED)
@BOTH
@KINDS
@MAKES
def test_its_packets_go_past_the_kernel(net, make, ours, kind):
    make(net)
    host = getattr(net, ours)
    served(net, kind, ours)
    with host.tcp_bypassed(4), host.bypassed():
        asks(net, kind, ours, 60 if kind == "udp" else 8)


@only(not TAKES_MERGED)
@KINDS
@MAKES
def test_its_packets_stay_with_the_kernel_and_that_is_said_once(net, make, kind):
    """Before, a bond's packets were lost, and the log said the same each time that the interface was tried anew."""
    make(net)
    server = served(net, kind, "a")
    for turn in range(3):
        if turn and kind == "udp":
            time.sleep(5.5)  # an interface that refused is asked again after five
        asks(net, kind, "a", 20 if kind == "udp" else 2)
    text = server.text
    said = re.findall(r"WARNING: (.*): sockets stay with the kernel", text)
    print(said)
    assert len(said) == 1 and "merged packets" in said[0] and text.count("no ring type fits") == 1


@only(TAKES_MERGED)
@KINDS
def test_a_bond_whose_wire_breaks(net, kind):
    """The other wire goes on; nothing is lost but datagrams that were on their way."""
    bond(net)
    served(net, kind, "a")
    client = net.b.python(UDP_CLIENT if kind == "udp" else TCP_CLIENT, False, [A, 400 if kind == "udp" else 100])
    wait_for(lambda: net.a.interface_packets()[0] > 50, what="packets")
    for host in (net.a, net.b):
        ip("-n", host.name, "link", "set", host.dev, "down")
    if kind == "udp":
        assert lost(client, 120) < 100
    else:
        whole(client, 120)


@KINDS
def test_a_bond_that_receives_by_several_addresses_stays_with_the_kernel(net, kind):
    """Two wires without a switch between them carry no such bond's packets: what is looked at is what the library says and does."""
    bond(net, "balance-alb")
    server = net.a.python(ECHO, True, [kind, A], env={"VMA_TRACELEVEL": "INFO"})
    server.wait_text("receives by the addresses of the devices below it", 20)
    assert not re.search(r"\bxdp", ip("-n", net.a.name, "link", "show"))
    assert server.text.count('a bond in mode "balance-alb(#6)" receives by the addresses of the devices below it') == 1, server.text
