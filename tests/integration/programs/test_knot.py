# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""knot: UDP and TCP workers, which share the port by SO_REUSEPORT."""

from dns import ZONE, asked
from serving import ended, no_kernel_datagrams, start

CONF = """
server:
  rundir: "{dir}"
  user: root:root
  listen: {a}@5300
  udp-workers: 1
  tcp-workers: 1
  background-workers: 1
log:
  - target: stderr
    any: error
database:
  storage: "{dir}/db"
zone:
  - domain: here
    file: "{dir}/zone"
"""


def test_answers(net):
    (net.tmp / "zone").write_text(ZONE)
    conf = net.tmp / "conf"
    conf.write_text(CONF.format(a=net.a.ip4, dir=net.tmp))
    server = start(net, ["knotd", "-c", conf])
    net.a.wait_bound(5300, "udp")
    asked(net, 5300, 3, "+notcp")
    with no_kernel_datagrams(net, 2):
        asked(net, 5300, 20, "+notcp")
    asked(net, 5300, 5, "+tcp")
    ended(server)
