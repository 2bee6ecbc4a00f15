# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What an administrator has set for the host's TCP holds for the library's, too. The kernel's sockets in the same place.

    net.a  a server that does not accept [ veth-a ] ---- [ veth-b ]  kernel sockets of the test  net.b
"""

import contextlib
import fcntl
import socket
import struct
import termios

import pytest

from netns import wait_for
from test_tcp_exit_wire import Wire

SERVER = """
import select, socket, sys
l = socket.socket()
l.bind((sys.argv[1], 7000))
l.listen(int(sys.argv[2]))
select.select([l], [], [], 0.01)
print("listens", flush=True)
sys.stdin.readline()
"""

# A byte in each, which a connection that waits for accept() acknowledges.
CLIENT = """
import fcntl, select, socket, struct, sys, time
import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))
SIOCOUTQ = 0x5411
def unacknowledged(c):
    return struct.unpack("i", fcntl.ioctl(c, SIOCOUTQ, bytes(4)))[0]
def some(n):
    begun = [socket.socket() for _ in range(n)]
    for c in begun:
        c.setblocking(False)
        c.connect_ex((sys.argv[1], 7000))
    for c in begun:
        p = select.poll()
        p.register(c, select.POLLOUT)
        p.poll(20000)
        c.send(b"x")
    return begun
all = []
while len(all) < int(sys.argv[2]): all += some(min(300, int(sys.argv[2]) - len(all)))
while any(map(unacknowledged, all)): time.sleep(0.01)
more = "nothing more"
if int(sys.argv[3]):
    c = socket.socket()
    c.settimeout(0.5)
    try:
        c.connect((sys.argv[1], 7000))
        c.send(b"x")
        time.sleep(0.5)
        more = "no ACK" if unacknowledged(c) else "an ACK"
    except TimeoutError:
        more = "no connection"
print(f"{len(all)} sent, the next one: {more}", flush=True)
sys.stdin.readline()
"""

ours_or_not = pytest.mark.parametrize("ours", [True, False], ids=["ours", "kernel"])


@ours_or_not
@pytest.mark.parametrize("somaxconn, backlog, room", [(8, 1000, 8), (6000, 5, 5), (6000, 5000, 5000)])
def test_the_backlog_is_the_programs_and_the_hosts(net, somaxconn, backlog, room, ours):
    """As many connections, and one more, can wait to be accepted. The kernel answers further SYNs and then forgets the ACK."""
    net.neighbours(v6=False)
    net.a.run(["sysctl", "-qw", f"net.core.somaxconn={somaxconn}"])
    net.a.run(["sysctl", "-qw", f"net.ipv4.tcp_max_syn_backlog={2 * room}"])
    server = net.a.python(SERVER, ours, [net.a.ip4, backlog], stdin=-1)
    server.wait_text("^listens$")
    if ours:
        net.a.wait_steered(7000, "tcp", 20)
    # So many that a fixed limit of some thousand shows.
    client = net.b.python(CLIENT, False, [net.a.ip4, min(room + 1, 4200), int(room < 4200)])
    said = client.wait_text(r"^(\d+) sent, the next one: (.*)$", 60)
    assert int(said[1]) == min(room + 1, 4200)
    assert said[2] in (("nothing more",) if room >= 4200 else ("no connection", "no ACK")), client.text


def acknowledged(c):
    return not struct.unpack("i", fcntl.ioctl(c, termios.TIOCOUTQ, bytes(4)))[0]


@ours_or_not
@pytest.mark.parametrize("aborts", [0, 1])
def test_a_full_queue_resets_whose_handshake_ends_if_the_host_says_so(net, aborts, ours):
    """net.ipv4.tcp_abort_on_overflow. The queue is filled when the handshake has begun: a SYN would not be answered any more."""
    net.neighbours()
    net.b.run(["sysctl", "-qw", f"net.ipv4.tcp_abort_on_overflow={aborts}"])
    server = net.b.python(SERVER, ours, [net.b.ip4, 1], stdin=-1)
    server.wait_text("^listens$")
    if ours:
        net.b.wait_steered(7000, "tcp", 20)
    with contextlib.closing(Wire(net, "4")) as wire, contextlib.ExitStack() as clients:
        wire.port, wire.iss = 7000, 0
        wire.send("S", 0)
        wire.iss = wire.expect("SA")[0]
        for _ in range(2):
            c = clients.enter_context(net.a.socket(kind=socket.SOCK_STREAM, timeout=20))
            c.connect((net.b.ip4, 7000))
            c.send(b"x")
            wait_for(lambda c=c: acknowledged(c), 20, "one that waits for accept()")
        wire.send("A", 1)
        if aborts:
            wire.expect("R", seq=1)
        else:  # it is taken for lost, and our SYN|ACK comes again
            wire.expect("SA", seq=0)


NOT_SENT = """
import fcntl, select, socket, struct, sys, time
TCP_NOTSENT_LOWAT = 25
c = socket.create_connection((sys.argv[1], 7000))
c.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
c.setblocking(False)
def queued(request):
    return struct.unpack("i", fcntl.ioctl(c, request, bytes(4)))[0]
def unsent(): return queued(0x894b)
def writable():
    p = select.poll()
    p.register(c, select.POLLOUT)
    return bool(p.poll(0))
# Until the peer's window is shut: all that has left is acknowledged, and there is more.
while True:
    try: c.send(bytes(10000))
    except BlockingIOError:
        if unsent() and queued(0x5411) == unsent(): break
        time.sleep(0.01)
said = [unsent(), writable()]
for value in (1 << 30, 0):
    c.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, value)
    said.append(writable())
print("says:", *said, flush=True)
sys.stdin.readline()
"""


@ours_or_not
@pytest.mark.parametrize("lowat", [20000, 0xffffffff])
def test_what_is_not_sent_is_bounded_as_the_host_says(net, lowat, ours):
    """net.ipv4.tcp_notsent_lowat, of whoever has not set TCP_NOTSENT_LOWAT; it is asked by send() and by poll()."""
    net.neighbours(v6=False)
    net.a.run(["sysctl", "-qw", f"net.ipv4.tcp_notsent_lowat={lowat}"])
    with net.b.socket(kind=socket.SOCK_STREAM, timeout=20) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 20000)
        listener.bind((net.b.ip4, 7000))
        listener.listen(1)
        program = net.a.python(NOT_SENT, ours, [net.b.ip4], stdin=-1)
        with listener.accept()[0]:
            said = program.wait_text(r"^says: (\d+) (\w+) (\w+) (\w+)$", 60)
    unsent, can = int(said[1]), [word == "True" for word in said.groups()[1:]]
    print(f"{unsent} bytes are not sent; writable, with a bound of its own, without: {can}")
    if lowat == 0xffffffff:
        assert unsent > 100000 and not can[0]
    else:
        # The kernel looks before each of its buffers, and fills that.
        assert lowat / 2 <= unsent < lowat + 70000
        assert can == [False, True, False]
