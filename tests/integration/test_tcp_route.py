# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The metrics of ip-route(8) that TCP follows: a connection over such a route, of the kernel and of the library."""

import json
import socket
import struct
import threading

import pytest

from netns import ip, wait_for
from test_queues_later import echoes
from test_tcp_truth import as_the_kernel

# Offsets in struct tcp_info.
RTO, PMTU, CWND, ADVMSS, RCV_WND = 8, 60, 80, 84, 232


def route(net, metrics):
    """The route from a to b has these metrics from now on."""
    net4 = net.a.ip4.rsplit(".", 1)[0] + ".0/24"
    ip("-n", net.a.name, "route", "replace", net4, "dev", net.a.dev, "proto", "kernel", "src", net.a.ip4, *metrics.split())


def u32(at):
    return f"struct.unpack_from('I', s.getsockopt(6, socket.TCP_INFO, 248), {at})[0]"


# On a busy machine the handshake may have taken long: what follows it is measured, too.
RTO_COMES_DOWN = f"until(lambda: s.send(b'measured') and {u32(RTO)} < 150000)"


@pytest.mark.parametrize("metrics, look", [
    ("advmss 700", u32(ADVMSS)), ("initcwnd 3", u32(CWND)), ("initrwnd 4", u32(RCV_WND)), ("rto_min 60ms", RTO_COMES_DOWN),
    ("window 5000", "s.getsockopt(6, socket.TCP_WINDOW_CLAMP)"), ("congctl cubic", "s.getsockopt(6, socket.TCP_CONGESTION, 16)"),
    ("congctl reno", "s.getsockopt(6, socket.TCP_CONGESTION, 16)"), ("mtu 1300", u32(PMTU)), ("mtu lock 1300", u32(PMTU))])
def test_a_metric_is_followed(net, metrics, look):
    route(net, metrics)
    as_the_kernel(net, lambda app, _: app(look))


@pytest.mark.parametrize("metrics, fragments", [("mtu 1300", False), ("mtu lock 1300", True)])
def test_where_the_mtu_is_locked_routers_may_fragment(net, metrics, fragments):
    def steps(app, peer):
        with net.b.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800)) as sniffer:
            app("s.send(b'x' * 100)")
            assert peer.recv(1000) == b"x" * 100
            while True:
                packet = sniffer.recv(2000)
                if packet[9] == socket.IPPROTO_TCP and packet.endswith(b"x" * 100):
                    break
        assert bool(struct.unpack_from("!H", packet, 6)[0] & 0x4000) != fragments
    route(net, metrics)
    as_the_kernel(net, steps)


def test_the_paths_mtu_is_probed_for(net):
    """net.ipv4.tcp_mtu_probing=2: small segments at first, full ones when larger ones have come through."""
    def drain(peer):
        while peer.recv(1 << 16):
            pass

    def steps(app, peer):
        app("s.getsockopt(6, socket.TCP_MAXSEG)")
        reader = threading.Thread(target=drain, args=(peer,))
        reader.start()
        app("[s.sendall(b'x' * 100000) for i in range(40)] and s.getsockopt(6, socket.TCP_MAXSEG) > 1430", timeout=30)
        app("s.shutdown(socket.SHUT_WR)")
        reader.join()
    net.a.run(["sysctl", "-qw", "net.ipv4.tcp_mtu_probing=2"])
    as_the_kernel(net, steps)


ECHO = """
import socket, sys
l = socket.create_server((sys.argv[1], 7000))
print("listens", flush=True)
while True:
    c, _ = l.accept()
    while data := c.recv(65536): c.sendall(data)
    c.close()
"""
FAR, LAST = "10.99.0.9", "10.79.0"


@pytest.fixture
def two_ways(net):
    """net.a and net.b have a second wire; a host behind net.b, and none of net.a's neighbours, is far."""
    a, b = net.a, net.b
    ip("-n", a.name, "link", "add", "second", "type", "veth", "peer", "name", "second", "netns", b.name)
    for host, last in ((a, 1), (b, 2)):
        ip("-n", host.name, "addr", "add", f"{LAST}.{last}/24", "dev", "second")
        ip("-n", host.name, "link", "set", "second", "up")
        for dev in (host.dev, "second", "all"):
            host.run(["sysctl", "-qw", f"net.ipv4.conf.{dev}.rp_filter=0"])
    ip("-n", b.name, "addr", "add", f"{FAR}/32", "dev", "lo")
    wait_for(lambda: all(" state UP " in ip("-n", h.name, "link", "show", "second") for h in (a, b)), 20, "the second wire")
    net.neighbours(v6=False)
    return net


