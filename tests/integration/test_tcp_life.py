# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""TCP sockets in the life of processes: exit, fork, death, many connections, local and foreign interfaces."""

import time

import pytest

from differential import App
from netns import wait_for
from test_tcp_both import HELPERS, PAIRS, PORT, connected, both, pairs, tcp_segments


@pairs
def test_unsent_data_goes_out_before_the_process_ends(net, server_ours, client_ours):
    """The writer ends at once without closing; the slow reader gets every byte and the end of the stream."""
    total = 2_000_000
    writer = f"""
import os, socket, sys
s = socket.create_connection((sys.argv[1], {PORT})); s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
left = {total}
while left: left -= s.send(bytes(min(left, 100000)))
sys.exit(0)
"""
    reader = f"""
import hashlib, socket, time
l = socket.socket(); l.setsockopt(1, 2, 1); l.bind(('0.0.0.0', {PORT})); l.listen(5)
print('ready', flush=True)
s, _ = l.accept(); n = 0; time.sleep(0.3)
while d := s.recv(20000):
    n += len(d)
print('got', n)
"""
    server = net.a.python(reader, server_ours)
    server.wait_text("ready")
    client = net.b.python(writer, client_ours, [net.a.ip4])
    assert client.wait() == 0, client.text
    assert server.wait() == 0, server.text
    assert f"got {total}" in server.text


def test_a_killed_process_resets_its_peers(net):
    """Nobody is left to answer: the kernel takes the segments, and has no connection for them."""
    with connected(net, "4", False, True) as (server, client):
        client.popen.kill()
        client.popen.wait()
        wait_for(lambda: server.ask("s.send(b'x')") in (("OSError", "ECONNRESET"), ("OSError", "EPIPE")), 10)
        client.close = lambda timeout=0: 0


def test_a_child_that_exits_leaves_the_parents_connection_alone(net):
    with connected(net, "4", False, True) as (server, client):
        client.do("pid = os.fork()\nif not pid: s.close(); os._exit(0)\nos.waitpid(pid, 0)")
        client.do("import subprocess; subprocess.run(['true'], close_fds=False)")
        client.do("s.send(b'still here')")
        assert server.do("s.recv(100)") == b"still here"
        server.do("s.send(b'and back')")
        assert client.do("s.recv(100)") == b"and back"


def test_a_listener_of_the_parent_is_served_by_the_child(net):
    """The parent owns nothing until somebody waits; the first child that accepts is offloaded."""
    with App(net.a, True) as server, App(net.b, False) as client:
        server.do(HELPERS)
        client.do(HELPERS)
        server.do("l = listener(); r, w = os.pipe()")
        server.do("""
pid = os.fork()
if not pid:
    ready(l); os.write(w, b'1')
    while True:
        c, _ = l.accept(); c.sendall(b'child ' + c.recv(100)); c.close()
""")
        assert server.do("os.read(r, 1)") == b"1"
        before = tcp_segments(net.a)
        for _ in range(5):
            client.do("c = client(); c.sendall(b'hello')")
            assert client.do("exactly(c, 100)") == b"child hello"
            client.do("c.close()")
        assert tcp_segments(net.a) == before
        server.do("os.kill(pid, 9); os.waitpid(pid, 0)")


def test_what_the_kernel_had_accepted_before_stays_the_kernels(net):
    """A client that was in the kernel's queue before the listener was first waited on is accepted, and served by the kernel."""
    with App(net.a, True) as server, App(net.b, False) as client:
        server.do(HELPERS)
        client.do(HELPERS)
        server.do("l = listener()")
        client.do("old = client(); old.send(b'early')")
        server.do("ready(l); s1, _ = l.accept()")
        client.do("new = client(); new.send(b'late')")
        server.do("s2, _ = l.accept()")
        for _ in range(5):
            assert server.do("s1.recv(100)") == b"early"
            assert server.do("s2.recv(100)") == b"late"
            server.do("s1.send(b'1'); s2.send(b'2')")
            assert client.do("old.recv(10), new.recv(10)") == (b"1", b"2")
            client.do("old.send(b'early'); new.send(b'late')")


