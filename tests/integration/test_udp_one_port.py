# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Datagram sockets of one process that have one port, beyond who gets a datagram of the usual kind (test_udp_groups.py): one of them is
connected and its peer's datagrams come by another interface; one of them goes to the kernel.

    net.a  the program [ veth-a ] ---- [ veth-b ]  kernel sockets of the test  net.b
                       [ two-a  ] ---- [ two-b  ]
"""

import pytest

from differential import PEER_PORT, App, differential
from netns import ip, second_way, wait_for

REUSE = "(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)"
SECOND = {"4": "10.78.0.1", "6": "fd78::1"}


@pytest.fixture
def two_ways(net):
    """The peer's address is behind the first pair; what it sends to the second pair's address comes there."""
    net.neighbours()
    second_way(net)
    wait_for(lambda: "fd78::1" in ip("-n", net.a.name, "-6", "route", "show", "table", "local"), what="the address in use")
    net.a.run(["sysctl", "-qw", *[f"net.ipv4.conf.{name}.rp_filter=0" for name in ("all", "veth-a", "two-a")]])
    return net


def who_gets(app, peer, family, text):
    """The program's answer: whether it is the connected socket, and what it got."""
    peer.sendto(text, (SECOND[family], 7000))
    return app("[(s is c, s.recv(100)) for s in select.select([w, c], [], [], 5)[0]]")


def bound(app):
    app.do(f"w = udp(7000, ANY, {REUSE}); await_ready(w, timeout=0.01)")


def connected(app, family):
    app.do(f"c = udp(7000, {SECOND[family]!r}, {REUSE}); c.connect((PEER, {PEER_PORT})); await_ready(c, timeout=0.01)")


@pytest.mark.parametrize("first", ["bound", "connected", "bound and left by its peer"])
@pytest.mark.parametrize("family", ["4", "6"])
def test_a_peers_datagrams_by_another_interface(two_ways, family, first):
    """The connected socket has them, be it there before the other one or after it."""
    net = two_ways

    def steps(app, peer):
        if first == "connected":
            connected(app, family)
            bound(app)
        elif first == "bound":
            bound(app)
            connected(app, family)
        else:  # one that gets rid of its peer is bound on all interfaces from then on
            app.do(f"w = udp(7000, ANY, {REUSE}); w.connect((PEER, 9)); await_ready(w, timeout=0.01)")
            connected(app, family)
            app.do("disconnect(w)")
        with net.b.socket(peer.family) as other:
            other.bind((net.b.ip(peer.family), 0))
            other.sendto(b"first", (SECOND[family], 7000))  # neighbours are found out
            app("[(s is c, s.recv(100)) for s in select.select([w, c], [], [], 5)[0]]")
            if app.preload:
                wait_for(lambda: goes_past_the_kernel(net, app, other, family), 10, "the bound socket served on the second interface")
            before = net.a.counters()
            assert who_gets(app, peer, family, b"the peer's") == [(True, b"the peer's")]
            assert who_gets(app, other, family, b"another's") == [(False, b"another's")]
            if app.preload:
                after = net.a.counters()
                assert all(after[n] == before[n] for n in ("UdpInDatagrams", "Udp6InDatagrams")), "by the rings"

    differential(net, family, steps)


def goes_past_the_kernel(net, app, other, family):
    before = net.a.counters()
    other.sendto(b"?", (SECOND[family], 7000))
    app.do("[s.recv(100) for s in select.select([w], [], [], 5)[0]]")
    after = net.a.counters()
    return all(after[n] == before[n] for n in ("UdpInDatagrams", "Udp6InDatagrams"))


PEERS = 32
GROUP = """
def gets(S, n):
    got, end = [0] * len(S), time.monotonic() + 10
    while sum(got) < n and time.monotonic() < end:
        for s in select.select(S, [], [], 0.1)[0]:
            s.recv(100)
            got[S.index(s)] += 1
    return [g > 0 for g in got], sum(got)
"""


@pytest.mark.parametrize("family", ["4", "6"])
@pytest.mark.parametrize("option, which", [("SO_REUSEPORT", 0), ("SO_REUSEADDR", -1)])
@pytest.mark.parametrize("how", ["s.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)", "fcntl.fcntl(s, fcntl.F_SETFL, os.O_ASYNC)",
                                 "fcntl.ioctl(s, 0x5452, struct.pack('i', 1))"], ids=["setsockopt", "F_SETFL", "FIOASYNC"])
def test_one_goes_to_the_kernel(net, family, option, which, how):
    """From that call on it gets its share, not from the next second on: user space leaves the port to the kernel, which divides."""
    net.neighbours()

    def steps(app, peer):
        app.do(GROUP)
        peers = [net.b.socket(peer.family) for _ in range(PEERS)]
        for n in range(3):
            app.do(f"S = [udp({7100 + n}, ANY, (socket.SOL_SOCKET, socket.{option}, 1)) for _ in range(2)]")
            app.do("await_ready(S[0], timeout=0.01)")
            for p in peers:
                p.sendto(b"before", app.at(7100 + n))
            app(f"gets(S, {PEERS})", 20)
            app.do(f"s = S[{which}]; {how}")
            for p in peers:
                p.sendto(b"after", app.at(7100 + n))
            got = app(f"gets(S, {PEERS})", 20)
            assert got[1] == PEERS, got
            app.do("for s in S: s.close()")
        for p in peers:
            p.close()

    answers = differential(net, family, steps)
    print(answers)


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "kernel"])
def test_one_that_is_the_kernels_comes_to_the_port(net, ours):
    """Its share begins with its bind()."""
    net.neighbours()
    with App(net.a, ours, "4") as app:
        app.do(GROUP)
        peers = [net.b.socket() for _ in range(PEERS)]
        for n in range(3):
            option = "(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)"
            app.do(f"S = [udp({7100 + n}, ANY, {option})]; await_ready(S[0], timeout=0.01)")
            app.do(f"S.append(udp({7100 + n}, ANY, {option}, (socket.SOL_SOCKET, SO_NO_CHECK, 1)))")
            for p in peers:
                p.sendto(b"x", app.at(7100 + n))
            assert app.do(f"gets(S, {PEERS})", 20) == ([True, True], PEERS)
            app.do("for s in S: s.close()")
        for p in peers:
            p.close()
    print(f"{PEERS} senders, two sockets: both got some, three times")


def test_peek_off_counts_in_what_waits(net):
    """SO_PEEK_OFF, which the kernel does: also in a datagram that user space has got before."""
    net.neighbours()

    def steps(app, peer):
        app.do("s = udp(7000); await_ready(s, timeout=0.01)")
        peer.sendto(b"abcdef", app.at(7000))
        app("await_ready(s)")
        app("s.setsockopt(socket.SOL_SOCKET, 42, 2)")
        for _ in range(2):
            app("s.recv(2, socket.MSG_PEEK)")
        app("s.recv(100)")

    answers = differential(net, "4", steps)
    assert answers["s.recv(100)"] == b"abcdef"
