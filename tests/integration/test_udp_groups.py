# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Which of several sockets on one port gets a packet: the kernel's order of preference, and its SO_REUSEPORT groups.

Sets of sockets are drawn from seeds: family, address, device, options, order. Who gets something must be who gets it with
kernel sockets; which member of a group gets which packet is a matter of each one's hash.
"""

import collections
import contextlib
import random
import socket
import subprocess

from differential import App, differential
from netns import wait_for

PACKETS = 32
FIRST_PORT = 9000
HELPERS = """
REUSE = {"port": (socket.SO_REUSEPORT,), "addr": (socket.SO_REUSEADDR,), "both": (socket.SO_REUSEPORT, socket.SO_REUSEADDR)}
def named(kind, family, local, device, reuse):
    s = socket.socket(family, kind)
    for o in REUSE[reuse]: s.setsockopt(socket.SOL_SOCKET, o, 1)
    if family == socket.AF_INET6: s.setsockopt(41, socket.IPV6_V6ONLY, 0)
    if device: s.setsockopt(socket.SOL_SOCKET, 25, device.encode() + b"\\0")
    try:
        s.bind((local, 7000))
        if kind == socket.SOCK_STREAM: s.listen(64)
    except OSError as e:
        s.close()
        return errno.errorcode[e.errno]
    s.setblocking(False)
    return s
def take(s):
    if isinstance(s, str): return 0
    n = 0
    try:
        while True:
            if s.type == socket.SOCK_STREAM: s.accept()[0].close()
            else: s.recv(100)
            n += 1
    except BlockingIOError:
        return n
def who(socks, expected):
    end, got = time.monotonic() + 10, [0] * len(socks)
    while sum(got) < expected and time.monotonic() < end:
        got = [n + take(s) for n, s in zip(got, socks)]
    return [s if isinstance(s, str) else n > 0 for n, s in zip(got, socks)]
def done(socks):
    for s in socks:
        if not isinstance(s, str): s.close()
"""


def drawn(seed, tcp):
    """[(family, address, device or None, options, connected)] in the order in which they are bound."""
    rnd = random.Random(seed)
    socks = []
    connected = -1 if tcp else rnd.randrange(8)  # one at most: which of two of the same peer it is changed with Linux 6.13
    for i in range(rnd.randrange(2, 6)):
        family = rnd.choice([socket.AF_INET, socket.AF_INET, socket.AF_INET6])
        me, any_ = ("10.77.0.1", "0.0.0.0") if family == socket.AF_INET else ("::ffff:10.77.0.1", "::")
        # A group of which a member is connected does not end the kernel's search (reuseport_has_conns): not done here.
        options = "port" if tcp else "addr" if i == connected else rnd.choice(["port", "port", "addr", "both"])
        socks.append((family, rnd.choice([me, any_]), rnd.choice([None, "veth-a"]), options, i == connected))
    return socks


def make(app, kind, socks):
    app.do("S = []")
    for family, local, device, reuse, connected in socks:
        app.do(f"S.append(named({int(kind)}, {int(family)}, {local!r}, {device!r}, {reuse!r}))")
        if connected:
            peer = "10.77.0.2" if family == socket.AF_INET else "::ffff:10.77.0.2"
            app.do(f"isinstance(S[-1], str) or S[-1].connect(({peer!r}, {FIRST_PORT + 1}))")


def test_datagrams_go_to_the_kernel_s_choice(unet):
    unet.neighbours()
    peers = []
    for i in range(PACKETS):
        peers.append(unet.b.socket())
        peers[-1].bind((unet.b.ip4, FIRST_PORT + i))

    def steps(app, peer):
        app.do(HELPERS)
        for seed in range(40):
            socks = drawn(seed, False)
            make(app, socket.SOCK_DGRAM, socks)
            app.do("[take(s) for s in S]")  # its first use gives a socket its flow
            for p in peers:
                p.sendto(b"x", (unet.a.ip4, 7000))
            # A connected socket alone takes no more than its peer's.
            expected = PACKETS if any(not s[4] for s in socks) else 1
            app.note(f"seed {seed}: {[(s[0].name, *s[1:]) for s in socks]}", app.do(f"who(S, {expected})", 15))
            app.do("done(S)")

    differential(unet, "4", steps)
    for p in peers:
        p.close()


def test_connections_go_to_the_kernel_s_choice(unet):
    unet.neighbours()

    def steps(app, peer):
        app.do(HELPERS)
        for seed in range(12):
            socks = drawn(1000 + seed, True)
            make(app, socket.SOCK_STREAM, socks)
            app.do("[await_ready(s, timeout=0.001) for s in S if not isinstance(s, str)]")
            made = []
            for _ in range(PACKETS):
                made.append(unet.b.socket(kind=socket.SOCK_STREAM))
                made[-1].connect((unet.a.ip4, 7000))
            app.note(f"seed {seed}: {[(s[0].name, *s[1:]) for s in socks]}", app.do(f"who(S, {PACKETS})", 15))
            for c in made:
                c.close()
            app.do("done(S)")

    differential(unet, "4", steps)


@contextlib.contextmanager
def calls_of(app, path):
    """A Counter of the system calls that the program's thread makes meanwhile; what it asks the kernel who has a port is "questions"."""
    calls = collections.Counter()
    strace = subprocess.Popen(["strace", "-e", "trace=!getsockopt,rt_sigprocmask", "-o", path, "-p", str(app.pid)], stderr=subprocess.PIPE)
    with strace.stderr:
        try:
            assert b"attached" in strace.stderr.readline()
            yield calls
        finally:
            strace.terminate()
            strace.wait()
    for line in path.read_text().splitlines():
        if "NETLINK_SOCK_DIAG" in line:
            calls["questions"] += 1
        elif "AF_NETLINK" not in line:
            calls[line.split("(")[0]] += 1