def test_loopback_and_own_address_stay_with_the_kernel(net):
    with App(net.a, True) as app:
        app.do(HELPERS)
        app.do("l = listener(); ready(l)")
        for to in ("'127.0.0.1'", "ME"):
            app.do(f"c = socket.create_connection(({to}, {PORT})); s, _ = l.accept(); c.send(b'hello')")
            assert app.do("await_ready(s), s.recv(10)") == (1, b"hello")
            app.do("ep = select.epoll(); ep.register(c, select.EPOLLIN); s.send(b'x')")
            assert app.do("[e for _, e in ep.poll(5)]") == [1]
            app.do("c.close(); s.close(); ep.close()")


def test_accepted_connections_outlive_their_listener(net):
    with connected(net, "4", True, False) as (server, client):
        server.do("l.close()")
        before = tcp_segments(net.a)
        for _ in range(3):
            client.do("s.send(b'hello')")
            assert server.do("s.recv(100)") == b"hello"
            server.do("s.send(b'world')")
            assert client.do("s.recv(100)") == b"world"
        assert tcp_segments(net.a) == before
        assert client.ask("client()") == ("OSError", "ECONNREFUSED")


@pairs
@pytest.mark.no_sanitize
def test_many_connections_at_once(net, server_ours, client_ours):
    number = 1000
    with both(net, "4", server_ours, client_ours) as (server, client):
        for x in (server, client):
            x.do("import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (20000, 20000))")
        server.do("l.close(); l = listener(backlog=4000); ready(l)")
        server.start(f"all = [l.accept()[0] for _ in range({number})]")
        client.do(f"all = [client() for _ in range({number})]", 60)
        server.answer(60)
        for k in range(2):
            client.do(f"for i, s in enumerate(all): s.send(b'%d' % (i + {k}))", 30)
            assert server.do(f"sum(int(s.recv(20)) for s in all)", 30) == sum(i + k for i in range(number))
            server.do("for s in all: s.send(b'x')", 30)
            assert client.do("b''.join(s.recv(1) for s in all)", 30) == b"x" * number
        client.do("for s in all: s.close()", 30)
        assert server.do("b''.join(s.recv(1) for s in all)", 30) == b""


@pairs
def test_a_cable_that_is_cut_and_mended(net, server_ours, client_ours):
    with connected(net, "4", server_ours, client_ours) as (server, client):
        net.b.run(["ip", "link", "set", net.b.dev, "down"])
        client.do("s.send(b'in the dark')")
        time.sleep(0.5)
        net.b.run(["ip", "link", "set", net.b.dev, "up"])
        net.b.run(["ip", "-6", "addr", "replace", f"{net.b.ip6}/64", "dev", net.b.dev, "nodad"], check=False)
        assert server.do("s.recv(100)", 20) == b"in the dark"
        server.do("s.send(b'light')")
        assert client.do("s.recv(100)", 20) == b"light"


def test_a_slow_reader_stops_the_writer(net):
    for ours in ((True, False), (False, True)):
        with connected(net, "4", *ours) as (server, client):
            client.do("s.setblocking(False); n = 0")
            client.do("""
while True:
    try: n += s.send(bytes(65536))
    except BlockingIOError:
        if not await_ready(s, select.POLLOUT, 0.5): break
""", 20)
            n = client.do("n")
            assert n > 65536
            server.do("got = 0")
            server.start("while got < %d: got += len(s.recv(65536))" % n)
            server.answer(20)
            assert client.do("await_ready(s, select.POLLOUT)") == 4


