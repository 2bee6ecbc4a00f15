# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""ring/mlx5 over Debian's own libmlx5 on the mlx5 device in software: what is broken on purpose ends in recovery, in fallback or in
an errno, never in wrong data, and the device has nothing to complain of.

    net.a  [ card 0 ] ---- wire ---- [ card 1 ]  net.b
"""

import json
import os
import re
import signal
import socket
import subprocess
import time

import pytest

from cards import CardNet, load, unload
from differential import App
from netns import ip, know, wait_for

PORT = 7000
ECHO = """
import socket, sys
if sys.argv[1] == "udp":
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind((sys.argv[2], 7000))
    while True:
        d, a = s.recvfrom(65536)
        s.sendto(d, a)
l = socket.create_server((sys.argv[2], 7000))
while True:
    s, _ = l.accept()
    while d := s.recv(65536): s.sendall(d)
    s.close()
"""
# What was sent is known: every answer is looked at. One that comes late is not lost: the machine was busy.
UDP_CLIENT = """
import random, socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(2)
waits = set()
def datagram(i): return b"%d " % i + random.Random(i).randbytes(i * 37 % 1400)
def look(i):
    try:
        while waits if i is None else i in waits:
            got = s.recv(65536)
            j = int(got.split()[0])
            assert j < sent and got == datagram(j), (sent, got)
            waits.discard(j)
    except TimeoutError: pass
for i in range(int(sys.argv[2])):
    waits.add(i)
    sent = i + 1
    s.sendto(datagram(i), (sys.argv[1], 7000))
    look(i)
s.settimeout(5)
look(None)
print("lost", len(waits))
"""
TCP_CLIENT = """
import hashlib, random, socket, sys, threading
s = socket.create_connection((sys.argv[1], 7000))
sent, got = hashlib.sha256(), hashlib.sha256()
def send():
    for i in range(int(sys.argv[2])):
        d = random.Random(i).randbytes(10000 + i * 977 % 50000)
        sent.update(d)
        s.sendall(d)
    s.shutdown(socket.SHUT_WR)
t = threading.Thread(target=send)
t.start()
while d := s.recv(65536): got.update(d)
t.join()
assert sent.digest() == got.digest()
print("whole")
"""
BOTH = pytest.mark.parametrize("ours", ["a", "b"])


@pytest.fixture(scope="module")
def wire(library, tmp_path_factory):
    n = CardNet(library, tmp_path_factory.mktemp("net"))
    yield n
    n.close()


@pytest.fixture
def net(wire, request):
    """The two hosts, nothing broken and nothing running."""
    wire.neighbours()
    counters = "tx_frames", "tx_wqes", "dm_reads", "rx_frames", "tx_errors", "rx_errors", "rules_made", "sessions"
    wire.before = {h: {name: h.card[name] for name in counters} for h in (wire.a, wire.b)}
    complaints = wire.complained()
    try:
        yield wire
    finally:
        processes = [p for h in (wire.a, wire.b) for p in h.processes]
        for host in (wire.a, wire.b):
            host.close()
            host.processes.clear()
            for name in ("tx_error", "rx_error", "drop_doorbells", "drop_frames", "stall", "delay", "whole_ports", "real_time", "no_wq"):
                host.card[name] = 0
            host.card["compress"] = 64
            host.card["flows_max"] = 1024
            host.card["link"] = host.card["plugged"] = 1
        if getattr(request.node, "failed", False):
            print("\n".join(f"--- {p}\n{p.text}" for p in processes if p.text))
    for host in (wire.a, wire.b):
        wait_for(lambda h=host: " state UP " in ip("-n", h.name, "link", "show", h.dev), what="the interfaces up")
    assert wire.complained() == complaints, "a card complained: see the kernel log"


def count(host, name):
    """How often since the test began."""
    return host.card[name] - host.net.before[host][name]


def served(net, kind, ours, env=None):
    """A program that echoes, on the host with the library or on the other; the client's host."""
    server, client = net.a, net.b
    net.server = server.python(ECHO, ours == "a", [kind, server.ip4], env=env or {"VMA_TRACELEVEL": "INFO"})
    server.wait_bound(PORT, kind)
    if ours == "a" and server.card["flows_max"]:
        # The port is bound before its rule stands, and what comes in between is the kernel's.
        wait_for(lambda: server.card["rules"], 20, "a rule")
    return client


def udp(net, ours, datagrams=60, env=None):
    client = served(net, "udp", ours, env)
    net.client = client.python(UDP_CLIENT, ours == "b", [net.a.ip4, datagrams], env={"VMA_TRACELEVEL": "INFO"})
    return net.client


def tcp(net, ours, blocks=8, env=None):
    client = served(net, "tcp", ours, env)
    net.client = client.python(TCP_CLIENT, ours == "b", [net.a.ip4, blocks], env={"VMA_TRACELEVEL": "INFO"})
    return net.client


def lost(process, timeout=40):
    assert process.wait(timeout) == 0, process.text
    return int(re.search(r"^lost (\d+)$", process.text, re.M).group(1))


