# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""SO_MAX_PACING_RATE of datagram sockets: the kernel's business, whose value is the truth."""

import struct

import pytest

from differential import App, differential

RATE = "socket.SOL_SOCKET, 47"


def steps(app, peer):
    app("s = udp(7001)")
    for value in ("12345", "struct.pack('Q', 10 ** 10)", "struct.pack('q', -1)", "-1"):
        app(f"s.setsockopt({RATE}, {value})")
        app(f"s.getsockopt({RATE}, 8)")
        app(f"s.getsockopt({RATE}, 4)")
    app(f"s.setsockopt({RATE}, b'12')")


def test_as_the_kernel_has_it(unet):
    differential(unet, "4", steps)


def test_without_a_limit_a_socket_stays_and_with_one_it_is_the_kernels(unet):
    unet.neighbours()  # or the kernel tells of it after some datagrams
    with App(unet.a, True) as a, App(unet.b, False) as b:
        b.do("s = udp(7000); s.settimeout(5)")
        a.do(f"s = udp(7001); s.setsockopt({RATE}, struct.pack('q', -1)); s.sendto(b'resolve', (PEER, 7000))")
        assert b.do("s.recv(10)") == b"resolve"
        with unet.a.bypassed():
            for _ in range(20):
                a.do("s.sendto(b'ours', (PEER, 7000))")
        assert b.do("[s.recv(10) for _ in range(20)]") == [b"ours"] * 20
        a.do(f"s.setsockopt({RATE}, 10 ** 8)")
        with pytest.raises(AssertionError), unet.a.bypassed():
            for _ in range(20):
                a.do("s.sendto(b'theirs', (PEER, 7000))")
        assert b.do("[s.recv(10) for _ in range(20)]") == [b"theirs"] * 20


@pytest.mark.parametrize("kind", ["udp(7001)", "socket.socket(FAM)"])
def test_the_form_of_the_extra_api(unet, kind):
    with App(unet.a, True) as a:
        a.do(f"s = {kind}")
        limit = struct.pack("IIHxx", 8000, 1500, 100)
        a.do(f"s.setsockopt({RATE}, {limit!r})")
        assert a.do(f"struct.unpack('Q', s.getsockopt({RATE}, 8))[0]") == 1000000
        assert a.do(f"struct.unpack('IIHxx', s.getsockopt({RATE}, 12))") == (8000, 0, 0)
        a.do(f"s.setsockopt({RATE}, bytes(12))")
        assert a.do(f"s.getsockopt({RATE}, 8)") == b"\xff" * 8
        assert a.do(f"s.getsockopt({RATE}, 12)") == bytes(12)
