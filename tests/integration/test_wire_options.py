# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
What a program sets, read back from the frames that its peer's interface sees, by struct alone: each option of the IP, UDP and
TCP headers that a socket or a sysctl can set, at its place by the RFCs (791, 8200, 768, 9293, 7323, 2018, 3168). All that was
not set must be as it was; sums are added up here.
"""

import contextlib
import re
import select
import socket
import struct
import time

import pytest

from differential import PATIENCE, App

PORT, PEER_PORT = 7400, 7401
families = pytest.mark.parametrize("family", ["4", "6"])


def total(data):
    data += b"\0" * (len(data) % 2)
    n = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while n > 0xffff:
        n = (n & 0xffff) + (n >> 16)
    return n


def parse_options(data):
    """{kind: value} of TCP's options. Values that are loaded as words stand aligned; only NOPs fill."""
    seen, at = {}, 0
    while at < len(data):
        kind = data[at]
        if kind == 1:
            at += 1
            continue
        size = data[at + 1]
        assert size >= 2 and at + size <= len(data), (at, data)
        assert kind not in seen, data
        value = data[at + 2:at + size]
        assert kind not in (5, 8) or at % 4 == 2, (at, data)
        seen[kind] = {2: lambda v: struct.unpack("!H", v)[0], 3: lambda v: v[0], 4: lambda v: v == b"",
                      5: lambda v: struct.unpack(f"!{len(v) // 4}I", v), 8: lambda v: struct.unpack("!II", v)}[kind](value)
        at += size
    return seen


class Seen:
    """A frame, field by field; whatever can be checked without knowing more is."""

    def __init__(self, frame):
        kind = struct.unpack("!H", frame[12:14])[0]
        ip = frame[14:]
        if kind == 0x800:
            first, self.tos, length, self.id, flags, self.ttl, self.proto, _, src, dst = struct.unpack("!BBHHHBBH4s4s", ip[:20])
            assert first == 0x45 and total(ip[:20]) == 0xffff
            self.df, self.label, head = flags == 0x4000, 0, 20
            assert flags in (0, 0x4000)
        else:
            first, length, self.proto, self.ttl, src, dst = struct.unpack("!IHBB16s16s", ip[:40])
            assert first >> 28 == 6
            self.tos, self.label, self.id, self.df, head = first >> 20 & 0xff, first & 0xfffff, 0, True, 40
            length += 40
        l4 = ip[head:length]
        self.length = len(l4)
        assert len(ip) >= length
        pseudo = src + dst + struct.pack("!HH", self.proto, len(l4))
        self.sum = total(pseudo + l4)
        # A datagram that finds no neighbour yet is the kernel's, which leaves the sum to the device.
        field = l4[6:8] if self.proto == 17 else l4[16:18]
        self.unfinished = field == struct.pack("!H", total(pseudo))
        self.sport, self.dport = struct.unpack("!HH", l4[:4])
        if self.proto == 17:
            udp_length, check = struct.unpack("!HH", l4[4:8])
            assert udp_length == len(l4) and check
            self.data = l4[8:]
        else:
            self.seq, self.ack, off, self.flags, self.window = struct.unpack("!IIBBH", l4[4:16])
            assert off & 0xf == 0
            self.options, self.data = parse_options(l4[20:(off >> 4) * 4]), l4[(off >> 4) * 4:]


class Capture:
    """What arrives at net.b's interface."""

    def __init__(self, net, proto, family):
        with net.b.entered():
            self.raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
            self.raw.bind((net.b.dev, 3))
        self.proto, self.kind = proto, b"\x86\xdd" if family == "6" else b"\x08\x00"

    def next(self, test=lambda seen: True):
        """The next frame of the program that test() takes."""
        deadline = time.monotonic() + 10 * PATIENCE
        while time.monotonic() < deadline:
            if not select.select([self.raw], [], [], 0.1)[0]:
                continue
            frame, at = self.raw.recvfrom(65536)
            if at[2] == socket.PACKET_OUTGOING or frame[12:14] != self.kind or self.proto not in (frame[23], frame[20]):
                continue
            if frame[23 if self.kind == b"\x08\x00" else 20] != self.proto:
                continue
            seen = Seen(frame)
            if test(seen):
                assert seen.sum == 0xffff or seen.unfinished, vars(seen)
                return seen
        pytest.fail("no such frame")


