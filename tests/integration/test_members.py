# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Several processes of one user on one interface, each with its own sockets on the queues: lib/ring/xdp/member.c.

    net.a  echoing programs [ veth-a ] ---- [ veth-b ]  kernel sockets of the test  net.b
"""

import contextlib
import json
import os
import pathlib
import random
import re
import select
import socket
import subprocess
import threading
import time

import pytest

from differential import App
from netns import PATIENCE, SECCOMP, flow_table, ip, stop, wait_for

ECHO = """
import signal, socket, sys, threading
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
me = (sys.argv[1], int(sys.argv[2]))
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.bind(me)
l = socket.create_server(me, backlog=100, reuse_port=False)
def datagrams():
    while True:
        data, peer = u.recvfrom(65536)
        u.sendto(data, peer)
def stream(c):
    try:
        while data := c.recv(65536): c.sendall(data)
    except OSError: pass
    c.close()
threading.Thread(target=datagrams, daemon=True).start()
print("ready", flush=True)
while True:
    c, _ = l.accept()
    threading.Thread(target=stream, args=(c,), daemon=True).start()
"""


class Member:
    """A process that echoes datagrams and streams on its port."""

    def __init__(self, net, port):
        self.net, self.port, self.at = net, port, (net.a.ip4, port)
        self.start()

    def start(self):
        self.process = self.net.a.python(ECHO, True, args=(self.net.a.ip4, self.port))
        self.process.wait_text("^ready$")
        wait_for(lambda: not self.passes_the_kernel(), 20, f"the queues for port {self.port}")

    def passes_the_kernel(self):
        """A datagram there and back, and a connection: does one of them go by the kernel's sockets?"""
        def count():
            c = self.net.a.counters()
            return c["UdpOutDatagrams"], c["TcpPassiveOpens"]

        before = count()
        with self.net.b.socket(timeout=1) as u:
            u.sendto(b"there", self.at)
            if not select.select([u], [], [], 0.2)[0]:
                return True
            assert u.recv(100) == b"there"
        with self.net.b.socket(kind=socket.SOCK_STREAM) as c:
            c.connect(self.at)
            c.sendall(b"and back")
            assert c.recv(100) == b"and back"
        return count() != before

    def kill(self):
        self.process.popen.kill()
        self.process.popen.wait()


class Stream(threading.Thread):
    """A seeded stream to a member, whose echo is compared byte by byte. Ends with stop(), or with the member."""

    def __init__(self, member, seed):
        super().__init__(daemon=True)
        self.random, self.bytes, self.wrong, self.ending = random.Random(seed), 0, None, threading.Event()
        self.sock = member.net.b.socket(kind=socket.SOCK_STREAM, timeout=10)
        self.sock.connect(member.at)
        self.start()

    def run(self):
        try:
            while not self.ending.is_set():
                self.block(self.random.randbytes(self.random.randrange(1, 100000)))
        except OSError as e:
            self.wrong = self.wrong or f"after {self.bytes} bytes: {e}"
        self.sock.close()

    def block(self, data):
        sender = threading.Thread(target=self.sock.sendall, args=(data,), daemon=True)
        sender.start()
        at = 0
        while at < len(data):
            got = self.sock.recv(65536)
            if got != data[at:at + len(got)] or not got:
                raise OSError(f"at {at} of {len(data)} came {got[:20]!r}, sent was {data[at:at + 20]!r}")
            at += len(got)
        sender.join()
        self.bytes += at

    def moves(self):
        before = self.bytes
        wait_for(lambda: self.bytes > before or self.wrong, 20, "a block of the stream")
        assert not self.wrong, self.wrong

    def abandon(self):
        """The member has been killed."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.join(20 * PATIENCE)

    def stop(self):
        self.ending.set()
        self.join(20 * PATIENCE)
        assert not self.wrong, self.wrong


@pytest.fixture
def members(net):
    net.neighbours(v6=False)
    yield lambda *ports: [Member(net, port) for port in ports]


def helper(net, name, *args):
    """What the program says, as JSON."""
    program = net.library.build / "tests/integration" / name
    if not program.exists():
        program = net.library.helpers / name
    out = subprocess.run([program, *map(str, args)], capture_output=True, text=True, timeout=20 * PATIENCE)
    return json.loads(out.stdout) if out.stdout else {}


def look_at(net, pid, *how):
    """Where the chunks of the process's pool are."""
    return helper(net, "pool_look", pid, *how)


def look(member, *how):
    return look_at(member.net, member.process.pid, *how)


