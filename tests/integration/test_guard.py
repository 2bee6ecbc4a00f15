# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
TCP segments of connections in user space that come past the steering program, without the module. The kernel knows no such
connection, and says nothing all the same: the guard at the interface's tc ingress holds them back, and the peer sends again.
"""

import contextlib
import random
import signal
import socket
import struct
import threading
import time

import pytest

from netns import KERNEL, SECCOMP, bpf_maps, bpf_object, bpftool, fdinfo, ip, stopped, wait_for

SERVER = """
import signal, socket, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
l = socket.create_server(("::", 7500), family=socket.AF_INET6, dualstack_ipv6=True)
print("ready", flush=True)
while True:
    s, _ = l.accept()
    while d := s.recv(65536): s.sendall(d)
    s.close()
"""

# As on a kernel without tcx (before Linux 6.6): seccomp refuses BPF_LINK_CREATE.
NO_LINKS = SECCOMP + "seccomp(321, 0x50016, command=28)\n"  # bpf(2), EINVAL
FILTER = "pref 761 bpf"


def held(process):
    """What the guard of the process has held back, by its reason."""
    # The steering's counters are its only map of an array for each CPU.
    values = bpftool("map", "lookup", "id", next(bpf_maps(process.pid, 6)), "key", "0", "0", "0", "0")["values"]
    cpus = [struct.unpack("<5Q", bytes(int(b, 16) for b in v["value"])) for v in values]
    return dict(zip(["fragment", "tagged", "headers", "plain"], [sum(c) for c in zip(*cpus)][1:]))


def has_link(process):
    return any("link_type:\ttcx" in i for i in fdinfo(process.pid))


def filters(host):
    return host.run(["tc", "filter", "show", "dev", host.dev, "ingress"]).text


@contextlib.contextmanager
def never_reset(*hosts):
    """The kernels of the hosts say RST to nothing meanwhile."""
    before = [h.counters()["TcpOutRsts"] for h in hosts]
    yield
    after = [h.counters()["TcpOutRsts"] for h in hosts]
    assert after == before, f"the kernel sent RSTs: {before} before, {after} after"


def echoed(s, seed, size):
    """The peer sends back what it gets, byte by byte."""
    data = random.Random(seed).randbytes(size)
    t = threading.Thread(target=s.sendall, args=(data,))
    t.start()
    back = b""
    while len(back) < len(data):
        got = s.recv(65536)
        assert got, f"the end after {len(back)} of {len(data)} bytes"
        back += got
    t.join()
    assert back == data


def connect(net, family=socket.AF_INET):
    s = net.a.socket(family, socket.SOCK_STREAM, timeout=20)
    s.connect((net.b.ip(family), 7500))
    return s


def serve(net, there, source=SERVER):
    net.neighbours()
    server = net.b.python(source, True)
    net.b.wait_bound(7500, "tcp")
    for family in (socket.AF_INET, socket.AF_INET6):
        with connect(net, family) as s:
            echoed(s, 0, 100)
    wait_for(lambda: there(server), what="the guard")
    return server


def serve_by_filter(net):
    before = filters(net.b)
    return serve(net, lambda p: FILTER in filters(net.b) and filters(net.b) != before, NO_LINKS + SERVER)


def serve_by_link(net):
    return serve(net, has_link)


@pytest.fixture(params=["tcx", "clsact"])
def server(net, request):
    """An echo of ours in net.b, with its guard; net.a's kernel is the client."""
    if request.param == "tcx":
        if KERNEL < (6, 6):
            pytest.skip("no tcx")
        return serve_by_link(net)
    return serve_by_filter(net)


def csum(data):
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def tcp(s, data=b"x" * 24, seq=1):
    """Of the connection, as far as the kernel can tell; the sum is not right, which it would not look at before its RST."""
    return struct.pack(">HHIIBBHHH", s.getsockname()[1], 7500, seq, 1, 0x50, 0x18, 500, 0, 0) + data


def v4(s, payload, offset=0, options=b""):
    src, dst = (socket.inet_aton(a[0]) for a in (s.getsockname(), s.getpeername()))
    header = bytearray(struct.pack(">BBHHHBBH4s4s", 0x45 + len(options) // 4, 0, 20 + len(options) + len(payload), 77, offset, 64,
                                   socket.IPPROTO_TCP, 0, src, dst) + options)
    header[10:12] = struct.pack(">H", csum(header))
    return 0x0800, bytes(header) + payload


def v6(s, payload, header):
    src, dst = (socket.inet_pton(socket.AF_INET6, a[0]) for a in (s.getsockname(), s.getpeername()))
    return 0x86dd, struct.pack(">IHBB", 6 << 28, len(header) + len(payload), 0 if header[0:1] == b"\x3c" else 44, 64) + src + dst + header + payload


