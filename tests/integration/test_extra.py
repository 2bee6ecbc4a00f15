# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The Extra API (mellanox/vma_extra.h): the receive callback, receiving without a copy, and who owns what.

   net.a: App with the library, its sockets at ME:7000 --- veth --- net.b: App with kernel sockets
"""

import contextlib
import json
import time

import pytest

from differential import CHILDREN, FAMILIES, App
from netns import wait_for

families = pytest.mark.parametrize("family", FAMILIES)


@contextlib.contextmanager
def apps(unet, family="4", env=None):
    with App(unet.a, True, family, env=env) as a, App(unet.b, False, family) as b:
        a.do("from extra_app import *")
        yield a, b


@contextlib.contextmanager
def datagrams(unet, family="4", env=None):
    """s in a, offloaded by a first datagram, and p in b, who sends to it."""
    with apps(unet, family, env) as (a, b):
        a.do("s = udp(7000); s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack('ll', 5, 0))")
        b.do("p = udp(7001); to = (PEER, 7000)")
        a.do("ready(s)")
        b.do("p.sendto(b'first', to)")
        assert a.do("s.recv(10)") == b"first"
        yield a, b


@contextlib.contextmanager
def stream(unet, family="4", env=None):
    """s in a, connected to p in b."""
    with apps(unet, family, env) as (a, b):
        b.do("l = socket.socket(FAM); l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); l.bind((ME, 7000)); l.listen()")
        a.do("s = socket.socket(FAM); s.connect((PEER, 7000)); s.send(b'hello')")
        a.do("s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack('ll', 5, 0))")
        b.do("p, _ = l.accept(); p.settimeout(5); p.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)")
        assert b.do("p.recv(10)") == b"hello"
        yield a, b


def offloaded(a):
    """How many rings s has: what follows is about those."""
    assert wait_for(lambda: a.do("api('get_socket_rings_num', s.fileno())")) == 1


# --- the table


def test_the_table_is_given_whatever_the_fd(unet):
    with apps(unet) as (a, _):
        assert a.do("[get_api(fd)[:2] + (get_api(fd)[3],) for fd in (-1, 0, 1000000, udp().fileno())]") == [(0, 0, 8)] * 4
        assert a.do("get_api(room=7)[0:2]") == (-1, 22)
        assert a.do("get_api()[2].mask & 7") == 7
        # Without the library there is none, and a kernel's option of that number does not exist.
    with App(unet.a, False) as k:
        assert k.ask("socket.socket().getsockopt(socket.SOL_SOCKET, 2800, 8)") == ("OSError", "ENOPROTOOPT")


def test_what_no_ring_can_do_says_so(unet):
    with apps(unet) as (a, _):
        a.do("s = udp(7000); ready(s); ring = ring_fds(s)[0]; room = ctypes.create_string_buffer(512)")
        for call in ("'get_ring_direct_descriptors', ring, room", "'register_memory_on_ring', ring, room, 512, room",
                     "'deregister_memory_on_ring', ring, room, 512", "'vma_modify_ring', struct.pack('=IiII', 1, ring, 5, 7)"):
            assert a.ask(f"api({call})") == ("OSError", "ENOTSUP"), call  # the same number
        for call in ("'get_ring_direct_descriptors', s.fileno(), room", "'register_memory_on_ring', 99, room, 512, room",
                     "'deregister_memory_on_ring', -1, room, 512", "'vma_modify_ring', struct.pack('=IiII', 2, 0, 0, 0)"):
            assert a.ask(f"api({call})") == ("OSError", "EBADFD"), call
        for call in ("'register_recv_callback', 99, None, None", "'vma_add_ring_profile', None, None", "'vma_modify_ring', None",
                     "'get_ring_direct_descriptors', ring, None", "'register_memory_on_ring', ring, None, 0, None",
                     "'vma_modify_ring', struct.pack('=IiII', 0, ring, 0, 0)", "'vma_modify_ring', struct.pack('=IiII', 4, ring, 0, 0)",
                     "'free_packets', 99, None, 0",
                     "'get_socket_rings_num', 99", "'get_socket_network_header', 99, None, None", "'add_conf_rule', b'nonsense'",
                     "'add_conf_rule', None", "'ioctl', None, 0", "'thread_offload', 7, 0", "'dump_fd_stats', 99, 3"):
            assert a.ask(f"api({call})") == ("OSError", "EINVAL"), call


NOT_HERE = {"SO_VMA_RING_USER_MEMORY": (2811, "struct.pack('=QQ', 1 << 40, 1 << 20)"), "SO_VMA_FLOW_TAG": (2820, "5"),
            "SO_VMA_SHUTDOWN_RX": (2821, "1")}


@pytest.mark.parametrize("kind", [datagrams, stream])
@pytest.mark.parametrize("option", NOT_HERE)
def test_private_options_that_no_socket_knows(unet, option, kind):
    """ENOPROTOOPT, and the socket goes on by its ring as it was."""
    number, value = NOT_HERE[option]
    with kind(unet) as (a, b):
        offloaded(a)
        unet.neighbours()
        assert a.ask(f"s.setsockopt(socket.SOL_SOCKET, {number}, {value})") == ("OSError", "ENOPROTOOPT")
        assert a.ask(f"s.getsockopt(socket.SOL_SOCKET, {number}, 16)") == ("OSError", "ENOPROTOOPT")
        with unet.a.bypassed(), unet.a.tcp_bypassed():
            for _ in range(5):
                b.do("p.send(b'on')" if kind is stream else "p.sendto(b'on', to)")
                assert a.do("s.recv(10)") == b"on"
        assert a.do("api('get_socket_rings_num', s.fileno())") == 1


# --- a ring of a socket's own choice


def rings_of(a, socks):
    """The ring of each of these sockets, by a number of its own."""
    fds = a.do(f"[ring_fds(x) for x in ({socks},)]")
    assert all(len(f) == 1 for f in fds), fds
    return [sorted({f[0] for f in fds}).index(f[0]) for f in fds]


def distinct(numbers):
    return [numbers.index(n) for n in numbers]


def test_a_datagram_socket_says_whose_ring_it_has(unet):
    with apps(unet) as (a, b):
        a.do("u = [udp(7000 + i) for i in range(6)]; k = ring_profile(); [ready(x) for x in u[:2]]")
        a.do("ring_logic(u[1], PER_USER, user=7); ring_logic(u[2], PER_USER, user=7); ring_logic(u[3], PER_USER, user=8)")
        a.do("ring_logic(u[4], PER_INTERFACE, profile=k); [ready(x) for x in u]")
        assert distinct(rings_of(a, "*u")) == [0, 1, 1, 3, 4, 0]
        # Each has its packets by it, and sends by it.
        for i in range(6):
            b.do(f"p = udp({7100 + i}); p.settimeout(5); p.sendto(b'{i}', (PEER, {7000 + i}))")
            a.do(f"u[{i}].settimeout(5); d, who = u[{i}].recvfrom(9); u[{i}].sendto(d + b'!', who)")
            assert (a.do("d"), b.do("p.recv(9)")) == (b"%d" % i, b"%d!" % i)
            a.do("to = struct.pack('=HH4s8x', 2, socket.htons(who[1]), socket.inet_aton(who[0]))")
            # Until the neighbour is known the kernel sends.
            wait_for(lambda: a.ask(f"api('get_socket_tx_ring_fd', u[{i}].fileno(), to, 16)") == a.do(f"ring_fds(u[{i}])[0]"), 5)
        # It is changed while it is used.
        a.do("ring_logic(u[4], PER_INTERFACE)")
        b.do("p.sendto(b'moved', (PEER, 7004))")
        assert a.do("u[4].recv(9)") == b"moved"
        assert distinct(rings_of(a, "u[0], u[4]")) == [0, 0]


def test_a_connection_has_the_ring_that_its_socket_has_said(unet):
    with apps(unet) as (a, b):
        b.do("l = socket.socket(FAM); l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); l.bind((ME, 7000)); l.listen()")
        a.do("c = [socket.socket(FAM) for _ in range(3)]; ring_logic(c[1], PER_SOCKET); ring_logic(c[2], PER_USER, user=1)")
        for i in range(3):
            a.do(f"c[{i}].connect((PEER, 7000)); c[{i}].send(b'hello')")
            b.do("p, _ = l.accept(); p.settimeout(5)")
            assert b.do("p.recv(9)") == b"hello"
        assert distinct(rings_of(a, "*c")) == [0, 1, 2]
        assert a.ask("ring_logic(c[0], PER_SOCKET)") == ("OSError", "EINVAL")
        # A listener's is that of those that it accepts.
        a.do("m = socket.socket(FAM); ring_logic(m, PER_USER, user=1); m.bind((ME, 7001)); m.listen(); ready(m); m.settimeout(5)")
        b.do("q = socket.socket(FAM); q.settimeout(5); q.connect((PEER, 7001)); q.send(b'in')")
        a.do("n, _ = m.accept(); n.settimeout(5)")
        assert a.do("n.recv(9)") == b"in"
        assert distinct(rings_of(a, "c[2], n")) == [0, 0]


def test_a_socket_whose_ring_is_its_threads_moves_with_it(unet):
    with apps(unet, env={"VMA_RING_MIGRATION_RATIO_RX": 5}) as (a, b):
        a.do("s = udp(7000); ring_logic(s, PER_THREAD, ways=INGRESS); other = udp(7001); ready(s); ready(other); s.settimeout(5)")
        first = a.do("ring_fds(s)[0]")
        assert first != a.do("ring_fds(other)[0]")
        a.do("""
