# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the TCP parameters do, each seen from outside: by the kernel peer, by the kernel's own socket, or by the program."""

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
import termios
import time

import pytest

from differential import App
from netns import SECCOMP, ip, wait_for
from test_tcp_both import HELPERS, PORT

LIBC = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def connection(net, env, role="client"):
    """(application in net.a whose s is connected, kernel peer in net.b)."""
    with App(net.a, True, "4", env) as app, contextlib.ExitStack() as stack:
        app.do(HELPERS)
        if role == "client":
            listener = stack.enter_context(net.b.socket(kind=socket.SOCK_STREAM))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((net.b.ip4, PORT))
            listener.listen()
            app.do("s = client()")
            peer, _ = listener.accept()
        else:
            app.do("l = listener(); ready(l)")
            peer = net.b.socket(kind=socket.SOCK_STREAM)
            peer.connect((net.a.ip4, PORT))
            app.do("s, _ = l.accept()")
        stack.enter_context(peer)
        peer.settimeout(5)
        yield app, peer


def unacknowledged(s):
    return struct.unpack("i", fcntl.ioctl(s, termios.TIOCOUTQ, bytes(4)))[0]


def shadow(app, fd):
    """The kernel's own socket of the application's fd."""
    pidfd = os.pidfd_open(app.popen.pid)
    try:
        mine = LIBC.syscall(438, pidfd, fd, 0)  # pidfd_getfd
        assert mine >= 0, os.strerror(ctypes.get_errno())
        return socket.socket(fileno=mine)
    finally:
        os.close(pidfd)


TCP = socket.IPPROTO_TCP
SET_HERE = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), (socket.SOL_SOCKET, socket.SO_OOBINLINE, 1), (TCP, socket.TCP_NODELAY, 1),
            (TCP, socket.TCP_CORK, 1), (TCP, socket.TCP_KEEPIDLE, 77), (TCP, socket.TCP_KEEPINTVL, 78),
            (TCP, socket.TCP_KEEPCNT, 7), (TCP, socket.TCP_USER_TIMEOUT, 12345), (TCP, socket.TCP_NOTSENT_LOWAT, 5000)]


@pytest.mark.parametrize("avoid", [0, 1])
@pytest.mark.parametrize("level, opt, value", SET_HERE)
def test_avoid_sys_calls(unet, avoid, level, opt, value):
    """Set and read back in the program; the kernel's socket hears of it only without the parameter, and of what servers change all the time
    not then either."""
    with connection(unet, {"VMA_AVOID_SYS_CALLS_ON_TCP_FD": avoid}, "server") as (app, _):
        with shadow(app, app.do("s.fileno()")) as kernel:
            before = kernel.getsockopt(level, opt)
            assert before != value
            app.do(f"s.setsockopt({level}, {opt}, {value})")
            assert app.do(f"s.getsockopt({level}, {opt})") == value
            assert kernel.getsockopt(level, opt) == (before if avoid or opt in (socket.TCP_NODELAY, socket.TCP_CORK) else value)


def status(s):
    return fcntl.fcntl(s, fcntl.F_GETFL)


@pytest.mark.parametrize("avoid", [0, 1])
@pytest.mark.parametrize("how", ["fcntl.fcntl(s, fcntl.F_SETFL, fcntl.fcntl(s, fcntl.F_GETFL) | os.O_NONBLOCK)",
                                 "fcntl.ioctl(s, termios.FIONBIO, struct.pack('i', 1))"])
def test_avoid_sys_calls_for_o_nonblock(unet, avoid, how):
    with connection(unet, {"VMA_AVOID_SYS_CALLS_ON_TCP_FD": avoid}, "server") as (app, _):
        app.do("import fcntl, struct, termios")
        with shadow(app, app.do("s.fileno()")) as kernel:
            before = status(kernel)
            assert app.do("fcntl.fcntl(s, fcntl.F_GETFL)") == before
            app.do(how)
            assert app.do("fcntl.fcntl(s, fcntl.F_GETFL)") == before | os.O_NONBLOCK
            assert app.ask("os.read(s.fileno(), 1)") == ("OSError", "EAGAIN")
            assert status(kernel) == (before if avoid else before | os.O_NONBLOCK)
            # A flag that is the kernel's takes the others along.
            app.do("fcntl.fcntl(s, fcntl.F_SETFL, fcntl.fcntl(s, fcntl.F_GETFL) | os.O_APPEND)")
            assert status(kernel) == app.do("fcntl.fcntl(s, fcntl.F_GETFL)") == before | os.O_NONBLOCK | os.O_APPEND
            app.do("fcntl.ioctl(s, termios.FIONBIO, struct.pack('i', 0))")
            assert status(kernel) == app.do("fcntl.fcntl(s, fcntl.F_GETFL)") == before | os.O_APPEND


