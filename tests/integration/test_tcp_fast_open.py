# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
TCP Fast Open (RFC 7413), both ways, between the library and kernel sockets and between two of the library's. Each step is the
same program's with kernel sockets and with the library; what it sees is compared, and the SYNs are read from the wire.

    net.a  the program ---------- net.b  its peer
"""

import contextlib
import select
import socket
import struct
import time

import pytest

from differential import CHILDREN, PATIENCE, App

pytestmark = pytest.mark.net()
PORT = 7450
KEY = bytes(range(1, 17))
both = pytest.mark.parametrize("preload", [False, True], ids=["kernel", "library"])
families = pytest.mark.parametrize("family", ["4", "6"])
HELPERS = f"""
import select
FASTOPEN, KEY, CONNECT, NO_COOKIE, MSG_FASTOPEN, PORT = 23, 33, 30, 34, 0x20000000, {PORT}
def listener(qlen=16, key={KEY!r}):
    l = socket.socket(FAM, socket.SOCK_STREAM)
    l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if qlen is not None: l.setsockopt(6, FASTOPEN, qlen)
    if key: l.setsockopt(6, KEY, key)
    l.bind((ME, PORT))
    l.listen(16)
    return l
def info(s): return s.getsockopt(6, socket.TCP_INFO, 104)
def syn_data(s): return bool(info(s)[5] & 32)
def ready(s, timeout):
    p = select.poll()
    p.register(s, select.POLLIN | select.POLLOUT)
    return [bits for _, bits in p.poll(timeout)]
def client(data, *options, flags=MSG_FASTOPEN):
    s = socket.socket(FAM, socket.SOCK_STREAM)
    for o in options: s.setsockopt(6, *o)
    assert s.sendto(data, flags, (PEER, PORT)) == len(data)
    return s
def fresh(blocking=True, *options):
    s = socket.socket(FAM, socket.SOCK_STREAM)
    for o in options: s.setsockopt(6, *o)
    s.setblocking(blocking)
    return s
def error(s): return s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
SO_ZEROCOPY, MSG_ZEROCOPY, MSG_ERRQUEUE = 60, 0x4000000, 0x2000
def zerocopy(s): s.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1)
def told(s):  # the first and the last call of a notification
    p = select.poll()
    p.register(s, 0)
    p.poll(5000)
    return [struct.unpack('=II', d[8:16]) for _, _, d in s.recvmsg(0, 512, MSG_ERRQUEUE)[1]]
def fill():  # the cookie of the peer
    s = client(b'x')
    s.recv(1)
    s.close()
"""
# A peer that answers each connection by what it has got, and its end.
ECHO = """
import threading
def serve(c):
    with c:
        while data := c.recv(65536): c.sendall(data)
def echo():
    while True:
        try: c, _ = l.accept()
        except OSError: return
        threading.Thread(target=serve, args=(c,), daemon=True).start()
l = listener()
threading.Thread(target=echo, daemon=True).start()
"""


def fast_open(net, value=3):
    for host in (net.a, net.b):
        host.run(["sysctl", "-qw", f"net.ipv4.tcp_fastopen={value}"])


class Syn:
    """A SYN or SYN|ACK from the wire: its Fast Open option (None: none), its data."""

    def __init__(self, tcp):
        self.flags, head = tcp[13], (tcp[12] >> 4) * 4
        self.data, self.cookie = tcp[head:], None
        self.sport = struct.unpack_from("!H", tcp)[0]
        self.acked = struct.unpack_from("!I", tcp, 8)[0]
        self.seq = struct.unpack_from("!I", tcp, 4)[0]
        options = tcp[20:head]
        while options and options[0]:
            if options[0] == 34:
                self.cookie = options[2:options[1]]
            options = options[1:] if options[0] == 1 else options[options[1]:]

    def __repr__(self):
        cookie = None if self.cookie is None else self.cookie.hex() or "asks"
        return f"{'SYN|ACK' if self.flags & 16 else 'SYN'} cookie {cookie} data {self.data[:20]!r}"


class Wire:
    """The SYNs that pass net.b's interface."""

    def __init__(self, net, family):
        with net.b.entered():
            self.raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
            self.raw.bind((net.b.dev, 3))
        self.family = family

    def next(self, ack=False):
        deadline = time.monotonic() + 10 * PATIENCE
        while time.monotonic() < deadline:
            if not select.select([self.raw], [], [], 0.1)[0]:
                continue
            frame = self.raw.recv(65536)
            if self.family == "4":
                proto, at, kind = frame[23], 34, b"\x08\x00"
                end = 14 + struct.unpack_from("!H", frame, 16)[0]
            else:
                proto, at, kind = frame[20], 54, b"\x86\xdd"
                end = 54 + struct.unpack_from("!H", frame, 18)[0]
            tcp = frame[at:end]
            if frame[12:14] == kind and proto == 6 and PORT in struct.unpack_from("!HH", tcp) and \
                    tcp[13] & 0x12 == (0x12 if ack else 2):
                return Syn(tcp)
        pytest.fail("no such SYN")


