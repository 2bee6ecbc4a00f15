# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Nothing is left behind, by a test in its namespaces, and by a file in this process (leftovers.py): a plugin of pytest's."""

import pytest

from leftovers import Worker, of_host
from netns import Net

now = {}  # the file that runs, and what this process had at its beginning


def pytest_configure(config):
    config.leftovers_of = of_host


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
