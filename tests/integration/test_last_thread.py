# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A program ends with its last thread, which the library's own is not (pthread_exit(3))."""

import socket
import threading

import pytest

PORT = 7200


@pytest.fixture
def answers(net):
    """A server of the kernel's in net.b that answers each connection once."""
    with net.b.socket(socket.AF_INET, socket.SOCK_STREAM) as lst:
        lst.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        lst.bind((net.b.ip4, PORT))
        lst.listen()

        def serve():
            while True:
                try:
                    with lst.accept()[0] as c:
                        c.sendall(c.recv(10).upper())
                except OSError:
                    return

        thread = threading.Thread(target=serve)
        thread.start()
        yield
        lst.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize("how", ["exit", "cancel", "late", "alone", "child"])
@pytest.mark.parametrize("preload", [False, True], ids=["kernel", "ours"])
def test_main_ends_first(net, answers, library, preload, how):
    done = net.a.run([library.helpers / "main_ends", how, net.b.ip4, PORT], preload=preload, timeout=30)
    said = [line for line in done.text.splitlines() if line.split(":")[0] in ("answer", "atexit", "child", "talk")]
    assert said == ["answer: HELLO", "atexit"] + ["child: 0", "atexit"] * (how == "child")
