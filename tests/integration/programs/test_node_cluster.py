# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Node's cluster: the primary accepts and hands connections over, or the workers share the listener, or a datagram socket. All of
these go to the kernel (limits.md): what is proved is that all is answered, and that the log says why. What a worker has by itself is
offloaded; so are one process, and its dgram."""

import contextlib

import pytest

from serving import ended, fetched, no_kernel_connections, no_kernel_datagrams, start

WHY = "goes on through the kernel: another program has it, too"
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

# The workers have one socket for the clients. Each asks a server behind by a socket of its own.
SHARED_UDP = """
const cluster = require('cluster'), dgram = require('dgram');
const [own, server] = process.argv.slice(2);
if (cluster.isPrimary) {
  for (let i = 0; i < 2; i++) cluster.fork();
  process.on('SIGTERM', () => cluster.disconnect(() => process.exit(0)));
} else {
  const s = dgram.createSocket('udp4'), asks = dgram.createSocket('udp4'), waiting = new Map();
  asks.on('message', m => { const [n, text] = m.toString().split(':'), from = waiting.get(n);
    waiting.delete(n); s.send(text, from.port, from.address); });
  asks.bind({port: 0, address: own, exclusive: true}, () => s.bind(8080, own));
  let n = 0;
  s.on('message', (m, from) => { waiting.set(String(++n), from); asks.send(`${n}:${m}`, 8081, server); });
  process.on('SIGTERM', () => {});
  process.on('disconnect', () => process.exit(0));
}
"""
SERVER = """
import socket, sys
s = socket.socket(type=socket.SOCK_DGRAM)
s.bind((sys.argv[1], 8081))
print("ready", flush=True)
while True:
    data, who = s.recvfrom(2000)
    s.sendto(data.upper(), who)
"""


def test_cluster_of_datagrams(net):
    script = net.tmp / "served.js"
    script.write_text(SHARED_UDP)
    net.b.python(SERVER, args=[net.b.ip4]).wait_text("^ready$")
    server = start(net, ["/usr/bin/node", script, net.a.ip4, net.b.ip4], 8080, "udp", env={"VMA_TRACELEVEL": "DETAILS"})
    net.neighbours()
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(net.b.socket()) for _ in range(10)]

        def answered(times):
            for n in range(times):
                for i, s in enumerate(clients):
                    s.sendto(b"word %d of %d" % (n, i), (net.a.ip4, 8080))
                for i, s in enumerate(clients):
                    assert s.recv(99) == b"WORD %d OF %d" % (n, i)
        answered(1)
        # The clients' side: a datagram each way. The server's side has none.
        with net.a.bypassed(2 * 10 * len(clients)):
            answered(10)
    ended(server)
    assert WHY in server.text, server.text


@pytest.mark.parametrize("policy", ["SCHED_RR", "SCHED_NONE"])
def test_cluster(net, policy):
    script = net.tmp / "served.js"
    script.write_text(TCP)
    server = start(net, ["/usr/bin/node", script, net.a.ip4, policy], env={"VMA_TRACELEVEL": "DETAILS"})
    net.a.wait_bound(8080, "tcp")
    for size in (1, 100_000, 2_000_000):
        for _ in range(5):
            assert fetched(net, f"http://{net.a.ip4}:8080/{size}") == b"x" * size
    ended(server)
    assert WHY in server.text, server.text


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
