# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""GSO bursts: UDP datagrams of one size that cross the veth as one frame. No program may see that they did.

Receiving: a kernel peer's UDP_SEGMENT makes them. Sending: sendmmsg() of three datagrams and more.
"""

import contextlib
import json
import struct

import pytest

from differential import FAMILIES, PEER_PORT, App, differential
from netns import bpf_object, ip, wait_for

families = pytest.mark.parametrize("family", FAMILIES)
PATTERN = bytes(range(251)) * 300
TO = f"(PEER, {PEER_PORT})"


def burst(peer, to, size, total, base=0):
    """One frame with `total` bytes of the pattern in datagrams of `size`."""
    peer.setsockopt(17, 103, size)
    peer.sendto(PATTERN[base:base + total], to)
    peer.setsockopt(17, 103, 0)


@families
def test_every_form_of_receiving_takes_one_datagram_of_a_burst(unet, family):
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
            burst(peer, app.at(7000), size, total)
            peer.sendto(b"after the burst", app.at(7000))
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
        burst(peer, app.at(7000), 100, 350)
        for _ in range(4):
            app("rmsg(s)")
        app("s.setsockopt(SOL_UDP, UDP_GRO, 1)")
        burst(peer, app.at(7000), 100, 350)
        app("rmsg(s, 70000)")
        burst(peer, app.at(7000), 100, 350)
        app("await_ready(s) & select.POLLIN")
        app("rmsg(s, 50, 512, socket.MSG_PEEK)")
        app("struct.unpack('i', fcntl.ioctl(s, termios.FIONREAD, bytes(4)))[0]")
        app("rmsg(s, 50)")
        app("s.recv(1, socket.MSG_DONTWAIT)")
    differential(unet, family, steps)


@families
def test_bursts_keep_their_place_among_datagrams(unet, family):
    def steps(app, peer):
        app("s = udp(7000)")
        app("s.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)")
        n = 0
        for i in range(40):
            peer.sendto(b"single %d" % i, app.at(7000))
            burst(peer, app.at(7000), 10 + 36 * i, 5 * (10 + 36 * i) - i % 9, i)
            n += 6
        app(f"[s.recv(2000) for _ in range({n})]")
        app("s.recv(2000, socket.MSG_DONTWAIT)")
    differential(unet, family, steps)


@families
def test_no_kernel_udp_sees_a_burst(unet, family):
    with App(unet.a, True, family) as app:
        peer = app.peer_socket()
        app.do("s = udp(7000); ready(s)")
        with unet.a.bypassed():
            for i in range(20):
                burst(peer, app.at(7000), 300, 1000)
                assert app.do("[s.recv(2000) for _ in range(4)]") == [PATTERN[k:min(k + 300, 1000)]
                                                                      for k in range(0, 1000, 300)]
        peer.close()


def test_a_full_queue_keeps_the_front_of_a_burst(unet):
    """As the kernel, which queues one by one: what finds no room is counted as lost, datagram by datagram."""
    with App(unet.a, True) as app:
        peer = app.peer_socket()
        app.do("s = udp(7000)")
        app.do("s.setsockopt(socket.SOL_SOCKET, SO_RXQ_OVFL, 1)")
        app.do("s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)")
        # The parameter VMA_RX_BYTES_MIN is the limit's floor, from the first use on.
        app.do("ready(s)")
        for _ in range(30):
            burst(peer, app.at(7000), 1000, 50000)
        app.do("got = []\nwhile await_ready(s, timeout=0.2): got.append(s.recv(2000))")
        got = app.do("got")
        assert 50 < len(got) < 1500
        # 50 datagrams a burst, whole or cut at the end; the first burst is whole.
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
            burst(peer, app.at(7000), 1000, 60000)
            app.do("await_ready(s)")
            assert app.do("[timed(s.recv, 2000, socket.MSG_DONTWAIT)[0] for _ in range(60)].index('EAGAIN')") == \
                65536 // (1000 + 128)
        burst(peer, app.at(7000), 1, 64)
        assert app.do("[s.recv(10) for _ in range(64)]") == [PATTERN[i:i + 1] for i in range(64)]
        peer.close()


def test_both_members_of_a_group_get_every_datagram(unet):
    def steps(app, peer):
        for name in ("m", "n"):
            app(f"{name} = udp(7100, '0.0.0.0', (socket.SOL_SOCKET, socket.SO_REUSEADDR, 1))")
            app(f"{name}.setsockopt(0, 35, socket.inet_aton('239.7.7.9') + socket.inet_aton(ME))")
        peer.setsockopt(0, 32, bytes(map(int, unet.b.ip4.split("."))))
        burst(peer, ("239.7.7.9", 7100), 700, 9999)
        for name in ("m", "n"):
            app(f"[{name}.recv(2000) for _ in range(15)]")
            app(f"{name}.recv(1, socket.MSG_DONTWAIT)")
    differential(unet, "4", steps)


def batches():
    """Payload lengths of one sendmmsg() each, and what its author had in mind."""
    yield "equal", [64] * 32
    yield "the last one shorter", [64] * 5 + [1]
    yield "a shorter one in the middle", [64] * 4 + [63] + [64] * 4
    yield "an empty one last", [64] * 4 + [0]
    yield "an empty one in the middle", [64] * 4 + [0] + [64] * 4
    yield "empty ones", [0] * 5
    yield "growing", list(range(1, 40))
    yield "falling", list(range(40, 0, -1))
    yield "two", [64, 64]
    yield "three", [64, 64, 64]
    yield "more than a burst holds", [10] * 200
    yield "more bytes than a packet holds", [1400] * 100
    yield "as large as the wire takes", [1452] * 44
    yield "above the MTU", [1400] * 4 + [3000] + [1400] * 4
    yield "all above the MTU", [2000] * 4
    yield "one that cannot be in the middle", [100] * 5 + [65508] + [100] * 5
    yield "one that cannot be first", [65508] + [100] * 5
    yield "bytes", [1] * 64


@pytest.mark.parametrize("connected", [False, True], ids=["unconnected", "connected"])
@families
def test_sendmmsg_delivers_what_the_kernel_would(unet, family, connected):
    def steps(app, peer):
        app("s = udp(7000)")
        app.do(f"s.sendto(b'resolve', {TO})")
        assert peer.recv(10) == b"resolve"
        app.do("PATTERN = bytes(range(251)) * 300")
        if connected:
            app(f"s.connect({TO})")
        for what, lengths in batches():
            to = "" if connected else f", {TO}"
            sent = app(f"sendmmsg(s, [PATTERN[i:i + n] for i, n in enumerate({lengths})]{to})")
            n = sent[0] if isinstance(sent[0], int) else 0
            for i in range(n):
                data, source = peer.recvfrom(70000)
                assert data == PATTERN[i:i + lengths[i]], (what, i)
                assert source[:2] == app.at(7000)
            peer.setblocking(False)
            with pytest.raises(BlockingIOError):
                peer.recv(10)
            peer.settimeout(3)
    def csum_errors():
        return {k: v for k, v in unet.b.counters().items() if k in ("UdpInCsumErrors", "Udp6InCsumErrors")}
    before = csum_errors()
    differential(unet, family, steps)
    assert len(before) == 2 and csum_errors() == before


@families
def test_a_burst_to_several_peers_reaches_each(unet, family):
    def steps(app, peer):
        others = [app.peer_socket(7201 + i) for i in range(3)]
        app("s = udp(7000)")
        app.do("""
