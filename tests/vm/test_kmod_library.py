# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The library over the kernel module."""

import hashlib
import itertools
import json
import pathlib
import subprocess
import random
import re
import resource
import select
import signal
import socket
import time

import pytest

from netem import BadLine
from netns import PATIENCE, ip, remove_namespace, wait_for
from vma_ko import SYSFS, insmod, rmmod, say, sums, unload

pytestmark = pytest.mark.usefixtures("vma_ko")

SERVER = """
import select, socket, sys
l = socket.create_server(("", 7400), backlog=4096)
# A listener is the library's from its first wait on.
select.select([l], [], [], 0)
print("ready", flush=True)
held = []
while True:
    s, _ = l.accept()
    s.sendall(b"hello")
    held.append(s)
"""


def connect(net, port, count):
    """Kernel clients of net.a, each of which has heard the server's greeting."""
    with net.a.entered():
        clients = [socket.socket() for _ in range(count)]
    for s in clients:
        s.settimeout(60)
        s.connect((net.b.ip4, port))
    for s in clients:
        assert s.recv(5) == b"hello"
    return clients


def refused(s):
    """The peer was reset; it has sent nothing to be told so."""
    with pytest.raises(ConnectionResetError):
        s.recv(1)


def test_the_peers_of_a_killed_process_are_reset(net):
    server = net.b.python(SERVER, True)
    server.wait_text("^ready$")
    with net.b.tcp_bypassed():
        clients = connect(net, 7400, 10)
        before = sums()
        assert before["conns"] == 10
        server.kill(signal.SIGKILL)
        for s in clients:
            refused(s)
    wait_for(lambda: sums()["resets_sent"] == before["resets_sent"] + 10, what=sums)
    assert sums()["conns"] == 0


LAZY = """
import select, socket, time
l = socket.create_server(("", 7400), backlog=64)
select.select([l], [], [], 0)
print("ready", flush=True)
s, _ = l.accept()
s.sendall(b"hello")
if input() == "close": l.close()
print("done", flush=True)
time.sleep(1000)
"""


def lazy(net, count, word):
    """A server with one connection of its own and others that wait; what it has read tells it what to do with these."""
    server = net.b.python(LAZY, True, stdin=subprocess.PIPE)
    server.wait_text("^ready$")
    with net.a.entered():
        clients = [socket.socket() for _ in range(count)]
    for s in clients:
        s.settimeout(60)
        s.connect((net.b.ip4, 7400))
    assert clients[0].recv(5) == b"hello"
    server.popen.stdin.write(word)
    server.popen.stdin.flush()
    server.wait_text("^done$")
    return server, clients


def test_peers_that_wait_to_be_accepted_are_reset_too(net):
    before = sums()["resets_sent"]
    server, clients = lazy(net, 10, b"wait\n")
    clients[5].send(b"to be read once it is accepted")
    # The last handshakes may be under way.
    wait_for(lambda: sums()["conns"] == 10, what=sums)
    server.kill(signal.SIGKILL)
    for s in clients:
        refused(s)
    wait_for(lambda: sums()["resets_sent"] == before + 10 and sums()["conns"] == 0, what=sums)


def test_a_listener_that_is_closed_leaves_nothing_but_what_was_accepted(net):
    before = sums()["resets_sent"]
    server, clients = lazy(net, 10, b"close\n")
    for s in clients[1:]:
        refused(s)
    wait_for(lambda: sums()["conns"] == 1, what=sums)
    assert sums()["resets_sent"] == before
    # The listener's socket vouches for it no more.
    server.kill(signal.SIGKILL)
    refused(clients[0])
    wait_for(lambda: sums()["resets_sent"] == before + 1 and sums()["conns"] == 0, what=sums)


