# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""README's terminal session with the kernel module, whole and as it stands there."""

import contextlib
import subprocess

import pytest

import terminal
from netns import wait_for
from vma_ko import SYSFS, unload


@pytest.fixture
def cleared():
    """What a session that was broken off leaves on this machine."""
    yield
    subprocess.run(["ip", "link", "del", "veth0"], capture_output=True)
    subprocess.run(["ip", "netns", "del", "client"], capture_output=True)
    if SYSFS.exists():
        with contextlib.suppress(AssertionError):
            wait_for(unload, what="vma unloaded")


def test_the_session_prints_what_readme_shows(cleared):
    session = terminal.play(module=True)
    assert [c for c in session if "insmod" in c.text] and [c for c in session if "/sys/kernel/vma/stats" in c.text]
    wait_for(unload, what="vma unloaded, as nobody uses it any more")
