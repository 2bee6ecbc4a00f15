# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the library calls of libc for what it does, by count: counted_calls.c stands behind it, and counts."""

import contextlib

import pytest

from differential import App
from netns import interposers, wait_for
from test_why import reasons

pytestmark = pytest.mark.no_asan  # its memcpy() comes before any other


@pytest.fixture(scope="module")
def counter(tmp_path_factory):
    return interposers(tmp_path_factory, "counted_calls") / "counted_calls.so"


@contextlib.contextmanager
def counting(host, counter, env=None):
    """App with the library and with the counter behind it: c.counted_copies.value, ..."""
    library = host.net.library
    library.after.append(str(counter))
    try:
        app = App(host, True, env=env)
    finally:
        library.after.pop()
    with app:
        app.do(f"""
class Counted:
    def __getattr__(self, name): return ctypes.c_ulong.in_dll(ctypes.CDLL({str(counter)!r}), 'counted_' + name)
c = Counted()
def count(name, fn):
    before = getattr(c, name).value
    fn()
    return getattr(c, name).value - before
""")
        yield app


EXCHANGES = {
    "udp": ("s = udp(7000); s.settimeout(10); s.connect((PEER, 7000)); ready(s)", "p = udp(7000); p.connect((PEER, 7000))"),
    "tcp": ("s = socket.create_connection((PEER, 7000)); s.settimeout(10)", "p, _ = l.accept()"),
}


# What leaves is copied to where the device reads it by the loop that sums it, which is no call.
@pytest.mark.parametrize("kind, kept", [pytest.param("udp", 0, id="udp"), pytest.param("tcp", 1, id="tcp-keeps-what-it-may-repeat")])
def test_what_comes_is_copied_once_and_what_leaves_when_it_is_summed(net, counter, kind, kept):
    """What comes: from the memory that the device fills to the program's."""
    net.neighbours()
    size = 1237
    with counting(net.a, counter) as app, App(net.b, False) as peer:
        ours, theirs = EXCHANGES[kind]
        peer.do("l = socket.create_server((ME, 7000))" if kind == "tcp" else theirs)
        app.do(ours)
        peer.do(theirs if kind == "tcp" else "p.settimeout(10)")
        app.do(f"room = bytearray(4096); data = bytes({size}); s.send(b'first')")
        assert peer.do("p.recv(10)") == b"first"
        peer.do("p.send(b'first')")
        assert app.do("s.recv(10)") == b"first"
        app.do(f"c.bytes.value = {size}")
        came, left = [], []
        for i in range(20):
            # Of a connection each is one segment, and there when it is read.
            peer.do(f"p.send(b'{i % 10}' * {size})")
            app.do("await_ready(s)")
            came.append(app.do("count('copies', lambda: s.recv_into(room))"))
            assert app.do(f"bytes(room[:{size}])") == b"%d" % (i % 10) * size
            left.append(app.do("count('copies', lambda: s.send(data))"))
            assert peer.do("len(p.recv(4096))") == size
        print(f"copies of {size} bytes: {came} received, {left} sent")
        assert (came, left) == ([1] * 20, [kept] * 20)
        assert reasons(app, app.do("s.fileno()"))[1] == []


@pytest.mark.parametrize("ratio", [0, 1, 10, 100])
def test_how_often_a_receiver_asks_the_kernel(unet, counter, ratio):
    unet.neighbours()
    with counting(unet.a, counter, {"VMA_RX_UDP_POLL_OS_RATIO": ratio}) as app, unet.b.socket() as peer:
        app.do("s = udp(7000); ready(s)")
        peer.sendto(b"first", app.at(7000))
        app.do("await_ready(s) and s.recv(10)")
        app.do("""
s.setblocking(False)
def polls(n):
    for i in range(n):
        try: s.recv(10)
        except BlockingIOError: continue
        assert False
""")
        app.do("polls(64)")
        asked = []

        def counted():
            """Whether it is that number: when the internal thread has had a word of the kernel's socket, it is one more."""
            asked.append(app.do("count('recvmsg', lambda: polls(64 * 200))", timeout=60))
            return asked[-1] == (200 // ratio if ratio else 0)
        wait_for(counted, 20, asked)
        print(f"{64 * 200} polls, ratio {ratio}: {asked} times")
