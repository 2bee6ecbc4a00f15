# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""gunicorn: a master that listens, and workers that accept: by processes, and by threads in one."""

import pytest

from serving import ended, fetched, no_kernel_connections, start

APP = """
def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"x" * int(environ["QUERY_STRING"])]
"""


@pytest.mark.parametrize("workers", [["-w", "1"], ["-w", "1", "-k", "gthread", "--threads", "4"], ["-w", "3"]], ids=["sync", "threads", "three"])
def test_workers(net, workers):
    (net.tmp / "served.py").write_text(APP)
    server = start(net, ["/usr/bin/python3", "/usr/bin/gunicorn", "-b", f"{net.a.ip4}:8080", *workers, "--chdir", net.tmp, "served:app"], 8080)
    with no_kernel_connections(net.a):
        for size in (1, 100_000, 2_000_000):
            for _ in range(5):
                assert fetched(net, f"http://{net.a.ip4}:8080/?{size}") == b"x" * size
    ended(server)
