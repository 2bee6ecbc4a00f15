# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
More threads wait than there are processors, each for a connection of its own: the kernel gets the connections
(lib/handover/crowd.c), and neither side notices. Where one of the conditions is missing they stay.
"""

import collections
import json
import os
import random
import re
import socket
import threading

import pytest

from differential import App
from netns import PATIENCE, wait_for

CROWD = 3 * os.cpu_count() + 6
FEW = 2
REST = os.cpu_count() + 2  # those that are left are no crowd any more
TURNS = 160  # more than twice what one connection needs
LONGEST = 60000

# Each thread echoes what comes, by its own way of waiting.
PROGRAM = """
import select, threading
SO_ZEROCOPY = 60
def by_recv(c): return c.recv(65536)
def by_poll(c):
    p = select.poll(); p.register(c, select.POLLIN)
    p.poll(60000)
    return c.recv(65536, socket.MSG_DONTWAIT)
def by_select(c):
    select.select([c], [], [])
    return c.recv(65536, socket.MSG_DONTWAIT)
def by_recvmsg(c):
    c.settimeout(None)
    return c.recvmsg(65536)[0]
def by_recv_zerocopy(c):
    c.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1)
    return c.recv(65536)
pair = socket.socketpair()
def by_poll_of_two(c):
    p = select.poll(); p.register(c, select.POLLIN); p.register(pair[0], select.POLLIN)
    p.poll(60000)
    return c.recv(65536, socket.MSG_DONTWAIT)
beside = set()
def by_recv_beside(c):
    if c not in beside:
        beside.add(c)
        threading.Thread(target=c.recv, args=(1 << 20, socket.MSG_PEEK | socket.MSG_WAITALL), daemon=True).start()
    return c.recv(65536)
def serve(c, wait):
    while data := wait(c): c.sendall(data)
    c.close()
def start(wait, n):
    global listener, conns, threads
    listener = socket.create_server((ME, 7000), backlog=n)
    await_ready(listener, timeout=0.01)
    conns, threads = [], []
    def accept():
        for _ in range(n):
            conns.append(listener.accept()[0])
            threads.append(threading.Thread(target=serve, args=(conns[-1], wait), daemon=True))
            threads[-1].start()
    acceptor = threading.Thread(target=accept, daemon=True)
    acceptor.start()
    return acceptor
"""


class Clients:
    """Kernel sockets, one for each thread of the program; the messages come back as they were."""

    def __init__(self, net, n):
        self.random = random.Random(7)
        self.sockets = [net.b.socket(kind=socket.SOCK_STREAM) for _ in range(n)]
        for s in self.sockets:
            s.settimeout(20 * PATIENCE)
            s.connect((net.a.ip4, 7000))

    def ask(self, s, size):
        data = self.random.randbytes(size)
        sender = threading.Thread(target=s.sendall, args=(data,), daemon=True)
        sender.start() if size > 1000 else s.sendall(data)
        back = b""
        while len(back) < size:
            got = s.recv(size - len(back))
            assert got, f"the end, after {len(back)} bytes of {size}"
            back += got
        assert back == data

    def turns(self, n, size=lambda r: 1 + r.randrange(100)):
        """Each is asked in each turn, in another order: the others sleep meanwhile."""
        for _ in range(n):
            for s in self.random.sample(self.sockets, len(self.sockets)):
                self.ask(s, size(self.random))


def served_by(app):
    """How many connections are offloaded, and why others are not: {"": 3, "many-threads": 5}."""
    said = app.host.stats(app.popen, "--json", "-c", "1")
    fds = set(app.do("[c.fileno() for c in conns]"))
    return collections.Counter(s["why"]["socket"]["reason"] for s in json.loads(said.splitlines()[-1])["sockets"] if s["fd"] in fds)


@pytest.mark.parametrize("wait", ["by_recv", "by_poll", "by_select", "by_recvmsg"])
def test_the_connections_of_a_crowd_go_to_the_kernel(net, wait):
    """And what they carry arrives, before, meanwhile and afterwards, large and small."""
    net.neighbours()
    with App(net.a, True, env={"VMA_TRACELEVEL": "INFO"}) as app:
        app.do(PROGRAM)
        app.do(f"acceptor = start({wait}, {CROWD})")
        clients = Clients(net, CROWD)
        app.do("acceptor.join()")
        assert served_by(app) == {"": CROWD}

        def gone():
            clients.turns(4)
            return served_by(app)["many-threads"] >= CROWD - REST
        wait_for(gone, 60, lambda: served_by(app))
        clients.turns(2, lambda r: r.randrange(1000, LONGEST))
        went = served_by(app)
        assert went["many-threads"] + went[""] == CROWD, went
        for s in clients.sockets:
            s.shutdown(socket.SHUT_WR)
        assert all(s.recv(1) == b"" for s in clients.sockets)
        app.do("[t.join() for t in threads]")
        app.close()
        # One more may go meanwhile: it waited for the end only then.
        said = int(re.search(r"through the kernel: (\d+) sockets: more threads wait than there are processors\n", app.text)[1])
        assert went["many-threads"] <= said <= CROWD, app.text


STAY = {
    "it is not wanted": (CROWD, "by_recv", {"VMA_CROWD_TO_KERNEL": "0"}),
    "waits that the user has set": (CROWD, "by_recv", {"VMA_RX_POLL": "0"}),
    "selects that the user has set": (CROWD, "by_poll", {"VMA_SELECT_POLL": "0"}),
    "few threads": (FEW, "by_recv", {}),
    "XDP in the driver": (CROWD, "by_recv", {"VMA_XDP_MODE": "native"}),
    "threads that wait for two": (CROWD, "by_poll_of_two", {}),
    "sends without a copy": (CROWD, "by_recv_zerocopy", {}),
    "another thread's recv() of it is half done": (CROWD, "by_recv_beside", {}),
}


@pytest.mark.parametrize("why", STAY)
def test_others_stay(net, why):
    n, wait, env = STAY[why]
    net.neighbours()
    with App(net.a, True, env=env) as app:
        app.do(PROGRAM)
        app.do(f"acceptor = start({wait}, {n})")
        clients = Clients(net, n)
        app.do("acceptor.join()")
        clients.turns(TURNS)
        assert served_by(app) == {"": n}
