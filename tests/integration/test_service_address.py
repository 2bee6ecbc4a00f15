# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Addresses that stand on lo: a router, or a load balancer, sends packets for them to the host's interfaces."""

import contextlib
import socket

import pytest

from differential import App, differential
from netns import ip, second_way, wait_for

FAMILIES = ["4", "6"]
families = pytest.mark.parametrize("family", FAMILIES)
SERVICE = {"4": "10.79.0.1", "6": "fd79::1"}
AF = {"4": socket.AF_INET, "6": socket.AF_INET6}


@pytest.fixture
def router(net):
    """The peer sends packets for the service address to the host."""
    net.neighbours()
    ip("-n", net.a.name, "addr", "add", "10.79.0.1/32", "dev", "lo")
    ip("-n", net.a.name, "addr", "add", "fd79::1/128", "dev", "lo")
    wait_for(lambda: "fd79::1" in ip("-n", net.a.name, "-6", "route", "show", "table", "local"), what="the address in use")
    ip("-n", net.b.name, "route", "add", "10.79.0.1", "via", net.a.ip4)
    ip("-n", net.b.name, "-6", "route", "add", "fd79::1", "via", net.a.ip6)
    return net


def by_second(net):
    ip("-n", net.b.name, "route", "replace", "10.79.0.1", "via", "10.78.0.1")
    ip("-n", net.b.name, "-6", "route", "replace", "fd79::1", "via", "fd78::1")


def echo(app, peer, word, to):
    peer.sendto(word, to)
    app.do("data, client = s.recvfrom(100); s.sendto(data + b'!', client)")
    data, at = peer.recvfrom(100)
    return data, at[:2]


@families
@pytest.mark.parametrize("bound", ["SERVICE", "ANY"])
def test_datagrams_to_an_address_on_lo_are_offloaded(router, family, bound):
    """Bound to any, the answer goes from the address of the route, as the kernel's."""
    service = SERVICE[family]
    with App(router.a, True, family) as app:
        peer = app.peer_socket()
        app.do(f"SERVICE = {service!r}; s = udp(7000, {bound}); await_ready(s, timeout=0.01)")
        with router.a.bypassed():
            for word in (b"one", b"two", b"three"):
                source = service if bound == "SERVICE" else router.a.ip(AF[family])
                assert echo(app, peer, word, (service, 7000)) == (word + b"!", (source, 7000))


@families
@pytest.mark.parametrize("bound", ["SERVICE", "ANY"])
def test_a_client_on_the_host_is_served_by_the_kernel_at_the_same_time(router, family, bound):
    service = SERVICE[family]

    def steps(app, peer):
        app.do(f"SERVICE = {service!r}")
        app(f"s = udp(7000, {bound})")
        app("await_ready(s, timeout=0.01)")
        with router.a.socket(AF[family]) as local:
            local.bind((service, 7005))
            for word in (b"one", b"two"):
                for client, name in ((local, "local"), (peer, "peer")):
                    client.sendto(word, (service, 7000))
                    app(f"data, client = s.recvfrom(100); s.sendto(data + b'!', client)")
                    app.note(name, client.recvfrom(100))
    differential(router, family, steps)


@families
def test_a_name_server_answers_from_the_address_on_lo(router, family):
    service = SERVICE[family]
    with App(router.a, True, family) as app:
        peer = app.peer_socket()
        app.do(f"s = udp(7000, ANY); s.setsockopt({'0, 8' if family == '4' else '41, 49'}, 1); await_ready(s, timeout=0.01)")
        with router.a.bypassed():
            peer.sendto(b"question", (service, 7000))
            app.do("data, anc, _, client = s.recvmsg(100, 100); s.sendmsg([b'answer'], anc, 0, client)")
            assert peer.recvfrom(100)[1][0] == service


@families
def test_datagrams_by_two_interfaces_are_offloaded(router, family):
    service = SERVICE[family]
    second_way(router)
    with App(router.a, True, family) as app:
        peer = app.peer_socket()
        app.do(f"s = udp(7000, {service!r}); await_ready(s, timeout=0.01)")
        echo(app, peer, b"first", (service, 7000))
        with router.a.bypassed():
            assert echo(app, peer, b"one", (service, 7000)) == (b"one!", (service, 7000))
        by_second(router)
        # Who is asked for its MAC: it is no datagram of ours. The answer goes by the route of the peer, which is the first way.
        with router.a.bypassed():
            assert echo(app, peer, b"two", (service, 7000)) == (b"two!", (service, 7000))


