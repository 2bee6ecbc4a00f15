# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
IPsec policies (ip xfrm): what must leave encrypted does not leave in the clear, and what must come encrypted is not taken in the clear.
There are no keys yet: the kernel asks for them, drops what it would encrypt until they come, and the wire shows what it would not.
"""

import contextlib
import socket
import struct

import pytest

from differential import App
from netns import ip, wait_for
from test_link_meanwhile import goes_on, opening  # noqa: F401
from test_why import reasons

PORT, MARK, SECRET = 7300, 7900, b"in the clear"
families = pytest.mark.parametrize("family", ["4", "6"])


def policy(host, verb, direction, local, remote, *selector):
    src, dst = (local, remote) if direction == "out" else (remote, local)
    words = ["dir", direction, "src", src, "dst", dst, *selector]
    tmpl = ["tmpl", "src", src, "dst", dst, "proto", "esp", "mode", "transport"] if verb == "add" else []
    ip("-n", host.name, "xfrm", "policy", verb, *words, *tmpl)


@contextlib.contextmanager
def asked_for_keys(host):
    """A daemon that the kernel asks for keys, and that has none. Without one calls fail at once (ESRCH)."""
    NETLINK_XFRM, XFRMGRP_ACQUIRE = 6, 1
    with host.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_XFRM) as s:
        s.bind((0, XFRMGRP_ACQUIRE))
        yield


class Wire:
    """What comes in at net.b's interface, in order."""

    def __init__(self, net):
        self.raw = net.b.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
        self.raw.bind((net.b.dev, 3))

    def __enter__(self):
        return self

    def __exit__(self, *how):
        self.raw.close()

    def until(self, wanted):
        """The packets up to the one that wanted(packet) says true of, without it."""
        seen = []
        while True:
            packet, at = self.raw.recvfrom(65536)
            if at[2] == socket.PACKET_OUTGOING:
                continue
            if wanted(packet):
                return seen
            seen.append(packet)


def protocol(packet):
    return packet[9] if packet[0] >> 4 == 4 else packet[6]


def marked(packet):
    """A datagram to port MARK, which no policy concerns."""
    at = 20 if packet[0] >> 4 == 4 else 40
    return protocol(packet) == socket.IPPROTO_UDP and struct.unpack_from(">H", packet, at + 2)[0] == MARK


def tcp_before_a_mark(app, wire):
    """The TCP segments that have come from the program's host until a datagram of the program's that it sends now."""
    app.do(f"udp().sendto(b'mark', (PEER, {MARK}))")
    return [p for p in wire.until(marked) if protocol(p) == socket.IPPROTO_TCP]


@contextlib.contextmanager
def listener(host, family):
    with host.socket(socket.AF_INET if family == "4" else socket.AF_INET6, socket.SOCK_STREAM) as s:
        s.bind((host.ip(int(family)), PORT))
        s.listen()
        yield s


@families
@pytest.mark.parametrize("there", [True, False], ids=["policy", "none"])
def test_a_syn_that_must_be_encrypted_does_not_leave_in_the_clear(net, family, there):
    net.neighbours()
    local, remote = net.a.ip(int(family)), net.b.ip(int(family))
    if there:
        policy(net.a, "add", "out", local, remote, "proto", "tcp")
    with asked_for_keys(net.a), Wire(net) as wire, listener(net.b, family), App(net.a, True, family) as app:
        app.do(f"s = socket.socket(FAM); s.setblocking(False); s.connect_ex((PEER, {PORT}))")
        if there:
            # The call does not wait: the internal thread, which was to open the ring, has the kernel connect.
            wait_for(lambda: f":{PORT}" in net.a.run(["ss", "-Htn", "state", "syn-sent"]).text, 20, lambda: f"the kernel connects: {app.text}")
        else:
            app.do("await_ready(s, select.POLLOUT, 20)")
        assert bool(tcp_before_a_mark(app, wire)) is not there
        assert ("IPsec policies" in app.text) is there, app.text


@pytest.mark.parametrize("there", [True, False], ids=["policy", "none"])
def test_what_must_come_encrypted_is_not_taken_in_the_clear(net, there):
    net.neighbours()
    if there:
        policy(net.a, "add", "in", net.a.ip4, net.b.ip4, "proto", "udp", "sport", "7200")
    with App(net.a, True) as app, net.b.socket() as first, net.b.socket() as second:
        first.bind((net.b.ip4, 7200))
        second.bind((net.b.ip4, 7201))
        app.do("s = udp(7000); await_ready(s, timeout=0.01)")
        first.sendto(SECRET, (net.a.ip4, 7000))
        second.sendto(b"free", (net.a.ip4, 7000))
        came = []
        while b"free" not in came:
            app.do("await_ready(s, timeout=20)")
            came.append(app.do("s.recv(100)"))
        assert came == ([] if there else [SECRET]) + [b"free"]


@families
def test_a_policy_that_comes_amid_a_connection(net, family):
    """The connection goes to the kernel, which says nothing in the clear, and loses nothing once the policy is gone."""
    net.neighbours()
    local, remote = net.a.ip(int(family)), net.b.ip(int(family))
    with asked_for_keys(net.a), Wire(net) as wire, listener(net.b, family) as accepting, App(net.a, True, family) as app:
        app.do(f"s = socket.create_connection((PEER, {PORT})); s.sendall(b'before')")
        peer = accepting.accept()[0]
        peer.settimeout(30)
        with peer:
            assert peer.recv(100) == b"before"
            fd = app.do("s.fileno()")
            assert reasons(app, fd)[0] == {"socket": "", "rx": "", "tx": ""}
            policy(net.a, "add", "out", local, remote, "proto", "tcp")
            wait_for(lambda: reasons(app, fd)[0].get("socket") == "ring-gone", 20, lambda: app.text)
            wait_for(lambda: "IPsec policies have come" in app.text, 20, lambda: app.text)
            tcp_before_a_mark(app, wire)
            app.do(f"s.sendall({SECRET!r})")
            seen = tcp_before_a_mark(app, wire)
            assert not any(SECRET in p for p in seen), seen
            policy(net.a, "delete", "out", local, remote, "proto", "tcp")
            assert peer.recv(100) == SECRET
            app.do("s.close()")
            assert peer.recv(100) == b""


def test_a_policy_that_comes_while_the_ring_is_opened(net, opening):  # noqa: F811
    """Nobody who opens a ring has asked too early: it is closed again."""
    app, held = opening
    policy(net.a, "add", "out", net.a.ip4, net.b.ip4, "proto", "tcp")
    goes_on(app, held)
    wait_for(lambda: "IPsec policies have come" in app.text, 20, lambda: app.text)
    wait_for(lambda: "xdp" not in ip("-n", net.a.name, "link", "show", net.a.dev), 20, "the steering program is gone")


@pytest.mark.parametrize("way", ["in", "out"])
def test_what_no_policy_is_for_is_refused(net, way):
    """ip xfrm policy setdefault: there is none, and the kernel alone knows what it refuses."""
    net.neighbours()
    ip("-n", net.a.name, "xfrm", "policy", "setdefault", way, "block")
    with App(net.a, True) as app:
        app.do("s = udp(7000); await_ready(s, timeout=0.01)")
        assert "xdp" not in ip("-n", net.a.name, "link", "show", "dev", net.a.dev)
        assert app.text.count("has IPsec policies (ip-xfrm(8)), which only the kernel follows: sockets stay with the kernel") == 1, app.text
