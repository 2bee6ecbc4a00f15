# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Whose a local port is: kernel and library say the same. Connections are made to a kernel peer in net.b."""

import contextlib
import socket
import struct
import time

import pytest

from differential import App
from netns import wait_for
from test_tcp_both import HELPERS, PORT

ours = pytest.mark.parametrize("ours", [False, True], ids=["kernel", "ours"])
TRY = """
def tries(port, reuse=0):
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
    try: s.bind((ME, port))
    except OSError as e: return errno.errorcode[e.errno]
    finally: s.close()
"""


@contextlib.contextmanager
def programs(net, ours, env=None):
    """(the application, another program of the same host, a listening kernel peer)."""
    net.neighbours()
    with App(net.a, ours, env=env) as app, App(net.a, False) as other, net.b.socket(kind=socket.SOCK_STREAM) as peer:
        for x in (app, other):
            x.do(HELPERS + TRY)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        peer.bind((net.b.ip4, PORT))
        peer.listen(64)
        yield app, other, peer


def left_of_a_connection(net, app, other, peer, reuse, end):
    """What bind() to its port says: (in the process that had it, in another one), each without SO_REUSEADDR and with it."""
    app.do(f"s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, {reuse}); s.connect((PEER, {PORT}))")
    c, (_, port) = peer.accept()
    app.do("s.close()")
    assert c.recv(10) == b""
    if end == "time-wait":
        c.close()
        wait_for(lambda: not net.b.run(["ss", "-Htna", f"sport = :{PORT} and dport = :{port}"]).text, what="the peer's end")
    told = [[x.do(f"tries({port}, {r})") for r in (0, 1)] for x in (app, other)]
    print(f"{end}, SO_REUSEADDR {reuse}: bind() says {told}")
    c.close()
    return told


@ours
@pytest.mark.parametrize("reuse", [0, 1])
@pytest.mark.parametrize("end", ["fin-wait-2", "time-wait"])
def test_what_is_left_of_a_connection_has_its_port(net, ours, reuse, end):
    has_it = ["EADDRINUSE", None if reuse else "EADDRINUSE"]
    with programs(net, ours) as (app, other, peer):
        for _ in range(10):
            before = net.b.counters()["TcpOutRsts"]
            told = left_of_a_connection(net, app, other, peer, reuse, end)
            # On a busy machine a FIN may be sent twice; the RST that answers its second ACK ends a TIME_WAIT (RFC 1337).
            if end == "fin-wait-2" or net.b.counters()["TcpOutRsts"] == before:
                break
        assert told == [has_it, has_it]


@ours
@pytest.mark.parametrize("closing", ["os.dup2(0, n)", "os.closerange(n, n + 1)", "libc.syscall(436, n, n, 0)"],
                         ids=["dup2", "close_range", "syscall"])
def test_by_whatever_call_it_is_closed_a_connection_has_its_port(net, ours, closing):
    with programs(net, ours) as (app, other, peer):
        app.do("import ctypes; libc = ctypes.CDLL(None)")
        app.do(f"s = socket.socket(); s.connect((PEER, {PORT})); n = s.detach()")
        c, (_, port) = peer.accept()
        app.do(closing)
        assert c.recv(10) == b""
        told = [x.do(f"tries({port}, {r})") for x in (app, other) for r in (0, 1)]
        print(f"{closing}: bind() says {told}")
        assert told == ["EADDRINUSE"] * 4
        c.close()


@ours
@pytest.mark.parametrize("bound", [False, True])
def test_a_refused_connection_gives_its_port_back(net, ours, bound):
    """getsockname() goes on telling it."""
    with programs(net, ours) as (app, other, peer):
        app.do("s = socket.socket()")
        if bound:
            app.do("s.bind((ME, 0))")
        assert app.do(f"s.connect_ex((PEER, {PORT + 1})) == errno.ECONNREFUSED") is True
        address, port = app.do("s.getsockname()")
        assert (address, port > 0) == (net.a.ip4 if bound else "0.0.0.0", True)
        assert other.do(f"tries({port})") is None
        assert app.do(f"tries({port})") is None
        app.do(f"s.connect((PEER, {PORT}))")
        assert peer.accept()[1] == app.do("s.getsockname()")


