# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
nginx's stream module before a plain server: datagram listeners, which the master makes and a worker or two read, with one socket
for all (reuseport: for each). A datagram socket that several processes have is the kernel's (limits.md), and the log says so. What the
workers have with the server is theirs alone, and offloaded; so are the connections.
"""

import contextlib
import re
import socket

import pytest

from serving import ended, no_kernel_connections, start

MODULE = "/usr/lib/nginx/modules/ngx_stream_module.so"
CONF = """
load_module {module};
daemon off; worker_processes {workers}; user root; pid {dir}/pid; error_log {dir}/error.log;
events {{ worker_connections 500; }}
stream {{
  server {{ listen {a4}:5300 udp{how}; listen [{a6}]:5300 udp{how}; proxy_pass {b4}:5301; proxy_responses 1; }}
  server {{ listen {a4}:5300; listen [{a6}]:5300; proxy_pass [{b6}]:5301; }}
}}
"""
SERVER = """
import socket, sys, threading
u, l = socket.socket(type=socket.SOCK_DGRAM), socket.create_server((sys.argv[2], 5301), family=socket.AF_INET6)
u.bind((sys.argv[1], 5301))
def datagrams():
    while True:
        data, who = u.recvfrom(2000)
        u.sendto(data.upper(), who)
threading.Thread(target=datagrams, daemon=True).start()
print("ready", flush=True)
while True:
    with l.accept()[0] as s:
        while data := s.recv(1 << 16):
            s.sendall(data)
"""


def datagrams(net, clients, times):
    for n in range(times):
        for s in clients:
            s.send(b"word %d" % n)
        for s in clients:
            assert s.recv(99) == b"WORD %d" % n


def streams(net):
    sent = bytes(range(256)) * 400
    for family in (socket.AF_INET, socket.AF_INET6):
        with net.b.socket(family, socket.SOCK_STREAM) as s:
            s.connect((net.a.ip(family), 5300))
            s.sendall(sent)
            with s.makefile("rb") as f:
                assert f.read(len(sent)) == sent


@pytest.mark.parametrize("workers, how", [(1, ""), (2, ""), (2, " reuseport")], ids=["one", "two", "two-reuseport"])
def test_proxy(net, workers, how):
    conf = net.tmp / "conf"
    conf.write_text(CONF.format(module=MODULE, workers=workers, how=how, dir=net.tmp, a4=net.a.ip4, a6=net.a.ip6, b4=net.b.ip4, b6=net.b.ip6))
    net.b.python(SERVER, args=[net.b.ip4, net.b.ip6]).wait_text("^ready$")
    server = start(net, ["nginx", "-c", conf], 5300, env={"VMA_TRACELEVEL": "DETAILS"})
    net.neighbours()
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(net.b.socket(family)) for family in (socket.AF_INET, socket.AF_INET6) for _ in range(8)]
        for s in clients:
            s.connect((net.a.ip(s.family), 5300))
        datagrams(net, clients, 1)
        # The clients' side: a datagram each way. The server's side has none.
        with net.a.bypassed(2 * 10 * len(clients)):
            datagrams(net, clients, 10)
    with no_kernel_connections(net.a, 500):
        for _ in range(5):
            streams(net)
    ended(server)
    log = (net.tmp / "error.log").read_text()
    assert not re.search(r"\[(alert|emerg|crit|error)\]", log), log
    reasons = re.findall(r"fd \d+ (goes on|receives) through the kernel: (.*)", log)
    print("\n".join(f"{what}: {reason}" for what, reason in reasons))
    assert ("goes on", "another process has it, too, since fork()") in reasons, log
    # Of the connections each worker has its part, and the log does not complain of that.
    assert "cannot be set" not in log, log
