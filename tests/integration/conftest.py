# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
What the tests ask for stands in net_fixtures.py, which tests/vm has, too. Here: that nothing is left behind, by a test in its
namespaces, and by a file in this process.
"""

import signal
import socket

import pytest

from leftovers import Worker, of_host
from netns import Net, wait_for

pytest_plugins = ["net_fixtures"]
now = {}  # the file that runs, and what this process had at its beginning


def pytest_configure(config):
    config.leftovers_of = of_host
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


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    if now.get("module") is not item.module:
        now.update(module=item.module, worker=Worker(Net.pids_started))


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_teardown(item, nextitem):
    """After all fixtures of the file, whatever their order."""
    outcome = yield
    if outcome.excinfo or (nextitem and nextitem.module is item.module):
        return
    item.funcargs.clear()  # which would keep what the last test had
    left = now["worker"].left()
    if left:
        pytest.fail(f"left behind by {item.module.__name__}:\n" + "\n".join(left), pytrace=False)