def spread(plan):
    msgs = (Mmsghdr * len(plan))(); keep = []
    for i, (port, parts) in enumerate(plan):
        raw = sockaddr((PEER, port)); iov = (Iovec * len(parts))()
        for k, p in enumerate(parts):
            data = ctypes.create_string_buffer(p, len(p) or 1); keep.append(data)
            iov[k] = Iovec(ctypes.addressof(data), len(p))
        keep += [raw, iov]
        msgs[i].hdr.name = ctypes.cast(raw, ctypes.c_void_p); msgs[i].hdr.namelen = len(raw)
        msgs[i].hdr.iov = iov; msgs[i].hdr.iovlen = len(parts)
    n = call('sendmmsg', s.fileno(), msgs, len(plan), 0)
    return n, [msgs[i].len for i in range(n)]
""")
        plans = [[(7201 + i // 8 % 3, [b"x%02d" % i]) for i in range(48)],
                 [(7201 + i % 3, [b"x%02d" % i]) for i in range(48)],
                 [(7201, [b"head", b"", b"%03d" % i, b"t" * (i % 2), b"u" * (1 - i % 2)]) for i in range(60)],
                 [(7201, [b"a"] * 9) for _ in range(40)]]
        for plan in plans:
            app(f"spread({plan!r})")
            for i, other in enumerate(others):
                for want in (b"".join(parts) for port, parts in plan if port == 7201 + i):
                    assert other.recv(2000) == want
        for other in others:
            other.close()
    differential(unet, family, steps)


@families
def test_a_burst_never_overtakes_a_datagram(unet, family):
    """Single datagrams by the XSK, bursts by AF_PACKET, four threads: each thread's own come in order."""
    with App(unet.a, True, family) as app:
        peer = app.peer_socket()
        peer.setsockopt(1, 33, 64 << 20)
        app.do("s = udp(7000)")
        app.do(f"s.sendto(b'resolve', {TO})")
        assert peer.recv(10) == b"resolve"
        app.do(f"""
def run(me):
    n = 0
    for i in range(150):
        for _ in range(i % 3):
            s.sendto(struct.pack('II', me, n), {TO}); n += 1
        k = 3 + i % 30
        m, _ = sendmmsg(s, [struct.pack('II', me, n + j) + bytes(i % 5 == j) for j in range(k)], {TO})
        assert m == k
        n += k
    sums.append(n)
sums = []
threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
""")
        app.start("([t.start() for t in threads], [t.join() for t in threads], sums)[2]")
        sums = app.answer(20)
        assert len(sums) == 4
        seen = [0] * 4
        for _ in range(sum(sums)):
            me, n = struct.unpack("II", peer.recv(100)[:8])
            assert n == seen[me]
            seen[me] += 1
        peer.close()


