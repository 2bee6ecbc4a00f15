# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""SocketXtreme (mellanox/vma_extra.h): one call polls a ring and tells what has come for its sockets.

   net.a: App with the library and VMA_SOCKETXTREME=1, its sockets at ME:7000 --- veth --- net.b: App with kernel sockets

ring is what get_socket_rings_fds() gives of s. told(least) polls it until so many completions have come.
"""

import contextlib

import pytest

from differential import CHILDREN, FAMILIES, App
from netns import wait_for

families = pytest.mark.parametrize("family", FAMILIES)
XTREME = {"VMA_SOCKETXTREME": "1"}
EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP, EPOLLRDHUP = 1, 4, 8, 16, 0x2000
PACKET, NEW = 1 << 32, 1 << 33

HELPERS = """
from extra_app import *
def told(least, fd=None, **how):
    return await_completions(ring if fd is None else fd, lambda all: len(all) >= least, **how)
def brief(all): return [(c["events"], c["user"], c["data"]) for c in all]
def data_of(all, user): return b"".join(c["data"] for c in all if c["user"] == user)
"""


@contextlib.contextmanager
def apps(unet, family="4", env=XTREME):
    with App(unet.a, True, family, env=env) as a, App(unet.b, False, family) as b:
        a.do(HELPERS)
        yield a, b


@contextlib.contextmanager
def datagrams(unet, family="4", env=XTREME):
    """s in a, and its ring; p in b, who sends to it."""
    with apps(unet, family, env) as (a, b):
        a.do("s = udp(7000); ring, = ring_fds(s); S = s.fileno(); s.setblocking(False)")
        b.do("p = udp(7001); to = (PEER, 7000)")
        yield a, b


def host_of(app, family):
    return app.me.removeprefix("::ffff:") if family != "6" else 10


def test_without_the_mode_the_calls_say_so(unet):
    with apps(unet, env={}) as (a, _):
        for call in ("'socketxtreme_poll', 3, None, 1, 0", "'socketxtreme_free_vma_packets', None, 0",
                     "'socketxtreme_ref_vma_buff', None", "'socketxtreme_free_vma_buff', None"):
            assert a.ask(f"api({call})") == ("OSError", "ENOTSUP"), call
        assert a.ask("user_data(udp(), 7)") == ("OSError", "ENOPROTOOPT")
        # They are there all the same, as the mask says.
        assert a.do("get_api()[2].mask >> 6 & 15") == 15


def test_what_is_no_ring_and_no_piece_is_told(unet):
    with datagrams(unet) as (a, _):
        a.do("room = (Completion * 4)()")
        for fd in (-1, 0, 99, 1 << 30):
            assert a.ask(f"api('socketxtreme_poll', {fd}, room, 4, 0)") == ("OSError", "EBADFD")
        assert a.ask("api('socketxtreme_poll', ring, None, 4, 0)") == ("OSError", "EINVAL")
        assert a.ask("api('socketxtreme_poll', ring, room, 0, 0)") == ("OSError", "EINVAL")
        assert a.do("completions(ring)") == [] and a.do("completions(S)") == []
        for piece in ("None", "1", "ctypes.addressof(room)"):
            for call in ("socketxtreme_ref_vma_buff", "socketxtreme_free_vma_buff"):
                assert a.ask(f"api('{call}', {piece})") == ("OSError", "EINVAL")
        assert a.ask("api('socketxtreme_free_vma_packets', None, 1)") == ("OSError", "EINVAL")
        assert a.ask("callback(s, lambda data, info: DROP)") == ("OSError", "ENOTSUP")


def test_a_ring_is_armed_when_nothing_waits(unet):
    with datagrams(unet) as (a, b):
        a.do("def arm(): return api('vma_modify_ring', struct.pack('=IiII', 2, ring, 0, 0))")
        a.do("p = select.poll(); p.register(ring, select.POLLIN)")
        assert wait_for(lambda: a.do("completions(ring) == [] and arm() == 0"), 5)
        b.do("p.sendto(b'wakes', to)")
        assert a.do("len(p.poll(8000))") == 1
        # What waits in the ring, and then what the ring has given and nobody was told of.
        assert a.do("arm()") == 1
        b.do("p.sendto(b'more', to)")
        assert a.do("brief(told(1, n=1))") == [(PACKET, a.do("S"), b"wakes")]
        assert a.do("brief(told(1, n=1))") == [(PACKET, a.do("S"), b"more")]


# --- datagrams


@families
def test_a_poll_tells_of_each_datagram(unet, family):
    with datagrams(unet, family) as (a, b):
        sent = [bytes([i]) * (200 * i) for i in range(7)] + [b"last"]
        b.do("[p.sendto(bytes([i]) * (200 * i), to) for i in range(7)]; p.sendto(b'last', to)")
        a.do("all = told(8)")
        assert a.do("brief(all)") == [(PACKET, a.do("S"), d) for d in sent]
        assert a.do("[c['src'] for c in all]") == [(host_of(b, family), 7001)] * 8
        assert a.do("[len(c['pieces']) for c in all]") == [1] * 8
        # What completions tell nobody reads, and nothing is told twice.
        assert a.ask("s.recv(10)") == ("OSError", "EAGAIN")
        assert a.do("completions(ring)") == []
        # A socket's number stands for its rings.
        b.do("p.sendto(b'by the socket', to)")
        assert a.do("brief(told(1, S))") == [(PACKET, a.do("S"), b"by the socket")]


def test_before_it_is_told_a_datagram_cannot_be_read(unet):
    with datagrams(unet) as (a, b):
        a.do("t = udp(7002); ring_fds(t)")
        b.do("p.sendto(b'for s', to); p.sendto(b'for t', (PEER, 7002))")
        # A completion of t: what was sent to s before has been taken in as well.
        assert a.do("brief(told(2, n=1))") == [(PACKET, a.do("S"), b"for s"), (PACKET, a.do("t.fileno()"), b"for t")]
        b.do("p.sendto(b'1', to); p.sendto(b'2', to)")
        assert a.do("brief(told(1, n=1))") == [(PACKET, a.do("S"), b"1")]
        assert a.ask("s.recv(10)") == ("OSError", "EAGAIN")
        assert a.do("ready(s, 0, select.POLLIN)") == 0
        assert a.do("brief(told(1, n=1))") == [(PACKET, a.do("S"), b"2")]


def test_several_sockets_of_a_ring_take_turns(unet):
    with datagrams(unet) as (a, b):
        a.do("more = [udp(7010 + i) for i in range(3)]; [ring_fds(x) for x in more]; fds = [x.fileno() for x in more]")
        b.do("[p.sendto(b'%d' % n, (PEER, 7010 + i)) for i in range(3) for n in range(50)]")
        a.do("all = told(150, n=4)")
        for i in range(3):
            assert a.do(f"[c['data'] for c in all if c['user'] == fds[{i}]]") == [b"%d" % n for n in range(50)]


def test_user_data_is_what_the_program_says(unet):
    with datagrams(unet) as (a, b):
        assert a.do("user_data(s)") == a.do("S")
        assert a.do("user_data(s, 0x123456789abcdef0)") == 0x123456789ABCDEF0
        assert a.ask("s.setsockopt(socket.SOL_SOCKET, SO_VMA_USER_DATA, b'1234')") == ("OSError", "EINVAL")
        b.do("p.sendto(b'x', to)")
        assert a.do("brief(told(1))") == [(PACKET, 0x123456789ABCDEF0, b"x")]
        assert a.do("t = socket.socket(FAM)") is None and a.do("user_data(t) == t.fileno(), user_data(t, 7)") == (True, 7)
        a.do("s.close(); s = udp(7000); ring_fds(s); S = s.fileno()")
        b.do("p.sendto(b'y', to)")
        assert a.do("brief(told(1))") == [(PACKET, a.do("S"), b"y")]


def test_a_piece_is_there_for_as_long_as_it_has_users(unet):
    with datagrams(unet) as (a, b):
        b.do("p.sendto(b'kept' * 200, to); p.sendto(b'freed', to)")
        a.do("all = told(2, keep=True); k = all[0]['pieces'][0]")
        assert a.do("api('socketxtreme_ref_vma_buff', k)") == 2
        assert a.do("give_back(*(c['desc'] for c in all))") == 0
        b.do("[p.sendto(b'x' * 800, to) for _ in range(50)]")
        a.do("len(told(50))")
        assert a.do("chain(all[0]['desc'])[0][1]") == b"kept" * 200
        assert a.do("api('socketxtreme_free_vma_buff', k)") == 0
        # Once more it is nobody's, or another packet's; never a crash.
        assert a.ask("api('socketxtreme_free_vma_buff', k)") == ("OSError", "EINVAL")
        assert a.ask("give_back(all[0]['desc'])") == ("OSError", "EINVAL")


def test_who_frees_nothing_gets_no_more_and_others_do(unet):
    with datagrams(unet) as (a, b):
        a.do("t = udp(7002); ring_fds(t); s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 20000); kept = []")
        for _ in range(10):
            b.do("[p.sendto(bytes(1000), to) for _ in range(20)]; p.sendto(b'other', (PEER, 7002))")
            # The last one tells that all before it have been looked at.
            a.do("kept += await_completions(ring, lambda all: any(c['data'] == b'other' for c in all), keep=True)")
        n = a.do("len([c for c in kept if c['user'] == S])")
        limit = a.do("s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)")
        # The library gives no less room than 64 KB.
        assert 0 < n <= max(limit, 65536) / 1000 < 200
        assert a.do("len([c for c in kept if c['data'] == b'other'])") == 10
        assert a.text.count("socketxtreme_free_vma_packets() gives them back") == 1
        assert a.do("give_back(*(c['desc'] for c in kept))") == 0
        b.do("p.sendto(b'again', to)")
        assert a.do("brief(told(1))") == [(PACKET, a.do("S"), b"again")]


def test_pieces_outlive_their_socket(unet):
    with datagrams(unet) as (a, b):
        b.do("[p.sendto(b'%d' % i, to) for i in range(3)]")
        a.do("all = told(1, n=1, keep=True); s.close()")
        # What was not told goes with its socket.
        a.do("t = udp(7002); ring, = ring_fds(t)")
        b.do("p.sendto(b'next', (PEER, 7002))")
        assert a.do("brief(told(1))") == [(PACKET, a.do("t.fileno()"), b"next")]
        assert a.do("chain(all[0]['desc'])[0][1]") == b"0"
        assert a.do("give_back(all[0]['desc'])") == 0


# --- connections


@contextlib.contextmanager
def stream(unet, family="4", env=XTREME):
    """s in a, connected to p in b, and its ring."""
    with apps(unet, family, env) as (a, b):
        b.do("l = socket.socket(FAM); l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); l.bind((ME, 7000)); l.listen()")
        a.do("s = socket.socket(FAM); s.connect((PEER, 7000)); ring, = ring_fds(s); S = s.fileno(); s.setblocking(False)")
        b.do("p, _ = l.accept(); p.settimeout(5); p.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)")
        # The connection stands.
        assert a.do("brief(told(1))") == [(EPOLLOUT, a.do("S"), b"")]
        yield a, b


@contextlib.contextmanager
def listener(unet, family="4", env=XTREME):
    """l in a, and its ring; b has TO, its address."""
    with apps(unet, family, env) as (a, b):
        a.do("l = socket.socket(FAM); l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); l.bind((ME, 7000)); l.listen()")
        a.do("ring, = ring_fds(l); L = l.fileno()")
        b.do("TO = (PEER, 7000)")
        yield a, b


@families
def test_a_poll_tells_of_a_stream(unet, family):
    with stream(unet, family) as (a, b):
        data = bytes(range(256)) * 1000
        b.do("import threading; data = bytes(range(256)) * 1000; t = threading.Thread(target=p.sendall, args=(data,)); t.start()")
        a.do(f"all = await_completions(ring, lambda all: len(data_of(all, S)) >= {len(data)})", timeout=20)
        assert a.do("data_of(all, S)") == data
        assert a.do("set(c['events'] for c in all)") == {PACKET}
        assert a.do("set(c['src'] for c in all)") == {(host_of(b, family), 7000)}
        assert a.ask("s.recv(10)") == ("OSError", "EAGAIN")
        # And out it goes as ever.
        b.do("t.join()")
        a.do("s.send(b'answer')")
        assert b.do("p.recv(10)") == b"answer"


def test_a_connect_that_does_not_wait_is_told_of(unet):
    with apps(unet) as (a, b):
        b.do("l = socket.socket(FAM); l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); l.bind((ME, 7000)); l.listen()")
        a.do("s = socket.socket(FAM); s.setblocking(False); S = s.fileno(); user_data(s, 4711)")
        assert a.do("s.connect_ex((PEER, 7000))") == 115
        assert a.do("brief(told(1, ring_fds(s)[0]))") == [(EPOLLOUT, 4711, b"")]
        # Nobody listens there: no EPOLLOUT, which would say that the connection stands.
        a.do("t = socket.socket(FAM); t.setblocking(False); T = t.fileno()")
        a.do("t.connect_ex((PEER, 7999))")
        (events, user, _), = a.do("brief(told(1, ring_fds(s)[0]))")
        assert user == a.do("T") and events & EPOLLERR and events & EPOLLHUP and not events & EPOLLOUT
        assert a.do("t.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)") == 111


@families
def test_connections_are_accepted_by_themselves(unet, family):
    with listener(unet, family) as (a, b):
        # Without a poll nobody answers.
        b.start("c = [socket.create_connection(TO) for _ in range(5)]; [x.send(b'from %d' % i) for i, x in enumerate(c)]")
        a.do("all = await_completions(ring, lambda all: len([c for c in all if c['data']]) >= 5)")
        b.answer()
        ports = b.do("[x.getsockname()[1] for x in c]")
        a.do("new = [c for c in all if c['events'] & NEW]; fd_of = {c['src'][1]: c['user'] for c in new}")
        assert a.do("[(c['events'], c['listen']) for c in new]") == [(NEW, a.do("L"))] * 5
        assert sorted(a.do("[c['src'] for c in new]")) == sorted((host_of(b, family), p) for p in ports)
        for i, port in enumerate(ports):
            # Of each connection first that it is there, then what it sends.
            assert a.do(f"[(c['events'], c['data']) for c in all if c['user'] == fd_of[{port}]]") == [(NEW, b""), (PACKET, b"from %d" % i)]
            a.do(f"os.write(fd_of[{port}], b'to %d' % {i})")
        assert b.do("[x.recv(10) for x in c]") == [b"to %d" % i for i in range(5)]
        # The listener itself has nothing to tell, and nobody has to accept.
        assert a.do("[c for c in all if c['user'] == L]") == []
        assert a.do("ready(l, 0, select.POLLIN)") == 0
        a.do("x = socket.socket(fileno=fd_of[%d]); name = x.getpeername()" % ports[0])
        assert a.do("name[1]") == ports[0]


def test_user_data_of_a_connection_that_was_accepted(unet):
    with listener(unet) as (a, b):
        b.start("c = socket.create_connection(TO)")
        a.do("fd = told(1)[0]['user']; x = socket.socket(fileno=fd)")
        b.answer()
        assert a.do("user_data(x)") == a.do("fd") and a.do("user_data(x, 1 << 63)") == 1 << 63
        b.do("c.send(b'data')")
        assert a.do("brief(told(1))") == [(PACKET, 1 << 63, b"data")]


def test_the_end_of_a_stream_is_told_behind_its_data(unet):
    with stream(unet) as (a, b):
        b.do("p.send(b'last'); p.shutdown(socket.SHUT_WR)")
        assert a.do("brief(told(2, n=1))") == [(PACKET, a.do("S"), b"last"), (EPOLLIN | EPOLLRDHUP, a.do("S"), b"")]
        assert a.do("completions(ring)") == []
        assert a.do("s.recv(10)") == b""
        # As poll() shows it, when both directions are shut.
        a.do("s.send(b'bye'); s.shutdown(socket.SHUT_WR)")
        events = a.do("told(1)[0]['events']")
        assert events & EPOLLHUP
        assert b.do("p.recv(10), p.recv(10)") == (b"bye", b"")


def test_a_reset_is_told_behind_the_data(unet):
    with stream(unet) as (a, b):
        b.do("p.send(b'before'); p.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0)); p.close()")
        all = a.do("brief(told(2))")
        assert all[0] == (PACKET, a.do("S"), b"before")
        assert all[1][0] & (EPOLLERR | EPOLLHUP) == EPOLLERR | EPOLLHUP and all[1][0] & EPOLLOUT == 0
        assert a.ask("s.recv(10)") == ("OSError", "ECONNRESET")


def test_what_is_kept_of_a_stream_shuts_its_window(unet):
    with stream(unet) as (a, b):
        a.do("s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 60000); kept = []")
        b.do("""