def test_avoid_sys_calls_leaves_errors_to_the_kernel(unet):
    with connection(unet, {"VMA_AVOID_SYS_CALLS_ON_TCP_FD": 1}) as (app, _):
        for value in (0, 40000, -1):
            assert app.ask(f"s.setsockopt({TCP}, {socket.TCP_KEEPIDLE}, {value})") == ("OSError", "EINVAL"), value
        assert app.ask(f"s.setsockopt({TCP}, {socket.TCP_NODELAY}, b'')") == ("OSError", "EINVAL")
        with shadow(app, app.do("s.fileno()")) as kernel:
            app.do("s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 30000)")
            assert kernel.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 60000


SET_BOTH = f"s.setsockopt({TCP}, {socket.TCP_KEEPIDLE}, 77); s.setsockopt({TCP}, {socket.TCP_USER_TIMEOUT}, 12345); s.setblocking(False)"


def assert_told(kernel):
    assert kernel.getsockopt(TCP, socket.TCP_KEEPIDLE) == 77
    assert kernel.getsockopt(TCP, socket.TCP_USER_TIMEOUT) == 12345
    assert status(kernel) & os.O_NONBLOCK


def test_what_was_set_without_a_system_call_goes_to_the_kernel_with_the_connection(unet):
    with connection(unet, {"VMA_AVOID_SYS_CALLS_ON_TCP_FD": 1}) as (app, peer):
        app.do(SET_BOTH)
        # A child's use of it moves it.
        app.do("pid = os.fork()\nif not pid: os._exit(0 if s.send(b'child') == 5 else 1)\nassert not os.waitpid(pid, 0)[1]")
        with shadow(app, app.do("s.fileno()")) as kernel:
            assert_told(kernel)
        app.do("s.sendall(b'x')")
        assert peer.recv(5) == b"child"
        assert peer.recv(1) == b"x"


def test_what_was_set_without_a_system_call_outlives_the_connection(unet):
    with connection(unet, {"VMA_AVOID_SYS_CALLS_ON_TCP_FD": 1}) as (app, peer):
        app.do(SET_BOTH)
        app.do("LIBC = __import__('ctypes').CDLL(None); assert LIBC.connect(s.fileno(), bytes(16), 16) == 0")
        with shadow(app, app.do("s.fileno()")) as kernel:
            assert_told(kernel)


@contextlib.contextmanager
def blackhole(net):
    """What net.b answers goes to an address that nobody has."""
    ip("-n", net.b.name, "neigh", "replace", net.a.ip4, "lladdr", "02:00:00:00:00:99", "dev", net.b.dev, "nud", "permanent")
    try:
        yield
    finally:
        ip("-n", net.b.name, "neigh", "del", net.a.ip4, "dev", net.b.dev)


@pytest.mark.parametrize("deferred", [0, 1])
def test_deferred_close(unet, deferred):
    """The number of a closed connection stays taken until the peer has acknowledged the end."""
    with connection(unet, {"VMA_DEFERRED_CLOSE": deferred}, "server") as (app, peer):
        peer.shutdown(socket.SHUT_WR)
        app.do("await_ready(s); n = s.fileno()")
        # LAST_ACK lasts until the peer's answer, which does not come through this.
        with blackhole(unet):
            app.do("s.close()")
            assert app.do("t = socket.socket(); t.fileno() == n") is None
            assert app.do("t.fileno() != n") == bool(deferred)
            if deferred:
                for code in ("os.read(n, 1)", "os.write(n, b'x')", "os.close(n)", "os.dup(n)", "os.dup2(n, 99)", "fcntl.fcntl(n, fcntl.F_DUPFD, 50)",
                             "fcntl.fcntl(n, fcntl.F_GETFD)", "select.epoll().register(n)",
                             "select.epoll.fromfd(n).poll(0)"):
                    assert app.ask(code) == ("OSError", "EBADF"), code
        if deferred:
            app.do("def free():\n u = socket.socket(); same = u.fileno() == n; u.close(); return same")
            wait_for(lambda: app.do("free()"), what="the number is free")


def tcp_alive(net, peer):
    return peer.getsockopt(TCP, socket.TCP_INFO, 1)[0] != 7  # TCP_CLOSE


