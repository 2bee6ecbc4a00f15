# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""TCP between the library and the kernel, either way round, and between two of the library."""

import contextlib
import itertools

import pytest

from differential import App

PORT = 7100
PAIRS = [pytest.param(True, False, id="ours-listens"), pytest.param(False, True, id="ours-connects"),
         pytest.param(True, True, id="both-ours")]
pairs = pytest.mark.parametrize("server_ours, client_ours", PAIRS)
families = pytest.mark.parametrize("family", ["4", "6", "mapped"])

HELPERS = f"""
import hashlib, random
def listener(port={PORT}, backlog=16):
    l = socket.socket(FAM, socket.SOCK_STREAM)
    l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    l.bind((ANY, port))
    l.listen(backlog)
    return l
def client(port={PORT}):
    c = socket.socket(FAM, socket.SOCK_STREAM)
    c.connect((PEER, port))
    return c
def read_all(s, size=65536):
    h, n = hashlib.sha256(), 0
    while True:
        d = s.recv(size)
        if not d: return n, h.hexdigest()
        h.update(d); n += len(d)
def write_all(s, total, seed, largest=100000):
    r, h, left = random.Random(seed), hashlib.sha256(), total
    while left:
        d = r.randbytes(min(left, r.randint(1, largest)))
        s.sendall(d); h.update(d); left -= len(d)
    return total, h.hexdigest()
def exactly(s, n):
    d = b''
    while len(d) < n:
        more = s.recv(n - len(d))
        if not more: break
        d += more
    return d
"""


@contextlib.contextmanager
def both(net, family, server_ours, client_ours, env=None):
    """(server, client): two programs of which the first listens on PORT."""
    with App(net.a, server_ours, family, env) as server, App(net.b, client_ours, family, env) as client:
        for x in (server, client):
            x.do(HELPERS)
        # Once waited on it is attached: what comes from now on is offloaded.
        server.do("l = listener(); ready(l)")
        yield server, client


@contextlib.contextmanager
def connected(net, family, server_ours, client_ours, env=None):
    """The same with one connection: s in both."""
    with both(net, family, server_ours, client_ours, env) as (server, client):
        server.start("s, peer = l.accept()")
        client.do("s = client()")
        server.answer()
        yield server, client


def tcp_segments(host):
    c = host.counters()
    return c["TcpInSegs"] + c["TcpOutSegs"]


def test_sendmmsg_ends_behind_a_message_that_went_in_part(unet):
    """Room that comes later is not for the next message: the program sends the rest of this one again."""
    with connected(unet, "4", False, True) as (server, client):
        client.do("s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, tv(0.5))")
        client.start("sendmmsg(s, [b'a' * (16 << 20), b'b' * 100])")
        server.do("time.sleep(0.7)")  # the first message has given up waiting, the second waits: or would
        server.do("s.settimeout(1)")
        server.start("got = bytearray()\ntry:\n    while True: got += s.recv(1 << 20)\nexcept TimeoutError: pass")
        sent, lengths = client.answer(30)
        server.answer(60)
        print(sent, lengths)
        assert sent == 1 or lengths[0] == 16 << 20
        assert server.do("got.count(b'b')") == 0 or lengths[0] == 16 << 20


@pairs
@families
def test_echo(unet, family, server_ours, client_ours):
    with connected(unet, family, server_ours, client_ours) as (server, client):
        for n in (1, 2, 100, 1447, 1448, 1449, 1460, 1461, 5000, 30000):
            client.do(f"d = bytes(range(251)) * {n // 251 + 1}; d = d[:{n}]; s.sendall(d)")
            assert server.do(f"d = exactly(s, {n}); s.sendall(d); len(d)") is None
            assert client.do(f"exactly(s, {n}) == d") is True, n
        client.do("s.close()")
        assert server.do("s.recv(10)") == b""


@pairs
def test_no_segment_passes_the_kernels_tcp(net, server_ours, client_ours):
    # Hosts of its own: what connections of earlier tests repeat to the kernel would be counted, too.
    with connected(net, "4", server_ours, client_ours) as (server, client):
        hosts = [h for h, ours in ((net.a, server_ours), (net.b, client_ours)) if ours]
        before = [tcp_segments(h) for h in hosts]
        for i in range(20):
            client.do(f"s.sendall(b'{i}')")
            assert server.do("s.recv(10)") == b"%d" % i
            server.do(f"s.sendall(b'{i}')")
            assert client.do("s.recv(10)") == b"%d" % i
        assert [tcp_segments(h) for h in hosts] == before


@pairs
@families
def test_names_are_told(unet, family, server_ours, client_ours):
    with connected(unet, family, server_ours, client_ours) as (server, client):
        assert server.do("s.getpeername()") == client.do("s.getsockname()")
        assert server.do("s.getsockname()") == client.do("s.getpeername()")
        assert server.do("peer") == client.do("s.getsockname()")


