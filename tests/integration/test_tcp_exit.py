# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The end of a process closes its connections as the kernel does: each case runs with kernel sockets, too."""

import signal

import pytest

from netns import wait_for
from test_tcp_both import both, connected

SIGNALLED = "os.kill(os.getpid(), signal.{})"
# How a process ends, and what waitpid() says of it.
ENDS = {
    "exit": ("LIBC.exit(0)", 0),
    "return": ("sys.exit(0)", 0),
    "_exit": ("os._exit(3)", 3),
    "quick_exit": ("LIBC.quick_exit(4)", 4),
    "exit_group": ("LIBC.syscall(231, 5)", 5),
    "abort": ("os.abort()", -signal.SIGABRT),
    "SIGTERM": (SIGNALLED.format("SIGTERM"), -signal.SIGTERM),
    "SIGHUP": (SIGNALLED.format("SIGHUP"), -signal.SIGHUP),
    "SIGRTMIN": (SIGNALLED.format("SIGRTMIN"), -signal.SIGRTMIN),
    "fault": ("ctypes.string_at(8)", -signal.SIGSEGV),
    "exec": ("os.execv('/bin/true', ['true'])", 0),
    "handler of a fault": ("handler(11, '_exit', 0)\nctypes.string_at(8)", 11),
    "SA_RESETHAND": ("handler(10, 'srand', 0x80000000)\nfor _ in range(2): os.kill(os.getpid(), 10)", -signal.SIGUSR1),
    "thread": ("threading.Thread(target=lambda: (time.sleep(0.1), LIBC._exit(7))).start()\ns.recv(1)", 7),
    "handler": ("signal.signal(signal.SIGALRM, lambda *a: os._exit(6)); os.kill(os.getpid(), signal.SIGALRM); time.sleep(5)", 6),
}
FAULTS = ["fault", "handler of a fault"]  # AddressSanitizer catches them itself
# The kernel calls a function of libc.
HANDLER = """
import threading
def handler(sig, function, flags):
    address = ctypes.cast(getattr(LIBC, function), ctypes.c_void_p).value
    call('sigaction', sig, struct.pack('Q128xIIQ', address, flags, 0, 0), None)
"""
ours = pytest.mark.parametrize("ours", [True, False], ids=["ours", "kernel"])

FILL = """
def pattern(n, m): return bytes(i % 251 for i in range(n % 251, n % 251 + m))
BLOCK = pattern(0, 251 * 400)
def fill():
    s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
    s.setblocking(False)
    n = 0
    try:
        while True: n += s.send(memoryview(BLOCK)[n % 251:])
    except BlockingIOError:
        return n
def drain():
    n = 0
    while d := s.recv(100000):
        if d != BLOCK[n % 251:][:len(d)] and d != pattern(n, len(d)): return 'other bytes', n
        n += len(d)
    return n
"""


def prepare(app):
    app.do(HANDLER)
    app.do("import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0))")


def finish(app, end, prepared=False):
    """The process ends, and as it should."""
    code, status = ENDS[end]
    if not prepared:
        prepare(app)
    app.start(code)
    assert app.popen.wait(30) == status
    app.popen.returncode = 0


def closed_by_both(app):
    """The peer's FIN is here; ours is answered, and not by a reset."""
    app.do("s.shutdown(socket.SHUT_WR)")
    app.do("for i in range(1000):\n if s.getsockopt(6, 11, 1)[0] == 7: break\n time.sleep(0.01)")
    return app.do("s.getsockopt(6, 11, 1)[0], s.getsockopt(1, 4)")


@ours
@pytest.mark.parametrize("role, end", [
    *(pytest.param("client", e, marks=[pytest.mark.no_sanitize] if e in FAULTS else []) for e in ENDS),
    ("server", "exit"), ("server", "SIGTERM")])
def test_an_idle_connection_is_closed(unet, ours, end, role):
    with connected(unet, "4", ours and role == "server", ours and role == "client") as (server, client):
        app, peer = (client, server) if role == "client" else (server, client)
        app.do("s.sendall(b'last')")
        finish(app, end)
        assert peer.do("exactly(s, 4) + s.recv(1)", 20) == b"last"
        assert closed_by_both(peer) == (7, 0)


@ours
@pytest.mark.parametrize("end, family", [("exit", "4"), ("return", "6"), ("_exit", "mapped"), ("quick_exit", "4"), ("abort", "4"),
                                         ("SIGTERM", "6"), ("exec", "4")])
def test_what_was_not_sent_arrives_afterwards(unet, ours, end, family):
    """The peer reads nothing until the process is gone: more than its window is left."""
    with connected(unet, family, False, ours) as (server, client):
        for x in (server, client):
            x.do(FILL)
        client.do("n = fill()")
        n = client.do("n")
        finish(client, end)
        assert server.do("drain()", 30) == n


@ours
@pytest.mark.parametrize("role", ["client", "server"])
@pytest.mark.parametrize("before, family", [("s.close()", "4"), ("s.close()", "6"), ("s.close()", "mapped"),
                                            ("s.shutdown(socket.SHUT_WR)", "4"), ("s.shutdown(socket.SHUT_WR); s.close()", "6")])
