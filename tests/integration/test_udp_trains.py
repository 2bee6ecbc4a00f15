# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Trains: datagrams of one size that cross the veth as one frame (UDP GSO). No program may see that they did.

A kernel peer's UDP_SEGMENT makes them.
"""

import struct

import pytest

from differential import FAMILIES, App, differential

families = pytest.mark.parametrize("family", FAMILIES)
PATTERN = bytes(range(251)) * 300


def train(peer, to, size, total, base=0):
    """One frame with `total` bytes of the pattern in datagrams of `size`."""
    peer.setsockopt(17, 103, size)
    peer.sendto(PATTERN[base:base + total], to)
    peer.setsockopt(17, 103, 0)


@families
def test_every_form_of_receiving_takes_one_datagram_of_a_train(unet, family):
    def steps(app, peer):
        app("s = udp(7000)")
        app("s.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)")
        calls = ("s.recv(2000)", "s.recvfrom(2000)", "s.recv(3)", "s.recvmsg(3)", "s.recv(3, socket.MSG_PEEK)",
                 "s.recv(2000, socket.MSG_PEEK)", "s.recvmsg(3, 0, socket.MSG_PEEK | socket.MSG_TRUNC)",
                 "call('recv', s.fileno(), bytes(4), 4, socket.MSG_TRUNC)", "s.recv(0)", "rmsg(s)",
                 "struct.unpack('i', fcntl.ioctl(s, termios.FIONREAD, bytes(4)))[0]", "ready(s)",
                 "os.read(s.fileno(), 2000)", "os.readv(s.fileno(), [bytearray(2), bytearray(700)])",
                 "(lambda a, b, c: (s.recvmsg_into([a, b, c])[0], bytes(a), bytes(b), bytes(c)))"
                 "(bytearray(1), bytearray(700), bytearray(1000))",
                 "recvmmsg(s, 3)", "recvmmsg(s, 2, 5)", "recvmmsg(s, 4, 2000, MSG_WAITFORONE)")
        for size, total in ((3, 60), (64, 64 * 30 + 1), (1000, 30000), (1452, 43000)):
            train(peer, app.at(7000), size, total)
            peer.sendto(b"after the train", app.at(7000))
            app("await_ready(s) & select.POLLIN")
            for call in calls:
                app(call)
            # To the last one, and past it.
            app("[s.recv(2000, socket.MSG_DONTWAIT) for _ in range(30 - 13)][-3:]", timeout=5)
            app("ready(s)")
            app("struct.unpack('i', fcntl.ioctl(s, termios.FIONREAD, bytes(4)))[0]")
            app("(lambda r: [r(s) for _ in range(20)])(lambda s: timed(s.recv, 2000, socket.MSG_DONTWAIT)[0])")
    differential(unet, family, steps)


@families
def test_ancillary_data_comes_with_each_datagram(unet, family):
    def steps(app, peer):
        app("s = udp(7000)")
        for option in ("socket.SOL_SOCKET, SO_TIMESTAMPNS", "0, IP_PKTINFO", "0, IP_RECVTTL", "0, IP_RECVTOS",
                       "socket.SOL_SOCKET, SO_RXQ_OVFL", "41, 49", "41, 51", "41, 66"):
            app(f"s.setsockopt({option}, 1)")
        train(peer, app.at(7000), 100, 350)
        for _ in range(4):
            app("rmsg(s)")
        app("s.setsockopt(SOL_UDP, UDP_GRO, 1)")
        train(peer, app.at(7000), 100, 350)
        app("rmsg(s, 70000)")
        train(peer, app.at(7000), 100, 350)
        app("await_ready(s) & select.POLLIN")
        app("rmsg(s, 50, 512, socket.MSG_PEEK)")
        app("struct.unpack('i', fcntl.ioctl(s, termios.FIONREAD, bytes(4)))[0]")
        app("rmsg(s, 50)")
        app("s.recv(1, socket.MSG_DONTWAIT)")
    differential(unet, family, steps)


@families
def test_trains_keep_their_place_among_datagrams(unet, family):
    def steps(app, peer):
        app("s = udp(7000)")
        app("s.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)")
        n = 0
        for i in range(40):
            peer.sendto(b"single %d" % i, app.at(7000))
            train(peer, app.at(7000), 10 + 36 * i, 5 * (10 + 36 * i) - i % 9, i)
            n += 6
        app(f"[s.recv(2000) for _ in range({n})]")
        app("s.recv(2000, socket.MSG_DONTWAIT)")
    differential(unet, family, steps)


@families
def test_no_kernel_udp_sees_a_train(unet, family):
    with App(unet.a, True, family) as app:
        peer = app.peer_socket()
        app.do("s = udp(7000)")
        with unet.a.bypassed():
            for i in range(20):
                train(peer, app.at(7000), 300, 1000)
                assert app.do("[s.recv(2000) for _ in range(4)]") == [PATTERN[k:min(k + 300, 1000)]
                                                                      for k in range(0, 1000, 300)]
        peer.close()


def test_a_full_queue_keeps_the_front_of_a_train(unet):
    """As the kernel, which queues one by one: what finds no room is counted as lost, datagram by datagram."""
    with App(unet.a, True) as app:
        peer = app.peer_socket()
        app.do("s = udp(7000)")
        app.do("s.setsockopt(socket.SOL_SOCKET, SO_RXQ_OVFL, 1)")
        app.do("s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)")
        # The parameter VMA_RX_BYTES_MIN is the limit's floor.
        for _ in range(30):
            train(peer, app.at(7000), 1000, 50000)
        app.do("await_ready(s)")
        got = app.do("(lambda r: [r() for _ in range(2000)])(lambda: timed(s.recv, 2000, socket.MSG_DONTWAIT)[0])")
        got = [g for g in got if g != "EAGAIN"]
        assert 50 < len(got) < 1500
        # 50 datagrams a train, whole or cut at the end; the first train is whole.
        at = 0
        for i, data in enumerate(got):
            if at == 50 or (i > 50 and data == PATTERN[:1000]):
                at = 0
            assert data == PATTERN[at * 1000:at * 1000 + 1000], i
            at += 1
        peer.sendto(b"last", app.at(7000))
        data, ancillary, _, _ = app.do("s.recvmsg(100, 100)")
        assert (data, struct.unpack("I", ancillary[0][2])[0]) == (b"last", 1500 - len(got))
        # What was received is not charged any more: an empty queue has room for the same number each time.
        for _ in range(25):
            train(peer, app.at(7000), 1000, 60000)
            app.do("await_ready(s)")
            assert app.do("[timed(s.recv, 2000, socket.MSG_DONTWAIT)[0] for _ in range(60)].index('EAGAIN')") == \
                65536 // (1000 + 128)
        train(peer, app.at(7000), 1, 64)
        assert app.do("[s.recv(10) for _ in range(64)]") == [PATTERN[i:i + 1] for i in range(64)]
        peer.close()


def test_both_members_of_a_group_get_every_datagram(unet):
    def steps(app, peer):
        for name in ("m", "n"):
            app(f"{name} = udp(7100, '0.0.0.0', (socket.SOL_SOCKET, socket.SO_REUSEADDR, 1))")
            app(f"{name}.setsockopt(0, 35, socket.inet_aton('239.7.7.9') + socket.inet_aton(ME))")
        peer.setsockopt(0, 32, bytes(map(int, unet.b.ip4.split("."))))
        train(peer, ("239.7.7.9", 7100), 700, 9999)
        for name in ("m", "n"):
            app(f"[{name}.recv(2000) for _ in range(15)]")
            app(f"{name}.recv(1, socket.MSG_DONTWAIT)")
    differential(unet, "4", steps)
