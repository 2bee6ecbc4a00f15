# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the scripts and Makefiles take of the machine that they run on."""

import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("folder", ["kmod", "tests/mlx5_device/module"])
def test_modules_are_built_against_the_newest_headers(tmp_path, folder):
    """By version: by the alphabet 6.1.0-9 would come after 6.1.0-56."""
    for release in ("6.1.0-9", "6.1.0-56", "6.1.0-10"):
        (tmp_path / f"linux-headers-{release}-amd64").mkdir()
    # Without the running kernel's own, which come first where they are there.
    make = subprocess.run(["make", "-n", "-C", ROOT / folder, f"HEADERS={tmp_path}", "running="], capture_output=True, text=True)
    print(make.stdout, make.stderr)
    assert f"-C {tmp_path}/linux-headers-6.1.0-56-amd64 " in make.stdout


def test_a_busybox_that_needs_a_library_is_refused(tmp_path):
    """The guest's first program would not start, and the run would end after minutes without a word."""
    shutil.copy(shutil.which("true"), tmp_path / "busybox")
    vm = subprocess.run([ROOT / "scripts/vm", "--", "true"], env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
                        capture_output=True, text=True)
    print(vm.stderr)
    assert vm.returncode == 69
    assert f"{tmp_path}/busybox is not a static one" in vm.stderr and "busybox-static" in vm.stderr
