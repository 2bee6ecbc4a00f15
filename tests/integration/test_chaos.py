# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Random calls from 16 threads on descriptors that they share, in both families, by the program chaos, which ends when a call does not
return or says what no kernel socket says. Its peer is the same program on kernel sockets. chaos_data does so on connections whose data is
known, and ends when what arrives is not what was sent. Longer, by hand: CHAOS_CALLS=100000 CHAOS_SEED=7, also with --sanitize, --tsan
and --locks.
"""

import os
import re

import pytest

from netns import ip, wait_for, where

CALLS = int(os.environ.get("CHAOS_CALLS", 400))
SEED = int(os.environ.get("CHAOS_SEED", 1))
THREADS = 16


def start(host, peer, ours, seed, *how, program="chaos", calls=CALLS):
    addresses = [host.ip4, peer.ip4, host.ip6, peer.ip6]
    return host.popen([host.net.library.helpers / program, seed, calls, THREADS, *addresses, *how], ours)


def ended(process):
    wait_for(lambda: not process.alive() or "has not returned" in process.text, 120 + CALLS / 10, f"the end of {process}")
    assert not process.alive(), f"{process.text[-2000:]}{where(process.pid)}"
    assert process.wait() == 0, f"{process}:\n{process.text[-3000:]}"
    done = int(re.search(r"^(\d+) calls", process.text, re.M).group(1))
    assert done >= CALLS * THREADS * 0.9
    print(process.text)


@pytest.mark.parametrize("ours", [False, True], ids=["kernel", "ours"])
# ASan (GCC 12) takes the stack that a cancelled thread has left for poisoned, in a handler of its own.
@pytest.mark.parametrize("how", ["threads", *(pytest.param(how, marks=pytest.mark.no_asan) for how in ("cancel", "fork"))])
def test_each_call_returns(net, ours, how):
    both = [start(net.a, net.b, ours, SEED, how), start(net.b, net.a, False, SEED + 1, how)]
    for process in both:
        ended(process)


def test_interfaces_that_vanish(net):
    times = 0
    for turn in range(20):
        chaos, peer = start(net.a, net.b, True, SEED + 2 * turn), start(net.b, net.a, False, SEED + 2 * turn + 1)
        while chaos.alive():
            wait_for(lambda: not chaos.alive() or "prog/xdp" in net.a.run(["ip", "link", "show", net.a.dev]).text, 30, "offload")
            if chaos.alive():
                ip("-n", net.a.name, "link", "del", net.a.dev)
                net.link()
                times += 1
        ended(chaos)
        ended(peer)
        # On a fast machine a run is over before its interface has vanished often.
        if times >= 3:
            return
    raise AssertionError(f"{times} interfaces have vanished")


@pytest.mark.parametrize("ours", ["kernel", "ours", "both-ours"])
# libasan does not take its allocator's locks around fork(): on a busy machine two of five runs have a child that hangs in it.
@pytest.mark.parametrize("how", [pytest.param([], id="threads"), pytest.param(["fork"], id="fork", marks=pytest.mark.no_asan)])
def test_what_arrives_is_what_was_sent(net, ours, how):
    net.neighbours()
    seen = {4: [0, 0, 0], 6: [0, 0, 0]}  # bytes, ends, datagrams
    for turn in range(5):
        both = [start(net.a, net.b, ours != "kernel", SEED + 2 * turn, *how, program="chaos_data", calls=2 * CALLS),
                start(net.b, net.a, ours == "both-ours", SEED + 2 * turn + 1, *how, program="chaos_data", calls=2 * CALLS)]
        for process in both:
            ended(process)
        text = "\n".join(process.text for process in both)
        found = re.findall(r"^IPv(\d): (\d+) bytes, (\d+) ends, (\d+) datagrams$", text, re.M)
        assert len(found) == 4, text
        for family, *numbers in found:
            seen[int(family)] = [total + int(n) for total, n in zip(seen[int(family)], numbers)]
        # What one run receives is chance: on a busy machine a family's connections may come to nothing.
        if all(seen[f][0] and seen[f][2] for f in seen) and seen[4][1] + seen[6][1]:
            print(turn + 1, "runs:", seen)
            return
    raise AssertionError(f"{seen}\n{text}")
