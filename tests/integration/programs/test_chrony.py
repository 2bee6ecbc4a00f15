# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
chrony: a server that only serves, and a client that asks once. With the time stamps of what it sends its socket is the kernel's:
what is proved is that they work.
"""

from serving import ended, start


def test_the_time(net):
    conf = net.tmp / "conf"
    conf.write_text(f"local stratum 3\nallow all\nport 1123\nbindaddress {net.a.ip4}\ncmdport 0\nbindcmdaddress /\npidfile {net.tmp}/pid\n")
    server = start(net, ["chronyd", "-d", "-x", "-u", "root", "-f", conf], 1123, "udp")
    ask = ["chronyd", "-Q", "-t", "10", "-u", "root", f"server {net.a.ip4} port 1123 iburst maxsamples 1", f"pidfile {net.tmp}/pid2", "cmdport 0",
           "bindcmdaddress /"]
    for _ in range(3):
        assert "System clock wrong by" in net.b.run(ask).text
    ended(server)