p.setblocking(False); sent = 0
def push():
    global sent
    while select.select([], [p], [], .3)[1]:
        try: sent += p.send(bytes([sent // 1000 % 251]) * 1000)
        except BlockingIOError: pass
    return sent
""")
        for _ in range(4):
            b.do("push()", timeout=20)
            a.do("kept += completions(ring, 256, keep=True)")
        sent, got = b.do("sent"), a.do("len(data_of(kept, S))")
        assert 0 < got < 200000 < sent
        # With what is given back it goes on, and nothing is missing.
        b.do("p.settimeout(5); import threading; t = threading.Thread(target=lambda: (p.sendall(b'end'), p.shutdown(socket.SHUT_WR))); t.start()")
        assert a.do("give_back(*(c['desc'] for c in kept if c['pieces']))") == 0
        a.do("kept += await_completions(ring, lambda all: any(c['events'] & 0x2000 for c in all))", timeout=20)
        b.do("t.join()")
        total = b.do("sent")
        a.do(f"expected = b''.join(bytes([i // 1000 % 251]) * 1000 for i in range(0, {total}, 1000))[:{total}] + b'end'; whole = data_of(kept, S)")
        assert a.do("len(whole), whole == expected") == (total + 3, True)


def test_room_to_send_is_told(unet):
    with stream(unet) as (a, b):
        a.do("""
sent = 0
def push():
    global sent
    while True:
        try: sent += s.send(bytes(10000))
        except BlockingIOError: return sent
""")
        # Until neither side takes any more; what the peer acknowledges meanwhile is told.
        a.do("push(); end = time.monotonic() + 10")
        a.do("while await_completions(ring, len, .5) and time.monotonic() < end: push()", timeout=20)
        b.start("n = 0\nwhile n < 100000: n += len(p.recv(100000))")
        assert a.do("brief(told(1))")[0][:2] == (EPOLLOUT, a.do("S"))
        b.answer()
        assert a.do("s.send(b'more')") == 4


def test_a_connection_that_is_closed_is_told_of_no_more(unet):
    with listener(unet) as (a, b):
        b.start("c = socket.create_connection(TO); c.send(b'data')")
        a.do("old, = told(1, n=1)")
        b.answer()
        # Its data is taken in, and waits to be told.
        a.do("ready(l, 100)")
        a.do("os.close(old['user']); t = socket.socket(FAM)")
        assert a.do("old['events'] == NEW and t.fileno() == old['user']")
        b.start("d = socket.create_connection(TO); d.send(b'other')")
        a.do("new = told(2)")
        b.answer()
        assert a.do("[(c['events'], c['data']) for c in new]") == [(NEW, b""), (PACKET, b"other")]
        assert a.do("{c['user'] for c in new} & {t.fileno()}") == set()


def test_urgent_data_is_for_the_socket_calls(unet):
    with stream(unet) as (a, b):
        a.do("""
got = b''
def gather(whole):
    global got
    end = time.monotonic() + 5
    while got != whole and time.monotonic() < end:
        for c in completions(ring):
            got += c['data']
            if not c['events'] & 1: continue
            try: got += s.recv(100)
            except BlockingIOError: pass
    return got
""")
        b.do("p.send(b'normal'); p.send(b'!', socket.MSG_OOB)")
        a.do("await_ready(s, select.POLLPRI)")
        assert a.do("s.recv(1, socket.MSG_OOB)") == b"!"
        assert a.do("gather(b'normal')") == b"normal"
        b.do("p.send(b'after')")
        assert a.do("gather(b'normalafter')") == b"normalafter"


# --- what else a program does


def test_several_threads_poll_one_ring(unet):
    with listener(unet) as (a, b):
        a.do("""
u = udp(7001); ring_fds(u); told_by = [[], [], []]; on = True
def poll(mine):
    while on: mine += completions(ring, 8)
threads = [threading.Thread(target=poll, args=(mine,)) for mine in told_by]
for t in threads: t.start()
def all_told(): return [c for mine in told_by for c in mine]
""")
        b.do("""
import threading
def send(i):
    c = socket.create_connection(TO); c.settimeout(10); c.sendall(bytes([i]) * 30000); c.shutdown(socket.SHUT_WR); socks.append(c)
socks = []; ts = [threading.Thread(target=send, args=(i,)) for i in range(20)]
[t.start() for t in ts]; p = udp(7002); [p.sendto(b'%d' % i, (PEER, 7001)) for i in range(100)]; [t.join() for t in ts]
""", timeout=20)
        assert wait_for(lambda: a.do("len([c for c in all_told() if c['events'] & 0x2000])") == 20)
        assert wait_for(lambda: a.do("len([c for c in all_told() if c['user'] == u.fileno()])") == 100)
        a.do("on = False; [t.join() for t in threads]")
        assert a.do("sorted(int(c['data']) for c in all_told() if c['user'] == u.fileno())") == list(range(100))
        a.do("new = [c['user'] for c in all_told() if c['events'] & NEW]; data = [data_of(all_told(), fd) for fd in new]")
        assert a.do("len(set(new))") == 20
        assert a.do("sorted((len(d), len(set(d)), d[:1]) for d in data)") == [(30000, 1, bytes([i])) for i in range(20)]


def test_a_child_has_neither_rings_nor_pieces(unet):
    with datagrams(unet) as (a, b):
        b.do("p.sendto(b'parent', to)")
        a.do(CHILDREN + "all = told(1, keep=True)")
        a.do("""
def refused(fn):
    try: fn()
    except OSError as e: return e.errno
def look():
    assert refused(lambda: completions(ring)) == errno.EBADFD
    assert refused(lambda: api('socketxtreme_free_vma_buff', all[0]['pieces'][0])) == errno.EINVAL
pid = child(look)
""")
        assert a.do("wait(pid)") == 0, a.text
        b.do("p.sendto(b'again', to)")
        assert a.do("brief(told(1))") == [(PACKET, a.do("S"), b"again")]
        assert a.do("chain(all[0]['desc'])[0][1], give_back(all[0]['desc'])") == (b"parent", 0)


def test_what_was_not_told_goes_to_the_kernel_with_its_connection(unet):
    with stream(unet) as (a, b):
        b.do("p.send(b'told')")
        assert a.do("brief(told(1))") == [(PACKET, a.do("S"), b"told")]
        a.do("u = udp(7001); ring_fds(u)")
        b.do("p.send(b'not told')")
        a.do("ready(u, 100)")
        # Another process has it from now on, and both read it by the kernel.
        a.do(CHILDREN + "s.setblocking(True); pid = child(lambda: os.write(S, b'from the child'))")
        assert a.do("wait(pid)") == 0, a.text
        assert b.do("p.recv(100)") == b"from the child"
        assert a.do("s.recv(100)") == b"not told"
        b.do("p.send(b'more')")
        assert a.do("s.recv(100)") == b"more"
        assert a.do("completions(ring)") == []


@pytest.mark.parametrize("way", ["os._exit(0)", "os.execv('/bin/sh', ['sh', '-c', 'exit 0'])", "LIBC.exit(0)"])
def test_a_process_ends_with_pieces_in_its_hands(unet, way):
    with stream(unet) as (a, b):
        b.do("p.send(b'x' * 1000)")
        a.do("kept = told(1, keep=True)")
        b.do("p.send(b'x' * 1000)")
        a.start(way)
        with pytest.raises(AssertionError, match="ended with"):
            a.answer()
        assert a.popen.wait(20) == 0


def test_a_connection_that_is_made_anew(unet):
    """connect(AF_UNSPEC), and another peer: nothing of the former connection is told."""
    with stream(unet) as (a, b):
        b.do("l2 = socket.socket(FAM); l2.bind((ME, 7003)); l2.listen(); p.send(b'old')")
        a.do("u = udp(7001); ring_fds(u)")
        a.do("ready(u, 100)")
        a.do("s.setblocking(True); user_data(s, 99); disconnect(s); s.connect((PEER, 7003))")
        b.do("q, _ = l2.accept(); q.send(b'new')")
        all = a.do("brief(told(2, ring_fds(s)[0]))")
        assert all == [(EPOLLOUT, 99, b""), (PACKET, 99, b"new")]


# --- what the kernel brings


@families
def test_what_the_kernel_brings_is_read(unet, family):
    with apps(unet, family) as (a, b):
        a.do("s = udp(7000); S = s.fileno()")
        b.do("p = udp(7001); p.sendto(b'before', (PEER, 7000))")
        a.do("ring, = ring_fds(s)")
        assert a.do("brief(told(1))") == [(EPOLLIN, a.do("S"), b"")]
        assert a.do("s.recv(10)") == b"before"
        # A fragmented one, in the middle of others.
        b.do("p.sendto(b'1', (PEER, 7000)); p.sendto(b'f' * 5000, (PEER, 7000)); p.sendto(b'2', (PEER, 7000))")
        all = a.do("brief(await_completions(ring, lambda all: len(all) >= 3))")
        assert [c for c in all if c[0] == PACKET] == [(PACKET, a.do("S"), b"1"), (PACKET, a.do("S"), b"2")]
        assert (EPOLLIN, a.do("S"), b"") in all
        assert a.do("s.recv(10000)") == b"f" * 5000


def test_connections_of_the_kernel_are_for_accept(unet):
    with listener(unet) as (a, _):
        a.do("l.setblocking(False); user_data(l, 88)")
        # From this host to itself, past the ring.
        a.do("c = socket.socket(); c.setblocking(False); c.connect_ex((ME, 7000))")
        a.do("all = await_completions(ring, lambda all: any(c['user'] == 88 for c in all))")
        assert a.do("[(c['events'], c['listen']) for c in all if c['user'] == 88]") == [(EPOLLIN, -1)]
        a.do("x, _ = l.accept(); x.settimeout(5); c.settimeout(5); c.send(b'by the kernel')")
        assert a.do("x.recv(100)") == b"by the kernel"
