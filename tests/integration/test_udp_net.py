# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The network changes under a running program: neighbours, routes, addresses, links, MTU. And loopback."""

import contextlib
import os
import re
import signal
import socket

import pytest

from differential import FAMILIES, PEER_PORT, App
from netns import PATIENCE, ip, link_local, stopped, wait_for

families = pytest.mark.parametrize("family", FAMILIES)
TO = f"(PEER, {PEER_PORT})"


def echo(app, peer, text, address=None):
    """One datagram each way."""
    peer.sendto(text, address or app.at(7000))
    assert app.do("s.recvfrom(100)")[0] == text
    app.do(f"s.sendto({text!r}, {TO})")
    assert peer.recv(100) == text


@families
def test_the_first_packet_to_an_unknown_neighbour_is_not_lost(make_net, family):
    """No neighbour entry: the kernel resolves it, and every datagram of the burst that came first arrives, in order."""
    net = make_net()
    with App(net.a, True, family) as app:
        peer = app.peer_socket()
        app.do("s = udp(7000)")
        for h in (net.a, net.b):
            ip("-n", h.name, "neigh", "flush", "all")
        for i in range(5):
            app.do(f"s.sendto(b'{i}', {TO})")
        assert [peer.recv(10) for _ in range(5)] == [b"%d" % i for i in range(5)]

        def offloaded():
            before = net.a.counters()
            app.do(f"s.sendto(b'x', {TO})")
            peer.recv(10)
            after = net.a.counters()
            return all(before[n] == after[n] for n in ("UdpOutDatagrams", "Udp6OutDatagrams"))
        wait_for(offloaded, 5, "sending goes by the XSK once the neighbour is known")
        peer.close()


@families
def test_the_neighbour_gets_another_mac(make_net, family):
    net = make_net()
    with App(net.a, True, family) as app:
        peer = app.peer_socket()
        app.do("s = udp(7000)")
        echo(app, peer, b"before")
        echo(app, peer, b"again")
        ip("-n", net.b.name, "link", "set", net.b.dev, "address", "02:00:00:00:77:02")
        if family == "6":
            ip("-n", net.b.name, "addr", "replace", f"{net.b.ip6}/64", "dev", net.b.dev, "nodad")
        # The peer speaks: its ARP or ND tells the new address, as after a fail-over.
        peer.settimeout(0.2)

        def heard():
            peer.sendto(b"?", app.at(7000))
            app.do(f"s.sendto(b'after', {TO})")
            try:
                return peer.recv(100) == b"after"
            except TimeoutError:
                return False
        wait_for(heard, 15, "datagrams at the new MAC")
        peer.close()


@families
def test_our_own_mac_changes(make_net, family):
    net = make_net()
    with App(net.a, True, family) as app:
        peer = app.peer_socket()
        app.do("s = udp(7000)")
        echo(app, peer, b"before")
        ip("-n", net.a.name, "link", "set", net.a.dev, "address", "02:00:00:00:77:01")
        if family == "6":
            ip("-n", net.a.name, "addr", "replace", f"{net.a.ip6}/64", "dev", net.a.dev, "nodad")
        ip("-n", net.b.name, "neigh", "flush", "all")
        app.do("s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, tv(0.1))")

        def heard():
            peer.sendto(b"hello", app.at(7000))
            return app.ask("s.recv(10)") == b"hello"
        wait_for(heard, 5, "datagrams to the new MAC")
        peer.close()