def receive_descriptors(host):
    """Of each queue of the device."""
    now = host.run(["ethtool", "-g", host.dev]).text.split("Current hardware settings:")[1]
    return int(re.search(r"^RX:\s+(\d+)", now, re.M)[1])


def nothing_is_lost(member, count):
    """Each chunk of the pool is somewhere, and only the living have some. The kernel keeps one of each queue that a full ring refused,
    a driver with zero-copy one for each descriptor."""
    kept = 1 + (receive_descriptors(member.net.a) if look(member)["zerocopy"] else 0)

    def all_there():
        p = look(member)
        return (p["members"] == count and 0 <= p["rx"] - p["fill"] - p["rx_held"] <= p["queues"] * kept and p["tx_dead"] == 0
                and p["tx_free"] + p["tx_held"] == p["tx"])
    try:
        wait_for(all_there, 20, "the chunks of the dead")
    except AssertionError as e:
        raise AssertionError(f"{e}: {look(member)}") from e


def flows_of(member):
    return flows_of_pid(member.process.pid)


def flows_of_pid(pid):
    """{pid} of the flow table."""
    entries = flow_table(pid)
    assert entries is not None, "no flow table"
    return {e["formatted"]["value"]["pid"] for e in entries}


def test_all_processes_have_the_queues(net, members):
    several = members(7001, 7002, 7003)
    assert flows_of(several[0]) == {m.process.pid for m in several}
    with net.a.bypassed(), net.a.tcp_bypassed():
        streams = [Stream(m, m.port) for m in several]
        for s in streams:
            s.moves()
        for s in streams:
            s.stop()
    nothing_is_lost(several[1], 3)


def test_vma_stats_lists_who_has_an_interface(net, members):
    """Those who share its queues stand together, apart from a process of another namespace."""
    pids = sorted(m.process.pid for m in members(7001, 7002))
    with App(net.b, True) as stranger:
        stranger.do("u = udp(7003); u.settimeout(0.01)")

        def lines():
            stranger.do("try: u.recv(1)\nexcept TimeoutError: pass")
            text = subprocess.run([net.library.vma_stats, "-k", net.tmp, "-v", "6"], capture_output=True, text=True, check=True).stdout
            return [line.split() for line in text.splitlines()[1:]]

        def counted():
            told = lines()
            return len(told) == 3 and all(int(line[4]) > 0 for line in told if line[0] == net.a.dev) and told

        # What they have received is brought into the statistics now and then.
        told = wait_for(counted, 20, "three lines with figures")
        print("\n".join(map(" ".join, told)))
        theirs = [[net.a.dev, str(os.stat(f"/proc/{pid}/ns/net").st_ino), "root", "1", str(pid)] for pid in pids]
        its = [net.b.dev, str(os.stat(f"/proc/{stranger.pid}/ns/net").st_ino), "root", "1", str(stranger.pid)]
        seen = [[*line[:4], line[6].split("/")[0]] for line in told]
        assert seen == theirs + [its] if theirs[0][1] < its[1] else seen == [its, *theirs]


@pytest.mark.parametrize("queues", [pytest.param(n, marks=pytest.mark.net(queues=n)) for n in (4, 40)])
def test_several_queues_are_shared_too(net, members, queues):
    several = members(7001, 7002)
    pool = look_at(net, several[0].process.pid)
    assert (pool["queues"], pool["rx"]) == (queues, max(2048, 256 * queues) + max(512, 64 * queues))
    streams = [Stream(m, 10 * m.port + k) for m in several for k in range(4)]
    for s in streams:
        s.moves()
    several[0].kill()
    for s in streams[4:]:
        s.moves()
        s.stop()
    for s in streams[:4]:
        s.abandon()
    nothing_is_lost(several[1], 1)


IDLE = """
import os, signal, socket, sys
ip, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
def echo(i):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    u.bind((ip, port + i))
    while True:
        data, peer = u.recvfrom(100)
        u.sendto(data, peer)
pids = []
for i in range(count):
    pids.append(os.fork())
    if not pids[-1]:
        echo(i)
def end(*_):
    for p in pids: os.kill(p, signal.SIGKILL)
    for p in pids: os.waitpid(p, 0)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print("pids", *pids, flush=True)
while True: signal.pause()
"""


