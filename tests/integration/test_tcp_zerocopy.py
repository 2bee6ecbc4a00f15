# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""MSG_ZEROCOPY and the error queue that tells its ends: the same program on the kernel and on the library, over the same veth."""

import hashlib

import pytest

from differential import PEER_PORT, differential
from test_tcp_calls import differential_tcp, families, roles

HELPERS = """
SO_ZEROCOPY, MSG_ZEROCOPY, MSG_ERRQUEUE = 60, 0x4000000, 0x2000
def zerocopy(s, on=1): s.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, on)
def told_now(s, room=512):
    data, items, flags, name = s.recvmsg(100, room, MSG_ERRQUEUE)
    return [(level, kind, len(d), *struct.unpack('=IBBBBII', d[:16]), any(d[16:])) for level, kind, d in items], data, flags, name
def told(s, last):
    # Up to the call of that number. How many notifications it takes depends on when the peer acknowledges: adjacent ones are put
    # together here, too. Of a part the eighth and the ninth are the first call and the last.
    parts = []
    while not parts or parts[-1][9] < last:
        if not await_ready(s, select.POLLERR) & select.POLLERR: raise OSError(errno.ETIMEDOUT, 'no notification')
        (p,), data, flags, name = told_now(s)
        p = (*p, data, flags, name)
        if parts and p[8] == parts[-1][9] + 1 and p[:8] == parts[-1][:8]:
            parts[-1] = (*parts[-1][:9], *p[9:])
        else:
            parts.append(p)
    return parts
SO_ZEROCOPY, MSG_ZEROCOPY, MSG_ERRQUEUE
"""


def read(peer, n):
    got = b""
    while len(got) < n:
        more = peer.recv(n - len(got))
        assert more
        got += more
    return got


def zerocopy_steps(steps):
    def all_steps(app, peer):
        app.do(HELPERS)
        steps(app, peer)
    return all_steps


@roles
@families
def test_each_call_is_told_once_in_order(unet, family, role):
    def steps(app, peer):
        app("zerocopy(s)")
        app("told_now(s)")
        app("ready(s)")
        app("s.send(b'first', MSG_ZEROCOPY)")
        app("told(s, 0)")
        app("told_now(s)")
        app("ready(s)")
        app("s.send(b'without'), s.send(b'', MSG_ZEROCOPY)")
        app("ready(s)")
        app("s.sendmsg([b'x' * 5000, b'y'], [], MSG_ZEROCOPY), s.sendto(b'z', MSG_ZEROCOPY, s.getpeername())")
        app("sendmmsg(s, [b'one', b'', b'three'], None, MSG_ZEROCOPY)")
        app("told(s, 4)")
        app("ready(s)")
        app.note("peer got", read(peer, 5 + 7 + 5001 + 1 + 8))
    differential_tcp(unet, family, zerocopy_steps(steps), role)


@roles
def test_many_calls_are_one_notification(unet, role):
    def steps(app, peer):
        app("zerocopy(s)")
        app("[s.send(b'%d' % i, MSG_ZEROCOPY) for i in range(10)]")
        app.note("peer got", read(peer, 10))
        # Everything is acknowledged: the kernel, too, has put them together by now.
        app.do("while struct.unpack('i', fcntl.ioctl(s, termios.TIOCOUTQ, bytes(4)))[0]: time.sleep(0.01)")
        app("told_now(s)")
        app("told_now(s)")
    differential_tcp(unet, "4", zerocopy_steps(steps), role)


@roles
def test_the_option_tells_the_truth(unet, role):
    def steps(app, peer):
        get = "s.getsockopt(socket.SOL_SOCKET, SO_ZEROCOPY)"
        app(get)
        app("s.send(b'ignored', MSG_ZEROCOPY)")
        app.note("peer got", read(peer, 7))
        app("ready(s)")
        app("told_now(s)")
        app("zerocopy(s, 2)")
        app("zerocopy(s, -1)")
        app(get)
        app("zerocopy(s)")
        app(get)
        app("s.send(b'counted', MSG_ZEROCOPY)")
        app("told(s, 0)")
        app("zerocopy(s, 0)")
        app(get)
        app("s.send(b'ignored', MSG_ZEROCOPY)")
        app.note("peer got", read(peer, 14))
        app("ready(s)")
        app("zerocopy(s)")
        app("s.send(b'counted', MSG_ZEROCOPY)")
        app("told(s, 1)")
    differential_tcp(unet, "4", zerocopy_steps(steps), role)


@pytest.mark.parametrize("accept", ["ready(l); c, _ = l.accept()", "c, _ = l.accept()"])
def test_a_listener_passes_it_on(unet, accept):
    def steps(app, peer):
        app.do("l = listener(7105); zerocopy(l); ready(l)")
        with unet.b.socket(kind=1) as other:
            other.connect((unet.a.ip4, 7105))
            app(accept)
            app("c.getsockopt(socket.SOL_SOCKET, SO_ZEROCOPY)")
            app("c.send(b'x', MSG_ZEROCOPY)")
            app("told(c, 0)")
            app("c.close(); l.close()")
    differential_tcp(unet, "4", zerocopy_steps(steps), "none")