def received_by_second(net):
    return json.loads(ip("-n", net.b.name, "-s", "-j", "link", "show", "second"))[0]["stats64"]["rx"]["packets"]


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "kernel"])
def test_the_reply_leaves_by_another_interface(two_ways, ours):
    """A host with two uplinks and one default route."""
    net = two_ways
    ip("-n", net.a.name, "route", "add", "default", "via", f"{LAST}.2", "dev", "second")
    server = net.a.python(ECHO, ours, [net.a.ip4])
    server.wait_text("^listens$")
    if ours:
        net.a.wait_steered(7000, "tcp", 20)
    before = received_by_second(net)
    for _ in range(3):
        with net.b.socket(kind=socket.SOCK_STREAM, timeout=20) as c:
            c.bind((FAR, 0))
            c.connect((net.a.ip4, 7000))
            echoes(c, b"there and back" * 20000)
    assert received_by_second(net) > before + 20


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "kernel"])
def test_the_route_of_a_connection_moves_to_another_interface(two_ways, ours):
    net = two_ways
    ip("-n", net.a.name, "route", "add", f"{FAR}/32", "via", net.b.ip4, "dev", net.a.dev)
    server = net.a.python(ECHO, ours, [net.a.ip4])
    server.wait_text("^listens$")
    if ours:
        net.a.wait_steered(7000, "tcp", 20)
    with net.b.socket(kind=socket.SOCK_STREAM, timeout=20) as c:
        c.bind((FAR, 0))
        c.connect((net.a.ip4, 7000))
        echoes(c, b"one way" * 20000)
        ip("-n", net.a.name, "route", "replace", f"{FAR}/32", "via", f"{LAST}.2", "dev", "second")

        def moved():
            before = received_by_second(net)
            echoes(c, b"the other" * 20000)
            return received_by_second(net) > before

        wait_for(moved, 20, "the connection takes the other way")


# Without CAP_NET_ADMIN (12) the connection cannot go to the kernel, which only sends each segment.
POWERLESS = """
import ctypes, socket, struct, sys
l = socket.create_server((sys.argv[1], 7000))
print("listens", flush=True)
c, _ = l.accept()
assert c.recv(100) == b"first"
have = int(open("/proc/self/status").read().split("CapEff:")[1].split()[0], 16) & ~(1 << 12)
words = [have & 0xffffffff] * 2 + [0] + [have >> 32] * 2 + [0]
assert ctypes.CDLL(None).capset(struct.pack("Ii", 0x20080522, 0), struct.pack("6I", *words)) == 0
c.sendall(b"powerless")
left = int(sys.argv[2])
while left:
    data = c.recv(65536)
    c.sendall(data)
    left -= len(data)
assert c.recv(1) == b"!"
print("sent again:", struct.unpack_from("I", c.getsockopt(6, socket.TCP_INFO, 104), 100)[0], flush=True)
"""


def test_bursts_leave_by_another_interface(two_ways):
    """Segment by segment, none of them lost: the ring would have cut a burst."""
    net, size = two_ways, 2_000_000
    ip("-n", net.a.name, "route", "add", f"{FAR}/32", "via", net.b.ip4, "dev", net.a.dev)
    server = net.a.python(POWERLESS, True, [net.a.ip4, size])
    server.wait_text("^listens$")
    net.a.wait_steered(7000, "tcp", 20)
    with net.b.socket(kind=socket.SOCK_STREAM, timeout=20) as c:
        c.bind((FAR, 0))
        c.connect((net.a.ip4, 7000))
        c.sendall(b"first")
        assert c.recv(100) == b"powerless"
        ip("-n", net.a.name, "route", "replace", f"{FAR}/32", "via", f"{LAST}.2", "dev", "second")
        asked = 0

        def leaves_by_second():
            nonlocal asked
            was, asked = received_by_second(net), asked + 1
            echoes(c, b"?")
            return received_by_second(net) > was

        wait_for(leaves_by_second, 20, "the library has heard of the route")
        before = received_by_second(net)
        echoes(c, b"b" * (size - asked))
        c.sendall(b"!")
        again = int(server.wait_text(r"^sent again: (\d+)$", 20)[1])
    left = received_by_second(net) - before
    print(f"{left} packets by the other interface, {again} of them once more")
    assert left > size / 1460
    assert again < left / 20


MARKED = ECHO.replace("socket.create_server((sys.argv[1], 7000))", """socket.socket()
l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
l.setsockopt(socket.SOL_SOCKET, 36, 7)  # SO_MARK
l.bind((sys.argv[1], 7000))
l.listen(5)""")


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "kernel"])
@pytest.mark.parametrize("way", ["its own", "another"])
def test_a_listeners_mark_chooses_the_route_of_its_handshakes(two_ways, way, ours):
    """ip-rule(8): there is no route to the client but for what has the mark."""
    net = two_ways
    route = ["via", net.b.ip4, "dev", net.a.dev] if way == "its own" else ["via", f"{LAST}.2", "dev", "second"]
    ip("-n", net.a.name, "rule", "add", "fwmark", "7", "lookup", "107")
    ip("-n", net.a.name, "route", "add", f"{FAR}/32", *route, "table", "107")
    server = net.a.python(MARKED, ours, [net.a.ip4])
    server.wait_text("^listens$")
    if ours:
        net.a.wait_steered(7000, "tcp", 20)
    before = received_by_second(net)
    for _ in range(3):
        with net.b.socket(kind=socket.SOCK_STREAM, timeout=20) as c:
            c.bind((FAR, 0))
            c.connect((net.a.ip4, 7000))
            echoes(c, b"there and back" * 20000)
    assert (received_by_second(net) > before + 20) == (way == "another")
