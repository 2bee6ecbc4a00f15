# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""An established connection in a forked child, in a new program, in another process: the kernel goes on with it."""

import subprocess

import pytest

from differential import CHILDREN
from netns import wait_for
from test_tcp_both import connected, families

WORKER = CHILDREN + """
import signal
def echo(n):
    while n:
        d = s.recv(min(n, 70000))
        if not d: raise EOFError(n)
        s.sendall(d); n -= len(d)
"""


def pump(client, total, seed=1):
    """The client sends total bytes and compares what comes back."""
    client.do("import threading; back = []")
    client.do(f"def reader():\n h, n = hashlib.sha256(), 0\n while n < {total}:\n  d = s.recv(min({total} - n, 65536))\n"
              "  if not d: break\n  h.update(d); n += len(d)\n back.append((n, h.hexdigest()))")
    client.do("t = threading.Thread(target=reader); t.start()")
    client.start(f"sent = write_all(s, {total}, {seed})")


def pumped(client):
    client.answer(60)
    client.do("t.join()", 60)
    assert client.do("back[0] == sent") is True


@families
@pytest.mark.parametrize("client_ours", [False, True])
def test_parent_closes_and_child_serves(unet, family, client_ours):
    with connected(unet, family, True, client_ours) as (server, client):
        server.do(WORKER)
        client.do("s.sendall(b'before')")
        assert server.do("s.recv(100)") == b"before"
        client.do("s.sendall(b'unread')")
        server.do("import time; ready(s)")
        server.do("s.sendall(b'answer'); pid = child(lambda: echo(4000006)); s.close()")
        assert client.do("exactly(s, 12)") == b"answerunread"
        pump(client, 4000000)
        pumped(client)
        assert client.do("s.recv(10)", 20) == b""
        assert server.do("wait(pid)") == 0


@pytest.mark.parametrize("family", ["4", "6"])
def test_fork_amid_a_stream(unet, family):
    """Data are in flight both ways, and the queues are full, when the process forks."""
    with connected(unet, family, True, False) as (server, client):
        server.do(WORKER)
        pump(client, 12000000)
        server.do("echo(3000000); pid = child(lambda: echo(9000000)); s.close()", 30)
        pumped(client)
        assert server.do("wait(pid)", 30) == 0


@pytest.mark.parametrize("family", ["4", "6"])
def test_the_peers_fin_came_before(unet, family):
    with connected(unet, family, True, False) as (server, client):
        server.do(WORKER)
        client.do("s.sendall(b'last words'); s.shutdown(socket.SHUT_WR)")
        assert server.do("exactly(s, 10)") == b"last words"
        assert server.do("s.recv(10)") == b""
        server.do("pid = child(lambda: s.sendall(b'%d' % len(s.recv(10)))); s.close()")
        assert client.do("s.recv(10)") == b"0"
        assert client.do("s.recv(10)") == b""
        assert server.do("wait(pid)") == 0


@pytest.mark.parametrize("family", ["4", "6"])
def test_our_fin_went_before(unet, family):
    with connected(unet, family, True, False) as (server, client):
        server.do(WORKER)
        server.do("s.sendall(b'all'); s.shutdown(socket.SHUT_WR)")
        assert client.do("exactly(s, 3) + s.recv(1)") == b"all"
        server.do("pid = child(lambda: os._exit(0 if exactly(s, 4) == b'more' else 3)); s.close()")
        client.do("s.sendall(b'more')")
        assert server.do("wait(pid)") == 0


@pytest.mark.parametrize("family", ["4", "6"])
def test_a_client_forks(unet, family):
    with connected(unet, family, False, True) as (server, client):
        client.do(WORKER)
        server.do("s.sendall(b'waits')")
        client.do("ready(s); pid = child(lambda: echo(5)); s.close()")
        assert server.do("exactly(s, 5)") == b"waits"
        assert server.do("s.recv(1)") == b""
        assert client.do("wait(pid)") == 0


