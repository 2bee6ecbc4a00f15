# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Datagrams of every size in both directions, segmentation offload in both directions, three MTUs."""

import socket
import struct

import pytest

from differential import FAMILIES, PEER_PORT, App, differential
from netns import wait_for

families = pytest.mark.parametrize("family", FAMILIES)
SIZES = [0, 1, 2, 15, 16, 17, 18, 22, 31, 32, 33, 47, 63, 64, 65, 511,
         1252, 1253, 1424, 1452, 1453, 1472, 1473, 2000, 4096, 8952, 8973, 9000, 16384, 65487, 65507]


def every_size(app, peer):
    app("s = udp(7000)")
    app("s.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)")
    app.do("def data(n): return (bytes(range(251)) * (n // 251 + 1))[:n]")
    for n in SIZES:
        payload = (bytes(range(251)) * (n // 251 + 1))[:n]
        app(f"s.sendto(data({n}), (PEER, {PEER_PORT}))")
        app.note(f"{n} bytes out", peer.recv(70000) == payload)
        try:
            peer.sendto(payload, app.at(7000))
            app(f"s.recv(70000) == data({n})")
        except OSError as e:
            app.note(f"{n} bytes in", e.errno)
    app(f"s.sendto(data(65508), (PEER, {PEER_PORT}))")


@families
def test_sizes(unet, family):
    differential(unet, family, every_size)


@pytest.mark.parametrize("mtu", [1280, 9000])
@families
def test_sizes_with_mtu(make_net, family, mtu):
    differential(make_net(mtu=mtu), family, every_size)


def test_a_datagram_above_the_parameter_s_mtu_is_the_kernel_s(net):
    """VMA_MTU=1000: in fragments only where the interface's own MTU of 1500 wants them."""
    net.neighbours()
    with App(net.a, True, env={"VMA_MTU": 1000}) as app, app.peer_socket() as peer, \
            net.b.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800)) as wire:
        wire.bind((net.b.dev, 0x0800))
        app.do("s = udp(7000)")

        def sent(n):
            """(datagrams by the kernel, lengths of the packets) of one with n bytes."""
            before = net.a.counters()["UdpOutDatagrams"]
            app.do(f"s.sendto(b'{n}' + bytes({n} - len('{n}')), (PEER, {PEER_PORT}))")
            assert len(peer.recv(70000)) == n
            by_kernel, lengths = net.a.counters()["UdpOutDatagrams"] - before, []
            while sum(lengths) - 20 * len(lengths) < n + 8:
                frame = wire.recv(70000)
                if frame[23] == socket.IPPROTO_UDP and frame[26:30] == socket.inet_aton(net.a.ip4):
                    lengths.append(len(frame) - 14)
            return by_kernel, lengths
        wait_for(lambda: sent(100) == (0, [128]), 10, "a way past the kernel")
        answers = [sent(n) for n in (972, 973, 1472, 1473)]
        print(answers)
        assert answers == [(0, [1000]), (1, [1001]), (1, [1500]), (1, [1500, 21])]


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def too_big(net, mtu):
    """A router on the way from net.a to net.b has no room for a datagram from port 7000 to PEER_PORT."""
    src, dst = socket.inet_aton(net.a.ip4), socket.inet_aton(net.b.ip4)
    quoted = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 1028, 1, 0x4000, 64, socket.IPPROTO_UDP, 0, src, dst) + struct.pack("!HHHH", 7000, PEER_PORT, 1008, 0)
    message = struct.pack("!BBHHH", 3, 4, 0, 0, mtu) + quoted
    with net.b.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as s:
        s.sendto(message[:2] + struct.pack("!H", checksum(message)) + message[4:], (net.a.ip4, 0))


