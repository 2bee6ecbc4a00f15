# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Calls on TCP sockets in every form, against a kernel peer: the answers are the kernel's own (differential.py)."""

import contextlib
import select
import socket
import struct

import pytest

from differential import App, FAMILIES
from netns import wait_for
from test_tcp_both import HELPERS, PORT

families = pytest.mark.parametrize("family", FAMILIES)
LINGER0 = struct.pack("ii", 1, 0)


def run(net, family, preload, steps, role, env=None):
    """Steps with the application in net.a. role "client": its s is connected to the peer's; "server": accepted from it."""
    with App(net.a, preload, family, env) as app, contextlib.ExitStack() as stack:
        app.do(HELPERS)
        fam = socket.AF_INET if family == "4" else socket.AF_INET6
        if role == "client":
            peer_l = stack.enter_context(net.b.socket(socket.AF_INET6 if family == "6" else socket.AF_INET,
                                                      socket.SOCK_STREAM))
            peer_l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            peer_l.bind((net.b.ip(6 if family == "6" else 4), PORT))
            peer_l.listen(5)
            app.do("s = client()")
            peer, _ = peer_l.accept()
        elif role == "server":
            app.do("l = listener(); ready(l)")
            peer = net.b.socket(socket.AF_INET6 if family == "6" else socket.AF_INET, socket.SOCK_STREAM)
            peer.connect((net.a.ip(6 if family == "6" else 4), PORT))
            app.do("s, name = l.accept()")
        else:
            peer = None
        if peer:
            stack.enter_context(peer)
            peer.settimeout(5)
        del fam
        steps(app, peer)
        return app.answers


def differential_tcp(net, family, steps, role="client"):
    kernel = run(net, family, False, steps, role)
    ours = run(net, family, True, steps, role)
    different = [(a[0], a[1], b[1]) for a, b in zip(kernel, ours) if a != b]
    assert not different, "\n".join(f"{c}\n  kernel: {k!r:.300}\n  ours:   {o!r:.300}" for c, k, o in different)
    assert len(kernel) == len(ours)


roles = pytest.mark.parametrize("role", ["client", "server"])


@roles
@families
def test_every_form_of_receiving(unet, family, role):
    def steps(app, peer):
        for call in ("s.recv(100)", "s.recvfrom(100)", "s.recvmsg(100)", "rmsg(s)", "os.read(s.fileno(), 100)",
                     "os.readv(s.fileno(), [bytearray(2), bytearray(50)])", "s.recv(100, socket.MSG_PEEK), s.recv(100)",
                     "s.recv(2), s.recv(100)", "s.recv(2, socket.MSG_TRUNC), s.recv(100)",
                     "call('recv', s.fileno(), None, 2, socket.MSG_TRUNC), s.recv(100)",
                     "(lambda b: (s.recv_into(b), bytes(b)))(bytearray(8))",
                     "(lambda a, b: (s.recvmsg_into([a, b]), bytes(a), bytes(b)))(bytearray(2), bytearray(8))",
                     "recvmmsg(s, 1)", "s.recv(5, socket.MSG_WAITALL)"):
            peer.sendall(b"hello")
            app("await_ready(s)")
            app(call)
        app("s.recv(1, socket.MSG_DONTWAIT)")
        app("s.recv(0)")
        app("s.setblocking(False); None")
        app("s.recv(1)")
        peer.shutdown(socket.SHUT_WR)
        app("await_ready(s)")
        app("s.recv(1)")
        app("s.recvmsg(1)")
        app("s.recv(0)")
    differential_tcp(unet, family, steps, role)


@roles
@families
def test_every_form_of_sending(unet, family, role):
    def steps(app, peer):
        forms = ["s.send(b'abc')", "s.sendall(b'abcd')", "os.write(s.fileno(), b'w')", "os.write(s.fileno(), b'')",
                 "os.writev(s.fileno(), [b'a', b'bc', b'd' * 7])", "s.sendmsg([b'x', b'yz'])", "s.send(b'')",
                 "s.sendto(b'to', ('1.2.3.4', 5) if FAM == socket.AF_INET else ('::9', 5))",
                 "s.send(b'x', socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)", "sendmmsg(s, [b'one', b'', b'three'])",
                 "s.send(b'more', socket.MSG_MORE), s.send(b'last')"]
        for form in forms:
            sent = app(form)
            n = sum(sent[1]) if isinstance(sent, tuple) and isinstance(sent[1], list) else \
                sum(sent) if isinstance(sent, tuple) and sent[0] != "OSError" else sent if isinstance(sent, int) else \
                4 if sent is None else 0
            got = b""
            while len(got) < n:
                got += peer.recv(100)
            app.note("peer got", got)
    differential_tcp(unet, family, steps, role)