@pytest.mark.parametrize("family", ["4", "6"])
def test_the_new_program_has_the_connection(unet, family):
    """As inetd does it."""
    with connected(unet, family, True, False) as (server, client):
        server.do(WORKER)
        server.do("def run(): os.dup2(s.fileno(), 0); os.dup2(s.fileno(), 1); os.execv('/bin/cat', ['cat'])")
        server.do("pid = child(run); s.close()")
        client.do("s.sendall(b'through cat')")
        assert client.do("exactly(s, 11)") == b"through cat"
        client.do("s.shutdown(socket.SHUT_WR)")
        assert client.do("s.recv(1)") == b""
        assert server.do("wait(pid)") == 0


def test_spawned_program_has_the_connection(unet):
    with connected(unet, "4", True, False) as (server, client):
        server.do(WORKER)
        server.do("a = [(os.POSIX_SPAWN_DUP2, s.fileno(), 0), (os.POSIX_SPAWN_DUP2, s.fileno(), 1)]")
        server.do("pid = os.posix_spawn('/bin/cat', ['cat'], os.environ, file_actions=a); s.close()")
        client.do("s.sendall(b'through cat'); s.shutdown(socket.SHUT_WR)")
        assert client.do("exactly(s, 11) + s.recv(1)") == b"through cat"
        assert server.do("wait(pid)") == 0


# Debian 12's libc has none.
PIDFD_SPAWN = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <unistd.h>

int pidfd_spawn(int *pidfd, const char *path, const posix_spawn_file_actions_t *acts, const posix_spawnattr_t *attr,
		char *const argv[], char *const env[])
{
	__typeof__(posix_spawn) *spawn = dlsym(RTLD_NEXT, "posix_spawn");
	pid_t pid;
	int ret = spawn(&pid, path, acts, attr, argv, env);

	if (!ret)
		*pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	return ret;
}
"""
SPAWN = """
import ctypes
libc = ctypes.CDLL(None)
acts, fd = ctypes.create_string_buffer(256), ctypes.c_int()
libc.posix_spawn_file_actions_init(acts)
for n in 0, 1: assert libc.posix_spawn_file_actions_adddup2(acts, s.fileno(), n) == 0
argv = (ctypes.c_char_p * 2)(b'cat', None)
assert libc.pidfd_spawn(ctypes.byref(fd), b'/bin/cat', acts, None, argv, argv) == 0
s.close()
"""


@pytest.fixture
def pidfd_spawn(unet, tmp_path):
    (tmp_path / "spawn.c").write_text(PIDFD_SPAWN)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / "spawn.so", tmp_path / "spawn.c"], check=True)
    unet.library.after.append(tmp_path / "spawn.so")
    yield
    unet.library.after.pop()


def test_a_program_that_is_spawned_with_a_pidfd_has_the_connection(unet, pidfd_spawn):
    with connected(unet, "4", True, False) as (server, client):
        server.do(WORKER)
        server.do(SPAWN)
        client.do("s.sendall(b'through cat'); s.shutdown(socket.SHUT_WR)")
        assert client.do("exactly(s, 11) + s.recv(1)") == b"through cat"
        assert server.do("os.waitid(os.P_PIDFD, fd.value, os.WEXITED).si_status") == 0


def test_parent_ends_while_the_child_serves(unet):
    with connected(unet, "4", True, False) as (server, client):
        server.do(WORKER)
        # The server in udp_app.py is the parent of the parent, so that it may end.
        server.do("def run(): child(lambda: echo(2000000)); s.close()")
        server.do("pid = child(run); s.close(); wait(pid)")
        pump(client, 2000000)
        pumped(client)


def test_a_child_that_does_nothing(unet):
    with connected(unet, "4", True, False) as (server, client):
        server.do(WORKER)
        assert server.do("wait(child(lambda: None))") == 0
        pump(client, 1000000)
        server.do("echo(1000000)", 20)
        pumped(client)
        server.do("s.close()")
        assert client.do("s.recv(1)") == b""


SEND_ONE = """
def send_one(u, t):
    c = ctypes.create_string_buffer(struct.pack('=Qiiixxxx', 20, socket.SOL_SOCKET, socket.SCM_RIGHTS, t.fileno()), 24)
    b = ctypes.create_string_buffer(b'x', 1)
    iov = Iovec(ctypes.addressof(b), 1)
    m = (Mmsghdr * 1)()
    m[0].hdr.iov, m[0].hdr.iovlen = ctypes.pointer(iov), 1
    m[0].hdr.control, m[0].hdr.controllen = ctypes.addressof(c), 24
    assert call('sendmmsg', u.fileno(), m, 1, 0) == 1
