# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Options and ancillary data: what getsockopt() and recvmsg() give, and what the peer sees of them, is the kernel's."""

import socket
import struct

import pytest

from differential import FAMILIES, PEER_PORT, App, differential
from netns import wait_for

families = pytest.mark.parametrize("family", FAMILIES)
TO = f"(PEER, {PEER_PORT})"
IP, IP6, SOL = "socket.IPPROTO_IP", "socket.IPPROTO_IPV6", "socket.SOL_SOCKET"


@families
def test_every_option_reads_back_as_from_the_kernel(unet, family):
    """All option numbers of the four levels, before and after each was set; memory figures (SO_MEMINFO) left out."""
    def steps(app, peer):
        app("s = udp(7000)")
        app.do("""
def show(s, skip=()):
    out = {}
    for level in (socket.SOL_SOCKET, 0, 41, 17):
        for opt in range(1, 110):
            if (level, opt) in skip: continue
            try: out[level, opt] = s.getsockopt(level, opt, 64)
            except OSError as e: out[level, opt] = errno.errorcode[e.errno]
    return out
# SO_MEMINFO, SO_INCOMING_NAPI_ID, SO_COOKIE, SO_INCOMING_CPU; IPV6_FLOWLABEL_MGR reads its question from the buffer.
SKIP = {(1, 55), (1, 56), (1, 57), (1, 49), (41, 32)}
""")
        app("show(s, SKIP)")
        app.do("""
def change(s):
    out = {}
    for level in (socket.SOL_SOCKET, 0, 41, 17):
        for opt in range(1, 110):
            # Filters, devices and IPsec are set by other tests or not at all; membership has its own tests.
            if (level, opt) in {(1, 25), (1, 26), (1, 27), (1, 50), (1, 62), (17, 100), (0, 32), (41, 20), (41, 21)}: continue
            if level in (0, 41) and 34 < opt < 49 or (level, opt) in SKIP: continue
            try: s.setsockopt(level, opt, 1); out[level, opt] = 0
            except OSError as e: out[level, opt] = errno.errorcode[e.errno]
    return out
""")
        app("change(s)")
        app("show(s, SKIP)")
    differential(unet, family, steps)


@families
def test_packet_info_and_friends(unet, family):
    def steps(app, peer):
        app("s = udp(7000, ANY)")
        peer.sendto(b"plain", app.at(7000))
        app("rmsg(s)")
        options = {"4": [(IP, 8), (IP, 12), (IP, 13), (IP, 20)],
                   "6": [(IP6, "socket.IPV6_RECVPKTINFO"), (IP6, "socket.IPV6_RECVHOPLIMIT"),
                         (IP6, "socket.IPV6_RECVTCLASS"), (IP6, 74)]}
        wanted = options["4"] if family == "4" else options["6"] if family == "6" else options["4"] + options["6"]
        if family == "6":
            peer.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, 33)
            peer.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, 0x68)
        else:
            peer.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 33)
            peer.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0x68)
        for level, option in wanted:
            app(f"s.setsockopt({level}, {option}, 1)")
            peer.sendto(b"with " + str(option).encode(), app.at(7000))
            app("rmsg(s)")
        peer.sendto(b"peek", app.at(7000))
        app("rmsg(s, flags=socket.MSG_PEEK)")
        for room in (0, 8, 16, 20, 28, 36, 40, 64, 80, 88, 100, 120):
            app(f"rmsg(s, room={room}, flags=socket.MSG_PEEK)")
        app("rmsg(s)")
        for level, option in wanted:
            app(f"s.setsockopt({level}, {option}, 0)")
        peer.sendto(b"off", app.at(7000))
        app("rmsg(s)")
    differential(unet, family, steps)


