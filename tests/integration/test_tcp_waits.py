# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How long TCP calls wait and when poll() and epoll call a socket readable: the kernel's own answers."""

import socket
import time

import pytest

from test_tcp_both import PORT
from test_tcp_calls import LINGER0, differential_tcp, roles

PEEK, WAITALL, DONTWAIT, OOB = 2, 0x100, 0x40, 1
LOWAT = "s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, {})"


def later(app, code, *pieces):
    """Answers `code` while the pieces come: bytes to be sent, or calls."""
    app.start(code)
    for piece in pieces:
        time.sleep(0.15)
        piece()
    app.note(code, app.answer())


def reset(peer):
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER0)
    peer.close()


@roles
def test_all_is_waited_for_until_the_end(unet, role):
    def steps(app, peer):
        peer.sendall(b"abc")
        peer.shutdown(socket.SHUT_WR)
        app("await_ready(s, 0x2000)")
        app(f"s.recv(10, {PEEK | WAITALL})")
        app(f"s.recv(10, {WAITALL})")
        app(f"s.recv(10, {WAITALL})")
    differential_tcp(unet, "4", steps, role)


@pytest.mark.parametrize("flags", [WAITALL, WAITALL | PEEK])
@pytest.mark.parametrize("end", ["fin", "reset", "already"])
def test_all_is_waited_for_until_an_error(unet, flags, end):
    """What came first is told alone, the error by the next call."""
    def steps(app, peer):
        peer.sendall(b"abc")
        app("await_ready(s)")
        if end == "already":
            reset(peer)
            app("await_ready(s, 8)")
            app(f"s.recv(10, {flags})")
        else:
            later(app, f"s.recv(10, {flags})", lambda: peer.sendall(b"de"), (lambda: reset(peer)) if end == "reset" else peer.close)
        app("s.recv(10)")
        app("s.recv(10)")
        app("s.recv(10)")
    differential_tcp(unet, "4", steps)


def test_peeking_for_all(unet):
    def steps(app, peer):
        peer.sendall(b"abc")
        app("await_ready(s)")
        later(app, f"s.recv(6, {PEEK | WAITALL})", lambda: peer.sendall(b"d"), lambda: peer.sendall(b"ef"))
        app("s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, tv(0.2)); None")
        app(f"s.recv(7, {PEEK | WAITALL})")
        app(f"s.recv(7, {PEEK | WAITALL | DONTWAIT})")
        app(f"s.recvmsg_into([bytearray(1) for i in range(20)], 0, {PEEK | WAITALL})[0]")
        app("s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, tv(0)); None")
        later(app, f"s.recvmsg_into([bytearray(1) for i in range(8)], 0, {WAITALL})[0]",
              lambda: peer.sendall(b"gh"))
        app(f"s.recv(10, {DONTWAIT})")
    differential_tcp(unet, "4", steps)


def test_peeking_for_all_beside_another_reader(unet):
    """Whoever peeks takes no other reader's wake-up."""
    def steps(app, peer):
        app.do(f"got = []; t = threading.Thread(target=lambda: got.append(s.recv(4, {PEEK | WAITALL}))); t.start()")
        app.do(f"u = threading.Thread(target=lambda: (time.sleep(0.3), got.append(s.recv(4, {PEEK | WAITALL})))); u.start()")
        for piece in (b"a", b"b", b"cd"):
            time.sleep(0.2)
            peer.sendall(piece)
        app("t.join(3); u.join(3); None")
        app("got, t.is_alive(), u.is_alive()")
        app("s.recv(10)")
    differential_tcp(unet, "4", steps)


@pytest.mark.parametrize("inline", [0, 1])
def test_all_is_waited_for_up_to_the_mark(unet, inline):
    def steps(app, peer):
        app(f"s.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, {inline})")
        app("s.settimeout(None); s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, tv(0.3)); None")
        peer.send(b"abU", socket.MSG_OOB)
        app("await_ready(s, 2)")
        peer.sendall(b"cd")
        time.sleep(0.1)
        app(f"s.recv(4, {WAITALL})")
        app(f"s.recv(4, {WAITALL})")
    differential_tcp(unet, "4", steps)


def test_many_vectors(unet):
    def steps(app, peer):
        app.do("bufs = [bytearray(3) for i in range(1000)]")
        later(app, f"s.recvmsg_into(bufs, 0, {WAITALL})[0]", lambda: peer.sendall(bytes(range(100))), lambda: peer.sendall(b"x" * 1700),
              lambda: peer.sendall(b"y" * 1201))
        app("b''.join(bufs)[:110], b''.join(bufs)[1790:1810], b''.join(bufs)[-3:]")
        app(f"s.recv(10, {DONTWAIT})")
    differential_tcp(unet, "4", steps)


