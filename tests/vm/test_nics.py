# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""AF_XDP on the drivers of real cards, emulated (scripts/vm -n): `make vm NIC=e1000e,virtio4 KERNEL=6.1,6.12`.

Every cell either goes past the kernel, or is refused with one line in the log, and the kernel serves. In none of them is a byte wrong or
missing, and none has a RST from the kernel for a connection that lives. So no program ends before its test: who ends leaves TIME_WAITs to
the kernel, by an ACK, and a peer that has none answers that by a RST.
"""

import contextlib
import re
import select
import socket

import pytest

from netns import KERNEL, bpf_object, ip, wait_for
from nic_programs import INFO, STAYS, asks, chosen, offloaded, refused, served, serves, settled, wait_decided
from nics import KINDS, NicNet
from test_mlx5 import ECHO, PORT

PAIRS = [(a, b) for a in (False, True) for b in (False, True)]
# (of the host with the server, of the host with the client)
OURS = [pytest.param(pair, id="-".join("ours" if o else "kernel" for o in pair)) for pair in PAIRS]

# One way, as fast as it goes: what merges and what cuts into segments shows there. Both ends print what they have seen.
BULK = """
import hashlib, random, socket, sys
role, way, address, size = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
def blocks():
    for i in range(size >> 16):
        yield random.Random(i).randbytes(1 << 16)
def send(s):
    seen = hashlib.sha256()
    for b in blocks():
        s.sendall(b)
        seen.update(b)
    s.shutdown(socket.SHUT_WR)
    assert not s.recv(1)
    return seen
def receive(s):
    seen, n = hashlib.sha256(), 0
    while d := s.recv(1 << 18):
        seen.update(d)
        n += len(d)
    assert n == size, n
    s.shutdown(socket.SHUT_WR)
    return seen
if role == "server":
    s, _ = socket.create_server((address, 7001)).accept()
else:
    s = socket.create_connection((address, 7001), 20)
s.settimeout(None)
print("bulk", (send if (role == "server") == (way == "down") else receive)(s).hexdigest(), flush=True)
""" + STAYS

# There and back, until there is a file of that name.
ENDLESS = """
import hashlib, os, random, socket, sys, threading
s = socket.create_connection((sys.argv[1], 7000))
sent, got = hashlib.sha256(), hashlib.sha256()
def send():
    i = 0
    while not os.path.exists(sys.argv[2]):
        d = random.Random(i).randbytes(10000 + i * 977 % 50000)
        sent.update(d)
        s.sendall(d)
        i += 1
    s.shutdown(socket.SHUT_WR)
t = threading.Thread(target=send)
t.start()
while d := s.recv(65536): got.update(d)
t.join()
assert sent.digest() == got.digest()
print("whole")
""" + STAYS


# Serves each connection in a thread, and says how it has ended.
LASTING = """
import errno, socket, sys, threading
def serve(s):
    try:
        while d := s.recv(65536): s.sendall(d)
    except OSError as e:
        print("ended by", errno.errorcode[e.errno])
    s.close()
l = socket.create_server((sys.argv[1], 7000))
while True:
    s, _ = l.accept()
    threading.Thread(target=serve, args=[s], daemon=True).start()
