# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Several rings on one interface: VMA_RING_ALLOCATION_LOGIC_*, VMA_RING_MIGRATION_RATIO_*, VMA_RING_LIMIT_PER_INTERFACE."""

import json
import os
import socket
import subprocess

import pytest

from differential import App
from netns import PATIENCE, wait_for


# In the program: threads that do what they are told.
THREADS = """
import queue, threading, os, socket, time
class Thread:
    def __init__(self):
        self.todo, self.done = queue.Queue(), queue.Queue()
        threading.Thread(target=self.run, daemon=True).start()
    def run(self):
        while True:
            f = self.todo.get()
            try: self.done.put(f())
            except OSError as e: self.done.put(e)
    def start(self, f): self.todo.put(f)
    def end(self):
        r = self.done.get(timeout=10)
        if isinstance(r, OSError): raise r
        return r
    def __call__(self, f):
        self.start(f)
        return self.end()
def listener(port, *options):
    s = socket.socket(FAM)
    for o in options: s.setsockopt(*o)
    s.bind((ME, port)); s.listen(100); s.settimeout(5)
    return s
threads, socks = [], []
"""


class Rings(App):
    def __init__(self, host, **env):
        both = env.pop("logic", None)
        if both is not None:
            env["VMA_RING_ALLOCATION_LOGIC_RX"] = env["VMA_RING_ALLOCATION_LOGIC_TX"] = both
        super().__init__(host, True, env=env)
        self.do(THREADS)

    def stats(self):
        """What vma_stats shows, when the figures have been brought there (each 100 ms)."""
        out = subprocess.run([self.host.net.library.vma_stats, "-k", self.host.net.tmp, "-p", str(self.pid), "-c", "1", "--json"],
                             capture_output=True, text=True, timeout=20 * PATIENCE, check=True).stdout
        return json.loads(out.splitlines()[-1])

    def rings(self):
        return self.stats()["rings"]

    def used(self):
        """Rings that have received something."""
        return sum(r["rx_packets"] > 0 for r in self.rings())

    def echoes(self, port, socks, times=3):
        """Each of the program's sockets sends to a socket of the kernel's and gets an answer in its own thread."""
        peer = self.peer_socket(port)
        for i in range(times):
            for n in range(socks):
                self.do(f"threads[{n}].start(lambda: (socks[{n}].sendto(b'{n}.{i}', (PEER, {port})), socks[{n}].recv(100))[1])")
                data, who = peer.recvfrom(100)
                peer.sendto(data + b"!", who)
                assert self.do(f"threads[{n}].end()") == b"%d.%d!" % (n, i)
        peer.close()


def make_threads(app, n, port=7300):
    """n threads, each with a socket that it has made, bound and is about to use."""
    for i in range(n):
        app.do("threads.append(Thread())")
        app.do(f"socks.append(threads[{i}](lambda: udp({port + i})))")
        app.do(f"socks[{i}].settimeout(5)")


CPUS = len(os.sched_getaffinity(0))


@pytest.mark.parametrize("logic,rings", [(0, 1), (1, 1), (10, 4), (20, 4)])
def test_udp_has_the_rings_of_its_logic(unet, logic, rings):
    with Rings(unet.a, logic=logic) as app:
        make_threads(app, 4)
        app.echoes(7299, 4)
        assert len(app.rings()) == rings
        wait_for(lambda: app.used() == rings, 5, "each ring has received its own socket's packets")


def test_threads_that_begin_at_once_have_rings_of_their_own(unet):
    """A ring that one of them has just opened has no sockets yet, and is nobody else's all the same."""
    with Rings(unet.a, logic=20) as app:
        app.do("threads += [Thread() for _ in range(6)]; socks += [None] * 6")
        app.do("def begin(n): socks[n] = udp(7300 + n); socks[n].settimeout(5)")
        app.do("for n, t in enumerate(threads): t.start(lambda n=n: begin(n))")
        app.do("for t in threads: t.end()")
        app.echoes(7299, 6)
        assert len(app.rings()) == 6
        wait_for(lambda: app.used() == 6, 5, "each ring has received its own socket's packets")


def test_a_ring_for_each_address(unet):
    unet.a.run("ip addr add 10.99.0.7/32 dev " + unet.a.dev)
    with Rings(unet.a, logic=1) as app:
        app.do("socks += [udp(7300), udp(7301), udp(7300, '10.99.0.7')]; [ready(s) for s in socks]")
        assert len(app.rings()) == 2


