# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The library on Debian 12's kernel, whose AF_XDP takes no frame of several chunks (that came with 6.6)."""

import pytest

RECEIVER = """
import hashlib, socket
l = socket.create_server(("", 7300))
s, _ = l.accept()
n = 0
while d := s.recv(65536): n += len(d)
s.sendall(b"%d" % n)
"""
SENDER = """
import socket, sys
s = socket.create_connection((sys.argv[1], 7300))
s.sendall(bytes(int(sys.argv[2])))
s.shutdown(socket.SHUT_WR)
assert int(s.recv(100)) == int(sys.argv[2])
"""
ECHO = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 7301))
while True:
    d, a = s.recvfrom(65536)
    s.sendto(d, a)
"""


# What the kernel sends and gets once the program has ended: it has the connection's TIME_WAIT then.
ENDS = 20


def stream(receiver, sender, ours, size):
    there = receiver.python(RECEIVER, ours is receiver, env={"VMA_TRACELEVEL": "WARN"})
    receiver.wait_bound(7300, "tcp")
    if ours is receiver:
        receiver.wait_steered(7300, "tcp", 20)
    sender.run(["/usr/bin/python3", "-c", SENDER, receiver.ip4, size], ours is sender, env={"VMA_TRACELEVEL": "WARN"})
    assert there.wait() == 0, there.text


def test_what_a_kernel_peer_merges_is_not_lost(net):
    # In generic mode a packet of 64 KiB had no place in an XSK: 20 MB took minutes, with 1500 retransmissions.
    before = net.a.counters()["TcpRetransSegs"]
    with net.b.tcp_bypassed(ENDS):
        stream(net.b, net.a, net.b, 20_000_000)
    assert net.a.counters()["TcpRetransSegs"] - before < 100


def test_a_stream_to_a_kernel_peer(net):
    with net.b.tcp_bypassed(ENDS):
        stream(net.a, net.b, net.b, 20_000_000)


@pytest.mark.net(mtu=9000)
def test_jumbo_frames_stay_with_the_kernel_and_that_is_said(net):
    server = net.b.python(ECHO, True, env={"VMA_TRACELEVEL": "WARN"})
    net.b.wait_bound(7301)
    with net.a.socket() as s:
        for size in (1, 1400, 8900, 60000):
            s.sendto(bytes(size), (net.b.ip4, 7301))
            assert len(s.recv(65536)) == size
    assert "has no native XDP for an MTU of 9000" in server.text and "sockets stay with the kernel" in server.text
