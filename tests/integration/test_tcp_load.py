# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""TCP in bulk and in trouble: thousands of connections, slow readers, peers that vanish, queues that overflow."""

import contextlib
import os
import time

import pytest

from differential import App
from netns import ip, wait_for
from test_tcp_both import HELPERS, PAIRS, both, connected, pairs

PORT = 7100
MANY = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (20000, 20000))
"""

# One thread serves all connections: what a client sends comes back in capitals.
EPOLL_SERVER = """
def serve(l, conns):
    '''Until so many connections have ended; returns the most at one time and the bytes echoed.'''
    l.setblocking(False)
    ep = select.epoll(); ep.register(l, select.EPOLLIN)
    socks, ended, total, most = {}, 0, 0, 0
    while ended < conns:
        for fd, ev in ep.poll(30):
            if fd == l.fileno():
                try:
                    while True:
                        c, _ = l.accept(); c.setblocking(False)
                        socks[c.fileno()] = c; ep.register(c, select.EPOLLIN)
                        most = max(most, len(socks))
                except BlockingIOError: pass
                continue
            c = socks[fd]
            try: d = c.recv(65536)
            except BlockingIOError: continue
            if d:
                total += len(d)
                c.sendall(d.upper())
            else:
                ep.unregister(fd); del socks[fd]; c.close(); ended += 1
    ep.close()
    return most, total
"""


@contextlib.contextmanager
def offloaded(net, server_ours, client_ours, at_most=0):
    """No segment, or no more than so many, passes the kernel's TCP on a side that has the library."""
    with contextlib.ExitStack() as stack:
        for host, ours in ((net.a, server_ours), (net.b, client_ours)):
            if ours:
                stack.enter_context(host.tcp_bypassed(at_most))
        yield


@pairs
def test_ten_thousand_short_connections(net, server_ours, client_ours):
    number = 2_000 if net.library.sanitize else 10_000  # AddressSanitizer has seen each case by then
    with both(net, "4", server_ours, client_ours) as (server, client):
        server.do(EPOLL_SERVER)
        with offloaded(net, server_ours, client_ours):
            server.start(f"serve(l, {number})")
            client.do(f"""
for i in range({number}):
    c = client(); c.sendall(b'abc%d' % i)
    assert exactly(c, 3 + len(str(i))) == b'ABC%d' % i, i
    c.close()
""", 60)
            assert server.answer(20)[1] == sum(3 + len(str(i)) for i in range(number))


@pairs
def test_five_thousand_connections_at_once(net, server_ours, client_ours):
    with both(net, "4", server_ours, client_ours) as (server, client):
        for x in (server, client):
            x.do(MANY)
        server.do(EPOLL_SERVER + "\nl.listen(4096)")
        # Four came once, under ASan on a busy machine, and none was answered. Why is not known; perhaps answers to a FIN sent again.
        with offloaded(net, server_ours, client_ours, at_most=20 if net.library.sanitize else 0):
            server.start("serve(l, 5000)")
            client.do("cs = [client() for _ in range(5000)]", 60)
            # All of them have something on the way at the same time.
            client.do("for i, c in enumerate(cs): c.sendall(b'%05d' % i * (i % 200 + 1))", 60)
            client.do("""
for i, c in enumerate(cs):
    assert exactly(c, 5 * (i % 200 + 1)) == b'%05d' % i * (i % 200 + 1), i
""", 60)
            client.do("for c in cs: c.close()", 60)
            most, total = server.answer(30)
        assert most == 5000
        assert total == sum(5 * (i % 200 + 1) for i in range(5000))


