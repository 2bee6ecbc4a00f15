# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
What the files of this folder share: a program of Debian's with the library in net.a, an ordinary one in net.b, and the proof that
the kernel's TCP or UDP of net.a did not carry what they said. PLAIN=1 leaves the library out: then each test has to fail.
"""

import contextlib
import os
import random
import socket

from netns import wait_for

OURS = not os.environ.get("PLAIN")


def document(net, size=3_000_000):
    """A file `file` in a folder of the test that any user can read; its bytes."""
    folder = net.tmp / "www"
    folder.mkdir(mode=0o755, exist_ok=True)
    for part in (net.tmp, *net.tmp.parents[:2]):
        part.chmod(0o755)
    data = random.Random(size).randbytes(size)
    (folder / "file").write_bytes(data)
    return data


def start(net, argv, port=None, kind="tcp", **options):
    """The program in net.a, with the library; when it listens at the port, and the library serves that."""
    process = net.a.popen(argv, preload=OURS, **options)
    if port:
        net.a.wait_bound(port, kind)
    if port and kind == "tcp" and OURS:
        wait_for(lambda: taken_by_the_library(net, port), 10, f"port {port} offloaded")
    return process


def taken_by_the_library(net, port):
    before = net.a.counters()["TcpPassiveOpens"]
    with net.b.socket(kind=socket.SOCK_STREAM) as s:
        s.connect((net.a.ip4, port))
    return net.a.counters()["TcpPassiveOpens"] == before


@contextlib.contextmanager
def no_kernel_connections(host, segments=None):
    """The kernel's TCP makes no connection meanwhile; with `segments` it has no more than so many, either way."""
    names = ("TcpActiveOpens", "TcpPassiveOpens", "TcpInSegs", "TcpOutSegs", "TcpOutRsts")
    before = host.counters()
    yield
    seen = {name: host.counters()[name] - before[name] for name in names}
    print(f"the kernel's TCP of {host.name}: {seen}")
    assert seen["TcpActiveOpens"] + seen["TcpPassiveOpens"] == 0, seen
    assert segments is None or seen["TcpInSegs"] + seen["TcpOutSegs"] - 2 * seen["TcpOutRsts"] <= segments, seen


@contextlib.contextmanager
def no_kernel_datagrams(net, at_most=0):
    net.neighbours()
    with net.a.bypassed(at_most):
        yield


def fetched(net, url, *options, at=None, **more):
    """What curl gets, a plain one in net.b unless said otherwise."""
    out = net.tmp / "fetched"
    (at or net.b).run(["curl", "-sS", "--fail", "-o", out, *options, url], **more)
    return out.read_bytes()


def ended(process, number=15, status=0):
    """It ends by the signal as it does by itself."""
    process.kill(number)
    found = process.wait()
    assert found == status, f"exit status {found}, not {status}:\n{process.text}"
