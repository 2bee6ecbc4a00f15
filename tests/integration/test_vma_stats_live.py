# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""vma_stats on a terminal: the live view."""

import json
import os
import re
import shutil
import signal
import subprocess
import termios

import pytest

from netns import wait_for
from screen import Terminal
from stats_tool import PID, ROOT, VERSION, Writer, directory, popen, programs, scribble, tool, writer  # noqa: F401

UP, DOWN, ESCAPE, ENTER = "\x1bOA", "\x1bOB", "\x1b", "\r"
BARS = "▁▂▃▄▅▆▇█"


@pytest.fixture
def live(programs, directory):
    """Opens the live view of the directory's processes."""
    opened = []

    def start(*args, **options):
        opened.append(Terminal([programs / "vma_stats", "--live", "-k", directory, *args], **options))
        return opened[-1]
    yield start
    for t in opened:
        t.close()
        assert b"Sanitizer" not in t.raw and b"runtime error" not in t.raw, t.raw.decode(errors="replace")


def rows(text):
    """The list's rows: without title and heading, the line about the chosen row, and the keys."""
    return [line for line in text.split("\n")[2:-2] if line]


def fds(text):
    return [int(line.split()[0]) for line in rows(text) if line.split()[0].isdigit()]


def sockets_of(t, pid):
    t.wait(f"\n{pid:>7} stats_writ~")
    t.type(ENTER)
    t.wait("0.0.0.0:11111")


def test_the_first_page_lists_the_processes(writer, programs, directory, live):
    other = Writer(programs, directory)
    t = live()
    text = t.wait("2 processes")
    lines = text.split("\n")
    assert lines[0].startswith("vma_stats  2 processes  ") and lines[0].endswith("rates  by RX/s    1 s")
    assert lines[1].split() == ["PID", "PROGRAM", "SOCK", "RX/s", "TX/s", "RXB/s", "TXB/s", "OS/s", "DRP/s", "RTR/s", "SPIN", "PKT/s"]
    assert [r.split()[:3] + r.split()[10:11] for r in rows(text)] == [[str(p), "stats_writ~", "3", "70"]
                                                                     for p in sorted((writer.pid, other.pid))]
    assert "veth0 RING_XDP" in lines[22] and lines[23].startswith("Enter sockets") and lines[23].endswith("q quit")
    other.end()
    t.wait("1 process ")


def test_a_rate_is_seen_in_its_column_and_as_a_bar(writer, live):
    t = live()
    t.wait(lambda text: "▁" in text, "the first bar")
    writer.say("add")
    t.wait(lambda text: re.search(rf"^ *{writer.pid} .* [1-9]\d*\.?\d* ", text, re.M) and "█" in text, "a whole bar")


def test_a_terminal_without_utf8_gets_ascii(writer, live):
    t = live(locale="C")
    t.wait(lambda text: rows(text) and rows(text)[0].endswith("_"), "the first bar")
    writer.say("add")
    t.wait(lambda text: "#" in text, "a whole bar")
    assert t.screen.text().isascii()


def test_going_into_a_process_and_a_socket_and_back(writer, live):
    t = live()
    sockets_of(t, writer.pid)
    t.type(DOWN)
    t.wait("[2001:db8::1]:44522 > [2001:db8::2]:6666  offloaded, by kernel: flags, ")
    t.type(ENTER)
    text = t.wait("- Foreign Address = [[2001:db8::2]:6666]")
    assert f"{writer.pid} stats_writer, fd 15" in text and "Retransmissions: 9" in text
    t.type("i")
    t.wait("everything")
    t.type("G")
    t.wait("BUFFER_POOL(TX)=[1]")
    t.type("g")
    t.wait("Fd=[14]")
    t.type(ESCAPE)
    t.wait("Foreign Address")
    t.type(ESCAPE)
    assert fds(t.wait("QUEUE")) == [14, 15, 16]
    t.type(ESCAPE)
    t.wait("1 process ")
    t.type(ESCAPE)
    t.type("?")
    t.wait("into the process, then into the socket")
    t.type("q")
    t.wait("1 process ")