"""


@pytest.mark.parametrize("send", ["socket.send_fds(u, [b'x'], [t.fileno()])", "send_one(u, t)"], ids=["sendmsg", "sendmmsg"])
def test_connection_is_passed_to_another_process(unet, send):
    with connected(unet, "4", True, False) as (server, client):
        server.do(WORKER)
        server.do(SEND_ONE)
        server.do("u, w = socket.socketpair()")
        # Forked before: the child has nothing of the connection but what it is given.
        server.do("def run():\n m, fds, f, a = socket.recv_fds(w, 10, 1)\n"
                  " os.write(fds[0], os.read(fds[0], 100)[::-1])")
        server.do("l.settimeout(10); pid = child(run)")
        server.start("t, peer = l.accept()")
        client.do("s = client()")
        server.answer()
        server.do(f"{send}; t.close()")
        client.do("s.sendall(b'abc')")
        assert client.do("exactly(s, 3) + s.recv(1)") == b"cba"
        assert server.do("wait(pid)") == 0


OURS = pytest.mark.parametrize("ours", [False, True], ids=["kernel", "ours"])


def told_of_a_reset(unet, family, ours):
    """What a child's recv() says twice; None: the engine's own probe was faster, and had the RST."""
    with connected(unet, family, ours, False) as (server, client):
        server.do(WORKER)
        client.do("s.sendall(b'unread')")
        server.do("import time; ready(s); s.setblocking(False)")
        # More than the peer's window and all that the kernel would send at once: the rest has not left.
        server.do("try:\n while True: s.send(bytes(1 << 20))\nexcept BlockingIOError: s.setblocking(True)")
        server.do("import errno; r, w = os.pipe(); answer, answered = os.pipe()")
        server.do("def told():\n os.read(r, 1); got = s.recv(100)\n try: return got, s.recv(100)\n"
                  " except OSError as e: return got, errno.errorcode[e.errno]")
        server.do("pid = child(lambda: os.write(answered, repr(told()).encode()))")
        client.do("s.setsockopt(socket.IPPROTO_TCP, 19, 1); s.close()")
        established = server.do("[s.getsockopt(6, socket.TCP_INFO, 1)[0] == 1, os.write(w, b'x')][0]")
        answer = server.do("os.read(answer, 100)", 20)
        assert server.do("wait(pid)", 20) == 0
        return answer if established else None


@families
@OURS
def test_a_reset_that_meets_the_hand_over_is_told(unet, family, ours):
    """The peer has gone without a word (TCP_REPAIR), and answers the kernel's first segment with a RST: recv() says so, and not the end."""
    assert any(told_of_a_reset(unet, family, ours) == b"(b'unread', 'ECONNRESET')" for _ in range(5))


DATA_SEGS_IN = 152  # in struct tcp_info


@families
@OURS
def test_what_a_cork_holds_is_held_by_the_kernel(unet, family, ours):
    """For 200 ms, as the kernel has it; who was too slow for that tries again."""
    def segments():
        with connected(unet, family, ours, False) as (server, client):
            server.do(WORKER)
            server.do("import time; began = time.monotonic(); s.setsockopt(6, socket.TCP_CORK, 1); s.send(b'header, ')")
            server.do("pid = child(lambda: (s.send(b'body'), s.setsockopt(6, socket.TCP_CORK, 0)))")
            assert client.do("exactly(s, 12)") == b"header, body"
            n = client.do(f"int.from_bytes(s.getsockopt(6, socket.TCP_INFO, 232)[{DATA_SEGS_IN}:][:4], 'little')")
            assert server.do("wait(pid)") == 0
            return n, server.do("time.monotonic() - began")

    def held():
        n, took = segments()
        assert n == 1 or took > 0.15, n
        return n == 1

    wait_for(held, 20, "one segment")


