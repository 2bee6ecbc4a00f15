# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Every call with every pointer bad in turn: the library answers as kernel sockets do, and nobody dies."""

import difflib

import pytest

from test_cancel import ECHO, TCP_PORT, UDP_PORT


def answers(net, library, preload):
    argv = [library.helpers / "bad_pointers", net.a.ip4, net.b.ip4, UDP_PORT, TCP_PORT]
    done = net.a.run(argv, preload=preload, env={"VMA_TRACELEVEL": "ERROR"}, check=False, timeout=60)
    assert done.popen.returncode == 0, f"after:\n{done.text[-600:]}"
    return done.text.splitlines()


@pytest.mark.no_sanitize  # SIGSEGV is the sanitizer's there
def test_every_bad_pointer_is_answered_as_with_kernel_sockets(net, library):
    net.b.python(ECHO, args=(net.b.ip4,)).wait_text("ready")
    kernel, ours = answers(net, library, False), answers(net, library, True)
    print(kernel[-1])
    diff = list(difflib.unified_diff(kernel, ours, "kernel", "ours", lineterm="", n=0))
    assert not diff, "\n".join(diff)