import threading
def read():
    for _ in range(60):
        s.recv(9)
t = threading.Thread(target=read); t.start()
""")
        b.do("p = udp(7100)")
        for _ in range(60):
            b.do("p.sendto(b'x', (PEER, 7000))")
        a.do("t.join()")
        assert a.do("set(ring_fds(s))") > {first} or a.do("ring_fds(s)[0]") != first  # the former one until it is empty


def test_where_the_first_ring_was_not_told_all_share_it(unet):
    with apps(unet) as (a, _):
        a.do("s, t = udp(7000), udp(7001); ready(s); ready(t); ring_logic(s, PER_SOCKET)")
        assert distinct(rings_of(a, "s, t")) == [0, 0]
        assert "no further ring" in a.text


def test_wishes_that_make_no_sense_are_refused(unet):
    with apps(unet) as (a, _):
        a.do("s = udp(7000); ready(s)")
        assert a.do("ring_profile() == ring_profile() and ring_profile() > 0")
        assert a.ask("ring_profile(RING_EXTERNAL_MEM)") == ("OSError", "ENOTSUP")
        assert a.ask("ring_profile(7)") == ("OSError", "EINVAL")
        for wish in ("PER_SOCKET, ways=0", "12", "PER_SOCKET, size=19", "PER_SOCKET, size=0", "PER_SOCKET, profile=99"):
            assert a.ask(f"ring_logic(s, {wish})") == ("OSError", "EINVAL"), wish
        a.do("ring_logic(s, PER_SOCKET, user=0, ways=0)")  # of neither way: nothing is changed
        assert a.ask("s.getsockopt(socket.SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, 20)") == ("OSError", "ENOPROTOOPT")


# --- the receive callback, datagrams


@families
def test_a_callback_decides_of_each_datagram(unet, family):
    with datagrams(unet, family) as (a, b):
        offloaded(a)
        a.do("""
