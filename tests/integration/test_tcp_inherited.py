# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A process that has forked goes on serving its connections in user space; who else uses one finds it in the kernel, whole."""

import re
import signal

import pytest

from netns import wait_for
from test_tcp_both import connected, both
from test_tcp_fork import WORKER, pump, pumped
from test_tcp_programs import QUIET, needs

SERVE = WORKER + """
import socket, subprocess, threading, time
def gate():
    r, w = os.pipe()
    return r, w
def opened(g): os.read(g[0], 1)
def open_gate(g): os.write(g[1], b'x')
"""


def exchange(server, client, n=200):
    """n messages each way, one after the other."""
    client.start(f"[(s.sendall(b'%06d' % i), exactly(s, 6))[1] == b'%06d' % i for i in range({n})].count(True)")
    server.do(f"echo({6 * n})", 20)
    assert client.answer(20) == n


def test_fork_leaves_a_connection_where_it_is(net):
    with connected(net, "4", True, False) as (server, client):
        server.do(SERVE)
        with net.a.tcp_bypassed():
            server.do("g = gate(); pid = child(lambda: opened(g))")
            exchange(server, client)
            server.do("open_gate(g); wait(pid)")
            exchange(server, client)
            for _ in range(20):
                server.do("wait(child(lambda: None))")
            exchange(server, client)
            # Nobody else has it: the engine closes it, not the kernel.
            server.do("s.close()")
            assert client.do("s.recv(1)") == b""


@pytest.mark.parametrize("run", [
    "os.system('true')",
    "os.popen('echo x').read()",
    "subprocess.run(['true'])",
    "subprocess.run(['true'], close_fds=False)",
    "subprocess.run('exec true', shell=True, preexec_fn=lambda: None)",
])
def test_programs_are_run_under_load(net, run):
    with connected(net, "4", True, False) as (server, client):
        server.do(SERVE)
        server.do("t = threading.Thread(target=lambda: echo(6000000)); t.start()")
        with net.a.tcp_bypassed():
            pump(client, 6000000)
            for _ in range(8):
                server.do("x = " + run, 30)
            pumped(client)
            server.do("t.join()")
            server.do("s.close()")
            assert client.do("s.recv(1)") == b""


def test_a_child_that_closes_its_copies_does_not_count(net):
    """A helper for life, which has closed what it does not need."""
    with connected(net, "4", True, False) as (server, client):
        server.do(SERVE)
        server.do("done = gate(); g = gate()")
        server.do("def run(): os.close(s.fileno()); open_gate(done); opened(g)")
        with net.a.tcp_bypassed():
            server.do("pid = child(run); opened(done)")
            exchange(server, client)
            server.do("s.close()")
            assert client.do("s.recv(1)") == b""
        server.do("open_gate(g)")
        assert server.do("wait(pid)") == 0


@pytest.mark.parametrize("how", ["os.close(s.fileno())", "os.closerange(s.fileno(), s.fileno() + 1)", "os.dup2(0, s.fileno())"])
def test_child_has_it_when_the_parent_has_closed(net, how):
    with connected(net, "4", True, False) as (server, client):
        server.do(SERVE)
        server.do("g = gate(); r = gate()")
        client.do("s.sendall(b'early')")
        server.do("ready(s)")
        server.do("pid = child(lambda: (opened(g), echo(1000010)))")
        # Half of it comes before, half after, and more than the windows hold is under way.
        client.do("s.sendall(b' then')")
        server.do(how)
        pump(client, 1000000)
        # The number may be another's now.
        server.do("open_gate(g)")
        client.answer(30)
        client.do("t.join()", 30)
        assert client.do("back[0][0]") == 1000000
        assert client.do("s.recv(20)[-10:]") != b""
        assert server.do("wait(pid)") == 0


@pytest.mark.parametrize("how", ["os.close(n)", "os.closerange(n, n + 1)", "os.dup2(0, n)"])
def test_child_accepts_who_waits_when_the_parent_closes_the_listener(net, how):
    with both(net, "4", True, False) as (server, client):
        server.do(SERVE)
        server.do("g = gate(); n = l.fileno()")
        server.do("pid = child(lambda: (opened(g), l.accept()[0].sendall(b'hello')))")
        client.do("s = client()")
        server.do("ready(l)")
        server.do(how)
        server.do("open_gate(g)")
        assert client.do("exactly(s, 5)", 20) == b"hello"
        assert server.do("wait(pid)", 20) == 0


