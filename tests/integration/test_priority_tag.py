# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Frames with a priority tag (IEEE 802.1Q, VLAN 0), as some switches and virtual functions send all of theirs: they are the
interface's own, as the kernel has it.
"""

import contextlib
import logging

import pytest

from differential import App
from test_tcp_exit_wire import PORT, Wire as TcpWire
from test_udp_wire import Wire as UdpWire

logging.getLogger("scapy").setLevel(logging.ERROR)
from scapy.all import Dot1Q, Ether, IP, IPv6, Raw, UDP  # noqa: E402

types = pytest.mark.parametrize("tag_type", [0x8100, 0x88a8], ids=["802.1Q", "802.1ad"])
families = pytest.mark.parametrize("family", ["4", "6"])


@families
@types
def test_datagrams_arrive(net, family, tag_type):
    """Tagged and untagged ones in turns, all through the ring and in their order."""
    net.neighbours()
    layer = IPv6 if family == "6" else IP
    with contextlib.closing(UdpWire(net)) as wire, App(net.a, True, family) as app:
        app.do("s = udp(7000); ready(s)")
        with net.a.bypassed():
            for i in range(20):
                head = wire.eth() if i % 2 else wire.eth(type=tag_type) / Dot1Q(vlan=0, prio=i % 8)
                wire.send(head / layer(src=net.b.ip(int(family)), dst=net.a.ip(int(family))) /
                          UDP(sport=7001, dport=7000) / Raw(b"%d" % i))
            assert [app.do("s.recv(100)") for _ in range(20)] == [b"%d" % i for i in range(20)]


@families
@types
def test_a_connection_of_tagged_frames(net, family, tag_type):
    """The peer's segments are all tagged. The kernel, which does not know the connection, would reset it."""
    net.neighbours()
    with contextlib.closing(TcpWire(net, family)) as wire, App(net.b, True, family) as app:
        ether = wire.head.copy()
        ether.remove_payload()
        wire.head = Ether(src=ether.src, dst=ether.dst, type=tag_type) / Dot1Q(vlan=0, prio=3) / wire.head.payload
        with net.b.tcp_bypassed():
            app.do("s = socket.socket(FAM, socket.SOCK_STREAM)")
            app.start(f"s.connect(({wire.addr!r}, {PORT}))")
            wire.expect("S")
            wire.send("SA", 1)
            wire.expect("A", seq=1)
            app.answer()
            wire.send("A", 1, b"tagged")
            assert app.do("s.recv(6)") == b"tagged"
            app.do("s.sendall(b'plain')")
            wire.expect("A", data=b"plain")
            wire.send("FA", 6)
            assert app.do("s.recv(1)") == b""
            app.do("s.close()")
            wire.expect("F")
            wire.send("A", 7)
            wire.silent()
