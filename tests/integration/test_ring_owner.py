# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Two programs on one interface, where the first cannot be joined (test_members.py) because it may want several rings: it has the queues,
the second the kernel's sockets, until the first has ended.
"""

import os
import pathlib
import socket

import pytest

from differential import PEER_PORT, App
from netns import PYTHON, wait_for

ALONE = {"VMA_RING_ALLOCATION_LOGIC_RX": 20}
IN_KERNEL = ("UdpInDatagrams", "UdpOutDatagrams")


def by_the_kernel(net, app, peer):
    """Does a datagram each way pass the kernel's UDP?"""
    before = net.a.counters()
    peer.sendto(b"to", app.at(7001))
    assert app.do("u.recv(10)") == b"to"
    app.do(f"u.sendto(b'from', (PEER, {PEER_PORT}))")
    assert peer.recv(10) == b"from"
    after = net.a.counters()
    return any(before[n] != after[n] for n in IN_KERNEL)


def has_queues(app):
    """They are opened when a socket is waited for."""
    app.do("s = udp(7000); s.setblocking(False)")
    assert app.ask("s.recv(10)") == ("OSError", "EAGAIN")


def connect_and_echo(net, app):
    with net.b.socket(kind=socket.SOCK_STREAM) as c:
        c.connect(app.at(7002))
        app.do("c, _ = l.accept()")
        c.sendall(b"one")
        assert app.do("c.recv(10)") == b"one"
        app.do("c.sendall(b'two')")
        assert c.recv(10) == b"two"
        app.do("c.close()")


@pytest.fixture
def first(net):
    app = App(net.a, True, env=ALONE)
    yield app
    app.close()


@pytest.mark.parametrize("how", ["ends", "is killed"])
@pytest.mark.parametrize("address", ["ME", "ANY"])
def test_what_the_kernel_had_comes_to_the_queues_when_their_owner(net, first, how, address):
    with App(net.a, True) as second:
        peer = second.peer_socket()
        has_queues(first)
        second.do(f"u = udp(7001, {address}); l = socket.create_server(({address}, 7002))")
        by_the_kernel(net, second, peer)
        assert by_the_kernel(net, second, peer), "the first should have the queues, or this tests nothing"
        connect_and_echo(net, second)
        if how == "ends":
            first.close()
        else:
            first.popen.kill()
        wait_for(lambda: not by_the_kernel(net, second, peer), 10, "datagrams past the kernel")
        with net.a.tcp_bypassed():
            connect_and_echo(net, second)
        peer.close()


def number_of_nobody():
    """A pid that nobody here has, nor gets soon: they are given out upwards."""
    last = int(pathlib.Path("/proc/sys/kernel/ns_last_pid").read_text())
    return next(pid for pid in range(last if last > 1000 else 32000, 300, -1) if not os.path.exists(f"/proc/{pid}"))


OWNER = """
import os, socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], 7000))
s.sendto(b'x', (sys.argv[2], 7000))
print('owner', os.getpid(), flush=True)
time.sleep(600)
"""


def test_an_owner_of_another_pid_namespace_is_waited_for_once(net):
    """Nothing tells its end: who tried again and again would hold the lock that rings are opened under."""
    pid = number_of_nobody()
    owner = net.a.popen(["unshare", "--pid", "--fork", "--kill-child", "sh", "-c", 'echo $1 >/proc/sys/kernel/ns_last_pid; shift; "$@"; exit', "sh",
                         pid - 1, PYTHON, "-c", OWNER, net.a.ip4, net.b.ip4], preload=True, env=ALONE)
    owner.wait_text(f"^owner {pid}$")
    with App(net.a, True, env={"VMA_TRACELEVEL": "DEBUG"}) as second:
        peer = second.peer_socket()
        second.do("u = udp(7001)")
        by_the_kernel(net, second, peer)
        assert by_the_kernel(net, second, peer), "the first should have the queues, or this tests nothing"
        wait_for(lambda: f"the end of process {pid} cannot be waited for: No such process" in second.text, 10, "the second look")
        assert second.text.count("has ended: sockets follow") == 1
        assert by_the_kernel(net, second, peer)
        peer.close()