@contextlib.contextmanager
def watching(net, family):
    wire = Wire(net, family)
    yield wire
    wire.raw.close()


@contextlib.contextmanager
def program(host, preload, family="4", env=None):
    with App(host, preload, family, env) as app:
        app.do(HELPERS)
        yield app


def two_connections(server, client, wire):
    """The first SYN asks for a cookie, the second brings it with data, which is answered before the handshake ends."""
    server.do("l = listener()")
    server.start("c, _ = l.accept()")
    client.do("s = client(b'first')")
    server.answer()
    asks, gives = wire.next(), wire.next(ack=True)
    assert asks.cookie == b"" and not asks.data and len(gives.cookie) == 8, (asks, gives)
    assert server.do("(c.recv(100), syn_data(c))") == (b"first", False)
    assert client.do("(syn_data(s), s.getpeername()[1] == PORT)") == (False, True)
    server.start("c, _ = l.accept()")
    client.do("s = client(b'second')")
    server.answer()
    syn, answer = wire.next(), wire.next(ack=True)
    assert syn.cookie == gives.cookie and syn.data == b"second" and answer.cookie is None, (syn, answer)
    assert (answer.acked - syn.seq) % 2**32 == 1 + len(b"second")
    assert server.do("(c.recv(100), c.sendall(b'answer'), syn_data(c))") == (b"second", None, True)
    assert client.do("(s.recv(100), syn_data(s))") == (b"answer", True)
    print(f"{asks}, {gives}; {syn}, {answer}")


@families
@both
def test_a_server_answers_data_of_the_syn(net, preload, family):
    """The client is a kernel's."""
    net.neighbours()
    fast_open(net)
    with program(net.a, preload, family) as app, program(net.b, False, family) as peer, watching(net, family) as wire:
        two_connections(app, peer, wire)


@families
@both
def test_a_client_asks_and_then_sends_with_its_syn(net, preload, family):
    """The listener is a kernel's."""
    net.neighbours()
    fast_open(net)
    with program(net.b, False, family) as peer, program(net.a, preload, family) as app, watching(net, family) as wire:
        two_connections(peer, app, wire)


