# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""send*() and recv*() in every form, on unconnected and connected sockets: the answers are the kernel's."""

import json
import socket

import pytest

from differential import App, FAMILIES, PEER_PORT, differential
from netns import wait_for

families = pytest.mark.parametrize("family", FAMILIES)


@families
def test_every_form_of_receiving(unet, family):
    def steps(app, peer):
        app("s = udp(7000)")
        for call in ("s.recv(100)", "s.recvfrom(100)", "s.recvfrom(100)[1]", "s.recvmsg(100)", "rmsg(s)",
                     "os.read(s.fileno(), 100)", "os.readv(s.fileno(), [bytearray(2), bytearray(50)])",
                     "(lambda b: (s.recv_into(b), bytes(b)))(bytearray(8))",
                     "(lambda b: (s.recvfrom_into(b), bytes(b)))(bytearray(8))",
                     "(lambda a, b: (s.recvmsg_into([a, b]), bytes(a), bytes(b)))(bytearray(2), bytearray(8))",
                     "recvmmsg(s, 1)"):
            peer.sendto(b"hello", app.at(7000))
            app(call)
    differential(unet, family, steps)


@families
def test_an_address_is_cut_to_its_room(unet, family):
    """recvfrom(2): what lies behind the room that the caller has is not written to, and the length is the whole one's."""
    def steps(app, peer):
        app.do("import ctypes; libc = ctypes.CDLL(None); s = udp(7000)")
        for room in (0, 1, 2, 4, 8, 15, 16, 17, 27, 28, 40):
            peer.sendto(b"hello", app.at(7000))
            app.do(f"a = ctypes.create_string_buffer(b'\\xee' * 64, 64); n = ctypes.c_uint32({room}); d = ctypes.create_string_buffer(16)")
            app("(libc.recvfrom(s.fileno(), d, 16, 0, a, ctypes.byref(n)), n.value, a.raw.hex(), d.raw)")
    differential(unet, family, steps)


@families
def test_every_form_of_sending(unet, family):
    def steps(app, peer):
        app("s = udp(7000)")
        to = f"(PEER, {PEER_PORT})"
        forms = [f"s.sendto(b'abc', {to})", f"s.sendmsg([b'a', b'bc', b'', b'def'], [], 0, {to})",
                 f"sendmmsg(s, [b'one', b'', b'three'], {to})", f"s.sendto(b'', {to})",
                 f"s.sendto(b'x', socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL, {to})",
                 f"s.sendto(b'x', socket.MSG_CONFIRM, {to})"]
        for form in forms:
            sent = app(form)
            for _ in range(sent[0] if isinstance(sent, tuple) else 1):
                app.note("peer got", peer.recvfrom(100))
        app(f"s.connect({to})")
        for form in ("s.send(b'abc')", "s.sendall(b'abcd')", "os.write(s.fileno(), b'w')",
                     "os.write(s.fileno(), b'')", "os.writev(s.fileno(), [b'a', b'bc', b'd' * 7])",
                     "s.sendmsg([b'x', b'yz'])", f"s.sendto(b'again', {to})", "s.send(b'')"):
            app(form)
            app.note("peer got", peer.recvfrom(100))
        app("sendmmsg(s, [b'1', b'22', b'333'])")
        for _ in range(3):
            app.note("peer got", peer.recvfrom(100))
    differential(unet, family, steps)


@families
def test_odd_vectors_keep_their_bytes(unet, family):
    """The checksum of vectors that start at odd offsets is the peer's kernel's to judge."""
    def steps(app, peer):
        app("s = udp(7000)")
        for lengths in ([1, 1], [3, 5, 7], [0, 9, 0, 1], [33, 31, 65], [1, 64, 1, 64, 3], [1400, 71, 1]):
            app(f"s.sendmsg([bytes([65 + i]) * n for i, n in enumerate({lengths})], [], 0, (PEER, {PEER_PORT}))")
            app.note("peer got", peer.recv(2000))
        peer.sendto(bytes(range(256)) * 4, app.at(7000))
        app("(lambda v: (s.recvmsg_into(v)[0], [bytes(x) for x in v]))"
            "([bytearray(1), bytearray(63), bytearray(0), bytearray(700), bytearray(500)])")
    differential(unet, family, steps)


