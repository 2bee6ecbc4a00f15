# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a connection keeps when the kernel takes it over, beside its bytes: a kernel socket would have had it all the time."""

import contextlib
import os
import socket
import struct
import subprocess

import pytest

from differential import App
from netns import ip, wait_for
from test_tcp_both import HELPERS, PORT, connected, families
from test_tcp_exit_wire import PORT as WIRE_PORT, Wire

TCP_MAXSEG, TCP_INFO, TCP_TIMESTAMP = 2, 11, 24
# To another process, as it were: s is the kernel's from now on.
PASS_ON = "a, b = socket.socketpair(); socket.send_fds(a, [b'x'], [s.fileno()])"
SIDES = pytest.mark.parametrize("end", ["accepted", "connected"])


def ends(net, family, end):
    """(ours, the kernel's) of one connection, ours the end that has accepted, or has connected."""
    return connected(net, family, end == "accepted", end == "connected")


def in_order(end, pair):
    return pair if end == "accepted" else pair[::-1]


def tcp_info(app, offset):
    """A u32 of the program's struct tcp_info."""
    return struct.unpack_from("I", app.do(f"s.getsockopt(6, {TCP_INFO}, 232)"), offset)[0]


@families
@SIDES
def test_the_size_of_its_segments(net, family, end):
    """And as large ones leave: the peer's interface counts them, as it does for a connection that the kernel has made."""
    with ends(net, family, end) as pair:
        ours, kernel = in_order(end, pair)
        before = ours.do(f"s.getsockopt(6, {TCP_MAXSEG})")
        ours.do(PASS_ON)
        seen = [ours.do(f"s.getsockopt(6, {TCP_MAXSEG})"), tcp_info(ours, 16), kernel.do(f"s.getsockopt(6, {TCP_MAXSEG})")]
        print(f"{before} bytes with the library, afterwards {seen[0]}, TCP_INFO {seen[1]}; the peer's {seen[2]}")
        assert seen[0] == seen[1] == before == seen[2]
        # What is sent says so, too.
        ours.start("s.sendall(bytes(1 << 20))")
        kernel.do("exactly(s, 1 << 20)", 20)
        ours.answer()
        segments = tcp_info(ours, 136)  # tcpi_segs_out
        assert segments * before > 1 << 20 and segments < 2 * (1 << 20) / before + 50, segments


@SIDES
def test_the_size_that_the_program_has_asked_for(net, end):
    with ends(net, "4", end) as pair:
        ours, _ = in_order(end, pair)
        ours.do(f"s.setsockopt(6, {TCP_MAXSEG}, 700)")
        before = ours.do(f"s.getsockopt(6, {TCP_MAXSEG})")
        ours.do(PASS_ON)
        assert ours.do(f"s.getsockopt(6, {TCP_MAXSEG})") == before


@SIDES
def test_its_time_stamps_count_milliseconds(net, end):
    """Where they counted microseconds a connection that rests for an hour would be lost (Linux 6.7)."""
    with ends(net, "4", end) as pair:
        ours, _ = in_order(end, pair)
        ours.do(f"import time; {PASS_ON}")
        # An odd one would be one of microseconds.
        first, second = ours.do(f"[(s.getsockopt(6, {TCP_TIMESTAMP}) & 0xffffffff, time.sleep(0.3))[0] for _ in range(2)]")
        print(f"{second - first} in 300 ms")
        assert not first & 1 and 250 <= (second - first) & 0xffffffff < 10000


def test_of_many_none_counts_microseconds(net):
    """The first number is a matter of chance."""
    with connected(net, "4", True, False) as (server, client):
        server.do("conns = [s]")
        for _ in range(15):
            server.start("conns.append(l.accept()[0])")
            client.do("s = client(); kept = globals().get('kept', []) + [s]")
            server.answer()
        server.do("a, b = socket.socketpair()\nfor s in conns: socket.send_fds(a, [b'x'], [s.fileno()])")
        odd = server.do(f"sum(s.getsockopt(6, {TCP_TIMESTAMP}) & 1 for s in conns)")
        print(f"{odd} of 16 count microseconds")
        assert odd == 0


