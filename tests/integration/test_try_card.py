# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""scripts/try-card: what a person with a card runs (docs/hardware.md), here over veth."""

import re

import pytest

from netns import ROOT

TOOL = ROOT / "scripts" / "try-card"
ROWS = ("UDP, half a round trip, median", "UDP, 99th percentile", "UDP, datagrams lost", "TCP, half a round trip, median",
        "TCP, one stream sent", "TCP, one stream received")

# Answers on the echo's port as try-card's peer does, but for one byte; nothing else is served.
FLIPS = """
import socket, sys
listener = socket.create_server((sys.argv[1], 11112))
print("serving", flush=True)
while True:
    s, _ = listener.accept()
    at = 0
    with s:
        while data := bytearray(s.recv(1 << 16)):
            if at <= 70000 < at + len(data):
                data[70000 - at] ^= 1
            at += len(data)
            s.sendall(data)
"""

pytestmark = pytest.mark.no_sanitize  # it measures


def tried(net, status, **env):
    """Its report; the library is the one that is under test."""
    out = net.tmp / "report.md"
    done = net.a.run([TOOL, net.a.dev, net.b.ip4, "-o", out, "--seconds", 1, "--pairs", 1], env={"BUILD": str(net.library.build), **env},
                     timeout=240, check=False)
    print(done.text)
    assert done.popen.returncode == status, done.text
    return out.read_text()


@pytest.mark.whole
def test_a_report_of_a_card(net):
    peer = net.b.popen([TOOL, "--peer", net.b.ip4])
    peer.wait_text("serving on")
    net.b.wait_bound(11111)
    for port in (11111, 11112, 5201):
        net.b.wait_bound(port, "tcp")
    text = tried(net, 0)
    assert text.splitlines()[-1] == "- all well"
    assert "- driver: veth" in text and "generic mode" in text
    assert text.count("16777216 of 16777216 bytes, equal") == 2
    for row in ROWS:
        kernel, ours = re.search(rf"^\| {row} \| [\w/]* \| (\S+) \| (\S+) \|", text, re.M).groups()
        if "lost" in row:
            assert float(kernel) == 0 and float(ours) == 0
        else:
            assert float(kernel) > 0 and float(ours) > 0


@pytest.mark.whole
def test_what_is_wrong_is_found(net):
    net.b.python(FLIPS, args=(net.b.ip4,)).wait_text("serving")
    text = tried(net, 1)
    assert text.splitlines()[-1] == "- not well"
    assert text.count("the first wrong one is 70000") == 2
    for row in ROWS:
        assert re.search(rf"^\| {row} \| [\w/]* \| - \| - \| (sockperf ping-pong|iperf3) over kernel: .+ \|$", text, re.M), row


@pytest.mark.whole
def test_that_nothing_was_offloaded_is_not_well(net):
    peer = net.b.popen([TOOL, "--peer", net.b.ip4])
    peer.wait_text("serving on")
    net.b.wait_bound(11111)
    for port in (11111, 11112, 5201):
        net.b.wait_bound(port, "tcp")
    text = tried(net, 1, VMA_RING_TYPE="none")
    assert text.splitlines()[-2:] == ["- **the library has left the interface to the kernel**", "- not well"]


# The peer takes connections and sends nothing back.
SILENT = """
import socket, sys
listener = socket.create_server((sys.argv[1], 11112))
print("serving", flush=True)
kept = [listener.accept() for _ in range(100)]
"""


def test_a_program_that_does_not_end_is_in_the_report(net, tmp_path):
    """The line that says so takes the place of what it would have printed."""
    net.b.python(SILENT, args=(net.b.ip4,)).wait_text("serving")
    code = (f"import runpy, sys; t = runpy.run_path({str(TOOL)!r}, run_name='tool')\n"
            f"print(t['Side']('kernel', {{}}).run(sys.executable, '-c', t['STREAM'], {net.b.ip4!r}, t['ECHO'], t['STREAM_BYTES'], t['SEED'], patience=2))")
    done = net.a.python(code, env={"BUILD": str(net.library.build)})
    assert done.wait() == 0 and re.search(r"^\(124, .*error: no end after 2 s", done.text), done.text


@pytest.mark.parametrize("words, says", [
    (["nothere", "10.77.0.2"], "nothere: no such interface"),
    (["lo", "10.77.0.2"], "10.77.0.2 is not reached by lo"),
    (["{dev}", "10.77.0.2"], "port 11112: .* Start `scripts/try-card --peer 10.77.0.2` on that host"),
    ([], "IFACE and ADDRESS, or --peer ADDRESS"),
])
def test_what_the_user_can_mend(net, words, says):
    words = [net.a.dev if word == "{dev}" else word for word in words]
    done = net.a.run([TOOL, *words], env={"BUILD": str(net.library.build)}, check=False)
    print(done.text)
    assert done.popen.returncode in (1, 2) and re.search(says, done.text) and "Traceback" not in done.text