@families
def test_time_stamps(unet, family):
    def steps(app, peer):
        app("s = udp(7000)")
        for option, value in (("SO_TIMESTAMP", 1), ("SO_TIMESTAMPNS", 1), ("SO_TIMESTAMPNS", 0), ("63", 1), ("63", 0),
                              ("64", 1), ("64", 0), ("SO_TIMESTAMP", 1), ("SO_TIMESTAMPING", 0x18),
                              ("SO_TIMESTAMPING", 0x8), ("SO_TIMESTAMPING", 0x10), ("SO_TIMESTAMP", 0),
                              ("SO_TIMESTAMPING", 0x18), ("65", 0x18), ("SO_TIMESTAMPING", 0)):
            app(f"s.setsockopt(socket.SOL_SOCKET, {option}, {value})")
            app(f"[s.getsockopt(socket.SOL_SOCKET, o) for o in (29, 35, 37, 63, 64, 65)], '{option}', {value}")
            peer.sendto(b"stamped", app.at(7000))
            app(f"rmsg(s), '{option}', {value}")
        app("s.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)")
        peer.sendto(b"queued", app.at(7000))
        app("await_ready(s) & select.POLLIN")
        app("rmsg(s, flags=socket.MSG_PEEK)")
        app("rmsg(s)")
        app("(lambda t: abs(t[0] - time.time()) < 5)(struct.unpack('ll', fcntl.ioctl(s, 0x8906, bytes(16))))")
        app("(lambda t: abs(t[0] - time.time()) < 5)(struct.unpack('ll', fcntl.ioctl(s, 0x8907, bytes(16))))")
    differential(unet, family, steps)


@families
@pytest.mark.parametrize("before_bind", [False, True], ids=["bound", "unbound"])
def test_hardware_time_stamps_of_who_has_none(unet, family, before_bind):
    """RX_HARDWARE 4, RAW_HARDWARE 0x40: software's come, and the device's do not; getsockopt() says what was asked for."""
    def steps(app, peer):
        for flags in (0x44, 0x5c, 0x40, 0x4c):
            app("s = socket.socket(FAM, socket.SOCK_DGRAM)")
            for late in (False, True):
                if late != before_bind:
                    app(f"s.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, {flags})")
                else:
                    app("s.bind((ME, 7000))")
            peer.sendto(b"stamped", app.at(7000))
            app(f"rmsg(s), {flags}")
            app("[s.getsockopt(socket.SOL_SOCKET, o) for o in (29, 35, 37, 63, 64, 65)]")
            app("s.close()")
    differential(unet, family, steps)


@families
def test_a_time_stamp_is_that_of_arrival(unet, family):
    """The stamp lies between the peer's sending and the moment that it is seen, not the later one of reading."""
    with App(unet.a, True, family) as app:
        peer = app.peer_socket()
        app.do("s = udp(7000); s.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)")
        peer.sendto(b"first", app.at(7000))
        assert app.do("s.recv(10)") == b"first"
        before = app.do("time.time()")
        peer.sendto(b"x", app.at(7000))
        assert app.do("await_ready(s) & select.POLLIN")
        seen = app.do("time.time()")
        app.do("time.sleep(0.1)")
        sec, nsec = struct.unpack("ll", app.do("s.recvmsg(10, 100)[1][0][2]"))
        assert before - 0.001 <= sec + nsec / 1e9 <= seen + 0.001
        peer.close()


@families
def test_ioctl_stamp_without_the_option(unet, family):
    def steps(app, peer):
        app("s = udp(7000)")
        app("fcntl.ioctl(s, 0x8906, bytes(16))")
        peer.sendto(b"1", app.at(7000))
        app("s.recv(10)")
        app("(lambda t: abs(t[0] - time.time()) < 5)(struct.unpack('ll', fcntl.ioctl(s, 0x8906, bytes(16))))")
    differential(unet, family, steps)


@families
@pytest.mark.parametrize("option", ["29", "35", "63", "64"])
def test_ioctl_stamp_beside_the_option(unet, family, option):
    """Times that are told as ancillary data are not noted for SIOCGSTAMP."""
    def steps(app, peer):
        app("s = udp(7000)")
        app.do("""
def stamps():
    out = []
    for request, fraction in ((0x8906, 1e6), (0x8907, 1e9)):
        try: t = struct.unpack('ll', fcntl.ioctl(s, request, bytes(16)))
        except OSError as e: out.append(errno.errorcode[e.errno]); continue
        out.append('before' if t[0] + t[1] / fraction < mark else 'after')
    return out
""")
        app.do("mark = time.time(); s.settimeout(3)")
        app(f"s.setsockopt({SOL}, {option}, 1)")
        for step in ("", "", f"s.setsockopt({SOL}, {option}, 0)", "", f"s.setsockopt({SOL}, {option}, 1)", ""):
            app.do("mark = time.time()" + (f"; {step}" if step else ""))
            peer.sendto(b"x", app.at(7000))
            app("len(s.recvmsg(10, 500)[0])")
            app("stamps()")
    differential(unet, family, steps)