@pytest.mark.parametrize("mtu", [600, 300], ids=["600", "locked"])
def test_small_datagrams_follow_what_a_router_says_of_the_path(make_net, mtu):
    """Below 552 the kernel lets routers cut what it sends into fragments: no DF."""
    def facts(net, preload):
        net.neighbours()
        with App(net.a, preload) as app, app.peer_socket() as peer, \
                net.b.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800)) as wire:
            wire.bind((net.b.dev, 0x0800))
            app.do("s = udp(7000)")

            def sent(n):
                """(datagrams by the kernel, (length, DF) of the packets) of one with n bytes."""
                before = net.a.counters()["UdpOutDatagrams"]
                app.do(f"s.sendto(b'{n}' + bytes({n} - len('{n}')), (PEER, {PEER_PORT}))")
                assert len(peer.recv(70000)) == n
                by_kernel, packets = net.a.counters()["UdpOutDatagrams"] - before, []
                while sum(length - 20 for length, _ in packets) < n + 8:
                    frame = wire.recv(70000)
                    if frame[23] == socket.IPPROTO_UDP and frame[26:30] == socket.inet_aton(net.a.ip4):
                        packets.append((len(frame) - 14, bool(frame[20] & 0x40)))
                return by_kernel, packets
            wait_for(lambda: sent(1000) == (int(not preload), [(1028, True)]), 10, "a datagram in one piece, ours past the kernel")
            too_big(net, mtu)
            wait_for(lambda: len(sent(1000)[1]) > 1, 10, "fragments")
            by_kernel, small = sent(500)
            assert by_kernel == int(not preload)
            return sent(1000)[1], small
    kernel, ours = facts(make_net(), False), facts(make_net(), True)
    print(ours)
    assert ours == kernel


@families
def test_path_mtu_discovery_modes(unet, family):
    """IP_MTU_DISCOVER's values decide between fragments and EMSGSIZE."""
    def steps(app, peer):
        for mode in (0, 1, 2, 3, 4, 5):
            app("s = udp(7000)")
            for level, option in ((0, 10), (41, 23)):
                app(f"s.setsockopt({level}, {option}, {mode})")
            for n in (1400, 1473, 3000):
                sent = app(f"s.sendto(b'x' * {n}, (PEER, {PEER_PORT}))")
                if sent == n:
                    app.note("peer got", len(peer.recv(70000)))
            app("s.close()")
    differential(unet, family, steps)


@families
def test_segmented_sending(unet, family):
    def steps(app, peer):
        app("s = udp(7000)")
        app("s.setsockopt(SOL_UDP, UDP_SEGMENT, 100)")
        app("s.getsockopt(SOL_UDP, UDP_SEGMENT)")

        def see(code, parts):
            if not isinstance(app(code), tuple):
                app.note("peer got", [peer.recv(70000) for _ in range(parts)])
        see(f"s.sendto(bytes(range(250)), (PEER, {PEER_PORT}))", 3)
        see(f"s.sendto(bytes(range(100)), (PEER, {PEER_PORT}))", 1)
        see(f"s.sendto(bytes(range(7)), (PEER, {PEER_PORT}))", 1)
        see(f"s.sendto(b'', (PEER, {PEER_PORT}))", 1)
        see(f"s.sendto(bytes(6400), (PEER, {PEER_PORT}))", 64)
        app(f"s.sendto(bytes(30000), (PEER, {PEER_PORT}))")  # more segments than the kernel takes
        app("s.setsockopt(SOL_UDP, UDP_SEGMENT, 1400)")
        see(f"s.sendto(bytes(range(256)) * 200, (PEER, {PEER_PORT}))", 37)
        see(f"s.sendto(bytes(range(256)) * 10, (PEER, {PEER_PORT}))", 2)
        app("s.setsockopt(SOL_UDP, UDP_SEGMENT, 3000)")
        app(f"s.sendto(bytes(6000), (PEER, {PEER_PORT}))")  # a segment over the MTU
        app("s.setsockopt(SOL_UDP, UDP_SEGMENT, 0)")
        see(f"s.sendto(bytes(250), (PEER, {PEER_PORT}))", 1)
        cm = "[(SOL_UDP, UDP_SEGMENT, struct.pack('H', %d))]"
        see(f"s.sendmsg([b'abc', b'defgh', b'i'], {cm % 4}, 0, (PEER, {PEER_PORT}))", 3)
        see(f"s.sendmsg([b'abc'], {cm % 0}, 0, (PEER, {PEER_PORT}))", 1)
        app("s.setsockopt(SOL_UDP, UDP_SEGMENT, 2)")
        see(f"s.sendmsg([b'abcd'], {cm % 0}, 0, (PEER, {PEER_PORT}))", 1)
        app(f"s.sendmsg([b'abcd'], [(SOL_UDP, UDP_SEGMENT, b'xxxx')], 0, (PEER, {PEER_PORT}))")
        app("s.setsockopt(SOL_UDP, UDP_SEGMENT, 65536)")
        app(f"s.connect((PEER, {PEER_PORT}))")
        app("s.setsockopt(SOL_UDP, UDP_SEGMENT, 1000)")
        see("s.send(bytes(range(250)) * 20)", 5)
        see("os.write(s.fileno(), bytes(range(250)) * 20)", 5)
    differential(unet, family, steps)


