# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
What a wait costs when nothing comes: by itself it spins for a moment at most (lib/wait/spin.h); asked to, all the time. And what
the internal thread does in a process that has nothing for it.
"""

import os
import pathlib
import re
import time

import pytest

from differential import App
from test_tcp_both import connected

pytestmark = pytest.mark.alone

WAITS = {
    "recv": "s.recv(10)",
    "accept": "l.accept()",
    "udp": "u.recv(10)",
    "poll": "polled.poll(50)",
    "select": "select.select([s], [], [], 0.05)",
    "epoll": "ep.poll(0.05)",
}
PREPARE = """
tv50 = struct.pack('ll', 0, 50000)
polled = select.poll(); polled.register(s, select.POLLIN)
ep = select.epoll(); ep.register(s, select.EPOLLIN)
u = udp(7009)
for x in (s, l, u): x.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, tv50)
def cost(wait, turns):
    used, began = time.thread_time(), time.monotonic()
    for _ in range(turns):
        try: wait()
        except BlockingIOError: pass
    return time.thread_time() - used, time.monotonic() - began
"""


@pytest.mark.parametrize("wait", WAITS)
def test_a_wait_for_nothing_sleeps(net, wait):
    """Ten waits of 50 ms: 10 ms of the processor each at most, though a sanitizer and a slow machine take part of that. The best of three."""
    with connected(net, "4", True, False) as (server, client):
        server.do(PREPARE)
        server.do(f"cost(lambda: {WAITS[wait]}, 2)", 20)
        for left in (2, 1, 0):
            used, passed = server.do(f"cost(lambda: {WAITS[wait]}, 10)", 30)
            print(f"{wait}: {used * 1000:.1f} ms of the processor in {passed:.2f} s")
            assert passed >= 0.5
            if used < 0.1:
                break
            assert left, "it uses the processor while it waits"
        client.do("s.sendall(b'still there')")
        assert server.do("exactly(s, 11)") == b"still there"


def test_asked_to_spin_it_spins(net):
    """The proof that the test above can fail."""
    with connected(net, "4", True, False, {"VMA_RX_POLL": 100000000, "VMA_SELECT_POLL": -1}) as (server, client):
        server.do(PREPARE)
        for wait in WAITS:
            used, passed = server.do(f"cost(lambda: {WAITS[wait]}, 10)", 30)
            print(f"{wait}: {used * 1000:.1f} ms of the processor in {passed:.2f} s")
            assert used > 0.02, wait


def wakeups(pid):
    """How often the internal thread has slept."""
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text() == "vma-worker\n":
            return int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", (task / "status").read_text(), re.M).group(1))
    raise AssertionError("there is no internal thread: " + " ".join(os.listdir(f"/proc/{pid}/task")))


def test_without_a_ring_the_internal_thread_rests(net):
    """A program that has only made a socket: three timers of a second each (300 wake-ups before)."""
    with App(net.a, True) as app:
        app.do("idle = socket.socket()")
        began, before = time.monotonic(), wakeups(app.pid)
        time.sleep(3)
        seen = wakeups(app.pid) - before
        passed = time.monotonic() - began
        print(f"{seen} wake-ups in {passed:.2f} s")
        assert seen <= 5 * passed


ECHOES = """
import resource
def switches(): return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
before = switches()
for _ in range(200):
    data, peer = s.recvfrom(10)
    s.sendto(data, peer)
seen = switches() - before
"""


def test_a_thread_that_spins_is_not_put_to_sleep_for_each_datagram(net):
    net.neighbours()
    with App(net.a, True, env={"VMA_RX_POLL": -1}) as app, net.b.socket() as peer:
        app.do("s = udp(7000); await_ready(s, timeout=0.01)")
        app.start(ECHOES)
        for _ in range(200):
            peer.sendto(b"x", (net.a.ip4, 7000))
            assert peer.recv(10) == b"x"
        app.answer()
        print(f"{app.do('seen')} times for 200 datagrams")
        assert app.do("seen") < 100
