# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What sendmsg() says of one datagram beside its bytes: source, interface, TTL, TOS. The peer sees what the kernel would have sent."""

import itertools

import pytest

from differential import FAMILIES, PEER_PORT, App, differential
from netns import ip

families = pytest.mark.parametrize("family", FAMILIES)
IP, IP6, UDP, SOL = 0, 41, 17, 1
PKTINFO, TTL, TOS = 8, 2, 1
PKTINFO6, HOPLIMIT, TCLASS = 50, 52, 67
SEGMENT = 103
LO4, LO6 = "10.79.0.1", "fd79::1"

HELPERS = f"""
IFINDEX = socket.if_nametoindex(DEV)
def cm(level, kind, data, length=None):
    head = struct.pack('Nii', 16 + len(data) if length is None else length, level, kind)
    return head + data + bytes(-len(data) % 8)
def raw(s, payloads, control, to=(PEER, {PEER_PORT}), flags=0):
    \"\"\"sendmsg() of one, sendmmsg() of several payloads, each with these bytes as ancillary data.\"\"\"
    msgs = (Mmsghdr * len(payloads))()
    name = sockaddr(to) if to else None
    keep = ctypes.create_string_buffer(control, max(len(control), 1))
    for m, p in zip(msgs, payloads):
        m.hdr.iov = ctypes.pointer(Iovec(ctypes.cast(ctypes.c_char_p(p), ctypes.c_void_p), len(p)))
        m.hdr.iovlen = 1
        m.hdr.control, m.hdr.controllen = ctypes.addressof(keep), len(control)
        if name: m.hdr.name, m.hdr.namelen = ctypes.addressof(name), len(name)
    if len(payloads) == 1: return call('sendmsg', s.fileno(), msgs, flags)
    return call('sendmmsg', s.fileno(), msgs, len(payloads), flags), [m.len for m in msgs]
def info4(address, index=0): return struct.pack('i4s4s', index, socket.inet_aton(address), bytes(4))
def info6(address, index=0): return socket.inet_pton(10, address) + struct.pack('I', index)
def byte(n): return struct.pack('B', n)
def int_(n): return struct.pack('i', n)
"""


@pytest.fixture
def service(net):
    """The host with more addresses: a second one, one on lo; the peer knows the way to them."""
    net.neighbours()
    ip("-n", net.a.name, "addr", "add", "10.77.0.3/24", "dev", net.a.dev)
    ip("-n", net.a.name, "addr", "add", "fd77::3/64", "dev", net.a.dev, "nodad", "preferred_lft", "0")
    ip("-n", net.a.name, "addr", "add", f"{LO4}/32", "dev", "lo")
    ip("-n", net.a.name, "addr", "add", f"{LO6}/128", "dev", "lo")
    ip("-n", net.b.name, "route", "add", LO4, "via", net.a.ip4)
    ip("-n", net.b.name, "-6", "route", "add", LO6, "via", net.a.ip6)
    return net


def listen(peer, family):
    """The peer tells TTL and TOS of what it receives."""
    for option in (51, 66) if family == "6" else (12, 13):
        peer.setsockopt(IP6 if family == "6" else IP, option, 1)
    return peer