@ours
@pytest.mark.parametrize("reuse", [0, 1, 2])
def test_ports_of_time_waits_come_again(net, ours, reuse):
    """net.ipv4.tcp_tw_reuse: of sixteen ports each can be had again a second after its last segment, or not at all."""
    net.a.run(["sysctl", "-qw", f"net.ipv4.tcp_tw_reuse={reuse}", "net.ipv4.ip_local_port_range=40000 40015"])
    with programs(net, ours) as (app, other, peer):
        app.do("def one():\n  s = socket.socket(); r = s.connect_ex((PEER, PORT)); s.close(); return errno.errorcode.get(r, r)"
               .replace("PORT", str(PORT)))

        def connects():
            told = app.do("one()")
            if not told:
                peer.accept()[0].close()
            return told

        begun = time.monotonic()
        for _ in range(16):
            assert connects() == 0
        # A late duplicate may end a TIME_WAIT, by the RST that it is answered with (RFC 1337).
        told = next(filter(None, (connects() for _ in range(4))), 0)
        print(f"tcp_tw_reuse {reuse}: the seventeenth connection says {told}")
        # On a busy machine the first ones come again while the last ones go.
        assert told == "EADDRNOTAVAIL" or (reuse == 1 and time.monotonic() - begun > 0.9)
        if reuse != 1:
            return
        for _ in range(16):
            wait_for(lambda: connects() == 0, 5, "a port that comes again")


ONE = f'''
import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
def one():
    s = socket.socket(); r = s.connect_ex((PEER, {PORT})); s.close(); return errno.errorcode.get(r, r)
'''


def test_time_waits_of_another_process_are_passed_by(net):
    """It holds few of their ports, and the kernel calls the rest free."""
    net.a.run(["sysctl", "-qw", "net.ipv4.ip_local_port_range=40000 40255"])
    with programs(net, True) as (first, _, peer), App(net.a, True) as second:
        told = []
        for app, times in ((first, 100), (second, 30)):
            app.do(HELPERS + ONE)
            for _ in range(times):
                told.append(app.do("one()"))
                if not told[-1]:
                    peer.accept()[0].close()
        print(f"256 ports; a program connects 100 times, then another one 30 times: {told.count(0)} connections")
        assert told == [0] * 130


def test_who_gets_the_port_of_a_time_wait_gets_the_answers(net):
    """A program without the library, at a port that the kernel calls free."""
    net.a.run(["sysctl", "-qw", "net.ipv4.ip_local_port_range=40000 40255"])
    with programs(net, True) as (app, other, peer):
        app.do(HELPERS + ONE)
        ports = []
        for _ in range(60):
            assert app.do("one()") == 0
            c, (_, port) = peer.accept()
            c.close()
            ports.append(port)
        other.do("s = socket.socket(); s.settimeout(20)")
        free = [port for port in ports if other.do(f"tries({port})") is None]
        print(f"60 connections, {len(free)} of their ports are free")
        other.do(f"s.bind((ME, {free[0]})); s.connect((PEER, {PORT})); s.sendall(b'question')")
        with peer.accept()[0] as c:
            assert c.recv(100) == b"question"
            c.sendall(b"answer")
            assert other.do("s.recv(100)") == b"answer"


def test_a_connection_of_a_socket_that_was_accepted_has_its_port(net):
    """accept(), connect(AF_UNSPEC), connect(): from then on it is a client like any other."""
    with programs(net, True) as (app, other, peer):
        app.do(f"l = socket.create_server((ME, {PORT}))")
        with net.b.socket(kind=socket.SOCK_STREAM, timeout=5) as c:
            app.do("import threading; got = []; t = threading.Thread(target=lambda: got.append(l.accept()[0])); t.start()")
            c.connect((net.a.ip4, PORT))
            app.do("t.join(); s = got[0]")
        app.do("import ctypes; libc = ctypes.CDLL(None); assert libc.connect(s.fileno(), b'\\0' * 16, 16) == 0")
        app.do(f"s.connect((PEER, {PORT}))")
        c, (_, port) = peer.accept()
        app.do("s.close()")
        assert c.recv(10) == b""
        told = [x.do(f"tries({port})") for x in (app, other)]
        print(f"bind() to port {port} says {told}")
        assert told == ["EADDRINUSE"] * 2
        c.close()


