# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
A program on a pseudo terminal, and what a person would see on it. Of an xterm's sequences those are known that ncurses sends for
TERM=xterm-256color; another one is an error.
"""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

from netns import PATIENCE

SEQUENCE = re.compile(r"\x1b(?:\[(?P<private>[?>=!]?)(?P<args>[\d;]*)(?P<final>[@-~])|(?P<set>[()])(?P<charset>.)|(?P<one>[=>78MDEHc]))")


class Screen:
    def __init__(self, rows, columns):
        self.other = False  # the alternate page, which full-screen programs use
        self.cursor_shown = True
        self.resize(rows, columns)

    def resize(self, rows, columns):
        """The page is empty then: who draws it draws all of it."""
        self.rows, self.columns = rows, columns
        self.top, self.bottom = 0, rows - 1
        self.y = self.x = 0
        self.last = " "
        self.line = [[" "] * columns for _ in range(rows)]

    def at_home(self):
        return not self.y and (not self.x or self.columns == 1)

    def text(self):
        return "\n".join("".join(line).rstrip() for line in self.line)

    def feed(self, text):
        """What is left over: the begin of a sequence."""
        at = 0
        while at < len(text):
            c = text[at]
            if c != "\x1b":
                self.character(c)
                at += 1
                continue
            m = SEQUENCE.match(text, at)
            if not m:
                assert len(text) - at < 32, f"unknown sequence {text[at:at + 32]!r}"
                return text[at:]
            self.sequence(m)
            at = m.end()
        return ""

    def character(self, c):
        if c == "\r":
            self.x = 0
        elif c == "\n":
            self.down()
        elif c == "\b":
            self.x = max(0, self.x - 1)
        elif c == "\t":
            self.x = min(self.columns - 1, self.x // 8 * 8 + 8)
        elif c == "\a":
            pass
        else:
            assert c.isprintable(), f"control character {c!r}"
            if self.x == self.columns:
                self.x = 0
                self.down()
            self.line[self.y][self.x] = self.last = c
            self.x += 1

    def down(self):
        if self.y == self.bottom:
            self.scroll(1)
        else:
            self.y = min(self.rows - 1, self.y + 1)

    def scroll(self, n):
        for _ in range(abs(n)):
            gone, new = (self.top, self.bottom) if n > 0 else (self.bottom, self.top)
            del self.line[gone]
            self.line.insert(new, [" "] * self.columns)

    def sequence(self, m):
        if m["set"]:
            return
        if m["one"]:
            assert m["one"] in "=>78M", m.group()
            if m["one"] == "M":
                if self.y == self.top:
                    self.scroll(-1)
                else:
                    self.y -= 1
            return
        numbers = [int(n) if n else 0 for n in m["args"].split(";")]
        if m["private"]:
            self.mode(m["private"], numbers, m["final"])
        else:
            self.control(m["final"], numbers)

    def mode(self, private, numbers, final):
        assert private == "?" and final in "hl", (private, final)
        for n in numbers:
            if n == 1049:
                self.other = final == "h"
                self.resize(self.rows, self.columns)
            elif n == 25:
                self.cursor_shown = final == "h"
            else:
                assert n in (1, 7, 12, 1006, 1000), f"mode {n}"

    def control(self, final, numbers):
        n = max(1, numbers[0])
        self.x = min(self.x, self.columns - (final not in "mKP@Xb"))
        if final in "Hf":
            self.y = min(self.rows, n) - 1
            self.x = min(self.columns, max(1, numbers[1] if len(numbers) > 1 else 1)) - 1
        elif final == "A":
            self.y = max(0, self.y - n)
        elif final == "B":
            self.y = min(self.rows - 1, self.y + n)
        elif final == "C":
            self.x = min(self.columns - 1, self.x + n)
        elif final == "D":
            self.x = max(0, self.x - n)
        elif final == "G":
            self.x = min(self.columns, n) - 1
        elif final == "d":
            self.y = min(self.rows, n) - 1
        elif final == "r":
            self.top, self.bottom = n - 1, (numbers[1] if len(numbers) > 1 and numbers[1] else self.rows) - 1
            self.y = self.x = 0
        elif final == "S":
            self.scroll(n)
        elif final == "T":
            self.scroll(-n)
        elif final == "b":
            for _ in range(n):
                self.character(self.last)
        elif final in "JKXP@LM":
            self.erase(final, numbers[0], n)
        else:
            assert final in "mtlh", f"unknown control {final!r}"

    def erase(self, final, which, n):
        line, x = self.line[self.y], min(self.x, self.columns - 1)
        if final == "K":
            first, last = {0: (x, self.columns), 1: (0, x + 1), 2: (0, self.columns)}[which]
            line[first:last] = [" "] * (last - first)
        elif final == "J":
            assert which in (0, 2)
            if which == 2:
                self.line = [[" "] * self.columns for _ in range(self.rows)]
            else:
                line[x:] = [" "] * (self.columns - x)
                for y in range(self.y + 1, self.rows):
                    self.line[y] = [" "] * self.columns
        elif final == "X":
            n = min(n, self.columns - x)
            line[x:x + n] = [" "] * n
        elif final == "P":
            del line[x:x + n]
            line += [" "] * (self.columns - len(line))
        elif final == "@":
            line[x:x] = [" "] * n
            del line[self.columns:]
        else:
            for _ in range(min(n, self.bottom + 1 - self.y)):
                gone, new = (self.bottom, self.y) if final == "L" else (self.y, self.bottom)
                del self.line[gone]
                self.line.insert(new, [" "] * self.columns)


class Terminal:
    """A program with a terminal of its own."""

    def __init__(self, argv, rows=24, columns=80, term="xterm-256color", locale="C.UTF-8", env=()):
        self.master, slave = pty.openpty()
        self.screen = Screen(rows, columns)
        self.rest, self.raw = "", b""
        self.set_size(rows, columns)
        self.before = termios.tcgetattr(slave)
        env = {**os.environ, "TERM": term, "LC_ALL": locale, **dict(env)}
        env.pop("LINES", None)
        env.pop("COLUMNS", None)

        def controls():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        self.process = subprocess.Popen([str(a) for a in argv], stdin=slave, stdout=slave, stderr=slave, env=env, preexec_fn=controls)
        self.slave = slave  # so that its settings can be read when the program has ended

    def set_size(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, rows, columns):
        self.read()
        self.screen.resize(rows, columns)
        self.set_size(rows, columns)

    def type(self, text):
        os.write(self.master, text.encode())

    def read(self, timeout=0.0):
        """What the program has written meanwhile. False: nothing."""
        if not select.select([self.master], [], [], timeout)[0]:
            return False
        data = os.read(self.master, 65536)
        self.raw += data
        text = self.rest + self.decoded(data)
        self.rest = self.screen.feed(text)
        return True

    def decoded(self, data):
        """Without the begin of a character, which stays for the next time."""
        self.half = getattr(self, "half", b"") + data
        for cut in range(4):
            with contextlib.suppress(UnicodeDecodeError):
                text = self.half[:len(self.half) - cut].decode()
                self.half = self.half[len(self.half) - cut:]
                return text
        raise AssertionError(f"not UTF-8: {self.half!r}")

    def wait(self, fact, what=None, timeout=20.0):
        """
        Until fact(the page's text) is true, of a page that is whole: the program leaves its cursor in the first corner then.
        The page's text.
        """
        if isinstance(fact, str):
            what, fact = fact, lambda text, wanted=fact: wanted in text
        end = time.monotonic() + timeout * PATIENCE
        while not (self.screen.at_home() and fact(self.screen.text())):
            assert time.monotonic() < end, f"not seen: {what}\n{self.screen.text()}"
            self.read(0.1)
        return self.screen.text()

    def ended(self, timeout=20.0):
        """The exit status, once the program has ended and all that it wrote is read."""
        end = time.monotonic() + timeout * PATIENCE
        while self.process.poll() is None:
            assert time.monotonic() < end, self.screen.text()
            self.read(0.05)
        while self.read():
            pass
        return self.process.returncode

    def restored(self):
        return (termios.tcgetattr(self.slave) == self.before and not self.screen.other and self.screen.cursor_shown)

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        for fd in (self.master, self.slave):
            with contextlib.suppress(OSError):
                os.close(fd)
