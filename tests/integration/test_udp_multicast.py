# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Multicast in both families: membership in every form, source filters, sending options, loop-back, several receivers."""

import socket
import struct

import pytest

from differential import App, differential
from netns import ip, wait_for

families = pytest.mark.parametrize("family", ["4", "6"])
GROUP = {"4": "239.7.7.7", "6": "ff15::7:7"}
OTHER = {"4": "239.7.7.8", "6": "ff15::7:8"}

TOOLS = """
V4 = FAM == socket.AF_INET
IFX = socket.if_nametoindex(DEV)
LEVEL = 0 if V4 else 41
def raw(ip): return socket.inet_pton(FAM, ip)
def ss(ip):  # a sockaddr_storage
    b = struct.pack('=HH4s', FAM, 0, raw(ip)) if V4 else struct.pack('=HHI16sI', FAM, 0, 0, raw(ip), 0)
    return b.ljust(128, bytes(1))
def group_req(g): return struct.pack('=I4x', IFX) + ss(g)
def source_req(g, src): return group_req(g) + ss(src)
def old(g): return raw(g) + (raw(ME) if V4 else struct.pack('=I', IFX))
def mreqn(g): return raw(g) + bytes(4) + struct.pack('=I', IFX)
JOIN, LEAVE = (35, 36) if V4 else (20, 21)
MJOIN, MBLOCK, MUNBLOCK, MLEAVE, SJOIN, SLEAVE = 42, 43, 44, 45, 46, 47
def join(s, g): return s.setsockopt(LEVEL, JOIN, old(g))
def leave(s, g): return s.setsockopt(LEVEL, LEAVE, old(g))
def nothing(s, t=0.15):
    if await_ready(s, timeout=t): return s.recv(100)
"""


def sender(app, net, family):
    """The peer's socket, bound and told where to send."""
    peer = app.peer_socket(7001)
    if family == "4":
        peer.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(net.b.ip4))
    else:
        with net.b.entered():
            peer.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, socket.if_nametoindex(net.b.dev))
    return peer


def multicast(net, family, steps, env=None):
    def with_sender(app, peer):
        peer.close()
        app.do(TOOLS)
        s = sender(app, net, family)
        try:
            steps(app, s)
        finally:
            s.close()
    return differential(net, family, with_sender, env)


@families
def test_join_and_leave_in_every_form(unet, family):
    def steps(app, peer):
        g, o = GROUP[family], OTHER[family]
        forms = [("LEVEL, JOIN, old('%s')", "LEVEL, LEAVE, old('%s')"),
                 ("LEVEL, MJOIN, group_req('%s')", "LEVEL, MLEAVE, group_req('%s')")]
        if family == "4":
            forms.append(("0, 35, mreqn('%s')", "0, 36, mreqn('%s')"))
        for i, (join, leave) in enumerate(forms):
            app("s = udp(7000, ANY); s.setsockopt(LEVEL, 49 if V4 else 29, 0)")
            app(f"s.setsockopt({leave % g})")
            app(f"s.setsockopt({join % g})")
            app(f"s.setsockopt({join % g})")
            peer.sendto(b"joined %d" % i, (g, 7000))
            app("s.recvfrom(100)")
            peer.sendto(b"other", (o, 7000))
            app("nothing(s)")
            app(f"s.setsockopt({leave % g})")
            peer.sendto(b"left", (g, 7000))
            app("nothing(s)")
            app("s.close()")
        app("s = udp(7000, ANY)")
        app("s.setsockopt(LEVEL, JOIN, old(ME))")
        app("s.setsockopt(LEVEL, JOIN, b'abc')")
        app("s.setsockopt(LEVEL, MJOIN, b'abc')")
    multicast(unet, family, steps)