def test_a_child_does_not_keep_the_number_of_a_closed_connection(unet):
    with connection(unet, {"VMA_DEFERRED_CLOSE": 1}, "server") as (app, _):
        # The peer does not close: it stays in FIN_WAIT_2.
        app.do("n = s.fileno(); r, w = os.pipe(); s.close()")
        app.do("""
pid = os.fork()
os.write(w, b'%d' % os.path.lexists(f'/proc/self/fd/{n}'))
if not pid: os._exit(0)
os.waitpid(pid, 0)
""")
        assert sorted(app.do("os.read(r, 9)")) == [ord("0"), ord("1")]


def test_a_number_that_dup2_takes_before_it_is_free_stays_taken(unet):
    with connection(unet, {"VMA_DEFERRED_CLOSE": 1}, "server") as (app, peer):
        peer.shutdown(socket.SHUT_WR)
        app.do("await_ready(s); n = s.fileno(); r, w = os.pipe()")
        with blackhole(unet):
            app.do("s.close(); os.dup2(r, n)")
        wait_for(lambda: not tcp_alive(unet, peer), what="the connection over")
        app.do("os.write(w, b'still'); time.sleep(0.3)")
        assert app.do("os.read(n, 10)") == b"still"


@pytest.mark.parametrize("value", [0, 1])
def test_nodelay(unet, value):
    with connection(unet, {"VMA_TCP_NODELAY": value}) as (app, _):
        assert bool(app.do(f"s.getsockopt({TCP}, {socket.TCP_NODELAY})")) == bool(value)


@pytest.mark.parametrize("value, name", [(0, b"reno"), (1, b"cubic"), (2, b"none"), (3, b"bbr"), (4, None)])
@pytest.mark.parametrize("role", ["client", "server"])
def test_congestion_control(unet, value, name, role):
    with connection(unet, {"VMA_TCP_CC_ALGO": value}, role) as (app, _):
        name = name or app.do("open('/proc/sys/net/ipv4/tcp_congestion_control', 'rb').read().strip()")
        print(value, name)
        assert app.do(f"s.getsockopt({TCP}, {socket.TCP_CONGESTION}, 16)").rstrip(b"\0") == name


@pytest.mark.parametrize("name", [b"reno", b"cubic", b"bbr"])
def test_congestion_control_of_one_socket(unet, name):
    """TCP_CONGESTION by the kernel's names; BBR paces, which TCP_INFO tells with the rate that the path delivers."""
    with connection(unet, {}) as (app, peer):
        app.do(f"s.setsockopt({TCP}, {socket.TCP_CONGESTION}, {name!r})")
        assert app.do(f"s.getsockopt({TCP}, {socket.TCP_CONGESTION}, 16)").rstrip(b"\0") == name
        for _ in range(20):
            app.do("s.sendall(bytes(50000))")
            left = 50000
            while left:
                left -= len(peer.recv(left))
        info = app.do(f"s.getsockopt({TCP}, {socket.TCP_INFO}, 192)")
        pacing, = struct.unpack_from("Q", info, 104)
        delivery, = struct.unpack_from("Q", info, 160)
        print(name, "pacing", pacing, "delivery", delivery, "bytes/s")
        assert delivery > 0
        assert 0 < pacing < 2**64 - 1  # known also of those that do not pace, as by the kernel


@pytest.mark.parametrize("value, setting", [(0, 1), (1, 0), (2, 0), (2, 1), (None, 0), (None, 1)])
@pytest.mark.parametrize("role", ["client", "server"])
def test_timestamps(net, value, setting, role):
    """The kernel peer says what was agreed; 2, the default, is as the kernel's setting says."""
    net.a.run(["sysctl", "-qw", f"net.ipv4.tcp_timestamps={setting}"])
    with connection(net, {} if value is None else {"VMA_TCP_TIMESTAMP_OPTION": value}, role) as (_, peer):
        options = peer.getsockopt(TCP, socket.TCP_INFO, 8)[5]
        assert bool(options & 1) == bool(setting if value in (2, None) else value)


@pytest.mark.parametrize("env, mss", [({}, 1448), ({"VMA_MSS": 700}, 688), ({"VMA_MTU": 1000}, 948),
                                      ({"VMA_TCP_TIMESTAMP_OPTION": 0}, 1460)])
@pytest.mark.parametrize("role", ["client", "server"])
def test_segment_size(unet, env, mss, role):
    with connection(unet, env, role) as (app, peer):
        assert app.do(f"s.getsockopt({TCP}, {socket.TCP_MAXSEG})") == mss
        app.do("s.sendall(bytes(20000))")
        left = 20000
        while left:
            left -= len(peer.recv(left))
        rcv_mss = struct.unpack("I", peer.getsockopt(TCP, socket.TCP_INFO, 24)[20:24])[0]
        assert rcv_mss == mss