def test_every_reader_learns_of_the_end(net):
    for ours in ((True, False), (False, True)):
        with connected(net, "4", *ours) as (server, client):
            reader, writer = (server, client) if ours[0] else (client, server)
            reader.do("import threading; out = []")
            reader.do("ts = [threading.Thread(target=lambda: out.append(s.recv(10)), daemon=True) for _ in range(4)]")
            reader.do("for t in ts: t.start()")
            reader.do("time.sleep(0.3)")  # all of them sleep
            writer.do("s.shutdown(socket.SHUT_WR)")
            reader.do("for t in ts: t.join(5)", 30)
            assert reader.do("out") == [b""] * 4


def test_a_connection_is_dissolved_while_it_waits_for_its_end(net):
    """connect() to AF_UNSPEC in TIME_WAIT: what is left of the old connection does not touch the socket."""
    with connected(net, "4", False, True) as (server, client):
        client.do("s.shutdown(socket.SHUT_WR)")
        assert server.do("s.recv(10)") == b""
        server.do("s.close(); l.close()")
        assert client.do("s.recv(10)") == b""
        port = client.do("s.getsockname()[1]")
        client.do("time.sleep(0.2); disconnect(s)")
        # The TIME_WAIT would give way to this.
        server.do("s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)")
        server.do(f"s.bind((ANY, {PORT}))")
        assert server.ask(f"s.connect((PEER, {port}))") == ("OSError", "ECONNREFUSED")
        server.do(f"s.close(); l = listener({PORT + 1})")
        server.start("s, peer = l.accept()")
        client.do(f"s.connect((PEER, {PORT + 1}))")
        server.answer()
        client.do("s.send(b'again')")
        assert server.do("s.recv(10)") == b"again"


@pytest.mark.parametrize("server_ours, client_ours", [pytest.param(False, False, id="kernel"), *PAIRS])
def test_one_of_several_listeners_is_closed(net, server_ours, client_ours):
    """What waited in its queue is reset (net.ipv4.tcp_migrate_req is 0); who comes later is served by those that stay."""
    with both(net, "4", server_ours, client_ours) as (server, client):
        server.do("""
l_port = l.getsockname()[1]; l.close()
ls = []
for _ in range(3):
    x = socket.socket(FAM, socket.SOCK_STREAM)
    x.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1); x.bind((ME, l_port)); x.listen(64); x.setblocking(False)
    ls.append(x)
select.select(ls, [], [], 0)
accepted = []
def queued():
    return [len(select.select([x], [], [], 0)[0]) for x in ls]
def accept(seconds):
    for x in select.select(ls, [], [], seconds)[0]: accepted.append(x.accept()[0])
    return len(accepted)
def served(n):
    while len(accepted) < n: accept(20)
    for c in accepted: c.setblocking(True); c.sendall(exactly(c, 5)); c.close()
    accepted.clear()
""")
        client.do("""
def outcome(c):
    try: return exactly(c, 5)
    except OSError as e: return errno.errorcode[e.errno]
cs = [client() for _ in range(60)]
for c in cs: c.settimeout(20)
def reset(): return [c for c in cs if select.select([c], [], [], 0)[0]]
""", 30)
        wait_for(lambda: server.do("queued()") == [1, 1, 1], what="connections on each of the listeners")
        server.do("ls.pop(1).close()")
        wait_for(lambda: server.do("accept(0)") + client.do("len(reset())") == 60, 20, "each is accepted or reset")
        client.do("gone = reset(); alive = [c for c in cs if c not in gone]")
        alive = client.do("len(alive)")
        assert 0 < alive < 60
        assert client.do("{outcome(c) for c in gone}") == {"ECONNRESET"}
        server.start(f"served({alive})")
        client.do("for c in alive: c.sendall(b'hello')")
        assert client.do("{outcome(c) for c in alive}", 30) == {b"hello"}
        server.answer(30)
        server.start("served(30)")
        client.do("cs = [client() for _ in range(30)]\nfor c in cs: c.sendall(b'again')", 30)
        assert client.do("{outcome(c) for c in cs}", 30) == {b"again"}
        server.answer(30)
