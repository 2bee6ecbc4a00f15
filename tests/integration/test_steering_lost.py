# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Somebody takes the steering program off the interface, or puts another in its place, while sockets are served by it.

The program is put back where that can be. Where another one sits, the sockets go to the kernel with what is connected.
"""

import contextlib
import fcntl
import re
import socket
import termios

import pytest

from differential import App
from netns import PYTHON, bpf_object, ip, wait_for


def program(host):
    """(id, name) of the XDP program on the host's interface, or None."""
    found = re.search(r"prog/xdp id (\d+)(?: name (\S+))?", ip("-n", host.name, "-d", "link", "show", host.dev))
    return found and (int(found.group(1)), found.group(2))


def take_off(host, mode="xdpgeneric"):
    ip("-n", host.name, "link", "set", "dev", host.dev, mode, "off")


@pytest.fixture
def sockets(net):
    with sockets_of(net) as those:
        yield those


@contextlib.contextmanager
def sockets_of(net, env=None, before=""):
    """A program with a connected socket, a listener and a datagram socket, all offloaded, and their peers."""
    net.neighbours()
    with App(net.a, True, "4", env) as app, contextlib.ExitStack() as close:
        app.do(before)
        app.do("l = socket.create_server((ME, 7002)); u = udp(7000); l.settimeout(5); u.settimeout(5)")
        app.do("await_ready(l, timeout=0.01); await_ready(u, timeout=0.01)")  # what attaches them
        c = close.enter_context(net.b.socket(kind=socket.SOCK_STREAM))
        u = close.enter_context(app.peer_socket())
        app.start("c = l.accept()[0]; c.settimeout(5)")
        c.connect((net.a.ip4, 7002))
        app.answer()
        yield app, c, u


def talk(net, app, c, u, offloaded):
    """Everything still works, and who serves it."""
    def pings():
        for i in range(5):
            c.sendall(b"ping%d" % i)
            assert app.do("c.recv(100)") == b"ping%d" % i
            app.do(f"c.sendall(b'pong{i}')")
            assert c.recv(100) == b"pong%d" % i
            u.sendto(b"datagram", (net.a.ip4, 7000))
            assert app.do("u.recv(100)") == b"datagram"

    with contextlib.ExitStack() as proof:
        if offloaded:
            proof.enter_context(net.a.bypassed())
            proof.enter_context(net.a.tcp_bypassed())
        pings()
        with net.b.socket(kind=socket.SOCK_STREAM) as other:
            app.start("d = l.accept()[0]; d.sendall(b'hello'); d.close()")
            other.connect((net.a.ip4, 7002))
            assert other.recv(100) == b"hello"
            app.answer()
            assert other.recv(100) == b""
        # The peer has nothing left to acknowledge, nor to send again: a segment that comes while no program is there is the
        # kernel's, which resets.
        c.sendall(b"last")
        assert app.do("c.recv(100)") == b"last"
        wait_for(lambda: fcntl.ioctl(c, termios.TIOCOUTQ, bytes(4)) == bytes(4), what="what was sent last to be acknowledged")
    print(f"{net.a.name}: {'offloaded' if offloaded else 'by the kernel'}: a connection, a listener and a datagram socket")


def test_a_program_that_is_taken_off_is_put_back(net, sockets):
    talk(net, *sockets, offloaded=True)
    before = program(net.a)
    for _ in range(3):
        take_off(net.a)
        wait_for(lambda: program(net.a) == before, what="the steering program on the interface again")
        talk(net, *sockets, offloaded=True)


def test_where_another_program_comes_the_sockets_go_to_the_kernel_alive(net, sockets, tmp_path):
    passing = tmp_path / "passing.o"
    source = '__attribute__((section("xdp"), used)) int passing(void *ctx) { return 2; }'
    bpf_object(passing, source)
    talk(net, *sockets, offloaded=True)
    app, c, u = sockets
    c.sendall(b"not read yet")
    wait_for(lambda: app.do("await_ready(c)") & 1, what="data that waits")
    ip("-n", net.a.name, "-force", "link", "set", "dev", net.a.dev, "xdpgeneric", "obj", passing, "sec", "xdp")
    assert program(net.a)[1] == "passing"
    wait_for(lambda: "ESTAB" in net.a.run(["ss", "-Htn", "sport = :7002"]).text, what="the connection to be the kernel's")
    assert app.do("c.recv(100)") == b"not read yet"
    talk(net, *sockets, offloaded=False)
    assert program(net.a)[1] == "passing"
    assert re.search(r"XDP program 'passing' \(id \d+\) is attached", app.text), app.text


DISPATCHED = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("10.77.0.1", 7000))
s.settimeout(20)
print("ready")
while True:
    data, peer = s.recvfrom(100)
    s.sendto(data, peer)
"""


def test_a_program_behind_a_dispatcher_is_put_back(net):
    """With a bpffs libxdp puts a dispatcher in front: that is what is taken off."""
    net.neighbours()
    echo = net.a.popen(["sh", "-c", 'mount -t bpf bpf /sys/fs/bpf && exec "$0" -u -c "$1"', PYTHON, DISPATCHED], preload=True)
    echo.wait_text("^ready")
    peer = net.b.socket()
    peer.settimeout(0.2)

    def answers():
        peer.sendto(b"x", (net.a.ip4, 7000))
        with contextlib.suppress(TimeoutError):
            return peer.recv(10) == b"x"

    wait_for(answers, what="the first echo")
    before = wait_for(lambda: program(net.a), what="a program on the interface")
    # Where the kernel loads none (a container that may not), it is the program itself, as above.
    assert before[1] in ("xdp_dispatcher", "steer"), before
    take_off(net.a)
    wait_for(lambda: (program(net.a) or [0, 0])[1] == before[1], what="the same on the interface again")

    def offloaded():
        before = net.a.counters()["UdpInDatagrams"]
        return answers() and net.a.counters()["UdpInDatagrams"] == before

    wait_for(offloaded, what="an echo that the kernel does not see")
    print(f"{before[1]} {before[0]} was replaced by {program(net.a)[0]}")
