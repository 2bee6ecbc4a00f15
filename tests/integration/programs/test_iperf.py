# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""iperf 2: threads, TCP both ways at once and datagrams."""

import pytest

from serving import OURS, no_kernel_connections, no_kernel_datagrams


@pytest.mark.parametrize("options", [["-P", "2"], ["-d"]], ids=["two", "both-ways"])
def test_streams(net, options):
    """
    For a time, not a size: where one stream of the two is over before the other has begun (20 MB are, in 24 ms), iperf's server locks a mutex that
    it has freed, and reads no more (1 of 300).
    """
    net.b.popen(["iperf", "-s"])
    net.b.wait_bound(5001, "tcp")
    for tries in range(3):
        made = net.a.counters()["TcpPassiveOpens"]
        try:
            with no_kernel_connections(net.a, 1500):
                text = net.a.run(["iperf", "-c", net.b.ip4, "-t", "1", *options], preload=OURS).text
            break
        except AssertionError:
            # The server's connection back came before iperf's thread that accepts it has waited for it: it is the kernel's.
            if tries == 2 or net.a.counters()["TcpPassiveOpens"] == made:
                raise
    assert "bits/sec" in text and "failed" not in text, text


def test_datagrams(net):
    net.b.popen(["iperf", "-s", "-u"])
    net.b.wait_bound(5001)
    with no_kernel_datagrams(net, 5):
        text = net.a.run(["iperf", "-c", net.b.ip4, "-u", "-b", "20M", "-t", "1"], preload=OURS).text
    assert "bits/sec" in text, text