@pairs
def test_ten_thousand_idle_beside_a_hundred_busy(net, server_ours, client_ours):
    """Those that say nothing cost nothing, and are as good as new afterwards. VMA_LOAD_SECONDS=60 makes it the long one."""
    seconds = float(os.environ.get("VMA_LOAD_SECONDS", "3"))
    with both(net, "4", server_ours, client_ours) as (server, client):
        for x in (server, client):
            x.do(MANY)
        server.do(EPOLL_SERVER + "\nl.listen(4096)")
        with offloaded(net, server_ours, client_ours):
            server.start("serve(l, 10100)")
            client.do("idle = [client() for _ in range(10000)]; busy = [client() for _ in range(100)]", 120)
            client.do(f"""
end, rounds = time.monotonic() + {seconds}, 0
while time.monotonic() < end:
    for i, c in enumerate(busy): c.sendall(b'%03d' % i * (1 + rounds % 500))
    for i, c in enumerate(busy): assert exactly(c, 3 * (1 + rounds % 500)) == b'%03d' % i * (1 + rounds % 500), i
    rounds += 1
assert rounds > 1
""", seconds + 60)
            client.do("for c in idle: c.sendall(b'still here')", 60)
            client.do("for c in idle: assert exactly(c, 10) == b'STILL HERE'", 60)
            client.do("for c in idle + busy: c.close()", 60)
            assert server.answer(60)[0] == 10100


@pytest.mark.parametrize("server_ours, client_ours", [pytest.param(False, False, id="kernel"), *PAIRS])
def test_the_ports_run_out(net, server_ours, client_ours):
    """Open connections and then TIME_WAITs have all of them: EADDRNOTAVAIL, as from the kernel; what is freed serves again."""
    # Two kernels that close at nearly the same time send an ACK too many; the RST that answers it would end a TIME_WAIT (RFC 1337).
    net.b.run(["sysctl", "-qw", "net.ipv4.ip_local_port_range=40000 40039", "net.ipv4.tcp_rfc1337=1"])
    with both(net, "4", server_ours, client_ours) as (server, client):
        server.do("l.listen(64)")
        client.do("""
cs = []
def until_none_is_left():
    try:
        while True: cs.append(client())
    except OSError as e: return len(cs), errno.errorcode[e.errno]
""")
        assert client.do("until_none_is_left()", 30) == (40, "EADDRNOTAVAIL")
        server.do("ss = [l.accept()[0] for _ in range(40)]", 20)
        # The server closes one first: its port is free at once. The client's own are in TIME_WAIT.
        server.do("port = ss[0].getpeername()[1]; ss.pop(0).close()")
        client.do(f"c = [c for c in cs if c.getsockname()[1] == {server.do('port')}][0]; c.recv(1); cs.remove(c); c.close()")
        wait_for(lambda: not isinstance(client.ask("cs.append(client())"), tuple), what="the freed port")
        assert client.do("len(cs)") == 40
        client.do("for c in cs: c.close()")
        client.do("cs.clear()")
        server.do("ss.append(l.accept()[0])")
        server.do("for s in ss: s.recv(1); s.close()")
        assert client.do("until_none_is_left()", 30) == (0, "EADDRNOTAVAIL")


@pytest.mark.parametrize("server_ours, client_ours", [pytest.param(False, False, id="kernel"), *PAIRS])
def test_ports_come_one_after_the_other(net, server_ours, client_ours):
    """A port that is free again is not the next to be taken."""
    with both(net, "4", server_ours, client_ours) as (server, client):
        server.do("def take(n):\n for _ in range(n): l.accept()[0].close()")
        server.start("take(200)")
        client.do("""
ports = []
for _ in range(200):
    c = client()
    ports.append(c.getsockname()[1])
    # What a thread of the client sends and what the kernel has answered for it may leave a veth on two CPUs out of turn: a RST
    # that overtakes the handshake's ACK would end what nobody has accepted yet.
    c.recv(1)
    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0)); c.close()
""", 30)
        server.answer(30)
        ports = client.do("ports")
        assert len(set(ports)) == 200
        low, high = map(int, client.do("open('/proc/sys/net/ipv4/ip_local_port_range').read()").split())
        assert all(low <= p <= high for p in ports)


