# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A TCP socket that connect(AF_UNSPEC) has made a fresh one: what it does next is as the kernel's."""

import contextlib
import socket

import pytest

from test_tcp_both import PORT
from test_tcp_calls import differential_tcp, families

PORT2 = PORT + 1


@contextlib.contextmanager
def listening(unet, family, *ports):
    """Listeners of the peer."""
    with contextlib.ExitStack() as stack:
        found = []
        for port in ports:
            lst = stack.enter_context(unet.b.socket(socket.AF_INET6 if family == "6" else socket.AF_INET, socket.SOCK_STREAM))
            lst.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            lst.bind((unet.b.ip(6 if family == "6" else 4), port))
            lst.listen(5)
            lst.settimeout(5)
            found.append(lst)
        yield found


def echo(app, lst):
    """The next connection of the listener is whole."""
    with lst.accept()[0] as peer:
        peer.settimeout(5)
        app("s.send(b'hello')")
        app.note("peer got", peer.recv(10))
        peer.sendall(b"answer")
        app("s.recv(10)")
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


@families
@pytest.mark.parametrize("bound", [True, False])
def test_another_peer(unet, family, bound):
    def steps(app, _):
        with listening(unet, family, PORT, PORT2) as (first, second):
            app.do("s = socket.socket(FAM, socket.SOCK_STREAM); e = select.epoll()")
            if bound:
                app.do("s.bind((ME, 0))")
            app("e.register(s, 1 | 4)")
            app(f"s.connect((PEER, {PORT}))")
            peer = first.accept()[0]
            peer.sendall(b"unread")
            app("await_ready(s)")
            app("disconnect(s)")
            app("s.getpeername()")
            app("s.getsockname()[0]")
            app("s.send(b'x', socket.MSG_NOSIGNAL)")
            app("s.recv(1, socket.MSG_DONTWAIT)")
            app("ready(s)")
            app("s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)")
            # Unread data, or a close in mid-stream: Linux resets.
            try:
                while peer.recv(10):
                    pass
                app.note("the first ends", "FIN")
            except ConnectionResetError:
                app.note("the first ends", "RST")
            peer.close()
            app(f"s.connect((PEER, {PORT2}))")
            app("s.getpeername()[1]")
            app("[x for _, x in e.poll(1)]")
            echo(app, second)
    differential_tcp(unet, family, steps, role=None)


@families
def test_disconnected_again_and_again(unet, family):
    def steps(app, _):
        with listening(unet, family, PORT) as (lst,):
            app.do("s = socket.socket(FAM, socket.SOCK_STREAM)")
            for _ in range(3):
                app(f"s.connect((PEER, {PORT}))")
                app(f"s.connect((PEER, {PORT}))")
                echo(app, lst)
                app("await_ready(s, 8)")
                app("s.recv(1)")
                app("disconnect(s)")
                app("disconnect(s)")
                app("s.connect((PEER, 1))")
                app("disconnect(s)")
    differential_tcp(unet, family, steps, role=None)


def test_while_it_connects(unet):
    def steps(app, _):
        with listening(unet, "4", PORT) as (lst,):
            app.do("s = socket.socket(FAM, socket.SOCK_STREAM); s.setblocking(False)")
            app("s.connect(('10.77.0.77', 80))")
            app("disconnect(s)")
            app("ready(s)")
            app("s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)")
            app.do("s.setblocking(True)")
            app(f"s.connect((PEER, {PORT}))")
            echo(app, lst)
    differential_tcp(unet, "4", steps, role=None)


def test_then_it_listens(unet):
    def steps(app, _):
        with listening(unet, "4", PORT) as (lst,):
            app.do(f"s = socket.socket(FAM, socket.SOCK_STREAM); s.setsockopt(1, 2, 1); s.bind((ANY, {PORT2}))")
            app(f"s.connect((PEER, {PORT}))")
            lst.accept()[0].close()
            app("disconnect(s)")
            app("s.getsockname()")
            app("s.listen(5)")
            app("ready(s)")
            with unet.b.socket(socket.AF_INET, socket.SOCK_STREAM) as peer:
                peer.settimeout(5)
                peer.connect((unet.a.ip4, PORT2))
                app("c = s.accept()[0]; None")
                peer.sendall(b"hi")
                app("await_ready(c); c.recv(5)")
                # A listener that is disconnected listens no more; what it has accepted stays.
                app("disconnect(s)")
                app("s.accept()")
                peer.sendall(b"still")
                app("await_ready(c)")
                app("c.recv(5)")
            with unet.b.socket(socket.AF_INET, socket.SOCK_STREAM) as peer:
                peer.settimeout(5)
                app.note("refused", peer.connect_ex((unet.a.ip4, PORT2)))
            app(f"s.connect((PEER, {PORT}))")
            echo(app, lst)
    differential_tcp(unet, "4", steps, role=None)