@pytest.mark.no_sanitize  # 64 processes
def test_each_of_64_idle_members_can_send(net, members):
    """They start together: one opens the queues, the others join as soon as they can."""
    program = net.a.python(IDLE, True, args=(net.a.ip4, 7100, 64))
    pids = program.wait_text("^pids (.*)$")[1].split()

    def echoes(i):
        with net.b.socket(timeout=1) as u:
            u.sendto(b"there", (net.a.ip4, 7100 + i))
            return bool(select.select([u], [], [], 0.5 * PATIENCE)[0]) and u.recv(100) == b"there"

    wait_for(lambda: look_at(net, pids[0]).get("members") == 64, 60, "64 members")
    for i in range(64):
        wait_for(lambda: echoes(i), 20, f"an echo of member {i}")
    before = net.a.counters()["UdpOutDatagrams"]
    for i in (63, 0, 20):
        wait_for(lambda: echoes(i), 20, f"one more echo of member {i}")
    assert net.a.counters()["UdpOutDatagrams"] == before, look_at(net, pids[0])
    program.stop()


@pytest.mark.parametrize("killed", [0, 2], ids=["the first", "a further one"])
def test_survivors_lose_nothing_when_one_is_killed(net, members, killed):
    """Again and again, at any moment of its streams; it comes back each time."""
    several = members(7001, 7002, 7003)
    victim = several.pop(killed)
    streams = [Stream(m, m.port) for m in several]
    pause = random.Random(17)
    for i in range(6):
        doomed = [Stream(victim, 100 * i + k) for k in range(3)]
        doomed[0].moves()
        time.sleep(pause.random() / 10)
        victim.kill()
        for s in streams:
            s.moves()
        wait_for(lambda: victim.process.pid not in flows_of(several[0]), 10, "the flows of the dead to go")
        for s in doomed:
            s.abandon()
        victim.start()
    for s in streams:
        s.stop()
    assert flows_of(several[0]) == {m.process.pid for m in (victim, *several)}
    nothing_is_lost(several[0], 3)


def test_each_can_be_killed_until_the_last_leaves_nothing(net, members):
    several = members(7001, 7002, 7003)
    for m in several[:2]:
        m.kill()
        wait_for(lambda: not several[2].passes_the_kernel(), 20, "the last one answers, past the kernel")
    nothing_is_lost(several[2], 1)
    several[2].process.stop()
    assert "xdp" not in ip("-n", net.a.name, "link", "show", net.a.dev)


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6], ids=["v4", "v6"])
def test_peers_of_a_killed_one_are_reset_by_the_others(net, members, family):
    """At once, as with kernel sockets: they say nothing, and would never hear of it."""
    members(7000)
    me, peer = net.a.ip(family), net.b.ip(family)
    app = App(net.a, True)
    with app.popen.stdin, app.popen.stdout, net.b.socket(family, socket.SOCK_STREAM) as l, contextlib.ExitStack() as stack:
        l.bind((peer, 7001))
        l.listen()
        app.do(f"import select, socket; l = socket.create_server(({me!r}, 7002), family={int(family)})")
        idle = []
        for _ in range(20):
            app.do(f"open_.append(socket.create_connection(({peer!r}, 7001)))" if idle else
                   f"open_ = [socket.create_connection(({peer!r}, 7001))]")
            idle.append(stack.enter_context(l.accept()[0]))
            c = stack.enter_context(net.b.socket(family, socket.SOCK_STREAM))
            c.connect((me, 7002))
            app.do("open_.append(l.accept()[0])")
            idle.append(c)
        c = stack.enter_context(net.b.socket(family, socket.SOCK_STREAM))
        c.connect((me, 7002))
        idle.append(c)  # which nobody accepts
        assert app.do("len(select.select([l], [], [], 10)[0])") == 1
        app.popen.kill()
        app.popen.wait()
        told = []
        for c in idle:
            c.settimeout(20 * PATIENCE)
            try:
                told.append(c.recv(1))
            except ConnectionResetError:
                told.append("reset")
        print(f"{len(idle)} peers that only listened were told: {told}")
        # The first ones, before the process had its queues, are the kernel's.
        assert set(told) <= {"reset", b""} and told.count("reset") > 35