@families
def test_the_route_moves_to_another_interface(make_net, family):
    """A second pair between the two hosts; the peer's address moves to it, and the traffic follows."""
    net = make_net()
    six = family == "6"
    ip("-n", net.a.name, "link", "add", "veth-a2", "type", "veth", "peer", "name", "veth-b2", "netns", net.b.name)
    ip("-n", net.a.name, "addr", "add", "10.78.0.1/24", "dev", "veth-a2")
    ip("-n", net.b.name, "addr", "add", "10.78.0.2/24", "dev", "veth-b2")
    ip("-n", net.a.name, "addr", "add", "fd78::1/64", "dev", "veth-a2", "nodad")
    ip("-n", net.b.name, "addr", "add", "fd78::2/64", "dev", "veth-b2", "nodad")
    for host, dev in ((net.a, "veth-a2"), (net.b, "veth-b2")):
        ip("-n", host.name, "link", "set", dev, "up")
    far = "fd99::1" if six else "10.99.0.1"
    ip("-n", net.b.name, "addr", "add", f"{far}/{128 if six else 32}", "dev", "lo", *(["nodad"] if six else []))

    def route(via, dev):
        ip("-n", net.a.name, *(["-6"] if six else []), "route", "replace", far, "via", via, "dev", dev)
    route(net.b.ip6 if six else net.b.ip4, net.a.dev)
    with App(net.a, True, family) as app:
        with net.b.entered():
            peer = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM)
        peer.settimeout(3)
        peer.bind((far, PEER_PORT))
        app.do(f"FAR = ({('::ffff:' if family == 'mapped' else '') + far!r}, {PEER_PORT}); s = udp(7000, ANY); c = udp()")
        app.do("c.connect(FAR)")

        def sent_by(dev, code):
            def count():
                return int(net.a.run(["cat", f"/sys/class/net/{dev}/statistics/tx_packets"]).text)
            before = count()
            app.do(code)
            data, address = peer.recvfrom(100)
            return data, address[0], count() - before
        for code in ("s.sendto(b'data', FAR)", "c.send(b'data')"):
            data, source, n = sent_by(net.a.dev, code)
            assert (data, source) == (b"data", net.a.ip6 if six else net.a.ip4) and n >= 1
        route("fd78::2" if six else "10.78.0.2", "veth-a2")
        new = "fd78::1" if six else "10.78.0.1"

        def moved():
            data, source, n = sent_by("veth-a2", "s.sendto(b'data', FAR)")
            return source == new and n >= 1
        wait_for(moved, 5, "the unconnected socket follows the route")
        # A connected socket keeps its address, and its answers find it wherever they come in.
        wait_for(lambda: sent_by("veth-a2", "c.send(b'data')")[2] >= 1, 5, "the connected socket follows the route")
        app.do("c.send(b'ask')")
        data, address = peer.recvfrom(100)
        peer.sendto(b"answer", address)
        assert app.do("c.recv(10)") == b"answer"
        peer.sendto(b"to the wildcard", (new, 7000))
        assert app.do("s.recv(100)") == b"to the wildcard"
        peer.close()


@families
def test_addresses_come_and_go(make_net, family):
    """A wildcard socket receives at an address that was added later, offloaded; a removed one is gone."""
    net = make_net()
    six = family == "6"
    extra = "fd77::77" if six else "10.77.0.77"
    with App(net.a, True, family) as app:
        peer = app.peer_socket()
        app.do("s = udp(7000, ANY)")
        echo(app, peer, b"before")
        ip("-n", net.a.name, "addr", "add", f"{extra}/{64 if six else 24}", "dev", net.a.dev, *(["nodad"] if six else []))
        echo(app, peer, b"at once", (extra, 7000))

        def offloaded():
            before = net.a.counters()
            peer.sendto(b"x", (extra, 7000))
            app.do("s.recv(10)")
            after = net.a.counters()
            return all(before[n] == after[n] for n in ("UdpInDatagrams", "Udp6InDatagrams"))
        wait_for(offloaded, 5, "the new address is steered")
        app.do(f"t = udp(7010, {('::ffff:' if family == 'mapped' else '') + extra!r})")
        peer.sendto(b"specific", (extra, 7010))
        assert app.do("t.recv(10)") == b"specific"
        ip("-n", net.a.name, "addr", "del", f"{extra}/{64 if six else 24}", "dev", net.a.dev)
        echo(app, peer, b"the old one")
        ip("-n", net.a.name, "addr", "add", f"{extra}/{64 if six else 24}", "dev", net.a.dev, *(["nodad"] if six else []))
        peer.sendto(b"back", (extra, 7010))
        assert app.do("t.recv(10)") == b"back"
        peer.close()


