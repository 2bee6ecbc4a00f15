# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The library on both sides of the wire."""

import pytest

from differential import FAMILIES, App

families = pytest.mark.parametrize("family", FAMILIES)


@pytest.fixture
def pair(unet, request):
    """Two programs, each with a socket on port 7000; `a` sends to `b`."""
    family = request.getfixturevalue("family") if "family" in request.fixturenames else "4"
    unet.neighbours()  # or the kernel tells of them after some datagrams
    with App(unet.a, True, family) as a, App(unet.b, True, family) as b:
        for x in (a, b):
            x.do("s = udp(7000); s.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)")
            x.do("def data(n): return (bytes(range(251)) * (n // 251 + 1))[:n]")
        for x, y in ((a, b), (b, a)):
            x.do("s.sendto(b'resolve', (PEER, 7000))")
            assert y.do("s.recv(10)") == b"resolve"
        yield a, b


@families
def test_sizes_both_ways(pair, family):
    a, b = pair
    for n in (0, 1, 2, 17, 18, 19, 1000, 1452, 1453, 1472, 1473, 3000, 9000, 40000, 65487):
        for x, y in ((a, b), (b, a)):
            assert x.do(f"s.sendto(data({n}), (PEER, 7000))") == n
            assert y.do(f"(lambda r: (r[0] == data({n}), r[1][1]))(s.recvfrom(70000))") == (True, 7000), n


@families
def test_gso_bursts_both_ways(pair, family):
    a, b = pair
    for size, total in ((1, 5), (100, 250), (500, 30000), (1400, 60000)):
        for x, y in ((a, b), (b, a)):
            x.do(f"s.setsockopt(SOL_UDP, UDP_SEGMENT, {size}); s.sendto(data({total}), (PEER, 7000)); "
                 "s.setsockopt(SOL_UDP, UDP_SEGMENT, 0)")
            assert y.do(f"[s.recv(70000) for _ in range({-(-total // size)})] == "
                        f"[data({total})[i:i + {size}] for i in range(0, {total}, {size})]"), (size, total)


@families
def test_no_kernel_udp_on_either_side(pair, unet, family):
    a, b = pair
    with unet.a.bypassed(), unet.b.bypassed():
        for i in range(30):
            a.do(f"s.sendto(b'{i}', (PEER, 7000))")
            assert b.do("s.recv(10)") == b"%d" % i
            b.do("sendmmsg(s, [b'1', b'22', b'333'], (PEER, 7000))")
            assert a.do("[s.recv(10) for _ in range(3)]") == [b"1", b"22", b"333"]


@families
def test_a_stream_of_batches_keeps_order(pair, family):
    """sendmmsg() of 32 against recvmmsg(), windowed: nothing lost, doubled or out of order."""
    a, b = pair
    b.start("[(lambda m: (m, s.sendto(b'ack', (PEER, 7000)))[0])([struct.unpack('I', s.recv(2000)[:4])[0] "
            "for _ in range(32)]) for _ in range(200)] == [[i * 32 + k for k in range(32)] for i in range(200)]")
    a.do("[(sendmmsg(s, [struct.pack('I', i * 32 + k) + bytes((i * 7 + k * 43) % 1400) for k in range(32)], (PEER, 7000)), "
         "s.recv(10)) and None for i in range(200)]", timeout=20)
    assert b.answer(20) is True


@families
def test_refused_by_an_offloaded_host(pair, family):
    """The port's owner over there is the library, and it closes: the answer is still ICMP's."""
    a, b = pair
    a.do("c = udp(7005); c.connect((PEER, 7000)); c.send(b'hello')")
    assert b.do("s.recv(10)") == b"hello"
    b.do("s.close()")
    a.do("c.send(b'anyone?')")
    assert a.do("await_ready(c, select.POLLERR)") & 8
    assert a.ask("c.recv(10)") == ("OSError", "ECONNREFUSED")


def test_multicast_between_libraries(pair):
    a, b = pair
    for x in (a, b):
        x.do("m = udp(7100, '0.0.0.0', (socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)); "
             "m.setsockopt(0, 35, socket.inet_aton('239.7.7.7') + socket.inet_aton(ME)); "
             "m.setsockopt(0, 32, socket.inet_aton(ME))")
    for loop in (1, 0):
        for x, y in ((a, b), (b, a)):
            x.do(f"m.setsockopt(0, 34, {loop}); m.sendto(b'all', ('239.7.7.7', 7100))")
            assert y.do("m.recv(10)") == b"all"
            if loop:
                assert x.do("m.recv(10)") == b"all"
    for x in (a, b):
        assert x.ask("m.recv(10, socket.MSG_DONTWAIT)") == ("OSError", "EAGAIN")