def whole(process, timeout=40):
    assert process.wait(timeout) == 0 and "whole" in process.text, process.text


def test_rdma_core_sees_the_device(net):
    text = subprocess.run(["ibv_devinfo", "-v"], capture_output=True, text=True, check=True).stdout
    for host in (net.a, net.b):
        name, = host.run(["ls", f"/sys/class/net/{host.dev}/device/infiniband"]).text.split()
        part = text.split(f"hca_id:\t{name}\n")[1].split("hca_id:")[0]
        assert "16.35.2000" in part and "PORT_ACTIVE" in part and "Ethernet" in part
        assert "RAW_IP_CSUM" in part and "MANAGED_FLOW_STEERING" in part


@BOTH
def test_udp_goes_past_the_kernel(net, ours):
    host = getattr(net, ours)
    with host.bypassed():
        assert lost(udp(net, ours)) == 0
    assert count(host, "tx_frames") >= 60 and count(host, "rx_frames") >= 60


@BOTH
def test_tcp_goes_past_the_kernel(net, ours):
    host = getattr(net, ours)
    # The program is gone when its connection ends: what comes then is the kernel's.
    with host.tcp_bypassed(2):
        whole(tcp(net, ours))
    assert count(host, "tx_frames") >= 20


@pytest.mark.parametrize("tcp_flag", [[], ["--tcp"]], ids=["udp", "tcp"])
def test_sockperf(net, tcp_flag):
    server = net.a.popen(["sockperf", "server", "-i", net.a.ip4, *tcp_flag], preload=True)
    net.a.wait_bound(11111, "tcp" if tcp_flag else "udp")
    # Until there were messages after those of its warm-up, which it does not count: three seconds passed without one on a busy machine.
    client = net.b.popen(["sockperf", "ping-pong", "-i", net.a.ip4, "-t", "120", *tcp_flag], preload=True)
    for _ in range(2):
        seen = count(net.a, "tx_frames"), count(net.b, "tx_frames")
        wait_for(lambda: count(net.a, "tx_frames") > seen[0] + 50 and count(net.b, "tx_frames") > seen[1] + 50, 60, "messages both ways")
        time.sleep(2)
    client.stop(signal.SIGINT)
    assert "# dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0" in client.text, client.text
    server.stop(signal.SIGINT)


@pytest.mark.parametrize("queue, said", [("tx_error", "a send error"), ("rx_error", "a receive error")])
def test_a_queue_with_an_error_is_made_anew(net, queue, said):
    client = udp(net, "a", 80)
    wait_for(lambda: count(net.a, "rx_frames") > 20, 20, "datagrams")
    net.a.card[queue] = 0x04
    # One is lost with the queue, and what was in flight.
    assert lost(client) <= 2
    assert count(net.a, queue + "s") == 1
    assert re.search(rf"the device reports {said} \(syndrome 0x4\b", net.server.text), net.server.text


@pytest.mark.parametrize("event", ["cq_error", "qp_error"])
def test_a_queue_that_the_device_gives_up_is_made_anew(net, event):
    client = udp(net, "a", 80)
    wait_for(lambda: count(net.a, "rx_frames") > 20, 20, "datagrams")
    net.a.card[event] = 1
    assert lost(client) <= 2
    assert "new queues" in net.server.text, net.server.text


def test_tcp_lives_through_errors_of_both_queues(net):
    client = tcp(net, "a", 30)
    for i in range(6):
        if not client.alive():
            break
        seen = count(net.a, "rx_frames")
        net.a.card[("tx_error", "rx_error")[i % 2]] = (0x01, 0x02, 0x04, 0x05, 0x10, 0x22)[i]
        wait_for(lambda: count(net.a, "rx_frames") > seen + 20 or not client.alive(), 20, "frames")
    whole(client, 60)


def test_lost_doorbells_and_frames_are_sent_again(net):
    client = tcp(net, "a", 20)
    for _ in range(4):
        net.a.card["drop_doorbells"] = 2
        net.b.card["drop_frames"] = 2
        seen = count(net.a, "tx_frames")
        wait_for(lambda: count(net.a, "tx_frames") > seen + 20 or not client.alive(), 20, "frames")
    whole(client, 60)


def test_a_queue_that_stands_still_is_back_pressure(net):
    with App(net.a, True) as a, App(net.b, False) as b:
        b.do("l = socket.create_server((ME, 7000))")
        a.do("s = socket.create_connection((PEER, 7000))")
        b.do("c, _ = l.accept(); c.settimeout(60)")
        net.a.card["stall"] = 1
        a.do("""
s.setblocking(False)
sent = 0
block = bytes(range(251)) * 400
try:
    while True: sent += s.send(block[sent % 251:])
except BlockingIOError: pass
""", 60)
        total = a.do("sent")
        assert total > 0
        net.a.card["stall"] = 0
        b.do("got = bytearray()")
        b.do(f"while len(got) < {total}: got += c.recv(65536)", 60)
        assert b.do(f"got == (bytes(range(251)) * ({total} // 251 + 1))[:{total}]") is True


