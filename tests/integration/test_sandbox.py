# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A seccomp filter that ends who makes a system call which the library makes and the program does not (sandbox.c)."""

import pathlib
import re
import shutil
import signal
import socket
import subprocess

import pytest

from netns import PYTHON, ROOT, SECCOMP, flow_table, python_argv, wait_for

TABLE = re.findall(r"^\tCALL\((\w+),", (ROOT / "lib/preload/sandbox.c").read_text(), re.M)
HEADER = pathlib.Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
NUMBERS = dict(re.findall(r"^#define __NR_(\w+) (\d+)$", HEADER.read_text(), re.M))
KILL, ERROR = 0x80000000, 0x50001  # EPERM
# Runs a program under a filter that has an answer to the call of that number.
FILTERED = SECCOMP + """
import os, sys
seccomp(int(sys.argv[1]), int(sys.argv[2]))
if sys.argv[3]:
    os.environ["LD_PRELOAD"] = sys.argv[3]
os.execvp(sys.argv[4], sys.argv[4:])
"""
# What a small server does: it asks, and is asked.
PROGRAM = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], 0))
s.sendto(b"x", s.getsockname())
print(s.recv(9))
l = socket.create_server((sys.argv[1], 0))
c = socket.create_connection(l.getsockname())
a, _ = l.accept()
a.send(b"y")
print(c.recv(9))
"""
pytestmark = pytest.mark.no_sanitize


def start(host, number, program, ours, answer=KILL):
    return host.popen([PYTHON, "-c", FILTERED, number, answer, host.net.library.path if ours else "", *program])


def test_nobody_ends_by_a_call_of_the_library(net):
    """Each call that the library makes and the program need not: whoever lives without the library lives with it."""
    net.neighbours()
    program = [*python_argv(PROGRAM, net.a.ip4)]
    # Without those of Python's own, of the library's loading, and of what it takes to find out.
    names = sorted({*TABLE} - {"read", "write", "openat", "munmap", "newfstatat", "rt_sigaction", "mprotect", "lseek"} -
                   {"getpid", "gettid", "clone", "wait4", "prctl"})
    alive, wrong = 0, []
    for at in range(0, len(names), 8):
        both = {name: [start(net.a, NUMBERS[name], program, ours) for ours in (False, True)] for name in names[at:at + 8]}
        for name, (plain, ours) in both.items():
            statuses = plain.wait(), ours.wait()
            alive += statuses == (0, 0)
            if statuses[0] not in (0, -signal.SIGSYS) or statuses[0] != statuses[1] or \
                    (not statuses[0] and re.findall("^b'.'$", ours.text, re.M) != ["b'x'", "b'y'"]):
                wrong.append(f"{name}: without the library {statuses[0]}, with it {statuses[1]}: {ours.text[-500:]}")
    assert not wrong, "\n".join(wrong)
    print(f"{len(names)} calls; without them {alive} programs live, each with the library, too")
    assert alive > 30


def test_a_filter_that_lets_us_is_none(net):
    """The sockets of a process in a container, where there is always one."""
    net.neighbours()
    server = start(net.a, NUMBERS["reboot"], python_argv("""
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 7000))
print("ready", flush=True)
while True:
    print(s.recvfrom(9), flush=True)
"""), True)
    server.wait_text("^ready")
    with net.b.socket() as peer:
        def known():
            peer.sendto(b"x", (net.a.ip4, 7000))
            return flow_table(server.pid)
        wait_for(known, what=f"a rule of {server}: {server.text}")


def test_why_nothing_is_offloaded_is_said(net):
    """To who asked for the library; who has it in every program reads what the program says."""
    program = python_argv(PROGRAM, "127.0.0.1")
    asked = start(net.a, NUMBERS["bpf"], program, True)
    assert asked.wait() == 0
    assert re.search(r"WARNING: nothing is offloaded in this process: its seccomp filter ends who calls bpf\(2\)", asked.text), asked.text
    few = net.a.popen(["setpriv", "--bounding-set", "-sys_resource", "bash", "-c", 'ulimit -n 64; exec "$@"', "-",
                       "env", f"LD_PRELOAD={net.library.path}", *program])
    assert few.wait() == 0
    assert "nothing is offloaded in this process: it may have 64 descriptors" in few.text, few.text
    print(asked.text, few.text)


def test_an_answer_to_exit_ends_the_child_too(net):
    """A filter that has exit_group(2) alone, and an error for the rest: the child that tries the calls does not go on for ever."""
    p = start(net.a, NUMBERS["exit"], python_argv(PROGRAM, "127.0.0.1"), True, ERROR)
    assert p.wait() == 0, p.text
    assert re.findall("^b'.'$", p.text, re.M) == ["b'x'", "b'y'"], p.text


def test_a_forked_child_does_not_look_again(net):
    """And says nothing again; more filters it looks at."""
    program = python_argv(SECCOMP + f"""
import os, socket
def ask():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("127.0.0.1", 0)); s.sendto(b"x", s.getsockname()); assert s.recv(9) == b"x"
ask()
for again in range(2):
    pid = os.fork()
    if not pid:
        if again:
            seccomp({NUMBERS["bpf"]}, {KILL})
        ask()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
