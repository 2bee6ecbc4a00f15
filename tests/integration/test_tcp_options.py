# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What options of a TCP socket do, against a kernel peer: as with kernel sockets, and in user space where it can be."""

import socket
import struct

import pytest

from netns import wait_for
from test_tcp_calls import differential_tcp, families, roles, run
from test_tcp_params import shadow

TCP_CLOSE, TCP_INFO, TCP_INQ = 7, socket.TCP_INFO, 36
STAMPS = {"SO_TIMESTAMP": 29, "SO_TIMESTAMPNS": 35, "SO_TIMESTAMP_NEW": 63, "SO_TIMESTAMPNS_NEW": 64}


def in_user_space(app):
    """The kernel's own socket of s is idle."""
    with shadow(app, app.do("s.fileno()")) as kernel:
        return kernel.getsockopt(socket.IPPROTO_TCP, TCP_INFO, 1)[0] == TCP_CLOSE


def waits(app, n):
    app.do(f"for i in range(500):\n if struct.unpack('i', fcntl.ioctl(s, termios.FIONREAD, b'0000'))[0] >= {n}: break\n time.sleep(0.01)")


@roles
@families
def test_inq_is_told(unet, family, role):
    def steps(app, peer):
        app(f"s.setsockopt(6, {TCP_INQ}, 1)")
        peer.sendall(b"123456789")
        waits(app, 9)
        app("rmsg(s, 2, flags=socket.MSG_PEEK)")
        app("rmsg(s, 2)")
        app("s.recv(1)")
        for room in (0, 12, 16, 19, 20, 24):
            app(f"rmsg(s, 1, {room}, socket.MSG_PEEK)")
        app("rmsg(s, 100)")
        peer.sendall(b"end")
        peer.shutdown(socket.SHUT_WR)
        app.do("await_ready(s, 0x2000)")
        app("rmsg(s, 1)")
        app("rmsg(s, 100)")
        app("rmsg(s, 100)")
        app(f"s.setsockopt(6, {TCP_INQ}, 0)")
        app("rmsg(s, 100)")
        if app.preload:
            assert in_user_space(app)
    differential_tcp(unet, family, steps, role)


def stamped(app, peer):
    """The kernel begins to stamp at some time after it was asked."""
    peer.sendall(b"x")
    app.do("await_ready(s)")
    return [kind for level, kind, _ in app.do("rmsg(s, 100)")[1] if level == socket.SOL_SOCKET]


@roles
@pytest.mark.parametrize("option", STAMPS)
def test_times_of_arrival_are_told(unet, option, role):
    def steps(app, peer):
        number = STAMPS[option]
        app(f"s.setsockopt(1, {number}, 1)")
        wait_for(lambda: stamped(app, peer), what="a time stamp")
        peer.sendall(b"second")
        waits(app, 6)
        app("rmsg(s, 3, flags=socket.MSG_PEEK)")
        app("rmsg(s, 3)")
        app(f"s.setsockopt(6, {TCP_INQ}, 1)")
        app("rmsg(s, 100)")
        assert app.ask(f"s.getsockopt(1, {number})") == 1
        # It is the time of arrival, not of reading.
        peer.sendall(b"third")
        waits(app, 5)
        app.do("t = time.time(); time.sleep(0.05); d = struct.unpack('ll', s.recvmsg(100, 100)[1][0][2])")
        app(f"d[0] + d[1] / {1e6 if number in (29, 63) else 1e9} <= t")
        app(f"s.setsockopt(1, {number}, 0)")
        app(f"s.setsockopt(6, {TCP_INQ}, 0)")
        peer.sendall(b"off")
        app("rmsg(s, 100)")
        # SIOCGSTAMP and SIOCGSTAMPNS: TCP notes none for them.
        for request in (0x8906, 0x8907):
            app(f"fcntl.ioctl(s, {request}, bytes(16))")
        if app.preload:
            assert in_user_space(app)
    differential_tcp(unet, "4", steps, role)