@families
def test_sources(unet, family):
    """Source-specific joins, a second source, blocking and unblocking, and the errors of the wrong order."""
    def steps(app, peer):
        g = GROUP[family]
        peer_ip = unet.b.ip(int(family))
        stranger = "10.77.0.9" if family == "4" else "fd77::9"
        app("s = udp(7000, ANY); s.setsockopt(LEVEL, 49 if V4 else 29, 0)")
        app(f"s.setsockopt(LEVEL, SJOIN, source_req('{g}', '{stranger}'))")
        peer.sendto(b"not that one", (g, 7000))
        app("nothing(s)")
        app(f"s.setsockopt(LEVEL, SJOIN, source_req('{g}', '{peer_ip}'))")
        app(f"s.setsockopt(LEVEL, SJOIN, source_req('{g}', '{peer_ip}'))")
        peer.sendto(b"this one", (g, 7000))
        app("s.recvfrom(100)")
        app(f"s.setsockopt(LEVEL, MBLOCK, source_req('{g}', '{peer_ip}'))")
        app(f"s.setsockopt(LEVEL, SLEAVE, source_req('{g}', '{peer_ip}'))")
        peer.sendto(b"no more", (g, 7000))
        app("nothing(s)")
        app(f"s.setsockopt(LEVEL, SLEAVE, source_req('{g}', '{stranger}'))")
        app(f"s.setsockopt(LEVEL, SLEAVE, source_req('{g}', '{stranger}'))")
        app(f"s.setsockopt(LEVEL, MBLOCK, source_req('{g}', '{peer_ip}'))")
        app(f"join(s, '{g}')")
        peer.sendto(b"anyone", (g, 7000))
        app("s.recvfrom(100)")
        app(f"s.setsockopt(LEVEL, MBLOCK, source_req('{g}', '{peer_ip}'))")
        peer.sendto(b"blocked", (g, 7000))
        app("nothing(s)")
        app(f"s.setsockopt(LEVEL, MBLOCK, source_req('{g}', '{peer_ip}'))")
        app(f"s.setsockopt(LEVEL, MUNBLOCK, source_req('{g}', '{peer_ip}'))")
        peer.sendto(b"unblocked", (g, 7000))
        app("s.recvfrom(100)")
        app(f"s.setsockopt(LEVEL, SJOIN, source_req('{g}', '{peer_ip}'))")
        if family == "4":
            trio = f"raw('{g}') + raw(ME) + raw('{peer_ip}')"
            app(f"leave(s, '{g}')")
            app(f"s.setsockopt(0, 39, {trio})")  # IP_ADD_SOURCE_MEMBERSHIP
            peer.sendto(b"old form", (g, 7000))
            app("s.recvfrom(100)")
            app(f"s.setsockopt(0, 40, {trio})")  # IP_DROP_SOURCE_MEMBERSHIP
            app(f"join(s, '{g}')")
            app(f"s.setsockopt(0, 38, {trio})")  # IP_BLOCK_SOURCE
            peer.sendto(b"blocked", (g, 7000))
            app("nothing(s)")
            app(f"s.setsockopt(0, 37, {trio})")  # IP_UNBLOCK_SOURCE
            peer.sendto(b"open", (g, 7000))
            app("s.recvfrom(100)")
    multicast(unet, family, steps)


@families
def test_setting_a_whole_filter(unet, family):
    """MCAST_MSFILTER and IP_MSFILTER replace the list of sources at once."""
    def steps(app, peer):
        g = GROUP[family]
        peer_ip = unet.b.ip(int(family))
        app("s = udp(7000, ANY); s.setsockopt(LEVEL, 49 if V4 else 29, 0)")
        app(f"join(s, '{g}')")
        for mode, sources, comes in ((0, [], True), (1, [peer_ip], True), (0, [peer_ip], False), (1, [], False)):
            app(f"s.setsockopt(LEVEL, 48, group_req('{g}') + struct.pack('=II', {mode}, {len(sources)}) + "
                f"b''.join(ss(x) for x in {sources}))")
            peer.sendto(b"%d %d" % (mode, len(sources)), (g, 7000))
            app("nothing(s, 5)" if comes else "nothing(s)")
    multicast(unet, family, steps)


