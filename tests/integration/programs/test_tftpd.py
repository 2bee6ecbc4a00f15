# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""tftpd: a process for each file, which connects a socket of its own. What was bound before fork() is the
kernel's in the child (limits.md): what is proved is that each file arrives."""

from serving import document, start


def test_a_file(net):
    data = document(net, 200_000)
    server = start(net, ["in.tftpd", "-L", "-u", "root", "-a", f"{net.a.ip4}:6969", "-s", net.tmp / "www"], 6969, "udp")
    for _ in range(3):
        got = net.tmp / "got"
        got.unlink(missing_ok=True)
        net.b.run(["tftp", "-m", "binary", net.a.ip4, "6969", "-c", "get", "file", got])
        assert got.read_bytes() == data
    server.stop()