@families
@pytest.mark.parametrize("bound", ["SERVICE", "ANY"])
def test_connections_to_an_address_on_lo_are_offloaded(router, family, bound):
    service = SERVICE[family]
    with App(router.a, True, family) as app:
        app.do(f"s = socket.socket(FAM); s.bind(({(service if bound == 'SERVICE' else '')!r}, 7000)); s.listen()")
        app.do("await_ready(s, timeout=0.01)")
        with router.a.tcp_bypassed():
            for word in (b"one", b"two"):
                with router.b.socket(AF[family], socket.SOCK_STREAM) as client:
                    app.start("c, at = s.accept(); c.sendall(c.recv(100) + b'!')")
                    client.connect((service, 7000))
                    client.sendall(word)
                    assert client.recv(100) == word + b"!"
                    app.answer()
                    assert app.do("c.getsockname()[0], at[0]") == (service, router.b.ip(AF[family]))
                    app.do("c.close()")
                    assert client.recv(1) == b""


@families
def test_a_connection_from_the_host_is_the_kernel_s_at_the_same_time(router, family):
    service = SERVICE[family]
    with App(router.a, True, family) as app:
        app.do(f"s = socket.socket(FAM); s.bind(({service!r}, 7000)); s.listen(); await_ready(s, timeout=0.01); held = []")
        with router.b.socket(AF[family], socket.SOCK_STREAM) as peer, router.a.socket(AF[family], socket.SOCK_STREAM) as local:
            for client, at in ((peer, router.b.ip(AF[family])), (local, service)):
                app.start("c, at = s.accept(); held.append(c)")
                client.connect((service, 7000))
                app.answer()
                assert app.do("at[0]") == at
            for word in (b"one", b"two"):
                for i, client in enumerate((peer, local)):
                    client.sendall(word)
                    app.do(f"held[{i}].sendall(held[{i}].recv(100) + b'!')")
                    assert client.recv(100) == word + b"!"
            # The host's own client acknowledges late, and through the kernel.
            wait_for(lambda: app.do("held[1].getsockopt(6, socket.TCP_INFO, 28)[24:]") == bytes(4), 10, "tcpi_unacked 0")
            with router.a.tcp_bypassed():
                peer.sendall(b"last")
                assert app.do("held[0].recv(100)") == b"last"


@contextlib.contextmanager
def a_connection_that_moves(router, family):
    """One by the first way, which the block makes the peer leave: what is sent by the second way arrives, both ways."""
    service = SERVICE[family]
    with App(router.a, True, family) as app, router.b.socket(AF[family], socket.SOCK_STREAM) as client:
        app.do(f"s = socket.socket(FAM); s.bind(({service!r}, 7000)); s.listen(); await_ready(s, timeout=0.01)")
        client.bind((router.b.ip(AF[family]), 0))
        app.start("c = s.accept()[0]; data = c.recv(100)")
        client.connect((service, 7000))
        client.sendall(b"first way")
        app.answer()
        assert app.do("data") == b"first way"
        yield
        by_second(router)
        client.sendall(b"second way")
        assert app.do("c.recv(100)") == b"second way"
        app.do("c.sendall(b'back')")
        assert client.recv(100) == b"back"


@families
def test_a_connection_survives_that_its_packets_come_by_another_interface(router, family):
    """Which only the kernel can do: with two interfaces the listener is its."""
    second_way(router)
    with a_connection_that_moves(router, family):
        pass


@families
def test_a_connection_of_the_time_when_the_other_interface_had_no_carrier_survives_its_return(router, family):
    two = ("-n", router.b.name, "link", "set", "two-b")
    second_way(router)
    ip(*two, "down")
    wait_for(lambda: "NO-CARRIER" in ip("-n", router.a.name, "link", "show", "two-a"), what="the interface without carrier")
    with a_connection_that_moves(router, family):
        ip(*two, "up")
        ip("-n", router.b.name, "addr", "replace", "fd78::2/64", "dev", "two-b", "nodad")
        wait_for(lambda: " state UP " in ip("-n", router.a.name, "link", "show", "two-a"), what="the interface up")


@families
def test_an_address_that_comes_to_lo_later_is_offloaded_then(net, family):
    net.neighbours()
    service = SERVICE[family]
    with App(net.a, True, family) as app:
        peer = app.peer_socket()
        app.do("s = udp(7000, ANY); l = socket.socket(FAM); l.bind(('', 7000)); l.listen(); await_ready(s, timeout=0.01); await_ready(l, timeout=0.01)")
        ip("-n", net.a.name, "addr", "add", f"{service}/{'32' if family == '4' else '128'}", "dev", "lo")
        # IPv6: the kernel makes its route some time after the address.
        wait_for(lambda: service in ip("-n", net.a.name, f"-{family}", "route", "show", "table", "local"), what="the address in use")
        ip("-n", net.b.name, f"-{family}", "route", "add", service, "via", net.a.ip(AF[family]))

        def offloaded():
            before = net.a.counters()
            echo(app, peer, b"x", (service, 7000))
            with net.b.socket(AF[family], socket.SOCK_STREAM) as client:
                app.start("c = l.accept()[0]; c.close()")
                client.connect((service, 7000))
                app.answer()
            after = net.a.counters()
            return all(after[n] == before[n] for n in ("UdpInDatagrams", "Udp6InDatagrams", "TcpPassiveOpens"))
        wait_for(offloaded, 10, "packets to the new address come by the ring")
