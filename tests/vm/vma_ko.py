# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The kernel module and what it says of itself."""

import ctypes
import errno
import os
import pathlib
import subprocess

from netns import KERNEL, ROOT, wait_for

KO = pathlib.Path("/tmp/vma.ko")
SYS_FINIT_MODULE, SYS_DELETE_MODULE = 313, 176
LIBC = ctypes.CDLL(None, use_errno=True)
SYSFS = pathlib.Path("/sys/kernel/vma")


def built():
    """For the kernel that runs: scripts/kmod.sh makes it for one of the backports, make kmod for this release's own."""
    return ROOT / ("kmod/vma.ko" if KERNEL == (6, 1) else "build/kmod-{}.{}/vma.ko".format(*KERNEL))


def insmod():
    if not KO.exists():  # without its debugging information: an emulated processor reads that for long
        subprocess.run(["objcopy", "-g", built(), KO], check=True)
    with open(KO, "rb") as ko:
        if LIBC.syscall(SYS_FINIT_MODULE, ko.fileno(), b"", 0):
            raise OSError(ctypes.get_errno(), "insmod vma.ko")


def unload():
    """One try, as rmmod(8) does it; false: in use."""
    if LIBC.syscall(SYS_DELETE_MODULE, b"vma", os.O_NONBLOCK) == 0:
        return True
    assert ctypes.get_errno() == errno.EWOULDBLOCK, os.strerror(ctypes.get_errno())
    return False


def rmmod():
    """Once the last file and mapping of those that were killed are gone."""
    wait_for(unload, what="vma unloaded")


def sums(path=SYSFS / "stats"):
    return {name: int(value) for name, value in (line.split() for line in path.read_text().splitlines())}


def say(text):
    """A figure for whoever reads the output: past pytest, to the terminal of scripts/vm."""
    with open("/dev/hvc0", "w") as terminal:
        print(f"\n{text}", file=terminal)