def summed(s, data=b"x" * 24, seq=1):
    """The same with the right sum."""
    family = s.family
    plain = tcp(s, data, seq)
    src, dst = (socket.inet_pton(family, a[0]) for a in (s.getsockname(), s.getpeername()))
    pseudo = src + dst + struct.pack(">II", len(plain), socket.IPPROTO_TCP)
    sum_ = csum(pseudo + plain)
    return plain[:16] + struct.pack(">H", sum_) + plain[18:]


# What comes past the steering: its reason, the family, and the frame or frames of a connection's segment.
STRANGE = {
    "fragments": ("fragment", socket.AF_INET, lambda s: [v4(s, summed(s)[:24], 0x2000), v4(s, summed(s)[24:], 3)]),
    "one fragment that is all": ("fragment", socket.AF_INET6, lambda s: [v6(s, summed(s), bytes([6, 0, 0, 0, 0, 0, 0, 9]))]),
    "fragments of IPv6": ("fragment", socket.AF_INET6, lambda s: [v6(s, summed(s)[:24], bytes([6, 0, 0, 1, 0, 0, 0, 8])),
                                                                   v6(s, summed(s)[24:], bytes([6, 0, 0, 24, 0, 0, 0, 8]))]),
    "IP options": ("headers", socket.AF_INET, lambda s: [v4(s, summed(s), options=b"\x01\x01\x01\x00")]),
    "a hop-by-hop header and a destination options header": (
        "headers", socket.AF_INET6, lambda s: [v6(s, summed(s), bytes([60, 0, 1, 4, 0, 0, 0, 0]) + bytes([6, 0, 1, 4, 0, 0, 0, 0]))]),
    "a VLAN's tag": ("tagged", None, None),
}


def mac(host):
    return bytes.fromhex(ip("-n", host.name, "-br", "link", "show", host.dev).split()[2].replace(":", ""))


def send_frames(net, frames, tag=b""):
    with net.a.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        raw.bind((net.a.dev, 0))
        for kind, packet in frames:
            raw.send(mac(net.b) + mac(net.a) + tag + struct.pack(">H", kind) + packet)


@pytest.mark.parametrize("what", STRANGE)
def test_strange_segments_are_not_answered(net, server, what):
    reason, family, frames = STRANGE[what]
    with connect(net, family or socket.AF_INET) as s, never_reset(net.b):
        echoed(s, 1, 10_000)
        before = held(server)
        if family:
            send_frames(net, frames(s))
        else:
            # The listener's rule, by which the connection came, is not asked: a VLAN may be somebody else's.
            send_frames(net, [v4(s, summed(s))], struct.pack(">HH", 0x8100, 5))
        if family:
            wait_for(lambda: held(server)[reason] > before[reason] or net.b.counters()["TcpOutRsts"], what="the segment to be seen")
        echoed(s, 2, 100_000)
        print(f"{what}: held back: {held(server)}")


def test_the_steering_program_is_away_amid_a_stream(net, server):
    """It cannot be put back, as long as its process is stopped: then the stream goes on."""
    with connect(net) as s, never_reset(net.b):
        echoed(s, 3, 100_000)
        before = held(server)
        with stopped(server.pid):
            ip("-n", net.b.name, "link", "set", "dev", net.b.dev, "xdpgeneric", "off")
            s.sendall(b"x" * 20_000)
            wait_for(lambda: held(server)["plain"] > before["plain"] or net.b.counters()["TcpOutRsts"], what="a segment to be seen")
        got = 0
        while got < 20_000:
            got += len(s.recv(65536))
        echoed(s, 4, 1_000_000)
        print(f"held back: {held(server)}")


def test_datagrams_need_no_guard(net, server):
    """Fragments, and what comes while the steering is away, are the shadow socket's."""
    echo = net.b.python("import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.bind(('10.77.0.2', 7600))\n"
                        "while True: s.sendto(*s.recvfrom(60000))", True)
    net.b.wait_bound(7600)
    with net.a.socket() as u:
        for size in (100, 30_000):
            u.sendto(b"x" * size, (net.b.ip4, 7600))
            assert len(u.recv(60000)) == size
    assert echo.alive()


def test_what_is_nobodys_is_still_reset(net, server):
    """The kernel answers for other ports as ever, and for the connection of a process that was killed."""
    with connect(net) as s:
        echoed(s, 5, 1000)
        with net.a.socket(kind=socket.SOCK_STREAM) as other, pytest.raises(ConnectionRefusedError):
            other.connect((net.b.ip4, 7501))
        server.stop(signal.SIGKILL)
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            wait_for(lambda: s.sendall(b"x"), what="the reset")


def test_the_next_owner_takes_the_place_of_what_a_killed_one_left(net, server):
    was_filter = FILTER in filters(net.b)
    server.stop(signal.SIGKILL)
    assert (FILTER in filters(net.b)) == was_filter
    again = serve_by_filter(net) if was_filter else serve_by_link(net)
    with connect(net) as s, never_reset(net.b):
        send_frames(net, [v4(s, summed(s), options=b"\x01\x01\x01\x00")])
        wait_for(lambda: held(again)["headers"] or net.b.counters()["TcpOutRsts"], what="the segment to be seen")
        echoed(s, 6, 1000)
    again.stop()


