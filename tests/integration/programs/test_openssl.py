# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""openssl's TLS server and client, each as the one with the library."""

import subprocess

import pytest

from serving import OURS, document, fetched, no_kernel_connections, start


@pytest.fixture
def key(net):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", net.tmp / "key", "-out", net.tmp / "cert",
                    "-days", "2", "-subj", "/CN=here"], check=True, capture_output=True)
    return ["-key", net.tmp / "key", "-cert", net.tmp / "cert"]


def test_s_server(net, key):
    data = document(net)
    start(net, ["openssl", "s_server", "-quiet", "-accept", f"{net.a.ip4}:4433", *key, "-WWW"], 4433, cwd=net.tmp / "www")
    with no_kernel_connections(net.a, 500):
        for _ in range(3):
            assert fetched(net, f"https://{net.a.ip4}:4433/file", "-k", "--http0.9").endswith(data)


def test_s_client(net, key):
    data = document(net)
    net.b.popen(["openssl", "s_server", "-quiet", "-accept", f"{net.b.ip4}:4433", *key, "-WWW"], cwd=net.tmp / "www")
    net.b.wait_bound(4433, "tcp")
    request = net.tmp / "request"
    request.write_text("GET /file HTTP/1.0\r\n\r\n")
    out = net.tmp / "got"
    with no_kernel_connections(net.a, 500), open(request) as stdin:
        net.a.run(["sh", "-c", f"openssl s_client -quiet -connect {net.b.ip4}:4433 >{out} 2>/dev/null"], preload=OURS, stdin=stdin)
    assert out.read_bytes().endswith(data)
