# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""unbound: answers of its own zone. Its TCP listener has TCP_FASTOPEN, and so is the kernel's."""

import pytest

from dns import asked
from serving import ended, no_kernel_datagrams, start

CONF = """
server:
  interface: {a}
  port: 5300
  num-threads: {threads}
  access-control: 0.0.0.0/0 allow
  do-daemonize: no
  chroot: ""
  username: ""
  pidfile: ""
  use-syslog: no
  directory: "{dir}"
  local-zone: "here." static
  local-data: "name.here. A 192.0.2.7"
remote-control:
  control-enable: no
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_answers(net, threads):
    conf = net.tmp / "conf"
    conf.write_text(CONF.format(a=net.a.ip4, dir=net.tmp, threads=threads))
    server = start(net, ["unbound", "-d", "-c", conf], 5300, "udp")
    asked(net, 5300, 5, "+notcp")
    with no_kernel_datagrams(net, 2):
        asked(net, 5300, 20, "+notcp")
    asked(net, 5300, 5, "+tcp")
    ended(server)
