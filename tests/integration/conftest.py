# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the tests ask for stands in net_fixtures.py, which tests/vm has, too; that nothing is left behind in leftover_hooks.py."""

import signal
import socket

from netns import wait_for

pytest_plugins = ["net_fixtures", "leftover_hooks"]


def pytest_configure(config):
    # Under nohup it is ignored, and so it would be by the programs that tests end with it.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_sessionstart(session):
    """The kernel begins to stamp some time after the first socket asks for it (a worker thread of the kernel's does it), and a
    datagram that comes before has no stamp. So one socket asks as long as tests run, and its first stamp is waited for."""
    s = session.config.stamped = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("127.0.0.1", 0))
    s.setsockopt(socket.SOL_SOCKET, 37, 0x18)

    def stamped():
        s.sendto(b"x", s.getsockname())
        return s.recvmsg(1, 200)[1]
    wait_for(stamped, 10, "a stamp")


def pytest_unconfigure(config):
    if hasattr(config, "stamped"):
        config.stamped.close()