USES = {
    "read": "os.read(s.fileno(), 5)",
    "recv": "s.recv(5)",
    "recvmsg": "s.recvmsg(5)[0]",
    "poll": "(await_ready(s), s.recv(5))[1]",
    "select": "(select.select([s], [], [], 5), s.recv(5))[1]",
    "epoll": "(lambda e: (e.register(s, 1), e.poll(5), s.recv(5))[2])(select.epoll())",
    "dup": "os.read(os.dup(s.fileno()), 5)",
    "dup2": "os.read(os.dup2(s.fileno(), 77), 5)",
    "fcntl": "os.read(fcntl.fcntl(s.fileno(), fcntl.F_DUPFD, 90), 5)",
    "getsockopt": "(s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), s.recv(5))[1]",
    "getpeername": "(s.getpeername(), s.recv(5))[1]",
    "nonblocking": "(s.setblocking(False), await_ready(s), s.recv(5), s.setblocking(True))[2]",
    "fdopen": "(lambda f: ctypes.string_at(LIBC.fgets(ctypes.create_string_buffer(6), 6, ctypes.c_void_p(f))))"
              "(LIBC.fdopen(s.fileno(), b'r'))",
    "grandchild": "(lambda p: (p == 0 and os._exit(os.write(s.fileno(), s.recv(5)) != 5), os.waitpid(p, 0), b'')[2])(os.fork())",
    "program": "(s.set_inheritable(True), subprocess.run(['head', '-c', '5'], stdin=s.fileno(), stdout=s.fileno()), b'')[2]",
    "spawn": "(os.waitpid(os.posix_spawn('/usr/bin/head', ['head', '-c', '5'], os.environ, "
             "file_actions=[(os.POSIX_SPAWN_DUP2, s.fileno(), 0), (os.POSIX_SPAWN_DUP2, s.fileno(), 1)]), 0), b'')[1]",
}


@pytest.mark.parametrize("use", USES)
def test_child_uses_it(net, use):
    with connected(net, "4", True, False) as (server, client):
        server.do(SERVE)
        server.do("import ctypes, subprocess; LIBC.fdopen.restype = ctypes.c_void_p; LIBC.fgets.restype = ctypes.c_void_p")
        server.do(f"def run(): d = {USES[use]}; os.write(s.fileno(), d) if d else None")
        server.do("pid = child(run)")
        client.do("s.sendall(b'12345')")
        assert client.do("exactly(s, 5)", 20) == b"12345"
        assert server.do("wait(pid)", 20) == 0
        # The parent goes on with the same connection.
        exchange(server, client)
        server.do("s.close()")
        assert client.do("s.recv(1)") == b""


def test_child_waits_on_the_parents_epoll(net):
    with connected(net, "4", True, False) as (server, client):
        server.do(SERVE)
        server.do("ep = select.epoll(); ep.register(s, select.EPOLLIN); ep.poll(0)")
        server.do("def run():\n while True:\n  for f, e in ep.poll(10):\n   d = os.read(f, 10)\n   if not d: return\n   os.write(f, d)")
        server.do("pid = child(run)")
        client.do("s.sendall(b'12345')")
        assert client.do("exactly(s, 5)", 20) == b"12345"
        client.do("s.shutdown(socket.SHUT_WR)")
        assert server.do("wait(pid)", 20) == 0


def test_parent_sleeps_in_recv_when_the_child_takes_it(net):
    with connected(net, "4", True, False) as (server, client):
        server.do(SERVE)
        server.do("got = []; t = threading.Thread(target=lambda: got.append(s.recv(5))); t.start()")
        server.do("time.sleep(0.2)")
        server.do("assert wait(child(lambda: s.sendall(b'hello'))) == 0", 20)
        assert client.do("exactly(s, 5)") == b"hello"
        client.do("s.sendall(b'world')")
        server.do("t.join()")
        assert server.do("got") == [b"world"]


@pytest.mark.parametrize("parent_closes", [False, True])
def test_child_of_a_child(net, parent_closes):
    with connected(net, "4", True, False) as (server, client):
        server.do(SERVE)
        server.do("g = gate()")
        server.do("def run(): child(lambda: (opened(g), echo(2000000)))")
        server.do("assert wait(child(run)) == 0")
        if parent_closes:
            server.do("s.close()")
        pump(client, 2000000)
        server.do("open_gate(g)")
        pumped(client)
        if parent_closes:
            assert client.do("s.recv(1)", 20) == b""
        else:
            exchange(server, client)


def test_child_is_killed(net):
    with connected(net, "4", True, False) as (server, client):
        server.do(SERVE)
        with net.a.tcp_bypassed():
            server.do("pid = child(lambda: time.sleep(100)); os.kill(pid, signal.SIGKILL); os.waitpid(pid, 0)")
            exchange(server, client)
            server.do("s.close()")
            assert client.do("s.recv(1)") == b""


@pytest.mark.parametrize("end", ["os._exit(0)", "sys.exit(0)", "os.execv('/bin/true', ['true'])", "os.execvp('true', ['true'])"])
def test_parent_ends_and_the_child_goes_on(net, end):
    with connected(net, "4", True, False) as (server, client):
        server.do(SERVE)
        client.do("s.sendall(b'early')")
        server.do("ready(s); g = gate(); pid = child(lambda: (opened(g), time.sleep(0.3), echo(1000005)))")
        server.do("open_gate(g)")
        server.start(end)
        server.popen.wait(20)
        pump(client, 1000000)
        client.answer(30)
        client.do("t.join()", 30)
        assert client.do("back[0][0]") == 1000000
        assert client.do("exactly(s, 5)") != b""
        assert client.do("s.recv(1)", 20) == b""


