# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What datagram sockets do in rarer places, and the kernel's in the same ones.

    net.a  the program [ veth-a ] ---- [ veth-b ]  kernel sockets of the test  net.b
"""

import socket

import pytest

from netns import ip, python_argv

PEEKS = """
import select, socket, struct, sys, fcntl, time
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.bind(("0.0.0.0", 7000))
select.select([u], [], [], 0.01)
print("bound", flush=True)
sys.stdin.readline()
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for n in range(20): own.sendto(b"x" * (100 + n), ("127.0.0.1", 7000))
time.sleep(0.1)
seen = []
for n in range(40):
    size = struct.unpack("i", fcntl.ioctl(u, 0x541b, bytes(4)))[0]  # FIONREAD
    peeked = u.recv_into(bytearray(1), 0, socket.MSG_PEEK | socket.MSG_TRUNC)
    data = u.recv(2000)
    seen.append((size, peeked, len(data)))
wrong = [s for s in seen if len(set(s)) != 1]
print("sizes", sorted(s[2] for s in seen) == [*range(100, 120), *range(1300, 1320)], "wrong", wrong, flush=True)
"""


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "kernel"])
def test_a_look_and_the_next_call_are_of_one_datagram(net, ours):
    """Some come by the wire and some by the loopback: FIONREAD, MSG_PEEK and recv() in turn."""
    net.neighbours(v6=False)
    program = net.a.python(PEEKS, ours, stdin=-1)
    program.wait_text("^bound$")
    if ours:
        net.a.wait_steered(7000, "udp", 20)
    with net.b.socket() as u:
        for n in range(20):
            u.sendto(b"y" * (1300 + n), (net.a.ip4, 7000))
    program.popen.stdin.write(b"\n")
    program.popen.stdin.flush()
    assert program.wait_text(r"^sizes (.*)$", 20)[1] == "True wrong []"


SOURCES = """
import select, socket, struct, sys
group, me, source = map(socket.inet_aton, sys.argv[1:])
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.bind(("", 7000))
u.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group + me)
select.select([u], [], [], 0.01)
print("joined", flush=True)
sys.stdin.readline()
u.setsockopt(socket.IPPROTO_IP, 39, group + me + source)  # IP_ADD_SOURCE_MEMBERSHIP
print("only one", flush=True)
while True: print("got", u.recv(100).decode(), flush=True)
"""


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "kernel"])
def test_a_source_is_named_for_a_group_that_was_joined(net, ours):
    """From then on only the named one is heard."""
    net.neighbours(v6=False)
    other = net.b.ip4.rsplit(".", 1)[0] + ".77"
    ip("-n", net.b.name, "addr", "add", f"{other}/24", "dev", net.b.dev)
    program = net.a.python(SOURCES, ours, ["239.7.7.7", net.a.ip4, net.b.ip4], stdin=-1)
    program.wait_text("^joined$")
    if ours:
        net.a.wait_steered(7000, "udp", 20)

    def send(source, text):
        with net.b.socket() as u:
            u.bind((source, 0))
            u.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(net.b.ip4))
            u.sendto(text, ("239.7.7.7", 7000))

    program.popen.stdin.write(b"\n")
    program.popen.stdin.flush()
    program.wait_text("^only one$")
    send(other, b"another's")
    send(net.b.ip4, b"the named one's")
    program.wait_text("^got the named one's$", 20)
    assert "another's" not in program.text.split("only one\n")[-1]


CALLS = """
import ctypes, os, resource, select, socket, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.bind((sys.argv[1], 7000))
select.select([u], [], [], 0.01)
# A descriptor that may be written to is ready for POLLWRBAND as well.
p = select.poll()
p.register(u, 0x200)
print("band", p.poll(1000) == [(u.fileno(), 0x200)], flush=True)
# An fd_set is 128 bytes. What stands behind it is not the set's, whatever getdtablesize() says.
room = (ctypes.c_ubyte * 8192)(*[0xff] * 8192)
ctypes.memset(room, 0, 128)
room[u.fileno() // 8] = 1 << u.fileno() % 8
class timeval(ctypes.Structure): _fields_ = [("s", ctypes.c_long), ("us", ctypes.c_long)]
limit = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(60000, limit[1]), limit[1]))
n = libc.select(libc.getdtablesize(), room, None, None, ctypes.byref(timeval(0, 10000)))
print("select", n, ctypes.get_errno(), all(b == 0xff for b in room[128:]), flush=True)
# What is left of a very long time is long.
r = (ctypes.c_ubyte * 128)()
r[0] = 1
t = timeval(2**62, 0)
a, b = os.pipe()
os.dup2(a, 0)
os.write(b, b"x")
r[u.fileno() // 8] |= 1 << u.fileno() % 8
n = libc.select(u.fileno() + 1, r, None, None, ctypes.byref(t))
print("left", n, t.s > 2**60, flush=True)
"""


# Without /proc the library cannot see which descriptors the program has.
NO_PROC = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]


@pytest.mark.parametrize("ours, before", [(True, []), (True, NO_PROC), (False, [])], ids=["ours", "ours-no-proc", "kernel"])
def test_calls_with_large_numbers(net, ours, before):
    net.neighbours(v6=False)
    program = net.a.popen([*before, *python_argv(CALLS, net.a.ip4)], ours)
    said = program.wait_text(r"^band (.*)\nselect (.*)\nleft (.*)$", 20)
    assert said.groups() == ("True", "0 0 True", "1 True"), program.text