@families
def test_peek_trunc_and_dontwait(unet, family):
    def steps(app, peer):
        app("s = udp(7000)")
        app("s.recv(10, socket.MSG_DONTWAIT)")
        app("s.recvfrom(10, socket.MSG_DONTWAIT | socket.MSG_PEEK)")
        peer.sendto(b"0123456789", app.at(7000))
        app("await_ready(s) & select.POLLIN")
        for call in ("s.recv(4, socket.MSG_PEEK)", "s.recvfrom(4, socket.MSG_PEEK)", "s.recv(0, socket.MSG_PEEK)",
                     "s.recvmsg(4, 0, socket.MSG_PEEK)", "s.recvmsg(4, 0, socket.MSG_PEEK | socket.MSG_TRUNC)",
                     "len(s.recv(100, socket.MSG_PEEK | socket.MSG_TRUNC))",
                     "call('recv', s.fileno(), bytes(4), 4, socket.MSG_PEEK | socket.MSG_TRUNC)",
                     "call('recv', s.fileno(), None, 0, socket.MSG_PEEK | socket.MSG_TRUNC)",
                     "struct.unpack('i', fcntl.ioctl(s, termios.FIONREAD, bytes(4)))[0]",
                     "s.recvmsg(4)", "s.recv(10, socket.MSG_DONTWAIT)",
                     "struct.unpack('i', fcntl.ioctl(s, termios.FIONREAD, bytes(4)))[0]"):
            app(call)
        peer.sendto(b"abcdef", app.at(7000))
        app("await_ready(s) & select.POLLIN")
        app("call('recv', s.fileno(), bytes(4), 4, socket.MSG_TRUNC)")
        peer.sendto(b"abcdef", app.at(7000))
        app("await_ready(s) & select.POLLIN")
        app("s.recv(0)")
        app("s.recv(1, socket.MSG_DONTWAIT)")
        # Flags that mean nothing to UDP are ignored, MSG_OOB among them; MSG_CMSG_CLOEXEC is given back.
        for flags in ("socket.MSG_OOB", "socket.MSG_WAITALL", "socket.MSG_CMSG_CLOEXEC", "socket.MSG_NOSIGNAL"):
            peer.sendto(b"flags", app.at(7000))
            app("await_ready(s) & select.POLLIN")
            app(f"s.recvmsg(10, 0, {flags} | socket.MSG_DONTWAIT)")
        app("s.setblocking(False)")
        app("s.recv(1)")
        app("s.recvmsg(1)")
        app("os.read(s.fileno(), 1)")
        app("os.read(s.fileno(), 0)")
    answers = differential(unet, family, steps)
    assert answers["s.recv(1)"] == ("OSError", "EAGAIN")


@families
def test_recvmmsg(unet, family):
    def steps(app, peer):
        app("s = udp(7000)")
        for i in range(5):
            peer.sendto(b"x" * i, app.at(7000))
        app("recvmmsg(s, 3)")
        got = []
        while len(got) < 2:  # it takes what has come
            got += app.do("recvmmsg(s, 8, flags=MSG_WAITFORONE)")
        app.note("the others", got)
        app("recvmmsg(s, 2, flags=socket.MSG_DONTWAIT)")
        app("call('recvmmsg', s.fileno(), None, 0, 0, None)")
        for i in range(2):
            peer.sendto(b"abcdefgh", app.at(7000))
        app("recvmmsg(s, 2, size=3)")
        peer.sendto(b"abcdefgh", app.at(7000))
        app("recvmmsg(s, 1, size=3, flags=socket.MSG_TRUNC)")
        for i in range(2):
            peer.sendto(b"for ever", app.at(7000))
        app("recvmmsg(s, 2, timeout=2**63 - 1)")
        app("(lambda r: (r[0], r[1] > 0.09))(timed(lambda: (s.setsockopt(socket.SOL_SOCKET, "
            "socket.SO_RCVTIMEO, tv(0.1)), recvmmsg(s, 4))[1]))")
        peer.sendto(b"one", app.at(7000))
        app("recvmmsg(s, 4, timeout=5)")
        app("recvmmsg(s, 4, timeout=-1)")
        app("sendmmsg(s, [])")
    differential(unet, family, steps)


@pytest.mark.parametrize("rx_poll", ["-1", "0", "100000"])
@families
def test_receive_timeout(unet, family, rx_poll):
    def steps(app, peer):
        app("s = udp(7000)")
        app("s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, tv(0.15))")
        app("s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, 16)")
        app("(lambda r: (r[0], r[1] > 0.13))(timed(s.recv, 10))")
        app("s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, tv(60))")
        app("s.recv(10, socket.MSG_DONTWAIT)")
        peer.sendto(b"in time", app.at(7000))
        app("s.recv(10)")
        app("s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, tv(0))")
        app("s.settimeout(0.1)")
        app("timed(s.recv, 10)[1] > 0.09")
        app("s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack('ll', 0, 1000001))")
        app("s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack('ll', -1, 0))")
        app("s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, tv(1.5))")
        app("s.getsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, 16)")
    differential(unet, family, steps, {"VMA_RX_POLL": rx_poll})


