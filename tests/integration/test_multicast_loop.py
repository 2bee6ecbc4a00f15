# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Multicast with IP_MULTICAST_LOOP on: members on this host miss nothing, and where there are none the kernel is not needed."""

import contextlib
import socket
import struct

import pytest

from differential import App, differential
from netns import KERNEL, ip, wait_for

families = pytest.mark.parametrize("family", ["4", "6"])
announced = pytest.mark.skipif(KERNEL < (6, 15), reason="the kernel does not announce members")
GROUP = {"4": "239.1.1.1", "6": "ff15::77"}
OUT = {"4": "s.setsockopt(0, 32, bytes(4) + socket.inet_aton(ME))", "6": "s.setsockopt(41, 17, socket.if_nametoindex(DEV))"}


def join(host, family, s, what=35):
    """what: of IPv4, 35 joins and 36 leaves; IPv6's is 15 less."""
    if family == "4":
        s.setsockopt(0, what, socket.inet_aton(GROUP["4"]) + socket.inet_aton(host.ip4))
    else:
        with host.entered():
            index = socket.if_nametoindex(host.dev)
        s.setsockopt(41, what - 15, socket.inet_pton(socket.AF_INET6, GROUP["6"]) + struct.pack("I", index))


@contextlib.contextmanager
def member(host, family, port=7200):
    """A kernel socket of another process."""
    with host.socket(socket.AF_INET6 if family == "6" else socket.AF_INET) as s:
        s.bind((GROUP[family], port))
        join(host, family, s)
        yield s


def send(app, family, word):
    app.do(f"s.sendto({word!r}, ({GROUP[family]!r}, 7200))")


def sent_by_kernel(net, app, family, word=b"x"):
    before = net.a.counters()
    send(app, family, word)
    after = net.a.counters()
    return sum(after[n] - before[n] for n in ("UdpOutDatagrams", "Udp6OutDatagrams"))


def until_offloaded(net, app, family):
    wait_for(lambda: not sent_by_kernel(net, app, family), 10, "the kernel is not needed")


@announced
@families
def test_where_nobody_on_the_host_listens_the_kernel_is_not_needed(net, family):
    net.neighbours()
    with App(net.a, True, family) as app, member(net.b, family) as far:
        app.do(f"s = udp(7000); {OUT[family]}")
        until_offloaded(net, app, family)
        send(app, family, b"last")
        got = [far.recv(10)]
        while got[-1] != b"last":
            got.append(far.recv(10))
        assert set(got) == {b"x", b"last"}


@announced
def test_a_connected_socket_sends_to_its_group(net):
    """As `iperf -uc GROUP` does: connect() and write(), and the interface by the routes."""
    group = "224.22.22.22"
    net.neighbours()
    ip("-n", net.a.name, "route", "add", "224.0.0.0/4", "dev", net.a.dev)
    with App(net.a, True) as app, net.b.socket() as far:
        far.bind((group, 5001))
        far.setsockopt(0, 35, socket.inet_aton(group) + socket.inet_aton(net.b.ip4))
        app.do(f"s = socket.socket(FAM, socket.SOCK_DGRAM); s.connect(('{group}', 5001))")
        app.do("def write(i): return os.write(s.fileno(), b'%04d' % i + bytes(1466))")

        def by_kernel():
            before = net.a.counters()["UdpOutDatagrams"]
            assert app.do("write(0)") == 1470 == len(far.recv(2000))
            return net.a.counters()["UdpOutDatagrams"] - before
        wait_for(lambda: not by_kernel(), 10, "the kernel is not needed")
        with net.a.bypassed():
            app.do("for i in range(20): write(i)")
            assert [int(far.recv(2000)[:4]) for _ in range(20)] == list(range(20))


@announced
def test_of_many_groups_each_is_remembered(net):
    net.neighbours()
    with App(net.a, True) as app:
        app.do(f"s = udp(7000); {OUT['4']}\ndef send():\n    for i in range(100): s.sendto(b'x', (f'239.1.2.{{i}}', 7200))")
        def by_kernel():
            before = net.a.counters()["UdpOutDatagrams"]
            app.do("send()")
            return net.a.counters()["UdpOutDatagrams"] - before
        wait_for(lambda: not by_kernel(), 10, "the kernel is not needed")
        assert [by_kernel() for _ in range(5)] == [0] * 5


@announced
@families
def test_a_member_that_joins_hears_the_very_next_datagram(net, family):
    """And only one copy of each; when it has left the kernel is not needed again."""
    net.neighbours()
    with App(net.a, True, family) as app, net.a.socket(socket.AF_INET6 if family == "6" else socket.AF_INET) as near:
        near.bind((GROUP[family], 7200))
        app.do(f"s = udp(7000); {OUT[family]}")
        for turn in range(20):
            until_offloaded(net, app, family)
            join(net.a, family, near)
            for word in (b"first %d" % turn, b"second"):
                send(app, family, word)
                assert near.recv(20) == word
            near.setblocking(False)
            with pytest.raises(BlockingIOError):
                near.recv(20)
            near.settimeout(5)
            join(net.a, family, near, 36)