def test_a_port_serves_two_peers(net):
    """A TIME_WAIT's port is the kernel's to give to nobody, but this process connects from it to another peer."""
    net.a.run(["sysctl", "-qw", "net.ipv4.ip_local_port_range=40000 40003"])
    with programs(net, True) as (app, other, peer), net.b.socket(kind=socket.SOCK_STREAM) as second:
        second.bind((net.b.ip4, PORT + 1))
        second.listen()
        for port, listener in ((PORT, peer), (PORT + 1, second)):
            for _ in range(4):
                app.do(f"s = client({port})")
                c, _ = listener.accept()
                app.do("s.close()")
                c.close()
        held = [port for port in range(40000, 40004) if other.do(f"tries({port})") == "EADDRINUSE"]
        print(f"held: {held}")
        assert len(held) >= 3  # as above


@ours
def test_no_more_time_waits_than_the_kernel_keeps(net, ours):
    """net.ipv4.tcp_max_tw_buckets: with four of them sixteen ports are enough for any number of connections."""
    net.a.run(["sysctl", "-qw", "net.ipv4.tcp_max_tw_buckets=4", "net.ipv4.tcp_tw_reuse=0",
               "net.ipv4.ip_local_port_range=40000 40015"])
    with programs(net, ours) as (app, _, peer):
        for _ in range(100):
            app.do(f"c = client({PORT})")
            c, _ = peer.accept()
            app.do("c.close()")
            c.close()
        print("100 connections from 16 ports")


# How a connection that a server has accepted goes on after its listener has closed: who does what, with s and c.
AFTER = {
    "established": [],
    "close-wait": ["peer shuts"],
    "fin-wait-2": ["server closes"],
    "time-wait": ["server closes", "peer closes"],
    "closed by the peer first": ["peer closes", "server closes"],
    "reset by the peer": ["peer resets"],
    "reset by the server": ["server resets"],
}


def who_may_bind(net, ours, port, reuse, after):
    """The same program, another one, each without SO_REUSEADDR and with it: what bind() says when the listener has closed, and later."""
    with App(net.a, ours) as app, App(net.a, False) as other:
        for x in (app, other):
            x.do(HELPERS + TRY)
        app.do(f"l = socket.socket(); l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, {reuse}); l.bind((ME, {port})); l.listen()")
        app.do("ready(l)")
        c = net.b.socket(kind=socket.SOCK_STREAM, timeout=10)
        c.connect((net.a.ip4, port))
        app.do("s = l.accept()[0]; l.close()")
        told = [[x.do(f"tries({port}, {r})") for x in (app, other) for r in (0, 1)]]
        for step in AFTER[after]:
            if step == "server closes":
                app.do("s.close()")
                # It is over for the peer, too, when that has closed before.
                if c.fileno() >= 0:
                    assert c.recv(10) == b""
            elif step == "server resets":
                app.do("s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0)); s.close()")
            elif step == "peer shuts":
                c.shutdown(socket.SHUT_WR)
                app.do("assert s.recv(1) == b''")
            elif step == "peer resets":
                c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                c.close()
                app.do("assert select.select([s], [], [], 5)[0]")
            else:
                c.close()
                if step == AFTER[after][0]:
                    app.do("assert s.recv(1) == b''")
                wait_for(lambda: "ESTAB" not in (t := net.b.run(["ss", "-Htna", f"dport = :{port}"]).text) and "LAST-ACK" not in t
                         and "CLOSE-WAIT" not in t, what="the peer's end")
        if after == "closed by the peer first":
            # The last segment of all is the peer's; ours is over with it.
            wait_for(lambda: app.do(f"tries({port}, 0)") is None, what="the end of the connection")
        told.append([x.do(f"tries({port}, {r})") for x in (app, other) for r in (0, 1)])
        c.close()
    return told


@pytest.mark.parametrize("reuse", [0, 1])
@pytest.mark.parametrize("after", AFTER)
def test_an_accepted_connection_has_its_port_without_its_listener(net, reuse, after):
    net.neighbours()
    kernel, ours = (who_may_bind(net, preload, PORT + preload, reuse, after) for preload in (False, True))
    print(f"{after}, listener's SO_REUSEADDR {reuse}: {kernel}")
    assert ours == kernel
