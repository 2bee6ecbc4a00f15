# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""iperf3 with datagrams: its server connects the socket that had the first one."""

import json

from serving import start


def test_datagrams(net):
    net.neighbours()
    server = start(net, ["iperf3", "-s", "-1"])
    net.a.wait_bound(5201, "tcp")
    before = net.a.counters()
    end = json.loads(net.b.run(["iperf3", "-J", "-u", "-b", "50M", "-l", "1000", "-t", "1", "-c", net.a.ip4]).text)["end"]
    seen = {n: net.a.counters()[n] - before[n] for n in ("UdpInDatagrams", "UdpOutDatagrams")}
    print(end["sum"]["packets"], "datagrams; by the kernel:", seen)
    assert end["sum"]["packets"] > 1000 and seen["UdpInDatagrams"] < 100, (end["sum"], seen)
    assert server.wait() == 0, server.text
