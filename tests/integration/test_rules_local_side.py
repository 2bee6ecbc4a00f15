# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""libvma.conf: a rule's local side holds for a client that is not bound, too: by the address that the kernel chooses for it."""

import pytest

from differential import App
from test_tcp_both import HELPERS, PORT


def offloaded(host, tmp_path, rule, kind):
    """Whether what an unbound client sends goes past the kernel under the rule."""
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
        return host.counters()[sent] == before[sent]


@pytest.mark.parametrize("kind, role", [("tcp", "tcp_client"), ("udp", "udp_connect")])
def test_the_local_side_of_a_rule(net, tmp_path, kind, role):
    net.neighbours()
    cases = {f"use os {role} *:*:{net.b.ip4}:*": False, f"use os {role} *:*:10.77.0.9:*": True,
             f"use vma {role} *:*:{net.b.ip4}:*\nuse os {role} *:*": True, f"use os {role} *:*:10.77.0.0/24:*": False}
    for rule, expected in cases.items():
        print(f"{rule!r}: offloaded {expected}")
        assert offloaded(net.b, tmp_path, rule, kind) is expected, rule