def test_sorting(writer, live):
    t = live()
    sockets_of(t, writer.pid)
    t.type("SSSS")
    assert fds(t.wait("by FD")) == [16, 15, 14]
    t.type("r")
    assert fds(t.wait("by FD (up)")) == [14, 15, 16]
    t.type("s")
    t.wait("by PRO ")
    assert [r.split()[1] for r in rows(t.screen.text())] == ["tcp", "udp", "udp"]
    t.type("stsss")
    assert fds(t.wait("totals  by TX ")) == [15, 14, 16]
    assert "5.0G" in rows(t.screen.text())[0]


def test_the_chosen_row_stays_chosen_when_the_order_changes(writer, live):
    t = live()
    sockets_of(t, writer.pid)
    t.type(DOWN)
    t.wait("[2001:db8::1]:44522 >")
    t.type("SSSSr")
    t.wait("by FD (up)")
    assert "[2001:db8::1]:44522 >" in t.screen.text()
    t.type(UP)
    t.wait("\n0.0.0.0:11111  offloaded")


def test_filtering(writer, live):
    t = live()
    sockets_of(t, writer.pid)
    t.type("/ESTab")
    t.wait("Show only rows with: ESTab_")
    t.type("\x7f\r")
    assert fds(t.wait("/ESTa ")) == [15]
    t.type("/xyz\r")
    t.wait("nothing has the text of the filter")
    t.type("/" + "\x7f" * 10 + "\r")
    t.wait(lambda text: fds(text) == [14, 15, 16], "all rows")
    t.type("/a very long text that does not end where the place for it ends\x1b")
    t.wait("Enter socket")
    assert fds(t.screen.text()) == [14, 15, 16]


def test_why_the_kernel_serves_a_socket(writer, live):
    """fd 15's sends go by the kernel for MSG_DONTWAIT: stats_writer.c says so. The others are without a reason."""
    t = live()
    sockets_of(t, writer.pid)
    assert "by kernel" not in t.screen.text().split("\n")[-2]
    t.type("/FLAGS\r")
    assert fds(t.wait("/FLAGS ")) == [15]
    assert "  offloaded, by kernel: flags, dropped 0" in t.screen.text().split("\n")[-2]
    t.type(ENTER)
    t.wait("By the kernel = [sends: a flag of the call that user space does not have")
    t.type(ESCAPE)
    t.wait("Enter socket")
    t.type("/" + "\x7f" * 10 + "\r")
    t.wait(lambda text: fds(text) == [14, 15, 16], "all rows")
    t.resize(24, 92)
    heading, *lines = t.wait("BY KERNEL").split("\n")[1:-2]
    column = heading.index("BY KERNEL")
    assert {line[:5].strip(): line[column:column + 16].strip() for line in lines if line} == {"14": "", "15": "flags", "16": ""}


def test_zeroing(writer, live, tool):
    def packets(fd):
        return [s["rx"]["packets"] + s["tx"]["packets"] for s in json.loads(tool("--json", "-c", 1).stdout)["sockets"] if s["fd"] == fd]
    t = live()
    sockets_of(t, writer.pid)
    t.type("z")
    t.wait("for every vma_stats that looks? y or n")
    t.type("n")
    t.wait("Enter socket")
    assert packets(14) == [786143]
    t.type("zy")
    t.wait("The counters are zero.")
    assert packets(14) == [0] and packets(15) == [5000000000]
    t.type("t")
    t.wait(lambda text: re.search(r"^ +14 udp +0\.0\.0\.0:11111 +0 +0 ", text, re.M), "zeros")


def test_pausing_and_the_interval(writer, programs, directory, live):
    t = live("-i", "5")
    t.wait("    5 s")
    t.type("+")
    t.wait("    6 s")
    t.type("------")
    t.wait("    1 s")
    t.type("p")
    t.wait("PAUSED")
    other = Writer(programs, directory)
    t.type("?")
    t.wait("Any key")
    t.type("x")
    t.wait("1 process ")
    t.type("p")
    t.wait("2 processes")
    other.end()


