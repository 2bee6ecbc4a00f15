# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
The answers of one round leave together (lib/stack/round.h): fewer system calls than answers; and none stays behind, whatever the
program does instead of waiting again.
"""

import contextlib
import re
import socket
import struct

import pytest

from differential import CHILDREN
from netns import wait_for
from test_tcp_both import PORT, both

MANY = 8
SO_RCVBUFFORCE = 33
SERVER = f"""
ep = select.epoll()
def serve(s):
    ep.register(s, select.EPOLLIN)
    by_fd[s.fileno()] = s
by_fd = {{}}
def round_of(n):
    'The sockets that one wait has found, n of them at once.'
    while True:
        found = ep.poll()
        if len(found) == n: return [by_fd[fd] for fd, _ in found]
def tcp_answer(s):
    d = s.recv(100); s.send(d.upper()); return d
def udp_answer(s):
    d, a = s.recvfrom(100); s.sendto(d.upper(), a); return d
"""


@contextlib.contextmanager
def served(net, kind, env=None):
    """(server, client): the client has MANY sockets cs, connected to as many of the server's, ss, which stand in an epoll set."""
    with both(net, "4", True, False, env) as (server, client):
        for app in (server, client):
            app.do("import select")
        server.do(CHILDREN)
        server.do(SERVER)
        if kind == "tcp":
            client.do(f"cs = [client() for _ in range({MANY})]")
            server.do(f"ss = [l.accept()[0] for _ in range({MANY})]")
        else:
            server.do(f"ss = [udp({PORT} + 1 + i) for i in range({MANY})]")
            server.do("for s in ss: ready(s)")
            client.do(f"cs = [socket.socket(FAM, socket.SOCK_DGRAM) for _ in range({MANY})]")
            client.do(f"for i, c in enumerate(cs): c.connect((PEER, {PORT} + 1 + i))")
        server.do("for s in ss: serve(s)")
        client.do("for c in cs: c.settimeout(20)")
        yield server, client


kinds = pytest.mark.parametrize("kind", ["tcp", "udp"])


def ask(server, client, text="hello"):
    client.do(f"for c in cs: c.send({text.encode()!r})")
    server.do(f"todo = round_of({MANY})", 20)


def frames_and_kicks(net, server):
    """What the server's ring has sent, and the system calls that it took, as vma_stats tells of one moment."""
    text = net.a.stats(server)
    ring = re.search(r"\tRING_\w+=.*?Tx Offload:\s+\d+ / (\d+).*?Kernel kicks:\s+(\d+)", text, re.S)
    return (int(ring[1]), int(ring[2])) if ring else (0, 0)


@kinds
@pytest.mark.parametrize("on", [True, False], ids=["on", "off"])
def test_fewer_system_calls_than_answers(net, kind, on):
    """Rounds of eight, until some answers have left together; without VMA_TX_COALESCE each has a call of its own."""
    net.neighbours()  # or many datagrams go by the kernel at first
    with served(net, kind, {} if on else {"VMA_TX_COALESCE": 0}) as (server, client):
        answers, frames, kicks = 0, 0, 0
        for turn in range(40):
            for _ in range(10):
                ask(server, client)
                server.do(f"[{kind}_answer(s) for s in todo] and None")
                assert client.do("[c.recv(100) for c in cs]", 30) == [b"HELLO"] * MANY
            answers += 10 * MANY
            # The first ones may go by the kernel, before the ring is there.
            wait_for(lambda: frames_and_kicks(net, server)[0] >= answers - 2 * MANY, 10.0, "the counters")
            frames, kicks = frames_and_kicks(net, server)
            if on and kicks < frames - answers // 20 or not on and turn == 3:
                break
        print(f"{kind}: {answers} answers, {frames} frames, {kicks} system calls")
        assert (kicks < answers - 2 * MANY) == on