@families
def test_sendmmsg_passes_no_kernel_udp_and_is_counted(unet, family):
    with App(unet.a, True, family) as app:
        peer = app.peer_socket()
        app.do("s = udp(7000)")
        app.do(f"s.sendto(b'resolve', {TO})")
        assert peer.recv(10) == b"resolve"

        def by_ring():
            """Not before the library has heard of the neighbour that the kernel has found."""
            with contextlib.suppress(AssertionError), unet.a.bypassed():
                app.do(f"s.sendto(b'resolve', {TO})")
                return peer.recv(10) == b"resolve"

        wait_for(by_ring, 5, "a datagram by the ring")
        with unet.a.bypassed():
            assert app.do(f"sendmmsg(s, [bytes([i]) * 100 for i in range(40)], {TO})")[0] == 40
            assert [peer.recv(200) for _ in range(40)] == [bytes([i]) * 100 for i in range(40)]

        def counted():
            stats = json.loads(next(x for x in unet.a.stats(app, "--json", "-c", "1").splitlines() if x.startswith("{")))
            ring, = (r for r in stats["rings"] if r["ifname"] == unet.a.dev)
            sock, = (x for x in stats["sockets"] if x["local_port"] == 7000)
            return ring["tx_gso_frames"], ring["tx_packets"] >= 40, sock["tx"]["packets"] >= 40, sock["tx"]["os_packets"] < 40
        wait_for(lambda: counted() == (1, True, True, True), 3, "one frame, and each datagram, in vma_stats", 0.1)
        peer.close()


def test_a_device_that_cannot_cut_is_left_alone(make_net, tmp_path):
    """A native XDP program at the peer: the veth gives up segmentation. Single frames go instead, in order, all of them."""
    net = make_net()
    passing = tmp_path / "passing.o"
    source = '__attribute__((section("xdp"), used)) int passing(void *ctx) { return 2; }'
    bpf_object(passing, source)
    with App(net.a, True) as app:
        peer = app.peer_socket()
        app.do("s = udp(7000)")
        app.do(f"s.sendto(b'resolve', {TO})")
        assert peer.recv(10) == b"resolve"

        def burst(i):
            assert app.do(f"sendmmsg(s, [bytes([{i}, k]) * 50 for k in range(20)], {TO})")[0] == 20
            assert [peer.recv(200) for _ in range(20)] == [bytes([i, k]) * 50 for k in range(20)]

        burst(0)
        ip("-n", net.b.name, "link", "set", "dev", net.b.dev, "xdpdrv", "obj", passing, "sec", "xdp")
        for i in range(1, 9):
            burst(i)
        ip("-n", net.b.name, "link", "set", "dev", net.b.dev, "xdpdrv", "off")
        for i in range(9, 12):
            burst(i)
        peer.close()