@families
def test_connect_filters_and_reconnects(unet, family):
    def steps(app, peer):
        other = app.peer_socket(7002)
        app("s = udp(7000, ANY)")
        app("s.getpeername()")
        app("s.send(b'nobody')")
        app("s.sendto(b'x', (PEER, 0))")
        other.sendto(b"before", app.at(7000))
        app("await_ready(s) & select.POLLIN")
        app(f"s.connect((PEER, {PEER_PORT}))")
        app("s.getpeername(), s.getsockname()")
        other.sendto(b"filtered", app.at(7000))
        peer.sendto(b"passes", app.at(7000))
        app("s.recvfrom(20)")
        app("s.recvfrom(20)")
        app("s.recv(20, socket.MSG_DONTWAIT)")
        app("s.sendto(b'elsewhere', (PEER, 7002))")
        app.note("the other got", other.recvfrom(20))
        peer.sendto(b"unseen before the next connect", app.at(7000))
        app("s.connect((PEER, 7002))")
        app("s.recvfrom(50)")
        app("s.getpeername(), s.getsockname()")
        other.sendto(b"now", app.at(7000))
        app("s.recvfrom(20)")
        app("s.send(b'hi')")
        app.note("the other got", other.recvfrom(20))
        app("disconnect(s)")
        app("s.getsockname()")
        app("s.getpeername()")
        app("s.send(b'nobody')")
        peer.sendto(b"all again", app.at(7000))
        app("s.recvfrom(20)")
        app("call('connect', s.fileno(), None, 16)")
        app("call('connect', s.fileno(), struct.pack('=H14x', FAM), 1)")
        app("t = udp()")
        app("t.getsockname()")
        app(f"t.connect((PEER, {PEER_PORT}))")
        app("t.getsockname()[0], t.getsockname()[1] > 0")
        app("t.send(b'from an unbound one')")
        data, address = peer.recvfrom(50)
        app.note("peer got", data)
        peer.sendto(b"answer", address)
        app("t.recv(10)")
        app("disconnect(t)")
        app("t.getsockname()")
        other.close()
    differential(unet, family, steps)


@families
def test_binds(unet, family):
    def steps(app, peer):
        app("a = udp(7000, ANY)")
        app("udp(7000, ANY)")
        app("udp(7000, ME)")
        app("a.bind((ME, 7005))")
        peer.sendto(b"wild", app.at(7000))
        app("a.recvfrom(10)")
        app("a.close()")
        app("b = udp(7000, ME, (socket.SOL_SOCKET, socket.SO_REUSEADDR, 1))")
        app("c = udp(7000, ANY, (socket.SOL_SOCKET, socket.SO_REUSEADDR, 1))")
        peer.sendto(b"specific", app.at(7000))
        app("b.recvfrom(10)")
        app("c.recv(10, socket.MSG_DONTWAIT)")
        app("b.close()")
        peer.sendto(b"wild again", app.at(7000))
        app("c.recvfrom(20)")
        app("d = udp(7000, ANY, (socket.SOL_SOCKET, socket.SO_REUSEADDR, 1))")
        peer.sendto(b"who?", app.at(7000))
        app("bool(await_ready(c, timeout=0.2)), bool(await_ready(d, timeout=0.2))")
        app(f"c.connect((PEER, {PEER_PORT}))")
        peer.sendto(b"connected wins", app.at(7000))
        app("await_ready(c, timeout=1)")
        app("c.recvfrom(20)")
        app("socket.socket(FAM, socket.SOCK_DGRAM).bind((PEER, 7009))")
        app("e = udp(0, ANY)")
        app("e.getsockname()[1] > 0")
    differential(unet, family, steps)


@families
def test_reuseport_shares_by_flow(unet, family):
    """Which socket gets a flow is a hash of the kernel's own; that each flow stays with one, and none is lost, is ours."""
    def steps(app, peer):
        app("r = [udp(7000, ANY, (socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)) for _ in range(3)]")
        peers = [app.peer_socket(7100 + i) for i in range(24)]
        for p in peers:
            for i in range(3):
                p.sendto(b"%d" % i, app.at(7000))
        app.do("got = {}")
        app.do("""
end = time.monotonic() + 9
while sum(map(len, got.values())) < 72 and time.monotonic() < end:
    for s in select.select(r, [], [], 0.1)[0]:
        data, address = s.recvfrom(10)
        got.setdefault(address[1], []).append((r.index(s), data))
""")
        app("sorted(got)")
        app("all(len({i for i, _ in v}) == 1 and [d for _, d in v] == [b'0', b'1', b'2'] for v in got.values())")
        app("len({v[0][0] for v in got.values()}) > 1")
        for p in peers:
            p.close()
    differential(unet, family, steps)