seen = []
def decide(data, info):
    seen.append((data, info))
    return {b"d": DROP, b"r": RECV, b"h": HOLD}[data[:1]]
callback(s, decide)
""")
        before = time.time()
        b.do("[p.sendto(x, to) for x in (b'drop', b'read', b'hold' * 300, b'read too')]")
        assert a.do("s.recv(2000)") == b"read"
        assert a.do("s.recv(2000)") == b"read too"
        assert a.do("[d for d, _ in seen]") == [b"drop", b"read", b"hold" * 300, b"read too"]
        me, peer = (ip.removeprefix("::ffff:") if family == "4" else ip for ip in (a.me, b.me))
        infos = a.do("[i for _, i in seen]")
        for i in infos:
            assert (i["src"], i["dst"], i["struct"], i["context"]) == ((peer, 7001), (me, 7000), 80, 4711)
            assert i["fd"] == a.do("s.fileno()") and before - 1 < i["sw"] < time.time() + 1 and i["id"]
        assert [i["size"] for i in infos] == [4, 4, 1200, 8]
        # What was held is still what it was, and is given back once.
        b.do("[p.sendto(b'r' * 100, to) for _ in range(50)]")
        assert a.do("[len(s.recv(200)) for _ in range(50)]") == [100] * 50
        assert a.do("b''.join(ctypes.string_at(*x) for x in seen[2][1]['iov'])") == b"hold" * 300
        assert a.do("free(s, seen[2][1]['id'])") == 0
        assert a.ask("free(s, seen[2][1]['id'])") == ("OSError", "ENOENT")
        assert a.do("failures") == []


waits = pytest.mark.parametrize("wait", ["select.select([s], [], [], T)[0]", "p.poll(int(T * 1000))", "e.poll(T)"])


def a_wait_ends_with_go(a, b, wait, send, dropped):
    """So many b"no" do not end it; (what the callback has seen, what is read then)."""
    a.do("p = select.poll(); p.register(s, select.POLLIN); e = select.epoll(); e.register(s, select.EPOLLIN); seen = []; T = 8")
    a.do("callback(s, lambda data, info: (seen.append(data), RECV if data[-2:] == b'go' else DROP)[1])")
    a.start(f"len({wait})")
    for _ in range(dropped):
        b.do(send.format("no"))
    b.do(send.format("go"))
    assert a.answer(20) == 1
    return a.do("seen, s.recv(10)")


@waits
def test_a_wait_runs_the_callback_and_tells_of_what_it_lets_through_only(unet, wait):
    with datagrams(unet) as (a, b):
        assert a_wait_ends_with_go(a, b, wait, "p.sendto(b'{}', to)", 20) == ([b"no"] * 20 + [b"go"], b"go")
        # Nothing but what is dropped: the wait is as long as it was to be.
        a.do("T = .3")
        a.start(f"len({wait})")
        b.do("p.sendto(b'no', to)")
        assert a.answer() == 0
        a.do("T = 0")
        wait_for(lambda: a.do(f"len({wait})") == 0 and a.do("len(seen)") == 22)


def test_a_callback_may_use_the_sockets(unet):
    with datagrams(unet) as (a, b):
        a.do("""
