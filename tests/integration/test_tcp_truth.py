# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a TCP socket says of itself, and when its calls wait and end: the same steps with kernel sockets and with the library."""

import contextlib
import socket
import struct

import pytest

from differential import App
from netns import KERNEL, ip
from test_tcp_both import HELPERS, PORT

EXTRA = """
import errno, fcntl, os, signal, tempfile, threading, time
def cpu(function, *args):
    'Does it use the CPU while it waits? (result or errno, more than half of a second of CPU time)'
    before = time.process_time()
    try: value = function(*args)
    except OSError as e: value = errno.errorcode[e.errno]
    return value, time.process_time() - before > 0.5
def fill(s):
    s.setblocking(False)
    try:
        while True: s.send(b'x' * 65536)
    except BlockingIOError: pass
    s.setblocking(True)
def until(look):
    'Asks again and again, for what the peer did to arrive; the last answer'
    end = time.monotonic() + 4
    while True:
        try: value = look()
        except OSError as e: value = ('OSError', errno.errorcode[e.errno])
        if value or time.monotonic() > end: return value
        time.sleep(0.01)
def number(s, request):
    b = bytearray(4)
    fcntl.ioctl(s.fileno(), request, b)
    return struct.unpack('i', b)[0]
def error(look):
    'The errno that look() ends with; None while it succeeds'
    try: look()
    except OSError as e: return errno.errorcode[e.errno]
def waits(timeout, function, *args):
    'Runs in a thread: the result or errno, or None if it still waits after a while'
    got = []
    def run():
        try: got.append(function(*args))
        except OSError as e: got.append(errno.errorcode[e.errno])
    t = threading.Thread(target=run, daemon=True)
    t.start(); t.join(timeout)
    return got[0] if got else None
def name(which, address=True, length=None, room=128):
    'getsockname() and its like with the arguments as they are: result, length, address'
    l = ctypes.c_uint32(length if isinstance(length, int) else room)
    b = ctypes.create_string_buffer(room) if address else None
    r = error(lambda: call(which, s.fileno(), b, ctypes.byref(l) if length != 'NULL' else None))
    return r, l.value, b.raw[:8] if address else None
def exclusive(s, bits):
    'EPOLLEXCLUSIVE with every bit, when it is added and when it is changed: the errnos'
    out, x = [], select.EPOLLEXCLUSIVE
    def ctl(function, *args): out.append(error(lambda: function(*args)))
    for bit in [0] + [getattr(select, 'EPOLL' + b) for b in bits]:
        for first in (bit, bit | x):
            p = select.epoll()
            ctl(p.register, s, first)
            for second in (0, select.EPOLLIN, x, select.EPOLLIN | x): ctl(p.modify, s, second)
            ctl(p.register, s, bit | x)
            ctl(p.unregister, s)
            p.close()
    return ''.join((e or 'ok')[:3] + ' ' for e in out)
def is_open(fd):
    try: os.fstat(fd)
    except OSError: return False
    return True
"""


def answers(net, preload, steps, env, connected):
    with App(net.a, preload, "4", env) as app, contextlib.ExitStack() as stack:
        app.do(HELPERS)
        app.do(EXTRA)
        peer = None
        if connected:
            listener = stack.enter_context(net.b.socket(socket.AF_INET, socket.SOCK_STREAM))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((net.b.ip4, PORT))
            listener.listen(5)
            app.do("s = client()")
            peer = stack.enter_context(listener.accept()[0])
            peer.settimeout(5)
        steps(app, peer)
        return app.answers


def as_the_kernel(net, steps, env=None, connected=True):
    kernel = answers(net, False, steps, env, connected)
    ours = answers(net, True, steps, env, connected)
    print("\n".join(f"{code[:100]}: {k!r:.200}" for (code, k) in kernel))
    different = [f"{a[0]}\n  kernel: {a[1]!r:.300}\n  ours:   {b[1]!r:.300}" for a, b in zip(kernel, ours) if a != b]
    assert not different and len(kernel) == len(ours), "\n".join(different)