def qdiscs(host):
    return host.run(["tc", "qdisc", "show", "dev", host.dev]).text


def test_nothing_is_left(net, server):
    server.stop()
    assert FILTER not in filters(net.b) and "clsact" not in qdiscs(net.b)


def test_what_others_have_put_beside_the_filter_stays(net, tmp_path):
    bpf_object(tmp_path / "ok.o", '__attribute__((section("tc"), used)) int ok(void *ctx) { return 0; }')
    server = serve_by_filter(net)
    net.b.run(["tc", "filter", "add", "dev", net.b.dev, "egress", "bpf", "da", "obj", tmp_path / "ok.o", "sec", "tc"])
    server.stop()
    assert FILTER not in filters(net.b) and "clsact" in qdiscs(net.b)
    assert "ok.o" in net.b.run(["tc", "filter", "show", "dev", net.b.dev, "egress"]).text


def test_a_program_without_tcp_has_none(net):
    net.neighbours()
    u = net.b.python("import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.bind(('10.77.0.2', 7600))\n"
                     "while True: s.sendto(*s.recvfrom(100))", True)
    net.b.wait_bound(7600)
    with net.a.socket() as s:
        for _ in range(20):
            s.sendto(b"x", (net.b.ip4, 7600))
            s.recv(100)
    assert not has_link(u) and FILTER not in filters(net.b)


def options_v4(s):
    s.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, b"\x01\x01\x01\x00")


def options_v6(s):
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_DSTOPTS, b"\x00\x00\x01\x04\x00\x00\x00\x00")


ALWAYS = {"IP options": (socket.AF_INET, options_v4), "a destination options header": (socket.AF_INET6, options_v6)}


@pytest.mark.parametrize("way", ALWAYS)
def test_a_peer_of_which_nothing_comes_by_the_ring_any_more(net, server, way):
    """The connection goes to the kernel, which reads everything, with what both had said."""
    family, set_options = ALWAYS[way]
    with connect(net, family) as s, never_reset(net.a, net.b):
        echoed(s, 7, 10_000)
        set_options(s)
        echoed(s, 8, 1_000_000)
        assert net.b.run(["ss", "-Htn", "sport = :7500"]).text.count("ESTAB") == 1
        print(f"{way}: held back: {held(server)}")
    with connect(net) as s, net.b.tcp_bypassed(at_most=4):
        echoed(s, 9, 10_000)


def kernels(net):
    return net.b.run(["ss", "-Htn", "state", "established", "sport = :7500"]).text.count(":7500")


def comes_again(net, server, s, seq):
    """Somebody sends a segment with IP options; if it is not the first one the guard tells of it, as it is no part of a burst with that."""
    time.sleep(0.2)
    before = held(server)["headers"]
    send_frames(net, [v4(s, summed(s, seq=seq), options=b"\x01\x01\x01\x00")])
    wait_for(lambda: held(server)["headers"] > before, what="the segment to be held")


def peers_next(s):
    """The number of what s sends next: the kernel's own, by TCP_REPAIR."""
    TCP_REPAIR, TCP_REPAIR_QUEUE, TCP_QUEUE_SEQ, SEND_QUEUE = 19, 20, 21, 2
    s.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
    s.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR_QUEUE, SEND_QUEUE)
    seq = s.getsockopt(socket.IPPROTO_TCP, TCP_QUEUE_SEQ) & 0xffffffff
    s.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, -1)  # off, without a window probe
    return seq


def test_what_anybody_has_sent_does_not_take_a_connection_away(net, server):
    """Only segments with numbers that the peer may have given send the connection to the kernel."""
    with connect(net) as s, never_reset(net.b):
        echoed(s, 12, 10_000)
        seq = peers_next(s)
        for _ in range(3):
            comes_again(net, server, s, (seq + (1 << 31)) & 0xffffffff)
        with net.b.tcp_bypassed():
            echoed(s, 13, 10_000)
        assert not kernels(net)
        comes_again(net, server, s, peers_next(s))
        wait_for(lambda: kernels(net) == 1, 20, "the connection at the kernel")
        echoed(s, 14, 10_000)


CLIENT = """
import socket, time
s = socket.create_connection(("10.77.0.1", 7501))
while d := s.recv(65536): s.sendall(d)
"""


def test_the_same_of_a_connection_that_we_have_made(net):
    net.neighbours()
    with net.a.socket(kind=socket.SOCK_STREAM, timeout=20) as listener:
        listener.bind((net.a.ip4, 7501))
        listener.listen()
        client = net.b.python(CLIENT, True)
        s = listener.accept()[0]
        s.settimeout(60)
        with s, never_reset(net.a, net.b):
            echoed(s, 10, 10_000)
            wait_for(lambda: has_link(client) or FILTER in filters(net.b), what="the guard")
            options_v4(s)
            echoed(s, 11, 1_000_000)
            assert net.b.run(["ss", "-Htn", "dport = :7501"]).text.count("ESTAB") == 1