@pytest.mark.parametrize("env", [{"VMA_MSS": 1}, {"VMA_MTU": 1}], ids=str)
def test_a_size_that_is_too_small_is_the_smallest(unet, env):
    with connection(unet, env) as (app, peer):
        assert app.do(f"s.getsockopt({TCP}, {socket.TCP_MAXSEG})") == 36  # 48 with 12 bytes of options, as the kernel
        app.do("s.sendall(bytes(1000))")
        left = 1000
        while left:
            left -= len(peer.recv(left))


@pytest.mark.parametrize("rate", [0, 5])
def test_syn_rate(net, rate):
    """What is above the rate is dropped: the peer's kernel has to send it again."""
    def retransmitted():
        return net.b.counters()["TcpRetransSegs"]

    with App(net.a, True, "4", {"VMA_TCP_MAX_SYN_RATE": rate}) as app, contextlib.ExitStack() as stack:
        app.do(HELPERS)
        app.do("l = listener(backlog=100); ready(l)")
        net.neighbours()

        def syns():
            for _ in range(20):
                s = stack.enter_context(net.b.socket(kind=socket.SOCK_STREAM))
                s.setblocking(False)
                s.connect_ex((net.a.ip4, PORT))

        def dropped_few():
            """A busy machine answers some of them late."""
            before = retransmitted()
            syns()
            app.do("for i in range(20): l.accept()")
            return retransmitted() - before < 5

        if rate:
            before = retransmitted()
            syns()
            wait_for(lambda: retransmitted() > before, what="a SYN sent again")
        else:
            wait_for(dropped_few, 20, "all are answered")


@pytest.mark.parametrize("three", [0, 1])
def test_three_tuple_rules(unet, three):
    """A connection outlives its listener by a rule of its own, or loses its packets with the listener's to the kernel, which resets."""
    with connection(unet, {"VMA_TCP_3T_RULES": three}, "server") as (app, peer):
        app.do("l.close()")
        peer.sendall(b"x")
        if three:
            with pytest.raises(ConnectionResetError):
                peer.recv(1)
        else:
            assert app.do("s.recv(1)") == b"x"


QUIET = {"VMA_PROGRESS_ENGINE_INTERVAL": 0, "VMA_TCP_TIMER_RESOLUTION_MSEC": 100000}  # nothing is taken in but by calls


@pytest.mark.parametrize("env, taken", [({}, False), ({"VMA_TCP_CTL_THREAD": 1}, True),
                                        ({"VMA_TCP_CTL_THREAD": 2}, False),
                                        ({"VMA_TCP_CTL_THREAD": 2, "VMA_TCP_TIMER_RESOLUTION_MSEC": 100}, True),
                                        ({"VMA_TCP_CTL_THREAD": 2, "VMA_TCP_TIMER_RESOLUTION_MSEC": 100, "VMA_TIMER_RESOLUTION_MSEC": 100000}, False),
                                        ({"VMA_PROGRESS_ENGINE_INTERVAL": 10}, True),
                                        ({"VMA_PROGRESS_ENGINE_INTERVAL": 10, "VMA_TIMER_RESOLUTION_MSEC": 100000}, False)])
def test_who_takes_in_what_comes_while_the_program_computes(unet, env, taken):
    """Nobody; the internal thread, woken by the packet, or by its timers."""
    env = {**QUIET, **env}
    with connection(unet, env) as (app, peer):
        for left in (2, 1, 0):
            app.start("time.sleep(2); None")
            peer.sendall(b"x" * 1000)
            if taken:
                wait_for(lambda: unacknowledged(peer) == 0, 1.5, "acknowledged while the program sleeps")
            else:
                time.sleep(0.8)
            waits = unacknowledged(peer)
            app.answer()
            assert app.do("len(exactly(s, 1000))") == 1000
            if waits == (0 if taken else 1000):
                return
            # On a busy machine the program may have been on its way out of the call before.
            assert left, "it is taken in all the same"


