# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How the time of a run of all rows is shared out, and what is left of it."""

import contextlib
import json
import time


class Plan:
    """
    The rows as people run it have a fixed number of rounds. A pinned row has rounds until its time is over: what those leave of
    the whole. How long each took is kept in a file, for the next run.
    """

    WHOLE = 23 * 60.0  # seconds; a row that is late is the rest of 25 minutes
    LEAST, MOST = 8.0, 33.0  # of a pinned row
    PEOPLE = 32.0  # of a row as people run it that no run has measured yet

    def __init__(self, names, people, file):
        self.names = names
        self.people = people
        self.file = file
        self.took = json.loads(file.read_text()) if file.exists() else {}
        self.begun = time.monotonic()
        self.at = 0

    def _expected(self, name):
        return self.took.get(name, self.PEOPLE if name in self.people else self.MOST)

    def _left(self):
        """The pinned rows from here on, and the seconds that those as people run it will take."""
        rest = self.names[self.at:]
        return [n for n in rest if n not in self.people], sum(self._expected(n) for n in rest if n in self.people)

    def _budget(self):
        pinned, people = self._left()
        free = self.begun + self.WHOLE - time.monotonic() - people
        return min(max(free / max(len(pinned), 1), self.LEAST), self.MOST)

    @contextlib.contextmanager
    def row(self, name):
        """While it is measured; gives the seconds that a pinned row has."""
        begun = time.monotonic()
        yield self._budget()
        self.at += 1
        self.took[name] = round(time.monotonic() - begun, 1)
        self.file.write_text(json.dumps(self.took, indent=2) + "\n")

    def minutes(self):
        seconds = time.monotonic() - self.begun
        return f"{seconds // 60:.0f} min {seconds % 60:.0f} s"

    def __str__(self):
        """Where the run is: [3/48, some 14 min left]"""
        pinned, people = self._left()
        left = people + sum(min(self._expected(n), self._budget()) for n in pinned)
        return f"[{min(self.at + 1, len(self.names))}/{len(self.names)}, some {max(left / 60, 1):.0f} min left]"