@pytest.mark.skipif(CPUS < 2, reason="one processor")
@pytest.mark.parametrize("logic", [30, 31])
def test_a_ring_for_each_processor(unet, logic):
    cpus = sorted(os.sched_getaffinity(0))[:2]
    with Rings(unet.a, logic=logic) as app:
        if logic == 30:
            app.do(f"pin = [lambda i=i: os.sched_setaffinity(0, [{cpus}[i % 2]]) for i in range(4)]")
        for i in range(4):
            app.do("threads.append(Thread())")
            if logic == 30:
                app.do(f"threads[{i}](pin[{i}])")
            app.do(f"socks.append(threads[{i}](lambda: udp(7300 + {i}))); socks[{i}].settimeout(5)")
        app.echoes(7299, 4)
        assert len(app.rings()) == min(2, CPUS) if logic == 30 else 2 <= len(app.rings()) <= 4
        if logic == 31:
            where = [app.do(f"sorted(threads[{i}](lambda: os.sched_getaffinity(0)))") for i in range(4)]
            assert all(len(w) == 1 for w in where), where
            assert len({w[0] for w in where}) == min(4, CPUS), where


@pytest.mark.parametrize("logic", [10, 20])
def test_beyond_the_limit_rings_are_shared(unet, logic):
    with Rings(unet.a, logic=logic, VMA_RING_LIMIT_PER_INTERFACE=2) as app:
        make_threads(app, 5)
        app.echoes(7299, 5)
        assert len(app.rings()) == 2
        wait_for(lambda: app.used() == 2, 5, "the least used one is shared")
        assert "no further ring" not in app.text


def test_what_the_device_has_no_more_of_is_shared_with_one_warning(unet):
    with Rings(unet.a, logic=10) as app:
        make_threads(app, 11)
        app.echoes(7299, 11, times=1)
        assert len(app.rings()) == 8
        assert app.text.count("no further ring") == 1, app.text


def test_more_rings_than_vma_stats_shows_are_told_of(unet):
    with Rings(unet.a, logic=10, VMA_RING_LIMIT_PER_INTERFACE=20, VMA_TRACELEVEL="INFO") as app:
        make_threads(app, 18)
        app.echoes(7299, 18, times=1)
        assert len(app.rings()) == 16
        assert app.text.count("vma_stats shows 16 rings") == 1 and "no further ring" not in app.text, app.text


def test_a_ring_whose_thread_has_gone_is_the_next_ones(unet):
    with Rings(unet.a, logic=20) as app:
        for i in range(12):
            app.do("threads[:] = [Thread()]")
            app.do("socks[:] = [threads[0](lambda: udp(7300))]; socks[0].settimeout(5)")
            app.echoes(7299, 1, times=1)
            app.do("socks[0].close()")
        assert len(app.rings()) <= 2


def of_socket(app, port):
    return next(s for s in app.stats()["sockets"] if s.get("local_port") == port)


@pytest.mark.parametrize("ratio,moves", [(10, 1), (-1, 0)])
def test_a_socket_follows_the_thread_that_reads_it_and_loses_nothing(unet, ratio, moves):
    env = {"VMA_RING_MIGRATION_RATIO_RX": ratio, "VMA_RING_MIGRATION_RATIO_TX": ratio}
    with Rings(unet.a, logic=20, **env) as app:
        peer = app.peer_socket(7299)
        app.do("socks.append(udp(7300)); socks[0].settimeout(5); socks[0].sendto(b'0', (PEER, 7299))")
        peer.recvfrom(10)
        app.do("threads.append(Thread())")
        for turn in range(20):
            for i in range(10):
                peer.sendto(b"%d" % (turn * 10 + i), (unet.a.ip4, 7300))
            got = app.do("threads[0](lambda: [int(socks[0].recv(10)) for _ in range(10)])")
            assert sorted(got) == list(range(turn * 10, turn * 10 + 10)), "none is lost, none comes twice"
            app.do("threads[0](lambda: [socks[0].sendto(b'x', (PEER, 7299)) for _ in range(10)]) and None")
            for _ in range(10):
                assert peer.recvfrom(10)[0] == b"x"
        wait_for(lambda: (of_socket(app, 7300)["rx_ring_migrations"], of_socket(app, 7300)["tx_ring_migrations"]) == (moves, moves), 5)
        assert len(app.rings()) == 1 + moves
        peer.close()


def test_who_calls_now_and_then_moves_nothing(unet):
    env = {"VMA_RING_MIGRATION_RATIO_RX": 10, "VMA_RING_MIGRATION_RATIO_TX": 10}
    with Rings(unet.a, logic=20, **env) as app:
        app.do("threads += [Thread(), Thread()]")
        app.do("socks.append(threads[0](lambda: udp(7300))); socks[0].settimeout(5)")
        app.echoes(7299, 1, times=30)
        peer = app.peer_socket(7298)
        for _ in range(4):
            peer.sendto(b"other", (unet.a.ip4, 7300))
            assert app.do("threads[1](lambda: socks[0].recv(10))") == b"other"
            app.echoes(7299, 1, times=30)
        assert of_socket(app, 7300)["rx_ring_migrations"] == 0
        peer.close()