LINGER0 = struct.pack("ii", 1, 0)
# Once the spinning before the sleep is over nobody may use the CPU.
ASLEEP = {"VMA_RX_POLL": 0, "VMA_SELECT_POLL": 0}


def accepts_asleep(app):
    """A listener that nobody connects to sleeps in accept()."""
    app("s.listen(5)")
    app("s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, tv(1.2))")
    app("cpu(s.accept)")


def test_accept_sleeps_after_a_failed_connect(unet):
    def steps(app, _):
        app.do("s = socket.socket(FAM, socket.SOCK_STREAM)")
        app(f"s.connect((PEER, {PORT + 1}))")
        accepts_asleep(app)
    as_the_kernel(unet, steps, ASLEEP, connected=False)


def test_accept_sleeps_after_listening_was_over(unet):
    def steps(app, _):
        app.do("s = listener(); ready(s)")
        app("s.shutdown(socket.SHUT_RDWR)")
        accepts_asleep(app)
    as_the_kernel(unet, steps, ASLEEP, connected=False)


@pytest.mark.parametrize("waits", [True, False], ids=["waits", "nonblocking"])
def test_splice_and_sendfile_refuse(unet, waits):
    """Ends of pipes the wrong way round, folders, files that cannot be read: at once, and with the kernel's errno."""
    def steps(app, peer):
        app.do(f"s.setblocking({waits})")
        app.do("r, w = os.pipe(); d = os.open('/', os.O_RDONLY); f = tempfile.TemporaryFile(); f.write(b'z' * 99); f.flush()")
        app.do("wo = os.open(f'/proc/self/fd/{f.fileno()}', os.O_WRONLY)")
        for call in ("os.splice(s.fileno(), r, 10)", "os.splice(w, s.fileno(), 10)", "os.splice(s.fileno(), d, 10)",
                     "os.splice(d, s.fileno(), 10)", "os.sendfile(s.fileno(), d, 0, 10)", "os.sendfile(s.fileno(), d, None, 10)",
                     "os.sendfile(s.fileno(), d, 0, 0)", "os.sendfile(s.fileno(), r, 0, 10)", "os.sendfile(s.fileno(), wo, 0, 10)",
                     "os.sendfile(s.fileno(), 999, 0, 10)", "call('sendfile', s.fileno(), f.fileno(), None, ctypes.c_size_t(1 << 63))",
                     "os.sendfile(s.fileno(), f.fileno(), 0, 10)", "os.sendfile(s.fileno(), f.fileno(), 90, 100)",
                     "os.sendfile(s.fileno(), f.fileno(), 99, 100)", "os.sendfile(s.fileno(), f.fileno(), 200, 100)"):
            app(call)
        app.note("peer got", peer.recv(19, socket.MSG_WAITALL))
        app("s.shutdown(socket.SHUT_WR)")
        app("os.sendfile(s.fileno(), f.fileno(), 0, 10)")
    as_the_kernel(unet, steps)


def test_flags_of_pwritev2(unet):
    """Those that no socket takes are refused, and send nothing."""
    newer = [0x20] * (KERNEL >= (6, 9)) + [0x100] * (KERNEL >= (6, 18))  # RWF_NOAPPEND, RWF_NOSIGNAL

    def steps(app, peer):
        app.do("b = ctypes.create_string_buffer(b'data', 4); iov = Iovec(ctypes.addressof(b), 4); signals = []")
        app.do("signal.signal(signal.SIGPIPE, lambda n, frame: signals.append(n)) and None")
        app.do("def written(flags): return call('pwritev2', s.fileno(), ctypes.byref(iov), 1, ctypes.c_long(-1), flags)")
        for flags in (0, 0x40, 0x80, 0x40000000, *newer):
            app(f"written({flags})")
        app.note("peer got", peer.recv(4 * (1 + len(newer)), socket.MSG_WAITALL))
        app.do("s.shutdown(socket.SHUT_WR)")
        for flags in (0, *newer):
            app(f"written({flags})")
            app("signals")
    as_the_kernel(unet, steps)


