# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Segments that fill a chunk of the ring's memory: at a jumbo MTU, and on the loopback, whose MTU is 65,536."""

import pytest

from differential import App
from test_tcp_both import HELPERS, PORT, both

MSS = "s.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)"


@pytest.mark.multi_buffer
@pytest.mark.parametrize("family", ["4", "6"])
@pytest.mark.parametrize("server_ours", [False, True], ids=["to-kernel", "to-library"])
def test_every_size_about_a_whole_chunk(make_net, family, server_ours):
    """One frame each, with headers of 54 and 74 bytes and 12 more of options: none is held for lost."""
    net = make_net(mtu=4082)
    net.neighbours()
    with both(net, family, server_ours, True) as (server, client):
        server.start("s, _ = l.accept()")
        client.do("s = client(); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)")
        server.answer()
        mss = client.do(MSS)
        assert 4000 < mss <= 4042
        total = sum(range(3950, 4060))
        server.start(f"n = len(exactly(s, {total})); s.sendall(b'all')")
        client.do("for n in range(3950, 4060): s.sendall(bytes(n)); time.sleep(0.002)", 20)
        assert client.do("exactly(s, 3)", 20) == b"all"
        server.answer()
        # What is lost again and again is taken for an MTU that is too large.
        print(f"MSS {client.do(MSS)} after all sizes")
        assert client.do(MSS) == mss


@pytest.mark.multi_buffer
def test_a_bulk_transfer_on_the_loopback(net):
    """One process with both ends: what is offloaded there goes by the interface's own ring."""
    for name in ("route_localnet", "accept_local"):
        net.a.run(["sysctl", "-qw", f"net.ipv4.conf.all.{name}=1", f"net.ipv4.conf.lo.{name}=1"])
    with App(net.a, True, env={"VMA_OFFLOAD_LOOPBACK": 1}) as app:
        app.do(HELPERS)
        app.do("import threading; l = listener(); ready(l)")
        app.do(f"s = socket.create_connection(('127.0.0.1', {PORT})); c, _ = l.accept()")
        app.do("out = []; w = threading.Thread(target=lambda: (out.append(write_all(s, 4000000, 5)), s.shutdown(1))); w.start()")
        assert app.do("read_all(c) == (w.join(), out[0])[1]", 30) is True
        print(f"MSS {app.do(MSS)} after 4 MB")
        assert 4000 < app.do(MSS) <= 4042