def test_stamps_and_inq_are_inherited(unet):
    def steps(app, _):
        app.do("l = listener()")
        app(f"l.setsockopt(1, 29, 1), l.setsockopt(6, {TCP_INQ}, 1)")
        app.do("ready(l)")
        def inherits():
            with unet.b.socket(socket.AF_INET, socket.SOCK_STREAM) as peer:
                peer.connect((unet.a.ip4, 7100))
                app.do("s, _ = l.accept()")
                return stamped(app, peer)
        wait_for(inherits, what="a time stamp")
        with unet.b.socket(socket.AF_INET, socket.SOCK_STREAM) as peer:
            peer.connect((unet.a.ip4, 7100))
            app.do("s, _ = l.accept()")
            peer.sendall(b"12345")
            waits(app, 5)
            app("rmsg(s, 2)")
        if app.preload:
            assert in_user_space(app)
    differential_tcp(unet, "4", steps, role=None)


def test_tos_and_ttl_of_the_peer_are_read(unet):
    """IP_PKTOPTIONS, as Erlang asks for them: of the segment that completed the handshake."""
    def steps(app, _):
        app.do("l = listener()")
        app.do("""
def said(room=200):
    raw, out = s.getsockopt(0, 9, room), []
    while len(raw) >= 16:
        n, level, kind = struct.unpack('Qii', raw[:16])
        out.append((level, kind, raw[16:n]))
        raw = raw[(n + 7) & ~7:]
    return out, len(raw)
""")
        app("[l.setsockopt(0, o, 1) for o in (12, 13, 8)]")
        app.do("ready(l)")
        with unet.b.socket(socket.AF_INET, socket.SOCK_STREAM) as peer:
            peer.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 33)
            peer.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0x28)
            peer.connect((unet.a.ip4, 7100))
            app.do("s, _ = l.accept()")
            app("said()")
            for room in (1, 10, 20, 28, 40, 60, 70):
                app(f"said({room})")
            app("[s.setsockopt(0, o, 0) for o in (8, 12)], said()")
            app("s.setsockopt(0, 13, 0), said()")
            if app.preload:
                assert in_user_space(app)
    differential_tcp(unet, "4", steps, role=None)


CLASS_AND_LIMIT = "[s.getsockopt(*o) for o in ((0, 1), (41, 67), (0, 2), (41, 16))]"


@roles
@pytest.mark.parametrize("family", ["6", "mapped"])
def test_an_ipv6_socket_has_class_and_limit_of_each_family(unet, family, role):
    """What one option has set the other one of the pair does not tell."""
    def steps(app, _):
        app(CLASS_AND_LIMIT)
        for level, option, value in ((0, 1, 0x10), (41, 67, 0xb8), (0, 2, 33), (41, 16, 77), (41, 67, 0), (0, 2, 255)):
            app(f"s.setsockopt({level}, {option}, {value})")
            app(CLASS_AND_LIMIT)
        if app.preload:
            assert in_user_space(app)
    differential_tcp(unet, family, steps, role)


@pytest.mark.parametrize("client", [4, 6])
def test_a_listener_of_both_families_gives_class_and_limit_of_each(unet, client):
    def steps(app, _):
        app.do("l = listener()")
        app.do("for o in ((0, 1, 0x10), (41, 67, 0xb8), (0, 2, 33), (41, 16, 77)): l.setsockopt(*o)")
        app.do("ready(l)")
        with unet.b.socket(socket.AF_INET6 if client == 6 else socket.AF_INET, socket.SOCK_STREAM) as peer:
            peer.connect((unet.a.ip(client), 7100))
            app.do("s, _ = l.accept()")
            app(CLASS_AND_LIMIT)
            if app.preload:
                assert in_user_space(app)
    differential_tcp(unet, "6", steps, role=None)


