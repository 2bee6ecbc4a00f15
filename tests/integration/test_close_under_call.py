# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""close() of a number while another thread is inside a call on it: the call goes on, and the socket is closed behind it."""

import contextlib
import select
import socket

import pytest

from differential import differential
from netns import wait_for
from test_tcp_both import PORT
from test_tcp_calls import LINGER0, run

# How a thread gets into its call: it sleeps in the kernel there, or it spins.
SLEEPS, SPINS = {"VMA_RX_POLL": "0"}, {"VMA_RX_POLL": "-1"}
ways = pytest.mark.parametrize("env", [SLEEPS, SPINS], ids=["sleeps", "spins"])
closings = pytest.mark.parametrize("closing", ["os.close(n)", "os.dup2(null, n) == n", "call('close_range', n, n, 0)"],
                                   ids=["close", "dup2", "close_range"])

THREADS = """
null = os.open('/dev/null', os.O_RDWR)
# connect(), accept(), sendto(), recvfrom(), ppoll(), accept4(), recvmmsg(): where a thread sleeps.
CALLS = '42', '43', '44', '45', '271', '288', '299'
class Inside:
    '''A thread in one call; it has got there when this is made.'''
    def __init__(self, name, *args):
        self.come, self.value, self.where = threading.Event(), None, None
        self.thread = threading.Thread(target=self.run, args=(name, args), daemon=True)
        self.thread.start()
        self.come.wait()
        while not self.is_there(): time.sleep(0.02)
    def run(self, name, args):
        self.tid = threading.get_native_id()
        self.began = self.ticks()
        self.come.set()
        try: self.value = call(name, *args)
        except OSError as e: self.value = errno.errorcode[e.errno]
    def ticks(self):
        return int(open(f'/proc/self/task/{self.tid}/stat').read().rsplit(')')[1].split()[11])
    def is_there(self):
        # The same call with the same arguments twice; who spins is in none for long.
        before, self.where = self.where, open(f'/proc/self/task/{self.tid}/syscall').read()
        return before == self.where and before.split()[0] in CALLS or self.ticks() > self.began + 5
    def is_over(self): return not self.thread.is_alive()
    def result(self, timeout=20):
        self.thread.join(timeout * float(os.environ.get("TEST_PATIENCE", 1)))
        return self.value
room = ctypes.create_string_buffer(1 << 20)
def got(n): return room.raw[:n]
def messages(n):
    many = (Mmsghdr * n)()
    for m in many:
        m.hdr.iov = ctypes.pointer(Iovec(ctypes.addressof(room), 100)); m.hdr.iovlen = 1
    return many
"""


def nothing_yet(peer):
    """What a peer that has been told nothing sees."""
    return peer.recv(10) if select.select([peer], [], [], 0)[0] else "nothing"


def compare(net, env, steps, role="client"):
    """As differential_tcp()."""
    both = []
    for preload in (False, True):
        both.append(run(net, "4", preload, steps, role, env if preload else None))
    kernel, ours = both
    different = [(a[0], a[1], b[1]) for a, b in zip(kernel, ours) if a != b]
    assert not different, "\n".join(f"{c}\n  kernel: {k!r:.300}\n  ours:   {o!r:.300}" for c, k, o in different)
    assert len(kernel) == len(ours)
    print(f"{len(kernel)} answers equal the kernel's")


def closed_inside(app, peer, call, closing="os.close(n)"):
    app.do(THREADS)
    app.do("n = s.detach()")
    app.do(f"t = Inside({call})")
    app(closing)
    app("os.fstat(n).st_rdev == os.fstat(null).st_rdev" if "dup2" in closing else "os.fstat(n)")
    app("t.is_over()")
    app.note("the peer, meanwhile", nothing_yet(peer))


def the_end(app, peer):
    app("t.result()")
    app.note("the peer, behind it", peer.recv(10))


@closings
@ways
def test_recv_goes_on_until_data_come(unet, env, closing):
    def steps(app, peer):
        closed_inside(app, peer, "'recv', n, room, 100, 0", closing)
        peer.sendall(b"late")
        the_end(app, peer)
        app("got(4)")
    compare(unet, env, steps)


@ways
@pytest.mark.parametrize("end", ["fin", "reset", "timeout"])
def test_recv_goes_on_until_its_end(unet, env, end):
    def steps(app, peer):
        if end == "timeout":
            app.do("s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, tv(1.5))")
        closed_inside(app, peer, "'recv', n, room, 100, 0")
        if end == "fin":
            peer.shutdown(socket.SHUT_WR)
        if end == "reset":
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER0)
            peer.close()
            app("t.result()")
        else:
            the_end(app, peer)
    compare(unet, env, steps)


@ways
def test_recv_waits_for_all(unet, env):
    def steps(app, peer):
        closed_inside(app, peer, "'recv', n, room, 10, socket.MSG_WAITALL")
        peer.sendall(b"abcd")
        app("t.is_over()")
        app.note("the peer, meanwhile", nothing_yet(peer))
        peer.sendall(b"efghij")
        the_end(app, peer)
        app("got(10)")
    compare(unet, env, steps, "server")