# What a program sees, step by step; the same with kernel sockets.
STEPS = {
    "MSG_ZEROCOPY without a cookie": [
        "s = fresh(False); zerocopy(s)",
        "s.sendto(b'data', MSG_FASTOPEN | MSG_ZEROCOPY, (PEER, PORT))",
        "ready(s, 5000)[0] & 4",
        "s.sendto(b'data', MSG_FASTOPEN | MSG_ZEROCOPY, (PEER, PORT))",
        "told(s)",
        "s.close()",
    ],
    "MSG_ZEROCOPY with a cookie": [
        "fill()",
        "s = fresh(); zerocopy(s)",
        "s.sendto(b'data', MSG_FASTOPEN | MSG_ZEROCOPY, (PEER, PORT))",
        "syn_data(s), s.recv(4)",
        "told(s)",
        "s.send(b'more', MSG_ZEROCOPY)",
        "told(s)",
        "s.close()",
    ],
    "without a cookie it is in progress": [
        "s = fresh(False)",
        "s.sendto(b'data', MSG_FASTOPEN, (PEER, PORT))",
        "ready(s, 5000)[0] & 4",
        "(error(s), info(s)[0], syn_data(s))",
        "s.sendto(b'data', MSG_FASTOPEN, (PEER, PORT))",  # as connect(), which says that it is done
        "s.sendto(b'data', MSG_FASTOPEN, (PEER, PORT))",
        "s.connect_ex((PEER, PORT))",
        "(s.send(b'data'), s.setblocking(True))",
        "s.recv(8, socket.MSG_WAITALL)",
        "s.close()",
    ],
    "with a cookie it is sent": [
        "fill()",
        "s = fresh(False)",
        "s.sendto(b'data', MSG_FASTOPEN, (PEER, PORT))",
        "ready(s, 5000)[0] & 4",
        "(error(s), info(s)[0], syn_data(s))",
        "(s.setblocking(True), s.recv(100))",
        "(s.sendto(b'more', 0, (PEER, PORT)), s.recv(100))",
        "s.close()",
    ],
    "a large write": [
        "fill()",
        "s = fresh()",
        "s.sendto(b'y' * 100000, MSG_FASTOPEN, (PEER, PORT))",
        "s.shutdown(socket.SHUT_WR)",
        "sum(len(p) for p in iter(lambda: s.recv(65536), b''))",
        "s.close()",
    ],
    "a large write that does not block": [
        "fill()",
        "s = fresh(False)",
        "s.sendto(b'y' * 100000, MSG_FASTOPEN, (PEER, PORT)) in (1420, 1408, 1400)",
        "s.close()",
    ],
    "several vectors": [
        "fill()",
        "s = fresh()",
        "s.sendmsg([b'one', b'', b'two', b'y' * 2000, b'end'], [], MSG_FASTOPEN, (PEER, PORT))",
        "s.shutdown(socket.SHUT_WR)",
        "b''.join(iter(lambda: s.recv(65536), b'')) == b'onetwo' + b'y' * 2000 + b'end'",
        "s.close()",
    ],
    "connect() without a cookie": [
        "s = fresh(True, (CONNECT, 1))",
        "s.connect_ex((PEER, PORT))",
        "(s.getsockopt(6, CONNECT), s.getpeername()[1])",
        "(s.send(b'data'), s.recv(100), syn_data(s))",
        "s.close()",
    ],
    "connect() that waits for data": [
        "fill()",
        "s = fresh(True, (CONNECT, 1))",
        "s.connect_ex((PEER, PORT))",
        "info(s)[0]",
        "s.getpeername()",
        "ready(s, 0)",
        "error(s)",
        "s.send(b'data')",
        "(info(s)[0], s.getpeername()[1], syn_data(s))",
        "s.recv(100)",
        "s.connect_ex((PEER, PORT))",
        "s.close()",
    ],
    "the same without blocking": [
        "fill()",
        "s = fresh(False, (CONNECT, 1))",
        "s.connect_ex((PEER, PORT))",
        "ready(s, 0)",
        "s.connect_ex((PEER, PORT))",
        "s.recv(100)",
        "s.sendmsg([b'da', b'ta'])",
        "ready(s, 5000)[0] & 4",
        "(error(s), syn_data(s))",
        "(s.setblocking(True), s.recv(100))",
        "s.close()",
    ],
    "MSG_FASTOPEN after such a connect()": [
        "fill()",
        "s = fresh(True, (CONNECT, 1))",
        "s.connect_ex((PEER, PORT))",
        "s.sendto(b'data', MSG_FASTOPEN, (PEER, PORT))",
        "(s.recv(100), syn_data(s))",
        "s.close()",
    ],
    "closed before it was written to": [
        "fill()",
        "s = fresh(True, (CONNECT, 1))",
        "s.connect_ex((PEER, PORT))",
        "s.close()",
    ],
    "shut down before it was written to": [
        "fill()",
        "s = fresh(True, (CONNECT, 1))",
        "s.connect_ex((PEER, PORT))",
        "s.shutdown(socket.SHUT_WR)",
        "s.send(b'data', socket.MSG_NOSIGNAL)",
        "s.close()",
    ],
    "nobody listens": [
        "fill()",
        "s = fresh()",
        "s.sendto(b'data', MSG_FASTOPEN, (PEER, PORT + 1))",
        "s.sendto(b'data', MSG_FASTOPEN | socket.MSG_NOSIGNAL, (PEER, PORT + 1))",
        "error(s)",
        "s.close()",
        "s = fresh(True, (NO_COOKIE, 1))",
        "s.sendto(b'data', MSG_FASTOPEN, (PEER, PORT + 1))",
        "s.close()",
        "s = fresh(True, (CONNECT, 1))",
        "s.connect_ex((PEER, PORT + 1))",
        "s.send(b'data', socket.MSG_NOSIGNAL)",
        "s.close()",
        "s = fresh(False, (CONNECT, 1))",
        "s.connect_ex((PEER, PORT + 1))",
        "s.send(b'data', socket.MSG_NOSIGNAL)",
        "ready(s, 5000)[0] & 4",
        "error(s)",
        "s.close()",
    ],
    "nothing to send": [
        "fill()",
        "s = fresh()",
        "s.sendmsg([], [], MSG_FASTOPEN, (PEER, PORT))",
        "s.getpeername()[1]",
        "(s.send(b'data'), s.recv(100))",
        "s.close()",
    ],
    "a call that does not wait": [
        "fill()",
        "s = fresh()",
        "nobody = PEER[:-1] + '9'",
        "s.sendto(b'data', MSG_FASTOPEN | socket.MSG_DONTWAIT, (nobody, PORT))",
        "s.sendto(b'data', MSG_FASTOPEN | socket.MSG_DONTWAIT, (nobody, PORT))",
        "s.close()",
    ],
    "a child writes what the parent has connected": [
        CHILDREN,
        "fill()",
        "s = fresh(True, (CONNECT, 1))",
        "s.connect_ex((PEER, PORT))",
        "wait(child(lambda: s.send(b'data')))",
        "s.recv(100)",
        "s.close()",
    ],
    "wrong calls": [
        "s = fresh()",
        "s.sendmsg([b'data'], [], MSG_FASTOPEN)",
        "call('sendto', s.fileno(), b'data', 4, MSG_FASTOPEN, b'\\0' * 16, 16)",
        "call('sendto', s.fileno(), b'data', 4, MSG_FASTOPEN, b'\\2', 1)",
        "call('sendto', s.fileno(), b'data', 4, MSG_FASTOPEN, b'\\2\\0' + b'\\0' * 6, 8)",
        "s.close()",
    ],
    "options": [
        "s = fresh()",
        "[s.getsockopt(6, o) for o in (FASTOPEN, CONNECT, NO_COOKIE)]",
        "s.setsockopt(6, CONNECT, 2)",
        "s.setsockopt(6, CONNECT, 1)",
        "s.setsockopt(6, NO_COOKIE, 1)",
        "s.setsockopt(6, FASTOPEN, 7)",
        "s.setsockopt(6, FASTOPEN, -1)",
        "s.setsockopt(6, KEY, b'k' * 15)",
        "s.setsockopt(6, KEY, b'k' * 32)",
        "[s.getsockopt(6, o) for o in (FASTOPEN, CONNECT, NO_COOKIE)]",
        "s.getsockopt(6, KEY, 64)",
        "s.close()",
        "s = fresh()",
        "s.connect((PEER, PORT))",
        "s.setsockopt(6, CONNECT, 1)",
        "s.setsockopt(6, NO_COOKIE, 1)",
        "s.setsockopt(6, FASTOPEN, 7)",
        "[s.getsockopt(6, o) for o in (FASTOPEN, CONNECT, NO_COOKIE)]",
        "s.close()",
    ],
}


