# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""OpenBSD's nc: one connection, whose end ends the program; and datagrams."""

from serving import OURS, document, no_kernel_connections, no_kernel_datagrams


def test_a_file(net):
    data = document(net)
    net.b.popen(["sh", "-c", f"nc -l {net.b.ip4} 7000 >{net.tmp}/got"])
    net.b.wait_bound(7000, "tcp")
    with no_kernel_connections(net.a, 1000), open(net.tmp / "www" / "file") as stdin:
        net.a.run(["nc", "-N", net.b.ip4, "7000"], preload=OURS, stdin=stdin)
    assert (net.tmp / "got").read_bytes() == data


def test_datagrams(net):
    with net.b.socket() as s:
        s.bind((net.b.ip4, 7000))
        with no_kernel_datagrams(net):
            net.a.run(["sh", "-c", f"printf word | nc -u -q 0 -w 1 {net.b.ip4} 7000"], preload=OURS)
        assert s.recv(99) == b"word"