@pytest.mark.parametrize("option, way", [("36, 7", "fwmark 7"), ("25, b'veth-b\\0'", "oif veth-b")], ids=["SO_MARK", "SO_BINDTODEVICE"])
def test_a_reset_goes_the_way_of_its_connection(net, option, way):
    """It is routed by the mark and the device that the listener has; nothing else leaves the host any more."""
    server = net.b.python(SERVER.replace('l = socket.create_server(("", 7400), backlog=4096)',
                                         f"l = socket.socket(); l.setsockopt(1, {option}); l.bind(('', 7400)); l.listen(100)"), True)
    server.wait_text("^ready$")
    clients = connect(net, 7400, 3)
    wait_for(lambda: sums()["conns"] == 3, what=sums)
    for rule in ["pref", 10, *way.split(), "lookup", "main"], ["pref", 20, "blackhole"]:
        ip("-n", net.b.name, "rule", "add", *rule)
    server.kill(signal.SIGKILL)
    for s in clients:
        refused(s)


CLIENT = """
import os, signal, socket, sys
c = socket.create_connection((sys.argv[1], 7401))
c.sendall(b"x" * 100000)
assert c.recv(2) == b"ok"
if sys.argv[2] == "close":
    c.close()
elif sys.argv[2] == "_exit":
    os._exit(0)
elif sys.argv[2] == "SIGTERM":
    os.kill(os.getpid(), signal.SIGTERM)
"""


@pytest.mark.parametrize("how", ["close", "exit", "_exit", "SIGTERM"])
def test_a_clean_end_resets_nobody(net, how):
    """The peer leaves its side open: it may go on sending, and hears of it then."""
    before = sums()
    l = net.a.socket(kind=socket.SOCK_STREAM)
    l.bind((net.a.ip4, 7401))
    l.listen()
    client = net.b.python(CLIENT, True, (net.a.ip4, how), env={"VMA_TRACELEVEL": "DEBUG"})
    s, _ = l.accept()
    s.settimeout(l.gettimeout())
    got = 0
    while got < 100000:
        got += len(s.recv(65536))
    s.sendall(b"ok")
    assert s.recv(1) == b""
    assert client.wait() == (-signal.SIGTERM if how == "SIGTERM" else 0), client.text
    assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    after = sums()
    assert after["conns"] == 0 and after["processes"] == 0
    assert after["conns_seen"] == before["conns_seen"] + 1
    assert after["resets_sent"] == before["resets_sent"] and after["resets_failed"] == before["resets_failed"]


RECEIVER = """
import hashlib, select, socket
l = socket.create_server(("0.0.0.0", 7402))
select.select([l], [], [], 0)
print("ready", flush=True)
s, _ = l.accept()
s.sendall(b"hello")
h = hashlib.sha256()
while d := s.recv(65536): h.update(d)
s.sendall(h.hexdigest().encode())
s.close()
"""


def test_fragments_arrive(library, tmp_path):
    """The router cuts what the kernel's client sends; without the module the first piece would end the connection."""
    line = BadLine(library, tmp_path)
    try:
        line.a.run(["sysctl", "-qw", "net.ipv4.ip_no_pmtu_disc=1"])
        ip("-n", line.router, "link", "set", "to-b", "mtu", "1000")
        server = line.b.python(RECEIVER, True)
        server.wait_text("^ready$")
        before, reassembled = sums(), line.b.counters()["IpReasmOKs"]
        s = line.a.socket(kind=socket.SOCK_STREAM)
        s.connect((line.b.ip4, 7402))
        assert s.recv(5) == b"hello"
        data = random.Random(7).randbytes(200_000)
        s.sendall(data)
        s.shutdown(socket.SHUT_WR)
        assert s.recv(100).decode() == hashlib.sha256(data).hexdigest()
        assert server.wait() == 0, server.text
        came = line.b.counters()["IpReasmOKs"] - reassembled
        assert came > 50
        assert sums()["fallback_packets"] - before["fallback_packets"] == came
        assert sums()["fallback_dropped"] == before["fallback_dropped"]
    finally:
        line.close()


IPV6_HOPOPTS = 54