def forms(family):
    """Control bytes as Python text: right ones, wrong ones, and what is between them."""
    own, lo, foreign = (("fd77::3", LO6, "fd77::9") if family == "6" else ("10.77.0.3", LO4, "10.77.0.9"))
    values = (-2, -1, 0, 1, 7, 255, 256, 1 << 20)
    if family == "6":
        infos = [f"info6('{a}', {i})" for a in ("::", own, lo, foreign, "::1", "ff02::1", "fe80::99", "::ffff:10.77.0.3")
                 for i in ("0", "IFINDEX", "1", "77")]
        kinds = {HOPLIMIT: "int_", TCLASS: "int_"}
        level, pktinfo = IP6, PKTINFO6
    else:
        infos = [f"info4('{a}', {i})" for a in ("0.0.0.0", own, lo, foreign, "127.0.0.1", "224.0.0.1", "255.255.255.255", "10.77.0.255")
                 for i in ("0", "IFINDEX", "1", "77", "-1")]
        kinds = {TTL: "int_", TOS: "int_"}
        level, pktinfo = IP, PKTINFO
    yield from (f"cm({level}, {pktinfo}, {i})" for i in infos)
    yield from (f"cm({level}, {k}, {form}({v}))" for k, form in kinds.items() for v in values)
    yield from (f"cm({level}, {k}, byte({v}))" for k in kinds for v in (0, 1, 7, 255))
    for kind, data in [(pktinfo, infos[4]), *[(k, "int_(9)") for k in kinds]]:
        # Lengths that are not the data's, also such that reach beyond the buffer.
        yield from (f"cm({level}, {kind}, {data}, {n})" for n in (0, 1, 15, 16, 18, 19, 21, 24, 27, 29, 32, 36, 37, 48, 1 << 40, (1 << 64) - 1))
        yield f"cm({level}, {kind}, {data} + bytes(4))"
    first, second = (f"cm({level}, {k}, int_({v}))" for k, v in zip(kinds, (9, 0x2c)))
    info = f"cm({level}, {pktinfo}, {infos[4]})"
    yield from (" + ".join(p) for p in itertools.permutations((first, second, info)))
    # The last one counts; of an interface the last one that names one.
    yield f"cm({level}, {pktinfo}, {infos[5]}) + cm({level}, {pktinfo}, {infos[0]})"
    yield f"{first} + cm({level}, {list(kinds)[0]}, int_(33))"
    # A good one, and behind it one that is cut, too long, unknown, another family's or not the socket's.
    for bad in ("bytes(1)", "bytes(15)", "bytes(16)", f"cm({level}, 99, int_(1))", f"cm({level}, {pktinfo}, b'')", "cm(1, 0, b'')",
                "cm(1, 36, int_(0))", "cm(7, 7, int_(7))", f"cm({UDP}, 99, b'xx')", f"cm({UDP}, {SEGMENT}, b'xx', 17)", "cm(0, 2, int_(3), 400)"):
        yield f"{first} + {bad}"
        yield f"{bad} + {first}"
    # The other family's.
    yield f"cm({IP}, {TTL}, int_(77)) + cm({IP6}, {HOPLIMIT}, int_(78))"
    yield f"cm({IP}, {TOS}, int_(0x10)) + cm({IP6}, {TCLASS}, int_(0x20))"
    yield f"cm({IP}, {PKTINFO}, info4('10.77.0.3')) + cm({IP6}, {TCLASS}, int_(0x20))"
    yield from (f"cm({IP6}, {PKTINFO6}, info6('{a}', {i}))" for a in ("::ffff:10.77.0.3", "::ffff:0.0.0.0", "::ffff:10.79.0.1", "fd77::3", "::")
                for i in ("0", "IFINDEX", "77"))
    yield f"cm({IP6}, {PKTINFO6}, info6('::ffff:10.77.0.3')) + cm({IP}, {PKTINFO}, info4('0.0.0.0'))"
    # With UDP_SEGMENT: several datagrams, each with that.
    yield f"cm({UDP}, {SEGMENT}, struct.pack('H', 2)) + {first} + {info}"
    yield f"{info} + cm({UDP}, {SEGMENT}, struct.pack('H', 2)) + {second}"
    yield f"{first} * 70"


@families
@pytest.mark.parametrize("bound", ["ME", "ANY", "connected"])
def test_every_form_of_ancillary_data_is_answered_as_by_the_kernel(service, family, bound):
    def steps(app, peer):
        listen(peer, family)
        app.do(HELPERS)
        app.do(f"s = udp(7000, {'ANY' if bound == 'ANY' else 'ME'})")
        to = "None" if bound == "connected" else f"(PEER, {PEER_PORT})"
        if bound == "connected":
            app.do(f"s.connect((PEER, {PEER_PORT}))")
        app.do(f"s.sendto(b'known', (PEER, {PEER_PORT}))")
        peer.recv(10)
        for number, form in enumerate(forms(family)):
            app(f"raw(s, [b'{number:04}'], {form}, {to})")
            # What follows comes after it, and shows that nothing else has come, and that the socket is as it was.
            app.do("s.send(b'end')" if bound == "connected" else f"s.sendto(b'end', (PEER, {PEER_PORT}))")
            got = []
            while not got or got[-1][0] != b"end":
                data, anc, _, address = peer.recvmsg(10, 200)
                got.append((data, anc, address))
            # The parts of a burst have followed it, or not.
            app.note(f"peer got of {form}", got)
    differential(service, family, steps)


