# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""TCP while addresses and interfaces change under it. What the kernel does is in every test's first case."""

import time

import pytest

from netns import ip, stopped, wait_for
from test_tcp_both import PAIRS, PORT, both, connected, families, tcp_segments

sides = pytest.mark.parametrize("server_ours, client_ours", [pytest.param(False, False, id="kernel"), *PAIRS])


def address(host, what, net=None, family="4"):
    """Adds or removes the host's address of the link."""
    if family == "4":
        ip("-n", host.name, "addr", what, f"{host.ip4}/24", "dev", host.dev)
    else:
        ip("-n", host.name, "addr", what, f"{host.ip6}/64", "dev", host.dev, *(["nodad"] if what == "add" else []))
    if net:
        net.neighbours()


@sides
@families
@pytest.mark.parametrize("end", ["server", "client"])
def test_an_address_that_goes_and_comes_back(net, server_ours, client_ours, end, family):
    """What is sent meanwhile is not refused, and arrives when the address is there again."""
    net.neighbours()
    with connected(net, family, server_ours, client_ours) as (server, client):
        host, app, other = (net.a, server, client) if end == "server" else (net.b, client, server)
        client.do("s.sendall(b'before')")
        assert server.do("exactly(s, 6)") == b"before"
        address(host, "del", family=family)
        for x in (app, other):
            x.do("s.sendall(b'meanwhile')")
        app.do("time.sleep(0.4)")  # longer than a retransmission timeout
        address(host, "add", net, family)
        for x in (app, other):
            assert x.do("exactly(s, 9)", 20) == b"meanwhile"
        app.do("s.sendall(b'after')")
        assert other.do("exactly(s, 5)") == b"after"


@families
@pytest.mark.parametrize("accepted", [True, False], ids=["accepted", "waits"])
def test_an_address_that_comes_back_before_anybody_looks(net, family, accepted):
    """The kernel has the address, the library does not know yet: no connection of its is reset."""
    net.neighbours()
    with both(net, family, True, False) as (server, client):
        client.do("s = client()")
        if accepted:
            server.do("s, _ = l.accept()", 20)
        else:
            wait_for(lambda: server.do("ready(l)"), 10, "a connection")
        address(net.a, "del", family=family)
        time.sleep(1)
        with stopped(server.pid):
            address(net.a, "add", net, family)
            client.do("s.sendall(b'meanwhile')")
            time.sleep(1)
        if not accepted:
            server.do("s, _ = l.accept()", 20)
        assert server.do("exactly(s, 9)", 20) == b"meanwhile"
        server.do("s.sendall(b'answer')")
        assert client.do("exactly(s, 6)") == b"answer"


@sides
@pytest.mark.parametrize("kept", [False, True], ids=["address-goes", "address-kept"])
@pytest.mark.parametrize("end", ["server", "client"])
def test_an_ipv6_cable_that_is_cut_and_mended(net, server_ours, client_ours, end, kept):
    """A link that goes down takes its IPv6 addresses along (keep_addr_on_down=0): the streams go on when they are back."""
    net.neighbours()
    with connected(net, "6", server_ours, client_ours) as (server, client):
        host = net.a if end == "server" else net.b
        host.run(["sysctl", "-qw", f"net.ipv6.conf.all.keep_addr_on_down={int(kept)}"])
        server.start("got = read_all(s)")
        client.start("q = write_all(s, 30000000, 3); s.shutdown(socket.SHUT_WR)")
        ip("-n", host.name, "link", "set", host.dev, "down")
        time.sleep(0.5)  # longer than one retransmission timeout
        ip("-n", host.name, "link", "set", host.dev, "up")
        if not kept:
            assert host.ip6 not in ip("-n", host.name, "addr", "show", "dev", host.dev)
            address(host, "add", family="6")
        net.neighbours()
        client.answer(40)
        server.answer(40)
        assert server.do("got") == client.do("q")


@sides
def test_a_listener_on_any_address_has_those_that_come_later(net, server_ours, client_ours):
    with both(net, "4", server_ours, client_ours) as (server, client):
        for host, n in ((net.a, 1), (net.b, 2)):
            ip("-n", host.name, "addr", "add", f"10.78.0.{n}/24", "dev", host.dev)

        def segments():
            c = net.a.counters()
            return c["TcpInSegs"] + c["TcpOutSegs"]

        # The library learns it from the kernel a moment later; a connection before that is the kernel's.
        def served():
            before = segments()
            client.do(f"s = socket.create_connection(('10.78.0.1', {PORT}))")
            server.do("s, _ = l.accept()")
            client.do("s.sendall(b'hello')")
            assert server.do("exactly(s, 5)") == b"hello"
            return not server_ours or segments() == before

        wait_for(served, what="a connection to the new address past the kernel's TCP")

        def refused():
            client.do("s = socket.socket(); s.settimeout(0.5)")
            said = client.ask(f"s.connect(('10.78.0.1', {PORT}))")
            if not said:
                # Not there if the address went in the middle of its handshake.
                server.ask("l.accept()[0].close()")
            return said and said[0] == "OSError"

        server.do("l.settimeout(2)")
        ip("-n", net.a.name, "addr", "del", "10.78.0.1/24", "dev", net.a.dev)
        wait_for(refused, what="the end of the address")
        server.do("l.settimeout(None)")
        # The others are served as before.
        server.start("s, _ = l.accept()")
        client.do("s = client()")
        server.answer()


@sides
def test_connect_without_an_address(net, server_ours, client_ours):
    with both(net, "4", server_ours, client_ours) as (server, client):
        address(net.b, "del")
        assert client.ask("client()") == ("OSError", "ENETUNREACH")
        address(net.b, "add", net)
        server.start("s, _ = l.accept()")
        client.do("s = client()")
        server.answer()


@sides
def test_an_interface_that_goes(net, server_ours, client_ours):
    """Nobody hangs on what is gone, sockets can be closed, and a new interface of the name serves as the old one did."""
    with connected(net, "4", server_ours, client_ours) as (server, client):
        for x, ours in ((server, server_ours), (client, client_ours)):
            x.do(f"s.settimeout({20 if ours else 1})")
            x.start("s.recv(10)")
        ip("-n", net.a.name, "link", "del", net.a.dev)
        for x, ours in ((server, server_ours), (client, client_ours)):
            # Our buffers are the interface's: the connection is over at once, where the kernel's lasts until it gives up.
            assert x.answer() == ("OSError", "ECONNABORTED" if ours else "TimeoutError")
            x.do("s.close()")
        net.link()
        net.neighbours()

        def again():
            server.start("s, _ = l.accept()")
            client.do("s = client(); s.sendall(b'again')")
            server.answer()
            return server.do("exactly(s, 5)") == b"again"

        assert again()

        # Its addresses come one after the other: the first connection may be the kernel's.
        def past_the_kernel():
            before = tcp_segments(net.a)
            return again() and tcp_segments(net.a) == before

        if server_ours:
            wait_for(past_the_kernel, 20, "a connection past the kernel's TCP")