@announced
@families
def test_a_member_in_the_program_itself_hears_it(net, family):
    net.neighbours()

    def steps(app, peer):
        app.do(f"s = udp(7000); {OUT[family]}; r = udp(7200, {GROUP[family]!r})")
        for word in (b"one", b"two"):
            send(app, family, word)
        app.do("r.setsockopt(0, 35, socket.inet_aton('239.1.1.1') + socket.inet_aton(ME))" if family == "4" else
               "r.setsockopt(41, 20, socket.inet_pton(10, 'ff15::77') + struct.pack('I', socket.if_nametoindex(DEV)))")
        for word in (b"three", b"four"):
            send(app, family, word)
            app("r.recvfrom(10)")
        app("ready(r)")
    differential(net, family, steps)


@announced
def test_a_multicast_router_s_datagrams_stay_the_kernel_s(net):
    net.neighbours()
    with App(net.a, True) as app, net.a.socket(kind=socket.SOCK_RAW, proto=2) as router:
        app.do(f"s = udp(7000); {OUT['4']}")
        until_offloaded(net, app, "4")
        router.setsockopt(0, 200, 1)  # MRT_INIT
        for _ in range(3):
            assert sent_by_kernel(net, app, "4") == 1


def test_with_a_member_on_the_host_the_kernel_sends(net):
    """On kernels, too, that do not announce members."""
    net.neighbours()
    with App(net.a, True) as app, member(net.a, "4") as near:
        app.do(f"s = udp(7000); {OUT['4']}")
        for _ in range(3):
            assert sent_by_kernel(net, app, "4", b"heard") == 1
            assert near.recv(10) == b"heard"


@families
def test_a_kernel_sender_s_loop_option_decides_what_a_receiver_here_hears(net, family):
    """Of another process on this host. What comes off the wire is offloaded all the while."""
    net.neighbours()

    def steps(app, peer):
        level, loop, out = (0, 34, 32) if family == "4" else (41, 19, 17)
        app.do(f"r = udp(7200, {GROUP[family]!r})")
        app.do("r.setsockopt(0, 35, socket.inet_aton('239.1.1.1') + socket.inet_aton(ME)); ready(r)" if family == "4" else
               "r.setsockopt(41, 20, socket.inet_pton(10, 'ff15::77') + struct.pack('I', socket.if_nametoindex(DEV))); ready(r)")
        fam = socket.AF_INET6 if family == "6" else socket.AF_INET
        with net.a.socket(fam) as near, net.b.socket(fam) as remote, member(net.b, family) as far:
            for host, s in ((net.a, near), (net.b, remote)):
                with host.entered():
                    by = socket.inet_aton(host.ip4) if family == "4" else socket.if_nametoindex(host.dev)
                s.setsockopt(level, out, by)
            for s, looped, word in ((near, 0, b"silent"), (near, 1, b"loud"), (near, 0, b"again"), (remote, 0, b"wire")):
                s.setsockopt(level, loop, looped)
                s.sendto(word, (GROUP[family], 7200))
                if s is near:
                    assert far.recv(10) == word
                if word in (b"loud", b"wire"):
                    assert app("r.recv(10)") == word
    differential(net, family, steps)


@pytest.mark.parametrize("loop", [0, 1])
@pytest.mark.parametrize("form", ["ttl", "scope"])
def test_what_may_not_leave_the_host_is_the_kernel_s(net, form, loop):
    """TTL 0, and groups of the host itself (RFC 4291, 2.7)."""
    net.neighbours()
    family, to = {"ttl": ("4", "239.1.1.1"), "scope": ("6", "ff01::77")}[form]
    with App(net.a, True, family) as app:
        app.do(f"s = udp(7000); {OUT[family]}; s.setsockopt({'0, 34' if family == '4' else '41, 19'}, {loop})")
        if not loop or KERNEL >= (6, 15):
            until_offloaded(net, app, family)
        if form == "ttl":
            app.do("s.setsockopt(0, socket.IP_MULTICAST_TTL, 0)")
        for _ in range(3):
            before = net.a.counters()
            app.do(f"s.sendto(b'x', ({to!r}, 7200))")
            after = net.a.counters()
            assert sum(after[n] - before[n] for n in ("UdpOutDatagrams", "Udp6OutDatagrams")) == 1


# --- by which interface ---

