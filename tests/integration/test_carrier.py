# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Many drivers take the carrier away for a second or more when a program is attached: what begins meanwhile waits for it."""

import contextlib

import pytest

from differential import App
from netns import ip, wait_for
from test_stats_counters import figures


@contextlib.contextmanager
def no_carrier(net):
    """net.a's interface is up and has none, as where a driver begins anew. Its addresses and neighbours stay."""
    net.b.run(["sysctl", "-qw", "net.ipv6.conf.all.keep_addr_on_down=1"])
    ip("-n", net.b.name, "link", "set", net.b.dev, "down")
    wait_for(lambda: "NO-CARRIER" in ip("-n", net.a.name, "link", "show", net.a.dev), what="the interface without carrier")
    yield
    ip("-n", net.b.name, "link", "set", net.b.dev, "up")


def syns_in_vain(net, app, ours):
    """SYNs that were sent again; the connection is the only one."""
    return figures(app)["rings"][0]["retransmits"] if ours else net.a.counters()["TcpRetransSegs"]


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "kernel"])
@pytest.mark.parametrize("family", ["4", "6"])
def test_what_begins_without_carrier_waits_for_it(net, family, ours):
    net.neighbours()
    with App(net.a, ours, family) as app, App(net.b, False, family) as peer:
        app.do("u = udp(7000); u.settimeout(10); u.sendto(b'x', (PEER, 7999))")
        peer.do("import socket as k; v = udp(7200); v.settimeout(10); "
                "l = k.create_server((ME, 8000), family=k.AF_INET6 if ':' in ME else k.AF_INET)")
        before = syns_in_vain(net, app, ours)
        with no_carrier(net):
            assert app.do("u.sendto(b'into the void', (PEER, 7200))") == 13
            app.start("c = socket.create_connection((PEER, 8000), 30)")
            wait_for(lambda: syns_in_vain(net, app, ours) > before, 20, "a SYN sent again")
        assert app.answer(30) is None
        peer.do("s = l.accept()[0]; s.settimeout(10)")
        app.do("c.sendall(b'hello')")
        assert peer.do("s.recv(5)") == b"hello"
        app.do("u.sendto(b'again', (PEER, 7200))")
        assert peer.do("v.recv(100)") == b"again"
        print(f"{syns_in_vain(net, app, ours) - before} SYNs sent in vain")
        if ours:
            assert [s["offloaded"] for s in figures(app)["sockets"] if s["state"] == "ESTABLISHED"] == [True]