def answers(family):
    """What a program may say that stays in user space, and what the peer sees of it: source, TTL, TOS."""
    if family == "6":
        yield f"cm({IP6}, {PKTINFO6}, info6('fd77::3'))", ("fd77::3", 64, 0)
        yield f"cm({IP6}, {PKTINFO6}, info6('fd77::3', IFINDEX))", ("fd77::3", 64, 0)
        yield f"cm({IP6}, {PKTINFO6}, info6('{LO6}'))", (LO6, 64, 0)
        yield f"cm({IP6}, {HOPLIMIT}, int_(9))", ("fd77::1", 9, 0)
        yield f"cm({IP6}, {TCLASS}, int_(0x2d))", ("fd77::1", 64, 0x2d)
        yield f"cm({IP6}, {TCLASS}, int_(1)) + cm({IP6}, {PKTINFO6}, info6('fd77::3'))", ("fd77::3", 64, 1)
        return
    yield f"cm({IP}, {PKTINFO}, info4('10.77.0.3'))", ("10.77.0.3", 64, 0)
    yield f"cm({IP}, {PKTINFO}, info4('10.77.0.3', IFINDEX))", ("10.77.0.3", 64, 0)
    yield f"cm({IP}, {PKTINFO}, info4('0.0.0.0', IFINDEX))", ("10.77.0.1", 64, 0)
    yield f"cm({IP}, {PKTINFO}, info4('{LO4}'))", (LO4, 64, 0)
    yield f"cm({IP}, {TTL}, int_(9))", ("10.77.0.1", 9, 0)
    yield f"cm({IP}, {TOS}, int_(0x2d))", ("10.77.0.1", 64, 0x2d)
    yield f"cm({IP}, {TOS}, byte(0x2e))", ("10.77.0.1", 64, 0x2e)
    yield f"cm({IP}, {TOS}, byte(1)) + cm({IP}, {PKTINFO}, info4('10.77.0.3')) + cm({IP}, {TTL}, int_(3))", ("10.77.0.3", 3, 1)
    if family == "mapped":
        yield f"cm({IP6}, {PKTINFO6}, info6('::ffff:10.77.0.3'))", ("10.77.0.3", 64, 0)


@families
@pytest.mark.parametrize("to", ["sendmsg", "sendmmsg", "connected", "segments"])
def test_ancillary_data_does_not_need_the_kernel(service, family, to):
    with App(service.a, True, family) as app:
        peer = listen(app.peer_socket(), family)
        app.do(HELPERS)
        app.do("s = udp(7000, ANY)")
        app.do(f"s.connect((PEER, {PEER_PORT})); s.send(b'first')" if to == "connected" else f"s.sendto(b'first', (PEER, {PEER_PORT}))")
        peer.recv(10)
        payloads = {"sendmmsg": "[b'abcd', b'ef', b'ghi']"}.get(to, "[b'abcdef']")
        wanted = {"sendmmsg": [b"abcd", b"ef", b"ghi"], "segments": [b"abcd", b"ef"]}.get(to, [b"abcdef"])
        segment = f"cm({UDP}, {SEGMENT}, struct.pack('H', 4)) + " if to == "segments" else ""
        with service.a.bypassed():
            for form, seen in answers(family):
                app.do(f"raw(s, {payloads}, {segment}{form}, {'None' if to == 'connected' else f'(PEER, {PEER_PORT})'})")
                for payload in wanted:
                    data, anc, _, address = peer.recvmsg(100, 200)
                    ttl, tos = (int.from_bytes(d, "little") for _, _, d in sorted(anc, key=lambda a: a[1] in (TOS, TCLASS)))
                    assert (data, (address[0], ttl, tos)) == (payload, seen), form
            app.do(f"s.send(b'plain')" if to == "connected" else f"s.sendto(b'plain', (PEER, {PEER_PORT}))")
            assert (peer.recv(100), app.ask("s.getsockname()")[1]) == (b"plain", 7000)


@families
def test_a_name_server_answers_from_the_address_it_was_asked_at(service, family):
    """recvmsg()'s packet info goes out again with the answer, from a socket that is bound to no address."""
    with App(service.a, True, family) as app:
        peer = app.peer_socket()
        app.do("s = udp(7000, ANY); s.setsockopt(0, 10, 0)")  # no DF, as name servers have it
        for level, option in {"4": [(IP, 8)], "6": [(IP6, 49)], "mapped": [(IP, 8), (IP6, 49)]}[family]:
            app.do(f"s.setsockopt({level}, {option}, 1)")
        app.do("await_ready(s, timeout=0.01)")
        with service.a.bypassed():
            for address in ("fd77::1", "fd77::3") if family == "6" else ("10.77.0.1", "10.77.0.3"):
                for kind in (PKTINFO6,) if family == "6" else (PKTINFO, PKTINFO6)[:1 + (family == "mapped")]:
                    peer.sendto(b"question", (address, 7000))
                    app.do(f"data, anc, _, client = s.recvmsg(100, 200); s.sendmsg([b'an', b'swer'], [a for a in anc if a[1] == {kind}], 0, client)")
                    assert peer.recvfrom(100)[:2][0] == b"answer"
                    peer.sendto(b"again", (address, 7000))
                    app.do(f"data, anc, _, client = s.recvmsg(100, 200); s.sendmsg([data], [a for a in anc if a[1] == {kind}], 0, client)")
                    data, at = peer.recvfrom(100)
                    assert (data, at[0]) == (b"again", address), kind
