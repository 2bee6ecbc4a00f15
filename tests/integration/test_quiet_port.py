# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
A listener's port may have connections of the kernel's: its segments are looked up among those before they are the listener's. Once the
kernel has none they are not looked up any more (the port is quiet), until the kernel may have got one again.
"""

import contextlib
import socket

import pytest

from differential import App
from netns import bpf_maps, bpftool, go_on, ip, stop, wait_for
from test_queues_later import echoes, resets
from test_steering_lost import program, take_off

PORT = 7000
SECOND = "10.77.0.3"
TCP_REPAIR = 19
TCP_PORTS, LOOKED_UP = 65536, 8  # VMA_PORT_INDEX_TCP, VMA_PORT_KERNEL


def looked_up(app):
    """Whether the steering program asks for connections of the kernel's. None: the port has no rule."""
    for number in bpf_maps(app.pid, 2, 131072):
        key = [str(byte) for byte in (TCP_PORTS + PORT).to_bytes(4, "little")]
        flags = bpftool("map", "lookup", "id", number, "key", *key)["formatted"]["value"]["flags"]
        return bool(flags & LOOKED_UP) if flags else None
    return None


def listening(app):
    app.do(f"l = socket.create_server((ME, {PORT}), backlog=50); l.settimeout(10); await_ready(l, timeout=0.01)")
    wait_for(lambda: looked_up(app) is not None, 10, "the port is steered")


def quiet(app):
    listening(app)
    wait_for(lambda: looked_up(app) is False, 20, "the port is quiet")


def connected(net, address=None, port=0):
    c = net.b.socket(kind=socket.SOCK_STREAM, timeout=20)
    c.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    c.bind(("", port))
    c.connect((address or net.a.ip4, PORT))
    return c


def talks(c, app, what):
    """Both ways, of the connection that app calls so."""
    c.sendall(b"ping")
    assert app.do(f"{what}.recv(100)") == b"ping"
    app.do(f"{what}.sendall(b'pong')")
    assert c.recv(100) == b"pong"


@contextlib.contextmanager
def kernels(net, address):
    """A connection that a program without the library serves, whose listener has gone. Its client, the program (which calls it c)."""
    with App(net.a, False) as other:
        other.do(f"k = socket.create_server(({address!r}, {PORT}))")
        with connected(net, address) as c:
            other.do("c = k.accept()[0]; c.settimeout(10); k.close()")
            talks(c, other, "c")
            yield c, other


def test_a_further_listener(net):
    """The kernel has a connection of the further listener's address."""
    ip("-n", net.a.name, "addr", "add", f"{SECOND}/24", "dev", net.a.dev)
    net.neighbours()
    with App(net.a, True) as app:
        quiet(app)
        with kernels(net, SECOND) as (c, other):
            app.do(f"m = socket.create_server(({SECOND!r}, {PORT})); m.settimeout(10); await_ready(m, timeout=0.01)")
            assert looked_up(app), "since the further listener came"
            begun = resets(net.a), resets(net.b)
            with net.a.tcp_bypassed(), connected(net, SECOND) as new:
                app.do("d = m.accept()[0]; d.settimeout(10)")
                talks(new, app, "d")
            talks(c, other, "c")
            assert (resets(net.a), resets(net.b)) == begun


def test_the_program_was_away(net):
    """Meanwhile the kernel has accepted a client."""
    net.neighbours()
    with App(net.a, True) as app:
        quiet(app)
        stop(app.pid)
        take_off(net.a)
        with connected(net) as c:
            c.sendall(b"early")
            go_on(app.pid)
            wait_for(lambda: program(net.a), what="the program is back")
            assert looked_up(app), "since it is back"
            begun = resets(net.a), resets(net.b)
            app.do("c = l.accept()[0]; c.settimeout(10)")
            assert app.do("c.recv(100)") == b"early"
            talks(c, app, "c")
            assert (resets(net.a), resets(net.b)) == begun


@pytest.mark.net(queues=4)
def test_queues_came_and_went(net):
    """The kernel has accepted those who came on the others, and they come on the first one now."""
    net.a.run(["ethtool", "-L", net.a.dev, "rx", "1", "tx", "1"])
    net.neighbours()
    with App(net.a, True) as app, contextlib.ExitStack() as close:
        quiet(app)
        app.do("""
import threading
def echo(c):
    while data := c.recv(65536): c.sendall(data)
def serve():
    while True: threading.Thread(target=echo, args=(l.accept()[0],), daemon=True).start()
l.settimeout(None)
threading.Thread(target=serve, daemon=True).start()
""")
        net.a.run(["ethtool", "-L", net.a.dev, "rx", "4", "tx", "4"])
        wait_for(lambda: "has 4 receive queues now" in app.text, 20, "the program knows of the queues")
        assert looked_up(app), "since there are more queues"
        begun = resets(net.a), resets(net.b)
        by_kernel = net.a.counters()["TcpPassiveOpens"]
        clients = [close.enter_context(connected(net)) for _ in range(32)]
        for c in clients:
            echoes(c, b"there and back")
        by_kernel = net.a.counters()["TcpPassiveOpens"] - by_kernel
        print(f"{by_kernel} of {len(clients)} connections are the kernel's")
        assert 0 < by_kernel < len(clients)
        net.a.run(["ethtool", "-L", net.a.dev, "rx", "1", "tx", "1"])
        for c in clients:
            echoes(c, b"all of them" * 1000)
        assert (resets(net.a), resets(net.b)) == begun


def test_a_client_begins_anew_from_its_old_port(net):
    """
    The kernel has the connection from before, the client has not. The SYN is the kernel's, as the rest is: it asks the client, which
    says that there is nothing, and the SYN that comes again is the listener's.
    """
    net.neighbours()
    with kernels(net, net.a.ip4) as (c, other), App(net.a, True) as app:
        listening(app)
        assert looked_up(app)
        port = c.getsockname()[1]
        c.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
        c.close()  # without a word
        with connected(net, port=port) as new:
            assert other.ask("c.recv(100)") == ("OSError", "ECONNRESET")
            app.do("d = l.accept()[0]; d.settimeout(10)")
            talks(new, app, "d")
