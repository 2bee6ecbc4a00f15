# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A process ends amid the end of a connection, and its peer, a script on the wire, sees what a kernel's process would show it."""

import contextlib
import logging
import select
import socket
import time

import pytest

from differential import CHILDREN, App
from test_tcp_exit import finish, ours, prepare

logging.getLogger("scapy").setLevel(logging.ERROR)
from scapy.all import Ether, IP, IPv6, Raw, TCP  # noqa: E402

ISN, PORT = 0xfffffff0, 7300
ADDRESS = {"4": "10.77.0.200", "6": "fd77::200"}
ends = pytest.mark.parametrize("end, family", [("exit", "4"), ("SIGTERM", "6"), ("exec", "4")])
closes = pytest.mark.parametrize("close", ["s.close()", "s.shutdown(socket.SHUT_WR)"], ids=["close", "shutdown"])


class NoSegment(AssertionError):
    """Such a one has not come in time."""


class Wire:
    """net.a's end of the cable as a TCP of its own at an address that no kernel has. Numbers count from the SYNs."""

    def __init__(self, net, family):
        self.net, self.family, self.addr = net, family, ADDRESS[family]
        self.mac, app = ((h.run(["cat", f"/sys/class/net/{h.dev}/address"]).text.strip()) for h in (net.a, net.b))
        with net.a.entered():
            self.raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x86dd if family == "6" else 0x800))
            self.raw.bind((net.a.dev, 0x86dd if family == "6" else 0x800))
        net.b.run(["ip", "neigh", "replace", self.addr, "lladdr", self.mac, "dev", net.b.dev, "nud", "permanent"])
        self.head = Ether(src=self.mac, dst=app) / (IPv6 if family == "6" else IP)(src=self.addr, dst=net.b.ip(int(family)))
        self.nxt, self.iss, self.port = 0, None, None

    def close(self):
        self.raw.close()
        self.net.b.run(["ip", "neigh", "del", self.addr, "dev", self.net.b.dev])

    def send(self, flags, ack, data=b"", seq=None):
        """Sends what is next, or what stands at seq."""
        at = self.nxt if seq is None else seq
        options = [("MSS", 1400)] if "S" in flags else []
        self.raw.send(bytes(self.head / TCP(sport=PORT, dport=self.port, seq=(ISN + at) % 2**32, ack=(self.iss + ack) % 2**32,
                                            flags=flags, window=60000, options=options) / Raw(data)))
        self.nxt = max(self.nxt, at + len(data) + ("S" in flags) + ("F" in flags))

    def expect(self, what, seconds=20, **fields):
        """The next segment with the flags of `what` and more where given: (seq, ack, data). A reset is none unless asked for."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if not select.select([self.raw], [], [], 0.1)[0]:
                continue
            frame, at = self.raw.recvfrom(65536)
            if at[2] == socket.PACKET_OUTGOING:
                continue
            p = Ether(frame)
            ip = p.payload
            if TCP not in p or ip.dst != self.addr or p[TCP].dport != PORT:
                continue
            t, flags = p[TCP], str(p[TCP].flags)
            if self.port is None and flags == "S":
                self.port, self.iss = t.sport, t.seq
            if t.sport != self.port:
                continue
            tcp_len = (ip.plen if self.family == "6" else ip.len - 4 * ip.ihl) - 4 * t.dataofs
            seq, ack, data = (t.seq - self.iss) % 2**32, (t.ack - ISN) % 2**32, bytes(t.payload)[:tcp_len]
            assert "R" in what or "R" not in flags, (flags, seq, ack)
            if set(what) <= set(flags) and all(v == {"seq": seq, "ack": ack, "data": data}[k] for k, v in fields.items()):
                return seq, ack, data
        raise NoSegment(f"no segment {what} {fields}")

    def silent(self, seconds=0.3):
        """What comes is no reset."""
        with contextlib.suppress(AssertionError):
            self.expect("R", seconds)
            raise RuntimeError("a reset")


@contextlib.contextmanager
def connected(net, family, preload):
    """(app, wire) with one connection: s in the program. Both have sent their first two bytes."""
    with contextlib.ExitStack() as stack:
        wire = stack.enter_context(contextlib.closing(Wire(net, family)))
        app = stack.enter_context(App(net.b, preload, family))
        prepare(app)
        app.do("s = socket.socket(FAM, socket.SOCK_STREAM)")
        app.start(f"s.connect(({wire.addr!r}, {PORT}))")
        wire.expect("S")
        wire.send("SA", 1)
        wire.expect("A", seq=1)
        app.answer()
        wire.send("A", 1, b"hi")
        app.do("_ = s.recv(2); s.sendall(b'ho')")
        wire.expect("A", data=b"ho")
        wire.send("A", 3)
        yield app, wire


@ours
@ends
@closes
def test_fin_wait1(unet, ours, end, family, close):
    """Nobody has acknowledged our FIN."""
    with connected(unet, family, ours) as (app, wire):
        app.do(close)
        wire.expect("F", seq=3)
        finish(app, end, prepared=True)
        wire.expect("FA", seq=3)  # again
        wire.send("A", 4)
        wire.send("FA", 4)
        wire.expect("A", seq=4, ack=4)
        wire.silent()


@ours
@ends
@closes
def test_lost_data(unet, ours, end, family, close):
    """The last bytes have not arrived when the process is gone."""
    with connected(unet, family, ours) as (app, wire):
        app.do("s.sendall(b'lost'); " + close)
        wire.expect("F")
        finish(app, end, prepared=True)
        wire.expect("A", seq=3, data=b"lost")
        wire.send("A", 8)
        wire.send("FA", 8)
        wire.expect("A", seq=8, ack=4)
        wire.silent()


@ours
@ends
@closes
def test_fin_wait2(unet, ours, end, family, close):
    """The peer has our FIN, and closes when the process is gone."""
    with connected(unet, family, ours) as (app, wire):
        app.do(close)
        wire.expect("F", seq=3)
        wire.send("A", 4)
        time.sleep(0.1)
        finish(app, end, prepared=True)
        wire.send("FA", 4)
        wire.expect("A", seq=4, ack=4)
        wire.silent()


@ours
@ends
def test_fin_wait2_is_sent_more(unet, ours, end, family):
    with connected(unet, family, ours) as (app, wire):
        app.do("s.close()")
        wire.expect("F", seq=3)
        wire.send("A", 4)
        time.sleep(0.1)
        finish(app, end, prepared=True)
        wire.send("A", 4, b"too late")
        wire.expect("R")


@ours
@ends
@closes
def test_closing(unet, ours, end, family, close):
    """The FINs have crossed."""
    with connected(unet, family, ours) as (app, wire):
        app.do(close)
        wire.expect("F", seq=3)
        wire.send("FA", 3)
        wire.expect("A", ack=4)
        finish(app, end, prepared=True)
        wire.expect("FA", seq=3)
        wire.send("A", 4)
        wire.send("FA", 4, seq=3)  # our acknowledgement was lost
        wire.expect("A", seq=4, ack=4)
        wire.silent()


@ours
@ends
@closes
def test_last_ack(unet, ours, end, family, close):
    with connected(unet, family, ours) as (app, wire):
        wire.send("FA", 3)
        wire.expect("A", ack=4)
        assert app.do("s.recv(1)") == b""
        app.do(close)
        wire.expect("F", seq=3, ack=4)
        finish(app, end, prepared=True)
        wire.expect("FA", seq=3, ack=4)
        wire.send("A", 4)
        wire.silent()


@ours
@ends
@closes
def test_time_wait(unet, ours, end, family, close):
    """The last acknowledgement of all was lost."""
    with connected(unet, family, ours) as (app, wire):
        app.do(close)
        wire.expect("F", seq=3)
        wire.send("FA", 4)
        wire.expect("A", seq=4, ack=4)
        finish(app, end, prepared=True)
        wire.silent()
        wire.send("FA", 4, seq=3)
        wire.expect("A", seq=4, ack=4)
        wire.silent()


@ours
@pytest.mark.parametrize("family", ["4", "6"])
def test_time_wait_that_a_child_has_used(unet, ours, family):
    """It reads what nobody had read, and the peer's FIN that comes again is answered."""
    with connected(unet, family, ours) as (app, wire):
        app.do(CHILDREN)
        app.do("s.shutdown(socket.SHUT_WR)")
        wire.expect("F", seq=3)
        wire.send("FA", 4, b"unread")
        wire.expect("A", seq=4, ack=10)
        assert app.do("wait(child(lambda: os._exit(s.recv(100) + s.recv(100) != b'unread')))") == 0
        assert app.do("s.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)") == 0
        wire.silent()
        wire.send("FA", 4, seq=9)
        wire.expect("A", seq=4, ack=10)
        wire.silent()
