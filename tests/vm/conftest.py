# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Tests that run in the guest of scripts/vm, because they need a kernel of Debian's, its modules, or may break one. What the
kernel says during a test belongs to that test.
"""

import ctypes
import os
import pathlib
import re
import socket
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
pytest_plugins = ["net_fixtures", "leftover_hooks"]

from vma_ko import insmod, rmmod  # noqa: E402 (in the directory above)

# What a kernel must not say; scripts/vm searches the whole log for the same.
BAD = re.compile("|".join((pathlib.Path(__file__).resolve().parents[2] / "scripts" / "vm_bad").read_text().splitlines()))


def keep_netfilter():
    """
    Netfilter's first hook and the going of its last patch the kernel's code under the processors. An emulated one that runs
    that code can keep the breakpoint that stood there for a moment, and run into it for ever (QEMU 7.2, TCG with a thread for
    each). So there are hooks from the beginning to the end: the filter table's, empty, which asking for it makes.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    subprocess.run(["modprobe", "-a", "ip_tables", "ip6_tables"], check=True)
    for family, level in ((socket.AF_INET, socket.SOL_IP), (socket.AF_INET6, socket.IPPROTO_IPV6)):
        for table in (b"filter", b"raw"):
            info = ctypes.create_string_buffer(table, 84)  # struct ipt_getinfo
            with socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_RAW) as s:
                if libc.getsockopt(s.fileno(), level, 64, info, ctypes.byref(ctypes.c_int(84))):  # IPT_SO_GET_INFO
                    raise OSError(ctypes.get_errno(), f"the table {table.decode()} of {family.name}")


def pytest_sessionstart(session):
    if not os.path.exists("/vm/command"):
        pytest.exit("these tests run in a virtual machine: scripts/vm tests/vm", returncode=1)
    keep_netfilter()


def in_every_run(item):
    """
    Of the tests of emulated cards (test_nics*.py), which take hours for all cards and kernels (scripts/vm_matrix), those that `make test ALL=1`
    has: a card that is served past the kernel, both ways, and one that Linux 6.1 refuses.
    """
    if not item.path.name.startswith("test_nics"):
        return True
    case = item.callspec.params if hasattr(item, "callspec") else {}
    card, ours = case.get("wire"), case.get("ours")
    if item.originalname == "test_echoes_go_past_the_kernel":
        return (card, ours) == ("virtio", (True, True)) or (card, ours, case["kind"]) == ("e1000e", (True, False), "tcp")
    return item.originalname == "test_a_stream_as_fast_as_it_goes" and card == "virtio" and ours == (case["way"] == "up", case["way"] == "down")


def pytest_addoption(parser):
    parser.addoption("--few-cards", action="store_true", help="of the tests of emulated cards the few that are in every run")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--few-cards"):
        out = [i for i in items if not in_every_run(i)]
        items[:] = [i for i in items if in_every_run(i)]
        config.hook.pytest_deselected(items=out)


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
