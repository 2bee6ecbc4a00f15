# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""VMA_SND_FLAGS_DUMMY: a send that warms the caches and does not leave, whatever the socket is."""

import json

import pytest

from differential import FAMILIES, App
from netns import wait_for

DUMMY = 0x400
families = pytest.mark.parametrize("family", FAMILIES)


@families
def test_datagrams_that_do_not_leave(unet, family):
    with App(unet.a, True, family) as a, App(unet.b, False, family) as b:
        b.do("s = udp(7000); s.settimeout(5)")
        a.do("s = udp(7001); s.sendto(b'resolve', (PEER, 7000))")
        assert b.do("s.recv(10)") == b"resolve"
        # That one may have gone by the kernel, which tells the library of the neighbour a moment later.
        wait_for(lambda: a.ask(f"s.sendto(b'nothing', {DUMMY}, (PEER, 7000))") == 7)
        assert a.do(f"[s.sendto(b'nothing' * n, {DUMMY}, (PEER, 7000)) for n in (1, 20, 200)]") == [7, 140, 1400]
        assert a.do(f"s.sendmsg([b'no', b'thing'], [], {DUMMY}, (PEER, 7000))") == 7
        assert a.do(f"sendmmsg(s, [b'1', b'22', b'333'], (PEER, 7000), {DUMMY})[0]") == 3
        # What the kernel would have to cut into fragments would leave by it.
        assert a.ask(f"s.sendto(bytes(3000), {DUMMY}, (PEER, 7000))") == ("OSError", "EAGAIN")
        a.do("s.connect((PEER, 7000))")
        assert a.do(f"s.send(b'nothing', {DUMMY} | socket.MSG_DONTWAIT)") == 7
        a.do("s.send(b'last')")
        assert b.do("s.recv(10)") == b"last"


@families
def test_segments_that_do_not_leave(unet, family):
    with App(unet.a, True, family) as a, App(unet.b, False, family) as b:
        b.do("l = socket.socket(FAM); l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); l.bind((ME, 7000)); l.listen()")
        a.do("s = socket.socket(FAM)")
        assert a.ask(f"s.send(b'nothing', {DUMMY})") == ("OSError", "EAGAIN")
        a.do("s.connect((PEER, 7000)); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)")
        b.do("c, _ = l.accept(); c.settimeout(5)")
        a.do("s.send(b'one')")
        assert b.do("c.recv(10)") == b"one"
        assert a.do(f"[s.send(b'nothing' * n, {DUMMY}) for n in (1, 10, 100)]") == [7, 70, 700]
        assert a.do(f"s.sendmsg([b'no', b'thing'], [], {DUMMY})") == 7
        # More than a segment holds.
        assert a.ask(f"s.send(bytes(10000), {DUMMY})") == ("OSError", "EAGAIN")
        a.do("s.send(b'two')")
        assert b.do("c.recv(10)") == b"two"
        b.do("c.close()")
        assert a.do("s.recv(10)") == b""


def test_sockets_of_the_kernel_send_none_either(unet):
    with App(unet.a, True) as a:
        a.do("x, y = socket.socketpair(); y.setblocking(False)")
        assert a.ask(f"x.send(b'nothing', {DUMMY})") == ("OSError", "EINVAL")
        assert a.ask(f"x.sendmsg([b'nothing'], [], {DUMMY})") == ("OSError", "EINVAL")
        assert a.ask("y.recv(10)") == ("OSError", "EAGAIN")
        # Nor does an offloaded one whose destination is not.
        a.do("l = udp(7005, '127.0.0.1'); l.setblocking(False); s = udp(7006, '0.0.0.0')")
        assert a.ask(f"s.sendto(b'nothing', {DUMMY}, ('127.0.0.1', 7005))") == ("OSError", "EAGAIN")
        assert a.ask("l.recv(10)") == ("OSError", "EAGAIN")


def dummies(app, name):
    """What vma_stats has counted of a socket of the program's."""
    fd = app.do(f"{name}.fileno()")
    sockets = json.loads(app.host.stats(app.popen, "--json", "-c", "1").splitlines()[-1])["sockets"]
    return sum(s["tx_dummy"] for s in sockets if s["fd"] == fd)


@pytest.mark.parametrize("asked", [0, 1])
def test_getsockname_sends_one_when_asked_to(unet, asked):
    unet.neighbours()
    with App(unet.a, True, env={"VMA_TRIGGER_DUMMY_SEND_GETSOCKNAME": asked}) as a, App(unet.b, False) as b:
        b.do("s = udp(7000); s.settimeout(5); l = socket.create_server((ME, 7000))")
        a.do("s = udp(7001); s.connect((PEER, 7000)); s.send(b'resolve')")
        assert b.do("s.recv(300)") == b"resolve"
        assert a.do("s.getsockname() == (ME, 7001)") is True
        a.do("s.send(b'last')")
        assert b.do("s.recv(300)") == b"last"
        a.do("t = socket.create_connection((PEER, 7000))")
        assert a.do("t.getsockname()[0] == ME") is True
        a.do("t.send(b'first')")
        assert b.do("l.accept()[0].recv(300)") == b"first"
        # It was made, and counted; once for each call.
        before = {name: dummies(a, name) for name in "st"}
        a.do("[x.getsockname() for x in (s, t, t, t)]")
        made = {name: dummies(a, name) - before[name] for name in "st"}
        print(before, made)
        assert made == ({"s": 1, "t": 3} if asked else {"s": 0, "t": 0}) and (before["t"] > 0) == bool(asked)
        # Nobody hears of one that cannot be.
        assert a.do("udp().getsockname() == ('0.0.0.0', 0)") is True