def test_peers_are_told_by_one_who_may(net, members):
    """Of the two that stay one has laid its rights down: whichever of them sees the end first."""
    members(7000)
    for _ in range(8):
        with App(net.a, True) as powerless:
            powerless.do("import ctypes; u = udp(7003); u.setblocking(False)")
            with net.b.socket() as first:
                def comes():
                    first.sendto(b"x", (net.a.ip4, 7003))
                    return powerless.ask("u.recv(10)") == b"x"
                wait_for(comes, 10, "a datagram")
            app = App(net.a, True)
            with app.popen.stdin, app.popen.stdout, net.b.socket(kind=socket.SOCK_STREAM, timeout=20 * PATIENCE) as c:
                app.do("l = socket.create_server((ME, 7002)); l.listen(5)")
                app.start("s = l.accept()[0]")
                wait_for(lambda: any(e["formatted"]["key"]["local_port"] == 7002 for e in flow_table(app.pid) or []), 10, "the listener's flow")
                c.connect((net.a.ip4, 7002))
                app.answer()
                powerless.do("import struct; assert ctypes.CDLL(None).capset(struct.pack('Ii', 0x20080522, 0), bytes(24)) == 0")
                app.popen.kill()
                app.popen.wait()
                with pytest.raises(ConnectionResetError):
                    c.recv(1)


def test_what_one_had_not_read_comes_back(net, members):
    first, second = members(7001, 7002)
    stop(second.process.pid)
    with net.b.socket() as peer:
        for i in range(5000):
            peer.sendto(b"unread", second.at)
    wait_for(lambda: not first.passes_the_kernel(), 20, "who reads nothing has not taken what the others need")
    second.kill()
    nothing_is_lost(first, 1)


@pytest.mark.parametrize("which", ["pool", "port"])
def test_who_is_killed_with_a_lock_stops_nobody(net, members, which):
    first, second = members(7001, 7002)
    look(second, which)
    streams = [Stream(m, m.port) for m in (first, second)]
    for s in streams:
        s.moves()
    for s in streams:
        s.stop()
    nothing_is_lost(first, 2)


# Another user with all that root may do.
OTHER_USER = """
head, caps = struct.pack('Ii', 0x20080522, 0), ctypes.create_string_buffer(24)
call('capget', head, caps)
os.seteuid(65534)
call('capset', head, caps)
"""


def test_a_process_of_another_user_stays_with_the_kernel(net, members):
    first, = members(7001)
    with App(net.a, True, env={"VMA_TRACELEVEL": "WARN"}) as other:
        other.do(OTHER_USER)
        other.do("u = udp(7002)")
        with net.b.socket() as peer:
            for _ in range(2):
                peer.sendto(b"x", other.at(7002))
                assert other.do("u.recvfrom(10)")[0] == b"x"
        assert look(first)["members"] == 1
        assert [f"belongs to process {first.process.pid}: sockets stay" in line for line in other.text.splitlines()] == [True], other.text


BECOME_33 = "os.setgroups([]); os.setgid(33); os.setuid(33)"
BECOME_33_BY_SETREUID = "os.setgroups([]); os.setgid(33); os.seteuid(33); os.setreuid(33, -1)"
# There is no memory for a copy of the packets.
BECOME_33_IN_NEED = f"""
import resource
size = int(open('/proc/self/statm').read().split()[0]) * 4096 + (4 << 20)
resource.setrlimit(resource.RLIMIT_AS, (size, resource.RLIM_INFINITY))
{BECOME_33}
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
"""
# Whoever is of that user may look into the process; Yama's ptrace_scope 1 wants PR_SET_PTRACER.
DUMPABLE = "ctypes.CDLL(None).prctl(4, 1); ctypes.CDLL(None).prctl(0x59616d61, -1)"


def echoed(app, peer, port, text):
    peer.sendto(text, app.at(port))
    return app.do("u.recvfrom(100)")[0] == text


@pytest.mark.parametrize("become", [BECOME_33, BECOME_33_BY_SETREUID, BECOME_33_IN_NEED], ids=["setuid", "setreuid", "no memory"])
def test_a_member_that_becomes_another_user_takes_nothing_along(net, members, become):
    """A program of its new user finds nothing of the queues that are root's; what it had open goes on."""
    first, = members(7001)
    with App(net.a, True, env={"VMA_TRACELEVEL": "WARN"}) as second, net.b.socket() as peer:
        # As everywhere: the library's own numbers stand between the two limits.
        second.do("import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))")
        second.do("u = udp(7002); l = socket.create_server((ME, 7002))")
        assert echoed(second, peer, 7002, b"before")
        wait_for(lambda: look(first)["members"] == 2, 10, "the second member")
        second.do("select.select([l], [], [], 0)")  # the first wait: it is steered
        with net.b.socket(kind=socket.SOCK_STREAM) as c:
            second.start("c, _ = l.accept(); c.recv(100)")
            c.connect(second.at(7002))
            c.sendall(b"before")
            second.answer()
            second.do(become)
            assert second.do("os.getresuid()") == (33, 33, 33)
            second.do(DUMPABLE)
            got = helper(net, "pool_thief", second.pid, 33)
            print(got)
            assert got.pop("fetched") > 0 and not any(got.values()), got
            c.sendall(b"after")
            assert second.do("c.recv(100)") == b"after"
            second.do("c.sendall(b'and back')")
            assert c.recv(100) == b"and back"
        assert echoed(second, peer, 7002, b"after")
        said = [line for line in second.text.splitlines() if "becomes user 33" in line]
        assert len(said) == 1 and "its sockets go to the kernel" in said[0], second.text
        assert ("no copy of the packets" in second.text) == (become == BECOME_33_IN_NEED), second.text
        wait_for(lambda: not first.passes_the_kernel(), 20, "the first one answers, past the kernel")
        nothing_is_lost(first, 1)


