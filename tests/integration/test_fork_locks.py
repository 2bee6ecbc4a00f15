# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
The first socket of a child of fork(), while other threads of its parent are inside libc: what libc does not renew in a child (the
time zone's lock, for one) is held for ever there, and the library may not wait for it.
"""

import pytest

from netns import wait_for

CHILDREN = 100

# libasan has locks of its own that it does not renew in a child of fork().
pytestmark = pytest.mark.no_sanitize


def run(net, ours, env):
    process = net.a.popen([net.library.helpers / "fork_locks", CHILDREN, net.b.ip4, 7100], ours, env)
    wait_for(lambda: not process.alive(), 300, f"the end of {process}")
    assert process.wait() == 0, f"{process}:\n{process.text[-2000:]}"
    print(process.text)
    assert f"{CHILDREN} children have ended" in process.text


@pytest.mark.parametrize("ours", [False, True], ids=["kernel", "ours"])
def test_a_child_waits_for_no_lock_of_its_parents_threads(net, ours):
    run(net, ours, {})


def test_a_child_whose_log_goes_to_syslog(net, tmp_path):
    rules = tmp_path / "libvma.conf"
    rules.write_text("log destination syslog\n")
    run(net, True, {"VMA_CONFIG_FILE": str(rules), "VMA_TRACELEVEL": "DEBUG"})