def seen(net, preload, family, steps):
    with program(net.b, False, family) as peer, program(net.a, preload, family) as app, contextlib.ExitStack() as proof:
        peer.do(ECHO)
        if preload and CHILDREN not in steps:  # a child's use takes the connection to the kernel
            proof.enter_context(net.a.tcp_bypassed())
        for step in steps:
            app(step)
        return app.answers


@families
@pytest.mark.parametrize("name", STEPS)
def test_a_client_sees_the_same(net, name, family):
    net.neighbours()
    fast_open(net)
    kernel, ours = (seen(net, preload, family, STEPS[name]) for preload in (False, True))
    for (step, want), (_, got) in zip(kernel, ours):
        print(f"{step}: {want!r}" + ("" if want == got else f", and with the library {got!r}"))
    assert kernel == ours


SERVERS = {
    # what is set, the sysctl, whether a SYN with a cookie brings its data
    "the namespace's key": ("l = listener(key=None)", 3, True),
    "two keys": (f"l = listener(key={KEY!r} + b'an older key....')", 3, True),
    "a limit of none": ("l = listener(qlen=0)", 3, False),
    "not asked for": ("l = listener(qlen=None, key=None)", 3, False),
    "not asked for, but for all": ("l = listener(qlen=None, key=None)", 0x403, True),
    "the client alone": ("l = listener()", 1, False),
    "set while it listens": (f"l = listener(qlen=None, key=None); l.setsockopt(6, FASTOPEN, 5); l.setsockopt(6, KEY, {KEY!r})", 3, True),
    "set when it is waited for": ("l = listener(qlen=None, key=None); ready(l, 0); l.setsockopt(6, FASTOPEN, 5)", 3, True),
    "taken back": ("l = listener(); ready(l, 0); l.setsockopt(6, FASTOPEN, 0)", 3, False),
}