@contextlib.contextmanager
def workers(net, *ports):
    """Processes of root that listen, and have no queues yet."""
    with contextlib.ExitStack() as stack:
        several = [stack.enter_context(App(net.a, True, env={"VMA_TRACELEVEL": "WARN"})) for _ in ports]
        for app, port in zip(several, ports):
            app.do(f"l = socket.create_server((ME, {port}))")
        yield several


def serves(net, app, port):
    """A connection that the kernel of net.a knows nothing of."""
    app.do("select.select([l], [], [], 0)")  # the first wait: it is steered
    with net.a.tcp_bypassed(), net.b.socket(kind=socket.SOCK_STREAM) as c:
        app.start("c, _ = l.accept(); c.sendall(c.recv(100))")
        c.connect(app.at(port))
        c.sendall(b"question")
        app.answer()
        assert c.recv(100) == b"question"


def test_processes_that_become_another_user_together_share_the_queues(net):
    """As a server's workers do; root's processes have no part in it."""
    with workers(net, 7001, 7002) as several, App(net.a, True, env={"VMA_TRACELEVEL": "WARN"}) as roots, net.b.socket() as peer:
        for app in several:
            app.start(BECOME_33)
        for app in several:
            app.answer()
        for app, port in zip(several, (7001, 7002)):
            serves(net, app, port)
            assert "go to the kernel" not in app.text and "stay with the kernel" not in app.text, app.text
        roots.do("u = udp(7003)")
        assert echoed(roots, peer, 7003, b"root's")
        assert "sockets stay with the kernel" in roots.text
        assert flows_of_pid(several[0].pid) == {app.pid for app in several}
        assert look_at(net, several[0].pid)["members"] == 2


# Every thread's setuid() fails from now on, with EPERM: a seccomp filter.
REFUSE_SETUID = SECCOMP + "seccomp(105, 0x50001, flags=1)\n"


def test_who_fails_to_become_another_user_leaves_those_who_have(net):
    with workers(net, 7001, 7002) as (first, second):
        first.do(BECOME_33)
        second.do(REFUSE_SETUID)
        assert second.ask(BECOME_33) == ("OSError", "EPERM")
        assert second.do("os.getresuid()") == (0, 0, 0)
        assert "user 0: its sockets go to the kernel" in second.text
        serves(net, first, 7001)
        wait_for(lambda: look_at(net, first.pid)["members"] == 1, 10, "the second member to leave")


def test_who_becomes_another_user_alone_keeps_its_queues_for_itself(net, members):
    with App(net.a, True, env={"VMA_TRACELEVEL": "WARN"}) as first, net.b.socket() as peer:
        first.do("u = udp(7001)")
        assert echoed(first, peer, 7001, b"before")
        first.do(BECOME_33)
        with net.a.bypassed():
            assert echoed(first, peer, 7001, b"after")
        with App(net.a, True, env={"VMA_TRACELEVEL": "WARN"}) as second:
            second.do("u = udp(7002)")
            assert echoed(second, peer, 7002, b"x")
            assert f"belongs to process {first.pid}: sockets stay" in second.text
        assert look_at(net, first.pid)["members"] == 1
        assert "sockets go to the kernel" not in first.text


def resident(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1])


@pytest.mark.no_sanitize  # whose own memory is larger
def test_another_idle_member_costs_little(net, members):
    first, = members(7001)
    with App(net.a, True) as second:
        second.do("l = socket.create_server(('127.0.0.1', 7009)); l.close()")  # the library has started
        before = resident(second.pid)
        second.do("u = udp(7002)")
        with net.b.socket() as peer:
            peer.sendto(b"x", second.at(7002))
            second.do("u.recvfrom(10)")
        wait_for(lambda: look(first)["members"] == 2, 10, "the second member")
        print(f"{resident(second.pid) - before} KiB")
        assert resident(second.pid) - before <= 1024