OFF = [(SOL, 11, 0), (SOL, 42, -1), (SOL, 44, 0), (SOL, 43, 1), (SOL, 72, 0), (SOL, 45, 0), (IP, 19, 0),
       (IP, 21, 0), (IP, 26, 1), (IP, 18, 0), (IP, 25, 0), (17, 1, 0), (17, 100, 0), (SOL, 41, 0), (SOL, 5, 0), (SOL, 75, 0)]


def test_what_is_turned_off_leaves_a_socket_in_user_space(unet):
    with App(unet.a, True, "4", {"VMA_TRACELEVEL": "DEBUG"}) as app:
        app.do("s = udp(7000)")
        for level, option, value in OFF:
            assert app.ask(f"s.setsockopt({level}, {option}, {value})") is None, (level, option)
        assert "that user space does not have" not in app.text, app.text
        app.do(f"s.setsockopt({SOL}, 11, 1)")
        wait_for(lambda: "that user space does not have" in app.text, what="SO_NO_CHECK gives the socket to the kernel")


@families
def test_what_the_peer_sees_of_ttl_and_tos(unet, family):
    def steps(app, peer):
        if family == "6":
            peer.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVHOPLIMIT, 1)
            peer.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
        else:
            peer.setsockopt(socket.IPPROTO_IP, 12, 1)
            peer.setsockopt(socket.IPPROTO_IP, 13, 1)

        def see():
            app(f"s.sendto(b'x', {TO})")
            data, anc, flags, address = peer.recvmsg(10, 100)
            app.note("peer got", (data, anc, address))
        app("s = udp(7000)")
        see()
        v4 = family != "6"
        for level, ttl, tos in ((IP, "socket.IP_TTL", "socket.IP_TOS"),
                                (IP6, "socket.IPV6_UNICAST_HOPS", "socket.IPV6_TCLASS")):
            for option, value in ((ttl, 1), (ttl, 255), (ttl, 0), (ttl, 256), (ttl, -1), (tos, 0x10), (tos, 0xff),
                                  (tos, 0xb8), (tos, 0), (tos, 256), (tos, -1)):
                app(f"s.setsockopt({level}, {option}, {value})")
                app(f"s.getsockopt({level}, {option}), {value}")
                if not v4 or level == IP:
                    see()
        app("s.setsockopt(socket.IPPROTO_IP, 10, 0)")  # IP_PMTUDISC_DONT: no DF, so an identification
        see()
        # What came back as ancillary data goes out again: a server's answer from the address it was asked at.
        pktinfo = ("(socket.IPPROTO_IPV6, socket.IPV6_PKTINFO, socket.inet_pton(10, ME) + bytes(4))" if family == "6" else
                   f"(socket.IPPROTO_IP, 8, bytes(4) + socket.inet_aton('{unet.a.ip4}') + bytes(4))")
        app(f"s.sendmsg([b'x'], [{pktinfo}], 0, {TO})")
        app.note("peer got", peer.recvmsg(10, 100)[:2])
        hops = ("(socket.IPPROTO_IPV6, socket.IPV6_HOPLIMIT, struct.pack('i', 7))" if family == "6" else
                "(socket.IPPROTO_IP, socket.IP_TTL, struct.pack('i', 7))")
        app(f"s.sendmsg([b'x'], [{hops}], 0, {TO})")
        app.note("peer got", peer.recvmsg(10, 100)[:2])
        app(f"s.sendmsg([b'x'], [(socket.IPPROTO_IP, 99, b'bad')], 0, {TO})")
    differential(unet, family, steps)


def test_broadcast(unet):
    def steps(app, peer):
        with unet.b.entered():
            wide = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        wide.settimeout(3)
        wide.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        wide.bind(("0.0.0.0", 7010))
        app("s = udp(7010, '0.0.0.0')")
        app("s.sendto(b'x', ('10.77.0.255', 7010))")
        app("s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)")
        for to in ("10.77.0.255", "255.255.255.255"):
            app(f"s.setsockopt(socket.SOL_SOCKET, 25, DEV.encode())")
            app(f"s.sendto(b'to all', ('{to}', 7010))")
            app.note("peer got", wide.recvfrom(10))
            wide.setsockopt(socket.SOL_SOCKET, 25, b"veth-b")
            wide.sendto(b"from peer", (to, 7010))
            # Our own broadcast comes back, too.
            app("sorted([s.recvfrom(20), s.recvfrom(20)])")
        wide.close()
    differential(unet, "4", steps)