@kinds
def test_what_a_program_leaves_behind_is_sent(net, kind):
    """It answers one of eight, then reads a line from a pipe: no wait that the library sees. Twenty times."""
    with served(net, kind) as (server, client):
        for _ in range(20):
            ask(server, client)
            assert server.do(f"{kind}_answer(todo[0])") == b"hello"
            got = client.do("len(select.select(cs, [], [], 20)[0])", 30)
            assert got == 1, "the answer stays where it is"
            server.do(f"[{kind}_answer(s) for s in todo[1:]] and None")
            assert client.do("[c.recv(100) for c in cs]", 30) == [b"HELLO"] * MANY


# Until the answer has come. The other connections may be reset before: nobody has read what they brought, as in the kernel.
ANSWERS = """
def answers():
    got = []
    while cs and b'HELLO' not in got:
        for c in select.select(cs, [], [], 20)[0] or cs[:]:
            cs.remove(c)
            c.setblocking(False)
            try: got.append(c.recv(100))
            except OSError as e: got.append(e.errno)
    return got
"""


@kinds
@pytest.mark.parametrize("end", ["os._exit(0)", "os.execv('/bin/true', ['true'])", "os.kill(os.getpid(), 15)"])
def test_the_end_of_the_process_sends_it(net, kind, end):
    """An answer, and the end in the same breath; by a signal that a handler turns into an exit(), too."""
    with served(net, kind) as (server, client):
        server.do("import signal; signal.signal(15, lambda *a: os._exit(0))")
        ask(server, client)
        client.do(ANSWERS)
        server.start(f"{kind}_answer(todo[0]), {end}")
        got = client.do("answers()", 30)
        print(f"{kind}, {end}: {got}")
        assert b"HELLO" in got


@kinds
def test_a_fork_sends_it(net, kind):
    """The child has no round, and the parent's answer leaves."""
    with served(net, kind) as (server, client):
        ask(server, client)
        server.do(f"{kind}_answer(todo[0]); pid = child(lambda: None)")
        assert client.do("len(select.select(cs, [], [], 20)[0])", 30) == 1
        assert server.do("wait(pid)") == 0
        server.do(f"[{kind}_answer(s) for s in todo[1:]] and None")
        assert client.do("[c.recv(100) for c in cs]", 30) == [b"HELLO"] * MANY


FIN = 1


class Wire:
    """The TCP segments that come in at the host's interface."""

    def __init__(self, host):
        self.raw = host.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0, timeout=0)
        self.raw.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 22)
        self.raw.bind((host.dev, 3))

    def take(self):
        """[(flags, bytes of payload)] of those since the last time."""
        seen = []
        with contextlib.suppress(BlockingIOError):
            while True:
                p, at = self.raw.recvfrom(65536)
                if p[0] == 0x45 and p[9] == socket.IPPROTO_TCP and at[2] != socket.PACKET_OUTGOING:
                    seen.append((p[33], struct.unpack_from(">H", p, 2)[0] - 20 - (p[32] >> 4) * 4))
        return seen


def turns(wire, turn, enough):
    """Until a turn has shown what is looked for: a thread that loses its processor sends in pieces."""
    seen = []

    def shown():
        wire.take()
        turn()
        seen[:] = wire.take()
        return enough(seen)

    wait_for(shown, 60, lambda: f"a turn that shows it, the last one: {seen}")
    print(seen)


