# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""nng: requests and answers, threads and eventfds around sockets."""

from serving import OURS, no_kernel_connections, start


def test_request_and_answer(net):
    start(net, ["nngcat", "--rep", "--listen", f"tcp://{net.a.ip4}:7000", "--data", "answer", "--quoted"], 7000)
    with no_kernel_connections(net.a):
        for _ in range(5):
            assert "answer" in net.b.run(["nngcat", "--req", "--dial", f"tcp://{net.a.ip4}:7000", "--data", "question", "--ascii"]).text


def test_pushed(net):
    pull = net.b.popen(["stdbuf", "-oL", "nngcat", "--pull", "--listen", f"tcp://{net.b.ip4}:7001", "--quoted"])
    net.b.wait_bound(7001, "tcp")
    with no_kernel_connections(net.a):
        net.a.run(["nngcat", "--push", "--dial", f"tcp://{net.b.ip4}:7001", "--data", "pushed", "--delay", "1"], preload=OURS)
    pull.wait_text("pushed")
