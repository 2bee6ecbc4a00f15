# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What conftest.py looks for after the tests is found when it is there."""

import os
import pathlib
import signal
import socket
import subprocess
import time

import pytest

import leftovers
from netns import ip, remove_namespace, wait_for

SERVER = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("0.0.0.0", 7030))
s.settimeout(60)
print("ready", flush=True)
s.recvfrom(100)
s.recvfrom(100)
"""


def test_a_process_that_outlives_its_program_is_found(net, monkeypatch):
    """Its own session, and its parent has ended."""
    net.a.run(["sh", "-c", "setsid sleep 600 & echo $!"])
    [pid] = ip("netns", "pids", net.a.name).split()
    with monkeypatch.context() as m:
        m.setattr(leftovers, "ENDING", 0.1)
        left = leftovers.of_host(net.a)
    print(left)
    os.kill(int(pid), signal.SIGKILL)
    assert len(left) == 1 and "sleep 600" in left[0]
    assert leftovers.of_host(net.a) == [] == leftovers.of_host(net.b)


def test_descriptors_children_and_namespaces_of_the_tests_are_found(monkeypatch):
    worker = leftovers.Worker(set())
    assert worker.left() == []
    name = f"vma-it-{os.getpid()}-999a"
    ip("netns", "add", name)
    s, child = socket.socket(), subprocess.Popen(["sleep", "600"])
    with monkeypatch.context() as m:
        m.setattr(leftovers, "ENDING", 0.1)
        left = worker.left()
    print(left)
    remove_namespace(name)
    s.close()
    child.kill()
    child.wait()
    assert sorted(what.split()[0] for what in left) == ["descriptor", "namespace", "process"]
    assert worker.left() == []


def test_the_steering_map_of_a_process_is_found(net):
    """While it runs: the map is there as long as one that was left would be."""
    server = net.a.python(SERVER, preload=True)
    server.wait_text("ready")
    client = net.b.socket()
    client.sendto(b"1", (net.a.ip4, 7030))
    wait_for(lambda: leftovers.maps({server.pid}), what="the map of a process that runs")

    def ended():
        client.sendto(b"2", (net.a.ip4, 7030))
        return not server.alive()

    wait_for(ended, 10)
    client.close()
    assert server.wait() == 0
    assert leftovers.gone(lambda: leftovers.maps({server.pid})) == []


def test_a_directory_of_all_programs_keeps_its_mode(monkeypatch):
    worker = leftovers.Worker(set())
    before = leftovers.modes()
    monkeypatch.setattr(leftovers, "modes", lambda: {(path, "0o40755" if path == "/tmp" else mode) for path, mode in before})
    left = worker.left()
    print(left)
    assert left == ["/tmp has the mode 0o40755"] and worker.modes == before


def test_statistics_of_a_killed_process_are_found_once():
    """Numbers of processes come again: what was there before is not what the next of that number has left."""
    child = subprocess.Popen(["true"])
    child.wait()
    before = time.time() - 1
    file = pathlib.Path(f"/tmp/vmastat.{child.pid}")
    file.write_bytes(b"\0\1sockperf\0")
    try:
        assert leftovers.files({child.pid}, before) == [f"{file}: sockperf"]
        assert leftovers.files({child.pid}, file.stat().st_ctime + 1) == []
        assert leftovers.files({os.getpid()}, before) == []
    finally:
        file.unlink()


ENDS = {
    "exit": ("", True),
    "_exit": ("import os; os._exit(0)", False),
    "exec": ("import os; os.execlp('true', 'true')", False),
    "signal": ("import os; os.kill(os.getpid(), 9)", False),
    "without-rights": ("import ctypes, struct; assert ctypes.CDLL(None).capset(struct.pack('Ii', 0x20080522, 0), bytes(24)) == 0", False),
}


@pytest.mark.parametrize("end", ENDS)
def test_what_ended_by_exit_says_so(net, end):
    """And what it leaves is found: while it runs it looks like one that has not cleared away."""
    last_words, says = ENDS[end]
    server = net.a.python(SERVER + last_words, preload=True)
    server.wait_text("ready")
    with net.b.socket() as client, pytest.MonkeyPatch.context() as m:
        client.sendto(b"1", (net.a.ip4, 7030))
        wait_for(lambda: leftovers.maps({server.pid}), what="the map of a process that runs")
        m.setattr(leftovers, "ENDING", 0.1)
        m.setattr(leftovers, "exited", lambda tmp: {server.pid})
        left = leftovers.of_host(net.a)
        assert [word for word in ("process", "map vma_owner", "vmastat") if any(word in what for what in left)] == [
            "process", "map vma_owner", "vmastat"], left

        def ended():
            client.sendto(b"2", (net.a.ip4, 7030))
            return not server.alive()

        wait_for(ended, 10)
    assert leftovers.exited(net.tmp) == ({server.pid} if says else set())
    print(f"{end}: {'looked at' if says else 'passed over'}")
