# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""UDP under load: many threads, many sockets, many signals, full rate, and death in the middle of it."""

import signal
import struct
import time

import pytest

from differential import FAMILIES, PEER_PORT, App
from netns import PATIENCE, stopped, wait_for

families = pytest.mark.parametrize("family", FAMILIES)
TO = f"(PEER, {PEER_PORT})"


def test_a_flood_of_signals_harms_nothing(unet):
    """Handlers that send and receive on the socket, a thousand times a second, in the middle of everything."""
    with App(unet.a, True, "4") as app:
        peer = app.peer_socket()
        app.do("s = udp(7000); s.setsockopt(socket.SOL_SOCKET, 33, 8 << 20); ready(s)")  # room for all of them
        app.do(f"""
seen = [0]; got = []
def handler(n, f):
    seen[0] += 1
    try:
        s.sendto(b'%d' % len(got), {TO})
        s.recv(100, socket.MSG_DONTWAIT | socket.MSG_PEEK)
    except BlockingIOError: pass
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
""")
        peer.settimeout(0)
        app.start("([got.append(s.recv(100)) for _ in range(3000)], got)[1]")
        end = time.monotonic() + 15 * PATIENCE
        sent = read = 0
        while sent < 3000 and time.monotonic() < end:
            if sent - read < 1000:  # the ring has room for 2,048
                peer.sendto(b"%d" % sent, app.at(7000))
                sent += 1
            else:
                time.sleep(0.003)
            try:
                while True:
                    read = max(read, int(peer.recv(100)))
            except BlockingIOError:
                pass
            if sent % 50 == 0:
                time.sleep(0.003)
        assert app.answer() == [b"%d" % i for i in range(3000)]
        app.do("signal.setitimer(signal.ITIMER_REAL, 0)")
        assert app.do("seen[0]") > 20
        peer.close()


@pytest.mark.parametrize("sockets", [1, 8])
@families
def test_eight_threads(unet, family, sockets):
    """Eight threads echo on one socket or on eight; every datagram comes back once and whole."""
    with App(unet.a, True, family) as app:
        peer = app.peer_socket()
        app.do(f"""
socks = [udp(7000 + i) for i in range({sockets})]
stop = False
errors = []
counts = [0] * 8
def echo(i):
    s = socks[i % {sockets}]
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, tv(0.2))
    while not stop:
        try: data, address = s.recvfrom(2000)
        except BlockingIOError: continue
        n, size = struct.unpack('II', data[:8])
        if len(data) != size or data[8:] != bytes([n & 255]) * (size - 8): errors.append((n, size, len(data)))
        counts[i] += 1
        s.sendto(data, address)
threads = [threading.Thread(target=echo, args=(i,)) for i in range(8)]
for t in threads: t.start()
""")
        total, window, back = 4000, 64, set()
        sent = 0
        end = time.monotonic() + 20 * PATIENCE
        while len(back) < total:
            assert time.monotonic() < end, f"{len(back)} of {sent} came back"
            while sent < total and sent - len(back) < window:
                size = 8 + sent * 37 % 1400
                peer.sendto(struct.pack("II", sent, size) + bytes([sent & 255]) * (size - 8),
                            app.at(7000 + sent % sockets))
                sent += 1
            data = peer.recv(2000)
            n, size = struct.unpack("II", data[:8])
            assert len(data) == size and data[8:] == bytes([n & 255]) * (size - 8), f"datagram {n} is damaged"
            assert n not in back, f"datagram {n} came twice"
            back.add(n)
        app.do("stop = True\nfor t in threads: t.join()")
        assert app.do("errors") == []
        assert app.do("sum(counts)") == total
        peer.close()


