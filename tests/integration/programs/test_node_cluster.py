# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Node's cluster: the primary accepts and hands connections over, or the workers share the listener. Both
go to the kernel (limits.md): what is proved is that all is answered. One process, and its dgram, are offloaded."""

import pytest

from serving import ended, fetched, no_kernel_connections, no_kernel_datagrams, start

TCP = """
const cluster = require('cluster'), http = require('http');
cluster.schedulingPolicy = cluster[process.argv[3]];
if (cluster.isPrimary) {
  for (let i = 0; i < 2; i++) cluster.fork();
  process.on('SIGTERM', () => cluster.disconnect(() => process.exit(0)));
} else {
  http.createServer((q, r) => r.end('x'.repeat(+q.url.slice(1)))).listen(8080, process.argv[2]);
  process.on('SIGTERM', () => {});
}
"""

UDP = """
const s = require('dgram').createSocket('udp4');
s.on('message', (m, from) => s.send(m.toString().toUpperCase(), from.port, from.address));
s.bind(8080, process.argv[2]);
process.on('SIGTERM', () => s.close());
"""


@pytest.mark.parametrize("policy", ["SCHED_RR", "SCHED_NONE"])
def test_cluster(net, policy):
    script = net.tmp / "served.js"
    script.write_text(TCP)
    server = start(net, ["/usr/bin/node", script, net.a.ip4, policy])
    net.a.wait_bound(8080, "tcp")
    for size in (1, 100_000, 2_000_000):
        for _ in range(5):
            assert fetched(net, f"http://{net.a.ip4}:8080/{size}") == b"x" * size
    ended(server)


def test_http_in_one_process(net):
    script = net.tmp / "served.js"
    script.write_text(TCP.replace("cluster.isPrimary", "false").replace("() => {}", "() => process.exit(0)"))
    server = start(net, ["/usr/bin/node", script, net.a.ip4, "SCHED_RR"], 8080)
    with no_kernel_connections(net.a, 1000):
        for _ in range(5):
            assert fetched(net, f"http://{net.a.ip4}:8080/2000000") == b"x" * 2_000_000
    ended(server)


def test_datagrams(net):
    script = net.tmp / "served.js"
    script.write_text(UDP)
    server = start(net, ["/usr/bin/node", script, net.a.ip4], 8080, "udp")
    with net.b.socket() as s, no_kernel_datagrams(net, 2):
        for n in range(100):
            s.sendto(b"word %d" % n, (net.a.ip4, 8080))
            assert s.recv(99) == b"WORD %d" % n
    ended(server)