def test_many_sockets_bind_to_one_port(unet):
    """Sixteen hundred are served as two are. What bind() asks of the kernel does not grow with their number, nor what the first wait asks."""
    unet.neighbours()
    with App(unet.a, True, "4") as app:
        app.do("import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))")
        app.do("S = []\ndef bind_all(n): S.extend(udp(7000, ANY, (socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)) for i in range(n))")
        app.do("""
p = select.poll()
def wait_on(socks):
    for s in socks: s.setblocking(False); p.register(s, select.POLLIN)
    p.poll(0)
""")
        app.do("bind_all(10); wait_on(S)", 60)  # the library begins, the ring is opened
        with calls_of(app, unet.tmp / "few") as few:
            app.do("bind_all(90)", 60)
        with calls_of(app, unet.tmp / "many") as many:
            app.do("bind_all(1500)", 120)
        print(f"90 sockets: {dict(few)}\n1500 more: {dict(many)}")
        assert few["bind"] == 90 and many["bind"] == 1500
        # Once a second this thread may ask who else has the port, and more; nothing is asked for each socket that was not before.
        assert not [name for name in many if many[name] > few[name] * 1500 / 90 + 400]
        with calls_of(app, unet.tmp / "wait") as wait:
            app.do("wait_on(S[10:])", 120)
        print(f"the first wait for all of them: {dict(wait)}")
        assert wait["ioctl"] == 1590, "each of them is served"
        assert wait["questions"] < 400, "who else has the port is asked once a second, not for each socket"
        assert wait["bpf"] == 0, "the rule that steers the first steers all"
        with unet.b.socket() as peer:
            def comes():
                before = unet.a.counters()["UdpInDatagrams"]
                peer.sendto(b"x", (unet.a.ip4, 7000))
                app.do("[os.read(fd, 10) for fd, _ in p.poll(3000)]")
                return unet.a.counters()["UdpInDatagrams"] == before

            # For more than one tick: nobody takes them for another process's later, either.
            for _ in range(5):
                wait_for(comes, what="a datagram to one of them past the kernel")
                app.do("time.sleep(0.3)")
            assert comes()


def test_another_process_on_the_port_is_noticed(unet):
    """What was asked once is asked again: while another process has a socket on the port, the kernel distributes."""
    unet.neighbours()
    with App(unet.a, True, "4") as app, unet.b.socket() as peer:
        app.do("S = [udp(7000, ANY, (socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)) for i in range(3)]")
        app.do("for s in S: s.setblocking(False)")

        def past_the_kernel():
            before = unet.a.counters()["UdpInDatagrams"]
            peer.sendto(b"x", (unet.a.ip4, 7000))
            app.do("r = select.select(S, [], [], 0.05)[0]; [s.recv(10) for s in r]")
            return app.do("bool(r)") and unet.a.counters()["UdpInDatagrams"] == before

        wait_for(past_the_kernel, what="the three to be offloaded")
        with unet.a.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            other.bind(("", 7000))
            wait_for(lambda: not past_the_kernel(), what="the other socket to be noticed")
        wait_for(past_the_kernel, what="the port to be ours alone again")