@families
def test_two_sockets_of_one_process(unet, family):
    def steps(app, peer):
        g, o = GROUP[family], OTHER[family]
        reuse = "(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)"
        app(f"a = udp(7000, ANY, {reuse}); b = udp(7000, ANY, {reuse}); c = udp(7000, '{g}', {reuse})")
        app(f"join(a, '{g}'), join(b, '{g}'), join(c, '{g}')")
        for i in range(3):
            peer.sendto(b"all of you %d" % i, (g, 7000))
            app("a.recvfrom(100), b.recvfrom(100), c.recvfrom(100)")
        app(f"leave(b, '{g}'), join(b, '{o}')")
        # IP_MULTICAST_ALL, on by default: b hears what others on this host have joined.
        peer.sendto(b"again", (g, 7000))
        app("a.recvfrom(100), b.recvfrom(100), c.recvfrom(100)")
        app("b.setsockopt(LEVEL, 49 if V4 else 29, 0)")
        peer.sendto(b"without b", (g, 7000))
        app("a.recvfrom(100), c.recvfrom(100), nothing(b)")
        peer.sendto(b"to the other", (o, 7000))
        app("b.recvfrom(100), a.recvfrom(100), nothing(c)")
        app("a.close()")
        peer.sendto(b"after a", (g, 7000))
        app("c.recvfrom(100), nothing(b)")
    multicast(unet, family, steps)


@families
def test_sending(unet, family):
    """Interface, TTL and loop-back as the peer in the group sees them."""
    def steps(app, peer):
        g = GROUP[family]
        with unet.b.entered():
            member = socket.socket(socket.AF_INET if family == "4" else socket.AF_INET6, socket.SOCK_DGRAM)
            member.settimeout(3)
            member.bind(("" if family == "4" else "::", 7000))
            if family == "4":
                member.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP,
                                  socket.inet_aton(g) + socket.inet_aton(unet.b.ip4))
                member.setsockopt(socket.IPPROTO_IP, 12, 1)
            else:
                member.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP,
                                  socket.inet_pton(10, g) + struct.pack("=I", socket.if_nametoindex(unet.b.dev)))
                member.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVHOPLIMIT, 1)

        def see(what):
            app(f"s.sendto({what!r}, ('{g}', 7000))")
            data, anc, _, address = member.recvmsg(100, 100)
            app.note("member got", (data, anc, address[:2]))
        app("s = udp(7003, ANY)")
        app("s.setsockopt(LEVEL, 32 if V4 else 17, raw(ME) if V4 else IFX)")  # *_MULTICAST_IF
        app("s.getsockopt(LEVEL, 32 if V4 else 17)")
        see(b"default")
        for loop in (1, 0):
            app(f"s.setsockopt(LEVEL, 34 if V4 else 19, {loop})")
            see(b"loop %d" % loop)
            for ttl in (1, 9, 255, -1, 0):
                app(f"s.setsockopt(LEVEL, 33 if V4 else 18, {ttl})")
                app("s.getsockopt(LEVEL, 33 if V4 else 18)")
                if ttl:
                    see(b"ttl %d" % ttl)
        app("s.setsockopt(LEVEL, 33 if V4 else 18, 1)")
        if family == "4":
            app("s.setsockopt(0, 32, bytes(8) + struct.pack('=I', IFX))")
            app("s.getsockopt(0, 32, 4)")
            see(b"by index")
            app("s.setsockopt(0, 32, raw('10.1.2.3'))")
        app(f"s.connect(('{g}', 7000))")
        app("s.getsockname()[0]")
        app("s.send(b'connected')")
        app.note("member got", member.recv(100))
        member.close()
    multicast(unet, family, steps)