@families
@OURS
@pytest.mark.parametrize("option", ["TCP_NODELAY", "TCP_CORK"])
def test_a_child_sees_what_was_set_before(unet, family, ours, option):
    """Also of a connection that was refused after the option was set, which no kernel socket can take over."""
    with connected(unet, family, ours, False) as (server, client):
        server.do(WORKER)
        server.do(f"s.setsockopt(6, socket.{option}, 1)")
        server.do(f"pid = child(lambda: os._exit(s.getsockopt(6, socket.{option}) != 0))")
        assert server.do("wait(pid)") == 1
        server.do("t = socket.socket(s.family); t.setblocking(False); p = s.getpeername()")
        server.do("t.connect_ex((p[0], 9, *p[2:]))")
        server.do(f"t.setsockopt(6, socket.{option}, 1); ready(t)")
        server.do(f"pid = child(lambda: os._exit(t.getsockopt(6, socket.{option}) != 0))")
        assert server.do("wait(pid)") == 1


# How a connection with unread data has ended before another process has it: what each side does, in turn. RST: SO_LINGER 0.
RST = "import struct; s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0)); s.close()"
ENDS = {
    "reset": [("client", RST)],
    "reset-and-told": [("client", RST), ("server", "ended(); s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)")],
    "fin-reset": [("client", "s.shutdown(socket.SHUT_WR)"), ("server", "state(8)"), ("client", RST)],
    "our-fin-reset": [("server", "s.shutdown(socket.SHUT_WR)"), ("client", "s.recv(1)"), ("server", "state(5)"), ("client", RST)],
    "their-fin-first": [("client", "s.shutdown(socket.SHUT_WR)"), ("server", "state(8); s.shutdown(socket.SHUT_WR)"), ("client", "s.recv(1)")],
    "our-fin-first": [("server", "s.shutdown(socket.SHUT_WR)"), ("client", "s.recv(1); s.shutdown(socket.SHUT_WR)")],
}
LOOK = """
import errno, time
def state(n):
    while s.getsockopt(6, socket.TCP_INFO, 1)[0] != n: time.sleep(.01)
def ended(): state(7)
def said(f):
    try: return f()
    except OSError as e: return errno.errorcode[e.errno]
def look(s, error_first):
    e = lambda: errno.errorcode.get(s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), 0)
    p = select.poll(); p.register(s, 0x2017)
    seen = [p.poll(0)[0][1], s.getsockopt(6, socket.TCP_INFO, 1)[0], said(s.getpeername)] + [e()] * error_first
    return seen + [said(lambda: s.recv(4)), said(lambda: s.recv(100)), said(lambda: s.recv(100)), e(), said(lambda: s.recv(100)),
                   said(lambda: s.send(b'x')), said(lambda: s.shutdown(socket.SHUT_WR))]
def look_at(n, error_first):
    os.read(r, 1)
    os.write(answered, repr(look(socket.socket(fileno=os.dup(n)), error_first)).encode())
def take(error_first):
    os.read(r, 1)
    m, fds, f, a = socket.recv_fds(w2, 10, 1)
    os.write(answered, repr(look(socket.socket(fileno=fds[0]), error_first)).encode())
import select
r, w = os.pipe(); answer, answered = os.pipe(); u2, w2 = socket.socketpair()
"""


def after_the_end(unet, family, ours, how, where, error_first):
    """What another process sees of a connection that has ended before it had it."""
    with connected(unet, family, ours, False) as (server, client):
        server.do(WORKER)
        server.do(LOOK)
        if where == "child":
            server.do(f"pid = child(lambda: look_at(s.fileno(), {error_first}))")
        elif where == "passed":
            server.do(f"pid = child(lambda: (s.close(), take({error_first})))")
        client.do("s.sendall(b'unread')")
        server.do("ready(s)")
        for who, does in ENDS[how]:
            (client if who == "client" else server).do(does)
        server.do("ended()")
        if where == "late-child":
            server.do(f"pid = child(lambda: look_at(s.fileno(), {error_first})); s.close()")
        elif where == "passed":
            server.do("socket.send_fds(u2, [b'x'], [s.fileno()]); s.close()")
        server.do("os.write(w, b'x')")
        text = server.do("os.read(answer, 1000)", 20)
        assert server.do("wait(pid)", 20) == 0
        return text


@pytest.mark.parametrize("where", ["child", "late-child", "passed"])
@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("family", ["4", "6"])
def test_what_had_come_before_the_end_is_read_in_another_process(unet, family, how, where):
    for error_first in (False, True):
        kernel, ours = (after_the_end(unet, family, ours, how, where, error_first) for ours in (False, True))
        assert b"b'unre', b'ad'" in kernel and ours == kernel
        print(kernel)
