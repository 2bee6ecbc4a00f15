# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""TCP while addresses and interfaces change under it. What the kernel does is in every test's first case."""

import pytest

from netns import ip, wait_for
from test_tcp_both import PAIRS, PORT, both, connected

sides = pytest.mark.parametrize("server_ours, client_ours", [pytest.param(False, False, id="kernel"), *PAIRS])


def address(host, what, net=None):
    """Adds or removes the host's IPv4 address of the link."""
    ip("-n", host.name, "addr", what, f"{host.ip4}/24", "dev", host.dev)
    if net:
        net.neighbours()


@sides
@pytest.mark.parametrize("end", ["server", "client"])
def test_an_address_that_goes_and_comes_back(net, server_ours, client_ours, end):
    """What is sent meanwhile is not refused, and arrives when the address is there again."""
    net.neighbours()
    with connected(net, "4", server_ours, client_ours) as (server, client):
        host, app, other = (net.a, server, client) if end == "server" else (net.b, client, server)
        client.do("s.sendall(b'before')")
        assert server.do("exactly(s, 6)") == b"before"
        address(host, "del")
        for x in (app, other):
            x.do("s.sendall(b'meanwhile')")
        app.do("time.sleep(0.4)")  # longer than a retransmission timeout
        address(host, "add", net)
        for x in (app, other):
            assert x.do("exactly(s, 9)", 20) == b"meanwhile"
        app.do("s.sendall(b'after')")
        assert other.do("exactly(s, 5)") == b"after"


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
        ip("-n", net.a.name, "addr", "del", "10.78.0.1/24", "dev", net.a.dev)
        client.do("s = socket.socket(); s.settimeout(0.5)")
        assert client.ask(f"s.connect(('10.78.0.1', {PORT}))")[0] == "OSError"
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
        for x in (server, client):
            x.do("s.settimeout(1)")
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