@families
def test_the_link_goes_down_and_up(make_net, family):
    net = make_net()
    with App(net.a, True, family) as app:
        peer = app.peer_socket()
        app.do("s = udp(7000, ANY)")
        echo(app, peer, b"before")
        app.do("s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, tv(0.1))")
        for _ in range(2):
            ip("-n", net.a.name, "link", "set", net.a.dev, "down")
            for _ in range(20):
                app.ask(f"s.sendto(b'into the void', {TO})")
            app.ask("s.recv(10)")
            ip("-n", net.a.name, "link", "set", net.a.dev, "up")
            if family == "6":
                ip("-n", net.a.name, "addr", "replace", f"{net.a.ip6}/64", "dev", net.a.dev, "nodad")
            peer.settimeout(0.1)

            def works():
                try:
                    peer.sendto(b"up again", app.at(7000))
                    if app.ask("s.recv(10)") != b"up again":
                        return False
                    app.ask(f"s.sendto(b'answer', {TO})")
                    while peer.recv(100) != b"answer":
                        pass
                    return True
                except OSError:
                    return False
            wait_for(works, 10, "traffic after the link came back")
            peer.settimeout(3)
        while app.ask("s.recv(100)") != ("OSError", "EAGAIN"):
            pass
        app.do("s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, tv(0))")

        def offloaded():
            before = net.a.counters()
            peer.setblocking(False)
            try:
                while True:
                    peer.recv(100)  # what waited for the neighbour comes late
            except BlockingIOError:
                peer.settimeout(3)
            echo(app, peer, b"offloaded as before")
            after = net.a.counters()
            return all(before[n] == after[n] for n in before if n.endswith("InDatagrams") or n.endswith("OutDatagrams"))
        wait_for(offloaded, 5, "traffic by the XSK again")
        peer.close()


@families
def test_the_interface_is_deleted(make_net, family):
    """The program lives on without the interface, with what it has received, and takes up its successor."""
    net = make_net()
    with App(net.a, True, family) as app:
        peer = app.peer_socket()
        app.do("s = udp(7000, ANY)")
        echo(app, peer, b"before")
        app.do("s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, tv(0.1))")
        ip("-n", net.a.name, "link", "del", net.a.dev)
        for _ in range(3):
            app.ask(f"s.sendto(b'x', {TO})")
            app.ask("s.recv(10)")
        ip("-n", net.a.name, "link", "add", net.a.dev, "type", "veth", "peer", "name", net.b.dev, "netns", net.b.name)
        for h in (net.a, net.b):
            ip("-n", h.name, "addr", "add", f"{h.ip4}/24", "dev", h.dev)
            ip("-n", h.name, "addr", "add", f"{h.ip6}/64", "dev", h.dev, "nodad")
            ip("-n", h.name, "link", "set", h.dev, "up")
        peer.close()
        peer = app.peer_socket(timeout=0.2)

        def works():
            try:
                peer.sendto(b"new", app.at(7000))
                app.ask(f"s.sendto(b'answer', {TO})")
                return peer.recv(10) == b"answer" and app.ask("s.recv(10)") == b"new"
            except OSError:
                return False
        wait_for(works, 10, "traffic over the new interface")
        peer.close()


