# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""VMA_XDP_MODE: how the steering program and the XSKs stand to the driver, and what is said where that cannot be."""

import contextlib
import json
import re
import socket
import subprocess

import pytest

from netns import KERNEL, ip, wait_for

ECHO = """
import socket
l = socket.create_server(("", 7500))
print("ready", flush=True)
while True:
    s, _ = l.accept()
    while d := s.recv(65536): s.sendall(d)
    s.close()
"""


def attached(host):
    """How a program is attached to the host's interface, in the words of ip: xdp (in the driver), xdpgeneric; None."""
    found = re.search(r" (xdp\w*) ", ip("-n", host.name, "link", "show", host.dev))
    return found and found.group(1)


def echoes(net, mode, until, port=7500, env=None):
    """An echo of ours in net.b with the mode, once it has said so: 200 KB come back."""
    net.neighbours()
    server = net.b.python(ECHO.replace("7500", str(port)), True, env={**({"VMA_XDP_MODE": mode} if mode else {}), **(env or {})})
    server.wait_text(until)
    data = bytes(range(256)) * 800
    # The first client may come before the rule; when it is answered the rule stands.
    with net.a.socket(kind=socket.SOCK_STREAM, timeout=20) as s:
        s.connect((net.b.ip4, port))
        s.sendall(b"x")
        assert s.recv(1) == b"x"
    with net.a.socket(kind=socket.SOCK_STREAM, timeout=20) as s:
        s.connect((net.b.ip4, port))
        s.sendall(data[:100])
        back = s.recv(100)
        s.sendall(data[100:])
        while len(back) < len(data):
            back += s.recv(65536)
    assert back == data
    return server


def shown(net, server):
    """The mode of its ring, as vma_stats has it, in words and in JSON."""
    line = next(x for x in net.b.stats(server, "--json", "-c", "1").splitlines() if x.startswith("{"))
    ring, = (r for r in json.loads(line)["rings"] if r["ifname"] == net.b.dev)
    assert re.search(rf"^Mode: +{re.escape(ring['mode'])}$", net.b.stats(server, "-v", "3", "-c", "1"), re.M)
    return ring["mode"]


@pytest.mark.multi_buffer
@pytest.mark.parametrize("mode", ["auto", None, "generic"])
def test_a_virtual_device_gets_the_generic_mode(net, mode):
    with net.b.tcp_bypassed(at_most=20, opens=1):
        server = echoes(net, mode, "generic mode: ")
    assert attached(net.b) == "xdpgeneric"
    assert shown(net, server) == "generic"
    if KERNEL >= (6, 17):  # a second process has a ring, too
        assert shown(net, echoes(net, mode, "^ready", 7501)) == "generic"
    why = "VMA_XDP_MODE says so" if mode == "generic" else "native mode of a virtual device costs the kernel's own flows more"
    assert f"{net.b.dev} (veth): generic mode: {why}" in server.text, server.text


def test_native_mode_where_it_is_asked_for(net):
    with net.b.tcp_bypassed(at_most=20, opens=1):
        server = echoes(net, "native", "native mode: ")
    assert attached(net.b) == "xdp"
    assert shown(net, server) == "native"
    assert f"{net.b.dev} (veth): native mode: VMA_XDP_MODE says so" in server.text, server.text


BUSY = {"VMA_XDP_BUSY_POLL": 64, "VMA_RX_POLL": -1}  # the reader spins for ever


def test_who_looks_in_vain_runs_the_driver(net, tmp_path):
    """VMA_XDP_BUSY_POLL: a thread that spins has the driver look by a system call of its own; what comes is whole, and the mode says so."""
    server = echoes(net, "native", "native[+]poll mode: ", env=BUSY)
    assert shown(net, server) == "native+poll"
    seen = tmp_path / "strace"
    strace = subprocess.Popen(["strace", "-e", "trace=recvfrom", "-o", seen, "-p", str(server.pid)], stderr=subprocess.PIPE)
    with strace.stderr:
        try:
            assert b"attached" in strace.stderr.readline()
            looks = wait_for(lambda: len(re.findall(r"^recvfrom\(\d+, NULL, 0, MSG_DONTWAIT, NULL, NULL\) = 0$", seen.read_text(), re.M)) // 100,
                             20, "a hundred looks")
        finally:
            strace.terminate()
            strace.wait()
    print(f"at least {looks * 100} looks")


def test_there_is_no_driver_to_run(net):
    """In generic mode: one line says so, and all is as without."""
    server = echoes(net, "generic", "generic mode: ", env=BUSY)
    assert shown(net, server) == "generic"
    assert server.text.count(f"{net.b.dev}: VMA_XDP_BUSY_POLL=64 has no effect: it is for native and zero-copy mode") == 1, server.text


def test_zero_copy_that_the_driver_does_not_have(net):
    """One line, and the kernel serves."""
    server = echoes(net, "zerocopy", "no zero-copy")
    assert not attached(net.b)
    lines = [line for line in server.text.splitlines() if "ring" in line.lower() and net.b.dev in line]
    assert len(lines) == 1 and "driver veth has no zero-copy (VMA_XDP_MODE=zerocopy): sockets stay with the kernel" in lines[0], server.text
    assert net.b.counters()["TcpPassiveOpens"] >= 1


def test_native_mode_that_the_driver_does_not_have(net, tmp_path):
    """A bridge has none: generic mode is not taken in its place."""
    ip("-n", net.b.name, "link", "add", "br0", "type", "bridge")
    ip("-n", net.b.name, "addr", "flush", "dev", net.b.dev)
    ip("-n", net.b.name, "link", "set", net.b.dev, "master", "br0")
    ip("-n", net.b.name, "addr", "add", f"{net.b.ip4}/24", "dev", "br0")
    ip("-n", net.b.name, "link", "set", "br0", "up")
    server = net.b.python(ECHO, True, env={"VMA_XDP_MODE": "native"})
    server.wait_text("^ready")

    def answers():
        with contextlib.suppress(OSError), net.a.socket(kind=socket.SOCK_STREAM, timeout=2) as s:
            s.connect((net.b.ip4, 7500))
            s.sendall(b"x")
            return s.recv(10) == b"x"

    server.wait_text("br0: cannot attach the steering program")
    wait_for(answers, 20, "an echo")
    assert "generic mode is tried" not in server.text, server.text
