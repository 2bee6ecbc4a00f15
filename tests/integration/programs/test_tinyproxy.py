# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""tinyproxy: a thread for each connection."""

from serving import document, ended, fetched, no_kernel_connections, start


def test_proxy(net):
    data = document(net)
    net.b.popen(["/usr/bin/python3", "-m", "http.server", "-b", net.b.ip4, "-d", net.tmp / "www", 8081])
    net.b.wait_bound(8081, "tcp")
    conf = net.tmp / "conf"
    conf.write_text(f'Port 8888\nListen {net.a.ip4}\nTimeout 20\nLogFile "{net.tmp}/log"\nUser root\nGroup root\n')
    server = start(net, ["tinyproxy", "-d", "-c", conf], 8888)
    with no_kernel_connections(net.a, 1000):
        for _ in range(3):
            assert fetched(net, f"http://{net.b.ip4}:8081/file", "-x", f"http://{net.a.ip4}:8888") == data
    ended(server)