@SIDES
def test_a_window_that_the_peer_does_not_scale(net, end):
    """The peer knows no window scaling: the window is offered as it is."""
    peer = net.b if end == "accepted" else net.a
    peer.run(["sysctl", "-qw", "net.ipv4.tcp_window_scaling=0"])
    with ends(net, "4", end) as pair:
        ours, kernel = in_order(end, pair)
        ours.do(PASS_ON)
        ours.do("s.sendall(b'says its window')")
        assert kernel.do("exactly(s, 15)") == b"says its window"
        window = tcp_info(kernel, 228)  # tcpi_snd_wnd
        print(f"the peer may send {window} bytes")
        assert window > 40000


def test_a_low_port_while_no_capability_is_effective(net):
    """A server that accepts as nobody, and forks: bind() of what takes the connection over wants a right that is only permitted."""
    with App(net.a, True) as server, net.b.socket(kind=socket.SOCK_STREAM) as c:
        server.do(HELPERS + "import os")
        server.do("l = listener(21); ready(l); os.seteuid(65534)")
        server.start("s, _ = l.accept()")
        c.connect((net.a.ip4, 21))
        server.answer()
        server.do(PASS_ON)
        server.do("t = socket.socket(fileno=socket.recv_fds(b, 1, 1)[1][0])")
        c.sendall(b"goes on")
        assert server.do("exactly(t, 7)") == b"goes on"
        server.do("t.sendall(b'and back')")
        assert c.recv(100) == b"and back"


def test_what_a_daemons_parent_has_closed(net):
    """daemon() ends the parent inside libc: what the program has closed, and the peer has not read, arrives all the same."""
    total = 4 << 20
    program = f"""
import ctypes, socket
s = socket.create_connection(({net.b.ip4!r}, {PORT}))
s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, {total})
s.setblocking(False)
sent, data = 0, memoryview(bytes({total}))
while sent < {total}:
    try: sent += s.send(data[sent:sent + 65536])
    except BlockingIOError: break
print("sent", sent, flush=True)
s.close()
ctypes.CDLL(None).daemon(0, 1)
"""
    with net.b.socket(kind=socket.SOCK_STREAM, timeout=20) as listener:
        listener.bind((net.b.ip4, PORT))
        listener.listen()
        app = net.a.python(program, True)
        sent = int(app.wait_text(r"^sent (\d+)")[1])
        peer, _ = listener.accept()
        with peer:
            peer.settimeout(20)
            app.wait()
            got = 0
            while more := peer.recv(1 << 20):
                got += len(more)
    print(f"{got} of {sent} bytes")
    assert got == sent > 100000


@pytest.mark.parametrize("how", ["exit", "TIME_WAIT"])
def test_a_server_that_shares_its_port_starts_again(net, how):
    """SO_REUSEPORT without SO_REUSEADDR: what the kernel keeps of the old one's connections is not in the way, as it is not without the library."""
    program = f"""
import os, select, socket, sys
l = socket.socket()
l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
l.bind(("", {PORT}))
l.listen()
select.select([l], [], [], 0)
print("listens", flush=True)
c, _ = l.accept()
c.sendall(b"x")
c.close()
sys.stdin.read()
os._exit(0)
"""
    for _ in range(2):
        read, write = os.pipe()
        app = net.a.python(program, True, stdin=read)
        os.close(read)
        app.wait_text("^listens")
        net.a.wait_steered(PORT, "tcp", 20)
        with net.b.socket(kind=socket.SOCK_STREAM) as c:
            c.connect((net.a.ip4, PORT))
            assert c.recv(10) == b"x"
            if how == "TIME_WAIT":
                assert c.recv(10) == b""
            else:
                os.close(write)
                assert app.wait() == 0, app.text
        if how == "TIME_WAIT":
            os.close(write)
            assert app.wait() == 0, app.text