def test_a_listener_tells_how_many_wait(unet):
    """TCP_INFO: tcpi_unacked and tcpi_sacked are the queue's length and its limit."""
    def steps(app, _):
        app.do("l = listener(7100, 7)")
        app.do("def queue(room=248):\n    info = l.getsockopt(6, socket.TCP_INFO, room)\n"
               "    return info[0], struct.unpack_from('II', info.ljust(32, b'\\0'), 24)")
        app("queue()")
        app.do("ready(l)")
        peers = []
        for n in range(1, 4):
            peers.append(unet.b.socket(socket.AF_INET, socket.SOCK_STREAM))
            peers[-1].connect((unet.a.ip4, 7100))
            wait_for(lambda n=n: app.ask("queue()[1][0]") == n, what=f"{n} that wait")
            app("queue()")
        for room in (0, 1, 24, 26, 28, 30, 32):
            app(f"len(l.getsockopt(6, socket.TCP_INFO, {room})) if {room} else None, queue({room} or 1)")
        app.do("s, _ = l.accept()")
        app("queue()")
        if app.preload:
            assert in_user_space(app)
        for peer in peers:
            peer.close()
    differential_tcp(unet, "4", steps, role=None)


@roles
def test_icmp_errors_are_queued_by_the_kernel(unet, role):
    """IP_RECVERR: the engine keeps no errors for MSG_ERRQUEUE, and they would not end a call."""
    def steps(app, peer):
        peer.sendall(b"before")
        app("await_ready(s)")
        app("s.setsockopt(0, 11, 0)")
        if app.preload:
            assert in_user_space(app)
        app("s.setsockopt(0, 11, 1)")
        if app.preload:
            assert not in_user_space(app)
        app("s.getsockopt(0, 11)")
        app("s.recv(100), s.send(b'after')")
        app.note("the peer", peer.recv(10))
    differential_tcp(unet, "4", steps, role)


def test_a_refused_connect_tells_the_error_queue_what_the_kernel_tells(net):
    """As traceroute does it by connect(): an ICMP error, with who has sent it."""
    net.b.run(["ip", "route", "add", "prohibit", "10.99.0.1/32"])
    net.b.run(["sysctl", "-qw", "net.ipv4.ip_forward=1"])
    net.a.run(["ip", "route", "add", "10.99.0.1/32", "via", net.b.ip4])

    def steps(app, _):
        app.do("s = socket.socket()")
        app("s.setsockopt(0, 11, 1)")
        app("s.connect(('10.99.0.1', 1))", timeout=30)
        app("s.recvmsg(100, 200, socket.MSG_ERRQUEUE)[1]")
    differential_tcp(net, "4", steps, role=None)


@roles
def test_minimum_ttl_is_kept_by_the_kernel(net, role):
    """GTSM of BGP (RFC 5082): segments from farther away are dropped, those of a neighbour pass; nothing is lost at the change."""
    def dropped():
        lines = [l.split() for l in net.a.run(["cat", "/proc/net/netstat"]).text.splitlines() if l.startswith("TcpExt")]
        return int(dict(zip(*lines))["TCPMinTTLDrop"])

    def steps(app, peer):
        peer.sendall(b"before")
        app("await_ready(s)")
        app("s.send(b'also before')")
        app("s.setsockopt(0, 21, 255)")
        app("s.getsockopt(0, 21)")
        app("s.recv(100)")
        before = dropped()
        peer.sendall(b"far")
        wait_for(lambda: dropped() > before, what="a segment dropped for its TTL")
        peer.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 255)
        app("s.recv(100)")
        app("s.send(b'after')")
        got = b""
        while len(got) < 16:
            got += peer.recv(100)
        app.note("the peer has", got)
    run(net, "4", True, steps, role)
    differential_tcp(net, "4", steps, role)


@pytest.mark.parametrize("level, option, value", [(1, 42, 3), (1, 5, 1), (6, 16, 1), (0, 10, 0), (1, 37, 16)],
                         ids=["SO_PEEK_OFF", "SO_DONTROUTE", "TCP_THIN_LINEAR_TIMEOUTS", "IP_MTU_DISCOVER", "SO_TIMESTAMPING"])
