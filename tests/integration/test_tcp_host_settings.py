# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What an administrator has set for the host's TCP holds for the library's, too. The kernel's sockets in the same place.

    net.a  a server that does not accept [ veth-a ] ---- [ veth-b ]  kernel sockets of the test  net.b
"""

import pytest

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


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "kernel"])
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
