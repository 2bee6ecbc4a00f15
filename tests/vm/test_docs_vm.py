# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""docs/kmod.md: its commands that load the module, as they stand there (tests/integration/test_docs.py names this test)."""

import grp
import os
import pathlib
import subprocess

import pytest

from netns import ROOT, wait_for
from test_docs import COMMANDS, ELSEWHERE
from vma_ko import SYSFS, unload

HERE = [c for c in COMMANDS if ELSEWHERE.get(c, ("",))[0] == "vm/test_docs_vm.py"]


@pytest.fixture
def new():
    """A machine on which nobody has done it."""
    subprocess.run(["groupdel", "vma"], stderr=subprocess.DEVNULL)
    yield
    if SYSFS.exists():
        wait_for(unload, what="vma unloaded")


def run(command, where=ROOT):
    done = subprocess.run(["bash", "-c", command], cwd=where, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(f"# {command}\n{done.stdout}")
    assert done.returncode == 0, f"{command}:\n{done.stdout}"
    return done.stdout


def test_the_module_is_installed_as_its_page_says(new):
    """In the page's order, once in the tree and once in the directory of the module."""
    left = list(HERE)

    def does(command, where=ROOT):
        left.remove(command)
        return run(command, where)

    does("groupadd --system vma")
    does("insmod kmod/vma.ko")
    does("chgrp vma /dev/vma")
    device = os.stat("/dev/vma")
    assert (device.st_gid, device.st_mode & 0o777) == (grp.getgrnam("vma").gr_gid, 0o660)
    wait_for(unload, what="vma unloaded")
    does("insmod vma.ko", ROOT / "kmod")
    assert "processes 0\n" in does("cat /sys/kernel/vma/stats")
    wait_for(unload, what="vma unloaded")
    does("make -C kmod install && modprobe vma")
    assert SYSFS.exists() and pathlib.Path("/usr/lib/udev/rules.d/60-vma.rules").read_text() == (ROOT / "kmod/60-vma.rules").read_text()
    assert not left, f"no test runs {left}"