def test_resizing(writer, live):
    t = live()
    t.wait("1 process ")
    for r, c in ((50, 200), (24, 80), (10, 40), (5, 20), (4, 80), (3, 80), (2, 10), (1, 1), (300, 500), (24, 80)):
        t.resize(r, c)
        t.wait(lambda text: text.startswith("vma_stats"[:c]), f"{r} rows, {c} columns")
    sockets_of(t, writer.pid)
    t.resize(24, 200)
    t.wait("RTTus")
    t.wait("LOCAL")


def test_resizing_answers_no_question(writer, live, tool):
    t = live()
    for key, asked in (("?", "Any key goes back"), ("z", "y or n"), ("n/x", "Show only rows with: x_")):
        t.type(key)
        t.wait(asked)
        t.resize(30, 90)
        t.wait(lambda text: asked in text.split("\n")[-1] and text.count("\n") == 29, f"{asked} on the last line")
        t.resize(24, 80)
        t.type("x" if key == "?" else "")
    t.type("\r")
    t.wait("nothing has the text of the filter")


def test_long_lists_scroll(programs, directory, live):
    w = Writer(programs, directory, 64)
    data = w.path.read_bytes()
    header, size = (int.from_bytes(data[n:n + 4], "little") for n in (12, 16))
    first = bytearray(data[header:header + size])
    for slot in range(40):
        first[4:8] = (100 + slot).to_bytes(4, "little")
        scribble(w.path, header + slot * size, first)
    t = live()
    sockets_of(t, w.pid)
    assert fds(t.wait("\n  119 ")) == list(range(100, 120))
    t.type("G")
    assert fds(t.wait("\n  139 ")) == list(range(120, 140))
    t.type("\x1b[5~" + UP)
    t.type(ENTER)
    t.wait("fd 128")
    t.type(ESCAPE + "g")
    assert fds(t.wait("\n  100 ")) == list(range(100, 120))
    w.end()


def test_q_leaves_the_terminal_as_it_was(writer, live):
    t = live()
    t.wait("1 process ")
    assert termios.tcgetattr(t.slave) != t.before and t.screen.other and not t.screen.cursor_shown
    t.type("q")
    assert t.ended() == 0 and t.restored()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_the_terminal_as_it_was(writer, live, number):
    t = live()
    t.wait("1 process ")
    t.process.send_signal(number)
    assert t.ended() == 0 and t.restored()


def test_ctrl_c_leaves_the_terminal_as_it_was(writer, live):
    t = live()
    t.wait("1 process ")
    t.type("\x03")
    assert t.ended() == 0 and t.restored()


@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGQUIT])
def test_a_fault_leaves_the_terminal_as_it_was(writer, live, number):
    t = live()
    t.wait("1 process ")
    t.process.send_signal(number)
    assert t.ended() == -number and t.restored()


def test_a_terminal_that_goes_ends_it(writer, live):
    t = live()
    t.wait("1 process ")
    os.close(t.slave)
    os.close(t.master)
    assert t.process.wait(60) == 0


def test_a_process_that_ends_is_told(writer, live):
    t = live()
    sockets_of(t, writer.pid)
    t.type(ENTER)
    t.wait("Fd=[14]")
    writer.say("close 14")
    t.wait("The socket was closed.")
    t.type(ESCAPE)
    writer.end()
    t.wait("(ended)")
    t.type("izy")
    t.wait("The process has ended.")
    t.type(ESCAPE + ENTER + ESCAPE)
    t.wait("no process runs over libvma.so")


def test_a_process_that_cannot_be_read_says_why(writer, live):
    scribble(writer.path, VERSION, b"\xff")
    t = live()
    t.wait("is not compatible with VMA version")
    t.type("i")
    t.wait("is not compatible with VMA version")
    t.type(ESCAPE + ENTER)
    t.wait("no sockets")


