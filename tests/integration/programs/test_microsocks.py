# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""microsocks: a SOCKS5 proxy of threads that poll two sockets."""

from serving import document, ended, fetched, no_kernel_connections, start


def test_proxy(net):
    data = document(net)
    net.b.popen(["/usr/bin/python3", "-m", "http.server", "-b", net.b.ip4, "-d", net.tmp / "www", 8081])
    net.b.wait_bound(8081, "tcp")
    server = start(net, ["microsocks", "-i", net.a.ip4, "-p", "1080"], 1080)
    with no_kernel_connections(net.a, 1000):
        for _ in range(3):
            assert fetched(net, f"http://{net.b.ip4}:8081/file", "--socks5", f"{net.a.ip4}:1080") == data
    ended(server, status=-15)