@families
def test_loop_back_on_this_host(unet, family):
    """Receivers on the sender's own host: the same socket, another of the process, and one of a kernel program."""
    def steps(app, peer):
        g = GROUP[family]
        bystander = unet.a.python(f"""
import socket, struct
fam = socket.{'AF_INET' if family == '4' else 'AF_INET6'}
s = socket.socket(fam, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(({g!r}, 7000))
x = socket.inet_pton(fam, {g!r})
s.setsockopt(*({'(0, 35, x + socket.inet_aton("' + unet.a.ip4 + '"))' if family == '4' else
               '(41, 20, x + struct.pack("=I", socket.if_nametoindex("' + unet.a.dev + '")))'}))
print("ready", flush=True)
while True:
    print(s.recv(100), flush=True)
""")
        bystander.wait_text("ready")
        reuse = "(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)"
        app(f"s = udp(7000, ANY, {reuse}); t = udp(7000, ANY, {reuse})")
        app(f"join(s, '{g}'), join(t, '{g}')")
        app("s.setsockopt(LEVEL, 32 if V4 else 17, raw(ME) if V4 else IFX)")
        app(f"s.sendto(b'looped', ('{g}', 7000))")
        app("s.recvfrom(100), t.recvfrom(100)")
        bystander.wait_text("b'looped'", 3)
        # From outside: everybody again, the program without the library included.
        peer.sendto(b"from outside", (g, 7000))
        app("s.recvfrom(100), t.recvfrom(100)")
        bystander.wait_text("b'from outside'", 3)
        app("s.setsockopt(LEVEL, 34 if V4 else 19, 0)")
        app(f"s.sendto(b'not looped', ('{g}', 7000))")
        app("nothing(s), nothing(t)")
        bystander.stop()
        app.note("bystander got", bystander.text.split("\n"))
    multicast(unet, family, steps)


def member_of_the_kernel(host, family):
    """A socket of the test process on the host, in the group."""
    s = host.socket(socket.AF_INET if family == "4" else socket.AF_INET6)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((GROUP[family], 7000))
    if family == "4":
        s.setsockopt(0, 35, socket.inet_aton(GROUP[family]) + socket.inet_aton(host.ip4))
    else:
        with host.entered():
            s.setsockopt(41, 20, socket.inet_pton(socket.AF_INET6, GROUP[family]) + struct.pack("=I", socket.if_nametoindex(host.dev)))
    return s


@families
def test_no_loop_back_where_the_parameter_says_so(unet, family):
    """With VMA_TX_MC_LOOPBACK=0 members on the sender's host get nothing, until its socket wants them to."""
    unet.neighbours()
    with App(unet.a, True, family, env={"VMA_TX_MC_LOOPBACK": 0}) as app, member_of_the_kernel(unet.a, family) as beside, \
            member_of_the_kernel(unet.b, family) as outside:
        app.do(TOOLS)
        app.do(f"s = udp(7003, ANY); t = udp(7000, ANY, (socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)); join(t, '{GROUP[family]}')")
        app.do("s.setsockopt(LEVEL, 32 if V4 else 17, raw(ME) if V4 else IFX); t.settimeout(5)")
        assert app.do("s.getsockopt(LEVEL, 34 if V4 else 19)") == 0
        app.do(f"s.sendto(b'to others', ('{GROUP[family]}', 7000))")
        assert outside.recv(100) == b"to others"
        app.do(f"s.setsockopt(LEVEL, 34 if V4 else 19, 1); s.sendto(b'to all', ('{GROUP[family]}', 7000))")
        assert (outside.recv(100), beside.recv(100), app.do("t.recv(100)")) == (b"to all",) * 3


