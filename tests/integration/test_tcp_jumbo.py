# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Segments that fill a chunk of the ring's memory: at a jumbo MTU, and on the loopback, whose MTU is 65,536. And merged ones of any length."""

import contextlib
import socket
import struct
import threading

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


RTM_SETLINK, NLM_F_REQUEST, NLM_F_ACK, IFLA_GSO_IPV4_MAX_SIZE = 19, 1, 4, 63


def big_tcp(host, size):
    """BIG TCP of IPv4 on the host's interface; ip(8) of Debian 12 has no word for it."""
    with host.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as s, host.entered():
        body = struct.pack("BxHiII", 0, 0, socket.if_nametoindex(host.dev), 0, 0) + struct.pack("HHI", 8, IFLA_GSO_IPV4_MAX_SIZE, size)
        s.send(struct.pack("IHHII", 16 + len(body), RTM_SETLINK, NLM_F_REQUEST | NLM_F_ACK, 1, 0) + body)
        error = struct.unpack_from("i", s.recv(4096), 16)[0]
    assert error == 0, f"RTM_SETLINK: {error}"


@pytest.mark.multi_buffer
def test_merged_segments_above_64_kib(net):
    """Where the interface has BIG TCP they come as one frame, whose IPv4 header cannot say how long it is."""
    net.neighbours()
    big_tcp(net.b, 150000)
    lengths, done = [0], threading.Event()

    def look(sniffer):
        while not done.is_set():
            with contextlib.suppress(TimeoutError):
                lengths.append(len(sniffer.recv(300000)))
    with net.b.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3), timeout=0.1) as sniffer, both(net, "4", True, False) as (server, client):
        sniffer.bind((net.b.dev, 3))
        looks = threading.Thread(target=look, args=(sniffer,))
        looks.start()
        try:
            with net.a.tcp_bypassed():
                server.start("s, _ = l.accept(); got = read_all(s, 1 << 20)")
                client.do("s = client(); s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)")
                sent = client.do("write_all(s, 60 << 20, 7, 4 << 20)", 60)
                client.do("s.close()")
                server.answer(60)
        finally:
            done.set()
            looks.join()
        assert server.do("got") == sent
    print(f"the longest of {len(lengths)} frames has {max(lengths)} bytes")
    assert max(lengths) > 14 + 65535