def test_many_sockets_with_full_queues(unet):
    """500 sockets that nobody reads hold what they may; the ring has room for the one that is read."""
    with App(unet.a, True, "4") as app:
        peer = app.peer_socket()
        app.do("r = [udp(10000 + i) for i in range(500)]; s = udp(7000)", timeout=60)
        app.do("""
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, tv(0.2))
def arrived():
    got, flags = [], 0
    try:
        while True: got.append(s.recv(20, flags)); flags = socket.MSG_DONTWAIT
    except BlockingIOError: return got
""")

        def live(text):
            # The device's queue may overflow while nobody reads (the kernel's would not); it must not stay full.
            def comes():
                peer.sendto(text, app.at(7000))
                return text in app.do("arrived()")
            wait_for(comes, what=f"{text}: the ring is starved")

        for i in range(500):
            for k in range(40):
                peer.sendto(struct.pack("II", i, k) + bytes(1200), app.at(10000 + i))
            if i % 10 == 0:
                live(b"live %d" % i)
        for i in range(100):
            live(b"%d" % i)
        app.do("""
counts = []; bad = []
for i, x in enumerate(r):
    n = 0
    try:
        while True:
            d = x.recv(2000, socket.MSG_DONTWAIT)
            if struct.unpack('II', d[:8])[0] != i or len(d) != 1208: bad.append((i, n))
            n += 1
    except BlockingIOError: pass
    counts.append(n)
""", timeout=60)
        assert app.do("bad") == []
        assert app.do("min(counts)") >= 1, "each socket has got something"
        app.do("for x in r: x.close()", timeout=30)
        live(b"end")
        peer.close()


@families
def test_killed_at_full_rate_leaves_the_port_to_the_kernel(unet, family):
    """kill -9 of a loaded server: a kernel program on its port works right after, and a new one is offloaded again."""
    app = App(unet.a, True, family)
    app.do("s = udp(7000, ANY)")
    peer = app.peer_socket()
    blaster = unet.b.python(f"""
import socket
s = socket.socket(socket.{'AF_INET6' if family == '6' else 'AF_INET'}, socket.SOCK_DGRAM)
while True:
    try: s.sendto(b'flood', {app.at(7000)!r})
    except OSError: pass
""")
    app.start("(lambda: [s.recv(10) for _ in iter(int, 1)])()")
    wait_for(lambda: unet.a.interface_packets()[0] > 2000, 5, "load")
    app.popen.kill()
    app.popen.wait()
    app.popen.stdin.close()
    app.popen.stdout.close()
    with App(unet.a, False, family) as kernel:
        kernel.do("s = udp(7000, ANY)")
        kernel.do("s.settimeout(20)")
        assert kernel.do("s.recv(10)") == b"flood"
        blaster.stop()
        kernel.do("s.close(); s = udp(7000, ANY); s.settimeout(20)")
        peer.sendto(b"mine", kernel.at(7000))
        end = time.monotonic() + 10
        while kernel.do("s.recv(10)") != b"mine":
            assert time.monotonic() < end
        assert kernel.do(f"s.sendto(b'answer', {TO})") == 6
        assert peer.recv(10) == b"answer"
    with App(unet.a, True, family) as again:
        again.do("s = udp(7000, ANY)")
        peer.sendto(b"x", again.at(7000))
        assert again.do("s.recv(10)") == b"x"
        again.do(f"s.sendto(b'answer', {TO})")
        peer.recv(10)

        def offloaded():
            """The killed one's queue is free when the kernel has closed it, some time after its end."""
            before = unet.a.counters()
            peer.sendto(b"x", again.at(7000))
            assert again.do("s.recv(10)") == b"x"
            after = unet.a.counters()
            return all(before[n] == after[n] for n in ("UdpInDatagrams", "Udp6InDatagrams"))

        wait_for(offloaded, 10, "the next program has the queue")
    peer.close()