""")
    out = net.tmp / "calls"
    p = net.a.popen(["strace", "-f", "-e", "trace=clone", "-o", out, PYTHON, "-c", FILTERED, NUMBERS["reboot"], KILL, net.library.path, *program])
    assert p.wait() == 0, p.text
    assert len(re.findall(r"clone\(child_stack=NULL, flags=0(?:\)| <unfinished)", out.read_text())) == 2, out.read_text()
    assert len(re.findall("nothing is offloaded", p.text)) == 1, p.text


@pytest.mark.skipif(not shutil.which("strace"), reason="not installed: strace")
def test_the_table_has_all_calls_that_the_library_adds(net):
    """Of a program that serves, asks and forks, over queues."""
    net.neighbours()
    program = """
import os, select, socket, sys, time
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.bind((sys.argv[1], 7001))
l = socket.create_server((sys.argv[1], 7002))
e = select.epoll()
e.register(l, select.EPOLLIN)
print("ready", flush=True)
e.poll()
c, _ = l.accept()
c.sendall(c.recv(9) * 50000)
u.sendto(b"x", c.getpeername())
if not os.fork():
    c.sendall(b"of the child")
    os._exit(0)
os.wait()
select.poll().poll(1200)
c.close()
"""
    calls = []
    for ours in (False, True):
        out = net.tmp / f"calls-{ours}"
        library = ["-E", f"LD_PRELOAD={net.library.path}"] if ours else []
        server = net.a.popen(["strace", "-f", "-o", out, *library, *python_argv(program, net.a.ip4)])
        server.wait_text("^ready")
        with net.b.entered():
            peer = net.b.socket(kind=1)
        with peer:
            peer.connect((net.a.ip4, 7002))
            peer.sendall(b"2")
            while peer.recv(65536):
                pass
        assert server.wait(60) == 0, server.text
        calls.append({m[1] for line in out.read_text().splitlines() if (m := re.match(r"\d+ +(\w+)\(", line))})
    plain, with_it = calls
    added = with_it - plain
    print(f"added: {sorted(added)}")
    assert "bpf" in added
    assert added <= {*TABLE, "exit", "restart_syscall"}, sorted(added - {*TABLE})  # the last one of the child that tries them


# Serves datagrams, connections and one that waits for accept(); then it gives itself a filter, and goes on. Other threads sleep in
# calls meanwhile.
ITS_OWN = SECCOMP + """
import os, select, signal, socket, sys, threading, time
address, way = sys.argv[1], sys.argv[2]
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.bind((address, 7001))
l = socket.create_server((address, 7002))
sleeper, other = socket.create_server((address, 7003)), socket.create_server((address, 7004))
e = select.epoll()
for s in (u, l):
    e.register(s, select.EPOLLIN)
once = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
once.bind((address, 7005))
e.register(once, select.EPOLLIN | select.EPOLLONESHOT)
inner = select.epoll()
inner.register(once, select.EPOLLOUT)
e.register(inner, 0)
seen = set()
def told(s):
    while (s.fileno(), select.EPOLLIN) not in seen:
        seen.update(e.poll())
    seen.clear()
print("ready", flush=True)
told(l)
c, _ = l.accept()
e.register(c, select.EPOLLIN | select.EPOLLOUT)
c.sendall(b"a" * 100_000)
assert c.recv(1) == b"1"
print("once", flush=True)
told(once)
assert once.recv(9) == b"once"
print("filter", sys.stdin.readline(), flush=True)
go_on = threading.Event()
def accepts():
    s, _ = sleeper.accept()
    s.sendall(s.recv(9))
def receives():
    s, _ = other.accept()
    s.sendall(b"in recv()")
    s.sendall(s.recv(99))
threads = []
if way == "threads":
    threads = [threading.Thread(target=f) for f in (go_on.wait, accepts, receives)]
    for t in threads:
        t.start()
    print("asleep", sys.stdin.readline(), flush=True)
seccomp(321, 0x80000000 if way != "refused" else 0x50001, flags=1 if way == "tsync" else 0, libc=None)
print("tasks", len(os.listdir("/proc/self/task")), flush=True)
go_on.set()
assert e.poll(0)
assert c.recv(3) == b"234"
c.sendall(b"b" * 100_000)
n, _ = l.accept()
n.sendall(n.recv(9))
datagram, peer = u.recvfrom(9)
u.sendto(datagram, peer)
new, _ = l.accept()
new.sendall(new.recv(9))
e.modify(once, select.EPOLLIN | select.EPOLLONESHOT)
once.sendto(b"x", once.getsockname())
told(once)
handled = []
signal.signal(signal.SIGUSR1, lambda *_: handled.append(1))
if not (pid := os.fork()):
    os.kill(os.getpid(), signal.SIGUSR1)
    os._exit(5 if handled else 6)
assert os.waitpid(pid, 0)[1] >> 8 == 5
for t in threads:
    t.join()
