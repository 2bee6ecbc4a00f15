# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a program is told of a TCP connection that is over, or is nothing yet: the kernel's own answers."""

import contextlib
import socket

import pytest

from differential import FAMILIES
from netns import ip
from test_tcp_both import PORT
from test_tcp_calls import LINGER0, differential_tcp, roles

families = pytest.mark.parametrize("family", FAMILIES)

# Every question that changes nothing, and those that may (SO_ERROR and what takes it) last.
OPTS = {"SO_ERROR": (1, 4), "SO_TYPE": (1, 3), "SO_SNDBUF": (1, 7), "SO_RCVBUF": (1, 8), "SO_KEEPALIVE": (1, 9), "SO_LINGER": (1, 13),
        "SO_RCVLOWAT": (1, 18), "SO_SNDLOWAT": (1, 19), "SO_ACCEPTCONN": (1, 30), "SO_OOBINLINE": (1, 10),
        "TCP_NODELAY": (6, 1), "TCP_MAXSEG": (6, 2), "TCP_CORK": (6, 3), "TCP_KEEPIDLE": (6, 4), "TCP_SYNCNT": (6, 7),
        "TCP_LINGER2": (6, 8), "TCP_DEFER_ACCEPT": (6, 9), "TCP_WINDOW_CLAMP": (6, 10), "TCP_QUICKACK": (6, 12),
        "TCP_USER_TIMEOUT": (6, 18), "TCP_NOTSENT_LOWAT": (6, 25), "IP_TOS": (0, 1), "IP_TTL": (0, 2), "IP_MTU": (0, 14)}

ASK = f"""
def attempt(f, *args):
    try: return f(*args)
    except OSError as e: return errno.errorcode.get(e.errno, e.errno)
def named(f):
    a = attempt(f)
    return a if isinstance(a, str) else (a[0], a[1] > 0)
def state(s): return attempt(lambda: s.getsockopt(6, socket.TCP_INFO, 1)[0])
def number(s, req): return attempt(lambda: struct.unpack('i', fcntl.ioctl(s, req, b'0000'))[0])
def quiet(s):
    r = dict((n, attempt(s.getsockopt, *o)) for n, o in {OPTS!r}.items() if n != 'SO_ERROR')
    r.update((n, number(s, q)) for n, q in (('INQ', 0x541B), ('OUTQ', 0x5411), ('NSD', 0x894B), ('MARK', 0x8905)))
    r.update(info=state(s), name=named(s.getsockname), peer=named(s.getpeername), poll=ready(s, 0, 0x201f),
             errqueue=attempt(s.recvmsg, 10, 100, socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT),
             errfrom=attempt(s.recv, 10, socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT),
             oob=attempt(s.recv, 1, socket.MSG_OOB | socket.MSG_DONTWAIT))
    return r
def many(s, name, n):
    iov = (Iovec * n)(*[Iovec(ctypes.addressof(ONE), 1)] * n)
    return attempt(call, name, s.fileno(), ctypes.byref(Msghdr(iov=iov, iovlen=n)), 0x4040)
ONE = ctypes.create_string_buffer(2)
"""


# The kernel tunes and counts these in its own way; TCP_MAXSEG is less by the time stamps that ours does not send by default.
TUNED = {"SO_SNDBUF", "SO_RCVBUF", "TCP_WINDOW_CLAMP", "TCP_QUICKACK", "TCP_MAXSEG"}
# Without a connection the kernel takes the difference of two numbers of the one before.
QUEUES = {"OUTQ", "NSD"}


def ask(app, without=TUNED):
    """Questions about s."""
    app.do(ASK)
    app.do(f"r = quiet(s); [r.pop(k) for k in {sorted(without)!r}]")
    for key in app.do("sorted(r)"):
        app(f"r[{key!r}]  # {key}")


