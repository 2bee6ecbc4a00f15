# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
The internal thread's rest (lib/stack/rest.h): in an idle program it hardly wakes, and what has to be done meanwhile is done.
The program under test reads its next line from a pipe: none of its threads looks at the ring then.
"""

import contextlib
import fcntl
import socket
import struct
import termios
import time

import pytest

from differential import App
from netns import ip, wait_for
from test_tcp_both import PORT, both, connected
from test_wait_cost import wakeups


def woken(pid, seconds):
    before = wakeups(pid)
    time.sleep(seconds)
    return wakeups(pid) - before


def await_rest(app):
    """Ticks would be 100 in a second."""
    wait_for(lambda: woken(app.pid, 1) < 20, 10, "the internal thread rests")


def check_rest(app, what):
    await_rest(app)
    seen = woken(app.pid, 4)
    print(f"{what}: {seen} wake-ups in 4 s")
    # One a second; on a busy machine the kernel's messages about neighbours and routes come besides.
    assert seen <= 20


def outq(s):
    return struct.unpack("i", fcntl.ioctl(s.fileno(), termios.TIOCOUTQ, bytes(4)))[0]


@contextlib.contextmanager
def served(net, env=None):
    """A connection of the program's (s), and its peer of the kernel's."""
    with App(net.a, True, "4", env) as app:
        app.do("l = socket.create_server((ME, %d)); ready(l)" % PORT)
        app.start("s, peer = l.accept(); None")
        with net.b.socket(kind=socket.SOCK_STREAM) as peer:
            peer.connect((net.a.ip4, PORT))
            app.answer()
            peer.sendall(b"first")
            assert app.do("s.recv(5)") == b"first"
            yield app, peer


WAITS = {"nobody": "None", "a sleeper": "threading.Thread(target=u.recv, args=(1,), daemon=True).start()"}


@pytest.mark.parametrize("waits", WAITS)
def test_with_an_idle_socket(net, waits):
    with App(net.a, True) as app:
        app.do("u = udp(7009); ready(u)")
        app.do(WAITS[waits])
        check_rest(app, f"a datagram socket that {waits} waits for")


def test_a_thread_that_spins(net):
    """It does the work: the ticks are not needed."""
    with App(net.a, True, env={"VMA_RX_POLL": "-1"}) as app:
        app.do("u = udp(7009); threading.Thread(target=u.recv, args=(1,), daemon=True).start()")
        check_rest(app, "a datagram socket that somebody spins on")


def test_with_a_thousand_idle_connections(net):
    with both(net, "4", True, False) as (server, client):
        server.start("c = [l.accept()[0] for _ in range(1000)]")
        client.do("import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096)); c = [client() for _ in range(1000)]; None", 60)
        server.answer(60)
        check_rest(server, "1,000 connections")
        client.do("[x.send(b'hello') for x in c]; None", 20)
        assert server.do("sum(len(exactly(x, 5)) for x in c)", 20) == 5000


def test_what_comes_is_acknowledged(net):
    """And each time, though the program does not look."""
    with served(net) as (app, peer):
        for turn in range(3):
            await_rest(app)
            peer.sendall(b"to a program that does something else")
            wait_for(lambda: not outq(peer), 10, "the data are acknowledged")
        assert app.do("len(s.recv(1000))") == 111


def test_an_answer_waits_for_nobody(net):
    """A sleeper on the ring is woken, whatever the internal thread watches."""
    with served(net) as (app, peer):
        app.do("def echo():\n    while True:\n        d = s.recv(100)\n        if not d: return\n        s.sendall(d)\n"
               "threading.Thread(target=echo, daemon=True).start()")
        for turn in range(3):
            await_rest(app)
            for _ in range(20):
                peer.sendall(b"ping")
                assert peer.recv(4) == b"ping"


def test_what_is_lost_is_sent_again(net):
    """The program sends, and looks no more: the timers go on, in a rest as well."""
    net.neighbours()
    with served(net) as (app, peer):
        await_rest(app)
        ip("-n", net.b.name, "addr", "del", f"{net.b.ip4}/24", "dev", net.b.dev)
        app.do("s.send(b'late'); None")
        await_rest(app)
        ip("-n", net.b.name, "addr", "add", f"{net.b.ip4}/24", "dev", net.b.dev)
        peer.settimeout(60)
        assert peer.recv(4) == b"late"


def test_an_idle_peer_is_asked(net):
    """Keepalive is set while it rests, and asked for while it rests."""
    with served(net) as (app, peer):
        await_rest(app)
        app.do("s.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 2); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2);"
               "s.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)")
        before = net.b.counters()["TcpInSegs"]
        wait_for(lambda: net.b.counters()["TcpInSegs"] >= before + 3, 30, "three probes")


def test_a_port_that_is_opened_in_a_rest(net):
    with App(net.a, True) as app, net.b.socket() as peer:
        app.do("u = udp(7009); ready(u)")
        for port in (7010, 7011):
            await_rest(app)
            app.do(f"u = udp({port}); ready(u)")
            app.start("u.recvfrom(10)[0]")
            peer.sendto(b"hello", (net.a.ip4, port))
            assert app.answer() == b"hello"


def test_a_child_has_a_thread_of_its_own(net):
    """Its parent rests when it is forked."""
    with App(net.a, True) as app, net.b.socket() as peer:
        app.do("u = udp(7009); ready(u)")
        await_rest(app)
        app.start("""
pid = os.fork()
if not pid:
    v = udp(7010)
    d, a = v.recvfrom(10)
    v.sendto(d, a)
    os._exit(0)
status = os.waitpid(pid, 0)[1]
""")
        peer.settimeout(0.2)

        def answered():
            peer.sendto(b"child", (net.a.ip4, 7010))
            with contextlib.suppress(OSError):
                return peer.recv(10) == b"child"
        wait_for(answered, 10, "the child answers")
        app.answer()
        assert app.do("status") == 0
        app.start("u.recv(10)")
        peer.sendto(b"parent", (net.a.ip4, 7009))
        assert app.answer() == b"parent"