@pytest.mark.parametrize("name", SERVERS)
@both
def test_what_a_listener_allows(net, preload, name):
    setting, mode, opens = SERVERS[name]
    net.neighbours()
    fast_open(net, mode)
    with program(net.a, preload) as app, program(net.b, False) as peer, contextlib.ExitStack() as proof:
        app.do(setting)
        if preload:
            app.do("ready(l, 0)")
            proof.enter_context(net.a.tcp_bypassed())
        for data in (b"first", b"second"):
            app.start("c, _ = l.accept()")
            peer.start(f"s = client({data!r})")
            app.answer()
            peer.answer()
            assert app.do("c.recv(100)") == data
        seen = app.do("syn_data(c)"), peer.do("syn_data(s)")
    print(f"{name}: {seen}")
    assert seen == (opens, opens)


def test_a_server_takes_data_without_a_cookie(net):
    """net.ipv4.tcp_fastopen 0x200, and TCP_FASTOPEN_NO_COOKIE at both ends."""
    net.neighbours()
    for mode, setting in ((0x203, "l = listener()"), (3, "l = listener(); l.setsockopt(6, NO_COOKIE, 1)")):
        fast_open(net, mode)
        with program(net.a, True) as app, program(net.b, False) as peer, watching(net, "4") as wire:
            app.do(setting)
            app.start("c, _ = l.accept()")
            peer.start("s = client(b'first', (NO_COOKIE, 1))")
            app.answer()
            peer.answer()
            assert app.do("(c.recv(100), syn_data(c))") == (b"first", True)
            syn = wire.next()
            assert syn.cookie is None and syn.data == b"first", syn


@families
def test_both_ends_are_the_librarys(net, family):
    net.neighbours()
    fast_open(net)
    with program(net.a, True, family) as app, program(net.b, True, family) as peer:
        app.do("l = listener(); ready(l, 0)")
        with net.a.tcp_bypassed(), net.b.tcp_bypassed():
            for data in (b"first", b"second"):
                app.start("c, _ = l.accept()")
                peer.start(f"s = client({data!r})")
                app.answer()
                peer.answer()
                assert app.do("c.recv(100)") == data
                app.do("c.sendall(b'answer')")
                assert peer.do("s.recv(100)") == b"answer"
                assert [a.do(f"syn_data({s})") for a, s in ((app, "c"), (peer, "s"))] == [data == b"second"] * 2


def test_a_cookie_of_the_kernel_is_good_for_the_library(net):
    """The kernel's listener has given it; the library's is there after a restart, with the namespace's key."""
    net.neighbours()
    fast_open(net)
    with program(net.b, False) as peer:
        for preload in (False, True, False):
            with program(net.a, preload) as app:
                app.do("l = listener(key=None)")
                app.start("c, _ = l.accept()")
                peer.start("s = client(b'data')")
                app.answer()
                peer.answer()
                seen = app.do("(c.recv(100), syn_data(c))")
                app.do("l.close(); c.close()")
            print(f"preload {preload}: {seen}")
            assert seen == (b"data", not peer.do("not syn_data(s)"))
        assert seen[1]


def test_connections_of_the_syn_are_served_by_children(net):
    """accept(), fork(), the child answers: its connection may still be in SYN_RECV when it goes to the kernel."""
    net.neighbours()
    fast_open(net)
    with program(net.a, True) as app, program(net.b, False) as peer:
        app.do("""
import os
def serve_one():
    c, _ = l.accept()
    pid = os.fork()
    if not pid:
        try:
            data = c.recv(100)
            c.sendall(data + b' by a child')
        finally:
            os._exit(0)
    c.close()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
l = listener()
""")
        for number in range(20):
            app.start("serve_one()")
            peer.start(f"s = client(b'{number}')")
            assert app.answer() == 0
            peer.answer()
            assert peer.do("s.recv(100)") == b"%d by a child" % number
            assert peer.do("s.recv(100)") == b""
        assert peer.do("syn_data(s)")


def test_a_program_ends_with_such_connections(net):
    """The listener is closed, or its program ends, with connections that nobody has accepted: their peers are told."""
    net.neighbours()
    fast_open(net)
    with program(net.b, False) as peer:
        for end in ("l.close()", "os._exit(0)"):
            with program(net.a, True) as app:
                app.do("import os; l = listener(); ready(l, 0)")
                app.start("c, _ = l.accept()")
                peer.do("s = client(b'first')")
                app.answer()
                peer.do("s = client(b'second')")
                app.start(end)
                assert peer.ask("s.recv(100)") in (("OSError", "ECONNRESET"), b"")
                if end == "l.close()":
                    app.answer()
