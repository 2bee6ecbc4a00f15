# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Frames that no good kernel would send: what the application gets of each is what the kernel would have given it.

Sources that no good host would have are in test_martians.py.
"""

import logging
import socket
import struct

import pytest

from differential import App, differential
from netns import wait_for

logging.getLogger("scapy").setLevel(logging.ERROR)
from scapy.all import (Dot1Q, Ether, IP, IPOption, IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment,  # noqa: E402
                       IPv6ExtHdrHopByHop, PadN, Raw, UDP, fragment, fragment6)


class Wire:
    """Frames from net.b's interface to net.a's."""

    def __init__(self, net):
        with net.b.entered():
            self.raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            self.raw.bind((net.b.dev, 0))
        self.net = net
        self.src, self.dst = (net.a.run(["ip", "netns", "exec", h.name, "cat", f"/sys/class/net/{h.dev}/address"]).text.strip()
                              for h in (net.b, net.a))

    def eth(self, **more):
        return Ether(**{"src": self.src, "dst": self.dst, **more})

    def send(self, frame):
        self.raw.send(bytes(frame))

    def close(self):
        self.raw.close()


def v4_frames(w):
    ip, udp = {"src": w.net.b.ip4, "dst": w.net.a.ip4}, {"sport": 7001, "dport": 7000}
    e = w.eth()

    def good(data=b"good", eth=e, ipx={}, udpx={}):
        return eth / IP(**{**ip, **ipx}) / UDP(**{**udp, **udpx}) / Raw(data)

    def patched(offset, value, data=b"patched!"):
        b = bytearray(bytes(good(data)))
        b[offset:offset + len(value)] = value
        return Raw(bytes(b))
    yield "good", good()
    yield "empty", good(b"")
    yield "padding behind the packet", Raw(bytes(good(b"short")) + bytes(30))
    yield "odd length", good(b"odd")
    yield "bad UDP checksum", good(udpx={"chksum": 0x1234})
    yield "no UDP checksum", good(udpx={"chksum": 0})
    yield "bad IP checksum", good(ipx={"chksum": 0x1234})
    yield "UDP length of 8 with data behind", patched(14 + 20 + 4, b"\0\x08")
    yield "UDP length of 7", patched(14 + 20 + 4, b"\0\x07")
    yield "UDP length of 0", patched(14 + 20 + 4, b"\0\0")
    yield "UDP length over the packet", patched(14 + 20 + 4, b"\0\xff")
    yield "UDP shorter than the packet", good(b"0123456789", udpx={"len": 12, "chksum": 0})
    yield "UDP shorter, checksum of the shorter", Raw(bytes(good(b"0123")).replace(
        b"0123", b"0123456789")[:16] + struct.pack(">H", 38) + bytes(good(b"0123"))[18:])
    yield "IP length of 0", good(ipx={"len": 0})
    yield "IP length over the frame", good(ipx={"len": 200})
    yield "IP length under the header", good(ipx={"len": 19})
    yield "IP length cuts the UDP header", good(ipx={"len": 24})
    yield "version 5", good(ipx={"version": 5})
    yield "header of 4 words", good(ipx={"ihl": 4})
    yield "options", good(ipx={"options": [IPOption(b"\x01\x01\x01\x00")]})
    yield "TTL 1", good(ipx={"ttl": 1})
    yield "TTL 0", good(ipx={"ttl": 0})
    yield "TOS and ECN", good(ipx={"tos": 0xff})
    yield "don't fragment", good(ipx={"flags": "DF"})
    yield "the evil bit", good(ipx={"flags": 4})
    yield "source port 0", good(udpx={"sport": 0})
    yield "another port", good(udpx={"dport": 7999})
    yield "another protocol", good(ipx={"proto": 136})
    yield "another host's MAC", good(eth=w.eth(dst="02:99:99:99:99:99"))
    yield "broadcast MAC", good(eth=w.eth(dst="ff:ff:ff:ff:ff:ff"))
    yield "multicast MAC", good(eth=w.eth(dst="01:00:5e:01:01:01"))
    yield "a VLAN that we do not have", Raw(bytes(e / Dot1Q(vlan=5)) + bytes(good())[14:])
    yield "VLAN 0", w.eth() / Dot1Q(vlan=0, type=0x800) / IP(**ip) / UDP(**udp) / Raw(b"priority")
    yield "wrong ether type", good(eth=w.eth(type=0x86dd))
    yield "another address of nobody", good(ipx={"dst": "10.77.0.200"})
    big = good(bytes(range(256)) * 10)
    parts = [w.eth() / x for x in fragment(big[IP], 600)]
    yield "fragments", parts
    yield "fragments from the last", parts[::-1]
    yield "a fragment twice", parts + parts[1:2]
    for cut in (0, 13, 14, 20, 33, 34, 37, 41, 42):
        yield f"cut at {cut}", Raw(bytes(good())[:cut].ljust(15, b"\0") if cut < 15 else bytes(good())[:cut])


def v6_frames(w):
    ip, udp = {"src": w.net.b.ip6, "dst": w.net.a.ip6}, {"sport": 7001, "dport": 7000}
    e = w.eth()

    def good(data=b"good", eth=e, ipx={}, udpx={}, ext=None):
        head = eth / IPv6(**{**ip, **ipx})
        return (head / ext if ext else head) / UDP(**{**udp, **udpx}) / Raw(data)

    def patched(offset, value, data=b"patched!"):
        b = bytearray(bytes(good(data)))
        b[offset:offset + len(value)] = value
        return Raw(bytes(b))
    yield "good", good()
    yield "empty", good(b"")
    yield "padding behind the packet", Raw(bytes(good(b"short")) + bytes(30))
    yield "bad UDP checksum", good(udpx={"chksum": 0x1234})
    yield "no UDP checksum", good(udpx={"chksum": 0})
    yield "UDP length of 8 with data behind", patched(14 + 40 + 4, b"\0\x08")
    yield "UDP length of 7", patched(14 + 40 + 4, b"\0\x07")
    yield "UDP length of 0", patched(14 + 40 + 4, b"\0\0")
    yield "UDP length over the packet", patched(14 + 40 + 4, b"\0\xff")
    yield "payload length of 0", good(ipx={"plen": 0})
    yield "payload length over the frame", good(ipx={"plen": 200})
    yield "payload length cuts the UDP header", good(ipx={"plen": 4})
    yield "version 4", good(ipx={"version": 4})
    yield "hop limit 1", good(ipx={"hlim": 1})
    yield "hop limit 0", good(ipx={"hlim": 0})
    yield "traffic class and flow label", good(ipx={"tc": 0xff, "fl": 0xfffff})
    yield "source port 0", good(udpx={"sport": 0})
    yield "hop-by-hop options", good(ext=IPv6ExtHdrHopByHop(options=[PadN(optdata=bytes(4))]))
    yield "destination options", good(ext=IPv6ExtHdrDestOpt(options=[PadN(optdata=bytes(4))]))
    yield "an atomic fragment", good(ext=IPv6ExtHdrFragment(offset=0, m=0, id=5))
    yield "no next header", good(ipx={"nh": 59})
    yield "another host's MAC", good(eth=w.eth(dst="02:99:99:99:99:99"))
    yield "another address of nobody", good(ipx={"dst": "fd77::200"})
    yield "an IPv4 ether type", good(eth=w.eth(type=0x800))
    big = e / IPv6(**ip) / IPv6ExtHdrFragment(id=77) / UDP(**udp) / Raw(bytes(range(256)) * 10)
    parts = fragment6(big, 1280)
    yield "fragments", parts
    yield "fragments from the last", parts[::-1]
    for cut in (14, 20, 53, 54, 57, 61, 62):
        yield f"cut at {cut}", Raw(bytes(good())[:cut].ljust(15, b"\0"))


FRAMES = {"4": v4_frames, "6": v6_frames, "mapped": v4_frames}


@pytest.mark.parametrize("connected", [False, True])
@pytest.mark.parametrize("family", ["4", "6", "mapped"])
def test_strange_frames(unet, family, connected):
    came = set()  # what the kernel's socket gets, in the first round: in the second it is waited for longer

    def steps(app, peer):
        wire = Wire(unet)
        app("s = udp(7000, ANY)")
        if connected:
            app("s.connect((PEER, 7001))")
        # Every frame is followed by a good one, so that "nothing came" is a fact and not a matter of time.
        for name, frames in FRAMES[family](wire):
            for frame in frames if isinstance(frames, list) else [frames]:
                wire.send(frame)
            if any(x in name for x in ("options", "VLAN 0", "fragment")) and name != "don't fragment":
                # The kernel's part of the work, which the reader learns of a moment later.
                late = app.ask(f"await_ready(s, timeout={3 if name in came else 0.3}) and s.recvfrom(70000)")
                if app.note(name, late):
                    came.add(name)
            peer.sendto(b"next", app.at(7000))
            got = []
            while not got or got[-1][0] != b"next":
                got.append(app.do("s.recvfrom(70000)"))
            app.note(name, got)
        wire.close()
    answers = differential(unet, family, steps)
    assert len(answers["good"]) == 2 and len(answers["bad UDP checksum"]) == 1


def test_dropped_frames_are_counted(unet):
    """What the library refuses is seen in vma_stats, by reason."""
    with App(unet.a, True, "4") as app:
        wire = Wire(unet)
        peer = app.peer_socket()
        app.do("s = udp(7000); ready(s)")
        frames = dict((n, f) for n, f in v4_frames(wire) if not isinstance(f, list))
        for _ in range(3):
            wire.send(frames["bad UDP checksum"])
        for _ in range(2):
            wire.send(frames["UDP length of 7"])
        peer.sendto(b"next", app.at(7000))
        assert app.do("s.recv(10)") == b"next"
        wait_for(lambda: '"drop_malformed":2,"drop_checksum":3' in unet.a.stats(app, "--json", "-c", "1"), 3,
                 "drop_malformed 2 and drop_checksum 3 in vma_stats --json", 0.1)
        wire.close()
        peer.close()
