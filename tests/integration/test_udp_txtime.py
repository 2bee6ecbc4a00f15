# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""SO_TXTIME and SCM_TXTIME: no ring here sends at a time, so the kernel does, and vma_stats says why (docs/limits.md)."""

import pytest

from differential import FAMILIES, App, differential
from netns import wait_for
from test_why import reasons

SO_TXTIME = 61
MONOTONIC = 1
families = pytest.mark.parametrize("family", FAMILIES)
HELPERS = f"""
def txtime(clock, flags=0): s.setsockopt(socket.SOL_SOCKET, {SO_TXTIME}, struct.pack("=II", clock, flags))
def at(ns, data, to=None): return s.sendmsg([data], [(socket.SOL_SOCKET, {SO_TXTIME}, struct.pack("=Q", ns))], 0, *([to] if to else []))
def soon(ms): return time.clock_gettime_ns(time.CLOCK_MONOTONIC) + ms * 1000000
"""


@families
def test_every_call_is_answered_as_by_the_kernel(unet, family):
    def steps(app, peer):
        app.do(HELPERS)
        app.do("s = udp(7000); s.sendto(b'first', (PEER, 7001))")
        peer.recv(10)
        # Without the option the kernel takes no time.
        app("at(soon(0), b'none', (PEER, 7001))")
        app("txtime(99)")
        app(f"s.setsockopt(socket.SOL_SOCKET, {SO_TXTIME}, b'1234')")
        app(f"txtime({MONOTONIC}, 4)")
        app(f"txtime({MONOTONIC}); s.getsockopt(socket.SOL_SOCKET, {SO_TXTIME}, 8)")
        app("at(soon(0), b'now', (PEER, 7001))")
        app.note("peer got", peer.recv(10))
        app("s.sendto(b'plain', (PEER, 7001))")
        app.note("peer got", peer.recv(10))
    differential(unet, family, steps)


@families
@pytest.mark.parametrize("when", ["new", "in use", "connected"])
def test_a_socket_with_it_is_the_kernels_and_says_so(unet, family, when):
    name = "Udp6OutDatagrams" if family == "6" else "UdpOutDatagrams"
    unet.neighbours()
    with App(unet.a, True, family) as a, App(unet.b, False, family) as b:
        b.do("p = udp(7001); p.settimeout(5)")
        a.do(HELPERS)
        a.do("s = udp(7000)" + ("; s.connect((PEER, 7001))" if when == "connected" else ""))
        fd, to = a.do("s.fileno()"), "None" if when == "connected" else "(PEER, 7001)"
        if when != "new":
            def ours():
                before = unet.a.counters()[name]
                a.do("s.send(b'ours')" if when == "connected" else "s.sendto(b'ours', (PEER, 7001))")
                b.do("p.recv(10)")
                return unet.a.counters()[name] == before
            wait_for(ours, 10, lambda: reasons(a, fd))
        a.do(f"txtime({MONOTONIC})")
        before = unet.a.counters()
        for i in range(5):
            a.do(f"at(soon(1), b'{i}', {to})")
            assert b.do("p.recv(10)") == b"%d" % i
        a.do(f"s.send(b'plain')" if when == "connected" else "s.sendto(b'plain', (PEER, 7001))")
        assert b.do("p.recv(10)") == b"plain"
        assert unet.a.counters()[name] - before[name] == 6
        now, ever = reasons(a, fd)
        print(now, ever)
        assert now["socket"] == "option" and "option" in ever


def test_a_time_alone_is_refused_and_the_socket_stays(unet):
    """SCM_TXTIME without SO_TXTIME: EINVAL, and what follows goes by the ring as before."""
    unet.neighbours()
    with App(unet.a, True) as a, App(unet.b, False) as b:
        b.do("p = udp(7001); p.settimeout(5)")
        a.do(HELPERS)
        a.do("s = udp(7000); s.sendto(b'first', (PEER, 7001))")
        b.do("p.recv(10)")
        with unet.a.bypassed():
            assert a.ask("at(soon(1), b'refused', (PEER, 7001))") == ("OSError", "EINVAL")
            a.do("s.sendto(b'ours', (PEER, 7001))")
            assert b.do("p.recv(10)") == b"ours"