@roles
@families
def test_after_shutdown(unet, family, role):
    def steps(app, peer):
        app("s.shutdown(socket.SHUT_WR)")
        app("s.send(b'x')")
        app("ready(s)")
        app.note("peer got", peer.recv(10))
        peer.sendall(b"still")
        app("await_ready(s)")
        app("s.recv(100)")
        app("s.shutdown(socket.SHUT_RD)")
        app("s.recv(100)")
        app("s.shutdown(7)")
        app("s.shutdown(socket.SHUT_RDWR)")
        app("ready(s)")
        peer.close()
        app("await_ready(s, select.POLLHUP)")
        app("s.shutdown(socket.SHUT_RDWR)")
        app("s.getpeername()[1] > 0")
        app("s.recv(1)")
        app("s.send(b'x')")
    differential_tcp(unet, family, steps, role)


@roles
def test_a_peer_that_resets(unet, role):
    def steps(app, peer):
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER0)
        peer.sendall(b"before")
        app("await_ready(s)")
        peer.close()
        app("await_ready(s, select.POLLERR)")
        app("ready(s)")
        app("s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)")
        app("s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)")
        app("ready(s)")
        app("s.recv(10)")
        app("s.send(b'x')")
        app("s.getpeername()")
        app("s.shutdown(socket.SHUT_WR)")
    differential_tcp(unet, "4", steps, role)


@roles
def test_an_error_is_told_once(unet, role):
    def steps(app, peer):
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER0)
        peer.close()
        app("await_ready(s, select.POLLERR)")
        app("s.recv(10)")
        app("s.recv(10)")
        app("s.send(b'x')")
        app("s.send(b'x')")
    differential_tcp(unet, "4", steps, role)


def test_close_with_unread_data_resets_the_peer(unet):
    def steps(app, peer):
        peer.sendall(b"nobody reads this")
        app("await_ready(s)")
        app("s.close()")
        try:
            app.note("peer got", peer.recv(10))
        except OSError as e:
            app.note("peer got", e.errno)
    differential_tcp(unet, "4", steps)


def test_sigpipe(unet):
    def steps(app, peer):
        app("seen = []; signal.signal(signal.SIGPIPE, lambda *a: seen.append(a[0])); s.shutdown(socket.SHUT_WR)")
        app("s.send(b'x')")
        app("seen")
        app("s.send(b'x', socket.MSG_NOSIGNAL)")
        app("os.write(s.fileno(), b'x')")
        app("seen")
    differential_tcp(unet, "4", steps)


def test_unconnected_sockets(unet):
    def steps(app, _):
        app("s = socket.socket(FAM, socket.SOCK_STREAM); None")
        for call in ("s.recv(10)", "s.send(b'x')", "s.getpeername()", "s.getsockname()", "s.shutdown(socket.SHUT_RD)", "s.accept()",
                     "ready(s)", "s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)", "s.listen(5)", "s.recv(10)", "ready(s)",
                     "s.connect((PEER, 1))", "s.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)",
                     "s.setblocking(False)", "s.accept()", "s.shutdown(socket.SHUT_RDWR)", "s.accept()", "ready(s)"):
            app(call)
    differential_tcp(unet, "4", steps, role=None)


@pytest.mark.parametrize("blocking", [True, False])
def test_connect_refused(unet, blocking):
    def steps(app, _):
        app(f"s = socket.socket(FAM, socket.SOCK_STREAM); s.setblocking({blocking})")
        app("s.connect((PEER, 1))")
        if not blocking:
            app("await_ready(s, select.POLLOUT)")
            app("ready(s)")
            app("s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)")
            app("ready(s)")
        app("s.recv(1)")
        app("s.send(b'x')")
        app("s.getpeername()")
        app("s.connect((PEER, 1))")
        if not blocking:
            app("await_ready(s, select.POLLOUT)")
        app("s.connect((PEER, 1))")
    differential_tcp(unet, "4", steps, role=None)


def test_connect_to_nowhere(unet):
    def steps(app, _):
        for to in ("('203.0.113.1', 80)", "('0.0.0.0', 80)", "('224.0.0.1', 80)", "('10.77.0.255', 80)", "(PEER, 0)",
                   "(ME, 1)", "('127.0.0.1', 1)"):
            app("s = socket.socket(FAM, socket.SOCK_STREAM); None")
            app(f"s.connect({to})")
    differential_tcp(unet, "4", steps, role=None)


