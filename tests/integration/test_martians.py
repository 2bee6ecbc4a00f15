# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Sources that a packet from outside cannot have: the kernel drops them, so nobody on the wire can pose as this host.

Frames of every kind of source go to every kind of destination under several settings of the host; what the program gets
must be what it gets with kernel sockets. Which those are, the kernel's tables say, here as in the library.
"""

import contextlib
import logging
import socket
import struct

import pytest

from differential import App
from netns import ip, wait_for

logging.getLogger("scapy").setLevel(logging.ERROR)
from scapy.all import Ether, IP, IPv6, Raw, TCP, UDP  # noqa: E402

GROUP, GROUP6 = "224.1.1.7", "ff15::77"
V4 = ["10.77.0.2", "127.0.0.1", "127.9.9.9", "10.77.0.1", "0.0.0.0", "0.1.2.3", "255.255.255.255", "10.77.0.255", "10.77.0.0",
      "10.77.0.77", "224.0.0.1", "239.255.0.1", "240.0.0.1", "192.0.2.7", "198.51.100.9", "203.0.113.5", "10.88.0.1", "10.88.0.2",
      "10.88.0.255"]
V6 = ["fd77::2", "::1", "::", "ff02::1", "ff15::77", "fd77::1", "::ffff:10.77.0.2", "::ffff:127.0.0.1", "::10.77.0.2", "2001:db8::7",
      "fe80::77", "fd88::1", "fd88::2"]
TO4 = ["10.77.0.1", "10.77.0.255", "255.255.255.255", GROUP]
TO6 = ["fd77::1", GROUP6, "ff02::1"]


def sysctl(host, **values):
    host.run(["sysctl", "-qw", *[f"net.ipv4.conf.{k.replace('__', '.')}={v}" for k, v in values.items()]])


def both(host, **values):
    """For all interfaces and for this one: of some settings the larger counts, of others both do."""
    for scope in ("all", host.dev):
        sysctl(host, **{f"{scope}__{k}": v for k, v in values.items()})


SETTINGS = {
    "nothing set": lambda h: None,
    "rp_filter loose": lambda h: both(h, rp_filter=2),
    "rp_filter strict, default route": lambda h: (both(h, rp_filter=1), ip("-n", h.name, "route", "add", "default", "via", "10.77.0.2")),
    "accept_local, rp_filter strict": lambda h: both(h, accept_local=1, rp_filter=1),
    "route_localnet": lambda h: both(h, route_localnet=1),
    "a local prefix": lambda h: ip("-n", h.name, "route", "add", "local", "192.0.2.0/24", "dev", "lo"),
    "a rule": lambda h: ip("-n", h.name, "rule", "add", "to", "192.0.2.0/24", "prohibit"),
}


class Wire:
    """Raw frames from net.b's interface to net.a's."""

    def __init__(self, net):
        with net.b.entered():
            self.raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
            self.raw.bind((net.b.dev, 0))
        self.src, self.dst = (ip("-n", h.name, "-br", "link", "show", h.dev).split()[2] for h in (net.b, net.a))

    def eth(self, to):
        if to in (GROUP, GROUP6, "ff02::1"):
            mac = {GROUP: "01:00:5e:01:01:07", GROUP6: "33:33:00:00:00:77"}.get(to, "33:33:00:00:00:01")
        else:
            mac = "ff:ff:ff:ff:ff:ff" if to.endswith("255") else self.dst
        return Ether(src=self.src, dst=mac)

    def datagram(self, source, to, text=None):
        layer = IPv6 if ":" in to else IP
        data = Raw((text or f"{source} to {to}").encode())
        self.raw.send(bytes(self.eth(to) / layer(src=source, dst=to) / UDP(sport=7001, dport=7000) / data))

    def syn(self, source, to, port, mac=None):
        eth = self.eth(to)
        if mac:
            eth.dst = mac
        self.raw.send(bytes(eth / IP(src=source, dst=to) / TCP(sport=port, dport=7000, flags="S", seq=1000)))

    def answered(self, fence):
        """(address, port) of every SYN-ACK that came until that of the port `fence`."""
        seen = set()
        while (self.fence, fence) not in seen:
            frame = self.raw.recv(2048)
            if frame[12:14] == b"\x08\x00" and frame[23] == 6 and frame[47] & 0x12 == 0x12:
                seen.add((socket.inet_ntoa(frame[30:34]), struct.unpack(">H", frame[36:38])[0]))
        return seen

    def close(self):
        self.raw.close()


@contextlib.contextmanager
def wire(net):
    w = Wire(net)
    w.raw.settimeout(10)
    w.fence = net.b.ip4
    yield w
    w.close()


def another_interface(host):
    """A second network, on which no frame comes, and a prefix that nobody can be at."""
    ip("-n", host.name, "link", "add", "other", "type", "veth", "peer", "name", "nobody")
    ip("-n", host.name, "addr", "add", "10.88.0.1/24", "dev", "other")
    ip("-n", host.name, "addr", "add", "fd88::1/64", "dev", "other", "nodad")
    for end in ("other", "nobody"):
        ip("-n", host.name, "link", "set", end, "up")
    ip("-n", host.name, "route", "add", "203.0.113.0/24", "via", "10.88.0.2")
    ip("-n", host.name, "route", "add", "blackhole", "198.51.100.0/24")
    # As every distribution has it or not: the test sets what it needs.
    both(host, rp_filter=0)
    sysctl(host, default__rp_filter=0, other__rp_filter=0)


def delivered(net, preload, family):
    """{"source to destination"} that the program has received, by the library without the kernel's help."""
    with App(net.a, preload, family) as app, wire(net) as w:
        app.do("s = udp(7000, ANY)")
        if family == "4":
            app.do(f"s.setsockopt(0, socket.IP_ADD_MEMBERSHIP, socket.inet_aton({GROUP!r}) + socket.inet_aton(ME))")
        else:
            app.do(f"s.setsockopt(41, socket.IPV6_JOIN_GROUP, socket.inet_pton(socket.AF_INET6, {GROUP6!r}) + "
                   "struct.pack('I', socket.if_nametoindex(DEV)))")
        got = fence(app, w, app.at(7000)[0])
        for to in TO4 if family == "4" else TO6:
            # What goes to all hosts, a socket of any address has from the kernel.
            ours = preload and not to.endswith("255") and to != "ff02::1"
            with net.a.bypassed() if ours else contextlib.nullcontext():
                for source in V4 if family == "4" else V6:
                    w.datagram(source, to)
                got |= fence(app, w, to)
        return got