@pytest.mark.parametrize("logic", [0, 10, 20])
def test_tcp_has_the_rings_of_its_logic(unet, logic):
    """Threads connect to a listener of their own process's other side, each over its ring."""
    with Rings(unet.a, logic=logic) as app, Rings(unet.b, logic=logic) as server:
        port = 7340 + logic
        server.do(f"socks.append(listener({port})); threads.append(Thread())")
        app.do(f"def dial(): return socket.create_connection((PEER, {port}), 5)")
        for i in range(3):
            app.do(f"threads.append(Thread()); socks.append(None); threads[{i}].start(dial)")
            server.do("socks.append(threads[0](lambda: socks[0].accept()[0]))")
            app.do(f"socks[{i}] = threads[{i}].end()")
        for i in range(3):
            app.do(f"threads[{i}](lambda: socks[{i}].sendall(b'{i}' * 100000)) and None")
            server.do(f"threads[0].start(lambda: socks[{i} + 1].recv(100000, socket.MSG_WAITALL))")
            assert server.do("len(threads[0].end())") == 100000
        assert len(app.rings()) == {0: 1, 10: 3, 20: 3}[logic]
        assert len(server.rings()) == 1, "accepted connections live with their listener"


def test_listeners_that_share_a_port_have_their_own_rings(unet):
    """SO_REUSEPORT in two threads: the steering divides the connections; one that joins later takes none of them away."""
    reuse = "(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)"
    peers, accepted = [], 0

    def connect(n):
        with unet.b.entered():
            for _ in range(n):
                peers.append(socket.create_connection((unet.a.ip4, 7311), 5))

    def take():
        nonlocal accepted
        for t in range(app.do("len(threads)")):
            app.do(f"threads[{t}](lambda: drain(socks[{t}])) and None")
        return app.do("len(got)")

    with Rings(unet.a, logic=20) as app:
        app.do("got = []\ndef drain(l):\n    l.setblocking(False)\n    try:\n        while True: got.append((l, l.accept()[0]))\n"
               "    except BlockingIOError: pass\n")
        for i in range(3):
            app.do("threads.append(Thread())")
            app.do(f"socks.append(threads[{i}](lambda: listener(7311, {reuse})))")
            app.do(f"threads[{i}](lambda: drain(socks[{i}])) and None")  # it attaches when it is waited on
            if i:
                connect(40)
                wait_for(lambda: take() == 40 * i, 5)
                assert app.do("len(set(id(l) for l, c in got))") == i + 1
        assert len(app.rings()) == 3
        wait_for(lambda: app.used() == 3, 5, "each has its part")
        for i, peer in enumerate(peers):
            peer.sendall(b"%d" % i)
        app.do("for l, c in got: c.settimeout(5)")
        assert sorted(app.do("[int(c.recv(10)) for l, c in got]")) == list(range(80))
        for peer in peers:
            peer.close()


def test_a_group_joined_in_two_threads_reaches_both(unet):
    with Rings(unet.a, logic=20) as app:
        app.do("def member():\n    s = udp(7320, '0.0.0.0', (socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)); s.settimeout(5)\n"
               "    s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton('239.9.9.9') + socket.inet_aton(ME))\n"
               "    return s")
        for i in range(2):
            app.do(f"threads.append(Thread()); socks.append(threads[{i}](member))")
        app.do("[threads[i](lambda: ready(socks[i])) for i in range(2)]")
        assert len(app.rings()) == 2
        with unet.b.entered():
            peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            peer.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(unet.b.ip4))
        for i in range(5):
            peer.sendto(b"%d" % i, ("239.9.9.9", 7320))
            for n in range(2):
                assert app.do(f"threads[{n}](lambda: socks[{n}].recv(10))") == b"%d" % i
        app.do("socks[0].close()")
        peer.sendto(b"last", ("239.9.9.9", 7320))
        assert app.do("threads[1](lambda: socks[1].recv(10))") == b"last"
        peer.close()


def test_sockets_that_share_a_udp_port_are_served_as_by_the_kernel(unet):
    """SO_REUSEADDR: the one that was bound last has the packets, whichever thread's it is."""
    with Rings(unet.a, logic=20) as app:
        peer = app.peer_socket(7299)
        for i in range(2):
            app.do("threads.append(Thread())")
            app.do(f"socks.append(threads[{i}](lambda: udp(7330, None, (socket.SOL_SOCKET, socket.SO_REUSEADDR, 1))))")
            app.do(f"socks[{i}].settimeout(5)")
        peer.sendto(b"x", (unet.a.ip4, 7330))
        assert app.do("threads[1](lambda: socks[1].recv(10))") == b"x"
        app.do("socks[1].close()")
        peer.sendto(b"y", (unet.a.ip4, 7330))
        assert app.do("threads[0](lambda: socks[0].recv(10))") == b"y"
        peer.close()


def test_a_child_leaves_its_parents_rings_alone(unet):
    with Rings(unet.a, logic=20) as app:
        make_threads(app, 3)
        app.echoes(7299, 3)
        status = app.do("""
pid = os.fork()
if not pid:
    try:
        s = udp(7390); s.sendto(b'child', (PEER, 7299)); s.close()
        os._exit(0)
    except BaseException: os._exit(1)
status = os.waitpid(pid, 0)[1]
""")
        assert app.do("status") == 0, status
        app.echoes(7299, 3)
        assert len(app.rings()) == 3
