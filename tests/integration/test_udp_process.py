# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""UDP sockets and what processes do with them: dup, fork, close, signals, threads, several processes, sudden death."""

import os
import signal

import pytest

from differential import FAMILIES, PEER_PORT, App, differential
from netns import PATIENCE, wait_for

families = pytest.mark.parametrize("family", FAMILIES)
TO = f"(PEER, {PEER_PORT})"


@families
def test_dup_and_close(unet, family):
    """The socket lives as long as its last number; its queue is one."""
    def steps(app, peer):
        app("s = udp(7000)")
        app("d = s.dup(); e = os.dup(d.fileno())")
        peer.sendto(b"1", app.at(7000))
        peer.sendto(b"2", app.at(7000))
        app("d.recv(10)")
        app("s.close()")
        app("d.recv(10)")
        app("d.close()")
        peer.sendto(b"3", app.at(7000))
        app("os.read(e, 10)")
        app("f = os.open('/dev/null', os.O_RDWR); os.dup2(e, f) == f")
        app("os.close(e)")
        peer.sendto(b"4", app.at(7000))
        app("os.read(f, 10)")
        app("g = socket.socket(fileno=f)")
        app(f"g.sendto(b'by dup2', {TO})")
        app.note("peer got", peer.recvfrom(10))
        app("h = fcntl.fcntl(g, fcntl.F_DUPFD_CLOEXEC, 500); h")
        peer.sendto(b"5", app.at(7000))
        app("os.read(h, 10)")
        app("g.close(); os.close(h)")
        app("t = udp(7000); t.getsockname()[1]")
        peer.sendto(b"new one", app.at(7000))
        app("t.recv(10)")
        app("os.dup2(os.open('/dev/null', os.O_RDONLY), t.fileno()) > 0")
        app("os.read(t.fileno(), 10)")
        app("u = udp(7000)")
    differential(unet, family, steps)


@families
def test_close_and_open_again(unet, family):
    """The number and the port of a closed socket serve the next one; nothing of the old is seen."""
    def steps(app, peer):
        for i in range(20):
            app("s = udp(7000)")
            peer.sendto(b"%d" % i, app.at(7000))
            peer.sendto(b"left behind", app.at(7000))
            app("s.recv(20)")
            app("s.close()")
        app("s = udp(7001, ANY)")
        app("s.recv(20, socket.MSG_DONTWAIT)")
    differential(unet, family, steps)


@families
def test_fork(unet, family):
    """A child that inherits a socket can use it; so can the parent after the child is gone; and a child that outlives it."""
    def steps(app, peer):
        app("s = udp(7000)")
        peer.sendto(b"before", app.at(7000))
        app("s.recv(10)")
        app.do(f"""
pid = os.fork()
if not pid:
    try:
        s.sendto(b'from the child', {TO})
    finally:
        os._exit(0)
""")
        app.note("peer got", peer.recvfrom(100))
        app("os.waitpid(pid, 0)[1]")
        peer.sendto(b"parent", app.at(7000))
        app("s.recv(10)")
        # The parent closes its copy: the child receives, as a daemon's does.
        app.do(f"""
r, w = os.pipe()
pid = os.fork()
if not pid:
    try:
        os.read(r, 1)
        s.settimeout(3)
        data, address = s.recvfrom(100)
        s.sendto(b'child got ' + data, address)
        n = udp(7005)
        n.settimeout(3)
        n.sendto(b'its own', {TO})
        n.sendto(b'its own got ' + n.recv(100), {TO})
        n.close()
    finally:
        os._exit(0)
s.close()
os.write(w, b'x')
""")
        peer.sendto(b"after close", app.at(7000))
        app.note("peer got", peer.recvfrom(100))
        data, address = peer.recvfrom(100)
        app.note("peer got", (data, address))
        peer.sendto(b"hello", address)
        app.note("peer got", peer.recvfrom(100))
        app("os.waitpid(pid, 0)[1]")
        app("s = udp(7000)")
        peer.sendto(b"parent again", app.at(7000))
        app("s.recv(20)")
    differential(unet, family, steps)


@families
def test_the_parent_exits_and_the_child_serves(unet, family):
    """daemon(3): the socket is bound, the parent leaves, the child goes on."""
    def steps(app, peer):
        app("s = udp(7000, ANY)")
        peer.sendto(b"before", app.at(7000))
        app("s.recv(10)")
        daemon = unet.a.python(f"""
import os, socket
s = socket.socket(socket.{'AF_INET' if family == '4' else 'AF_INET6'}, socket.SOCK_DGRAM)
s.bind(({"'0.0.0.0'" if family == '4' else "'::'"}, 7040))
if os.fork():
    os._exit(0)
os.setsid()
print("ready", flush=True)
while True:
    data, address = s.recvfrom(100)
    s.sendto(data + b' ok', address)
""", preload=app.preload)
        wait_for(lambda: "ready" in daemon.text, 10, "the daemon")
        # The parent's queue dies with it (an exception to the kernel's ways): the first datagrams may be lost.
        peer.settimeout(0.2)

        def answers():
            peer.sendto(b"first", app.at(7040))
            try:
                return peer.recv(100) == b"first ok"
            except TimeoutError:
                return False
        wait_for(answers, 5, "an answer of the daemon")
        peer.settimeout(3 * PATIENCE)

        def says():
            """To what was sent last; answers to the earlier ones may come late."""
            while (text := peer.recv(100)) == b"first ok":
                pass
            return text
        for i in range(3):
            peer.sendto(b"%d" % i, app.at(7040))
            app.note("daemon says", says())
        for pid in unet.a.run(["ss", "-Hlunp", "sport = :7040"]).text.split("pid=")[1:]:
            os.kill(int(pid.split(",")[0]), signal.SIGKILL)
    differential(unet, family, steps)


