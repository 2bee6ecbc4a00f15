# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""memcached over UDP."""

from serving import ended, no_kernel_datagrams, start


def test_values(net):
    server = start(net, ["memcached", "-u", "root", "-l", net.a.ip4, "-p", "11211", "-U", "11211", "-t", "1"], 11211, "udp")

    def say(text):
        s.sendto(b"\0\1\0\0\0\1\0\0" + text, (net.a.ip4, 11211))
        return s.recv(2000)[8:]

    with net.b.socket() as s:
        assert say(b"set k 0 0 5\r\nvalue\r\n") == b"STORED\r\n"
        with no_kernel_datagrams(net, 2):
            for _ in range(100):
                assert say(b"get k\r\n") == b"VALUE k 0 5\r\nvalue\r\nEND\r\n"
    ended(server)
