# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Tests that run in the guest of scripts/vm, because they need a kernel of Debian's, its modules, or may break one. What the
kernel says during a test belongs to that test.
"""

import os
import pathlib
import re
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
pytest_plugins = ["net_fixtures"]

from vma_ko import insmod, rmmod  # noqa: E402 (in the directory above)

# What a kernel must not say; scripts/vm searches the whole log for the same.
BAD = re.compile("|".join((pathlib.Path(__file__).resolve().parents[2] / "scripts" / "vm_bad").read_text().splitlines()))


def pytest_sessionstart(session):
    if not os.path.exists("/vm/command"):
        pytest.exit("these tests run in a virtual machine: scripts/vm tests/vm", returncode=1)


@pytest.fixture(autouse=True)
def kernel_log():
    """Fails the test during which the kernel complained. Gives a function: the lines of the log since the test began."""
    fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    os.lseek(fd, 0, os.SEEK_END)
    lines = []

    def since():
        while True:
            try:
                record = os.read(fd, 8192).decode(errors="replace")
            except BlockingIOError:
                return lines
            except BrokenPipeError:  # some were overwritten before they were read
                continue
            lines.append(record.split(";", 1)[1].split("\n", 1)[0])

    yield since
    said = since()
    os.close(fd)
    if any(BAD.search(line) for line in said):
        pytest.fail("the kernel complained:\n" + "\n".join(said[-60:]), pytrace=False)


@pytest.fixture
def vma_ko():
    """The module is loaded; afterwards it can be unloaded."""
    insmod()
    yield
    rmmod()