@families
def test_shutdown(unet, family):
    def steps(app, peer):
        app("s = udp(7000)")
        app("s.shutdown(socket.SHUT_WR)")
        app(f"s.sendto(b'x', socket.MSG_NOSIGNAL, (PEER, {PEER_PORT}))")
        app("ready(s)")
        app("s.shutdown(socket.SHUT_RD)")
        app("s.recv(10)")
        app("ready(s)")
        app(f"t = udp(7003); t.connect((PEER, {PEER_PORT}))")
        peer.sendto(b"queued", app.at(7003))
        app("await_ready(t) & select.POLLIN")
        app("t.shutdown(socket.SHUT_RD)")
        app("t.recv(10)")
        app("t.recv(10)")
        app("t.send(b'still')")
        app.note("peer got", peer.recv(10))
        app("t.shutdown(7)")
    differential(unet, family, steps)


def test_dual_stack(unet):
    """One wildcard IPv6 socket receives both families; IPV6_V6ONLY and an IPv4 socket keep them apart."""
    def steps(app, peer):
        with unet.b.entered():
            six = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        six.bind((unet.b.ip6, 7001))
        six.settimeout(3)
        app("s = udp(7000, '::')")
        peer.sendto(b"four", (unet.a.ip4, 7000))
        app("s.recvfrom(10)")
        six.sendto(b"six", (unet.a.ip6, 7000))
        app("s.recvfrom(10)")
        app(f"s.sendto(b'to four', ('::ffff:{unet.b.ip4}', 7001))")
        app.note("peer got", peer.recvfrom(10))
        app(f"s.sendto(b'to six', ('{unet.b.ip6}', 7001))")
        app.note("peer got", six.recvfrom(10)[0])
        app(f"s.sendto(b'wrong', ('{unet.b.ip4}', 7001))")
        app("call('sendto', s.fileno(), b'short', 5, 0, sockaddr((PEER, 7001)), 20)")
        app("s.close()")
        app("o = udp(7000, '::', (socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1))")
        app("v = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); v.bind(('0.0.0.0', 7000))")
        peer.sendto(b"four", (unet.a.ip4, 7000))
        six.sendto(b"six", (unet.a.ip6, 7000))
        app("v.recvfrom(10)")
        app("o.recvfrom(10)")
        app(f"o.sendto(b'no', ('::ffff:{unet.b.ip4}', 7001))")
        app(f"o.connect(('::ffff:{unet.b.ip4}', 7001))")
        app(f"v.sendto(b'x', ('{unet.b.ip6}', 7001))")
        app("o.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)")
        six.close()
    differential(unet, "mapped", steps)


@families
def test_errors_of_the_arguments(unet, family):
    """What the kernel refuses is refused the same way. (Not tested: bad pointers to data, which fault in the caller.)"""
    def steps(app, peer):
        app("s = udp(7000)")
        to = f"(PEER, {PEER_PORT})"
        app(f"s.sendto(b'x' * 65508, {to})")
        app(f"s.sendto(b'x' * 70000, {to})")
        app(f"s.sendto(b'x', socket.MSG_OOB, {to})")
        app("s.sendto(b'x', (ANY, 0))")
        app("s.listen(1)")
        app("s.accept()")
        app(f"call('sendto', s.fileno(), b'x', 1, 0, sockaddr({to}), 3)")
        app("call('sendto', s.fileno(), b'x', 1, 0, struct.pack('=H30x', 77), 28)")
        app(f"s.sendmsg([b'x'] * 1025, [], 0, {to})")
        app("s.recvmsg_into([bytearray(1) for _ in range(1025)], 0, socket.MSG_DONTWAIT)")
        app("s.getsockopt(socket.SOL_SOCKET, 9999)")
        app("s.setsockopt(socket.SOL_SOCKET, 9999, 1)")
        app("n = s.fileno(); s.close()")
        app("call('recv', n, bytes(4), 4, 0)")
        app(f"call('sendto', n, b'x', 1, 0, sockaddr({to}), 16)")
        app("call('bind', n, sockaddr((ME, 7000)), 16)")
        app("call('close', n)")
    differential(unet, family, steps)


