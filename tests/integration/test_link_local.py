# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Two interfaces with the same link-local addresses on both of their ends (routers, clones): a socket with a scope has those of its own."""

import errno
import socket

import pytest

from differential import PEER_PORT, differential
from netns import flow_table, ip, wait_for
from test_tcp_route import two_ways  # noqa: F401  a fixture

MINE, PEERS = "fe80::77:1", "fe80::77:2"


@pytest.fixture
def twins(two_ways):  # noqa: F811
    net = two_ways
    for host, address in ((net.a, MINE), (net.b, PEERS)):
        for dev in (host.dev, "second"):
            ip("-n", host.name, "addr", "add", f"{address}/64", "dev", dev, "nodad")
    net.neighbours()
    return net


def scope(host, dev):
    with host.entered():
        return socket.if_nametoindex(dev)


def outcome(call, *args):
    try:
        return call(*args) or "done"
    except OSError as e:
        return errno.errorcode[e.errno]


def attached(app, port, proto):
    """What comes from now on comes by a ring."""
    if app.preload:
        key = {"local_port": port, "proto": {"udp": 17, "tcp": 6}[proto]}.items()
        wait_for(lambda: any(key <= e["formatted"]["key"].items() for e in flow_table(app.pid) or []), 20, f"{proto} port {port} steered")


def test_a_listener_has_its_own_clients(twins):
    net = twins

    def steps(app, _):
        here = app.do("socket.if_nametoindex('second')")
        app(f"l = socket.socket(FAM, socket.SOCK_STREAM); l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
            f"l.bind(({MINE!r}, 7100, 0, {here})); l.listen(); l.settimeout(20)")
        app.do("ready(l)")
        attached(app, 7100, "tcp")
        for dev in (net.b.dev, "second"):
            with net.b.socket(socket.AF_INET6, socket.SOCK_STREAM, timeout=20) as c:
                said = app.note(f"by {dev}", outcome(c.connect, (MINE, 7100, 0, scope(net.b, dev))))
                if said == "done":
                    app("c, name = l.accept(); c.settimeout(20)")
                    app("name[0], name[3], c.getsockname()[3]")
                    c.sendall(b"to")
                    app("c.recv(10)")
                    app("c.sendall(b'from')")
                    app.note("back", c.recv(10))
        app("l.close()")
    answers = differential(net, "6", steps)
    assert answers[f"by {net.b.dev}"] == "ECONNREFUSED" and answers["by second"] == "done"


def test_a_client_goes_by_its_own(twins):
    net = twins

    def steps(app, _):
        first, second = app.do(f"[socket.if_nametoindex(n) for n in ({net.a.dev!r}, 'second')]")
        with net.b.socket(socket.AF_INET6, socket.SOCK_STREAM, timeout=20) as lst:
            lst.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            lst.bind(("::", 7200))
            lst.listen()
            # bound to, and what connect() says: none, or another one, is EINVAL.
            for bound, to in ((second, 0), (second, second), (second, first), (0, first), (0, second), (0, 0)):
                app("s = socket.socket(FAM, socket.SOCK_STREAM); s.settimeout(20)")
                if bound:
                    app(f"s.bind(({MINE!r}, 0, 0, {bound}))")
                if app(f"s.connect(({PEERS!r}, 7200, 0, {to}))") is None:
                    c, name = lst.accept()
                    app.note("the peer sees it by", name[3])
                    app("s.getpeername()[3]")
                    app("s.sendall(b'to')")
                    app.note("it says", c.recv(10))
                    c.close()
                app("s.close()")
    differential(net, "6", steps)


def test_datagrams_are_those_of_the_scope(twins):
    net = twins

    def steps(app, _):
        second = app.do("socket.if_nametoindex('second')")
        app(f"s = socket.socket(FAM, socket.SOCK_DGRAM); s.bind(({MINE!r}, 7000, 0, {second})); s.settimeout(20)")
        app.do("ready(s)")
        attached(app, 7000, "udp")
        with net.b.socket(socket.AF_INET6, timeout=20) as peer:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            peer.bind(("::", PEER_PORT))
            # The first wire's comes first: what is read is the other one.
            for dev in (net.b.dev, "second"):
                peer.sendto(dev.encode(), (MINE, 7000, 0, scope(net.b, dev)))
            app("s.recvfrom(100)")
            app(f"s.sendto(b'no scope', ({PEERS!r}, {PEER_PORT}))")
            data, name = peer.recvfrom(100)
            app.note("the peer got", (data, name[3]))
        app("s.close()")
    differential(net, "6", steps)