def test_ipv6_packets_with_options_arrive(net):
    """The steering reads no extension headers: all that such a client sends reaches the kernel first."""
    server = net.b.python(RECEIVER.replace("0.0.0.0", "::").replace("create_server((", "create_server(family=10, address=("), True)
    server.wait_text("^ready$")
    before = sums()
    s = net.a.socket(socket.AF_INET6, socket.SOCK_STREAM)
    s.connect((net.b.ip6, 7402))
    assert s.recv(5) == b"hello"
    s.setsockopt(socket.IPPROTO_IPV6, IPV6_HOPOPTS, bytes((0, 0, 1, 4, 0, 0, 0, 0)))
    data = random.Random(8).randbytes(100_000)
    s.sendall(data)
    s.shutdown(socket.SHUT_WR)
    assert s.recv(100).decode() == hashlib.sha256(data).hexdigest()
    assert server.wait() == 0, server.text
    after = sums()
    assert after["fallback_packets"] > before["fallback_packets"] and after["fallback_dropped"] == before["fallback_dropped"]


def many(net, count):
    resource.setrlimit(resource.RLIMIT_NOFILE, (65536, 65536))
    server = net.b.python(SERVER, True)
    server.wait_text("^ready$")
    return server, connect(net, 7400, count)


def resets(clients, seconds):
    """Within so many seconds, if need be: (how many were reset, when the last was)."""
    waiting = select.poll()
    left = {s.fileno() for s in clients}
    for fd in left:
        waiting.register(fd, select.POLLIN)
    began = last = time.monotonic()
    while left and time.monotonic() < began + seconds:
        for fd, events in waiting.poll(1000 * (began + seconds - time.monotonic())):
            assert events & select.POLLERR, f"{events:x}"
            waiting.unregister(fd)
            left.discard(fd)
            last = time.monotonic()
    return len(clients) - len(left), last - began


def test_two_thousand_peers_of_a_killed_process_are_reset(net):
    server, clients = many(net, 2000)
    assert sums()["conns"] == 2000
    server.kill(signal.SIGKILL)
    n, took = resets(clients, 2 * PATIENCE)
    say(f"with vma.ko: {n} of 2,000 idle peers reset, the last of them {took:.3f} s after the SIGKILL")
    for s in clients:
        refused(s)
    wait_for(lambda: sums()["conns"] == 0, what=sums)


def test_without_the_module_they_learn_it_when_they_send(net):
    """The steering's way, for comparison: a packet whose owner is dead passes to the kernel, whose RST answers it."""
    rmmod()
    try:
        server, clients = many(net, 2000)
        server.kill(signal.SIGKILL)
        server.wait()
        n, _ = resets(clients, 2)
        assert n == 0
        for s in clients:
            s.send(b"?")
        heard, took = resets(clients, 2 * PATIENCE)
        say(f"without vma.ko: {n} of 2,000 idle peers reset within 2 s; {heard} after each had sent a byte, "
            f"the last of them {took:.3f} s after the last byte")
        for s in clients:
            refused(s)
    finally:
        insmod()


ECHO = """
import select, socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 7403))
select.select([s], [], [], 0)  # the first use opens the ring
print("ready", flush=True)
while True:
    d, a = s.recvfrom(65536)
    if d == b"end":
        sys.exit()
    s.sendto(d, a)
"""


def vma_stats(net, process):
    out = subprocess.run([net.library.vma_stats, "-p", str(process.pid), "--json", "-c", "1"], capture_output=True, text=True)
    assert out.returncode == 0 and "(kernel module)" in out.stderr, out.stderr
    return json.loads(out.stdout)


def steered(net, port):
    """How many flows of the port `bpftool map dump` shows."""
    pinned, = pathlib.Path("/sys/fs/bpf").glob(f"vma/*/{net.b.dev}/flows")
    out = subprocess.run(["bpftool", "-j", "map", "dump", "pinned", pinned], capture_output=True, text=True, check=True)
    return [f for f in json.loads(out.stdout) if "formatted" in f and f["formatted"]["key"]["local_port"] == port]


