# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""beanstalkd: a queue of jobs, epoll and sendfile-free."""

from serving import ended, no_kernel_connections, start


def test_jobs(net):
    server = start(net, ["beanstalkd", "-l", net.a.ip4, "-p", "11300"], 11300)
    with no_kernel_connections(net.a, 500), net.b.socket(kind=1) as s:
        s.connect((net.a.ip4, 11300))
        lines = s.makefile("rwb")

        def say(text):
            lines.write(text)
            lines.flush()
            return lines.readline().split()

        for n in range(200):
            assert say(b"put 0 0 60 1000\r\n" + b"%04d" % n * 250 + b"\r\n")[0] == b"INSERTED"
        for n in range(200):
            word, job, size = say(b"reserve\r\n")
            assert word == b"RESERVED" and lines.read(int(size) + 2) == b"%04d" % n * 250 + b"\r\n"
            assert say(b"delete %s\r\n" % job) == [b"DELETED"]
        lines.close()
    ended(server, status=-15)
