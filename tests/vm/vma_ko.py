# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The kernel module and what it says of itself."""

import pathlib
import subprocess

from netns import ROOT, wait_for

KO = ROOT / "kmod" / "vma.ko"
SYSFS = pathlib.Path("/sys/kernel/vma")


def insmod():
    subprocess.run(["insmod", KO], check=True)


def rmmod():
    """Once the last file and mapping of those that were killed are gone."""
    wait_for(lambda: subprocess.run(["rmmod", "vma"], stderr=subprocess.DEVNULL).returncode == 0, what="rmmod vma")


def sums(path=SYSFS / "stats"):
    return {name: int(value) for name, value in (line.split() for line in path.read_text().splitlines())}