@contextlib.contextmanager
def capturing(net, proto, family):
    c = Capture(net, proto, family)
    yield c
    c.raw.close()


# As the host says: by itself the library sends none.
TIMESTAMPS = {"VMA_TCP_TIMESTAMP_OPTION": 2}
IP, IP6 = "socket.IPPROTO_IP", "socket.IPPROTO_IPV6"
UDP_OPTIONS = {
    "4": [((IP, "socket.IP_TTL", v), {"ttl": v}) for v in (1, 7, 128, 255)] +
         [((IP, "socket.IP_TOS", v), {"tos": v}) for v in (0x10, 0xb8, 0xfc, 0)] +
         [((IP, 10, v), {"df": v == 2}) for v in (0, 2)],  # IP_MTU_DISCOVER
    "6": [((IP6, "socket.IPV6_UNICAST_HOPS", v), {"ttl": v}) for v in (1, 7, 128, 255)] +
         [((IP6, "socket.IPV6_TCLASS", v), {"tos": v}) for v in (0x10, 0xb8, 0xfc, 0)],
}


@families
def test_a_datagrams_options(unet, family):
    unet.neighbours()  # or the first ones are the kernel's, which chooses a flow label
    with App(unet.a, True, family) as app, capturing(unet, 17, family) as wire:
        peer = app.peer_socket(PEER_PORT)
        app.do(f"s = udp({PORT}); s.sendto(b'first', (PEER, {PEER_PORT}))")
        assert peer.recv(100) == b"first"
        expected = {"ttl": 64, "tos": 0, "df": True, "label": 0, "sport": PORT, "dport": PEER_PORT}
        for number, ((level, option, value), change) in enumerate(UDP_OPTIONS[family]):
            expected.update(change)
            app.do(f"s.setsockopt({level}, {option}, {value})")
            data = b"%d:" % number + b"x" * number
            app.do(f"s.sendto({data!r}, (PEER, {PEER_PORT}))")
            seen = wire.next(lambda s, data=data: s.data == data)
            assert {k: getattr(seen, k) for k in expected} == expected, (level, option, value)
        peer.close()


def test_identifications_differ_while_a_packet_may_be_cut(unet):
    """RFC 6864, 4.3: of packets that may be fragmented, by IP_PMTUDISC_DONT."""
    unet.neighbours()
    with App(unet.a, True) as app, capturing(unet, 17, "4") as wire:
        peer = app.peer_socket(PEER_PORT)
        app.do(f"s = udp({PORT}); s.setsockopt(0, 10, 0)")
        ids = []
        for number in range(20):
            app.do(f"s.sendto(b'id {number}', (PEER, {PEER_PORT}))")
            seen = wire.next(lambda s, number=number: s.data == b"id %d" % number)
            assert not seen.df
            ids.append(seen.id)
        assert len(set(ids)) == len(ids), ids
        peer.close()


def sysctl(host, name, value):
    host.run(["sysctl", "-qw", f"net.ipv4.{name}={value}"])


