# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""dnsmasq: one process, poll(), datagrams with IP_PKTINFO."""

from dns import asked
from serving import ended, no_kernel_datagrams, start


def test_answers(net):
    server = start(net, ["dnsmasq", "-k", "-C", "/dev/null", "-p", "5300", f"--listen-address={net.a.ip4}", "--bind-interfaces", "-R", "-h",
                         "-u", "root", "--pid-file=", "--address=/name.here/192.0.2.7"], 5300, "udp")
    asked(net, 5300, 3, "+notcp")
    with no_kernel_datagrams(net, 2):
        asked(net, 5300, 20, "+notcp")
    asked(net, 5300, 5, "+tcp")
    ended(server)