def test_bpftool_vma_stats_and_sysfs_agree_with_the_traffic(net):
    """One run; what each of the three says of it."""
    net.neighbours()
    server = net.b.python(ECHO, True, env={"VMA_STATS_FD_NUM": "10"})
    server.wait_text("^ready$")
    before = sums()
    mine = SYSFS / "process" / str(server.pid)
    c = net.a.socket()
    sizes = [1 + 13 * i for i in range(100)]
    for size in sizes:
        c.sendto(bytes(size), (net.b.ip4, 7403))
        assert len(c.recv(65536)) == size
    # Counters of rings are shown each 100 ms.
    wait_for(lambda: sums(mine / "stats")["ring_rx_packets"] == 100, what=(mine / "stats").read_text)
    seen, stats = vma_stats(net, server), sums(mine / "stats")
    assert not list(net.tmp.glob("vmastat.*"))
    udp, = [s for s in seen["sockets"] if s["proto"] == "udp" and s["local_port"] == 7403]
    for way in ("rx", "tx"):
        assert udp[way]["packets"] == stats[f"socket_{way}_packets"] == 100
        assert udp[way]["bytes"] == stats[f"socket_{way}_bytes"] == sum(sizes)
    ring, = seen["rings"]
    frames = sum(sizes) + 100 * 42
    assert ring["rx_packets"] == ring["tx_packets"] == stats["ring_rx_packets"] == stats["ring_tx_packets"] == 100
    assert ring["rx_bytes"] == ring["tx_bytes"] == stats["ring_rx_bytes"] == stats["ring_tx_bytes"] == frames
    line, = (mine / "sockets").read_text().splitlines()
    line = " ".join(line.split())
    assert f"fd {udp['fd']} proto udp" in line and ":7403 remote " in line and " rx_packets 100 " in line
    assert line.split()[-2:] == ["why", "-"]
    flow, = steered(net, 7403)
    assert flow["formatted"]["value"]["pid"] == server.pid and flow["formatted"]["value"]["fd"] == udp["fd"]
    assert flow["formatted"]["key"]["proto"] == socket.IPPROTO_UDP
    # The module has seen no other process.
    now = sums()
    for name in (f"{what}_{way}_{unit}" for what in ("socket", "ring") for way in ("rx", "tx") for unit in ("packets", "bytes")):
        assert now[name] == stats[name], name
    # A process that is over stays in the sums with what it had counted.
    c.sendto(b"end", (net.b.ip4, 7403))
    assert server.wait() == 0, server.text
    assert not mine.exists()
    after = sums()
    assert after["processes"] == 0 and after["processes_seen"] == before["processes_seen"]
    assert after["ring_rx_packets"] == before["ring_rx_packets"] + 101
    assert after["ring_tx_packets"] == before["ring_tx_packets"] + 100


COMES_AND_GOES = """
import socket, sys
def ping(n):
    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
        s = socket.socket(socket.AF_INET, kind)
        s.connect((sys.argv[1], 7407))
        for _ in range(n):
            s.send(b"x" * 100)
            left = 100
            while left: left -= len(s.recv(left))
        s.close()
for n in (1, 2, 3): ping(n)
print("closed", flush=True)
input()
"""
ECHO_BOTH = """
import socket, threading
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.bind(("", 7407))
l = socket.create_server(("", 7407))
def udp():
    while True: u.sendto(*u.recvfrom(1000))
def tcp(s):
    while d := s.recv(1000): s.sendall(d)
threading.Thread(target=udp, daemon=True).start()
print("ready", flush=True)
while True: threading.Thread(target=tcp, args=(l.accept()[0],), daemon=True).start()
"""