TCP_OPTIONS = [
    # name, level, option, value, family, what the SYN and the data say
    ("mss", 6, 2, 900, "4", lambda syn, data: syn.options[2] == 900 and len(data.data) <= 900),
    ("mss", 6, 2, 1111, "6", lambda syn, data: syn.options[2] == 1111),
    ("tos", 0, 1, 0x48, "4", lambda syn, data: syn.tos == data.tos == 0x48),
    ("tclass", 41, 67, 0x48, "6", lambda syn, data: syn.tos == data.tos == 0x48),
    ("ttl", 0, 2, 33, "4", lambda syn, data: syn.ttl == data.ttl == 33),
    ("hops", 41, 16, 34, "6", lambda syn, data: syn.ttl == data.ttl == 34),
    # An IPv6 socket has those of IPv4 as well, for the connections that it has with IPv4 addresses.
    ("tos", 0, 1, 0x48, "mapped", lambda syn, data: syn.tos == data.tos == 0x48),
    ("ttl", 0, 2, 33, "mapped", lambda syn, data: syn.ttl == data.ttl == 33),
    ("tclass", 41, 67, 0x48, "mapped", lambda syn, data: syn.tos == data.tos == 0),
    ("hops", 41, 16, 34, "mapped", lambda syn, data: syn.ttl == data.ttl == 64),
    ("tos", 0, 1, 0x48, "6", lambda syn, data: syn.tos == data.tos == 0),
    ("ttl", 0, 2, 33, "6", lambda syn, data: syn.ttl == data.ttl == 64),
    ("clamp", 6, 10, 4000, "4", lambda syn, data: syn.window <= 4000),
    ("small buffer", 1, 8, 20000, "4", lambda syn, data: syn.options[3] == 0),
]


def connected(net, family, setting=""):
    """The SYN, and a segment with data, of a connection of the library to the kernel."""
    with App(net.a, True, family, TIMESTAMPS) as app, capturing(net, 6, family) as wire, \
            net.b.socket(socket.AF_INET6 if family == "6" else socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((net.b.ip6 if family == "6" else net.b.ip4, PEER_PORT))
        listener.listen(4)
        app.do(f"s = socket.socket(FAM, socket.SOCK_STREAM)\n{setting}\ns.connect((PEER, {PEER_PORT}))")
        syn = wire.next(lambda s: s.flags & 2 and s.dport == PEER_PORT)
        app.do("s.sendall(b'the data')")
        data = wire.next(lambda s: s.data == b"the data")
        app.do("s.close()")
    return syn, data


@pytest.mark.parametrize("name, level, option, value, family, check", TCP_OPTIONS, ids=[f"{o[0]}-{o[4]}" for o in TCP_OPTIONS])
def test_a_connections_options(unet, name, level, option, value, family, check):
    syn, data = connected(unet, family, f"s.setsockopt({level}, {option}, {value})")
    assert check(syn, data), (name, vars(syn), vars(data))
    # What was not set is as ever.
    assert syn.options[4] and 3 in syn.options and 8 in syn.options and syn.label == 0 and syn.df
    assert data.seq == (syn.seq + 1) % 2**32
    assert set(data.options) == {8}
    assert data.options[8][0] - syn.options[8][0] in range(0, 60000) and data.options[8][1]


@pytest.mark.parametrize("client, tos, ttl", [("4", 0x48, 33), ("6", 0x28, 77)])
def test_a_listener_answers_with_class_and_limit_of_the_clients_family(unet, client, tos, ttl):
    with App(unet.a, True, "6") as app, capturing(unet, 6, client) as wire:
        app.do(f"l = socket.socket(FAM, socket.SOCK_STREAM); l.setsockopt(1, 2, 1); l.bind(('::', {PORT})); l.listen(4)")
        app.do("for o in ((0, 1, 0x48), (0, 2, 33), (41, 67, 0x28), (41, 16, 77)): l.setsockopt(*o)")
        app.do("ready(l)")
        with unet.b.socket(socket.AF_INET6 if client == "6" else socket.AF_INET, socket.SOCK_STREAM) as peer, unet.a.tcp_bypassed():
            peer.connect((unet.a.ip(int(client)), PORT))
            answer = wire.next(lambda s: s.flags & 0x12 == 0x12 and s.sport == PORT)
            app.do("c, _ = l.accept(); c.sendall(b'the data')")
            data = wire.next(lambda s: s.data == b"the data")
    assert (answer.tos, answer.ttl, data.tos, data.ttl) == (tos, ttl, tos, ttl)


@pytest.mark.parametrize("name, kind", [("tcp_timestamps", 8), ("tcp_sack", 4), ("tcp_window_scaling", 3)])
def test_an_option_that_the_host_has_turned_off_is_not_sent(net, name, kind):
    sysctl(net.a, name, 0)
    syn, data = connected(net, "4")
    assert set(syn.options) == {2, 3, 4, 8} - {kind}
    assert set(data.options) == ({8} - {kind})


@pytest.mark.parametrize("ecn, flags", [(0, 0x02), (1, 0xc2)])
def test_a_syn_asks_for_ecn_when_the_host_does(net, ecn, flags):
    """RFC 3168, 6.1.1; the data are marked ECT(0) when the other side agrees."""
    for host in (net.a, net.b):
        sysctl(host, "tcp_ecn", ecn)
    syn, data = connected(net, "4")
    assert syn.flags == flags and syn.tos == 0
    assert data.tos == (2 if ecn else 0)


def test_sack_blocks_name_what_has_come(unet):
    """A hole made by the peer's interface: what lies behind it is named, with the edges that were sent."""
    with App(unet.a, True) as app, capturing(unet, 6, "4") as wire, unet.b.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((unet.b.ip4, PEER_PORT))
        listener.listen(4)
        app.do(f"s = socket.socket(FAM, socket.SOCK_STREAM); s.connect((PEER, {PEER_PORT}))")
        conn, _ = listener.accept()
        app.do("s.sendall(b'hello')")
        assert conn.recv(10) == b"hello"
        last = wire.next(lambda s: s.data == b"hello")
        # A segment of the peer's that begins 100 bytes late, from its interface.
        nxt, ours = last.ack, (last.seq + 5) % 2**32
        eth = [bytes.fromhex(h.run(["cat", f"/sys/class/net/{h.dev}/address"]).text.strip().replace(":", "")) for h in (unet.a, unet.b)]
        tcp = struct.pack("!HHIIBBHHH", PEER_PORT, last.sport, (nxt + 100) % 2**32, ours, 5 << 4, 0x18, 500, 0, 0) + b"b" * 50
        ends = socket.inet_aton(unet.b.ip4) + socket.inet_aton(unet.a.ip4)
        check = 0xffff - total(ends + struct.pack("!HH", 6, len(tcp)) + tcp)
        tcp = tcp[:16] + struct.pack("!H", check) + tcp[18:]
        ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(tcp), 1, 0x4000, 64, 6, 0) + ends
        ip = ip[:10] + struct.pack("!H", 0xffff - total(ip)) + ip[12:]
        wire.raw.send(eth[0] + eth[1] + b"\x08\x00" + ip + tcp)
        app.start("s.recv(1)")
        ack = wire.next(lambda s: 5 in s.options)
        assert ack.ack == nxt and ack.options[5] == ((nxt + 100) % 2**32, (nxt + 150) % 2**32)
        conn.send(b"!")
        app.answer()
        conn.close()