def test_messages_of_one_call_share_descriptors(net):
    with App(net.a, True) as a, App(net.b, False) as b:
        b.do("s = udp(7000)")
        a.do("s = udp(7001); s.sendto(b'first', (PEER, 7000))")
        assert b.do("s.recv(2000)") == b"first"
        frames, wqes = count(net.a, "tx_frames"), count(net.a, "tx_wqes")
        # No two that follow each other are alike, and some are longer than what a descriptor holds.
        a.do("sendmmsg(s, [bytes([i]) * (20 + i * 23 % 300 + i % 2) for i in range(60)], (PEER, 7000))")
        assert b.do("[s.recv(2000) for _ in range(60)] == [bytes([i]) * (20 + i * 23 % 300 + i % 2) for i in range(60)]") is True
        assert count(net.a, "tx_frames") - frames == 60
        assert count(net.a, "tx_wqes") - wqes < 20


@pytest.mark.parametrize("wanted", [1, 0])
def test_without_vma_bf_the_doorbell_is_all_that_is_written(net, wanted):
    """What the ring has of the device's registers is shown to the program: 96 bytes of its send queue, behind the first 16."""
    with App(net.a, True, env={"VMA_BF": wanted}) as a, App(net.b, False) as b:
        b.do("s = udp(7000)")
        a.do("from extra_app import *; s = udp(7001); ready(s); s.sendto(b'first', (PEER, 7000))")
        assert b.do("s.recv(2000)") == b"first"
        a.do("room = ctypes.create_string_buffer(200); api('get_ring_direct_descriptors', ring_fds(s)[0], room)")
        size = a.do("struct.unpack_from('I', room, 16 + 88)[0]")
        print(f"BlueFlame registers of {size} bytes")
        assert (size > 0) == wanted
        frames = count(net.a, "tx_frames")
        a.do("[s.sendto(bytes([k]) * (20 + k), (PEER, 7000)) and None for k in range(100)]")
        assert b.do("[s.recv(2000) for k in range(100)]") == [bytes([k]) * (20 + k) for k in range(100)]
        assert count(net.a, "tx_frames") - frames == 100


@pytest.mark.parametrize("bytes_, there", [(16384, True), (1 << 20, False)])
def test_frames_in_the_devices_own_memory(net, bytes_, there):
    with App(net.a, True, env={"VMA_RING_DEV_MEM_TX": str(bytes_)}) as a, App(net.b, False) as b:
        b.do("s = udp(7000); l = socket.create_server((ME, 7000))")
        a.do("s = udp(7001); s.sendto(b'first', (PEER, 7000))")
        assert b.do("s.recv(2000)") == b"first"
        for i in range(5):
            a.do(f"[s.sendto(bytes([{i} * 20 + k]) * (500 + k * 40), (PEER, 7000)) and None for k in range(20)]")
            assert b.do(f"[s.recv(2000) for k in range(20)] == [bytes([{i} * 20 + k]) * (500 + k * 40) for k in range(20)]") is True
        assert (count(net.a, "dm_reads") > 0) is there
        assert ("no 1048576 bytes of the device's memory" in a.text) is not there


def test_completions_that_come_late(net):
    net.a.card["delay"] = 3000
    assert lost(udp(net, "a", 60)) == 0


def test_a_port_that_is_down_for_a_while(net):
    client = tcp(net, "a", 20)
    wait_for(lambda: count(net.a, "rx_frames") > 20, 20, "frames")
    net.a.card["link"] = 0
    wait_for(lambda: "LOWER_UP" not in net.a.run(["ip", "link", "show", net.a.dev]).text, 10, "no carrier")
    net.a.card["link"] = 1
    net.neighbours()
    whole(client, 90)


@BOTH
def test_a_device_that_goes_away(net, ours):
    """The sockets go on without it: nothing hangs, and nothing that arrives is wrong."""
    client = udp(net, ours, 60)
    host = getattr(net, ours)
    wait_for(lambda: count(host, "rx_frames") > 20, 20, "datagrams")
    host.card["plugged"] = 0
    assert lost(client, 120) < 60
    assert host.card["qps"] == 0 and host.card["rules"] == 0


def test_an_established_connection_when_the_device_goes_away(net):
    """It ends with an errno or goes on. It does not hang."""
    client = tcp(net, "b", 30)
    wait_for(lambda: count(net.b, "rx_frames") > 20, 20, "frames")
    net.b.card["plugged"] = 0
    status = client.wait(120)
    assert status == 0 and "whole" in client.text or re.search(r"(OSError|Error): \[Errno", client.text), client.text


def test_a_full_table_of_rules(net):
    net.a.card["flows_max"] = 0
    assert lost(udp(net, "a")) == 0
    assert net.a.card["rules"] == 0


def test_a_full_table_of_rules_and_tcp(net):
    net.a.card["flows_max"] = net.b.card["flows_max"] = 0
    server = net.a.python(ECHO, True, ["tcp", net.a.ip4], env={"VMA_TRACELEVEL": "INFO"})
    net.a.wait_bound(PORT, "tcp")
    client = net.b.python(TCP_CLIENT, True, [net.a.ip4, 4], env={"VMA_TRACELEVEL": "INFO"})
    whole(client)
    for process in (server, client):
        assert process.text.count("takes no more steering rules") == 1, process.text


