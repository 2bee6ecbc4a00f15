# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Rules by protocol and port (ip-rule(8)): of one far host some ports are reached by another interface than the others."""

import contextlib
import socket

import pytest

from differential import App
from netns import ip, wait_for
from test_queues_later import echoes
from test_tcp_route import ECHO, FAR, LAST, received_by_second, two_ways  # noqa: F401  the latter is a fixture

HERE, THERE = 7100, 7200  # by the first interface, by the second


@pytest.fixture
def by_port(two_ways):  # noqa: F811
    net = two_ways
    ip("-n", net.a.name, "route", "add", "default", "via", net.b.ip4, "dev", net.a.dev)
    ip("-n", net.a.name, "route", "add", "default", "via", f"{LAST}.2", "dev", "second", "table", "100")
    for proto in ("tcp", "udp"):
        ip("-n", net.a.name, "rule", "add", "ipproto", proto, "dport", THERE, "table", "100")
    return net


def sources(net, kind, ports, preload):
    """Where from the peer on FAR is reached at each port."""
    seen = []
    with App(net.a, preload) as app:
        for port in ports:
            with net.b.socket(kind=kind, timeout=20) as peer:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                peer.bind((FAR, port))
                if kind == socket.SOCK_DGRAM:
                    app.do(f"s = udp(); s.sendto(b'first', ('{FAR}', {port}))")
                    seen.append(peer.recvfrom(100)[1][0])

                    def past_the_kernel():
                        before = net.a.counters()["UdpOutDatagrams"]
                        app.do(f"s.sendto(b'again', ('{FAR}', {port}))")
                        assert peer.recvfrom(100)[1][0] == seen[-1]
                        return net.a.counters()["UdpOutDatagrams"] == before
                    if preload:
                        wait_for(past_the_kernel, 10, "a datagram past the kernel")
                    continue
                peer.listen()
                with net.a.tcp_bypassed() if preload else contextlib.nullcontext():
                    app.start(f"s = socket.create_connection(('{FAR}', {port})); s.sendall(b'x' * 100000); s.close()")
                    c, name = peer.accept()
                    with c:
                        c.settimeout(20)
                        while c.recv(1 << 16):
                            pass
                    app.answer(20)
                seen.append(name[0])
    return seen


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM], ids=["tcp", "udp"])
def test_each_port_goes_its_way(by_port, kind):
    net, ports = by_port, (HERE, THERE, HERE, THERE)
    net.neighbours(v6=False)
    # The neighbour on the second wire is known, too: what is not known yet goes by the kernel.
    mac = net.b.run(["cat", "/sys/class/net/second/address"]).text.strip()
    ip("-n", net.a.name, "neigh", "replace", f"{LAST}.2", "lladdr", mac, "dev", "second", "nud", "permanent")
    kernel = sources(net, kind, ports, False)
    before = received_by_second(net)
    ours = sources(net, kind, ports, True)
    print(f"{dict(zip(ports, ours))}, {received_by_second(net) - before} packets by the second wire")
    assert ours == kernel == [net.a.ip4, f"{LAST}.1"] * 2
    assert received_by_second(net) > before


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "kernel"])
def test_a_server_answers_by_the_wire_of_its_port(by_port, ours):
    """A rule by the source port of what it sends, and no other route to the client."""
    net = by_port
    ip("-n", net.a.name, "route", "del", "default", "dev", net.a.dev)
    ip("-n", net.a.name, "rule", "add", "ipproto", "tcp", "sport", "7000", "table", "100")
    server = net.a.python(ECHO, ours, [net.a.ip4])
    server.wait_text("^listens$")
    if ours:
        net.a.wait_steered(7000, "tcp", 20)
    before = received_by_second(net)
    for _ in range(3):
        with net.b.socket(kind=socket.SOCK_STREAM, timeout=20) as c:
            c.bind((FAR, 0))
            c.connect((net.a.ip4, 7000))
            echoes(c, b"there and back" * 20000)
    print(f"{received_by_second(net) - before} packets by the second wire")
    assert received_by_second(net) > before + 20