@pytest.mark.parametrize("rate", [0, 1, 2000000000])
def test_drain_rate(unet, rate):
    """A receive that has data takes in more: never, always, or once in two seconds."""
    with connection(unet, {**QUIET, "VMA_RX_CQ_DRAIN_RATE_NSEC": rate}) as (app, peer):
        # Not FIONREAD, which looks at the ring.
        app.do("def waiting(): return len(s.recv(1 << 16, socket.MSG_PEEK | socket.MSG_DONTWAIT))")
        app.do("await_ready(s, timeout=0)")
        peer.sendall(b"x" * 1000)
        app.do("await_ready(s)")
        app.do("before = time.monotonic(); assert len(s.recv(100)) == 100; left = waiting()")  # this one is due with any rate
        peer.sendall(b"y" * 1000)
        if rate == 1:
            # The packet is in the ring when the kernel has got to it.
            for _ in range(500):
                app.do("assert len(s.recv(1)) == 1; time.sleep(0.01)")
                if app.do("waiting() > left"):
                    break
            else:
                raise AssertionError("500 receives have taken in nothing more")
        else:
            app.do("time.sleep(0.1); assert len(s.recv(100)) == 100")
            late = rate and app.do("time.monotonic() - before") >= rate / 1e9
            assert app.do("waiting() - left") == -100 or late
        app.do("assert exactly(s, waiting())[-1:] in b'xy'")


def ppoll_or_running(app):
    with open(f"/proc/{app.popen.pid}/syscall") as f:
        return "sleeps" if f.read().split()[0] == "271" else "runs"


@pytest.mark.parametrize("polls", [0, -1])
def test_polling_before_sleeping(unet, polls):
    with connection(unet, {"VMA_RX_POLL": polls}) as (app, peer):
        app.start("len(s.recv(1))")
        if polls:
            seen = set()
            for _ in range(50):
                time.sleep(0.01)
                seen.add(ppoll_or_running(app))
            assert seen == {"runs"}
        else:
            wait_for(lambda: ppoll_or_running(app) == "sleeps", what="the reader sleeps")
        peer.sendall(b"x")
        assert app.answer() == 1


@pytest.mark.parametrize("every", [0, 7])
def test_polling_yields(unet, every):
    """sched_yield() raises SIGSYS: a filter (seccomp) of the reading thread alone."""
    with connection(unet, {"VMA_RX_POLL": -1, "VMA_RX_POLL_YIELD": every}) as (app, peer):
        app.do(SECCOMP + """
import os, select, signal, threading
pipe, wakeup = os.pipe2(os.O_NONBLOCK)
signal.signal(signal.SIGSYS, lambda *_: None)
signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
def yields(seconds): return bool(select.select([pipe], [], [], seconds)[0] and os.read(pipe, 1 << 20))
got = []
def reads():
    seccomp(24, 0x30000)
    got.append(len(s.recv(1)))
reader = threading.Thread(target=reads)
reader.start()
""")
        if every:
            assert app.do("yields(9)")
        else:
            assert not app.do("any([(yields(0), time.sleep(0.05), yields(0))[2] for _ in range(10)])")
        peer.sendall(b"x")
        app.do("reader.join()")
        assert app.do("got") == [1]


def acknowledgements(net, peer, questions):
    """How many segments without data come for so many questions, each of which the program answers."""
    seen = 0
    with net.b.entered():
        wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x800))
    with wire:
        wire.bind((net.b.dev, 0))
        wire.settimeout(0.5)
        for i in range(questions):
            peer.sendall(b"%4d" % i)
            assert peer.recv(4, socket.MSG_WAITALL) == b"%4d" % i
        with contextlib.suppress(TimeoutError):
            while True:
                frame = wire.recv(2048)
                if frame[12:14] != b"\x08\x00" or frame[23] != socket.IPPROTO_TCP or frame[26:30] != socket.inet_aton(net.a.ip4):
                    continue
                length, head = struct.unpack("!H", frame[16:18])[0], (frame[14] & 15) * 4
                seen += length == head + (frame[14 + head + 12] >> 4) * 4
    return seen


def test_quickack(unet):
    """Each segment is acknowledged at once with it; without, the acknowledgement travels with the answer."""
    unet.neighbours()
    seen = {}
    for quick in (0, 1):
        with connection(unet, {"VMA_TCP_QUICKACK": quick}) as (app, peer):
            peer.setsockopt(TCP, socket.TCP_NODELAY, 1)
            assert app.do(f"s.getsockopt({TCP}, {socket.TCP_QUICKACK})") == 1
            app.do("import threading\ndef answer():\n    while d := s.recv(4): s.send(d)\nthreading.Thread(target=answer, daemon=True).start()")
            seen[quick] = acknowledgements(unet, peer, 100)
    print(f"of 100 questions: {seen[0]} acknowledgements of their own, {seen[1]} with VMA_TCP_QUICKACK=1")
    assert seen[1] >= 100 and seen[0] <= 50
