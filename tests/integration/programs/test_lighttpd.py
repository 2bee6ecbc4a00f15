# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""lighttpd: files by sendfile, kept and closed connections."""

from serving import document, ended, fetched, no_kernel_connections, start


def test_files(net):
    data = document(net)
    conf = net.tmp / "conf"
    conf.write_text(f'server.document-root = "{net.tmp}/www"\nserver.port = 8080\nserver.bind = "{net.a.ip4}"\n')
    server = start(net, ["/usr/sbin/lighttpd", "-D", "-f", conf], 8080)
    with no_kernel_connections(net.a, 500):
        for _ in range(3):
            assert fetched(net, f"http://{net.a.ip4}:8080/file") == data
        text = net.b.run(["wrk", "-t1", "-c20", "-d1", f"http://{net.a.ip4}:8080/file"]).text
        assert "Requests/sec" in text and "Socket errors" not in text, text
    ended(server, 2)  # SIGTERM while it still closes connections is 1, also without the library