def test_an_answer_and_its_fin_are_one_segment(net):
    """A server of one answer for each connection, several of which it finds at once."""
    net.neighbours(v6=False)
    with both(net, "4", True, False) as (server, client):
        server.do("import select")
        client.do("import select")
        server.do(SERVER)
        wire = Wire(net.b)

        def turn():
            client.do(f"cs = [client() for _ in range({MANY})]")
            server.do(f"ss = [l.accept()[0] for _ in range({MANY})]")
            server.do("ep = select.epoll()\nfor s in ss: serve(s)")
            client.do("for c in cs: c.settimeout(20); c.send(b'hello')")
            server.do(f"todo = round_of({MANY})", 20)
            server.do("for s in todo: tcp_answer(s); s.close()\nep.close(); del ss")
            assert client.do("[(c.recv(100), c.recv(100)) for c in cs]", 30) == [(b"HELLO", b"")] * MANY
            client.do("for c in cs: c.close()")

        turns(wire, turn, lambda seen: sum(1 for flags, n in seen if flags & FIN and n == 5) >= MANY // 4)


def test_answers_in_parts_are_one_segment_where_two_come_at_once(net):
    """A server that finds two connections at a time, and writes head, body and end of each answer one by one."""
    net.neighbours(v6=False)
    with both(net, "4", True, False) as (server, client):
        for app in (server, client):
            app.do("import select")
        server.do(SERVER)
        server.do("def answer(s): tcp_answer(s); s.send(b'body'); s.close()")
        wire = Wire(net.b)

        def turn():
            client.do("cs = [client() for _ in range(2)]")
            server.do("ss = [l.accept()[0] for _ in range(2)]\nfor s in ss: serve(s)")
            client.do("for c in cs: c.settimeout(20); c.send(b'head')")
            server.do("todo = round_of(2)", 20)
            server.do("for s in todo: answer(s)\nep.poll(0)")
            assert client.do("[c.recv(100, socket.MSG_WAITALL) for c in cs]", 30) == [b"HEADbody"] * 2
            client.do("for c in cs: c.close()")

        turns(wire, turn, lambda seen: sum(1 for flags, n in seen if flags & FIN and n == 8) >= 1)


# One client of the server accepted for each wait, as nginx does; parts as above.
ACCEPTS_ONE = """
def work(n):
    ep = select.epoll()
    l.setblocking(True)
    ep.register(l, select.EPOLLIN)
    by_fd, left = {}, n
    while left:
        for fd, _ in ep.poll():
            if fd == l.fileno():
                s = l.accept()[0]
                by_fd[s.fileno()] = s
                ep.register(s, select.EPOLLIN)
            else:
                answer(by_fd.pop(fd))
                left -= 1
"""
ASKS_AGAIN = f"""
def ask_all(n):
    'n requests, a connection for each, MANY at a time.'
    ep, by_fd, begun, got = select.epoll(), {{}}, 0, 0
    while got < n:
        while begun < n and len(by_fd) < {MANY}:
            c = client()
            c.send(b'head')
            by_fd[c.fileno()] = c
            ep.register(c, select.EPOLLIN)
            begun += 1
        for fd, _ in ep.poll():
            c = by_fd.pop(fd)
            assert c.recv(100, socket.MSG_WAITALL) == b'HEADbody'
            c.close()
            got += 1
"""


def test_what_comes_amid_a_round_leaves_with_it(net, library):
    """
    A SYN, a request, the acknowledgement of an answer: packets come while a server answers others. What is to be said to them
    needs no system call of its own, and cuts no round in two. With a sanitizer each answer is late, and leaves alone.
    """
    net.neighbours(v6=False)
    requests = 400
    with both(net, "4", True, False) as (server, client):
        for app in (server, client):
            app.do("import select")
        server.do(SERVER)
        server.do("def answer(s): tcp_answer(s); s.send(b'body'); s.close()")
        server.do(ACCEPTS_ONE)
        client.do(ASKS_AGAIN)

        def turn():
            before = frames_and_kicks(net, server)
            server.start(f"work({requests})")
            client.do(f"ask_all({requests})", 30)
            server.answer()
            # SYN|ACK, answer and FIN, acknowledgement of the client's FIN. The first connections may be the kernel's.
            with contextlib.suppress(AssertionError):
                wait_for(lambda: frames_and_kicks(net, server)[0] >= before[0] + 3 * requests, 1.0)
            frames, kicks = (now - then for now, then in zip(frames_and_kicks(net, server), before))
            print(f"{requests} connections, {frames} frames, {kicks} system calls")
            return frames >= 3 * requests and (kicks < 1.8 * requests or library.sanitize)

        wait_for(turn, 60, "a turn in which they leave together")