@pairs
@pytest.mark.parametrize("readers", [1, 20])
def test_slow_readers(net, server_ours, client_ours, readers):
    """The writer meets closed windows, again and again; nothing is lost, and what is not read stays bounded."""
    total = 6_000_000 // readers
    with both(net, "4", server_ours, client_ours) as (server, client):
        server.do("l.listen(64)")
        client.do(f"cs = [client() for _ in range({readers})]")
        server.do(f"ss = [l.accept()[0] for _ in range({readers})]; import threading; sums = {{}}")
        server.do(f"""
def write(i): sums[i] = write_all(ss[i], {total}, i); ss[i].shutdown(socket.SHUT_WR)
threads = [threading.Thread(target=write, args=(i,)) for i in range({readers})]
for t in threads: t.start()
""")
        client.do("""
def slowly():
    sums = [[0, hashlib.sha256()] for c in cs]
    def take(i, most):
        d = cs[i].recv(most); sums[i][0] += len(d); sums[i][1].update(d)
        return d
    for k in range(30):
        time.sleep(0.01)
        for i in range(len(cs)): take(i, 1000 + 997 * k)
    for i in range(len(cs)):
        while take(i, 70000): pass
    return [(n, h.hexdigest()) for n, h in sums]
""")
        got = client.do("slowly()", 40)
        server.do("for t in threads: t.join()", 20)
        assert server.do(f"[sums[i] for i in range({readers})]") == got


@pairs
def test_a_device_that_does_not_segment(net, server_ours, client_ours):
    """Without TSO nobody cuts what goes past the queueing discipline: a stream must not wait for the device for ever."""
    for host in (net.a, net.b):
        host.run(["ethtool", "-K", host.dev, "tso", "off"])
    with connected(net, "4", server_ours, client_ours) as (server, client):
        for sender, receiver in ((server, client), (client, server)):
            receiver.start("got = exactly(s, 3000000)")
            sender.do("d = random.Random(5).randbytes(3000000); s.sendall(d)")
            receiver.answer(20)
            assert receiver.do("hashlib.sha256(got).hexdigest()") == sender.do("hashlib.sha256(d).hexdigest()")


@pairs
def test_nobody_reads_and_the_writer_is_stopped(net, server_ours, client_ours):
    """Flow control: a writer that does not wait is told EAGAIN, and all that was taken arrives later."""
    with connected(net, "4", server_ours, client_ours) as (server, client):
        server.do("s.setblocking(False); n, h = 0, hashlib.sha256(); r = random.Random(9)")
        server.do("""
def fill():
    global n
    end = time.monotonic() + 20
    quiet = 0
    while quiet < 5:
        assert time.monotonic() < end and n < 200000000, n
        d = r.randbytes(20000)
        try: k = s.send(d)
        except BlockingIOError:
            quiet += 1; time.sleep(0.05); continue
        quiet = 0
        h.update(d[:k]); n += k
fill()
""", 30)
        sent = server.do("n")
        server.do("s.shutdown(socket.SHUT_WR)")
        assert client.do("read_all(s)", 30) == (sent, server.do("h.hexdigest()"))


@pairs
def test_half_close_carries_an_answer_after_the_question(net, server_ours, client_ours):
    """The client says all it has to say, the server then streams: rsync and many others work so."""
    with connected(net, "4", server_ours, client_ours) as (server, client):
        server.start("got = read_all(s)")
        client.do("q = write_all(s, 3000000, 1); s.shutdown(socket.SHUT_WR)", 20)
        server.answer(20)
        assert server.do("got") == client.do("q")
        client.start("got = read_all(s)")
        server.do("q = write_all(s, 5000000, 2); s.close()", 20)
        client.answer(20)
        assert client.do("got") == server.do("q")


ECHO = """
import socket, sys
l = socket.socket(); l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
l.bind((sys.argv[1], 7100)); l.listen(10)
print("ready", flush=True)
while True:
    s, _ = l.accept(); s.sendall(s.recv(100))
"""
WRITER = """
import socket, sys
s = socket.create_connection((sys.argv[1], 7100))
while True: s.sendall(bytes(100000))
"""
READER = """
import socket, sys
s = socket.create_connection((sys.argv[1], 7100))
while s.recv(100000): pass
"""