@families
def test_an_interface_that_is_another_one_before_anybody_looks(make_net, family):
    """Deleted and made anew with its name, number and address while the program stands still: it hears of both at once, and takes up the new one."""
    net = make_net()
    with App(net.a, True, family) as app:
        peer = app.peer_socket()
        app.do("s = udp(7000, ANY); s.settimeout(0.2)")
        echo(app, peer, b"before")
        peer.close()
        link = ip("-n", net.a.name, "-o", "link", "show", "dev", net.a.dev)
        with stopped(app.pid):
            ip("-n", net.a.name, "link", "del", net.a.dev)
            ip("-n", net.a.name, "link", "add", net.a.dev, "index", link.split(":")[0], "address", re.search("link/ether ([0-9a-f:]+)", link)[1],
               "type", "veth", "peer", "name", net.b.dev, "netns", net.b.name)
            for h in (net.a, net.b):
                ip("-n", h.name, "addr", "add", f"{h.ip4}/24", "dev", h.dev)
                ip("-n", h.name, "addr", "add", f"{h.ip6}/64", "dev", h.dev, "nodad")
                ip("-n", h.name, "link", "set", h.dev, "up")
        peer = app.peer_socket(timeout=0.2)

        def past_the_kernel():
            before = net.a.counters()
            try:
                peer.sendto(b"new", app.at(7000))
                app.do(f"s.sendto(b'answer', {TO})")
                if peer.recv(10) != b"answer" or app.ask("s.recv(10)") != b"new":
                    return False
            except OSError:
                return False
            after = net.a.counters()
            return all(before[n] == after[n] for n in before if n.endswith("InDatagrams") or n.endswith("OutDatagrams"))
        wait_for(past_the_kernel, 10, "traffic over the new interface, past the kernel")
        peer.close()


SETTLED = b"settled" * 3000


def data(n):
    return (bytes(range(251)) * (n // 251 + 1))[:n]


@families
def test_the_mtu_changes(make_net, family):
    net = make_net()
    with App(net.a, True, family) as app:
        peer = app.peer_socket()
        app.do("s = udp(7000)")
        app.do("def data(n): return (bytes(range(251)) * (n // 251 + 1))[:n]")

        def arrives(code, wanted):
            """At the peer, what the program sends; what comes late of settled() is passed over."""
            app.do(f"s.sendto({code}, {TO})")
            with contextlib.suppress(TimeoutError):
                while (got := peer.recv(65535)) != wanted:
                    assert got.startswith(b"settled")
                return True
            return False

        def settled():
            """Between the change and the library's hearing of it, frames of the old length are lost on the way."""
            peer.settimeout(0.2)
            found = all(arrives(f"(b'settled' * {n})[:{n}]", (b"settled" * n)[:n]) for n in (1300, 1472, 8900, 21000))
            peer.settimeout(3.0 * PATIENCE)
            return found

        def both_ways():
            for n in (100, 1200, 1252, 1300, 1452, 1472, 2000, 8000, 8900, 20000):
                assert arrives(f"data({n})", data(n)), n
                peer.sendto(data(n), app.at(7000))
                assert app.do(f"s.recv(65535) == data({n})"), n
        for mtu in (1500, 1280, 9000, 1400):
            for h in (net.a, net.b):
                ip("-n", h.name, "link", "set", h.dev, "mtu", mtu)
            wait_for(settled, 10, f"datagrams in frames of {mtu} bytes")
            both_ways()
        peer.close()


@families
def test_a_smaller_mtu_on_the_way(make_net, family):
    """The path's MTU is below the link's: the ICMP answer tells, and large datagrams arrive after that."""
    net = make_net()
    with App(net.a, True, family) as app:
        peer = app.peer_socket()
        app.do("s = udp(7000)")
        six = ["-6"] if family == "6" else []
        to = net.b.ip6 if family == "6" else net.b.ip4
        app.do(f"s.sendto(b'x' * 1400, {TO})")
        assert len(peer.recv(2000)) == 1400
        ip("-n", net.a.name, *six, "route", "replace", to, "dev", net.a.dev, "mtu", 1300)
        name = "Ip6ReasmOKs" if family == "6" else "IpReasmOKs"

        def in_fragments():
            before = net.b.counters()
            app.do(f"s.sendto(b'x' * 1400, {TO})")
            assert len(peer.recv(2000)) == 1400
            return net.b.counters()[name] == before[name] + 1
        wait_for(in_fragments, 5, "1400 bytes in fragments")
        peer.close()


def loopback(net):
    net.a.run(["sysctl", "-qw", "net.ipv4.conf.lo.route_localnet=1", "net.ipv4.conf.lo.accept_local=1"])
    return {"VMA_OFFLOAD_LOOPBACK": 1}


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "10.77.0.1"])
def test_loopback_in_one_process(make_net, address):
    net = make_net()
    family = "4" if "." in address and ":" not in address else "6"
    with App(net.a, True, family, loopback(net)) as app:
        app.do(f"L = {address!r}; a = udp(7000, L); b = udp(7001, L)")
        for n in (0, 1, 100, 1472, 1473, 9000, 30000, 65507 if family == "4" else 65487):
            app.do(f"a.sendto(bytes([65]) * {n}, (L, 7001))")
            assert app.do("b.recvfrom(70000)[0] == bytes([65]) * %d" % n), n
            app.do(f"b.sendto(b'back', (L, 7000))")
            assert app.do("a.recv(10)") == b"back"
        app.do("c = udp(7002, ANY); c.connect((L, 7000))")
        app.do("c.send(b'connected')")
        assert app.do("a.recvfrom(100)")[0] == b"connected"
        app.do("a.sendto(b'answer', (L, 7002))")
        assert app.do("c.recv(100)") == b"answer"
        app.do("a.sendto(b'self', (L, 7000))")
        assert app.do("a.recv(100)") == b"self"
        # Nobody there: refused, as without the library.
        app.do("c.connect((L, 7999)); c.send(b'x')")
        assert app.do("await_ready(c, select.POLLERR) & select.POLLERR") == 8
        assert app.ask("c.recv(10)") == ("OSError", "ECONNREFUSED")
        with net.a.bypassed():
            for i in range(10):
                app.do("a.sendto(b'fast', (L, 7001))")
                assert app.do("b.recv(10)") == b"fast"


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_loopback_between_processes(make_net, address):
    """One process has the loopback's queue, the other stays with the kernel; they talk, and a kernel program with both."""
    net = make_net()
    family = "6" if ":" in address else "4"
    env = loopback(net)
    with App(net.a, True, family, env) as one, App(net.a, True, family, env) as two, \
            App(net.a, False, family) as kernel:
        for i, app in enumerate((one, two, kernel)):
            app.do(f"L = {address!r}; s = udp({7000 + i}, L)")
        for sender, _ in ((one, 0), (two, 1), (kernel, 2)):
            for i, receiver in enumerate((one, two, kernel)):
                for n in (5, 3000, 40000):
                    sender.do(f"s.sendto(b'x' * {n}, (L, {7000 + i}))")
                    assert receiver.do("len(s.recv(70000))") == n


