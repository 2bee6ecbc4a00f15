# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""connect() of a socket that does not wait, before the interface has a ring: it does not wait for that either.

The internal thread opens the ring. A test stops that thread (ptrace, as a debugger does), so that the ring comes when the
test says so, however fast or slow the machine is.
"""

import contextlib
import ctypes
import os
import pathlib
import select
import socket

import pytest

from differential import CHILDREN, App
from netns import wait_for
from test_tcp_both import PORT

PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207
WALL = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]

BEGIN = """
s = socket.socket(FAM, socket.SOCK_STREAM); s.setblocking(False)
e = select.epoll(); e.register(s, select.EPOLLIN | select.EPOLLOUT)
def begin(port): return errno.errorcode.get(s.connect_ex((PEER, port)), 0)
def said(fn, *args):
    try: return fn(*args)
    except OSError as x: return errno.errorcode[x.errno]
def connected():
    "What epoll says when it is decided, and SO_ERROR."
    p = select.poll(); p.register(s, select.POLLOUT)
    p.poll(20000)
    return e.poll(0)[0][1] & ~select.EPOLLIN, s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
"""


def ptrace(request, tid):
    if LIBC.ptrace(request, tid, None, None) < 0:
        raise OSError(ctypes.get_errno(), f"ptrace({request:#x}) of thread {tid}")


def worker_of(pid):
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text() == "vma-worker\n":
            return int(task.name)
    return None


class Stopped:
    """The internal thread of a program, stopped."""

    def __init__(self, pid):
        self.tid = wait_for(lambda: worker_of(pid), 5, "the internal thread")
        ptrace(PTRACE_SEIZE, self.tid)
        ptrace(PTRACE_INTERRUPT, self.tid)
        os.waitpid(self.tid, WALL)

    def go_on(self):
        if self.tid:
            ptrace(PTRACE_DETACH, self.tid)
        self.tid = None


@contextlib.contextmanager
def connecting(net, port=PORT, preload=True, to_do="", env=None):
    """A program whose connect() has just returned, and its internal thread."""
    with App(net.a, preload, env={"VMA_TRACELEVEL": "DEBUG", **(env or {})}) as app:
        app.do(CHILDREN + BEGIN)
        app.do(to_do)
        stopped = Stopped(app.pid)
        try:
            assert app.do(f"begin({port})") == "EINPROGRESS"
            yield app, stopped
        finally:
            if app.popen.poll() is None:
                stopped.go_on()


@contextlib.contextmanager
def listening(net):
    with net.b.socket(kind=socket.SOCK_STREAM) as lst:
        lst.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        lst.bind((net.b.ip4, PORT))
        lst.listen(5)
        yield lst


def has_ring(net):
    """The steering program sits on the program's interface."""
    return "xdp" in net.a.run(["ip", "link", "show", "dev", net.a.dev]).text


def accept(lst):
    peer, name = lst.accept()
    peer.settimeout(10)
    return peer, name


def echo(app, peer):
    app.do("s.send(b'to')")
    assert peer.recv(10) == b"to"
    peer.sendall(b"from")
    assert app.do("bool(select.select([s], [], [], 10)[0])", 30)
    assert app.do("s.recv(10)") == b"from"


def test_it_does_not_wait_and_is_offloaded(net):
    with listening(net) as lst, connecting(net) as (app, stopped), net.a.tcp_bypassed():
        assert not has_ring(net), "connect() has opened the ring by itself"
        name = app.do("s.getsockname()")
        assert name[0] == net.a.ip4 and name[1]
        assert app.do("said(s.getpeername)") == "ENOTCONN"
        assert app.do("s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)") == 0
        assert app.do(f"begin({PORT})") == "EALREADY"
        assert app.do("said(s.send, b'x')") == "EAGAIN"
        assert app.do("said(s.recv, 1)") == "EAGAIN"
        assert app.do("e.poll(0)") == []
        assert app.do("select.select([s], [s], [s], 0)") == ([], [], [])
        app.do("s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)")
        app.do("d = os.dup(s.fileno())")
        # Nothing of this has opened it.
        assert not has_ring(net)
        stopped.go_on()
        assert app.do("connected()", 30) == (select.EPOLLOUT, 0)
        assert "is opened by the internal thread" in app.text
        peer, at = accept(lst)
        with peer:
            assert at == name
            assert app.do("s.getpeername()") == (net.b.ip4, PORT)
            assert app.do(f"begin({PORT}), begin({PORT})") == (0, "EISCONN")
            assert app.do("s.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)") == 1
            echo(app, peer)
            app.do("os.write(d, b'dup')")
            assert peer.recv(10) == b"dup"


