# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
libvma.conf: a rule's peer is the one that connect() names, and its local side holds for a client that is not bound, too: by the
address that the kernel chooses for it.
"""

import pytest

from differential import App
from netns import ip, wait_for
from test_tcp_both import HELPERS, PORT
from test_why import reasons


def offloaded(host, tmp_path, rule, kind):
    """Whether what an unbound client sends goes past the kernel under the rule; vma_stats gives the rule as the reason."""
    conf = tmp_path / "libvma.conf"
    conf.write_text(f"application-id * *\n{rule}\n")
    peer = host.net.a.socket() if kind == "udp" else None
    if peer:
        peer.bind((host.net.a.ip4, PORT))
    with App(host.net.a, False) as server, App(host, True, env={"VMA_CONFIG_FILE": conf}) as client:
        server.do(HELPERS)
        client.do(HELPERS)
        server.do("l = listener()")
        before = host.counters()
        if kind == "tcp":
            client.do("s = client()")
            server.do("s, _ = l.accept()")
            sent = "TcpActiveOpens"
        else:
            client.do(f"s = socket.socket(FAM, socket.SOCK_DGRAM); s.connect((PEER, {PORT})); s.send(b'x')")
            assert peer.recv(10) == b"x"
            sent = "UdpOutDatagrams"
        past = host.counters()[sent] == before[sent]
        fd = client.do("s.fileno()")
        wait_for(lambda: ("rule" in reasons(client, fd)[1]) is not past, 10, lambda: (past, reasons(client, fd)))
        return past


ROLES = pytest.mark.parametrize("kind, role", [("tcp", "tcp_client"), ("udp", "udp_connect")])


def decide(host, tmp_path, kind, cases):
    for rule, expected in cases.items():
        print(f"{rule!r}: offloaded {expected}")
        assert offloaded(host, tmp_path, rule, kind) is expected, rule


@ROLES
def test_the_peer_that_a_rule_names(net, tmp_path, kind, role):
    """By address and port, neither of them the client's own."""
    net.neighbours()
    server, client = net.a.ip4, net.b.ip4
    decide(net.b, tmp_path, kind, {
        f"use os {role} {server}:{PORT}": False, f"use os {role} {server}:{PORT + 1}": True, f"use os {role} {client}:{PORT}": True,
        f"use os {role} 10.77.0.0/24:{PORT - 1}-{PORT}": False, f"use vma {role} {server}:{PORT}\nuse os {role} *:*": True})


@ROLES
def test_the_local_side_of_a_rule(net, tmp_path, kind, role):
    net.neighbours()
    cases = {f"use os {role} *:*:{net.b.ip4}:*": False, f"use os {role} *:*:10.77.0.9:*": True,
             f"use vma {role} *:*:{net.b.ip4}:*\nuse os {role} *:*": True, f"use os {role} *:*:10.77.0.0/24:*": False}
    decide(net.b, tmp_path, kind, cases)


def test_a_listener_that_a_rule_leaves_to_the_kernel_stays_there(net, tmp_path):
    """Also when the host gets further addresses."""
    net.neighbours()
    conf = tmp_path / "libvma.conf"
    conf.write_text("application-id * *\nuse os tcp_server *:*\n")
    with App(net.a, True, env={"VMA_CONFIG_FILE": conf}) as app, net.b.socket() as peer:
        app.do("l = socket.create_server((ANY, 7000)); await_ready(l, timeout=0.01); u = udp(7000, ANY); u.setblocking(False)")
        for address in ("10.77.0.5", "10.77.0.6"):  # with the second one the first was followed everywhere
            ip("-n", net.a.name, "addr", "add", f"{address}/24", "dev", net.a.dev)

            def follows():
                before = net.a.counters()["UdpInDatagrams"]
                peer.sendto(b"x", (address, 7000))
                return app.do("await_ready(u) and u.recv(10)") == b"x" and net.a.counters()["UdpInDatagrams"] == before
            wait_for(follows, 10, "the library knows of the address")
        before = net.a.counters()["TcpPassiveOpens"]
        with net.b.socket(kind=1) as c:
            c.connect((net.a.ip4, 7000))
            app.do("l.accept()[0].close()")
        assert net.a.counters()["TcpPassiveOpens"] == before + 1


@pytest.mark.parametrize("role, past", [("udp_receiver", True), ("udp_connect", False)])
def test_a_connected_receiver_is_no_udp_receiver(net, tmp_path, role, past):
    """What it receives goes by the rules for connected sockets, too, whatever it is bound to."""
    net.neighbours()
    conf = tmp_path / "libvma.conf"
    conf.write_text(f"application-id * *\nuse os {role} *:*\n")
    with App(net.a, True, env={"VMA_CONFIG_FILE": conf}) as app, net.b.socket() as peer:
        peer.bind((net.b.ip4, 7001))
        app.do(f"s = socket.socket(FAM, socket.SOCK_DGRAM); s.bind((ME, 7000)); s.connect(({net.b.ip4!r}, 7001)); s.settimeout(20)")

        def goes_past():
            before = net.a.counters()["UdpInDatagrams"]
            peer.sendto(b"x", (net.a.ip4, 7000))
            assert app.do("s.recv(10)") == b"x"
            return net.a.counters()["UdpInDatagrams"] == before
        wait_for(lambda: goes_past() is past, 10, f"offloaded: {past}")
        assert ("rule" in reasons(app, app.do("s.fileno()"))[1]) is not past


@pytest.mark.parametrize("address, past", [("0.0.0.0/0", True), ("10.77.0.1", True), ("0.0.0.0", True), ("[::]", False), ("[::]/0", False),
                                           ("*", False)])
def test_a_rule_for_a_listener_on_all_addresses_of_both_families(net, tmp_path, address, past):
    """It has an IPv6 address, also for clients that come by IPv4."""
    net.neighbours()
    conf = tmp_path / "libvma.conf"
    conf.write_text(f"application-id * *\nuse os tcp_server {address}:7000\n")
    with App(net.a, True, env={"VMA_CONFIG_FILE": conf}) as app:
        app.do("l = socket.socket(socket.AF_INET6, socket.SOCK_STREAM); l.bind(('::', 7000)); l.listen(); l.settimeout(20)")
        app.do("await_ready(l, timeout=0.01)")
        before = net.a.counters()["TcpPassiveOpens"]
        with net.b.socket(kind=1) as c:
            c.connect((net.a.ip4, 7000))
            app.do("l.accept()[0].close()")
        assert (net.a.counters()["TcpPassiveOpens"] == before) is past
