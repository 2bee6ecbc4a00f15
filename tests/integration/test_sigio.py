# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Signals that sockets send: SIGIO by O_ASYNC and FIOASYNC, SIGURG of a socket with an owner. The kernel's sockets in the same places.

    net.a  a program that sleeps until a signal comes [ veth-a ] ---- [ veth-b ]  kernel sockets of the test  net.b
"""

import re
import socket

import pytest

from netns import wait_for

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