def test_killed_while_it_opens_leaves_the_interface_to_the_next(unet):
    """kill -9 at moments all over the opening of the ring, right after the program is attached, too: the next one is offloaded."""
    source = "import socket; s = socket.socket(2, 2); s.bind(('0.0.0.0', 7000)); print('begins', flush=True); s.recv(10)"
    for i in range(24):
        p = unet.a.python(source, True)
        p.wait_text("begins")
        time.sleep(0.002 * i)  # each another moment: whatever it meets must be right
        p.kill(signal.SIGKILL)
        p.wait()
    with App(unet.a, True) as again:
        peer = again.peer_socket()
        again.do("s = udp(7000, ANY)")

        def offloaded():
            before = unet.a.counters()["UdpInDatagrams"]
            peer.sendto(b"x", again.at(7000))
            assert again.do("s.recv(10)") == b"x"
            return unet.a.counters()["UdpInDatagrams"] == before

        wait_for(offloaded, 10, "the next program has the queue")
        peer.close()


@families
def test_a_burst_that_found_no_room_leaves_nothing_behind(unet, family):
    """The kernel has copied it into a chunk, finds the ring full and takes the chunk for the next frame."""
    with App(unet.a, True, family) as app, app.peer_socket() as peer:
        app.do("s = udp(7000); s.setsockopt(socket.SOL_SOCKET, 33, 8 << 20); ready(s)")
        app.do("lengths = lambda: [len(d) for d in iter(take, None)]")
        app.do("take = lambda: s.recv(100, socket.MSG_DONTWAIT) if select.select([s], [], [], 0.2)[0] else None")
        with stopped(app.pid):
            peer.setsockopt(17, 103, 9)
            for _ in range(8000):
                peer.sendto(bytes(63), app.at(7000))
            peer.setsockopt(17, 103, 0)
        got = app.do("lengths()", timeout=30)
        print(f"{len(got)} of {7 * 8000} have found room")
        assert set(got) == {9} and len(got) < 7 * 8000
        for _ in range(30):
            for _ in range(100):
                peer.sendto(bytes(60), app.at(7000))
            assert app.do("[len(s.recv(100)) for _ in range(100)]") == 100 * [60]


@families
def test_full_rate_in_all_sizes(unet, family):
    """Single datagrams, fragments and GSO bursts at full rate for two seconds: losses are allowed, damage and doubles are not."""
    with App(unet.a, True, family) as app:
        app.do("s = udp(7000); s.setsockopt(socket.SOL_SOCKET, 33, 8 << 20); s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, tv(0.5))")
        sender = unet.b.python(f"""
import socket, struct, time, random
s = socket.socket(socket.{'AF_INET6' if family == '6' else 'AF_INET'}, socket.SOCK_DGRAM)
to = {app.at(7000)!r}
r = random.Random(1)
def make(n, size): return struct.pack("II", n, size) + bytes([n & 255]) * (size - 8)
n, end = 0, time.monotonic() + 2
while time.monotonic() < end or n < 30000:
    size = r.choice([8, 9, 60, 200, 700, 1400, 1452, 1452, 3000, 20000])
    try:
        if r.random() < 0.2 and size <= 1452:
            k = r.randrange(2, 9)
            s.setsockopt(17, 103, size)
            try:
                s.sendto(b"".join(make(n + i, size) for i in range(k)), to)
            finally:  # else the next datagram would be cut as well
                s.setsockopt(17, 103, 0)
            n += k
        else:
            s.sendto(make(n, size), to)
            n += 1
    except OSError: pass
""")
        app.do("""
seen = set(); bad = []; total = 0
def take():
    global total
    try:
        while True:
            d = s.recv(65535)
            n, size = struct.unpack('II', d[:8])
            if len(d) != size or d[8:] != bytes([n & 255]) * (size - 8): bad.append((n, size, len(d)))
            if n in seen: bad.append((n, 'twice'))
            seen.add(n); total += 1
    except BlockingIOError: pass
import time
end = time.monotonic() + 15
while total <= 2000 and time.monotonic() < end: take()
""", timeout=40)
        assert sender.wait() == 0, sender.text
        assert app.do("bad[:5]") == []
        assert app.do("total") > 2000
        assert app.do("len({n for n in seen if n}) > 0")