def test_a_neighbour_that_does_not_answer(unet):
    def steps(app, _):
        app("s = socket.socket(FAM, socket.SOCK_STREAM); None")
        app("s.connect(('10.77.0.77', 80))", 20)
    differential_tcp(unet, "4", steps, role=None)


def test_connect_again(unet):
    def steps(app, peer):
        app(f"s.connect((PEER, {PORT}))")
        app("s.listen(1)")
        app("s.bind((ME, 0))")
        app("s.accept()")
        app("disconnect(s)")  # here the kernel has ECONNRESET pending for itself besides; we have not
        app("s.getpeername()")
        try:
            app.note("peer got", peer.recv(10))
        except OSError as e:
            app.note("peer got", e.errno)
        app(f"s.connect((PEER, {PORT}))")
        app("s.getpeername()[1]")
    differential_tcp(unet, "4", steps)


@roles
def test_timeouts(unet, role):
    def steps(app, peer):
        app("s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, tv(0.1)); None")
        app("s.recv(10)")
        app("s.recv(10, socket.MSG_WAITALL)")
        peer.sendall(b"abc")
        app("s.recv(10, socket.MSG_WAITALL)")
        app("s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, tv(0.1)); None")
        app("timed(s.sendall, bytes(50 << 20))[0]")
        app("s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 10); None")
        app("s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, tv(1)); None")
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer.sendall(b"12345")
        app("s.recv(20)")
        peer.sendall(b"1234567890")
        app("s.recv(20)")
    differential_tcp(unet, "4", steps, role)


OPTIONS = """
[(l, o, (lambda v: v)(s.getsockopt(l, o))) for l, o in (
 (socket.SOL_SOCKET, socket.SO_KEEPALIVE), (socket.SOL_SOCKET, socket.SO_REUSEADDR), (socket.SOL_SOCKET, socket.SO_OOBINLINE),
 (socket.SOL_SOCKET, socket.SO_TYPE), (socket.SOL_SOCKET, socket.SO_DOMAIN), (socket.SOL_SOCKET, socket.SO_PROTOCOL),
 (socket.SOL_SOCKET, socket.SO_ACCEPTCONN), (socket.SOL_SOCKET, socket.SO_RCVLOWAT), (socket.SOL_SOCKET, socket.SO_ERROR),
 (6, socket.TCP_NODELAY), (6, socket.TCP_KEEPIDLE), (6, socket.TCP_KEEPINTVL), (6, socket.TCP_KEEPCNT), (6, socket.TCP_CORK),
 (6, socket.TCP_USER_TIMEOUT), (6, socket.TCP_SYNCNT), (6, socket.TCP_LINGER2), (6, socket.TCP_DEFER_ACCEPT),
 (6, 25), (0, socket.IP_TTL), (0, socket.IP_TOS))]
"""


@roles
def test_options_read_back(unet, role):
    def steps(app, peer):
        app(OPTIONS.strip())
        for l, o, v in ((1, 9, 1), (1, 10, 1), (6, 1, 1), (6, 3, 1), (6, 3, 0), (6, 4, 77), (6, 5, 11), (6, 6, 3), (6, 18, 5000),
                        (6, 7, 3), (6, 8, 7), (6, 25, 10000), (0, 2, 44), (0, 1, 16), (1, 18, 3), (1, 7, 30000), (1, 8, 30000)):
            app(f"s.setsockopt({l}, {o}, {v})")
            app(f"s.getsockopt({l}, {o})")
        app(OPTIONS.strip())
        app("s.setsockopt(6, 4, 0)")
        app("s.setsockopt(6, 6, 1000)")
        app("s.setsockopt(99, 1, 1)")
        app("s.getsockopt(99, 1)")
        app("s.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)")
        app("s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 5))")
        app("s.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)")
    differential_tcp(unet, "4", steps, role)


def test_options_are_inherited(unet):
    def steps(app, _):
        app("l = listener(); None")
        for l, o, v in ((1, 9, 1), (6, 1, 1), (6, 4, 77), (6, 5, 11), (6, 6, 3), (6, 18, 5000), (0, 2, 44), (1, 18, 3), (1, 7, 30000),
                        (1, 8, 30000), (1, 12, 4)):
            app(f"l.setsockopt({l}, {o}, {v})")
        app("ready(l)")
        with unet.b.socket(socket.AF_INET, socket.SOCK_STREAM) as peer:
            peer.connect((unet.a.ip4, PORT))
            app("s, _ = l.accept()")
            app(OPTIONS.strip())
            for l, o in ((1, 7), (1, 8), (1, 12), (1, 2)):
                app(f"s.getsockopt({l}, {o})")
    differential_tcp(unet, "4", steps, role=None)


