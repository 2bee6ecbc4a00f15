# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The interface gets more receive queues while a program is served (`ethtool -L`). Nobody of ours listens on them: what comes there is the kernel's.

    net.a  a program that echoes [ veth-a, 1 then 4 queues ] ---- [ veth-b, 4 queues ]  kernel sockets of the test  net.b
"""

import json
import select
import socket
import subprocess
import threading

import pytest

from netns import ip, wait_for
from test_guard import has_link
from test_members import ECHO

def resets(host):
    return host.counters()["TcpOutRsts"]


def echoes(c, data):
    """Whole, in turn."""
    sender = threading.Thread(target=c.sendall, args=(data,), daemon=True)
    sender.start()
    back = b""
    while len(back) < len(data):
        assert (got := c.recv(65536)), f"the end after {len(back)} of {len(data)}"
        back += got
    sender.join()
    assert back == data


@pytest.mark.net(queues=4)
def test_connections_and_datagrams_go_on(net):
    at = (net.a.ip4, 7000)
    net.a.run(["ethtool", "-L", net.a.dev, "rx", "1", "tx", "1"])
    server = net.a.python(ECHO, True, [net.a.ip4, 7000])
    server.wait_text("^ready$")
    net.neighbours(v6=False)

    def connected():
        c = net.b.socket(kind=socket.SOCK_STREAM, timeout=20)
        c.connect(at)
        echoes(c, b"there")
        return c

    net.a.wait_steered(7000, "tcp", 20)
    before = [connected() for _ in range(16)]
    with net.a.tcp_bypassed():
        for c in before:
            echoes(c, b"and back" * 1000)
    wait_for(lambda: has_link(server), what="the guard")
    begun = resets(net.a), resets(net.b)
    net.a.run(["ethtool", "-L", net.a.dev, "rx", "4", "tx", "4"])
    for n in range(3):
        for c in before:
            echoes(c, b"%d" % n * 5000)
    after = [connected() for _ in range(32)]
    for c in before + after:
        echoes(c, b"all of them" * 1000)
    for n in range(32):
        with net.b.socket() as u:
            u.sendto(b"%d" % n, at)
            assert select.select([u], [], [], 5)[0], n
            assert u.recv(100) == b"%d" % n
    assert (resets(net.a), resets(net.b)) == begun
    for c in before + after:
        c.close()


CLIENT = """
import socket, sys
def connected():
    c = socket.create_connection((sys.argv[1], 7001), 60)
    c.settimeout(60)
    return c
def echoes(c):
    c.sendall(b"there and back" * 1000)
    n = 0
    while n < 14000: n += len(c.recv(65536))
first = connected()
echoes(first)
print("first", flush=True)
sys.stdin.readline()
all = [first, *(connected() for _ in range(16))]
for c in all * 3: echoes(c)
print("whole", flush=True)
sys.stdin.readline()
"""


@pytest.mark.net(queues=4)
def test_a_client_connects(net):
    """The kernel's sockets do it from then on: an answer on a new queue would be held back, and each try would take a second."""
    net.a.run(["ethtool", "-L", net.a.dev, "rx", "1", "tx", "1"])
    net.neighbours(v6=False)
    server = net.b.python(ECHO, False, [net.b.ip4, 7001])
    server.wait_text("^ready$")
    client = net.a.python(CLIENT, True, [net.b.ip4], stdin=subprocess.PIPE)
    client.wait_text("^first$")
    wait_for(lambda: has_link(client), what="the guard")
    begun = resets(net.a), resets(net.b)
    net.a.run(["ethtool", "-L", net.a.dev, "rx", "4", "tx", "4"])
    client.wait_text("has 4 receive queues now, and this program listens on 1", 20)
    by_kernel = net.a.counters()["TcpActiveOpens"]
    client.popen.stdin.write(b"\n")
    client.popen.stdin.flush()
    client.wait_text("^whole$", 60)
    assert net.a.counters()["TcpActiveOpens"] == by_kernel + 16
    stats = subprocess.run([net.library.vma_stats, "-k", net.tmp, "-p", str(client.pid), "--json", "-c", "1"],
                           capture_output=True, text=True, check=True).stdout
    reasons = [s["why"].get("tx", {}).get("reason") for s in json.loads(stats.splitlines()[-1])["sockets"]]
    assert reasons.count("queues") == 16, reasons
    assert (resets(net.a), resets(net.b)) == begun


@pytest.mark.net(queues=4)
def test_an_interface_whose_driver_tells_no_queues(net):
    """As a bond's: frames keep the queue that they had below it. Here it is a bridge, which is made with several."""
    host = net.a
    ip("-n", host.name, "link", "add", "br0", "numrxqueues", "4", "type", "bridge")
    ip("-n", host.name, "addr", "flush", "dev", host.dev)
    ip("-n", host.name, "link", "set", host.dev, "master", "br0")
    ip("-n", host.name, "addr", "add", f"{host.ip4}/24", "dev", "br0")
    ip("-n", host.name, "link", "set", "br0", "address", "02:00:00:00:00:0a", "up")
    ip("-n", net.b.name, "neigh", "replace", host.ip4, "lladdr", "02:00:00:00:00:0a", "dev", net.b.dev, "nud", "permanent")
    wait_for(lambda: " state UP " in ip("-n", host.name, "link", "show", "br0"), 20, "the bridge up")
    ip("-n", host.name, "neigh", "replace", net.b.ip4, "lladdr", net.b.mac(), "dev", "br0", "nud", "permanent")
    server = host.python(ECHO, True, [host.ip4, 7000])
    server.wait_text("^ready$")
    host.wait_steered(7000, "tcp", 20)
    with host.tcp_bypassed():
        for _ in range(32):
            with net.b.socket(kind=socket.SOCK_STREAM, timeout=20) as c:
                c.connect((host.ip4, 7000))
                echoes(c, b"there and back" * 100)
    server.stop()