@pairs
@pytest.mark.parametrize("total, largest", [(1 << 20, 5000), (20 << 20, 200000)])
def test_streams_arrive_whole_both_ways_at_once(unet, server_ours, client_ours, total, largest):
    with connected(unet, "4", server_ours, client_ours) as (server, client):
        for x, seed in ((server, 1), (client, 2)):
            x.do("import threading; out = []")
            x.do(f"def writer(): out.append(write_all(s, {total}, {seed}, {largest})); s.shutdown(socket.SHUT_WR)")
            x.do("w = threading.Thread(target=writer); w.start()")
        server.start("got = read_all(s)")
        client.do("got = read_all(s)", 20)
        server.answer(20)
        for x in (server, client):
            x.do("w.join()", 20)
        assert server.do("out[0]") == client.do("got")
        assert client.do("out[0]") == server.do("got")


@pairs
def test_half_close(unet, server_ours, client_ours):
    with connected(unet, "4", server_ours, client_ours) as (server, client):
        client.do("s.sendall(b'question'); s.shutdown(socket.SHUT_WR)")
        assert server.do("read_all(s)[0]") == 8
        server.do("s.sendall(b'answer'); s.close()")
        assert client.do("exactly(s, 100)") == b"answer"
        client.do("s.close()")


@pairs
def test_many_short_connections(unet, server_ours, client_ours):
    with both(unet, "4", server_ours, client_ours) as (server, client):
        server.start("""
for i in range(300):
    c, _ = l.accept(); c.sendall(c.recv(100).upper()); c.close()
""")
        client.do("""
for i in range(300):
    c = client(); c.sendall(b'abc%d' % i)
    assert read_all(c) == (len(str(i)) + 3, hashlib.sha256(b'ABC%d' % i).hexdigest()), i
    c.close()
""", 20)
        server.answer()


@pairs
def test_a_reset_is_seen(unet, server_ours, client_ours):
    for x, y in itertools.permutations((0, 1)):
        with connected(unet, "4", server_ours, client_ours) as programs:
            a, b = programs[x], programs[y]
            a.do("s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0)); s.close()")
            assert b.ask("s.recv(10)") == ("OSError", "ECONNRESET")
            assert b.ask("s.send(b'x')") == ("OSError", "EPIPE")


@pairs
def test_nobody_listens(unet, server_ours, client_ours):
    with both(unet, "4", server_ours, client_ours) as (server, client):
        server.do("l.close()")
        assert client.ask("client()") == ("OSError", "ECONNREFUSED")


@pairs
def test_poll_and_epoll_and_select(unet, server_ours, client_ours):
    with both(unet, "4", server_ours, client_ours) as (server, client):
        server.do("ep = select.epoll(); ep.register(l, select.EPOLLIN)")
        assert server.do("ep.poll(0)") == []
        client.do("s = client()")
        assert server.do("[e for _, e in ep.poll(5)]") == [1]
        server.do("s, _ = l.accept(); ep.register(s, select.EPOLLIN | select.EPOLLOUT)")
        assert server.do("[(f == s.fileno(), e) for f, e in ep.poll(5)]") == [(True, 4)]
        server.do("ep.modify(s, select.EPOLLIN | select.EPOLLRDHUP)")
        assert server.do("ep.poll(0.01)") == []
        client.do("s.send(b'x')")
        assert server.do("[(f == s.fileno(), e) for f, e in ep.poll(5)]") == [(True, 1)]
        assert server.do("ready(s)") == 5
        assert server.do("[len(x) for x in select.select([s], [s], [s], 5)]") == [1, 1, 0]
        server.do("s.recv(10)")
        assert server.do("[len(x) for x in select.select([s], [], [s], 0)]") == [0, 0, 0]
        client.do("s.shutdown(socket.SHUT_WR)")
        assert server.do("[e for f, e in ep.poll(5)]") == [0x2001]
        server.do("s.shutdown(socket.SHUT_WR)")
        assert client.do("await_ready(s, select.POLLIN | select.POLLHUP)") == 0x11


@pairs
def test_connect_that_does_not_wait(unet, server_ours, client_ours):
    with both(unet, "4", server_ours, client_ours) as (server, client):
        client.do("s = socket.socket(FAM, socket.SOCK_STREAM); s.setblocking(False)")
        assert client.do(f"s.connect_ex((PEER, {PORT})) == errno.EINPROGRESS") is True
        assert client.do("await_ready(s, select.POLLOUT)") == 4
        assert client.do("s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)") == 0
        assert client.do(f"s.connect_ex((PEER, {PORT}))") == 0
        assert client.do(f"s.connect_ex((PEER, {PORT})) == errno.EISCONN") is True
        server.do("s, _ = l.accept()")
        client.do("s.send(b'hello')")
        assert server.do("s.recv(10)") == b"hello"
