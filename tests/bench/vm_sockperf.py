#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""sockperf's ping-pong over the mlx5 device in software, this library and the kernel in turns, in the guest of scripts/vm:

    make all helpers mlx5-device && scripts/vm -m 2048 -t 900 -- /usr/bin/python3 tests/bench/vm_sockperf.py

It shows that the same program runs, and what of a message is whose. The processor is emulated and the device is a thread that
looks every 30 to 60 microseconds: neither figure is a card's.
"""

import pathlib
import re
import statistics
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "integration"))

from cards import CardNet  # noqa: E402
from netns import Library  # noqa: E402

SECONDS = 10
ROUNDS = 3


def ping_pong(net, flags, ours):
    """Half a round trip in microseconds: the median."""
    server = net.a.popen(["sockperf", "server", "-i", net.a.ip4, *flags], preload=ours)
    net.a.wait_bound(11111, "tcp" if flags else "udp")
    client = net.b.popen(["sockperf", "ping-pong", "-i", net.a.ip4, "-t", str(SECONDS), *flags], preload=ours)
    assert client.wait(SECONDS + 60) == 0, client.text
    server.stop()
    text = re.sub(r"\x1b\[[0-9;]*m", "", client.text)
    assert "# dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0" in text, text
    return float(re.search(r"percentile 50\.0+ = +([0-9.]+)", text)[1])


def main():
    with tempfile.TemporaryDirectory() as tmp:
        net = CardNet(Library(ROOT / "build", ""), pathlib.Path(tmp))
        print(f"{'':24}{'library':>12}{'kernel':>12}  ratio   (us, median of {ROUNDS} rounds of {SECONDS} s)")
        for name, flags in (("sockperf ping-pong UDP", []), ("sockperf ping-pong TCP", ["--tcp"])):
            pairs = [(ping_pong(net, flags, True), ping_pong(net, flags, False)) for _ in range(ROUNDS)]
            ours, kernels = (statistics.median(column) for column in zip(*pairs))
            print(f"{name:24}{ours:12.1f}{kernels:12.1f}{kernels / ours:7.2f}", flush=True)
        for host in (net.a, net.b):
            print(f"{host.dev}: {host.card['tx_wqes']} WQEs, {host.card['rx_frames']} frames received, {host.card['complaints']} complaints")
        net.close()


if __name__ == "__main__":
    main()