@ways
def test_recvmmsg_goes_on_between_its_messages(unet, env):
    def steps(app, peer):
        closed_inside(app, peer, "'recvmmsg', n, (many := messages(2)), 2, 0, None")
        peer.sendall(b"late")
        app("t.is_over()")
        app.note("the peer, meanwhile", nothing_yet(peer))
        # The second one waits for what comes behind the first one.
        wait_for(lambda: app.ask("many[0].len") == 4, 10, "the first message")
        peer.sendall(b"later")
        the_end(app, peer)
        app("[m.len for m in many]")
    compare(unet, env, steps)


@ways
def test_two_that_read(unet, env):
    """The one that comes last closes."""
    def steps(app, peer):
        app.do(THREADS)
        app.do("n = s.detach(); other = ctypes.create_string_buffer(100)")
        app.do("t = Inside('recv', n, room, 4, socket.MSG_WAITALL); u = Inside('recv', n, other, 4, socket.MSG_WAITALL)")
        app("os.close(n)")
        peer.sendall(b"abc")
        app.note("the peer, meanwhile", nothing_yet(peer))
        peer.shutdown(socket.SHUT_WR)
        app("t.result() + u.result()")
        app.note("the peer, behind it", peer.recv(10))
    compare(unet, env, steps)


@ways
def test_send_goes_on_until_all_is_sent(unet, env):
    size = 32 << 20

    def steps(app, peer):
        closed_inside(app, peer, f"'send', n, b'x' * {size}, {size}, 0")
        left = size - 10  # what it had meanwhile
        while left and (data := peer.recv(min(left, 1 << 20))):
            left -= len(data)
        app.note("left", left)
        the_end(app, peer)
    compare(unet, env, steps)


@ways
def test_accept_goes_on_until_a_client_comes(unet, env):
    def steps(app, peer):
        app.do(THREADS)
        app.do("l = listener(); ready(l); n = l.detach()")
        app.do("t = Inside('accept', n, None, None)")
        app("os.close(n)")
        app("os.fstat(n)")
        app("t.is_over()")
        with unet.b.socket(socket.AF_INET, socket.SOCK_STREAM, timeout=5) as c:
            c.connect(app.at(PORT))
            app.do("new = t.result()")
            app("isinstance(new, int)")
            app("os.write(new, b'served')")
            app.note("the client", c.recv(10))
            with unet.b.socket(socket.AF_INET, socket.SOCK_STREAM, timeout=5) as d:
                app.note("the next client", d.connect_ex(app.at(PORT)))
            app("os.close(new)")
            app.note("the client", c.recv(10))
    compare(unet, env, steps, None)


@ways
def test_connect_goes_on_until_it_stands(unet, env):
    def steps(app, peer):
        app.do(THREADS)
        with contextlib.ExitStack() as stack:
            full = stack.enter_context(unet.b.socket(socket.AF_INET, socket.SOCK_STREAM, timeout=20))
            full.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            full.bind((unet.b.ip4, PORT + 1))
            full.listen(0)
            first = stack.enter_context(unet.a.socket(socket.AF_INET, socket.SOCK_STREAM, timeout=5))
            first.connect((unet.b.ip4, PORT + 1))
            # The ring is open, which a call that has not begun to wait may be busy with.
            app.do("udp(0).sendto(b'x', (PEER, 9))")
            app.do("s = socket.socket(); n = s.detach()")
            app.do(f"a = sockaddr((PEER, {PORT + 1}))")
            app.do("t = Inside('connect', n, a, len(a))")
            app("os.close(n)")
            app("t.is_over()")
            stack.enter_context(full.accept()[0])
            app("t.result()")
            peer = stack.enter_context(full.accept()[0])
            peer.settimeout(5)
            app.note("the peer", peer.recv(10))
    compare(unet, env, steps, None)


@ways
@pytest.mark.parametrize("call, what", [("'recv', n, room, 100, 0", "one"), ("'recvmmsg', n, msgs, 2, 0, None", "two")],
                         ids=["recv", "recvmmsg"])
def test_a_datagram_socket_goes_on(unet, env, call, what):
    def steps(app, peer):
        app.do(THREADS)
        # The ring is open, which a call that has not begun to wait may be busy with.
        app.do("udp(0).sendto(b'x', (PEER, 9))")
        app.do("msgs = messages(2)")
        app.do("s = udp(7000); n = s.detach()")
        app.do(f"t = Inside({call})")
        app("os.close(n)")
        app("os.fstat(n)")
        app("t.is_over()")
        app("udp(7000).getsockname()[1]")
        peer.connect(app.at(7000))
        peer.send(b"late")
        if what == "two":
            # The next of its messages is looked for under the number again, in the kernel by the file that it has.
            peer.send(b"later")
        app("t.result()")
        app("got(4)")
        app("udp(7000).getsockname()[1]")
    differential(unet, "4", steps, env)
