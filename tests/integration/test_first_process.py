# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A container's first process: the kernel drops what it has left at SIG_DFL, and its sockets go on. Each case runs with kernel sockets, too."""

import contextlib
import os
import signal
import socket

import pytest

from netns import children, python_argv, wait_for

PORT = 7021
FIRST = """
import ctypes, os, signal, socket, sys
assert os.getpid() == 1
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
assert s.recv(99) == b"signals"
for n in (signal.SIGUSR1, signal.SIGTERM, signal.SIGPIPE, signal.SIGABRT, signal.SIGSEGV, signal.SIGTRAP, signal.SIGSYS, signal.SIGRTMIN):
    for again in range(2):
        os.kill(1, n)
        signal.raise_signal(n)
        signal.signal(n, signal.SIG_DFL)
    s.sendall(b"%d " % n)
s.sendall(b"done")
assert s.recv(99) == b"fault"
ctypes.string_at(8)
"""
# The parent has begun to use the library, and its child is the first process of a namespace.
CHILD = """
import ctypes, os, signal, socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
assert not ctypes.CDLL(None).unshare(0x20000000)  # CLONE_NEWPID
pid = os.fork()
if not pid:
    assert os.getpid() == 1
    for n in (signal.SIGUSR1, signal.SIGTERM, signal.SIGSEGV, signal.SIGRTMIN):
        os.kill(1, n)
        signal.raise_signal(n)
    c = socket.create_connection((sys.argv[1], int(sys.argv[2])))
    c.sendall(b"went on")
    os._exit(3)
print("child:", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
ours = pytest.mark.parametrize("ours", [True, False], ids=["ours", "kernel"])


@pytest.fixture
def listener(unet):
    with unet.b.socket(kind=socket.SOCK_STREAM, timeout=10) as lst:
        lst.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        lst.bind((unet.b.ip4, PORT))
        lst.listen(2)
        yield lst


def until(peer, end):
    got = b""
    while not got.endswith(end):
        more = peer.recv(1000)
        assert more, got
        got += more
    return got


@pytest.mark.no_sanitize  # SIGSEGV is the sanitizer's there
@ours
def test_of_what_is_at_its_default_only_a_fault_ends_it(unet, listener, ours):
    argv = ["prlimit", "--core=0", "unshare", "--pid", "--fork", "--kill-child", *python_argv(FIRST, unet.b.ip4, PORT)]
    app = unet.a.popen(argv, preload=ours)
    with listener.accept()[0] as peer:
        peer.settimeout(10)
        first, = wait_for(lambda: children(app.pid))
        # From outside of the namespace it is dropped, too.
        os.kill(first, signal.SIGTERM)
        os.kill(first, signal.SIGSEGV)
        with unet.a.tcp_bypassed() if ours else contextlib.nullcontext():
            peer.sendall(b"signals")
            got = until(peer, b"done").decode()
        assert got.count(" ") == 8, got
        peer.sendall(b"fault")
        assert peer.recv(1) == b""
    assert app.wait() == -signal.SIGSEGV, app.text
    print(f"went on after {got}, ended by a fault")


@pytest.mark.no_sanitize
@ours
def test_a_child_that_is_a_first_process(unet, listener, ours):
    app = unet.a.popen(python_argv(CHILD, unet.b.ip4, PORT), preload=ours)
    with listener.accept()[0], listener.accept()[0] as peer:
        peer.settimeout(10)
        assert until(peer, b"went on") == b"went on"
    assert app.wait() == 0 and "child: 3" in app.text, app.text
    print(app.text)