def test_many_vectors_are_sent_whole(unet):
    def steps(app, peer):
        app.do("s.setsockopt(1, 7, 5000); d = [bytes([i % 251]) * (i % 700) for i in range(1000)]; t = sum(map(len, d))")
        app.start("os.writev(s.fileno(), d)")
        time.sleep(0.2)
        got, want = b"", b"".join(bytes([i % 251]) * (i % 700) for i in range(1000))
        while len(got) < len(want):
            got += peer.recv(100000)
        app.note("whole", (app.answer(), got == want))
    differential_tcp(unet, "4", steps)


@roles
def test_the_low_water_mark(unet, role):
    def steps(app, peer):
        app.do("e = {n: select.epoll() for n in ('level', 'edge', 'once')}")
        app.do("def see(): return [sum(x for _, x in e[n].poll(0.05)) for n in sorted(e)] + "
               "[ready(s), [len(x) for x in select.select([s], [], [], 0)]]")
        for n, flag in (("level", 0), ("edge", 1 << 31), ("once", 1 << 30)):
            app.do(f"e[{n!r}].register(s, 1 | 0x2000 | {flag})")
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # a piece waits for no acknowledgement
        app(LOWAT.format(10))
        app("s.getsockopt(1, 18)")
        peer.sendall(b"12345")
        app("time.sleep(0.2); see()")
        peer.sendall(b"6789")
        app("time.sleep(0.2); see()")
        app("s.recv(2)")
        peer.sendall(b"0ab")
        app("time.sleep(0.2); see()")
        app("see()")
        app("e['once'].modify(s, 1 | 1 << 30)")
        app("see()")
        app("s.recv(1)")
        app("see()")
        app("s.recv(5, 0x40), s.recv(50, 0x40)")
        peer.sendall(b"xyz")
        app("time.sleep(0.2); see()")
        app(LOWAT.format(3))
        app("see()")
        app(LOWAT.format(4))
        app("see()")
        app(LOWAT.format(0))
        app("see()")
        app(LOWAT.format(10))
        peer.shutdown(socket.SHUT_WR)
        app("time.sleep(0.2); see()")
        app("s.recv(2, 0x40)")
        app("see()")
    differential_tcp(unet, "4", steps, role)


def test_a_low_water_mark_beyond_the_buffer(unet):
    """What fills the buffer is readable."""
    def steps(app, peer):
        app("s.setsockopt(1, 8, 5000)")
        app(LOWAT.format(10 << 20))
        app("s.getsockopt(1, 18)")
        peer.setblocking(False)
        try:
            while peer.send(bytes(1000)):
                time.sleep(0.02)
        except BlockingIOError:
            pass
        app("time.sleep(0.5); ready(s) & 1")
        app("len(s.recv(1 << 20)) > 1000")
    differential_tcp(unet, "4", steps)


def test_a_low_water_mark_makes_room(unet):
    """The buffer grows until as much fits."""
    def steps(app, peer):
        app(LOWAT.format(400000))
        app("s.getsockopt(1, 18)")
        app.start("await_ready(s, 1, 5)")
        peer.sendall(bytes(400000))
        app.note("ready", app.answer())
        app("len(s.recv(1 << 20)) >= 390000")
    differential_tcp(unet, "4", steps)


def test_the_low_water_mark_is_inherited(unet):
    def steps(app, _):
        app("l = listener(); " + LOWAT.format(5).replace("s.", "l.", 1))
        app("ready(l)")
        with unet.b.socket(socket.AF_INET, socket.SOCK_STREAM) as peer:
            peer.connect((unet.a.ip4, PORT))
            app("s = l.accept()[0]; None")
            app("s.getsockopt(1, 18)")
            peer.sendall(b"abcd")
            app("time.sleep(0.2); ready(s)")
            peer.sendall(b"e")
            app("await_ready(s)")
    differential_tcp(unet, "4", steps, role=None)


# 16 KiB, of which 13 are used; AddressSanitizer's frames take 17.
@pytest.mark.no_sanitize
@pytest.mark.parametrize("preload", [False, True])
def test_a_thread_with_the_smallest_stack(unet, library, preload):
    with unet.b.socket(socket.AF_INET, socket.SOCK_STREAM, timeout=10) as lst:
        lst.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        lst.bind((unet.b.ip4, PORT))
        lst.listen(1)
        app = unet.a.popen([library.build / "tests/integration/tcp_small_stack", unet.b.ip4, str(PORT)], preload=preload)
        peer, _ = lst.accept()
        with peer:
            peer.settimeout(10)
            for piece in (b"ab", b"cd"):
                time.sleep(0.1)
                peer.sendall(piece)
            time.sleep(0.2)
            n = 0
            while n < (8 << 20) + 4096:
                more = len(peer.recv(1 << 20))
                assert more, app.text
                n += more
            peer.sendall(b"efgh")
            assert app.wait() == 0, app.text
