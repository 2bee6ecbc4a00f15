# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""ncat: a broker, which passes each line on to the others."""

from serving import ended, no_kernel_connections, start


def test_broker(net):
    server = start(net, ["ncat", "-l", "--broker", net.a.ip4, "7000"], 7000)
    with no_kernel_connections(net.a, 500):
        many = [net.b.socket(kind=1) for _ in range(5)]
        for s in many:
            s.connect((net.a.ip4, 7000))
        for n in range(50):
            said = b"line %d\n" % n
            many[n % 5].sendall(said)
            for s in many:
                if s is not many[n % 5]:
                    got = b""
                    while len(got) < len(said):
                        got += s.recv(99)
                    assert got == said
        for s in many:
            s.close()
    ended(server, status=-15)