def end(app):
    """Calls on s that take its error or change it."""
    for call in ("many(s, 'sendmsg', 1025)", "many(s, 'recvmsg', 1025)", "attempt(s.getsockopt, 1, 4)", "attempt(s.getsockopt, 1, 4)",
                 "attempt(s.recv, 10, 0x40)", "attempt(s.recv, 10, 0x40)", "attempt(s.send, b'x', 0x4000)", "attempt(s.send, b'', 0x4000)",
                 "attempt(s.recv, 0, 0x40)",
                 "attempt(s.shutdown, 9)", "attempt(s.shutdown, 0)", "attempt(s.shutdown, 1)", "attempt(s.shutdown, 2)",
                 "ready(s, 0, 0x201f)", "attempt(s.accept)", "attempt(s.setsockopt, 6, 1, 1)", "attempt(s.getsockopt, 6, 1)",
                 "attempt(s.setsockopt, 1, 8, 50000)", "attempt(s.getsockopt, 1, 8)"):
        app(call)


@roles
@families
def test_established(unet, family, role):
    def steps(app, peer):
        ask(app)
        end(app)
    differential_tcp(unet, family, steps, role)


@roles
def test_reset(unet, role):
    def steps(app, peer):
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER0)
        peer.close()
        app("await_ready(s, 8)")
        ask(app)
        end(app)
        ask(app)
    differential_tcp(unet, "4", steps, role)


@roles
def test_reset_after_a_fin(unet, role):
    """CLOSE_WAIT: EPIPE is the error."""
    def steps(app, peer):
        peer.sendall(b"abc")
        peer.shutdown(socket.SHUT_WR)
        app("await_ready(s, 0x2000)")
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER0)
        peer.close()
        app("await_ready(s, 8)")
        ask(app)
        end(app)
    differential_tcp(unet, "4", steps, role)


@roles
@pytest.mark.parametrize("first", ["ours", "peer"])
def test_closed_by_both(unet, role, first):
    def steps(app, peer):
        app.do("def wait_closed():\n for i in range(300):\n  if s.getsockopt(6, 11, 1)[0] == 7: return\n  time.sleep(0.01)")
        if first == "ours":
            app("s.shutdown(1)")
            assert peer.recv(10) == b""
            peer.close()
        else:
            peer.close()
            app("await_ready(s, 1)")
            app("s.shutdown(1)")
        app.do("wait_closed()")
        ask(app)
        end(app)
        ask(app)
    differential_tcp(unet, "4", steps, role)


@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize("bound", [True, False])
def test_refused(unet, blocking, bound):
    def steps(app, _):
        app.do(f"s = socket.socket(FAM, socket.SOCK_STREAM); s.setblocking({blocking})")
        if bound:
            app.do("s.bind((ME, 0))")
        app("s.connect((PEER, 1))")
        if not blocking:
            app("await_ready(s, 4)")
        ask(app, TUNED | QUEUES)
        end(app)
    differential_tcp(unet, "4", steps, role=None)


@pytest.mark.parametrize("how", ["peer", "ours", "alive"])
@pytest.mark.parametrize("bound", [True, False])
def test_disconnected(unet, how, bound):
    def steps(app, _):
        with contextlib.ExitStack() as stack:
            lst = stack.enter_context(unet.b.socket(socket.AF_INET, socket.SOCK_STREAM))
            lst.setsockopt(1, 2, 1)
            lst.bind((unet.b.ip4, PORT))
            lst.listen(5)
            app.do("s = socket.socket(FAM, socket.SOCK_STREAM)")
            if bound:
                app.do("s.bind((ME, 0))")
            app.do(f"s.connect((PEER, {PORT})); old = s.getsockname()")
            peer = stack.enter_context(lst.accept()[0])
            app.do("def wait_closed():\n for i in range(300):\n  if s.getsockopt(6, 11, 1)[0] == 7: return\n  time.sleep(0.01)")
            if how == "ours":
                app("s.shutdown(1)")
                peer.recv(1)
                peer.close()
                app.do("wait_closed()")
            elif how == "peer":
                peer.close()
                app("await_ready(s, 1)")
                app("s.shutdown(1)")
                app.do("wait_closed()")
            app("disconnect(s)")
            ask(app, TUNED | QUEUES)
            app(f"s.connect((PEER, {PORT}))")
            app("s.getsockname() == old")
            ask(app, TUNED | QUEUES)
            end(app)
    differential_tcp(unet, "4", steps, role=None)