def answer(data, info):
    s.sendto(b'answer to ' + data, info['src'])
    other = socket.socket(FAM, socket.SOCK_DGRAM); other.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 9000); other.close()
    s.getsockname(); ready(s)
    s.setblocking(False)
    try: s.recv(10)
    except BlockingIOError: pass
    s.settimeout(.5)
    return DROP
callback(s, answer); s.settimeout(.5)
""")
        b.do("p.settimeout(5); [p.sendto(b'%d' % i, to) for i in range(3)]")
        assert a.ask("s.recv(10)") in (("OSError", "ETIMEDOUT"), ("OSError", "TimeoutError"), ("OSError", "EAGAIN"))
        assert b.do("[p.recv(30) for i in range(3)]") == [b"answer to 0", b"answer to 1", b"answer to 2"]
        assert a.do("failures") == []


def test_without_its_callback_a_socket_is_as_before(unet):
    with datagrams(unet) as (a, b):
        a.do("callback(s, lambda data, info: DROP); callback(s, None)")
        b.do("p.sendto(b'read', to)")
        assert a.do("s.recv(10)") == b"read"
        # And in the middle of one that takes itself away.
        a.do("seen = []; callback(s, lambda data, info: (seen.append(data), callback(s, None), DROP)[2])")
        b.do("[p.sendto(b'%d' % i, to) for i in range(3)]")
        assert a.do("[s.recv(10) for _ in range(2)]") == [b"1", b"2"]
        assert a.do("seen") == [b"0"]


# --- receiving without a copy, datagrams


@families
def test_a_datagram_is_received_where_it_lies(unet, family):
    with datagrams(unet, family) as (a, b):
        offloaded(a)
        b.do("[p.sendto(bytes([i]) * (1 + 200 * i), to) for i in range(7)]")
        a.do("got = [zcopy(s) for _ in range(7)]")
        peer = b.me.removeprefix("::ffff:") if family == "4" else b.me
        assert a.do("[(x[0], x[2][1], x[3]) for x in got]") == [(bytes([i]) * (1 + 200 * i), 7001, 1) for i in range(7)]
        assert a.do("got[0][2][0]") == peer
        assert len(set(a.do("[x[1] for x in got]"))) == 7
        # Too little room for its description: a copy, cut as recvfrom() cuts it, or an error that takes nothing.
        b.do("p.sendto(b'x' * 100, to)")
        assert a.ask("zcopy(s, ZCOPY_FORCE, 39)") == ("OSError", "ENOBUFS")
        assert a.do("zcopy(s, 0, 39)[:2]") == (b"x" * 39, None)
        assert a.ask("zcopy(s, socket.MSG_DONTWAIT)") == ("OSError", "EAGAIN")
        # A look is a copy.
        b.do("p.sendto(b'peeked', to)")
        assert a.do("zcopy(s, socket.MSG_PEEK)[:2]") == (b"peeked", None)
        assert a.do("zcopy(s, ZCOPY_FORCE)[0]") == b"peeked"
        assert a.do("free(s, *[x[1] for x in got])") == 0


def in_hand(unet, app):
    """What vma_stats says that the sockets of the program have in its hands, as a list."""
    shown = json.loads(unet.a.stats(app.popen, "--json", "-c", "1").splitlines()[-1])
    return [s["rx_zcopy_buffers"] for s in shown["sockets"] if s["rx_zcopy_buffers"]]


@pytest.mark.parametrize("proto", ["udp", "tcp"])
def test_vma_stats_counts_what_the_program_holds(unet, proto):
    """It rises with what is received and falls with what is given back."""
    with (datagrams if proto == "udp" else stream)(unet) as (a, b):
        a.do("got = []")
        for n in range(5):
            b.do("p.sendto(b'x', to)" if proto == "udp" else "p.send(b'x')")
            a.do("got.append(zcopy(s, ZCOPY_FORCE))")
        assert wait_for(lambda: in_hand(unet, a) == [5]), "five of one socket"
        assert a.do("free(s, *[x[1] for x in got[:3]])") == 0
        assert wait_for(lambda: in_hand(unet, a) == [2]), "two are left"
        assert a.do("free(s, *[x[1] for x in got[3:]])") == 0
        assert wait_for(lambda: not in_hand(unet, a)), "none"


def test_who_keeps_all_gets_no_more_and_is_told_once(unet):
    with datagrams(unet) as (a, b):
        offloaded(a)
        a.do("t = udp(7003); t.settimeout(5); ready(t); got = []; s.settimeout(.2)")
        a.do("""