def test_parent_is_killed(net):
    """Its engine is gone, and the connection with it: the child learns it and does not wait for ever."""
    with connected(net, "4", True, False) as (server, client):
        server.do(SERVE)
        out = net.tmp / "answer"
        server.do("p = os.getpid()")
        server.do(f"def run():\n while os.getppid() == p: time.sleep(0.01)\n try: d = s.recv(1)\n except OSError as e: d = e.errno\n"
                  f" open({str(out)!r} + '.new', 'w').write(repr(d)); os.rename({str(out)!r} + '.new', {str(out)!r})")
        server.do("pid = child(run)")
        server.start("os.kill(os.getpid(), signal.SIGKILL)")
        server.popen.wait(20)
        server.popen.returncode = 0
        wait_for(out.exists, what="the child's answer")
        assert out.read_text() in ("104", "107"), out.read_text()


@pytest.mark.no_asan  # libasan does not take its allocator's locks around fork(): a child of threads that allocate may hang
def test_threads_serve_while_the_process_forks(net):
    with both(net, "4", True, False) as (server, client):
        server.do(SERVE)
        server.do("def serve(c):\n while True:\n  d = c.recv(65536)\n  if not d: break\n  c.sendall(d)\n c.close()")
        server.do("def loop(n):\n ts = []\n for _ in range(n):\n  c, _p = l.accept(); t = threading.Thread(target=serve, args=(c,))"
                  "; t.start(); ts.append(t)\n for t in ts: t.join()")
        server.do("main = threading.Thread(target=loop, args=(24,)); main.start()")
        client.do("import threading; results = []")
        client.do("def one(i):\n c = client(); d = random.Random(i).randbytes(300000); got = []\n"
                  " t = threading.Thread(target=lambda: got.append(exactly(c, len(d)))); t.start(); c.sendall(d); t.join()\n"
                  " c.shutdown(socket.SHUT_WR); results.append(got[0] == d and c.recv(1) == b'')")
        client.start("for r in range(4):\n ts = [threading.Thread(target=one, args=(r * 6 + i,)) for i in range(6)]\n"
                     " [t.start() for t in ts]; [t.join() for t in ts]")
        server.do("pids = [child(lambda: time.sleep(0.05)) for _ in range(30)]; [wait(p) for p in pids]", 60)
        client.answer(90)
        server.do("main.join()", 60)
        assert client.do("results.count(True)") == 24


def test_connection_under_way_at_the_fork(net):
    with both(net, "4", True, True) as (server, client):
        client.do(SERVE)
        client.do("s = socket.socket(FAM, socket.SOCK_STREAM); s.setblocking(False)")
        client.do("s.connect_ex((PEER, 7100)); pid = child(lambda: (await_ready(s, select.POLLOUT), s.send(b'child')))")
        server.do("s, _ = l.accept()")
        assert server.do("exactly(s, 5)", 20) == b"child"
        assert client.do("wait(pid)") == 0


@needs("redis-server", "redis-cli", "redis-benchmark")
def test_redis_saves_under_load(net):
    server = net.a.popen(["redis-server", "--port", "6379", "--bind", net.a.ip4, "--save", "", "--protected-mode", "no",
                          "--dir", str(net.tmp), "--enable-debug-command", "yes"], preload=True)
    server.wait_text("Ready to accept connections")
    cli = ["redis-cli", "-h", net.a.ip4]

    def ask(*words):
        return net.b.run([*cli, *words], env=QUIET).text.strip()

    # What redis closes while a child has a copy the kernel ends: at most the 30 clients of both runs, four segments each.
    with net.a.tcp_bypassed(2 * 30 * 4):
        assert ask("debug", "populate", "20000", "key", "500") == "OK"
        bench = net.b.popen(["redis-benchmark", "-h", net.a.ip4, "-q", "-n", "60000", "-c", "30", "-t", "set,get"])
        for _ in range(4):
            assert "started" in ask("bgsave")
            wait_for(lambda: "rdb_bgsave_in_progress:0" in ask("info", "persistence"), what="the save", timeout=60)
            assert "rdb_last_bgsave_status:ok" in ask("info", "persistence")
        assert bench.wait(120) == 0
        assert len(re.findall(r"requests per second", bench.text)) >= 2, bench.text
        size = ask("dbsize")
        assert "started" in ask("bgsave")
        wait_for(lambda: "rdb_bgsave_in_progress:0" in ask("info", "persistence"), what="the save", timeout=60)
        net.b.run([*cli, "shutdown", "nosave"], check=False)
    assert server.wait() == 0
    again = net.a.popen(["redis-server", "--port", "6379", "--bind", net.a.ip4, "--save", "", "--protected-mode", "no",
                         "--dir", str(net.tmp), "--enable-debug-command", "yes"], preload=True)
    again.wait_text("Ready to accept connections")
    assert ask("dbsize") == size
    again.popen.send_signal(signal.SIGTERM)
    again.wait()