MANY = """
import array, os, socket, sys
def echo(i, s):
    s.sendall(b"%d" % i * 300)
    got = b""
    while len(got) < len(b"%d" % i * 300): got += s.recv(65536)
    assert got == b"%d" % i * 300, i
many = []
for i in range(int(sys.argv[2])):
    s = socket.create_connection((sys.argv[1], 7000), timeout=30)
    many.append(s)
    echo(i, s)
ports = [s.getsockname()[1] for s in many]
assert len(set(ports)) == len(ports)
print("open", flush=True)
sys.stdin.readline()
for i, s in enumerate(many): echo(i, s)
if sys.argv[3] == "share":
    pair = socket.socketpair()
    socket.send_fds(pair[0], [b"x"], [many[3].fileno()])
    for i, s in enumerate(many): echo(i, s)
    other = socket.socket(fileno=socket.recv_fds(pair[1], 1, 1)[1][0])
    other.settimeout(30)
    echo(3, other)
print("done", flush=True)
"""
ECHO_MANY = """
import socket, sys, threading
def serve(s):
    while d := s.recv(65536): s.sendall(d)
l = socket.create_server((sys.argv[2], 7000), backlog=100)
while True:
    threading.Thread(target=serve, args=[l.accept()[0]], daemon=True).start()
"""


def opened(net, number, ours, then="go on"):
    """So many connections of b to a, open; the client."""
    server = net.a.python(ECHO_MANY, ours == "a", ["tcp", net.a.ip4])
    net.a.wait_bound(PORT, "tcp")
    client = net.b.python(MANY, ours == "b", [net.a.ip4, number, then], env={"VMA_TRACELEVEL": "INFO"}, stdin=subprocess.PIPE)
    client.wait_text("^open", 60)
    return client


def go_on(client):
    client.popen.stdin.write(b"\n")
    client.popen.stdin.flush()
    assert client.wait(60) == 0 and "done" in client.text, client.text


def test_a_hundred_connections_cost_two_rules(net):
    client = opened(net, 100, "b")
    assert count(net.b, "rules_made") <= 3 and net.b.card["rules"] <= 3
    net.b.card["rx_error"] = 0x04  # the rules are there for the new queues, too
    go_on(client)
    wait_for(lambda: net.b.card["rules"] == 0, 20, "no rule left")


def test_a_hundred_accepted_connections_cost_no_rule(net):
    client = opened(net, 100, "a")
    assert count(net.a, "rules_made") == 1
    go_on(client)


def test_a_device_that_takes_no_rule_for_several_ports(net):
    net.b.card["whole_ports"] = 1
    client = opened(net, 20, "b")
    assert count(net.b, "rules_made") == 20
    go_on(client)
    assert client.text.count("no rule for several ports") == 1


def test_one_connection_of_many_goes_to_the_kernel(net):
    client = opened(net, 12, "b", "share")
    assert count(net.b, "rules_made") == 1
    go_on(client)
    assert count(net.b, "rules_made") == 1 + 11


GROUPS = """
import select, socket, sys
many = []
for group, port in (("239.1.2.3", 7000), ("239.129.2.3", 7001)):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind((group, port))
    s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group) + socket.inet_aton(sys.argv[1]))
    s.settimeout(20)
    select.select([s], [], [], 0)  # the first use opens the ring
    many.append(s)
print("joined", flush=True)
for i in range(20):
    for n, s in enumerate(many): assert s.recv(100) == b"%d %d" % (n, i), (n, i)
print("done", flush=True)
"""
SEND_GROUPS = """
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(sys.argv[1]))
for i in range(20):
    s.sendto(b"another port", ("239.1.2.3", 7002))
    s.sendto(b"another group", ("239.129.2.3", 7000))
    s.sendto(b"0 %d" % i, ("239.1.2.3", 7000))
    s.sendto(b"1 %d" % i, ("239.129.2.3", 7001))
    time.sleep(0.01)
"""


@pytest.mark.parametrize("l2_only, rules, frames", [(0, 2, 40), (1, 1, 80)])
def test_groups_by_address_or_by_ethernet_address(net, l2_only, rules, frames):
    """What nobody wants of that is dropped."""
    receiver = net.a.python(GROUPS, True, [net.a.ip4], env={"VMA_ETH_MC_L2_ONLY_RULES": l2_only})
    receiver.wait_text("^joined", 20)
    assert net.a.card["rules"] == rules
    net.b.python(SEND_GROUPS, False, [net.b.ip4]).wait(30)
    assert receiver.wait(30) == 0, receiver.text
    assert frames <= count(net.a, "rx_frames") < frames + 20


