# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
What a test has left behind: processes, namespaces, steering programs and their pins, statistics, files, descriptors of its own.
Of what a process leaves only if it ended by exit(), as exits.c tells: after a signal, _exit() or exec() the next owner clears its
steering away, or the namespace's end does.
"""

import collections
import contextlib
import gc
import os
import pathlib
import re
import time

from netns import bpftool, children, ip, proc, wait_for


ENDING = 5.0  # seconds that the end of a process may take


def gone(fact, timeout=None):
    """What fact() lists once it lists nothing, or when time is up: the end of a process takes its time."""
    last = []

    def nothing():
        last[:] = fact()
        return not last

    with contextlib.suppress(AssertionError):
        wait_for(nothing, timeout or ENDING)
    return last


def name_of(pid):
    return f"process {pid} ({proc(pid, 'cmdline').replace(chr(0), ' ').strip() or '?'})"


def of_host(host):
    """Processes in it, after its programs were ended: children that outlive them, daemons."""
    if not os.path.exists(f"/run/netns/{host.name}"):
        return []
    left = gone(lambda: [name_of(pid) for pid in ip("netns", "pids", host.name).split()])
    ended = exited(host.net.tmp)
    if ended and steers(host):
        left += gone(lambda: maps(ended))
    left += [str(f) for pid in ended for f in host.net.tmp.glob(f"vmastat.{pid}")]
    return [f"{host.name}: {what}" for what in left]


def exited(tmp):
    """The processes, children too, that have ended by exit(); without those whose number another one has by now."""
    pids = {int(f.suffix[1:]) for f in tmp.glob("exited.*")}
    return {pid for pid in pids if not os.path.exists(f"/proc/{pid}")}


def steers(host):
    """Somebody's steering program or its pins are there."""
    pins = pathlib.Path(f"/sys/fs/bpf/vma/netns-{os.stat(f'/run/netns/{host.name}').st_ino}")
    return pins.exists() or "xdp" in ip("-n", host.name, "link")


def descriptors():
    """Of this process, by what they are. The standard ones pytest redirects now and then."""
    links = collections.Counter()
    for fd in os.listdir("/proc/self/fd"):
        if int(fd) <= 2:
            continue
        with contextlib.suppress(OSError):
            links[os.readlink(f"/proc/self/fd/{fd}")] += 1
    return links


def maps(pids):
    """Steering maps of those processes, which have ended: a program on an interface, a pin, or somebody else has them."""
    found = []
    for m in bpftool("map", "list") or []:
        if m.get("name") != "vma_owner":
            continue
        entry = bpftool("map", "lookup", "id", str(m["id"]), "key", "0", "0", "0", "0")
        if entry:
            value = bytes(int(b, 16) for b in entry["value"])
            owner = int.from_bytes(value[:4], "little")
            if owner in pids:
                found.append(f"map vma_owner {m['id']} of process {owner}")
    return found


def words_of(path):
    """What can be read in it: statistics begin with the name of their program."""
    with open(path, "rb") as f:
        return " ".join(w.decode() for w in re.findall(rb"[ -~]{4,}", f.read(4096)))[:200]


def files(pids, since):
    """
    What the library has written, where it is not told to write elsewhere, of those processes, without those whose number is used again.
    since: time.time() before the first of them. An older file is another process's, which was killed and had the same number.
    """
    numbers = {str(pid) for pid in pids if not os.path.exists(f"/proc/{pid}")}
    found = []
    for f in (f for d in ("/tmp", "/dev/shm") for f in pathlib.Path(d).glob("*vma*") if numbers & set(f.name.split("."))):
        with contextlib.suppress(FileNotFoundError):
            if f.stat().st_ctime >= since:
                found.append(f"{f}: {words_of(f)}")
    return found


def modes():
    """Of directories that all programs of the machine share: (path, mode)."""
    return {(path, oct(os.stat(path).st_mode)) for path in ("/", "/tmp", "/dev/shm", "/run", "/etc")}


class Worker:
    """What this process of pytest has at the beginning of a file."""

    def __init__(self, pids):
        """pids: of all programs with the library, a set that grows."""
        self.descriptors = descriptors()
        self.children = set(children(os.getpid()))
        self.modes = modes()
        self.namespaces = set(self._namespaces())
        self.pids = pids
        self.pids.clear()
        # The clock of files is the kernel's tick, which may be some milliseconds behind.
        self.since = time.time() - 1

    @staticmethod
    def _namespaces():
        return [n.name for n in pathlib.Path("/run/netns").glob(f"vma-it-{os.getpid()}-*")]

    def left(self):
        left = [f"namespace {n}" for n in set(self._namespaces()) - self.namespaces]
        left += [f"{path} has the mode {mode}" for path, mode in modes() - self.modes]
        left += gone(lambda: [name_of(p) for p in set(children(os.getpid())) - self.children])
        if descriptors() - self.descriptors:
            gc.collect()
        left += [f"descriptor of the test: {link}" for link in gone(lambda: list(descriptors() - self.descriptors), 1)]
        if self.pids:
            left += gone(lambda: maps(self.pids), 20) + files(self.pids, self.since)
        return left