def test_its_local_address(net):
    """Bound to a port alone, and the routes have another source by now: a connection keeps its address."""
    ip("-n", net.a.name, "addr", "add", "10.77.0.200/24", "dev", net.a.dev)
    with App(net.a, True) as app, net.b.socket(kind=socket.SOCK_STREAM) as l:
        l.bind((net.b.ip4, PORT))
        l.listen()
        app.do(HELPERS)
        app.do(f"s = socket.socket(FAM); s.bind(('', 5000)); s.connect((PEER, {PORT}))")
        peer, address = l.accept()
        with peer:
            peer.settimeout(10)
            ip("-n", net.a.name, "route", "replace", net.b.ip4, "dev", net.a.dev, "src", "10.77.0.200")
            app.do(PASS_ON)
            app.do("s.sendall(b'from where it was')")
            assert peer.recv(100) == b"from where it was"
            assert app.do("s.getsockname()") == address == (net.a.ip4, 5000)
            peer.sendall(b"answer")
            assert app.do("s.recv(100)") == b"answer"


def test_whom_its_signal_goes_to(net):
    """A refused connect() leaves a used kernel socket; its owner and O_ASYNC are there for the next one."""
    with App(net.a, True) as app, net.b.socket(kind=socket.SOCK_STREAM) as l:
        app.do(HELPERS + "import errno, fcntl, os, select, signal")
        app.do("seen = []; signal.signal(signal.SIGIO, lambda *_: seen.append(1))")
        app.do(f"s = socket.socket(FAM); s.setblocking(False); s.connect_ex((PEER, {PORT})); select.select([], [s], [], 10)")
        assert app.do("s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED") is True
        app.do("fcntl.fcntl(s, fcntl.F_SETOWN, os.getpid()); fcntl.fcntl(s, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)")
        l.bind((net.b.ip4, PORT))
        l.listen()
        # The first one tells of the attempt before, as the kernel's does.
        assert app.do(f"[errno.errorcode[s.connect_ex((PEER, {PORT}))] for _ in range(2)]") == ["ECONNABORTED", "EINPROGRESS"]
        peer, _ = l.accept()
        with peer:
            assert app.do("fcntl.fcntl(s, fcntl.F_GETOWN) == os.getpid()") is True
            wait_for(lambda: app.do("len(seen)"), 10, "SIGIO of the connection")


GIVES = """
import errno, select, socket, sys
s = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
s.setblocking(False)
assert s.connect_ex((sys.argv[1], int(sys.argv[2]))) == errno.EINPROGRESS
sys.stdin.readline()
a, b = socket.socketpair()
socket.send_fds(a, [b"x"], [s.fileno()])
t = socket.socket(fileno=socket.recv_fds(b, 1, 1)[1][0])
print("given", flush=True)
select.select([], [t], [])
error = t.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
print("ends:", errno.errorcode.get(error, "connected"), flush=True)
t.setblocking(True)
t.sendall(b"hello")
print("heard:", s.recv(100).decode() if select.select([s], [], [], 20)[0] else None, flush=True)
"""


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "kernel"])
@pytest.mark.parametrize("family", ["4", "6"])
def test_who_gets_it_while_it_connects(net, family, ours):
    """Another program waits for the end of the handshake in the kernel: that makes it, by a SYN of its own."""
    net.neighbours()
    with contextlib.closing(Wire(net, family)) as wire:
        program = net.b.python(GIVES, ours, [wire.addr, WIRE_PORT], stdin=subprocess.PIPE)
        wire.expect("S")
        port = wire.port
        program.popen.stdin.write(b"\n")
        program.popen.stdin.flush()
        program.wait_text("^given$")
        if ours:
            wire.expect("R", seq=1)
            wire.port = None
            wire.expect("S")
        assert wire.port == port
        wire.send("SA", 1)
        program.wait_text("^ends: connected$", 20)
        wire.expect("A", data=b"hello")
        wire.send("PA", 6, b"there")
        program.wait_text("^heard: there$", 20)
        assert program.wait() == 0, program.text