def test_a_time_out_beyond_all(unet):
    def steps(app, peer):
        peer.sendall(b"abcd")
        app("[m[0] for m in recvmmsg(s, 2, size=2, timeout=2**63 - 1)]")
    as_the_kernel(unet, steps)


def test_a_reserved_port(unet):
    def steps(app, _):
        app.do("t = socket.socket(FAM, socket.SOCK_STREAM)")
        app("call('bindresvport', t.fileno(), None)")
        app("t.bind((ME, 0))")
        app(f"t.connect((PEER, {PORT}))")
        app("512 <= t.getsockname()[1] < 1024, t.getsockname()[0] == ME")
    as_the_kernel(unet, steps)


def test_a_splice_to_a_pipe_that_nobody_reads_takes_nothing(unet):
    def steps(app, peer):
        app.do("r, w = os.pipe(); os.close(r); signals = []; signal.signal(signal.SIGPIPE, lambda n, frame: signals.append(n))")
        app("os.splice(s.fileno(), w, 10)")  # with nothing to receive it does not wait
        peer.sendall(b"it stays")
        app.do("await_ready(s)")
        app("os.splice(s.fileno(), w, 10)")
        app("signals")
        app("s.recv(100)")
    as_the_kernel(unet, steps)


# The internal thread looks at no ring: what a call says it has seen by itself.
NOBODY_ELSE = {"VMA_PROGRESS_ENGINE_INTERVAL": 0}
def test_a_fin_that_is_not_acknowledged_counts_as_sent_data(unet):
    """A program may wait for SIOCOUTQ to be 0 before it closes without lingering."""
    a, b = unet.a, unet.b

    def answer_at(mac):
        for address in (a.ip4, a.ip6):
            ip("-n", b.name, "neigh", "replace", address, "lladdr", mac, "dev", b.dev, "nud", "permanent")

    def steps(app, peer):
        app("s.send(b'x' * 10)")
        assert peer.recv(100) == b"x" * 10
        app(f"until(lambda: number(s, {SIOCOUTQ}) == 0)")
        answer_at("02:00:00:00:00:99")
        app("s.shutdown(socket.SHUT_WR)")
        app(f"number(s, {SIOCOUTQ}), number(s, {SIOCOUTQNSD})")
        answer_at(a.mac())
        app(f"until(lambda: number(s, {SIOCOUTQ}) == 0)")
    as_the_kernel(unet, steps)


FIONREAD, SIOCOUTQ, SIOCOUTQNSD, SIOCATMARK = 0x541B, 0x5411, 0x894B, 0x8905


def test_what_arrived_is_in_the_answer(unet):
    def steps(app, peer):
        peer.sendall(b"hello")
        app(f"until(lambda: number(s, {FIONREAD}))")
        app("s.send(b'answer')")
        app.note("peer got", peer.recv(6, socket.MSG_WAITALL))
        app(f"until(lambda: number(s, {SIOCOUTQ}) == 0)")
        app("s.recv(5)")
        peer.send(b"!", socket.MSG_OOB)
        app(f"until(lambda: number(s, {SIOCATMARK}))")
        peer.shutdown(socket.SHUT_WR)
        app("until(lambda: s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) == b'\\x08')")  # CLOSE_WAIT
    as_the_kernel(unet, steps, NOBODY_ELSE)


@pytest.mark.parametrize("look", ["s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)", "error(s.getpeername)",
                                  "error(lambda: s.shutdown(socket.SHUT_RD))",
                                  "s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) == b'\x07'"])
def test_a_reset_is_in_the_answer(unet, look):
    def steps(app, peer):
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER0)
        peer.close()
        app(f"until(lambda: {look})")
    as_the_kernel(unet, steps, NOBODY_ELSE)


