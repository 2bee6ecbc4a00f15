# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""nsd: servers forked of a main process, which made the sockets: those are the kernel's then (limits.md).
What is proved is that each question is answered."""

from dns import ZONE, asked
from serving import ended, start

CONF = """
server:
  ip-address: {a}@5300
  server-count: 2
  username: ""
  chroot: ""
  pidfile: "{dir}/pid"
  database: ""
  zonelistfile: "{dir}/zones"
  xfrdfile: "{dir}/xfrd"
  xfrdir: "{dir}"
  zonesdir: "{dir}"
remote-control:
  control-enable: no
zone:
  name: here
  zonefile: zone
"""


def test_answers(net):
    (net.tmp / "zone").write_text(ZONE)
    conf = net.tmp / "conf"
    conf.write_text(CONF.format(a=net.a.ip4, dir=net.tmp))
    server = start(net, ["nsd", "-d", "-c", conf])
    net.a.wait_bound(5300, "udp")
    asked(net, 5300, 20, "+notcp")
    asked(net, 5300, 5, "+tcp")
    ended(server)
