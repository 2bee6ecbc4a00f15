# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The machine under a measurement: the CPU time that it spends, and endless loops that take some."""

import contextlib
import os
import pathlib
import subprocess
import time

TICK = os.sysconf("SC_CLK_TCK")
CPUS = os.cpu_count()


def not_ours():
    """CPU seconds since the boot in which no program here ran: idle, waiting for a disk, or taken by the host."""
    words = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return sum(int(words[n]) for n in (4, 5, 8)) / TICK


def ran(pid):
    """CPU seconds of a process with one thread, exactly: /proc/stat knows hundredths."""
    return int(pathlib.Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


class Meter:
    """
    CPU seconds of all processors since it was made, the loops' left out: every program's, the kernel's and the interrupts'.
    What the machine does besides is counted, too. So it is told from what it did not do: idle time is exact, the rest is sampled.
    """

    def __init__(self, loops=()):
        self.loops = loops
        self.at = self._look()

    def _look(self):
        return time.monotonic() * CPUS - not_ours() - sum(ran(pid) for pid in self.loops)

    def spent(self):
        return max(self._look() - self.at, 0.0)


@contextlib.contextmanager
def endless_loops():
    """One on each processor, which ends with this process in any case. Gives their pids."""
    loops = [subprocess.Popen(["taskset", "-c", str(cpu), "setpriv", "--pdeathsig", "KILL", "/bin/sh", "-c", "while :; do :; done"])
             for cpu in range(CPUS)]
    try:
        yield [loop.pid for loop in loops]
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