def all_of(s, got):
    while True:
        try: got.append(zcopy(s, ZCOPY_FORCE))
        except OSError: return len(got)
""")
        for _ in range(40):
            b.do("[p.sendto(bytes(1000), to) for _ in range(20)]")
            a.do("all_of(s, got)", timeout=20)
        kept = a.do("len(got)")
        limit = a.do("s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)")
        print(f"{kept} of 800 were kept, {limit} bytes of room")
        assert 0 < kept <= limit / 1000 < 800
        # Others are not concerned.
        b.do("p.sendto(b'other', (PEER, 7003))")
        assert a.do("t.recv(10)") == b"other"
        assert a.do("free(s, *[x[1] for x in got])") == 0
        b.do("p.sendto(b'again', to)")
        assert wait_for(lambda: a.ask("zcopy(s, ZCOPY_FORCE)[0]") == b"again")
        assert a.text.count("free_packets()") == 1


# --- TCP


@families
def test_a_stream_is_received_where_it_lies(unet, family):
    with stream(unet, family) as (a, b):
        data = bytes(range(256)) * 400
        b.do("import threading; data = bytes(range(256)) * 400; t = threading.Thread(target=p.sendall, args=(data,)); t.start()")
        a.do(f"""
got = b''; pieces = 0
while len(got) < {len(data)}:
    d, i, who, n = zcopy(s, ZCOPY_FORCE)
    assert d and n, (len(got), d)
    got += d; pieces += n; free(s, i)
""")
        assert a.do("got") == data
        b.do("t.join(); p.send(b'x' * 100)")
        assert a.do("zcopy(s, 0, 39)[:2]") == (b"x" * 39, None)
        assert a.do("s.recv(100)") == b"x" * 61
        assert a.ask("zcopy(s, socket.MSG_DONTWAIT)") == ("OSError", "EAGAIN")
        b.do("p.send(b'last'); p.close()")
        assert a.do("zcopy(s)[0]") == b"last"
        assert a.do("zcopy(s)[:2]") == (b"", None)


def test_what_is_kept_of_a_stream_stops_its_peer(unet):
    with stream(unet) as (a, b):
        offloaded(a)
        a.do("s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 60000); got = []")
        b.do("p.setblocking(False); sent = 0")
        b.do("""
