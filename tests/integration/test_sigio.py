# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Signals that sockets send: SIGIO by O_ASYNC and FIOASYNC, SIGURG of a socket with an owner. The kernel's sockets in the same places.

    net.a  a program that sleeps until a signal comes [ veth-a ] ---- [ veth-b ]  kernel sockets of the test  net.b
"""

import contextlib
import re
import socket
import subprocess

import pytest

from netns import wait_for
from test_tcp_exit_wire import PORT, Wire

PROGRAM = """
import fcntl, os, signal, socket, struct, sys
FIOASYNC = 0x5452
kind, how, me = sys.argv[1:]
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGIO, signal.SIGURG])

def asks_for_signals(s):
    fcntl.fcntl(s, fcntl.F_SETOWN, os.getpid())
    if how == "fioasync":
        fcntl.ioctl(s, FIOASYNC, struct.pack("i", 1))
    elif how == "o_async":
        fcntl.fcntl(s, fcntl.F_SETFL, fcntl.fcntl(s, fcntl.F_GETFL) | os.O_ASYNC)
    s.setblocking(False)
    print("sleeps", flush=True)

def signalled(which):
    info = signal.sigwaitinfo([which])
    assert info.si_signo == which

if kind == "datagrams":
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind((me, 7000))
    # It is served before: the first datagram is waited for.
    print("bound", flush=True)
    s.recv(100)
    asks_for_signals(s)
    while True:
        signalled(signal.SIGIO)
        while True:
            try: print("got", s.recv(100).decode(), flush=True)
            except BlockingIOError: break
elif kind == "listener":
    l = socket.create_server((me, 7000))
    l.setblocking(False)
    try: l.accept()
    except BlockingIOError: pass
    asks_for_signals(l)
    for n in range(2):
        signalled(signal.SIGIO)
        while True:
            try: c, _ = l.accept()
            except BlockingIOError: break
            print("got", n, flush=True)
else:
    l = socket.create_server((me, 7000))
    print("listens", flush=True)
    c, _ = l.accept()
    assert c.recv(100) == b"first"
    asks_for_signals(c)
    for n in range(3):
        signalled(signal.SIGURG if kind == "urgent" else signal.SIGIO)
        while True:
            try: print("got", c.recv(100, socket.MSG_OOB if kind == "urgent" else 0).decode(), flush=True)
            except OSError: break
"""


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "kernel"])
@pytest.mark.parametrize("kind, how", [("connection", "o_async"), ("connection", "fioasync"), ("listener", "o_async"), ("listener", "fioasync"),
                                       ("datagrams", "o_async"), ("datagrams", "fioasync"), ("urgent", "owner")])
def test_what_arrives_is_signalled(net, kind, how, ours):
    net.neighbours(v6=False)
    program = net.a.python(PROGRAM, ours, [kind, how, net.a.ip4])
    at = (net.a.ip4, 7000)
    if kind == "datagrams":
        program.wait_text("^bound$")
        with net.b.socket() as u:
            def came():
                u.sendto(b"first", at)
                return re.search("^sleeps$", program.text, re.M)
            wait_for(came, 20, "the first datagram")
            for n in range(3):
                u.sendto(b"%d!" % n, at)
                program.wait_text(f"^got {n}!$", 20)
        return
    if kind == "listener":
        program.wait_text("^sleeps$")
        for n in range(2):
            with net.b.socket(kind=socket.SOCK_STREAM, timeout=20) as c:
                c.connect(at)
                program.wait_text(f"^got {n}$", 20)
        return
    program.wait_text("^listens$")
    if ours:
        net.a.wait_steered(7000, "tcp", 20)
    with net.b.socket(kind=socket.SOCK_STREAM, timeout=20) as c:
        c.connect(at)
        c.sendall(b"first")
        program.wait_text("^sleeps$")
        for n in range(3):
            c.send(b"%d" % n, socket.MSG_OOB if kind == "urgent" else 0)
            program.wait_text(f"^got {n}$", 20)


# The same with a peer that is a script on the wire, and answers when it is told to.

ASKS = """
import errno, fcntl, os, select, signal, socket, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGIO])
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET

def asks_for_signals(s):
    sys.stdin.readline()
    fcntl.fcntl(s, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(s, fcntl.F_SETFL, fcntl.fcntl(s, fcntl.F_GETFL) | os.O_ASYNC)
    print("asks", flush=True)
"""

CONNECTS = ASKS + """
s = socket.socket(family)
s.setblocking(False)
assert s.connect_ex((sys.argv[1], int(sys.argv[2]))) == errno.EINPROGRESS
asks_for_signals(s)
signal.sigwaitinfo([signal.SIGIO])
p = select.poll()
p.register(s, select.POLLOUT)
p.poll()
error = s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
print("ends:", errno.errorcode.get(error, "connected"), flush=True)
if not error:
    s.setblocking(True)
    s.sendall(b"hello")
    print("heard:", s.recv(100).decode(), flush=True)
"""

LISTENS = ASKS + """
l = socket.create_server((sys.argv[1], 7000), family=family)
l.setblocking(False)
try: l.accept()
except BlockingIOError: print("listens", flush=True)
asks_for_signals(l)
while True:
    signal.sigwaitinfo([signal.SIGIO])
    try: c, _ = l.accept()
    except BlockingIOError: continue
    break
print("accepted", flush=True)
c.setblocking(True)
print("heard:", c.recv(100).decode(), flush=True)
c.sendall(b"hello")
"""


def tell(program):
    program.popen.stdin.write(b"\n")
    program.popen.stdin.flush()


ours_or_not = pytest.mark.parametrize("ours", [True, False], ids=["ours", "kernel"])
families = pytest.mark.parametrize("family", ["4", "6"])


@ours_or_not
@families
@pytest.mark.parametrize("answer, end", [("SA", "connected"), ("RA", "ECONNREFUSED")])
def test_the_end_of_a_connect_is_signalled(net, family, answer, end, ours):
    """O_ASYNC is set when the SYN has left. The kernel, which signals, sends one of its own then: the peer is told to forget ours."""
    net.neighbours()
    with contextlib.closing(Wire(net, family)) as wire:
        program = net.b.python(CONNECTS, ours, [wire.addr, PORT], stdin=subprocess.PIPE)
        wire.expect("S")
        port = wire.port
        tell(program)
        program.wait_text("^asks$")
        if ours:
            wire.expect("R", seq=1)
            wire.port = None
            wire.expect("S")
        assert wire.port == port
        wire.send(answer, 1)
        program.wait_text(f"^ends: {end}$", 20)
        if answer == "SA":
            wire.expect("A", data=b"hello")
            wire.send("PA", 6, b"there")
            program.wait_text("^heard: there$", 20)
        assert program.wait() == 0, program.text


@ours_or_not
@families
def test_a_handshake_that_ends_after_a_listener_has_asked_is_signalled(net, family, ours):
    net.neighbours()
    with contextlib.closing(Wire(net, family)) as wire:
        program = net.b.python(LISTENS, ours, [net.b.ip(int(family))], stdin=subprocess.PIPE)
        program.wait_text("^listens$")
        if ours:
            net.b.wait_steered(7000, "tcp", 20)
        before = net.b.counters()["TcpPassiveOpens"]
        wire.port, wire.iss = 7000, 0
        wire.send("S", 0)
        wire.iss = wire.expect("SA")[0]
        tell(program)
        program.wait_text("^asks$")
        if ours:  # it is the engine's still
            assert net.b.counters()["TcpPassiveOpens"] == before
        wire.send("A", 1)
        program.wait_text("^accepted$", 20)
        wire.send("PA", 1, b"there", seq=1)
        program.wait_text("^heard: there$", 20)
        wire.expect("A", data=b"hello")
        assert program.wait() == 0, program.text