def test_scribbled_pages_are_shown_without_harm(writer, live):
    """Screen asserts that no control character comes."""
    scribble(writer.path, 32, b"\xff" * (writer.path.stat().st_size - 32))
    t = live("-p", writer.pid)
    t.wait("1 process ")
    t.resize(60, 300)
    for keys in ("t", "i", "G", ESCAPE, ENTER, "t", "ssssss", "/?\r", ENTER, "G", ESCAPE, "zy"):
        t.type(keys)
        t.wait("vma_stats")
    os.truncate(writer.path, 100)
    t.type("p")
    t.wait("PAUSED")
    t.type("p")
    t.wait("is truncated", timeout=20)


def test_it_needs_a_terminal(writer, tool, live):
    said = "vmastat: --live needs a terminal that can move its cursor"
    assert tool("--live", rc=1).stderr == said + "\n"
    for term in ("dumb", "no-such-terminal"):
        t = live(term=term, env={"ASAN_OPTIONS": "detect_leaks=0"})  # ncurses loses some memory where it finds no such terminal
        assert t.ended() == 1 and said in t.screen.text() and t.restored()
    assert "choose one of them" in tool("--live", "--json", rc=1).stderr


# The usual directory of this process alone.
ALONE = 'exec 3<"$1" && mount --bind "$2" /tmp && exec /proc/self/fd/3'


@pytest.fixture
def alone(programs, directory):
    return ["unshare", "--mount", "sh", "-c", ALONE, "sh", str(programs / "vma_stats"), str(directory)]


def test_without_options_it_is_what_a_terminal_gets(writer, alone):
    t = Terminal(alone)
    try:
        t.wait(f"{writer.pid} stats_writ~")
        t.type("q")
        assert t.ended() == 0 and t.restored()
    finally:
        t.close()


def test_without_options_a_pipe_gets_text(writer, alone):
    p = subprocess.Popen(alone, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    assert p.stdout.readline() == f"vmastat: stats for application: stats_writer with pid: {writer.pid}\n"
    assert "total offloaded" in p.stdout.readline()
    p.send_signal(signal.SIGINT)
    assert p.communicate()[0].endswith("Got Ctrl-C (interrupted by user)\n")


def test_without_options_a_terminal_that_cannot_do_it_gets_text(writer, alone):
    t = Terminal(alone, rows=200, columns=200, term="dumb")
    try:
        while "total offloaded" not in t.screen.text():
            assert t.read(20)
    finally:
        t.close()


# ---- docs/vma_stats.md

CAPTURE = re.compile(r"(<!-- live: (\w+) -->\n```text\n)(.*?)(```\n)", re.S)


def alike(page):
    """Without what differs from one run to the next: pids, rates, and with them the order of the rows."""
    return sorted(re.sub(r"\s+", " ", re.sub(rf"[\d.]+[kM]?|[{BARS}]+", "", line)).strip() for line in page.rstrip("\n").split("\n"))


@pytest.fixture
def busy(programs, directory, tmp_path):
    """Two programs with something to see: the statistics of stats_writer.c, under other names."""
    writers = []
    for name in ("market-feed", "order-gate"):
        (tmp_path / name).mkdir()
        shutil.copy(programs / "stats_writer", tmp_path / name / "stats_writer")
        w = Writer(tmp_path / name, directory)
        scribble(w.path, 40 + 32, name.encode() + b"\0")
        writers.append(w)
    yield writers
    for w in writers:
        w.end()


def test_the_captures_in_the_documents_are_what_is_seen(busy, live):
    """CAPTURE=1 in the environment puts what was seen there."""
    t = live()
    t.wait(lambda text: "▁" in text, "the first bar")
    for w in busy:
        w.say("add")
    t.wait(lambda text: text.count("█") == 2, "two whole bars")
    seen = {"processes": t.screen.text()}
    t.type("SSSr\r")
    t.wait("0.0.0.0:11111")
    seen["sockets"] = t.wait("█")
    document = ROOT / "docs/vma_stats.md"
    shown = document.read_text()
    if os.environ.get("CAPTURE"):
        document.write_text(CAPTURE.sub(lambda m: m[1] + seen[m[2]] + "\n" + m[4], shown))
    captures = {m[2]: m[3] for m in CAPTURE.finditer(document.read_text())}
    assert captures.keys() == seen.keys()
    for name, page in seen.items():
        assert alike(captures[name]) == alike(page), name