def test_set_before_connect(unet):
    def steps(app, peer):
        with unet.b.socket(kind=1) as other:
            other.bind((unet.b.ip4, 7106))
            other.listen()
            app("c = socket.socket(); zerocopy(c); c.connect((PEER, 7106))")
            app("c.getsockopt(socket.SOL_SOCKET, SO_ZEROCOPY)")
            app("c.send(b'x', MSG_ZEROCOPY)")
            app("told(c, 0)")
            app("c.close()")
    differential_tcp(unet, "4", zerocopy_steps(steps), "none")


@families
def test_little_room_for_the_notification(unet, family):
    def steps(app, peer):
        app("zerocopy(s)")
        for call in ["s.recvmsg(100, 0, MSG_ERRQUEUE)", "s.recvmsg(100, 15, MSG_ERRQUEUE)",
                                  "s.recvmsg(100, 20, MSG_ERRQUEUE)[0::2]", "s.recvmsg(100, 40, MSG_ERRQUEUE)[0::2]",
                                  "s.recv(100, MSG_ERRQUEUE)", "s.recvfrom(100, MSG_ERRQUEUE)[0]",
                                  "s.recvmsg(100, 200, MSG_ERRQUEUE | socket.MSG_PEEK)[0::2]"]:
            app("s.send(b'x', MSG_ZEROCOPY)")
            app("await_ready(s, select.POLLERR)")
            app(call)
            app("told_now(s)")
            app.note("peer got", peer.recv(1))
    differential_tcp(unet, family, zerocopy_steps(steps))


def test_every_way_of_waiting_learns_it(unet):
    def steps(app, peer):
        app("zerocopy(s)")
        app("ep = select.epoll(); ep.register(s, select.EPOLLIN)")
        app("et = select.epoll(); et.register(s, select.EPOLLIN | select.EPOLLET); et.poll(0)")
        app("ep.poll(0), et.poll(0)")
        app("s.send(b'x', MSG_ZEROCOPY)")
        app("[e for _, e in ep.poll(3)], [e for _, e in et.poll(3)]")
        app("[e for _, e in ep.poll(0)], [e for _, e in et.poll(0)]")
        app("[len(x) for x in select.select([s], [], [s], 3)]")
        app("told(s, 0)")
        app("ep.poll(0), et.poll(0), ready(s)")
        app("[len(x) for x in select.select([s], [], [s], 0)]")
        # A reader who sleeps is not ended by it.
        app("s.settimeout(0.3); s.send(b'y', MSG_ZEROCOPY)")
        app("timed(s.recv, 1)[0]")
        app("told(s, 1)")
        app("s.send(b'again', MSG_ZEROCOPY), [e for _, e in et.poll(3)]")
    differential_tcp(unet, "4", zerocopy_steps(steps))


def test_a_call_that_sends_nothing_is_not_told(unet):
    def steps(app, peer):
        app("zerocopy(s)")
        app("s.shutdown(socket.SHUT_WR)")
        app("s.send(b'x', MSG_ZEROCOPY | socket.MSG_NOSIGNAL)")
        app("told_now(s)")
        app("ready(s)")
    differential_tcp(unet, "4", zerocopy_steps(steps))


def test_what_waits_outlives_the_connection(unet):
    def steps(app, peer):
        app("zerocopy(s)")
        app("s.send(b'x', MSG_ZEROCOPY)")
        app("await_ready(s, select.POLLERR)")
        peer.recv(1)
        app("s.shutdown(socket.SHUT_WR)")
        peer.close()
        app("await_ready(s, select.POLLHUP)")
        app("ready(s)")
        app("told_now(s)")
        app("ready(s)")
    differential_tcp(unet, "4", zerocopy_steps(steps))


@roles
def test_big_sends_arrive_whole(unet, role):
    def steps(app, peer):
        app("zerocopy(s)")
        app.do("import hashlib, random, threading; data = random.Random(8).randbytes(6 << 20); out = []")
        app.do("""def writer():
            at = 0
            while at < len(data): at += s.send(memoryview(data)[at:at + 300000], MSG_ZEROCOPY); out.append(at)""")
        app.do("w = threading.Thread(target=writer); w.start()")
        got = read(peer, 6 << 20)
        app.do("w.join()")
        app.note("whole", hashlib.sha256(got).hexdigest() == app.ask("hashlib.sha256(data).hexdigest()"))
        app("[(p[:9], p[9], p[10] == len(out) - 1) for p in told(s, len(out) - 1)]")
    differential_tcp(unet, "4", zerocopy_steps(steps), role)


@families
def test_datagrams_are_told_too(unet, family):
    """A datagram socket with the option is the kernel's."""
    def steps(app, peer):
        app.do(HELPERS)
        app("s = udp(7000)")
        app("zerocopy(s)")
        app("s.getsockopt(socket.SOL_SOCKET, SO_ZEROCOPY)")
        app(f"[s.sendto(b'x', MSG_ZEROCOPY, (PEER, {PEER_PORT})) for _ in range(3)]")
        app.note("peer got", [peer.recv(10) for _ in range(3)])
        app("told(s, 2)")
        app("ready(s)")
    differential(unet, family, steps)
