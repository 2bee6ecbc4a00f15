# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Two calls on one TCP socket at once: what each does because of the socket's state is decided under its lock."""

import pytest

from netns import ip

PORT = 7501

SERVE = """
import socket, sys
lst = socket.create_server((sys.argv[1], %d), backlog=4000)
print("ready", flush=True)
while True:
    lst.accept()[0].close() if sys.argv[2] == "close" else globals().setdefault("kept", []).append(lst.accept()[0])
""" % PORT


def start(net, library, preload, what, *args):
    net.b.python(SERVE, args=(net.b.ip4, "keep" if what == "info" else "close")).wait_text("ready")
    argv = [library.helpers / "call_races", what, net.a.ip4, net.b.ip4, PORT, *args]
    return net.a.popen(argv, preload=preload, env={"VMA_TRACELEVEL": "ERROR"})


@pytest.mark.parametrize("preload", [False, True], ids=["kernel", "ours"])
def test_one_of_two_calls_comes_first(net, library, preload):
    done = start(net, library, preload, "pairs", 40 if library.sanitize else 100)
    assert done.wait(60) == 0, done.text
    print(done.text)


def test_what_a_connection_says_stays_when_its_interface_goes(net, library):
    p = start(net, library, True, "info")
    p.wait_text("asking")
    ip("-n", net.a.name, "link", "del", net.a.dev)
    assert p.wait(30) == 0, p.text
    assert "asked" in p.text