def burst(net, n):
    """So many datagrams at once to the server of net.a."""
    with net.b.entered(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.connect((net.a.ip4, PORT))
        for i in range(n):
            s.send(b"%d" % i)


def test_compressed_completions(net):
    """Sessions of all lengths up to 8, in order and whole; then a socket wants time stamps, and gets them."""
    net.a.card["compress"] = 8
    with App(net.a, True, env={"VMA_CQE_COMPRESSION": "1", "VMA_TRACELEVEL": "DEBUG", "VMA_HW_TS_CONVERSION": "3"}) as app:
        app.do("s = udp(7000); ready(s); s.settimeout(10)")
        wait_for(lambda: net.a.card["rules"], 20, "a rule")
        for n in range(1, 40):
            burst(net, n)
            assert app.do(f"[s.recv(100) for _ in range({n})]") == [b"%d" % i for i in range(n)]
        assert count(net.a, "sessions") > 0
        assert "completions are compressed" in app.text
        seen = net.a.card["sessions"]
        app.do("s.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, 0x44)")
        # The queues are made anew at the next look: what is sent then comes.
        wait_for(lambda: "not compressed any more" in app.text, 20, "other queues")
        for n in range(1, 40):
            burst(net, n)
            got = [app.do("s.recvmsg(100, 100)") for _ in range(n)]
            assert [g[0] for g in got] == [b"%d" % i for i in range(n)]
            assert all(len(g[1]) == 1 and any(g[1][0][2][32:]) for g in got)
        assert net.a.card["sessions"] == seen


STRIDING = {"VMA_STRQ": "1", "VMA_TRACELEVEL": "DEBUG"}


def test_udp_by_a_striding_queue(net):
    """More datagrams than a slab has strides, and another queue on the way; one that nobody reads meanwhile stays as it is."""
    with App(net.a, True, env=STRIDING) as app:
        app.do("kept = udp(7001); s = udp(7000); ready(kept); ready(s); s.settimeout(10)")
        wait_for(lambda: net.a.card["rules"] >= 2, 20, "rules")
        assert net.a.card["wqs"] == 1 and "a striding receive queue" in app.text
        net.b.python("import socket, sys; socket.socket(2, 2).sendto(b'kept' * 300, (sys.argv[1], 7001))", False, [net.a.ip4]).wait(20)
        wait_for(lambda: count(net.a, "rx_frames") > 0, 20, "the datagram")
        for n in [40] * 30:
            burst(net, n)
            assert app.do(f"[s.recv(100) for _ in range({n})]") == [b"%d" % i for i in range(n)]
        assert app.do("kept.recv(2000) == b'kept' * 300") is True
        net.a.card["rx_error"] = 0x04
        burst(net, 1)
        wait_for(lambda: count(net.a, "rx_errors"), 20, "the error")
        wait_for(lambda: count(net.a, "rules_made") >= 4 and net.a.card["wqs"] == 1, 20, "other queues")
        assert "new queues" in app.text

        def received():
            """Steered to a queue that has no buffers yet, it is lost."""
            burst(net, 1)
            return app.ask("s.recv(100)") == b"0"
        app.do("s.settimeout(1)")
        wait_for(received, 20, "a datagram")
        app.do("time.sleep(1); s.setblocking(False)")
        while app.ask("s.recv(100)") == b"0":
            pass
        app.do("s.settimeout(10)")
        for n in range(1, 40):
            burst(net, n)
            assert app.do(f"[s.recv(100) for _ in range({n})]") == [b"%d" % i for i in range(n)]
        assert net.a.card["wqs"] == 1


def test_tcp_by_a_striding_queue(net, mtu_back):
    """Over errors, and an MTU whose frames take several strides."""
    client = tcp(net, "a", 30, env=STRIDING)
    wait_for(lambda: count(net.a, "rx_frames") > 20, 20, "frames")
    assert net.a.card["wqs"] == 1
    set_mtu(net, 9000)
    for i in range(3):
        seen = count(net.a, "rx_frames")
        net.a.card["rx_error"] = 0x04
        wait_for(lambda: count(net.a, "rx_frames") > seen + 20 or not client.alive(), 20, "frames")
    whole(client, 90)
    assert "cannot be received" not in net.server.text, net.server.text


def test_a_device_that_refuses_a_striding_queue(net):
    net.a.card["no_wq"] = 1
    assert lost(udp(net, "a", env=STRIDING)) == 0
    assert net.a.card["wqs"] == 0 and count(net.a, "rx_frames") >= 60
    assert "could not make the striding work queue" in net.server.text, net.server.text


def set_mtu(net, mtu):
    for host in (net.a, net.b):
        ip("-n", host.name, "link", "set", host.dev, "mtu", str(mtu))


@pytest.fixture
def mtu_back(net):
    yield
    set_mtu(net, 1500)


def test_an_mtu_that_grows(net, mtu_back):
    """Longer datagrams than the buffers were made for come whole, and no error with them."""
    def frame(n):
        return f"b''.join(bytes([i % 251]) * 97 for i in range({n}))"

    with App(net.a, True, env={"VMA_TRACELEVEL": "INFO"}) as a, App(net.b, False) as b:
        a.do("u = udp(7000); ready(u); u.settimeout(10)")
        wait_for(lambda: net.a.card["rules"], 20, "a rule")
        b.do("u = udp(7001); u.connect((PEER, 7000))")
        for mtu in (4000, 9000, 1500, 9000):
            set_mtu(net, mtu)
            # Those for 9000 are there still when it is set again.
            if mtu > 1500:
                wait_for(lambda: f"MTU {mtu}: a received frame" in a.text, 20, f"queues for the MTU\n{a.text}")
            for n in (1, 5, 20, 21, 22, 38, 41, 42, 43, 60, 90):
                b.do(f"u.send({frame(n)})")
                assert a.do(f"u.recv(20000) == {frame(n)}") is True, (mtu, n, a.text)
        assert "device reports" not in a.text
        # Of those that fit; the kernel puts fragments together.
        assert count(net.a, "rx_frames") >= 20


@BOTH
def test_a_connection_over_an_mtu_that_grows(net, mtu_back, ours):
    client = tcp(net, ours, 30)
    host = getattr(net, ours)
    wait_for(lambda: count(host, "rx_frames") > 20, 20, "frames")
    set_mtu(net, 9000)
    whole(client, 90)
    # A client may have come to its end before the library knows.
    if ours == "a":
        wait_for(lambda: "MTU 9000: a received frame" in net.server.text, 20, "queues for the MTU")
    assert not re.search("device reports", net.server.text + client.text)


@pytest.fixture
def vlan(net):
    """The two hosts with an interface of VLAN 5 on each card: (their addresses there)."""
    for host, address in ((net.a, "10.78.0.1"), (net.b, "10.78.0.2")):
        ip("-n", host.name, "link", "add", "link", host.dev, "name", "tagged", "type", "vlan", "id", "5")
        ip("-n", host.name, "addr", "add", f"{address}/24", "dev", "tagged")
        ip("-n", host.name, "link", "set", "tagged", "up")
    for host, peer, address in ((net.a, net.b, "10.78.0.2"), (net.b, net.a, "10.78.0.1")):
        wait_for(lambda h=host: " state UP " in ip("-n", h.name, "link", "show", "tagged"), what="the interfaces up")
        know(host.name, "tagged", address, peer.name, "tagged")
    yield "10.78.0.1", "10.78.0.2"
    for host in (net.a, net.b):
        for process in host.processes:
            process.stop(signal.SIGTERM, 2.0)
        ip("-n", host.name, "link", "del", "tagged")


@BOTH
@pytest.mark.parametrize("kind", ["udp", "tcp"])
def test_a_vlan_goes_past_the_kernel(net, vlan, ours, kind):
    host = getattr(net, ours)
    server = net.a.python(ECHO, ours == "a", [kind, vlan[0]], env={"VMA_TRACELEVEL": "INFO"})
    net.a.wait_bound(PORT, kind)
    if ours == "a":
        wait_for(lambda: net.a.card["rules"], 20, "a rule")
    with host.tcp_bypassed(2), host.bypassed():
        client = net.b.python(UDP_CLIENT if kind == "udp" else TCP_CLIENT, ours == "b", [vlan[0], 60 if kind == "udp" else 8])
        if kind == "udp":
            assert lost(client) == 0
        else:
            whole(client)
    assert count(host, "tx_frames") >= 20 and count(host, "rx_frames") >= 20, server.text


FORKING = """
import os, signal, socket, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
l = socket.create_server((sys.argv[1], 7000))
kept = []
while True:
    s, _ = l.accept()
    if os.fork() == 0:
        l.close()
        while d := s.recv(65536):
            kept.append(bytearray(d))  # the child writes to its memory, and so does the parent
            s.sendall(d)
        os._exit(0)
    s.close()
    kept.append(bytearray(4 << 20))
"""


@pytest.mark.parametrize("fork", [1, 0], ids=["VMA_FORK=1", "VMA_FORK=0"])
def test_children_of_who_has_a_card_serve_its_connections(net, fork):
    """Three connections, each with a child of its own, and the parent's queues are there when it forks."""
    net.a.python(FORKING, True, [net.a.ip4], env={"VMA_TRACELEVEL": "INFO", "VMA_FORK": fork})
    net.a.wait_bound(PORT, "tcp")
    for _ in range(3):
        whole(net.b.python(TCP_CLIENT, False, [net.a.ip4, 4]))
    print(count(net.a, "rx_frames"), "frames by the card")
    assert count(net.a, "rx_frames")


@pytest.fixture
def bond(net):
    """A bond over each card."""
    for host, address in ((net.a, "10.78.0.1"), (net.b, "10.78.0.2")):
        ip("-n", host.name, "link", "add", "over", "type", "bond", "mode", "active-backup", "miimon", "100")
        ip("-n", host.name, "link", "set", host.dev, "down")
        ip("-n", host.name, "link", "set", host.dev, "master", "over")
        ip("-n", host.name, "link", "set", "over", "up")
        ip("-n", host.name, "addr", "add", f"{address}/24", "dev", "over")
    for host in (net.a, net.b):
        wait_for(lambda h=host: " state UP " in ip("-n", h.name, "link", "show", "over"), 20, "the bonds up")
    yield "10.78.0.1"
    for host in (net.a, net.b):
        for process in host.processes:
            process.stop(signal.SIGTERM, 2.0)
        ip("-n", host.name, "link", "del", "over")
        ip("-n", host.name, "link", "set", host.dev, "up")


@pytest.mark.parametrize("kind", ["udp", "tcp"])
def test_a_bond_of_cards_is_served_by_af_xdp(net, bond, kind):
    """Or by the kernel, where AF_XDP cannot; never by the queues of one card, which would miss what comes by the other."""
    server = net.a.python(ECHO, True, [kind, bond], env={"VMA_TRACELEVEL": "INFO"})
    net.a.wait_bound(PORT, kind)
    client = net.b.python(UDP_CLIENT if kind == "udp" else TCP_CLIENT, False, [bond, 60 if kind == "udp" else 8])
    if kind == "udp":
        assert lost(client) == 0
    else:
        whole(client)
    assert count(net.a, "rules_made") == count(net.a, "rx_frames") == 0
    print(server.text)


def test_compression_is_not_asked_for_by_default(net):
    net.a.card["compress"] = 8
    assert lost(udp(net, "a")) == 0
    assert count(net.a, "sessions") == 0


# SO_TIMESTAMPING: RX_HARDWARE 4, RX_SOFTWARE 8, SOFTWARE 0x10, RAW_HARDWARE 0x40. Three times of software's and three of the device's.
STAMPED = """
import socket, struct, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, 37, int(sys.argv[2], 0))
s.bind((sys.argv[1], 7000))
assert s.getsockopt(socket.SOL_SOCKET, 37) == int(sys.argv[2], 0)
s.settimeout(20)
for i in range(5):
    _, anc, flags, _ = s.recvmsg(2048, 512)
    assert [(level, kind, len(d)) for level, kind, d in anc] == [(1, 37, 48)], anc
    t = struct.unpack("6q", anc[0][2])
    assert not any(t[2:4])
    print("stamp", t[0] + t[1] / 1e9, t[4] + t[5] / 1e9, time.time(), flush=True)
"""


def stamps(net, mode, flags="0x5c"):
    """[(software's, the device's, now)] of five datagrams, which went past the kernel."""
    server = net.a.python(STAMPED, True, [net.a.ip4, flags], env={"VMA_HW_TS_CONVERSION": str(mode)})
    net.a.wait_bound(PORT)
    # What comes before the rule stands is the kernel's.
    wait_for(lambda: not mode or net.a.card["rules"], 20, "a rule")
    with net.b.entered(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        for _ in range(5):
            s.sendto(b"x", (net.a.ip4, PORT))
            time.sleep(0.05)
    assert server.wait(30) == 0, server.text
    return [tuple(map(float, m)) for m in re.findall(r"^stamp (\S+) (\S+) (\S+)$", server.text, re.M)]


# How far from the system's time: the device's PTP clock is 1000 s ahead.
@pytest.mark.parametrize("mode, ahead", [(2, 0), (3, 0), (4, 1000)])
def test_time_stamps_of_the_device(net, mode, ahead):
    for software, device, now in stamps(net, mode):
        assert abs(software - now) < 10
        assert abs(device - ahead - now) < 10, (software, device, now)
    assert count(net.a, "rx_frames") >= 5


def test_raw_time_stamps_count_the_devices_cycles(net):
    all_three = stamps(net, 1, "0x44")
    raw = [device for _, device, _ in all_three]
    assert raw == sorted(raw) and all(0 < r < 1e6 for r in raw) and all(s == 0 for s, _, _ in all_three)
    assert 0.1 < raw[-1] - raw[0] < 60
    assert count(net.a, "rx_frames") >= 5


def test_a_device_in_real_time_mode(net):
    net.a.card["real_time"] = 1
    for software, device, now in stamps(net, 3):
        assert abs(device - now) < 10, (software, device, now)


def test_without_a_conversion_the_kernel_stamps(net):
    for software, device, now in stamps(net, 0):
        assert abs(software - now) < 10 and device == 0
    assert count(net.a, "rx_frames") == 0


# Posts to a queue pair in the error state, which is legal: it comes back flushed.
RING_IN_ERROR = r"""
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);
	struct ibv_context *c = NULL;

	for (int i = 0; i < n; i++)
		if (!strcmp(ibv_get_device_name(list[i]), argv[1]))
			c = ibv_open_device(list[i]);
	static char frame[4096] __attribute__((aligned(4096)));
	struct ibv_pd *pd = ibv_alloc_pd(c);
	struct ibv_mr *mr = ibv_reg_mr(pd, frame, sizeof(frame), IBV_ACCESS_LOCAL_WRITE);
	struct ibv_cq *cq = ibv_create_cq(c, 16, NULL, NULL, 0);
	struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RAW_PACKET,
					.cap = {4, 4, 1, 1, 0}, .sq_sig_all = 1};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	int err = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT);
	for (int s = IBV_QPS_RTR; s <= IBV_QPS_RTS; s++) {
		attr.qp_state = s;
		err |= ibv_modify_qp(qp, &attr, IBV_QP_STATE);
	}
	attr.qp_state = IBV_QPS_ERR;
	err |= ibv_modify_qp(qp, &attr, IBV_QP_STATE);
	struct ibv_sge sge = {(uintptr_t)frame, 60, mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
	err |= ibv_post_send(qp, &wr, &bad);
	struct ibv_wc wc;
	for (int i = 0; !err && i < 3000 && ibv_poll_cq(cq, 1, &wc) == 0; i++)
		usleep(10000);
	printf("error %d, completion %s\n", err, ibv_wc_status_str(wc.status));
	return 0;
}
"""


def test_a_queue_pair_in_error_may_be_rung(net, tmp_path):
    source, program = tmp_path / "ring.c", tmp_path / "ring"
    source.write_text(RING_IN_ERROR)
    subprocess.run(["cc", "-o", program, source, "-libverbs"], check=True)
    device = os.listdir(f"/sys/devices/platform/mlx5_device.{net.a.card.number}/infiniband")[0]
    said = net.a.run([str(program), device]).text
    assert "error 0, completion Work Request Flushed Error" in said, said


def test_a_program_that_is_killed_leaves_nothing(net):
    client = udp(net, "a", 2000)
    wait_for(lambda: count(net.a, "rx_frames") > 20, 20, "datagrams")
    os.kill(net.server.pid, signal.SIGKILL)
    wait_for(lambda: net.a.card["qps"] == 0 and net.a.card["rules"] == 0, 20, "its queues are gone")
    client.stop(signal.SIGKILL)


def test_without_the_right_to_raw_packets(net):
    server = net.a.popen(["setpriv", "--bounding-set=-net_raw", "--inh-caps=-net_raw", "/usr/bin/python3", "-u", "-c", ECHO, "udp", net.a.ip4],
                         preload=True)
    net.a.wait_bound(PORT)
    client = net.b.python(UDP_CLIENT, False, [net.a.ip4, 20])
    assert lost(client) == 0
    assert "will not be offloaded" in server.text and "CAP_NET_RAW" in server.text, server.text


# Two threads, each with its own socket: a byte that is lost, or another's, ends it.
TWO_THREADS = """
import random, socket, sys, threading
def udp(n, s):
    s.bind((sys.argv[2], 7100 + n))
    for i in range(150):
        data = b"%d.%d " % (n, i) + random.Random(i).randbytes(i * 37 % 1400)
        s.sendto(data, (sys.argv[3], 7000))
        assert s.recv(2000) == data, (n, i)
def tcp(n, s):
    s.connect((sys.argv[3], 7000))
    for i in range(8):
        data, got = random.Random(100 * n + i).randbytes(1000 + i * 7770), b""
        s.sendall(data)
        while len(got) < len(data): got += s.recv(65536)
        assert got == data, (n, i)
use, type = {"udp": (udp, socket.SOCK_DGRAM), "tcp": (tcp, socket.SOCK_STREAM)}[sys.argv[1]]
whole, both = [], threading.Barrier(2)
def run(n):
    s = socket.socket(socket.AF_INET, type)
    s.settimeout(60)
    both.wait()
    use(n, s)
    whole.append(s)
threads = [threading.Thread(target=run, args=[n]) for n in range(2)]
for t in threads: t.start()
for t in threads: t.join()
if len(whole) < 2: sys.exit(1)
print("whole", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("kind,packets", [("udp", 140), ("tcp", 8)])
def test_each_thread_has_its_ring(net, kind, packets):
    server = net.a.python(ECHO if kind == "udp" else ECHO_MANY, False, [kind, net.a.ip4])
    net.a.wait_bound(PORT, kind)
    env = {"VMA_RING_ALLOCATION_LOGIC_RX": 20, "VMA_RING_ALLOCATION_LOGIC_TX": 20}
    client = net.b.python(TWO_THREADS, True, [kind, net.b.ip4, net.a.ip4], env=env, stdin=subprocess.PIPE)
    client.wait_text("^whole", 120)

    def rings():
        shown = json.loads(net.b.stats(client, "--json", "-c", "1").splitlines()[-1])["rings"]
        print(shown)
        return [(r["type"], r["rx_packets"] >= packets, r["tx_packets"] >= packets) for r in shown]

    wait_for(lambda: rings() == [("RING_ETH", True, True)] * 2, what="both threads' packets in the figures, each at its own ring")
    assert net.b.card["vectors"] == 3, "each ring's interrupts come by another vector"
    client.popen.stdin.write(b"\n")
    client.popen.stdin.flush()
    assert client.wait(60) == 0 and server.popen.poll() is None, client.text


def test_the_module_can_go_and_come_back(library, tmp_path):
    n = CardNet(library, tmp_path)
    n.neighbours()
    assert lost(udp(n, "a", 10)) == 0
    n.close()
    wait_for(lambda: all(h.card.interface for h in (n.a, n.b)), 20, "the cards are back")
    unload()
    load()