def test_loopback_is_the_kernels_by_default(make_net):
    net = make_net()
    with App(net.a, True, "4") as app:
        app.do("a = udp(7000, '127.0.0.1'); b = udp(7001, ANY)")
        app.do("a.sendto(b'x', ('127.0.0.1', 7001))")
        assert app.do("b.recvfrom(10)") == (b"x", ("127.0.0.1", 7000))
        app.do("b.sendto(b'to our own address', (ME, 7001))")
        assert app.do("b.recvfrom(100)") == (b"to our own address", (net.a.ip4, 7001))


def test_link_local_addresses(make_net):
    """IPv6 link-local: the scope goes out and comes back."""
    net = make_net()
    with App(net.a, True, "6") as app:
        peer_ll, mine = (wait_for(lambda h=h: link_local(h.name, h.dev), 10, "a link-local address") for h in (net.b, net.a))
        with net.b.entered():
            peer = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
            scope = socket.if_nametoindex(net.b.dev)
        peer.settimeout(3)
        peer.bind((peer_ll, PEER_PORT, 0, scope))
        app.do("IFX = socket.if_nametoindex(DEV); s = udp(7000, '::')")
        for _ in range(3):
            peer.sendto(b"local", (mine, 7000, 0, scope))
            data, address = app.do("s.recvfrom(10)")
            assert (data, address[:2], address[3]) == (b"local", (peer_ll, PEER_PORT), app.do("IFX"))
            app.do(f"s.sendto(b'back', ({peer_ll!r}, {PEER_PORT}, 0, IFX))")
            assert peer.recvfrom(10)[1][:2] == (mine, 7000)
        app.do(f"s.sendto(b'no scope', ({peer_ll!r}, {PEER_PORT}))")  # the kernel takes the only link, too
        assert peer.recvfrom(10)[1][:2] == (mine, 7000)
        assert app.ask(f"s.connect(({peer_ll!r}, {PEER_PORT}))") == ("OSError", "EINVAL")
        app.do(f"s.connect(({peer_ll!r}, {PEER_PORT}, 0, IFX)); s.send(b'connected')")
        assert peer.recvfrom(10)[0] == b"connected"
        peer.sendto(b"answer", (mine, 7000, 0, scope))
        assert app.do("s.recv(10)") == b"answer"
        peer.close()


