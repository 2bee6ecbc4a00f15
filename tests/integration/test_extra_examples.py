# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""docs/examples: each compiles without a warning, has at most 120 lines, and does across two namespaces what it says."""

import re
import socket
import subprocess

import pytest

from netns import ROOT, made_once, wait_for

EXAMPLES = ROOT / "docs" / "examples"


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    def compiled(out):
        for source in EXAMPLES.glob("*.c"):
            subprocess.run(["gcc", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}/include", "-o", out / source.stem, source],
                           check=True)
    return made_once(tmp_path_factory, "examples", compiled)


def test_examples_are_short_and_each_is_tried_here():
    for source in EXAMPLES.glob("*.c"):
        assert len(source.read_text().splitlines()) <= 120, source
        assert f'"{source.stem}"' in (ROOT / "tests/integration/test_extra_examples.py").read_text(), source


def ready(process):
    wait_for(lambda: "ready" in process.text, what=process)
    return process


def sender(net, code):
    """Python with a kernel socket in net.b; ME and PEER are the addresses."""
    return net.b.run(["/usr/bin/python3", "-c",
                      f"import socket; PEER = ({net.a.ip4!r}, 7000); u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n{code}"])


def test_callback(net, programs):
    p = ready(net.a.popen([programs / "callback", net.a.ip4, "7000", "100"], preload=True))
    sender(net, "for i in range(9): u.sendto(b'%s number %d' % (b'keep' if i % 3 == 0 else b'drop', i), PEER)\nu.sendto(b'stop', PEER)")
    assert p.popen.wait(20) == 0, p.text
    print(p.text)
    assert "10 packets, 121 bytes" in p.text
    assert re.findall(r"kept: (.*)", p.text) == [f"keep number {i}" for i in (0, 3, 6)]


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
def test_zcopy(net, programs, protocol):
    p = ready(net.a.popen([programs / "zcopy", protocol, net.a.ip4, "7000"], preload=True))
    if protocol == "udp":
        sender(net, "for i in range(50): u.sendto(bytes([i]) * 1400, PEER)\nu.sendto(b'', PEER)")
        expected = (50 * 1400, sum(range(50)) * 1400)
    else:
        sender(net, "c = socket.create_connection(PEER); c.sendall(bytes(range(256)) * 2000); c.close()")
        expected = (512000, sum(range(256)) * 2000)
    assert p.popen.wait(20) == 0, p.text
    print(p.text)
    n, total, copied = map(int, re.search(r"(\d+) bytes, sum (\d+), (\d+) copied", p.text).groups())
    assert (n, total) == expected
    assert protocol == "tcp" or copied == 0


def test_xtreme(net, programs):
    p = ready(net.a.popen([programs / "xtreme", net.a.ip4, "7000"], preload=True, env={"VMA_SOCKETXTREME": "1"}))
    sender(net, """
import threading
u.settimeout(10)
for i in range(20):
    u.sendto(b'%d' % i * 300, PEER)
    assert u.recv(2000) == b'%d' % i * 300
c = [socket.create_connection(PEER) for _ in range(5)]
for x in c: x.settimeout(10)
for i, x in enumerate(c):
    data = bytes([i]) * 200000
    t = threading.Thread(target=lambda: (x.sendall(data), x.shutdown(socket.SHUT_WR))); t.start()
    got = b''
    while len(got) < len(data): got += x.recv(100000)
    t.join()
    assert got == data and x.recv(1) == b''
u.sendto(b'stop', PEER)
""")
    assert p.popen.wait(20) == 0, p.text
    print(p.text)
    assert re.search(r"\d+ packets, 5 connections, 5 ends", p.text)


def test_rings(net, programs):
    net.neighbours(v6=False)
    p = ready(net.a.popen([programs / "rings", net.a.ip4, "7000", net.b.ip4], preload=True))
    sender(net, f"u.bind(({net.b.ip4!r}, 7000)); u.sendto(b'wake up', PEER)")
    assert p.popen.wait(20) == 0, p.text
    print(p.text)
    receives, sends = re.search(r"1 of 1 rings: receives by (\d+), sends by (\d+)", p.text).groups()
    assert receives == sends
    header = bytes.fromhex(re.search(r"header of 42 bytes: (\w+)", p.text)[1])
    assert header[26:38] == socket.inet_aton(net.a.ip4) + socket.inet_aton(net.b.ip4) + (7000).to_bytes(2, "big") * 2
    said = dict(re.findall(r"^(\w+_ring|get_ring_direct_descriptors): (.*)$", p.text, re.M))
    assert set(said) == {"vma_modify_ring", "get_ring_direct_descriptors", "register_memory_on_ring", "deregister_memory_on_ring"}
    assert set(said.values()) == {"Operation not supported"}  # of AF_XDP
    assert "received: wake up" in p.text


def test_control(net, programs):
    p = ready(net.a.popen([programs / "control", net.a.ip4, "7000"], preload=True))
    before = net.a.counters()["UdpInDatagrams"]
    sender(net, "for port in (7000, 7001, 7002): u.sendto(b'to %d' % port, (PEER[0], port))")
    assert p.popen.wait(20) == 0, p.text
    print(p.text)
    assert re.findall(r"^(\d+): (.*)$", p.text, re.M) == [("7000", "offloaded"), ("7001", "the kernel's"), ("7002", "the kernel's")]
    assert re.findall(r"^(\d+) received: (.*)$", p.text, re.M) == [(str(i), f"to {i}") for i in (7000, 7001, 7002)]
    assert net.a.counters()["UdpInDatagrams"] - before == 2
    assert p.text.count("STATISTICS") == 1


def market(net, programs, **how):
    """Who brings the prices, and the time from a price to its order in microseconds; an exchange in net.b has had the orders."""
    exchange = net.b.popen(["/usr/bin/python3", "-uc", f"""
import socket
l = socket.create_server(({net.b.ip4!r}, 7001)); print("listening")
c, _ = l.accept(); got = b''
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton({net.b.ip4!r}))
c.settimeout(.2); price = 0
while got.count(b'\\n') < 100:
    for _ in range(10):
        u.sendto(b'%d' % (price % 200), ('239.1.1.1', 7000)); price += 1
    try: got += c.recv(10000)
    except TimeoutError: pass
print(got.count(b'buy at '), 'orders', all(int(x.split()[-1]) < 100 for x in got.splitlines()))
"""])
    wait_for(lambda: "listening" in exchange.text)
    p = net.a.popen([programs / "market", "239.1.1.1", "7000", net.a.ip4, net.b.ip4, "7001", "100"], **how)
    assert p.popen.wait(40) == 0, p.text
    assert exchange.popen.wait(20) == 0, exchange.text
    print(p.text, exchange.text)
    assert "100 orders True" in exchange.text
    who, us = re.search(r"^(\w+): 100 orders, tick to trade (\d+\.\d) us$", p.text, re.M).groups()
    return who, float(us)


def test_market_on_the_library_and_on_the_kernel_s_sockets(net, programs):
    ours, us = market(net, programs, preload=True)
    kernels, kernel_us = market(net, programs)
    print(f"tick to trade: {us} us, on the kernel's sockets {kernel_us} us")
    assert (ours, kernels) == ("libvma", "kernel")
