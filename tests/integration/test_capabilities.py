# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A service of an ordinary user with ambient capabilities, as systemd starts it: which it needs, and that it leaves nothing.

Root has CAP_SYS_ADMIN, with which a program that another process left on the interface can be found and removed. Such a
service has not: what it attaches must go with it, however it ends.
"""

import re
import signal

import pytest

from netns import PYTHON, ip, python_argv, wait_for

NEEDED = ["net_admin", "net_raw", "bpf", "perfmon", "ipc_lock"]
ECHO = """
import os, socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("10.77.0.1", 7000))
s.settimeout(20)
print("ready", os.getuid())
while True:
    data, peer = s.recvfrom(100)
    s.sendto(data, peer)
    if data == b"end": break
"""
pytestmark = pytest.mark.no_sanitize  # the user cannot write where a sanitizer reports


def service(net, capabilities, env=None):
    """The program as user nobody, with these and no others."""
    words = ",".join(f"+{c}" for c in capabilities)
    p = net.a.popen(["prlimit", "--memlock=8388608", "setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups",
                     "--inh-caps", words, "--ambient-caps", words, *python_argv(ECHO)], preload=True, env=env)
    p.wait_text("^ready 65534")
    return p


def offloaded(net, word=b"question"):
    """An answer comes, and the kernel has seen neither."""
    before = net.a.counters()["UdpInDatagrams"]
    with net.b.socket() as peer:
        peer.sendto(word, (net.a.ip4, 7000))
        assert peer.recv(100) == word
    return net.a.counters()["UdpInDatagrams"] == before


def attached(net):
    return "xdp" in ip("-n", net.a.name, "link", "show", net.a.dev)


@pytest.mark.parametrize("end", ["end", "SIGTERM", "SIGKILL"])
def test_a_service_starts_three_times(net, end):
    net.neighbours()
    for turn in range(3):
        p = service(net, NEEDED)
        wait_for(lambda: offloaded(net), what=f"start {turn + 1} to be offloaded:\n{p.text}")
        assert attached(net)
        if end == "end":
            offloaded(net, b"end")
        else:
            p.kill(getattr(signal, end))
        p.wait()
        wait_for(lambda: not attached(net), what=f"the program off the interface after start {turn + 1}")
    print(f"{end}: three starts, each offloaded, nothing left")


@pytest.mark.parametrize("missing", NEEDED)
def test_the_missing_capability_is_named(net, missing):
    net.neighbours()
    p = service(net, [c for c in NEEDED if c != missing])
    assert not offloaded(net)
    assert re.search(rf"WARNING: .*CAP_{missing.upper()}\b", p.text), p.text
    others = [c for c in NEEDED if c != missing and f"CAP_{c.upper()}" in p.text]
    assert not others, f"named though it is there: {others}:\n{p.text}"
    offloaded(net, b"end")
    p.wait()
    assert not attached(net)


def test_who_keeps_cap_net_admin_alone_detaches(net):
    """Attached as root; what is left at the end is enough for netlink."""
    net.neighbours()
    net.a.run([PYTHON, "-c", """
import ctypes, os, socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("10.77.0.1", 7000))
s.settimeout(0.05)
try: s.recv(10)
except TimeoutError: pass
assert "xdp" in os.popen("ip link show veth-a").read()
# SYS_capset of this process: CAP_NET_ADMIN (12) alone.
data = struct.pack("IIIIII", 1 << 12, 1 << 12, 0, 0, 0, 0)
assert ctypes.CDLL(None).capset(struct.pack("Ii", 0x20080522, 0), data) == 0
"""], preload=True)
    assert not attached(net)
    # Below `ip netns exec` /proc/1/root leads to the host's bpffs, where it does not come without capabilities: what it has pinned
    # is the next owner's to remove.
    net.a.run([PYTHON, "-c", "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('10.77.0.1', 7000)); "
               "s.setblocking(False)\ntry: s.recv(10)\nexcept BlockingIOError: pass"], preload=True)
