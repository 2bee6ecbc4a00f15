# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The whole library on mlx5 queues in memory (tests/bench/mlx5.c): the card is the descriptor checker, in the same process."""

import subprocess

import pytest

from netns import ROOT

MLX5 = {"VMA_RING_TYPE": "mlx5"}
# Answers each datagram but those that the library's first look at the neighbour made the kernel send.
PEER = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], 7002))
print("bound", flush=True)
while True:
    data, who = s.recvfrom(2000)
    if data == b"by the kernel":
        s.sendto(b"answer", who)
        break
"""


@pytest.fixture
def program(library):
    done = subprocess.run(["make", "-s", "-C", ROOT, "build/bench/bin/mlx5"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return ROOT / "build/bench/bin/mlx5"


@pytest.mark.no_sanitize
@pytest.mark.parametrize("mode", ["0", "1", "2"])
def test_datagrams_of_every_length_both_ways(make_net, program, mode):
    net = make_net()
    done = net.a.run([program, "check", net.a.ip4, net.b.ip4, 1], env={**MLX5, "VMA_THREAD_MODE": mode}, timeout=120)
    assert "complain" not in done.text, done.text


@pytest.mark.no_sanitize
@pytest.mark.parametrize("what", ["tcp_full", "tcp_full_lso"])
def test_a_full_queue_is_no_loss_for_tcp(make_net, program, what):
    net = make_net()
    done = net.a.run([program, what, net.a.ip4, net.b.ip4, 1], env=MLX5, timeout=120)
    assert "complain" not in done.text, done.text


@pytest.mark.no_sanitize
def test_when_the_device_goes_sockets_go_on_and_connections_end(make_net, program):
    net = make_net()
    peer = net.b.python(PEER, args=[net.b.ip4])
    peer.wait_text("bound")
    done = net.a.run([program, "gone", net.a.ip4, net.b.ip4, 1], env=MLX5, timeout=120)
    assert "the device is gone" in done.text, done.text
    peer.wait()
