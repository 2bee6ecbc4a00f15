# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""With the module the sequence numbers of one process go on where another user's have ended: secret.c, VMA_KMOD_SECRET."""

import fcntl
import os
import socket

import pytest

from netns import PYTHON
from test_capabilities import NEEDED
from test_kmod import LIBC, Device, child, ended_well, ioc
from test_tcp_isn import CLIENT, PORT, rises, syns

IOC_SECRET = ioc(2, 4, 32)
pytestmark = pytest.mark.usefixtures("vma_ko")


def secret(device):
    data = bytearray(32)
    fcntl.ioctl(device.fd, IOC_SECRET, data)
    return bytes(data)


def test_processes_of_two_users_from_one_port(net):
    """Root and nobody take turns, eight times; the peer has the connection of the one before in TIME_WAIT."""
    net.neighbours()
    words = ",".join(f"+{c}" for c in NEEDED)
    nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps", words, "--ambient-caps", words]
    os.chmod("/dev/vma", 0o666)
    with net.a.socket(kind=socket.SOCK_STREAM) as l, net.a.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3), 0.2) as wire:
        l.bind((net.a.ip4, PORT))
        l.listen()
        l.settimeout(60)
        wire.bind((net.a.dev, 3))
        for i in range(8):
            client = net.b.popen([*(nobody if i % 2 else ()), PYTHON, "-c", CLIENT, net.b.ip4, net.a.ip4, PORT], True,
                                 {"VMA_TRACELEVEL": "DEBUG", "VMA_TCP_TIMESTAMP_OPTION": 1})
            l.accept()[0].close()
            assert client.wait(60) == 0, client.text
            assert "made from the kernel module's secret" in client.text, client.text
        seen = syns(wire)
    print(f"SYNs: {seen}")
    assert rises([n for n, _ in seen])
    assert rises([t for _, t in seen])


def test_who_may_not_see_packets_may_not_know_it():
    with_right = Device()
    one = secret(with_right)
    with_right.close()
    assert one.count(0) < 16

    def inside():
        os.setresuid(65534, 65534, 65534)
        with pytest.raises(PermissionError):
            secret(Device())

    os.chmod("/dev/vma", 0o666)
    assert ended_well(child(inside))
    again = Device()
    assert secret(again) == one
    again.close()

    def elsewhere():
        assert LIBC.unshare(0x40000000) == 0  # CLONE_NEWNET
        assert secret(Device()) != one

    assert ended_well(child(elsewhere))
