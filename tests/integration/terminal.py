# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""README's terminal session: its commands, a machine to run them on, and whether what they print is what README shows.

A block behind the line <!-- session --> is a part of it, one behind <!-- session: module --> a part that wants vma.ko. In a
`sh` block each line is a command, of which only the exit status counts. In a `console` block a command stands behind "# ",
and below it what it prints; a line "..." stands for any lines that README leaves out.
"""

import contextlib
import dataclasses
import os
import pathlib
import re
import shutil
import signal
import subprocess

from netns import ROOT, wait_for

PROMPT = "# "
BLOCK = re.compile(r"^<!-- session(: module)? -->\n```(sh|console)\n(.*?)^```$", re.M | re.S)


@dataclasses.dataclass
class Command:
    text: str
    module: bool
    shown: list = None  # None: not compared

    @property
    def background(self):
        return self.text.endswith("&")


def commands(markdown):
    session = []
    for module, kind, body in BLOCK.findall(markdown):
        for line in body.splitlines():
            if kind == "sh":
                session.append(Command(line.split("  #")[0].strip(), bool(module)))
            elif line.startswith(PROMPT):
                session.append(Command(line[len(PROMPT):], bool(module), []))
            else:
                session[-1].shown.append(line)
    return session


# What differs from one run to the next. An address with its port is the session's own and stays.
VARIES = (
    (r"\x1b\[[\d;]*m", ""),  # colours
    (r"Node: \S+", "Node: host"),
    (r"\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b", "day"),
    (r"\b(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\b", "month"),
    (r"(\d+\.\d+\.\d+\.\d+)|\b0x[\da-f]+\b|\d+(?:\.\d+)?", lambda found: found[1] or "0"),
    (r"\s+", " "),
)


def plain(lines):
    """The lines with what varies taken out, and without empty ones."""
    result = []
    for line in lines:
        for pattern, instead in VARIES:
            line = re.sub(pattern, instead, line)
        if line.strip():
            result.append(line.strip())
    return result


def fits(shown, printed):
    """printed is what README shows: the same lines, words and columns."""
    groups = [[]]
    for line in plain(shown):
        if line == "...":
            groups.append([])
        else:
            groups[-1].append(line)
    lines, at = plain(printed), 0
    if len(groups) == 1:
        return groups[0] == lines
    for i, group in enumerate(groups):
        last = len(lines) - len(group)
        places = range(at, last + 1) if 0 < i < len(groups) - 1 else [0 if i == 0 else last]
        place = next((p for p in places if p >= at and lines[p:p + len(group)] == group), None)
        if place is None:
            return False
        at = place + len(group)
    return True


# A machine of its own: network, processes, /sys with a bpffs, /run and /tmp. The tree stays where it is, be it below /tmp.
MACHINE = f"""
set -e
mount -t sysfs sysfs /sys
mount -t bpf bpf /sys/fs/bpf
mount -t tmpfs tmpfs /run
mkdir /run/tree
mount --bind {ROOT} /run/tree
mount -t tmpfs tmpfs /tmp
mkdir -p {ROOT}
mount --bind /run/tree {ROOT}
cd {ROOT}
ip link set lo up
exec /bin/bash
"""


# Seconds of a measurement.
MEASURES = " -t "
TRIES = 5
# Other tests want the processors, too: nobody spins.
ENVIRONMENT = {"VMA_RX_POLL": "0", "VMA_SELECT_POLL": "0"}
IN_VM = pathlib.Path("/vm/command").exists()
# In the virtual machine it runs as on any machine: the module counts by the first namespace's pids.
SHELL = ["/bin/bash"] if IN_VM else ["unshare", "--net", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child",
                                    "--mount-proc", "/bin/bash", "-c", MACHINE]


class Terminal:
    """One shell on such a machine. What a command prints goes to a file each."""

    def __init__(self):
        # The tree is the one place that both sides see under the same name.
        self.outputs = ROOT / "build" / f"session-{os.getpid()}"
        self.outputs.mkdir(parents=True)
        self.shell = subprocess.Popen(SHELL, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                      cwd=ROOT, start_new_session=True, env={**os.environ, **ENVIRONMENT})
        self.count = 0
        self.status("true")

    def status(self, text, output="/dev/null"):
        self.shell.stdin.write(f"{{\n{text}\n}} </dev/null >{output} 2>&1\necho done $?\n")
        self.shell.stdin.flush()
        answer = self.shell.stdout.readline().split()
        assert answer[:1] == ["done"], f"the shell said {answer} to {text!r}"
        return int(answer[1])

    def once(self, command):
        """Runs it; returns what is wrong with that, or nothing."""
        output = self.outputs / str(self.count)
        self.count += 1
        status = self.status(command.text, output)

        def printed():
            return output.read_text(errors="replace").splitlines()

        if status != 0:
            return "\n".join([f"{command.text}: exit status {status}", *printed()])
        if command.shown is None:
            return None
        if command.background:
            with contextlib.suppress(AssertionError):
                wait_for(lambda: fits(command.shown, printed()), 20)
        if fits(command.shown, printed()):
            return None
        return "\n".join([f"README's session does not show what comes of: {command.text}", "--- README shows:",
                          *command.shown, "--- came:", *printed()])

    def run(self, command):
        """
        AssertionError when it fails, or prints something else than README shows. A program that measures for some seconds
        may not get a turn in them on a machine that has other work: such a one is run again.
        """
        for left in reversed(range(TRIES)):
            wrong = self.once(command)
            if not wrong:
                return
            assert left and MEASURES in command.text and not command.background, wrong

    def close(self):
        """Ends what still runs there, and the machine."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.shell.pid, signal.SIGKILL)
        self.shell.wait()
        shutil.rmtree(self.outputs)


def play(module):
    """Runs README's session; returns its commands."""
    session = [c for c in commands((ROOT / "README.md").read_text()) if module or not c.module]
    terminal = Terminal()
    try:
        for command in session:
            terminal.run(command)
    finally:
        terminal.close()
    return session