@pytest.mark.parametrize("how", ["reset", "closed", "shut down", "on the way"])
def test_the_peers_name_when_there_is_none(unet, how):
    """SO_PEERNAME (28) has it longer than getpeername(), and earlier."""
    def steps(app, peer):
        names = ["s"]
        if how == "reset":
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER0)
        if how in ("reset", "closed"):
            peer.close()
            app("until(lambda: s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) in (b'\x07', b'\x08'))")
        if how == "shut down":
            app("s.shutdown(socket.SHUT_RDWR)")
            peer.close()
            app("until(lambda: error(s.getpeername))")
        if how == "on the way":
            app.do("t = socket.socket(); t.setblocking(False)")
            app(f"t.connect_ex(('{unet.b.ip4[:-1]}99', 9))")
            names.append("t")
        for name in names:
            for size in (4, 8, 16, 17):
                app(f"{name}.getsockopt(socket.SOL_SOCKET, 28, {size})")
        app("socket.socket().getsockopt(socket.SOL_SOCKET, 28, 16)")
    as_the_kernel(unet, steps, NOBODY_ELSE)


def test_a_connect_that_does_not_wait(unet):
    def steps(app, _):
        with unet.b.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((unet.b.ip4, PORT))
            listener.listen(5)
            for _ in range(20):
                app("s = socket.socket(FAM, socket.SOCK_STREAM); s.setblocking(False); None")
                app(f"s.connect((PEER, {PORT}))")
                app(f"until(lambda: error(lambda: s.connect((PEER, {PORT}))) in (None, 'EISCONN'))")
                app(f"error(lambda: s.connect((PEER, {PORT})))")
                listener.accept()[0].close()
                app("s.close()")
        app("s = socket.socket(FAM, socket.SOCK_STREAM); s.setblocking(False); None")
        app(f"s.connect((PEER, {PORT + 1}))")
        app(f"until(lambda: (lambda e: e if e != 'EALREADY' else None)(error(lambda: s.connect((PEER, {PORT + 1})))))")
    as_the_kernel(unet, steps, NOBODY_ELSE, connected=False)


def test_reading_nothing(unet):
    """recv() of no bytes waits for some, and takes none; read() of none does not even look."""
    def steps(app, peer):
        recv0 = "call('recv', s.fileno(), None, 0, 0)"
        app("call('recv', s.fileno(), None, 0, socket.MSG_DONTWAIT)")
        app("call('read', s.fileno(), None, 0)")
        app("s.setblocking(False)")
        app(recv0)
        app("s.recvmsg(0)")
        app("s.setblocking(True)")
        app("s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, tv(0.2))")
        app(recv0)
        app("s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, tv(0))")
        app.start(f"waits(5, lambda: {recv0})")
        peer.sendall(b"abc")
        app.note("woken", app.answer())
        app(recv0)
        app("s.recv(10)")
        peer.shutdown(socket.SHUT_WR)
        app("await_ready(s)")
        app(recv0)
    as_the_kernel(unet, steps)


@pytest.mark.parametrize("option", ["SO_RCVTIMEO", "SO_SNDTIMEO"])
def test_a_negative_time_limit_is_none_at_all(unet, option):
    def steps(app, peer):
        app("u = udp(7333); l = listener(7334); None")
        for x in "sul":
            app(f"{x}.setsockopt(socket.SOL_SOCKET, socket.{option}, struct.pack('ll', -1, 0))")
            app(f"{x}.getsockopt(socket.SOL_SOCKET, socket.{option}, 16)")
        if option == "SO_SNDTIMEO":
            app("waits(6, lambda: [s.send(b'x' * 65536) for _ in range(10000)])")
            return
        app("waits(3, s.recv, 1)")
        app("waits(3, u.recv, 1)")
        app("waits(3, l.accept)")
        app("u.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 100000)")
        app("waits(3, u.recv, 1)")
        app("s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, tv(0)); waits(0.3, s.recv, 1)")
        peer.sendall(b"z")
    as_the_kernel(unet, steps)