def test_who_sleeps_meanwhile_is_woken(net):
    with listening(net) as lst, connecting(net) as (app, stopped):
        app.start("e.poll(30)")
        wait_for(lambda: pathlib.Path(f"/proc/{app.pid}/wchan").read_text() not in ("", "0"), 10, "asleep")
        stopped.go_on()
        (fd, events), = app.answer(30)
        assert events == select.EPOLLOUT
        peer, _ = accept(lst)
        with peer:
            echo(app, peer)


def test_several_wait_for_it(net):
    with listening(net) as lst, connecting(net) as (app, stopped):
        app.do("more = [socket.socket(FAM, socket.SOCK_STREAM) for _ in range(3)]\nfor x in more: x.setblocking(False)")
        assert app.do(f"[x.connect_ex((PEER, {PORT})) for x in more]") == [115] * 3
        assert not has_ring(net)
        stopped.go_on()
        names = {accept(lst)[1] for _ in range(4)}
        assert names == set(app.do("[x.getsockname() for x in [s] + more]"))


def test_refused_by_the_peer(net):
    with connecting(net, PORT + 1) as (app, stopped):
        stopped.go_on()
        assert app.do("bool(select.select([], [s], [], 20)[1])", 30)
        assert app.do("s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)") == 111


def test_given_up(net):
    """shutdown(), connect(AF_UNSPEC) and close() end it; what comes later goes its way."""
    with listening(net) as lst, connecting(net) as (app, stopped):
        app.do("disconnect(s)")
        assert app.do(f"begin({PORT})") == "EINPROGRESS"
        app.do("s.shutdown(2)")
        assert app.do(f"begin({PORT})") == "EINPROGRESS"
        app.do("s.close(); s = socket.socket(FAM, socket.SOCK_STREAM); s.setblocking(False); e.register(s, 5)")
        assert app.do(f"begin({PORT})") == "EINPROGRESS"
        assert not has_ring(net)
        stopped.go_on()
        assert app.do("connected()", 30) == (select.EPOLLOUT, 0)
        peer, at = accept(lst)
        with peer:
            assert at == app.do("s.getsockname()"), "the others were given up"
            echo(app, peer)


def test_one_that_waits_opens_it_for_all(net):
    net.neighbours() # the internal thread could not tell of one
    with listening(net) as lst, connecting(net) as (app, stopped), net.a.tcp_bypassed():
        app.do(f"w = socket.socket(FAM, socket.SOCK_STREAM); w.connect((PEER, {PORT}))", 30)
        assert has_ring(net)
        with accept(lst)[0]:
            # That has begun nobody else's: the internal thread does.
            assert app.do("e.poll(0)") == []
            stopped.go_on()
            assert app.do("connected()", 30) == (select.EPOLLOUT, 0)
            peer, _ = accept(lst)
            with peer:
                echo(app, peer)


@pytest.mark.parametrize("ask", ["ring_fds(s)[0]", "api('get_socket_tx_ring_fd', s.fileno(), None, 0)"])
def test_who_asks_for_its_ring_opens_it(net, ask):
    net.neighbours()
    with listening(net) as lst, connecting(net, to_do="from extra_app import *") as (app, stopped), net.a.tcp_bypassed():
        assert app.do(ask, 30) > 2
        assert has_ring(net)
        stopped.go_on()
        assert app.do("connected()", 30) == (select.EPOLLOUT, 0)
        peer, _ = accept(lst)
        with peer:
            echo(app, peer)


def test_asked_by_one_that_waits_now(net):
    with listening(net) as lst, connecting(net) as (app, stopped):
        app.do("s.setblocking(True)")
        app.start(f"said(s.connect, (PEER, {PORT}))")
        stopped.go_on()
        assert app.answer(30) is None
        peer, _ = accept(lst)
        with peer:
            echo(app, peer)


@contextlib.contextmanager
def queues_taken(net):
    """Another process has the interface, and cannot be joined, because it may want several rings: no ring can be opened."""
    with App(net.a, True, env={"VMA_RING_ALLOCATION_LOGIC_RX": "20"}) as first:
        first.do("u = udp(7000); u.setblocking(False); select.poll().register(u); r = select.select([u], [], [], 0)")
        wait_for(lambda: has_ring(net), 10, "the first has the queues")
        yield


