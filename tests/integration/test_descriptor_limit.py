# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A program that sets RLIMIT_NOFILE to 0, or to 1, when it has opened all that it needs: a sandbox's practice.

poll() refuses more entries than that, and the library's own waits have some more than the program's calls. Nothing else is refused.

    net.a  the program [ veth-a ] ---- [ veth-b ]  kernel sockets of the test  net.b
"""

import os
import socket

import pytest

PROGRAM = """
import errno, os, resource, select, socket, sys
how, limit, me = sys.argv[1], int(sys.argv[2]), sys.argv[3]
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.bind((me, 7000))
l = socket.create_server((me, 7001))
e = select.epoll()
e.register(u, select.EPOLLIN)
p = select.poll()
p.register(u, select.POLLIN)
many = select.poll()
for fd in (u.fileno(), l.fileno()): many.register(fd, select.POLLIN)
select.select([u, l], [], [], 0.01)
print("listens", flush=True)
c, _ = l.accept()
pipe = os.pipe()
waits = {
    "recv": lambda: u.recv(100),
    "recv of TCP": lambda: c.recv(100),
    "splice of TCP": lambda: os.read(pipe[0], os.splice(c.fileno(), pipe[1], 100)),
    "select": lambda: [s is u for s in select.select([u, l], [l], [], None)[0]],
    "epoll": lambda: e.poll() == [(u.fileno(), select.EPOLLIN)],
    "poll": lambda: p.poll() == [(u.fileno(), select.POLLIN)],
    "poll of two": lambda: len(many.poll()),
}
before = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
print("waits", flush=True)
try:
    said = waits[how]()
except OSError as error:
    said = errno.errorcode[error.errno]
resource.setrlimit(resource.RLIMIT_NOFILE, before)
print("said", said, flush=True)
"""
# Under a limit of 0, and of 1.
SAYS = {
    "recv": ("b'x'", "b'x'"),
    "recv of TCP": ("b'x'", "b'x'"),
    "splice of TCP": ("b'x'", "b'x'"),
    "select": (r"\[True\]", r"\[True\]"),
    "epoll": ("True", "True"),
    "poll": ("EINVAL", "True"),
    "poll of two": ("EINVAL", "EINVAL"),
}


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "kernel"])
@pytest.mark.parametrize("limit", [0, 1])
@pytest.mark.parametrize("how", SAYS)
def test_the_limit_ends_no_wait(net, how, limit, ours):
    net.neighbours(v6=False)
    if how.startswith("splice") and not hasattr(os, "splice"):
        pytest.skip("this Python has no os.splice()")
    program = net.a.python(PROGRAM, ours, [how, limit, net.a.ip4])
    program.wait_text("^listens$", 20)
    if ours:
        net.a.wait_steered(7000, "udp", 20)
    with net.b.socket(kind=socket.SOCK_STREAM) as t, net.b.socket() as u:
        t.connect((net.a.ip4, 7001))
        program.wait_text("^waits$", 20)
        if "TCP" in how:
            t.sendall(b"x")
        else:
            u.sendto(b"x", (net.a.ip4, 7000))
        program.wait_text(f"^said {SAYS[how][limit]}$", 20)
        assert program.wait() == 0, program.text
    print(f"{how} under a limit of {limit}: {SAYS[how][limit]}")