def test_syn_sent(unet):
    # Nobody there answers; whom nobody knows would be unreachable after three seconds.
    ip("-n", unet.a.name, "neigh", "replace", "10.77.0.77", "lladdr", "02:00:00:00:00:77", "dev", unet.a.dev, "nud", "permanent")

    def steps(app, _):
        app.do("s = socket.socket(FAM, socket.SOCK_STREAM); s.setblocking(False)")
        app("s.connect(('10.77.0.77', 80))")
        ask(app, TUNED | QUEUES)
        app("s.connect(('10.77.0.77', 80))")
        app("s.shutdown(1)")
        ask(app, TUNED | QUEUES)
        end(app)
    differential_tcp(unet, "4", steps, role=None)


def test_nothing_yet(unet):
    def steps(app, _):
        app.do("s = socket.socket(FAM, socket.SOCK_STREAM)")
        ask(app, set())
        end(app)
    differential_tcp(unet, "4", steps, role=None)


@pytest.mark.parametrize("again, blocking", [("s.bind((ME, 7333))", True), ("s.bind((ME, 7333))", False), ("s.bind((ANY, 0))", True),
                                             ("s.listen(4)", True)])
def test_used_otherwise_after_a_refusal(unet, again, blocking):
    """The port that connect() has chosen is given back."""
    def steps(app, _):
        app.do("s = socket.socket(FAM, socket.SOCK_STREAM); s.setsockopt(6, 4, 77); s.setsockopt(1, 8, 30000); s.setsockopt(1, 2, 1)")
        app.do("s.setsockopt(1, 13, struct.pack('ii', 1, 3)); ep = select.epoll(); ep.register(s, 0x2001)")
        app.do(f"s.setblocking({blocking})")
        app("s.connect((PEER, 1))")
        if not blocking:
            app("await_ready(s, 4)")
        app("ep.poll(0)[0][1] & 0x10")
        app(again)
        app("s.getsockname()[0], s.getsockname()[1] in (7333, 0)")
        if "listen" in again:
            app("ep.poll(0)")
            with unet.b.socket(socket.AF_INET, socket.SOCK_STREAM) as peer:
                peer.connect((unet.a.ip4, app.ask("s.getsockname()[1]")))
                app("[e for _, e in ep.poll(3)]")
                app("s.accept()[1][0] == PEER")
        for l, o in ((6, 4), (1, 8), (1, 2)):
            app(f"s.getsockopt({l}, {o})")
        app("s.getsockopt(1, 13, 8), s.gettimeout(), fcntl.fcntl(s, fcntl.F_GETFL), fcntl.fcntl(s, fcntl.F_GETFD)")
        app("other = socket.socket(FAM, socket.SOCK_STREAM); other.bind((ME, 0))")
    differential_tcp(unet, "4", steps, role=None)


def test_a_copy_follows_the_new_kernel_socket(unet):
    def steps(app, _):
        app.do("s = socket.socket(FAM, socket.SOCK_STREAM); s.setsockopt(1, 2, 1); d = s.dup()")
        app("s.connect((PEER, 1))")
        app("s.bind((ME, 7334))")
        app("s.close()")
        app("d.getsockname()")
        app("d.listen(2)")
        with unet.b.socket(socket.AF_INET, socket.SOCK_STREAM) as peer:
            peer.settimeout(3)
            peer.connect((unet.a.ip4, 7334))
            app("d.accept()[1][0] == PEER")
    differential_tcp(unet, "4", steps, role=None)


@pytest.mark.parametrize("role", ["client", "server"])
def test_taken_away(net, role):
    """The kernel's by ss -K, ours with the interface."""
    def steps(app, peer):
        app.do("s.setsockopt(6, 4, 77); s.setsockopt(1, 7, 30000)")
        if app.preload:
            net.a.run(["ip", "link", "del", net.a.dev])
        else:
            net.a.run(["ss", "-K", "dst", net.b.ip4])
        app("await_ready(s, 8)")
        ask(app, (TUNED - {"SO_SNDBUF"}) | QUEUES)
        end(app)
        ask(app, (TUNED - {"SO_SNDBUF"}) | QUEUES)
    differential_tcp(net, "4", steps, role)