@pytest.mark.parametrize("how", ["", "s.setblocking(True)"])
def test_without_a_ring_the_kernel_does_it(net, how):
    with queues_taken(net), listening(net) as lst, connecting(net) as (app, stopped):
        name = app.do("s.getsockname()")
        app.do(f"s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1); {how or 'None'}")
        stopped.go_on()
        assert app.do("connected()", 30) == (select.EPOLLOUT, 0)
        peer, at = accept(lst)
        with peer:
            assert at == name
            assert app.do("s.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)") == 1
            assert app.do("s.getblocking()") == bool(how)
            echo(app, peer)
        assert "goes on through the kernel" in app.text


def test_without_a_ring_one_that_waits_now_waits_for_the_kernel(net):
    with queues_taken(net), listening(net) as lst, connecting(net) as (app, stopped):
        app.do("s.setblocking(True)")
        app.start(f"said(s.connect, (PEER, {PORT}))")
        stopped.go_on()
        assert app.answer(30) is None
        peer, _ = accept(lst)
        with peer:
            echo(app, peer)


def test_without_a_ring_the_kernel_says_what_went_wrong(net):
    with queues_taken(net), connecting(net, PORT + 1) as (app, stopped):
        stopped.go_on()
        assert app.do("bool(select.select([], [s], [], 20)[1])", 30)
        assert app.do("s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)") == 111


def test_a_child_of_fork_has_a_thread_of_its_own(net):
    """What the parent has asked its internal thread for nobody has asked the child's."""
    with listening(net) as lst, connecting(net) as (app, stopped):
        app.do(f"""
def anew():
    c = socket.socket(FAM, socket.SOCK_STREAM); c.setblocking(False)
    assert c.connect_ex((PEER, {PORT})) == 115
    assert select.select([], [c], [], 20)[1]
    assert c.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    c.send(b'child')
    c.setblocking(True)
    assert c.recv(10) == b''
pid = child(anew)
""")
        peer, _ = accept(lst)
        with peer:
            assert peer.recv(10) == b"child"
        assert app.do("wait(pid)", 30) == 0
        stopped.go_on()
        assert app.do("connected()", 30) == (select.EPOLLOUT, 0)
        peer, _ = accept(lst)
        with peer:
            echo(app, peer)


def test_a_child_of_fork_uses_it(net):
    with listening(net) as lst, connecting(net) as (app, stopped):
        app.do("""
def uses():
    assert select.select([], [s], [], 20)[1]
    s.send(b'child')
pid = child(uses)
""")
        stopped.go_on()
        peer, at = accept(lst)
        with peer:
            assert at == app.do("s.getsockname()")
            assert peer.recv(10) == b"child"
            assert app.do("wait(pid)", 30) == 0
            echo(app, peer)


def test_another_program_gets_it(net):
    with listening(net) as lst, connecting(net) as (app, stopped):
        app.start("""
import subprocess
code = "import socket, select; s = socket.socket(fileno=%d); select.select([], [s], [], 20); s.send(b'exec')" % s.fileno()
p = subprocess.run([sys.executable, "-c", code], pass_fds=[s.fileno()])
""")
        stopped.go_on()
        app.answer(60)
        peer, _ = accept(lst)
        with peer:
            assert peer.recv(10) == b"exec"
            assert app.do("p.returncode") == 0


def test_fast_open_is_a_plain_handshake_meanwhile(net):
    with listening(net) as lst:
        with connecting(net, to_do="s.setsockopt(socket.IPPROTO_TCP, 30, 1)") as (app, stopped):
            stopped.go_on()
            assert app.do("connected()", 30) == (select.EPOLLOUT, 0)
            peer, _ = accept(lst)
            with peer:
                echo(app, peer)


def test_privileges_that_go_before_it_came(net):
    """setuid() right after connect(): the ring is opened before."""
    with listening(net) as lst, connecting(net) as (app, stopped), net.a.tcp_bypassed():
        app.start("os.setresuid(65534, 65534, 65534)")
        wait_for(lambda: has_ring(net), 20, "the ring")
        stopped.go_on()
        app.answer(30)
        assert app.do("connected()", 30) == (select.EPOLLOUT, 0)
        peer, _ = accept(lst)
        with peer:
            echo(app, peer)