print("done", flush=True)
signal.pause()
"""


@pytest.mark.parametrize("way", ["killed", "refused", "tsync", "threads"])
def test_the_library_leaves_before_a_filter_of_the_programs_own(net, way):
    """What comes before, meanwhile and afterwards is there, in its order, and the interface is as if the library had never been there."""
    net.neighbours()
    server = net.a.python(ITS_OWN, preload=True, args=(net.a.ip4, way), stdin=subprocess.PIPE)

    def says():
        server.popen.stdin.write(b"\n")
        server.popen.stdin.flush()

    def all_of(s, size):
        got = b""
        while len(got) < size and (piece := s.recv(65536)):
            got += piece
        return got

    server.wait_text("^ready")
    first, waits, late, accepted, reader = [net.b.socket(kind=socket.SOCK_STREAM) for _ in range(5)]
    asker = net.b.socket(kind=socket.SOCK_DGRAM)
    first.connect((net.a.ip4, 7002))
    first.sendall(b"1")
    server.wait_text("^once")
    asker.sendto(b"once", (net.a.ip4, 7005))
    wait_for(lambda: flow_table(server.pid), what="a rule")
    first.sendall(b"234")
    waits.connect((net.a.ip4, 7002))
    waits.sendall(b"waits")
    asker.sendto(b"datagram", (net.a.ip4, 7001))
    says()
    if way == "threads":
        server.wait_text("^filter")
        reader.connect((net.a.ip4, 7004))
        assert reader.recv(99) == b"in recv()"
        says()
        server.wait_text("^asleep")
    server.wait_text("^tasks")
    # The program's own: the library's is gone.
    assert re.search(r"^tasks (\d)", server.text, re.M)[1] == ("4" if way == "threads" else "1"), server.text
    assert "nothing is offloaded in this process any more: its seccomp filter " + \
        ("refuses bpf(2)" if way == "refused" else "ends who calls bpf(2)") in server.text, server.text
    assert not flow_table(server.pid) and "xdp" not in net.a.run(["ip", "link", "show", net.a.dev]).text
    assert all_of(first, 200_000) == b"a" * 100_000 + b"b" * 100_000
    assert waits.recv(9) == b"waits"
    assert asker.recv(9) == b"datagram"
    late.connect((net.a.ip4, 7002))
    late.sendall(b"late")
    assert late.recv(9) == b"late"
    if way == "threads":
        accepted.connect((net.a.ip4, 7003))
        accepted.sendall(b"accepted")
        assert accepted.recv(9) == b"accepted"
        reader.sendall(b"read")
        assert reader.recv(9) == b"read"
    server.wait_text("^done")
    caught = int(re.search(r"SigCgt:\t(\w+)", pathlib.Path(f"/proc/{server.pid}/status").read_text())[1], 16)
    assert not caught >> signal.SIGTERM - 1 & 1
    server.kill(signal.SIGTERM)
    assert server.wait() == -signal.SIGTERM, server.text
    for s in (first, waits, late, accepted, reader, asker):
        s.close()
    print(server.text)


def between_results(text):
    """What preload_calls prints, and the system calls before each line of it. Of its main thread."""
    made, results = set(), []
    for line in text.splitlines():
        if m := re.match(r'write\(1, "(.*)\\n"', line):
            results.append((m[1], made))
            made = set()
        elif m := re.match(r"(\w+)\(", line):
            made.add(m[1])
    return results


@pytest.mark.skipif(not shutil.which("strace"), reason="not installed: strace")
def test_who_has_a_filter_makes_libcs_calls_alone(net):
    """Of every function that the library stands in for: a filter that allows libc's calls allows what is made."""
    data = net.tmp / "data"
    data.write_bytes(bytes(i * 31 % 251 for i in range(20000)))
    both = []
    for ours in (False, True):
        out = net.tmp / f"calls-{ours}"
        library = ["-E", f"LD_PRELOAD={net.library.path}"] if ours else []
        program = net.a.run(["strace", "-o", out, "-s", "200", *library, net.library.helpers / "preload_calls", data], env={"SANDBOX": "1"}, timeout=100)
        results = between_results(out.read_text())
        start = next(i for i, (said, _) in enumerate(results) if said.startswith("sandbox"))
        both.append(results[start + 1:])
    assert "nothing is offloaded in this process any more" in program.text
    plain, ours = both
    assert [said for said, _ in plain] == [said for said, _ in ours]
    # Who sets a handler has the one, and whether there is something to wait for (futex) is a matter of threads.
    # So it is whether pthread_cancel() has to send a signal. The child of a vfork() has memory of its own (docs/limits.md).
    known = {"rt_sigaction", "futex"}
    of_one = {"vfork: ": {"clone"}, "pthread_cancel(": {"getpid", "rt_sigprocmask", "tgkill"}}

    def more(said, a, b):
        return b - a - known - set().union(*(calls for name, calls in of_one.items() if name in said))
    added = [f"{said}: {sorted(calls)}" for (said, a), (_, b) in zip(plain, ours) if (calls := more(said, a, b))]
    print(f"{len(plain)} results")
    assert not added, f"{len(added)}:\n" + "\n".join(added)
    assert len(plain) > 1000
