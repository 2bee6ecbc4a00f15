# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""varnish: a manager, and a child that serves the listener which the manager opened. Its threads fetch from a plain server."""

from serving import document, ended, fetched, no_kernel_connections, start


def test_a_cache_before_a_server(net):
    data = document(net)
    net.b.popen(["/usr/bin/python3", "-m", "http.server", "-b", net.b.ip4, "-d", net.tmp / "www", 8081])
    net.b.wait_bound(8081, "tcp")
    server = start(net, ["varnishd", "-F", "-j", "none", "-a", f"{net.a.ip4}:8080", "-b", f"{net.b.ip4}:8081", "-n", net.tmp / "work",
                         "-s", "malloc,20m"], 8080)
    with no_kernel_connections(net.a, 1000):
        for _ in range(5):
            assert fetched(net, f"http://{net.a.ip4}:8080/file") == data
    ended(server)