@pairs
@pytest.mark.parametrize("source", [WRITER, READER], ids=["writer", "reader"])
def test_a_killed_client_is_noticed(net, server_ours, client_ours, source):
    """SIGKILL in the middle of a stream: the server reads what came and the end, and is not left waiting."""
    with App(net.a, server_ours) as server:
        server.do(HELPERS)
        server.do("l = listener(); ready(l)")
        victim = net.b.python(source, client_ours, [net.a.ip4])
        server.do("s, _ = l.accept(); s.settimeout(20)")
        if source is WRITER:
            assert server.do("exactly(s, 1000000) == bytes(1000000)", 20) is True
        else:
            server.do("for _ in range(20): s.sendall(bytes(100000))", 20)
        victim.kill(9)
        victim.wait()
        # A killed one of ours has said nothing; its kernel says RST to what comes next.
        if client_ours:
            server.ask("s.sendall(bytes(1000))")
        end = server.ask("read_all(s)[0] >= 0", 30)
        assert end is True or end == ("OSError", "ECONNRESET"), end
        server.do("s.close()")


@pairs
def test_a_killed_server_is_noticed(net, server_ours, client_ours):
    """... and its port can be listened on again at once."""
    with App(net.b, client_ours) as client:
        client.do(HELPERS)
        for _ in range(2):
            victim = net.a.python(ECHO, server_ours, [net.a.ip4])
            victim.wait_text("^ready$")
            client.do("s = client(); s.settimeout(20); s.sendall(b'hello')")
            assert client.do("exactly(s, 5)") == b"hello"
            victim.kill(9)
            victim.wait()
            client.ask("s.sendall(b'are you there')")
            end = client.ask("read_all(s)[0] >= 0", 30)
            assert end is True or end == ("OSError", "ECONNRESET"), end
            assert client.ask("client()") == ("OSError", "ECONNREFUSED")


@pairs
def test_a_cut_cable_that_is_mended(net, server_ours, client_ours):
    """The link goes down in the middle of a transfer and comes back: the streams go on where they were."""
    with connected(net, "4", server_ours, client_ours) as (server, client):
        server.start("got = read_all(s)")
        client.start("q = write_all(s, 100000000, 3); s.shutdown(socket.SHUT_WR)")
        ip("-n", net.b.name, "link", "set", net.b.dev, "down")
        time.sleep(0.5)  # longer than one retransmission timeout
        ip("-n", net.b.name, "link", "set", net.b.dev, "up")
        client.answer(40)
        server.answer(40)
        assert server.do("got") == client.do("q")


SEND_UNTIL_OVER = """
def send_until_over(s):
    s.settimeout(3)
    while True:
        s.sendall(b'x')
        try:
            return s.recv(10)
        except TimeoutError as e:
            if e.errno: raise
"""


@pairs
def test_a_cut_cable_that_stays_cut(net, server_ours, client_ours):
    """TCP_USER_TIMEOUT ends what nobody answers."""
    with connected(net, "4", server_ours, client_ours) as (server, client):
        client.do("s.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1500)")
        # The far end is cut: here the link stays as it is, and no one answers, as soon as the library has heard of it there.
        ip("-n", net.a.name, "addr", "del", f"{net.a.ip4}/24", "dev", net.a.dev)
        client.do(SEND_UNTIL_OVER)
        assert client.ask("send_until_over(s)", 30) == ("OSError", "ETIMEDOUT")


@pairs
def test_the_accept_queue_overflows(net, server_ours, client_ours):
    """More connections than the backlog: those in it are served, the others get in when there is room, none is lost."""
    with both(net, "4", server_ours, client_ours) as (server, client):
        server.do("l.listen(4)")
        client.do("cs = [socket.socket(FAM, socket.SOCK_STREAM) for _ in range(30)]")
        client.do(f"for c in cs: c.setblocking(False); c.connect_ex((PEER, {PORT}))")
        # Nobody accepts: no more than the queue holds are complete at the server.
        client.do("time.sleep(0.3)")
        server.start("ss = [l.accept()[0] for _ in range(30)]")
        client.do("""
left = list(cs)
while left:
    _, ready, _ = select.select([], left, [], 30)
    assert ready, len(left)
    for c in ready:
        assert c.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
        left.remove(c); c.setblocking(True); c.sendall(b'I am in')
""", 40)
        server.answer(40)
        assert server.do("[exactly(s, 7) for s in ss] == [b'I am in'] * 30", 20) is True
