# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""io_uring and aio on sockets that were in user space: liburing's rings, those that a program makes by a system call, and requests."""

import pytest

from differential import App
from test_stdio_fds import PORT, server  # noqa: F401  the server is a fixture


@pytest.mark.parametrize("how", ["submit", "files", "poll", "set", "splice", "raw"])
def test_a_ring_gets_a_socket(unet, server, how):  # noqa: F811
    argv = [unet.library.helpers / "uring", how, unet.b.ip4, PORT]
    kernel, ours = [unet.a.run(argv, preload=preload, env={"VMA_LOG_FILE": unet.tmp / "log"}).text for preload in (False, True)]
    print(kernel)
    assert ours == kernel and kernel.count("echo: ") >= 6


@pytest.mark.parametrize("how", ["posix", "list", "call", "number", "poll"])
def test_a_request_names_a_socket(unet, server, how):  # noqa: F811
    argv = [unet.library.helpers / "aio", how, unet.b.ip4, PORT]
    kernel, ours = [unet.a.run(argv, preload=preload, env={"VMA_LOG_FILE": unet.tmp / "log"}).text for preload in (False, True)]
    print(kernel)
    assert ours == kernel and kernel.count("echo: ") == (4 if how == "poll" else 3)


def test_a_ring_that_is_refused_changes_nothing(unet):
    unet.neighbours()
    with App(unet.a, True) as a, App(unet.b, False) as b:
        b.do("s = udp(7000); s.settimeout(5)")
        assert a.do("__import__('ctypes').CDLL(None).syscall(425, 0, None)") == -1  # SYS_io_uring_setup
        a.do("s = udp(7001); s.sendto(b'first', (PEER, 7000))")
        assert b.do("s.recv(10)") == b"first"
        with unet.a.bypassed():
            a.do("s.sendto(b'second', (PEER, 7000))")
            assert b.do("s.recv(10)") == b"second"
