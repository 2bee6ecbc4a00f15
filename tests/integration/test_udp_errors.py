# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What comes back from the network as an error: ICMP port unreachable on connected sockets, and the error queue."""

import pytest

from differential import FAMILIES, PEER_PORT, differential

families = pytest.mark.parametrize("family", FAMILIES)
DEAD = 7999  # nobody is bound to it
ERR = "await_ready(s, select.POLLERR)"


@pytest.fixture(autouse=True)
def every_icmp_message(unet):
    """The peer's kernel answers each datagram, not only some a second."""
    unet.b.run(["sysctl", "-qw", "net.ipv4.icmp_ratelimit=0", "net.ipv4.icmp_msgs_per_sec=100000",
                "net.ipv6.icmp.ratelimit=0"])


@families
def test_refused_on_each_way(unet, family):
    """The answer to a datagram that nobody wanted is reported once, by whichever call comes next."""
    def steps(app, peer):
        for call in ("s.recv(10)", "s.recv(10, socket.MSG_DONTWAIT)", "s.send(b'x')", "s.recvmsg(10)",
                     "sendmmsg(s, [b'1', b'2'])", "recvmmsg(s, 2)", "s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)",
                     "s.sendmsg([b'x'])", "os.write(s.fileno(), b'x')", "os.read(s.fileno(), 5)"):
            app(f"s = udp(7000); s.connect((PEER, {DEAD}))")
            app("s.send(b'anyone?')")
            app(f"{ERR} & select.POLLERR")
            app(call)
            app("s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)")
            app("s.close()")
        app(f"s = udp(7000); s.connect((PEER, {DEAD}))")
        app("s.send(b'anyone?')")
        app("s.recv(10)")  # blocks until the answer comes
        app("s.settimeout(2)")
        app("s.send(b'anyone?')")
        app("s.recv(10)")
        app(f"s.sendto(b'x', (PEER, {DEAD}))")
        app(f"{ERR}")
        app("ready(s)")
        app("s.connect((PEER, 7001))")
        app("s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)")
        app("s.send(b'good')")
        app.note("peer got", peer.recv(10))
    differential(unet, family, steps)


@families
def test_an_error_comes_before_the_data(unet, family):
    def steps(app, peer):
        third = app.peer_socket(7002)
        app("s = udp(7000, ANY); s.connect((PEER, 7002))")
        third.sendto(b"queued", app.at(7000))
        app("await_ready(s) & select.POLLIN")
        third.close()
        app("s.send(b'refused')")
        app(f"{ERR} & (select.POLLERR | select.POLLIN)")
        app("s.recv(10)")
        app("s.recv(10)")
        app("s.recv(10, socket.MSG_DONTWAIT)")
    differential(unet, family, steps)


@families
def test_unconnected_sockets_hear_nothing(unet, family):
    def steps(app, peer):
        app("s = udp(7000)")
        app(f"s.sendto(b'x', (PEER, {DEAD}))")
        app(f"s.sendto(b'x', (PEER, {DEAD}))")
        app("await_ready(s, select.POLLERR, timeout=0.1)")
        app(f"s.sendto(b'x', (PEER, {PEER_PORT}))")
        app.note("peer got", peer.recv(10))
        app("s.recv(10, socket.MSG_DONTWAIT)")
    differential(unet, family, steps)


@families
def test_error_queue(unet, family):
    def steps(app, peer):
        app("s = udp(7000)")
        app("s.recvmsg(100, 200, socket.MSG_ERRQUEUE)")
        app("s.setsockopt(0, IP_RECVERR, 1)")
        app("s.setsockopt(41, IPV6_RECVERR, 1)")
        app(f"s.sendto(b'nobody there', (PEER, {DEAD}))")
        app(f"{ERR} & select.POLLERR")
        app("(lambda r: (r[0], [(l, t, d[:16]) for l, t, d in r[1]], r[2], r[3]))"
            "(s.recvmsg(100, 200, socket.MSG_ERRQUEUE))")
        app("s.recvmsg(100, 200, socket.MSG_ERRQUEUE)")
        app("s.recv(10, socket.MSG_DONTWAIT)")
        app("s.recv(10, socket.MSG_DONTWAIT)")
        app(f"s.sendto(b'once more', (PEER, {DEAD}))")
        app(f"{ERR} & select.POLLERR")
        app(f"s.sendto(b'reported here', (PEER, {PEER_PORT}))")
        app(f"s.sendto(b'goes out', (PEER, {PEER_PORT}))")
        app.note("peer got", peer.recv(100))
        app("s.recvmsg(4, 200, socket.MSG_ERRQUEUE)[0::2]")
        app("ready(s)")
        app("s.setsockopt(0, IP_RECVERR, 0)")
        app("s.setsockopt(41, IPV6_RECVERR, 0)")
    differential(unet, family, steps)


@families
def test_no_route(unet, family):
    nowhere = {"4": "192.0.2.1", "6": "2001:db8::1", "mapped": "::ffff:192.0.2.1"}[family]

    def steps(app, peer):
        app("s = udp()")
        app(f"s.sendto(b'x', ('{nowhere}', 5))")
        app(f"s.connect(('{nowhere}', 5))")
        app(f"s.connect((PEER, {PEER_PORT}))")
        app("s.send(b'x')")
        app.note("peer got", peer.recv(10))
        app(f"s.connect(('{nowhere}', 5))")
        app("s.getpeername()[:2]")
    differential(unet, family, steps)
