# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""haproxy with four threads, which share one listener."""

from serving import document, ended, fetched, no_kernel_connections, start

CONF = """
global
  nbthread 4
  maxconn 500
defaults
  mode http
  timeout connect 5s
  timeout client 5s
  timeout server 5s
frontend f
  bind {a}:8080
  default_backend b
backend b
  server s {b}:8081
"""


def test_threads(net):
    data = document(net)
    net.b.popen(["/usr/bin/python3", "-m", "http.server", "-b", net.b.ip4, "-d", net.tmp / "www", 8081])
    net.b.wait_bound(8081, "tcp")
    conf = net.tmp / "conf"
    conf.write_text(CONF.format(a=net.a.ip4, b=net.b.ip4))
    server = start(net, ["haproxy", "-f", conf, "-db"], 8080)
    with no_kernel_connections(net.a, 2000):
        assert fetched(net, f"http://{net.a.ip4}:8080/file") == data
        text = net.b.run(["wrk", "-t2", "-c8", "-d1", f"http://{net.a.ip4}:8080/"]).text
        assert "Requests/sec" in text and "Non-2xx" not in text, text
    ended(server, status=-15)
