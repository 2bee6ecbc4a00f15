# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A host with more interfaces than a process has rings (64): the last one is served like the first."""

import socket

from differential import App
from netns import flow_table, ip, ip_batch, wait_for

OTHERS = 150


def steered(app, port):
    return any(e["formatted"]["key"]["local_port"] == port for e in flow_table(app.pid) or [])


def test_one_behind_many_others_is_served(net):
    ip("-n", net.a.name, "link", "del", net.a.dev)
    ip_batch([f"link add many{i} type bridge" for i in range(OTHERS)], net.a.name)
    net.link()
    net.neighbours()
    with App(net.a, True) as app, app.peer_socket() as peer:
        app.do("u = udp(7000, ANY); u.settimeout(10)")
        app.start("u.recvfrom(100)")
        wait_for(lambda: steered(app, 7000), 20, "the datagram socket's rule")
        with net.a.bypassed():
            peer.sendto(b"a datagram", app.at(7000))
            assert app.answer(20) == (b"a datagram", peer.getsockname())
        app.do("l = socket.create_server(('', 7002)); l.settimeout(20)")
        app.start("c, _ = l.accept()")
        wait_for(lambda: steered(app, 7002), 20, "the listener's rule")
        with net.a.tcp_bypassed(), net.b.socket(kind=socket.SOCK_STREAM) as c:
            c.connect((net.a.ip4, 7002))
            app.answer(20)
            c.sendall(b"a stream")
            assert app.do("c.recv(100)") == b"a stream"
    print(f"served by interface {OTHERS + 2} of net.a")