@roles
def test_queues_are_told(unet, role):
    def steps(app, peer):
        peer.sendall(b"12345")
        app("await_ready(s)")
        app("struct.unpack('i', fcntl.ioctl(s, termios.FIONREAD, b'0000'))")
        app("s.recv(2)")
        app("struct.unpack('i', fcntl.ioctl(s, termios.FIONREAD, b'0000'))")
        app("s.send(b'abc')")
        peer.recv(10)
        queued = "struct.unpack('i', fcntl.ioctl(s, termios.TIOCOUTQ, b'0000'))"
        wait_for(lambda: app.do(queued) == (0,), what="the acknowledgement")
        app(queued)
        app("fcntl.fcntl(s, fcntl.F_GETFL) & os.O_NONBLOCK")
    differential_tcp(unet, "4", steps, role)


@roles
def test_urgent_data(unet, role):
    def steps(app, peer):
        peer.send(b"abcX", socket.MSG_OOB)
        app("await_ready(s, select.POLLPRI)")
        app("ready(s, 0, select.POLLIN | select.POLLPRI)")
        app("s.recv(10)")
        app("struct.unpack('i', fcntl.ioctl(s, 0x8905, b'0000'))")
        app("call('sockatmark', s.fileno())")
        app("s.recv(10, socket.MSG_OOB)")
        app("s.recv(10, socket.MSG_OOB)")
        app("s.send(b'12U', socket.MSG_OOB)")
        got = b""
        while len(got) < 2:
            got += peer.recv(10)
        app.note("peer got", got)
        select.select([], [], [peer], 5)
        peer.setblocking(False)  # with a timeout Python would wait for ordinary data
        app.note("peer got urgent", peer.recv(10, socket.MSG_OOB))
    differential_tcp(unet, "4", steps, role)


def test_sendfile_and_splice(unet):
    def steps(app, peer):
        app("import tempfile; f = tempfile.TemporaryFile(); f.write(bytes(range(256)) * 400); f.flush(); None")
        app("os.sendfile(s.fileno(), f.fileno(), 10, 50000)")
        got = b""
        while len(got) < 50000:
            got += peer.recv(65536)
        app.note("peer got", got == (bytes(range(256)) * 400)[10:50010])
        app("r, w = os.pipe(); os.write(w, b'through a pipe')")
        app("os.splice(r, s.fileno(), 100)")
        app.note("peer got", peer.recv(100))
        peer.sendall(b"and back")
        app("await_ready(s)")
        app("os.splice(s.fileno(), w, 100)")
        app("os.read(r, 100)")
    differential_tcp(unet, "4", steps)


def test_sendfile_reads_what_it_sends(unet):
    """To a slow peer, by a socket that does not wait: what there is no room for is not read in vain."""
    size = 2 << 20

    def steps(app, peer):
        app.do("import re, tempfile; f = tempfile.TemporaryFile(); f.write(bytes(range(256)) * 8192); f.flush()")
        app.do("def has_read(): return int(re.search(r'rchar: (\\d+)', open('/proc/self/io').read())[1])")
        app.do("s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32768); s.setblocking(False); at, calls, begun = 0, 0, has_read()")
        app.start(f"""
while at < {size}:
    try: at += os.sendfile(s.fileno(), f.fileno(), at, {size} - at); calls += 1
    except BlockingIOError: select.select([], [s], [], 5)
""")
        got = bytearray()
        while len(got) < size:
            got += peer.recv(8192)
        app.answer(30)
        assert got == bytes(range(256)) * 8192
        read, calls = app.do("has_read() - begun, calls")
        print(f"{read} bytes read for {size} in {calls} calls")
        assert read < size * 3 // 2
    run(unet, "4", True, steps, "client")


def test_an_accept_queue_that_is_full(unet):
    """Those beyond the backlog are not answered; as soon as one is accepted the next can be."""
    def steps(app, _):
        app("l = listener(backlog=1); ready(l)")
        with contextlib.ExitStack() as stack:
            peers = []
            for _ in range(4):
                p = stack.enter_context(unet.b.socket(socket.AF_INET, socket.SOCK_STREAM))
                p.setblocking(False)
                p.connect_ex((unet.a.ip4, PORT))
                peers.append(p)
            app("time.sleep(0.3); None")
            app("l.setblocking(False); got = []")
            app("for i in range(2): await_ready(l); got.append(l.accept()[0])")
            app("len(got)")
    differential_tcp(unet, "4", steps, role=None)