@pytest.mark.parametrize("sides", ["a", "ab"])
def test_sockperf_in_sequence(make_net, sides):
    """
    sockperf numbers its datagrams and can look into them: none may be lost, doubled, out of order or damaged. At 1,000 a second
    a server that a busy machine does not let run for 0.2 s finds them in its receive buffer; at 10,000 the kernel loses some, too.
    """
    net = make_net()
    server = net.a.popen(["sockperf", "server", "-i", net.a.ip4], preload=True)
    net.a.wait_bound(11111)
    both = "b" in sides
    for left in (2, 1, 0):
        text = net.b.run(["sockperf", "under-load", "-i", net.a.ip4, "-t", 2, "--mps", 1000, "--reply-every", 2,
                          "-m", 200], preload=both).text
        assert "# duplicated messages = 0; # out-of-order messages = 0" in text, text
        if "dropped messages = 0;" in text:
            break
        # An answer that comes later than 50 ms after the end counts as dropped: the machine was busy.
        assert left, text
    for left in (2, 1, 0):
        text = net.b.run(["sockperf", "ping-pong", "-i", net.a.ip4, "-t", 1, "-m", 1000, "--data-integrity"],
                         preload=both).text
        assert "# duplicated messages = 0; # out-of-order messages = 0" in text, text
        if "dropped messages = 0;" in text:
            break
        assert left, text
    assert "== version #" in text and "---> percentile 50.000 = " in text, text
    assert ("VMA_VERSION: " in text) == both, text
    assert "integrity test failed" not in text.lower(), text  # it ends at the first damaged one
    server.stop()


@pytest.fixture
def daemon(net):
    """sockperf's server in the background."""
    net.neighbours()
    net.a.run(["sockperf", "server", "-i", net.a.ip4, "--daemonize"], preload=True)
    net.a.wait_bound(11111)
    pid, = map(int, ip("netns", "pids", net.a.name).split())
    yield pid
    os.kill(pid, signal.SIGTERM)
    wait_for(lambda: not os.path.exists(f"/proc/{pid}"), 10, "the daemon's end")


@pytest.mark.parametrize("mode", ["ping-pong", pytest.param("playback", marks=pytest.mark.no_sanitize)])
def test_sockperf_s_daemon_and_what_asks_it(net, daemon, mode):
    """A client that reads up to five at a time (--recv_looping_num), and one that plays a file."""
    played = net.tmp / "played.csv"
    played.write_text("".join(f"{1 + i / 1000:.6f}, {64 + i % 500}\n" for i in range(3000)))
    options = {"ping-pong": ["-t", 1, "--nonblocked", "--recv_looping_num", 5], "playback": ["--data-file", played, "--reply-every", 5]}[mode]
    with net.a.bypassed(at_most=20), net.b.bypassed(at_most=20):
        text = net.b.run(["sockperf", mode, "-i", net.a.ip4, *options], preload=True).text
    counts = re.search(r"\[Total Run\].*SentMessages=(\d+); ReceivedMessages=(\d+)", text)
    assert counts and "# duplicated messages = 0; # out-of-order messages = 0" in text, text
    sent, received = map(int, counts.groups())
    print(f"{mode}: {sent} sent, {received} answers")
    # The first and the last ones go with the server's start and the client's end.
    assert (sent >= 500 and received >= 50) if mode == "playback" else received > 10, text