def wscale(host, port):
    """(of what it sends, of what it receives), as the kernel's TCP has it."""
    text = host.run(["ss", "-Htni", "state", "established", f"( sport = :{port} or dport = :{port} )"]).text
    found = re.search(r"wscale:(\d+),(\d+)", text)
    return (int(found[1]), int(found[2])) if found else None


@pytest.mark.parametrize("setting, ours", [("s.setsockopt(1, 8, 20000)", 0), ("None", None)], ids=["small buffer", "usual"])
def test_the_kernel_goes_on_with_what_was_agreed(unet, setting, ours):
    """A connection that a spawned program gets, too: the kernel's socket has both scales the right way round."""
    with App(unet.a, True, env=TIMESTAMPS) as app, unet.b.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 15)
        listener.bind((unet.b.ip4, PEER_PORT))
        listener.listen(4)
        app.do(f"s = socket.socket(FAM, socket.SOCK_STREAM); {setting}; s.connect((PEER, {PEER_PORT})); s.set_inheritable(True)")
        conn, _ = listener.accept()
        peer = wscale(unet.b, PEER_PORT)
        assert ours is None or peer[0] == ours
        assert wscale(unet.a, PEER_PORT) is None, "not the kernel's yet"
        app.do("import os; os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0); None")
        assert wscale(unet.a, PEER_PORT) == peer[::-1]
        app.do("s.sendall(b'still here')")
        assert conn.recv(100) == b'still here'
        conn.close()
