# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""vma_stats under the sanitizers, and a process with known statistics for it (stats_writer.c): what its tests share."""

import pathlib
import subprocess

import pytest

from netns import PATIENCE, made_once

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Where the fields that the tests scribble on stand in struct vma_stats_header.
MAGIC, VERSION, HEADER_SIZE, SOCKET_SIZE, MAX_SOCKETS, PID, RELEASE = 0, 8, 12, 16, 20, 24, 28


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """Both programs under the address and undefined-behaviour sanitizers, whatever build is under test."""
    flags = "-D_GNU_SOURCE -std=gnu11 -O1 -g -Ilib -Iinclude -fsanitize=address,undefined -fno-sanitize-recover=undefined"
    tool = sorted(str(p) for p in (ROOT / "tools/vma_stats").glob("*.c"))
    lib = [f"lib/{n}.c" for n in ("stats/text", "stats/sockopt_names", "runtime/clock", "runtime/libc", "runtime/lock", "runtime/log", "runtime/log_syslog",
                                   "runtime/own_fd")]

    def build(out):
        for name, sources in (("vma_stats", tool + lib), ("stats_writer", ["tests/integration/stats_writer.c"])):
            subprocess.run(["gcc", *flags.split(), "-o", out / name, *sources, "-lpthread", "-ldl", "-lncursesw", "-ltinfo", "-lpcap"], cwd=ROOT, check=True)
    return made_once(tmp_path_factory, "vma_stats", build)


class Writer:
    def __init__(self, programs, directory, *args, **options):
        self.process = subprocess.Popen([programs / "stats_writer", directory, *map(str, args)], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
        self.ready = self.process.stdout.readline()
        self.pid = self.process.pid
        self.path = pathlib.Path(directory) / f"vmastat.{self.pid}"

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(10 * PATIENCE) == 0, self.process.stderr.read()


@pytest.fixture
def directory(tmp_path):
    d = tmp_path / "shm"
    d.mkdir()
    return d


@pytest.fixture
def writer(programs, directory):
    w = Writer(programs, directory)
    assert w.ready == "ready 0\n"
    yield w
    if w.process.poll() is None:
        w.process.kill()
        w.process.wait()


@pytest.fixture
def tool(programs, directory):
    def run(*args, rc=0, first=True):
        r = subprocess.run([programs / "vma_stats", "-k", directory, *map(str, args)], text=True, capture_output=True,
                           timeout=20 * PATIENCE)
        assert r.returncode == rc, (r.returncode, r.stdout, r.stderr)
        assert "Sanitizer" not in r.stderr and "runtime error" not in r.stderr, r.stderr
        return r
    return run


def popen(programs, directory, *args):
    return subprocess.Popen([programs / "vma_stats", "-k", directory, *map(str, args)], text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def scribble(path, offset, data):
    with open(path, "r+b") as f:
        f.seek(offset)
        f.write(data)