@families
def test_the_kernel_program_joins_last(unet, family):
    """A kernel program that joins a group whose steering stands already gets its copies, too."""
    def steps(app, peer):
        g = GROUP[family]
        reuse = "(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)"
        app(f"s = udp(7000, ANY, {reuse}); join(s, '{g}')")
        peer.sendto(b"alone", (g, 7000))
        app("s.recvfrom(100)")
        with App(unet.a, False, family) as late:
            late.do(TOOLS)
            late.do(f"s = udp(7000, ANY, {reuse}); join(s, '{g}')")

            def both():
                peer.sendto(b"both", (g, 7000))
                return late.do("await_ready(s, timeout=0.1)")
            app.note("the late one hears", bool(wait_for(both, 5, "a packet for the program that joined last", every=0.05)))
            app("s.recvfrom(100)[0]")
    multicast(unet, family, steps)


@families
def test_multicast_passes_no_kernel_udp(unet, family):
    """One offloaded member, nobody else: datagrams of the group go by the XSK, both ways."""
    with App(unet.a, True, family) as app:
        app.do(TOOLS)
        peer = sender(app, unet, family)
        g = GROUP[family]
        app.do(f"s = udp(7000, ANY); join(s, '{g}')")
        app.do("s.setsockopt(LEVEL, 34 if V4 else 19, 0); s.setsockopt(LEVEL, 32 if V4 else 17, raw(ME) if V4 else IFX)")
        peer.sendto(b"first", (g, 7000))
        assert app.do("s.recv(100)") == b"first"
        with unet.a.bypassed():
            for i in range(20):
                peer.sendto(b"%d" % i, (g, 7000))
                assert app.do("s.recv(100)") == b"%d" % i
                assert app.do(f"s.sendto(b'back', ('{g}', 7009))") == 4
        peer.close()


def test_an_ipv6_socket_in_an_ipv4_group(unet):
    """IP_ADD_MEMBERSHIP on a dual-stack socket; datagrams come with v4-mapped addresses."""
    def steps(app, peer):
        peer.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(unet.b.ip4))
        app("s = udp(7000, '::')")
        app(f"s.setsockopt(0, 35, socket.inet_aton('239.7.7.7') + socket.inet_aton('{unet.a.ip4}'))")
        app("s.setsockopt(0, IP_PKTINFO, 1); s.setsockopt(41, 49, 1)")
        for i in range(3):
            peer.sendto(b"%d" % i, ("239.7.7.7", 7000))
            app("rmsg(s)")
        app(f"s.setsockopt(0, 32, socket.inet_aton('{unet.a.ip4}'))")
        app("s.setsockopt(0, 34, 0)")
        app("s.sendto(b'out', ('::ffff:239.7.7.7', 7009))")
        app(f"s.setsockopt(0, 36, socket.inet_aton('239.7.7.7') + socket.inet_aton('{unet.a.ip4}'))")
        app("s.setsockopt(0, IP_MULTICAST_ALL, 0)")
        peer.sendto(b"left", ("239.7.7.7", 7000))
        app("await_ready(s, timeout=0.15)")
    differential(unet, "mapped", steps)


def test_the_interface_of_a_group_does_not_depend_on_the_mark(net):
    """Joined without an interface by a socket with SO_MARK: the kernel asks the routes without the mark."""
    for words in ("link add d0 type veth peer d1", "link set d0 up", "rule add fwmark 5 lookup 100", "route add 239.0.0.0/8 dev d0 table 100",
                  f"route add 239.0.0.0/8 dev {net.a.dev}"):
        ip("-n", net.a.name, *words.split())
    with App(net.a, True, "4") as app:
        app.do(TOOLS + "s = udp(7000, ANY); s.setsockopt(socket.SOL_SOCKET, 36, 5)")
        app.do(f"s.setsockopt(0, JOIN, raw('{GROUP['4']}') + bytes(4)); ready(s)")
        with sender(app, net, "4") as peer:
            peer.sendto(b"first", (GROUP["4"], 7000))
            assert app.do("s.recv(10)") == b"first"
            with net.a.bypassed():
                peer.sendto(b"second", (GROUP["4"], 7000))
                assert app.do("s.recv(10)") == b"second"