def test_what_was_closed_before_arrives_afterwards(unet, ours, before, role, family):
    with connected(unet, family, ours and role == "server", ours and role == "client") as (server, client):
        app, peer = (client, server) if role == "client" else (server, client)
        for x in (server, client):
            x.do(FILL)
        app.do("n = fill()")
        n = app.do("n")
        app.do(before)
        finish(app, "exit")
        assert peer.do("drain()", 30) == n
        assert closed_by_both(peer) == (7, 0)


@ours
@pytest.mark.parametrize("end", ["_exit", "SIGTERM", "exec"])
def test_unread_data_reset_the_peer(unet, ours, end):
    with connected(unet, "4", False, ours) as (server, client):
        server.do("s.sendall(b'never read')")
        client.do("await_ready(s)")
        finish(client, end)
        assert server.ask("s.recv(1)", 20) == ("OSError", "ECONNRESET")


@ours
@pytest.mark.parametrize("end", ["_exit", "SIGTERM", "exec"])
@pytest.mark.parametrize("seconds", [0, 5])
def test_linger(unet, ours, end, seconds):
    with connected(unet, "4", False, ours) as (server, client):
        client.do(f"s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, {seconds}))")
        client.do("s.sendall(b'last')")
        assert server.do("exactly(s, 4)") == b"last"
        finish(client, end)
        assert server.ask("s.recv(1)", 20) == (("OSError", "ECONNRESET") if seconds == 0 else b"")


@ours
@pytest.mark.parametrize("end", ["_exit", "SIGTERM", "exec"])
def test_after_our_fin_nobody_reads(unet, ours, end):
    """FIN_WAIT2: what the peer still sends is answered with a reset."""
    with connected(unet, "4", False, ours) as (server, client):
        client.do("s.shutdown(socket.SHUT_WR)")
        assert server.do("s.recv(1)") == b""
        finish(client, end)
        server.do("s.sendall(b'too late')")
        assert server.do("await_ready(s, 8)") & 8
        assert server.do("s.getsockopt(1, 4)") == 32


@ours
@pytest.mark.parametrize("end", ["exit", "SIGTERM"])
def test_who_was_not_accepted_is_reset(unet, ours, end):
    with both(unet, "4", ours, False) as (server, client):
        client.do("s = client()")
        server.do("await_ready(l)")
        finish(server, end)
        assert client.ask("s.recv(1)", 20) == ("OSError", "ECONNRESET")


@ours
@pytest.mark.parametrize("end", ["SIGTERM", "SIGINT"])
def test_a_signal_amid_a_stream(unet, ours, end):
    """What was written arrives, in order, and then the end."""
    with connected(unet, "4", False, ours) as (server, client):
        for x in (server, client):
            x.do(FILL)
        client.do("_ = signal.signal(signal.SIGINT, signal.SIG_DFL)")
        server.start("n = drain()")
        client.start("n, told = 0, 0\nwhile True:\n n += s.send(memoryview(BLOCK)[n % 251:])\n"
                     " if n > 300000 and not told: told = os.write(2, b'much has left\\n')")
        wait_for(lambda: "much has left" in client.text, 10, "the stream")
        client.popen.send_signal(getattr(signal, end))
        assert client.popen.wait(30) == -getattr(signal, end)
        client.popen.returncode = 0
        server.answer(30)
        assert server.do("n") > 100000


@ours
def test_without_privileges(unet, ours):
    """Nothing can be handed over: the process waits as long as its peer reads."""
    with connected(unet, "4", False, ours) as (server, client):
        for x in (server, client):
            x.do(FILL)
        client.do("os.setuid(65534); n = fill()")
        n = client.do("n")
        server.start("n = drain()")
        finish(client, "_exit")
        server.answer(30)
        assert server.do("n") == n


@ours
def test_the_program_sees_nothing_of_it(unet, ours):
    """What stands at SIG_DFL reads so, can be changed and changed back, and is so after exec()."""
    with connected(unet, "4", False, ours) as (_, client):
        client.do("import subprocess; LIBC.signal.restype = ctypes.c_void_p; LIBC.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]")
        client.do("act = ctypes.create_string_buffer(b'x' * 152, 152)")
        for sig in (signal.SIGTERM, signal.SIGUSR1):
            client.do(f"call('sigaction', {int(sig)}, None, act)")
            assert client.do("act.raw[:8], act.raw[136]") == (bytes(8), 0)  # SIG_DFL, without SA_SIGINFO
            assert client.do(f"LIBC.signal({int(sig)}, 1), LIBC.signal({int(sig)}, None), LIBC.signal({int(sig)}, None)") == (None, 1, None)
            client.do(f"call('sigaction', {int(sig)}, None, act)")
            assert client.do("act.raw[:8]") == bytes(8)
        assert client.do("b'SigCgt:\\t' + b'0' * 16 in subprocess.run(['/bin/cat', '/proc/self/status'], env={}, capture_output=True).stdout") is True
        # A child of it ends by a signal as ever, and the connection stays.
        client.do("pid = os.fork()\nif not pid: os.kill(os.getpid(), signal.SIGTERM); os._exit(0)")
        assert client.do("os.waitpid(pid, 0)[1]") == signal.SIGTERM
        client.do("s.sendall(b'here')")
