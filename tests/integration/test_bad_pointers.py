# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Every call with every pointer bad in turn: the library answers as kernel sockets do, and nobody dies."""

import difflib

import pytest

from differential import App
from test_cancel import ECHO, TCP_PORT, UDP_PORT


def answers(net, library, preload):
    argv = [library.helpers / "bad_pointers", net.a.ip4, net.b.ip4, UDP_PORT, TCP_PORT]
    done = net.a.run(argv, preload=preload, env={"VMA_TRACELEVEL": "ERROR"}, check=False, timeout=60)
    assert done.popen.returncode == 0, f"after:\n{done.text[-600:]}"
    return done.text.splitlines()


@pytest.mark.no_sanitize
def test_a_bad_message_for_a_kernel_socket_is_the_kernels_to_refuse(net):
    """It is searched for descriptors of ours before."""
    with App(net.a, True, "4") as app:
        app.do("u = udp(7000); a, b = socket.socketpair()")
        for msg in ("8", "struct.pack('8Q', 0, 0, 0, 0, 8, 64, 0, 0)"):
            assert app.ask(f"call('sendmsg', a.fileno(), {msg}, 0)")[:2] == ("OSError", "EFAULT")
        assert app.ask("call('sendmmsg', a.fileno(), 8, 1, 0)")[:2] == ("OSError", "EFAULT")


@pytest.mark.no_sanitize  # SIGSEGV is the sanitizer's there
def test_every_bad_pointer_is_answered_as_with_kernel_sockets(net, library):
    net.b.python(ECHO, args=(net.b.ip4,)).wait_text("ready")
    kernel, ours = answers(net, library, False), answers(net, library, True)
    print(kernel[-1])
    diff = list(difflib.unified_diff(kernel, ours, "kernel", "ours", lineterm="", n=0))
    assert not diff, "\n".join(diff)