def test_offloaded_traffic_passes_no_kernel_udp(unet):
    """All forms above are worth nothing if the kernel did the work: here the counters of both kinds say who did it."""
    unet.neighbours()
    for family in FAMILIES:
        with App(unet.a, True, family) as app:
            peer = app.peer_socket()
            app.do("s = udp(7000)")
            peer.sendto(b"resolve", app.at(7000))
            app.do("s.recv(10)")
            app.do(f"s.sendto(b'resolve', (PEER, {PEER_PORT}))")
            peer.recv(10)
            with unet.a.bypassed():
                for i in range(50):
                    peer.sendto(b"%d" % i, app.at(7000))
                    assert app.do("s.recv(10)") == b"%d" % i
                    assert app.do(f"s.sendto(b'{i}', (PEER, {PEER_PORT}))") == len(str(i))
                    assert peer.recv(10) == b"%d" % i
            peer.close()


def test_the_interface_counts_what_passes_the_kernel_by(unet):
    """/sys/class/net/*/statistics has both ways of the datagrams that the kernel's UDP does not know."""
    def counted():
        text = unet.a.run(["sh", "-c", f"cd /sys/class/net/{unet.a.dev}/statistics; cat rx_packets tx_packets rx_bytes tx_bytes"]).text
        return list(map(int, text.split()))
    unet.neighbours()
    with App(unet.a, True, "4") as app:
        peer = app.peer_socket()
        app.do("s = udp(7000); ready(s)")
        app.do(f"s.sendto(b'first', (PEER, {PEER_PORT}))")
        peer.recv(10)
        before = counted()
        with unet.a.bypassed():
            for _ in range(50):
                peer.sendto(b"x" * 1000, app.at(7000))
                assert app.do("len(s.recv(2000))") == 1000
                app.do(f"s.sendto(bytes(1000), (PEER, {PEER_PORT}))")
                peer.recv(2000)
        more = [now - then for now, then in zip(counted(), before)]
        peer.close()
    print(f"packets and bytes in and out: {more}")
    assert min(more[:2]) >= 50 and min(more[2:]) >= 50 * 1000


def test_the_ring_has_carried_it(unet):
    """vma_stats counts every datagram of the exchange at the XDP ring, none at the kernel socket."""
    unet.neighbours()
    with App(unet.a, True, "4") as app:
        peer = app.peer_socket()
        app.do("s = udp(7000)")
        peer.sendto(b"resolve", app.at(7000))
        app.do("s.recv(10)")
        app.do(f"s.sendto(b'resolve', (PEER, {PEER_PORT}))")
        peer.recv(10)

        def ring():
            stats = json.loads(next(x for x in unet.a.stats(app, "--json", "-c", "1").splitlines() if x.startswith("{")))
            ring, = (r for r in stats["rings"] if r["ifname"] == "veth-a")
            sock, = (s for s in stats["sockets"] if s["local_port"] == 7000)
            return ring["rx_packets"], ring["tx_packets"], sock["rx"]["os_packets"], sock["tx"]["os_packets"]
        for i in range(50):
            peer.sendto(b"x", app.at(7000))
            app.do("s.recv(10)")
            app.do(f"s.sendto(b'y', (PEER, {PEER_PORT}))")
            peer.recv(10)
        # The very first of each way may go by the kernel, which resolves the neighbours.
        wait_for(lambda: ring()[0] >= 50 and ring()[1] >= 50 and max(ring()[2:]) <= 1, 3,
                 "50 in and 50 out at the ring, none of them at the kernel socket", 0.1)
        peer.close()


@families
def test_an_address_may_have_more_bytes_than_its_family(unet, family):
    """As of a struct sockaddr_storage; what stands behind it is not read."""
    unet.neighbours()
    with App(unet.a, True, family) as app:
        peer = app.peer_socket()
        to = f"(PEER, {PEER_PORT})"
        app.do(f"s = udp(7000); s.sendto(b'resolve', {to})")
        peer.recv(10)
        with unet.a.bypassed():
            for n in (29, 100, 128):
                app.do(f"a = bytes(sockaddr({to})); call('sendto', s.fileno(), b'{n}', len(b'{n}'), 0, a + os.urandom({n} - len(a)), {n})")
                assert peer.recv(10) == b"%d" % n
        assert app.ask("call('sendto', s.fileno(), b'x', 1, 0, a + bytes(129 - len(a)), 129)") == ("OSError", "EINVAL")
        peer.close()