"""


@pytest.fixture(scope="module", params=KINDS)
def wire(request, library, tmp_path_factory):
    n = NicNet(request.param, library, tmp_path_factory.mktemp("net"))
    yield n
    n.close()


@pytest.fixture
def net(wire, request):
    """
    The two hosts, nothing running; at its end no RST has come from the kernel. Where it serves all that there was, on a slow machine, it
    has one for a FIN that comes twice.
    """
    settled(wire)
    before = [h.counters()["TcpOutRsts"] for h in (wire.a, wire.b)]
    yield wire
    processes = [p for h in (wire.a, wire.b) for p in h.processes]
    resets = [h.counters()["TcpOutRsts"] - n for h, n in zip((wire.a, wire.b), before)]
    past_the_kernel = any(chosen(p) and not refused(p) for p in processes)
    if any(resets) or getattr(request.node, "failed", False):
        print("\n".join(f"--- {p}\n{p.text}" for p in processes if p.text))
    for host in (wire.a, wire.b):
        host.close()
        host.processes.clear()
    assert resets == [0, 0] or not past_the_kernel, f"the kernel has sent RSTs: {resets}"


def begins(net, kind, ours):
    """
    The first packets make what no proof is about: the ring, the rule. Some drivers begin anew when a program comes (igb), and what the peer
    sends meanwhile is lost. What the one sends that makes the ring is not: it waits for the carrier.
    """
    client = asks(net.b, kind, ours, net.a.ip4, 1, resets=True)
    settled(net)
    if kind == "udp":
        client.stop()  # the next one has the queues, where they are not shared


@pytest.mark.parametrize("ours", OURS[1:])
@pytest.mark.parametrize("kind", ["udp", "tcp"])
def test_echoes_go_past_the_kernel(net, record_property, kind, ours):
    server = serves(net.a, kind, ours[0], net.a.ip4)
    begins(net, kind, ours[1])
    if ours[0]:
        wait_decided(net.a, kind, server)
    with contextlib.ExitStack() as proof:
        if ours[0]:
            proof.enter_context(offloaded(net.a, kind, server))
        client = asks(net.b, kind, ours[1], net.a.ip4, 40 if kind == "udp" else 8)
    for process, is_ours in zip((server, client), ours):
        if is_ours:
            print(net.kind, *chosen(process), sep="\n")
    if ours[0]:
        record_property("served", served(server))


@pytest.mark.parametrize("ours", OURS)
@pytest.mark.parametrize("way", ["up", "down"])
def test_a_stream_as_fast_as_it_goes(net, way, ours):
    size = 8 << 20
    server = net.a.python(BULK, ours[0], ["server", way, net.a.ip4, size], env=INFO)
    net.a.wait_bound(7001, "tcp")
    client = net.b.python(BULK, ours[1], ["client", way, net.a.ip4, size], env=INFO)
    seen = [process.wait_text(r"^bulk (\w+)$", 120)[1] for process in (client, server)]
    assert seen[0] == seen[1]
    for process, is_ours in zip((server, client), ours):
        if is_ours:
            print(net.kind, *chosen(process), sep="\n")


def test_a_driver_that_makes_queues_of_its_own(net):
    """virtio_net's, where not all are in use: what it spreads over those goes past the kernel, too."""
    if net.kind != "virtio4" or KERNEL < (6, 6):
        return
    host = net.a
    net.take_programs_off(host)  # with one the driver changes nothing
    host.run(["ethtool", "-L", host.dev, "combined", "2"])
    try:
        server = serves(host, "udp", True, host.ip4)
        begins(net, "udp", False)
        host.wait_steered(PORT, "udp", 20)
        with host.bypassed():
            for _ in range(16):
                asks(net.b, "udp", False, host.ip4, 2)
        print(*chosen(server), sep="\n")
    finally:
        for process in host.processes:
            process.stop()
        net.take_programs_off(host)
        host.run(["ethtool", "-L", host.dev, "combined", "4"])


def two_programs(net, env):
    """One of datagrams and one of connections, which have answered. The first has made the ring."""
    first = net.a.python(ECHO, True, ["udp", net.a.ip4], env=env)
    net.a.wait_bound(PORT, "udp")
    begins(net, "udp", False)
    second = net.a.python(ECHO, True, ["tcp", net.a.ip4], env=env)
    net.a.wait_bound(PORT, "tcp")
    for kind in ("udp", "tcp"):
        asks(net.b, kind, False, net.a.ip4, 2)
    return first, second


@pytest.mark.parametrize("mode", ["auto", "native"])
def test_a_second_process(net, mode):
    """It shares the queues (Linux 6.17 and newer)."""
    env = {**INFO, "VMA_XDP_MODE": mode}
    first, second = two_programs(net, env)
    said = refused(second)
    print(net.kind, *chosen(first), *chosen(second), sep="\n")
    if refused(first):  # which no second one changes
        assert said
    elif KERNEL >= (6, 17):
        assert not said
        with net.a.bypassed(), net.a.tcp_bypassed():
            for kind in ("udp", "tcp"):
                asks(net.b, kind, False, net.a.ip4, 8)


def fetched_by_threads(host):
    """Packets that threads have fetched from the driver themselves, ever."""
    with host.entered():
        names, values = [line.split() for line in open("/proc/thread-self/net/netstat") if line.startswith("TcpExt:")]
    return int(values[names.index("BusyPollRxPackets")])


