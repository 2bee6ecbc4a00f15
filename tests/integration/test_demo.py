# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a stranger does first: the demo, make install, and all that without root."""

import os
import pathlib
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


@pytest.mark.whole
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


# In a mount namespace of its own, with layers above what `make install` writes to.
INSTALLED = """set -e
for dir in etc usr/local var; do
    mkdir -p $1/$dir/{upper,work}
    mount -t overlay overlay -o lowerdir=/$dir,upperdir=$1/$dir/upper,workdir=$1/$dir/work /$dir
done
make -C $2 -s -o all install
mount -t tmpfs none /tmp
LD_PRELOAD=libvma.so VMA_TRACELEVEL=info python3 -c 'import socket; socket.socket()'
cat /usr/local/share/doc/libvma/VMA_VERSION
"""


@pytest.mark.no_sanitize
def test_what_make_install_installs_is_found_by_its_name(library, tmp_path):
    if library.build != ROOT / "build":
        pytest.fail("make install takes what is in build/")
    done = subprocess.run(["unshare", "--mount", "--net", "bash", "-c", INSTALLED, "bash", tmp_path, ROOT], capture_output=True, text=True,
                          env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    assert "cannot be preloaded" not in done.stderr and re.search(r"VMA_VERSION: 10\.0\.0-0 Release built on", done.stderr)
    assert done.stdout.endswith("VMA_VERSION: 10.0.0-0\n")


@pytest.mark.no_sanitize
def test_the_file_of_the_library_tells_its_version(library):
    strings = subprocess.run(["strings", library.build / "libvma.so"], capture_output=True, text=True, check=True).stdout
    assert re.search(r"^VMA_VERSION: 10\.0\.0-0 Release built on \w{3} [ \d]\d \d{4} [\d:]{8}$", strings, re.M)


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
    for file in ("vma_stats.grafana.json", "vma_stats.schema.json"):
        assert (tmp_path / "usr/share/libvma" / file).read_text() == (ROOT / "docs" / file).read_text()
    subprocess.run(["make", "-C", ROOT, "-s", "uninstall", f"DESTDIR={tmp_path}", "PREFIX=/usr"], check=True,
                   env={k: v for k, v in os.environ.items() if not k.startswith("MAKE") and k != "MFLAGS"})
    assert [p.relative_to(tmp_path) for p in tmp_path.rglob("*") if not p.is_dir()] == [pathlib.Path("etc/libvma.conf")]