def push():
    global sent
    end = time.monotonic() + .3
    while time.monotonic() < end:
        try: sent += p.send(bytes([sent // 1000 % 251]) * 1000)
        except BlockingIOError: time.sleep(.01)
    return sent
""")
        a.do("""
def pull():
    while True:
        try: got.append(zcopy(s, socket.MSG_DONTWAIT | ZCOPY_FORCE))
        except OSError: return sum(len(x[0]) for x in got)
""")
        for _ in range(4):
            b.do("push()")
            a.do("pull()")
        sent, kept = b.do("sent"), a.do("pull()")
        print(f"{kept} bytes kept, {sent} sent")
        assert 0 < kept < 200000
        # With what is given back it goes on, and nothing is missing.
        a.do("free(s, *[x[1] for x in got]); whole = b''.join(x[0] for x in got)")
        b.do("p.shutdown(socket.SHUT_WR)")
        a.do("""
while True:
    d, i, *_ = zcopy(s)
    whole += d
    if i: free(s, i)
    if not d: break
""", timeout=20)
        total = b.do("sent")
        assert a.do("len(whole)") == total


@families
def test_a_callback_decides_of_a_stream(unet, family):
    with stream(unet, family) as (a, b):
        a.do("""
seen = []
def decide(data, info):
    seen.append((data, info))
    return {b"d": DROP, b"r": RECV, b"h": HOLD}[data[:1]]
callback(s, decide)
""")
        for i, x in enumerate((b"drop", b"read", b"hold" * 300, b"read too")):
            b.do(f"p.send({x!r})")
            if x.startswith(b"r"):
                assert a.do("s.recv(2000)") == x
            else:
                assert wait_for(lambda i=i: a.do(f"ready(s, 0, select.POLLIN), len(seen) > {i}")[1])
        assert a.do("[d for d, _ in seen]") == [b"drop", b"read", b"hold" * 300, b"read too"]
        i = a.do("seen[2][1]")
        peer, me = (ip.removeprefix("::ffff:") if family == "4" else ip for ip in (b.me, a.me))
        assert (i["src"], i["dst"][0], i["size"]) == ((peer, 7000), me, 1200)
        assert a.do("b''.join(ctypes.string_at(*x) for x in seen[2][1]['iov'])") == b"hold" * 300
        assert a.do("free(s, seen[2][1]['id'])") == 0
        # The end comes behind all that is to be shown.
        b.do("p.send(b'drop it'); p.close()")
        assert a.do("s.recv(10)") == b""
        assert a.do("seen[-1][0]") == b"drop it"
        assert a.do("failures") == []


def test_what_follows_an_urgent_mark_is_shown(unet):
    """All before the mark was read; the byte at it, which is out of line, stands between that and what is to be shown."""
    with stream(unet) as (a, b):
        a.do("seen = []; callback(s, lambda data, info: (seen.append(data), RECV)[1])")
        b.do("p.send(b'before')")
        assert a.do("s.recv(6)") == b"before"
        b.do("p.send(b'!', socket.MSG_OOB)")
        a.do("await_ready(s, select.POLLPRI)")
        assert a.do("s.recv(1, socket.MSG_OOB)") == b"!"
        b.do("p.send(b'after')")
        assert a.do("await_ready(s)") & 1
        assert a.do("s.recv(10)") == b"after"


@waits
def test_a_wait_for_a_stream_runs_the_callback(unet, wait):
    with stream(unet) as (a, b):
        seen, read = a_wait_ends_with_go(a, b, wait, "p.send(b'{}'); time.sleep(.02)", 5)
        assert b"".join(seen) == b"no" * 5 + b"go" and read[-2:] == b"go"


@pytest.mark.parametrize("verdict", ["DROP", "HOLD"])
def test_a_reader_that_sleeps_learns_of_the_end_behind_what_it_does_not_get(unet, verdict):
    """Another thread's call runs the callback, and the reader sleeps by the time that it decides."""
    with stream(unet) as (a, b):
        a.do(f"""
import threading
inside = threading.Event(); seen = []
def decide(data, info):
    seen.append(data)
    inside.set()
    time.sleep(.5)
    return {verdict}
callback(s, decide)
def other():
    while not inside.is_set(): select.select([s], [], [], 5)
t = threading.Thread(target=other); t.start()
""")
        b.do("p.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1); p.send(b'last'); p.close()")
        a.do("inside.wait(8)")
        assert a.do("s.recv(10)") == b""
        assert a.do("t.join(), seen")[1] == [b"last"]


@pytest.mark.parametrize("how", ["s.recv(60, socket.MSG_WAITALL)", "s.recv(100)"])
def test_a_reader_of_much_has_all_of_it_shown(unet, how):
    """MSG_WAITALL, or SO_RCVLOWAT: more than a frame brings."""
    with stream(unet) as (a, b):
        a.do("seen = []; callback(s, lambda data, info: (seen.append(data), RECV)[1])")
        a.do("s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 60)")
        a.start(how)
        for _ in range(6):
            b.do("p.send(b'x' * 10); time.sleep(.02)")
        assert a.answer(20) == b"x" * 60
        assert a.do("b''.join(seen)") == b"x" * 60
        # A wait for so much tells of what there is: the rest is shown when that has been read.
        b.do("p.send(b'y' * 30); time.sleep(.05); p.send(b'y' * 30)")
        assert a.do("ready(s, 5000, select.POLLIN)")
        a.do("s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)")
        assert a.do("s.recv(60, socket.MSG_WAITALL)") == b"y" * 60
        # The last that a call waits for is less than would end a wait.
        a.do("s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 60)")
        b.do("p.send(b'z' * 10); time.sleep(.1); p.send(b'z' * 50); time.sleep(.1)")
        assert a.do("s.recv(60, socket.MSG_WAITALL)") == b"z" * 60


@pytest.mark.parametrize("how", ["s.recv(60, socket.MSG_PEEK | socket.MSG_WAITALL)", "s.recv(100, socket.MSG_PEEK)"])
def test_a_look_at_much_brings_what_was_shown(unet, how):
    """The rest cannot be shown before that has been read: the look does not wait for it for ever."""
    with stream(unet) as (a, b):
        a.do("seen = []; callback(s, lambda data, info: (seen.append(data), RECV)[1])")
        a.do("s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 60); s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, bytes(16))")
        a.start(how)
        b.do("p.send(b'x' * 10); time.sleep(.1); p.send(b'x' * 50)")
        got = a.answer(20)
        print(len(got), "bytes were seen,", a.do("seen"), "shown")
        assert got == a.do("seen[0]")
        assert a.do("s.recv(60, socket.MSG_WAITALL)") == b"x" * 60
        assert a.do("b''.join(seen)") == b"x" * 60


@pytest.mark.parametrize("flags", ["0", "ZCOPY_FORCE"])
def test_a_stream_goes_on_behind_its_urgent_mark(unet, flags):
    with stream(unet) as (a, b):
        b.do("p.send(b'abc'); p.send(b'x', socket.MSG_OOB); p.send(b'def'); p.close()")
        got = b""
        while piece := a.do(f"(lambda d, i, *_: (i and free(s, i), d)[1])(*zcopy(s, {flags}))"):
            got += piece
        assert got == b"abcdef"


def test_packets_of_an_earlier_connection_are_not_the_next_ones(unet):
    with stream(unet) as (a, b):
        offloaded(a)
        a.do("got = []")
        for _ in range(30):
            b.do("p.send(b'kept' * 250)")
            a.do("got.append(zcopy(s, ZCOPY_FORCE))")
        a.do("""
LIBC.connect(s.fileno(), struct.pack('=H14x', socket.AF_UNSPEC), 16)
s.connect((PEER, 7000)); s.send(b'hello')
""")
        b.do("p.close(); p, _ = l.accept(); p.settimeout(5)")
        offloaded(a)
        assert a.do("free(s, *[x[1] for x in got])") == 0
        # What they took up was not this one's: its window stays as wide as it is.
        b.do("import threading; t = threading.Thread(target=p.sendall, args=(b'z' * 400000,)); t.start()")
        assert a.do("s.recv(400000, socket.MSG_WAITALL)", timeout=20) == b"z" * 400000
        b.do("t.join()")


def test_packets_outlive_a_connection_that_left_for_the_kernel(unet):
    with stream(unet) as (a, b):
        offloaded(a)
        b.do("p.send(b'kept' * 300)")
        a.do("got = zcopy(s, ZCOPY_FORCE)")
        assert a.do("got[0]")[:4] == b"kept"
        a.do("import os\npid = os.fork()\nif not pid:\n    s.send(b'child'); os._exit(0)\nos.waitpid(pid, 0)")
        assert b.do("p.recv(20)") == b"hellochild"[5:]
        assert a.do("api('get_socket_rings_num', s.fileno())") == 0
        a.do("s.close()")
        assert a.do("free(None, got[1], number=999)") == 0


# A callback that waits for go, in a thread of its own; b sends the frame, and one more.
WAITING = CHILDREN + """
import threading
inside, go = threading.Event(), threading.Event()
def decide(data, info):
    inside.set()
    go.wait(8)
    return VERDICT if data == b'first' else RECV
def poll_it():
    while not inside.is_set(): select.select([s], [], [], 5)
t = threading.Thread(target=poll_it)
def stream_of(n):
    got = b''
    while len(got) < n: got += s.recv(n - len(got)) or b'the end was not to come'
    return got
"""


@pytest.mark.parametrize("verdict, left", [("RECV", b"firstsecond"), ("DROP", b"second"), ("HOLD", b"second")])
def test_a_childs_claim_waits_for_the_callback(unet, verdict, left):
    with stream(unet) as (a, b):
        offloaded(a)
        a.do(WAITING.replace("VERDICT", verdict))
        a.do(f"""
r, w = os.pipe(); r2, w2 = os.pipe()
pid = child(lambda: (os.read(r, 1), os.write(w2, stream_of({len(left)}))))
callback(s, decide); t.start()
""")
        b.do("p.send(b'first')")
        a.do("inside.wait(8); os.write(w, b'x')")
        b.do("p.send(b'second'); time.sleep(.3)")
        a.do("go.set()")
        assert a.do("wait(pid)", timeout=20) == 0
        got = a.do("os.read(r2, 99)")
        print(verdict, "the child read", got)
        assert got == left
        a.do("t.join()")
        # This process as well goes on through the kernel.
        b.do("p.send(b'third')")
        assert a.do("s.recv(10)") == b"third"
        assert "are lost" not in a.text


@pytest.mark.parametrize("verdict, left", [("RECV", b"firstsecond"), ("DROP", b"second")])
def test_a_program_that_is_started_has_what_the_callback_let_through(unet, verdict, left):
    with stream(unet) as (a, b):
        offloaded(a)
        a.do(WAITING.replace("VERDICT", verdict))
        a.do("s.set_inheritable(True); callback(s, decide); t.start()")
        b.do("p.send(b'first')")
        a.do("inside.wait(8); threading.Timer(.2, go.set).start()")
        b.do("p.send(b'second')")
        # Without Python's lock, which the callback wants.
        assert a.do("LIBC.system(b'true')", timeout=20) == 0
        assert a.do(f"stream_of({len(left)})") == left
        a.do("t.join()")
        assert a.do("api('get_socket_rings_num', s.fileno())") == 0
        assert "are lost" not in a.text


@pytest.mark.parametrize("verdict, told", [("RECV", 1), ("DROP", 0)])
def test_a_callback_that_gives_its_own_connection_away_is_told_what_that_costs(unet, verdict, told):
    with stream(unet) as (a, b):
        offloaded(a)
        a.do(WAITING.replace("VERDICT", verdict))
        a.do("""
s.set_inheritable(True); codes = []
callback(s, lambda data, info: (codes.append(wait(os.posix_spawn('/bin/true', ['true'], {}))), """ + verdict + """)[1])
""")
        b.do("p.send(b'first')")
        assert wait_for(lambda: a.do("ready(s, 300, select.POLLIN), codes", timeout=9)[1]) == [0]
        b.do("p.send(b'second')")
        assert a.do("stream_of(6)") == b"second"
        assert a.text.count("the 5 bytes that the callback let through then are lost") == told


# --- the rest


def test_rules_and_threads_say_what_is_offloaded(unet):
    with apps(unet) as (a, b):
        a.do("import threading")
        b.do("p = udp(7001)")

        def rings(how):
            a.do(how)
            a.do("s.settimeout(5); ready(s)")
            b.do("p.sendto(b'x', (PEER, 7000))")
            assert a.do("s.recv(10)") == b"x"
            try:
                return a.ask("api('get_socket_rings_num', s.fileno())")
            finally:
                a.do("s.close()")

        assert rings("s = udp(7000)") == 1
        assert rings("api('thread_offload', 0, threading.get_ident()); s = udp(7000)") == ("OSError", "EINVAL")
        assert rings("api('thread_offload', 1, threading.get_ident()); s = udp(7000)") == 1
        assert rings("api('add_conf_rule', b'use os udp_receiver *:7000'); s = udp(7000)") == 0
        assert rings("api('add_conf_rule', b'use vma udp_receiver *:7000'); s = udp(7000)") == 1


def test_only_threads_that_say_so_have_offloaded_sockets(unet):
    """VMA_OFFLOADED_SOCKETS=0; under the rules, as any."""
    unet.neighbours()
    with apps(unet, env={"VMA_OFFLOADED_SOCKETS": 0}) as (a, b):
        a.do("import threading")
        b.do("p = udp(7001); l = socket.create_server((ME, 7002))")

        def rings(offload, kind):
            """How many a new socket of kind has when it is in use, by a thread that has said offload (None: nothing)."""
            if offload is not None:
                a.do(f"api('thread_offload', {offload}, threading.get_ident())")
            if kind == "udp":
                a.do("s = udp(7000); s.settimeout(5); ready(s)")
                b.do("p.sendto(b'x', (PEER, 7000))")
            else:
                a.do("s = socket.create_connection((PEER, 7002)); s.settimeout(5)")
                b.do("c, _ = l.accept(); c.send(b'x')")
            assert a.do("s.recv(10)") == b"x"
            try:
                return a.ask("api('get_socket_rings_num', s.fileno())")
            finally:
                a.do("s.close()")

        not_ours = ("OSError", "EINVAL")
        for kind in ("udp", "tcp"):
            assert rings(None if kind == "udp" else 0, kind) == not_ours
            assert rings(1, kind) == 1
            assert rings(0, kind) == not_ours
        a.do("api('add_conf_rule', b'use os udp_receiver *:7000')")
        assert rings(1, "udp") == 0


def test_statistics_go_to_the_log(unet):
    with datagrams(unet) as (a, b):
        assert a.do("api('dump_fd_stats', s.fileno(), 1)") == 0
        assert f"DUMPING FD {a.do('s.fileno()')} STATISTICS" in a.text
        assert a.do("api('dump_fd_stats', 0, 1)") == 0
        assert a.text.count("STATISTICS") >= 2


@families
def test_rings_and_headers_of_a_socket(unet, family):
    with datagrams(unet, family) as (a, b):
        offloaded(a)
        a.do("callback(s, lambda data, info: DROP)")
        fd = a.do("ring_fds(s)")
        assert len(fd) == 1
        assert a.ask("header(s)") == ("OSError", "ENOTCONN")
        assert a.ask("api('get_socket_tx_ring_fd', s.fileno(), None, 0)") == ("OSError", "ENODATA")
        a.do("s.connect((PEER, 7001)); s.send(b'resolve')")
        n = 62 if family == "6" else 42
        assert wait_for(lambda: a.ask("header(s, ask=True)") == n)
        h = a.do("header(s)")
        assert len(h) == n and h[-8:-4] == bytes.fromhex("1b581b59")
        assert a.ask("header(s, room=10)") == ("OSError", "ENOBUFS")
        assert a.do("api('get_socket_tx_ring_fd', s.fileno(), None, 0)") == fd[0]