@pytest.mark.no_sanitize  # a null pointer is touched, and the fault caught
def test_names_with_odd_lengths(unet):
    def steps(app, peer):
        for which in ("getpeername", "getsockname"):
            for arguments in ("length=0", "length=3", "length=16", "length=128", "length=-1", "length='NULL'",
                              "address=False, length=0", "address=False, length=16", "address=False, length=-1",
                              "address=False, length='NULL'"):
                app(f"name('{which}', {arguments})[:2]")
        app("name('getpeername', length=4)[2][:2]")
        peer.sendall(b"xyz")
        app("await_ready(s)")
        app("b = ctypes.create_string_buffer(9); l = ctypes.c_uint32(16); m = ctypes.c_uint32(0xffffffff); None")
        app("call('recvfrom', s.fileno(), b, 1, 0, b, None)")
        app("call('recvfrom', s.fileno(), b, 1, 0, b, ctypes.byref(m))")
        app("call('recvfrom', s.fileno(), b, 1, 0, b, ctypes.byref(l)), l.value")
    as_the_kernel(unet, steps)


@pytest.mark.no_sanitize  # a null pointer is touched, and the fault caught
def test_accept_without_a_length(unet):
    def steps(app, _):
        app("l = listener(); ready(l); b = ctypes.create_string_buffer(64); m = ctypes.c_uint32(0xffffffff); None")
        for arguments in ("b, None", "b, ctypes.byref(m)", "None, None", "None, ctypes.byref(m)"):
            with unet.b.socket(socket.AF_INET, socket.SOCK_STREAM) as peer:
                peer.connect((unet.a.ip4, PORT))
                app(f"waits(5, lambda: call('accept', l.fileno(), {arguments}) > 0)")
                if arguments.startswith("b"):
                    app.note("peer sees", peer.recv(1))
    as_the_kernel(unet, steps, connected=False)


def test_fast_open_of_what_is_connected(unet):
    def steps(app, peer):
        app("s.send(b'a', 0x20000000)")
        app(f"s.sendto(b'a', 0x20000000, (PEER, {PORT}))")
        app("call('sendto', s.fileno(), b'a', 1, 0x20000000, struct.pack('=H14x', socket.AF_UNSPEC), 16)")
        app("call('sendto', s.fileno(), b'a', 1, 0x20000000, struct.pack('=H14x', socket.AF_INET), 1)")
        app("s.sendmsg([b'a'], [], 0x20000000)")
        app("s.send(b'still')")
        app.note("peer got", peer.recv(5, socket.MSG_WAITALL))
    as_the_kernel(unet, steps)


EPOLL_BITS = ("IN", "OUT", "PRI", "RDHUP", "ONESHOT", "ET", "RDNORM", "WRNORM", "MSG", "RDBAND")


def test_epollexclusive(unet):
    def steps(app, _):
        app(f"exclusive(s, {EPOLL_BITS})")
    as_the_kernel(unet, steps)


def test_a_handler_ends_a_lingering_close(unet):
    def steps(app, _):
        app.do("fill(s); s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 100))")
        app.do("ran = []; signal.signal(signal.SIGALRM, lambda *a: ran.append(1))")
        app("(signal.setitimer(signal.ITIMER_REAL, 0.5, 0.5), s.close(), signal.setitimer(signal.ITIMER_REAL, 0), bool(ran))[1::2]")
    as_the_kernel(unet, steps)


def test_the_number_is_free_while_close_lingers(unet):
    def steps(app, peer):
        app.do("fill(s); s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 100)); number = s.fileno()")
        app.do("t = threading.Thread(target=s.close); t.start()")
        app.do("while is_open(number): time.sleep(0.01)")
        app("t.is_alive()")
        app("(lambda e: (e.fileno() == number, e.close()))(socket.socket(FAM, socket.SOCK_STREAM))")
        app("os.fork() or os._exit(0); os.wait()[1]")  # nothing is locked that a fork() takes
        while len(peer.recv(1 << 20)):
            pass
        app("t.join(5), t.is_alive()")
    as_the_kernel(unet, steps)