@families
def test_a_gso_burst_keeps_its_boundaries(unet, family):
    """A kernel peer's UDP_SEGMENT arrives as one frame of the veth: every datagram of it must come out on its own."""
    def steps(app, peer):
        app("s = udp(7000)")
        app("s.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)")
        for size, total in ((1, 2), (1, 9), (20, 50), (100, 250), (400, 1200), (700, 1400), (1000, 64000), (1452, 60000)):
            peer.setsockopt(17, 103, size)
            peer.sendto((bytes(range(256)) * 300)[:total], app.at(7000))
            n = -(-total // size)
            app(f"[s.recv(70000) for _ in range({n})], {size}, {total}")
            app("s.recv(10, socket.MSG_DONTWAIT)")
        peer.setsockopt(17, 103, 0)
        peer.sendto(b"alone", app.at(7000))
        app("s.recv(10)")
    differential(unet, family, steps)


@families
def test_receiving_gso_bursts_whole(unet, family):
    def steps(app, peer):
        app("s = udp(7000)")
        app("s.setsockopt(SOL_UDP, UDP_GRO, 1)")
        app("s.getsockopt(SOL_UDP, UDP_GRO)")
        peer.sendto(b"alone", app.at(7000))
        app("rmsg(s)")
        for size, total in ((100, 250), (1000, 3500), (1400, 60000)):
            peer.setsockopt(17, 103, size)
            peer.sendto((bytes(range(256)) * 300)[:total], app.at(7000))
            app("rmsg(s, 70000)")
            app("s.recv(10, socket.MSG_DONTWAIT)")
        app("s.setsockopt(SOL_UDP, UDP_GRO, 0)")
        peer.sendto(b"x" * 3000, app.at(7000))
        app("rmsg(s, 70000)")
        app("rmsg(s, 70000)")
        app("rmsg(s, 70000)")
    differential(unet, family, steps)


@families
def test_segmented_sending_passes_no_kernel_udp(unet, family):
    unet.neighbours()  # or the kernel tells of it after some datagrams
    with App(unet.a, True, family) as app:
        peer = app.peer_socket()
        app.do("s = udp(7000)")
        app.do(f"s.sendto(b'resolve', (PEER, {PEER_PORT}))")
        peer.recv(10)
        app.do("s.setsockopt(SOL_UDP, UDP_SEGMENT, 1000)")
        with unet.a.bypassed():
            for _ in range(20):
                app.do(f"s.sendto(bytes(range(250)) * 40, (PEER, {PEER_PORT}))")
                for i in range(10):
                    assert peer.recv(2000) == bytes(range(250)) * 4
        peer.close()
