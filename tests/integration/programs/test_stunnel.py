# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""stunnel: TLS in front of a plain server, a thread for each connection."""

import subprocess

from serving import document, ended, fetched, no_kernel_connections, start


def test_tls(net):
    data = document(net)
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", net.tmp / "key", "-out", net.tmp / "cert",
                    "-days", "2", "-subj", "/CN=here"], check=True, capture_output=True)
    net.b.popen(["/usr/bin/python3", "-m", "http.server", "-b", net.b.ip4, "-d", net.tmp / "www", 8081])
    net.b.wait_bound(8081, "tcp")
    conf = net.tmp / "conf"
    conf.write_text(f"foreground = yes\npid =\n[s]\naccept = {net.a.ip4}:8443\nconnect = {net.b.ip4}:8081\ncert = {net.tmp}/cert\nkey = {net.tmp}/key\n")
    server = start(net, ["stunnel4", conf], 8443)
    with no_kernel_connections(net.a, 1000):
        for _ in range(3):
            assert fetched(net, f"https://{net.a.ip4}:8443/file", "-k") == data
    ended(server)
