# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""bind() of a datagram socket opens nothing: the first wait, receive or send does, and nothing that came before it is lost."""

import socket

import pytest

from differential import App, differential
from test_tcp_programs import QUIET, attached

RINGS = """
AF_XDP, SO_DOMAIN = 44, 39
def rings():
    n = 0
    for fd in os.listdir('/proc/self/fd'):
        v, size = ctypes.c_int(), ctypes.c_int(4)
        n += not LIBC.getsockopt(int(fd), 1, SO_DOMAIN, ctypes.byref(v), ctypes.byref(size)) and v.value == AF_XDP
    return n
"""

USES = {
    "recv": "s.recv(10)",
    "recv that finds nothing": "no(lambda: s.recv(10, socket.MSG_DONTWAIT))",
    "recvmsg": "s.recvmsg(10)[0]",
    "recvmmsg": "recvmmsg(s, 1)[0][0]",
    "read": "os.read(s.fileno(), 10)",
    "poll": "ready(s)",
    "select": "select.select([s], [], [], 0)",
    "epoll": "(lambda e: e.register(s, 1))(select.epoll())",
    "send": "s.sendto(b'x', (PEER, 7001))",
    "connect and send": "(s.connect((PEER, 7001)), s.send(b'x'))",
}
NO_USES = {
    "bind": "None",
    "options": "s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 100000), s.setblocking(False)",
    "connect": "s.connect((PEER, 7001))",
    "join": "s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton('239.1.2.3') + socket.inet_aton(ME))",
    "fork": "os.waitpid(os.fork() or os._exit(0), 0)",
    "close": "s.close()",
}


@pytest.mark.parametrize("use", USES)
def test_the_first_use_opens_the_ring(unet, use):
    with App(unet.a, True) as app:
        peer = app.peer_socket()
        app.do(RINGS + "def no(f):\n try: f()\n except OSError: pass")
        app.do("s = udp(7000); s.settimeout(5)")
        assert app.do("rings()") == 0
        if use not in ("recv that finds nothing", "poll", "select", "epoll", "send", "connect and send"):
            peer.sendto(b"early", app.at(7000))
        app.do("first = " + USES[use])
        assert app.do("rings()") >= 1, "no ring after " + use
        peer.sendto(b"then", app.at(7000))
        assert app.do("s.recv(10)") == b"then"
        peer.close()


@pytest.mark.parametrize("what", NO_USES)
def test_what_opens_no_ring(unet, what):
    with App(unet.a, True) as app:
        app.do(RINGS)
        app.do("s = udp(7000)")
        app.do(f"x = {NO_USES[what]}")
        assert app.do("rings()") == 0


@pytest.mark.parametrize("family", ["4", "6", "mapped"])
def test_what_came_before_the_first_use(unet, family):
    """Any number of datagrams, in their order, then those of the ring."""
    def steps(app, peer):
        app("s = udp(7000); s.settimeout(5)")
        for i in range(50):
            peer.sendto(b"%d" % i, app.at(7000))
        app("[s.recv(10) for _ in range(20)]")
        for i in range(50, 100):
            peer.sendto(b"%d" % i, app.at(7000))
        app("[s.recv(10) for _ in range(80)]")
        app(f"s.sendto(b'back', (PEER, 7001))")
        app.note("peer got", peer.recv(10))
    differential(unet, family, steps)


def test_privileges_go_between_bind_and_the_first_use(unet):
    """As a name server: bound as root, served as somebody else."""
    with App(unet.a, True) as app:
        peer = app.peer_socket()
        app.do(RINGS)
        app.do("s = udp(53); s.settimeout(5); os.setgid(65534); os.setuid(65534)")
        with unet.a.bypassed():
            for i in range(20):
                peer.sendto(b"%d" % i, app.at(53))
                assert app.do("s.recv(10)") == b"%d" % i
        peer.close()


PREFORK = """
import os, select, socket, sys
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.bind((sys.argv[1], 7100))
l = socket.socket()
l.bind((sys.argv[1], 7100))
l.listen(9)
pid = os.fork()
if pid:
    print("ready", flush=True)
    os.waitpid(pid, 0)
    sys.exit(0)
e = select.epoll()
e.register(u, 1)
e.register(l, 1)
while True:
    for fd, _ in e.poll():
        if fd == u.fileno():
            data, address = u.recvfrom(100)
            u.sendto(b"udp " + data, address)
        else:
            s, _ = l.accept()
            data = s.recv(100)
            s.sendall(b"tcp " + data)
            s.close()
            if data == b"end": sys.exit(0)
"""


def test_a_master_that_binds_leaves_the_interface_to_its_worker(net):
    """As nginx with a UDP listener: the worker's TCP passes the kernel by."""
    server = net.a.python(PREFORK, True, [net.a.ip4], env=QUIET)
    server.wait_text("^ready$")

    def tcp(data):
        with net.b.socket(kind=socket.SOCK_STREAM, timeout=10) as s:
            s.connect((net.a.ip4, 7100))
            s.sendall(data)
            return s.recv(100)

    with net.b.socket(timeout=10) as u:
        attached(net, 7100, True)
        with net.a.tcp_bypassed():
            for i in range(5):
                u.sendto(b"%d" % i, (net.a.ip4, 7100))
                assert u.recv(10) == b"udp %d" % i
                assert tcp(b"%d" % i) == b"tcp %d" % i
    assert tcp(b"end") == b"tcp end"
    assert server.wait() == 0, server.text