@pytest.mark.parametrize("busy", [0, 64])
def test_who_looks_in_vain_runs_the_driver(net, busy):
    """VMA_XDP_BUSY_POLL, in the modes that it is for: a thread that spins fetches packets itself, and none is missing."""
    host = net.a
    server = host.python(ECHO, True, ["udp", host.ip4], env={**INFO, "VMA_XDP_BUSY_POLL": busy, "VMA_RX_POLL": -1})
    host.wait_bound(PORT, "udp")
    begins(net, "udp", False)
    print(net.kind, *chosen(server), sep="\n")
    before = fetched_by_threads(host)
    for _ in range(4):
        asks(net.b, "udp", False, host.ip4, 200)
    fetched = fetched_by_threads(host) - before
    print(f"{fetched} of 800 packets and more were fetched by the thread that waits for them")
    if not busy or not re.search(r"(native|zero-copy)[+]poll mode", server.text):
        assert not fetched
    elif net.kind.startswith("virtio"):  # igb does not say which of its poll routines a queue has
        assert fetched > 0


def test_a_second_process_and_an_mtu_for_which_a_buffer_is_too_small(net):
    """In zero-copy mode the first one has the queues for itself; the second one's log says what helps."""
    net.take_programs_off(net.a)
    ip("-n", net.a.name, "link", "set", net.a.dev, "mtu", "9000")
    try:
        settled(net)
        a_second_process_stays_with_the_kernel(net)
    finally:
        for process in net.a.processes:
            process.stop()
        net.take_programs_off(net.a)
        ip("-n", net.a.name, "link", "set", net.a.dev, "mtu", str(net.mtu))


def a_second_process_stays_with_the_kernel(net):
    first, second = two_programs(net, INFO)
    said = refused(second)
    print(net.kind, *chosen(first), *said, sep="\n")
    if not refused(first) and served(first) == "zero-copy":
        assert len(said) == 1 and "with VMA_XDP_MODE=native processes share the queues" in said[0], said


# Eight threads, each with a socket and so with a ring of its own.
RINGS = """
import socket, sys, threading
def serve(s):
    while True:
        d, a = s.recvfrom(65536)
        s.sendto(d, a)
for i in range(8):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind((sys.argv[1], 7100 + i))
    threading.Thread(target=serve, args=[s]).start()
print("there", flush=True)
"""


def test_several_rings_of_one_process(net):
    """With a small send ring, as VMA_SPEC=latency has it."""
    env = {**INFO, "VMA_RING_ALLOCATION_LOGIC_RX": 20, "VMA_RING_ALLOCATION_LOGIC_TX": 20, "VMA_TX_WRE": 256}
    server = net.a.python(RINGS, True, [net.a.ip4], env=env)
    server.wait_text("^there$")
    with contextlib.ExitStack() as close:
        peers = [close.enter_context(net.b.socket()) for _ in range(8)]
        for i, s in enumerate(peers):
            s.connect((net.a.ip4, 7100 + i))

            def served_now():
                """What comes while a ring is opened the driver may drop."""
                s.send(b"first")
                return select.select([s], [], [], 0.5)[0]

            wait_for(served_now, 20, "an answer")
            while select.select([s], [], [], 0.5)[0]:
                s.recv(100)
        for n in range(100):
            for s in peers:
                s.send(b"%d" % n)
            for s in peers:
                assert s.recv(100) == b"%d" % n
    print(net.kind, *chosen(server), sep="\n")


# --- what an administrator does meanwhile

def link_down_and_up(net, host):
    ip("-n", host.name, "link", "set", host.dev, "down")
    ip("-n", host.name, "link", "set", host.dev, "up")


def mtu(net, host):
    ip("-n", host.name, "link", "set", host.dev, "mtu", 1400)
    ip("-n", host.name, "link", "set", host.dev, "mtu", net.mtu)


def ethtool(host, *words):
    """False: the driver has refused it."""
    return host.run(["ethtool", words[0], host.dev, *words[1:]], check=False).wait() == 0


def feature(name):
    def change(net, host):
        shown = host.run(["ethtool", "-k", host.dev]).text
        long = {"rx": "rx-checksumming", "tx": "tx-checksumming", "gro": "generic-receive-offload", "gso": "generic-segmentation-offload",
                "tso": "tcp-segmentation-offload", "lro": "large-receive-offload"}[name]
        # "requested on": off as long as the card has no scatter-gather.
        state = re.search(rf"^{long}: (on|off)( \[(?:fixed|requested on)\])?$", shown, re.M)
        if state[2]:
            return
        for value in ("off", "on") if state[1] == "on" else ("on", "off"):
            ethtool(host, "-K", name, value)
    change.__name__ = name
    return change


