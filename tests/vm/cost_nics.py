# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
What a packet costs in each mode of AF_XDP, in instructions: VM_ACCEL=icount scripts/vm -n virtio4 -k 6.18 -c 2 -t 1500 tests/vm/cost_nics.py

By hand: not one of `make test`. QEMU counts: each instruction takes one nanosecond of the guest's time, so the time in which its
processors are not idle is the number of its instructions, of both hosts, drivers and the kernel. (Of two that are busy at once each
counts the other's, too: in a ping-pong hardly ever.)
"""

import os

import pytest

from nic_programs import INFO, served, settled
from nics import KINDS, NicNet
from test_mlx5 import ECHO, PORT

ROUNDS = 20000
MODES = ["kernel", "generic", "native", "auto"]
CLIENT = """
import os, socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect((sys.argv[1], 7000))
s.settimeout(60)
def rounds(n):
    for _ in range(n):
        s.send(bytes(64))
        s.recv(100)
def busy():
    return os.cpu_count() * time.monotonic_ns() - int(float(open("/proc/uptime").read().split()[1]) * 1e9)
rounds(300)
before = busy()
rounds(int(sys.argv[2]))
print("cost", (busy() - before) // int(sys.argv[2]), flush=True)
"""


@pytest.mark.skipif(os.environ.get("VM_ACCEL") != "icount", reason="by hand: VM_ACCEL=icount")
@pytest.mark.parametrize("kind", KINDS)
def test_a_round_trip_in_the_best_mode_costs_no_more_than_in_generic_mode(kind, library, tmp_path):
    cost, said = {}, {}
    for mode in MODES:
        (tmp_path / mode).mkdir()
        net = NicNet(kind, library, tmp_path / mode)
        settled(net)
        # A thread that waits sleeps at once: what it would spin is not what a packet costs.
        server = net.a.python(ECHO, mode != "kernel", ["udp", net.a.ip4], env={**INFO, "VMA_XDP_MODE": mode.replace("kernel", "auto"), "VMA_RX_POLL": 0})
        net.a.wait_bound(PORT, "udp")
        client = net.b.python(CLIENT, False, [net.a.ip4, ROUNDS], env=INFO)
        cost[mode] = int(client.wait_text(r"^cost (\d+)$", 600)[1])
        said[mode] = served(server) if mode != "kernel" else "the kernel"
        print(f"{kind} {mode} ({said[mode]}): {cost[mode]} instructions for a round trip", flush=True)
        net.close()
    assert min(cost["native"], cost["auto"]) <= cost["generic"]