@families
def test_receive_buffer_limit_drops_and_counts(unet, family):
    """What is charged for a datagram differs (documented); that there is a limit, the counter and SO_RXQ_OVFL do not."""
    with App(unet.a, True, family, {"VMA_RX_BYTES_MIN": 0, "VMA_STATS_FD_NUM": 10}) as app:
        peer = app.peer_socket()
        app.do("s = udp(7000); s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)")
        app.do("s.setsockopt(socket.SOL_SOCKET, SO_RXQ_OVFL, 1)")
        assert app.do("s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)") == 16384
        app.do("ready(s)")  # the first use attaches it
        for i in range(60):
            peer.sendto(struct.pack("i", i) * 250, app.at(7000))
        app.do("await_ready(s)")
        app.do("for i in range(50): ready(s); time.sleep(0.002)")
        app.do("got = []\ntry:\n while True: got.append(rmsg(s, flags=socket.MSG_DONTWAIT))\nexcept BlockingIOError: pass")
        numbers = app.do("[struct.unpack('i', d[:4])[0] for d, *_ in got]")
        assert 8 <= len(numbers) <= 17, "16384 bytes hold about 14 datagrams of 1000"
        assert numbers == list(range(len(numbers))), "the first stay, the later ones are dropped"
        assert app.do("[anc for _, anc, *_ in got if anc]") == [], "nothing was missing before these"
        peer.sendto(b"after", app.at(7000))
        app.do("await_ready(s)")
        data, anc, _, _ = app.do("rmsg(s)")
        assert (data, anc) == (b"after", [(1, 40, struct.pack("I", 60 - len(numbers)))])
        stats = wait_for(lambda: unet.a.stats(app, "--json", "-c", "1"), what="vma_stats")
        assert f'"rx_drop_packets":{60 - len(numbers)}' in stats, stats
        peer.close()


def test_rx_bytes_min_raises_the_limit(unet):
    with App(unet.a, True, "4", {"VMA_RX_BYTES_MIN": 200000}) as app:
        peer = app.peer_socket()
        app.do("s = udp(7000); s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096); ready(s)")
        for i in range(100):
            peer.sendto(b"x" * 1000, app.at(7000))
        app.do("await_ready(s)")
        assert len(app.do("recvmmsg(s, 100)")) == 100
        peer.close()


@families
def test_bind_to_device_and_mark(unet, family):
    def steps(app, peer):
        app("s = udp(7000, ANY)")
        app("s.setsockopt(socket.SOL_SOCKET, 25, DEV.encode())")
        peer.sendto(b"here", app.at(7000))
        app("s.recvfrom(10)")
        app("s.setsockopt(socket.SOL_SOCKET, 25, b'lo')")
        peer.sendto(b"not here", app.at(7000))
        app("await_ready(s, timeout=0.1)")
        app(f"s.sendto(b'x', {TO})")
        app("s.setsockopt(socket.SOL_SOCKET, 25, b'')")
        peer.sendto(b"back", app.at(7000))
        app("s.recvfrom(10)")
        app("s.setsockopt(socket.SOL_SOCKET, 36, 5)")
        app("s.getsockopt(socket.SOL_SOCKET, 36)")
        app(f"s.sendto(b'x', {TO})")
        app.note("peer got", peer.recv(10))
        app("s.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)")  # not done in user space: the kernel serves the socket from here on
        app(f"s.sendto(b'no check', {TO})")
        app.note("peer got", peer.recv(10))
        peer.sendto(b"kernel", app.at(7000))
        app("s.recvfrom(10)")
    differential(unet, family, steps)


@families
def test_nonblocking_by_each_way(unet, family):
    def steps(app, peer):
        for way in ("fcntl.fcntl(s, fcntl.F_SETFL, os.O_NONBLOCK | os.O_RDWR)", "fcntl.ioctl(s, 0x5421, struct.pack('i', 1))",
                    "os.set_blocking(s.fileno(), False)"):
            app("s = udp(7000)")
            app(way)
            app("fcntl.fcntl(s, fcntl.F_GETFL), call('recv', s.fileno(), bytes(4), 4, 0)")
            app("call('recv', s.fileno(), bytes(4), 4, 0)")
            app("fcntl.fcntl(s, fcntl.F_GETFL)")
            app("s.close()")
        app("s = socket.socket(FAM, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC); s.bind((ME, 7000))")
        app("call('recv', s.fileno(), bytes(4), 4, 0)")
        app("fcntl.fcntl(s, fcntl.F_GETFD)")
    differential(unet, family, steps)