SIGNALS = """
hits = []
def handler(*a): hits.append(1)
class SigAction(ctypes.Structure):
    _fields_ = [('handler', ctypes.c_void_p), ('mask', ctypes.c_ulong * 16), ('flags', ctypes.c_int), ('restorer', ctypes.c_void_p)]
CB = ctypes.CFUNCTYPE(None, ctypes.c_int)
cb = CB(lambda n: hits.append(n))
def act(restart):
    a = SigAction(); a.handler = ctypes.cast(cb, ctypes.c_void_p).value; a.flags = 0x10000000 if restart else 0
    call('sigaction', signal.SIGALRM, ctypes.byref(a), None)
def raw_recv(s):
    b = ctypes.create_string_buffer(20)
    n = call('recv', s.fileno(), b, 20, 0)
    return b.raw[:n]
def alarmed(f, *args):
    # Again and again: the first may come before the call has begun.
    began = time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
    value, _ = timed(f, *args)
    signal.setitimer(signal.ITIMER_REAL, 0)
    return value, time.monotonic() - began > 0.05
"""


@pytest.mark.parametrize("rx_poll", ["-1", "0", "100000"])
@families
def test_signals_end_a_receive(unet, family, rx_poll):
    """An alarm ends a blocking receive with EINTR, unless SA_RESTART; with SO_RCVTIMEO it always does (signal(7))."""
    def steps(app, peer):
        app.do(SIGNALS)
        app("s = udp(7000)")
        peer.sendto(b"first", app.at(7000))
        app("raw_recv(s)")
        app("act(False)")
        app("alarmed(raw_recv, s)")
        app("len(hits) > 0")
        app.do(f"cb = CB(lambda n: (hits.append(n), s.sendto(b'rang', {TO})))")
        app("act(True)")
        app("signal.setitimer(signal.ITIMER_REAL, 0.1)")
        app.start("raw_recv(s)")
        app.note("peer got", peer.recv(100))
        peer.sendto(b"restarted", app.at(7000))
        app.note("after SA_RESTART", app.answer())
        app.do("cb = CB(lambda n: hits.append(n))")
        app("act(True)")
        app("s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, tv(20))")
        app("alarmed(raw_recv, s)")
        app("act(False)")
        app("s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, tv(0))")
        # recvmmsg() gives what it has when a signal comes.
        peer.sendto(b"one", app.at(7000))
        app("await_ready(s)")
        app("alarmed(recvmmsg, s, 4)")
        app.do("s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)")  # the kernel keeps its own ERESTARTSYS for the next call
        # A handler that uses the socket itself.
        app.do(f"cb = CB(lambda n: (hits.append(n), s.sendto(b'from the handler', {TO}))); act(False)")
        app("alarmed(raw_recv, s)[1]")  # Python's own code in the handler leaves errno as it likes
        app.note("peer got", peer.recv(100))
    differential(unet, family, steps, {"VMA_RX_POLL": rx_poll})


@families
def test_a_closed_number_leaves_its_epoll_sets(unet, family):
    """By whatever call it is closed; what takes its number is not in the set, and may be added."""
    closings = {
        "close": "s.close()",
        "dup2": "os.dup2(null, n)",
        "dup2 of another socket": "os.dup2(other.fileno(), n)",
        "close_range": "call('close_range', n, n, 0)",
        "closefrom": "LIBC.closefrom(n)",  # returns nothing
        "fclose": "LIBC.fdopen.restype = ctypes.c_void_p; LIBC.fclose(ctypes.c_void_p(LIBC.fdopen(n, b'r+')))",
    }

    def steps(app, peer):
        app("null = os.open('/dev/null', os.O_RDWR); other = udp(7001); e = select.epoll()")
        for name, closing in closings.items():
            app.note("by", name)
            app.do("first = udp(7000); n = fcntl.fcntl(first, fcntl.F_DUPFD, 600); first.close()")
            app.do("s = socket.socket(fileno=n)")
            app("e.register(n, select.EPOLLIN)")
            peer.sendto(b"1", app.at(7000))
            app("e.poll(3)")
            app.do(closing)
            app("e.poll(0.01)")
            peer.sendto(b"2", app.at(7001))
            app("other.recv(10)")
            app("e.poll(0.01)")
            if "dup2 of" in name:
                app("e.register(n, select.EPOLLIN)")
                peer.sendto(b"3", app.at(7001))
                app("e.poll(3)")
                app("other.recv(10)")
            app.do("call('close_range', n, n, 0)")
            app.do("s.detach()")
    differential(unet, family, steps)