def test_what_user_space_does_not_have_takes_the_connection_along(unet, level, option, value):
    def steps(app, peer):
        peer.sendall(b"0123456789")
        waits(app, 10)
        app(f"s.setsockopt({level}, {option}, {value})")
        app("s.recv(2, socket.MSG_PEEK), s.recv(2, socket.MSG_PEEK)")
        app("s.recv(10), s.send(b'x')")
        app.note("the peer", peer.recv(10))
        peer.close()
        app("s.recv(10)")
        if app.preload:
            assert not in_user_space(app)
    differential_tcp(unet, "4", steps)


def test_a_connection_that_cannot_go_to_the_kernel_says_so(unet):
    """Before the handshake is over there is nothing that the kernel could take."""
    def steps(app, _):
        # Until its ring has come it could still go there: a wait that opens it.
        app.do("u = udp(7000); select.select([u], [], [], 0)")
        app.do("s = socket.socket(); s.setblocking(False)")
        assert app.ask("s.connect_ex((PEER[:PEER.rindex('.')] + '.77', 1)) == errno.EINPROGRESS") is True
        assert app.ask("s.setsockopt(1, 42, 3)") == ("OSError", "ENOPROTOOPT")
        assert app.ask("s.setsockopt(1, 42, -1)") is None
        assert app.ask("s.setsockopt(0, 12, 1)") is None
    run(unet, "4", True, steps, None)


@roles
def test_quickack_reads_back_and_ends(unet, role):
    """It is no setting for ever: our own data turn it off again."""
    def steps(app, peer):
        get = f"s.getsockopt(6, {socket.TCP_QUICKACK})"
        for value in (0, 1, 0, 2):
            app(f"s.setsockopt(6, {socket.TCP_QUICKACK}, {value})")
            app(get)

        def off():
            # An answer that comes after the delayed acknowledgement (40 ms) is none: again, where the machine was busy.
            app.start("s.recv(100), s.send(b'answer')")
            peer.sendall(b"question")
            app.answer()
            peer.recv(100)
            return app.do(get) == 0
        wait_for(off, what="our own data to turn it off")
        app(f"s.setsockopt(6, {socket.TCP_QUICKACK}, 1)")
        app(get)
    differential_tcp(unet, "4", steps, role)


def test_linger2_below_zero_leaves_no_fin_wait2(unet):
    def steps(app, peer):
        app(f"s.setsockopt(6, {socket.TCP_LINGER2}, -1)")
        app(f"s.getsockopt(6, {socket.TCP_LINGER2})")
        app.do("s.close()")
        assert peer.recv(10) == b""
        # Whose socket is gone answers with a reset: its close() does not wait for ours.
        def reset():
            try:
                peer.send(b"x")
            except OSError:
                return True
            return False
        wait_for(reset, what="a reset")
    run(unet, "4", False, steps, "server")
    differential_tcp(unet, "4", steps)


def test_window_clamp_holds_on_a_connection(unet):
    """What the peer is told falls to it, as tcp(7) says. (Linux's tuning of the buffer forgets the clamp.)"""
    def steps(app, peer):
        app.do(f"s.setsockopt(6, {socket.TCP_WINDOW_CLAMP}, 3000)")
        assert app.ask(f"s.setsockopt(6, {socket.TCP_WINDOW_CLAMP}, 0)") == ("OSError", "EINVAL")
        windows = []
        for _ in range(40):  # more at a time than a unit of the window scale, to which the rest is rounded up
            windows.append(struct.unpack("I", peer.getsockopt(socket.IPPROTO_TCP, TCP_INFO, 232)[228:])[0])  # tcpi_snd_wnd
            peer.sendall(bytes(5000))
            app.do("exactly(s, 5000); None")
        assert windows[0] > 30000 and 0 < windows[-1] <= 5000, windows
    run(unet, "4", True, steps, "client")
