#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What loss costs TCP: goodput over a long and lossy wire, the kernel's two ends against the library's two, CUBIC or BBR on both.

    net.b  [ cpu 1: sender ] ---- lossy_link: delay, loss ---- [ cpu 0: receiver ]  net.a

Both directions lose, frames of at most 1500 bytes, and every seed is measured with both. All programs run before those of
other schedulers' classes, and nobody spins: an end that waits for a processor answers late, which is no property of its TCP.
Run alone it prints the tables of docs/tcp-loss.md; make bench has its middle as the row tcp_loss.
"""

import argparse
import pathlib
import re
import statistics
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "integration"))

import netns  # noqa: E402 (the path is made above)

PORT = 11111
STREAMS = 8
RTTS_MS = (1, 10, 50)
LOSSES = (0.1, 1, 5)
BBR_RTTS_MS, BBR_MBIT = (10, 50), 50
FIRST = ["chrt", "-f", "1"]
NO_SPIN = {"VMA_RX_POLL": 0, "VMA_SELECT_POLL": 0}


def attached(host):
    return "prog/xdp" in netns.ip("-n", host.name, "link", "show", host.dev)


def goodput(net, rtt_ms, loss, seed, seconds, sender_ours, receiver_ours, env=NO_SPIN, streams=STREAMS, control="cubic", mbit=0):
    """Mbit/s that arrive, all streams together. mbit: the wire's rate; 0: any."""
    program = net.library.build / "bench" / "bin" / "tcp_stream"
    for host in (net.a, net.b):
        if attached(host):
            netns.ip("-n", host.name, "link", "set", "dev", host.dev, "xdpgeneric", "off")
    with net.wire(rtt_ms, loss, seed, mbit):
        receiver = net.a.popen([*FIRST, program, "recv", net.a.ip4, PORT, streams], receiver_ours, env, cpu=0)
        net.a.wait_bound(PORT, "tcp")
        if receiver_ours:
            netns.wait_for(lambda: attached(net.a), what="the library's accept()")
        net.b.run([*FIRST, program, "send", net.a.ip4, PORT, streams, seconds, control], sender_ours, env, cpu=1,
                  timeout=seconds + 60)
        receiver.wait(60)
    return float(receiver.wait_text(r"goodput ([\d.]+)").group(1))


def table(net, seconds, seeds, bbr):
    """Lines of the table: the medians over the seeds, and the median of the seeds' ratios."""
    more = {"streams": 1, "control": "bbr", "mbit": BBR_MBIT} if bbr else {}
    yield "| RTT, ms | loss, % | kernel, Mbit/s | libvma.so, Mbit/s | ratio |"
    yield "| ---: | ---: | ---: | ---: | ---: |"
    for rtt in BBR_RTTS_MS if bbr else RTTS_MS:
        for loss in LOSSES:
            pairs = [[goodput(net, rtt, loss, seed, seconds, ours, ours, **more) for ours in (False, True)]
                     for seed in range(1, seeds + 1)]
            kernel, ours = (statistics.median(side) for side in zip(*pairs))
            ratio = statistics.median(o / k for k, o in pairs)
            yield f"| {rtt} | {loss:g} | {kernel:.1f} | {ours:.1f} | **{ratio:.2f}** |"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement (%(default)g)")
    parser.add_argument("--seeds", type=int, default=5, help="measurements of each side (%(default)d)")
    parser.add_argument("--bbr", action="store_true", help=f"in place of CUBIC's streams one of BBR, over a wire of {BBR_MBIT} Mbit/s")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vma-bench-") as tmp:
        net = netns.LossyNet(netns.Library(options.build.resolve(), sanitize=False), pathlib.Path(tmp))
        try:
            for line in table(net, options.seconds, options.seeds, options.bbr):
                print(line, flush=True)
        finally:
            net.close()


if __name__ == "__main__":
    main()