def test_what_closed_sockets_and_dead_processes_counted_stays_in_the_sums(net):
    net.a.python(ECHO_BOTH).wait_text("^ready$")
    net.neighbours()
    before = sums()

    def counted(path):
        after = sums(path)
        return {n: after[n] - before[n] if path != mine else after[n]
                for n in ("socket_rx_bytes", "socket_tx_bytes", "socket_rx_packets", "socket_tx_packets")}

    client = net.b.python(COMES_AND_GOES, True, (net.a.ip4,), stdin=subprocess.PIPE)
    mine = SYSFS / "process" / str(client.pid) / "stats"
    client.wait_text("^closed$")
    living = counted(mine)
    assert living["socket_rx_bytes"] == living["socket_tx_bytes"] == 1200 and living["socket_tx_packets"] == 12
    assert (SYSFS / "process" / str(client.pid) / "sockets").read_text() == ""
    assert counted(SYSFS / "stats") == living
    client.kill(signal.SIGKILL)
    client.wait()
    wait_for(lambda: sums()["processes"] == 0, what=sums)
    assert counted(SYSFS / "stats") == living


def test_vma_stats_writes_to_the_module(net):
    """-z and -l: the words that a tool writes, by sysfs."""
    server = net.b.python(ECHO, True)
    server.wait_text("^ready$")
    c = net.a.socket()
    c.sendto(b"1", (net.b.ip4, 7403))
    assert c.recv(9) == b"1"
    tool = [net.library.vma_stats, "-p", str(server.pid)]
    assert vma_stats(net, server)["sockets"][0]["rx"]["packets"] == 1
    subprocess.run([*tool, "-z", "-l", "debug"], check=True, stdout=subprocess.DEVNULL)
    assert vma_stats(net, server)["sockets"][0]["rx"]["packets"] == 0
    c.sendto(b"2", (net.b.ip4, 7403))
    assert c.recv(9) == b"2"
    assert vma_stats(net, server)["sockets"][0]["rx"]["packets"] == 1
    wait_for(lambda: vma_stats(net, server)["log_level"] == 5, what="the library sees the level")


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_the_umem_is_pinned_memory_of_the_modules(net, kind):
    """But with 0, ordinary pages."""
    server = net.b.python(ECHO, True, env={"VMA_MEM_ALLOC_TYPE": kind, "VMA_TRACELEVEL": "DEBUG"})
    server.wait_text("^ready$")
    c = net.a.socket()
    c.sendto(b"x" * 1000, (net.b.ip4, 7403))
    assert c.recv(2000) == b"x" * 1000
    assert ("of pinned memory from the kernel module" in server.text) == (kind > 0)
    assert sums()["regions"] == (kind > 0) and sums()["region_bytes"] >= (12 << 20 if kind else 0)
    server.kill(signal.SIGKILL)
    server.wait()
    wait_for(lambda: sums()["regions"] == 0, what=sums)


def test_a_namespace_that_ends_takes_its_registrations_along(net):
    server = net.b.python(SERVER, True)
    server.wait_text("^ready$")
    clients = connect(net, 7400, 10)
    assert sums()["conns"] == 10
    remove_namespace(net.b.name)
    server.wait()
    for s in clients:
        refused(s)
    wait_for(lambda: sums()["conns"] == 0 and sums()["processes"] == 0, what=sums)
    # Its interfaces go when nothing holds it any more, and with them their other ends.
    wait_for(lambda: net.a.dev not in ip("-n", net.a.name, "link"), 20, what="the end of the veth pair")


def huge_pages(count=None):
    """How many are free in the pool; count: how many there are to be."""
    if count is not None:
        pathlib.Path("/proc/sys/vm/nr_hugepages").write_text(str(count))
    return int(re.search(r"HugePages_Free: +(\d+)", pathlib.Path("/proc/meminfo").read_text()).group(1))