def fence(app, w, to):
    """What the socket had until a good datagram came that was sent now, to the same destination: by the same way."""
    w.datagram(app.other, to, "next")
    got = set()
    while "next" not in got:
        got.add(app.do("s.recv(100)").decode())
    return got - {"next"}


def delivered_alike(net, family, setting=lambda host: None):
    """How many the kernel delivers; the library delivers the same."""
    another_interface(net.a)
    net.neighbours()
    setting(net.a)
    kernel = delivered(net, False, family)
    library = delivered(net, True, family)
    assert library == kernel, f"only the library: {sorted(library - kernel)}; only the kernel: {sorted(kernel - library)}"
    return len(kernel)


@pytest.mark.parametrize("setting", SETTINGS)
def test_martians_v4(net, setting):
    print(f"{setting}: of {len(V4) * len(TO4)} the kernel delivers {delivered_alike(net, '4', SETTINGS[setting])}")


def test_martians_v6(net):
    print(f"of {len(V6) * len(TO6)} the kernel delivers {delivered_alike(net, '6')}")


def test_a_setting_changes_while_the_program_runs(net):
    """What was decided about a source is decided again."""
    another_interface(net.a)
    net.neighbours()
    with App(net.a, True, "4") as app, wire(net) as w:
        app.do("s = udp(7000, ANY)")

        def comes(source):
            w.datagram(source, net.a.ip4)
            return f"{source} to {net.a.ip4}" in fence(app, w, net.a.ip4)

        assert comes("192.0.2.7") and not comes("10.88.0.1")
        both(net.a, rp_filter=1)
        wait_for(lambda: not comes("192.0.2.7"), what="rp_filter=1 to be noticed")
        both(net.a, rp_filter=0)
        wait_for(lambda: comes("192.0.2.7"), what="rp_filter=0 to be noticed")
        both(net.a, accept_local=1)
        wait_for(lambda: comes("10.88.0.1"), what="accept_local=1 to be noticed")
        ip("-n", net.a.name, "addr", "add", "192.0.2.7/32", "dev", "other")
        both(net.a, accept_local=0)
        wait_for(lambda: not comes("192.0.2.7"), what="the source to be noticed as this host's own address")


@pytest.mark.parametrize("setting", ["nothing set", "rp_filter strict, default route"])
def test_martians_open_no_connection(net, setting):
    """A SYN from such a source, and one to a broadcast or multicast MAC, is not answered."""
    another_interface(net.a)
    net.neighbours()
    SETTINGS[setting](net.a)
    seen = []
    for preload in (False, True):
        with App(net.a, preload, "4") as app, wire(net) as w:
            app.do("s = socket.create_server((ANY, 7000), reuse_port=True); s.setblocking(False)")
            app.do("await_ready(s, timeout=0.01)")
            for i, source in enumerate(V4):
                if source in ("10.77.0.255", "10.88.0.255"):
                    continue  # the kernel answers to a broadcast address, which nobody can want
                w.syn(source, net.a.ip4, 8000 + i)
            w.syn(w.fence, net.a.ip4, 8800, "ff:ff:ff:ff:ff:ff")
            w.syn(w.fence, net.a.ip4, 8801, "01:00:5e:01:01:07")
            w.syn(w.fence, "10.77.0.255", 8802)
            w.syn(w.fence, net.a.ip4, 8900)
            seen.append(w.answered(8900))
    print(f"{setting}: the kernel answers {sorted(seen[0])}")
    assert seen[1] == seen[0], f"only the library: {sorted(seen[1] - seen[0])}; only the kernel: {sorted(seen[0] - seen[1])}"