@pytest.fixture
def two(net):
    """Groups go by the second interface where nothing else is said."""
    net.neighbours()
    a, b = net.a.name, net.b.name
    ip("-n", a, "link", "add", "two-a", "type", "veth", "peer", "name", "two-b", "netns", b)
    for host, dev, n in ((a, "two-a", 1), (b, "two-b", 2)):
        ip("-n", host, "addr", "add", f"10.78.0.{n}/24", "dev", dev)
        ip("-n", host, "link", "set", dev, "up")
    wait_for(lambda: all(" state UP " in ip("-n", h, "link", "show", d) for h, d in ((a, "two-a"), (b, "two-b"))), what="the interfaces up")
    ip("-n", a, "route", "add", "239.0.0.0/8", "dev", "two-a")
    return net


def told(app, peer, word, to):
    """By which interface it came to the peer, and from whom."""
    app.do(f"s.sendto({word!r}, ({to!r}, 7200))")
    data, anc, _, source = peer.recvmsg(10, 100)
    assert data == word
    return struct.unpack("i", anc[0][2][:4])[0], source[0]


@pytest.mark.parametrize("domain", ["4", "mapped"])
def test_the_interface_that_was_chosen_for_groups_and_not_any_more(two, domain):
    to = {"4": "239.1.1.1", "mapped": "::ffff:239.1.1.1"}[domain]
    with App(two.a, True, domain) as app, two.b.socket() as peer, two.b.entered():
        first, second = (socket.if_nametoindex(d) for d in (two.b.dev, "two-b"))
        peer.bind(("", 7200))
        peer.setsockopt(0, 8, 1)
        for index in (first, second):
            peer.setsockopt(0, 35, socket.inet_aton("239.1.1.1") + bytes(4) + struct.pack("i", index))
        app.do("s = udp(7000, '0.0.0.0' if FAM == 2 else '::'); s.setsockopt(0, 34, 0)")
        if domain == "mapped":
            app.do("s.setsockopt(41, 19, 0)")
        app.do("from_any, from_me = bytes(4), socket.inet_aton(ME.removeprefix('::ffff:'))")
        for option, way in (("from_me", first), ("from_any", second), ("bytes(8) + struct.pack('i', socket.if_nametoindex(DEV))", first),
                            ("from_any", second)):
            app.do(f"import struct; s.setsockopt(0, 32, {option})")
            app.do("s.setsockopt(0, socket.IP_TTL, 9)")  # and it stays
            for word in (b"one", b"two"):
                with two.a.bypassed():
                    index, source = told(app, peer, word, to)
                assert (index, source) == (way, two.a.ip4 if way == first else "10.78.0.1")


@pytest.mark.parametrize("domain", ["4", "mapped"])
def test_a_group_is_joined_where_the_routes_say(two, domain):
    """Without an interface's name; a route that comes later changes nothing of a membership that there is."""
    with App(two.a, True, domain) as app, two.b.socket() as peer, two.b.entered():
        peer.setsockopt(0, 33, 9)  # IP_MULTICAST_TTL

        def heard(way, word):
            """What the program has of two datagrams, of which the second comes by the interface that it is to hear."""
            for dev, data in ((two.b.dev if way == "two-b" else "two-b", b"other"), (way, word)):
                peer.setsockopt(0, 32, bytes(8) + struct.pack("i", socket.if_nametoindex(dev)))
                peer.sendto(data, ("239.1.1.1", 7000))
            return app.do("s.recv(10)")

        def joined(way):
            app.do("s = udp(7000, ANY); s.setsockopt(0, 49, 0); s.setsockopt(0, 35, socket.inet_aton('239.1.1.1') + bytes(4)); ready(s)")
            with two.a.bypassed():
                assert [heard(way, word) for word in (b"one", b"two")] == [b"one", b"two"]
        joined("two-b")
        ip("-n", two.a.name, "route", "replace", "239.0.0.0/8", "dev", two.a.dev)
        assert heard("two-b", b"three") == b"three"
        app.do("s.close()")
        joined(two.b.dev)


@pytest.mark.parametrize("loop4, loop6", [(0, 1), (1, 0)])
def test_of_an_ipv6_socket_its_own_option_has_ipv4_groups_heard(net, loop4, loop6):
    def steps(app, peer):
        app.do(f"s = udp(7000, '::'); s.setsockopt(0, 32, socket.inet_aton(ME.removeprefix('::ffff:'))); s.setsockopt(0, 34, {loop4})")
        app.do(f"s.setsockopt(41, 19, {loop6})")
        with member(net.a, "4") as near, member(net.b, "4") as far:
            for word in (b"one", b"two"):
                app(f"s.sendto({word!r}, ('::ffff:239.1.1.1', 7200))")
                app.note("far", far.recv(10))
                if loop6:
                    app.note("near", near.recv(10))
            near.setblocking(False)
            with pytest.raises(BlockingIOError):
                near.recv(10)
    net.neighbours()
    differential(net, "mapped", steps)