def test_close_under_a_reader(unet):
    """close() while another thread sleeps or spins in recv(): that call ends as it would have, the next one has no socket."""
    for rx_poll in ("0", "-1", "1000"):
        with App(unet.a, True, "4", {"VMA_RX_POLL": rx_poll}) as app:
            peer = app.peer_socket()
            app.do("""
def reader(s):
    while True:
        try: call('recv', s, bytes(100), 100, 0)
        except OSError as e:
            if e.errno == errno.EAGAIN: continue
            done.append(e.errno)
            return
done = []
for i in range(40):
    first = udp(0)
    # A number that nobody else is given: who comes late must not find the next socket there.
    s = socket.socket(fileno=fcntl.fcntl(first, fcntl.F_DUPFD_CLOEXEC, 300 + i))
    first.close()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, tv(0.1))
    t = threading.Thread(target=reader, args=(s.fileno(),))
    t.daemon = True
    t.start()
    s.sendto(b'x', (PEER, 7001))
    if i % 2: time.sleep(0.002)
    s.close()
""", timeout=20)
            try:
                wait_for(lambda: app.do("len(done)") == 40, 5, "the readers' end")
            except AssertionError as e:
                raise AssertionError(f"VMA_RX_POLL={rx_poll}, ended: {app.do('done')}\n{app.text}") from e
            assert set(app.do("done")) == {9}, "EBADF"
            app.do("s = udp(7000)")
            peer.sendto(b"alive", app.at(7000))
            assert app.do("s.recv(10)") == b"alive"
            peer.close()


def test_the_second_process_has_the_queues_too(unet):
    """Two processes on one interface: both work, both ways, past the kernel, and nobody has anything to say of it."""
    unet.neighbours()
    with App(unet.a, True, "4") as first:
        peer = first.peer_socket()
        first.do("s = udp(7000)")
        with App(unet.a, True, "4") as second:
            second.do("s = udp(7020)")
            for i in range(20):
                with unet.a.bypassed(at_most=0 if i else 4):
                    for app, port in ((first, 7000), (second, 7020)):
                        peer.sendto(b"%d" % i, app.at(port))
                        assert app.do("s.recvfrom(10)") == (b"%d" % i, (unet.b.ip4, PEER_PORT))
                        app.do(f"s.sendto(b'back', {TO})")
                        assert peer.recvfrom(10) == (b"back", (unet.a.ip4, port))
            assert not first.text and not second.text
        # The first is not hurt by the other's end.
        peer.sendto(b"still", first.at(7000))
        assert first.do("s.recv(10)") == b"still"
        peer.close()


@families
def test_exec_and_descriptor_passing(unet, family):
    """A socket that another program inherits by exec, or is given over a Unix socket, serves there."""
    def steps(app, peer):
        app("s = udp(7000); os.set_inheritable(s.fileno(), True)")
        peer.sendto(b"before", app.at(7000))
        app("s.recv(10)")
        app.do(f"""
import subprocess
code = ("import os, socket, sys; s = socket.socket(fileno=int(sys.argv[1])); print('ready', flush=True);"
        "d, a = s.recvfrom(100); s.sendto(b'exec got ' + d, a)")
p = subprocess.Popen([sys.executable, '-c', code, str(s.fileno())], close_fds=False, stdout=subprocess.PIPE)
s.close()
p.stdout.readline()
""")
        peer.sendto(b"to the next program", app.at(7000))
        app.note("peer got", peer.recvfrom(100))
        app("p.wait()")
        app.do(f"""
x, y = socket.socketpair(socket.AF_UNIX)
s = udp(7000)
pid = os.fork()
if not pid:
    try:
        s.close()
        _, fds, _, _ = socket.recv_fds(y, 1, 1)
        t = socket.socket(fileno=fds[0])
        y.send(b'k')
        d, a = t.recvfrom(100)
        t.sendto(b'passed ' + d, a)
    finally:
        os._exit(0)
socket.send_fds(x, [b'1'], [s.fileno()])
s.close()
x.recv(1)
""")
        peer.sendto(b"by SCM_RIGHTS", app.at(7000))
        app.note("peer got", peer.recvfrom(100))
        app("os.waitpid(pid, 0)[1]")
    differential(unet, family, steps)


def test_exit_in_the_middle(unet):
    """exit(), _exit(), a fatal signal and the end of main while threads receive: no hang, the right status."""
    for end, status in (("os._exit(7)", 7), ("os.kill(os.getpid(), signal.SIGTERM)", -15), ("sys.exit(3)", 3),
                        ("LIBC.exit(5)", 5), ("os.abort()", -6)):
        app = App(unet.a, True, "4", {"VMA_RX_POLL": -1})
        app.do("""
for i in range(4):
    s = udp(7000 + i)
    t = threading.Thread(target=lambda s=s: [s.recv(10) for _ in iter(int, 1)]); t.daemon = True; t.start()
""")
        app.start(end)
        app.popen.stdin.close()
        assert app.popen.wait(10) == status, f"{end}: {app.text}"
        app.popen.stdout.close()
