# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""nuttcp: a control connection, and a data connection that the client makes."""

from serving import OURS, no_kernel_connections


def test_stream(net):
    net.b.popen(["nuttcp", "-S", "--nofork", "-1"])
    net.b.wait_bound(5000, "tcp")
    with no_kernel_connections(net.a, 1500):
        text = net.a.run(["nuttcp", "-n", "20m", "-t", net.b.ip4], preload=OURS).text
    assert "Mbps" in text, text