@pytest.mark.parametrize("kind", [0, 1, 2])
@pytest.mark.parametrize("pages", [0, 16])
def test_without_the_module_memory_is_of_the_pool_or_ordinary(net, kind, pages):
    rmmod()
    try:
        free = huge_pages(pages)
        assert free == pages
        server = net.b.python(ECHO, True, env={"VMA_MEM_ALLOC_TYPE": kind, "VMA_TRACELEVEL": "WARN"})
        server.wait_text("^ready$")
        c = net.a.socket()
        c.sendto(b"x" * 1000, (net.b.ip4, 7403))
        assert c.recv(2000) == b"x" * 1000
        assert (huge_pages() < free) == (pages > 0 and kind > 0)
        assert ("Not enough hugepage resources" in server.text) == (kind == 2 and pages == 0)
    finally:
        huge_pages(0)
        insmod()


FORKS = """
import ctypes, os, socket, sys
libc = ctypes.CDLL(None)
fork = {"fork": os.fork, "_Fork": libc._Fork, "clone": lambda: libc.syscall(56, 17, 0, 0, 0, 0)}[sys.argv[2]]
l = socket.create_server(("", 7404))
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.bind(("", 7404))
u.settimeout(0.01)
try: u.recv(1)
except TimeoutError: pass
for _ in range(3):
    pid = fork()
    if not pid:
        own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        own.sendto(b"child", (sys.argv[1], 7405))
        u.sendto(b"child", (sys.argv[1], 7405))
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
u.sendto(b"parent", (sys.argv[1], 7405))
"""


@pytest.mark.parametrize("how", ["fork", "_Fork", "clone"])
def test_forked_children_live_without_their_parents_pages(net, how):
    """Each counts in its own, and those of all are in the sums."""
    before = sums()
    with net.a.entered():
        r = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    r.settimeout(60)
    r.bind((net.a.ip4, 7405))
    net.b.run(["/usr/bin/python3", "-c", FORKS, net.a.ip4, how], True)
    assert sorted(r.recv(9) for _ in range(7)) == [b"child"] * 6 + [b"parent"]
    after = sums()
    assert after["processes"] == 0
    # What they send on the inherited socket is not counted once only the kernel serves it.
    assert 4 <= sum(after[n] - before[n] for n in ("socket_tx_packets", "socket_tx_os_packets")) <= 7


ECHOES = """
import socket, threading
def serve(s):
    try:
        while d := s.recv(65536): s.sendall(d)
    except ConnectionResetError:
        pass
l = socket.create_server(("", 7406))
print("ready", flush=True)
while True:
    threading.Thread(target=serve, args=(l.accept()[0],), daemon=True).start()
"""


def test_it_is_loaded_and_unloaded_200_times_under_load(net):
    """Programs that come, talk and are killed: some of them before it is there, some while it is to go."""
    net.a.python(ECHOES).wait_text("^ready$")
    load = net.b.popen([net.library.build / "tests/vm/kmod_load", net.library.path, net.a.ip4, 7406])
    refused = met = 0
    for n in range(200):
        if n:
            insmod()
        if n % 10 == 0:
            wait_for(lambda: sums()["processes"], what=sums)
        met += sums()["processes_seen"]
        for turn in itertools.count():
            if unload():
                break
            refused += 1
            if turn == 20:  # on a slow machine somebody would always have it
                load.kill(signal.SIGUSR1)
            time.sleep(0.01)
            assert load.alive(), load.text
        load.kill(signal.SIGUSR2)
    insmod()
    say(f"200 times loaded and unloaded: {met} processes met it, unloading was refused {refused} times")
    assert met >= 20 and refused > 0
    load.stop()


def test_why_the_kernel_sends_stands_in_the_module_s_text(net):
    code = "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b'x', ('%s', 7409)); print('sent', flush=True); input()"
    p = net.b.python(code % net.b.ip4, True, stdin=subprocess.PIPE)
    p.wait_text("^sent")
    line, = (SYSFS / "process" / str(p.pid) / "sockets").read_text().splitlines()
    assert line.split()[-2:] == ["why", "local"], line