def number_of_queues(net, host):
    shown = host.run(["ethtool", "-l", host.dev], check=False).text
    most = re.search(r"^Combined:\s+(\d+)$", shown, re.M)
    if most and int(most[1]) > 1:
        for n in (1, int(most[1])):
            ethtool(host, "-L", "combined", n)


def descriptors(net, host):
    now = [int(n) for n in re.findall(r"^RX:\s+(\d+)$", host.run(["ethtool", "-g", host.dev], check=False).text, re.M)]
    if now:
        for n in (now[1] // 2, now[1]):
            ethtool(host, "-G", "rx", n)


CHANGES = [link_down_and_up, mtu, *map(feature, ("gro", "gso", "tso", "lro", "rx", "tx")), number_of_queues, descriptors]


@pytest.mark.parametrize("change", CHANGES, ids=lambda c: c.__name__)
def test_a_connection_lives_through(net, tmp_path, change):
    """Of the library's at one end, while data goes both ways; a new one is served as well."""
    server = serves(net.a, "tcp", True, net.a.ip4)
    asks(net.b, "tcp", False, net.a.ip4, 1)
    client = net.b.python(ENDLESS, False, [net.a.ip4, tmp_path / "stop"])

    def flows():
        before = net.b.interface_packets()
        wait_for(lambda: all(now > then + 20 for now, then in zip(net.b.interface_packets(), before)), 60, "packets both ways")

    flows()
    change(net, net.a)
    settled(net)
    flows()
    (tmp_path / "stop").touch()
    client.wait_text("^whole$", 120)
    asks(net.b, "tcp", False, net.a.ip4, 2)
    print(net.kind, *chosen(server), sep="\n")


def test_the_driver_leaves_the_card_and_comes_back(wire):
    """
    The interface is another one then. A connection of the first ends (docs/limits.md), unless the kernel got it in time, with which it lives.
    The next one is served as the first was.
    """
    net, host = wire, wire.a
    settled(net)
    first = host.python(LASTING, True, [host.ip4], env=INFO)
    host.wait_bound(PORT, "tcp")
    with contextlib.closing(net.b.socket(kind=socket.SOCK_STREAM)) as c:
        c.connect((host.ip4, PORT))
        c.sendall(b"there")
        assert c.recv(100) == b"there"
        host.nic.unbind()
        wait_for(lambda: "\nended by" in first.text or net.a.run(["ss", "-Htn", f"sport = :{PORT}"]).text, 60, "the connection's end")
        host.nic.bind()
        net.plug(host)
        for address in (f"{host.ip4}/24", f"{host.ip6}/64"):
            ip("-n", host.name, "addr", "add", address, "dev", host.dev)
        ip("-n", host.name, "link", "set", host.dev, "up")
        settled(net)
        if "\nended by" in first.text:
            assert "\nended by ECONNABORTED\n" in first.text, first.text
        else:
            c.sendall(b"again")
            assert c.recv(100) == b"again"
    before = served(first)
    # The program itself goes on, and one that begins now is served as it was.
    asks(net.b, "tcp", False, host.ip4, 2)
    first.stop()
    second = serves(host, "udp", True, host.ip4)
    begins(net, "udp", False)
    asks(net.b, "udp", False, host.ip4, 2)
    assert served(second) == before
    print(net.kind, *chosen(second), sep="\n")
    for h in (net.a, net.b):
        h.close()
        h.processes.clear()


def test_another_program_stands_there_before_us(net, tmp_path):
    """It stays, which is said once; the kernel serves."""
    program = tmp_path / "foreign.o"
    source = '__attribute__((section("xdp"), used)) int passes(void *ctx) { return 2; }'  # XDP_PASS
    bpf_object(program, source, "-g")
    net.take_programs_off(net.a)
    ip("-n", net.a.name, "link", "set", net.a.dev, "xdpgeneric", "obj", program, "sec", "xdp")
    try:
        server = serves(net.a, "tcp", True, net.a.ip4)
        asks(net.b, "tcp", False, net.a.ip4, 8)
        assert len(refused(server)) == 1, server.text
        assert "prog/xdp" in ip("-n", net.a.name, "link", "show", net.a.dev)
    finally:
        ip("-n", net.a.name, "link", "set", net.a.dev, "xdpgeneric", "off")
    print(net.kind, *chosen(server), sep="\n")
