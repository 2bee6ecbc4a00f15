# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a stranger does first: the demo, make install, and all that without root."""

import os
import re
import signal
import subprocess

import pytest

from netns import PATIENCE, ROOT, ip, wait_for

NOBODY = 65534


def namespaces(prefix):
    return [line.split()[0] for line in ip("netns", "list").splitlines() if line.startswith(prefix)]


def demo(library, **options):
    env = {**os.environ, "DEMO_SECONDS": "1"}
    # A shell that starts the tests in the background has them ignore Ctrl-C, and bash cannot trap what it was born to ignore.
    argv = ["env", "--default-signal=INT", ROOT / "scripts" / "demo.sh", library.build]
    return subprocess.Popen(argv, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            start_new_session=True, **options)


@pytest.mark.no_sanitize
def test_the_demo_shows_both_sides_and_leaves_nothing(library):
    process = demo(library)
    text, _ = process.communicate(timeout=60 * PATIENCE)
    assert process.returncode == 0, text
    for row in ("median", "99th percentile", "messages received per second"):
        assert re.search(rf"{row}.* +[\d.]+ +[\d.]+ +[\d.]+x$", text, re.M), text
    # The library's side did not go through the kernel, the other did.
    kernel, ours = map(int, re.search(r"UDP stack +(\d+)% +(\d+)%", text).groups())
    assert kernel >= 99 and ours == 0, text
    assert "vma_stats of the running server" in text
    assert not namespaces(f"vma-demo-{process.pid}-")


@pytest.mark.no_sanitize
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "term"])
def test_an_interrupted_demo_leaves_nothing(library, number):
    process = demo(library)
    mine = f"vma-demo-{process.pid}-"
    wait_for(lambda: len(namespaces(mine)) == 2, what="the demo's namespaces")
    wait_for(lambda: ip("netns", "pids", mine + "a"), what="the demo's server")
    os.killpg(process.pid, number)
    process.communicate(timeout=20 * PATIENCE)
    assert process.returncode == 128 + number
    assert not namespaces(mine)


@pytest.mark.no_sanitize
def test_two_demos_at_once_do_not_collide(library):
    both = [demo(library), demo(library)]
    texts = [p.communicate(timeout=90 * PATIENCE)[0] for p in both]
    assert [p.returncode for p in both] == [0, 0], "\n".join(texts)


@pytest.mark.no_sanitize
@pytest.mark.parametrize("goal", ["demo", "test", "bench"])
def test_without_root_one_line_says_so(goal):
    done = subprocess.run(["make", "-C", ROOT, "--no-print-directory", goal], user=NOBODY, group=NOBODY, extra_groups=[],
                          capture_output=True, text=True, env={"PATH": os.environ["PATH"]})
    lines = (done.stdout + done.stderr).strip().splitlines()
    assert done.returncode != 0
    assert len(lines) == 1 and "needs root" in lines[0], lines


@pytest.mark.no_sanitize
@pytest.mark.parametrize("script", ["demo.sh", "test.sh"])
def test_the_scripts_without_root(script):
    done = subprocess.run([ROOT / "scripts" / script], user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True,
                          text=True)
    lines = (done.stdout + done.stderr).strip().splitlines()
    assert done.returncode == 1
    assert len(lines) == 1 and "needs root" in lines[0], lines


@pytest.mark.no_sanitize
def test_install_puts_the_files_where_they_belong(library, tmp_path):
    if library.build != ROOT / "build":
        pytest.fail("make install takes what is in build/")
    # As it is built (-o all): other flags than the tree's would build it anew under the tests that run beside.
    subprocess.run(["make", "-C", ROOT, "-s", "-o", "all", "install", f"DESTDIR={tmp_path}", "PREFIX=/usr"], check=True,
                   env={k: v for k, v in os.environ.items() if not k.startswith("MAKE") and k != "MFLAGS"})
    for file in ("usr/lib/libvma.so", "usr/bin/vma_stats", "usr/share/man/man7/libvma.7",
                 "usr/share/man/man5/libvma.conf.5", "usr/share/man/man8/vma_stats.8", "etc/libvma.conf"):
        assert (tmp_path / file).stat().st_size > 0
